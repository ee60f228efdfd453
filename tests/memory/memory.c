// SPDX-License-Identifier: Apache-2.0
/*
 * Bounded memory: a thread that is stopped for long cannot make the others use more and more.
 *
 * A thread is stopped (by a signal, at a random moment of its work at full speed) while it
 * pushes, while it runs ops, or inside the body of a reader.  The others continue at full
 * speed for a while, and the memory of the process is measured.  It must not grow by more than
 * what caches and rings can hold.  In a fourth part the others push on the var that a stopped
 * reader holds, until the engine refuses.
 *
 * The control is a scheme that frees by liburcu's call_rcu(), with a stopped reader: its
 * memory must grow.
 *
 * Before that, an engine without any setting has very many objects at once, and afterwards the
 * memory that it had before: vars that are written, twice, and completion queues and groups.
 * Threads, five times as many one after the other as at once, leave their slots.
 *
 *	memory [--seconds S]	(PAWL_MEMORY_SECONDS; 1 for each part)
 *	PAWL_MEMORY_VARS=10000000	(a million)
 */
#define UTIL_NO_CHECK
#include "../unit/util.h"
#include <signal.h>
#include <sys/syscall.h>
#include <urcu/urcu-memb.h>

#define BOUND_KIB	16384u
#define BACK_KIB	8192u	/* what may be left of very many vars */
#define THREADS		2000u	/* at once */
#define SLOT_KIB	16u	/* what may be left of each, with what the C library keeps */

static double seconds = 1;

/* --- the one that is stopped --- */

static u32 parked, released;		/* A */

static void on_stop(int sig)
{
	int saved = errno;

	store_release(&parked, 1);
	while (!load_acquire(&released))
		nap_us(1000);
	store_release(&parked, 0);
	errno = saved;
}

/* --- who works --- */

static struct pawl_engine *eng;
static u32 over;			/* A */
static pawl_var_t common;

struct worker {
	pthread_t thread;
	pawl_var_t v[4];
	u64 ops;		/* A */
	bool push, run;
};

/* Pushes on its own vars and on the common one, and runs what is ready. */
static bool full;	/* A: the window was full of ops behind the stopped one */

static void *work(void *arg)
{
	struct worker *w = arg;
	u64 i;

	for (i = 0; !load_acquire(&over); i++) {
		struct pawl_op op = op_write(nothing, NULL, &w->v[i % 4]);
		int rc = 0;

		if (w->push) {
			if (i % 3 == 0)
				op.nwrites = i % 4 ? 1 : 3;
			rc = pawl_push(eng, &op);
		}
		MUST(!rc || rc == -EAGAIN || rc == -ENOMEM);
		if (rc)
			store_relaxed(&full, true);
		if (w->run)
			MUST(pawl_run_one(eng) >= 0);
		if (!rc)
			fetch_add_relaxed(&w->ops, 1);
	}
	return NULL;
}

static int hold_body(struct pawl_run *run, void *arg)
{
	on_stop(0);
	return 0;
}

static void *hold(void *arg)
{
	int rc;

	/* The window may be full of ops that the others pushed. */
	while ((rc = push_read(eng, hold_body, NULL, common)) == -EAGAIN)
		MUST(pawl_run_one(eng) >= 0);
	MUST(!rc);
	while (!load_acquire(&released))
		MUST(pawl_run_one(eng) >= 0);
	return NULL;
}

enum { PUSHER, RUNNER, READER, FULL, PARTS };
static const char *const part_name[] = { "pusher", "runner", "reader", "reader, its var filled" };

/* Return the growth of memory while a thread was stopped, and the ops of the others. */
static u64 part(int kind, u64 *ops, u64 *end_kib)
{
	struct worker w[3] = { { .push = true, .run = true }, { .push = true, .run = true },
			       { .push = kind != RUNNER, .run = true } };
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	u64 before, peak = 0, end, now, first, refused = 0;
	pthread_t holder = 0;
	u32 i, j;

	over = parked = released = 0;
	full = false;
	c.window_policy = PAWL_WINDOW_FAIL;
	c.window = 1 << 15;
	eng = engine_with(&c);
	common = var_new(eng);
	for (i = 0; i < 3; i++)
		for (j = 0; j < 4; j++)
			w[i].v[j] = var_new(eng);
	for (i = 0; i < 3; i++)
		w[i].thread = spawn(work, &w[i]);
	nap_us(200000);
	/*
	 * A thread allocates in its first calls; if it were stopped there it would hold the C
	 * library's lock.
	 */
	for (i = 0; i < 3; i++)
		MUST(soon(load_acquire(&w[i].ops) > 1000 || load_relaxed(&full)));
	if (kind < READER)
		MUST(!pthread_kill(w[2].thread, SIGUSR2));
	else
		holder = spawn(hold, NULL);
	MUST(soon(load_acquire(&parked)));
	nap_us(100000);
	before = rss_kib();
	first = load_acquire(&w[0].ops) + load_acquire(&w[1].ops);
	*ops = 0;
	end = now_ms() + (u64)(seconds * 1000);
	/* For this time, or longer if the others hardly get a CPU. */
	while ((now = now_ms()) < end ||
	       (now < end + SOON_MS && !(kind == FULL ? refused : *ops > 1000 || load_relaxed(&full)))) {
		if (kind == FULL)
			for (i = 0; i < 5000; i++)
				refused += push_write(eng, nothing, NULL, common) != 0;
		nap_us(2000);
		peak = rss_kib() > peak ? rss_kib() : peak;
		*ops = load_acquire(&w[0].ops) + load_acquire(&w[1].ops) - first;
	}
	if (kind == FULL)
		MUST(refused);
	else
		MUST(*ops > 1000 || load_relaxed(&full));
	store_release(&released, 1);
	store_release(&over, 1);
	for (i = 0; i < 3; i++)
		join(w[i].thread);
	if (kind >= READER)
		join(holder);
	OK(pawl_wait_all(eng, -1, NULL));
	OK(pawl_engine_destroy(eng));
	*end_kib = rss_kib();
	return peak > before ? peak - before : 0;
}

/* --- the control --- */

struct item {
	struct rcu_head head;
	char data[112];
};

static void item_free(struct rcu_head *h)
{
	free(h);
}

static void *rcu_reader(void *arg)
{
	urcu_memb_register_thread();
	urcu_memb_read_lock();
	on_stop(0);
	urcu_memb_read_unlock();
	urcu_memb_unregister_thread();
	return NULL;
}

static u64 control(void)
{
	u64 before, peak = 0, i, end = now_ms() + 60000;
	struct item *current = NULL;
	pthread_t t;

	parked = released = 0;
	t = spawn(rcu_reader, NULL);
	MUST(soon(load_acquire(&parked)));
	urcu_memb_register_thread();
	before = rss_kib();
	while (peak < before + 4 * BOUND_KIB && now_ms() < end) {
		for (i = 0; i < 10000; i++) {
			struct item *x = malloc(sizeof(*x)), *old;

			MUST(x);
			memset(x, 1, sizeof(*x));
			old = xchg_acq_rel(&current, x);
			if (old)
				urcu_memb_call_rcu(&old->head, item_free);
		}
		peak = rss_kib();
	}
	store_release(&released, 1);
	join(t);
	urcu_memb_barrier();
	urcu_memb_unregister_thread();
	return peak - before;
}

/* --- very many --- */

/* Return what is left of `many` vars when they have been deleted, in KiB. */
static u64 vars_and_back(u32 many)
{
	pawl_var_t *v = malloc(many * sizeof(*v));
	u64 before, most = 0, left = 0, start;
	struct pawl_op op = { sizeof(op), .fn = nothing, .nwrites = 1 };
	u32 i, k;

	MUST(v);
	memset(v, 1, many * sizeof(*v));
	eng = engine_with(NULL);
	before = rss_kib();
	for (k = 0; k < 2; k++) {
		start = now_ms();
		for (i = 0; i < many; i++)
			v[i] = var_new(eng);
		for (i = 0; i < many; i++) {
			op.writes = &v[i];
			OK(pawl_push(eng, &op));
		}
		OK(pawl_wait_all(eng, -1, NULL));
		most = rss_kib();
		for (i = 0; i < many; i++)
			OK(pawl_var_delete(eng, v[i], NULL, NULL));
		OK(pawl_wait_all(eng, -1, NULL));
		/* A worker has objects in its caches; the second trim finds the magazines. */
		for (i = 0; i < 3; i++)
			OK(pawl_trim(eng));
		left = rss_kib() > before ? rss_kib() - before : 0;
		printf("  %u vars: %llu KiB, and %llu KiB after; %llu ns each\n", many,
		       (unsigned long long)(most - before), (unsigned long long)left,
		       (unsigned long long)((now_ms() - start) * 1000000 / many));
	}
	OK(pawl_engine_destroy(eng));
	free(v);
	return left;
}

/* Create completion queues and groups until the engine refuses; return the smaller number. */
static u32 queues_and_groups(void)
{
	u32 queues = 0, groups = 0;
	pawl_group_t g;
	pawl_cq_t q;

	eng = engine_with(NULL);
	while (!pawl_cq_create(eng, &q))
		queues++;
	while (!pawl_group_create(eng, NULL, &g))
		groups++;
	printf("  %u completion queues and %u groups: %llu KiB\n", queues, groups,
	       (unsigned long long)rss_kib());
	OK(pawl_engine_destroy(eng));
	return queues < groups ? queues : groups;
}

static u32 came, leave;			/* A */

static void *comes(void *arg)
{
	pawl_var_t v = var_new(eng);
	u32 i;

	for (i = 0; i < 100; i++)
		OK(push_write(eng, nothing, NULL, v));
	OK(pawl_wait_readable(eng, v, -1, NULL));
	OK(pawl_var_delete(eng, v, NULL, NULL));
	fetch_add_release(&came, 1);
	while (!load_acquire(&leave))
		nap_us(20000);
	return NULL;
}

/* Return what is left of THREADS threads when they have ended, in KiB. */
static u64 threads_and_back(void)
{
	pthread_t *t = malloc(THREADS * sizeof(*t));
	pthread_attr_t attr;
	u64 before, most = 0, left = 0;
	u32 i, k;

	MUST(t && !pthread_attr_init(&attr) && !pthread_attr_setstacksize(&attr, 65536));
	eng = engine_with(NULL);
	for (k = 0; k <= 5; k++) {
		before = k ? before : rss_kib();
		came = leave = 0;
		for (i = 0; i < THREADS; i++)
			MUST(!pthread_create(&t[i], &attr, comes, NULL));
		MUST(soon(load_acquire(&came) == THREADS));
		most = rss_kib();
		store_release(&leave, 1);
		for (i = 0; i < THREADS; i++)
			join(t[i]);
		OK(pawl_wait_all(eng, -1, NULL));
		OK(pawl_trim(eng));
		left = rss_kib() > before ? rss_kib() - before : 0;
		printf("  %u threads: %llu KiB, and %llu KiB after\n", THREADS,
		       (unsigned long long)(most - before), (unsigned long long)left);
	}
	OK(pawl_engine_destroy(eng));
	free(t);
	return left;
}

int main(int argc, char **argv)
{
	struct sigaction sa = { .sa_handler = on_stop };
	u64 grew[PARTS], ops[PARTS], end_kib, control_kib;
	const char *vars = getenv("PAWL_MEMORY_VARS");
	bool ok = true;
	int i;

	if (getenv("PAWL_MEMORY_SECONDS"))
		seconds = atof(getenv("PAWL_MEMORY_SECONDS"));
	if (argc == 3 && !strcmp(argv[1], "--seconds"))
		seconds = atof(argv[2]);
	MUST(!sigaction(SIGUSR2, &sa, NULL));
	end_kib = vars_and_back(vars ? (u32)atoi(vars) : 1000000);
	/* A sanitizer keeps memory of its own for each address. */
	ok &= SANITIZED || end_kib <= BACK_KIB;
	ok &= queues_and_groups() == 1 << 20;
	end_kib = threads_and_back();
	ok &= SANITIZED || end_kib <= THREADS * SLOT_KIB;
	for (i = 0; i < PARTS; i++) {
		grew[i] = part(i, &ops[i], &end_kib);
		printf("  %-24s %8llu KiB in %llu ops of the others; %llu KiB when it was over\n",
		       part_name[i], (unsigned long long)grew[i], (unsigned long long)ops[i],
		       (unsigned long long)end_kib);
		ok &= grew[i] <= BOUND_KIB;
	}
	control_kib = control();
	ok &= control_kib > BOUND_KIB;
	printf("C13 memory: seconds=%g grew-KiB: pusher=%llu runner=%llu reader=%llu full=%llu bound=%u "
	       "control-call_rcu=%llu (%s) %s\n",
	       seconds, (unsigned long long)grew[0], (unsigned long long)grew[1],
	       (unsigned long long)grew[2], (unsigned long long)grew[3], BOUND_KIB,
	       (unsigned long long)control_kib,
	       control_kib > BOUND_KIB ? "convicted" : "PASSED", ok ? "PASS" : "FAIL");
	return !ok;
}
