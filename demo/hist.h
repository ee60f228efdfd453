/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Histogram of times, for percentiles: 128 equal steps per power of two, so that any uint64_t
 * has a bucket, with an error of at most 0.8 %.  Its size is fixed and recording does not
 * allocate.  One thread at a time may use it.
 */
#ifndef PAWL_HIST_H
#define PAWL_HIST_H

#include <stdint.h>

#define HIST_BITS	7u
#define HIST_BUCKETS	((65u - HIST_BITS) << HIST_BITS)

struct hist {
	uint64_t count;
	uint64_t min, max, sum;	/* exact; 0 while count is 0 */
	uint64_t bucket[HIST_BUCKETS];
};

void hist_init(struct hist *h);
void hist_add(struct hist *h, uint64_t value);
/*
 * The value that permille/1000 of the samples do not exceed (rounded up to its step,
 * but never above the maximum), for permille in 1..999.  Returns -ENODATA, and leaves *out
 * unchanged, if less than one sample is expected above it, since the value would only be the
 * maximum.  So p50 needs 2 samples, p99 100, p99.9 1000.
 */
int hist_quantile(const struct hist *h, unsigned int permille, uint64_t *out);
/*
 * The value of the sample of a rank, from 1 for the smallest to count, rounded as above.
 * *seen is the number of samples that do not exceed it.
 */
uint64_t hist_rank(const struct hist *h, uint64_t rank, uint64_t *seen);
/* Add the samples of another histogram. */
void hist_merge(struct hist *h, const struct hist *other);

#endif
