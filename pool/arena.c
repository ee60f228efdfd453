/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arenas: address space for all pools of one engine, and the memory in it.
 *
 * Purpose: the address of an object is always base + index * size, so an index is as good as a
 * pointer, and memory grows without moving.
 *
 * Structures: an arena contains, for each pool, the range of its objects, the range of its
 * magazines, and the ranges of their slabs, each followed by an inaccessible page.  A range is
 * committed from its start on in steps that double to 2 MiB; `committed` is the limit.
 *
 * The addresses behind a range are its own only when it grows, so an arena that could be large
 * and is not takes few.  It grows by mremap(), which extends the range's own mapping or fails:
 * it never replaces a mapping of the program.  The ranges have room to grow, because an arena
 * takes one of PLACES places, in an eighth of the address space where the kernel maps nothing
 * unless it is told the address.  Where that does not work (a sanitizer that forbids these
 * addresses, few address bits, very large pools, more than PLACES arenas), one mapping without
 * access (PROT_NONE, MAP_NORESERVE) reserves all ranges, and mprotect() commits.
 *
 * Ordering: POOL-C1 <-> POOL-C2.  A thread that reads a limit may use the memory below it.
 *
 * Progress: several threads may commit the same range concurrently.  Each of them commits all
 * memory between the limit that it read and its target; committing twice is harmless, and the
 * limit only grows.  A thread that stops after it has extended a mapping, and before it said so,
 * delays no other one either: the kernel tells the others how long the mapping is.  Lock-free,
 * apart from the system calls themselves.
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
#include <errno.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include <base/err.h>
#include <pool/internal.h>

#define STEP_MIN	((size_t)64 << 10)
#define STEP_MAX	((size_t)2 << 20)
#define SIZE_LIMIT	(1u << 20)
/* Behind a range; also what a thread may extend a mapping by to learn its length. */
#define GUARD_PAGES	2u

#define PLACES		1024u
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE	0x100000	/* before Linux 4.17 only a hint, which is checked */
#endif

static u64 places[PLACES / 64];	/* A: bits of the places that are taken */

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

/* Relaxed: the mapping is the kernel's, which all threads share. */
static void range_mapped(struct arena *a, struct arena_range *r, u64 to)
{
	u64 had = load_relaxed(&r->mapped);

	while (had < to)
		if (cas_relaxed(&r->mapped, &had, to)) {
			fetch_add_relaxed(&a->bytes, to - had);
			break;
		}
}

/*
 * Extend the mapping of a range from `from` bytes to `to`.  Returns 0, -ENOMEM if its length is
 * not `from`, or if there is no room, and -EFAULT if it is shorter.
 */
static int range_extend(struct arena *a, struct arena_range *r, u64 from, u64 to)
{
	if (mremap(r->start, from, to, 0) == MAP_FAILED)
		return errno == EFAULT ? -EFAULT : -ENOMEM;
	range_mapped(a, r, to);
	return 0;
}

/*
 * Ask the kernel for the length of the mapping of a range, which is `from` or more: set mapped
 * to it, or to `to` if that is less.  It is necessary only if a thread stopped in range_extend().
 */
static u64 range_learn(struct arena *a, struct arena_range *r, u64 from, u64 to)
{
	size_t page = arena_page();
	u64 at = to, had = from;
	unsigned char in;

	while (from < to) {
		if (range_extend(a, r, at, at + page) == -EFAULT)
			to = at - page;
		else
			from = at;
		at = from + ((to - from) / page + 1) / 2 * page;
	}
	/* Other errors than EFAULT may have other causes: the last page must exist. */
	if (from > had && !mincore(r->start + from - page, page, &in))
		range_mapped(a, r, from);
	return load_relaxed(&r->mapped);
}

/* Map the first `to` bytes of a range.  Progress: lock-free, and system calls. */
static int range_grow(struct arena *a, struct arena_range *r, u64 to)
{
	u64 had = load_relaxed(&r->mapped), now;

	while (had < to) {
		if (!range_extend(a, r, had, to))
			return 0;
		now = load_relaxed(&r->mapped);
		if (now == had)
			now = range_learn(a, r, had, to);
		if (now == had)
			return -ENOMEM;
		had = now;
	}
	return 0;
}

/* Make [from, to) of a range accessible.  Progress: a system call. */
static int range_open(struct arena *a, struct arena_range *r, size_t from, size_t to)
{
	int rc = pool_commit_hook(HOOK_COMMIT, to - from);

	if (rc)
		return rc;
	if (a->place)
		return range_grow(a, r, to);
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

		if (range_open(a, r, cur, to)) {
			/* Perhaps near the memory limit: commit only what is needed. */
			to = least;
			rc = range_open(a, r, cur, to);
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

/* The ranges of a pool: k is below POOL_RANGES. */
#define POOL_RANGES	4u
static struct arena_range *pool_range(struct pool_full *f, u32 k)
{
	struct arena_range *r[POOL_RANGES] = { &f->obj, &f->mag, &f->objs.side, &f->mag_slabs.side };

	return r[k];
}

#define for_each_range(a, f, r, k)						\
	for ((f) = (a)->pools; (f); (f) = (f)->next)				\
		for ((k) = 0; (k) < POOL_RANGES && ((r) = pool_range(f, k)); (k)++)

/* Free the addresses, and forget what was committed.  Progress: system calls. */
static void arena_unmap(struct arena *a)
{
	struct arena_range *r;
	struct pool_full *f;
	u32 k;

	if (a->base && !a->place)
		munmap(a->base, a->bytes);
	for_each_range(a, f, r, k) {
		if (a->place && r->mapped)
			munmap(r->start, r->mapped);
		r->committed = 0;
		r->mapped = 0;
		f->p.base = NULL;
	}
	if (a->place)
		fetch_and_relaxed(&places[(a->place - 1) / 64], ~(1ull << (a->place - 1) % 64));
	a->base = NULL;
	a->place = 0;
	a->bytes = 0;
	a->committed = 0;
}

/* Progress: blocking (frees memory).  Lifetime: frees all objects and pools. */
void arena_destroy(struct arena *a)
{
	struct pool_full *f, *next;

	if (!a)
		return;
	arena_unmap(a);
	for (f = a->pools; f; f = next) {
		next = f->next;
		free(f);
	}
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
	*off = at + bytes + (bytes ? GUARD_PAGES * page : 0);
}

/* The number of slabs with slab 0, or 0. */
static size_t slabs_most(const struct slabs *sl)
{
	return sl->count ? (size_t)sl->count + 1 : 0;
}

/* Commit the slabs of the things below `end`. */
static int slabs_commit(struct arena *a, struct slabs *sl, u32 end)
{
	if (!sl->count)
		return 0;
	return arena_commit(a, &sl->side, (slab_of(sl, end - 1) + 1) * slab_stride(sl));
}

/* Progress: lock-free, and system calls. */
int mags_commit(struct pool_full *f, u32 end)
{
	int rc = slabs_commit(f->arena, &f->mag_slabs, end);

	return rc ? rc : arena_commit(f->arena, &f->mag, (size_t)end * sizeof(struct pool_mag));
}

/* The end of the magazines that must be committed before objects below `end` are handed out. */
static u32 mags_end(const struct pool_full *f, u32 end)
{
	u64 n = (u64)end / f->p.mag + 1 + POOL_MAG_SPARE;

	return (u32)min_u(n, (u64)f->nmags) + 1;
}

/* Progress: lock-free, and system calls. */
int pool_commit(struct pool_full *f, u32 end)
{
	int rc = mags_commit(f, mags_end(f, end));

	if (!rc)
		rc = slabs_commit(f->arena, &f->objs, end);
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
	u32 k;

	for (f = a->pools; f; f = f->next) {
		if (f->lazy)
			continue;
		if (pool_commit(f, f->p.max + 1))
			return no_memory_for(a, f);
		for (k = 0; k < POOL_RANGES; k++)
			range_touch(pool_range(f, k), arena_page());
	}
	return 0;
}

/* Reserve all addresses of an arena, `off` bytes. */
static char *reserve(size_t off)
{
	size_t align = STEP_MAX;
	char *map = mmap(NULL, off + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			 -1, 0);
	char *base;

	if (map == MAP_FAILED)
		return NULL;
	/* Unmap both ends, so that the base has the alignment of the ranges. */
	base = (char *)round_up_to((uintptr_t)map, align);
	if (base > map)
		munmap(map, (size_t)(base - map));
	if (base < map + align)
		munmap(base + off, (size_t)(map + align - base));
	return base;
}

#ifdef PAWL_SIM

/* The simulators have no addresses to choose from, but one may pretend to have a place. */
static char *settle(struct arena *a, size_t off)
{
	struct arena_range *r;
	struct pool_full *f;
	u32 k;

	if (!pool_commit_hook(HOOK_PLACE, off))
		return NULL;
	a->base = reserve(off);
	a->place = 1;
	for_each_range(a, f, r, k) {
		r->start = a->base + (uintptr_t)r->start;
		r->mapped = min_u(r->bytes, arena_page());
	}
	return a->base;
}

#else

/*
 * The thread and the memory sanitizer replace an address that they forbid by 0 and keep the flags,
 * so that a program of root would map address 0.
 */
void __tsan_init(void) __attribute__((weak));
void __msan_init(void) __attribute__((weak));

/* Map the first page of a range, and extend it: some emulators cannot. */
static int range_begin(struct arena *a, struct arena_range *r)
{
	size_t page = arena_page();
	char *at = mmap(r->start, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS |
			MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

	if (at == MAP_FAILED)
		return -errno;
	if (at != r->start) {
		munmap(at, page);
		return -EEXIST;
	}
	a->bytes += page;
	r->mapped = page;
	return r->bytes > page ? range_extend(a, r, page, 2 * page) : 0;
}

/* Take a place and begin all ranges there.  Returns NULL if that is not possible. */
static char *settle(struct arena *a, size_t off)
{
	/* The top of the address space: the kernel puts these bytes on the first stack. */
	uintptr_t random = (uintptr_t)getauxval(AT_RANDOM);
	u32 bits = random ? 64 - (u32)__builtin_clzll(random) : 0, i, k, n, tries = 0;
	size_t bytes = bits < 40 ? 0 : ((size_t)1 << (bits - 3)) / PLACES;
	struct arena_range *r;
	struct pool_full *f;
	char *base;
	int rc = 0;

	if (off > bytes || __tsan_init || __msan_init)
		return NULL;
	n = ((const u8 *)random)[0] | (u32)((const u8 *)random)[1] << 8;
	for (i = 0; i < PLACES && tries < 4; i++, n++) {
		u64 bit = 1ull << n % 64;

		k = n % PLACES / 64;
		if ((load_relaxed(&places[k]) & bit) || (fetch_or_relaxed(&places[k], bit) & bit))
			continue;
		tries++;
		/* From three quarters of the address space on. */
		base = (char *)(3 * ((uintptr_t)1 << (bits - 2)) + n % PLACES * bytes);
		a->base = base;
		a->place = n % PLACES + 1;
		for_each_range(a, f, r, k) {
			r->start = base + (uintptr_t)r->start;
			if (r->bytes && !rc)
				rc = range_begin(a, r);
		}
		if (!rc)
			return base;
		arena_unmap(a);
		for_each_range(a, f, r, k)
			r->start = (char *)(r->start - base);
	}
	return NULL;
}

#endif

/* Progress: blocking (system calls). */
int arena_ready(struct arena *a, bool prefault)
{
	struct arena_range *r;
	struct pool_full *f;
	size_t off = 0;
	u32 k;
	int rc;

	if (a->base)
		return prefault ? arena_prefault(a) : 0;
	for (f = a->pools; f; f = f->next) {
		range_place(&f->obj, (size_t)f->p.max + 1, f->p.size, &off);
		range_place(&f->mag, (size_t)f->nmags + 1, sizeof(struct pool_mag), &off);
		range_place(&f->objs.side, slabs_most(&f->objs), slab_stride(&f->objs), &off);
		range_place(&f->mag_slabs.side, slabs_most(&f->mag_slabs),
			    slab_stride(&f->mag_slabs), &off);
	}
	off = round_up_to(off + 1, STEP_MAX);
	rc = pool_commit_hook(HOOK_RESERVE, off);
	if (!rc && !settle(a, off)) {
		a->base = reserve(off);
		a->bytes = a->base ? off : 0;
		for_each_range(a, f, r, k)
			r->start = a->base + (uintptr_t)r->start;
	}
	if (!a->base)
		return err(-ENOMEM, "arena %s: cannot reserve %zu bytes", a->name, off);
	for (f = a->pools; f; f = f->next) {
		f->mags = (struct pool_mag *)(void *)f->mag.start;
		f->p.base = f->obj.start;
	}
	/* Commit the magazines that a flush may need before the first object is handed out. */
	for (f = a->pools; f; f = f->next) {
		if (mags_commit(f, mags_end(f, 1))) {
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
	arena_unmap(a);
	return rc;
}

static u64 slabs_vacant(const struct slabs *sl)
{
	return (u64)load_relaxed(&sl->nvacant) * sl->size;
}

/* Progress: wait-free. */
u64 arena_space(struct arena *a)
{
	return load_relaxed(&a->bytes);
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
