/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RCU; the only file that uses liburcu (memb flavour, 0.13).
 *
 * Purpose: free memory that is not type-stable (the rings of a trace) after the last
 * reader that may hold it has left; wait until readers have left (pool_rcu_wait()).
 *
 * Structures: a list of deferred objects, linked through the objects themselves, and
 * pool_rcu_reclaim(), which takes the list, waits for one grace period and runs the functions.
 * There is no background thread, and liburcu's call_rcu() is not used: it aborts when memory or
 * threads are exhausted, takes mutexes and allocates.  A thread that has deferred something
 * calls pool_rcu_reclaim() where it may block.
 *
 * Ordering: POOL-R1 <-> POOL-R2 (list).  liburcu's grace period orders readers before the
 * functions; readers load the pointer with acquire, and the pointer to an object is removed
 * before the object is deferred.  The thread sanitizer does not know liburcu's order:
 * POOL-R3 <-> POOL-R4 make it known.
 *
 * Progress: this file has no lock, but liburcu has two mutexes, one for its list of readers and
 * one for grace periods.  They are taken only when a thread is registered (its first section:
 * the first event of a trace, which allocates as well), when it ends, and in reclaim.  So the
 * first lock of a thread is blocking, and so is reclaim, whose purpose is to wait for readers.
 * All other locks and unlocks are wait-free; unlock makes a system call if a grace period waits
 * for it.  defer is lock-free and neither allocates nor waits.  A stopped reader delays only
 * reclaims; a stopped reclaim delays other reclaims and, while it holds liburcu's list, threads
 * that begin or end.
 *
 * Lifetime: readers may access a deferred object until its function runs.  A thread is
 * unregistered when it ends, by a key's destructor; if the process has no key left, it is
 * registered for the length of each outermost section instead.  A thread that never locks is
 * never registered.
 *
 * Fork: the child has the registrations of the other threads but not the threads, and liburcu
 * cannot drop them; and a thread that was inside liburcu may have left a mutex locked forever.
 * `users` counts both.  If it is not 0, the child no longer calls liburcu: lock and unlock only
 * count, and deferred objects are never freed (reclaim returns at once), until the child ends
 * or calls exec.  Neither the parent nor its threads wait.
 *
 * The count can be trusted because the child's memory contains everything that each thread did
 * up to some step, and nothing after it: a thread that accesses a page which fork has already
 * copied either still shares it with the child or stops until fork has returned.  A thread
 * counts itself before it takes one of liburcu's mutexes and until it has released it, so a
 * child with a locked mutex also has the count.
 *
 * References: Desnoyers et al., "User-level implementations of read-copy update",
 * IEEE TPDS 23(2), 2012; liburcu 0.13 doc/rcu-api.md.
 */
#include <pool/pool.h>

static ck_stack_t deferred;	/* the newest first */
CK_STACK_CONTAINER(struct rcu_defer, link, defer_of)

#ifdef PAWL_SIM

/*
 * The simulators' implementation: sections are counted, and a grace period ends when the count is
 * 0.  Both sides change the same word, so either the reader is later and sees what was removed
 * before, or it is counted.
 */
static u64 readers;		/* A */

void pool_rcu_lock(void)
{
	fetch_add_acquire(&readers, 1);	/* POOL-R9 <-> POOL-R8 */
}

void pool_rcu_unlock(void)
{
	fetch_add_release(&readers, (u64)-1);	/* POOL-R5 <-> POOL-R8 */
}

static bool grace_works(void)
{
	return true;
}

static void grace_period(void)
{
	while (fetch_add_acq_rel(&readers, 0))	/* POOL-R8 <-> POOL-R5, POOL-R9 */
		cpu_relax();
}

#else /* !PAWL_SIM */

#include <pthread.h>
#if defined(__has_include) && !__has_include(<urcu/urcu-memb.h>)
#error "liburcu's headers are missing: run make setup, or install liburcu-dev"
#endif
#include <urcu/urcu-memb.h>
#include <urcu/static/urcu-memb.h>
/*
 * liburcu's inline functions for readers look up the thread's reader at each call, with the
 * TLS model of libpawl's own thread-local variables: in the space that a program reserves at
 * its start.  The rest of that space is not aligned enough for liburcu's variable, so dlopen()
 * would refuse to load libpawl.  Therefore reader_lock() and reader_unlock() below take the
 * reader's address, which is looked up once per thread, with the TLS model that always works.
 */
extern __thread struct urcu_reader urcu_memb_reader
	__attribute__((tls_model("global-dynamic")));

/* A: threads inside calls of liburcu that take its mutexes, and registered threads */
static u64 users;

#define USER_INSIDE	(1ull << 32)
#define USER_READER	1ull

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;	/* I: by once */
static bool have_key;		/* I: by once */
static bool orphaned;		/* this child of fork must not call liburcu */

/*
 * O: liburcu's reader of this thread, if it is registered until the thread ends; else NULL,
 * and the slow functions are called.
 */
static __thread struct urcu_reader *self;
static __thread u32 depth;	/* O: nesting while self is NULL */

#ifdef __SANITIZE_THREAD__
static char gp_sync;		/* represents the order of grace periods */
#define tsan_release(p)	__tsan_release(p)
#define tsan_acquire(p)	__tsan_acquire(p)
#else
#define tsan_release(p)	((void)0)
#define tsan_acquire(p)	((void)0)
#endif

/* POOL-R7 <-> POOL-R6.  The open sections of the child's only thread are now only counted. */
static void fork_child(void)
{
	if (load_acquire(&users) == (self || depth ? USER_READER : 0))
		return;
	orphaned = true;
	if (self)
		depth = self->ctr & URCU_GP_CTR_NEST_MASK;
	self = NULL;
}

/* POOL-R6 <-> POOL-R7: counted before liburcu's mutex is taken and until it is released. */
static void urcu_enter(void)
{
	fetch_add_seq_cst(&users, USER_INSIDE);
}

static void urcu_leave(u64 readers)
{
	fetch_add_seq_cst(&users, readers - USER_INSIDE);	/* POOL-R6 <-> POOL-R7 */
}

/* Progress: blocking (liburcu's mutex). */
static void reader_leave(void)
{
	urcu_enter();
	urcu_memb_unregister_thread();
	urcu_leave(-USER_READER);
}

/* The destructor of the key.  If a later destructor locks again, this one runs again. */
static void thread_exit(void *arg)
{
	if (self)
		reader_leave();
	self = NULL;
}

static void once_init(void)
{
	have_key = !pthread_key_create(&key, thread_exit);
	/* Without memory for the handler, fork is as unsafe as with liburcu alone. */
	if (pthread_atfork(NULL, NULL, fork_child))
		return;
}

/* The library may be unloaded while threads exist: they must not call its destructor. */
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
	/* A value other than NULL makes the destructor run. */
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
 * As urcu_memb_read_lock() and urcu_memb_read_unlock().  Where membarrier(2) is available,
 * these barriers stop only the compiler: a grace period makes the kernel execute them for all
 * readers.
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
	/* Inner sections need neither the barriers nor the check, which are harmless there. */
	urcu_memb_smp_mb_slave();
	store_relaxed(&r->ctr, ctr - URCU_GP_COUNT);
	urcu_memb_smp_mb_slave();
	if (unlikely(load_relaxed(&urcu_memb_gp.futex) == -1))
		wake_grace_period();
}

/* The thread's first section; or any section in a child without liburcu, or without a key. */
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

/* True inside a section; for assertions. */
static inline bool reading(void)
{
	return self ? self->ctr & URCU_GP_CTR_NEST_MASK : depth;
}

/* False if this process must not call liburcu. */
static bool grace_works(void)
{
	BUG_ON1(reading());
	/* The fork handler must be registered before any of liburcu's mutexes is taken. */
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

#endif /* !PAWL_SIM */

/*
 * Progress: lock-free; no allocation, no wait, no system call.
 * Lifetime: d belongs to the list until fn(d) runs, inside some pool_rcu_reclaim().
 * ABA: the list is taken as a whole, so a head with the same value has the same meaning.
 */
void pool_rcu_defer(struct rcu_defer *d, void (*fn)(struct rcu_defer *))
{
	d->fn = fn;
	/* POOL-R1 <-> POOL-R2: the object, then the head of the list. */
	ck_stack_push_upmc(&deferred, &d->link);
}

/* Reverse the list: the oldest first. */
static ck_stack_entry_t *reversed(ck_stack_entry_t *d)
{
	ck_stack_entry_t *list = NULL, *next;

	for (; d; d = next) {
		next = d->next;
		d->next = list;
		list = d;
	}
	return list;
}

/* Progress: blocking, as pool_rcu_reclaim(). */
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
	ck_stack_entry_t *d, *next;

	if (!grace_works())
		return false;
	/* POOL-R2 <-> POOL-R1 */
	d = ck_stack_batch_pop_upmc(&deferred);
	if (!d)
		return true;
	if (!BUSTED(NO_GRACE))
		grace_period();
	for (d = reversed(d); d; d = next) {
		/* The function frees d. */
		next = d->next;
		defer_of(d)->fn(defer_of(d));
	}
	return true;
}
