/* SPDX-License-Identifier: Apache-2.0 */
/* For suites about trims of pools: run a whole trim, and count objects and magazines. */
#ifndef TESTS_UNIT_POOL_TRIMS_H
#define TESTS_UNIT_POOL_TRIMS_H

#include "pool_things.h"

static inline s64 trim(struct pool *p)
{
	struct pool_trim t = { 0 };

	while (pool_trim_step(p, &t))
		;
	return t.rc ? t.rc : (s64)t.bytes;
}

static inline u32 vacant(struct pool *p)
{
	struct pool_stat s;

	pool_stat(p, &s);
	return s.vacant;
}

static inline void put_all(struct pool *p, struct pool_cache *c, u32 max)
{
	u32 i;

	for (i = 1; i <= max; i++)
		pool_put(p, c, i);
	pool_cache_flush(p, c);
}

/* Return how many magazines are on a stack, which stays as it is. */
static inline u32 stacked(struct pool_full *f, u64 *head)
{
	static u32 held[1 << 17];
	u32 n = 0, i;

	while ((i = mag_pop(f, head))) {
		MUST(n < ARRAY_SIZE(held));
		held[n++] = i;
	}
	for (i = n; i; i--)
		mag_push(f, head, held[i - 1]);
	return n;
}

/* Each magazine is on a stack or has no memory. */
static inline void check_magazines(struct pool_full *f)
{
	ck_assert_uint_eq(loose_count(&f->objs), 0);
	ck_assert_uint_eq(loose_count(&f->mag_slabs), 0);
	ck_assert_uint_eq(stacked(f, &f->full) + stacked(f, &f->partial) + stacked(f, &f->empty) +
			  load_relaxed(&f->mag_slabs.nvacant), load_relaxed(&f->mag_carved) - 1);
	ck_assert_uint_eq(load_relaxed(&f->lost), 0);
	ck_assert_uint_eq(arena_bytes(arena), f->obj.committed + f->mag.committed +
			  sides(f) - (u64)f->objs.nvacant * f->p.size -
			  (u64)f->mag_slabs.nvacant * sizeof(struct pool_mag));
}

#endif
