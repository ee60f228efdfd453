// SPDX-License-Identifier: Apache-2.0
/*
 * A wait in a body leaves ready ops to the workers that can run them, and takes them onto its
 * stack where no worker would.
 */
#include "util.h"
#include <core/thread.h>

/* A waits for an op that another worker runs, and B, which is ready meanwhile, for A's end. */
struct pair_of {
	pawl_var_t y;
	u32 a_in, a_done, stuck;	/* A */
};

static int slow(struct pawl_run *run, void *arg)
{
	struct pair_of *p = arg;

	MUST(soon(load_acquire(&p->a_in)));
	nap_us(50000);
	return 0;
}

static int waits_for_y(struct pawl_run *run, void *arg)
{
	struct pair_of *p = arg;

	store_release(&p->a_in, 1);
	MUST(!pawl_wait_readable(run->engine, p->y, SOON_NS, NULL));
	store_release(&p->a_done, 1);
	return 0;
}

static int until_a_has_ended(struct pawl_run *run, void *arg)
{
	struct pair_of *p = arg;

	MUST(soon(load_acquire(&p->a_done)));
	return 0;
}

START_TEST(test_a_wait_in_a_body_leaves_ops_to_idle_workers)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 6);
	struct pair_of p = { .a_in = 0 };
	struct pawl_engine *e;
	int i;

	c.start_workers = true;
	e = engine_with(&c);
	p.y = var_new(e);
	OK(push_write(e, slow, &p, p.y));
	OK(push_write(e, waits_for_y, &p, var_new(e)));
	MUST(soon(load_acquire(&p.a_in)));
	for (i = 0; i < 3; i++)
		OK(push_write(e, until_a_has_ended, &p, var_new(e)));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* The system runs one of two workers only after A has ended: what A must not take waits for A. */
static void starts_late(void *user, const char *name)
{
	struct pair_of *p = user;

	if (!strcmp(strrchr(name, '-'), "-1"))
		MUST(soon(load_acquire(&p->a_done)));
}

START_TEST(test_a_wait_in_a_body_leaves_ops_to_workers_without_a_cpu)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 2);
	struct pair_of p = { .a_in = 0 };
	struct pawl_engine *e;
	struct gate g;

	c.thread_start = starts_late;
	c.user = &p;
	e = engine_with(&c);
	p.y = var_new(e);
	gate_write(e, &g, p.y);
	OK(push_write(e, waits_for_y, &p, var_new(e)));
	ck_assert(soon(load_acquire(&p.a_in)));
	OK(push_write(e, until_a_has_ended, &p, var_new(e)));
	nap_us(20000);	/* for a wait that takes it after a while */
	gate_open(&g);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

/* Engines with one worker each, whose bodies wait for each other. */
struct turns {
	struct pawl_engine *e[2];
	u32 most, ran;
	s64 limit;
};

static int waits_in_turns(struct pawl_run *run, void *arg)
{
	struct turns *s = arg;
	struct pawl_op op = op_of_fn(waits_in_turns, s);
	struct pawl_engine *e;
	pawl_ticket_t ticket;

	if (++s->ran == s->most)
		return 0;
	e = s->e[s->ran % 2];
	op.flags = PAWL_OP_TICKET;
	op.ticket = &ticket;
	MUST(!pawl_push(e, &op));
	return pawl_ticket_wait(e, ticket, s->limit);
}

START_TEST(test_engines_whose_bodies_wait_for_each_other_go_on)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	struct turns s;
	int i;

	for (i = 0; i < 4; i++) {
		memset(&s, 0, sizeof(s));
		s.most = 10;
		s.limit = i % 2 ? -1 : SOON_NS;
		s.e[0] = engine_with(&c);
		s.e[1] = i / 2 ? s.e[0] : engine_with(&c);
		OK(push_write(s.e[0], waits_in_turns, &s, var_new(s.e[0])));
		OK(pawl_wait(s.e[0], PAWL_WAIT_ALL | PAWL_WAIT_NO_HELP, 0, SOON_NS, NULL));
		ck_assert_uint_eq(s.ran, 10);
		OK(pawl_engine_destroy(s.e[0]));
		if (s.e[1] != s.e[0])
			OK(pawl_engine_destroy(s.e[1]));
	}
}
END_TEST

/* All other workers run bodies that end only when this one has: it takes the op after a while. */
struct last {
	pawl_var_t v;
	u32 n, others, done;	/* A */
};

static int blocks(struct pawl_run *run, void *arg)
{
	struct last *l = arg;

	fetch_add_relaxed(&l->others, 1);
	MUST(soon(load_acquire(&l->done)));
	return 0;
}

static int pushes_and_waits(struct pawl_run *run, void *arg)
{
	struct last *l = arg;

	MUST(soon(load_acquire(&l->others) == 2));
	/* Not next in its ring. */
	MUST(!push_write(run->engine, nothing, NULL, l->v));
	MUST(!push_write(run->engine, add_one, &l->n, l->v));
	MUST(!pawl_wait_readable(run->engine, l->v, SOON_NS, NULL));
	store_release(&l->done, 1);
	return 0;
}

START_TEST(test_a_wait_in_a_body_takes_what_no_worker_touches)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 3);
	struct last l = { .n = 0 };
	struct pawl_engine *e;

	e = engine_with(&c);
	l.v = var_new(e);
	OK(push_write(e, blocks, &l, var_new(e)));
	OK(push_write(e, blocks, &l, var_new(e)));
	OK(push_write(e, pushes_and_waits, &l, var_new(e)));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(l.n, 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* A queue without workers: no other thread would run its op. */
static int waits_for_queue(struct pawl_run *run, void *arg)
{
	struct last *l = arg;
	struct pawl_op op = op_write(add_one, &l->n, &l->v);

	op.prop = l->others;
	MUST(!pawl_push(run->engine, &op));
	MUST(!pawl_wait_readable(run->engine, l->v, SOON_NS, NULL));
	store_release(&l->done, 1);
	return 0;
}

START_TEST(test_a_wait_in_a_body_serves_queues_without_workers)
{
	static const u16 props[] = { PAWL_CPU_PRIORITIZED, PAWL_COPY_TO_DEVICE,
				     PAWL_COPY_FROM_DEVICE };
	struct pawl_config c = small(PAWL_PER_DEVICE, 2);
	u32 i;

	c.priority_workers = c.copy_workers = 0;
	for (i = 0; i < COUNT(props); i++) {
		struct pawl_engine *e = engine_with(&c);
		struct last l = { .others = props[i] };

		l.v = var_new(e);
		OK(push_write(e, waits_for_queue, &l, var_new(e)));
		ck_assert(soon(load_acquire(&l.done)));
		ck_assert_uint_eq(l.n, 1);
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

/* With the flag it takes none, though it is the only worker. */
static int takes_nothing(struct pawl_run *run, void *arg)
{
	struct last *l = arg;

	MUST(!push_write(run->engine, add_one, &l->n, l->v));
	MUST(pawl_wait(run->engine, PAWL_WAIT_READABLE | PAWL_WAIT_NO_HELP, l->v.h, 5000000, NULL) ==
	     -ETIMEDOUT);
	MUST(!load_relaxed(&l->n));
	return 0;
}

START_TEST(test_a_wait_in_a_body_takes_nothing_with_no_help)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	struct last l = { .n = 0 };

	l.v = var_new(e);
	OK(push_write(e, takes_nothing, &l, var_new(e)));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(l.n, 1);
	OK(pawl_engine_destroy(e));
}
END_TEST

/*
 * Below waits for a var, and takes onto its stack Above, which ends what Below waits for, pushes a
 * write behind the position of Below, and waits for that one.
 */
struct stacked {
	struct gate g;
	pawl_var_t v;
	u32 n;
	const struct stacked_row {
		unsigned int below, above;	/* what they wait for */
		int rc;				/* of Below: the error of the gate */
	} *row;
};

static int above(struct pawl_run *run, void *arg)
{
	struct stacked *s = arg;
	struct pawl_op op = PAWL_OP_INIT;
	pawl_ticket_t ticket;

	MUST(!pawl_complete(run->engine, s->g.token, s->row->rc, NULL));
	op.fn = add_one;
	op.arg = &s->n;
	op.writes = &s->v;
	op.nwrites = 1;
	op.flags = PAWL_OP_TICKET;
	op.ticket = &ticket;
	MUST(!pawl_push(run->engine, &op));
	MUST(!pawl_wait(run->engine, s->row->above,
			s->row->above == PAWL_WAIT_TICKET ? ticket.h : s->v.h, SOON_NS, NULL));
	MUST(s->n == 1);
	return 0;
}

static int below(struct pawl_run *run, void *arg)
{
	struct stacked *s = arg;
	struct pawl_error err;
	int rc = pawl_wait(run->engine, s->row->below, s->v.h, SOON_NS, &err);

	MUST(rc == s->row->rc && err.code == rc);
	MUST(!rc || !strcmp(pawl_error_text(), "an op failed: Input/output error"));
	return 0;
}

START_TEST(test_a_wait_holds_up_no_wait_above_it_on_the_stack)
{
	static const struct stacked_row rows[] = {
		{ PAWL_WAIT_READABLE, PAWL_WAIT_READABLE, 0 },
		{ PAWL_WAIT_WRITABLE, PAWL_WAIT_WRITABLE, -EIO },
		{ PAWL_WAIT_READABLE, PAWL_WAIT_TICKET, -EIO },
		{ PAWL_WAIT_WRITABLE | PAWL_WAIT_INTR, PAWL_WAIT_TICKET, 0 },
	};
	u32 i;

	for (i = 0; i < 2 * COUNT(rows); i++) {
		struct pawl_engine *e = engine(PAWL_PER_DEVICE, i & 1);
		struct stacked s = { .row = &rows[i / 2] };

		s.v = var_new(e);
		gate_write(e, &s.g, s.v);
		OK(push_write(e, below, &s, var_new(e)));
		OK(push_write(e, above, &s, var_new(e)));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		OK(pawl_engine_destroy(e));
	}
}
END_TEST

SUITE("body_waits", test_a_wait_holds_up_no_wait_above_it_on_the_stack, test_a_wait_in_a_body_leaves_ops_to_idle_workers,
      test_a_wait_in_a_body_leaves_ops_to_workers_without_a_cpu,
      test_engines_whose_bodies_wait_for_each_other_go_on,
      test_a_wait_in_a_body_takes_what_no_worker_touches,
      test_a_wait_in_a_body_serves_queues_without_workers,
      test_a_wait_in_a_body_takes_nothing_with_no_help)
