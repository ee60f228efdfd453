// SPDX-License-Identifier: Apache-2.0
/*
 * Fault points: each call of the system that the library makes fails in turn.
 *
 * The linker redirects the library's calls of the C library to this file (--wrap,
 * tests/Makefile): memory (malloc and others, mmap, mprotect, madvise), threads
 * (pthread_create, keys, fork handlers), files and shared libraries, and waits on futexes.
 * While a scenario is armed, its k-th call fails, alone or with all later ones, for k = 1, 2,
 * ... until a run ends before call k.
 *
 * Each run is a separate process.  In it, every call of the library that fails must return an
 * error with a text, and have had no effect: accepted ops run once, and no others run; after
 * the faults the engine runs some work, and is destroyed; then no more memory is allocated or
 * mapped than in a run without faults.  A signal, a hang or a failed check is a failure, and
 * prints the command that repeats it.
 *
 * A program is this file and one with scenarios:
 *
 *	fault_x			all, and every third with all later ones; of these every
 *				thirteenth under a sanitizer or with PAWL_TEST_SHORT
 *	fault_x SCENARIO K MODE	one run; MODE: once, good
 */
#include "fault.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static const char *const class_names[] = { "memory", "threads", "files", "futex", "net" };

struct shared *out;

static u32 armed;		/* A: mask of classes */
static u32 calls;		/* A: while armed */
static u32 fail_at;		/* k; 0: never */
bool for_good;
__thread bool spared;
__thread bool watched;
static s64 live, watched_live, mapped;	/* A */

bool fails(u32 class)
{
	u32 n;

	if (spared || !(load_acquire(&armed) & 1u << class))
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

void *counted(void *p)
{
	if (p)
		fetch_add_relaxed(watched ? &watched_live : &live, 1);
	return p;
}

s64 allocations(void)
{
	return load_relaxed(&watched_live);
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

REAL(void *, calloc, size_t n, size_t size)
{
	return fails(MEMORY) ? refuse() : counted(__real_calloc(n, size));
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
		fetch_add_relaxed(watched ? &watched_live : &live, -1);
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

/* libpawl's only calls extend a mapping. */
void *__real_mremap(void *at, size_t from, size_t to, int flags, ...);
void *__wrap_mremap(void *at, size_t from, size_t to, int flags, ...);

void *__wrap_mremap(void *at, size_t from, size_t to, int flags, ...)
{
	void *p;

	if (fails(MEMORY)) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	p = __real_mremap(at, from, to, flags);
	if (p != MAP_FAILED)
		fetch_add_relaxed(&mapped, (s64)(to - from));
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

REAL(int, open, const char *name, int flags, mode_t mode)
{
	if (fails(FILES)) {
		errno = EMFILE;
		return -1;
	}
	return __real_open(name, flags, mode);
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

REAL(FILE *, fopen, const char *name, const char *mode)
{
	if (fails(FILES)) {
		errno = EMFILE;
		return NULL;
	}
	return __real_fopen(name, mode);
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

REAL(void *, dlopen, const char *name, int flags)
{
	return fails(FILES) ? NULL : __real_dlopen(name, flags);
}

REAL(void *, dlsym, void *lib, const char *name)
{
	return fails(FILES) ? NULL : __real_dlsym(lib, name);
}

int open_for_sure(const char *name, int flags)
{
	return __real_open(name, flags, 0600);
}

int thread_for_sure(pthread_t *t, void *(*fn)(void *), void *arg)
{
	return __real_pthread_create(t, NULL, fn, arg);
}

/* A wait may end spuriously; a wake-up cannot fail. */
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

char where[64];
char path[64];
struct pawl_config cfg;

const char *(*fault_text)(void) = pawl_error_text;

int tried(const char *what, int rc)
{
	if (rc >= 0)
		return rc;
	CHECK(rc > -4096, "%s: %s: %d is no errno", where, what, rc);
	CHECK(fault_text()[0], "%s: %s: %d without a message", where, what, rc);
	out->refused++;
	return rc;
}

int body(struct pawl_run *run, void *arg)
{
	fetch_add_relaxed(&((struct world *)arg)->ran, 1);
	return 0;
}

void world_vars(struct world *w, u32 n)
{
	while (w->nv < n && !TRY(pawl_var_create(w->e, &w->v[w->nv])))
		w->nv++;
}

void world_make(struct world *w)
{
	CHECK(!pawl_engine_create(&cfg, &w->e), "%s: create: %s", where, pawl_error_text());
	world_vars(w, 64);
	CHECK(w->nv == 64, "%s: no vars: %s", where, pawl_error_text());
}

struct pawl_op op_on(struct world *w, u32 first, u32 nr, u32 nw)
{
	struct pawl_op op = op_of_fn(body, w);

	op.reads = w->v + first;
	op.nreads = nr;
	op.writes = w->v + first + nr;
	op.nwrites = nw;
	op.name = "op";
	return op;
}

void push(struct world *w, const struct pawl_op *op)
{
	if (!TRY(pawl_push(w->e, op)))
		w->accepted++;
}

void world_check(struct world *w)
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
		CHECK(!pawl_push(w->e, &op), "%s: push afterwards: %s", where,
		      pawl_error_text());
		w->accepted++;
	}
	CHECK(!pawl_wait_all(w->e, SOON_NS, NULL), "%s: wait afterwards: %s", where,
	      pawl_error_text());
	CHECK(w->ran == w->accepted, "%s: afterwards %u ops accepted, %u ran", where,
	      w->accepted, w->ran);
	CHECK(!pawl_engine_destroy(w->e), "%s: destroy: %s", where, pawl_error_text());
}

void arm(u32 classes)
{
	store_release(&armed, classes);
}

void disarm(void)
{
	store_release(&armed, 0);
}

/* --- the runs --- */

/* More than the engines that a scenario has at one time. */
#define SETTLERS 32

struct settle {
	struct pawl_engine *e;
	pthread_barrier_t all;
};

static void *settler(void *arg)
{
	struct settle *s = arg;
	pawl_var_t v;
	int rc = pawl_var_create(s->e, &v);

	CHECK(!rc, "%s: settle: var: %s", where, pawl_error_text());
	pthread_barrier_wait(&s->all);
	return NULL;
}

/*
 * Make what the process keeps for its threads equal in each run, independent of timing and
 * faults: core/thread.c keeps as many entries as threads were in engines at once, and
 * pool/err.c a buffer for the text of this thread.
 */
static void settle(void)
{
	pthread_t t[SETTLERS];
	struct settle s;
	u32 i;

	cfg = small(PAWL_NAIVE, 0);
	cfg.max_threads = SETTLERS + 16;
	CHECK(!pawl_engine_create(&cfg, &s.e), "%s: settle: %s", where, pawl_error_text());
	pthread_barrier_init(&s.all, NULL, SETTLERS);
	for (i = 0; i < SETTLERS; i++)
		CHECK(!thread_for_sure(&t[i], settler, &s), "%s: settle: no thread", where);
	for (i = 0; i < SETTLERS; i++)
		pthread_join(t[i], NULL);
	pthread_barrier_destroy(&s.all);
	CHECK(pawl_var_delete(s.e, (pawl_var_t){ 0 }, NULL, NULL), "%s: settle: no error",
	      where);
	/* For lack of a key it never has one. */
	if (!strncmp(pawl_error_text(), "an error, and no memory", 23))
		fetch_add_relaxed(&live, 1);
	CHECK(!pawl_engine_destroy(s.e), "%s: settle: destroy: %s", where, pawl_error_text());
}

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
	settle();
	out->left = load_relaxed(&live) + load_relaxed(&watched_live);
	out->left_bytes = load_relaxed(&mapped);
	_exit(0);
}

/* Returns 0, or nonzero with a text that describes the failure. */
static int run(const struct scenario *s, u32 k, bool good)
{
	int status, ms;
	pid_t pid;

	memset(out, 0, sizeof(*out));
	fflush(NULL);
	pid = fork();
	MUST(pid >= 0);
	if (!pid) {
		alarm(patience_ms(60000) / 1000);
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

/* What fails after the first call differs little from one of them to the next. */
#define GOOD_STEP	3

struct totals {
	u32 points, runs, failures, refused, classes[CLASSES];
};

static void scenario(const struct scenario *s, struct totals *t, u32 step)
{
	s64 left, bytes;
	u32 k, points = 0, misses, mode, c, failures = t->failures;

	if (run(s, 0, false)) {
		printf("FAIL without faults: %s\n", out->text);
		t->failures++;
		return;
	}
	left = out->left + s->stays;
	bytes = out->left_bytes;
	if (bytes && !s->stays) {
		printf("FAIL without faults: %s: %lld bytes stay mapped\n", s->name,
		       (long long)out->left_bytes);
		t->failures++;
	}
	for (c = 0; c < CLASSES; c++)
		t->classes[c] += out->classes[c];
	for (mode = 0; mode < 2; mode++) {
		/*
		 * The number of calls differs between runs, so continue until two runs do not
		 * reach call k.
		 */
		for (k = 1, misses = 0; misses < 2 && (!s->most || k <= s->most);
		     k += mode ? step * GOOD_STEP : step) {
			int rc = run(s, k, mode);

			t->runs++;
			t->refused += out->refused;
			if (!rc && (out->left > left || out->left_bytes > bytes)) {
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
	u32 i, step = SANITIZED || getenv("PAWL_TEST_SHORT") ? 13 : 1;
	struct totals t = { 0 };

	out = __real_mmap(NULL, sizeof(*out), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	MUST(out != MAP_FAILED);
	for (i = 0; scenarios[i].name; i++) {
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
	printf("C14 %s scenarios=%u points=%u runs=%u refused=%u failures=%u (calls:", fault_program, i,
	       t.points, t.runs, t.refused, t.failures);
	for (i = 0; i < CLASSES; i++)
		printf(" %s %u", class_names[i], t.classes[i]);
	printf(") %s\n", t.failures ? "FAIL" : "PASS");
	return t.failures || !t.runs;
}
