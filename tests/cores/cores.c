// SPDX-License-Identifier: Apache-2.0
/*
 * What the library does on many cores, counted on simulated ones (sim.c): transfers of cache lines
 * per op, and lines that calls on unrelated objects share.  Deterministic, so it needs neither
 * many cores nor a quiet machine.
 *
 *	cores [-j] [-n OPS] [-t THREADS,...] [-b NS,...] [-r ROWS] [SCENARIO...]
 *	cores -c BUDGETS	transfers per op at most
 *	cores -p [-l LIST] [PAIR...]	pairs of calls, and what they may share
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <pawl/engine.h>
#include <bench/work.h>
#include "name.h"
#include "sim.h"

void bench_die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(2);
}

static void ok(int rc, const char *what)
{
	if (rc)
		bench_die("cores: %s: %d: %s", what, rc, pawl_error_text());
}

#define MANY	64u	/* vars of a thread, requests of a thread */
#define STEPS	4u		/* ops of a request */
#define SHARED	8u
#define ALL	SIM_MAX
#define NO_LIMIT	UINT32_MAX

static struct pawl_engine *e;
static u32 T, ops = 4000, body_ns;
static u64 began, ended, done_ops;
static u32 met, bodies;		/* threads that met; ops whose bodies ran */

static void create(int workers)
{
	struct pawl_config c;

	pawl_config_init(&c);
	c.workers = workers;
	c.priority_workers = 0;
	c.copy_workers = 0;
	c.start_workers = true;
	c.trim_ns = 0;
	ok(pawl_engine_create(&c, &e), "create");
	cores_names(e);
}

static void destroy(void)
{
	ok(pawl_engine_destroy(e), "destroy");
}

static void var(pawl_var_t *v)
{
	ok(pawl_var_create(e, v), "var");
}

static void wait_all(void)
{
	ok(pawl_wait_all(e, -1, NULL), "wait_all");
}

static int body(struct pawl_run *run, void *arg)
{
	(void)run;
	if (arg)
		bench_hash(arg);
	bodies++;
	if (body_ns)
		sim_work(body_ns);
	return 0;
}

/* From here on is measured. */
static void measure(void)
{
	sim_reset();
	bodies = 0;
	began = sim_ns();
}

static void measured(u64 n)
{
	sim_stop();
	ended = sim_ns();
	done_ops = n;
}

/* --- one maker: T - 1 workers, and the maker waits in the end ------------------------ */

static const char *shape;

static void push_work(struct bench_op *w, pawl_var_t *vars)
{
	struct pawl_op p = PAWL_OP_INIT;
	pawl_var_t v[BENCH_MAX_VARS_PER_OP];
	u32 i;

	for (i = 0; i < (u32)w->nr + w->nw; i++)
		v[i] = vars[w->v[i]];
	p.fn = body;
	p.arg = w;
	p.reads = v;
	p.nreads = w->nr;
	p.writes = v + w->nr;
	p.nwrites = w->nw;
	ok(pawl_push(e, &p), "push");
}

static void maker(void)
{
	struct work *w = work_make(shape, ops, 1);
	pawl_var_t *vars;
	u32 i, round;

	if (!w)
		bench_die("cores: no scenario \"%s\"", shape);
	vars = calloc(w->nvars, sizeof(*vars));
	create((int)T - 1);
	for (i = 0; i < w->nvars; i++)
		var(&vars[i]);
	for (round = 0; round < 2; round++) {
		work_reset(w);
		if (round)
			measure();
		for (i = 0; i < w->n; i++)
			push_work(&w->ops[i], vars);
		wait_all();
		if (work_check(w))
			bench_die("cores: %s: var %u is not what a serial run gives", shape,
				  work_check(w) - 1);
	}
	measured(w->n);
	free(vars);
	destroy();
	work_free(w);
}

/* --- T threads that each push and run their own ops ---------------------------------- */

static pawl_var_t shared[SHARED];
static u32 many;			/* ops before the first one runs; 1: each runs at once */
static bool reads_shared;

static void push_own(pawl_var_t v, pawl_var_t read)
{
	struct pawl_op p = PAWL_OP_INIT;

	p.fn = body;
	p.writes = &v;
	p.nwrites = 1;
	p.reads = &read;
	p.nreads = reads_shared;
	ok(pawl_push(e, &p), "push");
}

static void runs_until(u32 left)
{
	while (left && pawl_run_one(e) > 0)
		left--;
}

static void own_thread(void *arg)
{
	pawl_var_t v[MANY];
	u32 i, n = ops / 4;

	(void)arg;
	for (i = 0; i < MANY; i++)
		var(&v[i]);
	for (i = 0; i < 2 * MANY; i++) {
		push_own(v[i % MANY], shared[0]);
		runs_until(1);
	}
	sim_meet(&met, T);
	if (arg)
		measure();
	for (i = 0; i < n; i++) {
		push_own(v[i % MANY], shared[0]);
		if (many == 1)
			runs_until(1);
	}
	sim_meet(&met, T);
	if (arg)
		measured(n);
	runs_until(n);
	sim_meet(&met, T);
}

static void own(void)
{
	u32 threads[ALL], i;

	create(0);
	var(&shared[0]);
	met = 0;
	for (i = 1; i < T; i++)
		sim_start(&threads[i], own_thread, NULL);
	own_thread(&threads);
	for (i = 1; i < T; i++)
		sim_join(threads[i]);
	destroy();
}

/* --- requests: T / 2 threads with MANY in flight each, T / 2 workers ------------------- */

struct client {
	pawl_var_t v[MANY];
	pawl_cq_t cq;
	u32 n;
};

static void request(struct client *c, u32 i)
{
	struct pawl_op p = PAWL_OP_INIT;
	u32 s;

	p.fn = body;
	p.writes = &c->v[i];
	p.nwrites = 1;
	p.nreads = 1;
	for (s = 0; s < STEPS; s++) {
		p.reads = &shared[(i + s) % SHARED];
		if (s == STEPS - 1) {
			p.flags = PAWL_OP_CQ;
			p.cq = c->cq;
			p.tag = i;
		}
		ok(pawl_push(e, &p), "push");
	}
}

static void client_thread(void *arg)
{
	struct client c;
	struct pawl_completion got[16];
	u32 i, flying, left, round;

	ok(pawl_cq_create(e, &c.cq), "cq");
	for (i = 0; i < MANY; i++)
		var(&c.v[i]);
	for (round = 0; round < 2; round++) {
		sim_meet(&met, (T + 1) / 2);
		if (arg && round)
			measure();
		left = max_u(ops / 4 / STEPS, MANY);
		for (flying = 0; flying < MANY; flying++, left--)
			request(&c, flying);
		while (flying) {
			int n = pawl_cq_reap(e, c.cq, got, ARRAY_SIZE(got));

			if (n < 0)
				bench_die("cores: reap: %d: %s", n, pawl_error_text());
			if (!n) {
				pawl_cq_wait(e, c.cq, -1);
				continue;
			}
			for (i = 0; i < (u32)n; i++) {
				if (left) {
					request(&c, (u32)got[i].tag);
					left--;
				} else {
					flying--;
				}
			}
		}
		sim_meet(&met, (T + 1) / 2);
	}
	if (arg)
		measured(bodies);
	ok(pawl_cq_destroy(e, c.cq), "cq_destroy");
}

static void requests(void)
{
	u32 threads[ALL], i, clients = (T + 1) / 2;

	create((int)max_u(T / 2, 1));
	for (i = 0; i < SHARED; i++)
		var(&shared[i]);
	met = 0;
	for (i = 1; i < clients; i++)
		sim_start(&threads[i], client_thread, NULL);
	client_thread(&threads);
	for (i = 1; i < clients; i++)
		sim_join(threads[i]);
	destroy();
}

/* --- the table -------------------------------------------------------------------------- */

static const struct scenario {
	const char *name;
	void (*run)(void);
	u32 many;
	bool reads_shared, bodies;	/* bodies: also with bodies that are not empty */
} scenarios[] = {
	{ "chain", maker, 0, false, true },
	{ "indep", maker, 0, false, true },
	{ "readers", maker, 0, false, true },
	{ "random", maker, 0, false, true },
	{ "stencil", maker, 0, false, true },
	{ "cholesky", maker, 0, false, true },
	{ "own", own, 1, false, false },
	{ "shared", own, 1, true, false },
	{ "push", own, 0, false, false },
	{ "requests", requests, 0, true, true },
};


/* --- pairs of calls on unrelated objects --------------------------------------------------- */

#define STEPS_WARM	512u
#define STEPS_COUNTED	2048u

struct user {
	const struct call *call;
	pawl_var_t v[MANY];
	pawl_cq_t cq;
	pawl_group_t group;
	pawl_graph_t graph;
	pawl_token_t token;
	bool first;
};

static void start_async(struct pawl_run *run, void *arg)
{
	((struct user *)arg)->token = run->token;
}

static struct pawl_op write_of(struct user *u, u32 i)
{
	struct pawl_op p = PAWL_OP_INIT;

	p.fn = body;
	p.writes = &u->v[i % MANY];
	p.nwrites = 1;
	return p;
}

static void step_push(struct user *u, u32 i)
{
	struct pawl_op p = write_of(u, i);

	ok(pawl_push(e, &p), "push");
}

static void step_batch(struct user *u, u32 i)
{
	struct pawl_op p[4];
	u32 k;

	for (k = 0; k < 4; k++)
		p[k] = write_of(u, i * 4 + k);
	ok(pawl_push_batch(e, p, 4), "batch");
	runs_until(4);
}

static void step_run(struct user *u, u32 i)
{
	step_push(u, i);
	runs_until(1);
}

static void step_read(struct user *u, u32 i)
{
	struct pawl_op p = write_of(u, i);

	p.reads = shared;
	p.nreads = 1;
	ok(pawl_push(e, &p), "push");
	runs_until(1);
}

static void step_complete(struct user *u, u32 i)
{
	struct pawl_op p = write_of(u, i);

	p.fn = NULL;
	p.async_fn = start_async;
	p.arg = u;
	p.prop = PAWL_ASYNC;
	ok(pawl_push(e, &p), "push");
	ok(pawl_complete(e, u->token, 0, NULL), "complete");
}

static void step_cq(struct user *u, u32 i)
{
	struct pawl_op p = write_of(u, i);
	struct pawl_completion c;

	p.flags = PAWL_OP_CQ;
	p.cq = u->cq;
	ok(pawl_push(e, &p), "push");
	runs_until(1);
	while (!pawl_cq_reap(e, u->cq, &c, 1))
		ok(pawl_cq_wait(e, u->cq, -1), "cq_wait");
}

static void step_group(struct user *u, u32 i)
{
	struct pawl_op p = write_of(u, i);

	p.flags = PAWL_OP_GROUP;
	p.group = u->group;
	ok(pawl_push(e, &p), "push");
	runs_until(1);
}

static void step_var(struct user *u, u32 i)
{
	var(&u->v[i % MANY]);
	ok(pawl_var_delete(e, u->v[i % MANY], NULL, NULL), "delete");
}

static void step_graph(struct user *u, u32 i)
{
	struct pawl_launch l = { .size = sizeof(l) };

	l.vars = &u->v[i % MANY];
	l.nvars = 1;
	ok(pawl_graph_push(e, u->graph, &l), "launch");
	runs_until(1);
}

static void step_wait(struct user *u, u32 i)
{
	step_push(u, i);
	ok(pawl_wait_readable(e, u->v[i % MANY], -1, NULL), "wait");
}

static const struct call {
	const char *name;
	void (*step)(struct user *u, u32 i);
	bool runs;		/* what is ready, also if the other one pushed it */
} calls[] = {
	{ "push", step_push, false }, { "complete", step_complete, false }, { "var", step_var, false },
	{ "run", step_run, true }, { "batch", step_batch, true }, { "read", step_read, true },
	{ "cq", step_cq, true }, { "group", step_group, true }, { "graph", step_graph, true },
	{ "wait", step_wait, true },
};

static struct user users[2];

static void user_thread(void *arg)
{
	static const pawl_var_t slot = PAWL_SLOT(0);
	struct user *u = arg;
	struct pawl_op p;
	u32 i;

	for (i = 0; i < MANY; i++)
		var(&u->v[i]);
	ok(pawl_cq_create(e, &u->cq), "cq");
	ok(pawl_group_create(e, NULL, &u->group), "group");
	p = write_of(u, 0);
	p.writes = &slot;
	ok(pawl_graph_create(e, &p, 1, 0, &u->graph), "graph");
	for (i = 0; i < STEPS_WARM; i++)
		u->call->step(u, i);
	sim_meet(&met, 2);
	if (u->first) {
		sim_watch(6);
		measure();
	}
	sim_meet(&met, 2);
	for (; i < STEPS_WARM + STEPS_COUNTED; i++)
		u->call->step(u, i);
	sim_meet(&met, 2);
	if (u->first)
		measured(2 * STEPS_COUNTED);
	sim_meet(&met, 2);
	runs_until(NO_LIMIT);
	ok(pawl_graph_delete(e, u->graph), "graph_delete");
}

static void pair(void)
{
	u32 threads[2], i;

	create(0);
	var(&shared[0]);
	met = 0;
	for (i = 0; i < 2; i++)
		sim_start(&threads[i], user_thread, &users[i]);
	for (i = 0; i < 2; i++)
		sim_join(threads[i]);
	destroy();
}

static u32 list(char *s, u32 *to, u32 most)
{
	u32 n = 0;

	for (s = strtok(s, ","); s && n < most; s = strtok(NULL, ","))
		to[n++] = (u32)strtoul(s, NULL, 10);
	return n;
}

static void print_rows(u32 most, double per, bool json)
{
	struct sim_row rows[64];
	u32 i, n = sim_rows(rows, (u32)min_u(most, 64u), false);

	for (i = 0; i < n; i++) {
		if (json)
			printf("%s{\"object\":\"%s\",\"where\":\"%s\",\"transfers\":%.3f,\"ns\":%.1f}",
			       i ? "," : "", rows[i].object, rows[i].where,
			       (double)rows[i].transfers / per, (double)rows[i].wait_ns / per);
		else
			printf("    %7.3f %6.1f ns  %-24s %-36s %s\n", (double)rows[i].transfers / per,
			       (double)rows[i].wait_ns / per, rows[i].object, rows[i].where,
			       rows[i].text);
	}
}

static double simulate(const struct scenario *s)
{
	shape = s->name;
	many = s->many;
	reads_shared = s->reads_shared;
	sim_run(s->run);
	/* Where threads work side by side, the time is that of one op of each. */
	return (double)done_ops * (s->run == own ? T : 1);
}

static void run(const struct scenario *s, u32 rows, bool json)
{
	double all = simulate(s), n = (double)done_ops;
	struct sim_sum sum = sim_sum();
	if (json)
		printf("{\"scenario\":\"%s\",\"threads\":%u,\"body\":%u,\"transfers\":%.3f,\"ns\":%.1f,"
		       "\"atomics\":%.2f,\"accesses\":%.1f,\"lines\":[", s->name, T, body_ns,
		       (double)sum.transfers / all, (double)(ended - began) / n,
		       (double)sum.atomics / all, (double)sum.accesses / all);
	else
		printf("%-9s T=%-3u body=%-5u transfers=%-7.3f ns=%-8.1f atomics=%-6.2f accesses=%-6.1f "
		       "sleeps=%.3f\n", s->name, T, body_ns, (double)sum.transfers / all,
		       (double)(ended - began) / n, (double)sum.atomics / all, (double)sum.accesses / all,
		       (double)sum.futex_waits / all);
	print_rows(rows, all, json);
	if (json)
		printf("]}\n");
	fflush(stdout);
}

/*
 * What two calls may share: lines of FILE with the pair ("push/run", "*" for all), the function
 * that finds the line elsewhere, how often per call at most, and why.  Returns the most.
 */
static double allowed(const char *file, const char *name, const char *where)
{
	char text[512], *pair_of, *func, *most, *save;
	size_t n = strcspn(where, ",");
	double found = 0;
	FILE *f = file ? fopen(file, "r") : NULL;

	while (f && fgets(text, sizeof(text), f)) {
		pair_of = strtok_r(text, "\t", &save);
		func = strtok_r(NULL, "\t", &save);
		most = strtok_r(NULL, "\t", &save);
		if (*text == '#' || !most)
			continue;
		if (strcmp(func, "*") && (strncmp(func, where, n) || func[n]))
			continue;
		if (!strcmp(pair_of, "*") || !strcmp(pair_of, name))
			found = max_u(found, strtod(most, NULL));
	}
	if (f)
		fclose(f);
	return found;
}

/* Add up what one function moves.  Returns how many rows are left. */
static u32 by_function(struct sim_row *rows, u32 n)
{
	u32 i, k, left = 0;

	for (i = 0; i < n; i++) {
		size_t len = strcspn(rows[i].where, ",") + 1;

		for (k = 0; k < left; k++)
			if (!strncmp(rows[k].where, rows[i].where, len))
				break;
		if (k == left)
			rows[left++] = rows[i];
		else
			rows[k].transfers += rows[i].transfers;
	}
	return left;
}

/* Returns how many rows are not in the list. */
static u32 run_pair(u32 a, u32 b, const char *file, bool all)
{
	static struct sim_row rows[1024];
	char name[64];
	u32 i, n, bad = 0;

	snprintf(name, sizeof(name), "%s/%s", calls[a].name, calls[b].name);
	users[0] = (struct user){ .call = &calls[a], .first = true };
	users[1] = (struct user){ .call = &calls[b] };
	sim_run(pair);
	n = by_function(rows, sim_rows(rows, ARRAY_SIZE(rows), true));
	for (i = 0; i < n; i++) {
		double rate = (double)rows[i].transfers / (double)done_ops;
		bool listed = rate <= allowed(file, name, rows[i].where);

		bad += !listed;
		if (all || !listed)
			printf("%s %-17s %.4f  %-20s %-36s %s\n", listed ? "    " : "new ", name, rate,
			       rows[i].object, rows[i].where, rows[i].text);
	}
	return bad;
}

static int run_pairs(const char *file, int argc, char **argv)
{
	u32 a, b, bad = 0, n = 0;
	int i;

	for (a = 0; a < ARRAY_SIZE(calls); a++) {
		for (b = a; b < ARRAY_SIZE(calls); b++) {
			char name[64];
			bool wanted = !argc;

			/* A thread that only pushes leaves its ops to the other one, so they share them. */
			if (!a && calls[b].runs)
				continue;

			snprintf(name, sizeof(name), "%s/%s", calls[a].name, calls[b].name);
			for (i = 0; i < argc; i++)
				wanted |= !strcmp(argv[i], name);
			if (!wanted)
				continue;
			bad += run_pair(a, b, file, argc);
			n++;
		}
	}
	printf("C25 cores: pairs=%u unlisted=%u %s\n", n, bad, bad ? "FAIL" : "PASS");
	return bad ? 1 : 0;
}

static int by_size(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/*
 * Lines of FILE: scenario, threads, body in ns, transfers per op at most.  A run is deterministic,
 * but one more op can lead it to another order: the median of three lengths counts.
 */
static int check_budgets(const char *file)
{
	FILE *f = fopen(file, "r");
	u32 i, k, n = 0, bad = 0, length = ops;
	char text[256], name[32];
	double most, per = 0, is[3];

	if (!f)
		bench_die("cores: %s: %s", file, strerror(errno));
	while (fgets(text, sizeof(text), f)) {
		if (*text == '#' || *text == '\n')
			continue;
		if (sscanf(text, "%31s %u %u %lf", name, &T, &body_ns, &most) != 4)
			bench_die("cores: %s: not a budget: %s", file, text);
		for (i = 0; i < ARRAY_SIZE(scenarios) && strcmp(scenarios[i].name, name); i++)
			;
		if (i == ARRAY_SIZE(scenarios))
			bench_die("cores: %s: no scenario \"%s\"", file, name);
		for (k = 0; k < 3; k++) {
			ops = length + length / 8 * k;
			per = simulate(&scenarios[i]);
			is[k] = (double)sim_sum().transfers / per;
		}
		qsort(is, 3, sizeof(*is), by_size);
		printf("%s %-9s T=%-3u body=%-5u transfers=%.3f (%.3f to %.3f) budget=%.3f\n",
		       is[1] > most ? "OVER" : "    ", name, T, body_ns, is[1], is[0], is[2], most);
		if (is[1] > most)
			print_rows(5, per, false);
		bad += is[1] > most;
		n++;
	}
	fclose(f);
	printf("C25 cores: budgets=%u over=%u %s\n", n, bad, bad ? "FAIL" : "PASS");
	return bad ? 1 : 0;
}

int main(int argc, char **argv)
{
	u32 threads[16] = { 1, 2, 4, 8, 16, 64 }, nthreads = 6, bodies_ns[16] = { 0 }, nbodies = 1;
	u32 rows = 5, i, k, b;
	bool json = false, pairs = false;
	const char *file = NULL, *budgets = NULL;
	int opt;

	while ((opt = getopt(argc, argv, "jn:t:b:r:pl:c:")) != -1) {
		switch (opt) {
		case 'p':
			pairs = true;
			break;
		case 'l':
			file = optarg;
			break;
		case 'c':
			budgets = optarg;
			break;
		case 'j':
			json = true;
			break;
		case 'n':
			ops = (u32)strtoul(optarg, NULL, 10);
			break;
		case 't':
			nthreads = list(optarg, threads, ARRAY_SIZE(threads));
			break;
		case 'b':
			nbodies = list(optarg, bodies_ns, ARRAY_SIZE(bodies_ns));
			break;
		case 'r':
			rows = (u32)strtoul(optarg, NULL, 10);
			break;
		default:
			return 2;
		}
	}
	if (budgets)
		return check_budgets(budgets);
	if (pairs)
		return run_pairs(file, argc - optind, argv + optind);
	for (i = 0; i < ARRAY_SIZE(scenarios); i++) {
		bool wanted = optind == argc;
		int a;

		for (a = optind; a < argc; a++)
			wanted |= !strcmp(argv[a], scenarios[i].name);
		for (k = 0; wanted && k < nthreads; k++) {
			T = threads[k];
			for (b = 0; b < nbodies; b++) {
				body_ns = bodies_ns[b];
				if (!body_ns || scenarios[i].bodies)
					run(&scenarios[i], rows, json);
			}
		}
	}
	return 0;
}
