// SPDX-License-Identifier: Apache-2.0
/*
 * Linearizability of short histories that real threads made.
 *
 * A history is a few calls of two or three threads, each with its begin, its end and its
 * result. The parts:
 *
 *   prioq    prioq_push, pop and peek: there is a serial order of the calls that respects the
 *            order of each thread and real time, and in which each pop and peek returns the
 *            first entry by (priority, order)
 *   runq     exec_push and exec_take, with work taken piece by piece: there is such an order in
 *            which each take returns the first piece of any producer with the highest priority
 *   hoard    the same with batches.  With one consumer: as runq.  With several: each piece is
 *            taken once, and none is hidden from a take that began after it was queued
 *   pool     get and put, where other threads free objects than allocated them: the gets and
 *            puts of each object have an order in which they alternate
 *   push     pawl_push and pawl_push_batch over several vars: an order of the pushes explains
 *            what each op found in each var, and respects the order of each thread and real
 *            time
 *
 * The first three are judged by a search with a memo (Wing and Gong, with the improvements of
 * Lowe), the fourth by the same per object, the last by a search for a cycle.
 *
 * Controls: the same calls with a planted fault, and histories written by hand.  Each must be
 * convicted; otherwise the program fails.
 *
 *	lin_histories [-s SEED] [-n HISTORIES] [-t SECONDS] [PART]...
 *
 * A failure prints the history and the command.  The seed determines the calls, not how the
 * threads interleave: -n repeats it.
 */
#include "lin.h"

static u64 seed0 = 1, history, cap_n = ~0ull;
static const char *part_now;

static void history_print(const struct history *h)
{
	static const char *const names[] = { "push", "pop", "peek", "get", "put" };
	u32 i;

	for (i = 0; i < h->n; i++)
		fprintf(stderr, "  thread %u %s work %u prio %lld order %llu [%llu, %llu]\n",
			h->call[i].thread, names[h->call[i].kind], h->call[i].work,
			(long long)h->call[i].prio, (unsigned long long)h->call[i].order,
			(unsigned long long)h->call[i].inv, (unsigned long long)h->call[i].res);
}

void convict(const struct history *h, const char *what)
{
	fprintf(stderr, "FAILED: %s: %s\n", part_now, what);
	if (h)
		history_print(h);
	fprintf(stderr, "replay: tests/lin/lin_histories -s %llu -n 100000 %s\n",
		(unsigned long long)(seed0 + history), part_now);
	abort();
}

/* Run until it is convicted.  Returns false if it was not. */
static bool control_part(enum part p, u64 *histories)
{
	struct history h;
	bool caught = false;
	u64 i;

	run.fault = 1;
	part_begin(p);
	for (i = 0; i < 200000 && !caught; i++)
		caught = !part_history(p, &h, seed0 + i);
	part_end(p);
	run.fault = 0;
	*histories = i;
	return caught;
}

/* Histories written by hand: bad ones, each beside its good twin. */
static u32 by_hand(void)
{
	static const struct { bool good, fifo; u32 n; struct call c[5]; } t[] = {
		/* two overlapping pushes in either order */
		{ true, true, 4, { { 0, PUSH, 1, 0, 0, 1, 4 }, { 1, PUSH, 2, 0, 0, 2, 3 },
				   { 0, POP, 1, 0, 0, 5, 6 }, { 0, POP, 2, 0, 0, 7, 8 } } },
		{ true, true, 4, { { 0, PUSH, 1, 0, 0, 1, 4 }, { 1, PUSH, 2, 0, 0, 2, 3 },
				   { 0, POP, 2, 0, 0, 5, 6 }, { 0, POP, 1, 0, 0, 7, 8 } } },
		/* work of one producer in the wrong order; of two, either order is right */
		{ false, true, 4, { { 0, PUSH, 1, 0, 0, 1, 2 }, { 0, PUSH, 2, 0, 0, 3, 4 },
				    { 1, POP, 2, 0, 0, 5, 6 }, { 1, POP, 1, 0, 0, 7, 8 } } },
		{ true, true, 4, { { 0, PUSH, 1, 0, 0, 1, 2 }, { 1, PUSH, 2, 0, 0, 3, 4 },
				   { 0, POP, 2, 0, 0, 5, 6 }, { 0, POP, 1, 0, 0, 7, 8 } } },
		/* empty although it has an entry */
		{ false, true, 3, { { 0, PUSH, 1, 0, 0, 1, 2 }, { 1, POP, 0, 0, 0, 3, 4 },
				    { 0, POP, 1, 0, 0, 5, 6 } } },
		{ true, true, 3, { { 0, PUSH, 1, 0, 0, 1, 4 }, { 1, POP, 0, 0, 0, 2, 3 },
				   { 0, POP, 1, 0, 0, 5, 6 } } },
		/* twice */
		{ false, true, 3, { { 0, PUSH, 1, 0, 0, 1, 2 }, { 1, POP, 1, 0, 0, 3, 4 },
				    { 0, POP, 1, 0, 0, 3, 5 } } },
		/* lower priority first */
		{ false, false, 4, { { 0, PUSH, 1, 1, 9, 1, 2 }, { 1, PUSH, 2, 0, 3, 1, 2 },
				     { 0, POP, 2, 0, 0, 5, 6 }, { 0, POP, 1, 1, 0, 7, 8 } } },
		/* equal priority, later order first */
		{ false, false, 4, { { 0, PUSH, 1, 1, 9, 1, 2 }, { 1, PUSH, 2, 1, 3, 1, 2 },
				     { 0, POP, 1, 1, 0, 5, 6 }, { 0, POP, 2, 1, 0, 7, 8 } } },
		/* a peek in between that returns what was taken */
		{ false, false, 4, { { 0, PUSH, 1, 1, 9, 1, 2 }, { 1, POP, 1, 1, 0, 3, 4 },
				     { 0, PEEK, 1, 1, 9, 5, 6 }, { 1, POP, 0, 0, 0, 7, 8 } } },
	};
	/* two pushes over a and b that wait for each other; and the good twin */
	struct pnode bad[2] = {
		{ 2, { 0, 1 }, { true, true }, { 0, 1 }, 0, ~0ull, 0, false },
		{ 2, { 0, 1 }, { true, true }, { 1, 0 }, 0, ~0ull, 1, false },
	}, good[2] = { bad[0], bad[1] }, late[2] = { bad[0], bad[1] };
	u32 i, n = 0;

	for (i = 0; i < ARRAY_SIZE(t); i++) {
		struct history h = { .n = t[i].n, .fifo = t[i].fifo };

		memcpy(h.call, t[i].c, sizeof(t[i].c));
		if (linearizable(&h) != t[i].good)
			convict(&h, t[i].good ? "a good history is refused" : "a bad history passes");
		n += !t[i].good;
	}
	good[0].saw[1] = 0;
	good[1].saw[1] = 1;
	if (acyclic(bad, 2) || !acyclic(good, 2))
		convict(NULL, "the search for cycles is wrong");
	/* in order, but against real time */
	late[0] = good[0];
	late[1] = good[1];
	late[0].inv = 5;
	late[0].res = 6;
	late[1].inv = 1;
	late[1].res = 2;
	if (acyclic(late, 2))
		convict(NULL, "the search for cycles does not know the time");
	return n + 2;
}

int main(int argc, char **argv)
{
	u64 n[PARTS] = { 0 }, control[PARTS] = { 0 }, end, calls = 0;
	bool want[PARTS] = { 0 }, any = false;
	double seconds = 2;
	struct history h;
	u32 hand, caught = 0;
	int opt, p, i;

	while ((opt = getopt(argc, argv, "s:n:t:")) != -1) {
		if (opt == 's')
			seed0 = strtoull(optarg, NULL, 0);
		else if (opt == 'n')
			cap_n = strtoull(optarg, NULL, 0);
		else if (opt == 't')
			seconds = atof(optarg);
		else
			return 2;
	}
	if (cap_n != ~0ull)
		seconds = 3600;
	for (; optind < argc; optind++)
		for (p = 0; p < PARTS; p++)
			if (!strcmp(argv[optind], part_name[p]))
				want[p] = any = true;
	watchdog(120 + (unsigned int)seconds);
	part_now = "";
	hand = by_hand();
	for (p = 0; p < PARTS; p++) {
		if (any && !want[p])
			continue;
		part_now = part_name[p];
		if (!control_part((enum part)p, &control[p]))
			convict(NULL, "the planted fault was not found");
		caught++;
		part_begin((enum part)p);
		end = exec_now_ns() + (u64)(seconds * 1e9 / (any ? 1 : PARTS));
		for (history = 0; history < cap_n && exec_now_ns() < end; history++) {
			if (!part_history((enum part)p, &h, seed0 + history)) {
				if (p == P_PUSH)
					pu_print();
				convict(&h, "no serial order explains this history");
			}
			for (i = 0; i < (int)run.threads; i++)
				calls += p == P_PUSH ? run.calls : maker[i].n;
		}
		n[p] = history;
		part_end((enum part)p);
	}
	printf("C15");
	for (p = 0; p < PARTS; p++)
		printf(" %s=%llu", part_name[p], (unsigned long long)n[p]);
	printf(" calls=%llu states=%llu controls=%u+%u seed=%llu PASS\n", (unsigned long long)calls,
	       (unsigned long long)states_total, caught, hand, (unsigned long long)seed0);
	return 0;
}
