// SPDX-License-Identifier: Apache-2.0
/* core/thread.c: the memory of threads that enter, attach and leave. */
#include "util.h"
#include <sys/mman.h>
#include <core/readmostly.h>

struct crowd {
	struct pawl_engine *e;
	u32 in, go;		/* A */
};

static void *member(void *arg)
{
	struct crowd *c = arg;

	MUST(!pawl_thread_attach(c->e));
	store_release(&c->in, 1);
	MUST(soon(load_acquire(&c->go)));
	return NULL;
}

/* The first engine of the process needs one; later ones do not. */
START_TEST(test_without_a_key_no_engine_is_created)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	pthread_key_t keys[4096];
	struct pawl_engine *e = NULL;
	u32 n = 0, k;

	c.max_threads = 2048;	/* an error's text needs a key, too */
	FAILS(pawl_engine_create(&c, &e), -EINVAL, "max_threads");
	c.max_threads = 2;
	while (n < COUNT(keys) && !pthread_key_create(&keys[n], NULL))
		n++;
	MUST(n && n < COUNT(keys));
	for (k = 0; k < 2; k++)
		FAILS(pawl_engine_create(&c, &e), -EAGAIN,
		      "no thread-specific data key is free");
	MUST(!pthread_key_delete(keys[--n]));
	e = engine_with(&c);
	OK(pawl_engine_destroy(e));
	MUST(pthread_key_create(&keys[n], NULL));
	e = engine_with(&c);
	OK(pawl_engine_destroy(e));
	while (n)
		MUST(!pthread_key_delete(keys[--n]));
}
END_TEST

static void is_refused(void *arg)
{
	MUST(pawl_thread_attach(arg) == -EUSERS);
	MUST(strstr(pawl_error_text(), "more than 1 threads are inside the engine (max_threads)"));
}

static void comes_and_goes(void *arg)
{
	MUST(!pawl_thread_attach(arg) && !pawl_thread_detach(arg));
}

static void *ends_inside(void *arg)
{
	MUST(!pawl_thread_attach(arg));
	return NULL;
}

static void comes_and_ends(void *arg)
{
	join(spawn(ends_inside, arg));
}

static void outlives_its_engine(void *arg)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);

	MUST(!pawl_thread_attach(e) && !pawl_engine_destroy(e));
}

/* However often a thread comes, is refused or goes, in whichever way, it leaves nothing. */
START_TEST(test_threads_that_come_and_go_leave_no_memory)
{
	static void (*const ways[])(void *) = { is_refused, comes_and_goes, comes_and_ends,
						outlives_its_engine };
	struct pawl_config cfg = small(PAWL_PER_DEVICE, 0);
	struct crowd c = { 0 };
	size_t before;
	pthread_t t = pthread_self();
	u32 i, k, n;

	cfg.max_threads = 1;
	c.e = engine_with(&cfg);
	OK(pawl_thread_detach(c.e));
	for (k = 0; k < COUNT(ways); k++) {
		c.in = c.go = 0;
		if (!k) {
			t = spawn(member, &c);
			MUST(soon(load_acquire(&c.in)));
		}
		/* The allocator keeps some memory itself, but not each time. */
		for (i = 0; ; i++) {
			ck_assert_msg(i < 20, "way %u", k);
			before = heap_used();
			for (n = 0; n < 5; n++)
				ways[k](c.e);
			if (heap_used() == before)
				break;
		}
		if (!k) {
			store_release(&c.go, 1);
			join(t);
		}
	}
	OK(pawl_engine_destroy(c.e));
}
END_TEST

struct work {
	struct pawl_engine *e;
	pawl_var_t v;
	u64 n;
};

/* Memory that the pools and run queues request from the system on this thread. */
static __thread u32 asked;
static __thread size_t asked_ring;	/* the most for a ring */
static const char *refused;		/* what has no memory; NULL: nothing */

int pool_commit_hook(const char *what, size_t bytes)
{
	asked++;
	if (!strcmp(what, "ring") && bytes > asked_ring)
		asked_ring = bytes;
	return refused && !strcmp(what, refused) ? -ENOMEM : 0;
}

/* The thread is inside then, without what its pushes need, and may attach again. */
START_TEST(test_an_attach_without_memory_can_be_repeated)
{
	static const char *const what[] = { "lane", "ring" };
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pawl_engine *e;
	u32 i;

	for (i = 0; i < 4; i++) {
		c.max_ops = c.max_vars = 1000;
		c.prefault = i / 2;
		e = engine_with(&c);
		refused = what[i % 2];
		FAILS(pawl_thread_attach(e), -ENOMEM, "no memory for a thread's run queues");
		refused = NULL;
		OK(pawl_thread_attach(e));
		asked = 0;
		OK(pawl_thread_attach(e));
		ck_assert_uint_eq(asked, 0);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

static void *pushes_attached(void *arg)
{
	struct work *w = arg;
	struct pawl_op op = op_write(add_plain, &w->n, &w->v);

	asked_ring = 0;
	MUST(!pawl_thread_attach(w->e));
	MUST(!pawl_thread_attach(w->e));
	MUST(asked);
	/* Each ring has room for all ops that there can be. */
	MUST(asked_ring >= 1000 * sizeof(u32));
	asked = 0;
	MUST(!pawl_push(w->e, &op));
	op.priority = 1;
	MUST(!pawl_push(w->e, &op));
	op.prop = PAWL_CPU_PRIORITIZED;
	MUST(!pawl_push(w->e, &op));
	op.prop = PAWL_COPY_TO_DEVICE;
	op.priority = 0;
	MUST(!pawl_push(w->e, &op));
	MUST(!asked);
	MUST(!pawl_thread_detach(w->e));
	MUST(!pawl_thread_detach(w->e));
	return NULL;
}

/* Its pages are in memory: a push that is the first to touch one does not wait for it. */
static bool resident(const void *p, size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), n, i;
	char *at = (char *)((uintptr_t)p & ~(page - 1));
	unsigned char in[64];

	n = ((uintptr_t)p + bytes - (uintptr_t)at + page - 1) / page;
	MUST(n <= sizeof(in) && !mincore(at, n * page, in));
	for (i = 0; i < n && in[i] & 1; i++)
		;
	return i == n;
}

static void *attaches_to_touch(void *arg)
{
	struct pawl_engine *e = arg;
	struct thread *t;

	MUST(!pawl_thread_attach(e));
	t = thread_get(e);
	MUST(resident(t, THREAD_SIZE));
	/* and so are those of the next slot */
	if (t->slot < 4)
		join(spawn(attaches_to_touch, e));
	return NULL;
}

START_TEST(test_memory_of_an_attached_thread_is_there)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pawl_engine *e;

	c.max_ops = c.max_vars = 1000;
	c.prefault = true;
	e = engine_with(&c);
	OK(pawl_thread_detach(e));
	join(spawn(attaches_to_touch, e));
	OK(pawl_engine_destroy(e));
}
END_TEST

static void *attaches_with_little(void *arg)
{
	asked_ring = 0;
	MUST(!pawl_thread_attach(arg));
	/* Without prefault rings grow when they have to. */
	MUST(asked_ring && asked_ring < 1 << 14);
	return NULL;
}

START_TEST(test_attached_thread_pushes_without_allocation)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct work w = { 0 };

	c.max_ops = c.max_vars = 1000;
	c.max_threads = 2;
	c.prefault = true;
	w.e = engine_with(&c);
	w.v = var_new(w.e);
	/* A thread that does not attach allocates in its push. */
	asked = 0;
	OK(push_write(w.e, add_plain, &w.n, w.v));
	ck_assert_uint_gt(asked, 0);
	join(spawn(pushes_attached, &w));
	OK(pawl_wait_all(w.e, SOON_NS, NULL));
	ck_assert_uint_eq(w.n, 5);
	OK(pawl_engine_destroy(w.e));
	w.e = engine(PAWL_PER_DEVICE, 0);
	join(spawn(attaches_with_little, w.e));
	OK(pawl_engine_destroy(w.e));
}
END_TEST

SUITE("thread_memory", test_without_a_key_no_engine_is_created,
      test_threads_that_come_and_go_leave_no_memory,
      test_attached_thread_pushes_without_allocation,
      test_an_attach_without_memory_can_be_repeated,
      test_memory_of_an_attached_thread_is_there)
