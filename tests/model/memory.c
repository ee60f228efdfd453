// SPDX-License-Identifier: Apache-2.0
/*
 * Memory of the modelled program: one region for its allocations and static data, and the undo
 * log.
 *
 * The sources are compiled with -fsanitize=thread, which makes the compiler call
 * __tsan_write8() and similar functions before each plain access that may be shared.  This
 * file defines those functions, instead of the sanitizer's library.  Writes are logged; weak.c
 * detects races.  The stacks of threads are not in the region: they are copied as a whole.
 */
#define _GNU_SOURCE
#include <link.h>
#include <stdarg.h>
#include <sys/mman.h>
#include "libc.h"
#include "rt.h"
#include "word.h"

#define FREED_MAX	(32u << 10)	/* larger blocks are not checked */
#define LARGE		(128u << 10)	/* the lanes of devices */
#define UNDO_MAX	(1u << 28)
#define SHADOW_BYTES	(REGION_BYTES / 8 * sizeof(struct shadow))

extern char __data_start, _end;

struct shadow *region_shadow, *data_shadow;
char *data_start;
u64 data_bytes;
char *tls_start;
u64 tls_bytes;
struct undo *undo_log;
u64 undo_n;
u64 mem_hash;
u32 step_id;
bool tls_dirty;
bool watch;
bool searching;
u32 learned;

u64 *region_used;		/* it is in the region itself */

static void *reserve(void *at, u64 bytes)
{
	void *p = mmap(at, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at ? MAP_FIXED_NOREPLACE : 0), -1, 0);

	if (p == MAP_FAILED) {
		perror("model: mmap");
		exit(2);
	}
	return p;
}

static int find_tls(struct dl_phdr_info *info, size_t size, void *data)
{
	int i;

	(void)size;
	(void)data;
	for (i = 0; i < info->dlpi_phnum; i++) {
		if (info->dlpi_phdr[i].p_type == PT_TLS) {
			tls_start = info->dlpi_tls_data;
			tls_bytes = (info->dlpi_phdr[i].p_memsz + 7) & ~7ull;
		}
	}
	return 1;	/* the program itself comes first */
}

void memory_init(void)
{
	char *region = reserve((void *)REGION_BASE, REGION_BYTES);

	region_shadow = reserve(NULL, SHADOW_BYTES);
	undo_log = reserve(NULL, (u64)UNDO_MAX * sizeof(*undo_log));
	data_start = (char *)((uintptr_t)&__data_start & ~7ull);
	data_bytes = (u64)(&_end - data_start);
	data_shadow = reserve(NULL, data_bytes / 8 * sizeof(struct shadow) + 4096);
	dl_iterate_phdr(find_tls, NULL);
	if (tls_bytes > TLS_MAX) {
		fprintf(stderr, "model: %llu bytes of __thread variables\n",
			(unsigned long long)tls_bytes);
		exit(2);
	}
	region_used = (u64 *)(void *)region;
	*region_used = 64;
}

void *region_alloc(u64 n)
{
	u64 at = (*region_used + 63) & ~63ull;

	if (at + n > REGION_BYTES) {
		model_fail("the model's memory is used up");
		return NULL;
	}
	lw(region_used, at + n);
	return (char *)REGION_BASE + at;
}

void touch(void *p, u64 n)
{
	u64 a = (u64)(uintptr_t)p & ~7ull, end = (u64)(uintptr_t)p + n;

	if (!step_id)
		return;
	if (a - (u64)(uintptr_t)tls_start < tls_bytes) {
		tls_dirty = true;
		return;
	}
	for (; a < end; a += 8) {
		struct shadow *s = shadow_of((void *)(uintptr_t)a);

		if (!s)
			return;
		touch_word((u64 *)(uintptr_t)a, s);
		s->flags |= SH_WROTE;
		if (s->first && s->first != self + 1)
			s->flags |= SH_MULTI;
	}
}

/* The step has ended: update the hash with the words that it changed. */
void steps_settle(u64 from)
{
	u64 i;

	for (i = from; i < undo_n; i++) {
		u64 *w = undo_log[i].addr;
		u64 a = (u64)(uintptr_t)w;

		if (!(a & 1) && undo_log[i].old != *w)
			mem_hash ^= mix(a, undo_log[i].old) ^ mix(a, *w);
	}
}

/* Undo all changes above n; the caller restores the hash. */
void undo_to(u64 n)
{
	while (undo_n > n) {
		undo_n--;
		*(u64 *)((uintptr_t)undo_log[undo_n].addr & ~1ull) = undo_log[undo_n].old;
	}
}

/* --- what the C library would do ------------------------------------------- */

/* The size of each block is stored in front of it. */
void *model_malloc(size_t n)
{
	u64 *p = region_alloc(n + 64);

	if (!p)
		return NULL;
	lw(p, n);
	return p + 8;
}

/*
 * The block is not used again in this schedule.  A free counts as a write of the whole block: a
 * concurrent use is a race, and a later use reads garbage.
 */
void model_free(void *p)
{
	u64 n, i;

	if (!p || !step_id)
		return;
	n = *((u64 *)p - 8) & ~7ull;
	if (n > LARGE)
		return;
	touch(p, n);
	for (i = 0; watch && i < n; i += 8)
		weak_plain((char *)p + i, 8, true);
	memset(p, 0xdb, n);
}

void model_munmap(void *p, size_t n)
{
	size_t i;

	for (i = 0; watch && n <= FREED_MAX && i < n; i += 8)
		weak_plain((char *)p + i, 8, true);
}

void *model_realloc(void *p, size_t n)
{
	char *q = model_malloc(n);
	u64 had = p ? *((u64 *)p - 8) : 0;

	if (q && p)
		model_memcpy(q, p, had < n ? had : n);
	return q;
}

void *model_mmap(size_t n)
{
	char *p = region_alloc(n + 4096);

	return (void *)(((uintptr_t)p + 4095) & ~4095ull);
}

void *model_memset(void *p, int c, size_t n)
{
	if (!step_id) {
		/* Fresh memory is zero: do not commit its pages. */
		char *b = p;
		size_t i;

		for (i = 0; i < n; i++)
			if (b[i] != (char)c)
				b[i] = (char)c;
		return p;
	}
	if (n > LARGE && !c) {
		/* In large blocks, which are fresh, touch only the words that change. */
		u64 *w = p, *end = w + n / 8;

		for (; w < end; w++)
			if (*w) {
				touch(w, 8);
				*w = 0;
			}
		return p;
	}
	touch(p, n);
	if (watch) {
		size_t i;

		for (i = 0; i + 8 <= n; i += 8)
			weak_plain((char *)p + i, 8, true);
	}
	return memset(p, c, n);
}

void *model_memcpy(void *to, const void *from, size_t n)
{
	touch(to, n);
	if (watch) {
		size_t i;

		for (i = 0; i + 8 <= n; i += 8) {
			weak_plain((const char *)from + i, 8, false);
			weak_plain((char *)to + i, 8, true);
		}
	}
	return memcpy(to, from, n);
}

/* A scenario may define this. */
__attribute__((weak)) int model_mprotect(void *p, size_t n)
{
	(void)p;
	(void)n;
	return 0;
}

__attribute__((weak)) void *model_mremap(void *p, size_t from, size_t to)
{
	(void)from;
	(void)to;
	return p;
}

__attribute__((weak)) int model_mincore(void *p, size_t n, unsigned char *in)
{
	(void)p;
	(void)n;
	*in = 0;
	return 0;
}

/*
 * The memory is freed and becomes zero.  The system orders everything that this thread knows
 * before that, and a thread that reads a zero takes a page fault after it: this is a release,
 * and the reader's own order makes the acquire.
 */
int model_madvise(void *p, size_t n)
{
	touch(p, n);
	weak_zero(p, n);
	memset(p, 0, n);
	return 0;
}

char *model_strncpy(char *to, const char *from, size_t n)
{
	touch(to, n);
	return strncpy(to, from, n);
}

/* Printing a text with %s reads it. */
static void reads_of(const char *fmt, va_list ap)
{
	for (; (fmt = strchr(fmt, '%')); fmt++) {
		u32 longs = 0;
		const char *s;
		size_t n = 64;

		fmt++;
		fmt += strspn(fmt, "#-+0123456789");
		if (*fmt == '.' && *++fmt == '*') {
			n = (size_t)va_arg(ap, int);
			fmt++;
		} else if (fmt[-1] == '.') {
			n = strtoul(fmt, (char **)(uintptr_t)&fmt, 10);
		}
		for (; *fmt == 'l' || *fmt == 'z'; fmt++)
			longs++;
		switch (*fmt) {
		case 's':
			for (s = va_arg(ap, const char *); s && n-- && *s; s++)
				weak_plain(s, 1, false);
			break;
		case '%':
			break;
		case 'p':
			(void)va_arg(ap, void *);
			break;
		case 'f':
			(void)va_arg(ap, double);
			break;
		default:
			if (longs)
				(void)va_arg(ap, long);
			else
				(void)va_arg(ap, int);
		}
	}
}

int model_vsnprintf(char *to, size_t n, const char *fmt, va_list ap)
{
	va_list args;
	size_t i;
	int rc;

	touch(to, n);
	if (watch) {
		va_copy(args, ap);
		reads_of(fmt, args);
		va_end(args);
	}
	rc = vsnprintf(to, n, fmt, ap);
	for (i = 0; watch && i < n && (int)i <= rc; i++)
		weak_plain(to + i, 1, true);
	return rc;
}

int model_snprintf(char *to, size_t n, const char *fmt, ...)
{
	va_list ap;
	int rc;

	va_start(ap, fmt);
	rc = model_vsnprintf(to, n, fmt, ap);
	va_end(ap);
	return rc;
}

/* --- what the compiler calls ------------------------------------------------ */

void __tsan_init(void);
void __tsan_func_entry(void *p);
void __tsan_func_exit(void);
void __tsan_vptr_update(void *p, void *v);
void __tsan_read_range(void *p, u64 n);
void __tsan_write_range(void *p, u64 n);

void __tsan_init(void)
{
}

void __tsan_func_entry(void *p)
{
	(void)p;
}

void __tsan_func_exit(void)
{
}

void __tsan_read_range(void *p, u64 n)
{
	u64 i;

	for (i = 0; watch && i < n; i += 8)
		weak_plain((char *)p + i, 8, false);
}

void __tsan_write_range(void *p, u64 n)
{
	u64 i;

	touch(p, n);
	for (i = 0; watch && i < n; i += 8)
		weak_plain((char *)p + i, 8, true);
}

static inline void plain_read(void *p, u32 n)
{
	if (unlikely(watch))
		weak_plain(p, n, false);
}

static inline void plain_write(void *p, u32 n)
{
	if (likely(step_id)) {
		touch(p, n);
		if (unlikely(watch))
			weak_plain(p, n, true);
	}
}

TSAN_HOOKS(1, plain_read, plain_write)
TSAN_HOOKS(2, plain_read, plain_write)
TSAN_HOOKS(4, plain_read, plain_write)
TSAN_HOOKS(8, plain_read, plain_write)
TSAN_HOOKS(16, plain_read, plain_write)
