/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arenas: address space for all pools of one engine, and the memory in it.
 *
 * Purpose: the address of an object is always base + index * size, so an index is as good as a
 * pointer, and memory grows without moving.
 *
 * Structures: one mapping without access (PROT_NONE, MAP_NORESERVE) contains, for each pool,
 * the range of its objects, the range of its magazines, and the range of its slabs, each
 * followed by an inaccessible page.  A range is committed from its start on (mprotect) in steps
 * that double from 64 KiB to 2 MiB; `committed` is the limit.
 *
 * Ordering: POOL-C1 <-> POOL-C2.  A thread that reads a limit may use the memory below it.
 *
 * Progress: several threads may commit the same range concurrently.  Each of them commits all
 * memory between the limit that it read and its target; committing twice is harmless, and the
 * limit only grows.  A stopped thread delays no other one.  Lock-free, apart from the system
 * call itself.
 *
 * Lifetime: only arena_destroy() frees address space.  A trim may free memory in it before,
 * which is zero then (trim.c).  An object does not change its type until the arena is
 * destroyed; readers with stale indexes rely on that.
 *
 * References: Bonwick and Adams, "Magazines and Vmem", USENIX 2001.
 */
#include <limits.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <base/err.h>
#include <pool/internal.h>

#define STEP_MIN	((size_t)64 << 10)
#define STEP_MAX	((size_t)2 << 20)
#define SIZE_LIMIT	(1u << 20)

/* Progress: wait-free. */
__attribute__((weak)) int pool_commit_hook(const char *what, size_t bytes)
{
	return 0;
}

/* Progress: wait-free. */
size_t arena_page(void)
{
	long v = sysconf(_SC_PAGESIZE);

	return v > 0 ? (size_t)v : 4096;
}

/* Make [from, to) of a range accessible.  Progress: a system call. */
static int range_open(struct arena_range *r, size_t from, size_t to)
{
	int rc = pool_commit_hook(HOOK_COMMIT, to - from);

	if (rc)
		return rc;
	return mprotect(r->start + from, to - from, PROT_READ | PROT_WRITE) ? -ENOMEM : 0;
}

/* Progress: lock-free, and a system call when the limit moves. */
int arena_commit(struct arena *a, struct arena_range *r, size_t need)
{
	/* POOL-C2 <-> POOL-C1: the memory below the limit is accessible. */
	u64 cur = load_acquire(&r->committed);

	while (cur < need) {
		size_t least = min_u(round_up_to(need, arena_page()), r->bytes);
		size_t step = min_u(max_u((size_t)cur, STEP_MIN), STEP_MAX);
		size_t to = min_u(max_u(least, (size_t)cur + step), r->bytes);
		int rc;

		if (range_open(r, cur, to)) {
			/* Perhaps near the memory limit: commit only what is needed. */
			to = least;
			rc = range_open(r, cur, to);
			if (BUSTED(COMMIT_BLIND))
				rc = 0;
			if (rc)
				return -ENOMEM;
		}
		/*
		 * POOL-C1 <-> POOL-C2.  On failure another thread moved the limit, perhaps not
		 * as far; then the loop commits the rest again.  No acquire: this thread has
		 * committed all that is needed below `to`, or read above that it was committed.
		 */
		if (cas_release_relaxed(&r->committed, &cur, (u64)to)) {
			fetch_add_relaxed(&a->committed, to - cur);
			return 0;
		}
	}
	return 0;
}

/* Progress: blocking (memory allocation). */
static void *zalloc(size_t bytes)
{
	void *p = aligned_alloc(CACHELINE, round_up_to(bytes, CACHELINE));

	if (p)
		memset(p, 0, bytes);
	return p;
}

/* Progress: blocking (memory allocation). */
int arena_create(const char *name, struct arena **out)
{
	struct arena *a = zalloc(sizeof(*a));

	if (!a)
		return err(-ENOMEM, "arena %s: no memory", name ? name : "?");
	strncpy(a->name, name ? name : "?", sizeof(a->name) - 1);
	a->tail = &a->pools;
	*out = a;
	return 0;
}

/* Progress: blocking (frees memory).  Lifetime: frees all objects and pools. */
void arena_destroy(struct arena *a)
{
	struct pool_full *f, *next;

	if (!a)
		return;
	for (f = a->pools; f; f = next) {
		next = f->next;
		free(f);
	}
	if (a->base)
		munmap(a->base, a->bytes);
	free(a);
}

/*
 * The number of magazines that can be in use at once.  A magazine on a stack, or held by a
 * thread inside a slow path, has at least one object, so there are no more magazines than
 * objects.  At most max / mag are full.  The others are one partial magazine per thread that
 * flushed concurrently (a flush fills up a partial magazine if there is one), and one per
 * thread inside a slow path.
 */
static u32 mags_needed(u32 max, u32 mag)
{
	u64 n = (u64)max / mag + 1 + POOL_MAG_SPARE_MAX;

	return (u32)min_u(n, (u64)max);
}

/* Progress: blocking (memory allocation). */
int arena_add(struct arena *a, const struct pool_desc *d, struct pool **out)
{
	struct pool_full *f;
	const char *name = d->name ? d->name : "?";

	if (a->base)
		return err(-EINVAL, "pool %s: arena %s is in use already", name, a->name);
	if (!d->size || d->size % 16 || d->size > SIZE_LIMIT)
		return err(-EINVAL, "pool %s: objects of %u bytes", name, d->size);
	if (!d->max || d->max == UINT32_MAX)
		return err(-EINVAL, "pool %s: at most %u objects", name, d->max);
	if (d->group && (d->max + 1) % d->group)
		return err(-EINVAL, "pool %s: %u objects in groups of %u", name, d->max, d->group);
	f = zalloc(sizeof(*f));
	if (!f)
		return err(-ENOMEM, "pool %s: no memory", name);
	f->p.size = d->size;
	f->p.max = d->max;
	f->p.mag = d->mag ? d->mag : pool_mag(d->max);
	f->arena = a;
	f->nmags = mags_needed(d->max, f->p.mag);
	f->ctor = d->ctor;
	f->last = d->last;
	f->user = d->user;
	f->group = (u32)max_u(d->group, 1u);
	f->lazy = d->lazy;
	if (!d->keep) {
		slabs_shape(&f->objs, d->size, d->max);
		if (f->nmags >= POOL_MAGS_TRIM)
			slabs_shape(&f->mag_slabs, sizeof(struct pool_mag), f->nmags);
	}
	f->objs.range = &f->obj;
	f->mag_slabs.range = &f->mag;
	strncpy(f->name, name, sizeof(f->name) - 1);
	f->carved = 1;
	f->mag_carved = 1;
	*a->tail = f;
	a->tail = &f->next;
	*out = &f->p;
	return 0;
}

/*
 * Place a range at *off and advance *off.  A pool has less than 2^53 bytes, so that those of an
 * arena do not overflow a size_t; mmap() refuses what the address space cannot hold.
 */
static void range_place(struct arena_range *r, size_t count, size_t size, size_t *off)
{
	size_t page = arena_page(), bytes = round_up_to(count * size, page);
	/* Align large ranges, so that they can have huge pages. */
	size_t at = round_up_to(*off, bytes >= STEP_MAX ? STEP_MAX : page);

	/* arena_ready() adds the base. */
	r->start = (char *)(uintptr_t)at;
	r->bytes = bytes;
	*off = at + bytes + page;
}

static size_t slabs_bytes(const struct slabs *sl)
{
	return (size_t)sl->count * slab_words(sl) * sizeof(u64) +
	       ((size_t)sl->count + 1) * sizeof(struct slab);
}

static char *slabs_place(struct slabs *sl, char *at)
{
	sl->bits = (u64 *)(void *)at;
	sl->slab = (struct slab *)(void *)(sl->bits + (size_t)sl->count * slab_words(sl));
	return at + slabs_bytes(sl);
}

/* Bytes of magazines that must be committed before objects below `end` are handed out. */
static size_t mag_bytes(const struct pool_full *f, u32 end)
{
	u64 n = (u64)end / f->p.mag + 1 + POOL_MAG_SPARE;

	return (size_t)(min_u(n, (u64)f->nmags) + 1) * sizeof(struct pool_mag);
}

/* Progress: lock-free, and system calls. */
int pool_commit(struct pool_full *f, u32 end)
{
	int rc = arena_commit(f->arena, &f->mag, mag_bytes(f, end));

	if (!rc)
		/* A part of the last object may be behind it. */
		rc = arena_commit(f->arena, &f->obj, round_up_to(end, f->group) * f->p.size);
	if (!rc && f->with)
		rc = pool_commit(f->with,
				 (u32)min_u((u64)end + f->extra, f->with->p.max + 1ull));
	return rc;
}

void pool_follow(struct pool *p, struct pool *with, u32 extra)
{
	pool_full(p)->with = pool_full(with);
	pool_full(p)->extra = extra;
}

/* Touch what is committed of a range.  Progress: a system call, and page faults. */
static void range_touch(struct arena_range *r, size_t page)
{
	size_t at, bytes = load_relaxed(&r->committed);

#ifdef MADV_POPULATE_WRITE
	if (!madvise(r->start, bytes, MADV_POPULATE_WRITE))
		return;
#endif
	for (at = 0; at < bytes; at += page)
		page_touch(r->start + at);
}

/* Progress: as err(). */
static int no_memory_for(struct arena *a, struct pool_full *f)
{
	return err(-ENOMEM, "arena %s: no memory for pool %s", a->name, f->name);
}

static int arena_prefault(struct arena *a)
{
	struct pool_full *f;

	for (f = a->pools; f; f = f->next) {
		if (f->lazy)
			continue;
		if (pool_commit(f, f->p.max + 1))
			return no_memory_for(a, f);
		range_touch(&f->obj, arena_page());
		range_touch(&f->mag, arena_page());
		range_touch(&f->side, arena_page());
	}
	return 0;
}

/* Progress: blocking (system calls). */
int arena_ready(struct arena *a, bool prefault)
{
	struct pool_full *f;
	size_t off = 0, align = STEP_MAX;
	char *base, *map;
	int rc;

	if (a->base)
		return prefault ? arena_prefault(a) : 0;
	for (f = a->pools; f; f = f->next) {
		range_place(&f->obj, (size_t)f->p.max + 1, f->p.size, &off);
		range_place(&f->mag, (size_t)f->nmags + 1, sizeof(struct pool_mag), &off);
		range_place(&f->side, slabs_bytes(&f->objs) + slabs_bytes(&f->mag_slabs), 1, &off);
	}
	off = round_up_to(off + 1, align);
	rc = pool_commit_hook(HOOK_RESERVE, off);
	map = MAP_FAILED;
	if (!rc)
		map = mmap(NULL, off + align, PROT_NONE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (map == MAP_FAILED)
		return err(-ENOMEM, "arena %s: cannot reserve %zu bytes", a->name, off);
	/* Unmap both ends, so that the base has the alignment of the ranges. */
	base = (char *)round_up_to((uintptr_t)map, align);
	if (base > map)
		munmap(map, (size_t)(base - map));
	if (base < map + align)
		munmap(base + off, (size_t)(map + align - base));

	for (f = a->pools; f; f = f->next) {
		f->obj.start = base + (uintptr_t)f->obj.start;
		f->mag.start = base + (uintptr_t)f->mag.start;
		f->side.start = base + (uintptr_t)f->side.start;
		slabs_place(&f->mag_slabs, slabs_place(&f->objs, f->side.start));
		f->mags = (struct pool_mag *)(void *)f->mag.start;
		f->p.base = f->obj.start;
	}
	a->base = base;
	a->bytes = off;
	/* Commit the magazines that a flush may need before the first object is handed out. */
	for (f = a->pools; f; f = f->next) {
		rc = arena_commit(a, &f->mag, mag_bytes(f, 1));
		if (!rc)
			rc = arena_commit(a, &f->side, f->side.bytes);
		if (rc) {
			rc = no_memory_for(a, f);
			goto out_unmap;
		}
	}
	if (prefault) {
		rc = arena_prefault(a);
		if (rc)
			goto out_unmap;
	}
	return 0;

out_unmap:
	munmap(a->base, a->bytes);
	a->base = NULL;
	a->bytes = 0;
	a->committed = 0;
	for (f = a->pools; f; f = f->next) {
		f->obj.committed = 0;
		f->mag.committed = 0;
		f->side.committed = 0;
		f->p.base = NULL;
	}
	return rc;
}

static u64 slabs_vacant(const struct slabs *sl)
{
	return (u64)load_relaxed(&sl->nvacant) * sl->size;
}

/* Progress: wait-free. */
u64 arena_space(struct arena *a)
{
	return a->bytes;
}

/* Progress: wait-free. */
u64 arena_bytes(struct arena *a)
{
	u64 bytes = load_relaxed(&a->committed);
	struct pool_full *f;

	for (f = a->pools; f; f = f->next)
		bytes -= slabs_vacant(&f->objs) + slabs_vacant(&f->mag_slabs);
	return bytes;
}
