// SPDX-License-Identifier: Apache-2.0
/*
 * Fairness: every pusher and every worker makes progress, and no op is overtaken on its var.
 *
 * Four pushers push on one var and on their own vars, three workers run.  Checked: all pushers
 * and workers make progress (the test waits for them, however slow the machine is), and the
 * ops of one pusher run in its order on the common var.  Printed, not checked: the differences
 * between pushers and between workers, and how many ops that were pushed later started before
 * an op.
 *
 *	fairness [--seconds S]	(PAWL_FAIRNESS_SECONDS; 3)
 */
#define UTIL_NO_CHECK
#include "../unit/util.h"

#define PUSHERS		4u
#define WORKERS		3u
#define KEEP		(1u << 20)
#define LEAST		1000u		/* ops of each pusher and worker */

static struct pawl_engine *eng;
static pawl_var_t common;
static u64 tickets, newest;		/* A */
static u64 by_worker[64];		/* A */
static u32 worker_ids, over;		/* A */
static u64 overtaken;			/* A: on the var */
static u32 passed[KEEP];		/* A */
static u64 npassed;			/* A */

struct pusher {
	pthread_t thread;
	pawl_var_t own;
	u64 pushed, ran;	/* ran: A */
	u64 next;		/* under the var */
};

struct job {
	struct pusher *p;
	u64 ticket, seq;
	bool on_common;
	u32 busy;		/* A */
};

static int job_body(struct pawl_run *run, void *arg)
{
	static __thread u32 id;
	struct job *j = arg;
	u64 seen = load_relaxed(&newest), i;

	if (!id)
		id = fetch_add_relaxed(&worker_ids, 1) + 1;
	fetch_add_relaxed(&by_worker[id % 64], 1);
	/* Later pushes that have started: a bound for the number of ops that overtook. */
	while (seen < j->ticket && !cas_relaxed(&newest, &seen, j->ticket))
		;
	i = fetch_add_relaxed(&npassed, 1);
	if (i < KEEP)
		store_relaxed(&passed[i], seen > j->ticket ? (u32)(seen - j->ticket) : 0);
	if (j->on_common) {
		if (j->seq != j->p->next)
			fetch_add_relaxed(&overtaken, 1);
		j->p->next++;
	}
	fetch_add_relaxed(&j->p->ran, 1);
	store_release(&j->busy, 0);
	return 0;
}

static void *push_main(void *arg)
{
	struct pusher *p = arg;
	struct job *jobs = calloc(64, sizeof(*jobs));
	u64 i, seq = 0;

	MUST(jobs);
	for (i = 0; !load_acquire(&over); i++) {
		struct job *j = &jobs[i % 64];

		/* At most 64 of each in flight. */
		while (load_acquire(&j->busy))
			sched_yield();
		*j = (struct job){ p, fetch_add_relaxed(&tickets, 1), seq, i % 2, 1 };
		seq += j->on_common;
		MUST(!push_write(eng, job_body, j, j->on_common ? common : p->own));
		p->pushed++;
	}
	for (i = 0; i < 64; i++)
		while (load_acquire(&jobs[i].busy))
			sched_yield();
	free(jobs);
	return NULL;
}

static int by_size(const void *a, const void *b)
{
	u32 x = *(const u32 *)a, y = *(const u32 *)b;

	return x < y ? -1 : x > y;
}

static void spread(const char *what, const u64 *n, u32 count)
{
	u64 least = ~0ull, most = 0;
	u32 i;

	for (i = 0; i < count; i++) {
		least = n[i] < least ? n[i] : least;
		most = n[i] > most ? n[i] : most;
	}
	printf(" %s-least/most=%llu/%llu", what, (unsigned long long)least,
	       (unsigned long long)most);
}

/* All threads have made some progress. */
static bool all_got_on(const struct pusher *p)
{
	u32 i;

	for (i = 0; i < PUSHERS; i++)
		if (load_relaxed(&p[i].ran) < LEAST)
			return false;
	for (i = 1; i <= WORKERS; i++)
		if (load_relaxed(&by_worker[i]) < LEAST)
			return false;
	return true;
}

int main(int argc, char **argv)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, WORKERS);
	static struct pusher p[PUSHERS];
	u64 ran[PUSHERS], end, limit, n;
	double seconds = 3;
	bool ok;
	u32 i;

	if (getenv("PAWL_FAIRNESS_SECONDS"))
		seconds = atof(getenv("PAWL_FAIRNESS_SECONDS"));
	if (argc == 3 && !strcmp(argv[1], "--seconds"))
		seconds = atof(argv[2]);
	eng = engine_with(&c);
	common = var_new(eng);
	for (i = 0; i < PUSHERS; i++)
		p[i].own = var_new(eng);
	for (i = 0; i < PUSHERS; i++)
		p[i].thread = spawn(push_main, &p[i]);
	end = now_ms() + (u64)(seconds * 1000);
	limit = now_ms() + 120000;
	while ((now_ms() < end || !all_got_on(p)) && now_ms() < limit)
		nap_us(10000);
	ok = all_got_on(p);
	store_release(&over, 1);
	for (i = 0; i < PUSHERS; i++)
		join(p[i].thread);
	OK(pawl_wait_all(eng, -1, NULL));
	for (n = i = 0; i < PUSHERS; i++) {
		ran[i] = p[i].ran;
		n += p[i].ran;
		ok &= p[i].ran == p[i].pushed;
	}
	OK(pawl_engine_destroy(eng));
	ok &= overtaken == 0;
	printf("C18 fairness: ops=%llu overtaken-on-var=%llu", (unsigned long long)n,
	       (unsigned long long)overtaken);
	spread("pushers", ran, PUSHERS);
	spread("workers", by_worker + 1, WORKERS);
	n = npassed < KEEP ? npassed : KEEP;
	qsort(passed, n, sizeof(*passed), by_size);
	printf(" passed-by: median=%u p99=%u most=%u %s\n", passed[n / 2], passed[n * 99 / 100],
	       passed[n - 1], ok ? "PASS" : "FAIL");
	return !ok;
}
