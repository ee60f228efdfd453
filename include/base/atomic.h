/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All atomic accesses of pawl; each name states its memory order.  Layer 0.
 *
 * No other file of the library uses the compiler's atomics, assembly or volatile, so the
 * same sources build in three ways:
 *   production         compiler builtins; CMPXCHG16B or an exclusive pair for the 16-byte
 *                      word of a var
 *   thread sanitizer   the same, with annotations for the 16-byte access
 *   PAWL_SIM           each access calls model_*() with its site (file, line) and order.
 *                      tests/model implements them with the controlled scheduler, the
 *                      weak-memory layer and the mutation of orders (with PAWL_MODEL, which
 *                      makes tables small); tests/cores with simulated cores and their caches
 *
 * Atomic fields are declared as plain u32 or u64, since sparse rejects _Atomic(T).  The access
 * itself carries the order; smp_mb() serves store-load edges only and never publishes data.
 */
#ifndef BASE_ATOMIC_H
#define BASE_ATOMIC_H

#include <base/compiler.h>
#if !defined(__x86_64__) && !defined(__aarch64__) && !defined(__s390x__)
#include <time.h>
#endif

#ifdef PAWL_SIM
#include <base/atomic_model.h>
#else

#define load_relaxed(p)		__atomic_load_n((p), __ATOMIC_RELAXED)
#define load_acquire(p)		__atomic_load_n((p), __ATOMIC_ACQUIRE)
#define load_seq_cst(p)		__atomic_load_n((p), __ATOMIC_SEQ_CST)
#define store_relaxed(p, v)	__atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define store_release(p, v)	__atomic_store_n((p), (v), __ATOMIC_RELEASE)

/* All of these return the old value. */
#define xchg_relaxed(p, v)	__atomic_exchange_n((p), (v), __ATOMIC_RELAXED)
#define xchg_acquire(p, v)	__atomic_exchange_n((p), (v), __ATOMIC_ACQUIRE)
#define xchg_release(p, v)	__atomic_exchange_n((p), (v), __ATOMIC_RELEASE)
#define xchg_acq_rel(p, v)	__atomic_exchange_n((p), (v), __ATOMIC_ACQ_REL)
#define xchg_seq_cst(p, v)	__atomic_exchange_n((p), (v), __ATOMIC_SEQ_CST)
#define fetch_add_relaxed(p, v)	__atomic_fetch_add((p), (v), __ATOMIC_RELAXED)
#define fetch_or_relaxed(p, v)	__atomic_fetch_or((p), (v), __ATOMIC_RELAXED)
#define fetch_add_acquire(p, v)	__atomic_fetch_add((p), (v), __ATOMIC_ACQUIRE)
#define fetch_add_release(p, v)	__atomic_fetch_add((p), (v), __ATOMIC_RELEASE)
#define fetch_add_acq_rel(p, v)	__atomic_fetch_add((p), (v), __ATOMIC_ACQ_REL)
#define fetch_add_seq_cst(p, v)	__atomic_fetch_add((p), (v), __ATOMIC_SEQ_CST)
#define fetch_or_release(p, v)	__atomic_fetch_or((p), (v), __ATOMIC_RELEASE)
#define fetch_or_acq_rel(p, v)	__atomic_fetch_or((p), (v), __ATOMIC_ACQ_REL)
#define fetch_or_seq_cst(p, v)	__atomic_fetch_or((p), (v), __ATOMIC_SEQ_CST)
#define fetch_and_relaxed(p, v)	__atomic_fetch_and((p), (v), __ATOMIC_RELAXED)
#define fetch_and_release(p, v)	__atomic_fetch_and((p), (v), __ATOMIC_RELEASE)
#define fetch_and_acq_rel(p, v)	__atomic_fetch_and((p), (v), __ATOMIC_ACQ_REL)

/* Strong.  A failure loads the current value into *old, with the second order. */
#define cas_relaxed(p, old, new)						\
	__atomic_compare_exchange_n((p), (old), (new), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)
#define cas_acquire(p, old, new)						\
	__atomic_compare_exchange_n((p), (old), (new), false, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)
#define cas_acquire_relaxed(p, old, new)					\
	__atomic_compare_exchange_n((p), (old), (new), false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)
#define cas_acq_rel_acquire(p, old, new)					\
	__atomic_compare_exchange_n((p), (old), (new), false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)
#define cas_acq_rel_relaxed(p, old, new)					\
	__atomic_compare_exchange_n((p), (old), (new), false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)
#define cas_release_relaxed(p, old, new)					\
	__atomic_compare_exchange_n((p), (old), (new), false, __ATOMIC_RELEASE, __ATOMIC_RELAXED)
#define cas_seq_cst(p, old, new)						\
	__atomic_compare_exchange_n((p), (old), (new), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)

/* For store-load edges only; a diagram beside each use names its partner. */
#define smp_mb()		__atomic_thread_fence(__ATOMIC_SEQ_CST)
/* The same directly behind a read-modify-write, which on x86 is a barrier itself. */
#if defined(__x86_64__)
#define smp_mb_after_rmw()	__atomic_signal_fence(__ATOMIC_SEQ_CST)
#else
#define smp_mb_after_rmw()	smp_mb()
#endif

/* For loops that wait for another thread: a hint to the core and to the model's scheduler. */
static inline void cpu_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ __volatile__("yield");
#endif
}

/* A cheap clock, shared by all cores, for order and for budgets.  Its unit: exec/clock.c. */
static inline u64 cycles(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	u64 v;

	__asm__ __volatile__("mrs %0, cntvct_el0" : "=r"(v));
	return v;
#elif defined(__s390x__)
	u64 v;

	__asm__ __volatile__("stckf %0" : "=Q"(v) : : "cc");
	return v;
#else
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * 1000000000u + (u64)ts.tv_nsec;
#endif
}

#ifndef __SANITIZE_THREAD__
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif
#endif
#ifdef __SANITIZE_THREAD__
void __tsan_acquire(void *p);
void __tsan_release(void *p);
#endif

#endif /* !PAWL_SIM */

/*
 * 16 bytes that change together.  Each half is also an atomic u64, so reading the two halves
 * may tear.  Code that acts on such a read must validate it by the CAS, or by reading `tag`
 * again (tags never repeat).
 */
struct pair {
	u64 tag;
	u64 val;
} __attribute__((aligned(16)));

#ifndef PAWL_SIM
/*
 * Acquire and release, on success and on failure (x86 is stronger).  A failure loads the
 * current value into *old.  Progress: one instruction on x86-64 and s390x; lock-free
 * elsewhere, if the compiler inlines the 16-byte builtin.
 */
static inline bool pair_cas_acq_rel(struct pair *p, struct pair *old, struct pair new)
{
	bool ok;
#ifdef __SANITIZE_THREAD__
	__tsan_release(p);
#endif
#if defined(__x86_64__)
	__asm__ __volatile__("lock cmpxchg16b %1"
			     : "=@ccz"(ok), "+m"(*p), "+a"(old->tag), "+d"(old->val)
			     : "b"(new.tag), "c"(new.val)
			     : "memory");
#elif defined(__aarch64__)
	u64 tag, val, t, v;
	u32 fail;

	/*
	 * The builtin would call libatomic, which may lock.  On a mismatch the loaded value is
	 * stored back: only a successful store proves that the two loads did not tear.
	 */
	__asm__ __volatile__("1:	ldaxp	%0, %1, %5\n"
			     "	cmp	%0, %6\n"
			     "	ccmp	%1, %7, #0, eq\n"
			     "	csel	%2, %8, %0, eq\n"
			     "	csel	%3, %9, %1, eq\n"
			     "	stlxp	%w4, %2, %3, %5\n"
			     "	cbnz	%w4, 1b"
			     : "=&r"(tag), "=&r"(val), "=&r"(t), "=&r"(v), "=&r"(fail), "+Q"(*p)
			     : "r"(old->tag), "r"(old->val), "r"(new.tag), "r"(new.val)
			     : "cc", "memory");
	ok = tag == old->tag && val == old->val;
	old->tag = tag;
	old->val = val;
#elif defined(__s390x__)
	__extension__ typedef unsigned __int128 u128;
	union { struct pair s; u128 w; } o = { .s = *old }, n = { .s = new };

	/* As above: the builtin would call libatomic. */
	__asm__ __volatile__("cdsg %0, %2, %1"
			     : "+d"(o.w), "+Q"(*p) : "d"(n.w) : "cc", "memory");
	ok = o.s.tag == old->tag && o.s.val == old->val;
	*old = o.s;
#else
	__extension__ typedef unsigned __int128 u128;
	union { struct pair s; u128 w; } o = { .s = *old }, n = { .s = new };

	ok = __atomic_compare_exchange_n((u128 *)p, &o.w, n.w, false,
					 __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
	*old = o.s;
#endif
#ifdef __SANITIZE_THREAD__
	__tsan_acquire(p);
#endif
	return ok;
}
#endif

/*
 * Write to a page without a change, so that no page fault comes later; others may write, too.
 * Clang makes an addition of 0 a load.  If the compare-and-swap fails, another thread has written.
 */
static inline void page_touch(void *page)
{
	u32 *p = page, v = load_relaxed(p);

	cas_relaxed(p, &v, v);
}

#endif
