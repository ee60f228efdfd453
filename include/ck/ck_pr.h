/* SPDX-License-Identifier: Apache-2.0 */
/*
 * concurrencykit's atomic operations (ck_pr.h), made of base/atomic.h, for the builds that have
 * to see each access: the simulators and the thread sanitizer.  This folder comes before the
 * system's in their include path, so ck's headers include this file instead of ck's own.  All
 * other builds use ck's.  It has only the operations that the headers in use need.
 *
 * ck's operations are relaxed, and its fences order them.
 *   PAWL_SIM           the same; each access and each fence is a site in ck's header, so the
 *                      mutants remove ck's fences one by one
 *   thread sanitizer   it does not see fences, so each operation has the order that a fence
 *                      beside it would give
 */
#ifndef CK_PR_H
#define CK_PR_H

#include <base/atomic.h>
#include <ck_cc.h>
#include <ck_limits.h>
#include <ck_md.h>
#include <ck_stdbool.h>
#include <ck_stdint.h>

#ifdef PAWL_SIM
#define ck_pr_load_(p)		load_relaxed(p)
#define ck_pr_store_(p, v)	store_relaxed(p, v)
#define ck_pr_xchg_(p, v)	xchg_relaxed(p, v)
#define ck_pr_or_(p, v)		fetch_or_relaxed(p, v)
#define ck_pr_and_(p, v)	fetch_and_relaxed(p, v)
#define ck_pr_cas_(p, old, new)	cas_relaxed(p, old, new)
#define ck_pr_fence_(order)	model_fence(MODEL_SITE(MODEL_FENCE, order, 0))
#else
#define ck_pr_load_(p)		load_acquire(p)
#define ck_pr_store_(p, v)	store_release(p, v)
#define ck_pr_xchg_(p, v)	xchg_acq_rel(p, v)
#define ck_pr_or_(p, v)		fetch_or_acq_rel(p, v)
#define ck_pr_and_(p, v)	fetch_and_acq_rel(p, v)
#define ck_pr_cas_(p, old, new)	cas_acq_rel_acquire(p, old, new)
#define ck_pr_fence_(order)	((void)0)
#endif

#define ck_pr_load_ptr(p)	ck_pr_load_(p)
#define ck_pr_load_uint(p)	ck_pr_load_(p)
#define ck_pr_store_ptr(p, v)	ck_pr_store_(p, v)
#define ck_pr_store_uint(p, v)	ck_pr_store_(p, v)
#define ck_pr_fas_ptr(p, v)	ck_pr_xchg_(p, v)
#define ck_pr_or_uint(p, v)	((void)ck_pr_or_(p, v))
#define ck_pr_and_uint(p, v)	((void)ck_pr_and_(p, v))
#define ck_pr_bts_uint(p, bit)	(ck_pr_or_(p, 1u << (bit)) >> (bit) & 1u)

#define ck_pr_cas_ptr(p, old, new) __extension__ ({					\
	__typeof__(*(p)) old_ = (old);							\
	ck_pr_cas_(p, &old_, new); })
#define ck_pr_cas_ptr_value(p, old, new, was) __extension__ ({				\
	__typeof__(*(p)) old_ = (old);							\
	bool done_ = ck_pr_cas_(p, &old_, new);						\
	*(was) = old_;									\
	done_; })

#define ck_pr_fence_load()		ck_pr_fence_(MODEL_ACQUIRE)
#define ck_pr_fence_store()		ck_pr_fence_(MODEL_RELEASE)
#define ck_pr_fence_store_atomic()	ck_pr_fence_(MODEL_RELEASE)
#define ck_pr_stall()			cpu_relax()

/* ck's headers ask for them. */
#define CK_F_PR_LOAD_UINT
#define CK_F_PR_STORE_UINT
#define CK_F_PR_AND_UINT
#define CK_F_PR_OR_UINT

#endif
