// SPDX-License-Identifier: Apache-2.0
/* Histogram of times; see hist.h. */

#include <errno.h>
#include <string.h>

#include "hist.h"

#define STEPS (1u << HIST_BITS)

/*
 * A value of at most HIST_BITS + 1 bits is its own bucket.  For a longer one the highest
 * HIST_BITS + 1 bits count, which are in STEPS..2*STEPS-1, and each bit that is shifted out
 * adds STEPS.
 */
static unsigned int bucket_of(uint64_t value)
{
	unsigned int bits = value ? 64 - (unsigned int)__builtin_clzll(value) : 0;
	unsigned int shift = bits > HIST_BITS + 1 ? bits - (HIST_BITS + 1) : 0;

	return shift * STEPS + (unsigned int)(value >> shift);
}

/* The highest value of a bucket. */
static uint64_t bucket_top(unsigned int i)
{
	unsigned int shift = i < 2 * STEPS ? 0 : i / STEPS - 1;
	uint64_t first = i - shift * STEPS;

	/* For the last bucket the sum wraps to 0, and the top is all ones. */
	return ((first + 1) << shift) - 1;
}

void hist_init(struct hist *h)
{
	memset(h, 0, sizeof(*h));
}

void hist_add(struct hist *h, uint64_t value)
{
	if (!h->count || value < h->min)
		h->min = value;
	if (value > h->max)
		h->max = value;
	h->sum += value;
	h->count++;
	h->bucket[bucket_of(value)]++;
}

void hist_merge(struct hist *h, const struct hist *other)
{
	unsigned int i;

	if (!other->count)
		return;
	if (!h->count || other->min < h->min)
		h->min = other->min;
	if (other->max > h->max)
		h->max = other->max;
	h->sum += other->sum;
	h->count += other->count;
	for (i = 0; i < HIST_BUCKETS; i++)
		h->bucket[i] += other->bucket[i];
}

uint64_t hist_rank(const struct hist *h, uint64_t rank, uint64_t *seen)
{
	uint64_t top;
	unsigned int i;

	*seen = 0;
	for (i = 0; i < HIST_BUCKETS; i++) {
		*seen += h->bucket[i];
		if (*seen >= rank)
			break;
	}
	top = bucket_top(i);
	return top < h->max ? top : h->max;
}

int hist_quantile(const struct hist *h, unsigned int permille, uint64_t *out)
{
	uint64_t rank, seen;

	if (!permille || permille > 999)
		return -EINVAL;
	if (h->count < 1000 && h->count * (1000 - permille) < 1000)
		return -ENODATA;
	/* ceil(count * permille / 1000), without overflow */
	rank = h->count / 1000 * permille + (h->count % 1000 * permille + 999) / 1000;
	*out = hist_rank(h, rank, &seen);
	return 0;
}
