/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RCU; the only file that knows liburcu (memb flavour, 0.13).
 *
 * Purpose: free memory that is not type-stable (the rings of a trace) after the last
 * reader that may hold it has left; wait until readers have left (pool_rcu_wait()).
 *
 * Structures: a list of deferred objects, linked through the objects themselves, and
 * pool_rcu_reclaim(), which takes the list, waits for one grace period and runs the
 * functions.  There is no thread of our own, and liburcu's call_rcu() is not used: it
 * aborts when memory or threads are out, takes mutexes and allocates.  Whoever has
 * deferred something calls pool_rcu_reclaim() where it may block.
 *
 * Ordering: POOL-R1 <-> POOL-R2 (list).  Between readers and the functions, liburcu's
 * grace period; readers load the pointer with acquire, and whoever defers an object
 * has removed the pointer to it before.  The sanitizer cannot see into liburcu:
 * POOL-R3 <-> POOL-R4 tell it.
 *
 * Progress: no lock here, but liburcu has two mutexes, one for its list of readers and
 * one for grace periods.  They are taken when a thread is registered (its first section:
 * the first event of a trace, which allocates as well), when it ends, and in reclaim; on
 * no other path.  So the first lock of a thread is blocking, and so is reclaim, whose
 * purpose is to wait for readers.  All other locks and unlocks are wait-free; unlock
 * makes a system call if a grace period waits for it.  defer lock-free: no allocation,
 * no wait.  A stopped reader delays reclaims alone; a stopped reclaim delays other
 * reclaims and, while it has liburcu's list, threads that begin or end.
 *
 * Lifetime: a deferred object may be touched by readers until its function runs.  A
 * thread is unregistered when it ends, by a key's destructor; if there is no key left
 * in the process, it is registered for the length of each outermost section instead.
 * A thread that never locks is never registered.
 *
 * Fork: the child has the other threads' registrations but not the threads, and liburcu
 * has no way to drop them; and one of its mutexes may be locked for good, by a thread
 * that was in there.  `users` counts both.  If there were any, the child no longer calls
 * liburcu: lock and unlock only count, and nothing deferred is ever freed (reclaim
 * returns at once).  That leaks what was deferred, until the child ends or calls exec.
 * The parent does not wait, nor do its threads.
 *
 * The count can be trusted because a child's memory has, of each thread, everything up
 * to some step and nothing after it: a thread that meets a page which fork has already
 * gone through either still shares it with the child or stops until fork is over.  A
 * thread counts itself before it takes one of liburcu's mutexes and is counted until it
 * has let it go, so that a child that has the locked mutex has the count.
 *
 * References: Desnoyers et al., "User-level implementations of read-copy update",
 * IEEE TPDS 23(2), 2012; liburcu 0.13 doc/rcu-api.md.
 */
#include <pool/pool.h>

static u64 deferred;		/* A: struct rcu_defer *, the newest first */

#ifdef PAWL_MODEL

/*
 * The model's back end: sections are counted, a grace period ends when there is none.
 * POOL-R5 <-> POOL-R5: both sides change the same word, so either the reader comes
 * later and sees what was removed before, or it is counted.
 */
static u64 readers;		/* A */

void pool_rcu_lock(void)
{
	fetch_add_acquire(&readers, 1);
}

void pool_rcu_unlock(void)
{
	fetch_add_release(&readers, (u64)-1);
}

static bool grace_works(void)
{
	return true;
}

static void grace_period(void)
{
	while (fetch_add_acq_rel(&readers, 0))
		cpu_relax();
}

#else /* !PAWL_MODEL */

#include <pthread.h>
#if defined(__has_include) && !__has_include(<urcu/urcu-memb.h>)
#error "liburcu's headers are missing: run make setup, or install liburcu-dev"
#endif
#include <urcu/urcu-memb.h>
#include <urcu/static/urcu-memb.h>
/*
 * Its inline functions for readers would find the reader of the thread anew each time, and
 * as libpawl's own thread-local variables are found: in space that the program sets aside
 * when it starts.  What is left of that space is not aligned enough for liburcu's variable,
 * so dlopen() would refuse to load libpawl.  Below they are written again with the reader's
 * address, which is asked for once per thread, in the way that works at any time.
 */
extern __thread struct urcu_reader urcu_memb_reader __attribute__((tls_model("global-dynamic")));

/* A: threads inside calls of liburcu that take its mutexes, and registered threads */
static u64 users;

#define USER_INSIDE	(1ull << 32)
#define USER_READER	1ull

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;	/* I: by once */
static bool have_key;		/* I: by once */
static bool orphaned;		/* a child of fork that leaves liburcu alone; set in the handler */

/*
 * O: liburcu's reader of this thread, if it is registered until the thread ends; else NULL,
 * and the slow functions are called.
 */
static __thread struct urcu_reader *self;
static __thread u32 depth;	/* O: nesting while self is NULL */

#ifdef __SANITIZE_THREAD__
static char gp_sync;		/* stands for "a grace period" */
#define tsan_release(p)	__tsan_release(p)
#define tsan_acquire(p)	__tsan_acquire(p)
#else
#define tsan_release(p)	((void)0)
#define tsan_acquire(p)	((void)0)
#endif

/* POOL-R7 <-> POOL-R6: the only thread there is.  Sections that it is in are only counted. */
static void fork_child(void)
{
	if (load_acquire(&users) == (self || depth ? USER_READER : 0))
		return;
	orphaned = true;
	if (self)
		depth = self->ctr & URCU_GP_CTR_NEST_MASK;
	self = NULL;
}

/* POOL-R6 <-> POOL-R7: counted before liburcu's mutex is taken, and until it is free. */
static void urcu_enter(void)
{
	fetch_add_seq_cst(&users, USER_INSIDE);
}

static void urcu_leave(u64 readers)
{
	fetch_add_seq_cst(&users, readers - USER_INSIDE);
}

/* Progress: blocking (liburcu's mutex). */
static void reader_leave(void)
{
	urcu_enter();
	urcu_memb_unregister_thread();
	urcu_leave(-USER_READER);
}

/* The destructor of the key.  A later destructor may lock again: then it runs again. */
static void thread_exit(void *arg)
{
	if (self)
		reader_leave();
	self = NULL;
}

static void once_init(void)
{
	have_key = !pthread_key_create(&key, thread_exit);
	/* Without memory for the handler, a fork is as unsafe as liburcu's own. */
	if (pthread_atfork(NULL, NULL, fork_child))
		return;
}

/* The library may be unloaded while threads live: their destructor goes with it. */
__attribute__((destructor)) static void rcu_fini(void)
{
	if (have_key)
		pthread_key_delete(key);
	have_key = false;
}

/* Progress: blocking (liburcu's mutex; the key's value may allocate). */
static void reader_enter(void)
{
	bool until_exit;

	pthread_once(&once, once_init);
	/* Any value but NULL makes the destructor run. */
	until_exit = have_key && !pthread_setspecific(key, &key);
	urcu_enter();
	urcu_memb_register_thread();
	if (until_exit)
		self = &urcu_memb_reader;
	else
		depth = 1;
	urcu_leave(USER_READER);
}

/*
 * As urcu_memb_read_lock() and urcu_memb_read_unlock().  The barriers are for the compiler
 * alone where the kernel makes them for readers when a grace period needs them, see
 * membarrier(2).
 */
static inline void reader_lock(struct urcu_reader *r)
{
	unsigned long ctr = load_relaxed(&r->ctr);

	if (unlikely(ctr & URCU_GP_CTR_NEST_MASK)) {
		store_relaxed(&r->ctr, ctr + URCU_GP_COUNT);
		return;
	}
	store_relaxed(&r->ctr, load_relaxed(&urcu_memb_gp.ctr));
	urcu_memb_smp_mb_slave();
}

static __cold void wake_grace_period(void)
{
	store_relaxed(&urcu_memb_gp.futex, 0);
	futex_async(&urcu_memb_gp.futex, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static inline void reader_unlock(struct urcu_reader *r)
{
	unsigned long ctr = load_relaxed(&r->ctr);

	BUG_ON1(!(ctr & URCU_GP_CTR_NEST_MASK));
	/* Inner sections need neither the barriers nor the check: they do no harm. */
	urcu_memb_smp_mb_slave();
	store_relaxed(&r->ctr, ctr - URCU_GP_COUNT);
	urcu_memb_smp_mb_slave();
	if (unlikely(load_relaxed(&urcu_memb_gp.futex) == -1))
		wake_grace_period();
}

/* The thread's first section; any in a child that leaves liburcu alone; or without a key. */
static __cold void lock_slow(void)
{
	if (orphaned || depth) {
		depth++;
		return;
	}
	reader_enter();
	reader_lock(&urcu_memb_reader);
}

static __cold void unlock_slow(void)
{
	BUG_ON1(!depth);
	depth--;
	if (orphaned || depth)
		return;
	reader_unlock(&urcu_memb_reader);
	reader_leave();
}

/* Progress: wait-free; blocking on the first call of a thread. */
void pool_rcu_lock(void)
{
	if (likely(self))
		reader_lock(self);
	else
		lock_slow();
}

/* Progress: wait-free; a system call if a grace period waits for this reader. */
void pool_rcu_unlock(void)
{
	/* POOL-R3 <-> POOL-R4: what the section read, before the functions run. */
	tsan_release(&gp_sync);
	if (likely(self))
		reader_unlock(self);
	else
		unlock_slow();
}

/* Inside a section?  For the checks. */
static inline bool reading(void)
{
	return self ? self->ctr & URCU_GP_CTR_NEST_MASK : depth;
}

/* Are there grace periods in this process? */
static bool grace_works(void)
{
	BUG_ON1(reading());
	/* The fork handler must be there before the first of liburcu's mutexes is taken. */
	pthread_once(&once, once_init);
	return !orphaned;
}

/* Progress: blocking (readers, liburcu's mutexes). */
static void grace_period(void)
{
	urcu_enter();
	urcu_memb_synchronize_rcu();
	urcu_leave(0);
	/* POOL-R4 <-> POOL-R3 */
	tsan_acquire(&gp_sync);
}

#endif /* !PAWL_MODEL */

/*
 * Progress: lock-free; no allocation, no wait, no system call.
 * Lifetime: d belongs to the list until fn(d) runs, inside some pool_rcu_reclaim().
 * ABA: the list is taken as a whole, so a head that came back means what it meant.
 */
void pool_rcu_defer(struct rcu_defer *d, void (*fn)(struct rcu_defer *))
{
	u64 old = load_relaxed(&deferred);

	d->fn = fn;
	do {
		d->next = (struct rcu_defer *)(uintptr_t)old;
		/* POOL-R1 <-> POOL-R2: the object, then its place on the list. */
	} while (!cas_release_relaxed(&deferred, &old, (u64)(uintptr_t)d));
}

/* The list as it was deferred: the oldest first. */
static struct rcu_defer *reversed(struct rcu_defer *d)
{
	struct rcu_defer *list = NULL, *next;

	for (; d; d = next) {
		next = d->next;
		d->next = list;
		list = d;
	}
	return list;
}

/* Progress: blocking, as reclaim. */
bool pool_rcu_wait(void)
{
	if (!grace_works())
		return false;
	grace_period();
	return true;
}

/*
 * Progress: blocking (readers; others' grace periods).  Not inside a read section, nor
 * in a deferred function.
 */
bool pool_rcu_reclaim(void)
{
	struct rcu_defer *d, *next;

	if (!grace_works())
		return false;
	/* POOL-R2 <-> POOL-R1 */
	d = (struct rcu_defer *)(uintptr_t)xchg_acquire(&deferred, (u64)0);
	if (!d)
		return true;
	if (!BUSTED(NO_GRACE))
		grace_period();
	for (d = reversed(d); d; d = next) {
		/* The function frees d. */
		next = d->next;
		d->fn(d);
	}
	return true;
}
