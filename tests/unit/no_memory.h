/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Refuse an allocation, count those that were not freed, and detect writes behind their end.  A
 * program that is linked with --wrap for the calls below (tests/Makefile) includes this file once.
 */
#ifndef TESTS_UNIT_NO_MEMORY_H
#define TESTS_UNIT_NO_MEMORY_H

#include "util.h"
#include <malloc.h>

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

/*
 * The n bytes of an allocation are followed by FILL bytes, and its block ends with n ^ TAIL_MARK.
 * Memory that the C library allocated for itself does not end with such a number.  It may be freed
 * here, too.
 */
enum { FILL = 0x5a, TAIL = 16 };
#define TAIL_MARK	0x7461696c6d61726bull

static void *fill_tail(void *p, size_t n)
{
	size_t room = p ? malloc_usable_size(p) : 0;
	u64 mark = n ^ TAIL_MARK;

	if (p) {
		memset((char *)p + n, FILL, room - n);
		memcpy((char *)p + room - sizeof(mark), &mark, sizeof(mark));
	}
	return p;
}

/* The number is erased, because the C library may allocate the block for itself next. */
static void check_tail(void *p)
{
	size_t room = p ? malloc_usable_size(p) : 0, i;
	u64 mark;

	if (room < TAIL)
		return;
	memcpy(&mark, (char *)p + room - sizeof(mark), sizeof(mark));
	mark ^= TAIL_MARK;
	for (i = (size_t)mark; mark <= room - TAIL && i < room - sizeof(mark); i++)
		MUST(((unsigned char *)p)[i] == FILL);
	memset((char *)p + room - sizeof(mark), 0, sizeof(mark));
}

static void *lives(void *p, size_t n)
{
	if (p)
		fetch_add_relaxed(&live, 1);
	return fill_tail(p, n);
}

/* The memory is filled, so that a read of bytes that were never written has an effect. */
void *__wrap_malloc(size_t n)
{
	void *p = refuse() ? NULL : lives(__real_malloc(n + TAIL), n);

	if (p)
		memset(p, 0xa5, n);
	return p;
}

void *__wrap_calloc(size_t n, size_t size)
{
	return refuse() ? NULL : lives(__real_calloc(1, n * size + TAIL), n * size);
}

void *__wrap_realloc(void *p, size_t n)
{
	if (!p)
		return __wrap_malloc(n);
	if (refuse())
		return NULL;
	check_tail(p);
	return fill_tail(__real_realloc(p, n + TAIL), n);
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
	return refuse() ? NULL : lives(__real_aligned_alloc(align, n + align), n);
}

void __wrap_free(void *p)
{
	if (p)
		fetch_add_relaxed(&live, -1u);
	check_tail(p);
	__real_free(p);
}

#endif
