/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of compat/catch.cc, for C and C++. */
#ifndef COMPAT_CATCH_H
#define COMPAT_CATCH_H

#include <stddef.h>
#include <pawl/mx_bridge.h>

#ifdef __cplusplus
#define MX_NOEXCEPT noexcept
extern "C" {
#else
#define MX_NOEXCEPT
#endif

union mx_body {
	pawl_mx_sync_fn sync;
	pawl_mx_async_fn async;
	pawl_mx_start_fn async_start;
};

/*
 * form: 0 sync, 1 async, 2 async_start.  Returns 0, or -1 with *exception set (NULL: no
 * memory).
 */
int mx_catch_body(int form, union mx_body fn, void *run, void *on_start, void *on_complete,
		  void *arg, void **exception, char *text, size_t room) MX_NOEXCEPT;
void *mx_exception_of(const void *error, char *text, size_t room) MX_NOEXCEPT;
void mx_exception_what(void *exception, char *text, size_t room) MX_NOEXCEPT;
void mx_exception_free(void *exception) MX_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
