// SPDX-License-Identifier: Apache-2.0
/*
 * Purity: no system call, no allocation and no lock per op.
 *
 *   strict    threads push and run ops under a seccomp filter that permits what seccomp's
 *             strict mode does: the kernel kills a thread at any system call except read,
 *             write, exit and sigreturn.  All threads must reach their end.  There is no
 *             worker: the threads are the host, and none sleeps.  (Strict mode itself also
 *             forbids the processor's clock, which the run queues read.)
 *   workers   pushers and workers under a filter that counts: read, write and exit pass, futex
 *             calls and sched_yield() are counted and permitted, anything else is counted as a
 *             fault. Once while there is always work, and once with a pause before each op, so
 *             that each is an edge from idle to busy.
 *   control   a lock for which two threads contend must not survive that.
 *
 * This program replaces malloc(), pthread_mutex_lock() and similar functions, and counts the
 * calls of threads that push or run ops.
 *
 *	purity [--ops N]	(PAWL_PURITY_OPS; default 4 * 10^6 in each part)
 */
#define UTIL_NO_CHECK
#include "../unit/util.h"
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>

#define PUSHERS		2u
#define NVARS		8u

/* Shared with the children. */
static struct tally {
	u64 ops, allocs, locks, survivors;		/* A */
	u64 futexes, yields, faults;			/* A */
	u64 last_fault, sleeps, wakes, busy_futexes;	/* A */
} *tally;

static u64 total = 5000000;	/* in each of two parts */

/* --- what an op may not call --- */

static __thread bool hot;

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);
void __libc_free(void *p);
void *malloc(size_t n);
void *calloc(size_t n, size_t size);
void *realloc(void *p, size_t n);
void *aligned_alloc(size_t align, size_t n);
void free(void *p);

static void alloc_seen(void)
{
	if (hot)
		fetch_add_relaxed(&tally->allocs, 1);
}

void *malloc(size_t n) { alloc_seen(); return __libc_malloc(n); }
void *calloc(size_t n, size_t size) { alloc_seen(); return __libc_calloc(n, size); }
void *realloc(void *p, size_t n) { alloc_seen(); return __libc_realloc(p, n); }
void *aligned_alloc(size_t align, size_t n) { alloc_seen(); return __libc_memalign(align, n); }
void free(void *p) { if (p) alloc_seen(); __libc_free(p); }

int pthread_mutex_lock(pthread_mutex_t *m)
{
	static int (*real)(pthread_mutex_t *m);

	if (hot)
		fetch_add_relaxed(&tally->locks, 1);
	if (!real)
		real = (int (*)(pthread_mutex_t *))(uintptr_t)dlsym(RTLD_NEXT,
								    "pthread_mutex_lock");
	return real(m);
}

/* A system call from a place that all filters let through. */
long syscall_stub(long nr, long a, long b, long c, long d, long e, long f);
extern char syscall_stub_end[];

/* --- ops --- */

struct pusher {
	struct pawl_engine *e;
	pawl_var_t own[NVARS], *all;
	u64 n, seed;
	pthread_t thread;
	bool pause, last;
};

static void body_async(struct pawl_run *run, void *arg)
{
	MUST(!pawl_complete(run->engine, run->token, 0, NULL));
}

/* Make one call with 1 to 4 ops, and return their number. */
static u64 push_some(struct pusher *p)
{
	u64 r = rnd(&p->seed);
	pawl_var_t two[2] = { p->all[r % NVARS], p->own[r / 8 % NVARS] }, fresh;
	struct pawl_op op = op_write(nothing, NULL, &two[r / 64 % 2]), batch[4];
	u32 i;

	switch (r / 128 % 8) {
	case 0:
		op = op_read(nothing, NULL, &two[0]);
		break;
	case 1:
		op.writes = two;
		op.nwrites = 2;
		break;
	case 2:
		op.writes = p->own;
		op.nwrites = 7;
		break;
	case 3:
		op.priority = (s32)(r / 1024 % 5) - 2;
		break;
	case 4:
		op.fn = NULL;
		op.async_fn = body_async;
		break;
	case 5:
		if (r / 1024 % 4)
			break;
		MUST(!pawl_var_create(p->e, &fresh));
		MUST(!push_write(p->e, nothing, NULL, fresh));
		MUST(!pawl_var_delete(p->e, fresh, NULL, NULL));
		return 2;
	case 6:
		for (i = 0; i < 4; i++)
			batch[i] = op;
		MUST(!pawl_push_batch(p->e, batch, 4));
		return 4;
	}
	MUST(!pawl_push(p->e, &op));
	return 1;
}

static void spin_ns(u64 ns)
{
	u64 end = cycles() + ns * 3;

	while (cycles() < end)
		cpu_relax();
}

/*
 * Push n ops; without workers, run ready ops here.  Few are in flight, so rings do not grow,
 * even if a thread is delayed for a long time by an op that others wait for.
 */
static void push_all(struct pusher *p, u64 n, bool run)
{
	struct pawl_stats st = { .size = sizeof(st) };
	u64 done = 0, turn = 0;

	while (done < n) {
		done += push_some(p);
		while (run && pawl_run_one(p->e) > 0)
			;
		if (!p->pause && ++turn & 15)
			continue;
		do {
			if (run)
				MUST(pawl_run_one(p->e) >= 0);
			else	/* the test's own, which no filter sees */
				syscall_stub(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
			MUST(!pawl_stats(p->e, &st));
		} while (st.pushed - st.completed > (p->pause ? 0 : 100));
		/* Longer than a worker looks for work before it sleeps. */
		if (p->pause)
			spin_ns(60000);
	}
	fetch_add_relaxed(&tally->ops, done);
}

/* --- filters --- */


/* Permit what strict mode permits; other calls end the thread, or are trapped and counted. */
static void filter_set(u32 otherwise)
{
	u64 ip = (u64)(uintptr_t)syscall_stub_end;
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (u32)ip, 0, 2),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer) + 4),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (u32)(ip >> 32), 5, 0),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_read, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, otherwise),
	};
	struct sock_fprog prog = { sizeof(f) / sizeof(f[0]), f };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		abort();
}

/* The call does not happen; the thread ends here. */
static void on_forbidden(int sig, siginfo_t *si, void *context)
{
	store_relaxed(&tally->last_fault, (u64)si->si_syscall);
	fetch_add_relaxed(&tally->faults, 1);
	syscall(SYS_exit, 1);
}

static void *strict_main(void *arg)
{
	struct pusher *p = arg;

	/* First calls, first memory of lanes and rings. */
	push_all(p, 20000, true);
	fetch_add_relaxed(&tally->ops, -20000ull);
	hot = true;
	filter_set(SECCOMP_RET_TRAP);
	push_all(p, p->n, true);
	fetch_add_acq_rel(&tally->survivors, 1);
	syscall(SYS_exit, 0);
	return NULL;
}

static struct pawl_engine *engine_make(int workers, pawl_var_t *vars,
				       void (*born)(void *user, const char *name))
{
	struct pawl_config c = small(PAWL_PER_DEVICE, workers);
	struct pawl_engine *e;
	u32 i;

	c.max_ops = 8192;
	c.max_vars = 8192;
	c.prefault = true;
	c.thread_start = born;
	e = engine_with(&c);
	for (i = 0; i < NVARS; i++)
		vars[i] = var_new(e);
	return e;
}

static void pushers_start(struct pusher *p, struct pawl_engine *e, pawl_var_t *all, u64 n,
			  void *(*fn)(void *))
{
	u32 i, j;

	for (i = 0; i < PUSHERS; i++) {
		p[i].e = e;
		p[i].all = all;
		p[i].n = n / PUSHERS;
		p[i].seed = 100 + i;
		p[i].last = i == PUSHERS - 1;
		for (j = 0; j < NVARS; j++)
			p[i].own[j] = var_new(e);
		p[i].thread = spawn(fn, &p[i]);
	}
}

/* --- strict --- */

/* A thread that the kernel ended is no longer in the list. */
static u32 threads_left(void)
{
	char line[128];
	FILE *f = fopen("/proc/self/status", "r");
	u32 n = 0;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Threads: %u", &n) == 1)
			break;
	if (f)
		fclose(f);
	return n;
}

static void part_strict(void)
{
	static struct pusher p[PUSHERS];
	static pawl_var_t all[NVARS];
	struct sigaction sa = { .sa_sigaction = on_forbidden, .sa_flags = SA_SIGINFO };
	struct pawl_engine *e = engine_make(0, all, NULL);

	MUST(!sigaction(SIGSYS, &sa, NULL));
	pushers_start(p, e, all, total, strict_main);
	while (threads_left() > 1)
		nap_us(10000);
	_exit(load_acquire(&tally->survivors) == PUSHERS ? 0 : 1);
}

/* --- a control --- */

static pthread_mutex_t control_lock = PTHREAD_MUTEX_INITIALIZER;
static u64 control_end, control_count;

static void *control_main(void *arg)
{
	filter_set(SECCOMP_RET_KILL_THREAD);
	while (load_relaxed(&control_end) == 0) {
		pthread_mutex_lock(&control_lock);
		control_count++;
		pthread_mutex_unlock(&control_lock);
	}
	fetch_add_acq_rel(&tally->survivors, 1);
	syscall(SYS_exit, 0);
	return NULL;
}

static void part_control(void)
{
	u64 end = now_ms() + 20000;

	(void)!pthread_mutex_lock(&control_lock);
	pthread_mutex_unlock(&control_lock);
	spawn(control_main, NULL);
	spawn(control_main, NULL);
	while (threads_left() == 3 && now_ms() < end)
		nap_us(1000);
	store_release(&control_end, 1);
	_exit(0);
}

/* --- with workers: a filter that counts --- */

static __thread u32 filtered;
static u32 filters;			/* A */

/* The filter knows the address of this call. */
__asm__(".text\n.globl syscall_stub\nsyscall_stub:\n\tmov %rdi,%rax\n\tmov %rsi,%rdi\n\tmov %rdx,%rsi\n"
	"\tmov %rcx,%rdx\n\tmov %r8,%r10\n\tmov %r9,%r8\n\tmov 8(%rsp),%r9\n\tsyscall\n"
	".globl syscall_stub_end\nsyscall_stub_end:\n\tret\n");

static void on_call(int sig, siginfo_t *si, void *context)
{
	greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
	u64 *which = si->si_syscall == SYS_futex ? &tally->futexes :
		     si->si_syscall == SYS_sched_yield ? &tally->yields : &tally->faults;

	fetch_add_relaxed(which, 1);
	if (which == &tally->faults)
		store_relaxed(&tally->last_fault, (u64)si->si_syscall);
	r[REG_RAX] = syscall_stub(si->si_syscall, r[REG_RDI], r[REG_RSI], r[REG_RDX],
				  r[REG_R10], r[REG_R8], r[REG_R9]);
}

/* From here on all system calls of this thread are counted. */
static void filter_on(void)
{
	if (filtered++)
		return;
	filter_set(SECCOMP_RET_TRAP);
	hot = true;
	fetch_add_acq_rel(&filters, 1);
}

static __thread bool is_worker;

static void worker_born(void *user, const char *name)
{
	sigset_t s;

	is_worker = true;

	/* A worker blocks all signals; one that it raises itself must come through. */
	sigemptyset(&s);
	sigaddset(&s, SIGSYS);
	MUST(!pthread_sigmask(SIG_UNBLOCK, &s, NULL));
}

static int filter_body(struct pawl_run *run, void *arg)
{
	if (!is_worker)
		return 0;
	filter_on();
	/* So that another worker takes the next one. */
	nap_us(2000);
	return 0;
}

static u32 pushers_ready, pushers_go, pushers_done;	/* A */

static void *filter_main(void *arg)
{
	struct pusher *p = arg;
	u64 pauses = p->n / 1000;

	push_all(p, 20000, false);
	fetch_add_acq_rel(&pushers_ready, 1);
	while (load_acquire(&pushers_go) < 1)
		nap_us(1000);
	filter_on();
	push_all(p, p->n, false);
	fetch_add_acq_rel(&pushers_done, 1);
	while (load_acquire(&pushers_go) < 2)
		cpu_relax();
	/* One of them, an op at a time. */
	p->pause = true;
	if (p->last)
		push_all(p, pauses < 20000 ? pauses : 20000, false);
	fetch_add_acq_rel(&pushers_done, 1);
	syscall(SYS_exit, 0);
	return NULL;
}

static void part_workers(void)
{
	struct sigaction sa = { .sa_sigaction = on_call, .sa_flags = SA_SIGINFO };
	static struct pusher p[PUSHERS];
	static pawl_var_t all[NVARS];
	struct pawl_engine *e;
	struct pawl_stats a, b;
	struct pawl_op op;
	u64 ops;

	MUST(!sigaction(SIGSYS, &sa, NULL));
	e = engine_make(2, all, worker_born);
	pushers_start(p, e, all, total, filter_main);
	MUST(soon(load_acquire(&pushers_ready) == PUSHERS));
	/* Workers first; nap_us() of the body is a fault that does not count. */
	while (load_acquire(&filters) < 2) {
		op = op_of_fn(filter_body, NULL);
		MUST(!pawl_push(e, &op));
		nap_us(500);
	}
	nap_us(20000);
	a = stats(e);
	ops = tally->ops;
	memset(tally, 0, sizeof(*tally));
	tally->survivors = PUSHERS;
	store_release(&pushers_go, 1);
	while (load_acquire(&pushers_done) < PUSHERS)
		nap_us(1000);
	store_release(&tally->busy_futexes, load_acquire(&tally->futexes));
	ops = load_acquire(&tally->ops);
	store_release(&pushers_go, 2);
	while (load_acquire(&pushers_done) < 2 * PUSHERS)
		nap_us(1000);
	nap_us(50000);
	b = stats(e);
	tally->sleeps = b.sleeps - a.sleeps;
	tally->wakes = b.wakes - a.wakes;
	printf("  workers: %llu ops without a pause, %llu futex calls; %llu ops with one, %llu\n",
	       (unsigned long long)ops, (unsigned long long)tally->busy_futexes,
	       (unsigned long long)(tally->ops - ops),
	       (unsigned long long)(tally->futexes - tally->busy_futexes));
	fflush(NULL);
	_exit(0);
}

/* --- the program --- */

static int in_child(void (*fn)(void))
{
	int status;
	pid_t pid;

	memset(tally, 0, sizeof(*tally));
	fflush(NULL);
	pid = fork();
	MUST(pid >= 0);
	if (!pid) {
		fn();
		_exit(2);
	}
	MUST(waitpid(pid, &status, 0) == pid);
	return status;
}

static bool permitted(void)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		filter_set(SECCOMP_RET_KILL_THREAD);
		syscall(SYS_exit, 0);
	}
	return waitpid(pid, &status, 0) == pid && status == 0;
}

int main(int argc, char **argv)
{
	struct tally strict, workers;
	bool ok, convicted;
	u64 edges;

	if (getenv("PAWL_PURITY_OPS"))
		total = (u64)atof(getenv("PAWL_PURITY_OPS"));
	if (argc == 3 && !strcmp(argv[1], "--ops"))
		total = (u64)atof(argv[2]);
	if (!permitted()) {
		printf("seccomp is not permitted here\n");
		return 77;
	}
	tally = mmap(NULL, sizeof(*tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		     -1, 0);
	MUST(tally != MAP_FAILED);

	in_child(part_control);
	convicted = tally->survivors < 2;
	ok = !in_child(part_strict);
	strict = *tally;
	printf("  strict: %llu ops, %llu of %u threads survived, %llu allocations, %llu locks\n",
	       (unsigned long long)strict.ops, (unsigned long long)strict.survivors, PUSHERS,
	       (unsigned long long)strict.allocs, (unsigned long long)strict.locks);
	ok &= strict.survivors == PUSHERS && !strict.allocs && !strict.locks;
	ok &= !in_child(part_workers);
	workers = *tally;
	if (workers.faults | strict.faults)
		printf("  a call that may not be: number %llu\n",
		       (unsigned long long)(workers.last_fault | strict.last_fault));
	/*
	 * One futex call per thread that goes to sleep or is woken, but for a few for no
	 * reason.
	 */
	edges = workers.sleeps + workers.wakes;
	ok &= !workers.faults && !workers.allocs && !workers.locks;
	ok &= workers.futexes <= edges + edges / 20 + 100;
	ok &= convicted;
	printf("C11 purity: ops=%llu strict-survivors=%llu/%u allocations=%llu locks=%llu other-calls=%llu "
	       "futex=%llu (busy: %llu in %llu ops) edges=%llu yields=%llu control-mutex=%s %s\n",
	       (unsigned long long)(strict.ops + workers.ops), (unsigned long long)strict.survivors,
	       PUSHERS, (unsigned long long)(strict.allocs + workers.allocs),
	       (unsigned long long)(strict.locks + workers.locks), (unsigned long long)workers.faults,
	       (unsigned long long)workers.futexes, (unsigned long long)workers.busy_futexes,
	       (unsigned long long)workers.ops, (unsigned long long)edges,
	       (unsigned long long)workers.yields, convicted ? "convicted" : "PASSED", ok ? "PASS" : "FAIL");
	return !ok;
}
