/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of a library of C++ that may throw (guard.cc). */
#ifndef SERVE_GUARD_H
#define SERVE_GUARD_H

#ifdef __cplusplus
extern "C" {
#endif
/* Returns fn(arg), or -ENOMEM or -EIO if it throws.  What fn had allocated is lost then. */
int guard(int (*fn)(void *), void *arg);
#ifdef __cplusplus
}
#endif

#endif
