// SPDX-License-Identifier: Apache-2.0
/* core/engine.c: configuration, creation, kinds, devices. */
#include "util.h"
#include "threads.h"
#include <core/engine.h>
#include <pawl/device.h>
#include <sys/resource.h>

START_TEST(test_config_defaults)
{
	struct pawl_config c;
	struct pawl_engine *e;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	memset(&c, 0xff, sizeof(c));
	pawl_config_init(&c);
	ck_assert_uint_eq(c.size, sizeof(c));
	ck_assert_int_eq(c.kind, PAWL_PER_DEVICE);
	ck_assert_int_eq(c.workers, cpus > 1 ? (int)cpus - 1 : 1);
	ck_assert_int_eq(c.priority_workers, 1);
	ck_assert_int_eq(c.copy_workers, 1);
	ck_assert_uint_eq(c.cpu_devices, 1);
	ck_assert_uint_eq(c.max_ops, 1 << 18);
	ck_assert_uint_eq(c.max_vars, 0);
	ck_assert_uint_eq(c.max_threads, 0);
	ck_assert_uint_eq(c.window, 0);
	ck_assert(!c.prefault);
	ck_assert_uint_eq(c.trim_ns, 1000000000);
	ck_assert_ptr_null(c.cpus);
	ck_assert_uint_eq(c.ncpus, 0);
	ck_assert_str_eq(c.name, "pawl");
	ck_assert_ptr_null(c.thread_start);
	ck_assert_ptr_null(c.thread_stop);
	ck_assert_int_eq(c.window_policy, -1);
	ck_assert_uint_eq(c.spin_ns, cpus > 1 ? 20000 : 0);
	ck_assert(!c.devices && !c.ndevices && c.device_streams == 16 && c.device_workers == 1 &&
		  c.device_window == 512);
	ck_assert(!c.start_workers && c.sched_policy == -1 && !c.sched_priority && !c.stack_size);
	ck_assert(!c.user && !c.drop && !c.thread_create && !c.thread_join && !c.cpu_list);
	/* An engine without a configuration has them, too. */
	OK(pawl_engine_create(NULL, &e));
	ck_assert_uint_eq(e->cfg.max_vars, 1 << 26);
	ck_assert_uint_eq(e->cfg.max_threads, 2047);
	e->cfg.max_vars = e->cfg.max_threads = 0;
	ck_assert(!memcmp(&e->cfg, &c, sizeof(c)));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_create_default)
{
	struct pawl_engine *e = NULL;
	pawl_var_t v;
	u64 n = 0;
	int i;

	OK(pawl_engine_create(NULL, &e));
	ck_assert_ptr_nonnull(e);
	OK(pawl_var_create(e, &v));
	for (i = 0; i < 100; i++)
		OK(push_write(e, add_plain, &n, v));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n, 100);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Creation, workers, and ops of all kinds, with no more address space than that. */
START_TEST(test_default_fits_in_256_mb)
{
	struct rlimit was, now;
	struct pawl_engine *e;
	pawl_var_t v[300];
	struct pawl_op op;
	u64 n = 0;
	u32 i;

	if (SANITIZED)
		return;		/* it reserves more by itself */
	OK(getrlimit(RLIMIT_AS, &was));
	now = was;
	now.rlim_cur = (rlim_t)256 << 20;
	OK(setrlimit(RLIMIT_AS, &now));
	OK(pawl_engine_create(NULL, &e));
	/* An emulator that lets the engine choose no addresses keeps this limit to itself. */
	if (stats(e).address_space < now.rlim_cur)
		ck_assert_uint_lt(stats(e).address_space, 16 << 20);
	for (i = 0; i < 300; i++)
		v[i] = var_new(e);
	for (i = 0; i < 10000; i++)
		OK(push_write(e, add_plain, &n, v[0]));
	op = op_write(add_plain, &n, v);
	op.nwrites = 300;
	OK(pawl_push(e, &op));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n, 10001);
	OK(pawl_engine_destroy(e));
	OK(setrlimit(RLIMIT_AS, &was));
}
END_TEST

/* Prefault bounds what has no limit, since it touches all of it. */
START_TEST(test_prefault_without_a_setting)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pawl_engine *e;

	c.prefault = true;
	c.max_ops = 64;
	c.max_vars = 0;
	c.max_threads = 8;
	e = engine_with(&c);
	ck_assert_uint_eq(e->cfg.max_vars, 1 << 18);
	ck_assert_uint_lt(stats(e).bytes, 256 << 20);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_small_prefault_is_small)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	struct pawl_engine *e;

	c.max_ops = 64;
	c.max_vars = 64;
	c.max_threads = 8;
	c.prefault = true;
	e = engine_with(&c);
	ck_assert_uint_le(stats(e).bytes, stats(e).address_space);
	ck_assert_uint_lt(stats(e).address_space, 24 << 20);
	ck_assert_uint_lt(stats(e).bytes, 3 << 20);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Prefault leaves out chunks for more accesses than vars exist; an op may still need one. */
START_TEST(test_small_prefault_permits_a_var_named_often)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	pawl_var_t reads[5000];
	struct pawl_engine *e;
	struct pawl_op op;
	static const u32 often[] = { 17, 300, 5000 };
	u32 n = 0, i;

	c.max_ops = 64;
	c.max_vars = 16;
	c.max_threads = 8;
	c.prefault = true;
	e = engine_with(&c);
	reads[0] = var_new(e);
	for (i = 1; i < COUNT(reads); i++)
		reads[i] = reads[0];
	op = op_read(add_one, &n, reads);
	for (i = 0; i < COUNT(often); i++) {
		op.nreads = often[i];
		OK(pawl_push(e, &op));
	}
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(load_acquire(&n), COUNT(often));
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_create_out_null)
{
	FAILS(pawl_engine_create(NULL, NULL), -EINVAL, "engine_create", "out");
}
END_TEST

START_TEST(test_create_size)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	struct pawl_engine *e = (void *)&c;

	/* Shorter than the first release's. */
	c.size = offsetof(struct pawl_config, drop);
	FAILS(pawl_engine_create(&c, &e), -EINVAL, "engine_create", "size");
	ck_assert_ptr_null(e);
	c.size = 0;
	FAILS(pawl_engine_create(&c, &e), -EINVAL, "size", "0");
}
END_TEST

/* Each field out of its range is refused by name, with what it was. */
START_TEST(test_create_ranges)
{
	struct pawl_engine *e = NULL;
	struct pawl_config c;

#define REFUSE(field, value, text)						\
	do {									\
		c = small(PAWL_PER_DEVICE, 1);					\
		c.field = (value);						\
		e = (void *)&c;							\
		FAILS(pawl_engine_create(&c, &e), -EINVAL, "engine_create", #field, text); \
		ck_assert_ptr_null(e);						\
	} while (0)

	REFUSE(kind, 3, "3");
	REFUSE(kind, -1, "-1");
	REFUSE(workers, -1, "-1");
	REFUSE(workers, 1025, "1025");
	REFUSE(priority_workers, -1, "-1");
	REFUSE(priority_workers, 1025, "1025");
	REFUSE(copy_workers, -1, "-1");
	REFUSE(copy_workers, 1025, "1025");
	REFUSE(cpu_devices, 0, "0");
	REFUSE(cpu_devices, 65, "65");
	REFUSE(max_ops, 63, "63");
	REFUSE(max_ops, (1 << 20) - 4095, "1044481");
	REFUSE(max_vars, (1 << 26) + 1, "67108865");
	REFUSE(max_threads, 2048, "2048");
	REFUSE(device_streams, 0, "0");
	REFUSE(device_streams, 33, "33");
	REFUSE(window_policy, -2, "-2");
	REFUSE(device_workers, 0, "0");
	REFUSE(device_workers, 33, "33");
	REFUSE(device_window, 0, "0");
	REFUSE(device_window, 65537, "65537");
	REFUSE(window, c.max_ops + 1, "window");
	REFUSE(window_policy, 2, "2");
	REFUSE(name, NULL, "NULL");
	REFUSE(name, "12345678", "7");
	REFUSE(ncpus, 1, "cpus");
#undef REFUSE
	c = small(PAWL_PER_DEVICE, 1);
	c.cpus = (const int[]){ 0, -1 };
	c.ncpus = 2;
	FAILS(pawl_engine_create(&c, &e), -EINVAL, "cpus[1]", "-1");
	c.cpus = (const int[]){ 4095, 4096 };
	FAILS(pawl_engine_create(&c, &e), -EINVAL, "cpus[1]", "4096");
}
END_TEST

/* The least and the most of each field are accepted. */
START_TEST(test_create_accepts_the_limits)
{
	struct pawl_engine *e;
	struct pawl_config c;

#define ACCEPT(field, value)							\
	do {									\
		c = small(PAWL_PER_DEVICE, 1);					\
		c.max_threads = 2047;						\
		c.field = (value);						\
		e = engine_with(&c);						\
		ck_assert(e->cfg.field == c.field);				\
		OK(pawl_engine_destroy(e));					\
	} while (0)

	ACCEPT(workers, 1024);
	ACCEPT(priority_workers, 0);
	ACCEPT(priority_workers, 1024);
	ACCEPT(copy_workers, 0);
	ACCEPT(copy_workers, 1024);
	ACCEPT(cpu_devices, 64);
	ACCEPT(max_threads, 3);
	ACCEPT(window, c.max_ops);
	ACCEPT(window, 1);
	ACCEPT(window_policy, 0);
	ACCEPT(window_policy, 1);
	ACCEPT(device_streams, 1);
	ACCEPT(device_streams, 32);
	ACCEPT(device_workers, 32);
	ACCEPT(device_window, 1);
	ACCEPT(device_window, 65536);
	ACCEPT(name, "");
#undef ACCEPT
	/* The thread that creates the engine is one, and all workers of a queue. */
	c = small(PAWL_PER_DEVICE, 0);
	c.max_threads = 1;
	e = engine_with(&c);
	OK(pawl_engine_destroy(e));
	c.workers = 1;
	FAILS(pawl_engine_create(&c, &e), -EINVAL, "max_threads is 1, the workers need 2");
	c.max_threads = 2;
	e = engine_with(&c);
	OK(pawl_engine_destroy(e));
	c.cpus = (const int[]){ 0, 4095 };
	c.ncpus = 2;
	e = engine_with(&c);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* What is accepted also works: the edges of the ranges. */
START_TEST(test_create_edges)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	struct pawl_engine *e;
	u32 n = 0;

	c.max_ops = (1 << 20) - 4096;
	c.max_vars = 1 << 26;
	e = engine_with(&c);
	OK(push_write(e, add_one, &n, var_new(e)));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));

	c = small(PAWL_PER_DEVICE, 1);
	c.max_ops = 64;
	c.max_vars = 1;
	c.max_threads = 8;
	c.name = "1234567";
	e = engine_with(&c);
	OK(push_write(e, add_one, &n, var_new(e)));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n, 2);
	OK(pawl_engine_destroy(e));

	/* As many threads as tags can name, also with as many ops as may be. */
	c = small(PAWL_PER_DEVICE, 0);
	c.max_threads = 0;
	c.max_ops = (1 << 20) - 4096;
	e = engine_with(&c);
	ck_assert_uint_eq(e->max_threads, 2047);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A small engine commits little, also if many threads may use it. */
START_TEST(test_prefault_is_in_proportion)
{
	static const struct { u32 ops, threads, mb; } at_most[] = {
		{ 64, 8, 3 }, { 64, 256, 10 }, { 1024, 16, 14 }, { 1024, 256, 44 },
		{ 4096, 64, 34 },
	};
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pawl_engine *e;
	u64 rss;
	u32 i;

	c.prefault = true;
	for (i = 0; i < COUNT(at_most); i++) {
		c.max_ops = c.max_vars = at_most[i].ops;
		c.max_threads = at_most[i].threads;
		rss = rss_kib();
		e = engine_with(&c);
		rss = rss_kib() - rss;
		ck_assert_uint_le(stats(e).bytes, at_most[i].mb * 1000000ull);
		if (!SANITIZED)
			ck_assert_uint_le(rss, at_most[i].mb * 1000ull);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

START_TEST(test_create_prefault)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	struct pawl_engine *e;
	struct pawl_stats before, after;
	pawl_var_t v[64];
	u32 n[64] = { 0 };
	int i;

	c.max_ops = 64;
	c.max_vars = 64;
	c.max_threads = 4;
	c.prefault = true;
	e = engine_with(&c);
	before = stats(e);
	for (i = 0; i < 1024; i++) {
		if (i < 64)
			v[i] = var_new(e);
		OK(push_write(e, add_one, &n[i % 64], v[i % 64]));
	}
	OK(pawl_wait_all(e, SOON_NS, NULL));
	after = stats(e);
	/* Lanes of two threads in four queues; the pools are all there. */
	ck_assert_uint_le(after.bytes, before.bytes + 16384);
	for (i = 0; i < 64; i++)
		ck_assert_uint_eq(n[i], 16);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_create_pinned)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 2);
	const int cpus[] = { 0, 0 };
	struct pawl_engine *e;
	u32 n = 0;

	c.cpus = cpus;
	c.ncpus = 2;
	e = engine_with(&c);
	OK(push_write(e, add_one, &n, var_new(e)));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n, 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* "No thread exists before the first op that needs it." */
START_TEST(test_threads_start_late)
{
	u32 before = threads_now();
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 2);
	pawl_var_t v = var_new(e);
	struct plug p;

	ck_assert_uint_eq(threads_now(), before);
	/* An op that does not need one: it runs inside its push. */
	OK(pawl_var_delete(e, v, NULL, NULL));
	ck_assert_uint_eq(threads_now(), before);
	ck_assert_uint_eq(stats(e).workers, 0);
	plug_in(e, &p, PAWL_NORMAL);
	ck_assert(soon(threads_now() == before + 2));
	ck_assert(soon(stats(e).workers == 2));
	plug_out(&p);
	OK(pawl_engine_destroy(e));
	ck_assert(soon(threads_now() == before));
}
END_TEST

START_TEST(test_zero_workers_no_thread)
{
	u32 before = threads_now(), n = 0;
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	const int props[] = { PAWL_NORMAL, PAWL_COPY_FROM_DEVICE, PAWL_COPY_TO_DEVICE,
			      PAWL_CPU_PRIORITIZED, PAWL_GPU_PRIORITIZED, PAWL_NO_SKIP };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(props); i++) {
		struct pawl_op op = op_of_fn(add_one, &n);

		op.prop = (u16)props[i];
		OK(pawl_push(e, &op));
	}
	nap_us(2000);
	ck_assert_uint_eq(load_acquire(&n), 0);
	ck_assert_uint_eq(threads_now(), before);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n, ARRAY_SIZE(props));
	OK(pawl_engine_destroy(e));
}
END_TEST

struct hooks {
	u32 started, stopped;
	char first[16];
	u32 bad;
};

static __thread u32 hook_state;

static void hook_start(void *user, const char *name)
{
	struct hooks *h = user;

	hook_state = 1;
	if (fetch_add_relaxed(&h->started, 1) == 0)
		snprintf(h->first, sizeof(h->first), "%s", name);
	if (strncmp(name, "abc", 3))
		fetch_add_relaxed(&h->bad, 1);
}

static void hook_stop(void *user, const char *name)
{
	struct hooks *h = user;

	if (hook_state != 1)
		fetch_add_relaxed(&h->bad, 1);
	hook_state = 2;
	fetch_add_relaxed(&h->stopped, 1);
}

static int hook_body(struct pawl_run *run, void *arg)
{
	struct hooks *h = arg;

	/* Not on the waiting thread: a wait with a limit runs nothing. */
	if (hook_state != 1)
		fetch_add_relaxed(&h->bad, 1);
	return 0;
}

START_TEST(test_thread_hooks)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 3);
	struct pawl_engine *e;
	struct hooks h = { 0 };
	int i;

	c.name = "abc";
	c.thread_start = hook_start;
	c.thread_stop = hook_stop;
	c.user = &h;
	e = engine_with(&c);
	ck_assert_uint_eq(h.started, 0);
	for (i = 0; i < 100; i++)
		OK(push_write(e, hook_body, &h, var_new(e)));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_stop(e));
	ck_assert_uint_eq(h.started, 3);
	ck_assert_uint_eq(h.stopped, 3);
	ck_assert_uint_eq(h.bad, 0);
	ck_assert_msg(!strncmp(h.first, "abc-", 4), "%s", h.first);
	OK(pawl_engine_destroy(e));
	ck_assert_uint_eq(h.stopped, 3);
}
END_TEST

START_TEST(test_all_kinds)
{
	const int kinds[] = { PAWL_PER_DEVICE, PAWL_POOLED, PAWL_NAIVE };
	size_t k;
	int w, p, i;

	for (k = 0; k < ARRAY_SIZE(kinds); k++)
		for (w = 0; w < 3; w++) {
			struct pawl_engine *e = engine(kinds[k], w);
			pawl_var_t v = var_new(e);
			u64 n = 0;

			for (p = PAWL_NORMAL; p <= PAWL_NO_SKIP; p++)
				for (i = 0; i < 5; i++) {
					struct pawl_op op = op_write(add_plain, &n, &v);

					op.prop = (u16)p;
					OK(pawl_push(e, &op));
				}
			OK(pawl_wait_readable(e, v, SOON_NS, NULL));
			ck_assert_uint_eq(n, 8 * 5);
			ck_assert_uint_eq(version(e, v), 8 * 5);
			OK(pawl_engine_destroy(e));
		}
}
END_TEST

START_TEST(test_several_engines)
{
	struct pawl_engine *e[6];
	pawl_var_t v[6];
	u64 n[6] = { 0 };
	int i, k;

	for (k = 0; k < 6; k++) {
		e[k] = engine(k % 3, 1);
		v[k] = var_new(e[k]);
	}
	for (i = 0; i < 200; i++)
		for (k = 0; k < 6; k++)
			OK(push_write(e[k], add_plain, &n[k], v[k]));
	for (k = 5; k >= 0; k--) {
		OK(pawl_wait_readable(e[k], v[k], SOON_NS, NULL));
		ck_assert_uint_eq(n[k], 200);
	}
	/* One is destroyed, and the others remain. */
	OK(pawl_engine_destroy(e[2]));
	for (k = 0; k < 6; k++)
		if (k != 2)
			OK(push_write(e[k], add_plain, &n[k], v[k]));
	for (k = 0; k < 6; k++) {
		if (k == 2)
			continue;
		OK(pawl_wait_all(e[k], SOON_NS, NULL));
		ck_assert_uint_eq(n[k], 201);
		OK(pawl_engine_destroy(e[k]));
	}
}
END_TEST

/* An op of one engine pushes to another one. */
struct relay {
	struct pawl_engine *to;
	pawl_var_t v;
	u64 n;
};

static int relay_body(struct pawl_run *run, void *arg)
{
	struct relay *r = arg;

	MUST(!push_write(r->to, add_plain, &r->n, r->v));
	return 0;
}

START_TEST(test_engines_push_to_each_other)
{
	struct pawl_engine *a = engine(PAWL_PER_DEVICE, 1), *b = engine(PAWL_POOLED, 1);
	struct relay r = { b, var_new(b), 0 };
	int i;

	for (i = 0; i < 300; i++)
		OK(push_write(a, relay_body, &r, var_new(a)));
	OK(pawl_wait_all(a, SOON_NS, NULL));
	OK(pawl_wait_all(b, SOON_NS, NULL));
	ck_assert_uint_eq(r.n, 300);
	OK(pawl_engine_destroy(a));
	OK(pawl_engine_destroy(b));
}
END_TEST

START_TEST(test_create_destroy_1000)
{
	int i, n = BRIEF ? 150 : 1000;

	for (i = 0; i < n; i++) {
		struct pawl_engine *e = engine(i % 3, i % 4 == 3);
		u32 ran = 0;

		if (i % 2) {
			OK(push_write(e, add_one, &ran, var_new(e)));
			OK(pawl_engine_destroy(e));
			ck_assert_uint_eq(ran, 1);
		} else {
			OK(pawl_engine_destroy(e));
		}
	}
}
END_TEST

START_TEST(test_destroy_null)
{
	OK(pawl_engine_destroy(NULL));
}
END_TEST

/* --- devices --- */

static int device_body(struct pawl_run *run, void *arg)
{
	MUST(run->device.kind == PAWL_CPU);
	MUST(!run->stream);
	MUST(!run->status);
	store_relaxed((u32 *)arg, run->device.id);
	return 0;
}

START_TEST(test_devices)
{
	int kind;

	for (kind = 0; kind < 3; kind++) {
		struct pawl_config c = small(kind, 1);
		struct pawl_engine *e;
		struct pawl_op op = PAWL_OP_INIT;
		u32 seen[4], d;

		c.cpu_devices = 4;
		e = engine_with(&c);
		op.fn = device_body;
		for (d = 0; d < 4; d++) {
			op.arg = &seen[d];
			op.device.id = (u16)d;
			OK(pawl_push(e, &op));
		}
		OK(pawl_wait_all(e, SOON_NS, NULL));
		for (d = 0; d < 4; d++)
			ck_assert_uint_eq(seen[d], d);
		op.device.id = 4;
		FAILS(pawl_push(e, &op), -ENODEV, "push", "4");
		op.device.id = 0;
		op.device.kind = 2;
		FAILS(pawl_push(e, &op), -ENODEV, "push", "kind", "2");
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

/* The library has no other kinds than those of its header, and no simulated one. */
START_TEST(test_no_other_kind_of_device)
{
	struct pawl_device device = { 0, 0 };
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	struct pawl_engine *e;
	int kind;

	c.devices = &device;
	c.ndevices = 1;
	for (kind = PAWL_CUDA + 1; kind < 65536; kind++) {
		device.kind = (u16)kind;
		FAILS(pawl_device_count(kind), -ENOSYS, "without devices of kind");
		FAILS(pawl_engine_create(&c, &e), -EINVAL, "config.devices[0] is of kind");
	}
}
END_TEST

/* The kinds of this build are known, also where none of their devices is. */
START_TEST(test_a_kind_that_is_built_is_known)
{
	setenv("PAWL_CUDART", "/nowhere/libcudart.so", 1);
#ifdef CONFIG_DEVICE_CUDA
	FAILS(pawl_device_count(PAWL_CUDA), -ENODEV, "/nowhere/libcudart.so");
#else
	FAILS(pawl_device_count(PAWL_CUDA), -ENOSYS, "without devices of kind");
#endif
	unsetenv("PAWL_CUDART");
}
END_TEST

/* Every number that config_check() accepts must work; otherwise the message names the field. */
START_TEST(test_many_devices)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pawl_engine *e = NULL;
	const u32 counts[] = { 16, 21, 22, 64, 256 };
	size_t i;
	int rc;

	for (i = 0; i < ARRAY_SIZE(counts); i++) {
		u32 n = 0;
		struct pawl_op op = op_of_fn(add_one, &n);

		c.cpu_devices = counts[i];
		rc = pawl_engine_create(&c, &e);
		if (rc) {
			ck_assert_int_eq(rc, -EINVAL);
			ck_assert_msg(strstr(pawl_error_text(), "cpu_devices"),
				      "%u devices: %s", counts[i], pawl_error_text());
			continue;
		}
		op.device.id = (u16)(counts[i] - 1);
		OK(pawl_push(e, &op));
		op.prop = PAWL_COPY_TO_DEVICE;
		OK(pawl_push(e, &op));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(n, 2);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

/* The text stays until the next failure: a success does not write one. */
START_TEST(test_create_leaves_the_error_text)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	struct pawl_engine *e = NULL;

	c.max_vars = (1 << 26) + 1;
	FAILS(pawl_engine_create(&c, &e), -EINVAL, "max_vars");
	c.max_vars = 64;
	OK(pawl_engine_create(&c, &e));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
	ck_assert_msg(strstr(pawl_error_text(), "max_vars"), "the text is: %s",
		      pawl_error_text());
}
END_TEST

/* Engines are created, used and destroyed by several threads at once. */
static void *engines_come_and_go(void *arg)
{
	u32 i, n = 0;

	for (i = 0; i < TIMES(100); i++) {
		struct pawl_config c = small(PAWL_PER_DEVICE, (int)(i % 2));
		struct pawl_engine *e = NULL;
		pawl_var_t v;

		MUST(!pawl_engine_create(&c, &e));
		MUST(!pawl_var_create(e, &v));
		MUST(!push_write(e, add_one, &n, v));
		MUST(!pawl_wait_readable(e, v, -1, NULL));
		if (i % 3)
			MUST(!pawl_engine_stop(e));
		MUST(!pawl_engine_destroy(e));
		MUST(load_relaxed(&n) == i + 1);
	}
	return NULL;
}

START_TEST(test_engines_in_several_threads)
{
	pthread_t t[4];
	u32 i;

	for (i = 0; i < COUNT(t); i++)
		t[i] = spawn(engines_come_and_go, NULL);
	for (i = 0; i < COUNT(t); i++)
		join(t[i]);
}
END_TEST

SUITE("engine", test_config_defaults, test_create_default, test_default_fits_in_256_mb,
      test_prefault_without_a_setting, test_small_prefault_is_small,
      test_small_prefault_permits_a_var_named_often,
      test_create_out_null, test_create_size, test_create_ranges,
      test_create_accepts_the_limits, test_create_edges,
      test_prefault_is_in_proportion, test_create_prefault, test_create_pinned,
      test_threads_start_late, test_zero_workers_no_thread, test_thread_hooks, test_all_kinds,
      test_several_engines, test_engines_push_to_each_other, test_create_destroy_1000,
      test_destroy_null, test_devices, test_no_other_kind_of_device,
      test_a_kind_that_is_built_is_known, test_many_devices,
      test_create_leaves_the_error_text, test_engines_in_several_threads)
