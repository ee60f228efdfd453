// SPDX-License-Identifier: Apache-2.0
/*
 * Deletion of a var: when it takes effect, when its memory is reused, and races with other
 * calls.
 */
#include "util.h"
#include "trap.h"
#include "graphs.h"
#include <core/var.h>

START_TEST(test_delete_inline_when_ready)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	u32 n = 0;

	OK(pawl_var_delete(e, var_new(e), add_one, &n));
	ck_assert_uint_eq(n, 1);
	ck_assert_uint_eq(stats(e).inlined, 1);
	OK(pawl_engine_destroy(e));
	/* Pooled: never inline. */
	e = engine(PAWL_POOLED, 0);
	OK(pawl_var_delete(e, var_new(e), add_one, &n));
	ck_assert_uint_eq(n, 1);
	ck_assert_int_eq(pawl_run_one(e), 1);
	ck_assert_uint_eq(n, 2);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* After everything that was pushed before, and before all other ready ops. */
START_TEST(test_delete_order)
{
	int kind;

	for (kind = PAWL_PER_DEVICE; kind <= PAWL_POOLED; kind++) {
		struct pawl_engine *e = engine(kind, 0);
		struct record *r = calloc(1, sizeof(*r));
		struct note n[8];
		pawl_var_t v = var_new(e), w = var_new(e);
		struct pawl_op op;
		struct gate g;
		u32 i;

		for (i = 0; i < 8; i++)
			n[i] = (struct note){ r, i };
		gate_write(e, &g, v);
		OK(push_write(e, take_note, &n[0], v));
		OK(push_read(e, take_note, &n[1], v));
		OK(pawl_var_delete(e, v, take_note, &n[2]));
		op = op_write(take_note, &n[3], &w);
		op.priority = INT_MAX;
		OK(pawl_push(e, &op));
		op = op_of_fn(take_note, &n[4]);
		OK(pawl_push(e, &op));
		gate_open(&g);
		/* 0 becomes ready last, then 1, then the delete runs before the queued ops. */
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(r->n, 5);
		for (i = 0; i < 5 && r->id[i] != 2; i++)
			;
		ck_assert_uint_lt(i, 5);
		ck_assert_uint_eq(r->id[i - 1], 1);
		OK(pawl_engine_destroy(e));
		free(r);
	}
}
END_TEST

START_TEST(test_delete_before_ready_ops)
{
	int kind;

	for (kind = PAWL_PER_DEVICE; kind <= PAWL_POOLED; kind++) {
		struct pawl_engine *e = engine(kind, 0);
		struct record *r = calloc(1, sizeof(*r));
		pawl_var_t v = var_new(e);
		struct note n[12];
		struct gate g;
		u32 i;

		gate_read(e, &g, v);
		for (i = 0; i < 12; i++)
			n[i] = (struct note){ r, i };
		OK(pawl_var_delete(e, v, take_note, &n[0]));
		for (i = 1; i < 12; i++) {
			struct pawl_op op = op_of_fn(take_note, &n[i]);

			op.priority = i % 3 ? (s32)i : INT_MAX;
			OK(pawl_push(e, &op));
		}
		gate_open(&g);
		ck_assert_int_eq(pawl_run_one(e), 1);
		ck_assert_uint_eq(r->id[0], 0);
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(r->n, 12);
		OK(pawl_engine_destroy(e));
		free(r);
	}
}
END_TEST

START_TEST(test_delete_null_fn)
{
	int kind;

	for (kind = 0; kind < 3; kind++) {
		struct pawl_engine *e = engine(kind, 1);
		pawl_var_t v = var_new(e);

		OK(push_write(e, nothing, NULL, v));
		OK(pawl_var_delete(e, v, NULL, NULL));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_int_eq(push_write(e, nothing, NULL, v), -ESTALE);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

START_TEST(test_delete_twice)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	pawl_var_t v = var_new(e);
	struct gate g;
	u32 n = 0;

	gate_write(e, &g, v);
	OK(pawl_var_delete(e, v, add_one, &n));
	FAILS(pawl_var_delete(e, v, add_one, &n), -ESTALE);
	gate_open(&g);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	FAILS(pawl_var_delete(e, v, add_one, &n), -ESTALE);
	ck_assert_uint_eq(n, 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* The deleting write is counted too, just before the var goes. */
START_TEST(test_delete_is_a_version)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);

	OK(push_write(e, nothing, NULL, v));
	OK(pawl_wait_readable(e, v, SOON_NS, NULL));
	OK(pawl_var_delete(e, v, NULL, NULL));
	ck_assert_uint_eq(var_side_of(e, (u32)v.h)->version, 2);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* The body of a delete runs on a poisoned var too; its own error is not lost. */
START_TEST(test_delete_poisoned)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e);
	struct pawl_error err;
	u32 n = 0;

	OK(push_write(e, fail_io, NULL, v));
	OK(pawl_var_delete(e, v, add_one, &n));
	ck_assert_int_eq(pawl_wait_all(e, SOON_NS, &err), -EIO);
	ck_assert_uint_eq(n, 1);
	OK(pawl_var_delete(e, var_new(e), fail_io, TEXT("no delete")));
	ck_assert_int_eq(pawl_wait_all(e, SOON_NS, &err), -EIO);
	ck_assert_str_eq(err.text, "no delete");
	ck_assert_str_eq(err.op, "DeleteVariable");
	ck_assert_uint_eq(err.count, 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A body deletes the var that it writes: legal, takes effect behind it. */
static int delete_own(struct pawl_run *run, void *arg)
{
	pawl_var_t *v = arg;

	MUST(!pawl_var_delete(run->engine, *v, NULL, NULL));
	MUST(pawl_var_delete(run->engine, *v, NULL, NULL) == -ESTALE);
	return 0;
}

START_TEST(test_delete_inside_body)
{
	int kind;

	for (kind = 0; kind < 3; kind++) {
		struct pawl_engine *e = engine(kind, 1);
		pawl_var_t v = var_new(e);

		OK(push_write(e, delete_own, &v, v));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_int_eq(push_write(e, nothing, NULL, v), -ESTALE);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

/* Creating and deleting vars does not increase memory. */
START_TEST(test_reuse_without_growth)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct pawl_stats s0 = { 0 }, s;
	u64 n = 0;
	int i;

	for (i = 0; i < 100000; i++) {
		pawl_var_t v = var_new(e);

		OK(push_write(e, add_plain, &n, v));
		OK(pawl_var_delete(e, v, NULL, NULL));
		pawl_run_one(e);
		pawl_run_one(e);
		if (i == 1000)
			s0 = stats(e);
	}
	OK(pawl_wait_all(e, SOON_NS, NULL));
	s = stats(e);
	ck_assert_uint_eq(n, 100000);
	ck_assert_uint_eq(s.vars, s0.vars);
	ck_assert_uint_eq(s.ops, s0.ops);
	ck_assert_uint_eq(s.blocks, s0.blocks);
	ck_assert_uint_eq(s.bytes, s0.bytes);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* The same, created by one thread and deleted by another. */
struct hand {
	struct pawl_engine *e;
	u64 slot[64];	/* A */
	u32 rounds;
};

static void *creator(void *arg)
{
	struct hand *h = arg;
	u32 i;

	for (i = 0; i < h->rounds; i++) {
		while (load_acquire(&h->slot[i % 64]))
			nap_us(20);
		store_release(&h->slot[i % 64], var_new(h->e).h);
	}
	return NULL;
}

START_TEST(test_reuse_across_threads)
{
	struct hand h = { .e = engine(PAWL_PER_DEVICE, 1), .rounds = (u32)TIMES(30000) };
	pthread_t t = spawn(creator, &h);
	struct pawl_stats s;
	u32 i;

	for (i = 0; i < h.rounds; i++) {
		pawl_var_t v;

		while (!(v.h = load_acquire(&h.slot[i % 64])))
			nap_us(20);
		OK(push_write(h.e, nothing, NULL, v));
		OK(pawl_var_delete(h.e, v, NULL, NULL));
		store_release(&h.slot[i % 64], 0);
		if (i % 512 == 0)
			OK(pawl_wait_all(h.e, SOON_NS, NULL));
	}
	join(t);
	OK(pawl_wait_all(h.e, SOON_NS, NULL));
	s = stats(h.e);
	ck_assert_uint_lt(s.vars, 2000);
	ck_assert_uint_lt(s.blocks, 4000);
	OK(pawl_engine_destroy(h.e));
}
END_TEST

/*
 * Pushes that race with a delete.  All outcomes are legal: it ran; it was refused; it
 * kept its place and ended by release(-ESTALE).  But exactly one of them, and a refused
 * one never sees release.
 */
struct race {
	struct pawl_engine *e;
	pawl_var_t v[2], other;
	u32 go, turn;		/* A */
	u32 deleted[2];		/* A: bodies of deletes */
	u32 ran, refused, stale, released;	/* A */
	u32 late;		/* A: bodies that ran behind the delete */
	u32 bad;		/* A */
};

struct shot {
	struct race *r;
	u32 ran, released;	/* A */
	int status;
	bool two;
};

static int shot_body(struct pawl_run *run, void *arg)
{
	struct shot *s = arg;

	if (load_acquire(&s->r->deleted[0]) || (s->two && load_acquire(&s->r->deleted[1])))
		fetch_add_relaxed(&s->r->late, 1);
	fetch_add_relaxed(&s->ran, 1);
	return 0;
}

static void shot_release(void *arg, int status)
{
	struct shot *s = arg;

	s->status = status;
	fetch_add_acq_rel(&s->released, 1);
}

static int race_deleted(struct pawl_run *run, void *arg)
{
	MUST(fetch_add_acq_rel((u32 *)arg, 1) == 0);
	return 0;
}

#define SHOTS 24

struct racer {
	struct race *r;
	struct shot shot[SHOTS];
	u32 mode;
};

static void *racer(void *arg)
{
	struct racer *p = arg;
	struct race *r = p->r;
	u32 i;

	while (!load_acquire(&r->go))
		cpu_relax();
	for (i = 0; i < SHOTS; i++) {
		struct shot *s = &p->shot[i];
		pawl_var_t vars[3] = { r->v[0], r->other, r->v[1] };
		struct pawl_op op = op_of_fn(shot_body, s);
		bool write = i & 1;
		int rc;

		s->r = r;
		s->two = p->mode == 2;
		op.release = shot_release;
		if (write) {
			op.writes = vars;
			op.nwrites = p->mode + 1;
		} else {
			op.reads = vars;
			op.nreads = p->mode + 1;
		}
		rc = i % 5 == 4 ? pawl_push_batch(r->e, &op, 1) : pawl_push(r->e, &op);
		if (rc == -ESTALE)
			s->status = 1;
		else
			MUST(!rc);
	}
	return NULL;
}

START_TEST(test_push_races_with_delete)
{
	int round, rounds = TIMES(600), i, k;
	u32 ran = 0, refused = 0, stale = 0;
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 2);

	for (round = 0; round < rounds; round++) {
		struct race r = { .e = e };
		struct racer p[2];
		pthread_t t[2];

		memset(p, 0, sizeof(p));
		r.v[0] = var_new(e);
		r.v[1] = var_new(e);
		r.other = var_new(e);
		for (k = 0; k < 2; k++) {
			p[k].r = &r;
			p[k].mode = (u32)((round + k) % 3);
			t[k] = spawn(racer, &p[k]);
		}
		store_release(&r.go, 1);
		for (i = 0; i < round % 50; i++)
			cpu_relax();
		OK(pawl_var_delete(e, r.v[0], race_deleted, &r.deleted[0]));
		OK(pawl_var_delete(e, r.v[1], race_deleted, &r.deleted[1]));
		join(t[0]);
		join(t[1]);
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(r.deleted[0], 1);
		ck_assert_uint_eq(r.deleted[1], 1);
		ck_assert_uint_eq(r.late, 0);
		for (k = 0; k < 2; k++)
			for (i = 0; i < SHOTS; i++) {
				struct shot *s = &p[k].shot[i];

				if (s->ran) {
					ck_assert_uint_eq(s->ran, 1);
					ck_assert_uint_eq(s->released, 1);
					ck_assert_int_eq(s->status, 0);
					ran++;
				} else if (s->released) {
					ck_assert_uint_eq(s->released, 1);
					ck_assert_int_eq(s->status, -ESTALE);
					stale++;
				} else {
					ck_assert_int_eq(s->status, 1);
					refused++;
				}
			}
		OK(pawl_var_delete(e, r.other, NULL, NULL));
	}
	ck_assert_uint_eq(ran + refused + stale, (u32)rounds * 2 * SHOTS);
	ck_assert_uint_gt(refused, 0);
	OK(pawl_engine_destroy(e));
}
END_TEST

#if CAN_TRAP
static struct {
	struct pawl_engine *e;
	pawl_var_t v;
} deleter;

static void delete_now(void)
{
	MUST(!pawl_var_delete(deleter.e, deleter.v, NULL, NULL));
}

#define PLACES (SANITIZED ? 15 : 40)

/* The op was counted in the group, and has arrived in the queue, unless it was refused. */
static void arrived(struct pawl_engine *e, pawl_cq_t cq, pawl_group_t group, int rc, int status)
{
	struct pawl_completion c;
	uint64_t n;

	OK(pawl_group_count(e, group, &n, NULL));
	ck_assert_uint_eq(n, 0);
	ck_assert_int_eq(pawl_cq_reap(e, cq, &c, 1), !rc);
	ck_assert_int_eq(rc ? status : c.status, status);
}

/*
 * A var that an op names is deleted somewhere inside the push: the op runs, or it is refused or
 * released with -ESTALE, and its other vars are free for the next op.
 */
static void push_and_delete(u32 mode)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	u32 k, ran, run = 0, refused = 0, stale = 0;
	struct pawl_launch l = launch_init();
	pawl_graph_t g = { 0 };
	pawl_group_t group;
	pawl_cq_t cq;
	long at, all = 0;

	OK(pawl_cq_create(e, &cq));
	OK(pawl_group_create(e, NULL, &group));

	deleter.e = e;
	/* The first push creates the worker, with all signals blocked. */
	OK(push_write(e, add_one, &run, var_new(e)));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	run = 0;
	elsewhere_begin(delete_now);
	/* The first call counts the instructions. */
	for (k = 0; k <= PLACES; k++) {
		pawl_var_t v[2];
		struct race r = { .e = e };
		struct shot s = { .r = &r };
		struct pawl_op op = op_of_fn(shot_body, &s);
		int rc;

		v[mode & 1] = deleter.v = var_new(e);
		v[!(mode & 1)] = var_new(e);
		*(mode & 2 ? &op.writes : &op.reads) = v;
		*(mode & 2 ? &op.nwrites : &op.nreads) = mode & 16 ? 1 : 2;
		at = k ? all * (k - 1) / PLACES : LONG_MAX;
		if (mode & 8)
			g = graph_new(e, (struct pawl_op[]){ op, op_of_fn(nothing, NULL) },
				      1 + (mode >> 2 & 1));
		else
			op.release = shot_release;
		op.cq = l.cq = cq;
		op.group = l.group = group;
		l.flags = op.flags = k & 1 ? PAWL_OP_CQ | PAWL_OP_GROUP : 0;
		without_strays(&op);
		without_strays(&l);
		if (mode & 8)
			trap_after(at, rc = pawl_graph_push(e, g, &l));
		else if (mode & 4)
			trap_after(at, rc = pawl_push_batch(e, &op, 1));
		else
			trap_after(at, rc = pawl_push(e, &op));
		all = k ? all : trap.ran;
		ran = 0;
		OK(push_write(e, add_one, &ran, v[!(mode & 1)]));
		OK(pawl_wait_readable(e, v[!(mode & 1)], SOON_NS, NULL));
		ck_assert_uint_eq(ran, 1);
		OK(pawl_var_delete(e, v[!(mode & 1)], NULL, NULL));
		if (!trap.stops)
			OK(pawl_var_delete(e, deleter.v, NULL, NULL));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		MUST(!rc || (rc == -ESTALE && !s.ran && !s.released));
		if (mode & 8)
			OK(pawl_graph_delete(e, g));
		else
			MUST(rc || (s.released == 1 && s.status == (s.ran ? 0 : -ESTALE)));
		if (k & 1)
			arrived(e, cq, group, rc, s.ran ? 0 : -ESTALE);
		run += s.ran;
		refused += rc != 0;
		stale += !rc && !s.ran;
	}
	elsewhere_end();
	ck_assert(run && refused && !stale == !!(mode & 16));
	OK(pawl_engine_destroy(e));
}

/*
 * pawl_var_version() returns the version of that var, or -ESTALE, never that of the next var in
 * its slot.
 */
static struct {
	struct pawl_engine *e;
	pawl_var_t v, next;
} place;

static void place_changes(void)
{
	int i;

	/* It is ready, so it runs inside the push. */
	MUST(!pawl_var_delete(place.e, place.v, NULL, NULL));
	place.next = var_new(place.e);
	for (i = 0; i < 5; i++) {
		MUST(!push_write(place.e, nothing, NULL, place.next));
		MUST(pawl_run_one(place.e) == 1);
	}
}

START_TEST(test_version_of_a_var_that_is_deleted_meanwhile)
{
	uint64_t n;
	long k;
	int rc;

	place.e = engine(PAWL_PER_DEVICE, 0);
	trap_init(place_changes);
	for (k = 0; k == 0 || trap.stops; k += SANITIZED ? 7 : 1) {
		place.v = var_new(place.e);
		OK(push_write(place.e, nothing, NULL, place.v));
		ck_assert_int_eq(pawl_run_one(place.e), 1);
		trap_after(k, rc = pawl_var_version(place.e, place.v, &n));
		ck_assert(rc == -ESTALE || (!rc && n == 1));
		if (!trap.stops)
			break;
		ck_assert_uint_eq(var_index(place.next), var_index(place.v));
		OK(pawl_var_delete(place.e, place.next, NULL, NULL));
		OK(pawl_wait_all(place.e, SOON_NS, NULL));
	}
	OK(pawl_engine_destroy(place.e));
}
END_TEST
#endif

START_TEST(test_a_push_whose_var_is_deleted_meanwhile)
{
#if CAN_TRAP
	u32 mode;

	/* Each instruction is a signal, which costs much more with a sanitizer. */
	for (mode = 0; mode < 8; mode += BRIEF ? 3 : 1)
		push_and_delete(mode);
	if (SANITIZED)
		return;
	/* Launches, of one op and of two. */
	push_and_delete(8 | 2);
	push_and_delete(8 | 4 | 2 | 1);
	/* With no other var: a push that finds it deleted late is refused. */
	push_and_delete(16 | 2);
	push_and_delete(16 | 8 | 2);
#endif
}
END_TEST

/* Two threads delete the same var: one does. */
struct twins {
	struct pawl_engine *e;
	pawl_var_t v;
	u32 go, won, n;	/* A */
};

static void *twin(void *arg)
{
	struct twins *w = arg;
	int rc;

	while (!load_acquire(&w->go))
		cpu_relax();
	rc = pawl_var_delete(w->e, w->v, add_one, &w->n);
	MUST(rc == 0 || rc == -ESTALE);
	if (!rc)
		fetch_add_relaxed(&w->won, 1);
	return NULL;
}

START_TEST(test_delete_races_with_delete)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	int i, rounds = TIMES(400);

	for (i = 0; i < rounds; i++) {
		struct twins w = { .e = e, .v = var_new(e) };
		pthread_t a = spawn(twin, &w), b = spawn(twin, &w);

		store_release(&w.go, 1);
		join(a);
		join(b);
		OK(pawl_wait_all(e, SOON_NS, NULL));
		ck_assert_uint_eq(w.won, 1);
		ck_assert_uint_eq(w.n, 1);
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Queries during writes, deletes and errors: any legal answer, never garbage. */
struct watch {
	struct pawl_engine *e;
	u64 v;		/* A: handle */
	u32 stop;	/* A */
};

static void *watcher(void *arg)
{
	struct watch *w = arg;

	while (!load_acquire(&w->stop)) {
		pawl_var_t v = { load_acquire(&w->v) };
		struct pawl_error err;
		uint64_t n = 0;
		int rc = pawl_var_version(w->e, v, &n);

		MUST(rc == -ESTALE || (!rc && n <= 60));
		rc = pawl_var_error(w->e, v, &err);
		MUST(rc == 0 || rc == -ESTALE || rc == -EIO);
		if (rc == -EIO) {
			MUST(err.code == -EIO);
			MUST(!strcmp(err.text, "disk on fire"));
		}
		rc = pawl_wait_readable(w->e, v, 0, NULL);
		MUST(rc == 0 || rc == -ESTALE || rc == -EIO || rc == -ETIMEDOUT);
		if (n % 7 == 0)
			MUST(!pawl_var_clear(w->e, v) || true);
	}
	return NULL;
}

START_TEST(test_queries_race)
{
	struct watch w = { .e = engine(PAWL_PER_DEVICE, 1) };
	pthread_t t;
	int i, k, rounds = TIMES(1500);

	w.v = var_new(w.e).h;
	t = spawn(watcher, &w);
	for (i = 0; i < rounds; i++) {
		pawl_var_t v = var_new(w.e);

		store_release(&w.v, v.h);
		for (k = 0; k < 25; k++) {
			OK(push_write(w.e, k % 10 == 3 ? fail_io : nothing, NULL, v));
			OK(push_read(w.e, nothing, NULL, v));
		}
		OK(pawl_var_delete(w.e, v, NULL, NULL));
	}
	store_release(&w.stop, 1);
	join(t);
	pawl_wait_all(w.e, SOON_NS, NULL);
	OK(pawl_engine_destroy(w.e));
}
END_TEST

/*
 * The error of a var is queried while a write is in progress.  The memory of the version before
 * may belong to another var by now.
 */
START_TEST(test_error_is_of_this_var)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e), u[200];
	struct pawl_error err;
	struct gate g;
	int i;

	for (i = 0; i < 200; i++)
		u[i] = var_new(e);
	gate_write(e, &g, v);
	for (i = 0; i < 200; i++) {
		OK(push_write(e, fail_io, NULL, u[i]));
		ck_assert_int_eq(pawl_run_one(e), 1);
		ck_assert_int_eq(pawl_var_error(e, u[i], NULL), -EIO);
		ck_assert_int_eq(pawl_var_error(e, v, &err), 0);
		/* and to forget v's errors forgets no other var's */
		OK(pawl_var_clear(e, v));
		ck_assert_int_eq(pawl_var_error(e, u[i], NULL), -EIO);
	}
	gate_open(&g);
	ck_assert_int_eq(pawl_wait_all(e, SOON_NS, NULL), -EIO);
	OK(pawl_engine_destroy(e));
}
END_TEST

SUITE("delete", test_delete_inline_when_ready, test_delete_order, test_delete_before_ready_ops,
      test_delete_null_fn, test_delete_twice, test_delete_is_a_version, test_delete_poisoned,
      test_delete_inside_body, test_reuse_without_growth, test_reuse_across_threads,
      test_push_races_with_delete, test_a_push_whose_var_is_deleted_meanwhile,
      test_delete_races_with_delete, test_queries_race,
#if CAN_TRAP
      test_version_of_a_var_that_is_deleted_meanwhile,
#endif
      test_error_is_of_this_var)
