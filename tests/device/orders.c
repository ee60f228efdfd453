// SPDX-License-Identifier: Apache-2.0
/*
 * Random programs over vars, with ops on CPUs and devices, are compared with a serial run of
 * the same program.  Devices complete the work of their streams in an order and with delays
 * that the seed determines; every program tests one such order.
 *
 *	orders [PROGRAMS [SEED [KIND]]]	default: PAWL_DEVICE_ORDERS, else 3000; from seed 1;
 *					KIND: "fake" or "cuda" alone, else in turn
 *
 * A quarter of the engines has devices that run by themselves, with delays counted in turns.
 * In the others this program completes their work piece by piece, between its pushes or only
 * while it waits: so much work accumulates in the streams, and completes in any order.
 *
 * An op reads the cells of its vars, and writes a hash of all that it read and of its own
 * number to each cell that it may write: a missed dependency changes the hash.  On a device a
 * host call in the op's stream does this, after a copy that takes some time.
 */
#define UTIL_NO_CHECK
#include "../unit/util.h"
#include <pawl/device.h>
#include "backend.h"

#define NVARS	6
#define NOPS	40
#define MAXDEV	3

struct program;

static bool direct;		/* a real device: it cannot copy the cells */

/* Devices whose work the test completes, while it pushes and waits. */
static struct {
	u32 (*step[2])(u64 choice);	/* NULL: they run by themselves */
	u32 eager;			/* steps between two pushes; 0: only in waits */
	u64 seed;
} hand;

/* Programs of one engine. */
#define PART	25

/* The engine that runs. */
static struct {
	u64 seed;
	const char *who;
} now;

static void repeat_with(void)
{
	fprintf(stderr, "repeat with: ./tests/device/orders %d %llu %s\n", PART,
		(unsigned long long)now.seed, now.who);
}

struct item {
	struct program *p;
	u32 id;
	u32 nr, nw;
	u32 r[3], w[3];
	bool cpu, wait, async, bare;
	struct pawl_device dev;
	u16 prop;
	int prio;
	u64 staged[NVARS];
};

struct program {
	u64 cell[NVARS];
	u64 want[NVARS];
	pawl_var_t var[NVARS];
	struct item item[NOPS];
	u32 n;
};

static void compute(const struct item *i, u64 *cell)
{
	u64 h = i->id + 1;
	u32 k;

	if (i->bare)
		return;
	for (k = 0; k < i->nr; k++)
		h = (h ^ cell[i->r[k]]) * 0x9e3779b97f4a7c15ull + 1;
	for (k = 0; k < i->nw; k++)
		h = (h ^ cell[i->w[k]]) * 0xbf58476d1ce4e5b9ull + 3;
	for (k = 0; k < i->nw; k++)
		cell[i->w[k]] = h + k;
}

/* On the device: read the data that the copies before it staged. */
static void kernel(void *arg)
{
	struct item *i = arg;
	u64 h = i->id + 1;
	u32 k;

	if (direct) {
		compute(i, i->p->cell);
		return;
	}
	for (k = 0; k < i->nr; k++)
		h = (h ^ i->staged[k]) * 0x9e3779b97f4a7c15ull + 1;
	for (k = 0; k < i->nw; k++)
		h = (h ^ i->p->cell[i->w[k]]) * 0xbf58476d1ce4e5b9ull + 3;
	for (k = 0; k < i->nw; k++)
		i->p->cell[i->w[k]] = h + k;
}

static int issue(struct pawl_run *run, struct item *i)
{
	u32 k;
	int rc = 0;

	for (k = 0; !rc && k < i->nr && !direct; k++)
		rc = pawl_run_copy(run, &i->staged[k], &i->p->cell[i->r[k]], 8,
				   PAWL_DEVICE_TO_DEVICE);
	return rc ? rc : pawl_run_call(run, kernel, i);
}

static int body(struct pawl_run *run, void *arg)
{
	struct item *i = arg;

	if (i->cpu) {
		compute(i, i->p->cell);
		return 0;
	}
	MUST(run->stream);
	return issue(run, i);
}

static void async_body(struct pawl_run *run, void *arg)
{
	struct item *i = arg;

	if (i->cpu)
		compute(i, i->p->cell);
	else
		MUST(!issue(run, i));
	MUST(!pawl_complete(run->engine, run->token, 0, NULL));
}

static void make(struct program *p, u64 *s, const struct pawl_device *dev, u32 ndev)
{
	u32 i, k, v;

	memset(p, 0, sizeof(*p));
	p->n = NOPS / 2 + rnd(s) % (NOPS / 2);
	for (i = 0; i < p->n; i++) {
		struct item *it = &p->item[i];
		u32 used = 0;

		it->p = p;
		it->id = i;
		it->nr = rnd(s) % 4;
		it->nw = rnd(s) % 3;
		for (k = 0; k < it->nr + it->nw; k++) {
			do
				v = rnd(s) % NVARS;
			while (used >> v & 1);
			used |= 1u << v;
			if (k < it->nr)
				it->r[k] = v;
			else
				it->w[k - it->nr] = v;
		}
		it->cpu = rnd(s) % 4 == 0;
		if (!it->cpu)
			it->dev = dev[rnd(s) % ndev];
		it->prop = (const u16[]){
			PAWL_NORMAL,	     PAWL_NORMAL,	    PAWL_NORMAL,
			PAWL_COPY_TO_DEVICE, PAWL_COPY_FROM_DEVICE, PAWL_GPU_PRIORITIZED,
			PAWL_ASYNC
		}[rnd(s) % 7];
		it->prio = (int)(rnd(s) % 3) - 1;
		it->async = rnd(s) % 8 == 0;
		it->bare = rnd(s) % 10 == 0;
		it->wait = rnd(s) % 12 == 0;
		compute(it, p->want);
	}
}

/* Run an op's body, or a piece of a device's work.  Returns false if there is none. */
static bool go_on(struct pawl_engine *e)
{
	u64 r = rnd(&hand.seed);
	u32 i, at;

	for (i = 0; i < 3; i++) {
		at = (r + i) % 3;
		if (at == 2 ? pawl_run_one(e) > 0 : hand.step[at] && hand.step[at](r >> 8))
			return true;
	}
	return false;
}

static void wait_over(struct pawl_engine *e, const pawl_var_t *v)
{
	u64 until = now_ms() + SOON_MS;
	int rc = -ETIMEDOUT;
	u32 idle = 0;

	while (rc == -ETIMEDOUT) {
		s64 limit = hand.step[0] ? 0 : SOON_NS;

		rc = v ? pawl_wait_readable(e, *v, limit, NULL) : pawl_wait_all(e, limit, NULL);
		if (limit || rc != -ETIMEDOUT)
			break;
		if (go_on(e))
			idle = 0;
		else if (++idle < 100)
			sched_yield();	/* let the engine's threads run */
		else
			nap_us(20);
		MUST(now_ms() < until);
	}
	OK(rc);
}

static void push(struct pawl_engine *e, struct program *p, struct item *it)
{
	struct pawl_op op = PAWL_OP_INIT;
	pawl_var_t r[3], w[3];
	u32 k;

	for (k = 0; k < it->nr; k++)
		r[k] = p->var[it->r[k]];
	for (k = 0; k < it->nw; k++)
		w[k] = p->var[it->w[k]];
	if (it->async && !it->bare)
		op.async_fn = async_body;
	else if (!it->bare)
		op.fn = body;
	op.arg = it;
	op.reads = r;
	op.nreads = it->nr;
	op.writes = w;
	op.nwrites = it->nw;
	op.device = it->dev;
	op.prop = it->prop;
	op.priority = it->prio;
	OK(pawl_push(e, &op));
	while (hand.eager && rnd(&hand.seed) % (hand.eager + 1))
		if (!go_on(e))
			break;
	/*
	 * A check in between: data that is readable equals that of the serial program at this
	 * point.
	 */
	if (it->wait && it->nw) {
		u64 cell[NVARS] = { 0 };

		wait_over(e, &w[0]);
		for (k = 0; k <= it->id; k++)
			compute(&p->item[k], cell);
		MUST(load_relaxed(&p->cell[it->w[0]]) == cell[it->w[0]]);
	}
}

static void run(struct pawl_engine *e, struct program *p)
{
	u32 i;

	for (i = 0; i < NVARS; i++)
		p->var[i] = var_new(e);
	for (i = 0; i < p->n; i++)
		push(e, p, &p->item[i]);
	wait_over(e, NULL);
	for (i = 0; i < NVARS; i++) {
		if (p->cell[i] != p->want[i]) {
			fprintf(stderr, "var %u differs\n", i);
			repeat_with();
			abort();
		}
		OK(pawl_var_delete(e, p->var[i], NULL, NULL));
	}
}

/* Several programs on one engine, so that the state of streams and events is kept. */
static u64 series(const struct backend *b, const struct backend *other, u64 seed)
{
	struct fake_setup fs = { .devices = 2, .seed = seed, .delay = seed % 3 ? 0 : 12 };
	struct pawl_device dev[MAXDEV];
	struct program *p = malloc(sizeof(*p));
	struct pawl_engine *e;
	struct pawl_config c;
	u64 s = seed;
	u32 nd = 0, i;

	MUST(p);
	now.seed = seed;
	now.who = b->name;
	direct = b->real;
	fs.manual = b->step && rnd(&s) % 4;
	b->setup(&fs);
	dev[nd++] = (struct pawl_device){ (u16)b->kind, 0 };
	if (!b->real && rnd(&s) & 1)
		dev[nd++] = (struct pawl_device){ (u16)b->kind, 1 };
	if (other && rnd(&s) % 4 == 0) {
		other->setup(&fs);
		dev[nd++] = (struct pawl_device){ (u16)other->kind, 0 };
	}
	c = small((int)(rnd(&s) % 2), fs.manual && rnd(&s) & 1 ? 0 : (int)(rnd(&s) % 4));
	c.devices = dev;
	c.ndevices = nd;
	c.device_streams = 1 + (int)(rnd(&s) % 5);
	c.device_workers = 1 + (int)(rnd(&s) % 3);
	c.spin_ns = rnd(&s) & 1 ? 0 : 20000;
	/* Little room in streams and few events, so that ops are held and events are reused. */
	c.device_window = rnd(&s) & 1 ? 512 : 1 + (u32)(rnd(&s) % 8);
	lane_events = rnd(&s) & 1 ? LANE_EVENTS : 1u << rnd(&s) % 4;
	if (rnd(&s) % 16 == 0)
		c.kind = PAWL_NAIVE;
	e = engine_with(&c);
	memset(&hand, 0, sizeof(hand));
	hand.seed = s;
	if (fs.manual) {
		hand.step[0] = b->step;
		hand.step[1] = nd && dev[nd - 1].kind != b->kind ? other->step : NULL;
	}
	for (i = 0; i < PART; i++) {
		make(p, &s, dev, nd);
		if (fs.manual)
			hand.eager = (const u32[]){ 0, 0, 1, 3, 10 }[rnd(&s) % 5];
		run(e, p);
	}
	OK(pawl_engine_destroy(e));
	free(p);
	return PART;
}

int main(int argc, char **argv)
{
	const char *env = getenv("PAWL_DEVICE_ORDERS");
	u64 programs = argc > 1 ? strtoull(argv[1], NULL, 0) : env ? strtoull(env, NULL, 0) :
		       TIMES(3000);
	u64 first = argc > 2 ? strtoull(argv[2], NULL, 0) : 1, seed = first, done = 0;
	const char *only = argc > 3 ? argv[3] : "";
	struct backend list[4];
	int n = backends(list), i, kinds = 0;
	bool take[4];

	for (i = 0; i < n; i++) {
		take[i] = list[i].kind && !strncmp(list[i].name, only, strlen(only));
		kinds += take[i];
	}
	if (!kinds) {
		printf("no such kind of device is built in\n");
		return 77;
	}
	hang_says = repeat_with;
	while (done < programs) {
		/* Some waits have no timeout. */
		hang_limit((u32)((SANITIZED ? 10 : 1) * ((patience_ms(60000) + 999) / 1000)));
		for (i = 0; i < n; i++)
			if (take[i])
				done += series(&list[i], i && !list[i - 1].real && list[i - 1].kind ?
					       &list[i - 1] : NULL, seed++);
	}
	printf("%llu programs of up to %d ops, seeds %llu..%llu%s%s\n", (unsigned long long)done, NOPS,
	       (unsigned long long)first, (unsigned long long)seed - 1, *only ? ", " : "", only);
	return 0;
}
