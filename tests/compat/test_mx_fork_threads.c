// SPDX-License-Identifier: Apache-2.0
/*
 * compat/fork.c with several threads.  The library's fork handlers go through this file
 * (--wrap), so that a test can call them without a fork, and stop a thread inside of them.
 */
#include "mx_bulk.h"

#if THREAD_SANITIZED

int main(void)
{
	printf("the thread sanitizer begins before a call of it can go through this file\n");
	return 77;
}

#else

#include <linux/futex.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <sys/wait.h>

int __real_pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void));
int __wrap_pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void));
long __real_syscall(long n, ...);
long __wrap_syscall(long n, ...);
int __real_pawl_engine_stop(struct pawl_engine *e);
int __wrap_pawl_engine_stop(struct pawl_engine *e);
int __real_pawl_engine_start(struct pawl_engine *e);
int __wrap_pawl_engine_start(struct pawl_engine *e);
int __real_pawl_engine_create(const struct pawl_config *cfg, struct pawl_engine **out);
int __wrap_pawl_engine_create(const struct pawl_config *cfg, struct pawl_engine **out);
int __real_pawl_engine_destroy(struct pawl_engine *e);
int __wrap_pawl_engine_destroy(struct pawl_engine *e);

/* The last ones that were registered: libpawl registers its own before. */
static void (*prepare)(void), (*parent)(void);
static int registered, engines, refuse;
static bool nests;
static __thread bool watches;	/* this thread's calls */
static void (*after_stop)(void);	/* called once */
static int (*in_start)(void);		/* called once; other than 0: nothing is started */
static __thread int (*in_wake)(void);	/* called once, when this thread wakes another one */
static unsigned int stops, starts, destroys;

/* Of a futex. */
long __wrap_syscall(long n, ...)
{
	int (*fn)(void) = in_wake;
	long a[6];
	va_list ap;
	int i;

	va_start(ap, n);
	for (i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (fn && n == SYS_futex && a[1] == FUTEX_WAKE_PRIVATE) {
		in_wake = NULL;
		fn();
	}
	return __real_syscall(n, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* The library's call is the first one after an engine of libpawl was created. */
int __wrap_pthread_atfork(void (*pre)(void), void (*par)(void), void (*ch)(void))
{
	struct pawl_mx_engine *e;

	registered++;
	if (engines) {
		prepare = pre;
		parent = par;
		if (refuse) {
			refuse--;
			return ENOMEM;
		}
		if (nests) {
			nests = false;
			MUST(!pawl_mx_engine_create(PAWL_MX_PER_DEVICE, &e));
			MUST(!pawl_mx_engine_free(e));
		}
	}
	return __real_pthread_atfork(pre, par, ch);
}

int __wrap_pawl_engine_create(const struct pawl_config *cfg, struct pawl_engine **out)
{
	int rc = __real_pawl_engine_create(cfg, out);

	engines += !rc;
	return rc;
}

int __wrap_pawl_engine_destroy(struct pawl_engine *e)
{
	if (watches)
		ADD(&destroys, 1);
	return __real_pawl_engine_destroy(e);
}

int __wrap_pawl_engine_stop(struct pawl_engine *e)
{
	void (*fn)(void) = after_stop;
	int rc;

	if (watches)
		ADD(&stops, 1);
	rc = __real_pawl_engine_stop(e);
	if (watches && fn) {
		after_stop = NULL;
		fn();
	}
	return rc;
}

int __wrap_pawl_engine_start(struct pawl_engine *e)
{
	int (*fn)(void) = in_start;

	ADD(&starts, 1);
	if (fn) {
		in_start = NULL;
		if (fn())
			return 0;
	}
	return __real_pawl_engine_start(e);
}

static void works(struct pawl_mx_engine *e)
{
	struct pawl_mx_var *v = var_new(e);
	unsigned int n = 0;

	MUST(!push(e, add_one, &n, v) && !pawl_mx_wait_var(e, v, NULL));
	MUST(n == 1 && pawl_mx_var_version(v) == 1);
	MUST(!pawl_mx_var_delete(e, v, cpu, NULL, NULL, NULL));
}

/* The exit status of a child that calls fn(). */
static int child(int (*fn)(void))
{
	int status = -1;
	pid_t pid = fork();

	MUST(pid >= 0);
	if (!pid) {
		alarm(30);
		_exit(fn());
	}
	MUST(waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

/* --- the handlers are registered --- */

static struct pawl_mx_engine *the_e;
static struct pawl_mx_var *bad, *good;

static int has_what_the_parent_had(void)
{
	unsigned int n = 0;

	if (pawl_mx_var_version(good) != 1 || pawl_mx_var_version(bad) != 1)
		return 1;
	if (pawl_mx_wait_var(the_e, bad, NULL) != -EIO ||
	    strcmp(pawl_mx_last_error(), "disk on fire"))
		return 2;
	if (push(the_e, add_one, &n, good) || pawl_mx_wait_all(the_e, NULL) || n != 1)
		return 3;
	return pawl_mx_var_version(good) == 2 ? 0 : 4;
}

static int and_so_has_its_child(void)
{
	return child(has_what_the_parent_had);
}

/* The first test.  Two threads that create the first engine at once both register them. */
START_TEST(test_handlers_may_be_registered_twice)
{
	struct pawl_mx_engine *e = NULL;
	int before, i;

	/* without memory for them there is no engine, and the next one tries again */
	if (!engines) {
		refuse = 1;
		watches = true;
		REFUSED(-ENOMEM, pawl_mx_engine_create(PAWL_MX_PER_DEVICE, &e), "fork handler");
		watches = false;
		ck_assert(!e && destroys == 1);
	}
	nests = true;
	the_e = pawl_mx_engine_get();
	ck_assert(the_e && prepare && !nests);
	before = registered;
	OK(pawl_mx_engine_create(PAWL_MX_PER_DEVICE, &e));
	works(e);
	OK(pawl_mx_engine_free(e));
	ck_assert_int_eq(registered, before);
	bad = var_new(the_e);
	good = var_new(the_e);
	OK(push(the_e, nothing, NULL, good));
	OK(push(the_e, fails, NULL, bad));
	starts = 0;
	for (i = 0; i < 2; i++) {
		ck_assert_int_eq(child(has_what_the_parent_had), 0);
		ck_assert_int_eq(child(and_so_has_its_child), 0);
	}
	/* of two pairs of handlers one starts the engine */
	ck_assert_uint_eq(starts, 4);
	REFUSED(-EIO, pawl_mx_wait_var(the_e, bad, NULL), "disk on fire");
	OK(pawl_mx_wait_all(the_e, NULL));
	works(the_e);
	OK(pawl_mx_engine_free(the_e));
}
END_TEST

/* --- two threads fork --- */

static unsigned int in, again, ended, past, begun;

static void runs_until_stopped_again(void *run, void *arg)
{
	PUT(&in, 1);
	until(&again, 1);
	PUT(&ended, 1);
}

static void *forks_and_pushes(void *arg)
{
	prepare();
	parent();
	MUST(!push(the_e, runs_until_stopped_again, NULL, var_new(the_e)));
	until(&in, 1);
	return NULL;
}

static void another_forks(void)
{
	join(spawn(forks_and_pushes, NULL));
}

static void *ends_the_body(void *arg)
{
	int i;

	/* at the next stop, or when there is none */
	for (i = 0; i < 600000 && GET(&stops) < 2 && !GET(&past); i++)
		nap_us(100);
	PUT(&again, 1);
	return NULL;
}

static void fresh(void)
{
	in = again = ended = past = begun = stops = starts = destroys = 0;
	the_e = pawl_mx_engine_get();
	ck_assert_ptr_nonnull(the_e);
	works(the_e);
	ck_assert_ptr_nonnull(prepare);
}

/* Another fork starts the engine again before this one has the lock: it stops it once more. */
START_TEST(test_nothing_runs_at_a_fork_although_another_one_has_just_ended)
{
	unsigned int was_running;
	pthread_t t;

	fresh();
	t = spawn(ends_the_body, NULL);
	watches = true;
	after_stop = another_forks;
	prepare();
	was_running = GET(&in) && !GET(&ended);
	PUT(&past, 1);
	parent();
	watches = false;
	join(t);
	ck_assert_uint_eq(in, 1);
	ck_assert_uint_eq(was_running, 0);
	ck_assert_uint_eq(stops, 2);
	works(the_e);
	OK(pawl_mx_engine_free(the_e));
}
END_TEST

/* The other thread has stopped the engine twice, as this one has not started it yet. */
static int until_it_has_tried(void)
{
	int i;

	PUT(&begun, 1);
	for (i = 0; i < 600000 && GET(&stops) < 2 && !GET(&past); i++)
		nap_us(100);
	MUST(!GET(&past) && GET(&stops) >= 2);
	return 0;
}

static void *forks(void *wakes)
{
	prepare();
	if (wakes)
		in_wake = until_it_has_tried;
	else
		in_start = until_it_has_tried;
	parent();
	MUST(!in_wake && !in_start);
	return NULL;
}

/* Which it does after it has released the lock. */
START_TEST(test_a_fork_waits_for_another_that_starts_the_engine)
{
	pthread_t t;
	int i;

	for (i = 0; i < 2; i++) {
		fresh();
		t = spawn(forks, i ? the_e : NULL);
		until(&begun, 1);
		watches = true;
		prepare();
		PUT(&past, 1);
		parent();
		watches = false;
		join(t);
		works(the_e);
	}
	OK(pawl_mx_engine_free(the_e));
}
END_TEST

static int until_open(void)
{
	PUT(&begun, 1);
	until(&again, 1);
	return 1;	/* the engine has ended */
}

static void *forks_until_open(void *arg)
{
	prepare();
	in_start = until_open;
	parent();
	return NULL;
}

static int works_in_the_child(void)
{
	works(the_e);
	return 0;
}

static int works_and_forks(void)
{
	the_e = pawl_mx_engine_get();
	works(the_e);
	return child(works_in_the_child);
}

/* In the child there is no other thread that starts an engine. */
START_TEST(test_a_child_forks_although_another_thread_was_in_a_fork)
{
	pthread_t t;

	fresh();
	t = spawn(forks_until_open, NULL);
	until(&begun, 1);
	OK(pawl_mx_engine_free(the_e));
	ck_assert_int_eq(child(works_and_forks), 0);
	PUT(&again, 1);
	join(t);
	the_e = pawl_mx_engine_get();
	works(the_e);
	OK(pawl_mx_engine_free(the_e));
}
END_TEST

static void forks_here(void *run, void *arg)
{
	prepare();
	parent();
}

/* After a fork that engine is started which it has stopped, and no other. */
START_TEST(test_a_fork_starts_what_it_has_stopped)
{
	struct pawl_mx_engine *e = NULL;

	fresh();
	prepare();
	parent();
	ck_assert_uint_eq(starts, 1);
	works(the_e);
	/* from a body it stops none */
	OK(push(the_e, forks_here, NULL, var_new(the_e)));
	OK(pawl_mx_wait_all(the_e, NULL));
	ck_assert_uint_eq(starts, 1);
	/* the next one has its memory, and is not the process's */
	OK(pawl_mx_engine_free(the_e));
	OK(pawl_mx_engine_create(PAWL_MX_PER_DEVICE, &e));
	ck_assert_ptr_eq(e, the_e);
	OK(pawl_mx_engine_stop(e, NULL));
	prepare();
	parent();
	ck_assert_uint_eq(starts, 1);
	OK(pawl_mx_engine_free(e));
}
END_TEST

/* --- an engine ends meanwhile --- */

static pid_t tid;

static void *has_forked_and_frees(void *arg)
{
	prepare();
	parent();
	PUT(&begun, 1);
	until(&in, 1);
	watches = true;
	PUT(&tid, (pid_t)syscall(SYS_gettid));
	MUST(!pawl_mx_engine_free(arg));
	PUT(&ended, 1);
	return NULL;
}

static bool sleeps(void)
{
	char path[64], state = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)GET(&tid));
	f = fopen(path, "r");
	if (!f)
		return false;
	MUST(fscanf(f, "%*d (%*[^)]) %c", &state) == 1);
	fclose(f);
	return state == 'S';
}

/* Between the snapshot of the vars and the end of the fork no engine is destroyed. */
START_TEST(test_an_engine_ends_after_the_fork)
{
	struct pawl_mx_engine *e = NULL;
	pthread_t t;
	int i;

	fresh();
	OK(pawl_mx_engine_create(PAWL_MX_NAIVE, &e));
	tid = 0;
	t = spawn(has_forked_and_frees, e);
	until(&begun, 1);
	prepare();
	PUT(&in, 1);
	for (i = 0; i < 600000 && !GET(&destroys) && (!GET(&tid) || !sleeps()); i++)
		nap_us(100);
	/* not for long */
	nap_us(1000);
	ck_assert_uint_eq(GET(&destroys), 0);
	parent();
	join(t);
	ck_assert(destroys == 1 && ended);
	works(the_e);
	OK(pawl_mx_engine_free(the_e));
}
END_TEST

static struct pawl_mx_engine *ends;

static void *forks_meanwhile(void *arg)
{
	int i;

	prepare();
	PUT(&in, 1);
	for (i = 0; i < 600000 && !GET(&destroys) && (!GET(&tid) || !sleeps()); i++)
		nap_us(100);
	nap_us(1000);
	PUT(&ended, GET(&destroys));
	parent();
	return NULL;
}

static int frees_while_another_forks(void)
{
	pthread_t t = spawn(forks_meanwhile, NULL);

	until(&in, 1);
	watches = true;
	PUT(&tid, (pid_t)syscall(SYS_gettid));
	MUST(!pawl_mx_engine_free(ends));
	join(t);
	return ended || destroys != 1;
}

/* Nor is it in a child, whose thread has forked before. */
START_TEST(test_an_engine_ends_after_the_fork_of_a_child)
{
	fresh();
	OK(pawl_mx_engine_create(PAWL_MX_NAIVE, &ends));
	tid = 0;
	ck_assert_int_eq(child(frees_while_another_forks), 0);
	OK(pawl_mx_engine_free(ends));
	OK(pawl_mx_engine_free(the_e));
}
END_TEST

SUITE("mx_fork_threads", 60, test_handlers_may_be_registered_twice,
      test_nothing_runs_at_a_fork_although_another_one_has_just_ended,
      test_a_fork_waits_for_another_that_starts_the_engine,
      test_a_child_forks_although_another_thread_was_in_a_fork,
      test_a_fork_starts_what_it_has_stopped, test_an_engine_ends_after_the_fork,
      test_an_engine_ends_after_the_fork_of_a_child)

#endif
