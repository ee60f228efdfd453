// SPDX-License-Identifier: Apache-2.0
/*
 * As test_contract.c, for the errors that the system causes: it refuses memory, a descriptor, a
 * write.  Here the library's calls of malloc(), calloc(), aligned_alloc(), mmap(),
 * eventfd(), write() and vsnprintf() are those below (see tests/Makefile), and memory for objects
 * is refused by pool_commit_hook().
 */
#include "util.h"
#include <pool/pool.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

enum { NOTHING, ALLOCATION, OBJECTS, DESCRIPTOR, OUTPUT, LENGTH };

/* What fails, with which errno, until it is NOTHING again. */
static u32 failing;		/* A */
static int failing_with;

/* Of the requests for OBJECTS: so many are granted, and then so many refused. */
static u32 granted, refused = UINT32_MAX;	/* A */

/* Of the requests for an ALLOCATION: this one alone is refused, then 0; at first UINT32_MAX: all. */
static u32 only = UINT32_MAX;	/* A */

static bool fails(u32 what)
{
	return load_acquire(&failing) == what;
}

static bool no_allocation(void)
{
	if (!fails(ALLOCATION))
		return false;
	return load_relaxed(&only) == UINT32_MAX ||
	       (load_relaxed(&only) && fetch_add_relaxed(&only, -1u) == 1);
}

/* The call, which must be refused with this code because of `what`. */
#define WITHOUT(e, what, error, call, code, ...)				\
	REFUSED(e, without(what, error, call), code, ##__VA_ARGS__)

/* Only inside the call, since Check allocates, too. */
#define without(what, error, call) ({						\
	int without_rc_;							\
	failing_with = (error);							\
	store_release(&failing, what);						\
	without_rc_ = (call);							\
	store_release(&failing, NOTHING);					\
	without_rc_; })

int pool_commit_hook(const char *what, size_t bytes)
{
	u32 n = load_relaxed(&granted), r = load_relaxed(&refused);

	if (!fails(OBJECTS))
		return 0;
	if (n || !r) {
		store_relaxed(&granted, n ? n - 1 : 0);
		return 0;
	}
	if (r != UINT32_MAX)
		store_relaxed(&refused, r - 1);
	return -ENOMEM;
}

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__real_mmap(void *at, size_t size, int prot, int flags, int fd, off_t from);
void *__wrap_mmap(void *at, size_t size, int prot, int flags, int fd, off_t from);
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__real_aligned_alloc(size_t align, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
int __real_eventfd(unsigned int count, int flags);
int __wrap_eventfd(unsigned int count, int flags);
ssize_t __real_write(int fd, const void *from, size_t n);
ssize_t __wrap_write(int fd, const void *from, size_t n);
int __real_vsnprintf(char *to, size_t size, const char *fmt, va_list ap);
int __wrap_vsnprintf(char *to, size_t size, const char *fmt, va_list ap);
int __real___vsnprintf_chk(char *to, size_t size, int flag, size_t room, const char *fmt,
			   va_list ap);
int __wrap___vsnprintf_chk(char *to, size_t size, int flag, size_t room, const char *fmt,
			   va_list ap);

void *__wrap_malloc(size_t size)
{
	return no_allocation() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return no_allocation() ? NULL : __real_calloc(n, size);
}

void *__wrap_aligned_alloc(size_t align, size_t size)
{
	return no_allocation() ? NULL : __real_aligned_alloc(align, size);
}

void *__wrap_mmap(void *at, size_t size, int prot, int flags, int fd, off_t from)
{
	return no_allocation() ? MAP_FAILED : __real_mmap(at, size, prot, flags, fd, from);
}

int __wrap_eventfd(unsigned int count, int flags)
{
	if (!fails(DESCRIPTOR))
		return __real_eventfd(count, flags);
	errno = failing_with;
	return -1;
}

ssize_t __wrap_write(int fd, const void *from, size_t n)
{
	if (!fails(OUTPUT))
		return __real_write(fd, from, n);
	errno = failing_with;
	return errno ? -1 : 0;
}

/* A text that is larger than it is: the real one would have 2 GiB. */
int __wrap_vsnprintf(char *to, size_t size, const char *fmt, va_list ap)
{
	int n = __real_vsnprintf(to, size, fmt, ap);

	return fails(LENGTH) ? n + (1 << 28) : n;
}

/* The same call in a build with _FORTIFY_SOURCE, which packages have. */
int __wrap___vsnprintf_chk(char *to, size_t size, int flag, size_t room, const char *fmt, va_list ap)
{
	int n = __real___vsnprintf_chk(to, size, flag, room, fmt, ap);

	return fails(LENGTH) ? n + (1 << 28) : n;
}

static int create_without(struct pawl_config *c, struct pawl_engine **e, u32 k, u32 *left)
{
	int rc;

	store_relaxed(&only, k);
	rc = without(ALLOCATION, ENOMEM, pawl_engine_create(c, e));
	*left = load_relaxed(&only);
	store_relaxed(&only, UINT32_MAX);
	return rc;
}

/* The allocator itself keeps some memory, but not each time. */
static bool create_keeps_memory(struct pawl_config *c, u32 k)
{
	struct pawl_engine *e;
	size_t before;
	u32 i, left;

	for (i = 0; i < 20; i++) {
		before = heap_used();
		MUST(create_without(c, &e, k, &left));
		if (heap_used() <= before)
			return false;
	}
	return true;
}

/* Whichever allocation is refused: what was allocated before is freed. */
START_TEST(test_an_engine_is_created_as_a_whole_or_not_at_all)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 2);
	struct pawl_engine *e;
	u32 k, left, ran = 0, failed = 0;
	int rc;

	c.copy_workers = c.priority_workers = 1;
	for (k = 1; ; k++) {
		rc = create_without(&c, &e, k, &left);
		if (rc) {
			ck_assert_int_eq(rc, -ENOMEM);
			ck_assert_msg(strstr(pawl_error_text(), "memory") ||
				      strstr(pawl_error_text(), "cannot reserve"), "%u: %s", k,
				      pawl_error_text());
			ck_assert_msg(!create_keeps_memory(&c, k), "%u: a leak", k);
			failed++;
			continue;
		}
		/* A few are asked for, and not needed. */
		OK(push_write(e, add_one, &ran, var_new(e)));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		OK(pawl_engine_destroy(e));
		if (left)
			break;
	}
	ck_assert_uint_gt(failed, 20);
}
END_TEST

START_TEST(test_a_descriptor_that_the_system_refuses_is_had_later)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_cq_t cq;
	int fd;

	OK(pawl_cq_create(e, &cq));
	WITHOUT(e, DESCRIPTOR, EMFILE, pawl_cq_fd(e, cq), -EMFILE, "cq_fd");
	WITHOUT(e, DESCRIPTOR, ENFILE, pawl_cq_fd(e, cq), -ENFILE, "cq_fd");
	WITHOUT(e, DESCRIPTOR, ENOMEM, pawl_cq_fd(e, cq), -ENOMEM, "cq_fd");
	WITHOUT(e, DESCRIPTOR, EMFILE, pawl_ready_fd(e), -EMFILE, "ready_fd");
	WITHOUT(e, DESCRIPTOR, ENFILE, pawl_ready_fd(e), -ENFILE, "ready_fd");
	WITHOUT(e, DESCRIPTOR, ENOMEM, pawl_ready_fd(e), -ENOMEM, "ready_fd");
	fd = pawl_cq_fd(e, cq);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_ge(pawl_ready_fd(e), 0);
	ck_assert_int_eq(pawl_cq_fd(e, cq), fd);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_a_dump_that_is_not_written_says_so_and_can_be_repeated)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	int fd = open("/dev/null", O_WRONLY);

	ck_assert_int_eq(without(OUTPUT, 0, pawl_dump(e, fd)), -EIO);
	ck_assert_int_eq(without(OUTPUT, ENOSPC, pawl_dump(e, fd)), -ENOSPC);
	OK(pawl_dump(e, fd));
	close(fd);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_a_text_of_more_than_an_int_is_refused)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0), *list[1] = { e };
	int n = pawl_prometheus(list, 1, NULL, 0);

	WITHOUT(e, LENGTH, 0, pawl_prometheus(list, 1, NULL, 0), -E2BIG);
	ck_assert_int_eq(pawl_prometheus(list, 1, NULL, 0), n);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_an_engine_without_memory_is_not_created)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pawl_engine *e = NULL;

	FAILS(without(ALLOCATION, 0, pawl_engine_create(&c, &e)), -ENOMEM, "memory");
	ck_assert_ptr_null(e);
	FAILS(without(OBJECTS, 0, pawl_engine_create(&c, &e)), -ENOMEM);
	ck_assert_ptr_null(e);
	OK(pawl_engine_create(&c, &e));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Whichever two requests for objects the system refuses: a pool asks for less the second time. */
START_TEST(test_an_engine_with_too_little_memory_is_not_created)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pawl_engine *e = NULL;
	u32 k, fewer = 0, n = 0;
	pawl_var_t v;

	c.window = 1;
	c.window_policy = PAWL_WINDOW_FAIL;
	for (k = 0; ; k++) {
		store_relaxed(&granted, k);
		store_relaxed(&refused, 2);
		if (without(OBJECTS, 0, pawl_engine_create(&c, &e))) {
			ck_assert_ptr_null(e);
			fewer++;
			continue;
		}
		/* What is created works. */
		v = var_new(e);
		OK(push_write(e, add_one, &n, v));
		FAILS(push_write(e, add_one, &n, v), -EAGAIN, "window");
		OK(pawl_wait_all(e, SOON_NS, NULL));
		OK(pawl_engine_destroy(e));
		if (load_relaxed(&refused) == 2)
			break;
	}
	store_relaxed(&granted, 0);
	store_relaxed(&refused, UINT32_MAX);
	ck_assert_uint_gt(fewer, 10);
}
END_TEST

START_TEST(test_calls_without_memory_change_nothing_and_can_be_repeated)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e), w;
	struct pawl_op op = op_write(nothing, NULL, &v);
	struct pawl_group_limits lim = { .size = sizeof(lim) };
	pawl_graph_t graph;
	pawl_group_t group;

	OK(pawl_group_create(e, NULL, &group));
	OK(pawl_cq_create(e, &lim.cq));
	WITHOUT(e, OBJECTS, 0, pawl_push(e, &op), -ENOMEM, "push");
	WITHOUT(e, OBJECTS, 0, pawl_var_delete(e, v, NULL, NULL), -ENOMEM);
	WITHOUT(e, OBJECTS, 0, pawl_group_limit(e, group, &lim), -ENOMEM, "group");
	WITHOUT(e, ALLOCATION, 0, pawl_graph_create(e, &op, 1, 0, &graph), -ENOMEM, "graph");
	WITHOUT(e, ALLOCATION, 0, pawl_watch(e, 0, NULL, NULL), -ENOMEM);
	OK(pawl_watch(e, 0, NULL, NULL));
	OK(pawl_group_limit(e, group, &lim));
	OK(pawl_graph_create(e, &op, 1, 0, &graph));
	OK(pawl_push(e, &op));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(version(e, v), 1);
	OK(pawl_var_delete(e, v, NULL, NULL));
	OK(pawl_var_create(e, &w));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A wait is an op, too, if it has to wait. */
START_TEST(test_a_wait_without_memory_keeps_the_error_for_the_next)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct gate g;
	u32 n = 0;
	int rc;

	gate_write(e, &g, v);
	OK(push_write(e, fail_io, NULL, v));
	/* Use all ops that exist. */
	do
		rc = without(OBJECTS, 0, push_write(e, add_one, &n, v));
	while (!rc);
	ck_assert_int_eq(rc, -ENOMEM);
	WITHOUT(e, OBJECTS, 0, pawl_wait_readable(e, v, SOON_NS, NULL), -ENOMEM, "wait");
	WITHOUT(e, OBJECTS, 0, pawl_wait_writable(e, v, SOON_NS, NULL), -ENOMEM, "wait");
	gate_open(&g);
	FAILS(pawl_wait_readable(e, v, SOON_NS, NULL), -EIO, "disk");
	OK(pawl_wait_readable(e, v, SOON_NS, NULL));
	OK(pawl_wait_writable(e, v, SOON_NS, NULL));
	OK(pawl_var_clear(e, v));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A thread's first error has no text without memory, and the next one has. */
static void *first_error(void *arg)
{
	struct pawl_engine *e = arg;

	MUST(!*pawl_error_text());
	MUST(without(ALLOCATION, 0, pawl_ready_fd(e)) == -EINVAL);
	MUST(!strcmp(pawl_error_text(), "an error, and no memory for its message"));
	MUST(pawl_ready_fd(e) == -EINVAL && strstr(pawl_error_text(), "ready_fd"));
	return NULL;
}

START_TEST(test_an_error_without_memory_for_its_text)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);

	join(spawn(first_error, e));
	join(spawn(first_error, e));
	OK(pawl_engine_destroy(e));
}
END_TEST

static void *first_call(void *arg)
{
	struct pawl_engine *e = arg;

	MUST(without(ALLOCATION, 0, pawl_thread_attach(e)) == -ENOMEM);
	MUST(without(ALLOCATION, 0, pawl_engine_destroy(e)) == -ENOMEM);
	MUST(!pawl_thread_attach(e));
	MUST(!pawl_thread_detach(e));
	MUST(!pawl_engine_destroy(e));
	return NULL;
}

START_TEST(test_a_thread_without_memory_enters_later)
{
	join(spawn(first_call, engine(PAWL_PER_DEVICE, 0)));
}
END_TEST

START_TEST(test_a_trace_and_a_recording_without_memory_begin_later)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	char path[64];

	snprintf(path, sizeof(path), "contract_system.%d.rec", (int)getpid());
	if (pawl_trace_start(e, 8) != -ENOSYS) {
		OK(push_write(e, nothing, NULL, var_new(e)));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		OK(pawl_trace_stop(e));
		WITHOUT(e, ALLOCATION, 0, pawl_trace_write(e, "/dev/null"), -ENOMEM);
		OK(pawl_trace_write(e, "/dev/null"));
	}
	if (pawl_record_stop() != -ENOSYS) {
		WITHOUT(e, ALLOCATION, 0, pawl_record_start(path), -ENOMEM);
		OK(pawl_record_start(path));
		OK(pawl_record_stop());
		unlink(path);
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

SUITE("contract_system", test_a_descriptor_that_the_system_refuses_is_had_later,
      test_a_dump_that_is_not_written_says_so_and_can_be_repeated,
      test_a_text_of_more_than_an_int_is_refused, test_an_engine_without_memory_is_not_created,
      test_an_engine_with_too_little_memory_is_not_created,
      test_calls_without_memory_change_nothing_and_can_be_repeated,
      test_a_wait_without_memory_keeps_the_error_for_the_next,
      test_a_thread_without_memory_enters_later, test_an_error_without_memory_for_its_text,
      test_a_trace_and_a_recording_without_memory_begin_later,
      /* its workers leave entries that a thread's first call would use */
      test_an_engine_is_created_as_a_whole_or_not_at_all)
