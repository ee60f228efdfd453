// SPDX-License-Identifier: Apache-2.0
/*
 * The engine under calls that bytes choose: which call, with which arguments, by which of
 * three threads; and, where the engine has no workers, also what bodies do while they
 * run, which ready op runs when, and who completes what.  One call is made at a time, so
 * there is one order of all pushes, and a serial model knows what must come out.  Without
 * workers (three inputs of four) everything follows from the bytes.
 *
 * The model is written apart from the engine: a list of nodes in push order (a node is an
 * op, a bulk, a delete, one run of an operator), for each var the last node that writes it,
 * and a log of what happened.
 *   while ops run: nobody is beside a writer; each finds the version that the number of
 *     writes pushed before it demands;
 *   calls: each returns what the documentation says, bad arguments included;
 *   waits: what they promise is over is over;
 *   afterwards: data as a serial run makes it; which ops were skipped and with which
 *     error, what each wait gave, as the log and the rules of errors.md demand; each op
 *     was released once; the engine's own counts agree.
 */
#define UTIL_NO_CHECK
#include "../unit/util.h"
#include <fcntl.h>
#include <semaphore.h>
#include "fuzz.h"

#define CALLERS		3u
#define SLOTS		160u		/* vars of an input, over all deletes */
#define LIVE		12u		/* of them alive at once */
#define NODES		600u
#define OPERS		6u
#define ACC		24u
#define NAMED		14u		/* vars that one op names, at most */
#define LOGS		8192u
#define FRAMES		32u
#define BYTES	2048u

const char fuzz_target[] = "engine";
const uint8_t *fuzz_data;
size_t fuzz_size;

#define GOOD(cond)								\
	do {									\
		if (!(cond))							\
			fuzz_broken("%s:%d: %s (last error: %s)", __FILE__, __LINE__, #cond, \
				    pawl_error_text());				\
	} while (0)

/* A var over its life; its slot is never used for another one. */
struct slot {
	pawl_var_t v;
	u64 version, data;	/* plain: the engine's to protect */
	u32 readers, writers;	/* A: who is inside */
	u64 pushed;		/* writes that have their place */
	u32 last;		/* node + 1 of the last of them */
	u32 waits;		/* that are under way */
	bool dead, gave_up;	/* deleted; a wait left its place behind */
};

enum kind { SYNC, ASYNC_NOW, ASYNC_LATER, NO_BODY };
enum { NOT_YET, PLACED, LOST };

struct node {
	u32 n, nfuncs, left;
	u16 slot[ACC];
	bool write[ACC];
	u64 expect[ACC];
	u32 pred[ACC];		/* node + 1 that made the version it reads, or 0 */
	u32 func;		/* its first one; a bulk's others follow by next */
	u8 state;
	bool entered, no_skip, deletes, bulk, silent;
	u32 over;		/* A */
	/* the model, afterwards */
	bool began, ended;
	u32 failure;		/* func + 1 whose error poisons what it writes */
};

struct func {
	u32 id, node, next;
	u32 n;
	u16 slot[NAMED];
	bool write[NAMED];
	u8 kind;
	bool busy, fails, positive, dropped;
	int code;
	struct oper *oper;
	u64 token;		/* A */
	u32 tstate;		/* A: 0 none, 1 to be completed, 2 completed */
	u32 ran, released;	/* A */
	int status, inherited;
	u64 hash, seq;
	bool gone;		/* the model: its error was given out or cleared */
	char name[16];
};

struct oper {
	pawl_oper_t h;
	u32 n;
	u16 slot[NAMED];
	bool write[NAMED];
	u8 kind;
	u32 released;
	u32 nruns;		/* A */
	u32 run[NODES];		/* A: funcs */
	bool deleted;
};

enum log_kind { L_START, L_END, L_TAKE, L_CLEAR, L_ALL };

struct log {
	u8 kind;
	u32 id, by, count;	/* func; or slot, func that is named, and the last writer */
	u32 last;
	int rc;
};

struct caller {
	u32 id, depth, nframes;
	pthread_t thread;
	bool alive, in, bulk_kept;
	sem_t go, done;
	void (*fn)(void);
	int bulk;		/* pawl_bulk_size() */
	u32 bulk_node;		/* node + 1 that gathers */
	u16 bulk_dev;
	u32 frame[FRAMES];	/* nodes */
};

static struct world {
	struct pawl_engine *e;
	struct pawl_config cfg;
	const uint8_t *p;
	size_t n, at;
	bool det, errors, naive, blocks, traced;
	u32 depth;		/* bodies on all stacks (det) */
	u32 autos;		/* A: async bodies complete at once */
	u32 nslots, nlive, nnodes, norder, nfuncs, nopers, narrived;
	u16 live[LIVE];
	u16 order[NODES];
	u64 seq;
	u32 nlog;		/* A */
	u64 failed, skipped;	/* the model's count */
	struct slot slot[SLOTS];
	struct node node[NODES];
	struct func func[NODES];
	struct oper oper[OPERS];
	struct log log[LOGS];
	struct caller caller[CALLERS];
} *w;

static __thread struct caller *me;	/* NULL: a worker */
static int null_fd = -1;
static u64 total_ops, total_calls;	/* the line of figures */

static void steps(u32 n);

static u8 byte(void)
{
	return w->at < w->n ? w->p[w->at++] : 0;
}

static bool more(void)
{
	return w->at < w->n;
}

static u64 mix(u64 a, u64 b)
{
	u64 s = a * 0x9e3779b97f4a7c15ull ^ b;

	return rnd(&s);
}

static struct log *note(u8 kind, u32 id, int rc)
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

static u64 work(const struct func *f, u64 *data)
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

static void begin(struct func *f, struct pawl_run *run)
{
	struct node *nd = &w->node[f->node];

	if (f->dropped || nd->state != PLACED)
		fuzz_broken("func %u runs, but its push was refused", f->id);
	if (fetch_add_acq_rel(&f->ran, 1))
		fuzz_broken("func %u ran twice", f->id);
	GOOD(run->engine == w->e && run->device.kind == PAWL_CPU &&
	     run->device.id < w->cfg.cpu_devices);
	f->inherited = run->status;
	enter(f->node);
	note(L_START, f->id, run->status);
	f->hash = work(f, NULL);
}

/* What other calls a body makes, the bytes say; only if nothing runs beside it. */
static void idle_hands(struct func *f)
{
	/* At a window, bodies run before the push that waits there has its place. */
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

/* Without a release: the end is the end of the body. */
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
	/* A write comes at each version once: it tells the run. */
	version = w->slot[o->slot[i]].version;
	for (u32 k = 0, n = load_acquire(&o->nruns); k < n; k++) {
		struct func *f = &w->func[load_acquire(&o->run[k])];

		if (w->node[f->node].expect[i] == version)
			return f;
	}
	fuzz_broken("an operator runs at version %llu of slot %u, where no push of it is",
		    (unsigned long long)version, o->slot[i]);
}

static int run_sync(struct pawl_run *run, struct func *f)
{
	begin(f, run);
	frame_in(f->node);
	idle_hands(f);
	frame_out();
	if (f->oper || w->node[f->node].deletes)
		end_here(f);
	return outcome(f, run);
}

static int sync_body(struct pawl_run *run, void *arg)
{
	return run_sync(run, arg);
}

static int oper_body(struct pawl_run *run, void *arg)
{
	return run_sync(run, oper_func(arg));
}

static void complete(struct func *f)
{
	u32 one = 1;
	char text[16];
	pawl_token_t t;

	if (!cas_acq_rel_acquire(&f->tstate, &one, 2))
		return;
	t.h = load_acquire(&f->token);
	snprintf(text, sizeof(text), "f%u", f->id);
	if (f->oper)
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
	/* Either we see that somebody waits, or he sees the token. */
	if (f->kind == ASYNC_NOW || load_seq_cst(&w->autos))
		complete(f);
	frame_out();
}

static void async_body(struct pawl_run *run, void *arg)
{
	run_async(run, arg);
}

static void oper_async(struct pawl_run *run, void *arg)
{
	run_async(run, oper_func(arg));
}

static void released(void *arg, int status)
{
	struct func *f = arg;
	struct node *nd = &w->node[f->node];

	if (f->dropped || nd->state == NOT_YET)
		fuzz_broken("func %u is released, but its push was refused", f->id);
	if (fetch_add_acq_rel(&f->released, 1))
		fuzz_broken("func %u was released twice", f->id);
	f->status = status;
	if (nd->state == LOST)
		return;
	f->seq = w->det ? ++w->seq : 0;
	enter(f->node);
	if (++nd->left < nd->nfuncs)
		return;
	/* Its status is fixed: what a release does to errors comes later. */
	note(L_END, nd->func, status);
	frame_in(f->node);
	if (!nd->bulk)
		idle_hands(f);
	frame_out();
	leave(f->node);
}

static void oper_released(void *arg, int status)
{
	struct oper *o = arg;

	GOOD(!status && ++o->released == 1);
	for (u32 i = 0, n = load_acquire(&o->nruns); i < n; i++)
		GOOD(load_acquire(&w->node[w->func[load_acquire(&o->run[i])].node].over));
}

/* --- the model's side of a push --- */

static u32 func_new(void)
{
	u32 i = w->nfuncs++;
	struct func *f = &w->func[i];

	f->id = i;
	snprintf(f->name, sizeof(f->name), "f%u", i);
	total_ops++;
	return i;
}

static void access_add(u16 *slot, bool *write, u32 *n, u16 s, bool wr)
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

static u32 node_new(void)
{
	return w->nnodes++;
}

static void node_add(u32 ni, u32 fi)
{
	struct node *nd = &w->node[ni];
	struct func *f = &w->func[fi];
	u32 i, *link = &nd->func;

	f->node = ni;
	for (i = 0; i < nd->nfuncs; i++)
		link = &w->func[i ? *link : nd->func].next;
	*link = fi;
	nd->nfuncs++;
	for (i = 0; i < f->n; i++)
		access_add(nd->slot, nd->write, &nd->n, f->slot[i], f->write[i]);
	GOOD(nd->n <= ACC);
}

static void node_say(u32 ni)
{
	struct node *nd = &w->node[ni];
	u32 i, fi;

	fuzz_say("  caller %u, depth %u: place %u:", me->id, w->depth, ni);
	for (i = 0, fi = nd->func; i < nd->nfuncs; i++, fi = w->func[fi].next) {
		struct func *f = &w->func[fi];

		fuzz_say(" f%u(%s%s code %d)", fi, (const char *[]){ "sync", "async", "later", "none" }[f->kind],
			 f->oper ? " oper" : "", f->fails ? f->code : 0);
	}
	for (i = 0; i < nd->n; i++)
		fuzz_say(" %c%u", nd->write[i] ? 'w' : 'r', nd->slot[i]);
	fuzz_say("%s%s%s\n", nd->no_skip ? " no-skip" : "", nd->deletes ? " deletes" : "",
		 nd->bulk ? " bulk" : "");
}

static void place(u32 ni)
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

/* A push that was refused, right after place(). */
static void unplace(u32 ni)
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

/* What the calling thread gathered goes now; -ESTALE: a var of it is gone. */
static int bulk_goes(void)
{
	u32 ni = me->bulk_node, i;
	struct node *nd;

	if (!ni)
		return 0;
	me->bulk_node = 0;
	nd = &w->node[--ni];
	for (i = 0; i < nd->n; i++)
		if (w->slot[nd->slot[i]].dead) {
			nd->state = LOST;
			return -ESTALE;
		}
	place(ni);
	return 0;
}

/* --- calls that may wait for all that is in flight --- */

static void auto_begin(void)
{
	fetch_add_seq_cst(&w->autos, 1);
	smp_mb();
	for (u32 i = 0; i < w->nfuncs; i++)
		if (load_seq_cst(&w->func[i].tstate) == 1)
			complete(&w->func[i]);
}

static void auto_end(void)
{
	fetch_add_seq_cst(&w->autos, -1u);
}

static bool may_block(void)
{
	return !w->depth;
}

/* At a window that blocks, a body that pushes may wait for ops behind itself. */
static bool may_push(void)
{
	return !w->blocks || may_block();
}

/* First of all: completions run bodies, which make calls of their own. */
static bool push_begin(void)
{
	if (!(w->naive || w->blocks) || !may_block())
		return false;
	auto_begin();
	return true;
}

static void push_end(bool begun)
{
	if (begun)
		auto_end();
}

static u64 in_flight(void)
{
	struct pawl_stats st = { .size = sizeof(st) };

	bulk_goes();
	GOOD(pawl_bulk_flush(w->e) <= 0);
	GOOD(!pawl_stats(w->e, &st));
	return st.pushed - st.completed;
}

/* Make all that was pushed be over, without taking any error. */
static void quiesce(void)
{
	auto_begin();
	for (;;) {
		int rc;

		bulk_goes();	/* also what a body gathered on this thread */
		rc = pawl_run_one(w->e);
		GOOD(rc >= 0);
		if (!rc) {
			if (!in_flight())
				break;
			sched_yield();
		}
	}
	auto_end();
}

static u32 named(const struct pawl_error *err)
{
	u32 id;

	if (sscanf(err->text, "f%u", &id) == 1 || sscanf(err->op, "f%u", &id) == 1)
		return id;
	return ~0u;
}

/* --- the calls --- */

static u16 slot_new(void)
{
	u16 i = (u16)w->nslots++;

	GOOD(!pawl_var_create(w->e, &w->slot[i].v));
	w->live[w->nlive++] = i;
	return i;
}

static u16 slot_pick(u8 b)
{
	return w->live[(b & 63) % w->nlive];
}

struct desc {
	struct pawl_op op;
	pawl_var_t reads[NAMED], writes[NAMED];
};

static const u8 counts[8] = { 0, 1, 1, 2, 2, 3, 5, NAMED };
static const int codes[4] = { 0, -EIO, -ENOSPC, -EPROTO };

/* An op as the bytes say; f gets what the model must know. */
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

static bool room(u32 n)
{
	return w->nnodes + n <= NODES && w->nfuncs + n <= NODES && may_push();
}

/* Was this refusal right?  flight: before the push. */
static void check_again(int rc, u64 flight, u32 n)
{
	u64 limit = w->cfg.window > n ? w->cfg.window - n : 0;
	bool full = w->cfg.window && w->cfg.window_policy == PAWL_WINDOW_FAIL && flight > limit;

	if (rc == -EAGAIN ? full : !rc && (!full || !w->det))
		return;
	fuzz_broken("a push of %u with %llu in flight returned %d: %s", n,
		    (unsigned long long)flight, rc, pawl_error_text());
}

static void do_push(void)
{
	u32 fi, ni, i;
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
	describe(&d, f);
	if (me->bulk >= 2 && !d.op.async_fn && d.op.prop == PAWL_NORMAL && !d.op.priority &&
	    !w->naive) {
		if (me->bulk_node && me->bulk_dev != d.op.device.id)
			bulk_goes();
		if (!me->bulk_node) {
			me->bulk_node = node_new() + 1;
			me->bulk_dev = d.op.device.id;
			w->node[me->bulk_node - 1].bulk = true;
		}
		ni = me->bulk_node - 1;
		/* At most LIVE vars live: but those gathered may have died since. */
		node_add(ni, fi);
		for (i = 0; i < w->node[ni].nfuncs; i++)
			;
		if (i >= min_u((u32)me->bulk, 64) || w->node[ni].n > ACC - LIVE)
			bulk_goes();
		rc = pawl_push(w->e, &d.op);
		GOOD(!rc);
		if (!me->bulk_node)
			GOOD(pawl_bulk_flush(w->e) <= 0);
		push_end(begun);
		return;
	}
	bulk_goes();
	ni = node_new();
	node_add(ni, fi);
	w->node[ni].no_skip = d.op.prop == PAWL_NO_SKIP;
	flight = in_flight();
	place(ni);
	rc = pawl_push(w->e, &d.op);
	push_end(begun);
	if (rc == -EAGAIN)
		unplace(ni);
	check_again(rc, flight, 1);
}

static void do_batch(void)
{
	u32 n = 1 + byte() % 6, i, ni[6], fi;
	static __thread struct desc d[6];
	struct pawl_op ops[6];
	bool begun;
	u64 flight;
	int rc;

	if (!room(n))
		return;
	begun = push_begin();
	bulk_goes();
	for (i = 0; i < n; i++) {
		fi = func_new();
		describe(&d[i], &w->func[fi]);
		ops[i] = d[i].op;
		ni[i] = node_new();
		node_add(ni[i], fi);
		w->node[ni[i]].no_skip = ops[i].prop == PAWL_NO_SKIP;
	}
	flight = in_flight();
	for (i = 0; i < n; i++)
		place(ni[i]);
	rc = pawl_push_batch(w->e, ops, n);
	push_end(begun);
	if (rc == -EAGAIN)
		for (i = n; i--; )
			unplace(ni[i]);
	check_again(rc, flight, n);
}

static void do_oper_new(void)
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
	/* A run that is skipped would tell nobody. */
	if (w->errors)
		d.op.prop = PAWL_NO_SKIP;
	w->nopers++;
	GOOD(!pawl_oper_create(w->e, &d.op, &o->h));
}

static void do_oper_push(void)
{
	struct pawl_device dev = { PAWL_CPU, 0 };
	u8 b = byte(), c = byte();
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
	bulk_goes();
	dead = o->deleted;
	for (i = 0; i < o->n; i++)
		dead |= w->slot[o->slot[i]].dead;
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
		f->positive = f->code == -EPROTO && f->kind == SYNC;
	}
	ni = node_new();
	node_add(ni, fi);
	w->node[ni].no_skip = w->errors;
	flight = in_flight();
	if (!dead) {
		place(ni);
		store_release(&o->run[o->nruns], fi);
		store_release(&o->nruns, o->nruns + 1);
	}
	rc = pawl_oper_push(w->e, o->h, (c >> 2 & 7) - 3, dev);
	push_end(begun);
	if (dead) {
		f->dropped = true;
		/* The window is looked at between the operator and its vars. */
		GOOD(rc == -ESTALE || (rc == -EAGAIN && !o->deleted));
		return;
	}
	if (rc == -EAGAIN) {
		store_release(&o->nruns, o->nruns - 1);
		unplace(ni);
	}
	check_again(rc, flight, 1);
}

static void do_oper_delete(void)
{
	u8 b = byte();
	struct oper *o;
	int rc;

	if (!w->nopers)
		return;
	o = &w->oper[b % w->nopers];
	bulk_goes();
	rc = pawl_oper_delete(w->e, o->h);
	GOOD(rc == (o->deleted ? -ESTALE : 0));
	o->deleted = true;
}

static void do_var_new(void)
{
	if (w->nlive < LIVE && w->nslots < SLOTS)
		slot_new();
}

static void do_var_delete(void)
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
	bulk_goes();
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
	flight = in_flight();
	place(ni);
	s->dead = true;
	w->live[i] = w->live[--w->nlive];
	rc = pawl_var_delete(w->e, s->v, b & 128 ? NULL : sync_body, f);
	if (!rc) {
		bulk_goes();
		again = pawl_var_delete(w->e, s->v, NULL, NULL);
		GOOD(again == -ESTALE || (again == -EAGAIN && w->cfg.window));
	}
	push_end(begun);
	if (rc == -EAGAIN) {
		s->dead = false;
		w->live[w->nlive++] = f->slot[0];
		unplace(ni);
	}
	check_again(rc, flight, 1);
}

static void do_complete(void)
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

/* All accesses (writes: all writes) of the slot among the first n pushes are over. */
static void check_over(u32 s, u32 n, bool reads_too)
{
	u32 i, k;

	for (i = 0; i < n; i++) {
		struct node *nd = &w->node[w->order[i]];

		if (load_acquire(&nd->over) || nd->silent)
			continue;
		for (k = 0; k < nd->n; k++)
			if (nd->slot[k] == s && (nd->write[k] || reads_too))
				fuzz_broken("a wait for slot %u came back before node %u was over", s,
					    w->order[i]);
	}
}

static bool held(u32 s)
{
	u32 i, k;

	for (i = 0; i < me->nframes; i++) {
		struct node *nd = &w->node[me->frame[i]];

		for (k = 0; k < nd->n; k++)
			if (nd->slot[k] == s)
				return true;
	}
	return false;
}

static bool all_over(u32 n)
{
	for (u32 i = 0; i < n; i++)
		if (!load_acquire(&w->node[w->order[i]].over) && !w->node[w->order[i]].silent)
			return false;
	return true;
}

static void do_wait(bool write)
{
	struct pawl_error err = { 0 };
	u8 b = byte(), how = b >> 6;
	u16 s;
	struct slot *v;
	s64 limit = how == 0 ? 0 : how == 1 ? 1 : -1;
	u32 before, last;
	bool block;
	struct log *l;
	int rc;

	if (!w->det && w->errors)
		quiesce();
	block = limit < 0;
	if (block && !may_block()) {
		limit = 0;
		block = false;
	}
	if (block)
		auto_begin();
	s = slot_pick(b);
	v = &w->slot[s];
	bulk_goes();
	before = w->norder;
	last = v->last;
	v->waits++;
	rc = write ? pawl_wait_writable(w->e, v->v, limit, &err) :
		     pawl_wait_readable(w->e, v->v, limit, &err);
	v->waits--;
	if (block)
		auto_end();
	if (v->dead && rc == -ESTALE)
		return;			/* a body that the wait ran deleted it */
	if (rc == -EDEADLK) {
		GOOD(held(s));
		return;
	}
	if (rc == -ETIMEDOUT) {
		GOOD(!block && !err.code);
		v->gave_up |= limit != 0;
		if (w->det && !limit && !v->gave_up && !v->waits) {
			/* Something must have been in the way. */
			u32 i, k, busy = 0;

			for (i = 0; i < before; i++) {
				struct node *nd = &w->node[w->order[i]];

				for (k = 0; k < nd->n; k++)
					busy += nd->slot[k] == s && (nd->write[k] || write) &&
						!load_acquire(&nd->over);
			}
			GOOD(busy);
		}
		return;
	}
	GOOD(rc == 0 || (err.code == rc && w->errors));
	check_over(s, before, write);
	l = note(L_TAKE, s, rc);
	l->last = last;
	l->by = rc ? named(&err) : ~0u;
}

static void do_wait_readable(void)
{
	do_wait(false);
}

static void do_wait_writable(void)
{
	do_wait(true);
}

static void do_wait_all(void)
{
	struct pawl_error err = { 0 };
	u8 b = byte();
	bool block = b & 1;
	u32 before, i;
	struct log *l;
	int rc;

	if (me->depth) {
		GOOD(pawl_wait_all(w->e, b & 1 ? -1 : 0, &err) == -EDEADLK);
		return;
	}
	if (!w->det && w->errors)
		quiesce();
	block &= may_block();
	if (block)
		auto_begin();
	bulk_goes();
	before = w->norder;
	rc = pawl_wait_all(w->e, block ? -1 : 0, &err);
	if (block)
		auto_end();
	if (rc == -ETIMEDOUT) {
		GOOD(!block && !err.code);
		for (i = 0; w->det && i < w->nslots; i++)
			if (w->slot[i].gave_up || w->slot[i].waits)
				return;
		for (i = 0; w->det && i < before; i++)
			if (!load_acquire(&w->node[w->order[i]].over) || w->node[w->order[i]].silent)
				return;
		GOOD(!w->det || w->depth);
		return;
	}
	GOOD(rc == 0 || (err.code == rc && w->errors));
	if (!all_over(before))
		fuzz_broken("a wait for all came back before all was over");
	l = note(L_ALL, 0, rc);
	l->by = rc ? named(&err) : ~0u;
	l->count = err.count;
}

static void do_run_one(void)
{
	u32 i, tokens = 0;
	int rc;

	bulk_goes();
	rc = pawl_run_one(w->e);
	GOOD(rc == 0 || rc == 1);
	if (rc || !w->det || w->depth)
		return;
	for (i = 0; i < w->nfuncs; i++)
		tokens += load_acquire(&w->func[i].tstate) == 1;
	/* Nothing is ready, nothing runs: what is left waits for a completion. */
	if (!tokens && !all_over(w->norder))
		fuzz_broken("an op is lost: nothing is ready, and not all is over");
}

static bool done_now(void *arg)
{
	return ++*(u32 *)arg > 3;
}

static void do_run_until(void)
{
	u32 looks = 0;
	int rc;

	bulk_goes();
	rc = pawl_run_until(w->e, done_now, &looks, 0);
	GOOD(rc == 0 || rc == -ETIMEDOUT);
	GOOD(pawl_run_until(w->e, NULL, NULL, 0) == -EINVAL);
}

static void do_bulk_size(void)
{
	int n = byte() % 8, was;

	if (n != me->bulk && (me->bulk || n > 1))
		bulk_goes();
	was = pawl_bulk_size(w->e, n);
	GOOD(was == me->bulk);
	/* Before it is first turned on there is nothing to keep it in. */
	me->bulk_kept |= n > 1;
	if (me->bulk_kept)
		me->bulk = n;
	GOOD(pawl_bulk_size(w->e, -1) == -EINVAL);
}

static void do_bulk_flush(void)
{
	int want = bulk_goes();

	GOOD(pawl_bulk_flush(w->e) == want);
}

static void do_clear(void)
{
	struct pawl_error err = { 0 };
	u8 b = byte();
	u16 s = slot_pick(b);
	struct slot *v = &w->slot[s];
	struct log *l;
	u32 i, k;
	int rc;

	if (!w->det && w->errors)
		quiesce();
	/* Which version counts while writes wait is the engine's to choose. */
	for (i = 0; i < w->norder; i++) {
		struct node *nd = &w->node[w->order[i]];

		for (k = 0; k < nd->n; k++)
			if (nd->slot[k] == s && nd->write[k] && !load_acquire(&nd->over))
				return;
	}
	if (v->gave_up || v->waits || me->bulk_node)
		return;
	if (b & 64) {
		rc = pawl_var_error(w->e, v->v, &err);
		GOOD(rc <= 0 && rc == err.code && (w->errors || !rc));
	} else {
		GOOD(!pawl_var_clear(w->e, v->v));
		l = note(L_CLEAR, s, 0);
		l->last = v->last;
	}
}

static void do_query(void)
{
	u8 b = byte();
	u16 s = slot_pick(b);
	struct slot *v = &w->slot[s];
	struct pawl_error err;
	u64 n = 0, before = w->det ? v->version : 0;
	int rc;

	bulk_goes();
	if (b & 64) {
		rc = pawl_var_error(w->e, v->v, &err);
		GOOD(rc == 0 || (w->errors && rc == err.code));
		return;
	}
	GOOD(!pawl_var_version(w->e, v->v, &n));
	GOOD(n <= v->pushed);
	/* Between leave() and retire() runs the rest of a release. */
	if (w->det && !w->depth)
		GOOD(n == before);
}

static void do_look(void)
{
	int rc;

	switch (byte() % 5) {
	case 0:
		in_flight();
		break;
	case 1:
		pawl_dump(w->e, null_fd);
		break;
	case 2:
		rc = pawl_trace_start(w->e, 64);
		GOOD(rc == (w->traced ? -EALREADY : 0) || rc == -ENOSYS);
		w->traced = true;
		GOOD(pawl_trace_start(w->e, 0) < 0);
		break;
	case 3:
		rc = pawl_trace_stop(w->e);
		GOOD(rc == 0 || rc == -ENOSYS);
		w->traced = false;
		break;
	default:
		rc = pawl_trace_write(w->e, "/dev/null");
		GOOD(rc == (w->traced ? -EBUSY : 0) || rc == -ENOSYS);
	}
}

static void do_stop(void)
{
	u8 b = byte();
	u32 before;

	if (me->depth) {
		GOOD(pawl_engine_stop(w->e) == -EDEADLK && pawl_engine_start(w->e) == -EDEADLK);
		GOOD(pawl_engine_destroy(w->e) == -EDEADLK);
		return;
	}
	if (!may_block())
		return;
	if (b % 4 == 0) {
		GOOD(!pawl_engine_start(w->e));
		return;
	}
	auto_begin();
	bulk_goes();
	before = w->norder;
	GOOD(!pawl_engine_stop(w->e));
	if (!all_over(before))
		fuzz_broken("the engine stopped before all was over");
	/* Who only waits, or is kept out by the window, would wait for workers. */
	if (b & 4 || w->cfg.no_help || w->blocks)
		GOOD(!pawl_engine_start(w->e));
	auto_end();
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

static void do_bad(void)
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
		op.size--;
		break;
	case 1:
		op.async_fn = async_body;
		break;
	case 2:
		op.prop = 8 + (b >> 4);
		break;
	case 3:
		op.flags = (uint16_t)(1 + b);
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
		bulk_goes();
		GOOD(pawl_var_version(w->e, good, NULL) == -EINVAL);
		GOOD(pawl_var_version(w->e, v, &n) == -ESTALE);
		GOOD(pawl_var_error(w->e, v, NULL) == -ESTALE && pawl_var_clear(w->e, v) == -ESTALE);
		goto out;
	case 11:
		bulk_goes();
		GOOD(pawl_wait_readable(w->e, v, -1, NULL) == -ESTALE);
		GOOD(pawl_wait_writable(w->e, v, 0, NULL) == -ESTALE);
		goto out;
	case 12:
		/* Of a run that is far from now: one that is made up can be right. */
		v.h |= 0x10000ull << 32;
		rc = pawl_complete(w->e, (pawl_token_t){ v.h << (b >> 4) }, 0, NULL);
		if (!rc)
			fuzz_broken("a token that was made up is taken");
		GOOD(rc == -EINVAL || rc == -EALREADY);
		goto out;
	case 13:
		bulk_goes();
		GOOD(pawl_oper_push(w->e, (pawl_oper_t){ (u64)(b >> 4) << 33 | 0x7f }, 0,
				    (struct pawl_device){ 0, 0 }) == -ESTALE);
		GOOD(pawl_oper_push(w->e, (pawl_oper_t){ 1 }, 0, (struct pawl_device){ 0, 64 }) == -ENODEV);
		GOOD(pawl_oper_delete(w->e, (pawl_oper_t){ 0 }) == -ESTALE);
		goto out;
	case 14:
		GOOD(pawl_var_create(w->e, NULL) == -EINVAL);
		GOOD(pawl_oper_create(w->e, &op, NULL) == -EINVAL);
		goto out;
	default:
		GOOD(pawl_push_batch(w->e, NULL, 0) == 0 && pawl_push_batch(w->e, NULL, 1) == -EINVAL);
		goto out;
	}
	/* Before anything else of it is looked at, what was gathered goes. */
	if (b & 128) {
		bulk_goes();
		ops[0] = op_of_fn(unused_body, NULL);
		ops[0].writes = &good;
		ops[0].nwrites = 1;
		ops[0].release = unused_release;
		ops[1] = op;
		rc = pawl_push_batch(w->e, ops, 2);
	} else {
		if (b & 64) {
			op.priority = 1;
			if (want == -ESTALE)
				bulk_goes();
		}
		if (want == -ESTALE && w->naive)
			bulk_goes();
		rc = pawl_push(w->e, &op);
	}
	if (rc != want && !(rc == -EAGAIN && w->cfg.window))
		fuzz_broken("a bad push (%u) returned %d, not %d: %s", b, rc, want, pawl_error_text());
out:
	push_end(begun);
}

static void end_thread(struct caller *c)
{
	if (!c->alive)
		return;
	c->fn = NULL;
	sem_post(&c->go);
	pthread_join(c->thread, NULL);
	c->alive = false;
}

/* One of the two helpers ends; another thread takes its part later. */
static void do_end_thread(void)
{
	struct caller *c = &w->caller[1 + byte() % (CALLERS - 1)], *was = me;

	if (c->in || !c->alive)
		return;
	/* Its end pushes what it gathered. */
	me = c;
	bulk_goes();
	me = was;
	end_thread(c);
	c->bulk = 0;
	c->bulk_kept = false;
}

/* --- which call, by whom --- */

static void *caller_main(void *arg)
{
	me = arg;
	for (;;) {
		while (sem_wait(&me->go))
			;
		if (!me->fn)
			return NULL;
		me->fn();
		sem_post(&me->done);
	}
}

static void on(u32 k, void (*fn)(void))
{
	struct caller *c = k < CALLERS ? &w->caller[k] : me;

	total_calls++;
	fuzz_say("call %u by %u\n", w->p[w->at - 1] & 63, c->id);
	/* Inside a body of a naive engine another thread's push would wait for it. */
	if (c->in || (w->naive && w->depth)) {
		fn();
		return;
	}
	if (!c->alive) {
		c->thread = spawn(caller_main, c);
		c->alive = true;
	}
	c->in = true;
	c->fn = fn;
	sem_post(&c->go);
	while (sem_wait(&c->done))
		;
	c->in = false;
}

static void (*const calls[64])(void) = {
	do_push, do_push, do_push, do_push, do_push, do_push, do_push, do_push,
	do_push, do_push, do_push, do_push, do_push, do_push, do_push, do_push,
	do_batch, do_batch, do_batch, do_batch, do_oper_new, do_oper_new,
	do_oper_push, do_oper_push, do_oper_push, do_oper_push, do_oper_delete,
	do_var_new, do_var_new, do_var_delete, do_var_delete, do_var_delete,
	do_complete, do_complete, do_complete, do_complete, do_complete, do_complete,
	do_wait_readable, do_wait_readable, do_wait_readable, do_wait_readable,
	do_wait_writable, do_wait_writable, do_wait_writable, do_wait_all, do_wait_all,
	do_run_one, do_run_one, do_run_one, do_run_one, do_run_one, do_run_until,
	do_bulk_size, do_bulk_flush, do_clear, do_clear, do_query, do_query, do_look,
	do_stop, do_bad, do_bad, do_end_thread,
};

static void steps(u32 n)
{
	while (n-- && more()) {
		u8 b = byte();

		on(b >> 6, calls[b & 63]);
	}
}

/* --- afterwards --- */

static u32 alive(u32 failure)
{
	return failure && !w->func[failure - 1].gone ? failure : 0;
}

/* The first among its reads, then among its writes, in the order of the vars' indexes. */
static u32 inherited(const struct node *nd)
{
	u64 best = ~0ull;
	u32 i, f = 0;

	for (i = 0; i < nd->n; i++) {
		u32 x = nd->pred[i] ? alive(w->node[nd->pred[i] - 1].failure) : 0;
		u64 rank = (u64)nd->write[i] << 32 | (u32)w->slot[nd->slot[i]].v.h;

		if (x && rank < best) {
			best = rank;
			f = x;
		}
	}
	return f;
}

static int code_of(u32 failure)
{
	return failure ? w->func[failure - 1].code : 0;
}

static void model_start(const struct log *l)
{
	struct func *f = &w->func[l->id];
	struct node *nd = &w->node[f->node];
	u32 x;

	/* The functions of a bulk are one op: the first one's start is its start. */
	if (nd->began) {
		GOOD(nd->bulk && !l->rc);
		return;
	}
	nd->began = true;
	x = inherited(nd);
	if (x && !nd->no_skip)
		fuzz_broken("func %u ran although it inherits the error of func %u", f->id, x - 1);
	if (l->rc != code_of(x))
		fuzz_broken("func %u: run->status is %d, expected %d", f->id, l->rc, code_of(x));
}

static void model_end(const struct log *l)
{
	struct node *nd = &w->node[w->func[l->id].node];
	bool bodies = nd->bulk, ran = false;
	u32 i, fi, x = inherited(nd), failed = 0;

	nd->ended = true;
	for (i = 0, fi = nd->func; i < nd->nfuncs; i++, fi = w->func[fi].next) {
		struct func *f = &w->func[fi];

		bodies |= f->kind != NO_BODY;
		ran |= f->ran;
		if (f->ran && failed)
			fuzz_broken("func %u of a bulk ran after func %u had failed", fi, failed - 1);
		if (!f->ran && f->kind != NO_BODY && !failed && (!x || nd->no_skip))
			fuzz_broken("func %u was skipped without an error", fi);
		if (f->ran && f->fails)
			failed = fi + 1;
	}
	w->failed += failed != 0;
	w->skipped += bodies && !ran && x;
	nd->failure = failed ? failed : x;
	for (i = 0, fi = nd->func; i < nd->nfuncs; i++, fi = w->func[fi].next) {
		struct func *f = &w->func[fi];

		if (!f->oper && !nd->deletes && f->status != code_of(nd->failure))
			fuzz_broken("func %u was released with %d, expected %d", fi, f->status,
				    code_of(nd->failure));
	}
}

static void model_take(const struct log *l)
{
	u32 x = l->last ? alive(w->node[l->last - 1].failure) : 0;

	if (l->kind == L_TAKE && l->rc != code_of(x))
		fuzz_broken("log %u: a wait for slot %u (last write by node %d) gave %d (func %d), expected %d",
			    (u32)(l - w->log), l->id, (int)l->last - 1, l->rc, (int)l->by, code_of(x));
	if (l->kind == L_TAKE && x && l->by != ~0u && l->by != x - 1)
		fuzz_broken("a wait for slot %u names func %u, expected %u", l->id, l->by, x - 1);
	if (x)
		w->func[x - 1].gone = true;
}

static void model_all(const struct log *l, u32 from)
{
	u32 i, fi, k, n = 0, left = 0, first = ~0u;

	/* Failures since the wait for all before. */
	for (i = 0; i < from; i++) {
		struct node *nd;

		if (w->log[i].kind == L_ALL && !(w->log[i].by == ~0u - 1)) {
			n = left = 0;
			first = ~0u;
		}
		if (w->log[i].kind != L_END)
			continue;
		nd = &w->node[w->func[w->log[i].id].node];
		for (k = 0, fi = nd->func; k < nd->nfuncs; k++, fi = w->func[fi].next) {
			struct func *f = &w->func[fi];

			if (!f->ran || !f->fails)
				continue;
			n++;
			if (f->gone)
				continue;
			left++;
			if (first == ~0u || f->seq < w->func[first].seq)
				first = fi;
		}
	}
	if (!left != !l->rc)
		fuzz_broken("a wait for all gave %d, and %u of %u failures were not given", l->rc, left, n);
	if (!left)
		goto out;
	if (l->count != n)
		fuzz_broken("a wait for all counts %u failures, expected %u", l->count, n);
	if (n > 16)
		goto out;	/* the first 16 are kept by name */
	if (w->det && l->by != ~0u && l->by != first)
		fuzz_broken("a wait for all names func %u, expected %u", l->by, first);
	if (l->by != ~0u && (l->by >= w->nfuncs || !w->func[l->by].fails || w->func[l->by].gone ||
			     w->func[l->by].code != l->rc))
		fuzz_broken("a wait for all names func %u", l->by);
out:
	for (i = 0; i < from; i++)
		if (w->log[i].kind == L_END) {
			struct node *nd = &w->node[w->func[w->log[i].id].node];

			for (k = 0, fi = nd->func; k < nd->nfuncs; k++, fi = w->func[fi].next)
				w->func[fi].gone = true;
		}
}

static void model_run(void)
{
	u64 data[SLOTS] = { 0 };
	u32 i, k, fi, n = load_acquire(&w->nlog);

	for (i = 0; i < n; i++) {
		switch (w->log[i].kind) {
		case L_START:
			model_start(&w->log[i]);
			break;
		case L_END:
			model_end(&w->log[i]);
			break;
		case L_ALL:
			model_all(&w->log[i], i);
			break;
		default:
			model_take(&w->log[i]);
		}
	}
	for (i = 0; i < w->norder; i++) {
		struct node *nd = &w->node[w->order[i]];

		if (!nd->ended && !nd->silent)
			fuzz_broken("node %u is not over at the end", w->order[i]);
		for (k = 0, fi = nd->func; k < nd->nfuncs; k++, fi = w->func[fi].next)
			if (w->func[fi].ran && work(&w->func[fi], data) != w->func[fi].hash)
				fuzz_broken("func %u read other data than in push order", fi);
	}
	for (i = 0; i < w->nslots; i++) {
		struct slot *s = &w->slot[i];

		if (s->data != data[i])
			fuzz_broken("slot %u ends with other data than in push order", i);
		if (!s->dead)
			GOOD(s->version == s->pushed && !s->readers && !s->writers);
	}
	for (i = 0; i < w->nfuncs; i++) {
		struct func *f = &w->func[i];
		struct node *nd = &w->node[f->node];

		if (f->dropped)
			continue;
		if (nd->state == LOST)
			GOOD(!f->ran && f->released == 1 && f->status == -ESTALE);
		else
			GOOD(f->released == (!f->oper && !nd->deletes));
	}
}

static void finish(void)
{
	struct pawl_stats st = { .size = sizeof(st) };
	u64 n;
	u32 i;

	for (i = 1; i < CALLERS; i++) {
		struct caller *c = &w->caller[i];

		if (!c->alive)
			continue;
		me = c;
		bulk_goes();
		me = &w->caller[0];
		end_thread(c);
	}
	quiesce();
	for (i = 0; i < w->nslots; i++)
		if (!w->slot[i].dead) {
			GOOD(!pawl_var_version(w->e, w->slot[i].v, &n));
			if (n != w->slot[i].pushed)
				fuzz_broken("slot %u ends at version %llu, expected %llu", i,
					    (unsigned long long)n, (unsigned long long)w->slot[i].pushed);
		}
	GOOD(!pawl_stats(w->e, &st));
	GOOD(!pawl_engine_destroy(w->e));
	model_run();
	if (st.failed != w->failed || st.skipped != w->skipped)
		fuzz_broken("the engine counts %llu failed and %llu skipped, expected %llu and %llu",
			    (unsigned long long)st.failed, (unsigned long long)st.skipped,
			    (unsigned long long)w->failed, (unsigned long long)w->skipped);
	for (i = 0; i < w->nopers; i++)
		GOOD(w->oper[i].released == 1);
}

static void configure(void)
{
	static const u8 workers[8] = { 0, 0, 0, 0, 0, 0, 1, 2 };
	u8 a = byte(), b = byte();
	struct pawl_config *c = &w->cfg;

	*c = small(a % 3, workers[a >> 2 & 7]);
	c->max_ops = 1024;
	c->max_vars = 256;
	c->max_threads = 16;
	c->cpu_devices = 1 + (a >> 5 & 1);
	w->errors = a & 64;
	w->naive = c->kind == PAWL_NAIVE;
	w->det = !c->workers || w->naive;
	if (a & 128)
		c->spin_ns = 0;
	if (b & 1) {
		c->window = 1 + (b >> 3 & 15);
		c->window_policy = b >> 1 & 3;
		if (c->window_policy == 3 || (w->det && c->window_policy == PAWL_WINDOW_BLOCK))
			c->window_policy = PAWL_WINDOW_FAIL;
		w->blocks = c->window_policy != PAWL_WINDOW_FAIL;
	}
	c->no_help = !w->det && b & 128;
	fuzz_say("kind %d workers %d devices %u window %u policy %d no_help %d errors %d\n", c->kind,
		 c->workers, c->cpu_devices, c->window, c->window_policy, c->no_help, w->errors);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	u32 i;

	fuzz_data = data;
	fuzz_size = size;
	if (size > BYTES)
		return 0;
	if (null_fd < 0)
		null_fd = open("/dev/null", O_WRONLY);
	w = calloc(1, sizeof(*w));
	GOOD(w);
	w->p = data;
	w->n = size;
	for (i = 0; i < CALLERS; i++) {
		w->caller[i].id = i;
		sem_init(&w->caller[i].go, 0, 0);
		sem_init(&w->caller[i].done, 0, 0);
	}
	me = &w->caller[0];
	me->in = me->alive = true;
	configure();
	GOOD(!pawl_engine_create(&w->cfg, &w->e));
	for (i = 0; i < 3; i++)
		slot_new();
	while (more())
		steps(1);
	finish();
	for (i = 0; i < CALLERS; i++) {
		sem_destroy(&w->caller[i].go);
		sem_destroy(&w->caller[i].done);
	}
	free(w);
	w = NULL;
	return 0;
}

void fuzz_figures(char *buf, size_t len)
{
	snprintf(buf, len, "calls=%llu ops=%llu", (unsigned long long)total_calls,
		 (unsigned long long)total_ops);
}
