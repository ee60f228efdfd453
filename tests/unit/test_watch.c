// SPDX-License-Identifier: Apache-2.0
/*
 * core/watch.c: pawl_watch() reports what has not moved, and nothing else.
 */
#include "util.h"
#include <core/op.h>

#define HOUR_NS 3600000000000

/* The library's clock, if it stands. */
static u64 stands;		/* A */

u64 __real_exec_now_ns(void);
u64 __wrap_exec_now_ns(void);

u64 __wrap_exec_now_ns(void)
{
	u64 ns = load_relaxed(&stands);

	return ns ? ns : __real_exec_now_ns();
}

struct seen {
	int n;
	struct pawl_stalled s[64];
};

static void see(void *arg, const struct pawl_stalled *s)
{
	struct seen *seen = arg;

	MUST(s->size == sizeof(*s));
	if (seen->n < 64)
		seen->s[seen->n] = *s;
	seen->n++;
}

static struct seen watch(struct pawl_engine *e, int64_t ns)
{
	struct seen seen = { 0 };
	int n = pawl_watch(e, ns, see, &seen);

	ck_assert_int_eq(n, seen.n);
	return seen;
}

static const struct pawl_stalled *find(const struct seen *seen, int what)
{
	int i;

	for (i = 0; i < seen->n && i < 64; i++)
		if (seen->s[i].what == what)
			return &seen->s[i];
	return NULL;
}

/* var v held by op "holder" for t, 6 ops behind */
START_TEST(test_body)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_var_t two[2] = { var_new(e), var_new(e) }, v = two[1];
	const struct pawl_stalled *s;
	struct plug p = { 0 };
	struct pawl_op op;
	struct seen seen;
	int i;

	op = op_of_fn(plug_body, &p);
	op.writes = two;
	op.nwrites = 2;
	op.name = "hol\tder\xff";
	OK(pawl_push(e, &op));
	ck_assert(soon(load_acquire(&p.in)));
	for (i = 0; i < 3; i++)
		OK(push_read(e, nothing, NULL, v));
	OK(push_write(e, nothing, NULL, v));
	OK(push_write(e, nothing, NULL, v));
	OK(push_read(e, nothing, NULL, v));
	OK(push_read(e, nothing, NULL, two[0]));
	ck_assert_int_eq(watch(e, 0).n, 0);
	nap_us(5000);
	ck_assert_int_eq(watch(e, HOUR_NS).n, 0);
	seen = watch(e, 5000000);
	ck_assert_int_eq(seen.n, 1);
	s = find(&seen, PAWL_STALLED_BODY);
	ck_assert_ptr_nonnull(s);
	ck_assert_str_eq(s->name, "hol\\u0009der\xef\xbf\xbd");	/* as a host may print it */
	ck_assert_uint_eq(s->var.h, v.h);
	ck_assert_uint_eq(s->behind, 6);
	ck_assert_uint_ge(s->ns, 5000000);
	ck_assert_int_eq(pawl_watch(e, 0, NULL, NULL), 1);
	plug_out(&p);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_int_eq(watch(e, 0).n, 0);
	ck_assert_int_eq(watch(e, 0).n, 0);
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_async)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	const struct pawl_stalled *s;
	struct seen seen;
	struct gate g;
	u64 begin;
	int i;

	gate_read(e, &g, v);
	ck_assert_int_eq(watch(e, 0).n, 0);
	OK(push_write(e, nothing, NULL, v));
	OK(push_write(e, nothing, NULL, v));
	nap_us(2000);
	seen = watch(e, 2000000);
	ck_assert_int_eq(seen.n, 1);
	s = find(&seen, PAWL_STALLED_ASYNC);
	ck_assert_ptr_nonnull(s);
	ck_assert_str_eq(s->name, "gate");
	ck_assert_uint_eq(s->var.h, v.h);
	ck_assert_uint_eq(s->behind, 2);
	gate_open(&g);
	ck_assert_ptr_null((seen = watch(e, 0), find(&seen, PAWL_STALLED_ASYNC)));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	/* The time of the next one, perhaps in the same object, begins with it. */
	for (i = 0; i < 3; i++) {
		begin = now_ms();
		gate_write(e, &g, v);
		ck_assert_int_eq(watch(e, 0).n, 0);
		nap_us(2000);
		seen = watch(e, 0);
		ck_assert_int_eq(seen.n, 1);
		ck_assert_uint_le(seen.s[0].ns, (now_ms() + 1 - begin) * 1000000);
		gate_open(&g);
		OK(pawl_wait_all(e, SOON_NS, NULL));
		nap_us(5000);
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

START_TEST(test_queue)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	const struct pawl_stalled *s;
	struct seen seen;
	int i;

	/* The time without ops does not count. */
	for (i = 0; i < 2; i++) {
		ck_assert_int_eq(watch(e, 0).n, 0);
		nap_us(100);
	}
	for (i = 0; i < 5; i++)
		OK(push_write(e, nothing, NULL, var_new(e)));
	ck_assert_int_eq(watch(e, 0).n, 0);
	nap_us(2000);
	seen = watch(e, 2000000);
	ck_assert_int_eq(seen.n, 1);
	s = find(&seen, PAWL_STALLED_QUEUE);
	ck_assert_ptr_nonnull(s);
	ck_assert_str_eq(s->name, "c0");
	ck_assert_uint_eq(s->behind, 5);
	/* One was taken: the time starts again. */
	ck_assert_int_eq(pawl_run_one(e), 1);
	ck_assert_int_eq(watch(e, 0).n, 0);
	nap_us(1000);
	seen = watch(e, 0);
	ck_assert_int_eq(seen.n, 1);
	ck_assert_uint_eq(seen.s[0].behind, 4);
	/* Nor does the time before the queue was empty. */
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_int_eq(watch(e, 0).n, 0);
	OK(push_write(e, nothing, NULL, var_new(e)));
	nap_us(100);
	ck_assert_int_eq(watch(e, 0).n, 0);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* --- the next op is not the one before --- */

static int body_watches(struct pawl_run *run, void *arg)
{
	nap_us(10);
	/* If this op is taken for the one before, it is reported. */
	MUST(pawl_watch(run->engine, 0, NULL, NULL) == 0);
	return 0;
}

START_TEST(test_next_op_is_another)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	int i;

	for (i = 0; i < 100; i++) {
		OK(push_write(e, body_watches, NULL, v));
		ck_assert_int_eq(pawl_run_one(e), 1);
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

static void *completer(void *arg)
{
	struct pawl_run *run = arg;

	MUST(!pawl_complete(run->engine, run->token, 0, NULL));
	return NULL;
}

/* The op ends on another thread, so this one completes nothing; its object comes back. */
static void async_watches(struct pawl_run *run, void *arg)
{
	nap_us(10);
	MUST(pawl_watch(run->engine, 0, NULL, NULL) == 0);
	join(spawn(completer, run));
}

START_TEST(test_next_async_op_is_another)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pawl_op op = PAWL_OP_INIT;
	struct pawl_engine *e;
	int i;

	c.max_ops = 64;
	e = engine_with(&c);
	op.async_fn = async_watches;
	for (i = 0; i < 300; i++) {
		OK(pawl_push(e, &op));
		ck_assert_int_eq(pawl_run_one(e), 1);
	}
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

static void *one_op(void *arg)
{
	MUST(!push_write(arg, body_watches, NULL, var_new(arg)));
	while (!pawl_run_one(arg))
		;
	return NULL;
}

/* A thread's slot goes to the next one, with its counters at 0. */
START_TEST(test_next_thread_is_another)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	int i;

	for (i = 0; i < 20; i++)
		join(spawn(one_op, e));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* --- many vars, errors, load --- */

START_TEST(test_many_vars)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v[300];
	struct seen seen;
	struct gate g;
	int i;

	for (i = 0; i < 300; i++)
		v[i] = var_new(e);
	OK(gate_push(e, &g, v, 100, v + 100, 200));
	for (i = 0; i < 1500; i++)
		OK(push_write(e, nothing, NULL, v[250]));
	ck_assert_int_eq(watch(e, 0).n, 0);
	nap_us(1000);
	seen = watch(e, 0);
	ck_assert_int_eq(seen.n, 1);
	ck_assert_uint_eq(seen.s[0].var.h, v[250].h);
	ck_assert_uint_eq(seen.s[0].behind, 1000);
	gate_open(&g);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

static void see_inside(void *arg, const struct pawl_stalled *s)
{
	FAILS(pawl_watch(arg, 0, NULL, NULL), -EBUSY, "watch");
}

START_TEST(test_bad)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct gate g;

	FAILS(pawl_watch(e, -1, NULL, NULL), -EINVAL, "watch", "threshold_ns");
	gate_write(e, &g, var_new(e));
	ck_assert_int_eq(pawl_watch(e, 0, see_inside, e), 0);
	nap_us(100);
	ck_assert_int_eq(pawl_watch(e, 0, see_inside, e), 1);
	gate_open(&g);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

struct busy {
	struct pawl_engine *e;
	pawl_var_t v[6];
	u32 stop;	/* A */
};

static void *busy_pusher(void *arg)
{
	struct busy *b = arg;
	u64 seed = 3;

	while (!load_acquire(&b->stop)) {
		pawl_var_t many[12];
		struct pawl_op op = op_of_fn(nothing, NULL);
		u32 i;

		for (i = 0; i < 12; i++)
			many[i] = b->v[rnd(&seed) % 6];
		op.writes = many;
		op.nwrites = (uint32_t)(1 + rnd(&seed) % 6);
		op.reads = many + 6;
		op.nreads = (uint32_t)(rnd(&seed) % 6);
		op.name = "busy";
		MUST(!pawl_push(b->e, &op));
		if (rnd(&seed) % 50 == 0)
			pawl_wait_all(b->e, SOON_NS, NULL);
	}
	return NULL;
}

static void see_sane(void *arg, const struct pawl_stalled *s)
{
	MUST(s->ns < HOUR_NS && s->behind <= 1 << 20);
	MUST(s->what == PAWL_STALLED_QUEUE ? !strcmp(s->name, "c0") : !strcmp(s->name, "busy"));
}

START_TEST(test_while_it_moves)
{
	struct busy b = { .e = engine(PAWL_PER_DEVICE, 1) };
	pthread_t t[2];
	int i;

	for (i = 0; i < 6; i++)
		b.v[i] = var_new(b.e);
	for (i = 0; i < 2; i++)
		t[i] = spawn(busy_pusher, &b);
	for (i = 0; i < TIMES(2000); i++)
		ck_assert_int_ge(pawl_watch(b.e, 0, see_sane, NULL), 0);
	store_release(&b.stop, 1);
	for (i = 0; i < 2; i++)
		join(t[i]);
	OK(pawl_wait_all(b.e, SOON_NS, NULL));
	OK(pawl_engine_destroy(b.e));
}
END_TEST

/* So is the next body of the same launch, of which only the last completes an op. */
START_TEST(test_next_body_of_a_graph_is_another)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_var_t v = var_new(e);
	struct plug p[2] = { { 0 } };
	struct pawl_op op[2] = { op_write(plug_body, &p[0], &v), op_write(plug_body, &p[1], &v) };
	pawl_graph_t g;
	int i;

	OK(pawl_graph_create(e, op, 2, 0, &g));
	OK(pawl_graph_push(e, g, NULL));
	for (i = 0; i < 2; i++) {
		ck_assert(soon(load_acquire(&p[i].in)));
		ck_assert_int_eq(watch(e, 0).n, 0);
		nap_us(1000);
		ck_assert_int_eq(watch(e, 0).n, 1);
		plug_out(&p[i]);
	}
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_graph_delete(e, g));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* --- what is said of them --- */

struct stuck {
	struct pawl_engine *e;
	pawl_var_t v;
	struct gate g;
	struct plug p;
};

static void *gets_stuck(void *arg)
{
	struct stuck *s = arg;
	struct pawl_op op = op_of_fn(plug_body, &s->p);

	gate_read(s->e, &s->g, s->v);
	MUST(!pawl_push(s->e, &op) && pawl_run_one(s->e) == 1);
	return NULL;
}

static void *waits_to_write(void *arg)
{
	struct stuck *s = arg;

	MUST(!pawl_wait(s->e, PAWL_WAIT_WRITABLE | PAWL_WAIT_NO_HELP, s->v.h, SOON_NS, NULL));
	return NULL;
}

/* The threads are named, a wait is no op that is stuck, and each report adds to the time. */
START_TEST(test_reports)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	const struct pawl_stalled *b, *a;
	struct stuck stuck = { 0 };
	struct pawl_engine *e;
	u64 ns[3] = { 0 }, pushed;
	struct seen seen;
	pthread_t t[2];
	int i;

	stuck.e = e = engine_with(&c);
	OK(pawl_thread_attach(e));
	stuck.v = var_new(e);
	t[0] = spawn(gets_stuck, &stuck);
	ck_assert(soon(load_acquire(&stuck.p.in)));
	pushed = stats(e).pushed;
	t[1] = spawn(waits_to_write, &stuck);
	ck_assert(soon(stats(e).pushed > pushed));
	OK(push_write(e, nothing, NULL, stuck.v));
	OK(push_write(e, nothing, NULL, var_new(e)));
	ck_assert_int_eq(watch(e, 0).n, 0);
	ck_assert(soon((seen = watch(e, 0), a = find(&seen, PAWL_STALLED_ASYNC)) &&
		       a->behind == 2));
	for (i = 0; i < 3; i++) {
		nap_us(1000);
		seen = watch(e, 0);
		b = find(&seen, PAWL_STALLED_BODY);
		a = find(&seen, PAWL_STALLED_ASYNC);
		ck_assert(seen.n == 3 && b && a && find(&seen, PAWL_STALLED_QUEUE));
		ck_assert_uint_eq(b->thread, 1);
		ck_assert_ptr_null(b->name);
		ck_assert_uint_eq(b->var.h, 0);
		ck_assert_uint_eq(b->behind, 0);
		ck_assert_uint_eq(a->thread, 1);
		ck_assert_uint_eq(a->var.h, stuck.v.h);
		ck_assert_uint_eq(a->behind, 2);
		for (; seen.n; seen.n--) {
			const struct pawl_stalled *s = &seen.s[seen.n - 1];

			ck_assert_uint_ge(s->ns, ns[s->what] + 1000000);
			ns[s->what] = s->ns;
		}
	}
	plug_out(&stuck.p);
	join(t[0]);
	gate_open(&stuck.g);
	join(t[1]);
	while (pawl_run_one(e))
		;
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* "for threshold_ns nanoseconds or longer": exact, for each kind of report. */
START_TEST(test_the_threshold_is_exact)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_var_t v = var_new(e);
	struct plug p = { 0 };
	struct seen seen;
	struct gate g;
	int i;

	gate_write(e, &g, v);
	plug_in(e, &p, PAWL_NORMAL);
	OK(push_write(e, nothing, NULL, var_new(e)));
	store_relaxed(&stands, HOUR_NS);
	ck_assert_int_eq(watch(e, 0).n, 0);
	ck_assert_int_eq(watch(e, 0).n, 0);	/* no time has passed */
	store_relaxed(&stands, HOUR_NS + 1000);
	ck_assert_int_eq(watch(e, 1001).n, 0);
	seen = watch(e, 1000);
	ck_assert_int_eq(seen.n, 3);
	for (i = 0; i < 3; i++)
		ck_assert_uint_eq(seen.s[i].ns, 1000);
	ck_assert_int_eq(watch(e, 0).n, 3);
	/* The var of the asynchronous op, although no op is behind it. */
	ck_assert_uint_eq(find(&seen, PAWL_STALLED_ASYNC)->var.h, v.h);
	store_relaxed(&stands, 0);
	plug_out(&p);
	gate_open(&g);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

/*
 * An op may end while it is looked at, and its object is used again, also for the argument of
 * another op: whatever is read there leads to no other memory.
 */
START_TEST(test_an_op_that_ends_while_it_is_looked_at)
{
	static const u32 blocks[] = { UINT32_MAX, RM_BASE - 1, 1u << BLOCK_BITS };
	static const u32 exts[] = { 0x3fffffff, 0x7fffffff, 0xbfffffff, 0xffffffff };
	static const u32 counts[] = { INLINE_DEPS + 1, 17, 40000, UINT16_MAX };
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct op *holder = NULL, *next = NULL;
	struct dep was;
	struct seen seen;
	struct gate g;
	u32 i, k, ext;
	u16 n;

	gate_write(e, &g, v);
	OK(push_write(e, nothing, NULL, v));
	for (i = 1; i <= pool_carved(e->pool[POOL_OP]); i++) {
		struct op *op = op_of(e, i);

		if (op->ndeps && op->async_fn == gate_body)
			holder = op;
		else if (op->ndeps && op->fn == nothing)
			next = op;
	}
	MUST(holder && next);
	store_relaxed(&stands, HOUR_NS);
	ck_assert_int_eq(watch(e, 0).n, 0);
	store_relaxed(&stands, HOUR_NS + 1);
	seen = watch(e, 0);
	ck_assert(seen.n == 1 && seen.s[0].behind == 1 && seen.s[0].var.h == v.h);
	for (i = 0; i < COUNT(blocks); i++) {
		/* of the op behind it, whose block is the next one */
		was = next->deps[0];
		store_helped(&next->deps[0].block, blocks[i]);
		seen = watch(e, 0);
		next->deps[0] = was;
		ck_assert(seen.n == 1 && seen.s[0].behind == 1 && seen.s[0].var.h == v.h);
		was = holder->deps[0];
		store_helped(&holder->deps[0].block, blocks[i]);
		seen = watch(e, 0);
		holder->deps[0] = was;
		ck_assert(seen.n == 1 && !seen.s[0].behind && !seen.s[0].var.h);
		store_helped(&holder->deps[0].var, blocks[i]);
		seen = watch(e, 0);
		holder->deps[0] = was;
		ck_assert(seen.n == 1 && !seen.s[0].behind && !seen.s[0].var.h);
	}
	/* What a read has instead of a block, if its var is parked or mostly read. */
	was = holder->deps[0];
	for (i = 0; i < 4; i++) {
		holder->deps[0].var = (u32)v.h;
		holder->deps[0].block = (const u32[]){ 0, RM_BASE, RM_BASE + RM_MAX - 1, 0 }[i];
		if (i == 3)	/* an access that was left out */
			holder->deps[0].gen = 0;
		seen = watch(e, 0);
		holder->deps[0] = was;
		ck_assert(seen.n == 1 && !seen.s[0].behind);
		ck_assert_uint_eq(seen.s[0].var.h, i < 3 ? v.h : 0);
	}
	n = holder->ndeps;
	ext = holder->ext;
	for (i = 0; i < COUNT(exts); i++)
		for (k = 0; k < COUNT(counts); k++) {
			store_helped16(&holder->ndeps, (u16)counts[k]);
			store_helped(&holder->ext, exts[i]);
			seen = watch(e, 0);
			store_helped16(&holder->ndeps, n);
			store_helped(&holder->ext, ext);
			ck_assert(seen.n == 1 && !seen.s[0].behind && !seen.s[0].var.h);
		}
	store_relaxed(&stands, 0);
	gate_open(&g);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

static u64 mapped_kib(void)
{
	long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	MUST(f && fscanf(f, "%ld", &pages) == 1);
	fclose(f);
	return (u64)pages * (u64)sysconf(_SC_PAGESIZE) / 1024;
}

/* What the watchdog remembers ends with the engine. */
START_TEST(test_destroy_unmaps_the_watch)
{
	enum { ROUNDS = 20 };
	u64 before = 0;
	u32 i;

	if (SANITIZED)
		return;		/* they map memory of their own */
	for (i = 0; i <= ROUNDS; i++) {
		struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);

		ck_assert_int_eq(watch(e, 0).n, 0);
		OK(pawl_engine_destroy(e));
		if (!i)
			before = mapped_kib();
	}
	/* It is 8 bytes for each of max_ops and more. */
	ck_assert_uint_lt(mapped_kib(), before + ROUNDS * (1 << 16) * 8 / 1024 / 2);
}
END_TEST

SUITE("watch", test_body, test_async, test_queue, test_next_op_is_another,
      test_next_body_of_a_graph_is_another,
      test_next_async_op_is_another, test_next_thread_is_another, test_many_vars, test_bad,
      test_while_it_moves, test_reports, test_the_threshold_is_exact,
      test_an_op_that_ends_while_it_is_looked_at, test_destroy_unmaps_the_watch)
