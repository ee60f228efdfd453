/* SPDX-License-Identifier: Apache-2.0 */
/* exec/worker.c: refused memory, queues without workers, names, times, waits inside hand-offs. */
#include <poll.h>
#include <sys/resource.h>
#include "exec_fixture.h"
#include "suite.h"

static const char *refuse_what;	/* A: memory of this kind is refused; NULL: none */
static u32 refuse_after;	/* A: but not so many times */
static u32 fail_from = UINT32_MAX;	/* A: workers from this number on cannot be created */

int pool_commit_hook(const char *what, size_t bytes)
{
	const char *no = load_relaxed(&refuse_what);

	return no && !strcmp(what, no) && !refuse_after-- ? -ENOMEM : 0;
}

int exec_worker_hook(const char *queue, u32 i)
{
	return i >= load_relaxed(&fail_from) ? EPERM : 0;
}

static bool never(void *arg)
{
	return false;
}

/* A queue that finds no memory does not exist, leaves nothing behind, and is named. */
START_TEST(test_a_queue_without_memory_is_not_added)
{
	static const struct { const char *what; u32 after; } of[] = {
		{ "queue", 0 }, { "alloc", 0 }, { "alloc", 1 }, { "alloc", 2 },
	};
	struct exec_queue *q;
	struct exec_thread *t;
	size_t before;
	struct fix f;
	u32 i, k;

	fix_init(&f, NULL);
	t = fix_thread(&f);
	for (i = 0; i < ARRAY_SIZE(of); i++) {
		/* The allocator keeps some memory itself, but not each time. */
		for (k = 0; ; k++) {
			MUST(k < 20);
			refuse_after = of[i].after;
			refuse_what = of[i].what;
			before = heap_used();
			ck_assert_int_eq(exec_queue_add(f.x, "thirsty", 70, true, &q), -ENOMEM);
			refuse_what = NULL;
			if (heap_used() == before)
				break;
		}
		ck_assert_ptr_nonnull(strstr(err_text(), "queue thirsty: no memory"));
		ck_assert_ptr_null(exec_queue_at(f.x, i));
		/* The next one takes its place. */
		q = fix_queue(&f, "q", 0, true);
		ck_assert_ptr_eq(exec_queue_at(f.x, i), q);
		ck_assert_uint_eq(q->number, i);
		exec_push(q, t, 1, 0, 0);
		ck_assert_uint_eq(exec_take(f.x, t), 1);
	}
	fix_fini(&f);
}
END_TEST

START_TEST(test_an_executor_without_memory_is_not_created)
{
	struct pool_desc d = { .name = "work", .size = 16, .max = 10 };
	struct exec_config cfg = { .max_threads = 10, .max_work = 10 };
	struct exec_client cl = { 0 };
	struct exec *x = NULL;
	struct arena *a;

	ck_assert_int_eq(arena_create("test", &a), 0);
	ck_assert_int_eq(arena_add(a, &d, &cfg.works), 0);
	cfg.arena = a;
	refuse_after = 0;
	refuse_what = "exec";
	ck_assert_int_eq(exec_create(&cfg, &cl, &x), -ENOMEM);
	refuse_what = NULL;
	ck_assert_ptr_nonnull(strstr(err_text(), "exec: no memory"));
	ck_assert_ptr_null(x);
	/* Without a name it has one. */
	ck_assert_int_eq(exec_create(&cfg, &cl, &x), 0);
	ck_assert_str_eq(exec_name(x), "exec");
	exec_destroy(x);
	arena_destroy(a);
}
END_TEST

/* How long threads poll, rest, and leave work to others, as exec/internal.h says. */
START_TEST(test_times_of_an_executor)
{
	struct fix_opt o = { .spin_ns = 7000, .tidy_ns = 1234 };
	u64 us = exec_cycles_per_us();
	struct fix f;
	struct exec *x;

	fix_init(&f, &o);
	x = f.x;
	ck_assert_uint_eq(x->spin, 7 * us);
	ck_assert_uint_eq(x->batch, 3 * us);
	ck_assert_uint_eq(x->steal, 2 * us);
	ck_assert_uint_eq(x->relax, us);
	ck_assert_uint_eq(x->next, 10 * us);
	ck_assert_uint_eq(x->yield, 10 * us);
	ck_assert_uint_eq(x->slow_yield, 1000 * us);
	ck_assert_uint_eq(x->rest, 200 * us);
	ck_assert_uint_eq(x->fast, 300 * us / 1000);
	ck_assert_uint_eq(x->leave_avg, us + 500 * us / 1000);
	ck_assert_uint_eq(x->leave_first, 2 * us);
	ck_assert_uint_eq(x->leave_most, 32 * us);
	ck_assert_uint_eq(x->judge, 100 * us);
	/* No client tidies. */
	ck_assert_uint_eq(x->tidy_ns, 0);
	fix_fini(&f);
}
END_TEST

/*
 * Two workers cannot be created, and the third one finds no slot: the queue has none, and threads
 * that wait run its work.  Once more after a start at which all was well.
 */
START_TEST(test_workers_missing_for_two_reasons_make_a_queue_deserted)
{
	struct fix_opt o = { .eager = true };
	struct exec_queue *q;
	struct exec_thread *t;
	u32 i, ran = 0;
	struct fix f;

	watchdog(60);
	fix_init(&f, &o);
	f.run = count_work;
	f.user = &ran;
	q = fix_queue(&f, "q", 3, false);
	t = fix_thread(&f);
	for (i = 0; i < 4; i++) {
		store_relaxed(&fail_from, i % 2 ? UINT32_MAX : 1);
		f.refuse = i % 2 == 0;
		exec_start(f.x);
		ck_assert_uint_eq(load_relaxed(&q->drive),
				  i % 2 ? 0 : DRIVE_BARE | DRIVE_FAILED);
		ck_assert_uint_eq(load_relaxed(&q->missing), i % 2 ? 0 : 3);
		MUST(exec_worker_error(f.x) == 0 ? i % 2 == 1 : i % 2 == 0);
		exec_push(q, t, 1, 0, 0);
		if (i % 2) {
			until(&ran, i + 1);
		} else {
			/* On a busy machine the push creates the third one again, in vain. */
			while (!exec_take(f.x, t))
				sched_yield();
			ran++;
		}
		exec_stop(f.x);
	}
	/* One of three is enough. */
	f.refuse = false;
	store_relaxed(&fail_from, 1);
	exec_start(f.x);
	ck_assert_int_eq(exec_worker_error(f.x), -EPERM);
	ck_assert_uint_eq(load_relaxed(&q->drive), 0);
	exec_stop(f.x);
	store_relaxed(&fail_from, UINT32_MAX);
	fix_fini(&f);
}
END_TEST

/* A thread that was told to wait only does not run the work of such a queue either. */
START_TEST(test_a_thread_that_only_waits_runs_nothing_of_a_deserted_queue)
{
	struct exec_queue *q, *other;
	struct exec_thread *t;
	struct fix f;
	u32 ran = 0;

	watchdog(60);
	fix_init(&f, NULL);
	f.run = count_work;
	f.user = &ran;
	q = fix_queue(&f, "q", 1, false);
	other = fix_queue(&f, "other", 0, true);
	t = fix_thread(&f);
	/* Nor does one that is to run such work as long as all workers are there. */
	exec_push(other, t, 1, 0, 0);
	ck_assert_int_eq(exec_wait(f.x, t, never, NULL, 1000000, EXEC_FAILED), -ETIMEDOUT);
	ck_assert_uint_eq(ran, 0);
	ck_assert_uint_eq(exec_take(f.x, t), 1);
	store_relaxed(&fail_from, 0);
	exec_start(f.x);
	exec_push(q, t, 1, 0, 0);
	ck_assert(load_relaxed(&q->drive) & DRIVE_FAILED);
	ck_assert_int_eq(exec_wait(f.x, t, never, NULL, 1000000, EXEC_WAIT), -ETIMEDOUT);
	ck_assert_uint_eq(ran, 0);
	ck_assert_int_eq(exec_wait(f.x, t, never, NULL, 1000000, EXEC_FAILED), -ETIMEDOUT);
	ck_assert_uint_eq(ran, 1);
	exec_stop(f.x);
	store_relaxed(&fail_from, UINT32_MAX);
	fix_fini(&f);
}
END_TEST

static u32 entered_last;	/* A */

/* Workers of the first queue begin long after that of the second one. */
static void first_is_late(void *user, const char *name)
{
	if (!strncmp(name, "t-one-", 6)) {
		until(&entered_last, 1);
		usleep(20000);
	} else {
		store_release(&entered_last, 1);
	}
}

START_TEST(test_an_eager_start_waits_for_the_workers_of_each_queue)
{
	struct fix_opt o = { .eager = true };
	struct fix f;
	u32 i;

	watchdog(60);
	fix_init(&f, &o);
	f.x->cl.thread_start = first_is_late;
	fix_queue(&f, "one", 2, false);
	fix_queue(&f, "two", 1, false);
	for (i = 1; i <= 2; i++) {
		store_relaxed(&entered_last, 0);
		exec_start(f.x);
		ck_assert_uint_eq(load_relaxed(&f.enters), 3 * i);
		exec_stop(f.x);
	}
	fix_fini(&f);
}
END_TEST

/* A host that sleeps learns of work that was pushed before its queue had lost all workers. */
START_TEST(test_a_host_learns_of_a_deserted_queue)
{
	struct exec_queue *q;
	struct exec_thread *t;
	struct pollfd p;
	struct fix f;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 1, false);
	t = fix_thread(&f);
	p = (struct pollfd){ exec_ready_fd(f.x), POLLIN, 0 };
	MUST(p.fd >= 0 && !exec_take_ready(f.x, t));
	exec_push(q, t, 1, 0, 0);
	ck_assert_int_eq(poll(&p, 1, 0), 0);
	store_relaxed(&fail_from, 0);
	exec_start(f.x);
	ck_assert_int_eq(poll(&p, 1, 0), 1);
	ck_assert_uint_eq(exec_take_ready(f.x, t), 1);
	ck_assert_uint_eq(exec_take_ready(f.x, t), 0);
	ck_assert_int_eq(poll(&p, 1, 0), 0);
	exec_stop(f.x);
	store_relaxed(&fail_from, UINT32_MAX);
	fix_fini(&f);
}
END_TEST

/* A taker may be ahead of the tail that its producer stores: nothing is queued then. */
START_TEST(test_the_depth_is_never_below_nothing)
{
	struct exec_queue_stats st;
	struct exec_queue *q;
	struct exec_thread *t;
	struct fix f;

	fix_init(&f, NULL);
	q = fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	exec_push(q, t, 1, 0, 0);
	ck_assert_uint_eq(exec_take(f.x, t), 1);
	q->lanes[t->slot]->ring.tail--;
	exec_queue_stats(q, &st);
	ck_assert_uint_eq(st.depth, 0);
	q->lanes[t->slot]->ring.tail++;
	exec_push(q, t, 2, 0, 0);
	exec_queue_stats(q, &st);
	ck_assert_uint_eq(st.depth, 1);
	fix_fini(&f);
}
END_TEST

/* Of a descriptor that cannot be made the error is told, and later there is one. */
START_TEST(test_a_descriptor_that_is_refused)
{
	struct rlimit was, none;
	struct exec_thread *t;
	struct fix f;
	int next, fd;

	fix_init(&f, NULL);
	fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	next = dup(0);
	MUST(next >= 0 && !close(next) && !getrlimit(RLIMIT_NOFILE, &was));
	none = was;
	none.rlim_cur = (rlim_t)next;
	MUST(!setrlimit(RLIMIT_NOFILE, &none));
	fd = exec_ready_fd(f.x);
	MUST(!setrlimit(RLIMIT_NOFILE, &was));
	ck_assert_int_eq(fd, -EMFILE);
	/* Without one a thread only takes. */
	ck_assert_uint_eq(exec_take_ready(f.x, t), 0);
	ck_assert_uint_eq(f.x->helpers.attn, 0);
	fd = exec_ready_fd(f.x);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(exec_ready_fd(f.x), fd);
	fix_fini(&f);
	/* It was closed. */
	ck_assert_int_eq(dup2(fd, fd), -1);
}
END_TEST

static char started[16][16], stopped[16][16], own[16][16];
static u32 nstarted, nstopped, nown;	/* A */

static void note_start(void *user, const char *name)
{
	snprintf(started[fetch_add_acq_rel(&nstarted, 1) % 16], 16, "%s", name);
}

static void note_stop(void *user, const char *name)
{
	snprintf(stopped[fetch_add_acq_rel(&nstopped, 1) % 16], 16, "%s", name);
}

static struct exec_thread *note_enter(void *user)
{
	pthread_getname_np(pthread_self(), own[fetch_add_acq_rel(&nown, 1) % 16], 16);
	return NULL;
}

static bool among(char (*names)[16], const char *name)
{
	u32 i;

	for (i = 0; i < 12; i++)
		if (!strcmp(names[i], name))
			return true;
	return false;
}

/* The number of a worker is kept whole: the name of its queue is shortened for it. */
START_TEST(test_names_of_many_workers)
{
	static const struct { const char *x, *queue, *name[12]; } of[] = {
		{ "t", "averylongname",
		  { "t-averylongna-0", "t-averylongna-9", "t-averylongn-10", "t-averylongn-11" } },
		{ "pawlengine", "q",
		  { "pawleng-q-0", "pawleng-q-9", "pawleng-q-10", "pawleng-q-11" } },
		{ "pawlengine", "aqueue",
		  { "pawleng-aqueu-0", "pawleng-aqueu-9", "pawleng-aque-10", "pawleng-aque-11" } },
	};
	struct pool_desc d = { .name = "work", .size = 16, .max = 10 };
	struct exec_config cfg = { .max_threads = 20, .max_work = 10, .eager = true };
	struct exec_client cl = {
		.enter = note_enter, .thread_start = note_start, .thread_stop = note_stop,
	};
	struct exec_queue *q;
	struct arena *a;
	struct exec *x;
	u32 i;

	watchdog(60);
	nstarted = nstopped = nown = 0;
	cfg.name = of[_i].x;
	ck_assert_int_eq(arena_create("test", &a), 0);
	ck_assert_int_eq(arena_add(a, &d, &cfg.works), 0);
	cfg.arena = a;
	ck_assert_int_eq(exec_create(&cfg, &cl, &x), 0);
	ck_assert_int_eq(arena_ready(a, false), 0);
	ck_assert_int_eq(exec_queue_add(x, of[_i].queue, 12, false, &q), 0);
	exec_start(x);
	exec_stop(x);
	ck_assert_uint_eq(nstarted, 12);
	ck_assert_uint_eq(nstopped, 12);
	ck_assert_uint_eq(nown, 12);
	for (i = 0; i < 4; i++) {
		ck_assert_msg(among(started, of[_i].name[i]), "start of %s", of[_i].name[i]);
		ck_assert_msg(among(stopped, of[_i].name[i]), "stop of %s", of[_i].name[i]);
		ck_assert_msg(among(own, of[_i].name[i]), "name of %s", of[_i].name[i]);
	}
	exec_destroy(x);
	arena_destroy(a);
}
END_TEST

static u32 handed;

/* Runs new pieces as long as it may, as a client does. */
static void hands_on(struct fix *f, struct exec_thread *t, u32 work)
{
	handed = 0;
	while (handed < 1000 && exec_handoff(f->x->queues[0], t, 1, 0))
		handed++;
}

/* A wait checks its condition after 64 hand-offs, also a wait inside work that may do no more. */
START_TEST(test_a_wait_checks_after_so_many_handoffs)
{
	static const u32 budgets[] = { EXEC_UNLIMITED, 0, 7 };
	struct exec_queue *q;
	struct exec_thread *t;
	struct fix f;
	u32 i;

	fix_init(&f, NULL);
	f.run = hands_on;
	q = fix_queue(&f, "q", 0, true);
	t = fix_thread(&f);
	for (i = 0; i < ARRAY_SIZE(budgets); i++) {
		t->budget = budgets[i];
		exec_push(q, t, 1, 0, 0);
		ck_assert_int_eq(exec_wait(f.x, t, never, NULL, 0, EXEC_HELP),
				 -ETIMEDOUT);
		ck_assert_uint_eq(handed, 64);
		ck_assert_uint_eq(t->budget, budgets[i]);
		/* The piece that was not handed over is queued. */
		ck_assert_uint_eq(exec_take(f.x, t), 1);
	}
	fix_fini(&f);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("exec/executor");
	TCase *tc = tcase_create("executor");

	tcase_set_timeout(tc, 100);
	tcase_add_test(tc, test_a_queue_without_memory_is_not_added);
	tcase_add_test(tc, test_an_executor_without_memory_is_not_created);
	tcase_add_test(tc, test_times_of_an_executor);
	tcase_add_test(tc, test_workers_missing_for_two_reasons_make_a_queue_deserted);
	tcase_add_test(tc, test_a_thread_that_only_waits_runs_nothing_of_a_deserted_queue);
	tcase_add_test(tc, test_an_eager_start_waits_for_the_workers_of_each_queue);
	tcase_add_test(tc, test_a_host_learns_of_a_deserted_queue);
	tcase_add_test(tc, test_the_depth_is_never_below_nothing);
	tcase_add_test(tc, test_a_descriptor_that_is_refused);
	tcase_add_loop_test(tc, test_names_of_many_workers, 0, 3);
	tcase_add_test(tc, test_a_wait_checks_after_so_many_handoffs);
	suite_add_tcase(s, tc);
	return suite_run(s);
}
