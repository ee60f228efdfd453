/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device for the controlled scheduler: its device_of_kind() takes the place of
 * device/kinds.c.
 *
 * A stream is a list of pieces; a thread of the model, started with the device, does the next
 * piece of any stream that can go on.  Each call is one step, and so is each piece.
 *
 * Calls carry no more order than the contract says.  What is put into a stream goes behind all
 * that the caller knows of, by the orders of the memory model, and in any order with what it
 * does not know; a wait for an event may find an older record of it, a query an older answer,
 * and who asks whether a stream is empty, or waits for it, hears of what he knows is in it.
 * The thread of the device sees what was done before a piece was put there; who hears
 * from an event or an empty stream that a piece is over sees what it did.
 */
#ifndef MODEL_DEVICE_H
#define MODEL_DEVICE_H

#include <base/compiler.h>

#define MODEL_KIND	0xfeu	/* as pawl_device.kind */

/* Call number n from now fails with code; 0: none.  With -ENOTRECOVERABLE the device is lost. */
void model_device_fail(u32 n, int code);
void model_device_lose(void);
bool model_device_empty(void);		/* of what can still run */
void *model_device_stream(void);	/* one of somebody else's */

#endif
