/* SPDX-License-Identifier: Apache-2.0 */
/* What the simulators of tests/model and tests/cores share: words, stacks, the compiler's calls. */
#ifndef MODEL_WORD_H
#define MODEL_WORD_H

#include <base/atomic_model.h>

static inline u64 word_get(const void *p, u32 size)
{
	switch (size) {
	case 1:
		return *(const u8 *)p;
	case 2:
		return *(const u16 *)p;
	case 4:
		return *(const u32 *)p;
	default:
		return *(const u64 *)p;
	}
}

static inline void word_put(void *p, u32 size, u64 v)
{
	switch (size) {
	case 1:
		*(u8 *)p = (u8)v;
		break;
	case 2:
		*(u16 *)p = (u16)v;
		break;
	case 4:
		*(u32 *)p = (u32)v;
		break;
	default:
		*(u64 *)p = v;
	}
}

/* What a read-modify-write stores. */
static inline u64 word_rmw(const struct model_site *s, u64 old, u64 v)
{
	switch (s->kind) {
	case MODEL_XCHG:
		return v;
	case MODEL_ADD:
		return old + v;
	case MODEL_OR:
		return old | v;
	default:
		return old & v;
	}
}

/* Save this stack's pointer, and continue on the other one. */
void stack_swap(u64 *save, u64 load);
#ifdef __x86_64__
#define STACK_SWAP									\
	__asm__(".text\n.globl stack_swap\nstack_swap:\n"				\
		"	push %rbp\n	push %rbx\n	push %r12\n"			\
		"	push %r13\n	push %r14\n	push %r15\n"			\
		"	mov %rsp, (%rdi)\n	mov %rsi, %rsp\n"			\
		"	pop %r15\n	pop %r14\n	pop %r13\n"			\
		"	pop %r12\n	pop %rbx\n	pop %rbp\n"			\
		"	ret\n")
#else
#error "the simulators switch stacks on x86-64 only"
#endif

/* What -fsanitize=thread calls before each plain access of n bytes. */
#define TSAN_HOOKS(n, reads, writes)							\
	void __tsan_read##n(void *p);							\
	void __tsan_read##n(void *p)							\
	{										\
		reads(p, n);								\
	}										\
	void __tsan_write##n(void *p);							\
	void __tsan_write##n(void *p)							\
	{										\
		writes(p, n);								\
	}										\
	void __tsan_unaligned_read##n(void *p);						\
	void __tsan_unaligned_read##n(void *p)						\
	{										\
		reads(p, n);								\
	}										\
	void __tsan_unaligned_write##n(void *p);					\
	void __tsan_unaligned_write##n(void *p)						\
	{										\
		writes(p, n);								\
	}

#endif
