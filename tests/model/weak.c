// SPDX-License-Identifier: Apache-2.0
/*
 * Weak memory, and races.
 *
 * Memory itself always holds the newest value of a word; this file keeps the older ones.  Each
 * word that is accessed as an atomic has its last stores, each with a message: what the
 * storing thread knew, if it stored with release (or had a fence before).  What a thread knows
 * is a view: for each word, the number of the oldest store that it may still read.  A load
 * reads any store from there on, chosen by explore.c; with acquire it joins the message,
 * without it keeps the message for a later fence.  A read-modify-write reads the newest store
 * and adds the message of the store that it replaced (release sequences).  A fence with
 * release is what stores behind it know, and one with acquire joins what earlier loads kept; a
 * seq_cst fence does both, and joins a view that all of them share; a seq_cst access does so
 * for its own word only.
 *
 * Stronger than C11: stores of one word are ordered as they are executed (so there is no load
 * buffering either); seq_cst accesses order a little more than the standard says; a word's
 * history is HISTORY long; a thread that calls cpu_relax() then sees new values.  Weaker than
 * some machines: a failed compare-and-swap may return an old value.
 *
 * While an order is weakened (mutate.c), each view is kept a second time, as the sources' own
 * orders make it: a mutant shows at a load that may read more than these allow, and explore.c
 * prefers such answers.
 *
 * Races: vector clocks travel with the messages.  A plain access that conflicts with an access
 * of another thread which no message ordered before it is a failure.
 */
#include "rt.h"

#define LOCS		512u
#define HISTORY		8u
#define GRANULES	(1u << 15)

/* full: the view that the orders in the sources give; only used with a mutant. */
struct message {
	u64 value;
	u16 clock[MAX_THREADS];
	u16 view[LOCS];
	u16 full[LOCS];
};

struct loc {
	u64 addr;
	u64 n;			/* stores so far */
	struct message m[HISTORY];
};

struct known {
	u16 clock[MAX_THREADS];
	u16 view[LOCS];
	u16 full[LOCS];
};

struct wthread {
	struct known now, acq, rel;
};

/*
 * The last accesses to four bytes, by thread: the thread's entry of the vector clock, and the
 * bytes.
 */
struct cell {
	u16 clock;
	u16 bytes;
};

struct granule {
	u64 addr;
	u64 life;
	struct cell c[MAX_THREADS][4];	/* [atomic * 2 + write] */
};

bool weak, weak_mutant;
u32 weak_untracked;
struct weak_ask weak_ask;
u64 weak_odd;

static struct loc *locs;
static struct wthread *wt;
static struct known *sc_view;
static struct known *rest;	/* of words without a history, since there were too many */
static u64 *nlocs;
static u64 *hash;		/* address -> number + 1 */
static struct granule *granules;
static u64 life;
static struct { void *p; u32 size; } pending[64];
static u32 npending;

#define HASH_SLOTS 2048u

static void init(void)
{
	locs = region_alloc(LOCS * sizeof(*locs));
	wt = region_alloc(MAX_THREADS * sizeof(*wt));
	sc_view = region_alloc(sizeof(*sc_view));
	rest = region_alloc(sizeof(*rest));
	nlocs = region_alloc(64);
	hash = region_alloc(HASH_SLOTS * 16);
	granules = calloc(GRANULES, sizeof(*granules));
	if (!granules)
		exit(2);
}

/* In a search lw() makes all changes; in random runs weak_reset() resets everything at once. */
static inline void set(u64 *p, u64 v)
{
	if (searching)
		lw(p, v);
	else
		*p = v;
}

static inline u32 used(void)
{
	return ((u32)*nlocs + 15) & ~15u;
}

static void join(u16 *to, const u16 *from, u32 n)
{
	u32 i, k;

	if (!searching) {
		for (i = 0; i < n; i++)
			to[i] = to[i] > from[i] ? to[i] : from[i];
		return;
	}
	for (i = 0; i < n; i += 4) {
		u16 w[4];
		u64 v;

		for (k = 0; k < 4; k++)
			w[k] = to[i + k] > from[i + k] ? to[i + k] : from[i + k];
		memcpy(&v, w, 8);
		lw(&to[i], v);
	}
}

static void copy(u16 *to, const u16 *from, u32 n)
{
	u32 i;

	if (!searching) {
		memcpy(to, from, n * 2);
		return;
	}
	for (i = 0; i < n; i += 4) {
		u64 v;

		memcpy(&v, &from[i], 8);
		lw(&to[i], v);
	}
}

static void set16(u16 *p, u16 v)
{
	u64 *w = (u64 *)((uintptr_t)p & ~7ull), x = *w;

	memcpy((char *)&x + ((uintptr_t)p & 7), &v, 2);
	set(w, x);
}

static void know(struct known *to, const u16 *clock, const u16 *view)
{
	join(to->view, view, used());
	if (watch)
		join(to->clock, clock, MAX_THREADS);
}

static void know_full(struct known *to, const u16 *full)
{
	if (weak_mutant)
		join(to->full, full, used());
}

/* The orders in the sources. */
static u32 strong_order(const struct model_site *s)
{
	return s->strong ? s->strong & 7u : s->order;
}

static u32 strong_fail(const struct model_site *s)
{
	return s->strong ? (s->strong >> 3) & 7u : s->fail;
}

void weak_reset(void)
{
	u32 i;

	if (!locs)
		init();
	life++;
	npending = 0;
	if (searching)
		return;		/* undone by the undo log */
	memset(hash, 0, HASH_SLOTS * 16);
	for (i = 0; i < MAX_THREADS; i++) {
		memset(wt[i].now.view, 0, used() * 2);
		memset(wt[i].acq.view, 0, used() * 2);
		memset(wt[i].rel.view, 0, used() * 2);
		memset(wt[i].now.full, 0, used() * 2);
		memset(wt[i].acq.full, 0, used() * 2);
		memset(wt[i].rel.full, 0, used() * 2);
		memset(wt[i].now.clock, 0, sizeof(wt[i].now.clock));
		memset(wt[i].acq.clock, 0, sizeof(wt[i].now.clock));
		memset(wt[i].rel.clock, 0, sizeof(wt[i].now.clock));
		wt[i].now.clock[i] = 1;
	}
	memset(sc_view->view, 0, used() * 2);
	memset(sc_view->full, 0, used() * 2);
	memset(rest, 0, sizeof(*rest));
	*nlocs = 0;
}

static u64 mem(const void *p, u32 size)
{
	u64 v = 0;

	memcpy(&v, p, size);
	return v;
}

/* Check an access of this thread against those of others that it does not know of. */
static void race_word(u64 a, u32 bytes, bool write, bool atomic)
{
	const struct known *k = &wt[self].now;
	u32 h = (u32)mix(a, 3) & (GRANULES - 1), t, i, probes = 0;
	struct granule *g;

	for (g = &granules[h]; g->life == life && g->addr != a; g = &granules[h]) {
		h = (h + 1) & (GRANULES - 1);
		if (++probes == GRANULES / 2)
			return;
	}
	if (g->life != life) {
		memset(g, 0, sizeof(*g));
		g->life = life;
		g->addr = a;
	}
	for (t = 1; t < MAX_THREADS; t++) {
		if (t == self)
			continue;
		for (i = 0; i < 4; i++) {
			const struct cell *c = &g->c[t][i];

			if (!(c->bytes & bytes) || (!write && !(i & 1)) ||
			    (atomic && (i & 2)) || c->clock <= k->clock[t])
				continue;
			model_fail("race: a%s %s of %p, after thread %u's %s%s, with no order",
				   atomic ? "n atomic" : " plain", write ? "write" : "read",
				   (void *)(uintptr_t)a, t - 1, i & 2 ? "atomic " : "plain ",
				   i & 1 ? "write" : "read");
		}
	}
	g->c[self][atomic * 2 + write].clock = k->clock[self];
	g->c[self][atomic * 2 + write].bytes |= (u16)bytes;
}

static void race(const void *p, u32 size, bool write, bool atomic)
{
	u64 a = (u64)(uintptr_t)p, end = a + size;

	if (!watch)
		return;
	while (a < end) {
		u64 w = a & ~3ull, upto = w + 4 < end ? w + 4 : end;

		race_word(w, ((1u << (upto - w)) - 1) & ~((1u << (a - w)) - 1), write, atomic);
		a = upto;
	}
}

/* An access to a word without a history orders everything before and after it. */
static void without(void)
{
	struct known *k = &wt[self].now;

	know(k, rest->clock, rest->view);
	know(rest, k->clock, k->view);
	know_full(k, rest->full);
	know_full(rest, k->full);
	if (watch)
		set16(&k->clock[self], k->clock[self] + 1);
	weak_untracked++;
}

/*
 * Return the history of the word, which begins with the contents of memory; NULL if there are
 * too many words.
 */
static struct loc *loc_of(const void *p, u32 size)
{
	static const u16 zero[LOCS];
	u64 a = (u64)(uintptr_t)p;
	u32 h = (u32)mix(a, 7) & (HASH_SLOTS - 1);
	struct loc *l;

	for (; hash[2 * h + 1]; h = (h + 1) & (HASH_SLOTS - 1))
		if (hash[2 * h] == a)
			return &locs[hash[2 * h + 1] - 1];
	if (!size)
		return NULL;
	if (*nlocs == LOCS) {
		without();
		return NULL;
	}
	l = &locs[*nlocs];
	set(nlocs, *nlocs + 1);
	set(&hash[2 * h], a);
	set(&hash[2 * h + 1], *nlocs);
	set(&l->addr, a);
	set(&l->n, 1);
	set(&l->m[0].value, mem(p, size));
	copy(l->m[0].view, zero, LOCS);
	if (weak_mutant)
		copy(l->m[0].full, zero, LOCS);
	copy(l->m[0].clock, zero, MAX_THREADS);
	return l;
}

static inline u32 number(const struct loc *l)
{
	return (u32)(l - locs);
}

/*
 * Add a store of this thread; before: the message of the store that a read-modify-write
 * replaced.
 */
static void append(struct loc *l, u64 v, u32 order, u32 strong, const struct message *before)
{
	struct wthread *t = &wt[self];
	const struct known *k = order & MODEL_RELEASE ? &t->now : &t->rel;
	struct message *m = &l->m[l->n % HISTORY];
	struct message kept;

	if (before) {
		kept = *before;
		before = &kept;
	}
	set16(&t->now.view[number(l)], (u16)l->n);
	set(&m->value, v);
	copy(m->view, k->view, LOCS);
	copy(m->clock, k->clock, MAX_THREADS);
	set16(&m->view[number(l)], (u16)l->n);
	if (before) {
		join(m->view, before->view, used());
		join(m->clock, before->clock, MAX_THREADS);
	}
	if (weak_mutant) {
		set16(&t->now.full[number(l)], (u16)l->n);
		copy(m->full, strong & MODEL_RELEASE ? t->now.full : t->rel.full, LOCS);
		set16(&m->full[number(l)], (u16)l->n);
		if (before)
			join(m->full, before->full, used());
	}
	set(&l->n, l->n + 1);
	if (l->n > 0xfff0)
		model_fail("no end: 65000 stores of one word");
	if (watch && (order & MODEL_RELEASE))
		set16(&t->now.clock[self], t->now.clock[self] + 1);
}

/* Add this thread's plain stores to words with a history, after they were executed. */
void weak_settle(void)
{
	u32 i;

	for (i = 0; i < npending; i++) {
		struct loc *l = loc_of(pending[i].p, 0);
		u64 v = mem(pending[i].p, pending[i].size);

		if (l && l->m[(l->n - 1) % HISTORY].value != v)
			append(l, v, MODEL_RELAXED, MODEL_RELAXED, NULL);
	}
	npending = 0;
}

static void read_from(struct loc *l, u64 n, u32 order, u32 strong)
{
	struct wthread *t = &wt[self];
	struct message *m = &l->m[n % HISTORY];

	if (t->now.view[number(l)] < n)
		set16(&t->now.view[number(l)], (u16)n);
	know(order & MODEL_ACQUIRE ? &t->now : &t->acq, m->clock, m->view);
	if (weak_mutant) {
		if (t->now.full[number(l)] < n)
			set16(&t->now.full[number(l)], (u16)n);
		know_full(strong & MODEL_ACQUIRE ? &t->now : &t->acq, m->full);
	}
}

static u64 oldest(const struct loc *l)
{
	u64 lo = wt[self].now.view[number(l)];

	return lo + HISTORY > l->n ? lo : l->n - HISTORY;
}

/* The oldest store that the orders in the sources allow. */
static u64 oldest_full(const struct loc *l)
{
	u64 lo = weak_mutant ? wt[self].now.full[number(l)] : 0;

	return lo + HISTORY > l->n ? lo : l->n - HISTORY;
}

/* Choose one of n answers; only the mutant allows those from odd on; 0 is the newest. */
static u32 ask(struct model_site *s, const void *p, u32 n, u32 odd)
{
	weak_ask.addr = p;
	weak_ask.site = s;
	weak_ask.odd = weak_mutant && odd < n ? odd : 0;
	weak_odd += weak_ask.odd != 0;
	n = choose(n);
	weak_ask.site = NULL;
	weak_ask.odd = 0;
	return n;
}

static bool is_sc(u32 order)
{
	return (order & MODEL_SEQ_CST) == MODEL_SEQ_CST;
}

/*
 * A seq_cst access reads of its own word nothing older than earlier seq_cst accesses wrote, or
 * than was known at an earlier seq_cst fence.  It does not concern other words; fences do.
 */
static void sc_begin(const struct loc *l, u32 order, u32 strong)
{
	struct known *k = &wt[self].now;
	u32 i = number(l);

	if (is_sc(order) && sc_view->view[i] > k->view[i])
		set16(&k->view[i], sc_view->view[i]);
	if (weak_mutant && is_sc(strong) && sc_view->full[i] > k->full[i])
		set16(&k->full[i], sc_view->full[i]);
}

static void sc_end(const struct loc *l, u32 order, u32 strong)
{
	const struct known *k = &wt[self].now;
	u32 i = number(l);

	if (is_sc(order) && k->view[i] > sc_view->view[i])
		set16(&sc_view->view[i], k->view[i]);
	if (weak_mutant && is_sc(strong) && k->full[i] > sc_view->full[i])
		set16(&sc_view->full[i], k->full[i]);
}

u64 weak_load(struct model_site *s, const void *p, u32 size)
{
	struct loc *l;
	u64 n, lo;

	weak_settle();
	race(p, size, false, true);
	l = loc_of(p, size);
	if (!l)
		return mem(p, size);
	sc_begin(l, s->order, strong_order(s));
	lo = oldest(l);
	n = l->n - 1;
	n -= ask(s, p, (u32)(n - lo + 1), (u32)(n - oldest_full(l) + 1));
	read_from(l, n, s->order, strong_order(s));
	return l->m[n % HISTORY].value;
}

void weak_newest(struct model_site *s, const void *p)
{
	struct loc *l;

	weak_settle();
	race(p, 8, false, true);
	l = loc_of(p, 8);
	if (l)
		read_from(l, l->n - 1, s->order, strong_order(s));
}

void weak_store(struct model_site *s, void *p, u32 size, u64 v)
{
	struct loc *l;

	weak_settle();
	race(p, size, true, true);
	l = loc_of(p, size);
	if (l)
		append(l, size == 8 ? v : v & ((1ull << 8 * size) - 1), s->order,
		       strong_order(s), NULL);
}

u64 weak_rmw(struct model_site *s, void *p, u32 size, u64 v)
{
	struct loc *l;

	weak_settle();
	race(p, size, true, true);
	l = loc_of(p, size);
	if (l) {
		u32 strong = strong_order(s);

		sc_begin(l, s->order, strong);
		read_from(l, l->n - 1, s->order, strong);
		append(l, size == 8 ? v : v & ((1ull << 8 * size) - 1), s->order, strong,
		       &l->m[(l->n - 1) % HISTORY]);
		sc_end(l, s->order, strong);
	}
	return 0;
}

bool weak_cas(struct model_site *s, void *p, u32 size, void *old, u64 v)
{
	u64 want = mem(old, size), n, k, pick[HISTORY];
	u32 npick = 0, odd = 0;
	struct loc *l;

	weak_settle();
	race(p, size, false, true);
	l = loc_of(p, size);
	if (!l) {
		if (mem(p, size) == want)
			return true;
		touch(old, size);
		memcpy(old, p, size);
		return false;
	}
	sc_begin(l, s->order, strong_order(s));
	n = l->n - 1;
	/* The first choice is the newest; then the older ones that make it fail. */
	pick[npick++] = n;
	for (k = n; k-- > oldest(l); ) {
		if (l->m[k % HISTORY].value != want) {
			if (k < oldest_full(l) && !odd)
				odd = npick;
			pick[npick++] = k;
		}
	}
	n = pick[ask(s, p, npick, odd ? odd : npick)];
	if (l->m[n % HISTORY].value == want && n == l->n - 1) {
		race(p, size, true, true);
		read_from(l, n, s->order, strong_order(s));
		append(l, size == 8 ? v : v & ((1ull << 8 * size) - 1), s->order,
		       strong_order(s), &l->m[n % HISTORY]);
		sc_end(l, s->order, strong_order(s));
		return true;
	}
	read_from(l, n, s->fail, strong_fail(s));
	sc_end(l, s->fail, strong_fail(s));
	touch(old, size);
	memcpy(old, &l->m[n % HISTORY].value, size);
	return false;
}

/* It reads both halves at once, and always the newest value. */
bool weak_pair_cas(struct model_site *s, u64 *p, u64 *old, const u64 *v)
{
	struct loc *a, *b;
	bool ok = p[0] == old[0] && p[1] == old[1];
	u32 order, strong;
	u16 nb;

	weak_settle();
	race(p, 8, ok, true);
	race(p + 1, 8, ok, true);
	a = loc_of(p, 8);
	b = loc_of(p + 1, 8);
	/* A half without a history is always the newest; the other one may have a history. */
	order = ok ? s->order : s->fail;
	strong = ok ? strong_order(s) : strong_fail(s);
	if (a)
		read_from(a, a->n - 1, order, strong);
	if (b)
		read_from(b, b->n - 1, order, strong);
	nb = b ? (u16)b->n : 0;
	if (ok && a)
		append(a, v[0], order, strong, &a->m[(a->n - 1) % HISTORY]);
	if (ok && a && b) {
		/*
		 * This is one store: a thread that reads one half of it does not read an older
		 * other half.
		 */
		set16(&a->m[(a->n - 1) % HISTORY].view[number(b)], nb);
		if (weak_mutant)
			set16(&a->m[(a->n - 1) % HISTORY].full[number(b)], nb);
	}
	if (ok && b)
		append(b, v[1], order, strong, &b->m[(b->n - 1) % HISTORY]);
	if (!ok) {
		touch(old, 16);
		old[0] = p[0];
		old[1] = p[1];
	}
	return ok;
}

void weak_fence(struct model_site *s)
{
	struct wthread *t = &wt[self];

	weak_settle();
	if (weak_mutant && strong_order(s)) {
		if (strong_order(s) & MODEL_ACQUIRE)
			know_full(&t->now, t->acq.full);
		if (is_sc(strong_order(s))) {
			know_full(&t->now, sc_view->full);
			know_full(sc_view, t->now.full);
		}
		if (strong_order(s) & MODEL_RELEASE)
			copy(t->rel.full, t->now.full, LOCS);
	}
	if (s->order & MODEL_ACQUIRE)
		know(&t->now, t->acq.clock, t->acq.view);
	if (is_sc(s->order)) {
		join(t->now.view, sc_view->view, used());
		join(sc_view->view, t->now.view, used());
	}
	if (!(s->order & MODEL_RELEASE))
		return;
	copy(t->rel.view, t->now.view, LOCS);
	copy(t->rel.clock, t->now.clock, MAX_THREADS);
	if (watch)
		set16(&t->now.clock[self], t->now.clock[self] + 1);
}

/* The thread waits for others, so their stores become visible eventually. */
u64 model_clock(void)
{
	return (u64)self << 32 | (weak ? wt[self].now.clock[self] : 0);
}

bool model_knows(u64 clock)
{
	u32 t = (u32)(clock >> 32);

	return !weak || !in_thread || t == self || !t ||
	       (watch && wt[self].now.clock[t] >= (u32)clock);
}

void weak_relax(void)
{
	u32 i;

	weak_settle();
	for (i = 0; i < *nlocs; i++)
		set16(&wt[self].now.view[i], (u16)(locs[i].n - 1));
	for (i = 0; weak_mutant && i < *nlocs; i++)
		set16(&wt[self].now.full[i], (u16)(locs[i].n - 1));
}

void weak_sync(u32 from, u32 to)
{
	weak_settle();
	know(&wt[to].now, wt[from].now.clock, wt[from].now.view);
	know_full(&wt[to].now, wt[from].now.full);
	if (watch)
		set16(&wt[from].now.clock[from], wt[from].now.clock[from] + 1);
}

/* Zero is stored to all words of [p, p + n) that have a history, with release. */
void weak_zero(const void *p, u64 n)
{
	u64 a = (u64)(uintptr_t)p, i;

	if (!weak || !in_thread)
		return;
	weak_settle();
	race(p, (u32)n, true, true);
	for (i = 0; i < *nlocs; i++)
		if (locs[i].addr - a < n)
			append(&locs[i], 0, MODEL_RELEASE, MODEL_RELEASE, NULL);
}

void weak_plain(const void *p, u32 size, bool write)
{
	if (!in_thread || !shadow_of(p))
		return;
	race(p, size, write, false);
	if (write && loc_of(p, 0)) {
		if (npending == ARRAY_SIZE(pending))
			weak_settle();
		pending[npending].p = (void *)(uintptr_t)p;
		pending[npending++].size = size;
	}
}
