// SPDX-License-Identifier: Apache-2.0
/* See engine.h. */
#include "device.h"
#include "engine.h"

struct model_engine me;

static void note_add(u64 *p, u64 v)
{
	model_note(p, *p + v);
}

static bool conflict(const struct mop *a, const struct mop *b)
{
	u32 i, j;

	for (i = 0; i < a->n; i++)
		for (j = 0; j < b->n; j++)
			if (a->var[i] == b->var[j] && (a->write[i] || b->write[j]))
				return true;
	return false;
}

static bool writes(const struct mop *o, u32 v)
{
	u32 i;

	for (i = 0; i < o->n; i++)
		if (o->var[i] == v && o->write[i])
			return true;
	return false;
}

/* Check that ops that conflict with o and were pushed before are complete. */
static void look_before(struct mop *o)
{
	u64 m = me.before[o->id] | me.behind[o->id];
	u32 i;

	for (i = 0; i < me.nops; i++)
		if ((m & 1ull << i) && conflict(me.ops[i], o) && !me.over[i] &&
		    !me.refused[i] && !(me.odd && !(me.issued & 1ull << i)))
			model_fail("op %u runs before op %u, which was pushed before", o->id, i);
}

/* Do the op's work: check and change its vars. */
static void work_begin(struct mop *o)
{
	u32 i, v;

	for (i = 0; i < o->n; i++) {
		v = o->var[i];
		if (me.gone[v])
			model_fail("op %u runs on var %u, which was deleted", o->id, v);
		if (me.writing[v] || (writes(o, v) && me.reading[v]))
			model_fail("op %u is not alone in var %u", o->id, v);
		if (o->write[i])
			model_note(&me.writing[v], 1);
		else if (!writes(o, v))
			note_add(&me.reading[v], 1);
		if (me.payload[v] != me.last[v])
			model_fail("op %u finds old data in var %u", o->id, v);
		if (o->write[i])
			me.payload[v] = o->id + 1;
		if (o->write[i])
			model_note(&me.last[v], o->id + 1);
	}
}

static void op_over(struct mop *o)
{
	model_note(&me.over[o->id], 1);
	model_note(&me.over_clock[o->id], model_clock());
	if (o->kind == P_DELETE)
		model_note(&me.gone[o->var[0]], 1);
}

static void work_end(struct mop *o)
{
	u32 i, v;

	for (i = 0; i < o->n; i++) {
		v = o->var[i];
		if (o->write[i])
			model_note(&me.writing[v], 0);
		else if (!writes(o, v))
			note_add(&me.reading[v], -1ull);
	}
	op_over(o);
}

static void count_writes(struct mop *o)
{
	u32 i;

	for (i = 0; i < o->n; i++)
		if (o->write[i])
			note_add(&me.writes[o->var[i]], 1);
}

/* The op's work on the device, which does one piece at a time. */
void engine_work(void *op)
{
	struct mop *o = op;

	look_before(o);
	work_begin(o);
	work_end(o);
}

int engine_body(struct pawl_run *run, void *arg)
{
	struct mop *o = arg;
	bool lost = run->status == -ENOTRECOVERABLE;
	int rc;

	if (model_note(&me.ran[o->id], 1))
		model_fail("op %u runs twice", o->id);
	model_note(&me.behind[o->id], me.issued);
	if (lost && !me.lost)
		model_fail("op %u is told of a loss", o->id);
	count_writes(o);
	if (!o->device) {
		if (!lost) {
			look_before(o);
			work_begin(o);
		}
		model_point();
		if (lost)
			op_over(o);
		else
			work_end(o);
		return o->fails ? -EIO : 0;
	}
	if (o->fails) {
		op_over(o);
		return -EIO;
	}
	rc = pawl_run_call(run, o->loses ? me.lose : engine_work, o);
	if (rc && !me.odd && !me.lost)
		model_fail("op %u: %d", o->id, rc);
	if (!rc)
		model_note(&me.issued, me.issued | 1ull << o->id);
	return rc;
}

/* The token reaches the completing thread after the work that the body queued on the stream. */
static void body_async(struct pawl_run *run, void *arg)
{
	engine_body(run, arg);
	store_release(&me.token, run->token.h);
}

/* Threads pass handles to each other without any order, since the library needs none. */
static pawl_var_t handle(u32 v)
{
	return (pawl_var_t){ load_relaxed(&me.var[v].h) };
}

static void fill(struct pawl_op *d, struct mop *o, pawl_var_t *r, pawl_var_t *w)
{
	u32 i;

	*d = (struct pawl_op)PAWL_OP_INIT;
	if (o->async)
		d->async_fn = body_async;
	else
		d->fn = engine_body;
	d->arg = o;
	d->reads = r;
	d->writes = w;
	d->priority = o->prio;
	d->prop = (u16)o->prop;
	if (o->device)
		d->device = (struct pawl_device){ MODEL_KIND, 0 };
	if (o->adopted)
		d->device.id = (u16)load_relaxed(&me.adopted);
	for (i = 0; i < o->n; i++) {
		pawl_var_t h = handle(o->var[i]);

		if (!h.h || ((me.mortal | me.made) & 1u << o->var[i]))
			model_note(&me.nohandle[o->id], 1);
		if (o->write[i])
			w[d->nwrites++] = h;
		else
			r[d->nreads++] = h;
	}
}

static void push_begin(struct mop *o)
{
	model_note(&me.before[o->id], me.pushed);
}

static void push_end(struct mop *o, int rc)
{
	if (rc) {
		if (!me.nohandle[o->id] && !(o->adopted && rc == -ENODEV))
			model_fail("push: %d", rc);
		model_note(&me.refused[o->id], 1);
	}
	model_note(&me.pushed, me.pushed | 1ull << o->id);
	model_note(&me.clock[o->id], model_clock());
}

/*
 * Does this thread know that the op is complete?  Its body has ended, on this thread, or before
 * something that this thread has acquired; without weak memory nothing shows the latter.
 */
static bool known(u32 n)
{
	u64 now = model_clock(), then = me.over_clock[n];

	return me.over[n] && (then >> 32 == now >> 32 || ((u32)now && model_knows(then)));
}

static void do_version(u32 v)
{
	u64 version, least = 0;
	pawl_var_t h = handle(v);
	int rc;
	u32 n;

	/* The version includes the writes that this thread knows to be complete. */
	for (n = 0; n < me.nops; n++)
		least += writes(me.ops[n], v) && known(n);
	rc = pawl_var_version(me.e, h, &version);
	if (rc) {
		if (h.h && !((me.mortal | me.made) & 1u << v))
			model_fail("version: %d", rc);
		return;
	}
	if (version < least || version > me.total[v])
		model_fail("var %u has version %llu, not %llu to %u", v,
			   (unsigned long long)version, (unsigned long long)least, me.total[v]);
}

static void do_error(const struct mop *o)
{
	struct pawl_error out;
	pawl_var_t h = handle(o->var[0]);
	int rc = o->kind == P_ERROR ? pawl_var_error(me.e, h, &out) :
		 o->kind == P_TAKE ? pawl_var_take(me.e, h, &out) : pawl_var_clear(me.e, h);

	if (rc && rc != -EIO && !(rc == -ESTALE && (!h.h || me.mortal || me.made)))
		model_fail("error: %d", rc);
	if (rc == -EIO && out.code != -EIO)
		model_fail("error: code %d", out.code);
}

static void do_destroy(void)
{
	u32 n;

	if (load_acquire(&me.outs) != me.nprog - 1)
		return;
	me.ending = 1;
	if (pawl_engine_destroy(me.e))
		model_fail("destroy: %s", pawl_error_text());
	for (n = 0; n < me.nops; n++)
		if (!me.over[n] && !me.refused[n] && !me.odd && !me.lost)
			model_fail("the engine is gone before op %u ran", n);
	model_note(&me.destroyed, 1);
}

static void do_adopt(void)
{
	struct pawl_device d = { 0 };
	int rc = pawl_stream_adopt(me.e, (struct pawl_device){ MODEL_KIND, 0 }, me.stream(), &d);

	if (rc && rc != -EAGAIN)
		model_fail("adopt: %d", rc);
	if (!rc)
		store_relaxed(&me.adopted, d.id);
}

void engine_complete(void)
{
	pawl_token_t t = { load_acquire(&me.token) };
	int rc = t.h ? pawl_complete(me.e, t, 0, NULL) : 0;

	if (rc && rc != -EALREADY)
		model_fail("complete: %d", rc);
}

static void do_park(void)
{
	struct thread *t = thread_get(me.e);
	u32 bi = block_reclaim(t);

	if (bi)
		pool_put(me.e->pool[POOL_BLOCK], &t->cache[POOL_BLOCK], bi);
}

static u32 do_op(struct mop *o)
{
	struct pawl_op d[6] = { PAWL_OP_INIT };
	pawl_var_t r[6][MAX_ACC], w[6][MAX_ACC];
	u32 i, n = o->more + 1;
	int rc;

	switch (o->kind) {
	case P_ADOPT:
		do_adopt();
		break;
	case P_COMPLETE:
		engine_complete();
		break;
	case P_GROUP:
		if (pawl_graph_push(me.e, me.group, NULL))
			model_fail("graph_push");
		break;
	case P_CREATE:
		me.create();
		break;
	case P_OP:
		if (o->adopted && !load_relaxed(&me.adopted)) {
			model_note(&me.refused[o->id], 1);
			break;
		}
		fill(&d[0], o, r[0], w[0]);
		push_begin(o);
		rc = pawl_push(me.e, &d[0]);
		push_end(o, rc);
		if (me.naive && !rc && (!me.over[o->id] || !model_knows(me.over_clock[o->id])))
			model_fail("the push returns before op %u is over", o->id);
		break;
	case P_BATCH:
		for (i = 0; i < n; i++) {
			fill(&d[i], o + i, r[i], w[i]);
			push_begin(o + i);
		}
		rc = pawl_push_batch(me.e, d, n);
		for (i = 0; i < n; i++)
			push_end(o + i, rc);
		return n;
	case P_DELETE:
		push_begin(o);
		model_note(&me.nohandle[o->id], 1);
		rc = o->device ? pawl_var_delete_on(me.e, handle(o->var[0]),
						    (struct pawl_device){ MODEL_KIND, 0 },
						    engine_body, o) :
				 pawl_var_delete(me.e, handle(o->var[0]), engine_body, o);
		push_end(o, rc);
		break;
	case P_READABLE:
	case P_WRITABLE:
		{
			pawl_var_t h = handle(o->var[0]);
			s64 limit = o->brief ? 1 : -1;

			i = o->var[0];
			rc = o->kind == P_READABLE ? pawl_wait_readable(me.e, h, limit, NULL) :
			     pawl_wait_writable(me.e, h, limit, NULL);
			if (rc && h.h && !((me.mortal | me.made) & 1u << i) && !me.odd &&
			    !(o->brief && rc == -ETIMEDOUT) &&
			    !(me.lost && rc == -ENOTRECOVERABLE))
				model_fail("wait: %d", rc);
		}
		/* This thread's own earlier pushes must be complete. */
		for (n = 0; !rc && n < me.nops; n++)
			if (me.ops[n]->thread == model_self() && (me.pushed & 1ull << n) &&
			    !me.over[n] && !me.refused[n] &&
			    (writes(me.ops[n], i) || (o->kind == P_WRITABLE && conflict(me.ops[n], &(struct mop){ .n = 1, .var = { i }, .write = { true } }))))
				model_fail("the wait for var %u is over before op %u", i, n);
		for (n = 0; n < me.nops; n++)
			if (me.ops[n]->thread != model_self() && writes(me.ops[n], i))
				break;
		/* No other thread writes it, so this thread may read the data. */
		if (!rc && n == me.nops && me.payload[i] != me.last[i])
			model_fail("a waiter finds old data in var %u", i);
		break;
	case P_ALL:
		{
			u64 mask = me.pushed;

			/* Pushes of other threads count if this thread knows of them. */
			for (n = 0; n < me.nops; n++)
				if (!model_knows(me.clock[n]))
					mask &= ~(1ull << n);
			rc = pawl_wait_all(me.e, -1, NULL);
			if (rc && !me.odd && !me.lost)
				model_fail("wait_all: %d", rc);
			for (n = 0; !rc && n < me.nops; n++)
				if ((mask & 1ull << n) && !me.over[n] && !me.refused[n])
					model_fail("the wait for all is over before op %u", n);
		}
		break;
	case P_STOP:
		if (pawl_engine_stop(me.e))
			model_fail("stop");
		break;
	case P_NEW:
		{
			pawl_var_t h;

			rc = pawl_var_create(me.e, &h);
			if (rc)
				model_fail("var_create: %d", rc);
			store_relaxed(&me.var[o->var[0]].h, h.h);
		}
		break;
	case P_VERSION:
		do_version(o->var[0]);
		break;
	case P_ERROR:
	case P_CLEAR:
	case P_TAKE:
		do_error(o);
		break;
	case P_TRIM:
		if (pawl_trim(me.e))
			model_fail("trim");
		break;
	case P_DETACH:
		if (pawl_thread_detach(me.e))
			model_fail("detach");
		break;
	case P_PARK:
		do_park();
		break;
	case P_OUT:
		fetch_add_acq_rel(&me.outs, 1);
		break;
	case P_DESTROY:
		do_destroy();
		break;
	default:
		while (pawl_run_one(me.e))
			;
	}
	return 1;
}

void engine_thread(u32 i)
{
	struct mthread_prog *p = &me.prog[i];
	u32 k;

	for (k = 0; k < p->n; )
		k += do_op(&p->op[k]);
	/* Behind its P_OUT a thread calls nothing but pawl_complete(). */
	for (k = 0; k < p->n; k++)
		if (p->op[k].kind == P_OUT)
			return;
	if (me.destroyed)
		return;
	while (pawl_run_one(me.e))
		;
}

/* Count the objects that are neither in caches of threads nor in the depot. */
static u32 outside(u32 p)
{
	u32 i, sum = pool_depot_count(me.e->pool[p]);

	if (sum == UINT32_MAX)
		model_fail("a pool is broken");
	for (i = 0; i < slots_used(me.e); i++) {
		struct pool_cache *c = &thread_of(me.e, i)->cache[p];

		sum += c->n + c->nspare;
	}
	return pool_carved(me.e->pool[p]) - sum;
}

/*
 * Like ops_in_flight(), but including slots that threads have left, because the check runs the
 * remaining ops in the slot of a thread that may have ended.
 */
static u64 counted_in_flight(void)
{
	u64 n = load_relaxed(&me.e->gone.pushed) - load_relaxed(&me.e->gone.completed);
	u32 i;

	for (i = 0; i < slots_used(me.e); i++)
		n += load_relaxed(&thread_of(me.e, i)->pushed) -
		     load_relaxed(&thread_of(me.e, i)->completed);
	return n;
}

/* At rest: 1 if the var has a block, 0 if it is parked; its home has its initial state. */
static u32 version_block(u32 i)
{
	struct var *v = var_of(me.e, var_index(me.var[i]));
	u32 bi = word_cur(load_relaxed(&v->word.val));

	if (bi && load_relaxed(&v->home.state) != BLOCK_DONE)
		model_fail("var %u has a block, and its home has state %#llx", i,
			   (unsigned long long)load_relaxed(&v->home.state));
	return bi != 0;
}

void engine_check(void)
{
	u32 i, n = 0, vars = 0;

	if (me.destroyed)
		return;
	while (pawl_run_one(me.e))
		;
	for (i = 0; i < me.nops; i++) {
		if (me.refused[i] && me.ran[i])
			model_fail("op %u was refused, and runs", i);
		if (me.ops[i]->kind == P_DELETE && !me.refused[i] && !me.ran[i] && !me.lost)
			model_fail("delete %u never ran", i);
		if (!me.refused[i] && !me.over[i] && !me.deletes && !me.odd && !me.lost)
			model_fail("op %u never ran", i);
	}
	for (i = 0; i < me.nvars; i++) {
		u64 v = 0;	/* a var that was never created has no handle */
		int rc = pawl_var_version(me.e, me.var[i], &v);

		if (rc && !me.deletes)
			model_fail("version: %d", rc);
		if (!rc)
			n += version_block(i);
		vars += !rc;
		if (!rc && !me.deletes && !me.odd && !me.lost && v != me.writes[i])
			model_fail("var %u has version %llu after %llu writes", i,
				   (unsigned long long)v, (unsigned long long)me.writes[i]);
	}
	if (counted_in_flight())
		model_fail("%llu ops are in flight at rest",
			   (unsigned long long)counted_in_flight());
	if (outside(POOL_OP))
		model_fail("%d ops leaked", (int)outside(POOL_OP));
	if (outside(POOL_BLOCK) != n)
		model_fail("%d blocks leaked", (int)(outside(POOL_BLOCK) - n));
	if (outside(POOL_ERROR) != 1 + (load_relaxed(&me.e->special) >> SPECIAL_ERROR_SHIFT))
		model_fail("%u errors exist, and %u are counted", outside(POOL_ERROR) - 1,
			   load_relaxed(&me.e->special) >> SPECIAL_ERROR_SHIFT);
	if (outside(POOL_VAR) != vars)
		model_fail("%d vars leaked", (int)(outside(POOL_VAR) - vars));
}

static void parse(const char *s)
{
	struct mthread_prog *p = &me.prog[0];
	bool joined = false;

	me.nprog = 1;
	while (*s) {
		struct mop *o;
		u32 v;

		if (*s == ' ') {
			s++;
			continue;
		}
		if (*s == '#') {
			me.before_all = me.prog[0];
			memset(me.prog, 0, sizeof(me.prog));
			s++;
			/* The ops moved to before_all. */
			for (u32 k = 0, id = 0; k < me.before_all.n; k++)
				if (id < me.nops && me.before_all.op[k].id == id &&
				    (me.before_all.op[k].kind <= P_DELETE))
					me.ops[id++] = &me.before_all.op[k];
			continue;
		}
		if (*s == '|') {
			p = &me.prog[me.nprog++];
			s++;
			continue;
		}
		o = &p->op[p->n++];
		o->kind = joined ? P_BATCH : P_OP;
		o->thread = me.nprog - 1;
		for (; *s && *s != ' ' && *s != '|' && *s != '+'; ) {
			char c = *s++;

			if (strchr("NYGZMDK", c)) {
				o->kind = c == 'N' ? P_ADOPT : c == 'Y' ? P_COMPLETE :
					  c == 'G' ? P_GROUP : c == 'Z' ? P_CREATE :
					  c == 'M' ? P_TRIM :
					  c == 'D' ? P_DETACH : P_PARK;
				continue;
			}
			if (c == 'y') {
				o->async = true;
				continue;
			}
			if (c == '.' || c == 'A' || c == 'S') {
				o->kind = c == '.' ? P_RUN : c == 'A' ? P_ALL : P_STOP;
				continue;
			}
			if (c == 'x' || c == 'X') {
				o->kind = c == 'x' ? P_OUT : P_DESTROY;
				continue;
			}
			if (c == 'a' || c == 'k' || c == 'f') {
				o->prop = c == 'a' ? PAWL_ASYNC : c == 'k' ? PAWL_NO_SKIP : o->prop;
				o->fails |= c == 'f';
				continue;
			}
			if (strchr("giohlu", c)) {
				o->device = true;
				o->adopted = c == 'u';
				o->loses = c == 'l';
				o->prop = c == 'i' ? PAWL_COPY_TO_DEVICE :
					  c == 'o' ? PAWL_COPY_FROM_DEVICE :
					  c == 'h' ? PAWL_GPU_PRIORITIZED : o->prop;
				continue;
			}
			v = (u32)(*s++ - '0');
			if (c == 'p' || c == 'm') {
				o->prio = c == 'p' ? (int)v : -(int)v;
				continue;
			}
			if (strchr("dnRWqzVECT", c)) {
				o->kind = c == 'd' ? P_DELETE : c == 'n' ? P_NEW :
					  c == 'V' ? P_VERSION : c == 'E' ? P_ERROR :
					  c == 'C' ? P_CLEAR : c == 'T' ? P_TAKE :
					  c == 'R' || c == 'q' ? P_READABLE : P_WRITABLE;
				o->brief = c == 'q' || c == 'z';
				me.deletes |= c == 'd';
				if (c == 'd')
					me.mortal |= 1u << v;
				if (c == 'n')
					me.made |= 1u << v;
			}
			o->var[o->n] = v;
			me.total[v] += c == 'w' || c == 'd';
			o->write[o->n++] = c == 'w' || c == 'd';
			me.nvars = v + 1 > me.nvars ? v + 1 : me.nvars;
		}
		joined = *s == '+';
		if (joined) {
			u32 k;

			s++;
			o->kind = P_BATCH;
			for (k = p->n; k-- && p->op[k].kind == P_BATCH &&
				       (k == p->n - 1 || p->op[k].more);)
				p->op[k].more++;
		}
		if (o->kind == P_OP || o->kind == P_BATCH || o->kind == P_DELETE) {
			o->id = me.nops;
			me.ops[me.nops++] = o;
		}
	}
}

/* Fill the executor's threads and the caches of the pools before the search. */
static void warm(struct thread *t)
{
	static const u32 pools[] = { POOL_OP, POOL_BLOCK, POOL_VAR, POOL_DEVREC };
	u32 i, idx, n = ARRAY_SIZE(pools) - !me.e->devices;

	for (i = 0; i < n; i++) {
		struct pool *p = me.e->pool[pools[i]];

		if (pool_get(p, &t->cache[pools[i]], &idx))
			pool_put(p, &t->cache[pools[i]], idx);
	}
}

void engine_config(struct pawl_config *c)
{
	pawl_config_init(c);
	c->workers = 0;
	c->priority_workers = 0;
	c->copy_workers = 1;
	c->max_ops = 64;
	c->max_vars = 16;
	c->max_threads = 8;
	c->spin_ns = 0;
	c->trim_ns = 0;
}

void engine_create(struct pawl_config *c)
{
	u32 i;

	me.naive = c->kind == PAWL_NAIVE;
	if (pawl_engine_create(c, &me.e))
		model_fail("create: %s", pawl_error_text());
	for (i = 0; i < me.nvars; i++)
		if (!(me.made & 1u << i) && pawl_var_create(me.e, &me.var[i]))
			model_fail("var_create");
	warm(thread_get(me.e));
	if (!me.rm)
		return;
	me.e->rm_reads = 0;
	for (i = 0; i < me.nvars; i++) {
		u32 vi = var_index(me.var[i]);

		if (me.rm & 1u << i)
			rm_begin(thread_get(me.e), var_of(me.e, vi), vi,
				 word_snapshot(var_of(me.e, vi)));
	}
}

void engine_setup_with(const char *program, struct pawl_config *c)
{
	parse(program);
	if (c)
		engine_create(c);
}

static void setup(int kind, u32 workers, u32 max_threads)
{
	struct pawl_config c;

	engine_config(&c);
	c.kind = kind;
	c.workers = (int)workers;
	c.priority_workers = workers ? 1 : 0;
	c.max_threads = max_threads;
	engine_setup_with(model_arg(), &c);
}

void engine_setup(void)
{
	setup(PAWL_PER_DEVICE, 0, 8);
}

/*
 * Vars with an even number begin in read-mostly mode, and enter it again as soon as possible.
 */
void engine_setup_rm(void)
{
	me.rm = 0x55;
	engine_setup();
}

void engine_setup_worker(void)
{
	setup(PAWL_PER_DEVICE, 1, 8);
}

void engine_setup_naive(void)
{
	setup(PAWL_NAIVE, 0, 8);
}

void engine_setup_few(void)
{
	setup(PAWL_PER_DEVICE, 0, 4);
}

/* Run all remaining work, also that of the engine's own threads. */
void engine_settle(void)
{
	do
		model_settle();
	while (pawl_run_one(me.e));
}

static void do_before(void)
{
	struct mthread_prog *p = &me.before_all;
	u32 k;

	for (k = 0; k < p->n; )
		k += do_op(&p->op[k]);
	if (p->n)
		engine_settle();
}

void engine_enter(u32 i)
{
	struct thread *t = thread_get(me.e);

	if (!t)
		model_fail("enter");
	warm(t);
	t->next_check = ~0ull;
	if (!i)
		do_before();
	model_forget_exit();
}
