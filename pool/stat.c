/* SPDX-License-Identifier: Apache-2.0 */
/* Figures about pools. */
#include <pool/internal.h>

/* Progress: wait-free. */
u32 pool_carved(struct pool *p)
{
	return load_relaxed(&pool_full(p)->carved) - 1;
}

/* Progress: wait-free. */
void pool_stat(struct pool *p, struct pool_stat *s)
{
	struct pool_full *f = pool_full(p);

	s->name = f->name;
	s->carved = load_relaxed(&f->carved) - 1;
	s->mags = load_relaxed(&f->mag_carved) - 1;
	s->bytes = load_relaxed(&f->obj.committed) + load_relaxed(&f->mag.committed);
	s->vacant = load_relaxed(&f->objs.nvacant);
	s->lost = load_relaxed(&f->lost);
}

/* Count the objects on one stack and check its magazines.  UINT32_MAX: the stack is corrupt. */
static u32 stack_count(struct pool_full *f, u64 *head, u32 least, u32 most)
{
	u32 limit = load_relaxed(&f->mag_carved);
	u32 m = head_idx(load_relaxed(head));	/* relaxed: no other thread uses the pool */
	u32 sum = 0, steps = 0;

	for (; m; m = load_relaxed(&f->mags[m].link.next)) {
		const struct pool_mag *mag = &f->mags[m];
		u32 i;

		if (m >= limit || ++steps >= limit || mag->n < least || mag->n > most)
			return UINT32_MAX;
		for (i = 0; i < mag->n; i++)
			if (!mag->idx[i] || mag->idx[i] > f->p.max)
				return UINT32_MAX;
		sum += mag->n;
	}
	return sum;
}

/* Progress: linear in the depot; no other thread may use the pool meanwhile. */
u32 pool_depot_count(struct pool *p)
{
	struct pool_full *f = pool_full(p);
	u32 full = stack_count(f, &f->full, p->mag, p->mag);
	u32 part = stack_count(f, &f->partial, 1, p->mag - 1);

	if (full == UINT32_MAX || part == UINT32_MAX)
		return UINT32_MAX;
	return full + part + loose_count(&f->objs) + load_relaxed(&f->objs.nvacant);
}
