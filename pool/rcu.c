/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RCU; the only file that knows liburcu (memb flavour, 0.13).
 *
 * Purpose: free memory that is not type-stable (the rings of a trace) after the last
 * reader that may hold it has left.
 *
 * Structures: a list of deferred objects, linked through the objects themselves, and
 * pool_rcu_barrier(), which takes the list, waits for one grace period and runs the
 * functions.  There is no thread of our own, and liburcu's call_rcu() is not used: it
 * aborts when memory or threads are out, takes mutexes and allocates.  Whoever owns
 * the deferred memory calls the barrier where it may block.
 *
 * Ordering: POOL-R1 <-> POOL-R2 (list).  Between readers and the functions, liburcu's
 * grace period; readers load the pointer with acquire, and whoever defers an object
 * has removed the pointer to it before.  The sanitizer cannot see into liburcu:
 * POOL-R3 <-> POOL-R4 tell it.
 *
 * Progress: lock and unlock wait-free, but for the first lock of a thread, which takes
 * mutexes to register it (blocking); unlock makes a system call if a grace period waits
 * for it.  defer lock-free: no allocation, no wait.  barrier blocking: it waits for the
 * readers.  A stopped reader delays barriers alone.
 *
 * Lifetime: a deferred object may be touched by readers until its function runs.  A
 * thread is unregistered when it ends, by a key's destructor; if there is no key left
 * in the process, it is registered for the length of each outermost section instead.
 * A thread that never locks is never registered.
 *
 * Fork: the locks below are held across it, so liburcu's are free in the child.  The
 * child has the other threads' registrations but not the threads, and liburcu has no
 * way to drop them.  If there were any, the child no longer calls liburcu: lock and
 * unlock do nothing, and nothing deferred is ever freed (a barrier returns at once).
 * That leaks what was deferred, until the child ends or calls exec.  No fork inside a
 * read section: it may wait for a grace period.
 *
 * References: Desnoyers et al., "User-level implementations of read-copy update",
 * IEEE TPDS 23(2), 2012; liburcu 0.13 doc/rcu-api.md.
 */
#include <pool/pool.h>

static u64 deferred;		/* A: struct rcu_defer *, the newest first */

#ifdef PAWL_MODEL

/*
 * The model's back end: sections are counted, the barrier waits until there is none.
 * POOL-R5 <-> POOL-R5: both sides change the same word, so either the reader comes
 * later and sees what the barrier's caller removed, or it is counted.
 */
static u64 readers;		/* A */
static u64 barriers;		/* A: a lock, 1 while a barrier runs */

void pool_rcu_lock(void)
{
	fetch_add_seq_cst(&readers, 1);
}

void pool_rcu_unlock(void)
{
	fetch_add_seq_cst(&readers, (u64)-1);
}

static bool barrier_begin(void)
{
	while (xchg_seq_cst(&barriers, 1))
		cpu_relax();
	return true;
}

static void barrier_end(void)
{
	store_release(&barriers, 0);
}

static void grace_period(void)
{
	while (fetch_add_seq_cst(&readers, 0))
		cpu_relax();
}

#else /* !PAWL_MODEL */

#include <pthread.h>
#include <urcu/urcu-memb.h>

/*
 * reg_lock: around (un)registration.  barrier_lock: one barrier at a time, so that the
 * next one finds all functions of the last one done.  Order: barrier_lock, reg_lock.
 */
static pthread_mutex_t barrier_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t reg_lock = PTHREAD_MUTEX_INITIALIZER;
static u32 registered;		/* W(reg_lock): threads */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;	/* I: by once */
static bool have_key;		/* I: by once */
static bool orphaned;		/* a child of fork that has no grace periods; set while alone */

enum { RCU_NONE, RCU_THREAD, RCU_SECTION };

static __thread u32 state;	/* O: registered: not, until the thread ends, for a section */
static __thread u32 depth;	/* O: nesting, for RCU_SECTION and for the checks */

#ifdef __SANITIZE_THREAD__
static char gp_sync;		/* stands for "a grace period" */
#define tsan_release(p)	__tsan_release(p)
#define tsan_acquire(p)	__tsan_acquire(p)
#else
#define tsan_release(p)	((void)0)
#define tsan_acquire(p)	((void)0)
#endif

static void fork_prepare(void)
{
	pthread_mutex_lock(&barrier_lock);
	pthread_mutex_lock(&reg_lock);
}

static void fork_parent(void)
{
	pthread_mutex_unlock(&reg_lock);
	pthread_mutex_unlock(&barrier_lock);
}

static void fork_child(void)
{
	if (registered != (state != RCU_NONE))
		orphaned = true;
	fork_parent();
}

/* Progress: blocking (mutexes). */
static void reader_leave(void)
{
	if (!orphaned) {
		pthread_mutex_lock(&reg_lock);
		urcu_memb_unregister_thread();
		registered--;
		pthread_mutex_unlock(&reg_lock);
	}
	state = RCU_NONE;
}

/* The destructor of the key.  A later destructor may lock again: then it runs again. */
static void thread_exit(void *arg)
{
	if (state == RCU_THREAD)
		reader_leave();
}

static void once_init(void)
{
	have_key = !pthread_key_create(&key, thread_exit);
	/* Without memory for the handlers, a fork is as unsafe as liburcu's own. */
	if (pthread_atfork(fork_prepare, fork_parent, fork_child))
		return;
}

/* The library may be unloaded while threads live: their destructor goes with it. */
__attribute__((destructor)) static void rcu_fini(void)
{
	if (have_key)
		pthread_key_delete(key);
	have_key = false;
}

/* Progress: blocking (mutexes; the key's value may allocate). */
static __cold void reader_enter(void)
{
	u32 how = RCU_SECTION;

	pthread_once(&once, once_init);
	/* Any value but NULL makes the destructor run. */
	if (have_key && !pthread_setspecific(key, &key))
		how = RCU_THREAD;
	pthread_mutex_lock(&reg_lock);
	urcu_memb_register_thread();
	registered++;
	pthread_mutex_unlock(&reg_lock);
	state = how;
}

/* Progress: wait-free; blocking on the first call of a thread. */
void pool_rcu_lock(void)
{
	if (unlikely(orphaned)) {
		depth++;
		return;
	}
	if (unlikely(state == RCU_NONE))
		reader_enter();
	depth++;
	urcu_memb_read_lock();
}

/* Progress: wait-free; a system call if a grace period waits for this reader. */
void pool_rcu_unlock(void)
{
	BUG_ON1(!depth);
	depth--;
	if (unlikely(orphaned))
		return;
	/* POOL-R3 <-> POOL-R4: what the section read, before the functions run. */
	tsan_release(&gp_sync);
	urcu_memb_read_unlock();
	if (unlikely(state == RCU_SECTION && !depth))
		reader_leave();
}

static bool barrier_begin(void)
{
	BUG_ON1(depth);
	/* The fork handlers must be there before the first lock is taken. */
	pthread_once(&once, once_init);
	pthread_mutex_lock(&barrier_lock);
	if (!orphaned)
		return true;
	pthread_mutex_unlock(&barrier_lock);
	return false;
}

static void barrier_end(void)
{
	pthread_mutex_unlock(&barrier_lock);
}

static void grace_period(void)
{
	urcu_memb_synchronize_rcu();
	/* POOL-R4 <-> POOL-R3 */
	tsan_acquire(&gp_sync);
}

#endif /* !PAWL_MODEL */

/*
 * Progress: lock-free; no allocation, no wait, no system call.
 * Lifetime: d belongs to the list until fn(d) runs, inside some pool_rcu_barrier().
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

/* Progress: wait-free. */
bool pool_rcu_pending(void)
{
	return load_relaxed(&deferred) != 0;
}

/*
 * Progress: blocking (readers, other barriers).  Not inside a read section, nor in a
 * deferred function.
 */
void pool_rcu_barrier(void)
{
	struct rcu_defer *d, *next, *list = NULL;

	if (!barrier_begin())
		return;
	/* POOL-R2 <-> POOL-R1 */
	d = (struct rcu_defer *)(uintptr_t)xchg_acq_rel(&deferred, (u64)0);
	if (d) {
		grace_period();
		/* The oldest first. */
		for (; d; d = next) {
			next = d->next;
			d->next = list;
			list = d;
		}
		for (d = list; d; d = next) {
			/* The function frees d. */
			next = d->next;
			d->fn(d);
		}
	}
	barrier_end();
}
