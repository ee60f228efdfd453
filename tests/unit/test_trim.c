// SPDX-License-Identifier: Apache-2.0
/* core/trim.c: memory is returned to the system, and no handle or token is used twice. */
#include "util.h"
#include <core/op.h>
#include <core/thread.h>

static int by_handle(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

/* No two of n are the same. */
static void all_different(u64 *h, u32 n)
{
	u32 i;

	qsort(h, n, sizeof(*h), by_handle);
	for (i = 1; i < n; i++)
		MUST(h[i] != h[i - 1]);
}

/* The largest possible number in flight at once, and then none. */
START_TEST(test_memory_of_a_burst_goes_back)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	u32 n = BRIEF ? 50000 : 200000, vars = 1000, i, round;
	struct pawl_engine *e;
	u64 before, full, after, bytes, sum = 0;
	pawl_var_t *v = calloc(vars, sizeof(*v));
	struct gate *g = calloc(vars, sizeof(*g));

	c.max_ops = n;
	e = engine_with(&c);
	for (i = 0; i < vars; i++) {
		v[i] = var_new(e);
		OK(push_write(e, nothing, NULL, v[i]));
	}
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_trim(e));
	before = rss_kib();
	for (round = 0; round < 2; round++) {
		for (i = 0; i < vars; i++)
			gate_write(e, &g[i], v[i]);
		/* In a different order for each var, so that they end mixed. */
		for (i = 0; i < n - vars; i++)
			OK(push_write(e, add_plain, &sum, v[(u64)i * 7919 % vars]));
		full = rss_kib();
		bytes = stats(e).bytes;
		for (i = 0; i < vars; i++)
			gate_open(&g[i]);
		while (pawl_run_one(e))
			;
		OK(pawl_wait_all(e, 0, NULL));
		OK(pawl_trim(e));
		after = rss_kib();
		if (!BRIEF) {
			ck_assert_uint_gt(full, before + n / 8);
			ck_assert_msg(after < before + 8 * 1024, "%llu KiB before, %llu in flight, %llu after",
				      (unsigned long long)before, (unsigned long long)full,
				      (unsigned long long)after);
		}
		/* Of the committed memory, all ops and a block each. */
		ck_assert_uint_lt(stats(e).bytes, bytes - (u64)n * sizeof(struct op));
	}
	ck_assert_uint_eq(sum, 2ull * (n - vars));
	OK(pawl_engine_destroy(e));
	free(v);
	free(g);
}
END_TEST

/*
 * An idle worker does nothing if another one trims already, and tries again later; nor does one
 * for which there is work meanwhile.
 */
START_TEST(test_one_worker_at_a_time_gives_memory_back)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct thread *t = thread_get(e);
	u32 i;

	/* as if it slept: no thread wants it to work */
	store_relaxed(&t->ex.park, UINT32_MAX);
	ck_assert(engine_tidy(e, &t->ex));
	ck_assert_uint_eq(load_relaxed(&e->tidying), 0);
	/* What it keeps itself is free for the other one in any case. */
	OK(push_write(e, nothing, NULL, var_new(e)));
	ck_assert_int_eq(pawl_run_one(e), 1);
	ck_assert_uint_gt(t->cache[POOL_OP].n, 0);
	store_relaxed(&t->ex.park, UINT32_MAX);
	store_relaxed(&e->tidying, 1);
	ck_assert(!engine_tidy(e, &t->ex));
	ck_assert_uint_eq(load_relaxed(&e->tidying), 1);
	for (i = 0; i < POOLS; i++)
		ck_assert_uint_eq(t->cache[i].n, 0);
	store_relaxed(&e->tidying, 0);
	ck_assert(engine_tidy(e, &t->ex));
	store_relaxed(&t->ex.park, 0);
	ck_assert(exec_wanted(&t->ex));
	ck_assert(!engine_tidy(e, &t->ex));
	ck_assert_uint_eq(load_relaxed(&e->tidying), 0);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* The same without a call: workers do it when they have slept for a while. */
START_TEST(test_idle_workers_give_memory_back)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, _i ? 3 : 1);
	u32 n = BRIEF ? 50000 : 200000, vars = 1000, i, round;
	struct pawl_engine *e;
	u64 before, full, sum[1000] = { 0 }, all = 0;
	pawl_var_t *v = calloc(vars, sizeof(*v));
	struct gate *g = calloc(vars, sizeof(*g));

	c.max_ops = n;
	c.trim_ns = 1000000;
	e = engine_with(&c);
	for (i = 0; i < vars; i++) {
		v[i] = var_new(e);
		OK(push_write(e, nothing, NULL, v[i]));
	}
	OK(pawl_wait_all(e, SOON_NS, NULL));
	before = rss_kib();
	for (round = 0; round < 2; round++) {
		for (i = 0; i < vars; i++)
			gate_write(e, &g[i], v[i]);
		for (i = 0; i < n - 2 * vars; i++)
			OK(push_write(e, add_plain, &sum[i * 7919ull % vars],
				      v[i * 7919ull % vars]));
		full = stats(e).bytes;
		if (!BRIEF)
			ck_assert_uint_gt(rss_kib(), before + n / 10);
		for (i = 0; i < vars; i++)
			gate_open(&g[i]);
		OK(pawl_wait_all(e, SOON_NS, NULL));
		/* All ops and a block each, but what lies on pages with this thread's. */
		ck_assert(soon(stats(e).bytes < full - (u64)n * sizeof(struct op)));
		if (!BRIEF)
			ck_assert(soon(rss_kib() < before + 8 * 1024));
	}
	for (i = 0; i < vars; i++)
		all += sum[i];
	ck_assert_uint_eq(all, 2ull * (n - 2 * vars));
	OK(pawl_engine_destroy(e));
	free(v);
	free(g);
}
END_TEST

struct burst {
	struct pawl_engine *e;
	u32 n;
	u64 sum;
};

static void *burst_of_ready_ops(void *arg)
{
	struct burst *b = arg;
	u32 i;

	for (i = 0; i < b->n; i++) {
		struct pawl_op op = op_of_fn(add_plain, &b->sum);

		MUST(!pawl_push(b->e, &op));
	}
	while (pawl_run_one(b->e))
		;
	return NULL;
}

static u64 ring_bytes(struct pawl_engine *e)
{
	struct exec_stats s;

	exec_stats(e->x, &s);
	return s.bytes;
}

/* Rings that grew for ops that were ready: by a call, and when the thread ends. */
START_TEST(test_rings_of_a_burst_go_back)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct burst b = { .n = BRIEF ? 50000 : 200000 };
	u64 before = 0;
	pthread_t thread;
	u32 round;

	c.max_ops = b.n;
	c.window_policy = PAWL_WINDOW_FAIL;
	b.e = engine_with(&c);
	for (round = 0; round < 6; round++) {
		if (round % 2) {
			OK(pthread_create(&thread, NULL, burst_of_ready_ops, &b));
			pthread_join(thread, NULL);
		} else {
			burst_of_ready_ops(&b);
			ck_assert_uint_ge(ring_bytes(b.e), b.n * sizeof(u32));
			OK(pawl_trim(b.e));
		}
		/* Two lanes at most, each with the smallest ring. */
		ck_assert_uint_lt(ring_bytes(b.e), 8192);
		if (!round)
			before = rss_kib();
		if (!BRIEF && !(round % 2))
			ck_assert_uint_lt(rss_kib(), before + 8 * 1024);
	}
	ck_assert_uint_eq(b.sum, 6ull * b.n);
	OK(pawl_engine_destroy(b.e));
}
END_TEST

START_TEST(test_no_var_handle_comes_again)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	u32 n = 3000, round, rounds = 4, i;
	u64 *all = calloc((size_t)n * rounds, sizeof(*all));

	for (round = 0; round < rounds; round++) {
		u64 *h = all + (size_t)round * n;

		for (i = 0; i < n; i++) {
			h[i] = var_new(e).h;
			OK(push_write(e, nothing, NULL, (pawl_var_t){ h[i] }));
			ck_assert_uint_eq(version(e, (pawl_var_t){ h[i] }), 0);
		}
		while (pawl_run_one(e))
			;
		for (i = 0; i < n; i++)
			OK(pawl_var_delete(e, (pawl_var_t){ h[i] }, NULL, NULL));
		while (pawl_run_one(e))
			;
		OK(pawl_trim(e));
		/*
		 * Present and earlier ones, while there is no memory, and when there is memory
		 * again.
		 */
		for (i = 0; i < n * (round + 1); i += 1 + round) {
			ck_assert_int_eq(push_write(e, nothing, NULL, (pawl_var_t){ all[i] }),
					 -ESTALE);
			ck_assert_int_eq(pawl_wait_readable(e, (pawl_var_t){ all[i] }, 0, NULL),
					 -ESTALE);
			ck_assert_int_eq(pawl_var_error(e, (pawl_var_t){ all[i] }, NULL),
					 -ESTALE);
		}
	}
	all_different(all, n * rounds);
	for (i = 0; i < n; i++)
		var_new(e);
	for (i = 0; i < n * rounds; i++)
		ck_assert_int_eq(push_write(e, nothing, NULL, (pawl_var_t){ all[i] }), -ESTALE);
	OK(pawl_engine_destroy(e));
	free(all);
}
END_TEST

START_TEST(test_no_token_comes_again)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct pawl_op op = PAWL_OP_INIT;
	u32 n = 3000, round, rounds = 4, i;
	u64 *all = calloc((size_t)n * rounds, sizeof(*all));

	op.async_fn = keep_token;
	for (round = 0; round < rounds; round++) {
		u64 *h = all + (size_t)round * n;

		for (i = 0; i < n; i++) {
			op.arg = &h[i];
			OK(pawl_push(e, &op));
		}
		while (pawl_run_one(e))
			;
		for (i = 0; i < n * round; i++)
			ck_assert_int_eq(pawl_complete(e, (pawl_token_t){ all[i] }, 0, NULL),
					 -EALREADY);
		for (i = 0; i < n; i++)
			OK(pawl_complete(e, (pawl_token_t){ h[i] }, 0, NULL));
		OK(pawl_wait_all(e, 0, NULL));
		OK(pawl_trim(e));
		for (i = 0; i < n * (round + 1); i++)
			ck_assert_int_eq(pawl_complete(e, (pawl_token_t){ all[i] }, 0, NULL),
					 -EALREADY);
	}
	all_different(all, n * rounds);
	OK(pawl_engine_destroy(e));
	free(all);
}
END_TEST

START_TEST(test_no_operator_comes_again)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct pawl_op op = op_of_fn(nothing, NULL);
	u32 n = 1500, round, rounds = 3, i;
	u64 *all = calloc((size_t)n * rounds, sizeof(*all));

	for (round = 0; round < rounds; round++) {
		u64 *h = all + (size_t)round * n;

		for (i = 0; i < n; i++) {
			pawl_graph_t o;

			OK(pawl_graph_create(e, &op, 1, 0, &o));
			OK(pawl_graph_push(e, o, NULL));
			h[i] = o.h;
		}
		while (pawl_run_one(e))
			;
		for (i = 0; i < n; i++)
			OK(pawl_graph_delete(e, (pawl_graph_t){ h[i] }));
		OK(pawl_trim(e));
		for (i = 0; i < n * (round + 1); i++) {
			ck_assert_int_eq(pawl_graph_push(e, (pawl_graph_t){ all[i] }, NULL),
					 -ESTALE);
			ck_assert_int_eq(pawl_graph_delete(e, (pawl_graph_t){ all[i] }),
					 -ESTALE);
		}
	}
	all_different(all, n * rounds);
	OK(pawl_engine_destroy(e));
	free(all);
}
END_TEST

START_TEST(test_no_ticket_comes_again)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct pawl_op op = op_of_fn(nothing, NULL);
	u32 n = 3000, round, rounds = 3, i;
	u64 *all = calloc((size_t)n * rounds, sizeof(*all));
	pawl_ticket_t ticket;

	op.flags = PAWL_OP_TICKET;
	op.ticket = &ticket;
	for (round = 0; round < rounds; round++) {
		for (i = 0; i < n; i++) {
			OK(pawl_push(e, &op));
			all[(size_t)round * n + i] = ticket.h;
		}
		for (i = 0; i < n * round; i++)
			ck_assert_int_eq(pawl_cancel(e, (pawl_ticket_t){ all[i] }), -ESTALE);
		while (pawl_run_one(e))
			;
		OK(pawl_trim(e));
		for (i = 0; i < n * (round + 1); i++) {
			ck_assert_int_eq(pawl_ticket_state(e, (pawl_ticket_t){ all[i] }),
					 PAWL_TICKET_COMPLETE);
			ck_assert_int_eq(pawl_cancel(e, (pawl_ticket_t){ all[i] }), -ESTALE);
			OK(pawl_ticket_wait(e, (pawl_ticket_t){ all[i] }, -1));
		}
	}
	all_different(all, n * rounds);
	OK(pawl_engine_destroy(e));
	free(all);
}
END_TEST

/* A wait left its position, which was granted; its op has no memory now. */
START_TEST(test_place_of_an_earlier_wait)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	u32 i, round;

	for (round = 0; round < 50; round++) {
		struct gate g;

		gate_write(e, &g, v);
		ck_assert_int_eq(pawl_wait_readable(e, v, 1, NULL), -ETIMEDOUT);
		ck_assert_int_eq(pawl_wait_writable(e, v, 1, NULL), -ETIMEDOUT);
		gate_open(&g);
		while (pawl_run_one(e))
			;
		OK(pawl_trim(e));
		gate_write(e, &g, v);
		ck_assert_int_eq(pawl_wait_readable(e, v, 1, NULL), -ETIMEDOUT);
		for (i = 0; i < 200; i++)
			OK(push_read(e, nothing, NULL, v));
		gate_open(&g);
		OK(pawl_wait_writable(e, v, SOON_NS, NULL));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		OK(pawl_trim(e));
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Errors, and the vars that they poison, across a trim. */
START_TEST(test_errors_stay)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v[300];
	struct pawl_error x;
	u32 i;

	for (i = 0; i < 300; i++) {
		v[i] = var_new(e);
		OK(push_write(e, fail_io, TEXT("first"), v[i]));
	}
	while (pawl_run_one(e))
		;
	for (i = 0; i < 300; i++)
		if (i % 64)
			ck_assert_int_eq(pawl_var_take(e, v[i], NULL), -EIO);
	for (i = 0; i < 300; i++)
		if (i % 64)
			OK(pawl_var_delete(e, v[i], NULL, NULL));
	while (pawl_run_one(e))
		;
	OK(pawl_trim(e));
	for (i = 0; i < 300; i += 64) {
		ck_assert_int_eq(pawl_var_error(e, v[i], &x), -EIO);
		ck_assert_str_eq(x.text, "first");
	}
	ck_assert_int_eq(pawl_wait_all(e, SOON_NS, &x), -EIO);
	ck_assert_str_eq(x.text, "first");
	OK(pawl_engine_destroy(e));
}
END_TEST

static int trim_body(struct pawl_run *run, void *arg)
{
	return pawl_trim(run->engine);
}

START_TEST(test_in_a_body)
{
	int kind;

	for (kind = 0; kind < 3; kind++) {
		struct pawl_engine *e = engine(kind, 1);
		pawl_var_t v = var_new(e);
		u64 sum = 0;
		u32 i;

		for (i = 0; i < 1000; i++)
			OK(push_write(e, i % 100 ? add_plain : trim_body, &sum, v));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(sum, 990);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

/* All objects of a kind can be allocated while another thread trims all the time. */
struct trimmer {
	struct pawl_engine *e;
	u32 stop;		/* A */
	u64 trims;
};

static void *trim_always(void *arg)
{
	struct trimmer *t = arg;

	while (!load_acquire(&t->stop)) {
		MUST(!pawl_trim(t->e));
		t->trims++;
	}
	return NULL;
}

START_TEST(test_nobody_starves_beside_a_trim)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct trimmer t = { 0 };
	pthread_t thread;
	pawl_var_t *v = calloc(2000, sizeof(*v));
	u32 i, round;
	u64 sum = 0;

	c.max_ops = 5000;
	c.max_vars = 2000;
	c.max_threads = 4;
	t.e = engine_with(&c);
	OK(pthread_create(&thread, NULL, trim_always, &t));
	for (round = 0; round < TIMES(60); round++) {
		for (i = 0; i < 2000; i++)
			v[i] = var_new(t.e);
		/* The window is max_ops: one more would run some. */
		for (i = 0; i < 2000; i++) {
			OK(push_write(t.e, add_plain, &sum, v[i]));
			OK(pawl_var_delete(t.e, v[i], NULL, NULL));
		}
		while (pawl_run_one(t.e))
			;
	}
	store_release(&t.stop, 1);
	pthread_join(thread, NULL);
	ck_assert_uint_gt(t.trims, 0);
	ck_assert_uint_eq(sum, 2000ull * TIMES(60));
	OK(pawl_engine_destroy(t.e));
	free(v);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("trim");
	TCase *t = tcase_create("trim");

	tcase_set_timeout(t, 120);
	tcase_add_test(t, test_memory_of_a_burst_goes_back);
	tcase_add_test(t, test_one_worker_at_a_time_gives_memory_back);
	tcase_add_loop_test(t, test_idle_workers_give_memory_back, 0, 2);
	tcase_add_test(t, test_rings_of_a_burst_go_back);
	tcase_add_test(t, test_no_var_handle_comes_again);
	tcase_add_test(t, test_no_token_comes_again);
	tcase_add_test(t, test_no_operator_comes_again);
	tcase_add_test(t, test_no_ticket_comes_again);
	tcase_add_test(t, test_place_of_an_earlier_wait);
	tcase_add_test(t, test_errors_stay);
	tcase_add_test(t, test_in_a_body);
	tcase_add_test(t, test_nobody_starves_beside_a_trim);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
