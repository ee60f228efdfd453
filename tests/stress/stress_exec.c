/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The executor under load: several producers (threads of the program, and the work itself),
 * workers, helping waiters, priorities, hand-offs, sleeps, start and stop.  Every piece of
 * work runs once; work of one producer with the highest priority of a queue is not delayed by
 * other work; nothing is left at the end.
 *
 *	stress_exec [seed [milliseconds]]
 */
#include "../unit/exec_fixture.h"

#define PRODUCERS	3u
#define WORKS		(1u << 14)	/* per producer */
#define QUEUES		3u

static struct {
	struct fix f;
	struct exec_queue *q[QUEUES];
	u32 state[PRODUCERS * WORKS + 1];	/* A: 0 free, 1 queued */
	u64 ran, pushed[PRODUCERS];		/* A */
	u32 over;				/* A */
	u64 end;
	u64 seed;
} s;

static u64 next(u64 *r)
{
	*r ^= *r << 13;
	*r ^= *r >> 7;
	*r ^= *r << 17;
	return *r;
}

static void run(struct fix *f, struct exec_thread *t, u32 work)
{
	static __thread u64 r;
	u32 again = work;
	u64 c;

	if (!r)
		r = s.seed + t->slot * 77777 + 1;
	do {
		work = again;
		again = 0;
		MUST(load_relaxed(&s.state[work]) == 1);
		c = cycles() + (next(&r) % 64 ? next(&r) % 1000 : 50000);
		while (next(&r) % 4 == 0 && cycles() < c)
			;
		/* It becomes ready once more: handed over or queued. */
		if (next(&r) % 4 == 0) {
			s32 prio = next(&r) % 8 ? 0 : (s32)(next(&r) % 5) - 2;

			if (exec_handoff(s.q[next(&r) % QUEUES], t, work, prio))
				again = work;
		} else {
			store_release(&s.state[work], 0);
			fetch_add_acq_rel(&s.ran, 1);
		}
	} while (again);
}

static bool mine_over(void *arg)
{
	return load_acquire((u32 *)arg) == 0;
}

static bool all_over(void *arg)
{
	return load_acquire(&s.ran) == *(u64 *)arg;
}

static void *producer(void *arg)
{
	u32 me = (u32)(uintptr_t)arg, i = 0;
	u64 r = s.seed + me * 1000003 + 1, n = 0;

	while (exec_now_ns() < s.end) {
		struct exec_thread *t = fix_thread(&s.f);
		u32 rounds = (u32)(next(&r) % 200);

		while (rounds--) {
			u32 burst = (u32)(next(&r) % (next(&r) % 50 ? 20 : 3000)) + 1, w = 0;

			while (burst--) {
				u32 kind = (u32)(next(&r) % 32);

				w = me * WORKS + i++ % WORKS + 1;
				if (load_acquire(&s.state[w]))
					break;
				store_relaxed(&s.state[w], 1);
				n++;
				exec_push(s.q[next(&r) % QUEUES], t, w,
					  kind < 29 ? 0 : kind == 29 ? -3 : 7, kind == 31);
			}
			switch (next(&r) % 8) {
			case 0:
				if (w)
					exec_wait(s.f.x, t, mine_over, &s.state[w],
						  next(&r) % 2 ? -1 : (s64)(next(&r) % 100000), true);
				break;
			case 1:
				exec_wait(s.f.x, t, mine_over, &s.state[w],
					  (s64)(next(&r) % 50000) + 1, false);
				break;
			case 2:
				if (next(&r) % 16 == 0)
					usleep((u32)(next(&r) % 200));
				break;
			case 3:
				w = exec_take(s.f.x, t);
				if (w)
					run(&s.f, t, w);
				break;
			default:
				break;
			}
		}
		store_release(&s.pushed[me], n);
		fix_leave(&s.f, t);
	}
	return NULL;
}

/* Conditions of the producers become true without exec_unpark(); this thread calls it. */
static void *waker(void *arg)
{
	u32 i;

	while (!load_acquire(&s.over)) {
		for (i = 0; i < FIX_THREADS; i++)
			exec_unpark(s.f.x, &s.f.t[i]);
		usleep(100);
	}
	return NULL;
}

/* The first line of the output says how to repeat it. */
static void no_end(int sig)
{
	static const char text[] = "FAILED: no end\n";

	if (write(2, text, sizeof(text) - 1) > 0)
		fix_dump();
	abort();
}

int main(int argc, char **argv)
{
	u64 ms = argc > 2 ? strtoull(argv[2], NULL, 0) : 2000, start, total = 0;
	struct fix_opt o = { .spin_ns = 5000 };
	pthread_t p[PRODUCERS], w;
	struct exec_thread *t;
	struct exec_stats st;
	u32 i;

	s.seed = argc > 1 ? strtoull(argv[1], NULL, 0) : exec_now_ns();
	printf("replay: tests/stress/stress_exec %llu %llu\n", (unsigned long long)s.seed,
	       (unsigned long long)ms);
	fflush(stdout);
	signal(SIGALRM, no_end);
	signal(SIGTERM, no_end);
	watchdog((unsigned int)(ms / 1000) + 60);
	start = exec_now_ns();
	s.end = start + ms * 1000000;
	fix_init(&s.f, &o);
	s.f.run = run;
	s.q[0] = fix_queue(&s.f, "a", 2, true);
	s.q[1] = fix_queue(&s.f, "b", 1, false);
	s.q[2] = fix_queue(&s.f, "c", 0, true);
	t = fix_thread(&s.f);
	exec_start(s.f.x);
	for (i = 0; i < PRODUCERS; i++)
		MUST(!pthread_create(&p[i], NULL, producer, (void *)(uintptr_t)i));
	MUST(!pthread_create(&w, NULL, waker, NULL));
	while (exec_now_ns() < s.end) {
		usleep(20000);
		exec_stop(s.f.x);
		exec_start(s.f.x);
	}
	for (i = 0; i < PRODUCERS; i++) {
		pthread_join(p[i], NULL);
		total += s.pushed[i];
	}
	MUST(!exec_wait(s.f.x, t, all_over, &total, 20000000000ll, true));
	store_release(&s.over, 1);
	pthread_join(w, NULL);
	exec_stop(s.f.x);
	for (i = 0; i < QUEUES; i++) {
		MUST(queue_empty(s.q[i]));
		MUST(!load_relaxed(&s.q[i]->group.attn) && !load_relaxed(&s.q[i]->group.spin));
	}
	MUST(!load_relaxed(&s.f.x->helpers.attn) && !load_relaxed(&s.f.x->helpers.spin));
	for (i = 0; i < ARRAY_SIZE(s.state); i++)
		MUST(!s.state[i]);
	exec_stats(s.f.x, &st);
	printf("ran %llu in %.1f s, stolen %llu handed %llu helped %llu sleeps %llu wakes %llu\n",
	       (unsigned long long)total, (double)(exec_now_ns() - start) / 1e9,
	       (unsigned long long)st.stolen, (unsigned long long)st.handed,
	       (unsigned long long)st.helped, (unsigned long long)st.sleeps,
	       (unsigned long long)st.wakes);
	fix_fini(&s.f);
	return 0;
}
