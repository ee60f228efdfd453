/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake device, for tests: streams that take their time.  One set-up for the process.
 */
#ifndef DEVICE_FAKE_H
#define DEVICE_FAKE_H

#include <device/device.h>

#define FAKE_DEVICES	16

struct fake_setup {
	int devices;		/* how many there are; 0: no driver */
	u64 seed;		/* of order and delays */
	u32 delay;		/* after a piece of work a stream rests for less than so many turns */
	bool manual;		/* nothing moves but by fake_step() */
};

/* While no device is open. */
void fake_setup(const struct fake_setup *s);
/*
 * Manual: of the n streams that could go on, the one at choice % n does one piece of its
 * work.  Returns n; 0: nothing can go on.
 */
u32 fake_step(u64 choice);
/*
 * Call number n from now (1: the next one) of any of struct device_ops fails; 0: none.  With
 * -ENOTRECOVERABLE the device is lost from then on.
 */
void fake_fail(u64 n, int code);
/* Calls so far, and how many events were recorded, waits put into streams, host calls. */
struct fake_counts {
	u64 calls, records, waits, host_calls, launches;
};
void fake_counts(struct fake_counts *out);
/* The device breaks: what is in its streams never runs. */
void fake_lose(int id);
/* The driver unloads: every call says so from now on, until fake_setup(). */
void fake_unload(void);

#endif
