/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Return memory to the system: when the host calls pawl_trim(), and when a worker has slept for
 * config.trim_ns.
 *
 * A worker's trim keeps a little memory at the start of each pool, so that an engine that runs
 * an op only now and then does not take a page fault for each.  It works in steps of at most
 * 64 KiB, and stops as soon as there is work.  If several workers sleep, one trims; the others
 * flush their caches and try again later, so the last one to trim finds all free memory.
 *
 * Progress: lock-free, and system calls.  A worker that is stopped in this file only prevents
 * the other workers from trimming; pawl_trim() does not read e->tidying.
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
	return rc ? err(rc, "trim: the system refused to take memory back") : 0;
}
PAWL_EXPORT(pawl_trim);

/* Trim a pool.  Returns false if there is work for t before the end. */
static bool tidy_pool(struct thread *t, struct pool *p)
{
	struct pool_trim trim = { .spare = TIDY_SPARE };

	do {
		if (exec_wanted(&t->ex))
			return false;
	} while (pool_trim_step(p, &trim));
	return true;
}

/* The executor calls this when a worker has slept for config.trim_ns. */
bool engine_tidy(void *user, struct exec_thread *ex)
{
	struct thread *t = container_of(ex, struct thread, ex);
	struct pawl_engine *e = user;
	u32 none = 0, i;

	trim_begin(t);
	/* Relaxed: a trim leaves no plain data to the next one. */
	if (!cas_relaxed(&e->tidying, &none, 1))
		return false;
	for (i = 0; i < POOLS && tidy_pool(t, e->pool[i]); i++)
		;
	store_relaxed(&e->tidying, 0);
	return i == POOLS;
}
