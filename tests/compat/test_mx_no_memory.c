// SPDX-License-Identifier: Apache-2.0
/*
 * Memory that is refused to libpawl_mx: which call says so, in which words, and that it leaves
 * nothing behind.  tests/fault/fault_mx.c refuses each call in turn, and looks at no text.  The
 * calls of the C library's functions below go through this file (--wrap).
 */
#include "mx_bulk.h"

#if THREAD_SANITIZED

int main(void)
{
	printf("the thread sanitizer begins before a call of it can go through this file\n");
	return 77;
}

#else

#include <malloc.h>
#include <sys/wait.h>

void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__real_aligned_alloc(size_t align, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
int __real_pthread_setspecific(pthread_key_t key, const void *value);
int __wrap_pthread_setspecific(pthread_key_t key, const void *value);

/* The last value that the thread has set which is watched. */
static __thread bool watched;
static pthread_key_t last_key;
static const void *last_value;

/* This thread's calls fail after so many; -1: none does. */
static __thread int mallocs = -1, callocs = -1, aligned_allocs = -1, setspecifics = -1;

static bool refused_after(int *n)
{
	if (*n > 0)
		--*n;
	else if (!*n)
		return true;
	return false;
}

void *__wrap_malloc(size_t n)
{
	return refused_after(&mallocs) ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return refused_after(&callocs) ? NULL : __real_calloc(n, size);
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
	return refused_after(&aligned_allocs) ? NULL : __real_aligned_alloc(align, n);
}

int __wrap_pthread_setspecific(pthread_key_t key, const void *value)
{
	if (refused_after(&setspecifics))
		return ENOMEM;
	if (watched) {
		last_key = key;
		last_value = value;
	}
	return __real_pthread_setspecific(key, value);
}

/* The call is refused with this text while the n-th next one of that function fails. */
#define WITHOUT(calls, n, rc, call, text) do {					\
		int rc__;							\
										\
		pawl_mx_set_last_error("none");					\
		calls = (n);							\
		rc__ = (call);							\
		calls = -1;							\
		MUST(rc__ == (rc) && !strcmp(pawl_mx_last_error(), text));	\
	} while (0)

static size_t allocated(void)
{
	return mallinfo2().uordblks + mallinfo2().hblkhd;
}

/* The first test: later ones leave engines whose memory is used again. */
START_TEST(test_an_engine_without_memory)
{
	struct pawl_mx_engine *e = NULL;

	WITHOUT(callocs, 0, -ENOMEM, pawl_mx_engine_create(PAWL_MX_PER_DEVICE, &e),
		"engine create: no memory");
	ck_assert_ptr_null(e);
	OK(pawl_mx_engine_free(engine()));
}
END_TEST

/* --- the thread's bulk --- */

static void *has_no_bulk(void *arg)
{
	struct pawl_mx_engine *e = arg;
	struct pawl_mx_var *v = var_new(e);
	unsigned int n = 0;
	size_t before;
	int i;

	pawl_mx_set_last_error("so that there is memory for a text");
	WITHOUT(callocs, 0, -ENOMEM, pawl_mx_set_bulk_size(e, 8), "set_bulk_size: no memory");
	/* it is not set, and ops do not gather */
	MUST(!pawl_mx_bulk_size(e) && !push(e, add_one, &n, v) && !pawl_mx_wait_var(e, v, NULL));
	MUST(n == 1);
	for (i = 0, before = 0; i < 100; i++) {
		WITHOUT(setspecifics, 0, -ENOMEM, pawl_mx_set_bulk_size(e, 8),
			"set_bulk_size: no memory");
		if (!i)
			before = allocated();
	}
	MUST(SANITIZED || allocated() < before + 10000);
	MUST(!pawl_mx_bulk_size(e) && !pawl_mx_set_bulk_size(e, 8) && pawl_mx_bulk_size(e) == 8);
	for (i = 0; i < 8; i++)
		MUST(!push(e, add_one, &n, v));
	MUST(!pawl_mx_wait_var(e, v, NULL) && n == 9 && pawl_mx_var_version(v) == 2);
	return NULL;
}

START_TEST(test_a_bulk_without_memory)
{
	struct pawl_mx_engine *e = engine();

	join(spawn(has_no_bulk, e));
	OK(pawl_mx_engine_free(e));
}
END_TEST

static void *has_anothers_value(void *arg)
{
	MUST(!pthread_setspecific(last_key, last_value));
	return NULL;
}

static void *gathers(void *arg)
{
	struct pawl_mx_engine *e = arg;
	struct pawl_mx_var *v = var_new(e);
	unsigned int n = 0;

	MUST(!push(e, nothing, NULL, v));
	watched = true;
	MUST(!pawl_mx_set_bulk_size(e, 8) && last_value);
	watched = false;
	MUST(!push(e, add_one, &n, v));
	join(spawn(has_anothers_value, NULL));
	MUST(!push(e, add_one, &n, v) && !pawl_mx_wait_var(e, v, NULL));
	MUST(n == 2 && pawl_mx_var_version(v) == 2);
	return NULL;
}

/*
 * In the child of a fork a thread can have the value of one of the parent's.  When it ends, the
 * bulk is still that of its thread.
 */
START_TEST(test_the_end_of_a_thread_with_the_value_of_another)
{
	struct pawl_mx_engine *e = engine();

	join(spawn(gathers, e));
	OK(pawl_mx_engine_free(e));
}
END_TEST

/* --- ops, operators and vars --- */

START_TEST(test_an_op_without_memory)
{
	enum { MOST = 4096 };
	static void *rooms[MOST];
	struct pawl_mx_op op = { .sync = nothing, .ctx = cpu, .drop = drop };
	struct pawl_mx_engine *e = engine();
	struct pawl_mx_opr *opr = NULL;
	struct pawl_mx_var *v = var_new(e);
	int n, i;

	aligned_allocs = 0;
	for (n = 0; n < MOST && (rooms[n] = pawl_mx_room_get()); n++)
		;
	aligned_allocs = -1;
	ck_assert_int_lt(n, MOST);
	for (dropped = 0, i = 0; i < 3; i++) {
		WITHOUT(aligned_allocs, 0, -ENOMEM, pawl_mx_push(e, &op, NULL), "push: no memory");
		ck_assert_uint_eq(dropped, 3 * (unsigned int)i + 1);
		WITHOUT(aligned_allocs, 0, -ENOMEM, pawl_mx_opr_new(e, &op, &opr),
			"new operator: no memory");
		ck_assert_uint_eq(dropped, 3 * (unsigned int)i + 2);
		WITHOUT(aligned_allocs, 0, -ENOMEM,
			pawl_mx_var_delete(e, v, cpu, nothing, NULL, drop), "push: no memory");
		ck_assert_uint_eq(dropped, 3 * (unsigned int)i + 3);
	}
	ck_assert_ptr_null(opr);
	for (i = 0; i < n; i++)
		pawl_mx_room_put(rooms[i]);
	/* the var is unchanged */
	OK(push(e, nothing, NULL, v));
	OK(pawl_mx_wait_var(e, v, NULL));
	ck_assert_uint_eq(pawl_mx_var_version(v), 1);
	OK(pawl_mx_var_delete(e, v, cpu, NULL, NULL, NULL));
	OK(pawl_mx_engine_free(e));
}
END_TEST

START_TEST(test_an_op_with_long_lists_without_memory)
{
	struct pawl_mx_engine *e = pawl_mx_engine_get();
	NDArrayHandle a = floats(1), nds[80];
	struct pawl_mx_var *vars[257];
	struct pawl_mx_op op = { .sync = nothing, .ctx = cpu, .drop = drop, .reads = vars,
				 .nreads = 200, .writes = vars, .nwrites = 57 };
	int i;

	for (i = 0; i < 257; i++)
		vars[i] = pawl_mx_nd_var(a);
	for (i = 0; i < 80; i++)
		nds[i] = a;
	OK(MXNDArrayWaitAll());
	dropped = 0;
	WITHOUT(mallocs, 0, -1, MXEnginePushSyncND(nothing, NULL, drop, &cpu, nds, 80, nds, 1, NULL, 0,
						   "l"), "no memory for 80 + 1 vars");
	ck_assert_uint_eq(dropped, 1);
	WITHOUT(mallocs, 0, -ENOMEM, pawl_mx_push(e, &op, NULL), "push: no memory for 257 vars");
	ck_assert_uint_eq(dropped, 2);
	OK(pawl_mx_wait_all(e, NULL));
	ck_assert_uint_eq(version(a), 0);
	OK(MXNDArrayFree(a));
}
END_TEST

/* Its list of vars, and their handles. */
START_TEST(test_an_operator_without_memory)
{
	enum { VARS = 1000 };
	static struct pawl_mx_var *list[VARS];
	struct pawl_mx_engine *e = engine();
	struct pawl_mx_op op = { .sync = nothing, .ctx = cpu, .drop = drop, .reads = list,
				 .nreads = VARS };
	struct pawl_mx_opr *opr = NULL;
	size_t before = 0;
	int i;

	list[0] = var_new(e);
	for (i = 1; i < VARS; i++)
		list[i] = list[0];
	for (dropped = 0, i = 0; i < 2000; i++) {
		WITHOUT(mallocs, i % 2, -ENOMEM, pawl_mx_opr_new(e, &op, &opr),
			"new operator: no memory");
		ck_assert_uint_eq(dropped, (unsigned int)i + 1);
		/* the first ones were the memory of objects that are used again */
		if (i == 10)
			before = allocated();
	}
	ck_assert_ptr_null(opr);
	ck_assert(SANITIZED || allocated() < before + 10000);
	OK(pawl_mx_engine_free(e));
}
END_TEST

START_TEST(test_a_naive_push_of_an_operator_without_memory)
{
	struct pawl_mx_engine *e = NULL;
	struct pawl_mx_opr *opr;
	struct pawl_mx_var *v;
	unsigned int n = 0;
	struct pawl_mx_op op = { .sync = add_one, .arg = &n, .ctx = cpu, .writes = &v, .nwrites = 1 };

	OK(pawl_mx_engine_create(PAWL_MX_NAIVE, &e));
	v = var_new(e);
	OK(pawl_mx_opr_new(e, &op, &opr));
	WITHOUT(mallocs, 0, -ENOMEM, pawl_mx_opr_push(e, opr, cpu, 0, NULL), "push: no memory");
	ck_assert_uint_eq(n, 0);
	OK(pawl_mx_opr_push(e, opr, cpu, 0, NULL));
	ck_assert(n == 1 && pawl_mx_var_version(v) == 1);
	OK(pawl_mx_opr_delete(e, opr));
	OK(pawl_mx_engine_free(e));
}
END_TEST

/* Of libpawl's var, which is there before, nothing is left. */
START_TEST(test_a_var_without_memory)
{
	enum { MOST = 4096, TRIES = 3000 };
	struct pawl_stats st = { .size = sizeof(st) };
	struct pawl_mx_engine *e = engine();
	struct pawl_mx_var *v = NULL;
	uint64_t before;
	int i;

	aligned_allocs = 0;
	for (i = 0; i < MOST && !pawl_mx_var_new(e, &v); i++)
		;
	aligned_allocs = -1;
	ck_assert_int_lt(i, MOST);
	OK(pawl_stats(pawl_mx_engine_pawl(e), &st));
	before = st.vars;
	for (i = 0; i < TRIES; i++)
		WITHOUT(aligned_allocs, 0, -ENOMEM, pawl_mx_var_new(e, &v), "new variable: no memory");
	OK(pawl_mx_wait_all(e, NULL));
	OK(pawl_stats(pawl_mx_engine_pawl(e), &st));
	ck_assert_uint_lt(st.vars, before + TRIES / 2);
	v = var_new(e);
	OK(push(e, nothing, NULL, v));
	OK(pawl_mx_wait_var(e, v, NULL));
	OK(pawl_mx_engine_free(e));
}
END_TEST

/* --- texts --- */

static void *has_no_text(void *arg)
{
	struct pawl_mx_engine *e = arg;
	const struct pawl_mx_op op = { .ctx = cpu }, first = { .sync = nothing, .ctx = cpu };
	const struct pawl_mx_op named = { .sync = nothing, .ctx = cpu, .name = "n" };
	int i;

	/* what libpawl has of a thread */
	MUST(!pawl_mx_push(e, &first, NULL) && !*pawl_mx_last_error());
	for (i = 0; i < 4; i++) {
		*(i & 1 ? &setspecifics : &callocs) = 0;
		MUST(pawl_mx_push(e, &op, NULL) == -EINVAL);
		MUST(!strcmp(pawl_mx_last_error(), "an error, and no memory for its text"));
		/* a name needs none */
		MUST(!pawl_mx_push(e, &named, NULL));
		callocs = setspecifics = -1;
		/* it stays until there is another error */
		MUST(!strcmp(pawl_mx_last_error(), "an error, and no memory for its text"));
	}
	MUST(pawl_mx_push(e, &op, NULL) == -EINVAL);
	MUST(!strcmp(pawl_mx_last_error(), "push: the function is NULL"));
	return NULL;
}

START_TEST(test_a_text_without_memory)
{
	struct pawl_mx_engine *e = engine();
	unsigned int n = 0;

	/* which keeps the name */
	struct pawl_mx_op op = { .sync = add_one, .arg = &n, .ctx = cpu, .name = "n" };

	OK(pawl_mx_push(e, &op, NULL));
	join(spawn(has_no_text, e));
	OK(pawl_mx_wait_all(e, NULL));
	ck_assert_uint_eq(n, 1);
	OK(pawl_mx_engine_free(e));
}
END_TEST

enum { BAD = 3 };

static struct pawl_mx_engine *the_e;
static struct pawl_mx_var *bad[BAD];
static int texts = -1;	/* while a fork begins there is memory for so many */

/* Handlers that run before a fork are called in the reverse order of their registration. */
static void before_the_librarys(void) { mallocs = texts; }
static void after_the_librarys(void) { mallocs = -1; }

__attribute__((constructor)) static void registers_first(void)
{
	MUST(!pthread_atfork(after_the_librarys, NULL, NULL));
}

/* How many vars have failed with that text, each of them once; then their data are good. */
static int failed_with(const char *text)
{
	int i, n = 0;

	for (i = 0; i < BAD; i++) {
		if (pawl_mx_var_version(bad[i]) != 1)
			return -1;
		if (pawl_mx_wait_var(the_e, bad[i], NULL) == -EIO)
			n += !strcmp(pawl_mx_last_error(), text);
		if (pawl_mx_wait_var(the_e, bad[i], NULL) || pawl_mx_var_version(bad[i]) != 1)
			return -2;
	}
	return n;
}

/* Without memory for the text of an error the child of a fork still has the error. */
START_TEST(test_a_fork_without_memory)
{
	static const char lost[] = "an op failed before the fork, which had no memory for its text";
	int i, status;
	pid_t pid;

	the_e = pawl_mx_engine_get();
	MUST(!pthread_atfork(before_the_librarys, NULL, NULL));
	for (i = 0; i < BAD; i++) {
		bad[i] = var_new(the_e);
		OK(push(the_e, fails, NULL, bad[i]));
	}
	for (i = 0; i < 2 * (BAD + 1); i++) {
		texts = i / 2;
		pid = fork();
		ck_assert_int_ge(pid, 0);
		if (!pid) {
			alarm(60);
			_exit(i & 1 ? failed_with("disk on fire") != texts :
			      failed_with(lost) != BAD - texts);
		}
		texts = -1;
		ck_assert(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
		ck_assert_int_eq(WEXITSTATUS(status), 0);
	}
	ck_assert_int_eq(failed_with("disk on fire"), BAD);
	OK(pawl_mx_engine_free(the_e));
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		test_an_engine_without_memory, test_a_bulk_without_memory,
		test_the_end_of_a_thread_with_the_value_of_another, test_an_op_without_memory,
		test_an_op_with_long_lists_without_memory, test_an_operator_without_memory,
		test_a_naive_push_of_an_operator_without_memory, test_a_var_without_memory,
		test_a_text_without_memory, test_a_fork_without_memory, NULL
	};

	return suite_run("mx_no_memory", tests, 60);
}

#endif
