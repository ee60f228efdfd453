// SPDX-License-Identifier: Apache-2.0
/*
 * A real-time thread: under SCHED_FIFO with locked memory, after pawl_thread_attach(), its pushes
 * cause no page fault and make no system call but the futex.  Skipped (77) where the system does
 * not permit SCHED_FIFO or mlockall().
 *
 *	PAWL_RT_OPS	how many pushes; default 200000
 */
#define UTIL_NO_CHECK
#include "util.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define NVARS	16u

static struct rusage usage(void)
{
	struct rusage u;

	MUST(!getrusage(RUSAGE_THREAD, &u));
	return u;
}

/* From here on the kernel kills the process at any other system call of this thread. */
static void only_futex(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getrusage, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { ARRAY_SIZE(code), code };

	MUST(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	MUST(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog));
}

struct rt {
	struct pawl_engine *e;
	pawl_var_t v[NVARS];
	u64 n, ran[NVARS], refused;
	long faults;
};

/* The window is full: run an op, which makes no system call. */
static void push(struct rt *r, const struct pawl_op *op)
{
	int rc;

	while ((rc = pawl_push(r->e, op)) == -EAGAIN) {
		r->refused++;
		MUST(pawl_run_one(r->e) >= 0);
	}
	MUST(!rc);
}

static void *rt_main(void *arg)
{
	struct rt *r = arg;
	struct rusage before;
	u64 i, seed = 1;

	MUST(!pawl_thread_attach(r->e));
	before = usage();
	only_futex();
	for (i = 0; i < r->n; i++) {
		u64 x = rnd(&seed);
		pawl_var_t two[2] = { r->v[x % NVARS], r->v[(x % NVARS + 1) % NVARS] };
		struct pawl_op op = op_write(add_plain, &r->ran[x % NVARS], two);

		if (x / NVARS % 4 == 0) {
			op.reads = two + 1;
			op.nreads = 1;
		}
		op.priority = x / NVARS / 4 % 16 == 0;
		push(r, &op);
	}
	r->faults = usage().ru_minflt - before.ru_minflt + usage().ru_majflt - before.ru_majflt;
	syscall(SYS_exit, 0);
	return NULL;
}

/* Without workers the window is always full, and the run queues as long as they can be. */
static int run(u64 n, int workers)
{
	struct sched_param sp = { .sched_priority = 10 };
	struct pawl_config c;
	struct rt r = { .n = n };
	struct pawl_stats s = { .size = sizeof(s) };
	pthread_attr_t attr;
	pthread_t t;
	u64 sum = 0;
	u32 i;

	pawl_config_init(&c);
	c.max_ops = 2048;
	c.max_vars = 256;
	c.max_threads = 8;
	c.window = 1024;
	c.window_policy = PAWL_WINDOW_FAIL;
	c.workers = workers;
	c.prefault = true;
	c.start_workers = true;
	c.sched_policy = SCHED_FIFO;
	c.sched_priority = 5;
	if (pawl_engine_create(&c, &r.e)) {
		printf("realtime: %s\n", pawl_error_text());
		return 77;
	}
	for (i = 0; i < NVARS; i++)
		MUST(!pawl_var_create(r.e, &r.v[i]));
	MUST(!pthread_attr_init(&attr));
	MUST(!pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED));
	MUST(!pthread_attr_setschedpolicy(&attr, SCHED_FIFO));
	MUST(!pthread_attr_setschedparam(&attr, &sp));
	MUST(!pthread_create(&t, &attr, rt_main, &r));
	MUST(!pthread_join(t, NULL));
	MUST(!pawl_wait_all(r.e, -1, NULL));
	MUST(!pawl_stats(r.e, &s));
	for (i = 0; i < NVARS; i++)
		sum += r.ran[i];
	printf("realtime: %d workers, %llu pushes, %llu at the window, %ld page faults, %llu wakes\n",
	       workers, (unsigned long long)r.n, (unsigned long long)r.refused, r.faults,
	       (unsigned long long)s.wakes);
	MUST(sum == r.n);
	MUST(!r.faults);
	MUST(!pawl_engine_destroy(r.e));
	return 0;
}

int main(void)
{
	const char *ops = getenv("PAWL_RT_OPS");
	u64 n = ops ? strtoull(ops, NULL, 10) : 200000;
	int rc;

	if (SANITIZED) {
		printf("realtime: a sanitizer allocates\n");
		return 77;
	}
	if (mlockall(MCL_CURRENT | MCL_FUTURE)) {
		printf("realtime: mlockall: %s\n", strerror(errno));
		return 77;
	}
	rc = run(n, 1);
	return rc ? rc : run(n, 0);
}
