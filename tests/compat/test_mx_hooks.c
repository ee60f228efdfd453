/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of a front end that replace the library's own: pawl_mx_set_hooks(). */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <pawl/engine.h>
#include <pawl/mx_bridge.h>
#include "../sanitized.h"

#define EXPECT(x) do {								\
		if (!(x)) {							\
			fprintf(stderr, "%s:%d:F: not so: %s (%s)\n", __FILE__, __LINE__, #x,	\
				pawl_mx_last_error());				\
			abort();						\
		}								\
	} while (0)
#define ADD(p) __atomic_add_fetch(p, 1, __ATOMIC_SEQ_CST)
#define GET(p) __atomic_load_n(p, __ATOMIC_SEQ_CST)

static int workers, timed, deletes, begun, ended, ran, aggregates, drops;

static void worker_start(void) { ADD(&workers); }

static void *begin(const char *name)
{
	int *what = !strcmp(name, "timed") ? &timed : &deletes;

	EXPECT(what == &timed || !strcmp(name, "the delete"));
	ADD(&begun);
	return what;
}

static void end(void *task)
{
	EXPECT(task == &timed || task == &deletes);
	ADD((int *)task);
	ADD(&ended);
}

/* The op's time is over when its argument goes. */
static void drop(void *arg)
{
	EXPECT(arg == &drops && GET(&begun) == GET(&ended));
	ADD(&drops);
}

static char name_of_delete[16];	/* which is the front end's */

static const char *delete_name(void)
{
	return strcpy(name_of_delete, "the delete");
}

static bool aggregating(void) { return GET(&aggregates); }

static void async_body(void *run, void *on_complete, void *arg)
{
	const struct pawl_mx_callback done = *(struct pawl_mx_callback *)on_complete;

	EXPECT(GET(&begun) == GET(&ended) + 1);
	ADD(&ran);
	done.callback(done.engine, done.param, NULL);
}

static void body(void *run, void *arg)
{
	/* a timed op has begun, and not ended */
	EXPECT(!arg || GET(&begun) == GET(&ended) + 1);
	EXPECT(GET(&workers) > 0);
	ADD(&ran);
}

static struct pawl_mx_callback held;
static int holds;

static void nothing(void *run, void *arg) { }

static void hold(void *run, void *on_complete, void *arg)
{
	held = *(struct pawl_mx_callback *)on_complete;
	ADD(&holds);
}

/* The front end's name of a delete may change when the call has returned. */
static void name_is_copied(struct pawl_mx_engine *e)
{
	struct pawl_mx_var *v;
	const struct pawl_mx_op op = { .async = hold, .ctx = { PAWL_MX_CPU, 0 }, .writes = &v,
				       .nwrites = 1 };

	EXPECT(!pawl_mx_var_new(e, &v) && !pawl_mx_push(e, &op, NULL));
	EXPECT(!pawl_mx_var_delete(e, v, op.ctx, nothing, NULL, NULL));
	strcpy(name_of_delete, "another");
	while (!GET(&holds))
		usleep(100);
	held.callback(held.engine, held.param, NULL);
	EXPECT(!pawl_mx_wait_all(e, NULL));
}

static int (*omp_get)(void);
static void (*omp_set)(int);

static void asks_omp(void *run, void *arg)
{
	*(int *)arg = omp_get();
}

/* How many threads of OpenMP a worker has is left to the front end, also in a child. */
static void openmp(void)
{
	void *omp = dlopen("libgomp.so.1", RTLD_NOW | RTLD_GLOBAL);
	struct pawl_mx_op op = { .sync = asks_omp, .ctx = { PAWL_MX_CPU, 0 } };
	struct pawl_mx_engine *e;
	int n = -1, status = -1;
	pid_t pid;

	if (!omp) {
		printf("no OpenMP\n");
		return;
	}
	*(void **)&omp_get = dlsym(omp, "omp_get_max_threads");
	*(void **)&omp_set = dlsym(omp, "omp_set_num_threads");
	EXPECT(omp_get && omp_set);
	unsetenv("OMP_NUM_THREADS");
	setenv("MXNET_OMP_MAX_THREADS", "77", 1);
	EXPECT(!pawl_mx_engine_create(PAWL_MX_PER_DEVICE, &e));
	op.arg = &n;
	EXPECT(!pawl_mx_push(e, &op, NULL) && !pawl_mx_wait_all(e, NULL));
	EXPECT(n > 0 && n != 77);
	omp_set(66);
	if (!THREAD_SANITIZED) {
		pid = fork();
		EXPECT(pid >= 0);
		if (!pid)
			_exit(omp_get() != 66);
		EXPECT(waitpid(pid, &status, 0) == pid && !status);
	}
	EXPECT(omp_get() == 66 && !pawl_mx_engine_free(e));
}

int main(void)
{
	const struct pawl_mx_hooks hooks = {
		.worker_start = worker_start, .begin = begin, .end = end,
		.delete_name = delete_name, .cpus_only = true,
	};
	/* begin() without end(), or the reverse, replaces nothing */
	const struct pawl_mx_hooks half = { .begin = begin, .cpus_only = true };
	const struct pawl_mx_hooks other_half = { .end = end, .cpus_only = true };
	const struct pawl_mx_hooks sums = { .aggregating = aggregating, .cpus_only = true };
	struct pawl_mx_engine *e;
	struct pawl_mx_opr *opr;
	struct pawl_mx_var *v;
	struct pawl_mx_op op = { .sync = body, .name = "plain", .writes = &v, .nwrites = 1,
				 .ctx = { PAWL_MX_CPU, 0 } };

	/* a device that the engine would need, but for cpus_only */
	setenv("PAWL_MX_GPUS", "1", 1);
	pawl_mx_set_hooks(&sums);
	pawl_mx_set_hooks(&hooks);
	/* what a later call leaves out stays */
	pawl_mx_set_hooks(&half);
	pawl_mx_set_hooks(&other_half);
	/* a front end that sums times has its own profiler: that of the library is not started */
	setenv("MXNET_PROFILER_AUTOSTART", "1", 1);
	e = pawl_mx_engine_get();
	EXPECT(e);
	EXPECT(pawl_trace_start(pawl_mx_engine_pawl(e), 64) != -EALREADY);
	pawl_trace_stop(pawl_mx_engine_pawl(e));
	EXPECT(!pawl_mx_var_new(e, &v));
	EXPECT(!pawl_mx_push(e, &op, NULL));
	EXPECT(!pawl_mx_wait_all(e, NULL));
	EXPECT(ran == 1 && !begun && !ended);
	op.name = "timed";
	op.timed = true;
	op.arg = &op;
	EXPECT(!pawl_mx_push(e, &op, NULL));
	EXPECT(!pawl_mx_wait_all(e, NULL));
	EXPECT(ran == 2 && begun == 1 && ended == 1 && timed == 1);
	op.ctx.dev_type = PAWL_MX_GPU;
	EXPECT(pawl_mx_push(e, &op, NULL) && strstr(pawl_mx_last_error(), "GPU"));
	op.ctx.dev_type = PAWL_MX_CPU;
	/* while the front end sums times, nothing is gathered */
	EXPECT(!pawl_mx_set_bulk_size(e, 8) && pawl_mx_bulk_size(e) == 8);
	ADD(&aggregates);
	EXPECT(!pawl_mx_bulk_size(e));
	EXPECT(!pawl_mx_push(e, &op, NULL));
	EXPECT(!pawl_mx_push(e, &op, NULL));
	EXPECT(!pawl_mx_wait_all(e, NULL));
	EXPECT(pawl_mx_var_version(v) == 4);
	EXPECT(ran == 4 && begun == 3 && ended == 3 && timed == 3);
	EXPECT(pawl_mx_set_bulk_size(e, 0) == 8);
	/* each run of a timed operator */
	op.sync = NULL;
	op.async = async_body;
	EXPECT(!pawl_mx_opr_new(e, &op, &opr));
	EXPECT(!pawl_mx_opr_push(e, opr, op.ctx, 0, NULL));
	EXPECT(!pawl_mx_opr_push(e, opr, op.ctx, 0, NULL));
	EXPECT(!pawl_mx_wait_all(e, NULL));
	EXPECT(!pawl_mx_engine_stop(e, NULL) && !pawl_mx_engine_start(e));
	EXPECT(ran == 6 && begun == 5 && ended == 5 && timed == 5);
	EXPECT(!pawl_mx_opr_delete(e, opr));
	EXPECT(!pawl_mx_var_delete(e, v, (struct pawl_mx_context){ PAWL_MX_CPU, 0 }, body, NULL, NULL));
	EXPECT(!pawl_mx_wait_all(e, NULL));
	EXPECT(ran == 7 && begun == 6 && ended == 6 && deletes == 1);
	name_is_copied(e);
	EXPECT(begun == 7 && ended == 7 && deletes == 2);
	/* a timed op ends once, also when the next op has its memory, as in the naive kind */
	EXPECT(!pawl_mx_engine_create(PAWL_MX_NAIVE, &e));
	op.nwrites = 0;
	op.arg = &drops;
	op.drop = drop;
	EXPECT(!pawl_mx_push(e, &op, NULL));
	EXPECT(ran == 8 && begun == 8 && ended == 8 && drops == 1);
	op.timed = false;
	op.drop = NULL;
	op.async = NULL;
	op.sync = body;
	op.arg = NULL;
	EXPECT(!pawl_mx_push(e, &op, NULL));
	EXPECT(ran == 9 && begun == 8 && ended == 8);
	EXPECT(!pawl_mx_engine_free(e));
	openmp();
	/* the devices of the environment count again when a front end says so */
	setenv("PAWL_MX_GPUS", "16", 1);
	EXPECT(!pawl_mx_engine_create(PAWL_MX_NAIVE, &e) && !pawl_mx_engine_free(e));
	pawl_mx_set_hooks(&(struct pawl_mx_hooks){ .cpus_only = false });
	EXPECT(pawl_mx_engine_create(PAWL_MX_NAIVE, &e) < 0);
	setenv("PAWL_MX_GPUS", "none", 1);
	EXPECT(pawl_mx_engine_create(PAWL_MX_NAIVE, &e) == -EINVAL);
	EXPECT(strstr(pawl_mx_last_error(), "PAWL_MX_GPUS is 'none'"));
	return 0;
}
