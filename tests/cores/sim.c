// SPDX-License-Identifier: Apache-2.0
/*
 * Simulated cores and their caches.
 *
 * The library's sources are compiled against the simulators' form of include/base/atomic.h and
 * its neighbours, and with the compiler's calls for the thread sanitizer, which come here.  So
 * every access of the library is seen, plain and atomic.  Threads are coroutines.  Each has a
 * clock; before an atomic access the thread with the least clock goes on, so the accesses are in
 * the order of the clocks, and a run is the same each time.
 *
 * A line of 64 bytes is in no cache, in one (alone), or in several (shared).  An access that finds
 * its line as it needs it costs HIT; else the line moves, and moves of one line queue up.  Caches
 * never get full.  A plain store does not wait for its line: it moves while the thread goes on
 * (the store buffer), and the next read-modify-write or fence waits for it.
 *
 * The costs, in picoseconds, are those of a server of 2020 with 16 to 28 cores and one L3; only
 * their ratios matter.  What is not simulated: the size of caches, page faults, instructions
 * without accesses to memory, two threads on one core, interrupts, and the words of the program's
 * own data.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <link.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <base/atomic_model.h>
#include <base/clock.h>
#include <base/futex.h>
#include <base/thread.h>
#include "../model/word.h"
#include "rows.h"
#include "sim.h"
#include "shim.h"
#undef malloc
#undef calloc
#undef realloc
#undef free
#undef mmap
#undef munmap
#undef mprotect
#undef memset
#undef memcpy
#undef write

#define PS		1000u
#define HIT		500u		/* and the instructions around it */
#define RMW		6000u		/* an atomic read-modify-write, or a fence */
#define COLD		15000u		/* a line that no core has used: prefetched memory */
#define SHARED		25000u		/* a copy of a line that is in the L3 */
#define MOVED		60000u		/* from the one cache that has it */
#define UPGRADE		45000u		/* the other copies are invalidated, */
#define COPY		3000u		/* and for each copy; a copy keeps the line busy so long */
#define BUFFERED	400000u		/* the store buffer has room for so much */
#define PAUSE		40000u
#define CLOCK		8000u
#define SYSCALL		400000u
#define WAKE		1500000u	/* for the thread that wakes, */
#define AWAKE		4000000u	/* and until the other one runs */
#define SPAWN		20000000u
#define GHZ_CYCLES	3u		/* cycles() per ns */

#define STACK		(512u << 10)
#define TLS_MAX		8192u
#define KEYS		16u
#define NEVER		UINT64_MAX
#define REGION_BASE	0x10000000000ull
#define REGION_BYTES	(1ull << 38)
#define LINES		(1u << 22)

enum { FREE, READY, ASLEEP, JOINS, DONE };

struct sthread {
	u32 state;
	u64 sp, clock, drain;	/* ps; drain: when the store buffer is empty */
	u32 *word;		/* asleep on */
	u64 deadline;		/* ps; NEVER: none */
	u32 awaits;
	void *(*fn)(void *);
	void *arg;
	void *value[KEYS];
	char *tls, *stack;
};

struct line {
	u64 addr;		/* 0: free */
	u64 busy;		/* ps: when its last move ends */
	u64 ready;		/* ps: of its holder's prefetch */
	u64 copies[(SIM_MAX + 63) / 64];
	s32 owner;		/* the cache that has it alone; -1: copies; -2: none */
	u64 wrote, used;	/* watched threads */
};

static struct sthread threads[SIM_MAX];
static u32 nthreads, self;
static u64 next_clock;		/* of the thread that goes on if self's clock passes it */
static struct line *lines;
static u32 nlines;
static struct sim_sum sum;
static u64 watched;
static bool counting;
static char *tls_start, *tls_initial;
static u64 tls_bytes;
static u64 main_sp, region_used = 64;
static void (*key_exit[KEYS])(void *);
static u32 nkeys;

void sim_die(const char *what)
{
	fprintf(stderr, "cores: %s\n", what);
	exit(2);
}

/* --- memory ----------------------------------------------------------------- */

void *sim_alloc(const char *who, size_t n)
{
	size_t step = n >= 4096 ? 4096 : 64, bytes = (n + 64 + step - 1) / step * step;
	char *p;

	region_used = (region_used + step - 1) / step * step;
	if (region_used + bytes + 4096 > REGION_BYTES)
		sim_die("the region is used up");
	/* The size is in the line before. */
	p = (char *)REGION_BASE + region_used + step;
	region_used += bytes + step;
	*(u64 *)(void *)(p - 64) = n;
	sim_name(who, p, n, n);
	return p;
}

void *sim_realloc(const char *who, void *p, size_t n)
{
	void *q = sim_alloc(who, n);
	u64 had = p ? *(u64 *)(void *)((char *)p - 64) : 0;

	if (p)
		memcpy(q, p, had < n ? had : n);
	return q;
}

/* Nothing is used twice, so a line belongs to one object of the C library. */
void sim_free(void *p)
{
	(void)p;
}

/* --- threads ------------------------------------------------------------------ */

STACK_SWAP;

static inline u64 ready_at(const struct sthread *t)
{
	return t->state == READY ? t->clock : t->state == ASLEEP ? t->deadline : NEVER;
}

/* Continue the thread with the least clock. */
static void go_on(void)
{
	u64 least = NEVER, second = NEVER, at;
	u32 i, to = SIM_MAX, from = self;

	for (i = 0; i < nthreads; i++) {
		at = ready_at(&threads[i]);
		if (at < least) {
			second = least;
			least = at;
			to = i;
		} else if (at < second) {
			second = at;
		}
	}
	if (to == SIM_MAX)
		sim_die("all threads sleep");
	next_clock = second;
	if (threads[to].state == ASLEEP) {
		threads[to].clock = threads[to].deadline + AWAKE;
		threads[to].state = READY;
		go_on();
		return;
	}
	if (to == from)
		return;
	memcpy(threads[from].tls, tls_start, tls_bytes);
	memcpy(tls_start, threads[to].tls, tls_bytes);
	self = to;
	stack_swap(&threads[from].sp, threads[to].sp);
}

static inline void turn(void)
{
	if (threads[self].clock > next_clock)
		go_on();
}

static void entry(void)
{
	struct sthread *t = &threads[self];
	bool again;
	u32 i;

	t->fn(t->arg);
	do {
		for (i = 0, again = false; i < nkeys; i++) {
			void *v = t->value[i];

			t->value[i] = NULL;
			if (!v || !key_exit[i])
				continue;
			key_exit[i](v);
			again = true;
		}
	} while (again);
	t->state = self ? DONE : FREE;
	for (i = 0; i < nthreads; i++) {
		if (threads[i].state == JOINS && threads[i].awaits == self) {
			threads[i].state = READY;
			threads[i].clock = max_u(threads[i].clock, t->clock + AWAKE);
			t->state = FREE;
		}
	}
	if (!self) {
		u64 ignored;

		stack_swap(&ignored, main_sp);
	}
	go_on();
	sim_die("a thread that has ended goes on");
}

static u32 spawn(void *(*fn)(void *), void *arg)
{
	struct sthread *t;
	u64 *sp;
	u32 i;

	for (i = 0; i < nthreads && threads[i].state != FREE; i++)
		;
	if (i == SIM_MAX)
		sim_die("too many threads");
	t = &threads[i];
	if (i == nthreads) {
		nthreads++;
		t->tls = malloc(tls_bytes + 8);
		t->stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (!t->tls || t->stack == MAP_FAILED)
			sim_die("no memory for a thread");
	}
	memcpy(t->tls, tls_initial, tls_bytes);
	sp = (u64 *)(void *)(t->stack + STACK - 64);
	*--sp = 0;
	*--sp = (u64)(uintptr_t)entry;
	sp -= 6;
	memset(sp, 0, 48);
	t->sp = (u64)(uintptr_t)sp;
	t->fn = fn;
	t->arg = arg;
	t->drain = 0;
	t->clock = i ? threads[self].clock + AWAKE : 0;
	t->state = READY;
	next_clock = min_u(next_clock, t->clock);
	return i;
}

static void join(u32 i)
{
	struct sthread *t = &threads[self];

	if (threads[i].state == DONE) {
		threads[i].state = FREE;
		t->clock += SYSCALL;
		return;
	}
	t->awaits = i;
	t->state = JOINS;
	go_on();
}

/* --- caches --------------------------------------------------------------------- */

static struct line *line_of(u64 addr)
{
	u64 i = hash(addr) & (LINES - 1);

	while (lines[i].addr && lines[i].addr != addr)
		i = (i + 1) & (LINES - 1);
	if (!lines[i].addr) {
		if (++nlines > LINES / 4 * 3)
			sim_die("too many lines");
		lines[i].addr = addr;
		lines[i].owner = -2;
	}
	return &lines[i];
}

static inline bool has_copy(const struct line *l, u32 t)
{
	return l->copies[t / 64] >> t % 64 & 1;
}

/* In how many caches other than t's is a copy? */
static u32 copies(const struct line *l, u32 t)
{
	u32 i, n = 0;

	for (i = 0; i < ARRAY_SIZE(l->copies); i++)
		n += (u32)__builtin_popcountll(l->copies[i]);
	return n - has_copy(l, t);
}

/* Bring the line to this core, to be read or written.  Returns when it is there; 0: it is. */
static u64 move(struct line *l, bool write, u64 site)
{
	struct sthread *t = &threads[self];
	u64 from = max_u(t->clock, l->busy), took;

	if (l->owner == (s32)self)
		return 0;
	if (l->owner == -1 && has_copy(l, self)) {
		if (!write)
			return 0;
		took = copies(l, self) ? UPGRADE + COPY * copies(l, self) : 0;
	} else if (l->owner == -1) {
		took = write ? MOVED + COPY * copies(l, self) : SHARED;
	} else {
		took = l->owner == -2 ? COLD : MOVED;
	}
	if (counting && l->owner == -2)
		sum.cold++;
	else if (counting && took)
		sum.transfers++;
	if (write || l->owner == -2) {
		memset(l->copies, 0, sizeof(l->copies));
		l->owner = (s32)self;
	} else if (l->owner >= 0) {
		l->copies[l->owner / 64] |= 1ull << l->owner % 64;
		l->owner = -1;
	}
	l->copies[self / 64] |= 1ull << self % 64;
	if (counting && took > COLD)
		rows_note(l->addr, site, (from + took - t->clock) / PS);
	/* Several copies from the L3 are on their way at the same time. */
	l->busy = from + (took == SHARED ? COPY : took);
	l->ready = 0;
	return from + took;
}

enum { READS, WRITES, READS_WRITES };

static void touch(const void *p, u32 kind, u64 site)
{
	struct sthread *t = &threads[self];
	struct line *l;
	u64 at;

	if ((u64)(uintptr_t)p - (u64)(uintptr_t)tls_start < tls_bytes ||
	    (u64)(uintptr_t)p - (u64)(uintptr_t)t->stack < STACK)
		return;
	sum.accesses += counting;
	l = line_of((u64)(uintptr_t)p & ~63ull);
	if (counting && self < 64 && watched >> self & 1) {
		l->used |= 1ull << self;
		if (kind)
			l->wrote |= 1ull << self;
	}
	if (kind == READS_WRITES) {
		t->clock = max_u(t->clock, t->drain) + RMW;
		sum.atomics += counting;
	}
	at = move(l, kind, site);
	if (kind == WRITES) {
		t->clock += HIT;
		if (at) {
			t->drain = max_u(t->drain, at);
			if (t->drain > t->clock + BUFFERED)
				t->clock = t->drain - BUFFERED;
		}
		return;
	}
	if (!at && l->ready > t->clock && l->owner == (s32)self)
		at = l->ready;
	if (at > t->clock) {
		sum.wait_ns += counting ? (double)(at - t->clock) / PS : 0;
		t->clock = at;
	}
	t->clock += HIT;
}

static void touch_range(const void *p, u64 n, bool write, u64 site)
{
	u64 a = (u64)(uintptr_t)p & ~63ull, end = (u64)(uintptr_t)p + n;

	for (; a < end; a += 64)
		touch((void *)(uintptr_t)max_u(a, (u64)(uintptr_t)p), write ? WRITES : READS, site);
}

void model_prefetchw(const void *p)
{
	struct line *l = line_of((u64)(uintptr_t)p & ~63ull);
	u64 at = move(l, true, 1 | (u64)(uintptr_t)__builtin_return_address(0));

	threads[self].clock += HIT;
	if (at)
		l->ready = at;
}

/* --- what base/atomic.h calls ------------------------------------------------------- */

#define SITE(s) ((u64)(uintptr_t)(s))

u64 model_load(struct model_site *s, const void *p, u32 size)
{
	turn();
	touch(p, READS, SITE(s));
	return word_get(p, size);
}

void model_store(struct model_site *s, void *p, u32 size, u64 v)
{
	turn();
	touch(p, WRITES, SITE(s));
	word_put(p, size, v);
}

u64 model_rmw(struct model_site *s, void *p, u32 size, u64 v)
{
	u64 old;

	turn();
	touch(p, READS_WRITES, SITE(s));
	old = word_get(p, size);
	word_put(p, size, word_rmw(s, old, v));
	return old;
}

bool model_cas(struct model_site *s, void *p, u32 size, void *old, u64 v)
{
	u64 is;

	turn();
	touch(p, READS_WRITES, SITE(s));
	is = word_get(p, size);
	if (is != word_get(old, size)) {
		word_put(old, size, is);
		return false;
	}
	word_put(p, size, v);
	return true;
}

bool model_pair_cas(struct model_site *s, u64 *p, u64 *old, const u64 *v)
{
	turn();
	touch(p, READS_WRITES, SITE(s));
	if (p[0] != old[0] || p[1] != old[1]) {
		old[0] = p[0];
		old[1] = p[1];
		return false;
	}
	p[0] = v[0];
	p[1] = v[1];
	return true;
}

void model_fence(struct model_site *s)
{
	struct sthread *t = &threads[self];

	/* On x86 only the full barrier is an instruction. */
	if (s->order == MODEL_SEQ_CST)
		t->clock = max_u(t->clock, t->drain) + RMW;
}

void model_relax(void)
{
	sum.pauses += counting;
	threads[self].clock += PAUSE;
	turn();
}

u64 model_cycles(void)
{
	threads[self].clock += CLOCK;
	return threads[self].clock * GHZ_CYCLES / PS;
}

/* --- what base/futex.h, clock.h and thread.h declare ---------------------------------- */

u64 clock_ns(void)
{
	threads[self].clock += CLOCK;
	return 1000000000u + threads[self].clock / PS;
}

int futex_wait(u32 *word, u32 value, u64 deadline)
{
	struct sthread *t = &threads[self];

	sum.futex_waits += counting;
	t->clock = max_u(t->clock, t->drain) + SYSCALL;
	turn();
	touch(word, READS, 1 | (u64)(uintptr_t)__builtin_return_address(0));
	if (*word != value)
		return 0;
	t->word = word;
	t->deadline = deadline ? max_u((deadline - 1000000000u) * PS, t->clock) : NEVER;
	t->state = ASLEEP;
	go_on();
	t->word = NULL;
	return 0;
}

void futex_wake(u32 *word)
{
	struct sthread *t = &threads[self];
	u32 i;

	sum.futex_wakes += counting;
	t->clock = max_u(t->clock, t->drain) + SYSCALL;
	turn();
	for (i = 0; i < nthreads; i++) {
		if (threads[i].state != ASLEEP || threads[i].word != word)
			continue;
		threads[i].state = READY;
		threads[i].clock = max_u(threads[i].clock, t->clock + AWAKE);
		t->clock += WAKE - SYSCALL;
		next_clock = min_u(next_clock, threads[i].clock);
		return;
	}
}

int os_thread_create(os_thread *t, void *(*fn)(void *), void *arg)
{
	threads[self].clock += SPAWN;
	*t = spawn(fn, arg);
	return 0;
}

void os_thread_join(os_thread t)
{
	join(t);
}

void os_thread_name(const char *name)
{
	(void)name;
}

void os_thread_yield(void)
{
	threads[self].clock += SYSCALL;
	turn();
}

int os_key_create(pthread_key_t *key, void (*fn)(void *))
{
	if (nkeys == KEYS)
		return EAGAIN;
	key_exit[nkeys] = fn;
	*key = nkeys++;
	return 0;
}

int os_key_set(pthread_key_t key, const void *value)
{
	threads[self].value[key] = (void *)(uintptr_t)value;
	return 0;
}

ssize_t sim_write(int fd, const void *from, size_t n)
{
	threads[self].clock += SYSCALL;
	return write(fd, from, n);
}

/* --- what the compiler calls --------------------------------------------------------------- */

#define PC (1 | (u64)(uintptr_t)__builtin_return_address(0))

void *sim_memset(void *p, int c, size_t n)
{
	/* Fresh memory is zero: do not commit its pages. */
	if (!c && n >= 65536)
		return p;
	touch_range(p, n, true, PC);
	return memset(p, c, n);
}

void *sim_memcpy(void *to, const void *from, size_t n)
{
	touch_range(from, n, false, PC);
	touch_range(to, n, true, PC);
	return memcpy(to, from, n);
}

void __tsan_init(void);
void __tsan_func_entry(void *p);
void __tsan_func_exit(void);
void __tsan_read_range(void *p, u64 n);
void __tsan_write_range(void *p, u64 n);

void __tsan_init(void)
{
}

void __tsan_func_entry(void *p)
{
	(void)p;
}

void __tsan_func_exit(void)
{
}

void __tsan_read_range(void *p, u64 n)
{
	touch_range(p, n, false, PC);
}

void __tsan_write_range(void *p, u64 n)
{
	touch_range(p, n, true, PC);
}

#define READ(p, n)	touch(p, READS, PC)
#define WRITE(p, n)	touch(p, WRITES, PC)
TSAN_HOOKS(1, READ, WRITE)
TSAN_HOOKS(2, READ, WRITE)
TSAN_HOOKS(4, READ, WRITE)
TSAN_HOOKS(8, READ, WRITE)
TSAN_HOOKS(16, READ, WRITE)

/* --- scenarios -------------------------------------------------------------------------------- */

static int find_tls(struct dl_phdr_info *info, size_t size, void *data)
{
	int i;

	(void)size;
	(void)data;
	for (i = 0; i < info->dlpi_phnum; i++) {
		if (info->dlpi_phdr[i].p_type == PT_TLS) {
			tls_start = info->dlpi_tls_data;
			tls_bytes = info->dlpi_phdr[i].p_memsz;
		}
	}
	return 1;	/* the program itself comes first */
}

static void *reserve(void *at, u64 bytes)
{
	void *p = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
		       (at ? MAP_FIXED_NOREPLACE : 0), -1, 0);

	if (p == MAP_FAILED)
		sim_die("no address space");
	return p;
}

static void init(void)
{
	reserve((void *)REGION_BASE, REGION_BYTES);
	lines = reserve(NULL, LINES * sizeof(*lines));
	dl_iterate_phdr(find_tls, NULL);
	if (tls_bytes > TLS_MAX)
		sim_die("too many __thread variables");
	tls_initial = malloc(tls_bytes + 8);
	if (!tls_initial)
		sim_die("no memory");
	memcpy(tls_initial, tls_start, tls_bytes);
}

static void *call(void *arg)
{
	(*(void (**)(void))arg)();
	return NULL;
}

void sim_run(void (*fn)(void))
{
	u32 i;

	if (!lines)
		init();
	self = 0;
	next_clock = NEVER;
	spawn(call, &fn);
	memcpy(tls_start, threads[0].tls, tls_bytes);
	stack_swap(&main_sp, threads[0].sp);
	for (i = 0; i < nthreads; i++)
		if (threads[i].state != FREE)
			sim_die("a thread was not joined");
	memcpy(tls_start, tls_initial, tls_bytes);
}

u32 sim_self(void)
{
	return self;
}

void sim_work(u64 ns)
{
	threads[self].clock += ns * PS;
	turn();
}

u64 sim_ns(void)
{
	return threads[self].clock / PS;
}

struct start {
	void (*fn)(void *arg);
	void *arg;
};

static void *start_main(void *arg)
{
	struct start s = *(struct start *)arg;

	free(arg);
	s.fn(s.arg);
	return NULL;
}

void sim_start(u32 *thread, void (*fn)(void *arg), void *arg)
{
	struct start *s = malloc(sizeof(*s));

	if (!s)
		sim_die("no memory");
	*s = (struct start){ fn, arg };
	os_thread_create(thread, start_main, s);
}

void sim_join(u32 thread)
{
	join(thread);
}

void sim_meet(u32 *count, u32 n)
{
	u32 i, round = *count / n;
	u64 latest = 0;

	++*count;
	while (*count / n == round)
		model_relax();
	/* The last one waits for none. */
	for (i = 0; i < nthreads; i++)
		latest = threads[i].state == READY ? max_u(latest, threads[i].clock) : latest;
	threads[self].clock = max_u(threads[self].clock, latest);
	turn();
}

void sim_reset(void)
{
	memset(&sum, 0, sizeof(sum));
	rows_reset();
	counting = true;
}

void sim_stop(void)
{
	counting = false;
}

void sim_watch(u64 mask)
{
	u32 i;

	for (i = 0; i < LINES; i++)
		if (lines[i].addr)
			lines[i].wrote = lines[i].used = 0;
	watched = mask;
}

struct sim_sum sim_sum(void)
{
	return sum;
}

/* Two of the watched threads use it, and one of them writes. */
bool sim_contested(u64 addr)
{
	const struct line *l = line_of(addr);

	return l->wrote && (l->used & (l->used - 1));
}
