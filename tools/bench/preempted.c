// SPDX-License-Identifier: Apache-2.0
/*
 * More threads than CPUs, and threads that are stopped: what happens to all others when a thread
 * does not run.  The same measurement drives pawl, and with --vs other engines, in turns.
 *
 * Each producer has some ops in flight, each with its own slot, and sleeps when all are.  An op
 * writes one var of its producer.  Completions mark the tenth of a millisecond in which they
 * happen; the longest time without a mark is the longest silence of the whole engine.
 */

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "driver.h"
#include "suite.h"

#define SLOTS		64u		/* ops in flight, of a producer */
#define LOW		32u		/* a producer that sleeps is woken at so many */
#define VARS		16u		/* of a producer */
#define MARK_NS		100000u
#define STOP_NS		100000000u	/* a thread is stopped this long */
#define MAX_DRIVERS	8u
#define MAX_THREADS	512u

enum how { HOW_PLAIN, HOW_STOPPED, HOW_IDLE };

struct team;

struct op_slot {
	struct pusher *p;
	uint64_t pushed, took;		/* took: of the last op; 0: none that counts */
	uint32_t var;
	bool busy;			/* atomic */
};

struct pusher {
	struct team *t;
	pthread_t id;
	struct op_slot slots[SLOTS];
	uint64_t writes[VARS];		/* by ops, which the engine keeps apart */
	uint64_t pushes[VARS];
	unsigned int in_flight;		/* atomic */
	uint64_t ended;			/* atomic: bodies that do not come back to this struct */
	bool sleeps;			/* atomic */
	sem_t wake;
	uint32_t me;
	struct hist hist;
} __attribute__((aligned(128)));

struct team {
	struct run *r;
	const struct bench_driver *d;
	void *e;
	uint32_t turns;
	enum how how;
	uint64_t done;			/* in the measured time; atomic */
	uint64_t last;			/* marks beyond are not in the measured time */
	unsigned char *mark;		/* atomic */
	struct pusher *p;
};

/* --- pawl as a driver ------------------------------------------------------------------------ */

struct on_pawl {
	struct pawl_engine *e;
	pawl_var_t v[];
};

/* What a push passes to the op besides the argument. */
struct call {
	void (*body)(void *arg);
	void *arg;
};

static int call_body(struct pawl_run *run, void *arg)
{
	const struct call *c = arg;

	(void)run;
	c->body(c->arg);
	return 0;
}

/* Workers block signals, but the one that stops a thread must reach them. */
static void pawl_start(void *user, const char *name)
{
	sigset_t set;

	(void)user;
	(void)name;
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 5);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

static void *pawl_create(unsigned int pushers, unsigned int workers, uint32_t vars)
{
	struct on_pawl *on = bench_alloc(1, sizeof(*on) + vars * sizeof(on->v[0]));
	struct pawl_config c;

	pawl_config_init(&c);
	c.workers = (int)workers;
	c.max_threads = pushers + workers + 16;
	c.thread_start = pawl_start;
	bench_check(pawl_engine_create(&c, &on->e), "pawl_engine_create");
	bench_vars(on->e, on->v, vars);
	return on;
}

static void pawl_push_call(void *e, uint32_t var, void (*body)(void *arg), void *arg)
{
	struct on_pawl *on = e;
	struct call c = { body, arg };
	struct pawl_op op = bench_write(call_body, &c, &on->v[var]);

	op.flags = PAWL_OP_ARG;
	op.arg_size = sizeof(c);
	bench_check(pawl_push(on->e, &op), "pawl_push");
}

static void pawl_destroy(void *e)
{
	struct on_pawl *on = e;

	bench_check(pawl_engine_destroy(on->e), "pawl_engine_destroy");
	free(on);
}

static const struct bench_driver on_pawl = {
	.version = BENCH_DRIVER_VERSION, .name = "pawl", .create = pawl_create,
	.push = pawl_push_call, .destroy = pawl_destroy,
};

/* --- drivers --------------------------------------------------------------------------------- */

static const struct bench_driver *drivers[MAX_DRIVERS] = { &on_pawl };
static unsigned int ndrivers = 1;

static int by_name(const void *a, const void *b)
{
	return strcmp((*(const struct bench_driver *const *)a)->name,
		      (*(const struct bench_driver *const *)b)->name);
}

int bench_drivers(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *f;
	char path[4096];

	if (!d) {
		fprintf(stderr, "%s: %s: %s\n", BENCH_SELF, dir, strerror(errno));
		return -1;
	}
	ndrivers = 1;
	while ((f = readdir(d))) {
		size_t n = strlen(f->d_name);
		const struct bench_driver *driver;
		void *h;

		if (n < 4 || strcmp(f->d_name + n - 3, ".so") || ndrivers == MAX_DRIVERS)
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, f->d_name);
		h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
		driver = h ? dlsym(h, "bench_driver") : NULL;
		if (!driver || driver->version != BENCH_DRIVER_VERSION) {
			fprintf(stderr, "%s: %s: %s\n", BENCH_SELF, path, !h ? dlerror() :
				"not a driver of this version");
			closedir(d);
			return -1;
		}
		drivers[ndrivers++] = driver;
	}
	closedir(d);
	if (ndrivers == 1) {
		fprintf(stderr, "%s: %s: no drivers\n", BENCH_SELF, dir);
		return -1;
	}
	qsort(drivers + 1, ndrivers - 1, sizeof(drivers[0]), by_name);
	return 0;
}

/* --- producers --------------------------------------------------------------------------------- */

static void op_body(void *arg)
{
	struct op_slot *s = arg;
	struct pusher *p = s->p;
	struct team *t = p->t;
	uint64_t now;

	if (!t->d->unordered)
		p->writes[s->var]++;
	burn(t->turns);
	now = now_ns();
	s->took = s->pushed >= t->r->begin ? now - s->pushed + 1 : 0;
	if (now >= t->r->begin) {
		uint64_t i = (now - t->r->begin) / MARK_NS;

		if (i < t->last && !__atomic_load_n(&t->mark[i], __ATOMIC_RELAXED))
			__atomic_store_n(&t->mark[i], 1, __ATOMIC_RELAXED);
	}
	__atomic_store_n(&s->busy, false, __ATOMIC_RELEASE);
	if (__atomic_sub_fetch(&p->in_flight, 1, __ATOMIC_SEQ_CST) == LOW &&
	    __atomic_load_n(&p->sleeps, __ATOMIC_SEQ_CST))
		sem_post(&p->wake);
	__atomic_add_fetch(&p->ended, 1, __ATOMIC_RELEASE);
}

static unsigned int in_flight(const struct pusher *p)
{
	return __atomic_load_n(&p->in_flight, __ATOMIC_SEQ_CST);
}

/* Sleep until half of the ops have ended. */
static void pusher_sleep(struct pusher *p)
{
	__atomic_store_n(&p->sleeps, true, __ATOMIC_SEQ_CST);
	/* a wake for an earlier sleep may be left over */
	while (in_flight(p) > LOW)
		while (sem_wait(&p->wake) && errno == EINTR)
			;
	__atomic_store_n(&p->sleeps, false, __ATOMIC_SEQ_CST);
}

/* The time of the last op of a slot, which has ended. */
static void slot_collect(struct pusher *p, struct op_slot *s)
{
	if (!s->took)
		return;
	hist_add(&p->hist, s->took - 1);
	s->took = 0;
}

static void pusher_push(struct pusher *p, struct op_slot *s)
{
	struct team *t = p->t;

	if (s->took) {
		__atomic_add_fetch(&t->done, 1, __ATOMIC_RELAXED);
		run_measured(t->r);
	}
	slot_collect(p, s);
	s->busy = true;
	__atomic_add_fetch(&p->in_flight, 1, __ATOMIC_SEQ_CST);
	p->pushes[s->var]++;
	s->pushed = now_ns();
	t->d->push(t->e, p->me * VARS + s->var, op_body, s);
}

static void pusher_run(void *arg)
{
	struct pusher *p = arg;
	uint64_t pushed = 0;
	unsigned int i = 0, k;

	for (; !run_ended(p->t->r); pushed++) {
		if (in_flight(p) == SLOTS)
			pusher_sleep(p);
		while (__atomic_load_n(&p->slots[i].busy, __ATOMIC_ACQUIRE))
			i = (i + 1) % SLOTS;
		pusher_push(p, &p->slots[i]);
		i = (i + 1) % SLOTS;
	}
	while (__atomic_load_n(&p->ended, __ATOMIC_ACQUIRE) != pushed)
		sched_yield();
	/* the ops that took the longest may be among these */
	for (k = 0; k < SLOTS; k++)
		slot_collect(p, &p->slots[k]);
	for (k = 0; k < VARS && !p->t->d->unordered; k++)
		if (p->writes[k] != p->pushes[k])
			bench_die("%s: WRONG RESULT: %llu of %llu writes of a var", p->t->d->name,
				  (unsigned long long)p->writes[k],
				  (unsigned long long)p->pushes[k]);
}

static void *pusher_thread(void *arg)
{
	struct sched_param none = { 0 };
	struct pusher *p = arg;

	if (p->t->how == HOW_IDLE && sched_setscheduler(0, SCHED_IDLE, &none))
		bench_die("SCHED_IDLE: %s", strerror(errno));
	if (p->t->d->enter)
		p->t->d->enter(p->t->e, pusher_run, p);
	else
		pusher_run(p);
	return NULL;
}

/* --- stopped threads ----------------------------------------------------------------------------- */

static void stop_handler(int number)
{
	struct timespec ts = { 0, STOP_NS };
	int saved = errno;

	(void)number;
	while (nanosleep(&ts, &ts))
		;
	errno = saved;
}

/* Stop another thread of the process for a while, wherever it is. */
static void stop_one(struct run *r)
{
	pid_t all[MAX_THREADS], self = (pid_t)syscall(SYS_gettid);
	DIR *d = opendir("/proc/self/task");
	struct dirent *f;
	unsigned int n = 0;

	while (d && (f = readdir(d))) {
		pid_t tid = (pid_t)strtol(f->d_name, NULL, 10);

		if (tid && tid != self && n < MAX_THREADS)
			all[n++] = tid;
	}
	if (d)
		closedir(d);
	if (n)
		syscall(SYS_tgkill, getpid(), all[random_next(&r->seed) % n], SIGRTMIN + 5);
}

static void stop_often(struct run *r)
{
	struct sigaction action = { .sa_handler = stop_handler, .sa_flags = SA_RESTART };

	/* it stays: a signal may arrive late */
	sigaction(SIGRTMIN + 5, &action, NULL);
	while (run_goes_on(r, now_ns(), true)) {
		stop_one(r);
		sleep_ns(STOP_NS / 2 + random_next(&r->seed) % STOP_NS);
	}
	run_rest(r);
}

/* --- the case ---------------------------------------------------------------------------------------- */

/* The longest time without a completion. */
static uint64_t silence(const struct team *t, uint64_t ns)
{
	uint64_t n = ns / MARK_NS < t->last ? ns / MARK_NS : t->last, longest = 0, run = 0, i;

	for (i = 0; i < n; i++) {
		run = t->mark[i] ? 0 : run + 1;
		longest = run > longest ? run : longest;
	}
	return longest * MARK_NS;
}

/* p: producers, and as many workers; ns of a body; how << 8 | driver. */
static void run_preempted(struct run *r)
{
	unsigned int n = r->c->p[0], i;
	struct team t = { .r = r, .d = drivers[r->c->p[2] & 0xff], .how = r->c->p[2] >> 8 };
	size_t bytes = n * sizeof(*t.p);

	t.turns = work_turns(r->c->p[1]);
	t.last = r->slice_ns / MARK_NS + 1;
	t.mark = bench_alloc(t.last, 1);
	t.p = aligned_alloc(128, bytes);
	if (!t.p)
		bench_die("out of memory");
	memset(t.p, 0, bytes);
	t.e = t.d->create(n, n, n * VARS);
	run_begin(r);
	for (i = 0; i < n; i++) {
		struct pusher *p = &t.p[i];
		unsigned int k;

		p->t = &t;
		p->me = i;
		sem_init(&p->wake, 0, 0);
		for (k = 0; k < SLOTS; k++)
			p->slots[k] = (struct op_slot){ .p = p, .var = k % VARS };
		if (pthread_create(&p->id, NULL, pusher_thread, p))
			bench_die("cannot create a thread");
	}
	run_warm(r);
	if (t.how == HOW_STOPPED)
		stop_often(r);
	else
		run_rest(r);
	for (i = 0; i < n; i++) {
		pthread_join(t.p[i].id, NULL);
		sem_destroy(&t.p[i].wake);
		hist_merge(r->c->figure[1]->now, &t.p[i].hist);
	}
	t.d->destroy(t.e);
	if (t.done) {
		r->value[0] = (double)t.done * 1e9 / (double)(r->end - r->begin);
		r->value[2] = (double)silence(&t, r->slice_ns);
	}
	free(t.mark);
	free(t.p);
}

static void plan_one(struct plan *p, const char *name, unsigned int threads, unsigned int body,
		     enum how how)
{
	unsigned int i;

	for (i = 0; i < (p->o->vs ? ndrivers : 1); i++) {
		struct bench_case *c = plan_case(p, run_preempted, 1, "preempted/%s%s%s", name,
						 i ? "@" : "", i ? drivers[i]->name : "");

		c->p[0] = threads / 2 ? threads / 2 : 1;
		c->p[1] = body;
		c->p[2] = how << 8 | i;
		plan_figure(p, "rate", UNIT_RATE, false,
			    "ops of producers with 64 in flight each, and as many workers");
		plan_figure(p, "time", UNIT_NS, true, "from the push of such an op to its end");
		plan_figure(p, "silence", UNIT_NS, false,
			    "the longest time in which no op of any thread ended");
	}
}

void plan_preempted(struct plan *p)
{
	static const struct {
		const char *name;
		unsigned int ns;
	} body[] = { { "0", 0 }, { "1us", 1000 }, { "20us", 20000 } };
	unsigned int per, k, cpus = p->o->cpus < 64 ? p->o->cpus : 64;
	char name[32];

	for (per = 1; per <= 8; per *= 2) {
		for (k = 0; k < 3; k++) {
			snprintf(name, sizeof(name), "%u-%s", per, body[k].name);
			plan_one(p, name, per * cpus, body[k].ns, HOW_PLAIN);
		}
	}
	plan_one(p, "stopped-1us", 2 * cpus, 1000, HOW_STOPPED);
	plan_one(p, "idle-1us", 2 * cpus, 1000, HOW_IDLE);
}
