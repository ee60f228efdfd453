/* SPDX-License-Identifier: Apache-2.0 */
/* For suites about pool/: a pool of things, and requests for memory that fail. */
#ifndef TESTS_UNIT_POOL_THINGS_H
#define TESTS_UNIT_POOL_THINGS_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <base/err.h>
#include <pool/internal.h>

#include "hang.h"
#include "must.h"
#include "suite.h"

/* Fault injection: the k-th request fails (only that one, or it and all later ones). */
static s64 fail_at;		/* 0: never */
static bool fail_on;
static s64 asked;
static u64 asked_bytes;
static const char *fail_what;	/* NULL: any */
static size_t fail_above;	/* larger requests fail; 0: none */
static void (*on_request)(void);	/* called once, by the next request; NULL: nothing */

int pool_commit_hook(const char *what, size_t bytes)
{
	s64 n;

	if (fail_what && strcmp(what, fail_what))
		return 0;
	if (on_request) {
		void (*fn)(void) = on_request;

		on_request = NULL;
		fn();
	}
	n = (s64)fetch_add_relaxed(&asked, 1) + 1;
	fetch_add_relaxed(&asked_bytes, bytes);
	if (fail_above && bytes > fail_above)
		return -ENOMEM;
	return fail_at && (n == fail_at || (fail_on && n > fail_at)) ? -ENOMEM : 0;
}

static inline void faults(const char *what, s64 at, bool on)
{
	fail_what = what;
	fail_at = at;
	fail_on = on;
	fail_above = 0;
	asked = 0;
	asked_bytes = 0;
}

struct thing {
	u32 idx;		/* by ctor */
	u32 built;		/* A: calls of ctor */
	u32 owner;		/* A: 0 free */
	u32 pad;
	u64 value;		/* plain, the owner's */
	u64 seen[5];
};

static u32 ctors;
static u32 ctor_user;

static void thing_ctor(void *obj, u32 idx, u32 base, void *user)
{
	struct thing *t = obj;

	if (user != &ctor_user || base || t->idx || t->built || t->owner || t->value)
		abort();
	t->idx = idx;
	fetch_add_relaxed(&t->built, 1);
	fetch_add_relaxed(&ctors, 1);
}

/* A trim asks only about objects that it has claimed, before it frees their memory. */
static u32 thing_last(void *obj, u32 idx, void *user)
{
	struct thing *t = obj;

	if (user != &ctor_user || t->idx != idx || load_relaxed(&t->built) != 1)
		abort();
	return 0;
}

static struct arena *arena;
static struct pool *things;

/* For a test that hangs: print the state of the last pool. */
static inline void things_dump(void)
{
	struct pool_stat s;
	char text[256];
	int n;

	if (!arena)
		return;
	pool_stat(things, &s);
	n = snprintf(text, sizeof(text), "pool: carved %u, in the depot %u, magazines %u, lost %llu, "
		     "%llu bytes; requests for memory %llu\n", s.carved, pool_depot_count(things),
		     s.mags, (unsigned long long)s.lost, (unsigned long long)s.bytes, (unsigned long long)asked);
	if (write(2, text, (size_t)n) < 0)
		return;
}

static inline struct pool *make(u32 max)
{
	struct pool_desc d = { .name = "things", .size = sizeof(struct thing), .max = max,
			       .ctor = thing_ctor, .last = thing_last, .user = &ctor_user };
	struct pool *p;

	ctors = 0;
	ck_assert_int_eq(arena_create("test", &arena), 0);
	ck_assert_int_eq(arena_add(arena, &d, &p), 0);
	ck_assert_int_eq(arena_ready(arena, false), 0);
	things = p;
	hang_says = things_dump;
	return p;
}

/* Bytes that are committed for the slabs of a pool. */
static inline u64 sides(const struct pool_full *f)
{
	return f->objs.side.committed + f->mag_slabs.side.committed;
}

static inline void done(void)
{
	arena_destroy(arena);
	arena = NULL;
}

static const u32 caps[] __attribute__((unused)) = { 1, 2, 3, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 2047, 2048,
			    2049, 4095, 4096, 5000 };

#endif
