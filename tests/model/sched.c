// SPDX-License-Identifier: Apache-2.0
/*
 * The model's threads, and the accesses of the modelled program.
 *
 * Threads are coroutines with separate stacks.  A thread stops before an access to a word that
 * several threads use and one changes, and explore.c decides which thread continues.  The
 * scheduler learns which words these are: it begins with none, and when an access shows a new
 * one, the search starts again.  So the last search knew every such word from its start.
 */
#include <errno.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <base/bug.h>
#include <base/clock.h>
#include <base/futex.h>
#include <base/thread.h>
#include "libc.h"
#include "rt.h"
#include "word.h"

struct mthread *threads;
struct mfixed fixed[MAX_THREADS];
u32 self;
u64 *model_now, *model_stamp;
struct model_site *pend_site;
const void *pend_addr;
u32 pend_choice, given;
bool pend_free;
u32 time_flags, setup_threads, scenario_threads;
u32 (*choose_now)(u32 n);
bool all_points, in_thread, step_wrote;
const char *failed;

static u64 sched_sp, thread_sp;
static u32 alone;		/* accesses since the thread continued */
#define ALONE_MAX	100000u
#define SETTLE_MAX	100000u
static u32 tls_owner;
static u64 tls_initial[TLS_MAX / 8];
static char failed_text[512];
static void (*key_exit[KEYS])(void *);
static u32 nkeys;
jmp_buf fail_jump;
bool in_setup;

STACK_SWAP;

static void to_scheduler(void)
{
	stack_swap(&thread_sp, sched_sp);
}

void model_fail(const char *fmt, ...)
{
	va_list ap;

	if (!failed) {
		va_start(ap, fmt);
		vsnprintf(failed_text, sizeof(failed_text), fmt, ap);
		va_end(ap);
		failed = failed_text;
	}
	if (in_thread)
		to_scheduler();
	longjmp(fail_jump, 1);
}

void model_bug(const char *file, int line, const char *cond)
{
	model_fail("%s:%d: invariant broken: %s", file, line, cond);
}

void model_abort(void)
{
	model_fail("the library broke an invariant");
	exit(2);
}

u32 model_self(void)
{
	return self - 1;
}

/* --- threads ---------------------------------------------------------------- */

static void entry(void)
{
	struct mthread *t = &threads[self];
	u32 i;
	bool again;

	((void *(*)(void *))(uintptr_t)t->fn)((void *)(uintptr_t)t->arg);
	do {
		for (i = 0, again = false; i < nkeys; i++) {
			u64 v = t->value[i];

			if (!v || !key_exit[i])
				continue;
			lw(&t->value[i], 0);
			key_exit[i]((void *)(uintptr_t)v);
			again = true;
		}
	} while (again);
	lw(&t->state, T_DONE);
	for (i = 0; i < MAX_THREADS; i++) {
		if (threads[i].state == T_JOIN && threads[i].awaits == self) {
			lw(&threads[i].state, T_READY);
			if (weak)
				weak_sync(self, i);
		}
	}
	step_wrote = true;
	for (;;)
		to_scheduler();
}

static u64 stack_hash(u32 t, u64 sp)
{
	const u64 *p = (const u64 *)(uintptr_t)sp,
		  *end = (const u64 *)(void *)fixed[t].stack_hi;
	u64 h = sp * 0x9e3779b97f4a7c15ull, g = t + 1;

	for (; p + 1 < end; p += 2) {
		h = (h ^ p[0]) * 0xff51afd7ed558ccdull;
		g = (g ^ p[1]) * 0xc4ceb9fe1a85ec53ull;
		h ^= h >> 29;
		g ^= g >> 31;
	}
	if (p < end)
		h = (h ^ p[0]) * 0xff51afd7ed558ccdull;
	return mix(h, g);
}

static u64 *stack_first(u32 i)
{
	u64 *sp = (u64 *)(void *)fixed[i].stack_hi;

	*--sp = 0;
	*--sp = (u64)(uintptr_t)entry;
	sp -= 6;
	memset(sp, 0, 48);
	fixed[i].ops = 0;
	return sp;
}

/*
 * All changes were undone: existing threads have not begun, or are in their state after the
 * set-up.
 */
void stacks_reset(void)
{
	u32 i;

	for (i = 1; i < MAX_THREADS; i++) {
		if (fixed[i].kept) {
			memcpy((void *)(uintptr_t)threads[i].sp, fixed[i].keep, fixed[i].kept);
			fixed[i].ops = fixed[i].kept_ops;
		} else if (threads[i].state == T_READY) {
			stack_first(i);
		}
	}
	tls_owner = MAX_THREADS;
}

/* What a check does with the remaining threads is undone, too. */
void stacks_copy(bool back)
{
	static char *copy[MAX_THREADS];
	static u64 ops[MAX_THREADS];
	u32 i;

	for (i = MAX_THREADS - setup_threads; i < MAX_THREADS; i++) {
		if (!copy[i])
			copy[i] = malloc(STACK_BYTES);
		memcpy(back ? fixed[i].stack_lo : copy[i], back ? copy[i] : fixed[i].stack_lo,
		       STACK_BYTES);
		if (back)
			fixed[i].ops = ops[i];
		else
			ops[i] = fixed[i].ops;
	}
}

void stacks_keep(void)
{
	u32 i;

	for (i = MAX_THREADS - setup_threads; i < MAX_THREADS; i++) {
		struct mfixed *f = &fixed[i];

		if (threads[i].state == T_DONE)
			continue;
		f->kept = (u64)(uintptr_t)f->stack_hi - threads[i].sp;
		f->kept_ops = f->ops;
		f->keep = malloc(f->kept);
		memcpy(f->keep, (void *)(uintptr_t)threads[i].sp, f->kept);
	}
}

u32 thread_spawn(void *(*fn)(void *), void *arg)
{
	u32 i;
	u64 *sp;

	for (i = 1; i < MAX_THREADS && threads[i].state != T_NONE; i++)
		;
	/* The threads of the set-up follow those of the scenario. */
	if (!in_thread && in_setup) {
		i = MAX_THREADS - ++setup_threads;
		if (threads[i].state != T_NONE)
			i = MAX_THREADS;
	}
	if (i == MAX_THREADS) {
		model_fail("more than %u threads", MAX_THREADS - 1);
		return 0;
	}
	sp = stack_first(i);
	lw(&threads[i].fn, (u64)(uintptr_t)fn);
	lw(&threads[i].arg, (u64)(uintptr_t)arg);
	lw(&threads[i].sp, (u64)(uintptr_t)sp);
	lw(&threads[i].state, T_READY);
	if (weak)
		weak_sync(self, i);
	return i;
}

void sched_init(void)
{
	u32 i;

	threads = region_alloc(MAX_THREADS * sizeof(*threads));
	model_now = region_alloc(64);
	model_stamp = region_alloc(64);
	*model_now = 1000000000u;
	*model_stamp = 1000;
	memcpy(tls_initial, tls_start, tls_bytes);
	for (i = 1; i < MAX_THREADS; i++) {
		memcpy(threads[i].tls, tls_initial, tls_bytes);
		fixed[i].stack_lo = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		fixed[i].stack_hi = fixed[i].stack_lo + STACK_BYTES - 64;
	}
	threads[0].state = T_DONE;
}

static void tls_store(u32 t)
{
	u64 i;

	for (i = 0; i < tls_bytes / 8; i++)
		lw(&threads[t].tls[i], ((u64 *)(void *)tls_start)[i]);
	tls_dirty = false;
}

/* The set-up has ended, or changes were undone: the variables are in threads[].tls. */
void tls_load(u32 t)
{
	memcpy(tls_start, threads[t].tls, tls_bytes);
	tls_owner = t;
	tls_dirty = false;
}

/* The variables of the set-up become those of t. */
void tls_save(u32 t)
{
	tls_store(t);
	tls_owner = t;
}

/* Let t run to its next stop. timeout: its deadline passes. */
void step_run(u32 t, bool timeout)
{
	struct mthread *th = &threads[t];

	if (timeout) {
		if (*model_now < th->deadline)
			lw(model_now, th->deadline);
		lw(&th->timed_out, 1);
		lw(&th->state, T_READY);
	}
	if (th->state == T_AWAIT) {
		lw(&th->awaits, 0);
		lw(&th->state, T_READY);
	}
	if (tls_owner != t)
		tls_load(t);
	self = t;
	pend_choice = 0;
	step_wrote = false;
	alone = 0;
	in_thread = true;
	stack_swap(&sched_sp, th->sp);
	if (weak)
		weak_settle();
	in_thread = false;
	if (tls_dirty)
		tls_store(t);
	lw(&th->sp, thread_sp);
	if (step_wrote) {
		u32 i;

		for (i = 1; i < MAX_THREADS; i++)
			if (i != t && threads[i].state != T_NONE) {
				lw(&threads[i].yielded, 0);
				lw(&threads[i].fresh, 1);
			}
	}
}

/*
 * A set-up waits for a thread that it started, or a check for remaining work: let all threads
 * of the library and the hardware run until they sleep.  The threads of the scenario exist when
 * one of them enters, and wait for the first schedule.
 */
void model_settle(void)
{
	u32 t = 0, en, n = 0;

	/* The stores of a check are in no history. */
	if (weak)
		weak_reset();
	tls_save(0);
	while (!failed && (en = enabled_mask() & 0xff & ~scenario_threads)) {
		do
			t = (t + 1) % MAX_THREADS;
		while (!(en & 1u << t));
		if (++n > SETTLE_MAX) {
			self = 0;
			model_fail("no end: the engine's own threads do not come to rest");
		}
		given = 0;
		tls_load(t);
		step_run(t, false);
		tls_save(t);
	}
	self = 0;
	tls_load(0);
}

/* Hash the stack of t, which has just stopped, for the hash of the state. */
void step_stack(u32 t)
{
	struct mthread *th = &threads[t];

	/* Data of functions that returned must not reappear in later frames. */
	if (th->state == T_DONE) {
		lw(&th->stack_hash, 1);
		return;
	}
	memset((char *)(uintptr_t)th->sp - 512, 0, 512);
	lw(&th->stack_hash, stack_hash(t, th->sp));
}

/* The condition of a thread in await(); it is on the thread's stack, which does not move. */
struct await {
	bool (*cond)(const void *arg);
	const void *arg;
};

u32 enabled_mask(void)
{
	u32 i, m = 0, late = 0;

	for (i = 1; i < MAX_THREADS; i++) {
		struct mthread *t = &threads[i];

		if (t->state == T_READY && !t->yielded) {
			m |= 1u << i;
		} else if (t->state == T_ASLEEP && t->deadline) {
			late |= 1u << (8 + i);
		} else if (t->state == T_AWAIT) {
			const struct await *a = (const struct await *)(uintptr_t)t->awaits;

			if (a->cond(a->arg))
				m |= 1u << i;
		}
	}
	if (time_flags & MODEL_NO_TIME)
		return m;
	return time_flags & MODEL_TIME_LAST && m ? m : m | late;
}

bool all_done(void)
{
	u32 i;

	for (i = 1; i < MAX_THREADS; i++)
		if (threads[i].state != T_DONE && threads[i].state != T_NONE &&
		    threads[i].state != T_FROZEN)
			return false;
	return true;
}

void describe_stuck(FILE *f)
{
	static const char *const names[] = { "none", "ready", "asleep", "joins", "done", "stopped",
					     "awaits" };
	u32 i;

	for (i = 1; i < MAX_THREADS; i++)
		if (threads[i].state != T_NONE)
			fprintf(f, "    thread %u: %s%s\n", i - 1, names[threads[i].state],
				threads[i].yielded ? ", spins" : "");
}

u32 choose(u32 n)
{
	if (n < 2 || !in_thread)
		return 0;
	if (choose_now)
		return choose_now(n);
	pend_choice = n;
	to_scheduler();
	return given;
}

u32 model_choose(u32 n)
{
	u32 k;

	pend_free = true;
	k = choose(n);
	pend_free = false;
	return k;
}

void model_hardware(void)
{
	fixed[self].hardware = true;
}

void model_await(bool (*cond)(const void *arg), const void *arg)
{
	struct await a = { cond, arg };

	lw(&threads[self].awaits, (u64)(uintptr_t)&a);
	lw(&threads[self].state, T_AWAIT);
	pend_site = NULL;
	pend_addr = threads;
	to_scheduler();
	fixed[self].ops++;
}

/* --- accesses --------------------------------------------------------------- */

/* The thread is about to execute s on p. */
static inline void point(struct model_site *s, const void *p, bool write, bool always)
{
	struct shadow *sh;

	if (unlikely(!in_thread))
		return;
	if (unlikely((char *)&sh < fixed[self].stack_lo + STACK_SPARE))
		model_fail("a stack overflows: calls without end");
	if (unlikely(++alone > ALONE_MAX))
		model_fail("no end: a loop in which no other thread has a part");
	sh = shadow_of(p);
	if (likely(sh) && likely(!(sh->flags & SH_SHARED))) {
		if (!sh->first)
			sh->first = (u8)(self + 1);
		else if (sh->first != self + 1)
			sh->flags |= SH_MULTI;
		if (write)
			sh->flags |= SH_WROTE;
		if ((sh->flags & (SH_MULTI | SH_WROTE)) == (SH_MULTI | SH_WROTE)) {
			sh->flags |= SH_SHARED;
			learned++;
		}
	}
	if (always || all_points || (sh && (sh->flags & SH_SHARED))) {
		pend_site = s;
		pend_addr = p;
		to_scheduler();
	}
	fixed[self].ops++;
	if (s)
		s->hits++;
}

static inline void put(void *p, u32 size, u64 v)
{
	u64 *w = (u64 *)((uintptr_t)p & ~7ull);
	struct shadow *s;

	if (step_id && (s = shadow_of(p))) {
		touch_word(w, s);
		step_wrote = true;
	}
	word_put(p, size, v);
}

u64 model_load(struct model_site *s, const void *p, u32 size)
{
	point(s, p, false, false);
	if (weak && in_thread)
		return weak_load(s, p, size);
	return word_get(p, size);
}

void model_store(struct model_site *s, void *p, u32 size, u64 v)
{
	point(s, p, true, false);
	if (weak && in_thread)
		weak_store(s, p, size, v);
	put(p, size, v);
}

u64 model_rmw(struct model_site *s, void *p, u32 size, u64 v)
{
	u64 old;

	point(s, p, true, false);
	old = word_get(p, size);
	v = word_rmw(s, old, v);
	if (weak && in_thread)
		weak_rmw(s, p, size, v);
	put(p, size, v);
	return old;
}

bool model_cas(struct model_site *s, void *p, u32 size, void *old, u64 v)
{
	u64 mask = size == 8 ? ~0ull : (1ull << 8 * size) - 1;
	u64 was, want;

	point(s, p, true, false);
	if (weak && in_thread) {
		if (!weak_cas(s, p, size, old, v))
			return false;
		/* weak.c has done everything else. */
		put(p, size, v);
		return true;
	}
	was = word_get(p, size);
	want = word_get(old, size);
	if (was == (want & mask)) {
		put(p, size, v);
		return true;
	}
	touch(old, size);
	memcpy(old, &was, size);
	return false;
}

bool model_pair_cas(struct model_site *s, u64 *p, u64 *old, const u64 *v)
{
	/* Both words are in one cache line: if one is shared, so is the other. */
	if (in_thread) {
		struct shadow *a = shadow_of(p), *b = shadow_of(p + 1);

		if ((a->flags | b->flags) & SH_SHARED) {
			a->flags |= SH_SHARED;
			b->flags |= SH_SHARED;
		}
	}
	point(s, p, true, false);
	if (in_thread) {
		struct shadow *b = shadow_of(p + 1);

		b->flags |= SH_WROTE | (b->first && b->first != self + 1 ? SH_MULTI : 0);
		if (!b->first)
			b->first = (u8)(self + 1);
	}
	if (weak && in_thread) {
		if (!weak_pair_cas(s, p, old, v))
			return false;
	} else if (p[0] != old[0] || p[1] != old[1]) {
		touch(old, 16);
		old[0] = p[0];
		old[1] = p[1];
		return false;
	}
	put(p, 8, v[0]);
	put(p + 1, 8, v[1]);
	return true;
}

void model_fence(struct model_site *s)
{
	if (!in_thread)
		return;
	s->hits++;
	/* Without weak memory it has no effect, and the scheduler does not switch here. */
	if (weak)
		weak_fence(s);
}

void model_relax(void)
{
	if (!in_thread) {
		if (in_setup)
			model_settle();
		return;
	}
	if (weak)
		weak_relax();
	/* The words that it read may have changed since: then it repeats the loop once. */
	lw(&threads[self].yielded, !threads[self].fresh);
	lw(&threads[self].fresh, 0);
	point(NULL, NULL, false, true);
}

void model_prefetchw(const void *p)
{
	(void)p;
}

u64 model_cycles(void)
{
	return *model_stamp;
}

u64 model_stamp_next(void)
{
	point(NULL, model_stamp, true, true);
	lw(model_stamp, *model_stamp + 1);
	return *model_stamp;
}

u64 model_note(u64 *p, u64 v)
{
	u64 was = *p;

	if (step_id)
		touch_word(p, shadow_of(p));
	*p = v;
	return was;
}

void model_point(void)
{
	point(NULL, threads, false, true);
}

static struct model_site sent = { .file = __FILE__, .kind = MODEL_STORE, .order = MODEL_RELEASE };
static struct model_site received = { .file = __FILE__, .kind = MODEL_LOAD, .order = MODEL_ACQUIRE };
static struct model_site glanced = { .file = __FILE__, .kind = MODEL_LOAD, .order = MODEL_RELAXED };

void model_send(u64 *p, u64 v)
{
	if (weak && in_thread)
		weak_store(&sent, p, 8, v);
	put(p, 8, v);
}

u64 model_receive(const u64 *p)
{
	if (weak && in_thread)
		weak_newest(&received, p);
	return *p;
}

u64 model_glance(const u64 *p, bool acquire)
{
	return weak && in_thread ? weak_load(acquire ? &received : &glanced, p, 8) : *p;
}

void model_forget_exit(void)
{
	u32 i;

	for (i = 0; i < KEYS; i++)
		lw(&threads[self].value[i], 0);
}

/* --- what base/futex.h, clock.h and thread.h declare --------------------------- */

u64 clock_ns(void)
{
	if (!in_thread && !step_id)
		*model_now += 100000;	/* the set-up measures the unit of cycles() */
	return *model_now;
}

int futex_wait(u32 *word, u32 value, u64 deadline)
{
	struct mthread *t = &threads[self];

	if (!in_thread) {
		model_fail("a set-up or a check sleeps");
		return 0;
	}
	point(NULL, word, false, true);
	if (*word != value)
		return 0;
	lw(&t->word, (u64)(uintptr_t)word);
	lw(&t->deadline, deadline);
	lw(&t->state, T_ASLEEP);
	to_scheduler();
	lw(&t->word, 0);
	lw(&t->deadline, 0);
	return 0;
}

void futex_wake(u32 *word)
{
	u32 i;

	point(NULL, word, true, true);
	for (i = 1; i < MAX_THREADS; i++) {
		if (threads[i].state == T_ASLEEP && threads[i].word == (u64)(uintptr_t)word) {
			lw(&threads[i].state, T_READY);
			return;
		}
	}
}

int os_thread_create(os_thread *t, void *(*fn)(void *), void *arg)
{
	u32 i = thread_spawn(fn, arg);

	touch(t, sizeof(*t));
	if (watch)
		weak_plain(t, sizeof(*t), true);
	*t = i;
	return i ? 0 : EAGAIN;
}

void os_thread_join(os_thread i)
{
	if (!in_thread) {
		if (threads[i].state != T_DONE)
			model_fail("a set-up or a check joins a thread that runs");
		return;
	}
	point(NULL, NULL, false, true);
	if (threads[i].state == T_DONE) {
		if (weak)
			weak_sync(i, self);
		return;
	}
	lw(&threads[self].awaits, i);
	lw(&threads[self].state, T_JOIN);
	to_scheduler();
}

void os_thread_name(const char *name)
{
	(void)name;
}

void os_thread_yield(void)
{
	model_relax();
}

int os_key_create(pthread_key_t *key, void (*exit_fn)(void *))
{
	u32 i;

	/* The same key as in the previous schedule. */
	for (i = 0; i < nkeys; i++)
		if (key_exit[i] == exit_fn)
			break;
	if (i < nkeys) {
		touch(key, sizeof(*key));
		*key = i;
		return 0;
	}
	if (nkeys == KEYS)
		return EAGAIN;
	key_exit[nkeys] = exit_fn;
	*key = nkeys++;
	return 0;
}

int os_key_set(pthread_key_t key, const void *value)
{
	lw(&threads[self].value[key], (u64)(uintptr_t)value);
	return 0;
}
