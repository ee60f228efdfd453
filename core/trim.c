/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory goes back to the system: when the host asks (pawl_trim()), and when a worker has slept
 * for config.trim_ns.
 *
 * A worker's trim leaves a little at the start of each pool, so that an engine with an op now
 * and then takes no page fault for each.  It goes in steps of at most 64 KiB, and ends at once
 * when there is work.  Of several workers that sleep one trims and the others, which have given
 * up what they kept at hand, look again later; so the last one to trim finds all that is free.
 *
 * Progress: lock-free, and system calls.  A worker that is stopped in here keeps other workers
 * from trimming, and nothing else; pawl_trim() does not look at e->tidying.
 */
#include <core/thread.h>

#define TIDY_SPARE	65536u	/* bytes of each pool */

static void trim_begin(struct thread *t)
{
	u32 i;

	exec_trim(t->e->x, &t->ex);
	for (i = 0; i < POOLS; i++)
		pool_cache_flush(t->e->pool[i], &t->cache[i]);
}

int pawl_trim(struct pawl_engine *e)
{
	struct thread *t = thread_get(e);
	int rc = 0;
	u32 i;

	if (unlikely(!t))
		return thread_last.code;
	trim_begin(t);
	for (i = 0; i < POOLS; i++) {
		struct pool_trim trim = { 0 };

		while (pool_trim_step(e->pool[i], &trim))
			;
		rc = trim.rc ? trim.rc : rc;
	}
	return rc ? err(rc, "trim: the system does not take memory back") : 0;
}
PAWL_EXPORT(pawl_trim);

/* As pool_trim_step() to the end.  False: t is wanted. */
static bool tidy_pool(struct thread *t, struct pool *p)
{
	struct pool_trim trim = { .spare = TIDY_SPARE };

	do {
		if (exec_wanted(&t->ex))
			return false;
	} while (pool_trim_step(p, &trim));
	return true;
}

/* For the executor: a worker has slept for config.trim_ns. */
bool engine_tidy(void *user, struct exec_thread *ex)
{
	struct thread *t = container_of(ex, struct thread, ex);
	struct pawl_engine *e = user;
	u32 none = 0, i;

	trim_begin(t);
	/* Relaxed, both: nothing passes from one to the next. */
	if (!cas_relaxed(&e->tidying, &none, 1))
		return false;
	for (i = 0; i < POOLS && tidy_pool(t, e->pool[i]); i++)
		;
	store_relaxed(&e->tidying, 0);
	return i == POOLS;
}
