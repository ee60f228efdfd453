// SPDX-License-Identifier: Apache-2.0
/*
 * Purpose: the time for deadlines, exec_now_ns(), and the rate of cycles(), for budgets.
 *
 * The rate is measured once per process, for 200 us, against the monotonic clock: an error of
 * 50 ns in each reading is 0.05 %, and budgets need 10 %.  A thread that loses its CPU between
 * the two clocks of a reading would be wrong by a time slice, many times the length of the
 * measurement, and the result is kept.  Therefore each reading is made three times.
 *
 * Progress: wait-free (the clocks are read in user space).
 */
#include <base/clock.h>
#include <exec/internal.h>

#define MEASURE_NS	200000u
/* The coarse clock is not older: ticks are 10 ms apart at most, and a CPU may miss some. */
#define TICKS_NS	1000000000u

static u64 per_us;	/* A: 0: not measured yet */

u64 exec_now_ns(void)
{
	return clock_ns();
}

bool exec_late(u64 deadline)
{
	u64 tick = clock_coarse_ns();

	/* A deadline that is not near needs no exact time. */
	return (deadline <= tick || deadline - tick <= TICKS_NS) && clock_ns() >= deadline;
}

/* Read both clocks at one moment: the best of three readings is the quickest. */
static void clocks_read(u64 *ns, u64 *count)
{
	u64 least = UINT64_MAX, before, t, took;
	u32 i;

	for (i = 0; i < 3; i++) {
		before = cycles();
		t = exec_now_ns();
		took = cycles() - before;
		if (took >= least)
			continue;
		least = took;
		*ns = t;
		*count = before + took / 2;
	}
}

/* Two threads may measure concurrently; either result is right. */
u64 exec_cycles_per_us(void)
{
	u64 v = load_relaxed(&per_us), t0 = 0, t1 = 0, c0 = 0, c1 = 0;

	if (v)
		return v;
	clocks_read(&t0, &c0);
	do
		clocks_read(&t1, &c1);
	while (t1 - t0 < MEASURE_NS);
	v = (c1 - c0) * 1000 / (t1 - t0);
	if (!v)
		v = 1;
	store_relaxed(&per_us, v);
	return v;
}
