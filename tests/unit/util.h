/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the suites of the core share: small engines, gates that hold an op until the test opens
 * them, and recorders of the order in which ops ran.
 *
 * Check's assertions are for the test's own thread.  Bodies may run on other threads, so they
 * use MUST(), which ends the program with the position.  Programs without Check (stress/)
 * define UTIL_NO_CHECK.
 */
#ifndef TESTS_UNIT_UTIL_H
#define TESTS_UNIT_UTIL_H

#ifndef UTIL_NO_CHECK
#include "suite.h"
#endif
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <base/atomic.h>
#include <base/random.h>
#include <pawl/engine.h>

#define MUST_WHY pawl_error_text()
#include "hang.h"
#include "must.h"

/* Pseudo-random numbers that depend only on the seed. */
#define rnd random_next

#define __unused_fn __attribute__((unused))

/* Repetitions. */
#define TIMES(n) (BRIEF ? ((n) + 7) / 8 : (n))

#ifdef UTIL_NO_CHECK
#define OK(call) MUST(!(call))
#else
/* A call that must succeed; a failure reports its message. */
#define OK(call)								\
	do {									\
		int ok_rc_ = (call);						\
		ck_assert_msg(ok_rc_ == 0, "%s: %d, %s", #call, ok_rc_, pawl_error_text()); \
	} while (0)

/* A call that must fail with this code, and whose message names all the words. */
#define FAILS(call, code, ...)							\
	do {									\
		int fails_rc_ = (call);						\
		ck_assert_msg(fails_rc_ == (code), "%s: %d, expected %d (%s)", #call, fails_rc_, \
			      (code), pawl_error_text());			\
		says(#call, (const char *const[]){ "", ##__VA_ARGS__, NULL }); \
	} while (0)

static __unused_fn void says(const char *call, const char *const *words)
{
	for (; *words; words++)
		ck_assert_msg(strstr(pawl_error_text(), *words),
			      "%s: the message \"%s\" has no \"%s\"", call, pawl_error_text(),
			      *words);
}
#endif

static __unused_fn void nap_us(long us)
{
	struct timespec ts = { us / 1000000, us % 1000000 * 1000 };

	nanosleep(&ts, NULL);
}

static __unused_fn uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* Wait for something that other threads do, with a limit, so that a failure is not a hang. */
#define SOON_MS patience_ms(20000)
#define soon(cond) ({								\
	uint64_t soon_end_ = now_ms() + SOON_MS;				\
	bool soon_ok_;								\
	while (!(soon_ok_ = (cond)) && now_ms() < soon_end_)			\
		nap_us(50);							\
	soon_ok_; })
#define SOON_NS ((int64_t)SOON_MS * 1000000)

/* An empty file, until the next call. */
static __unused_fn char *temp_path(void)
{
	static char path[64];
	int fd;

	strcpy(path, "/tmp/pawl-test-XXXXXX");
	fd = mkstemp(path);
	MUST(fd >= 0);
	close(fd);
	return path;
}

/* Returns the number of the next descriptor: it is the same as before if no file was left open. */
static __unused_fn int next_fd(void)
{
	int fd = dup(STDERR_FILENO);

	MUST(fd >= 0 && !close(fd));
	return fd;
}

/* --- engines and vars --- */

/* Small limits, since address space is reserved for them, and tests create many engines. */
static __unused_fn struct pawl_config small(int kind, int workers)
{
	struct pawl_config c;

	pawl_config_init(&c);
	c.kind = kind;
	c.workers = workers;
	c.max_ops = 1 << 16;
	c.max_vars = 1 << 16;
	c.max_threads = 64;
	c.strict_priority = true;	/* however long a gate holds the ops */
	return c;
}

static __unused_fn struct pawl_engine *engine_with(const struct pawl_config *c)
{
	struct pawl_engine *e = NULL;

	OK(pawl_engine_create(c, &e));
	MUST(e);
	return e;
}

static __unused_fn struct pawl_engine *engine(int kind, int workers)
{
	struct pawl_config c = small(kind, workers);

	return engine_with(&c);
}

static __unused_fn pawl_var_t var_new(struct pawl_engine *e)
{
	pawl_var_t v = { 0 };

	MUST(!pawl_var_create(e, &v));
	return v;
}

static __unused_fn uint64_t version(struct pawl_engine *e, pawl_var_t v)
{
	uint64_t n = ~0ull;

	MUST(!pawl_var_version(e, v, &n));
	return n;
}

static __unused_fn struct pawl_stats stats(struct pawl_engine *e)
{
	struct pawl_stats s = { .size = sizeof(s) };

	MUST(!pawl_stats(e, &s));
	return s;
}

#ifndef UTIL_NO_CHECK
/* A call that must fail with this code and these words, and must change nothing else. */
#define REFUSED(e, call, code, ...)						\
	do {									\
		struct pawl_stats refused_was_ = stats(e);			\
		FAILS(call, code, ##__VA_ARGS__);				\
		unchanged(e, &refused_was_, #call);				\
	} while (0)

/* Nothing was pushed, ended or kept since; the engine is at rest, or its ops are held. */
static __unused_fn void unchanged(struct pawl_engine *e, const struct pawl_stats *was,
				  const char *call)
{
	struct pawl_stats s = stats(e);

	ck_assert_msg(s.pushed - s.completed == was->pushed - was->completed,
		      "%s: refused, and %lld more ops are in flight", call,
		      (long long)(s.pushed - s.completed - was->pushed + was->completed));
	ck_assert_msg(s.failed == was->failed && s.skipped == was->skipped,
		      "%s: refused, and an op failed", call);
	ck_assert_msg(s.threads == was->threads || was->threads == 0,
		      "%s: refused, and a thread entered", call);
}
#endif

#define VARS(...) ((const pawl_var_t[]){ __VA_ARGS__ })
/* For pawl_graph_push(): a priority and a device. */
#define LAUNCH(prio, ...) \
	(&(const struct pawl_launch){ .size = sizeof(struct pawl_launch), .priority = prio, \
				      .device = __VA_ARGS__ })
#define COUNT(a) ((uint32_t)(sizeof(a) / sizeof((a)[0])))

/* Clear the fields of an op or of a launch whose flag is not set. */
#define without_strays(d) do {								\
	if (!((d)->flags & PAWL_OP_CQ))							\
		(d)->cq.h = (d)->tag = 0;						\
	if (!((d)->flags & PAWL_OP_DEADLINE))						\
		(d)->deadline_ns = 0;							\
	if (!((d)->flags & PAWL_OP_TICKET))						\
		(d)->ticket = NULL;							\
	if (!((d)->flags & PAWL_OP_GROUP))						\
		(d)->group.h = 0;							\
	if (!((d)->flags & PAWL_OP_COST))						\
		(d)->cost = 0;								\
} while (0)

static __unused_fn struct pawl_op op_of_fn(pawl_fn fn, void *arg)
{
	struct pawl_op op = PAWL_OP_INIT;

	op.fn = fn;
	op.arg = arg;
	return op;
}

static __unused_fn struct pawl_op op_write(pawl_fn fn, void *arg, const pawl_var_t *v)
{
	struct pawl_op op = op_of_fn(fn, arg);

	op.writes = v;
	op.nwrites = 1;
	return op;
}

static __unused_fn struct pawl_op op_read(pawl_fn fn, void *arg, const pawl_var_t *v)
{
	struct pawl_op op = op_of_fn(fn, arg);

	op.reads = v;
	op.nreads = 1;
	return op;
}

static __unused_fn int push_write(struct pawl_engine *e, pawl_fn fn, void *arg, pawl_var_t v)
{
	struct pawl_op op = op_write(fn, arg, &v);

	return pawl_push(e, &op);
}

static __unused_fn int push_read(struct pawl_engine *e, pawl_fn fn, void *arg, pawl_var_t v)
{
	struct pawl_op op = op_read(fn, arg, &v);

	return pawl_push(e, &op);
}

/* --- bodies --- */

static __unused_fn int nothing(struct pawl_run *run, void *arg)
{
	return 0;
}

static __unused_fn int add_one(struct pawl_run *run, void *arg)
{
	fetch_add_relaxed((u32 *)arg, 1);
	return 0;
}

/*
 * An asynchronous op that the test completes, from any thread: arg is a u64 for the token's handle,
 * or a pawl_token_t.
 */
static __unused_fn void keep_token(struct pawl_run *run, void *arg)
{
	store_release((u64 *)arg, run->token.h);
}

/* A message for fail_io() that outlives the statement it is in. */
#define TEXT(s) ((void *)(uintptr_t)(s))

static __unused_fn int fail_io(struct pawl_run *run, void *arg)
{
	return pawl_fail(run, -EIO, "%s", arg ? (const char *)arg : "disk on fire");
}

/* Not atomic: the var must exclude all other ops. */
static __unused_fn int add_plain(struct pawl_run *run, void *arg)
{
	++*(u64 *)arg;
	return 0;
}

/*
 * A gate: an asynchronous op that holds its vars until it is opened, with any number of
 * workers.
 */
struct gate {
	struct pawl_engine *e;
	u32 running;		/* A */
	u32 opened;		/* A */
	pawl_token_t token;
};

static __unused_fn void gate_body(struct pawl_run *run, void *arg)
{
	struct gate *g = arg;

	g->token = run->token;
	store_release(&g->running, 1);
}

static __unused_fn int gate_push(struct pawl_engine *e, struct gate *g, const pawl_var_t *reads,
				 uint32_t nr, const pawl_var_t *writes, uint32_t nw)
{
	struct pawl_op op = PAWL_OP_INIT;

	/* Another thread may look whether it runs. */
	store_relaxed(&g->running, 0);
	store_relaxed(&g->opened, 0);
	g->e = e;
	op.async_fn = gate_body;
	op.arg = g;
	op.reads = reads;
	op.nreads = nr;
	op.writes = writes;
	op.nwrites = nw;
	op.prop = PAWL_ASYNC;	/* its vars are ready, so it runs inside the push */
	op.name = "gate";
	return pawl_push(e, &op);
}

static __unused_fn void gate_write(struct pawl_engine *e, struct gate *g, pawl_var_t v)
{
	MUST(!gate_push(e, g, NULL, 0, &v, 1));
}

static __unused_fn void gate_read(struct pawl_engine *e, struct gate *g, pawl_var_t v)
{
	MUST(!gate_push(e, g, &v, 1, NULL, 0));
}

static __unused_fn void gate_open(struct gate *g)
{
	MUST(soon(load_acquire(&g->running)));
	MUST(!pawl_complete(g->e, g->token, 0, NULL));
	store_release(&g->opened, 1);
}

/*
 * A plug: a body that keeps one worker busy until it is pulled, so that ready ops stay in the
 * queue meanwhile.
 */
struct plug {
	u32 in;			/* A */
	u32 out;		/* A */
};

static __unused_fn int plug_body(struct pawl_run *run, void *arg)
{
	struct plug *p = arg;

	store_release(&p->in, 1);
	MUST(soon(load_acquire(&p->out)));
	return 0;
}

static __unused_fn void plug_in(struct pawl_engine *e, struct plug *p, int prop)
{
	struct pawl_op op = op_of_fn(plug_body, p);

	memset(p, 0, sizeof(*p));
	op.prop = (uint16_t)prop;
	op.priority = INT_MAX;
	MUST(!pawl_push(e, &op));
	MUST(soon(load_acquire(&p->in)));
}

static __unused_fn void plug_out(struct plug *p)
{
	store_release(&p->out, 1);
}

/*
 * Wait until the engine's n workers poll for work, by letting each run a body at the same time.
 * A worker that is still starting allocates memory.
 */
#define WORKERS_MAX 8

static __unused_fn void workers_up(struct pawl_engine *e, int workers)
{
	struct plug p[WORKERS_MAX];
	int i;

	MUST(workers <= WORKERS_MAX);
	for (i = 0; i < workers; i++)
		plug_in(e, &p[i], PAWL_NORMAL);
	for (i = 0; i < workers; i++)
		plug_out(&p[i]);
	MUST(!pawl_wait_all(e, SOON_NS, NULL));
}

/* A recorder of the order in which ops ran. */
struct record {
	u32 n;			/* A */
	u32 id[8192];
};

struct note {
	struct record *rec;
	u32 id;
};

static __unused_fn int take_note(struct pawl_run *run, void *arg)
{
	struct note *n = arg;
	u32 i = fetch_add_relaxed(&n->rec->n, 1);

	MUST(i < ARRAY_SIZE(n->rec->id));
	store_release(&n->rec->id[i], n->id);
	return 0;
}

/* A release that pushes. */
struct again {
	struct pawl_engine *e;
	pawl_var_t v;
	u32 n;		/* A */
};

static __unused_fn void release_pushes(void *arg, int status)
{
	struct again *a = arg;

	MUST(!push_write(a->e, add_one, &a->n, a->v));
}

/* For pawl_watch(): keep the last report. */
static __unused_fn void stalled_keep(void *arg, const struct pawl_stalled *s)
{
	*(struct pawl_stalled *)arg = *s;
}

/* --- threads --- */

static __unused_fn pthread_t spawn(void *(*fn)(void *), void *arg)
{
	pthread_t t;

	MUST(!pthread_create(&t, NULL, fn, arg));
	return t;
}

static __unused_fn void join(pthread_t t)
{
	MUST(!pthread_join(t, NULL));
}

/* --- the program --- */

#ifndef UTIL_NO_CHECK

static __unused_fn int tests_run(const char *name, const TTest *const *tests)
{
	Suite *s = suite_create(name);
	TCase *tc = tcase_create(name);

	tcase_set_timeout(tc, 50);
	for (; *tests; tests++)
		tcase_add_test(tc, *tests);
	suite_add_tcase(s, tc);
	return suite_run(s);
}

#define SUITE(name, ...)							\
	int main(void)								\
	{									\
		const TTest *const tests[] = { __VA_ARGS__, NULL };		\
										\
		return tests_run(name, tests);					\
	}
#endif

/* Resident memory of the process. */
static inline u64 rss_kib(void)
{
	long pages = 0, ignored;
	FILE *f = fopen("/proc/self/statm", "r");

	MUST(f && fscanf(f, "%ld %ld", &ignored, &pages) == 2);
	fclose(f);
	return (u64)pages * (u64)sysconf(_SC_PAGESIZE) / 1024;
}

#endif
