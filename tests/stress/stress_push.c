// SPDX-License-Identifier: Apache-2.0
/*
 * Four threads push ops that write two of eight vars, in both orders, as fast as they can.  An
 * engine that appended to one var after the other would deadlock at once.  Here every op must
 * complete, and every var must have exactly the writes that were pushed on it.
 *
 *	stress_push [--seed N] [--seconds S] [--threads N] [--vars N] [--deps N]
 *
 * In half of the rounds ops have more vars, and read some of them.
 */
#include "stress.h"

#define THREADS_MAX	16
#define VARS_MAX	64

static u32 nthreads = 4, nv = 8, ndeps = 2;

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

/* The vars that an op writes, as bits. */
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

static u64 run_round(u64 seed)
{
	struct pawl_config c = small((int)(rnd(&seed) % 2), (int)(rnd(&seed) % 4));
	struct round r = { .nv = nv, .deps = ndeps, .each = (u32)TIMES(20000) };
	struct pusher u[THREADS_MAX];
	pthread_t t[THREADS_MAX];
	u32 i;

	if (rnd(&seed) % 2) {
		r.deps = 1 + (u32)(rnd(&seed) % 12);
		r.reads = rnd(&seed) % 2;
	}
	/* As many ops with many vars as possible, so that versions run out before ops. */
	if (r.deps > 2 || rnd(&seed) % 2)
		c.window = 64 + (u32)(rnd(&seed) % 1000);
	r.e = engine_with(&c);
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
	OK(pawl_engine_destroy(r.e));
	return (u64)nthreads * r.each;
}

int main(int argc, char **argv)
{
	const struct stress_option options[] = {
		{ "--threads", &nthreads, 1, THREADS_MAX },
		{ "--vars", &nv, 1, VARS_MAX },
		{ "--deps", &ndeps, 0, 16 },
		{ 0 },
	};

	return stress_main(argc, argv, options, run_round);
}
