// SPDX-License-Identifier: Apache-2.0
/* After a run: compares the log and the data with the serial model. */
#include "engine.h"

static u32 alive(u32 failure)
{
	return failure && !w->func[failure - 1].gone ? failure : 0;
}

/*
 * Return the func + 1 whose error the node inherits, or 0: the first among its reads, then
 * among its writes, in the order of var indexes.
 */
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

/* The error of an op that must not start, or 0. */
int func_refused(const struct func *f)
{
	if (load_acquire(&f->canceled))
		return -ECANCELED;
	return f->late ? -ETIMEDOUT : f->group_canceled ? -ECANCELED : 0;
}

static bool func_failed(const struct func *f)
{
	return (f->ran && f->fails) || func_refused(f);
}

static int func_code(const struct func *f)
{
	return func_refused(f) ? func_refused(f) : f->code;
}

static int code_of(u32 failure)
{
	return failure ? func_code(&w->func[failure - 1]) : 0;
}

static void model_start(const struct log *l)
{
	struct func *f = &w->func[l->id];
	struct node *nd = &w->node[f->node];
	u32 x;

	GOOD(!nd->began);
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
	u32 fi = nd->func, x = inherited(nd);
	struct func *f = &w->func[fi];
	bool failed = func_failed(f);

	nd->ended = true;
	if (!f->ran && !func_refused(f) && f->kind != NO_BODY && (!x || nd->no_skip))
		fuzz_broken("func %u was skipped without an error", fi);
	w->failed += failed;
	w->skipped += f->kind != NO_BODY && !f->ran && !failed && x;
	nd->failure = failed ? fi + 1 : x;
	/* With workers, its error may be cleared between its last body and its end. */
	if (!nd->deletes && (!f->oper || (f->arrived && w->det)) &&
	    f->status != code_of(nd->failure))
		fuzz_broken("func %u was released with %d, expected %d", fi, f->status,
			    code_of(nd->failure));
}

static void model_take(const struct log *l)
{
	u32 x = l->last ? alive(w->node[l->last - 1].failure) : 0;

	if (l->kind == L_TAKE && l->count != l->last) {
		/* It was the version of one of these writes. */
		if (!l->rc)
			x = 0;
		else if (l->by < w->nfuncs && func_failed(&w->func[l->by]))
			x = alive(l->by + 1);
	}
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
	u32 i, fi, n = 0, left = 0, first = ~0u;

	/* Failures since the previous wait for all. */
	for (i = 0; i < from; i++) {
		struct func *f;

		if (w->log[i].kind == L_ALL && !(w->log[i].by == ~0u - 1)) {
			n = left = 0;
			first = ~0u;
		}
		if (w->log[i].kind != L_END)
			continue;
		fi = w->log[i].id;
		f = &w->func[fi];
		if (!func_failed(f))
			continue;
		n++;
		if (f->gone)
			continue;
		left++;
		if (first == ~0u || f->seq < w->func[first].seq)
			first = fi;
	}
	if (!left != !l->rc)
		fuzz_broken("a wait for all gave %d, and %u of %u failures were not given", l->rc, left, n);
	if (!left)
		goto out;
	if (l->count != n)
		fuzz_broken("a wait for all counts %u failures, expected %u", l->count, n);
	if (n > 16)
		goto out;	/* the names of the first 16 are kept */
	if (w->det && l->by != ~0u && l->by != first)
		fuzz_broken("a wait for all names func %u, expected %u", l->by, first);
	if (l->by != ~0u && (l->by >= w->nfuncs || !func_failed(&w->func[l->by]) ||
			     w->func[l->by].gone || func_code(&w->func[l->by]) != l->rc))
		fuzz_broken("a wait for all names func %u", l->by);
out:
	for (i = 0; i < from; i++)
		if (w->log[i].kind == L_END)
			w->func[w->log[i].id].gone = true;
}

void model_run(void)
{
	u64 data[SLOTS] = { 0 };
	u32 i, n = load_acquire(&w->nlog);

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
		struct func *f = &w->func[nd->func];

		if (!nd->ended && !nd->silent)
			fuzz_broken("node %u is not over at the end", w->order[i]);
		if (f->ran && work(f, data) != f->hash)
			fuzz_broken("func %u read other data than in push order", nd->func);
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
		GOOD(f->released == (!f->oper && !nd->deletes));
	}
}
