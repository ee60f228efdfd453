/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every atomic access of pawl, with its order in its name; layer 0.
 *
 * Nothing else in the library uses the compiler's atomics, assembly or volatile,
 * so that the same sources build three ways:
 *   production     the compiler's builtins, and CMPXCHG16B (or an exclusive pair)
 *                  for the 16-byte word of a var;
 *   thread sanitizer   the same; the 16-byte access is annotated;
 *   PAWL_MODEL     each access calls model_*() with its site (file, line) and order:
 *                  the controlled scheduler, the weak-memory layer and the mutation
 *                  of orders live there.
 *
 * Plain fields are u32 or u64 (sparse rejects _Atomic(T)).  Orders are carried by
 * the access; smp_mb() is for store-load edges alone and never publishes data.
 */
#ifndef BASE_ATOMIC_H
#define BASE_ATOMIC_H

#include <base/compiler.h>
#if !defined(__x86_64__) && !defined(__aarch64__) && !defined(__s390x__)
#include <time.h>
#endif

#ifdef PAWL_MODEL
#include <base/atomic_model.h>
#else

#define load_relaxed(p)		__atomic_load_n((p), __ATOMIC_RELAXED)
#define load_acquire(p)		__atomic_load_n((p), __ATOMIC_ACQUIRE)
#define load_seq_cst(p)		__atomic_load_n((p), __ATOMIC_SEQ_CST)
#define store_relaxed(p, v)	__atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define store_release(p, v)	__atomic_store_n((p), (v), __ATOMIC_RELEASE)

/* All return the value before. */
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
#define fetch_and_relaxed(p, v)	__atomic_fetch_and((p), (v), __ATOMIC_RELAXED)
#define fetch_and_acq_rel(p, v)	__atomic_fetch_and((p), (v), __ATOMIC_ACQ_REL)

/* Strong.  On failure *old gets what was there, with the second order. */
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

/* Store-load edges only; each use has a picture and a partner. */
#define smp_mb()		__atomic_thread_fence(__ATOMIC_SEQ_CST)

/* In a loop that waits for another thread: tell the core, and the model's scheduler. */
static inline void cpu_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ __volatile__("yield");
#endif
}

/* A cheap clock that all cores share, for order and for budgets; unit: see clock.h. */
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

/*
 * The same, read after all earlier loads have their values, and before anybody sees a later
 * store: who calls it behind another call, in one thread or by an edge between two, gets
 * more.  Dearer.
 */
static inline u64 cycles_ordered(void)
{
#if defined(__x86_64__)
	unsigned int aux;

	/* It ticks several times in any of: a push, a line's way to another core. */
	return __builtin_ia32_rdtscp(&aux);
#else
	u64 now;

#if defined(__aarch64__)
	__asm__ __volatile__("isb" ::: "memory");
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
	/*
	 * Others may tick once in 40 ns, in which two pushes have room.  So this value is over
	 * when it is given out; where the clock is fast, that is so at the second look.
	 */
	now = cycles();
	while (cycles() == now)
		cpu_relax();
	return now;
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

#endif /* !PAWL_MODEL */

/*
 * 16 bytes that change together.  Each half is also an atomic u64 of its own, so a
 * read of the two halves may tear: whoever acts on such a pair proves it by the
 * CAS, or reads `tag` again (tags never repeat).
 */
struct pair {
	u64 tag;
	u64 val;
} __attribute__((aligned(16)));

#ifndef PAWL_MODEL
/*
 * Acquire and release, on success and on failure alike (x86 gives more).  On failure
 * *old gets what was there.  Progress: one instruction on x86-64; elsewhere lock-free
 * where the compiler inlines the 16-byte builtin.
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
	 * The builtin would be a call to libatomic, which may lock.  What differs is written
	 * back: a pair that was loaded is one value only if the store succeeds.
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

	/* As above: the builtin would be a call. */
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

#endif
