// SPDX-License-Identifier: Apache-2.0
/*
 * Fault points: everything that the library asks of the system fails in turn.
 *
 * The linker sends the library's calls of the C library here (--wrap, tests/Makefile): memory
 * (malloc and its kin, mmap, mprotect, madvise), threads (pthread_create, keys, fork handlers),
 * files, and waits on futexes.  While a scenario is armed, its k-th call fails, once or with all
 * that follow, for k = 1, 2, ... until a run ends without having come to call k.
 *
 * Each run is a process of its own.  In it, every call of the library that fails must say
 * why, and have had no effect: what was accepted runs, once, and nothing else does; after
 * the faults the engine does a piece of work, and ends; then nothing that was allocated or
 * mapped is left but what a run without faults leaves.  A signal, a hang or a failed check
 * of a run is a failure, with the command that repeats it.
 *
 *	fault_points			all; every third point under a sanitizer, every seventh
 *					with PAWL_TEST_SHORT
 *	fault_points SCENARIO K MODE	one run; MODE: once, good
 */
#define UTIL_NO_CHECK
#include "../unit/util.h"
#include <fcntl.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { MEMORY, THREAD, FILES, FUTEX, CLASSES };
static const char *const class_names[] = { "memory", "threads", "files", "futex" };

/* What a run tells its parent. */
static struct shared {
	u32 fired;		/* A: faults */
	u32 classes[CLASSES];	/* A: calls while armed */
	u32 refused;		/* calls of the library that failed */
	s64 left, left_bytes;	/* allocations, and bytes mapped, at the end */
	char text[400];
} *out;

static u32 armed;		/* A: mask of classes */
static u32 calls;		/* A: while armed */
static u32 fail_at;		/* k; 0: never */
static bool for_good;
static s64 live, mapped;	/* A */

static bool fails(u32 class)
{
	u32 n;

	if (!(load_acquire(&armed) & 1u << class))
		return false;
	n = fetch_add_relaxed(&calls, 1) + 1;
	fetch_add_relaxed(&out->classes[class], 1);
	if (!fail_at || n < fail_at || (n > fail_at && !for_good))
		return false;
	fetch_add_relaxed(&out->fired, 1);
	return true;
}

/* --- the calls --- */

#define REAL(type, name, ...) \
	type __real_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__)

static void *counted(void *p)
{
	if (p)
		fetch_add_relaxed(&live, 1);
	return p;
}

static void *refuse(void)
{
	errno = ENOMEM;
	return NULL;
}

REAL(void *, malloc, size_t n)
{
	return fails(MEMORY) ? refuse() : counted(__real_malloc(n));
}

/*
 * core/thread.c keeps a list of the process's threads, whose entries are used again and
 * never freed; how many there are at once is a matter of timing.
 */
#define TLS_ENTRY 48

REAL(void *, calloc, size_t n, size_t size)
{
	if (fails(MEMORY))
		return refuse();
	return n == 1 && size == TLS_ENTRY ? __real_calloc(n, size) :
	       counted(__real_calloc(n, size));
}

REAL(void *, aligned_alloc, size_t align, size_t n)
{
	return fails(MEMORY) ? refuse() : counted(__real_aligned_alloc(align, n));
}

REAL(void *, realloc, void *p, size_t n)
{
	void *q;

	if (fails(MEMORY))
		return refuse();
	q = __real_realloc(p, n);
	return p ? q : counted(q);
}

REAL(void, free, void *p)
{
	if (p)
		fetch_add_relaxed(&live, -1);
	__real_free(p);
}

REAL(void *, mmap, void *at, size_t n, int prot, int flags, int fd, off_t off)
{
	void *p;

	if (fails(MEMORY)) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	p = __real_mmap(at, n, prot, flags, fd, off);
	if (p != MAP_FAILED)
		fetch_add_relaxed(&mapped, (s64)n);
	return p;
}

REAL(int, munmap, void *p, size_t n)
{
	fetch_add_relaxed(&mapped, -(s64)n);
	return __real_munmap(p, n);
}

REAL(int, mprotect, void *p, size_t n, int prot)
{
	if (fails(MEMORY)) {
		errno = ENOMEM;
		return -1;
	}
	return __real_mprotect(p, n, prot);
}

REAL(int, madvise, void *p, size_t n, int what)
{
	if (fails(MEMORY)) {
		errno = ENOMEM;
		return -1;
	}
	return __real_madvise(p, n, what);
}

REAL(int, pthread_create, pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg)
{
	return fails(THREAD) ? EAGAIN : __real_pthread_create(t, a, fn, arg);
}

REAL(int, pthread_key_create, pthread_key_t *key, void (*fn)(void *))
{
	return fails(THREAD) ? EAGAIN : __real_pthread_key_create(key, fn);
}

REAL(int, pthread_setspecific, pthread_key_t key, const void *v)
{
	return fails(THREAD) ? ENOMEM : __real_pthread_setspecific(key, v);
}

REAL(int, pthread_atfork, void (*a)(void), void (*b)(void), void (*c)(void))
{
	return fails(THREAD) ? ENOMEM : __real_pthread_atfork(a, b, c);
}

REAL(int, open, const char *path, int flags, mode_t mode)
{
	if (fails(FILES)) {
		errno = EMFILE;
		return -1;
	}
	return __real_open(path, flags, mode);
}

REAL(ssize_t, write, int fd, const void *p, size_t n)
{
	if (fails(FILES)) {
		errno = ENOSPC;
		return -1;
	}
	return __real_write(fd, p, n);
}

REAL(int, flock, int fd, int how)
{
	if (fails(FILES)) {
		errno = ENOLCK;
		return -1;
	}
	return __real_flock(fd, how);
}

REAL(int, ftruncate, int fd, off_t n)
{
	if (fails(FILES)) {
		errno = EIO;
		return -1;
	}
	return __real_ftruncate(fd, n);
}

REAL(FILE *, fopen, const char *path, const char *mode)
{
	if (fails(FILES)) {
		errno = EMFILE;
		return NULL;
	}
	return __real_fopen(path, mode);
}

REAL(int, fclose, FILE *f)
{
	int rc = __real_fclose(f);

	if (fails(FILES)) {
		errno = ENOSPC;
		return EOF;
	}
	return rc;
}

/* A wait may end for no reason; to wake somebody cannot fail. */
long __real_syscall(long n, ...);
long __wrap_syscall(long n, ...);
long __wrap_syscall(long n, ...)
{
	long a[6];
	va_list ap;
	int i;

	va_start(ap, n);
	for (i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (n == SYS_futex && (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET && fails(FUTEX)) {
		errno = EINTR;
		return -1;
	}
	return __real_syscall(n, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* --- what a run checks --- */

static char where[64];

#define CHECK(cond, ...)							\
	do {									\
		if (!(cond)) {							\
			store_release(&armed, 0);				\
			snprintf(out->text, sizeof(out->text), __VA_ARGS__);	\
			_exit(3);						\
		}								\
	} while (0)

/* A call that may be refused: then it says why.  0 or the errno. */
static int tried(const char *what, int rc)
{
	if (rc >= 0)
		return rc;
	CHECK(rc > -4096, "%s: %s: %d is no errno", where, what, rc);
	CHECK(pawl_error_text()[0], "%s: %s: %d without a message", where, what, rc);
	out->refused++;
	return rc;
}

#define TRY(call) tried(#call, call)

struct world {
	struct pawl_engine *e;
	pawl_var_t v[64];
	u32 nv;
	u32 accepted;		/* pushes of counting bodies */
	u32 ran;		/* A */
	u32 released;		/* A */
};

static int body(struct pawl_run *run, void *arg)
{
	fetch_add_relaxed(&((struct world *)arg)->ran, 1);
	return 0;
}

static void async_body(struct pawl_run *run, void *arg)
{
	fetch_add_relaxed(&((struct world *)arg)->ran, 1);
	CHECK(!pawl_complete(run->engine, run->token, 0, NULL), "%s: complete: %s", where,
	      pawl_error_text());
}

static void released(void *arg, int status)
{
	fetch_add_relaxed(&((struct world *)arg)->released, 1);
}

static struct pawl_config cfg;

static void world_vars(struct world *w, u32 n)
{
	while (w->nv < n && !TRY(pawl_var_create(w->e, &w->v[w->nv])))
		w->nv++;
}

static void world_make(struct world *w)
{
	CHECK(!pawl_engine_create(&cfg, &w->e), "%s: create: %s", where, pawl_error_text());
	world_vars(w, 64);
	CHECK(w->nv == 64, "%s: no vars: %s", where, pawl_error_text());
}

/* An op on nr + nw vars from var number `first` on. */
static struct pawl_op op_on(struct world *w, u32 first, u32 nr, u32 nw)
{
	struct pawl_op op = op_of_fn(body, w);

	op.reads = w->v + first;
	op.nreads = nr;
	op.writes = w->v + first + nr;
	op.nwrites = nw;
	op.name = "op";
	return op;
}

static void push(struct world *w, const struct pawl_op *op)
{
	if (!TRY(pawl_push(w->e, op)))
		w->accepted++;
}

/* All that was accepted ran, once; the engine works; it ends. */
static void world_check(struct world *w)
{
	struct pawl_op op;
	u32 before = w->ran, accepted = w->accepted;
	int i, rc;

	rc = pawl_wait_all(w->e, SOON_NS, NULL);
	CHECK(rc != -ETIMEDOUT, "%s: ops never end", where);
	CHECK(w->ran == w->accepted, "%s: %u ops accepted, %u ran (%u before the faults ended)", where,
	      accepted, w->ran, before);
	world_vars(w, 64);
	CHECK(w->nv == 64, "%s: no vars afterwards: %s", where, pawl_error_text());
	for (i = 0; i < 40; i++) {
		op = op_on(w, (u32)i % 8, 2, 1 + (u32)i % 40);
		CHECK(!pawl_push(w->e, &op), "%s: push afterwards: %s", where, pawl_error_text());
		w->accepted++;
	}
	CHECK(!pawl_wait_all(w->e, SOON_NS, NULL), "%s: wait afterwards: %s", where,
	      pawl_error_text());
	CHECK(w->ran == w->accepted, "%s: afterwards %u ops accepted, %u ran", where, w->accepted,
	      w->ran);
	CHECK(!pawl_engine_destroy(w->e), "%s: destroy: %s", where, pawl_error_text());
}

static void arm(u32 classes)
{
	store_release(&armed, classes);
}

static void disarm(void)
{
	store_release(&armed, 0);
}

/* --- scenarios --- */

#define ALL (1u << MEMORY | 1u << THREAD | 1u << FILES)

static void create_kind(int kind, bool prefault)
{
	struct world w = { 0 };
	int cpus[1] = { 0 };

	cfg.kind = kind;
	cfg.prefault = prefault;
	cfg.cpus = cpus;
	cfg.ncpus = 1;
	if (prefault) {
		cfg.max_ops = 256;
		cfg.max_vars = 256;
	}
	arm(ALL);
	if (TRY(pawl_engine_create(&cfg, &w.e))) {
		CHECK(!w.e, "%s: refused, and an engine", where);
		disarm();
		CHECK(!pawl_engine_create(&cfg, &w.e), "%s: create afterwards: %s", where,
		      pawl_error_text());
	}
	disarm();
	world_check(&w);
}

static void sc_create(void)
{
	create_kind(PAWL_PER_DEVICE, false);
}

static void sc_create_pooled(void)
{
	create_kind(PAWL_POOLED, false);
}

static void sc_create_naive(void)
{
	create_kind(PAWL_NAIVE, false);
}

static void sc_create_prefault(void)
{
	create_kind(PAWL_PER_DEVICE, true);
}

/* What the process needs once and did not get is asked for again by the next engine. */
static void sc_key_again(void)
{
	struct world w = { 0 };

	arm(1u << THREAD);
	if (TRY(pawl_engine_create(&cfg, &w.e))) {
		disarm();
		CHECK(!pawl_engine_create(&cfg, &w.e), "%s: create again: %s", where,
		      pawl_error_text());
	}
	disarm();
	world_check(&w);
}

/* The whole life of an engine, faults all the way. */
static void sc_life(void)
{
	struct world w = { 0 };
	struct pawl_op op;

	arm(ALL);
	if (TRY(pawl_engine_create(&cfg, &w.e))) {
		disarm();
		world_make(&w);
		world_check(&w);
		return;
	}
	world_vars(&w, 4);
	if (w.nv == 4) {
		op = op_on(&w, 0, 2, 2);
		push(&w, &op);
		TRY(pawl_wait_readable(w.e, w.v[3], -1, NULL));
	}
	TRY(pawl_wait_all(w.e, -1, NULL));
	if (!TRY(pawl_engine_destroy(w.e))) {
		CHECK(w.ran == w.accepted, "%s: %u accepted, %u ran", where, w.accepted, w.ran);
		disarm();
		return;
	}
	disarm();
	world_check(&w);
}

static void sc_var(void)
{
	struct world w = { 0 };
	pawl_var_t v;
	u32 i;

	world_make(&w);
	arm(ALL);
	for (i = 0; i < 3000; i++)
		if (!TRY(pawl_var_create(w.e, &v)) && i % 2 &&
		    !TRY(pawl_var_delete(w.e, v, body, &w)))
			w.accepted++;
	disarm();
	world_check(&w);
}

static void sc_push(void)
{
	struct world w = { 0 };
	struct pawl_op op;
	u32 i;

	world_make(&w);
	arm(ALL);
	for (i = 0; i < 2000; i++) {
		op = op_on(&w, i % 16, i % 3, 1 + i % 2);
		op.priority = i % 10 ? 0 : (int)i;
		op.prop = (u16)(i % 8 == 5 ? 0 : i % 8);
		op.release = i % 5 ? NULL : released;
		push(&w, &op);
	}
	disarm();
	world_check(&w);
}

/* Ops that wait for each other: nothing is used again before it is over. */
static void sc_pile(void)
{
	struct world w = { 0 };
	struct pawl_op op;
	struct gate g;
	u32 i;

	world_make(&w);
	gate_write(w.e, &g, w.v[0]);
	arm(ALL);
	for (i = 0; i < 3000; i++) {
		op = op_on(&w, 0, i % 2, 1 + i % 4);
		op.priority = i % 3 ? 0 : -(int)i;
		push(&w, &op);
	}
	disarm();
	gate_open(&g);
	world_check(&w);
}

static void sc_wide(void)
{
	static pawl_var_t v[20000];
	static const u32 sizes[] = { 5, 16, 17, 256, 257, 4096, 4097, 20000 };
	struct world w = { 0 };
	struct pawl_op op;
	u32 i;

	world_make(&w);
	for (i = 0; i < ARRAY_SIZE(v); i++)
		CHECK(!pawl_var_create(w.e, &v[i]), "%s: var: %s", where, pawl_error_text());
	arm(ALL);
	for (i = 0; i < 2 * ARRAY_SIZE(sizes); i++) {
		op = op_of_fn(body, &w);
		op.reads = v;
		op.nreads = i % 2 ? sizes[i / 2] / 2 : 0;
		op.writes = v + op.nreads;
		op.nwrites = sizes[i / 2] - op.nreads;
		push(&w, &op);
	}
	disarm();
	world_check(&w);
}

static void sc_batch(void)
{
	static struct pawl_op ops[700];
	struct world w = { 0 };
	u32 i, n;

	world_make(&w);
	for (i = 0; i < ARRAY_SIZE(ops); i++)
		ops[i] = op_on(&w, i % 24, i % 3, 1 + i % 7);
	arm(ALL);
	for (n = 1; n <= ARRAY_SIZE(ops); n = n * 3 + 1)
		if (!TRY(pawl_push_batch(w.e, ops, n)))
			w.accepted += n;
	disarm();
	world_check(&w);
}

static void sc_oper(void)
{
	struct world w = { 0 };
	struct pawl_op op;
	pawl_oper_t o;
	u32 i, k, ends = 0;

	world_make(&w);
	arm(ALL);
	for (i = 0; i < 20; i++) {
		op = op_on(&w, i, i % 4, i % 9);
		op.release = released;
		if (TRY(pawl_oper_create(w.e, &op, &o)))
			continue;
		ends++;
		for (k = 0; k < 5; k++)
			if (!TRY(pawl_oper_push(w.e, o, (int)k - 2, (struct pawl_device){ 0, 0 })))
				w.accepted++;
		CHECK(!TRY(pawl_oper_delete(w.e, o)), "%s: delete: %s", where, pawl_error_text());
	}
	disarm();
	world_check(&w);
	CHECK(w.released == ends, "%s: %u operators, %u released", where, ends, w.released);
}

static void sc_bulk(void)
{
	struct world w = { 0 };
	struct pawl_op op;
	u32 i;

	world_make(&w);
	arm(ALL);
	for (i = 0; i < 200; i++) {
		if (i % 50 == 0)
			TRY(pawl_bulk_size(w.e, 10));
		op = op_on(&w, i % 8, i % 2, 1);
		op.release = released;
		push(&w, &op);
	}
	/* What was gathered is refused as a whole if its push is: every release says so. */
	TRY(pawl_bulk_flush(w.e));
	disarm();
	CHECK(!pawl_wait_all(w.e, SOON_NS, NULL), "%s: wait: %s", where, pawl_error_text());
	CHECK(w.released == w.accepted, "%s: %u accepted, %u released", where, w.accepted, w.released);
	w.accepted = w.ran;
	CHECK(pawl_bulk_size(w.e, 1) >= 0, "%s: bulk off", where);
	world_check(&w);
}

static void sc_waits(void)
{
	struct world w = { 0 };
	struct gate g;
	u32 i;

	world_make(&w);
	gate_write(w.e, &g, w.v[0]);
	for (i = 1; i < 40; i++) {
		struct pawl_op op = op_on(&w, 0, 0, i % 20 + 1);

		push(&w, &op);
	}
	arm(ALL);
	for (i = 0; i < 20; i++) {
		int rc = pawl_wait_readable(w.e, w.v[i], 1000, NULL);

		CHECK(rc == -ETIMEDOUT || rc == -ENOMEM, "%s: wait: %d %s", where, rc,
		      pawl_error_text());
		rc = pawl_wait_writable(w.e, w.v[i], 1000, NULL);
		CHECK(rc == -ETIMEDOUT || rc == -ENOMEM, "%s: wait: %d %s", where, rc,
		      pawl_error_text());
	}
	CHECK(pawl_wait_all(w.e, 1000, NULL) == -ETIMEDOUT, "%s: wait for all", where);
	gate_open(&g);
	TRY(pawl_wait_writable(w.e, w.v[0], SOON_NS, NULL));
	disarm();
	world_check(&w);
}

static int bad_body(struct pawl_run *run, void *arg)
{
	fetch_add_relaxed(&((struct world *)arg)->ran, 1);
	return pawl_fail(run, -EIO, "as it should");
}

/* Failed ops: their error is told, whatever memory there is for it. */
static void sc_errors(void)
{
	struct pawl_error x = { 0 };
	struct world w = { 0 };
	struct pawl_op op;
	u32 i, failed = 0;
	int rc;

	world_make(&w);
	arm(ALL);
	for (i = 0; i < 300; i++) {
		u32 was = w.accepted;

		op = op_on(&w, i % 60, 0, 1);
		op.fn = bad_body;
		op.prop = PAWL_NO_SKIP;
		push(&w, &op);
		failed += w.accepted - was;
	}
	rc = pawl_wait_all(w.e, -1, &x);
	CHECK(failed ? rc == -EIO || rc == -ENOMEM : !rc, "%s: %u ops failed, wait says %d", where,
	      failed, rc);
	CHECK(x.count == failed, "%s: %u ops failed, %u counted", where, failed, x.count);
	disarm();
	world_check(&w);
}

static void sc_async(void)
{
	struct world w = { 0 };
	struct pawl_op op;
	u32 i;

	world_make(&w);
	arm(ALL);
	for (i = 0; i < 300; i++) {
		op = op_on(&w, i % 16, 1, 1);
		op.fn = NULL;
		op.async_fn = async_body;
		op.prop = i % 2 ? PAWL_ASYNC : PAWL_NORMAL;
		push(&w, &op);
	}
	disarm();
	world_check(&w);
}

/* Other threads' first calls, and what they leave. */
static void *visitor(void *arg)
{
	struct world *w = arg;
	struct pawl_op op = op_on(w, 0, 1, 1);
	u32 i;

	for (i = 0; i < 3; i++)
		if (!tried("pawl_push (first call)", pawl_push(w->e, &op)))
			fetch_add_relaxed(&w->accepted, 1);
	op.name = NULL;
	tried("pawl_wait_readable", pawl_wait_readable(w->e, w->v[1], SOON_NS, NULL));
	return NULL;
}

static void sc_threads(void)
{
	struct world w = { 0 };
	pthread_t t;
	u32 i;

	world_make(&w);
	arm(ALL);
	for (i = 0; i < 4; i++) {
		/* The thread itself is not the library's. */
		CHECK(!__real_pthread_create(&t, NULL, visitor, &w), "%s: no thread", where);
		pthread_join(t, NULL);
	}
	disarm();
	world_check(&w);
}

static void sc_stop_start(void)
{
	struct world w = { 0 };
	struct pawl_op op;
	u32 i;

	world_make(&w);
	arm(ALL);
	for (i = 0; i < 3; i++) {
		op = op_on(&w, i, 1, 1);
		push(&w, &op);
		TRY(pawl_engine_stop(w.e));
		push(&w, &op);
		TRY(pawl_engine_start(w.e));
		push(&w, &op);
		op.prop = PAWL_CPU_PRIORITIZED;
		push(&w, &op);
		op.prop = PAWL_COPY_TO_DEVICE;
		push(&w, &op);
		TRY(pawl_wait_all(w.e, SOON_NS, NULL));
	}
	disarm();
	world_check(&w);
}

static char path[64];

static void sc_trace(void)
{
	struct world w = { 0 };
	struct pawl_op op;
	u32 i;

	world_make(&w);
	arm(ALL);
	for (i = 0; i < 2; i++) {
		int rc = TRY(pawl_trace_start(w.e, 64u << i));

		if (rc == -ENOSYS)
			break;
		op = op_on(&w, i, 1, 1);
		push(&w, &op);
		TRY(pawl_wait_all(w.e, SOON_NS, NULL));
		TRY(pawl_trace_stop(w.e));
		TRY(pawl_trace_write(w.e, path));
	}
	disarm();
	world_check(&w);
}

static void sc_record(void)
{
	struct world w = { 0 };
	struct pawl_engine *e;
	struct pawl_op op;
	u32 i;

	world_make(&w);
	arm(ALL);
	for (i = 0; i < 2; i++) {
		if (TRY(pawl_record_start(path)) == -ENOSYS)
			break;
		op = op_on(&w, i, 1, 1);
		push(&w, &op);
		if (!TRY(pawl_engine_create(&cfg, &e)))
			CHECK(!TRY(pawl_engine_destroy(e)), "%s: destroy: %s", where,
			      pawl_error_text());
		TRY(pawl_wait_all(w.e, SOON_NS, NULL));
		TRY(pawl_record_stop());
	}
	disarm();
	/* Whatever went wrong with the last one: the next one works. */
	pawl_record_stop();
	CHECK(i < 2 || !pawl_record_start(path), "%s: start afterwards: %s", where, pawl_error_text());
	CHECK(i < 2 || !pawl_record_stop(), "%s: stop afterwards: %s", where, pawl_error_text());
	world_check(&w);
}

static void sc_dump(void)
{
	struct world w = { 0 };
	struct pawl_stats s = { .size = sizeof(s) };
	struct pawl_op op;
	struct gate g;
	int fd = __real_open("/dev/null", O_WRONLY, 0);
	u32 i;

	world_make(&w);
	gate_write(w.e, &g, w.v[0]);
	for (i = 0; i < 20; i++) {
		op = op_on(&w, 0, i % 2, 2);
		push(&w, &op);
	}
	arm(ALL);
	TRY(pawl_dump(w.e, fd));
	TRY(pawl_stats(w.e, &s));
	disarm();
	close(fd);
	gate_open(&g);
	world_check(&w);
}

/* At the limit of ops in flight, with and without workers. */
static void sc_window(void)
{
	struct world w = { 0 };
	struct pawl_op op;
	u32 i;

	cfg.window = 64;
	cfg.workers = 0;
	world_make(&w);
	arm(ALL);
	for (i = 0; i < 1000; i++) {
		op = op_on(&w, i % 8, i % 2, 1);
		push(&w, &op);
	}
	disarm();
	world_check(&w);
}

static void sc_destroy(void)
{
	struct world w = { 0 };
	struct pawl_op op;
	u32 i;

	world_make(&w);
	for (i = 0; i < 100; i++) {
		op = op_on(&w, i % 8, i % 2, 1);
		push(&w, &op);
	}
	arm(ALL | 1u << FUTEX);
	if (TRY(pawl_engine_destroy(w.e))) {
		disarm();
		world_check(&w);
		return;
	}
	disarm();
	CHECK(w.ran == w.accepted, "%s: %u accepted, %u ran", where, w.accepted, w.ran);
}

static bool granted_never(void *arg)
{
	return false;
}

/* Sleepers that are woken for no reason. */
static void sc_sleep(void)
{
	struct world w = { 0 };
	struct pawl_op op;
	u32 i;

	cfg.spin_ns = 0;
	world_make(&w);
	arm(1u << FUTEX);
	for (i = 0; i < 5; i++) {
		op = op_on(&w, i, 1, 1);
		push(&w, &op);
		CHECK(!pawl_wait_readable(w.e, w.v[i + 1], SOON_NS, NULL), "%s: %s", where,
		      pawl_error_text());
		CHECK(pawl_run_until(w.e, granted_never, NULL, 100000) == -ETIMEDOUT, "%s: until",
		      where);
	}
	disarm();
	world_check(&w);
}

static const struct scenario {
	const char *name;
	void (*fn)(void);
	u32 most;		/* points looked at; 0: all there are */
} scenarios[] = {
	{ "create", sc_create, 0 },
	{ "create_pooled", sc_create_pooled, 0 },
	{ "create_naive", sc_create_naive, 0 },
	{ "create_prefault", sc_create_prefault, 0 },
	{ "key_again", sc_key_again, 0 },
	{ "life", sc_life, 0 },
	{ "var", sc_var, 0 },
	{ "push", sc_push, 0 },
	{ "pile", sc_pile, 0 },
	{ "wide", sc_wide, 0 },
	{ "batch", sc_batch, 0 },
	{ "oper", sc_oper, 0 },
	{ "bulk", sc_bulk, 0 },
	{ "waits", sc_waits, 0 },
	{ "errors", sc_errors, 0 },
	{ "async", sc_async, 0 },
	{ "threads", sc_threads, 0 },
	{ "stop_start", sc_stop_start, 0 },
	{ "trace", sc_trace, 0 },
	{ "record", sc_record, 0 },
	{ "dump", sc_dump, 0 },
	{ "window", sc_window, 0 },
	{ "destroy", sc_destroy, 20 },
	{ "sleep", sc_sleep, 12 },
};

/* --- the runs --- */

static void child(const struct scenario *s, u32 k, bool good)
{
	int fd;

	snprintf(where, sizeof(where), "%s %u %s", s->name, k, good ? "good" : "once");
	strcpy(path, "/tmp/pawl-fault-XXXXXX");
	fd = mkstemp(path);
	close(fd);
	cfg = small(PAWL_PER_DEVICE, 2);
	cfg.max_threads = 16;
	fail_at = k;
	for_good = good;
	s->fn();
	unlink(path);
	out->left = load_relaxed(&live);
	out->left_bytes = load_relaxed(&mapped);
	_exit(0);
}

/* 0: went well.  Else the text says how not. */
static int run(const struct scenario *s, u32 k, bool good)
{
	int status, ms;
	pid_t pid;

	memset(out, 0, sizeof(*out));
	fflush(NULL);
	pid = fork();
	MUST(pid >= 0);
	if (!pid) {
		alarm(60);
		child(s, k, good);
	}
	for (ms = 0; waitpid(pid, &status, 0) != pid; ms++)
		MUST(errno == EINTR);
	if (WIFSIGNALED(status))
		snprintf(out->text, sizeof(out->text), "%s %u %s: %s", s->name, k,
			 good ? "good" : "once", strsignal(WTERMSIG(status)));
	else if (WEXITSTATUS(status) && !out->text[0])
		snprintf(out->text, sizeof(out->text), "%s %u %s: exit status %d", s->name, k,
			 good ? "good" : "once", WEXITSTATUS(status));
	return out->text[0] != 0;
}

struct totals {
	u32 points, runs, failures, refused, classes[CLASSES];
};

static void scenario(const struct scenario *s, struct totals *t, u32 step)
{
	s64 left;
	u32 k, points = 0, misses, mode, c, failures = t->failures;

	if (run(s, 0, false)) {
		printf("FAIL without faults: %s\n", out->text);
		t->failures++;
		return;
	}
	left = out->left;
	if (out->left_bytes) {
		printf("FAIL without faults: %s: %lld bytes stay mapped\n", s->name,
		       (long long)out->left_bytes);
		t->failures++;
	}
	for (c = 0; c < CLASSES; c++)
		t->classes[c] += out->classes[c];
	for (mode = 0; mode < 2; mode++) {
		/* The number of calls is not the same in each run: until two do not come to k. */
		for (k = 1, misses = 0; misses < 2 && (!s->most || k <= s->most); k += step) {
			int rc = run(s, k, mode);

			t->runs++;
			t->refused += out->refused;
			if (!rc && (out->left > left || out->left_bytes)) {
				snprintf(out->text, sizeof(out->text),
					 "%s %u %s: %lld allocations are left, %lld without faults; %lld bytes mapped",
					 s->name, k, mode ? "good" : "once", (long long)out->left,
					 (long long)left, (long long)out->left_bytes);
				rc = 1;
			}
			if (rc) {
				printf("FAIL %s\n", out->text);
				t->failures++;
			}
			misses = out->fired || rc ? 0 : misses + 1;
			if (out->fired && k > points)
				points = k;
			if (t->failures - failures > 6) {
				printf("FAIL %s: and so on\n", s->name);
				t->points += points;
				return;
			}
		}
	}
	t->points += points;
	printf("%-16s %u points\n", s->name, points);
}

int main(int argc, char **argv)
{
	u32 i, step = getenv("PAWL_TEST_SHORT") ? 7 : SANITIZED ? 3 : 1;
	struct totals t = { 0 };

	out = __real_mmap(NULL, sizeof(*out), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	MUST(out != MAP_FAILED);
	for (i = 0; i < ARRAY_SIZE(scenarios); i++) {
		const struct scenario *s = &scenarios[i];

		if (argc > 1 && strcmp(argv[1], s->name))
			continue;
		if (argc > 3) {
			out->text[0] = 0;
			if (run(s, (u32)atoi(argv[2]), !strcmp(argv[3], "good")))
				t.failures++;
			printf("%s: %u faults, %u calls refused, %lld allocations and %lld bytes left %s\n",
			       s->name, out->fired, out->refused, (long long)out->left,
			       (long long)out->left_bytes, out->text);
			t.runs++;
		} else {
			scenario(s, &t, step);
		}
	}
	printf("C14 scenarios=%zu points=%u runs=%u refused=%u failures=%u (calls:", ARRAY_SIZE(scenarios),
	       t.points, t.runs, t.refused, t.failures);
	for (i = 0; i < CLASSES; i++)
		printf(" %s %u", class_names[i], t.classes[i]);
	printf(") %s\n", t.failures ? "FAIL" : "PASS");
	return t.failures || !t.runs;
}
