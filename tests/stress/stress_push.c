// SPDX-License-Identifier: Apache-2.0
/*
 * Four threads push ops that write two of eight vars, in both orders, as fast as they can.
 * Appending to one var after the other, this dead-locks at once.  Here it must end, and
 * every var must have seen exactly the writes that were pushed on it.
 *
 *	stress_push [--seed N] [--seconds S] [--threads N] [--vars N] [--deps N]
 *
 * Half of the rounds have ops of more vars, and reads among them.
 */
#define UTIL_NO_CHECK
#include "../unit/util.h"

#define THREADS_MAX	16
#define VARS_MAX	64

static u64 deadline_ms;			/* A */
static struct pawl_engine *engine_now;	/* A */
static u64 seed_now;
static const char *program_name;

static void *watchdog(void *arg)
{
	for (;;) {
		u64 d = load_acquire(&deadline_ms);
		struct pawl_engine *e;

		nap_us(100000);
		if (!d || now_ms() < d || load_acquire(&deadline_ms) != d)
			continue;
		fprintf(stderr, "FAILED: no end; replay: %s --seed %llu --seconds 1\n", program_name,
			(unsigned long long)seed_now);
		e = load_acquire(&engine_now);
		if (e)
			pawl_dump(e, 2);
		abort();
	}
	return NULL;
}

struct round {
	struct pawl_engine *e;
	u32 nv, deps, each;
	bool reads;
	pawl_var_t v[VARS_MAX];
	u64 count[VARS_MAX];		/* plain: by the ops that write the var */
	u32 pushed[VARS_MAX];		/* A */
};

struct pusher {
	struct round *r;
	u64 seed;
};

/* Which vars an op writes, as bits. */
struct job {
	struct round *r;
	u64 mask;
};

static int job_body(struct pawl_run *run, void *arg)
{
	struct job *j = arg;
	u64 m;

	for (m = j->mask; m; m &= m - 1)
		j->r->count[__builtin_ctzll(m)]++;
	return 0;
}

static void job_free(void *arg, int status)
{
	MUST(!status);
	free(arg);
}

static void *pusher(void *arg)
{
	struct pusher *u = arg;
	struct round *r = u->r;
	u32 i, k;

	for (i = 0; i < r->each; i++) {
		struct job *j = malloc(sizeof(*j));
		struct pawl_op op = op_of_fn(job_body, j);
		pawl_var_t w[16], rd[16];

		*j = (struct job){ r, 0 };
		op.writes = w;
		op.reads = rd;
		op.release = job_free;
		for (k = 0; k < r->deps; k++) {
			u32 x = (u32)(rnd(&u->seed) % r->nv);

			if (j->mask >> x & 1)
				continue;
			if (r->reads && rnd(&u->seed) % 2) {
				rd[op.nreads++] = r->v[x];
				continue;
			}
			j->mask |= 1ull << x;
			w[op.nwrites++] = r->v[x];
			fetch_add_relaxed(&r->pushed[x], 1);
		}
		MUST(!pawl_push(r->e, &op));
	}
	return NULL;
}

static u64 run_round(u64 seed, u32 nthreads, u32 nv, u32 deps)
{
	struct pawl_config c = small((int)(rnd(&seed) % 2), (int)(rnd(&seed) % 4));
	struct round r = { .nv = nv, .deps = deps, .each = (u32)TIMES(20000) };
	struct pusher u[THREADS_MAX];
	pthread_t t[THREADS_MAX];
	u32 i;

	if (rnd(&seed) % 2) {
		r.deps = 1 + (u32)(rnd(&seed) % 12);
		r.reads = rnd(&seed) % 2;
	}
	/* Ops of many vars, as many as there may be: then versions run out before ops do. */
	if (r.deps > 2 || rnd(&seed) % 2)
		c.window = 64 + (u32)(rnd(&seed) % 1000);
	OK(pawl_engine_create(&c, &r.e));
	store_release(&engine_now, r.e);
	for (i = 0; i < nv; i++)
		r.v[i] = var_new(r.e);
	for (i = 0; i < nthreads; i++) {
		u[i] = (struct pusher){ &r, rnd(&seed) };
		t[i] = spawn(pusher, &u[i]);
	}
	for (i = 0; i < nthreads; i++)
		join(t[i]);
	OK(pawl_wait_all(r.e, -1, NULL));
	for (i = 0; i < nv; i++) {
		MUST(r.count[i] == r.pushed[i]);
		MUST(version(r.e, r.v[i]) == r.pushed[i]);
	}
	store_release(&engine_now, NULL);
	OK(pawl_engine_destroy(r.e));
	return (u64)nthreads * r.each;
}

int main(int argc, char **argv)
{
	u64 seed = 1, ops = 0, rounds = 0, end;
	u32 threads = 4, vars = 8, deps = 2;
	double seconds = 3;
	int i;

	program_name = argv[0];
	for (i = 1; i + 1 < argc; i += 2) {
		if (!strcmp(argv[i], "--seed"))
			seed = strtoull(argv[i + 1], NULL, 0);
		else if (!strcmp(argv[i], "--seconds"))
			seconds = atof(argv[i + 1]);
		else if (!strcmp(argv[i], "--threads"))
			threads = (u32)atoi(argv[i + 1]);
		else if (!strcmp(argv[i], "--vars"))
			vars = (u32)atoi(argv[i + 1]);
		else if (!strcmp(argv[i], "--deps"))
			deps = (u32)atoi(argv[i + 1]);
		else
			break;
	}
	if (i < argc || !threads || threads > THREADS_MAX || !vars || vars > VARS_MAX || deps > 16) {
		fprintf(stderr, "usage: %s [--seed N] [--seconds S] [--threads N] [--vars N] [--deps N]\n",
			argv[0]);
		return 2;
	}
	pthread_detach(spawn(watchdog, NULL));
	end = now_ms() + (u64)(seconds * 1000);
	do {
		seed_now = seed + rounds;
		store_release(&deadline_ms, now_ms() + 40000);
		ops += run_round(seed_now * 0x9e3779b97f4a7c15ull, threads, vars, deps);
		store_release(&deadline_ms, 0);
		rounds++;
	} while (now_ms() < end);
	printf("stress_push: %llu ops in %llu rounds from seed %llu\n", (unsigned long long)ops,
	       (unsigned long long)rounds, (unsigned long long)seed);
	return 0;
}
