// SPDX-License-Identifier: Apache-2.0
/* core/thread.c: threads begin and end while engines are created and destroyed. */
#include "util.h"
#include "trap.h"
#include <core/wait.h>

struct work {
	struct pawl_engine *e;
	pawl_var_t v;
	u64 n;
	u32 ids;		/* A */
};

static void *one_push(void *arg)
{
	struct work *w = arg;

	MUST(!push_write(w->e, add_plain, &w->n, w->v));
	return NULL;
}

static void *vars_and_push(void *arg)
{
	struct work *w = arg;
	pawl_var_t v = var_new(w->e), two[2] = { v, w->v };
	struct pawl_op op = op_of_fn(add_plain, &w->n);

	op.writes = two;
	op.nwrites = 2;
	MUST(!pawl_push(w->e, &op));
	MUST(!pawl_push_batch(w->e, &op, 1));
	MUST(!pawl_var_delete(w->e, v, NULL, NULL));
	MUST(!pawl_wait_readable(w->e, w->v, SOON_NS, NULL));
	return NULL;
}

/* Many short threads: slots and objects are used again. */
START_TEST(test_churn)
{
	struct work w = { .e = engine(PAWL_PER_DEVICE, 1) };
	struct pawl_stats s0 = { 0 }, s;
	int i, rounds = TIMES(5000);

	w.v = var_new(w.e);
	for (i = 0; i < rounds; i++) {
		pthread_t a = spawn(one_push, &w), b = spawn(vars_and_push, &w);

		join(a);
		join(b);
		if (i == rounds / 10)
			s0 = stats(w.e);
	}
	OK(pawl_wait_all(w.e, SOON_NS, NULL));
	s = stats(w.e);
	ck_assert_uint_eq(w.n, 3u * (u32)rounds);
	ck_assert_uint_le(s.threads, 8);
	ck_assert_uint_le(s.ops, s0.ops + 512);
	ck_assert_uint_le(s.vars, s0.vars + 512);
	ck_assert_uint_le(s.blocks, s0.blocks + 512);
	OK(pawl_engine_destroy(w.e));
}
END_TEST

/* Each slot that a thread has is found, from each slot on, also behind the first 64. */
START_TEST(test_every_slot_with_a_thread_is_found)
{
	static const u32 sizes[] = { 1, 63, 64, 65, 127, 128, 129, 200, 2047 };
	static u64 live[32];
	struct pawl_engine e = { .live = live, .live_words = COUNT(live) };
	u32 i, k, round, from, next;
	u64 seed = 8;

	for (i = 0; i < COUNT(sizes); i++) {
		e.max_threads = sizes[i];
		for (round = 0; round < 30; round++) {
			memset(live, 0, sizeof(live));
			for (k = rnd(&seed) % 8; k; k--) {
				next = (u32)(rnd(&seed) % sizes[i]);
				live[next / 64] |= 1ull << next % 64;
			}
			for (from = 0, next = 0; from <= sizes[i]; from++) {
				while (next < from || (next < sizes[i] &&
						       !(live[next / 64] >> next % 64 & 1)))
					next++;
				if (from < sizes[i] || sizes[i] % 64)
					MUST(live_next(&e, from) == next);
			}
		}
	}
}
END_TEST

/* What they did still counts, and their slots are no longer read. */
START_TEST(test_a_thread_that_left_is_not_summed)
{
	struct work w = { .e = engine(PAWL_PER_DEVICE, 0) };
	pthread_t t[40];
	struct thread *th;
	u32 i, round, live = 0;

	w.v = var_new(w.e);
	for (round = 0; round < 3; round++) {
		for (i = 0; i < COUNT(t); i++)
			t[i] = spawn(one_push, &w);
		for (i = 0; i < COUNT(t); i++)
			join(t[i]);
	}
	for_each_live(w.e, th, i) {
		ck_assert_ptr_eq(th, thread_get(w.e));
		live++;
	}
	ck_assert_uint_eq(live, 1);
	ck_assert_uint_eq(ops_in_flight(w.e), 3 * COUNT(t));
	ck_assert_uint_eq(stats(w.e).pushed, 3 * COUNT(t));
	ck_assert_uint_eq(stats(w.e).completed, 0);
	OK(pawl_wait_all(w.e, SOON_NS, NULL));
	ck_assert_uint_eq(w.n, 3 * COUNT(t));
	ck_assert_uint_eq(ops_in_flight(w.e), 0);
	ck_assert_uint_eq(stats(w.e).completed, 3 * COUNT(t));
	OK(pawl_engine_destroy(w.e));
}
END_TEST

static void *runs_and_leaves(void *arg)
{
	struct pawl_engine *e = arg;
	pawl_var_t v = var_new(e);
	static struct pawl_stats s;
	u32 i;

	for (i = 0; i < 2; i++)
		MUST(!push_write(e, fail_io, NULL, i ? var_new(e) : v));
	for (i = 0; i < 5; i++)
		MUST(!push_read(e, nothing, NULL, v));
	while (pawl_run_one(e))
		;
	for (i = 0; i < 3; i++)
		MUST(!pawl_var_delete(e, var_new(e), NULL, NULL));
	/* No test can make threads help each other with a push, so the two counters are set here. */
	thread_get(e)->records = 3;
	thread_get(e)->helps = 2;
	s = stats(e);
	return &s;
}

START_TEST(test_the_statistics_of_a_thread_that_left)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct pawl_stats s, *was;
	void *out;

	MUST(!pthread_join(spawn(runs_and_leaves, e), &out));
	was = out;
	s = stats(e);
	ck_assert(s.pushed == 10 && s.completed == 10 && s.failed == 2 && s.skipped == 5 &&
		  s.inlined == 3);
	ck_assert(was->pushed == 10 && was->completed == 10 && was->failed == 2 &&
		  was->skipped == 5 && was->inlined == 3);
	ck_assert(was->records == 3 && was->helps == 2);
	ck_assert(s.records == was->records && s.helps == was->helps);
	OK(pawl_engine_destroy(e));
}
END_TEST

static void *uses_objects_and_leaves(void *arg)
{
	struct pawl_engine *e = arg;
	struct pawl_op op = op_of_fn(nothing, NULL);
	struct thread *t = thread_get(e);
	pawl_ticket_t ticket;
	pawl_var_t v[9];
	pawl_graph_t g;
	u32 i;

	for (i = 0; i < COUNT(v); i++)
		v[i] = var_new(e);
	MUST(!push_write(e, fail_io, NULL, v[0]));
	MUST(pawl_wait_readable(e, v[0], SOON_NS, NULL) == -EIO);
	op.writes = v;
	op.nwrites = COUNT(v);
	MUST(!pawl_graph_create(e, &op, 1, 0, &g) && !pawl_graph_delete(e, g));
	op.flags = PAWL_OP_TICKET;
	op.ticket = &ticket;
	MUST(!pawl_push(e, &op) && pawl_run_one(e) == 1);
	for (i = 0; i < COUNT(v); i++)
		MUST(!pawl_var_delete(e, v[i], NULL, NULL));
	MUST(t->cache[POOL_OP].n && t->cache[POOL_VAR].n && t->cache[POOL_EXT0].n);
	return t;
}

START_TEST(test_a_thread_that_left_keeps_no_object)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct thread *t;
	void *out;
	u32 i;

	MUST(!pthread_join(spawn(uses_objects_and_leaves, e), &out));
	t = out;
	for (i = 0; i < POOLS; i++)
		ck_assert_msg(!t->cache[i].n, "%u of pool %u", t->cache[i].n, i);
	OK(pawl_engine_destroy(e));
}
END_TEST

#if CAN_TRAP
static struct {
	struct pawl_engine *e;
	struct thread *t;
	bool looks, moved;
	u32 waits;
	u32 done;		/* A */
	pthread_t id;
} leaving;

static void *waits_meanwhile(void *arg)
{
	MUST(!pawl_wait(leaving.e, PAWL_WAIT_ALL | PAWL_WAIT_NO_HELP, 0, -1, NULL));
	store_release(&leaving.done, 1);
	return arg;
}

static void while_it_leaves(void)
{
	u64 sleeps = stats(leaving.e).sleeps;

	leaving.moved = !load_relaxed(&leaving.t->completed);
	if (!leaving.looks || !ops_in_flight(leaving.e))
		return;
	leaving.waits++;
	leaving.id = spawn(waits_meanwhile, NULL);
	MUST(soon(load_acquire(&leaving.done) || stats(leaving.e).sleeps > sleeps));
}

/* Complete an op and leave the engine, with a stop after k instructions. */
static void leave_after(long k)
{
	struct pawl_op op = op_of_fn(nothing, NULL);
	int rc;

	MUST(!pawl_push(leaving.e, &op) && pawl_run_one(leaving.e) == 1);
	leaving.t = thread_get(leaving.e);
	leaving.moved = true;
	trap_after(k, rc = pawl_thread_detach(leaving.e));
	MUST(!rc);
}
#endif

/*
 * While a thread's counts move to the engine's sums, a wait for all may miss what it completed,
 * and go to sleep: then the thread wakes it.
 */
START_TEST(test_a_wait_that_missed_the_counts_of_a_leaving_thread_is_woken)
{
#if CAN_TRAP
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	long least = 0, most, k;

	leaving.e = e;
	elsewhere_begin(while_it_leaves);
	leave_after(LONG_MAX);
	leave_after(LONG_MAX);
	for (most = trap.ran; least < most; ) {
		k = (least + most) / 2;
		leave_after(k);
		if (leaving.moved)
			most = k;
		else
			least = k + 1;
	}
	leaving.looks = true;
	for (k = least - 2; k < least + 8; k++) {
		leaving.waits = leaving.done = 0;
		leave_after(k);
		if (!leaving.waits)
			continue;
		ck_assert(soon(load_acquire(&leaving.done)));
		join(leaving.id);
	}
	elsewhere_end();
	OK(pawl_engine_destroy(e));
#endif
}
END_TEST

static pawl_var_t written;

static void *times_out_and_leaves(void *arg)
{
	MUST(pawl_wait_readable(arg, written, 1, NULL) == -ETIMEDOUT);
	return NULL;
}

/* What a wait that timed out has left in the queue of its var belongs to no later thread. */
START_TEST(test_the_waits_of_a_thread_that_left)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct gate g;
	int i;

	written = var_new(e);
	gate_write(e, &g, written);
	for (i = 0; i < 3; i++)
		join(spawn(times_out_and_leaves, e));
	gate_open(&g);
	OK(pawl_wait_readable(e, written, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* More threads at once than the engine allows: refused by name; room comes back. */
struct crowd {
	struct pawl_engine *e;
	u32 in, out, refused;	/* A */
	u32 go;			/* A */
};

static void *member(void *arg)
{
	struct crowd *c = arg;
	pawl_var_t v;
	int rc = pawl_var_create(c->e, &v);

	if (rc) {
		MUST(rc == -EUSERS);
		MUST(strstr(pawl_error_text(), "max_threads"));
		fetch_add_relaxed(&c->refused, 1);
	} else {
		MUST(!push_write(c->e, nothing, NULL, v));
	}
	fetch_add_acq_rel(&c->in, 1);
	while (!load_acquire(&c->go))
		nap_us(100);
	return NULL;
}

START_TEST(test_too_many)
{
	struct pawl_config cfg = small(PAWL_PER_DEVICE, 0);
	struct crowd c = { 0 };
	pthread_t t[12];
	int i, round;

	cfg.max_threads = 8;
	c.e = engine_with(&cfg);
	for (round = 0; round < 3; round++) {
		c.in = c.refused = c.go = 0;
		for (i = 0; i < 12; i++)
			t[i] = spawn(member, &c);
		ck_assert(soon(load_acquire(&c.in) == 12));
		ck_assert_uint_eq(load_relaxed(&c.refused), 5);	/* this thread has one slot */
		store_release(&c.go, 1);
		for (i = 0; i < 12; i++)
			join(t[i]);
	}
	OK(pawl_wait_all(c.e, SOON_NS, NULL));
	OK(pawl_engine_destroy(c.e));
}
END_TEST

/* As many threads as there are, each counts while it is inside and when it has left. */
START_TEST(test_what_each_of_many_threads_did_counts)
{
	struct pawl_config cfg = small(PAWL_PER_DEVICE, 0);
	struct crowd c = { 0 };
	pthread_t t[139];
	struct thread *th;
	u32 i, k, live;

	cfg.max_threads = COUNT(t) + 1;
	c.e = engine_with(&cfg);
	for (k = 1; k <= 2; k++) {
		c.in = c.go = 0;
		for (i = 0; i < COUNT(t); i++)
			t[i] = spawn(member, &c);
		ck_assert(soon(load_acquire(&c.in) == COUNT(t)));
		ck_assert_uint_eq(c.refused, 0);
		live = 0;
		for_each_live(c.e, th, i)
			live++;
		ck_assert_uint_eq(live, COUNT(t) + 1);
		ck_assert_uint_eq(ops_in_flight(c.e), k * COUNT(t));
		store_release(&c.go, 1);
		for (i = 0; i < COUNT(t); i++)
			join(t[i]);
		live = 0;
		for_each_live(c.e, th, i)
			live++;
		ck_assert_uint_eq(live, 1);
		ck_assert_uint_eq(ops_in_flight(c.e), k * COUNT(t));
	}
	OK(pawl_wait_all(c.e, SOON_NS, NULL));
	ck_assert_uint_eq(ops_in_flight(c.e), 0);
	ck_assert_uint_eq(stats(c.e).completed, 2 * COUNT(t));
	OK(pawl_engine_destroy(c.e));
}
END_TEST

/* A thread without a slot: each call returns an error, and has no effect. */
struct refused {
	struct pawl_engine *e;
	pawl_var_t v;
	pawl_cq_t cq;
	pawl_graph_t graph;
	pawl_group_t group;
};

#define NO_SLOT(call) do {								\
		MUST((call) == -EUSERS);						\
		MUST(strstr(pawl_error_text(), "max_threads"));				\
	} while (0)

static void *refused(void *arg)
{
	struct refused *r = arg;
	struct pawl_op op = op_write(nothing, NULL, &r->v);
	struct pawl_completion done;
	struct pawl_group_limits limits = { .size = sizeof(limits) };
	pawl_graph_t graph;
	pawl_group_t group;
	pawl_cq_t cq;
	pawl_var_t v;

	NO_SLOT(pawl_thread_attach(r->e));
	NO_SLOT(pawl_engine_stop(r->e));
	NO_SLOT(pawl_engine_start(r->e));
	NO_SLOT(pawl_group_create(r->e, NULL, &group));
	NO_SLOT(pawl_group_limit(r->e, r->group, &limits));
	NO_SLOT(pawl_group_wait(r->e, r->group, -1));
	NO_SLOT(pawl_group_destroy(r->e, r->group));
	NO_SLOT(pawl_ticket_wait(r->e, (pawl_ticket_t){ 1 }, -1));
	NO_SLOT(pawl_var_take(r->e, r->v, NULL));
	NO_SLOT(pawl_var_create(r->e, &v));
	NO_SLOT(pawl_push(r->e, &op));
	NO_SLOT(pawl_push_batch(r->e, &op, 1));
	NO_SLOT(pawl_graph_create(r->e, &op, 1, 0, &graph));
	NO_SLOT(pawl_graph_push(r->e, r->graph, NULL));
	NO_SLOT(pawl_graph_refresh(r->e, r->graph));
	NO_SLOT(pawl_graph_delete(r->e, r->graph));
	NO_SLOT(pawl_wait_readable(r->e, r->v, -1, NULL));
	NO_SLOT(pawl_wait_writable(r->e, r->v, -1, NULL));
	NO_SLOT(pawl_wait_all(r->e, -1, NULL));
	NO_SLOT(pawl_cq_create(r->e, &cq));
	NO_SLOT(pawl_cq_reap(r->e, r->cq, &done, 1));
	NO_SLOT(pawl_cq_wait(r->e, r->cq, -1));
	NO_SLOT(pawl_cq_destroy(r->e, r->cq));
	NO_SLOT(pawl_var_clear(r->e, r->v));
	NO_SLOT(pawl_var_delete(r->e, r->v, NULL, NULL));
	NO_SLOT(pawl_run_one(r->e));
	NO_SLOT(pawl_trim(r->e));
	return NULL;
}

START_TEST(test_each_call_says_that_there_is_no_room)
{
	struct pawl_config cfg = small(PAWL_PER_DEVICE, 0);
	struct crowd c = { 0 };
	struct refused r;
	pthread_t t[7];
	struct pawl_op op;
	int i;

	cfg.max_threads = 8;
	c.e = r.e = engine_with(&cfg);
	r.v = var_new(r.e);
	op = op_write(nothing, NULL, &r.v);
	OK(pawl_cq_create(r.e, &r.cq));
	OK(pawl_graph_create(r.e, &op, 1, 0, &r.graph));
	OK(pawl_group_create(r.e, NULL, &r.group));
	for (i = 0; i < 7; i++)
		t[i] = spawn(member, &c);
	ck_assert(soon(load_acquire(&c.in) == 7));
	ck_assert_uint_eq(load_relaxed(&c.refused), 0);
	join(spawn(refused, &r));
	store_release(&c.go, 1);
	for (i = 0; i < 7; i++)
		join(t[i]);
	ck_assert_uint_eq(version(r.e, r.v), 0);
	OK(pawl_graph_push(r.e, r.graph, NULL));
	OK(pawl_wait_all(r.e, SOON_NS, NULL));
	ck_assert_uint_eq(version(r.e, r.v), 1);
	OK(pawl_graph_delete(r.e, r.graph));
	OK(pawl_group_destroy(r.e, r.group));
	OK(pawl_cq_destroy(r.e, r.cq));
	OK(pawl_engine_destroy(r.e));
}
END_TEST

/* Workers are threads inside the engine too: with no room for them ops still run. */
START_TEST(test_no_room_for_workers)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 4);
	struct pawl_engine *e = NULL;
	u32 n = 0;
	int i, rc;

	c.max_threads = 2;
	rc = pawl_engine_create(&c, &e);
	if (rc) {	/* refused for lack of a slot: also fine, with a reason */
		ck_assert_int_eq(rc, -EINVAL);
		ck_assert_ptr_nonnull(strstr(pawl_error_text(), "max_threads"));
		return;
	}
	for (i = 0; i < 100; i++)
		OK(push_write(e, add_one, &n, var_new(e)));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n, 100);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* The engine is destroyed while threads that used it live on, and then end. */
static void *outliver(void *arg)
{
	struct crowd *c = arg;
	u32 n = 0;

	MUST(!push_write(c->e, add_one, &n, var_new(c->e)));
	MUST(!pawl_wait_all(c->e, SOON_NS, NULL));
	fetch_add_acq_rel(&c->in, 1);
	while (!load_acquire(&c->go))
		nap_us(100);
	return NULL;
}

START_TEST(test_engine_ends_first)
{
	int i, round;

	for (round = 0; round < 20; round++) {
		struct crowd c = { .e = engine(round % 3, 1) };
		pthread_t t[4];

		for (i = 0; i < 4; i++)
			t[i] = spawn(outliver, &c);
		ck_assert(soon(load_acquire(&c.in) == 4));
		OK(pawl_engine_destroy(c.e));
		store_release(&c.go, 1);
		for (i = 0; i < 4; i++)
			join(t[i]);
	}
}
END_TEST

/* The same at the same time: threads end while the engine is destroyed. */
static void *leaver(void *arg)
{
	struct crowd *c = arg;

	MUST(!push_write(c->e, nothing, NULL, var_new(c->e)));
	fetch_add_acq_rel(&c->in, 1);
	while (!load_acquire(&c->go))
		cpu_relax();
	return NULL;
}

START_TEST(test_ends_race)
{
	int i, round, rounds = TIMES(100);

	for (round = 0; round < rounds; round++) {
		struct crowd c = { .e = engine(PAWL_PER_DEVICE, 0) };
		pthread_t t[3];

		for (i = 0; i < 3; i++)
			t[i] = spawn(leaver, &c);
		ck_assert(soon(load_acquire(&c.in) == 3));
		store_release(&c.go, 1);
		for (i = 0; i < round % 20 * 20; i++)
			cpu_relax();
		OK(pawl_engine_destroy(c.e));
		for (i = 0; i < 3; i++)
			join(t[i]);
	}
}
END_TEST

/* One thread, many engines, existing and destroyed: it finds its slot in each. */
START_TEST(test_many_engines)
{
	struct pawl_engine *e[40];
	pawl_var_t v[40];
	u64 n[40] = { 0 }, want[40] = { 0 }, seed = 6;
	int i, k;

	memset(e, 0, sizeof(e));
	for (i = 0; i < 2000; i++) {
		k = (int)(rnd(&seed) % 40);
		if (!e[k]) {
			e[k] = engine(PAWL_PER_DEVICE, 0);
			v[k] = var_new(e[k]);
			n[k] = want[k] = 0;
		}
		OK(push_write(e[k], add_plain, &n[k], v[k]));
		want[k]++;
		if (rnd(&seed) % 20 == 0) {
			OK(pawl_engine_destroy(e[k]));
			ck_assert_uint_eq(n[k], want[k]);
			e[k] = NULL;
		}
	}
	for (k = 0; k < 40; k++)
		OK(pawl_engine_destroy(e[k]));
}
END_TEST

/* A thread used several engines, of which some are destroyed when it ends. */
struct several {
	struct pawl_engine *e[5];
	u32 in, go;	/* A */
};

static void *polygamist(void *arg)
{
	struct several *s = arg;
	int i;

	for (i = 0; i < 5; i++) {
		MUST(!push_write(s->e[i], nothing, NULL, var_new(s->e[i])));
	}
	fetch_add_acq_rel(&s->in, 1);
	while (!load_acquire(&s->go))
		nap_us(100);
	return NULL;
}

START_TEST(test_several_engines)
{
	struct several s = { .in = 0 };
	pthread_t t[3];
	int i;

	for (i = 0; i < 5; i++)
		s.e[i] = engine(i % 3, 1);
	for (i = 0; i < 3; i++)
		t[i] = spawn(polygamist, &s);
	ck_assert(soon(load_acquire(&s.in) == 3));
	OK(pawl_engine_destroy(s.e[0]));
	OK(pawl_engine_destroy(s.e[3]));
	store_release(&s.go, 1);
	for (i = 0; i < 3; i++)
		join(t[i]);
	/* What they had gathered in the other engines was pushed when they ended. */
	ck_assert_uint_eq(stats(s.e[1]).pushed, 3);
	ck_assert_uint_eq(stats(s.e[2]).pushed, 3);
	ck_assert_uint_eq(stats(s.e[4]).pushed, 3);
	OK(pawl_engine_destroy(s.e[1]));
	OK(pawl_engine_destroy(s.e[2]));
	OK(pawl_engine_destroy(s.e[4]));
}
END_TEST

/* Other threads can run what a thread made ready and did not run before it ended. */
START_TEST(test_ready_work_outlives_its_thread)
{
	struct work w = { .e = engine(PAWL_PER_DEVICE, 0) };
	int i;

	w.v = var_new(w.e);
	for (i = 0; i < 100; i++)
		join(spawn(one_push, &w));
	ck_assert_uint_eq(w.n, 0);
	OK(pawl_wait_all(w.e, SOON_NS, NULL));
	ck_assert_uint_eq(w.n, 100);
	OK(pawl_engine_destroy(w.e));
}
END_TEST

/* A destructor of thread-specific data pushes, before or after the engine's own ran. */
static pthread_key_t late_key;

static void late_push(void *arg)
{
	struct work *w = arg;

	MUST(!push_write(w->e, add_plain, &w->n, w->v));
}

static void *late_thread(void *arg)
{
	one_push(arg);
	MUST(!pthread_setspecific(late_key, arg));
	return NULL;
}

START_TEST(test_push_from_destructor)
{
	struct work w = { .e = engine(PAWL_PER_DEVICE, 1) };
	int i, rounds = TIMES(200);

	MUST(!pthread_key_create(&late_key, late_push));
	w.v = var_new(w.e);
	for (i = 0; i < rounds; i++)
		join(spawn(late_thread, &w));
	OK(pawl_wait_all(w.e, SOON_NS, NULL));
	ck_assert_uint_eq(w.n, 2u * (u32)rounds);
	ck_assert_uint_le(stats(w.e).threads, 8);
	pthread_key_delete(late_key);
	OK(pawl_engine_destroy(w.e));
}
END_TEST

/* More live threads than slots: each holds one only between attach and detach. */
static void *in_and_out(void *arg)
{
	struct crowd *c = arg;
	u32 i;

	for (i = 0; i < 20; i++) {
		int rc = pawl_thread_attach(c->e);

		if (rc) {
			MUST(rc == -EUSERS && strstr(pawl_error_text(), "max_threads"));
			fetch_add_relaxed(&c->refused, 1);
			nap_us(10);
			i--;
			continue;
		}
		MUST(!push_write(c->e, add_one, &c->out, var_new(c->e)));
		MUST(!pawl_thread_detach(c->e));
	}
	fetch_add_acq_rel(&c->go, 1);
	while (load_acquire(&c->go) < 12)
		nap_us(100);
	return NULL;
}

START_TEST(test_slot_is_free_after_detach)
{
	struct pawl_config cfg = small(PAWL_PER_DEVICE, 0);
	struct crowd c = { 0 };
	struct thread *th;
	pthread_t t[12];
	u32 i, live = 0;

	cfg.max_threads = 4;
	c.e = engine_with(&cfg);
	for (i = 0; i < COUNT(t); i++)
		t[i] = spawn(in_and_out, &c);
	ck_assert(soon(load_acquire(&c.go) == COUNT(t)));
	for_each_live(c.e, th, i)
		live++;
	ck_assert_uint_eq(live, 1);
	for (i = 0; i < COUNT(t); i++)
		join(t[i]);
	ck_assert_uint_eq(stats(c.e).pushed, 20 * COUNT(t));
	OK(pawl_wait_all(c.e, SOON_NS, NULL));
	ck_assert_uint_eq(c.out, 20 * COUNT(t));
	OK(pawl_thread_detach(c.e));
	OK(pawl_thread_attach(c.e));
	ck_assert_uint_eq(stats(c.e).completed, 20 * COUNT(t));
	OK(pawl_engine_destroy(c.e));
}
END_TEST

/* One thread, two engines: it leaves one of them. */
START_TEST(test_detach_leaves_one_engine)
{
	struct pawl_engine *e[3];
	pawl_var_t v[3];
	u64 n = 0;
	u32 i, k;

	for (i = 0; i < 3; i++) {
		e[i] = engine(PAWL_PER_DEVICE, 0);
		v[i] = var_new(e[i]);
	}
	for (k = 0; k < 9; k++) {
		OK(pawl_thread_detach(e[k % 3]));
		for (i = 0; i < 3; i++)
			OK(push_write(e[i], add_plain, &n, v[i]));
	}
	for (i = 0; i < 3; i++) {
		OK(pawl_thread_detach(e[i]));
		OK(pawl_engine_destroy(e[i]));
	}
	ck_assert_uint_eq(n, 27);
}
END_TEST

/* A thread inside the engine cannot leave it. */
static struct pawl_engine *inside_of;
static u32 inside;		/* A: calls that were refused */

static void detach_refused(void)
{
	MUST(pawl_thread_detach(inside_of) == -EDEADLK);
	MUST(strstr(pawl_error_text(), "thread_detach"));
	fetch_add_relaxed(&inside, 1);
}

static int detach_in_body(struct pawl_run *run, void *arg)
{
	detach_refused();
	return arg ? pawl_fail_with(run, -EIO, "with a payload", arg) : 0;
}

static void detach_in_release(void *arg, int status)
{
	detach_refused();
}

static bool detach_in_done(void *user)
{
	detach_refused();
	return true;
}

static void detach_in_drop(void *user, void *payload)
{
	detach_refused();
}

static void refused_inside(int kind)
{
	struct pawl_config c = small(kind, 0);
	struct pawl_op op = op_of_fn(detach_in_body, NULL);
	struct pawl_engine *e;
	pawl_graph_t g;
	pawl_var_t v;

	c.drop = detach_in_drop;
	inside = 0;
	inside_of = e = engine_with(&c);
	v = var_new(e);
	op.release = detach_in_release;
	OK(pawl_push(e, &op));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(inside, 2);
	OK(pawl_graph_create(e, &op, 1, 0, &g));
	OK(pawl_graph_delete(e, g));		/* release */
	ck_assert_uint_eq(inside, 3);
	OK(pawl_run_until(e, detach_in_done, NULL, SOON_NS));
	ck_assert_uint_eq(inside, 4);
	OK(push_write(e, detach_in_body, &op, v));
	OK(pawl_run_until(e, detach_in_done, NULL, SOON_NS));
	ck_assert_uint_ge(inside, 5);
	ck_assert_int_eq(pawl_wait_readable(e, v, SOON_NS, NULL), -EIO);	/* drop */
	ck_assert_uint_eq(inside, 7);
	OK(pawl_thread_detach(e));
	OK(pawl_engine_destroy(e));
}

START_TEST(test_detach_is_refused_inside_the_engine)
{
	refused_inside(PAWL_PER_DEVICE);
}
END_TEST

START_TEST(test_detach_is_refused_inside_a_naive_engine)
{
	refused_inside(PAWL_NAIVE);
}
END_TEST

/* A worker's hooks: the slot is taken early, or freed early. */
static void attach_in_start(void *user, const char *name)
{
	MUST(!pawl_thread_attach(*(struct pawl_engine **)user));
}

static void detach_in_stop(void *user, const char *name)
{
	MUST(!pawl_thread_detach(*(struct pawl_engine **)user));
}

START_TEST(test_workers_attach_and_detach_in_hooks)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 2);
	struct pawl_engine *e = NULL;
	u32 n = 0, i;

	c.thread_start = attach_in_start;
	c.thread_stop = detach_in_stop;
	c.user = &e;
	e = engine_with(&c);
	for (i = 0; i < 20; i++) {
		OK(push_write(e, add_one, &n, var_new(e)));
		OK(pawl_engine_stop(e));
		OK(pawl_engine_start(e));
	}
	ck_assert_uint_eq(n, 20);
	ck_assert_uint_le(stats(e).threads, 3);
	OK(pawl_engine_destroy(e));
}
END_TEST

SUITE("thread", test_churn, test_every_slot_with_a_thread_is_found, test_a_thread_that_left_is_not_summed,
      test_the_statistics_of_a_thread_that_left,
      test_a_thread_that_left_keeps_no_object,
      test_a_wait_that_missed_the_counts_of_a_leaving_thread_is_woken, test_the_waits_of_a_thread_that_left,
      test_too_many, test_what_each_of_many_threads_did_counts,
      test_each_call_says_that_there_is_no_room,
      test_no_room_for_workers, test_engine_ends_first,
      test_ends_race, test_many_engines, test_several_engines,
      test_ready_work_outlives_its_thread, test_push_from_destructor,
      test_slot_is_free_after_detach,
      test_detach_leaves_one_engine, test_detach_is_refused_inside_the_engine,
      test_detach_is_refused_inside_a_naive_engine, test_workers_attach_and_detach_in_hooks)
