// SPDX-License-Identifier: Apache-2.0
/*
 * Priorities are exact in every queue, and equal priorities of one producer are FIFO.  A gate
 * holds the only worker until everything is ready, so the order in which ops run is
 * determined.
 */
#include "util.h"

#define N 2000

static const int queue_props[] = { PAWL_NORMAL, PAWL_CPU_PRIORITIZED, PAWL_COPY_TO_DEVICE,
				   PAWL_COPY_FROM_DEVICE };

struct job {
	struct note note;
	s32 prio;
};

static int job_cmp(const void *a, const void *b)
{
	const struct job *x = a, *y = b;

	if (x->prio != y->prio)
		return x->prio > y->prio ? -1 : 1;
	return x->note.id < y->note.id ? -1 : 1;
}

static s32 some_prio(u64 *seed, int spread)
{
	static const s32 edges[] = { INT_MIN, INT_MIN + 1, -1, 0, 1, INT_MAX - 1, INT_MAX };

	switch (spread) {
	case 0:		/* any */
		return (s32)rnd(seed);
	case 1:		/* few: many equals */
		return (s32)(rnd(seed) % 7) - 3;
	case 2:		/* the edges */
		return edges[rnd(seed) % ARRAY_SIZE(edges)];
	case 3:		/* around what a table of levels might hold */
		return (s32)(rnd(seed) % 5000) - 2500;
	default:	/* mostly 0 */
		return rnd(seed) % 4 ? 0 : (s32)(rnd(seed) % 3) - 1;
	}
}

static void check_order(struct record *r, struct job *jobs, u32 n, const char *what)
{
	u32 i;

	qsort(jobs, n, sizeof(*jobs), job_cmp);
	ck_assert_uint_eq(r->n, n);
	for (i = 0; i < n; i++)
		ck_assert_msg(r->id[i] == jobs[i].note.id,
			      "%s: at %u ran op %u, expected op %u (priority %d)", what, i, r->id[i],
			      jobs[i].note.id, jobs[i].prio);
}

/* All ready at the push, in each of the four queues, in each distribution. */
START_TEST(test_exact)
{
	size_t q;
	int spread, by;

	for (q = 0; q < ARRAY_SIZE(queue_props); q++)
		for (spread = 0; spread < 5; spread++)
			for (by = 0; by < 2; by++) {
				struct pawl_config c = small(PAWL_PER_DEVICE, by);
				struct record *r = calloc(1, sizeof(*r));
				struct job *jobs = calloc(N, sizeof(*jobs));
				u64 seed = 10 * q + (u64)spread;
				struct pawl_engine *e;
				struct plug p;
				u32 i;

				/* by 0: the host drives; by 1: one worker does */
				/* No push runs any. */
				c.window_policy = PAWL_WINDOW_BLOCK;
				e = engine_with(&c);
				if (by)
					plug_in(e, &p, queue_props[q]);
				for (i = 0; i < N; i++) {
					struct pawl_op op = op_of_fn(take_note, &jobs[i].note);

					jobs[i].note = (struct note){ r, i };
					jobs[i].prio = some_prio(&seed, spread);
					op.priority = jobs[i].prio;
					op.prop = (u16)queue_props[q];
					OK(pawl_push(e, &op));
				}
				if (by)
					plug_out(&p);
				OK(pawl_wait_all(e, SOON_NS, NULL));
				/* the bodies have ended, so sorting may move the notes */
				check_order(r, jobs, N, "exact");
				OK(pawl_engine_destroy(e));
				free(jobs);
				free(r);
			}
}
END_TEST

/* Pushes between runs: the next op is always the best one in the queue. */
START_TEST(test_exact_while_running)
{
	size_t q;

	for (q = 0; q < ARRAY_SIZE(queue_props); q++) {
		struct pawl_config c = small(PAWL_PER_DEVICE, 0);
		struct pawl_engine *e;
		struct record *r = calloc(1, sizeof(*r));
		struct job *jobs = calloc(N, sizeof(*jobs));
		bool *over = calloc(N, 1);
		u64 seed = 42 + q;
		u32 pushed = 0, ran = 0;

		/* A push runs nothing by itself. */
		c.window_policy = PAWL_WINDOW_FAIL;
		e = engine_with(&c);
		while (ran < N) {
			u32 k, best = N, n = pushed < N ? (u32)(rnd(&seed) % 4) : 0;

			for (; n && pushed < N; n--, pushed++) {
				struct pawl_op op = op_of_fn(take_note, &jobs[pushed].note);

				jobs[pushed].note = (struct note){ r, pushed };
				jobs[pushed].prio = some_prio(&seed, (int)(rnd(&seed) % 5));
				op.priority = jobs[pushed].prio;
				op.prop = (u16)queue_props[q];
				OK(pawl_push(e, &op));
			}
			for (k = 0; k < pushed; k++)
				if (!over[k] && (best == N || jobs[k].prio > jobs[best].prio))
					best = k;
			if (best == N) {
				ck_assert_int_eq(pawl_run_one(e), 0);
				continue;
			}
			ck_assert_int_eq(pawl_run_one(e), 1);
			ck_assert_uint_eq(r->id[ran], best);
			over[best] = true;
			ran++;
		}
		OK(pawl_engine_destroy(e));
		free(over);
		free(jobs);
		free(r);
	}
}
END_TEST

/* Made ready by one completion: readers of one var, all at once. */
START_TEST(test_released_together)
{
	int spread, by;

	for (spread = 0; spread < 5; spread++)
		for (by = 0; by < 3; by++) {
			struct pawl_config c = small(PAWL_PER_DEVICE, by ? 1 : 0);
			struct record *r = calloc(1, sizeof(*r));
			struct job *jobs = calloc(500, sizeof(*jobs));
			u64 seed = 5 + (u64)spread;
			struct pawl_engine *e;
			pawl_var_t v;
			struct plug p, door;
			struct gate g;
			u32 i;

			e = engine_with(&c);
			v = var_new(e);
			/*
			 * by 0: completed on the host, the host drives; 1: completed by the
			 * worker that goes on to run them; 2: completed on the host, a worker
			 * runs them.
			 */
			if (by == 1) {
				struct pawl_op op = op_write(plug_body, &door, &v);

				memset(&door, 0, sizeof(door));
				OK(pawl_push(e, &op));
				MUST(soon(load_acquire(&door.in)));
			} else {
				gate_write(e, &g, v);
			}
			if (by == 2)
				plug_in(e, &p, PAWL_NORMAL);
			for (i = 0; i < 500; i++) {
				struct pawl_op op = op_read(take_note, &jobs[i].note, &v);

				jobs[i].note = (struct note){ r, i };
				jobs[i].prio = some_prio(&seed, spread);
				op.priority = jobs[i].prio;
				OK(pawl_push(e, &op));
			}
			if (by == 1)
				plug_out(&door);
			else
				gate_open(&g);
			if (by == 2)
				plug_out(&p);
			while (!by && pawl_run_one(e))
				;
			OK(pawl_wait_all(e, SOON_NS, NULL));
			check_order(r, jobs, 500, by == 0 ? "host" : by == 1 ? "worker" : "both");
			OK(pawl_engine_destroy(e));
			free(jobs);
			free(r);
		}
}
END_TEST

/* The smallest case of it: equals keep their order although a higher one comes between. */
START_TEST(test_equals_keep_order)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	struct record *r = calloc(1, sizeof(*r));
	struct note n[3] = { { r, 0 }, { r, 1 }, { r, 2 } };
	const s32 prio[3] = { 0, 0, 5 };
	struct pawl_engine *e;
	struct plug door = { 0 };
	struct pawl_op op;
	pawl_var_t v;
	int i;

	e = engine_with(&c);
	v = var_new(e);
	op = op_write(plug_body, &door, &v);
	OK(pawl_push(e, &op));
	MUST(soon(load_acquire(&door.in)));
	for (i = 0; i < 3; i++) {
		op = op_read(take_note, &n[i], &v);
		op.priority = prio[i];
		OK(pawl_push(e, &op));
	}
	plug_out(&door);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(r->id[0], 2);
	ck_assert_uint_eq(r->id[1], 0);
	ck_assert_uint_eq(r->id[2], 1);
	OK(pawl_engine_destroy(e));
	free(r);
}
END_TEST

/* Ops that a thread makes ready run before those that others pushed, which keep their order. */
START_TEST(test_fifo_of_ready_ops)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	struct record *r = calloc(1, sizeof(*r));
	struct note n[6];
	struct pawl_engine *e;
	struct plug p;
	pawl_var_t v;
	u32 i;

	e = engine_with(&c);
	v = var_new(e);
	plug_in(e, &p, PAWL_NORMAL);
	for (i = 0; i < 6; i++)
		n[i] = (struct note){ r, i };
	OK(push_write(e, take_note, &n[0], v));		/* ready */
	OK(push_write(e, take_note, &n[5], v));		/* ready when 0 is complete */
	for (i = 1; i < 5; i++)
		OK(push_write(e, take_note, &n[i], var_new(e)));	/* ready */
	plug_out(&p);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(r->id[0], 0);
	ck_assert_uint_eq(r->id[1], 5);
	for (i = 1; i < 5; i++)
		ck_assert_uint_eq(r->id[i + 1], i);
	OK(pawl_engine_destroy(e));
	free(r);
}
END_TEST

/* One thread makes all ready: against a model of the queue: ready time is the order. */
START_TEST(test_fifo_model)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct record *r = calloc(1, sizeof(*r));
	struct note *n = calloc(N, sizeof(*n));
	u32 *fifo = calloc(2 * N, sizeof(*fifo)), head = 0, tail = 0;
	u32 chain[8][N], clen[8] = { 0 }, cpos[8] = { 0 }, ran = 0, i;
	u8 *of = calloc(N, 1);
	pawl_var_t v[8];
	u64 seed = 2;

	for (i = 0; i < 8; i++)
		v[i] = var_new(e);
	for (i = 0; i <= N; i++) {
		u32 k = (u32)(rnd(&seed) % 8);

		if (i < N) {
			n[i] = (struct note){ r, i };
			of[i] = (u8)k;
			OK(push_write(e, take_note, &n[i], v[k]));
			chain[k][clen[k]++] = i;
			if (clen[k] == cpos[k] + 1)
				fifo[tail++] = i;	/* ready at the push */
		}
		/* After the last push: all remaining ops. */
		while (head < tail && (i == N || rnd(&seed) % 2)) {
			u32 x = fifo[head++], c = of[x];

			ck_assert_int_eq(pawl_run_one(e), 1);
			ck_assert_uint_eq(r->id[ran], x);
			ran++;
			cpos[c]++;
			if (cpos[c] < clen[c])
				fifo[tail++] = chain[c][cpos[c]];
		}
	}
	ck_assert_uint_eq(ran, N);
	OK(pawl_engine_destroy(e));
	free(of);
	free(fifo);
	free(n);
	free(r);
}
END_TEST

/* Priority does not overtake on a var. */
START_TEST(test_var_order_wins)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct record *r = calloc(1, sizeof(*r));
	pawl_var_t v = var_new(e);
	struct note n[50];
	u32 i;

	for (i = 0; i < 50; i++) {
		struct pawl_op op = op_write(take_note, &n[i], &v);

		n[i] = (struct note){ r, i };
		op.priority = (s32)i * 1000;
		OK(pawl_push(e, &op));
	}
	OK(pawl_wait_all(e, SOON_NS, NULL));
	for (i = 0; i < 50; i++)
		ck_assert_uint_eq(r->id[i], i);
	OK(pawl_engine_destroy(e));
	free(r);
}
END_TEST

/* As many as max_ops, though each thread keeps a few pieces of the queue's memory for itself. */
struct staying {
	struct pawl_engine *e;
	u32 pushed, leave;	/* A */
	u32 ran;
};

static void *pushes_and_stays(void *arg)
{
	struct staying *s = arg;
	struct pawl_op op = op_of_fn(add_one, &s->ran);

	op.priority = 1;
	MUST(!pawl_push(s->e, &op));
	fetch_add_release(&s->pushed, 1);
	while (!load_acquire(&s->leave))
		sched_yield();
	return NULL;
}

START_TEST(test_many_threads_push_with_a_priority)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct staying s = { 0 };
	pthread_t t[60];
	u32 i;

	c.max_ops = 64;
	c.max_threads = COUNT(t) + 4;
	s.e = engine_with(&c);
	for (i = 0; i < COUNT(t); i++) {
		t[i] = spawn(pushes_and_stays, &s);
		ck_assert(soon(load_acquire(&s.pushed) == i + 1));
	}
	OK(pawl_wait_all(s.e, SOON_NS, NULL));
	ck_assert_uint_eq(s.ran, COUNT(t));
	store_release(&s.leave, 1);
	for (i = 0; i < COUNT(t); i++)
		join(t[i]);
	OK(pawl_engine_destroy(s.e));
}
END_TEST

SUITE("priority", test_exact, test_exact_while_running, test_released_together,
      test_equals_keep_order, test_fifo_of_ready_ops, test_fifo_model, test_var_order_wins,
      test_many_threads_push_with_a_priority)
