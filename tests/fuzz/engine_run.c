// SPDX-License-Identifier: Apache-2.0
/* The bodies of ops and their checks, and the model's side of a push. */
#include "engine.h"

static u64 mix(u64 a, u64 b)
{
	u64 s = a * 0x9e3779b97f4a7c15ull ^ b;

	return rnd(&s);
}

struct log *note(u8 kind, u32 id, int rc)
{
	u32 i = fetch_add_relaxed(&w->nlog, 1);

	GOOD(i < LOGS);
	fuzz_say("  log: %s %u rc %d\n",
		 (const char *[]){ "start f", "end f", "take slot", "clear slot", "all" }[kind], id, rc);
	w->log[i] = (struct log){ .kind = kind, .id = id, .rc = rc, .by = ~0u };
	return &w->log[i];
}

/* --- bodies --- */

static void enter(u32 ni)
{
	struct node *nd = &w->node[ni];
	u32 i;

	if (nd->entered)
		return;
	nd->entered = true;
	for (i = 0; i < nd->n; i++) {
		struct slot *s = &w->slot[nd->slot[i]];

		if (nd->write[i]) {
			if (fetch_add_acq_rel(&s->writers, 1) || load_acquire(&s->readers))
				fuzz_broken("node %u writes slot %u, and is not alone", ni, nd->slot[i]);
		} else {
			fetch_add_acq_rel(&s->readers, 1);
			if (load_acquire(&s->writers))
				fuzz_broken("node %u reads slot %u beside a writer", ni, nd->slot[i]);
		}
		if (s->version != nd->expect[i])
			fuzz_broken("node %u finds slot %u at version %llu, expected %llu", ni, nd->slot[i],
				    (unsigned long long)s->version, (unsigned long long)nd->expect[i]);
	}
}

static void leave(u32 ni)
{
	struct node *nd = &w->node[ni];
	u32 i;

	for (i = 0; i < nd->n; i++) {
		struct slot *s = &w->slot[nd->slot[i]];

		if (s->version != nd->expect[i])
			fuzz_broken("slot %u changed under node %u", nd->slot[i], ni);
		if (nd->write[i]) {
			s->version++;
			if (load_acquire(&s->readers) || fetch_add_acq_rel(&s->writers, -1u) != 1)
				fuzz_broken("node %u was not alone in slot %u", ni, nd->slot[i]);
		} else {
			if (load_acquire(&s->writers))
				fuzz_broken("node %u had a writer beside it in slot %u", ni, nd->slot[i]);
			fetch_add_acq_rel(&s->readers, -1u);
		}
	}
	store_release(&nd->over, 1);
}

u64 work(const struct func *f, u64 *data)
{
	u64 h = f->id;
	u32 i;

	for (i = 0; i < f->n; i++)
		h = mix(h, data ? data[f->slot[i]] : w->slot[f->slot[i]].data);
	for (i = 0; i < f->n; i++)
		if (f->write[i]) {
			if (data)
				data[f->slot[i]] = mix(h, f->slot[i]);
			else
				w->slot[f->slot[i]].data = mix(h, f->slot[i]);
		}
	return h;
}

static void frame_in(u32 ni)
{
	if (!me)
		return;
	GOOD(me->nframes < FRAMES);
	me->frame[me->nframes++] = ni;
	me->depth++;
	w->depth++;
}

static void frame_out(void)
{
	if (!me)
		return;
	me->nframes--;
	me->depth--;
	w->depth--;
}

/* A launch of several ops ends with the last one, other ops without release with their body. */
static bool ends_here(const struct func *f)
{
	return f->oper ? !f->oper->several : w->node[f->node].deletes;
}

bool func_over(const struct func *f)
{
	return f->oper ? load_acquire(&w->node[f->node].over) : load_acquire(&f->released);
}

static void begin(struct func *f, struct pawl_run *run)
{
	struct node *nd = &w->node[f->node];

	if (f->dropped || nd->state != PLACED)
		fuzz_broken("func %u runs, but its push was refused", f->id);
	if (fetch_add_acq_rel(&f->ran, 1))
		fuzz_broken("func %u ran twice", f->id);
	if (f->oper && f->oper->several && f->stage++ != 1)
		fuzz_broken("the first op of launch %u did not run before the second", f->id);
	if (func_refused(f))
		fuzz_broken("func %u runs, but was canceled or too late", f->id);
	GOOD(!w->det || !pawl_run_canceled(run));
	GOOD(run->engine == w->e && run->device.kind == PAWL_CPU &&
	     run->device.id < w->cfg.cpu_devices);
	f->inherited = run->status;
	enter(f->node);
	note(L_START, f->id, run->status);
	f->hash = work(f, NULL);
}

/* The bytes select further calls of a body, but only if no other body runs at the same time. */
static void idle_hands(struct func *f)
{
	/* If a push waits at the window, bodies run before it has its position. */
	if (w->det && f->busy && w->depth < 4 && !(w->blocks && load_seq_cst(&w->autos)) && more())
		steps(byte() % 3);
}

static int outcome(struct func *f, struct pawl_run *run)
{
	if (!f->fails)
		return 0;
	if (f->positive)
		return 5;
	return pawl_fail(run, f->code, "f%u", f->id);
}

/* Without a release function the op ends with its body. */
static void end_here(struct func *f)
{
	f->seq = w->det ? ++w->seq : 0;
	f->status = f->fails ? f->code : f->inherited;
	leave(f->node);
	note(L_END, f->id, 0);
}

static struct func *oper_func(struct oper *o)
{
	u32 i = 0;
	u64 version;

	while (!o->write[i])
		i++;
	/* Each version has one write, so the version identifies the run. */
	version = w->slot[o->slot[i]].version;
	for (u32 k = 0, n = load_acquire(&o->nruns); k < n; k++) {
		struct func *f = &w->func[load_acquire(&o->run[k])];

		if (w->node[f->node].expect[i] == version)
			return f;
	}
	fuzz_broken("a graph runs at version %llu of slot %u, where no push of it is",
		    (unsigned long long)version, o->slot[i]);
}

static int run_sync(struct pawl_run *run, struct func *f)
{
	begin(f, run);
	frame_in(f->node);
	idle_hands(f);
	frame_out();
	if (ends_here(f))
		end_here(f);
	return outcome(f, run);
}

int launch_first(struct pawl_run *run, void *arg)
{
	struct func *f = arg;

	if (f->stage++)
		fuzz_broken("the first op of launch %u ran twice", f->id);
	return 0;
}

int launch_last(struct pawl_run *run, void *arg)
{
	struct func *f = arg;

	if (f->stage++ != 2)
		fuzz_broken("the second op of launch %u did not run before the third", f->id);
	GOOD(run->status == (f->fails ? f->code : f->inherited));
	fetch_add_relaxed(&total_launches, 1);
	end_here(f);
	return 0;
}

/* The function of an op whose argument was copied. */
static struct func *copied(const void *arg)
{
	const u8 *bytes = arg;
	struct func *f;
	u32 i;

	GOOD(!((uintptr_t)arg % 16));
	memcpy(&f, arg, sizeof(f));
	for (i = sizeof(f); i < f->copied; i++)
		GOOD(bytes[i] == (u8)f->id);
	fetch_add_relaxed(&total_copied, 1);
	return f;
}

int copied_body(struct pawl_run *run, void *arg)
{
	return run_sync(run, copied(arg));
}

int sync_body(struct pawl_run *run, void *arg)
{
	return run_sync(run, arg);
}

int oper_body(struct pawl_run *run, void *arg)
{
	return run_sync(run, oper_func(arg));
}

void complete(struct func *f)
{
	u32 one = 1;
	char text[16];
	pawl_token_t t;

	if (!cas_acq_rel_acquire(&f->tstate, &one, 2))
		return;
	t.h = load_acquire(&f->token);
	snprintf(text, sizeof(text), "f%u", f->id);
	if (f->oper && ends_here(f))
		end_here(f);
	GOOD(!pawl_complete(w->e, t, f->fails ? f->code : 0, text));
}

static void run_async(struct pawl_run *run, struct func *f)
{
	begin(f, run);
	frame_in(f->node);
	idle_hands(f);
	store_relaxed(&f->token, run->token.h);
	(void)xchg_seq_cst(&f->tstate, 1);
	/* Either this thread sees the waiter, or the waiter sees the token. */
	if (f->kind == ASYNC_NOW || load_seq_cst(&w->autos))
		complete(f);
	frame_out();
}

void async_body(struct pawl_run *run, void *arg)
{
	run_async(run, arg);
}

void copied_async(struct pawl_run *run, void *arg)
{
	run_async(run, copied(arg));
}

void oper_async(struct pawl_run *run, void *arg)
{
	run_async(run, oper_func(arg));
}

void released(void *arg, int status)
{
	struct func *f = arg;
	struct node *nd = &w->node[f->node];

	if (f->dropped || nd->state == NOT_YET)
		fuzz_broken("func %u is released, but its push was refused", f->id);
	if (fetch_add_acq_rel(&f->released, 1))
		fuzz_broken("func %u was released twice", f->id);
	f->status = status;
	f->seq = w->det ? ++w->seq : 0;
	enter(f->node);
	/* Its status is final; what a release does to errors takes effect later. */
	note(L_END, nd->func, status);
	frame_in(f->node);
	idle_hands(f);
	frame_out();
	leave(f->node);
}

void copied_released(void *arg, int status)
{
	released(copied(arg), status);
}

void oper_released(void *arg, int status)
{
	struct oper *o = arg;

	GOOD(!status && ++o->released == 1);
	for (u32 i = 0, n = load_acquire(&o->nruns); i < n; i++)
		GOOD(load_acquire(&w->node[w->func[load_acquire(&o->run[i])].node].over));
}

/* --- the model's side of a push --- */

u32 func_new(void)
{
	u32 i = w->nfuncs++;
	struct func *f = &w->func[i];

	f->id = i;
	snprintf(f->name, sizeof(f->name), "f%u", i);
	total_ops++;
	return i;
}

void access_add(u16 *slot, bool *write, u32 *n, u16 s, bool wr)
{
	u32 k;

	for (k = 0; k < *n && slot[k] != s; k++)
		;
	if (k == *n) {
		slot[k] = s;
		write[k] = false;
		++*n;
	}
	write[k] |= wr;
}

u32 node_new(void)
{
	return w->nnodes++;
}

void node_add(u32 ni, u32 fi)
{
	struct node *nd = &w->node[ni];
	struct func *f = &w->func[fi];
	u32 i;

	f->node = ni;
	nd->func = fi;
	for (i = 0; i < f->n; i++)
		access_add(nd->slot, nd->write, &nd->n, f->slot[i], f->write[i]);
	GOOD(nd->n <= ACC);
}

static void node_say(u32 ni)
{
	struct node *nd = &w->node[ni];
	struct func *f = &w->func[nd->func];
	u32 i;

	fuzz_say("  caller %u, depth %u: place %u:", me->id, w->depth, ni);
	fuzz_say(" f%u(%s%s code %d)", nd->func,
		 (const char *[]){ "sync", "async", "later", "none" }[f->kind],
		 f->oper ? " oper" : "", f->fails ? f->code : 0);
	for (i = 0; i < nd->n; i++)
		fuzz_say(" %c%u", nd->write[i] ? 'w' : 'r', nd->slot[i]);
	fuzz_say("%s%s\n", nd->no_skip ? " no-skip" : "", nd->deletes ? " deletes" : "");
}

void place(u32 ni)
{
	struct node *nd = &w->node[ni];
	u32 i;

	if (&fuzz_verbose && fuzz_verbose)
		node_say(ni);

	nd->state = PLACED;
	w->order[w->norder++] = (u16)ni;
	for (i = 0; i < nd->n; i++) {
		struct slot *s = &w->slot[nd->slot[i]];

		nd->expect[i] = s->pushed;
		nd->pred[i] = s->last;
		if (nd->write[i]) {
			s->pushed++;
			s->last = ni + 1;
		}
	}
}

/* Undo place() after a refused push. */
void unplace(u32 ni)
{
	struct node *nd = &w->node[ni];
	u32 i, fi = nd->func;

	GOOD(w->norder && w->order[w->norder - 1] == ni);
	w->norder--;
	for (i = 0; i < nd->n; i++)
		if (nd->write[i]) {
			w->slot[nd->slot[i]].pushed--;
			w->slot[nd->slot[i]].last = nd->pred[i];
		}
	nd->state = NOT_YET;
	w->func[fi].dropped = true;
}
