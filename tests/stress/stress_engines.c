// SPDX-License-Identifier: Apache-2.0
/*
 * Several threads create, use and destroy engines at once, while others enter the engines.
 *
 * Each round is a process in which libpawl was not used before, so several threads create the
 * first engines, and what exists once per process, at the same time.  An owner creates an
 * engine with a random configuration, admits other threads, pushes, perhaps waits, and destroys
 * the engine when the others have left.  A visitor enters the engine of any owner: it attaches,
 * pushes, waits, reads statistics, trims, and detaches or leaves its slot to the thread's exit.
 * Both fork at random; the child creates an engine.  Every engine must have run each op that it
 * accepted exactly once.
 *
 *	stress_engines [--seed N] [--seconds S] [--owners N] [--visitors N]
 */
#include "stress.h"
#include "../device/fake.h"

#define OWNERS_MAX	8
#define VISITORS_MAX	8
#define NVARS		4
#define OPEN		(1u << 31)

static u32 nowners = 4, nvisitors = 2;

struct job {
	struct house *h;
	u32 var;
};

/*
 * The engine of an owner.  state is OPEN while others may enter, plus the number of threads
 * inside; when it is 0, the owner alone uses the engine.
 */
struct house {
	u32 state;		/* A */
	struct pawl_engine *e;	/* by the owner, while it is not open */
	pawl_var_t v[NVARS];	/* likewise */
	pawl_graph_t graph;	/* likewise */
	struct job node;	/* likewise: the arg of the graph's op */
	u64 accepted, released;	/* A */
	u64 sum[NVARS];		/* plain: the vars guard them */
	u64 writes[NVARS];	/* A: accepted ops that write the var */
};

static struct house houses[OWNERS_MAX];
static u32 over;		/* A: the owners have ended */
static u64 round_seed;
static u64 total;		/* A: ops accepted */

static void ended(void *arg, int status)
{
	struct house *h = arg;

	MUST(!status);
	fetch_add_acq_rel(&h->released, 1);
}

static int add_body(struct pawl_run *run, void *arg)
{
	const struct job *j = arg;

	j->h->sum[j->var]++;
	return 0;
}

static void late_body(struct pawl_run *run, void *arg)
{
	add_body(run, arg);
	MUST(!pawl_complete(run->engine, run->token, 0, NULL));
}

static void job_ended(void *arg, int status)
{
	const struct job *j = arg;

	ended(j->h, status);
}

/* An op that writes one var, and perhaps reads another one. */
static void op_make(struct house *h, struct pawl_op *op, struct job *j, u64 *seed)
{
	u32 var = (u32)(rnd(seed) % NVARS);

	*j = (struct job){ h, var };
	*op = (struct pawl_op)PAWL_OP_INIT;
	op->flags = PAWL_OP_ARG;
	op->arg = j;
	op->arg_size = sizeof(*j);
	op->release = job_ended;
	if (rnd(seed) % 4)
		op->fn = add_body;
	else
		op->async_fn = late_body;
	op->writes = &h->v[var];
	op->nwrites = 1;
	if (rnd(seed) % 2) {
		op->reads = &h->v[(var + 1) % NVARS];
		op->nreads = 1;
	}
	op->prop = rnd(seed) % 4 ? PAWL_NORMAL : rnd(seed) % 2 ? PAWL_CPU_PRIORITIZED : PAWL_ASYNC;
}

static void accepted(struct house *h, const struct job *j, u32 n)
{
	while (n--) {
		fetch_add_relaxed(&h->writes[j[n].var], 1);
		fetch_add_acq_rel(&h->accepted, 1);
	}
}

static void push(struct house *h, u64 *seed)
{
	u32 n = rnd(seed) % 4 ? 1 : 2 + (u32)(rnd(seed) % 3), i;
	struct pawl_op op[4];
	struct job j[4];

	for (i = 0; i < n; i++)
		op_make(h, &op[i], &j[i], seed);
	MUST(!(n == 1 ? pawl_push(h->e, op) : pawl_push_batch(h->e, op, n)));
	accepted(h, j, n);
}

static void launch(struct house *h)
{
	MUST(!pawl_graph_push(h->e, h->graph, NULL));
	fetch_add_relaxed(&h->writes[h->node.var], 1);
}

/* An op whose completion this thread reaps. */
static void push_and_reap(struct house *h, u64 *seed)
{
	struct pawl_completion c;
	struct pawl_op op;
	struct job j;
	pawl_cq_t cq;
	int rc;

	MUST(!pawl_cq_create(h->e, &cq));
	op_make(h, &op, &j, seed);
	op.flags |= PAWL_OP_CQ;
	op.cq = cq;
	op.tag = j.var;
	/* the note beside the op takes the room of the argument */
	MUST(sizeof(j) <= PAWL_ARG_ROOM(op.nreads + op.nwrites) - 8);
	MUST(!pawl_push(h->e, &op));
	accepted(h, &j, 1);
	MUST(!pawl_cq_wait(h->e, cq, -1));
	rc = pawl_cq_reap(h->e, cq, &c, 1);
	MUST(rc == 1 && c.tag == j.var && !c.status);
	MUST(!pawl_cq_destroy(h->e, cq));
}

static void watched(void *arg, const struct pawl_stalled *s)
{
}

/* What any thread may do with an engine that another thread owns. */
static void use(struct house *h, u64 *seed)
{
	struct pawl_queue_stats qs = { .size = sizeof(qs) };
	struct pawl_stats s;
	char text[4096];
	uint64_t n;
	int rc;

	switch (rnd(seed) % 16) {
	case 0:
		MUST(!pawl_thread_attach(h->e));
		break;
	case 1:
		MUST(!pawl_thread_detach(h->e));
		break;
	case 2:
		s = stats(h->e);
		MUST(s.pushed >= s.completed);
		break;
	case 3:
		MUST(!pawl_queue_stats(h->e, (struct pawl_device){ PAWL_CPU, 0 }, PAWL_NORMAL, &qs));
		MUST(pawl_prometheus(&h->e, 1, text, sizeof(text)) > 0);
		break;
	case 4:
		MUST(!pawl_trim(h->e));
		break;
	case 5:
		MUST(pawl_run_one(h->e) >= 0);
		break;
	case 6:
		rc = pawl_watch(h->e, 1000000000, watched, NULL);
		MUST(rc >= 0 || rc == -EBUSY);
		break;
	case 7:
		MUST(!pawl_wait_readable(h->e, h->v[rnd(seed) % NVARS], -1, NULL));
		break;
	case 8:
		rc = pawl_wait_all(h->e, (s64)(rnd(seed) % 100000), NULL);
		MUST(!rc || rc == -ETIMEDOUT);
		break;
	case 9:
		MUST(!pawl_var_version(h->e, h->v[0], &n));
		pawl_interrupt(h->e);
		break;
	case 10:
		push_and_reap(h, seed);
		break;
	case 11:
		launch(h);
		break;
	default:
		push(h, seed);
	}
}

/* --- the child of a fork --- */

static const char *child_at;	/* A: in the child, its step */

static void child_hangs(int sig)
{
	const char *at = load_relaxed(&child_at);

	if (write(2, "a child of fork() does not end: ", 32) > 0 && write(2, at, strlen(at)) > 0)
		engines_dump();
	_exit(1);
}

static void child_uses(u64 *seed)
{
	static struct house own;
	struct pawl_config c = small((int)(rnd(seed) % 3), (int)(rnd(seed) % 3));
	u32 i, n = 1 + (u32)(rnd(seed) % 50);

	store_relaxed(&child_at, "an engine of its own\n");
	own.e = engine_with(&c);
	for (i = 0; i < NVARS; i++)
		own.v[i] = var_new(own.e);
	for (i = 0; i < n; i++)
		push(&own, seed);
	store_relaxed(&child_at, "a wait\n");
	OK(pawl_wait_all(own.e, -1, NULL));
	MUST(own.accepted == own.released);
	store_relaxed(&child_at, "the end of its engine\n");
	OK(pawl_engine_destroy(own.e));
}

static void child(struct pawl_engine *parents, u64 seed)
{
	store_relaxed(&child_at, "the engine of the parent\n");
	signal(SIGALRM, child_hangs);
	signal(SIGTERM, SIG_DFL);
	alarm((ROUND_MS + 1999) / 2000);
	if (pawl_run_one(parents) != -EOWNERDEAD)
		_exit(2);
	/* Other threads are anywhere, so under a sanitizer the child must not allocate. */
	if (!SANITIZED) {
		if (rnd(&seed) % 2)
			OK(pawl_engine_destroy(parents));
		child_uses(&seed);
	}
	_exit(0);
}

/* e exists now; it may be another thread's. */
static void fork_now(struct pawl_engine *e, u64 *seed)
{
	u64 childs = rnd(seed);
	pid_t pid;
	int status;

	/* so that the child's refused call need not allocate room for its text */
	MUST(pawl_prometheus(NULL, 1, NULL, 0) == -EINVAL);
	pid = fork();
	MUST(pid >= 0);
	if (!pid)
		child(e, childs);
	MUST(waitpid(pid, &status, 0) == pid);
	MUST(WIFEXITED(status) && !WEXITSTATUS(status));
}

/* --- owners and visitors --- */

/* The first owners have a device each: an open one belongs to one engine. */
static struct pawl_config config(u32 number, u64 *seed)
{
	static const struct pawl_device fakes[] = { { FAKE_KIND, 0 }, { FAKE_KIND, 1 } };
	struct pawl_config c = small((int)(rnd(seed) % 3), (int)(rnd(seed) % 3));

	c.priority_workers = 1 + (int)(rnd(seed) % 2);
	c.cpu_devices = 1 + (u32)(rnd(seed) % 2);
	c.start_workers = rnd(seed) % 2;
	c.trim_ns = rnd(seed) % 2 ? 100000 : 1000000000;
	if (rnd(seed) % 2)
		c.spin_ns = 0;
	if (rnd(seed) % 3 == 0) {
		c.window = 8 + (u32)(rnd(seed) % 100);
		c.window_policy = PAWL_WINDOW_BLOCK;
	}
	if (c.kind != PAWL_NAIVE && number < ARRAY_SIZE(fakes) && rnd(seed) % 2) {
		c.devices = &fakes[number];
		c.ndevices = 1;
	}
	return c;
}

static int device_body(struct pawl_run *run, void *arg)
{
	return 0;
}

static void device_push(struct house *h, const struct pawl_config *c)
{
	struct pawl_op op = op_of_fn(device_body, h);

	op.device = *c->devices;
	op.release = ended;
	op.reads = &h->v[0];
	op.nreads = 1;
	MUST(!pawl_push(h->e, &op));
	fetch_add_acq_rel(&h->accepted, 1);
}

static void house_close(struct house *h)
{
	u32 s = load_relaxed(&h->state);

	while (!cas_acq_rel_relaxed(&h->state, &s, s & ~OPEN))
		;
	while (load_acquire(&h->state))
		sched_yield();
}

static struct house *house_enter(struct house *h)
{
	u32 s = load_relaxed(&h->state);

	while (s & OPEN)
		if (cas_acq_rel_acquire(&h->state, &s, s + 1))
			return h;
	return NULL;
}

static void house_leave(struct house *h)
{
	fetch_add_acq_rel(&h->state, -1u);
}

static void engine_make(struct house *h, const struct pawl_config *c)
{
	struct pawl_op node;
	u32 i;

	memset(h->sum, 0, sizeof(h->sum));
	memset(h->writes, 0, sizeof(h->writes));
	h->accepted = h->released = 0;
	h->e = engine_with(c);
	for (i = 0; i < NVARS; i++)
		h->v[i] = var_new(h->e);
	h->node = (struct job){ h, 1 };
	node = op_write(add_body, &h->node, &h->v[1]);
	OK(pawl_graph_create(h->e, &node, 1, 0, &h->graph));
}

static void engine_end(struct house *h, u64 *seed)
{
	u32 i;

	if (rnd(seed) % 2)
		OK(pawl_wait_all(h->e, -1, NULL));
	if (rnd(seed) % 4 == 0) {
		OK(pawl_engine_stop(h->e));
		if (rnd(seed) % 2)
			OK(pawl_engine_start(h->e));
	}
	OK(pawl_engine_destroy(h->e));
	MUST(h->accepted == h->released);
	for (i = 0; i < NVARS; i++)
		MUST(h->sum[i] == h->writes[i]);
	fetch_add_relaxed(&total, h->accepted);
}

static u64 seed_of(u32 thread)
{
	return round_seed + thread * 0xbf58476d1ce4e5b9ull;
}

static void *owner(void *arg)
{
	struct house *h = arg;
	u64 seed = seed_of((u32)(h - houses));
	u32 engines = 1 + (u32)(rnd(&seed) % 6), n;

	while (engines--) {
		struct pawl_config c = config((u32)(h - houses), &seed);

		engine_make(h, &c);
		store_release(&h->state, OPEN);
		for (n = (u32)(rnd(&seed) % 60); n; n--) {
			use(h, &seed);
			if (c.ndevices && rnd(&seed) % 4 == 0)
				device_push(h, &c);
		}
		if (rnd(&seed) % 4 == 0)
			fork_now(h->e, &seed);
		house_close(h);
		engine_end(h, &seed);
	}
	return NULL;
}

static void *visitor(void *arg)
{
	u64 seed = seed_of(OWNERS_MAX + (u32)(uintptr_t)arg);

	while (!load_acquire(&over)) {
		struct house *h = house_enter(&houses[rnd(&seed) % nowners]);
		u32 n;

		if (!h) {
			sched_yield();
			continue;
		}
		for (n = (u32)(rnd(&seed) % 20); n; n--)
			use(h, &seed);
		if (rnd(&seed) % 64 == 0)
			fork_now(h->e, &seed);
		house_leave(h);
	}
	return NULL;
}

static u64 run_round(u64 seed)
{
	const struct fake_setup fs = { .devices = 2, .seed = seed, .delay = 20 };
	pthread_t own[OWNERS_MAX], visit[VISITORS_MAX];
	u32 i;

	fake_setup(&fs);
	round_seed = seed;
	for (i = 0; i < nowners; i++)
		own[i] = spawn(owner, &houses[i]);
	for (i = 0; i < nvisitors; i++)
		visit[i] = spawn(visitor, (void *)(uintptr_t)i);
	for (i = 0; i < nowners; i++)
		join(own[i]);
	store_release(&over, 1);
	for (i = 0; i < nvisitors; i++)
		join(visit[i]);
	return total;
}

int main(int argc, char **argv)
{
	const struct stress_option options[] = {
		{ "--owners", &nowners, 1, OWNERS_MAX },
		{ "--visitors", &nvisitors, 0, VISITORS_MAX },
		{ 0 },
	};

	round_forks = true;
	return stress_main(argc, argv, options, run_round);
}
