// SPDX-License-Identifier: Apache-2.0
/*
 * eng_omp.c - OpenMP tasks with depend clauses.  gcc makes it libgomp, clang libomp.
 *
 * A task per op, made by one thread of the team, which runs tasks at the taskwait.
 * The number of dependences is part of the directive, hence the switch.
 */
#include <omp.h>

#include "bench.h"

#if defined(__clang__)
#define LIB	"libomp"
#else
#define LIB	"gomp"
#endif

static int nthreads;
static void (*run_fn)(void *);
static void *run_arg;

static void create(int threads)
{
	nthreads = threads;
	omp_set_dynamic(0);
}

static void make_vars(uint32_t n)
{
	(void)n;	/* the cells themselves are the vars */
}

static void enter(void (*fn)(void *), void *arg)
{
	run_fn = fn;
	run_arg = arg;
#pragma omp parallel num_threads(nthreads)
	{
		bench_pin_self(omp_get_thread_num());
#pragma omp single
		run_fn(run_arg);
	}
}

#define V(i) bench_cells[op->v[i]].v

static void push(struct bench_op *op)
{
	switch (op->nr * 4 + op->nw) {
	case 0 * 4 + 1:
#pragma omp task firstprivate(op) depend(inout: V(0))
		bench_body(op);
		break;
	case 0 * 4 + 2:
#pragma omp task firstprivate(op) depend(inout: V(0), V(1))
		bench_body(op);
		break;
	case 1 * 4 + 1:
#pragma omp task firstprivate(op) depend(in: V(0)) depend(inout: V(1))
		bench_body(op);
		break;
	case 2 * 4 + 1:
#pragma omp task firstprivate(op) depend(in: V(0), V(1)) depend(inout: V(2))
		bench_body(op);
		break;
	case 3 * 4 + 1:
#pragma omp task firstprivate(op) depend(in: V(0), V(1), V(2)) depend(inout: V(3))
		bench_body(op);
		break;
	default:
		bench_die("no task for %u reads and %u writes", op->nr, op->nw);
	}
}

static void wait_all(void)
{
#pragma omp taskwait
}

static void destroy(void)
{
}

static const char *const env_default[] = {
	"OMP_WAIT_POLICY", "OMP_DYNAMIC=false", "OMP_PROC_BIND=false", NULL
};
static const char *const env_active[] = {
	"OMP_WAIT_POLICY=active", "OMP_DYNAMIC=false", "OMP_PROC_BIND=false", NULL
};

#define OMP(n, t, f, v) {						\
	.name = n, .threads = t, .flags = f, .env = v,			\
	.create = create, .vars = make_vars, .enter = enter,		\
	.push = push, .wait = wait_all, .destroy = destroy,		\
}

static const struct bench_engine omp2 = OMP(LIB "-2", 2, BENCH_HAS_WORKER, env_default);
static const struct bench_engine omp1 = OMP(LIB "-1", 1, 0, env_default);
static const struct bench_engine omp2a = OMP(LIB "-active-2", 2, BENCH_HAS_WORKER, env_active);

const struct bench_engine *const bench_engines[] = { &omp2, &omp2a, &omp1, NULL };
