// SPDX-License-Identifier: Apache-2.0
/*
 * Random programs over vars, with ops on CPUs and devices, against the same program run
 * one op after the other.  Devices finish what is in their streams in an order and with
 * delays of their own, which the seed decides; every program is one such order.
 *
 *	orders [PROGRAMS [SEED]]	default: PAWL_DEVICE_ORDERS, else 3000, from seed 1
 *
 * An op reads the cells of its vars and writes each cell that it may write with a hash of
 * all that it read and its own number: a missed dependency changes the hash.  On a device
 * this is done by a host call in the op's stream, after a copy that takes its time.
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

/* Inside the device: reads what the copies before it staged. */
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
		rc = pawl_run_copy(run, &i->staged[k], &i->p->cell[i->r[k]], 8, PAWL_DEVICE_TO_DEVICE);
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
		it->prop = (const u16[]){ PAWL_NORMAL, PAWL_NORMAL, PAWL_NORMAL, PAWL_COPY_TO_DEVICE,
					  PAWL_COPY_FROM_DEVICE, PAWL_GPU_PRIORITIZED,
					  PAWL_ASYNC }[rnd(s) % 7];
		it->prio = (int)(rnd(s) % 3) - 1;
		it->async = rnd(s) % 8 == 0;
		it->bare = rnd(s) % 10 == 0;
		it->wait = rnd(s) % 12 == 0;
		compute(it, p->want);
	}
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
	/* A look in between: what is readable is what the serial program has by now. */
	if (it->wait && it->nw) {
		u64 cell[NVARS] = { 0 };

		OK(pawl_wait_readable(e, w[0], SOON_NS, NULL));
		for (k = 0; k <= it->id; k++)
			compute(&p->item[k], cell);
		MUST(load_relaxed(&p->cell[it->w[0]]) == cell[it->w[0]]);
	}
}

static void run(struct pawl_engine *e, struct program *p, u64 seed, const char *who)
{
	u32 i;

	for (i = 0; i < NVARS; i++)
		p->var[i] = var_new(e);
	for (i = 0; i < p->n; i++)
		push(e, p, &p->item[i]);
	OK(pawl_wait_all(e, SOON_NS, NULL));
	for (i = 0; i < NVARS; i++) {
		if (p->cell[i] != p->want[i]) {
			fprintf(stderr, "%s: seed %llu: var %u differs\n", who,
				(unsigned long long)seed, i);
			abort();
		}
		OK(pawl_var_delete(e, p->var[i], NULL, NULL));
	}
}

/* Several programs on one engine: devices keep what they know of streams and events. */
static u64 series(const struct backend *b, const struct backend *other, u64 seed, u64 n)
{
	struct fake_setup fs = { .devices = 2, .seed = seed, .delay = seed % 3 ? 0 : 12 };
	struct pawl_device dev[MAXDEV];
	struct program *p = malloc(sizeof(*p));
	struct pawl_engine *e;
	struct pawl_config c;
	u64 s = seed, i;
	u32 nd = 0;

	MUST(p);
	direct = b->real;
	b->setup(&fs);
	dev[nd++] = (struct pawl_device){ (u16)b->kind, 0 };
	if (!b->real && rnd(&s) & 1)
		dev[nd++] = (struct pawl_device){ (u16)b->kind, 1 };
	if (other && rnd(&s) % 4 == 0) {
		other->setup(&fs);
		dev[nd++] = (struct pawl_device){ (u16)other->kind, 0 };
	}
	c = small((int)(rnd(&s) % 2), (int)(rnd(&s) % 4));
	c.devices = dev;
	c.ndevices = nd;
	c.device_streams = 1 + (int)(rnd(&s) % 5);
	c.device_workers = 1 + (int)(rnd(&s) % 2);
	c.spin_ns = rnd(&s) & 1 ? 0 : 20000;
	/* Little room in streams, few events: they are held, and used again. */
	c.device_window = rnd(&s) & 1 ? 512 : 1 + (u32)(rnd(&s) % 8);
	lane_events = rnd(&s) & 1 ? LANE_EVENTS : 1u << rnd(&s) % 4;
	if (rnd(&s) % 16 == 0)
		c.kind = PAWL_NAIVE;
	OK(pawl_engine_create(&c, &e));
	for (i = 0; i < n; i++) {
		make(p, &s, dev, nd);
		run(e, p, seed, b->name);
	}
	OK(pawl_engine_destroy(e));
	free(p);
	return n;
}

int main(int argc, char **argv)
{
	const char *env = getenv("PAWL_DEVICE_ORDERS");
	u64 programs = argc > 1 ? strtoull(argv[1], NULL, 0) : env ? strtoull(env, NULL, 0) :
		       TIMES(3000);
	u64 seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1, done = 0, part = 25;
	struct backend list[4];
	int n = backends(list), i, kinds = 0;

	for (i = 0; i < n; i++)
		kinds += list[i].kind != 0;
	if (!kinds) {
		printf("no kind of device is built in\n");
		return 77;
	}
	while (done < programs) {
		/* Some waits have no end of their own. */
		alarm((SANITIZED ? 10 : 1) * ((patience_ms(60000) + 999) / 1000));
		for (i = 0; i < n; i++)
			if (list[i].kind)
				done += series(&list[i], i && !list[i - 1].real && list[i - 1].kind ?
					       &list[i - 1] : NULL, seed++, part);
	}
	printf("%llu programs of up to %d ops, seeds %llu..%llu\n", (unsigned long long)done, NOPS,
	       (unsigned long long)(argc > 2 ? strtoull(argv[2], NULL, 0) : 1),
	       (unsigned long long)seed - 1);
	return 0;
}
