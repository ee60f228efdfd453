/* SPDX-License-Identifier: Apache-2.0 */
/* exec/leave.c: short work is left to others while they are fast, and only so long. */
#include "exec_fixture.h"
#include "suite.h"

struct rig {
	struct fix f;
	struct exec_queue *q;
	struct exec_thread *maker, *worker;
	u32 work;
	u64 now;		/* the time, for the rules */
};

#define LEAVE	1000u

static void rig_init(struct rig *r)
{
	fix_init(&r->f, NULL);
	r->q = fix_queue(&r->f, "q", 0, true);
	r->maker = fix_thread(&r->f);
	r->worker = fix_thread(&r->f);
	r->worker->queue = r->q;
	r->worker->avg = 10;
	r->f.x->leave = LEAVE;
	r->f.x->leave_most = 3;
	r->work = 0;
	r->now = 1000000;
}

static void rig_fini(struct rig *r)
{
	r->worker->queue = NULL;
	fix_fini(&r->f);
}

static void push(struct rig *r, u32 n)
{
	while (n--)
		exec_push(r->q, r->maker, ++r->work, 0, 0);
}

static void take(struct rig *r, u32 n)
{
	while (n--)
		MUST(exec_take(r->f.x, r->maker));
}

/* The worker looks again, `after` later. */
static bool leaves(struct rig *r, u64 after)
{
	r->now += after;
	return worker_leaves(r->q, r->worker, r->now);
}

/* It takes part for so many times LEAVE before it tries again. */
static u32 rests(struct rig *r)
{
	u32 n;

	for (n = 1; n < 1000; n++)
		if (leaves(r, LEAVE))
			break;
	return n;
}

START_TEST(test_rules)
{
	struct rig r;
	u32 i;

	rig_init(&r);
	MUST(!leaves(&r, LEAVE));	/* nothing is there */
	push(&r, 20);

	/* others are fast: it stays away, for as long as they are */
	MUST(leaves(&r, LEAVE));
	for (i = 0; i < 50; i++) {
		push(&r, 3);
		take(&r, 3);
		MUST(leaves(&r, LEAVE));
		ck_assert_uint_eq(r.worker->left, r.now + LEAVE);
	}
	/* nobody does anything: it takes part at once */
	MUST(!leaves(&r, LEAVE));
	MUST(!leaves(&r, LEAVE / 2));

	/* it tries again; they take too little: four looks */
	ck_assert_uint_eq(rests(&r), 1);
	for (i = 0; i < 3; i++) {
		take(&r, 1);
		MUST(leaves(&r, LEAVE));
	}
	take(&r, 1);
	MUST(!leaves(&r, LEAVE));

	/* more is pushed, and nobody takes: four looks */
	ck_assert_uint_eq(rests(&r), 2);
	for (i = 0; i < 3; i++) {
		push(&r, 10);
		MUST(leaves(&r, LEAVE));
	}
	push(&r, 10);
	MUST(!leaves(&r, LEAVE));

	/* a slow spell is forgotten as soon as they are fast again */
	ck_assert_uint_eq(rests(&r), 4);
	for (i = 0; i < 20; i++) {
		take(&r, i % 2 ? 3 : 0);
		push(&r, 3);
		MUST(leaves(&r, LEAVE));
	}
	ck_assert_uint_eq(r.worker->leave_rest, 0);
	/* fast is by the time, and what was long ago does not count */
	take(&r, 5);
	MUST(leaves(&r, LEAVE * 5 / 3));
	ck_assert_uint_eq(r.worker->leave_slow, 0);
	take(&r, 4);
	MUST(leaves(&r, LEAVE * 5 / 3));
	ck_assert_uint_eq(r.worker->leave_slow, 1);
	take(&r, 4);
	MUST(!leaves(&r, LEAVE * 2));
	rig_fini(&r);
}
END_TEST

/* Rings that are empty for a moment: it looks for work, and goes on leaving afterwards. */
START_TEST(test_empty)
{
	struct rig r;

	rig_init(&r);
	push(&r, 3);
	MUST(leaves(&r, LEAVE));
	take(&r, 3);
	MUST(!leaves(&r, LEAVE / 4));
	push(&r, 1);
	MUST(leaves(&r, LEAVE / 4));
	ck_assert_uint_eq(r.worker->left, r.now + LEAVE / 2);
	MUST(leaves(&r, LEAVE / 2));
	MUST(!leaves(&r, LEAVE));
	rig_fini(&r);
}
END_TEST

/* Each time that it was for nothing it waits longer before the next, up to a limit. */
START_TEST(test_rest)
{
	struct rig r;
	u32 i;

	rig_init(&r);
	push(&r, 100);
	MUST(leaves(&r, LEAVE));
	for (i = 0; i < 10; i++) {
		MUST(!leaves(&r, LEAVE));
		ck_assert_uint_eq(rests(&r), i < 6 ? 1u << i : 64);
	}
	take(&r, 3);
	MUST(leaves(&r, LEAVE));
	MUST(!leaves(&r, LEAVE));
	ck_assert_uint_eq(rests(&r), 1);
	rig_fini(&r);
}
END_TEST

/* Not what runs long or for how long is not known, and not beside a priority. */
START_TEST(test_not)
{
	struct rig r;

	rig_init(&r);
	push(&r, 10);
	r.worker->avg = 0;
	MUST(!leaves(&r, LEAVE));
	r.worker->avg = (u32)r.f.x->leave_avg + 1;
	MUST(!leaves(&r, LEAVE));
	r.worker->avg = 10;
	exec_push(r.q, r.maker, ++r.work, 5, 0);
	MUST(!leaves(&r, LEAVE));
	ck_assert_uint_eq(queue_take(r.q, r.worker, LOOK_DEEP | LOOK_LEAVE), r.work);
	/* what looks for itself does not ask, nor does the last look before sleep */
	ck_assert_uint_eq(queue_take(r.q, r.worker, LOOK_DEEP | LOOK_LEAVE), 0);
	MUST(r.worker->left);
	/* a priority is seen all the same, and so is one below 0 */
	r.f.x->leave = UINT64_MAX / 2;
	r.worker->left = cycles() + (1ull << 60);
	MUST(!thread_hint(r.f.x, r.worker, LOOK_LEAVE));
	exec_push(r.q, r.maker, ++r.work, -5, 0);
	MUST(thread_hint(r.f.x, r.worker, LOOK_LEAVE));
	ck_assert_uint_eq(queue_take(r.q, r.worker, LOOK_DEEP | LOOK_LEAVE), 1);
	ck_assert_uint_eq(queue_take(r.q, r.worker, LOOK_DEEP), 2);
	rig_fini(&r);
}
END_TEST

struct burst {
	struct exec_thread *t;
	u32 left;		/* A: below 0, counts up */
};

static void count_one(struct fix *f, struct exec_thread *t, u32 work)
{
	struct burst *b = f->user;

	if (fetch_add_relaxed(&b->left, 1) == -1u)
		exec_unpark(f->x, b->t);
}

static bool all_counted(void *arg)
{
	return load_relaxed(&((struct burst *)arg)->left) == 0;
}

/* Workers that leave work, beside a thread that waits or only pushes: all of it runs. */
START_TEST(test_runs)
{
	static const u64 leave[] = { 1, 5000, 30000, 1000000 };
	struct fix_opt o = { .spin_ns = _i & 4 ? 2000 : 200000, .leave_ns = leave[_i & 3] };
	u32 i, k, n = 0, rounds = SANITIZED ? 200 : 1000;
	struct burst b = { .left = 0 };
	struct exec_queue *q;
	struct fix f;

	watchdog(100);
	fix_init(&f, &o);
	f.run = count_one;
	f.user = &b;
	q = fix_queue(&f, "q", 2, true);
	b.t = fix_thread(&f);
	MUST(!exec_start(f.x));
	for (i = 0; i < rounds; i++) {
		u32 burst = 1 + i * 7 % 300;

		store_relaxed(&b.left, -burst);
		for (k = 0; k < burst; k++)
			exec_push(q, b.t, n++ % 1000 + 1, 0, 0);
		if (i % 3)
			MUST(!exec_wait(f.x, b.t, all_counted, &b, -1, EXEC_HELP));
		else
			until(&b.left, 0);
	}
	fix_fini(&f);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("exec/leave");
	TCase *tc = tcase_create("leave");

	tcase_set_timeout(tc, 110);
	tcase_add_test(tc, test_rules);
	tcase_add_test(tc, test_empty);
	tcase_add_test(tc, test_rest);
	tcase_add_test(tc, test_not);
	tcase_add_loop_test(tc, test_runs, 0, 8);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
