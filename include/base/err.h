/* SPDX-License-Identifier: Apache-2.0 */
/* The message that goes with a negative errno; layer 0.  One buffer per thread. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include <errno.h>
#include <base/compiler.h>

/*
 * Store a message for pawl_error_text() and return code, so that a function can end with
 * `return err(-EINVAL, "push: prop %u is unknown", prop);`.  Defined in pool/err.c.
 */
int err(int code, const char *fmt, ...) __printf(2, 3) __cold;
const char *err_text(void);
/* The text names a field of an op, "call: op.field ...": name the caller's instead of "call: op". */
int err_field(int code, const char *fmt, ...) __printf(2, 3) __cold;

#endif
