// SPDX-License-Identifier: Apache-2.0
/*
 * compat/engine.c: the process's engine at exit().  It runs what was pushed as long as something
 * ends from time to time.  Calls of pawl_wait() and pawl_push() go through this file (--wrap),
 * so that no test waits for that time, and an op is over when its push returns.  Each case is a
 * process of its own, which runs this program.
 */
#include "mx_bulk.h"
#include <sys/wait.h>

#define SECOND 1000000000ll
#define CASE "PAWL_TEST_EXIT_CASE"

int __real_pawl_wait(struct pawl_engine *e, unsigned int what, uint64_t h, int64_t timeout_ns,
		     struct pawl_error *err);
int __wrap_pawl_wait(struct pawl_engine *e, unsigned int what, uint64_t h, int64_t timeout_ns,
		     struct pawl_error *err);

int __real_pawl_push(struct pawl_engine *e, const struct pawl_op *op);
int __wrap_pawl_push(struct pawl_engine *e, const struct pawl_op *op);

enum { OPS = 5 };

static const char *now;		/* the case that this process is */
static struct pawl_mx_callback held[OPS];
static unsigned int nheld, ended, drains, last_waits, completes;

static void completes_one(void)
{
	struct pawl_mx_callback *done = &held[ended++];

	done->callback(done->engine, done->param, NULL);
}

/* The time is over at once, and meanwhile one op was completed, if the case is such a one. */
int __wrap_pawl_wait(struct pawl_engine *e, unsigned int what, uint64_t h, int64_t timeout_ns,
		     struct pawl_error *err)
{
	int rc = __real_pawl_wait(e, what, h, timeout_ns > 0 ? 0 : timeout_ns, err);

	if (timeout_ns == 5 * SECOND)
		drains++;
	else if (timeout_ns > 0)
		last_waits++;
	if (rc == -ETIMEDOUT && timeout_ns == 5 * SECOND && ended < completes)
		completes_one();
	return rc;
}

static bool waits;		/* each push waits until its op is complete */

int __wrap_pawl_push(struct pawl_engine *e, const struct pawl_op *op)
{
	int rc = __real_pawl_push(e, op);

	return rc || !waits ? rc : pawl_wait_all(e, -1, NULL);
}

static unsigned int late_ran;

/* Called at exit() after the drain, as it was registered before the engine was there. */
static void gathers_late(void)
{
	struct pawl_mx_engine *e = pawl_mx_engine_get();

	waits = true;
	dropped = 0;
	MUST(!pawl_mx_set_bulk_size(e, 8) && !push(e, add_one, &late_ran, var_new(e)));
}

static void holds_it(void *run, void *on_complete, void *arg)
{
	held[nheld] = *(struct pawl_mx_callback *)on_complete;
	ADD(&nheld, 1);
}

/* After the library's own destructor. */
__attribute__((destructor(101))) static void after_the_end(void)
{
	if (!now)
		return;
	if (!strcmp(now, "goes on"))
		_exit(ended == OPS && drains == OPS + 1 && last_waits == 1 ? 0 : 3);
	if (!strcmp(now, "gives up"))
		_exit(ended == 2 && drains == 3 && last_waits == 1 ? 0 : 4);
	if (!strcmp(now, "nothing ends"))
		_exit(!ended && drains == 1 && last_waits == 1 ? 0 : 5);
	if (!strcmp(now, "late"))
		_exit(!late_ran && dropped == 1 ? 0 : 6);
	_exit(7);
}

static int child(void)
{
	const struct pawl_mx_op op = { .async = holds_it, .ctx = cpu };
	struct pawl_mx_engine *e;
	unsigned int i;

	if (!strcmp(now, "late")) {
		MUST(!atexit(gathers_late) && pawl_mx_engine_get());
		return 0;
	}
	e = pawl_mx_engine_get();
	MUST(e);
	/* what was completed before exit() counts as the first progress */
	if (strcmp(now, "nothing ends"))
		MUST(!push(e, nothing, NULL, var_new(e)) && !pawl_mx_wait_all(e, NULL));
	for (i = 0; i < OPS; i++) {
		MUST(!pawl_mx_push(e, &op, NULL));
		until(&nheld, i + 1);
	}
	completes = !strcmp(now, "goes on") ? OPS : !strcmp(now, "gives up") ? 2 : 0;
	return 0;
}

/* What the process of that case has printed to its standard error. */
static char *printed(const char *name)
{
	static char text[512];
	int status = -1, ends[2];
	size_t n = 0;
	ssize_t more;
	pid_t pid;

	ck_assert(!setenv(CASE, name, 1) && !pipe(ends));
	pid = fork();
	if (!pid) {
		dup2(ends[1], 2);
		close(ends[0]);
		close(ends[1]);
		/* What ops have that are in flight at the end is not freed. */
		setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
		alarm(40);
		execl("/proc/self/exe", "test_mx_exit", (char *)NULL);
		_exit(127);
	}
	close(ends[1]);
	while (n < sizeof(text) - 1 && (more = read(ends[0], text + n, sizeof(text) - 1 - n)) > 0)
		n += (size_t)more;
	text[n] = '\0';
	close(ends[0]);
	ck_assert(!unsetenv(CASE) && waitpid(pid, &status, 0) == pid);
	ck_assert_msg(!status, "%s: status %x: %s", name, (unsigned int)status, text);
	return text;
}

START_TEST(test_exit_waits_while_ops_end)
{
	ck_assert_str_eq(printed("goes on"), "");
}
END_TEST

/* It says how many are left, and ends without them. */
START_TEST(test_exit_gives_up_when_no_op_has_ended_for_a_while)
{
	ck_assert_str_eq(printed("gives up"), "pawl_mx: the process ends with 3 ops in flight\n");
	ck_assert_str_eq(printed("nothing ends"), "pawl_mx: the process ends with 5 ops in flight\n");
}
END_TEST

/* The objects that its body uses were destroyed. */
START_TEST(test_what_gathers_after_the_drain_is_dropped_without_a_run)
{
	ck_assert_str_eq(printed("late"), "");
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		test_exit_waits_while_ops_end,
		test_exit_gives_up_when_no_op_has_ended_for_a_while,
		test_what_gathers_after_the_drain_is_dropped_without_a_run, NULL
	};

	now = getenv(CASE);
	return now ? child() : suite_run("mx_exit", tests, 50);
}
