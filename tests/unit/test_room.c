// SPDX-License-Identifier: Apache-2.0
/*
 * What takes room in the window, and until when: ops until a thread can know that they are
 * complete, completions until they are reaped, and nothing else.
 */
#include "util.h"
#include <core/wait.h>

#define WINDOW	4

static struct pawl_engine *engine_of(int policy, int workers, u32 window)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, workers);

	c.window = window;
	c.window_policy = policy;
	return engine_with(&c);
}

static pawl_cq_t cq_new(struct pawl_engine *e)
{
	pawl_cq_t q;

	MUST(!pawl_cq_create(e, &q));
	return q;
}

/* An asynchronous op that the test completes. */
static u64 held(struct pawl_engine *e, const pawl_var_t *v, u32 n)
{
	struct pawl_op op = PAWL_OP_INIT;
	static u64 token;

	op.async_fn = keep_token;
	op.arg = &token;
	op.prop = PAWL_ASYNC;
	op.writes = v;
	op.nwrites = n;
	MUST(!pawl_push(e, &op));
	return load_acquire(&token);
}

enum know { READABLE, TICKET, GROUP, ALL, REAP, KINDS };

/* A thread that learns in any way that its op is complete may push the next one. */
START_TEST(test_what_is_known_to_be_complete_takes_no_room)
{
	u32 kind, window, i, k;

	for (kind = 0; kind < KINDS; kind++) {
		for (window = 1; window <= WINDOW; window += WINDOW - 1) {
			struct pawl_engine *e = engine_of(PAWL_WINDOW_FAIL, 1, window);
			pawl_var_t v[WINDOW];
			pawl_ticket_t ticket[WINDOW];
			struct pawl_completion c[WINDOW];
			struct pawl_op op = op_of_fn(nothing, NULL);

			for (k = 0; k < window; k++)
				v[k] = var_new(e);
			if (kind == REAP)
				op.cq = cq_new(e);
			if (kind == GROUP)
				OK(pawl_group_create(e, NULL, &op.group));
			op.nwrites = 1;
			op.flags = kind == TICKET ? PAWL_OP_TICKET : kind == GROUP ? PAWL_OP_GROUP :
				   kind == REAP ? PAWL_OP_CQ : 0;
			for (i = 0; i < (u32)TIMES(2000); i++) {
				for (k = 0; k < window; k++) {
					op.writes = &v[k];
					op.ticket = kind == TICKET ? &ticket[k] : NULL;
					OK(pawl_push(e, &op));
				}
				for (k = 0; k < window; k++) {
					if (kind == READABLE)
						OK(pawl_wait_readable(e, v[k], SOON_NS, NULL));
					else if (kind == TICKET)
						OK(pawl_ticket_wait(e, ticket[k], SOON_NS));
				}
				if (kind == GROUP)
					OK(pawl_group_wait(e, op.group, SOON_NS));
				else if (kind == ALL)
					OK(pawl_wait_all(e, SOON_NS, NULL));
				for (k = 0; k < window && kind == REAP;) {
					OK(pawl_cq_wait(e, op.cq, SOON_NS));
					k += (u32)pawl_cq_reap(e, op.cq, c, window);
				}
			}
			OK(pawl_wait_all(e, SOON_NS, NULL));
			OK(pawl_engine_destroy(e));
		}
	}
}
END_TEST

static struct {
	struct pawl_engine *e;
	pawl_var_t v[8];
} waits;

static void *waits_readable(void *arg)
{
	MUST(!pawl_wait_readable(waits.e, waits.v[(uintptr_t)arg], SOON_NS, NULL));
	return NULL;
}

/* Waits that wait, and waits that timed out. */
START_TEST(test_waits_take_no_room)
{
	int policy, sleeping;
	pthread_t t[7];
	u64 token, i;

	for (policy = PAWL_WINDOW_FAIL; policy <= PAWL_WINDOW_BLOCK; policy++) {
		for (sleeping = 0; sleeping < 2; sleeping++) {
			waits.e = engine_of(policy, 1, WINDOW);
			for (i = 0; i < 8; i++)
				waits.v[i] = var_new(waits.e);
			token = held(waits.e, waits.v, 8);
			for (i = 0; i < 7 && !sleeping; i++)
				FAILS(pawl_wait_readable(waits.e, waits.v[i], 1000, NULL),
				      -ETIMEDOUT);
			for (i = 0; i < 7 && sleeping; i++)
				t[i] = spawn(waits_readable, (void *)(uintptr_t)i);
			MUST(soon(ops_in_flight(waits.e) == 8));
			for (i = 0; i < WINDOW - 1; i++)
				OK(push_write(waits.e, nothing, NULL, waits.v[7]));
			if (policy == PAWL_WINDOW_FAIL)
				FAILS(push_write(waits.e, nothing, NULL, waits.v[7]), -EAGAIN);
			OK(pawl_complete(waits.e, (pawl_token_t){ token }, 0, NULL));
			for (i = 0; i < 7 && sleeping; i++)
				join(t[i]);
			OK(pawl_wait_all(waits.e, SOON_NS, NULL));
			OK(pawl_engine_destroy(waits.e));
		}
	}
}
END_TEST

/*
 * Completions that nobody reaps: the push that has no room is refused and names the queue, so is a
 * wait for room, and nothing else notices them.  Also if an op is in flight that only the host can end.
 */
START_TEST(test_completions_take_room_until_they_are_reaped)
{
	int policy, holds, workers;

	for (policy = PAWL_WINDOW_FAIL; policy <= PAWL_WINDOW_BLOCK; policy++) {
		for (holds = 0; holds < 3; holds++) {
			for (workers = 0; workers < 2; workers++) {
				struct pawl_engine *e = engine_of(policy, workers, 16);
				pawl_var_t v = var_new(e), w = var_new(e);
				struct pawl_op op = op_write(nothing, NULL, &w);
				pawl_cq_t other = cq_new(e);
				struct pawl_completion c[16];
				char name[32];
				u64 token = holds ? held(e, &v, 1) : 0;
				u32 n = 0, k;
				int rc;

				if (holds == 2)		/* and one that waits for it */
					OK(push_write(e, nothing, NULL, v));
				op.cq = cq_new(e);
				op.flags = PAWL_OP_CQ;
				while (!(rc = pawl_push(e, &op)) && n < 100)
					n++;
				ck_assert_int_eq(rc, -EAGAIN);
				ck_assert_uint_ge(n, 16 - (u32)holds);
				snprintf(name, sizeof(name), "%#llx", (unsigned long long)op.cq.h);
				while (pawl_run_one(e) > 0)
					;
				MUST(soon(stats(e).unreaped == n));
				FAILS(pawl_push(e, &op), -EAGAIN, "reap", name);
				FAILS(push_write(e, nothing, NULL, w), -EAGAIN, "reap", name);
				FAILS(pawl_wait(e, PAWL_WAIT_ROOM, 0, -1, NULL), -EAGAIN, "reap",
				      name);
				/* Not for waits, and not for the end of the engine. */
				OK(pawl_wait_readable(e, w, SOON_NS, NULL));
				if (holds)
					OK(pawl_complete(e, (pawl_token_t){ token }, 0, NULL));
				OK(pawl_wait_all(e, SOON_NS, NULL));
				ck_assert_int_eq(pawl_cq_reap(e, other, c, 16), 0);
				for (k = 0; k < n; k += (u32)rc) {
					rc = pawl_cq_reap(e, op.cq, c, 16);
					MUST(rc > 0);
				}
				ck_assert_uint_eq(stats(e).unreaped, 0);
				OK(pawl_wait(e, PAWL_WAIT_ROOM, 0, -1, NULL));
				for (k = 0; k < 16 - 1; k++)
					OK(pawl_push(e, &op));
				OK(pawl_engine_destroy(e));	/* with completions left */
			}
		}
	}
}
END_TEST

static struct {
	struct pawl_engine *e;
	pawl_cq_t cq;
	u32 left;		/* A */
} reaper;

static void *reaps(void *arg)
{
	struct pawl_completion c[8];
	u32 got = 0;
	int n;

	while (got < (u32)TIMES(20000)) {
		OK(pawl_cq_wait(reaper.e, reaper.cq, SOON_NS));
		n = pawl_cq_reap(reaper.e, reaper.cq, c, 8);
		MUST(n >= 0);
		got += (u32)n;
	}
	return NULL;
}

/* While another thread reaps, a pusher that blocks makes progress; a refusal only delays it. */
START_TEST(test_a_reaper_makes_room_for_a_pusher_that_sleeps)
{
	struct pawl_op op = op_of_fn(nothing, NULL);
	pthread_t t;
	u32 i;
	int rc;

	reaper.e = engine_of(PAWL_WINDOW_BLOCK, 1, WINDOW);
	reaper.cq = op.cq = cq_new(reaper.e);
	op.flags = PAWL_OP_CQ;
	t = spawn(reaps, NULL);
	for (i = 0; i < (u32)TIMES(20000);) {
		rc = pawl_push(reaper.e, &op);
		MUST(!rc || rc == -EAGAIN);
		i += !rc;
	}
	join(t);
	OK(pawl_engine_destroy(reaper.e));
}
END_TEST

static u32 counted;		/* A: the counters are not read any more */

static void *refused(void *arg)
{
	struct pawl_engine *e = arg;
	pawl_var_t gone = var_new(e);
	u32 i;

	OK(pawl_var_delete(e, gone, NULL, NULL));
	for (i = 0; i < (u32)TIMES(20000); i++) {
		MUST(push_write(e, nothing, NULL, (pawl_var_t){ 0 }) < 0);
		(void)push_write(e, nothing, NULL, gone);
		(void)pawl_push(e, &(const struct pawl_op){ .size = sizeof(struct pawl_op) });
	}
	/* The counts of a thread that leaves may be read twice. */
	MUST(soon(load_acquire(&counted)));
	return NULL;
}

/* A push that is refused is not counted, not even for a moment. */
START_TEST(test_counters_never_go_down)
{
	struct pawl_engine *e = engine_of(PAWL_WINDOW_FAIL, 0, WINDOW);
	struct pawl_stats was = stats(e), now;
	pthread_t t = spawn(refused, e);
	u32 i;

	for (i = 0; i < (u32)TIMES(50000); i++, was = now) {
		now = stats(e);
		MUST(now.pushed >= was.pushed && now.completed >= was.completed);
		MUST(now.pushed >= now.completed);
	}
	store_release(&counted, 1);
	join(t);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	OK(pawl_engine_destroy(e));
}
END_TEST

SUITE("room", test_what_is_known_to_be_complete_takes_no_room, test_waits_take_no_room,
      test_completions_take_room_until_they_are_reaped,
      test_a_reaper_makes_room_for_a_pusher_that_sleeps, test_counters_never_go_down)
