/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is refused, and memory that is not freed: a program that is linked with --wrap for
 * the calls below (tests/Makefile) includes this file once.
 */
#ifndef TESTS_UNIT_NO_MEMORY_H
#define TESTS_UNIT_NO_MEMORY_H

#include "util.h"

static unsigned int refuse_in;		/* 1: the next allocation; 0: none */
static u32 live;			/* A: allocations that were not freed */

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
void __wrap_free(void *p);

static bool refuse(void)
{
	return refuse_in && !--refuse_in;
}

static void *lives(void *p)
{
	if (p)
		fetch_add_relaxed(&live, 1);
	return p;
}

/* What is read before it is written has an effect. */
void *__wrap_malloc(size_t n)
{
	void *p = refuse() ? NULL : lives(__real_malloc(n));

	if (p)
		memset(p, 0xa5, n);
	return p;
}

void *__wrap_calloc(size_t n, size_t size)
{
	return refuse() ? NULL : lives(__real_calloc(n, size));
}

void *__wrap_realloc(void *p, size_t n)
{
	if (!p)
		return __wrap_malloc(n);
	return refuse() ? NULL : __real_realloc(p, n);
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
	return refuse() ? NULL : lives(__real_aligned_alloc(align, n));
}

void __wrap_free(void *p)
{
	if (p)
		fetch_add_relaxed(&live, -1u);
	__real_free(p);
}

#endif
