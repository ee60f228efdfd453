// SPDX-License-Identifier: Apache-2.0
/*
 * Ends: engines that are destroyed under load, threads that end after their engine, forks in
 * the middle of pushes and from bodies, exit() with an engine alive, dlclose(), signals while
 * threads wait, slots of threads that have ended, and stops while others push.
 *
 * Each round is one of these at random; at its end every accepted op is complete.
 *
 *	teardown [--seconds S] [--seed N] [LIBRARY.so]	(PAWL_TEARDOWN_SECONDS; 6)
 */
#define UTIL_NO_CHECK
#include "../unit/util.h"
#include <dlfcn.h>
#include <signal.h>

static u64 seed = 1;
static u64 rounds[16];
static const char *library;

/* --- destroy with work in flight, which pushes more --- */

struct chain {
	struct pawl_engine *e;
	pawl_var_t *v;
	u64 left, ran;		/* A */
};

static int chain_body(struct pawl_run *run, void *arg)
{
	struct chain *c = arg;
	u64 left = fetch_add_relaxed(&c->left, -1ull);

	fetch_add_relaxed(&c->ran, 1);
	if ((s64)left > 0)
		MUST(!push_write(c->e, chain_body, c, c->v[left % 4]));
	return 0;
}

static void round_destroy(void)
{
	struct pawl_config cfg = small((int)(rnd(&seed) % 2), (int)(rnd(&seed) % 4));
	pawl_var_t v[4];
	struct chain c = { .v = v };
	u32 i, n = 1 + (u32)(rnd(&seed) % 20);

	cfg.spin_ns = rnd(&seed) % 2 ? 0 : 20000;
	c.e = engine_with(&cfg);
	c.left = rnd(&seed) % 500;
	for (i = 0; i < 4; i++)
		v[i] = var_new(c.e);
	for (i = 0; i < n; i++)
		MUST(!push_write(c.e, chain_body, &c, v[i % 4]));
	if (rnd(&seed) % 3 == 0)
		OK(pawl_engine_stop(c.e));
	OK(pawl_engine_destroy(c.e));
	MUST(c.ran >= n && (s64)c.left <= 0);
}

/* --- threads that end before, at, and after the end of their engine --- */

struct late {
	struct pawl_engine *e;
	u32 in, gone;		/* A */
	u64 delay;
	bool wait;
};

static void *late_main(void *arg)
{
	struct late *l = arg;
	pawl_var_t v = var_new(l->e);
	u32 i;

	for (i = 0; i < 10; i++)
		MUST(!push_write(l->e, nothing, NULL, v));
	fetch_add_acq_rel(&l->in, 1);
	while (l->wait && !load_acquire(&l->gone))
		sched_yield();
	for (i = 0; i < l->delay % 2000; i++)
		cpu_relax();
	return NULL;
}

static void round_late(void)
{
	struct late l = { .e = engine(PAWL_PER_DEVICE, (int)(rnd(&seed) % 3)) };
	pthread_t t[4];
	u32 i;

	l.delay = rnd(&seed);
	l.wait = rnd(&seed) % 2;	/* otherwise the thread ends at the same time as the
					   engine */
	for (i = 0; i < 4; i++)
		t[i] = spawn(late_main, &l);
	while (load_acquire(&l.in) < 4)
		sched_yield();
	OK(pawl_engine_destroy(l.e));
	store_release(&l.gone, 1);
	for (i = 0; i < 4; i++)
		join(t[i]);
}

/* --- fork in the middle of pushes --- */

static u32 stop_pushing;		/* A */
/*
 * Each thread makes this many pushes.  A thread that waits until nothing is in flight need not
 * find such a moment while others push without end.
 */
static u32 may_push;			/* A */
#define PUSHES	10000u

static void *push_main(void *arg)
{
	struct pawl_engine *e = arg;
	pawl_var_t v[3] = { var_new(e), var_new(e), var_new(e) };
	struct pawl_op op = PAWL_OP_INIT;
	u32 pushed = 0;

	op.fn = nothing;
	op.writes = v;
	while (!load_acquire(&stop_pushing)) {
		if (pushed >= load_acquire(&may_push)) {
			nap_us(50);
			continue;
		}
		pushed++;
		op.nwrites = op.nwrites % 3 + 1;
		MUST(!pawl_push(e, &op));
		if (op.nwrites == 2)
			MUST(!pawl_wait_readable(e, v[0], -1, NULL));
	}
	return NULL;
}

/* Create, use and destroy a new engine. */
static void use_engine(void)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 2);
	pawl_var_t v = var_new(e);
	u64 sum = 0;
	u32 i;

	for (i = 0; i < 20; i++)
		MUST(!push_write(e, add_plain, &sum, v));
	OK(pawl_wait_readable(e, v, -1, NULL));
	MUST(sum == 20);
	OK(pawl_engine_destroy(e));
}

static void child_after_fork(struct pawl_engine *e, pawl_var_t v, u64 how)
{
	alarm(60);
	if (how % 2)
		MUST(push_write(e, nothing, NULL, v) == -EOWNERDEAD);
	if (how / 2 % 2)
		OK(pawl_engine_destroy(e));
	use_engine();
	if (how / 2 % 2 == 0)
		OK(pawl_engine_destroy(e));
	if (how / 4 % 2)
		exit(0);	/* including everything that runs at exit */
	_exit(0);
}

static void round_fork(void)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 2);
	pawl_var_t v = var_new(e);
	pthread_t t[2];
	int status;
	pid_t pid;
	u32 i, n = 1 + (u32)(rnd(&seed) % 3);

	stop_pushing = 0;
	may_push = UINT32_MAX;
	for (i = 0; i < 2; i++)
		t[i] = spawn(push_main, e);
	for (i = 0; i < n; i++) {
		nap_us((long)(rnd(&seed) % 500));
		if (rnd(&seed) % 2)
			MUST(!push_write(e, nothing, NULL, v));
		fflush(NULL);
		pid = fork();
		MUST(pid >= 0);
		if (!pid)
			child_after_fork(e, v, rnd(&seed));
		MUST(waitpid(pid, &status, 0) == pid);
		MUST(WIFEXITED(status) && !WEXITSTATUS(status));
	}
	store_release(&stop_pushing, 1);
	join(t[0]);
	join(t[1]);
	OK(pawl_engine_destroy(e));
}

/* Fork in a body, on the thread that runs it. */
static int fork_body(struct pawl_run *run, void *arg)
{
	u64 how = *(u64 *)arg;
	pawl_var_t none = { 0 };
	int status;
	pid_t pid = fork();

	MUST(pid >= 0);
	if (!pid) {
		alarm(60);
		MUST(push_write(run->engine, nothing, NULL, none) == -EOWNERDEAD);
		if (how % 2)
			OK(pawl_engine_destroy(run->engine));
		use_engine();
		_exit(0);
	}
	MUST(waitpid(pid, &status, 0) == pid);
	MUST(WIFEXITED(status) && !WEXITSTATUS(status));
	return 0;
}

static void round_body_fork(void)
{
	struct pawl_engine *e = engine((int)(rnd(&seed) % 3), (int)(rnd(&seed) % 3));
	pawl_var_t v[2] = { var_new(e), var_new(e) };
	u64 how = rnd(&seed);
	u32 i;

	fflush(NULL);
	for (i = 0; i < 30; i++) {
		MUST(!push_write(e, nothing, NULL, v[i % 2]));
		if (i == 15)
			MUST(!push_write(e, fork_body, &how, v[0]));
	}
	OK(pawl_wait_all(e, -1, NULL));
	MUST(version(e, v[0]) == 16 && version(e, v[1]) == 15);
	OK(pawl_engine_destroy(e));
}

/* --- signals while threads wait: a wait is over when it is, and not before --- */

static u32 handled, stop_signals;	/* A */
static u32 handled_by_worker;		/* A */
static __thread bool a_worker;

static void on_signal(int sig)
{
	fetch_add_relaxed(&handled, 1);
	if (a_worker)
		fetch_add_relaxed(&handled_by_worker, 1);
}

static void worker_is_born(void *user, const char *name)
{
	a_worker = true;
}

static void *signal_main(void *arg)
{
	pthread_t *to = arg;
	u32 i;

	/* Send one to a thread and one to the process, which any thread may take. */
	for (i = 0; !load_acquire(&stop_signals); i++) {
		if (i % 4)
			pthread_kill(to[i % 2], SIGUSR1);
		else
			kill(getpid(), SIGUSR1);
		nap_us(50);
	}
	return NULL;
}

struct waits {
	struct pawl_engine *e;
	struct gate *g;
	pawl_var_t v;
	u32 early;		/* A */
	bool all;
};

static void *wait_main(void *arg)
{
	struct waits *ws = arg;
	bool all = ws->all;
	u64 from = now_ms();
	u32 i;

	/* Timeouts are kept, whatever wakes the thread. */
	for (i = 0; i < 3; i++)
		MUST(pawl_wait_writable(ws->e, ws->v, 2000000, NULL) == -ETIMEDOUT);
	MUST(now_ms() - from >= 5);
	fetch_add_acq_rel(&ws->early, 1);
	if (all)
		OK(pawl_wait_all(ws->e, -1, NULL));
	else
		OK(pawl_wait_readable(ws->e, ws->v, -1, NULL));
	MUST(load_acquire(&ws->g->opened));
	return NULL;
}

static void round_signals(void)
{
	struct pawl_config cfg = small(PAWL_PER_DEVICE, (int)(rnd(&seed) % 3));
	struct sigaction sa = { .sa_handler = on_signal };	/* no SA_RESTART */
	struct waits ws = { .v = { 0 } };
	pthread_t t[2], signals;
	struct gate g;
	u32 i;

	MUST(!sigaction(SIGUSR1, &sa, NULL));
	cfg.spin_ns = rnd(&seed) % 2 ? 0 : 20000;
	cfg.thread_start = worker_is_born;
	ws.e = engine_with(&cfg);
	ws.v = var_new(ws.e);
	ws.g = &g;
	gate_write(ws.e, &g, ws.v);
	/* A worker that receives the signal, if there are workers. */
	for (i = 0; i < 4; i++)
		MUST(!push_write(ws.e, nothing, NULL, var_new(ws.e)));
	store_release(&stop_signals, 0);
	for (i = 0; i < 2; i++) {
		ws.all = i;
		t[i] = spawn(wait_main, &ws);
		while (load_acquire(&ws.early) < i + 1)
			sched_yield();
	}
	signals = spawn(signal_main, t);
	nap_us((long)(rnd(&seed) % 3000));
	/* Set before the gate is opened, since the completion may happen at once. */
	store_release(&g.opened, 1);
	MUST(!pawl_complete(ws.e, g.token, 0, NULL));
	store_release(&stop_signals, 1);
	join(signals);
	join(t[0]);
	join(t[1]);
	OK(pawl_engine_destroy(ws.e));
	MUST(!load_relaxed(&handled_by_worker));
}

/* --- places that waits of threads that are gone left behind --- */

static void *give_up_main(void *arg)
{
	struct waits *ws = arg;
	u32 i;

	for (i = 0; i < 3; i++) {
		MUST(pawl_wait_writable(ws->e, ws->v, 1000, NULL) == -ETIMEDOUT);
		MUST(pawl_wait_readable(ws->e, ws->v, 1000, NULL) == -ETIMEDOUT);
	}
	return NULL;
}

static void round_places(void)
{
	struct waits ws = { .e = engine(PAWL_PER_DEVICE, (int)(rnd(&seed) % 3)) };
	struct gate g;
	u32 i, ran = 0;

	ws.v = var_new(ws.e);
	gate_write(ws.e, &g, ws.v);
	for (i = 0; i < 4; i++) {
		join(spawn(give_up_main, &ws));
		MUST(!push_write(ws.e, add_one, &ran, ws.v));
	}
	if (rnd(&seed) % 2)
		MUST(!pawl_var_delete(ws.e, ws.v, NULL, NULL));
	gate_open(&g);
	OK(pawl_engine_destroy(ws.e));
	MUST(ran == 4);
}

/* --- stop and start while others push --- */

static void round_stop(void)
{
	struct pawl_engine *e = engine((int)(rnd(&seed) % 2), 1 + (int)(rnd(&seed) % 2));
	u32 i, n = 1 + (u32)(rnd(&seed) % 4);
	pthread_t t[2];

	stop_pushing = 0;
	may_push = PUSHES;
	for (i = 0; i < 2; i++)
		t[i] = spawn(push_main, e);
	for (i = 0; i < n; i++) {
		nap_us((long)(rnd(&seed) % 300));
		OK(pawl_engine_stop(e));
		if (rnd(&seed) % 2)
			nap_us((long)(rnd(&seed) % 100));
		OK(pawl_engine_start(e));
		fetch_add_relaxed(&may_push, PUSHES);
	}
	store_release(&stop_pushing, 1);
	join(t[0]);
	join(t[1]);
	if (rnd(&seed) % 2)
		OK(pawl_engine_stop(e));
	OK(pawl_engine_destroy(e));
}

/* --- exit() with an engine alive --- */

static struct pawl_engine *left_alive;
static u32 at_exit_how;

static void at_exit(void)
{
	pawl_var_t v;

	if (at_exit_how % 3 == 0)
		return;
	/* As the destructor of a static object does it. */
	v = var_new(left_alive);
	MUST(!push_write(left_alive, nothing, NULL, v));
	OK(pawl_wait_all(left_alive, -1, NULL));
	if (at_exit_how % 3 == 2)
		OK(pawl_engine_destroy(left_alive));
}

static void round_exit(void)
{
	u64 how = rnd(&seed);
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	MUST(pid >= 0);
	if (!pid) {
		pawl_var_t v;
		u32 i;

		alarm(60);
		at_exit_how = (u32)(how % 6);
		left_alive = engine(PAWL_PER_DEVICE, 2);
		MUST(!atexit(at_exit));
		v = var_new(left_alive);
		stop_pushing = 0;
		may_push = PUSHES;
		/* A thread that continues to push while the process ends. */
		if (at_exit_how % 3 != 2)
			pthread_detach(spawn(push_main, left_alive));
		for (i = 0; i < how / 6 % 300; i++)
			MUST(!push_write(left_alive, nothing, NULL, v));
		exit(7);
	}
	MUST(waitpid(pid, &status, 0) == pid);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 7)
		fprintf(stderr, "exit() with an engine alive: status %#x, case %u\n",
			(unsigned int)status, (unsigned int)(how % 6));
	MUST(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

/* --- dlclose(): the library is not unloaded under threads that will end later --- */

struct loaded {
	void *handle;
	int (*create)(const struct pawl_config *cfg, struct pawl_engine **out);
	int (*destroy)(struct pawl_engine *e);
	int (*var_create)(struct pawl_engine *e, pawl_var_t *out);
	u32 used, closed;	/* A */
};

static void *loaded_main(void *arg)
{
	struct loaded *l = arg;
	struct pawl_engine *e;
	pawl_var_t v;

	MUST(!l->create(NULL, &e) && !l->var_create(e, &v) && !l->destroy(e));
	fetch_add_acq_rel(&l->used, 1);
	while (!load_acquire(&l->closed))
		sched_yield();
	return NULL;	/* its thread-specific destructor is in the library */
}

/* Load and close the library repeatedly in a process that continues. */
static void dlclose_cycles(void)
{
	u32 i;

	for (i = 0; i < 20; i++) {
		struct loaded l = { .handle = dlopen(library, RTLD_NOW | RTLD_LOCAL), .closed = 1 };

		MUST(l.handle);
		*(void **)&l.create = dlsym(l.handle, "pawl_engine_create");
		*(void **)&l.destroy = dlsym(l.handle, "pawl_engine_destroy");
		*(void **)&l.var_create = dlsym(l.handle, "pawl_var_create");
		if (i % 2)
			join(spawn(loaded_main, &l));
		else
			loaded_main(&l);
		MUST(!dlclose(l.handle));
	}
}

static void child_dlclose(void)
{
	struct loaded l = { .handle = dlopen(library, RTLD_NOW | RTLD_LOCAL) };
	pthread_t t[2];
	u32 i;

	alarm(60);
	if (!l.handle)
		fprintf(stderr, "%s\n", dlerror());
	MUST(l.handle);
	*(void **)&l.create = dlsym(l.handle, "pawl_engine_create");
	*(void **)&l.destroy = dlsym(l.handle, "pawl_engine_destroy");
	*(void **)&l.var_create = dlsym(l.handle, "pawl_var_create");
	MUST(l.create && l.destroy && l.var_create);
	for (i = 0; i < 2; i++)
		t[i] = spawn(loaded_main, &l);
	while (load_acquire(&l.used) < 2)
		sched_yield();
	MUST(!dlclose(l.handle));
	store_release(&l.closed, 1);
	for (i = 0; i < 2; i++)
		join(t[i]);
	dlclose_cycles();
	/* Forks call what the library registered. */
	i = (u32)fork();
	if (!i)
		_exit(0);
	MUST(waitpid((pid_t)i, NULL, 0) == (pid_t)i);
	exit(0);
}

static void round_dlclose(void)
{
	int status;
	pid_t pid;

	if (!library)
		return;
	fflush(NULL);
	pid = fork();
	MUST(pid >= 0);
	if (!pid)
		child_dlclose();
	MUST(waitpid(pid, &status, 0) == pid);
	if (status)
		fprintf(stderr, "dlclose: status %#x\n", (unsigned int)status);
	MUST(!status);
}

static const struct { const char *name; void (*fn)(void); u32 weight; } kinds[] = {
	{ "destroy", round_destroy, 8 },
	{ "late", round_late, 8 },
	{ "fork", round_fork, 4 },
	{ "exit", round_exit, 4 },
	{ "dlclose", round_dlclose, 1 },
	{ "bodyfork", round_body_fork, 3 },
	{ "signals", round_signals, 3 },
	{ "places", round_places, 3 },
	{ "stop", round_stop, 4 },
};

static void *watchdog(void *arg)
{
	u64 last = 0, same = 0, n;
	u32 i;

	for (;;) {
		nap_us(1000000);
		for (n = i = 0; i < ARRAY_SIZE(kinds); i++)
			n += load_relaxed(&rounds[i]);
		same = n == last ? same + 1 : 0;
		last = n;
		if (same < patience_ms(100000) / 1000)
			continue;
		fprintf(stderr, "teardown: a round does not end; seed %llu\n", (unsigned long long)seed);
		abort();
	}
	return NULL;
}

int main(int argc, char **argv)
{
	double seconds = 6;
	u64 end, n = 0, first;
	u32 i, k, weights = 0;

	if (getenv("PAWL_TEARDOWN_SECONDS"))
		seconds = atof(getenv("PAWL_TEARDOWN_SECONDS"));
	for (i = 1; i < (u32)argc; i++) {
		if (!strcmp(argv[i], "--seconds") && i + 1 < (u32)argc)
			seconds = atof(argv[++i]);
		else if (!strcmp(argv[i], "--seed") && i + 1 < (u32)argc)
			seed = strtoull(argv[++i], NULL, 0);
		else
			library = argv[i];
	}
	first = seed;
	pthread_detach(spawn(watchdog, NULL));
	for (k = 0; k < ARRAY_SIZE(kinds); k++)
		weights += kinds[k].weight;
	end = now_ms() + (u64)(seconds * 1000);
	/* Each kind at least once, however slow the machine is. */
	for (; n < 2 * ARRAY_SIZE(kinds) || now_ms() < end; n++) {
		k = (u32)(n % ARRAY_SIZE(kinds));
		if (n >= 2 * ARRAY_SIZE(kinds))
			for (i = (u32)(rnd(&seed) % weights), k = 0; i >= kinds[k].weight; k++)
				i -= kinds[k].weight;
		kinds[k].fn();
		fetch_add_relaxed(&rounds[k], 1);
	}
	printf("C19 teardown: rounds=%llu", (unsigned long long)n);
	for (k = 0; k < ARRAY_SIZE(kinds); k++)
		printf(" %s=%llu", kinds[k].name,
		       (unsigned long long)(k == 4 && !library ? 0 : rounds[k]));
	printf(" seed=%llu PASS\n", (unsigned long long)first);
	return 0;
}
