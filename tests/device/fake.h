/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake device, for tests: streams that complete work late.  One configuration per process.
 */
#ifndef TESTS_DEVICE_FAKE_H
#define TESTS_DEVICE_FAKE_H

#include <device/device.h>

#define FAKE_DEVICES	16
#define FAKE_KIND	0xfeu	/* as pawl_device.kind; see kinds.c */

extern const struct device_ops device_fake;

struct fake_setup {
	int devices;		/* number of devices; 0: no driver */
	u64 seed;		/* for the order and the delays */
	u32 delay;		/* bound of a stream's pause after a piece of work, in turns */
	bool manual;		/* work runs only by fake_step() */
};

/* Call it while no device is open. */
void fake_setup(const struct fake_setup *s);
/*
 * For manual devices: of the n streams that can run, the one at choice % n runs one piece of
 * work.  Returns n; 0 means that no stream can run.
 */
u32 fake_step(u64 choice);
/*
 * Let the n-th call from now (1: the next one) of struct device_ops fail; 0: none.  After
 * -ENOTRECOVERABLE the device is lost.
 */
void fake_fail(u64 n, int code);
/* Numbers of calls, recorded events, queued waits, host calls and launched graphs so far. */
struct fake_counts {
	u64 calls, records, waits, host_calls, launches;
};
void fake_counts(struct fake_counts *out);
/* Break the device: work on its streams never runs. */
void fake_lose(int id);
/* Unload the driver: every call fails with -ESHUTDOWN until fake_setup(). */
void fake_unload(void);

#endif
