/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocations that end where their page ends, before a page without access.  Their addresses are
 * not used again until the next guard_begin().  A suite that includes this file is linked with
 * --wrap for malloc, realloc and free.
 */
#ifndef TESTS_UNIT_GUARDED_H
#define TESTS_UNIT_GUARDED_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "must.h"

enum { PAGES = 1 << 14 };
static unsigned char *room;
static size_t page, used, size_at[PAGES];
static bool guarded;			/* new allocations are in the room */
static unsigned int live;		/* allocations of the room that were not freed */

void *__real_malloc(size_t n);
void *__real_realloc(void *p, size_t n);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_realloc(void *p, size_t n);
void __wrap_free(void *p);

static size_t pages_of(size_t n)
{
	return (n + page - 1) / page;
}

/* The number of the page in which an object of the room begins, or PAGES. */
static size_t place_of(const void *p)
{
	uintptr_t at = (uintptr_t)p - (uintptr_t)room;

	return room && at < PAGES * page ? at / page : PAGES;
}

/* The memory is filled, so that a read of bytes that were never written has an effect. */
void *__wrap_malloc(size_t n)
{
	unsigned char *p;

	if (!guarded)
		return __real_malloc(n);
	MUST(n && used + pages_of(n) < PAGES);
	p = room + used * page;
	MUST(!mprotect(p, pages_of(n) * page, PROT_READ | PROT_WRITE));
	memset(p, 0xa5, pages_of(n) * page);
	size_at[used] = n;
	used += pages_of(n) + 1;
	live++;
	return room + (used - 1) * page - n;
}

void __wrap_free(void *p)
{
	size_t at = place_of(p);

	if (at == PAGES) {
		__real_free(p);
		return;
	}
	MUST(size_at[at] && !mprotect(room + at * page, pages_of(size_at[at]) * page, PROT_NONE));
	size_at[at] = 0;
	live--;
}

void *__wrap_realloc(void *p, size_t n)
{
	size_t at = place_of(p);
	void *q;

	if (!guarded)
		return __real_realloc(p, n);
	q = __wrap_malloc(n);
	if (p) {
		MUST(at < PAGES);
		memcpy(q, p, n < size_at[at] ? n : size_at[at]);
		__wrap_free(p);
	}
	return q;
}

/* Guard the allocations from now on.  They use the addresses from the first one on again. */
static void guard_begin(void)
{
	if (!room) {
		page = (size_t)sysconf(_SC_PAGESIZE);
		room = mmap(NULL, PAGES * page, PROT_NONE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		MUST(room != MAP_FAILED);
	}
	MUST(!live);
	used = 0;
	guarded = true;
}

static void guard_end(void)
{
	guarded = false;
}

#endif
