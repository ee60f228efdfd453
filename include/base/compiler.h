/* SPDX-License-Identifier: Apache-2.0 */
/* Integer types, compiler attributes and small macros; layer 0. */
#ifndef BASE_COMPILER_H
#define BASE_COMPILER_H

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;
typedef int64_t s64;

#ifdef CONFIG_CACHELINE_SHIFT
#define CACHELINE (1u << CONFIG_CACHELINE_SHIFT)
#else
#define CACHELINE 64u
#endif

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define __cacheline_aligned __attribute__((aligned(CACHELINE)))
#define __noinline __attribute__((noinline))
#define __cold __attribute__((cold, noinline))
#define __always_inline_fn inline __attribute__((always_inline))
#define __printf(a, b) __attribute__((format(printf, a, b)))

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define container_of(ptr, type, member) \
	((type *)((char *)(ptr) - offsetof(type, member)))
#define min_u(a, b) ((a) < (b) ? (a) : (b))
#define max_u(a, b) ((a) > (b) ? (a) : (b))

#ifdef PAWL_SIM
void model_prefetchw(const void *p);
#define prefetchw(p) model_prefetchw(p)
#elif defined(__x86_64__)
/*
 * The compilers' prefetch for writing is one for reading unless -mprfchw tells them that all
 * processors have the instruction, and then the write moves the line a second time.  Those that
 * lack it, Intel's before Broadwell, do nothing.
 */
#define prefetchw(p) __asm__ __volatile__("prefetchw %0" : : "m" (*(const char *)(p)))
#else
#define prefetchw(p) __builtin_prefetch((p), 1, 3)
#endif

#endif
