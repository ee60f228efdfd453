// SPDX-License-Identifier: Apache-2.0
/* Random ops, their actions, and what they check while they run (oracle B). */
#include "random.h"

u64 mix(u64 a, u64 b)
{
	u64 s = a * 0x9e3779b97f4a7c15ull ^ b;

	return rnd(&s);
}

void enter(struct op *o)
{
	struct program *p = o->p;
	u32 i;

	for (i = 0; i < o->n; i++) {
		struct slot *s = &p->slot[o->slot[i]];

		if (o->write[i]) {
			if (fetch_add_acq_rel(&s->writers, 1))
				broken("op %u writes slot %u beside another writer", o->id, o->slot[i]);
			if (load_acquire(&s->readers))
				broken("op %u writes slot %u beside a reader", o->id,
				       o->slot[i]);
		} else {
			fetch_add_acq_rel(&s->readers, 1);
			if (load_acquire(&s->writers))
				broken("op %u reads slot %u beside a writer", o->id,
				       o->slot[i]);
		}
		o->saw[i] = s->version;
		if (!p->multi && s->version != o->expect[i])
			broken("op %u finds slot %u at version %llu, expected %llu", o->id,
			       o->slot[i], (unsigned long long)s->version,
			       (unsigned long long)o->expect[i]);
	}
}

/* The work of the op: read all its slots, and write those that it writes. */
void work(struct op *o)
{
	struct program *p = o->p;
	u64 h = o->id;
	u32 i;

	for (i = 0; i < o->n; i++)
		h = mix(h, p->slot[o->slot[i]].data);
	for (i = 0; i < o->n; i++)
		if (o->write[i])
			p->slot[o->slot[i]].data = mix(h, o->slot[i]);
	o->hash = h;
}

void leave(struct op *o)
{
	struct program *p = o->p;
	u32 i;

	for (i = 0; i < o->n; i++) {
		struct slot *s = &p->slot[o->slot[i]];

		if (s->version != o->saw[i])
			broken("slot %u changed under op %u", o->slot[i], o->id);
		if (o->write[i]) {
			s->version++;
			if (load_acquire(&s->readers) ||
			    fetch_add_acq_rel(&s->writers, -1u) != 1)
				broken("op %u was not alone in slot %u", o->id, o->slot[i]);
		} else {
			if (load_acquire(&s->writers))
				broken("op %u had a writer beside it in slot %u", o->id,
				       o->slot[i]);
			fetch_add_acq_rel(&s->readers, -1u);
		}
	}
}

void once(struct op *o)
{
	if (fetch_add_acq_rel(&o->ran, 1))
		broken("op %u ran twice", o->id);
}

int sync_body(struct pawl_run *run, void *arg)
{
	struct op *o = arg;

	once(o);
	o->inherited = run->status;
	enter(o);
	work(o);
	if (o->id % 16 == 0)
		sched_yield();
	leave(o);
	return o->fails ? pawl_fail(run, -EIO, "op %u", o->id) : 0;
}

static void complete(struct op *o)
{
	char text[32];

	snprintf(text, sizeof(text), "op %u", o->id);
	leave(o);
	GOOD(!pawl_complete(o->p->e, (pawl_token_t){ load_acquire(&o->token) },
			    o->fails ? -EIO : 0, text));
}

static void async_body(struct pawl_run *run, void *arg)
{
	struct op *o = arg;
	struct program *p = o->p;
	u32 i;

	once(o);
	o->inherited = run->status;
	enter(o);
	work(o);
	store_release(&o->token, run->token.h);
	if (o->body == ASYNC_IN_BODY) {
		complete(o);
		return;
	}
	i = fetch_add_acq_rel(&p->later_in, 1);
	store_release(&p->later[i % ARRAY_SIZE(p->later)], o->id + 1);
}

void *completer(void *arg)
{
	struct program *p = arg;
	u64 seed = p->seed;

	for (;;) {
		u32 i = load_acquire(&p->later_out);
		u64 *cell = &p->later[i % ARRAY_SIZE(p->later)], id;

		if (i == load_acquire(&p->later_in)) {
			if (load_acquire(&p->stop))
				return NULL;
			sched_yield();
			continue;
		}
		if (!cas_acq_rel_acquire(&p->later_out, &i, i + 1))
			continue;
		while (!(id = xchg_acq_rel(cell, 0)))
			sched_yield();
		if (rnd(&seed) % 4 == 0)
			sched_yield();
		complete(&p->op[id - 1]);
	}
}

/* The op has ended.  If it did not run, it has its positions now. */
static void released(void *arg, int status)
{
	struct op *o = arg;

	o->status = status;
	if (!load_acquire(&o->ran)) {
		enter(o);
		leave(o);
	}
	if (fetch_add_acq_rel(&o->released, 1))
		broken("op %u was released twice", o->id);
}

/* The same of ops whose argument is a copy that the engine keeps. */
static struct op *op_of_copy(void *arg)
{
	struct op *const *copy = arg;

	if ((uintptr_t)copy[0] != ~(uintptr_t)copy[1])
		broken("an argument was overwritten, op %u", copy[0]->id);
	return copy[0];
}

static int copied_body(struct pawl_run *run, void *arg)
{
	return sync_body(run, op_of_copy(arg));
}

static void copied_async_body(struct pawl_run *run, void *arg)
{
	async_body(run, op_of_copy(arg));
}

static void copied_released(void *arg, int status)
{
	released(op_of_copy(arg), status);
}

static void op_copies_arg(struct op *o, struct desc *d)
{
	d->copy[0] = o;
	d->copy[1] = (void *)~(uintptr_t)o;
	d->op.arg = d->copy;
	d->op.arg_size = sizeof(d->copy);
	d->op.flags = PAWL_OP_ARG;
	d->op.release = copied_released;
	if (d->op.fn)
		d->op.fn = copied_body;
	if (d->op.async_fn)
		d->op.async_fn = copied_async_body;
}

static void var_sort(struct program *p, struct op *o)
{
	u32 i, j;

	for (i = 1; i < o->n; i++)
		for (j = i; j && o->slot[j - 1] > o->slot[j]; j--) {
			u16 s = o->slot[j];
			bool w = o->write[j];

			o->slot[j] = o->slot[j - 1];
			o->write[j] = o->write[j - 1];
			o->slot[j - 1] = s;
			o->write[j - 1] = w;
		}
}

void op_make(struct program *p, struct op *o, struct desc *d, const u16 *map, u32 nv,
		    u32 deps, u64 *seed)
{
	u32 i, k, n = deps ? (u32)(rnd(seed) % (deps + 1)) : 0;

	memset(&d->op, 0, sizeof(d->op));
	d->op.size = sizeof(d->op);
	d->op.reads = d->reads;
	d->op.writes = d->writes;
	o->n = 0;
	for (i = 0; i < n; i++) {
		u16 s = map[rnd(seed) % nv];
		bool w = rnd(seed) % 2;

		for (k = 0; k < o->n && o->slot[k] != s; k++)
			;
		if (k == o->n) {
			o->slot[k] = s;
			o->write[k] = false;
			o->n++;
		}
		o->write[k] |= w;
		/* the engine receives the duplicates */
		if (w)
			d->writes[d->op.nwrites++] = p->slot[s].v;
		else
			d->reads[d->op.nreads++] = p->slot[s].v;
	}
	var_sort(p, o);
	o->p = p;
	o->body = SYNC;
	o->counted = true;
	d->op.arg = o;
	d->op.fn = sync_body;
	d->op.release = released;
	d->op.name = "random";
}

void op_body(struct op *o, struct desc *d, u32 percent, u64 *seed)
{
	if (rnd(seed) % 100 < percent) {
		o->body = rnd(seed) % 3 ? ASYNC_LATER : ASYNC_IN_BODY;
		d->op.fn = NULL;
		d->op.async_fn = async_body;
	} else if (rnd(seed) % 50 == 0) {
		o->body = NO_BODY;
		d->op.fn = NULL;
	}
	if (d->op.nreads + d->op.nwrites <= 3 && rnd(seed) % 4 == 0)
		op_copies_arg(o, d);
}

/* --- a completion queue and a group, which many ops of a program name --- */

void notes_begin(struct program *p)
{
	GOOD(!pawl_cq_create(p->e, &p->cq));
	GOOD(!pawl_group_create(p->e, NULL, &p->group));
}

void op_notes(struct op *o, struct desc *d)
{
	o->noted = true;
	d->op.flags |= PAWL_OP_CQ | PAWL_OP_TICKET | PAWL_OP_GROUP | PAWL_OP_COST;
	d->op.cq = o->p->cq;
	d->op.tag = o->id;
	d->op.ticket = &o->ticket;
	d->op.group = o->p->group;
	d->op.cost = o->id % 3;
}

/* Each op arrives once, after its release, with the same status. */
void notes_reap(struct program *p)
{
	struct pawl_named_completion done[8];
	int rc, i;

	do {
		rc = pawl_cq_reap_named(p->e, p->cq, done, ARRAY_SIZE(done));
		/* One thread reaps at a time. */
		GOOD(rc >= 0 || rc == -EBUSY);
		for (i = 0; i < rc; i++) {
			struct op *o = &p->op[done[i].tag];

			GOOD(done[i].tag < p->nops && o->noted);
			if (fetch_add_acq_rel(&o->arrived, 1))
				broken("op %u arrived twice in the queue", o->id);
			if (load_acquire(&o->released) != 1 || done[i].status != o->status)
				broken("op %u arrived with %d, but was released with %d", o->id,
				       done[i].status, o->status);
		}
	} while (rc == ARRAY_SIZE(done));
}

/* All ops are complete. */
void notes_end(struct program *p)
{
	u64 ops, cost;
	u32 i;

	GOOD(!pawl_group_wait(p->e, p->group, -1));
	notes_reap(p);
	for (i = 0; i < p->nops; i++)
		if (p->op[i].arrived != p->op[i].noted)
			broken("op %u arrived %u times in the queue", i, p->op[i].arrived);
	GOOD(!pawl_group_count(p->e, p->group, &ops, &cost) && !ops && !cost);
	GOOD(!pawl_group_destroy(p->e, p->group));
	GOOD(!pawl_cq_destroy(p->e, p->cq));
}

u16 random_prop(u64 *seed)
{
	/* A push of PAWL_DELETE_VAR runs in front; all others have no effect on the order. */
	static const u16 props[] = { PAWL_NORMAL, PAWL_NORMAL, PAWL_NORMAL, PAWL_COPY_FROM_DEVICE,
				     PAWL_COPY_TO_DEVICE, PAWL_CPU_PRIORITIZED, PAWL_ASYNC,
				     PAWL_DELETE_VAR, PAWL_GPU_PRIORITIZED };

	return props[rnd(seed) % ARRAY_SIZE(props)];
}

u16 slot_new(struct program *p)
{
	u16 i = (u16)p->nslots++;

	p->slot[i].v = var_new(p->e);
	return i;
}
