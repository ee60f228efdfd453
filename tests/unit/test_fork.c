// SPDX-License-Identifier: Apache-2.0
/*
 * Engines in the child of a fork().  The thread sanitizer forbids the child to create threads.
 */
#include "util.h"
#include "child.h"

/* For the child of a child, its parent's engine is another's, too. */
static bool child_refuses(struct pawl_engine *e)
{
	int status;
	pid_t pid = fork();

	if (!pid)
		_exit(pawl_wait_all(e, 0, NULL) == -EOWNERDEAD && !pawl_engine_destroy(e) ? 0 : 1);
	return pid > 0 && waitpid(pid, &status, 0) == pid && !status;
}

static int child_of_fork(struct pawl_engine *e, pawl_var_t v)
{
	struct pawl_op op = op_write(nothing, NULL, &v);
	struct pawl_engine *mine;
	pawl_var_t w;
	u32 n = 0;

	CHILD_AT("calls that are refused");
	if (pawl_push(e, &op) != -EOWNERDEAD || !strstr(pawl_error_text(), "parent"))
		return 1;
	if (pawl_push_batch(e, &op, 1) != -EOWNERDEAD)
		return 2;
	if (pawl_var_create(e, &w) != -EOWNERDEAD)
		return 3;
	if (pawl_wait_all(e, 0, NULL) != -EOWNERDEAD)
		return 4;
	if (pawl_wait_readable(e, v, 0, NULL) != -EOWNERDEAD)
		return 5;
	if (pawl_run_one(e) != -EOWNERDEAD)
		return 6;
	if (pawl_thread_attach(e) != -EOWNERDEAD || pawl_thread_detach(e) != -EOWNERDEAD)
		return 7;
	/* The child's own engine works, before and after the other one is forgotten. */
	CHILD_AT("an engine of its own");
	if (pawl_engine_create(NULL, &mine))
		return 8;
	if (push_write(mine, add_one, &n, var_new(mine)) ||
	    pawl_wait_all(mine, SOON_NS, NULL) || n != 1)
		return 9;
	CHILD_AT("a child of the child");
	if (!child_refuses(e) || !child_refuses(mine))
		return 13;
	CHILD_AT("the end of the parent's engine");
	if (pawl_engine_destroy(e))
		return 10;
	if (push_write(mine, add_one, &n, var_new(mine)) ||
	    pawl_wait_all(mine, SOON_NS, NULL) || n != 2)
		return 11;
	CHILD_AT("the end of its own");
	if (pawl_engine_destroy(mine))
		return 12;
	return 0;
}

START_TEST(test_fork)
{
	struct pawl_engine *e;
	pawl_var_t v;
	u64 n = 0;
	pid_t pid;
	int i;

	if (THREAD_SANITIZED)
		return;
	e = engine(PAWL_PER_DEVICE, 2);
	workers_up(e, 2);
	v = var_new(e);
	for (i = 0; i < 1000; i++)
		OK(push_write(e, add_plain, &n, v));
	pid = child_fork();
	if (!pid)
		_exit(child_of_fork(e, v));
	/* The parent continues. */
	for (i = 0; i < 1000; i++)
		OK(push_write(e, add_plain, &n, v));
	ck_assert_int_eq(child_wait(pid), 0);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n, 2000);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* The child's thread was never inside the engine before the fork. */
static void *forker(void *arg)
{
	struct pawl_engine *e = arg;
	pid_t pid = child_fork();

	if (!pid)
		_exit(push_write(e, nothing, NULL, (pawl_var_t){ 1ull << 32 | 1 }) != -EOWNERDEAD ||
		      pawl_engine_destroy(e));
	MUST(!child_wait(pid));
	return NULL;
}

START_TEST(test_fork_from_other_thread)
{
	struct pawl_engine *e;
	u32 n = 0;

	if (THREAD_SANITIZED)
		return;
	e = engine(PAWL_PER_DEVICE, 1);
	workers_up(e, 1);
	OK(push_write(e, add_one, &n, var_new(e)));
	join(spawn(forker, e));
	OK(push_write(e, add_one, &n, var_new(e)));
	OK(pawl_wait_all(e, SOON_NS, NULL));
	ck_assert_uint_eq(n, 2);
	OK(pawl_engine_destroy(e));
}
END_TEST

/*
 * A thread of the child begins and ends: what is registered for that leaves the engine alone.
 */
static void *no_work(void *arg)
{
	return NULL;
}

START_TEST(test_fork_child_exits)
{
	struct pawl_engine *e;
	pid_t pid;

	if (THREAD_SANITIZED)
		return;
	e = engine(PAWL_PER_DEVICE, 1);
	workers_up(e, 1);
	OK(push_write(e, nothing, NULL, var_new(e)));
	pid = child_fork();
	if (!pid) {
		join(spawn(no_work, NULL));
		_exit(0);
	}
	ck_assert_int_eq(child_wait(pid), 0);
	OK(pawl_engine_destroy(e));
}
END_TEST

/* --- in a handler that was registered before libpawl's --- */

static struct pawl_engine *parents;
static int early;	/* what the handler found wrong */

static void early_child(void)
{
	struct pawl_engine *mine = NULL;

	if (!parents)
		return;
	early = pawl_engine_create(NULL, &mine) != -EOWNERDEAD || mine ? 20 :
		!strstr(pawl_error_text(), "handler") ? 21 :
		pawl_engine_start(parents) != -EOWNERDEAD ? 22 :
		pawl_engine_stop(parents) != -EOWNERDEAD ? 23 : 0;
}

START_TEST(test_fork_early_handler)
{
	struct pawl_engine *e;
	int status, again;
	pawl_var_t v;
	pid_t pid;

	/*
	 * In a process of its own, where there was no engine yet: the first test of the suite.
	 */
	if (THREAD_SANITIZED)
		return;
	pid = child_fork();
	if (!pid) {
		if (pthread_atfork(NULL, NULL, early_child) || pawl_engine_create(NULL, &e))
			_exit(30);
		parents = e;
		v = var_new(e);
		for (again = 0; again < 2; again++) {
			pid = child_fork();
			if (!pid)
				_exit(early ? early : child_of_fork(e, v));
			status = child_wait(pid);
			if (status)
				_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 31);
		}
		_exit(pawl_engine_destroy(e) ? 32 : 0);
	}
	ck_assert_int_eq(child_wait(pid), 0);
}
END_TEST

/* --- two threads create the first engine at once, and both register libpawl's handler --- */

int __real_pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void));
int __wrap_pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void));

static u32 first_engines;	/* 1: the next registration is interrupted by another engine's */
static bool no_memory;		/* for a handler */
static struct pawl_engine *childs;

static void childs_engine(void)
{
	if (pawl_engine_create(NULL, &childs))
		childs = NULL;
}

__attribute__((unused)) static void *first_engine(void *arg)
{
	struct pawl_engine *e;

	MUST(!pawl_engine_create(NULL, &e) && !pawl_engine_destroy(e));
	/* the program's handler, between the two of libpawl */
	MUST(!pthread_atfork(NULL, NULL, childs_engine));
	return NULL;
}

/* The thread sanitizer calls pthread_atfork() itself, before a wrapper can run. */
#if !THREAD_SANITIZED
int __wrap_pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
	if (no_memory)
		return ENOMEM;
	if (first_engines) {
		first_engines = 0;
		join(spawn(first_engine, NULL));
	}
	return __real_pthread_atfork(prepare, parent, child);
}
#endif

static int engine_of_child(void)
{
	u32 n = 0;

	if (!childs)
		return 40;
	CHILD_AT("the engine that a fork handler created");
	if (push_write(childs, add_one, &n, var_new(childs)) ||
	    pawl_wait_all(childs, SOON_NS, NULL) || n != 1)
		return 41;
	return pawl_engine_destroy(childs) ? 42 : 0;
}

START_TEST(test_a_fork_handler_between_two_of_libpawl_creates_an_engine_of_the_child)
{
	struct pawl_engine *e;
	pid_t pid;
	int status;

	/* In a process that had no engine yet, as in test_fork_early_handler. */
	if (THREAD_SANITIZED)
		return;
	pid = child_fork();
	if (!pid) {
		first_engines = 1;
		if (pawl_engine_create(NULL, &e) || first_engines)
			_exit(30);
		pid = child_fork();
		if (!pid)
			_exit(engine_of_child());
		status = child_wait(pid);
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 31);
	}
	ck_assert_int_eq(child_wait(pid), 0);
}
END_TEST

START_TEST(test_without_memory_for_a_fork_handler_no_engine_is_created)
{
	struct pawl_engine *e;
	pid_t pid;

	if (THREAD_SANITIZED)
		return;
	pid = child_fork();
	if (!pid) {
		no_memory = true;
		if (pawl_engine_create(NULL, &e) != -ENOMEM || e ||
		    !strstr(pawl_error_text(), "fork handler"))
			_exit(50);
		no_memory = false;
		_exit(pawl_engine_create(NULL, &e) || pawl_engine_destroy(e) ? 51 : 0);
	}
	ck_assert_int_eq(child_wait(pid), 0);
}
END_TEST

SUITE("fork", test_fork_early_handler,
      test_without_memory_for_a_fork_handler_no_engine_is_created,
      test_a_fork_handler_between_two_of_libpawl_creates_an_engine_of_the_child, test_fork, test_fork_from_other_thread,
      test_fork_child_exits)
