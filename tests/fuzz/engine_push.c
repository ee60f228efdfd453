// SPDX-License-Identifier: Apache-2.0
/*
 * Calls that push: ops, batches, graphs, creation and deletion of vars; and bad arguments.
 */
#include "engine.h"

u16 slot_new(void)
{
	u16 i = (u16)w->nslots++;

	GOOD(!pawl_var_create(w->e, &w->slot[i].v));
	w->live[w->nlive++] = i;
	return i;
}

u16 slot_pick(u8 b)
{
	return w->live[(b & 63) % w->nlive];
}

struct desc {
	struct pawl_op op;
	pawl_var_t reads[NAMED + 1], writes[NAMED + 1];
	u8 copy[PAWL_ARG_ROOM(0)];	/* the argument, if the engine copies it */
};

static const u8 counts[8] = { 0, 1, 1, 2, 2, 3, 5, NAMED };
static const int codes[4] = { 0, -EIO, -ENOSPC, -EPROTO };

/* Make an op from the bytes; f receives what the model must know. */
static void describe(struct desc *d, struct func *f)
{
	u8 b = byte(), c, i, n = counts[b & 7];

	memset(&d->op, 0, sizeof(d->op));
	d->op.size = sizeof(d->op);
	d->op.reads = d->reads;
	d->op.writes = d->writes;
	for (i = 0; i < n; i++) {
		u8 a = byte();
		u16 s = slot_pick(a);

		access_add(f->slot, f->write, &f->n, s, a & 128);
		if (a & 128)
			d->writes[d->op.nwrites++] = w->slot[s].v;
		else
			d->reads[d->op.nreads++] = w->slot[s].v;
	}
	f->kind = b & 8 ? (b & 16 ? ASYNC_LATER : ASYNC_NOW) : SYNC;
	f->busy = b & 32;
	if (b & 64) {
		c = byte();
		if (c & 1)
			d->op.prop = (c >> 1) % 7;	/* not PAWL_NO_SKIP */
		if (c & 16)
			d->op.priority = (c >> 5) - 3;
		if (c & 2 && w->cfg.cpu_devices > 1)
			d->op.device.id = 1;
	}
	if (w->errors && b & 128) {
		c = byte();
		f->code = codes[c & 3];
		f->fails = f->code;
		f->positive = f->fails && f->code == -EPROTO && f->kind == SYNC;
		if (c & 4)
			d->op.prop = PAWL_NO_SKIP;
		if (c >> 3 == 31) {
			f->kind = NO_BODY;
			f->fails = false;
		}
	}
	if (f->kind == SYNC)
		d->op.fn = sync_body;
	else if (f->kind != NO_BODY)
		d->op.async_fn = async_body;
	d->op.arg = f;
	d->op.release = released;
	d->op.name = f->name;
}

/* If there is room, the op's argument is copied: a pointer to f, and some bytes. */
static void arg_copy(struct desc *d, struct func *f)
{
	u32 room = PAWL_ARG_ROOM(d->op.nreads + d->op.nwrites), size;

	if (room < 8 + sizeof(f))	/* 8: it has a release */
		return;
	size = (u32)sizeof(f) + f->id % (u32)(room - 8 - sizeof(f) + 1);
	memset(d->copy, (int)f->id, sizeof(d->copy));
	memcpy(d->copy, &f, sizeof(f));
	f->copied = size;
	d->op.arg = d->copy;
	d->op.arg_size = size;
	d->op.flags |= PAWL_OP_ARG;
	d->op.release = copied_released;
	if (d->op.fn)
		d->op.fn = copied_body;
	if (d->op.async_fn)
		d->op.async_fn = copied_async;
}

/* The same for an op, not for a graph. */
static void describe_op(struct desc *d, struct func *f)
{
	describe(d, f);
	if (w->notes)
		describe_notes(&d->op, f);
	if (f->id % 4 == 3)
		arg_copy(d, f);
}

static bool room(u32 n)
{
	return w->nnodes + n <= NODES && w->nfuncs + n <= NODES && may_push();
}

u64 window_flight(struct pawl_engine *e);	/* core/admit.h */

static u64 unreaped_now(void)
{
	struct pawl_stats st = { .size = sizeof(st) };

	GOOD(!pawl_stats(w->e, &st));
	return st.unreaped;
}

/* What takes room in the window: ops in flight without waits, and completions to be reaped. */
static u64 window_flight_now(void)
{
	return window_flight(w->e);
}

/* Check that a refusal was right. flight is the number of ops in flight before the push. */
static void check_again(int rc, u64 flight, u32 n, enum full group)
{
	bool fails = w->cfg.window && w->cfg.window_policy == PAWL_WINDOW_FAIL;
	u64 limit = w->cfg.window > n ? w->cfg.window - n : 0;
	bool full = fails && flight > limit;

	/* There would never be room for it. */
	if (fails && n > w->cfg.window && rc == -E2BIG)
		return;
	if (n > 1 && group != NOT_FULL && rc == -E2BIG) {
		if (group == FULL)
			notes_refused();
		return;
	}
	if (group == MAYBE_FULL && rc == -EAGAIN)
		return;
	/* It would wait for nothing but a reap. */
	if (!fails && rc == -EAGAIN && group != FULL && unreaped_now())
		return;
	if (group == FULL && rc == -EAGAIN && !full)
		notes_refused();
	if (rc == -EAGAIN ? full || group == FULL : !rc && group != FULL && (!full || !w->det))
		return;
	fuzz_broken("a push of %u with %llu in flight returned %d: %s", n,
		    (unsigned long long)flight, rc, pawl_error_text());
}

void do_push(void)
{
	u32 fi, ni;
	enum full group = NOT_FULL;
	struct func *f;
	struct desc d;
	bool begun;
	u64 flight;
	int rc;

	if (!room(1))
		return;
	begun = push_begin();
	fi = func_new();
	f = &w->func[fi];
	describe_op(&d, f);
	ni = node_new();
	node_add(ni, fi);
	w->node[ni].no_skip = d.op.prop == PAWL_NO_SKIP;
	flight = window_flight_now();
	if (w->notes)
		group = notes_full(fi, 1);
	place(ni);
	rc = pawl_push(w->e, &d.op);
	push_end(begun);
	if (rc == -EAGAIN)
		unplace(ni);
	check_again(rc, flight, 1, group);
}

void do_batch(void)
{
	u32 n = 1 + byte() % 6, i, ni[6], fi = 0;
	static __thread struct desc d[6];
	struct pawl_op ops[6];
	enum full group = NOT_FULL;
	bool begun;
	u64 flight;
	int rc;

	if (!room(n))
		return;
	begun = push_begin();
	for (i = 0; i < n; i++) {
		fi = func_new();
		describe_op(&d[i], &w->func[fi]);
		ops[i] = d[i].op;
		ni[i] = node_new();
		node_add(ni[i], fi);
		w->node[ni[i]].no_skip = ops[i].prop == PAWL_NO_SKIP;
	}
	flight = window_flight_now();
	if (w->notes)
		group = notes_full(fi + 1 - n, n);
	for (i = 0; i < n; i++)
		place(ni[i]);
	rc = pawl_push_batch(w->e, ops, n);
	push_end(begun);
	if (rc)
		for (i = n; i--; )
			unplace(ni[i]);
	check_again(rc, flight, n, group);
}

/*
 * Three ops: the second is that of the description, on slots.  A private slot orders the others
 * before and after it.
 */
static int several_new(struct desc *d, struct oper *o)
{
	const pawl_var_t own = PAWL_SLOT(o->n);
	struct pawl_op ops[3];
	u32 i;

	d->op.nreads = d->op.nwrites = 0;
	for (i = 0; i < o->n; i++)
		if (o->write[i])
			d->writes[d->op.nwrites++] = (pawl_var_t)PAWL_SLOT(i);
		else
			d->reads[d->op.nreads++] = (pawl_var_t)PAWL_SLOT(i);
	d->writes[d->op.nwrites++] = own;
	if (d->op.fn)
		d->op.fn = sync_body;
	else
		d->op.async_fn = async_body;
	ops[0] = ops[1] = ops[2] = d->op;
	ops[0].fn = launch_first;
	ops[2].fn = launch_last;
	for (i = 0; i < 3; i += 2) {
		ops[i].async_fn = NULL;
		ops[i].release = NULL;
		ops[i].nreads = i ? 1 : 0;
		ops[i].nwrites = i ? 0 : 1;
		ops[i].reads = ops[i].writes = &own;
	}
	return pawl_graph_create(w->e, ops, 3, 0, &o->h);
}

/* Other vars for the slots of a launch, of which there are enough. */
static void several_vars(const struct oper *o, struct func *f, pawl_var_t *v)
{
	u32 i, k;
	u8 at;

	for (i = 0; i < o->n; i++) {
		at = byte();
		do {
			f->slot[i] = slot_pick(at++);
			for (k = 0; k < i && f->slot[k] != f->slot[i]; k++)
				;
		} while (k < i);
		v[i] = w->slot[f->slot[i]].v;
	}
	v[i] = (pawl_var_t){ 0 };
}

void do_oper_new(void)
{
	struct oper *o = &w->oper[w->nopers];
	struct func f = { 0 };
	struct desc d;
	u32 i, writes = 0;

	if (w->nopers == OPERS)
		return;
	describe(&d, &f);
	for (i = 0; i < f.n; i++)
		writes += f.write[i];
	if (!writes || f.kind == NO_BODY)
		return;
	o->n = f.n;
	memcpy(o->slot, f.slot, sizeof(o->slot));
	memcpy(o->write, f.write, sizeof(o->write));
	o->kind = f.kind;
	d.op.fn = f.kind == SYNC ? oper_body : NULL;
	d.op.async_fn = f.kind == SYNC ? NULL : oper_async;
	d.op.arg = o;
	d.op.release = oper_released;
	d.op.name = "oper";
	/* A skipped run would not be noticed. */
	if (w->errors)
		d.op.prop = PAWL_NO_SKIP;
	o->several = w->nopers++ & 1;
	GOOD(!(o->several ? several_new(&d, o) : pawl_graph_create(w->e, &d.op, 1, 0, &o->h)));
}

void do_oper_push(void)
{
	u8 b = byte(), c = byte();
	struct pawl_launch how = *LAUNCH((c >> 2 & 7) - 3, { PAWL_CPU, 0 });
	enum full group = NOT_FULL;
	pawl_var_t v[NAMED + 1];
	void *args[3];
	struct oper *o;
	struct func *f;
	bool dead, begun;
	u32 ni, fi, i;
	u64 flight;
	int rc;

	if (!w->nopers || !room(1))
		return;
	begun = push_begin();
	o = &w->oper[b % w->nopers];
	dead = o->deleted;
	for (i = 0; i < o->n && !o->several; i++)
		dead |= w->slot[o->slot[i]].dead;
	if (o->several && o->n > w->nlive) {
		push_end(begun);
		return;
	}
	fi = func_new();
	f = &w->func[fi];
	f->oper = o;
	f->kind = o->kind;
	f->n = o->n;
	memcpy(f->slot, o->slot, sizeof(f->slot));
	memcpy(f->write, o->write, sizeof(f->write));
	f->busy = c & 1;
	if (w->errors && c & 2) {
		f->code = codes[c >> 6];
		f->fails = f->code;
		/* Not positive: then neither text nor op of the error name the run. */
	}
	if (o->several) {
		several_vars(o, f, v);
		how.vars = v;
		how.nvars = o->n + 1;
		args[0] = args[1] = args[2] = f;
		how.args = args;
		how.nargs = 3;
		if (w->notes)
			launch_notes(&how, f);
	}
	ni = node_new();
	node_add(ni, fi);
	w->node[ni].no_skip = w->errors;
	flight = window_flight_now();
	if (w->notes)
		group = notes_full(fi, 1);
	if (!dead) {
		place(ni);
		store_release(&o->run[o->nruns], fi);
		store_release(&o->nruns, o->nruns + 1);
	}
	rc = pawl_graph_push(w->e, o->h, &how);
	push_end(begun);
	if (dead) {
		f->dropped = true;
		/* The window is checked after the graph and before its vars. */
		GOOD(rc == -ESTALE || (rc == -EAGAIN && !o->deleted));
		return;
	}
	if (rc == -EAGAIN) {
		store_release(&o->nruns, o->nruns - 1);
		unplace(ni);
	}
	check_again(rc, flight, 1, group);
}

void do_oper_delete(void)
{
	u8 b = byte();
	struct oper *o;
	int rc;

	if (!w->nopers)
		return;
	o = &w->oper[b % w->nopers];
	rc = pawl_graph_delete(w->e, o->h);
	GOOD(rc == (o->deleted ? -ESTALE : 0));
	o->deleted = true;
}

void do_var_new(void)
{
	if (w->nlive < LIVE && w->nslots < SLOTS)
		slot_new();
}

void do_var_delete(void)
{
	u8 b = byte();
	u32 fi, ni, i;
	struct func *f;
	struct slot *s;
	bool begun;
	u64 flight;
	int rc, again;

	if (!room(1) || w->nslots == SLOTS)
		return;
	begun = push_begin();
	if (w->nlive == 1 && w->nslots < SLOTS)
		slot_new();
	i = (b & 63) % w->nlive;
	if (w->nlive == 1) {
		push_end(begun);
		return;
	}
	fi = func_new();
	f = &w->func[fi];
	access_add(f->slot, f->write, &f->n, w->live[i], true);
	s = &w->slot[w->live[i]];
	f->busy = b & 64;
	f->kind = SYNC;
	if (w->errors && byte() % 4 == 1) {
		f->fails = true;
		f->code = -EIO;
	}
	ni = node_new();
	node_add(ni, fi);
	w->node[ni].deletes = w->node[ni].no_skip = true;
	w->node[ni].silent = b & 128;
	flight = window_flight_now();
	place(ni);
	s->dead = true;
	w->live[i] = w->live[--w->nlive];
	rc = pawl_var_delete(w->e, s->v, b & 128 ? NULL : sync_body, f);
	if (!rc) {
		again = pawl_var_delete(w->e, s->v, NULL, NULL);
		GOOD(again == -ESTALE || (again == -EAGAIN && w->cfg.window));
	}
	push_end(begun);
	if (rc == -EAGAIN) {
		s->dead = false;
		w->live[w->nlive++] = f->slot[0];
		unplace(ni);
	}
	check_again(rc, flight, 1, NOT_FULL);
}

void do_complete(void)
{
	u8 b = byte();
	u32 i, k, n = 0;
	struct func *f = NULL;

	for (i = 0; i < w->nfuncs; i++)
		n += load_acquire(&w->func[i].tstate) == 1;
	if (!n)
		return;
	for (i = 0, k = (b & 31) % n; i < w->nfuncs; i++)
		if (load_acquire(&w->func[i].tstate) == 1 && !k--)
			f = &w->func[i];
	if (!f)
		return;
	if (b & 32)
		GOOD(pawl_complete(w->e, (pawl_token_t){ load_acquire(&f->token) }, 1, NULL) == -EINVAL);
	complete(f);
	if (b & 64)
		GOOD(pawl_complete(w->e, (pawl_token_t){ load_acquire(&f->token) }, 0, NULL) == -EALREADY);
}

/* A handle that no live var has. */
static pawl_var_t bad_var(void)
{
	pawl_var_t v = { (u64)byte() << 32 | byte() };
	u32 i;

	if (v.h >> 32 == 0xff)
		v.h |= 0x7fffffffull << 32;
	for (i = 0; i < w->nslots; i++)
		if (w->slot[i].v.h == v.h && !w->slot[i].dead)
			v.h = 0;
	return v;
}

static int unused_body(struct pawl_run *run, void *arg)
{
	fuzz_broken("the body of a refused push runs");
}

static void unused_release(void *arg, int status)
{
	fuzz_broken("a refused push is released with %d", status);
}

void do_bad(void)
{
	pawl_var_t v, good, two[2];
	struct pawl_op op = op_of_fn(unused_body, NULL), ops[2];
	u64 n;
	u8 b = byte();
	int want = -EINVAL, rc;
	bool begun;

	if (!may_push())
		return;
	begun = push_begin();
	two[0] = good = w->slot[slot_pick(byte())].v;
	two[1] = v = bad_var();
	op.writes = two;
	op.nwrites = 1;
	op.release = unused_release;
	switch (b & 15) {
	case 0:
		op.size = b >> 4;	/* smaller than in any release */
		break;
	case 1:
		op.async_fn = async_body;
		break;
	case 2:
		op.prop = 8 + (b >> 4);
		break;
	case 3:
		op.flags = (uint16_t)((PAWL_OP_NO_SKIP | PAWL_OP_NOTES | PAWL_OP_ARG) + 1 + b);
		break;
	case 4:
		op.writes = NULL;
		break;
	case 5:
		op.reads = NULL;
		op.nreads = 1 + (b >> 4);
		break;
	case 6:
		op.device.kind = 1 + (b >> 4);
		want = -ENODEV;
		break;
	case 7:
		op.device.id = (uint16_t)(w->cfg.cpu_devices + (b >> 4));
		want = -ENODEV;
		break;
	case 8:
		op.nwrites = 2;
		want = -ESTALE;
		break;
	case 9:
		op.reads = &v;
		op.nreads = 1;
		want = -ESTALE;
		break;
	case 10:
		GOOD(pawl_var_version(w->e, good, NULL) == -EINVAL);
		GOOD(pawl_var_version(w->e, v, &n) == -ESTALE);
		GOOD(pawl_var_error(w->e, v, NULL) == -ESTALE && pawl_var_clear(w->e, v) == -ESTALE);
		goto out;
	case 11:
		GOOD(pawl_wait_readable(w->e, v, -1, NULL) == -ESTALE);
		GOOD(pawl_wait_writable(w->e, v, 0, NULL) == -ESTALE);
		goto out;
	case 12:
		/*
		 * The generation is far from the current one, since a random token could be
		 * valid.
		 */
		v.h |= 0x10000ull << 32;
		rc = pawl_complete(w->e, (pawl_token_t){ v.h << (b >> 4) }, 0, NULL);
		if (!rc)
			fuzz_broken("a token that was made up is taken");
		GOOD(rc == -EINVAL || rc == -EALREADY || rc == -ESTALE);
		goto out;
	case 13:
		GOOD(pawl_graph_push(w->e, (pawl_graph_t){ (u64)(b >> 4) << 33 | 0x7f }, NULL) == -ESTALE);
		GOOD(pawl_graph_push(w->e, (pawl_graph_t){ 1 }, LAUNCH(0, { 0, 64 })) == -ENODEV);
		GOOD(pawl_graph_delete(w->e, (pawl_graph_t){ 0 }) == -ESTALE);
		goto out;
	case 14:
		GOOD(pawl_var_create(w->e, NULL) == -EINVAL);
		GOOD(pawl_graph_create(w->e, &op, 1, 0, NULL) == -EINVAL);
		goto out;
	default:
		GOOD(pawl_push_batch(w->e, NULL, 0) == 0 && pawl_push_batch(w->e, NULL, 1) == -EINVAL);
		goto out;
	}
	if (b & 128) {
		ops[0] = op_of_fn(unused_body, NULL);
		ops[0].writes = &good;
		ops[0].nwrites = 1;
		ops[0].release = unused_release;
		ops[1] = op;
		rc = pawl_push_batch(w->e, ops, 2);
	} else {
		op.priority = b >> 6 & 1;
		rc = pawl_push(w->e, &op);
	}
	if (rc != want && !((rc == -EAGAIN || rc == -E2BIG) && w->cfg.window))
		fuzz_broken("a bad push (%u) returned %d, not %d: %s", b, rc, want, pawl_error_text());
out:
	push_end(begun);
}
