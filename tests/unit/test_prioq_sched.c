// SPDX-License-Identifier: Apache-2.0
/*
 * The priority queue is linearizable in all interleavings of small programs.
 *
 * The threads of a program are fibers on one thread.  A scheduler may switch before each atomic
 * access: depth first with a bound on preemptions, then at random.  The history of each run is
 * compared with all serial orders that its calls allow.
 */
#include <ucontext.h>
#include "prioq_fixture.h"

#define FIBERS	4u
#define OPS_MAX	16u
#define STACK	(64u << 10)

/* A pop that returns an entry may come first, so that a push reuses its node. */
struct scenario {
	const char *name;
	struct op init[6];	/* by one thread, before */
	struct op script[FIBERS][4];
	u32 bound;		/* preemptions that are tried exhaustively */
};

#define PU(p, h)	{ PUSH, p, h }
#define PO		{ POP, 0, 0 }
#define PK		{ PEEK, 0, 0 }
#define EN		{ END, 0, 0 }

static const struct scenario scenarios[] = {
	{ "two pushes, two pops, one level", { EN },
	  { { PU(1, 1), PO }, { PU(2, 1), PO } }, 3 },
	{ "two pushes, two pops, two levels", { EN },
	  { { PU(1, 2), PO }, { PU(2, 2), PO } }, 3 },
	{ "the first of two levels beside the first of three", { EN },
	  { { PU(1, 2) }, { PU(2, 3) } }, 3 },
	{ "push of two levels against pop and push again", { EN },
	  { { PU(1, 3) }, { PO, PU(2, 2), PO } }, 3 },
	{ "stale pop", { PU(3, 1), PU(1, 1) },
	  { { PO }, { PO, PU(2, 1), PO } }, 3 },
	{ "stale pop, high nodes", { PU(3, 2), PU(1, 2) },
	  { { PO }, { PO, PU(2, 2), PO } }, 3 },
	{ "walk over nodes that are recycled", { PU(5, 2), PU(4, 1), PU(3, 2) },
	  { { PU(1, 2) }, { PO, PO, PU(2, 2), PO } }, 3 },
	{ "walk over nodes that come back behind it", { PU(5, 1), PU(4, 1), PU(3, 1) },
	  { { PU(2, 1) }, { PO, PO, PU(1, 1), PU(1, 1) } }, 3 },
	{ "three poppers", { PU(3, 2), PU(2, 1), PU(1, 2) },
	  { { PO }, { PO }, { PO } }, 3 },
	{ "peek", { PU(3, 1), PU(1, 1) },
	  { { PK, PK }, { PO, PU(2, 1), PO } }, 3 },
	{ "peek of the empty queue", { EN },
	  { { PK, PK }, { PU(2, 2), PO }, { PO } }, 2 },
	{ "pusher, popper, pusher", { PU(4, 3) },
	  { { PU(1, 3) }, { PO, PO }, { PU(2, 2) } }, 2 },
	{ "equals", { PU(1, 1) },
	  { { PU(1, 2), PO }, { PU(1, 2), PO }, { PO } }, 2 },
	{ "pred is pushed again, not linked yet", { PU(5, 1) },
	  { { PU(1, 1), PO }, { PO, PU(2, 1) } }, 3 },
	{ "pred is pushed again, not linked yet, high nodes", { PU(5, 2) },
	  { { PU(1, 2), PO }, { PO, PU(2, 2) } }, 3 },
	{ "pred comes back behind the key", { PU(5, 1) },
	  { { PU(1, 1), EN }, { PO, PU(0, 1) } }, 3 },
	{ "pred comes back behind the key, high nodes", { PU(5, 2) },
	  { { PU(1, 2), EN }, { PO, PU(0, 2) } }, 3 },
	{ "popped, but not the first any more", { PU(1, 1) },
	  { { PO, PU(0, 1), PO }, { PU(5, 1) } }, 3 },
	{ "popped while it is linked, and not the first any more", { EN },
	  { { PU(1, 2), PU(0, 1), PO }, { PO }, { PU(5, 1) } }, 2 },
	{ "late help", { PU(9, 2), PU(4, 2) },
	  { { PU(6, 1) }, { PO, PO, PU(8, 2), PU(7, 2) } }, 3 },
	{ "equal keys", { PU(9, 1), PO, PU(1, 1) },
	  { { PO, PU(0, 1), PO }, { PU(1, 1) } }, 3 },
	{ "equal keys, high nodes", { PU(9, 1), PO, PU(1, 2) },
	  { { PO, PU(0, 2), PO }, { PU(1, 2) } }, 3 },
	{ "four", { PU(5, 2), PU(1, 2) },
	  { { PO, PU(2, 2), PO }, { PU(3, 2), PO }, { PO, PU(6, 1) },
	    { PK, PO } }, 1 },
};

static void fiber(void);

/* Contexts without system calls where possible, as ucontext makes two. */
#if defined(__x86_64__)

struct ctx {
	void *sp;
};

void prioq_test_switch(void **save, void *load);
__asm__(".text\n"
	".globl prioq_test_switch\n"
	".type prioq_test_switch, @function\n"
	"prioq_test_switch:\n\t"
	"push %rbp\n\tpush %rbx\n\tpush %r12\n\tpush %r13\n\tpush %r14\n\tpush %r15\n\t"
	"mov %rsp, (%rdi)\n\tmov %rsi, %rsp\n\t"
	"pop %r15\n\tpop %r14\n\tpop %r13\n\tpop %r12\n\tpop %rbx\n\tpop %rbp\n\tret\n"
	".size prioq_test_switch, . - prioq_test_switch\n");

static void ctx_make(struct ctx *c, char *stack)
{
	/* Six registers, the entry, and a frame that is aligned as after a call. */
	void **sp = (void **)(void *)(stack + STACK) - 8;

	memset(sp, 0, 8 * sizeof(*sp));
	sp[6] = (void *)(uintptr_t)fiber;
	c->sp = sp;
}

static void ctx_switch(struct ctx *from, struct ctx *to)
{
	prioq_test_switch(&from->sp, to->sp);
}

#else

struct ctx {
	ucontext_t uc;
};

static void ctx_make(struct ctx *c, char *stack)
{
	getcontext(&c->uc);
	c->uc.uc_stack.ss_sp = stack;
	c->uc.uc_stack.ss_size = STACK;
	c->uc.uc_link = NULL;
	makecontext(&c->uc, fiber, 0);
}

static void ctx_switch(struct ctx *from, struct ctx *to)
{
	swapcontext(&from->uc, &to->uc);
}

#endif

struct call {
	enum what what;
	s64 prio;
	u64 order;
	u32 work;		/* pushed, or the result */
	u32 start, end;
};

static struct {
	struct rig r;
	struct ctx ctx[FIBERS + 1];	/* the last one: the code that starts them */
	char *stack[FIBERS];
	const struct scenario *sc;
	struct prioq_cache cache[FIBERS + 1];
	u64 seeds[FIBERS + 1];
	int cur;		/* -1: no scheduling */
	u32 nfib, alive;	/* alive: bit mask */
	u32 time, steps, works;
	struct call call[32];
	u32 ncalls;
	/* Choices of this run, and how many there were. */
	u8 pick[4096], of[4096];
	u32 depth, replay, bound, used;
	bool random;
	u64 seed;
} sx;

/* Choose the next fiber; stay: the running one may continue. */
static int choose(bool stay)
{
	u32 alt[FIBERS], n = 0, c;

	if (stay)
		alt[n++] = (u32)sx.cur;
	if (!stay || sx.random || sx.used < sx.bound)
		for (u32 f = 0; f < sx.nfib; f++)
			if (sx.alive & 1u << f && (int)f != sx.cur)
				alt[n++] = f;
	if (n == 1)
		return (int)alt[0];
	if (sx.random) {
		if (stay && random_next(&sx.seed) % 6)
			return (int)alt[0];
		return (int)alt[random_next(&sx.seed) % n];
	}
	MUST(sx.depth < sizeof(sx.pick));
	c = sx.depth < sx.replay ? sx.pick[sx.depth] : 0;
	sx.pick[sx.depth] = (u8)c;
	sx.of[sx.depth++] = (u8)n;
	if (stay && c)
		sx.used++;
	return (int)alt[c];
}

static void sched_point(void)
{
	int me = sx.cur, next;

	if (me < 0)
		return;
	MUST(++sx.steps < 20000);		/* livelock? */
	sx.time++;
	next = choose(true);
	if (next == me)
		return;
	sx.cur = next;
	ctx_switch(&sx.ctx[me], &sx.ctx[next]);
}

static void do_op(const struct op *op, struct prioq_cache *c)
{
	struct call *l = &sx.call[sx.ncalls++];
	s64 prio = 0;
	u64 order = 0;

	*l = (struct call){ .what = op->what, .prio = op->prio, .start = ++sx.time };
	switch (op->what) {
	case PUSH:
		l->work = ++sx.works;
		/* Orders collide now and then. */
		l->order = l->work / 2;
		if (!hooked_push(sx.r.q, c, l->prio, l->order, l->work))
			abort();
		break;
	case POP:
		l->work = hooked_pop(sx.r.q, c, &prio);
		l->prio = prio;
		break;
	default:
		l->work = hooked_peek(sx.r.q, &prio, &order);
		l->prio = prio;
		l->order = order;
	}
	l->end = ++sx.time;
}

static void fiber(void)
{
	u32 f = (u32)sx.cur;

	for (u32 i = 0; i < 4 && sx.sc->script[f][i].what != END; i++)
		do_op(&sx.sc->script[f][i], &sx.cache[f]);
	sx.alive &= ~(1u << f);
	if (!sx.alive) {
		sx.cur = -1;
		ctx_switch(&sx.ctx[f], &sx.ctx[FIBERS]);
	}
	sx.cur = choose(false);
	ctx_switch(&sx.ctx[f], &sx.ctx[sx.cur]);
	abort();
}

/* Check that a serial order of the calls exists that respects their times. */
static bool legal(u32 done, u32 queued)
{
	u32 first_end = UINT32_MAX, best = 0;
	struct call *l;

	if (done == (1u << sx.ncalls) - 1)
		return !queued;
	for (u32 i = 0; i < sx.ncalls; i++)
		if (!(done & 1u << i))
			first_end = (u32)min_u(first_end, sx.call[i].end);
	for (u32 i = 0; i < sx.ncalls; i++) {
		l = &sx.call[i];
		if (!(queued & 1u << i))
			continue;
		if (!best || l->prio > sx.call[best - 1].prio ||
		    (l->prio == sx.call[best - 1].prio && l->order < sx.call[best - 1].order))
			best = i + 1;
	}
	for (u32 i = 0; i < sx.ncalls; i++) {
		const struct call *b = best ? &sx.call[best - 1] : NULL;

		l = &sx.call[i];
		if (done & 1u << i || l->start > first_end)
			continue;
		if (l->what == PUSH) {
			if (legal(done | 1u << i, queued | 1u << i))
				return true;
			continue;
		}
		if (!l->work) {
			if (!b && legal(done | 1u << i, queued))
				return true;
			continue;
		}
		if (!b || b->prio != l->prio)
			continue;
		if (l->what == PEEK) {
			if (b->order == l->order && legal(done | 1u << i, queued))
				return true;
			continue;
		}
		for (u32 j = 0; j < sx.ncalls; j++)
			if (queued & 1u << j && sx.call[j].work == l->work &&
			    sx.call[j].prio == b->prio && sx.call[j].order == b->order &&
			    legal(done | 1u << i, queued & ~(1u << j)))
				return true;
	}
	return false;
}

static void sx_print(void)
{
	static const char *const name[] = { "", "push", "pop", "peek" };

	fprintf(stderr, "%s, seed %llx, depth %u:", sx.sc->name, (unsigned long long)sx.seed,
		sx.depth);
	for (u32 i = 0; i < sx.depth; i++)
		fprintf(stderr, " %u", sx.pick[i]);
	for (u32 i = 0; i < sx.ncalls; i++)
		fprintf(stderr, "\n  %3u..%3u %s %lld/%llu: %u", sx.call[i].start,
			sx.call[i].end, name[sx.call[i].what], (long long)sx.call[i].prio,
			(unsigned long long)sx.call[i].order, sx.call[i].work);
	fprintf(stderr, "\n");
}

static void one_run(void)
{
	static const struct op drain = PO;

	memset(&sx.r.q->head, 0, sizeof(sx.r.q->head));
	sx.r.q->top = 0;
	/* Each cache has its own 8 nodes; the first is the last that was put. */
	memset(pool_obj(sx.r.pool, 1), 0, 8u * (FIBERS + 1) * sizeof(struct prioq_node));
	for (u32 f = 0; f <= FIBERS; f++) {
		memset(&sx.cache[f].nodes, 0, sizeof(sx.cache[f].nodes));
		sx.cache[f].nodes.n = 8;
		for (u32 i = 0; i < 8; i++)
			sx.cache[f].nodes.cur[i] = 1 + f * 8 + i;
		sx.cache[f].seed = sx.seeds[f];
	}
	sx.ncalls = sx.time = sx.steps = sx.works = sx.depth = sx.used = 0;
	sx.cur = -1;
	for (u32 i = 0; i < 6 && sx.sc->init[i].what != END; i++)
		do_op(&sx.sc->init[i], &sx.cache[FIBERS]);
	sx.nfib = 0;
	for (u32 f = 0; f < FIBERS; f++) {
		if (sx.sc->script[f][0].what == END)
			break;
		ctx_make(&sx.ctx[f], sx.stack[f]);
		sx.nfib++;
	}
	sx.alive = (1u << sx.nfib) - 1;
	sx.cur = choose(false);
	ctx_switch(&sx.ctx[FIBERS], &sx.ctx[sx.cur]);

	check_structure(sx.r.q);
	for (u32 n = 0; n < 32; n++) {
		do_op(&drain, &sx.cache[0]);
		if (!sx.call[sx.ncalls - 1].work)
			break;
	}
	if (!legal(0, 0)) {
		sx_print();
		ck_abort_msg("no legal order");
	}
	/* All nodes are in caches again. */
	for (u32 f = 0, n = 0; f <= FIBERS; f++) {
		n += sx.cache[f].nodes.n + sx.cache[f].nodes.nspare;
		if (f == FIBERS && n != 8 * (FIBERS + 1)) {
			sx_print();
			ck_abort_msg("%u nodes", n);
		}
	}
	for (u32 l = 0; l < LEVELS; l++)
		MUST(link_idx(sx.r.q->head.next[l]) == 0);
}

START_TEST(test_interleavings)
{
	u64 until = clock_ns() + 60000000ull;
	u64 runs = 0, randoms = 0;
	u32 i;

	sx.sc = &scenarios[_i];
	sx.r = rig_make(4096);
	/* Commit the nodes. */
	memset(sx.cache, 0, sizeof(sx.cache));
	for (i = 0; i < 8 * (FIBERS + 1); i++)
		MUST(prioq_push(sx.r.q, &sx.cache[0], 0, i, 1));
	for (i = 0; i < FIBERS; i++) {
		sx.stack[i] = malloc(STACK);
		sx.seeds[i] = seed_for(sx.sc->script[i], 4);
	}
	sx.seeds[FIBERS] = seed_for(sx.sc->init, 6);

	sx.bound = sx.sc->bound;
	if (getenv("PRIOQ_BOUND"))
		sx.bound = (u32)atoi(getenv("PRIOQ_BOUND"));
	sx.random = false;
	sx.replay = 0;
	for (;;) {
		one_run();
		runs++;
		while (sx.depth && sx.pick[sx.depth - 1] + 1 == sx.of[sx.depth - 1])
			sx.depth--;
		if (!sx.depth)
			break;
		sx.pick[sx.depth - 1]++;
		sx.replay = sx.depth;
	}
	sx.random = true;
	do {
		sx.seed = ++randoms << 20;
		one_run();
	} while (randoms % 64 || clock_ns() < until);
	if (getenv("PRIOQ_VERBOSE"))
		printf("%s: bound %u, %llu schedules, %llu at random\n", sx.sc->name, sx.bound,
		       (unsigned long long)runs, (unsigned long long)randoms);
	for (i = 0; i < FIBERS; i++)
		free(sx.stack[i]);
	rig_break(&sx.r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("prioq_sched");
	TCase *tc = tcase_create("interleavings");

	/*
	 * The address sanitizer does not know the fibers, and adds nothing: no memory is
	 * freed.
	 */
	tcase_set_timeout(tc, 300);
	tcase_add_loop_test(tc, test_interleavings, 0, ADDRESS_SANITIZED ? 0 : (int)ARRAY_SIZE(scenarios));
	suite_add_tcase(s, tc);
	return suite_run(s);
}
