/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device for the controlled scheduler.  Its device_of_kind() replaces device/kinds.c.
 *
 * A stream is a list of pieces of work.  A thread of the model, started with the device, does
 * the next piece of any stream that can continue.  Each call is one step, and so is each
 * piece.
 *
 * Calls carry no more order than the contract says.  Queued work comes after all that the
 * caller knows of, by the orders of the memory model, and in any order with other work.  A
 * wait for an event may find an older record of it, a query may return an older answer, and a
 * query of a stream, or a wait for it, covers only work that the caller knows of.  The
 * device's thread sees what happened before a piece was queued; a thread that learns from an
 * event or an empty stream that a piece is complete sees what that did.
 */
#ifndef MODEL_DEVICE_H
#define MODEL_DEVICE_H

#include <base/compiler.h>

#define MODEL_KIND	0xfeu	/* a value of pawl_device.kind */

/*
 * Call number n from now fails with code; 0: none.  With -ENOTRECOVERABLE the device is lost.
 */
void model_device_fail(u32 n, int code);
void model_device_lose(void);
bool model_device_empty(void);		/* no piece can still run */
void *model_device_stream(void);	/* a stream of the caller */

#endif
