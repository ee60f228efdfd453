/* SPDX-License-Identifier: Apache-2.0 */
/*
 * atomic.h for the model.  Every access is a call that names its site, so that a scheduler
 * can run another thread before it, a weak-memory layer can return an older value, and the
 * order can be weakened at run time.  Layer 0; tests/model implements the calls.
 */
#ifndef BASE_ATOMIC_MODEL_H
#define BASE_ATOMIC_MODEL_H

#include <base/compiler.h>

enum model_kind { MODEL_LOAD, MODEL_STORE, MODEL_XCHG, MODEL_ADD, MODEL_OR, MODEL_AND, MODEL_CAS,
		  MODEL_PAIR_CAS, MODEL_FENCE };
enum model_order { MODEL_RELAXED = 0, MODEL_ACQUIRE = 1, MODEL_RELEASE = 2, MODEL_ACQ_REL = 3,
		   MODEL_SEQ_CST = 7 };

/* One access in the sources.  An inline function has one site per file that includes it. */
struct model_site {
	const char *file, *func;
	u32 line;
	u8 kind;
	u8 order, fail;		/* the orders in effect, weakened or not */
	u8 strong;		/* if weakened: 0x80 | the order in the sources | fail << 3 */
	u64 hits;
} __attribute__((aligned(32)));

u64 model_load(struct model_site *s, const void *p, u32 size);
void model_store(struct model_site *s, void *p, u32 size, u64 v);
/* Exchange, add, or, and; returns the old value. */
u64 model_rmw(struct model_site *s, void *p, u32 size, u64 v);
/* Strong; a failure loads the current value into *old. */
bool model_cas(struct model_site *s, void *p, u32 size, void *old, u64 v);
bool model_pair_cas(struct model_site *s, u64 *p, u64 *old, const u64 *v);
void model_fence(struct model_site *s);
void model_relax(void);
u64 model_cycles(void);

#define MODEL_SITE(k, o, f) __extension__ ({						\
	static struct model_site site_ __attribute__((section("model_sites"))) =	\
		{ __FILE__, __func__, __LINE__, (k), (o), (f), 0, 0 };			\
	&site_; })

#define MODEL_LOAD_(p, o)								\
	((__typeof__(*(p)))model_load(MODEL_SITE(MODEL_LOAD, o, 0), (p), sizeof(*(p))))
#define MODEL_STORE_(p, v, o) __extension__ ({						\
	__typeof__(*(p)) v_ = (v);							\
	model_store(MODEL_SITE(MODEL_STORE, o, 0), (p), sizeof(*(p)), (u64)v_); })
#define MODEL_RMW_(k, p, v, o)								\
	((__typeof__(*(p)))model_rmw(MODEL_SITE(k, o, 0), (p), sizeof(*(p)), (u64)(v)))
#define MODEL_CAS_(p, old, new, o, f)							\
	model_cas(MODEL_SITE(MODEL_CAS, o, f), (p), sizeof(*(p)), (old), (u64)(new))

#define load_relaxed(p)		MODEL_LOAD_(p, MODEL_RELAXED)
#define load_acquire(p)		MODEL_LOAD_(p, MODEL_ACQUIRE)
#define load_seq_cst(p)		MODEL_LOAD_(p, MODEL_SEQ_CST)
#define store_relaxed(p, v)	MODEL_STORE_(p, v, MODEL_RELAXED)
#define store_release(p, v)	MODEL_STORE_(p, v, MODEL_RELEASE)
#define xchg_relaxed(p, v)	MODEL_RMW_(MODEL_XCHG, p, v, MODEL_RELAXED)
#define xchg_acquire(p, v)	MODEL_RMW_(MODEL_XCHG, p, v, MODEL_ACQUIRE)
#define xchg_release(p, v)	MODEL_RMW_(MODEL_XCHG, p, v, MODEL_RELEASE)
#define xchg_acq_rel(p, v)	MODEL_RMW_(MODEL_XCHG, p, v, MODEL_ACQ_REL)
#define xchg_seq_cst(p, v)	MODEL_RMW_(MODEL_XCHG, p, v, MODEL_SEQ_CST)
#define fetch_add_relaxed(p, v)	MODEL_RMW_(MODEL_ADD, p, v, MODEL_RELAXED)
#define fetch_or_relaxed(p, v)	MODEL_RMW_(MODEL_OR, p, v, MODEL_RELAXED)
#define fetch_add_acquire(p, v)	MODEL_RMW_(MODEL_ADD, p, v, MODEL_ACQUIRE)
#define fetch_add_release(p, v)	MODEL_RMW_(MODEL_ADD, p, v, MODEL_RELEASE)
#define fetch_add_acq_rel(p, v)	MODEL_RMW_(MODEL_ADD, p, v, MODEL_ACQ_REL)
#define fetch_add_seq_cst(p, v)	MODEL_RMW_(MODEL_ADD, p, v, MODEL_SEQ_CST)
#define fetch_or_release(p, v)	MODEL_RMW_(MODEL_OR, p, v, MODEL_RELEASE)
#define fetch_or_acq_rel(p, v)	MODEL_RMW_(MODEL_OR, p, v, MODEL_ACQ_REL)
#define fetch_or_seq_cst(p, v)	MODEL_RMW_(MODEL_OR, p, v, MODEL_SEQ_CST)
#define fetch_and_relaxed(p, v)	MODEL_RMW_(MODEL_AND, p, v, MODEL_RELAXED)
#define fetch_and_release(p, v)	MODEL_RMW_(MODEL_AND, p, v, MODEL_RELEASE)
#define fetch_and_acq_rel(p, v)	MODEL_RMW_(MODEL_AND, p, v, MODEL_ACQ_REL)
#define cas_relaxed(p, old, new)	 MODEL_CAS_(p, old, new, MODEL_RELAXED, MODEL_RELAXED)
#define cas_acquire(p, old, new)	 MODEL_CAS_(p, old, new, MODEL_ACQUIRE, MODEL_ACQUIRE)
#define cas_acquire_relaxed(p, old, new) MODEL_CAS_(p, old, new, MODEL_ACQUIRE, MODEL_RELAXED)
#define cas_acq_rel_acquire(p, old, new) MODEL_CAS_(p, old, new, MODEL_ACQ_REL, MODEL_ACQUIRE)
#define cas_acq_rel_relaxed(p, old, new) MODEL_CAS_(p, old, new, MODEL_ACQ_REL, MODEL_RELAXED)
#define cas_release_relaxed(p, old, new) MODEL_CAS_(p, old, new, MODEL_RELEASE, MODEL_RELAXED)
#define cas_seq_cst(p, old, new)	 MODEL_CAS_(p, old, new, MODEL_SEQ_CST, MODEL_SEQ_CST)
#define pair_cas_acq_rel(p, o, n) __extension__ ({					\
	struct pair n_ = (n);								\
	model_pair_cas(MODEL_SITE(MODEL_PAIR_CAS, MODEL_ACQ_REL, MODEL_ACQUIRE), &(p)->tag, \
		       &(o)->tag, &n_.tag); })
#define smp_mb()		model_fence(MODEL_SITE(MODEL_FENCE, MODEL_SEQ_CST, 0))
#define smp_mb_after_rmw()	model_fence(MODEL_SITE(MODEL_FENCE, MODEL_SEQ_CST, 0))
#define cpu_relax()		model_relax()
#define cycles()		model_cycles()

#endif
