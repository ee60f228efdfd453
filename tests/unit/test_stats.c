// SPDX-License-Identifier: Apache-2.0
/* Statistics, the version, and the text of the last error. */
#include "util.h"
#include <pawl/version.h>

START_TEST(test_stats)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_var_t v = var_new(e), w = var_new(e);
	struct pawl_stats s;
	int i;

	s = stats(e);
	ck_assert_uint_eq(s.pushed, 0);
	ck_assert_uint_eq(s.completed, 0);
	for (i = 0; i < 10; i++)
		OK(push_write(e, nothing, NULL, v));
	OK(push_write(e, fail_io, NULL, w));
	for (i = 0; i < 5; i++)
		OK(push_read(e, nothing, NULL, w));
	ck_assert_int_eq(pawl_wait_all(e, SOON_NS, NULL), -EIO);
	s = stats(e);
	ck_assert_uint_eq(s.pushed, 16);
	ck_assert_uint_eq(s.completed, 16);
	ck_assert_uint_eq(s.failed, 1);
	ck_assert_uint_eq(s.skipped, 5);
	ck_assert_uint_eq(s.inlined, 0);
	OK(pawl_var_delete(e, v, NULL, NULL));
	s = stats(e);
	ck_assert_uint_eq(s.inlined, 1);
	ck_assert_uint_ge(s.vars, 2);
	ck_assert_uint_ge(s.ops, 1);
	ck_assert_uint_ge(s.blocks, 2);
	ck_assert_uint_gt(s.bytes, 0);
	ck_assert_uint_ge(s.threads, 1);
	ck_assert_uint_eq(s.workers, 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_stats_helped)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);

	OK(push_write(e, nothing, NULL, var_new(e)));
	OK(push_write(e, nothing, NULL, var_new(e)));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(stats(e).helped, 2);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_stats_size)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct pawl_stats s = { .size = offsetof(struct pawl_stats, workers) };

	FAILS(pawl_stats(e, &s), -EINVAL, "stats", "size");
	FAILS(pawl_stats(e, NULL), -EINVAL, "stats");
	OK(pawl_engine_destroy(e));
}
END_TEST

static struct pawl_queue_stats queue_of(struct pawl_engine *e, unsigned int prop)
{
	struct pawl_queue_stats s = { .size = sizeof(s) };
	struct pawl_device cpu = { PAWL_CPU, 0 };
	uint64_t sum = 0;
	int i;

	OK(pawl_queue_stats(e, cpu, prop, &s));
	for (i = 0; i < PAWL_WAIT_BUCKETS; i++)
		sum += s.wait[i];
	ck_assert_uint_eq(sum, s.waits);
	return s;
}

static void push_prop(struct pawl_engine *e, unsigned int prop, int prio, int n)
{
	struct pawl_op op = op_of_fn(nothing, NULL);

	op.prop = (uint16_t)prop;
	op.priority = prio;
	while (n--)
		OK(pawl_push(e, &op));
}

START_TEST(test_queue_counts)
{
	static const int props[] = { PAWL_NORMAL, PAWL_CPU_PRIORITIZED, PAWL_COPY_TO_DEVICE,
				     PAWL_COPY_FROM_DEVICE };
	static const char *const names[] = { "c0", "prio", "i0", "o0" };
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct pawl_queue_stats s;
	uint64_t n;
	int i;

	for (i = 0; i < 4; i++)
		push_prop(e, (unsigned int)props[i], 0, i + 5);
	/* Other priorities are in the same queue. */
	push_prop(e, PAWL_NORMAL, 7, 3);
	push_prop(e, PAWL_NORMAL, -7, 2);
	for (i = 0; i < 4; i++) {
		s = queue_of(e, (unsigned int)props[i]);
		n = (uint64_t)(i ? i + 5 : 10);
		ck_assert_str_eq(s.name, names[i]);
		ck_assert_uint_eq(s.number, (unsigned int)i);
		ck_assert_uint_eq(s.depth, n);
		ck_assert_uint_eq(s.pushed, n);
		ck_assert_uint_eq(s.taken, 0);
		ck_assert_uint_eq(s.waits, 0);
		ck_assert_uint_eq(s.workers, 0);
	}
	OK(pawl_wait_all(e, SOON_NS, NULL));
	for (i = 0; i < 4; i++) {
		s = queue_of(e, (unsigned int)props[i]);
		ck_assert_uint_eq(s.depth, 0);
		ck_assert_uint_eq(s.taken, s.pushed);
		ck_assert_uint_ge(s.waits, i ? 1 : 3);
		ck_assert_uint_gt(s.wait_ns, 0);
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Each property of each CPU device has its queue. */
START_TEST(test_queues_of_two_devices)
{
	static const char *const names[][2][4] = {
		[PAWL_PER_DEVICE] = { { "c0", "prio", "i0", "o0" }, { "c1", "prio", "i1", "o1" } },
		[PAWL_POOLED] = { { "c0", "c0", "io", "io" }, { "c0", "c0", "io", "io" } },
		[PAWL_NAIVE] = { { "c0", "c0", "c0", "c0" }, { "c0", "c0", "c0", "c0" } },
	};
	struct pawl_queue_stats s = { .size = sizeof(s) };
	unsigned int prop, id, k;
	int kind;

	for (kind = PAWL_PER_DEVICE; kind <= PAWL_NAIVE; kind++) {
		struct pawl_config c = small(kind, 0);
		struct pawl_engine *e;

		c.cpu_devices = 2;
		e = engine_with(&c);
		for (id = 0; id < 2; id++) {
			for (prop = 0; prop <= PAWL_NO_SKIP; prop++) {
				k = prop == PAWL_CPU_PRIORITIZED ? 1 :
				    prop == PAWL_COPY_TO_DEVICE ? 2 :
				    prop == PAWL_COPY_FROM_DEVICE ? 3 : 0;
				OK(pawl_queue_stats(e, (struct pawl_device){ PAWL_CPU, id }, prop,
						    &s));
				ck_assert_str_eq(s.name, names[kind][id][k]);
			}
		}
		FAILS(pawl_queue_stats(e, (struct pawl_device){ PAWL_CPU, 2 }, 0, &s), -ENODEV,
		      "number 2");
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

static int fail_here(struct pawl_run *run, void *arg)
{
	*(struct pawl_device *)arg = run->device;
	return -EIO;
}

static void count_release(void *arg, int status)
{
	++*(u32 *)arg;
}

/* An op that sets nothing has the defaults, whatever the op before it in its memory was. */
START_TEST(test_an_ordinary_op_after_any_other)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pawl_device seen = { 9, 9 };
	struct pawl_queue_stats was;
	u32 released = 0, prop, i;
	struct pawl_op op, plain;
	struct pawl_engine *e;
	struct pawl_error err;
	pawl_var_t v;

	c.cpu_devices = 2;
	e = engine_with(&c);
	v = var_new(e);
	plain = op_write(fail_here, &seen, &v);
	for (prop = 0; prop <= PAWL_NO_SKIP; prop++) {
		for (i = 0; i < 4; i++) {
			op = op_write(nothing, &released, &v);
			op.prop = (uint16_t)prop;
			op.device.id = i & 1;
			op.priority = 7;
			op.flags = PAWL_OP_NO_SKIP;
			op.name = "before";
			op.release = count_release;
			OK(pawl_push(e, &op));
			OK(pawl_wait_all(e, SOON_NS, NULL));
			ck_assert_uint_eq(released, 1);
			was = queue_of(e, PAWL_NORMAL);
			OK(i & 2 ? pawl_push_batch(e, &plain, 1) : pawl_push(e, &plain));
			ck_assert_int_eq(pawl_run_one(e), 1);
			ck_assert_uint_eq(queue_of(e, PAWL_NORMAL).taken, was.taken + 1);
			ck_assert(seen.kind == PAWL_CPU && seen.id == 0);
			ck_assert_uint_eq(released, 1);
			FAILS(pawl_wait_all(e, 0, &err), -EIO, "an op failed");
			ck_assert_str_eq(err.op, "");
			released = 0;
			/* Its name is in the error, also if the body has not called pawl_fail(). */
			op = plain;
			op.name = "named";
			OK(i & 2 ? pawl_push_batch(e, &op, 1) : pawl_push(e, &op));
			FAILS(pawl_wait_all(e, SOON_NS, &err), -EIO, "op named failed");
			ck_assert_str_eq(err.op, "named");
		}
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

/* The first op is the sample, and counts for itself; the next one counts for those between. */
START_TEST(test_queue_waits)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct pawl_queue_stats s, was;
	uint64_t longer = 0;
	int i;

	push_prop(e, PAWL_NORMAL, 0, 100);
	nap_us(20000);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	was = queue_of(e, PAWL_NORMAL);
	ck_assert_uint_eq(was.waits, 1);
	/* The clock's unit is measured: to a tenth. */
	ck_assert_uint_ge(was.wait_ns, 18000000);
	for (i = 24; i < PAWL_WAIT_BUCKETS; i++)
		longer += was.wait[i];
	ck_assert_uint_eq(longer, 1);
	push_prop(e, PAWL_NORMAL, 0, 100);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	s = queue_of(e, PAWL_NORMAL);
	ck_assert_uint_eq(s.waits, 129);
	ck_assert_uint_gt(s.wait_ns, was.wait_ns);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_queue_shared)
{
	struct pawl_engine *e = engine(PAWL_POOLED, 0);
	struct pawl_queue_stats a, b;

	a = queue_of(e, PAWL_NORMAL);
	b = queue_of(e, PAWL_CPU_PRIORITIZED);
	ck_assert_uint_eq(a.number, b.number);
	ck_assert_ptr_eq(a.name, b.name);
	b = queue_of(e, PAWL_COPY_TO_DEVICE);
	ck_assert_uint_ne(a.number, b.number);
	ck_assert_uint_eq(b.number, queue_of(e, PAWL_COPY_FROM_DEVICE).number);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_queue_bad)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct pawl_queue_stats s = { .size = sizeof(s) };
	struct pawl_device cpu = { PAWL_CPU, 0 }, cpu1 = { PAWL_CPU, 1 }, cuda = { PAWL_CUDA, 0 };

	FAILS(pawl_queue_stats(e, cpu1, 0, &s), -ENODEV, "queue_stats", "number 1");
	FAILS(pawl_queue_stats(e, cuda, 0, &s), -ENODEV, "queue_stats", "kind 1");
	FAILS(pawl_queue_stats(e, cpu, PAWL_NO_SKIP + 1, &s), -EINVAL, "queue_stats", "prop");
	FAILS(pawl_queue_stats(e, cpu, 0, NULL), -EINVAL, "queue_stats");
	s.size = offsetof(struct pawl_queue_stats, wait);
	FAILS(pawl_queue_stats(e, cpu, 0, &s), -EINVAL, "queue_stats", "size");
	OK(pawl_engine_destroy(e));
}
END_TEST

/* While workers take and several threads push: no count goes back, and the end is exact. */
#define QUEUE_PUSHERS 3
#define QUEUE_OPS 20000

static void *queue_pusher(void *arg)
{
	pawl_var_t own = var_new(arg);
	int i;

	for (i = 0; i < TIMES(QUEUE_OPS); i++)
		MUST(!push_read(arg, nothing, NULL, own));
	return NULL;
}

START_TEST(test_queue_stats_while_it_moves)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	uint64_t pushed = 0, waits = 0, ns = 0,
		 all = (uint64_t)TIMES(QUEUE_OPS) * QUEUE_PUSHERS;
	pthread_t t[QUEUE_PUSHERS];
	struct pawl_queue_stats s;
	int i;

	for (i = 0; i < QUEUE_PUSHERS; i++)
		t[i] = spawn(queue_pusher, e);
	do {
		s = queue_of(e, PAWL_NORMAL);
		ck_assert_uint_ge(s.pushed, pushed);
		ck_assert_uint_ge(s.waits, waits);
		ck_assert_uint_ge(s.wait_ns, ns);
		ck_assert_uint_le(s.pushed, all);
		pushed = s.pushed;
		waits = s.waits;
		ns = s.wait_ns;
	} while (stats(e).completed < all);
	for (i = 0; i < QUEUE_PUSHERS; i++)
		join(t[i]);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	s = queue_of(e, PAWL_NORMAL);
	ck_assert_uint_eq(s.pushed, all);
	ck_assert_uint_eq(s.depth, 0);
	ck_assert_uint_ge(s.waits, 1);	/* samples: an op that another hands over has none */
	ck_assert_uint_le(s.waits, all);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_version)
{
	ck_assert_str_eq(pawl_version(), PAWL_VERSION_STRING);
}
END_TEST

static void *fresh_thread_text(void *arg)
{
	MUST(pawl_error_text());
	MUST(!pawl_error_text()[0]);
	return NULL;
}

START_TEST(test_error_text)
{
	ck_assert_ptr_nonnull(pawl_error_text());
	ck_assert_int_eq(pawl_engine_create(NULL, NULL), -EINVAL);
	ck_assert_ptr_nonnull(strstr(pawl_error_text(), "out"));
	join(spawn(fresh_thread_text, NULL));
	ck_assert_ptr_nonnull(strstr(pawl_error_text(), "out"));
}
END_TEST

SUITE("stats", test_stats, test_stats_helped, test_stats_size, test_queue_counts,
      test_queues_of_two_devices,
      test_an_ordinary_op_after_any_other, test_queue_waits, test_queue_shared, test_queue_bad,
      test_queue_stats_while_it_moves, test_version, test_error_text)
