// SPDX-License-Identifier: Apache-2.0
/*
 * Judges: do the calls of a history have a serial order?  They use a search with a memo (Wing
 * and Gong, with the improvements of Lowe), counts, and for pushes a search for a cycle.
 */
#include "lin.h"

#define MEMO		8192u

u64 states_total;

struct search {
	const struct history *h;
	u32 before[CALLS];	/* calls that must come first */
	u32 gen;
	u64 states;
};

static struct { u32 gen, set; u64 seq; } memo[MEMO];
static u32 memo_gen;

static bool memo_has(struct search *s, u32 set, u64 seq)
{
	u64 x = set * 0x9e3779b97f4a7c15ull ^ seq;
	u32 i = (u32)(random_next(&x) % MEMO), k;

	for (k = 0; k < 16; k++, i = (i + 1) % MEMO) {
		if (memo[i].gen != s->gen) {
			memo[i].gen = s->gen;
			memo[i].set = set;
			memo[i].seq = seq;
			return false;
		}
		if (memo[i].set == set && memo[i].seq == seq)
			return true;
	}
	return false;		/* without room a state is visited again, which is only slow */
}

/*
 * A take from a run queue checks one part after the other.  If it finds nothing, another thread
 * may have pushed work meanwhile to a part that it had checked, but no work was queued before
 * it began.
 */
static bool may_miss(const struct search *s, u64 seq, const struct call *c)
{
	for (; seq; seq >>= 5) {
		const struct call *p = &s->h->call[(seq & 31) - 1];

		if (p->thread == c->thread || p->res < c->inv)
			return false;
	}
	return s->h->fifo;
}

/* True if there is work of the same producer and priority in front of p. */
static bool older(const struct search *s, u64 seq, const struct call *p)
{
	const struct call *o;

	for (; (o = &s->h->call[(seq & 31) - 1]) != p; seq >>= 5)
		if (o->thread == p->thread && o->prio == p->prio)
			return true;
	return false;
}

/* seq: what is in the queue, five bits each, oldest first; call + 1. */
static bool first_is(const struct search *s, u64 seq, const struct call *c)
{
	const struct call *best = NULL, *p;
	u64 all = seq;

	if (!c->work && may_miss(s, seq, c))
		return true;
	for (; seq; seq >>= 5) {
		p = &s->h->call[(seq & 31) - 1];
		if (!best || p->prio > best->prio ||
		    (!s->h->fifo && p->prio == best->prio && p->order < best->order))
			best = p;
	}
	if (!c->work)
		return !best;
	/* In a run queue, the first work of any producer. */
	for (seq = all; s->h->fifo && best && seq; seq >>= 5) {
		p = &s->h->call[(seq & 31) - 1];
		if (p->work == c->work && p->prio == best->prio && !older(s, all, p))
			best = p;
	}
	return best && best->work == c->work && best->prio == c->prio &&
	       (c->kind != PEEK || s->h->fifo || best->order == c->order);
}

static u64 without(const struct search *s, u64 seq, u32 work)
{
	u64 out = 0;
	u32 k = 0;

	for (; seq; seq >>= 5)
		if (s->h->call[(seq & 31) - 1].work != work)
			out |= (seq & 31) << 5 * k++;
	return out;
}

static u64 with(u64 seq, u32 call)
{
	u32 k = 0;

	while (seq >> 5 * k)
		k++;
	return seq | (u64)(call + 1) << 5 * k;
}

static bool search(struct search *s, u32 set, u64 seq)
{
	u32 i;

	if (set == (1u << s->h->n) - 1)
		return true;
	if (memo_has(s, set, seq))
		return false;
	s->states++;
	for (i = 0; i < s->h->n; i++) {
		const struct call *c = &s->h->call[i];
		u64 next = seq;

		if (set >> i & 1 || s->before[i] & ~set)
			continue;
		if (c->kind == PUSH)
			next = with(seq, i);
		else if (!first_is(s, seq, c))
			continue;
		else if (c->kind == POP)
			next = without(s, seq, c->work);
		if (search(s, set | 1u << i, next))
			return true;
	}
	return false;
}

bool linearizable(const struct history *h)
{
	struct search s = { .h = h, .gen = ++memo_gen };
	bool ok;
	u32 i, k;

	for (i = 0; i < h->n; i++)
		for (k = 0; k < h->n; k++)
			if (h->call[k].res < h->call[i].inv ||
			    (k < i && h->call[k].thread == h->call[i].thread))
				s.before[i] |= 1u << k;
	ok = search(&s, 0, 0);
	states_total += s.states;
	return ok;
}

/* Each work is taken once, and no take between its push and its take found the queue empty. */
bool taken_once(const struct history *h)
{
	u32 i, k, t;

	for (i = 0; i < h->n; i++) {
		const struct call *p = &h->call[i], *pop = NULL;

		if (p->kind == POP && p->work) {
			for (k = 0; k < h->n && !(h->call[k].kind == PUSH && h->call[k].work == p->work); k++)
				;
			if (k == h->n || h->call[k].inv > p->res)
				return false;	/* out of nothing */
		}
		if (p->kind != PUSH)
			continue;
		for (k = 0; k < h->n; k++)
			if (h->call[k].kind == POP && h->call[k].work == p->work) {
				if (pop)
					return false;
				pop = &h->call[k];
			}
		if (!pop)
			return false;
		for (t = 0; t < h->n; t++)
			if (h->call[t].kind == POP && !h->call[t].work &&
			    p->res < h->call[t].inv && h->call[t].res < pop->inv)
				return false;
	}
	return true;
}

/* For each object there must be an order in which gets and puts alternate. */
bool takes_turns(const struct history *h)
{
	u32 i, k;

	for (i = 0; i < h->n; i++) {
		const struct call *a = &h->call[i];
		u32 puts = 0;

		if (a->kind != GET)
			continue;
		for (k = 0; k < h->n; k++)
			puts += h->call[k].kind == PUT && h->call[k].work == a->work &&
				h->call[k].order == a->order;
		if (puts != 1)
			return false;	/* order: the number of the get, which the put names */
		for (k = 0; k < h->n; k++) {
			const struct call *b = &h->call[k];
			const struct call *pa = NULL, *pb = NULL;
			u32 j;

			if (k == i || b->kind != GET || b->work != a->work)
				continue;
			for (j = 0; j < h->n; j++) {
				if (h->call[j].kind == PUT && h->call[j].order == a->order)
					pa = &h->call[j];
				if (h->call[j].kind == PUT && h->call[j].order == b->order)
					pb = &h->call[j];
			}
			/*
			 * One of the two was put, or its put began, before the other get
			 * returned.
			 */
			if (!pa || !pb || !(pa->inv < b->res || pb->inv < a->res))
				return false;
			if (pa->inv < b->res && pb->inv < a->res)
				return false;
		}
	}
	return true;
}

/* True if a must precede b by what they found in var v. */
static bool pu_before(const struct pnode *a, const struct pnode *b)
{
	u32 i, k;

	for (i = 0; i < a->n; i++)
		for (k = 0; k < b->n; k++) {
			if (a->var[i] != b->var[k] || (!a->write[i] && !b->write[k]))
				continue;
			if (a->saw[i] < b->saw[k] ||
			    (a->saw[i] == b->saw[k] && b->write[k] && !a->write[i]))
				return true;
		}
	return false;
}

bool acyclic(const struct pnode *nd, u32 n)
{
	u32 before[PNODES] = { 0 }, out = 0, i, k;
	bool more = true;

	for (i = 0; i < n; i++)
		for (k = 0; k < n; k++)
			if (k != i && (pu_before(&nd[k], &nd[i]) || nd[k].res < nd[i].inv ||
				       (k < i && nd[k].thread == nd[i].thread)))
				before[i] |= 1u << k;
	while (more) {
		more = false;
		for (i = 0; i < n; i++)
			if (!(out >> i & 1) && !(before[i] & ~out)) {
				out |= 1u << i;
				more = true;
			}
	}
	return out == (1u << n) - 1;
}
