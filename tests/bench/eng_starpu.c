// SPDX-License-Identifier: Apache-2.0
/* eng_starpu.c - StarPU: starpu_task_insert() with handles; workers besides the pusher. */
#include <stdlib.h>

#include <starpu.h>

#include "bench.h"

static starpu_data_handle_t *handles;
static uint32_t nhandles;

static void body(void *buffers[], void *arg)
{
	(void)buffers;
	bench_body(arg);
}

static struct starpu_codelet codelet = {
	.cpu_funcs = { body },
	.nbuffers = STARPU_VARIABLE_NBUFFERS,
	.name = "op",
};

static void create(int threads)
{
	struct starpu_conf conf;

	starpu_conf_init(&conf);
	conf.ncpus = threads;
	conf.ncuda = 0;
	conf.nopencl = 0;
	conf.sched_policy_name = "lws";
	if (starpu_init(&conf))
		bench_die("starpu_init() failed");
}

static void drop_vars(void)
{
	while (nhandles)
		starpu_data_unregister(handles[--nhandles]);
	free(handles);
	handles = NULL;
}

static void make_vars(uint32_t n)
{
	drop_vars();
	handles = calloc(n, sizeof(*handles));
	if (!handles)
		bench_die("out of memory");
	while (nhandles < n)
		starpu_void_data_register(&handles[nhandles++]);
}

static void push(struct bench_op *op)
{
	struct starpu_data_descr d[BENCH_MAX_VARS_PER_OP];
	int i, n = op->nr + op->nw;

	for (i = 0; i < n; i++) {
		d[i].handle = handles[op->v[i]];
		d[i].mode = i < op->nr ? STARPU_R : STARPU_RW;
	}
	if (starpu_task_insert(&codelet, STARPU_DATA_MODE_ARRAY, d, n,
			       STARPU_CL_ARGS_NFREE, op, sizeof(*op), 0))
		bench_die("starpu_task_insert() failed");
}

static void wait_all(void)
{
	starpu_task_wait_for_all();
}

static void destroy(void)
{
	drop_vars();
	starpu_shutdown();
}

/* It calibrates, warns and binds by default; what it binds follows --pin. */
static const char *const env[] = {
	"STARPU_SILENT=1", "STARPU_NCUDA=0", "STARPU_NOPENCL=0", "STARPU_CALIBRATE=0",
	"STARPU_WORKERS_NOBIND=1", "STARPU_GENERATE_TRACE=0", NULL
};

#define STARPU(n, t) {							\
	.name = n, .threads = t,					\
	.flags = BENCH_MANY_PUSHERS | BENCH_HAS_WORKER, .env = env,	\
	.create = create, .vars = make_vars, .push = push,		\
	.wait = wait_all, .destroy = destroy,				\
}

static const struct bench_engine starpu2 = STARPU("starpu-2", 2);
static const struct bench_engine starpu1 = STARPU("starpu-1", 1);

const struct bench_engine *const bench_engines[] = { &starpu2, &starpu1, NULL };
