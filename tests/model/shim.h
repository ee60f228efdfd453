/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Included before every source of a model build.  It replaces the C library's memory by the
 * model's, and makes writes of the C library visible to the model.
 */
#ifndef MODEL_SHIM_H
#define MODEL_SHIM_H

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libc.h"

#define malloc(n)		model_malloc(n)
#define calloc(n, m)		model_malloc((size_t)(n) * (m))
#define aligned_alloc(a, n)	model_malloc(n)
#define realloc(p, n)		model_realloc(p, n)
#define free(p)			model_free(p)
#define mmap(a, n, ...)		model_mmap(n)
#define munmap(p, n)		model_munmap(p, n)
#define mprotect(p, n, r)	model_mprotect(p, n)
#define mremap(p, n, to, f)	model_mremap(p, n, to)
#define mincore(p, n, in)	model_mincore(p, n, in)
#define madvise(p, n, r)	model_madvise(p, n)
#define memset(p, c, n)		model_memset(p, c, n)
#define memcpy(t, f, n)		model_memcpy(t, f, n)
#define strncpy(t, f, n)	model_strncpy(t, f, n)
#define snprintf(...)		model_snprintf(__VA_ARGS__)
#define vsnprintf(t, n, f, a)	model_vsnprintf(t, n, f, a)
#define eventfd(v, f)		model_eventfd()
#define write(fd, p, n)		model_write(fd, p, n)
#define read(fd, p, n)		model_read(fd, p, n)
#define abort()			model_abort()
#define pthread_atfork(a, b, c)	((void)(a), (void)(c), 0)
#define sched_setaffinity(p, n, s) 0

/* The compiler's instrumentation is the model's own: see memory.c. */
#undef __SANITIZE_THREAD__

#endif
