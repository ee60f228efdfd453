// SPDX-License-Identifier: Apache-2.0
/* core/state.h: the fields of the packed words do not overlap, and wrap as they should. */
#include "util.h"
#include <core/op.h>

/* The masks and widths that the legend at the top of state.h promises. */
START_TEST(test_widths)
{
	ck_assert_uint_eq(BLOCK_BITS, 21);
	ck_assert_uint_eq(JOIN_BITS, 20);
	ck_assert_uint_eq(VAR_BITS, 26);
	ck_assert_uint_eq(SLOT_BITS + TAG_SEQ_BITS + 2, 64);
	ck_assert_uint_eq(2 * BLOCK_BITS + JOIN_BITS + 2, 64);
	ck_assert_uint_eq(BLOCK_COUNT_SHIFT + JOIN_BITS, 64);
	ck_assert_uint_eq(sizeof(struct var), 64);
	ck_assert_uint_eq(sizeof(struct var_side), VAR_SIZE - 64);
	ck_assert_uint_eq(sizeof(struct op), 128);
	ck_assert_uint_eq(sizeof(struct block), 32);
	/* Flags and fields do not overlap. */
	ck_assert_uint_eq(WORD_LASTW & WORD_DELETED, 0);
	ck_assert_uint_eq((WORD_LASTW | WORD_DELETED) & (JOIN_MASK << WORD_JOIN_SHIFT), 0);
	ck_assert_uint_eq((BLOCK_DONE | BLOCK_CLOSED | BLOCK_ERR) & BLOCK_LIST_MASK, 0);
	ck_assert_uint_eq(BLOCK_LIST_MASK & (JOIN_MASK << BLOCK_COUNT_SHIFT), 0);
}
END_TEST

START_TEST(test_word_fields)
{
	const u32 blocks[] = { 0, 1, 2, 0x155555, 0x1ffffe, 0x1fffff };
	const u32 joins[] = { 0, 1, 0x80000, 0xfffff };
	const u64 flags[] = { 0, WORD_LASTW, WORD_DELETED, WORD_LASTW | WORD_DELETED };
	size_t a, b, j, f;

	for (a = 0; a < ARRAY_SIZE(blocks); a++)
		for (b = 0; b < ARRAY_SIZE(blocks); b++)
			for (j = 0; j < ARRAY_SIZE(joins); j++)
				for (f = 0; f < ARRAY_SIZE(flags); f++) {
					u64 w = word_make(blocks[a], blocks[b], joins[j],
							  flags[f]);

					ck_assert_uint_eq(word_cur(w), blocks[a]);
					ck_assert_uint_eq(word_prev(w), blocks[b]);
					ck_assert_uint_eq(word_joined(w), joins[j]);
					ck_assert_uint_eq(w & (WORD_LASTW | WORD_DELETED),
							  flags[f]);
				}
}
END_TEST

START_TEST(test_word_join)
{
	u64 w = word_make(7, 3, 0, 0);

	w = word_join(w, 1);
	w = word_join(w, 2);
	ck_assert_uint_eq(word_joined(w), 3);
	ck_assert_uint_eq(word_cur(w), 7);
	ck_assert_uint_eq(word_prev(w), 3);
	ck_assert_uint_eq(w & WORD_LASTW, 0);
	/* The first reader after a write starts a new count: the frozen one is not its. */
	w = word_join(word_make(9, 7, 5, WORD_LASTW), 1);
	ck_assert_uint_eq(word_joined(w), 1);
	ck_assert_uint_eq(w & WORD_LASTW, 0);
}
END_TEST

/* Reads of one version run into the billions: the count is modulo its field. */
START_TEST(test_word_join_wraps)
{
	u64 w = word_make(7, 3, JOIN_MASK, 0);

	w = word_join(w, 1);
	ck_assert_uint_eq(word_joined(w), 0);
	ck_assert_uint_eq(word_cur(w), 7);
	ck_assert_uint_eq(word_prev(w), 3);
	ck_assert_uint_eq(w & (WORD_LASTW | WORD_DELETED), 0);
	w = word_make(BLOCK_MASK, BLOCK_MASK, JOIN_MASK, 0);
	w = word_join(w, 5);
	ck_assert_uint_eq(word_joined(w), 4);
	ck_assert_uint_eq(word_prev(w), BLOCK_MASK);
}
END_TEST

START_TEST(test_word_write)
{
	u64 w = word_make(7, 3, 5, 0);

	w = word_write(w, 9, 0, false);
	ck_assert_uint_eq(word_cur(w), 9);
	ck_assert_uint_eq(word_prev(w), 7);
	ck_assert_uint_eq(word_joined(w), 5);	/* frozen: the readers that joined 7 */
	ck_assert(w & WORD_LASTW);
	ck_assert(!(w & WORD_DELETED));
	/* A write behind a write: no reader joined the one before. */
	w = word_write(w, 11, 0, false);
	ck_assert_uint_eq(word_prev(w), 9);
	ck_assert_uint_eq(word_joined(w), 0);
	/* A batch brings readers of the block before along. */
	w = word_write(word_make(7, 3, 5, 0), 9, 4, true);
	ck_assert_uint_eq(word_joined(w), 9);
	ck_assert(w & WORD_DELETED);
}
END_TEST

START_TEST(test_tags)
{
	const u32 slots[] = { 0, 1, 2046, 2047 };
	const u64 seqs[] = { 0, 1, TAG_SEQ_MASK - 1, TAG_SEQ_MASK };
	size_t i, j;

	for (i = 0; i < ARRAY_SIZE(slots); i++)
		for (j = 0; j < ARRAY_SIZE(seqs); j++) {
			u64 t = tag_make(slots[i], seqs[j], 0);

			ck_assert_uint_eq(tag_slot(t), slots[i]);
			ck_assert_uint_eq(tag_seq(t), seqs[j]);
			ck_assert_uint_eq(t & TAG_SIMPLE, 0);
			t = tag_make(slots[i], seqs[j], TAG_SIMPLE);
			ck_assert_uint_eq(tag_slot(t), slots[i]);
			ck_assert_uint_eq(tag_seq(t), seqs[j]);
			ck_assert_uint_eq(t & TAG_SIMPLE, TAG_SIMPLE);
			ck_assert_uint_eq(t & TAG_KNOWN, 0);
			ck_assert(tag_same(t, t) && tag_same(t | TAG_KNOWN, t));
			ck_assert(!tag_same(t ^ 4, t));
		}
}
END_TEST

/* An empty record is never taken for a value, nor a value for an empty one. */
START_TEST(test_records)
{
	u64 tag = tag_make(2047, 12345, 0);
	u64 val = word_make(BLOCK_MASK, 1, 2, WORD_LASTW);

	ck_assert(!rec_is_value(rec_empty(tag)));
	ck_assert(rec_is_value(rec_value(val)));
	ck_assert_uint_eq(rec_word(rec_value(val)), val);
	ck_assert_uint_ne(rec_empty(tag), rec_empty(tag_make(2047, 12346, 0)));
	/* DELETED is not kept: a deleted word is never overwritten. */
	ck_assert_uint_eq(rec_word(rec_value(val | WORD_DELETED)), val);
}
END_TEST

START_TEST(test_block_state)
{
	u64 s = BLOCK_ONE, t;

	ck_assert_uint_eq(block_count(s), 1);
	ck_assert_uint_eq(block_list(s), 0);
	t = block_with_list(s, 0xffffffff);
	ck_assert_uint_eq(block_list(t), 0xffffffff);
	ck_assert_uint_eq(block_count(t), 1);
	t = block_with_list(t, 5);
	ck_assert_uint_eq(block_list(t), 5);
	/*
	 * The completion of the write: one hold less, DONE; below zero wraps, and comes back.
	 */
	s = t - BLOCK_ONE + BLOCK_DONE;
	ck_assert_uint_eq(block_count(s), 0);
	ck_assert(s & BLOCK_DONE);
	s -= 3 * BLOCK_ONE;	/* three readers are over before the next writer closes */
	s += 3 * BLOCK_ONE + BLOCK_CLOSED;
	ck_assert_uint_eq(block_count(s), 0);
	ck_assert_uint_eq(s & (BLOCK_DONE | BLOCK_CLOSED | BLOCK_ERR),
			  BLOCK_DONE | BLOCK_CLOSED);
	ck_assert_uint_eq(block_list(s), 5);
}
END_TEST

START_TEST(test_status)
{
	u64 st = status_make(TAG_SEQ_MASK, PHASE_COMMITTED);

	ck_assert_uint_eq(st >> 2, TAG_SEQ_MASK);
	ck_assert_uint_eq(st & 3, PHASE_COMMITTED);
	ck_assert_uint_ne(status_make(1, PHASE_LINKING), status_make(1, PHASE_FINISHED));
	ck_assert_uint_ne(status_make(1, PHASE_LINKING), status_make(2, PHASE_LINKING));
}
END_TEST

START_TEST(test_ext_capacity)
{
	ck_assert_uint_eq(ext_cap(0), 16);
	ck_assert_uint_eq(ext_cap(1), 256);
	ck_assert_uint_eq(ext_cap(2), 4096);
	ck_assert_uint_eq(ext_cap(3), 32768);
}
END_TEST

/* A reference finds its access again, inline and in each class of chunks. */
START_TEST(test_refs)
{
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	u32 class, opi, j;

	for (j = 0; j < INLINE_DEPS; j++) {
		u32 ref = dep_ref(77, 2, 0, j);

		ck_assert_uint_ne(ref, 0);
		ck_assert_ptr_eq(dep_of(e, ref, &opi), &op_of(e, 77)->deps[j]);
		ck_assert_uint_eq(opi, 77);
	}
	for (class = 0; class < EXT_CLASSES; class++) {
		struct thread *t = thread_get(e);
		u32 n = class ? ext_cap(class - 1) + 1 : INLINE_DEPS + 1, ext = 0;
		const u32 at[] = { 0, 1, n - 1, ext_cap(class) - 1 };

		OK(ext_get(t, n, 4711, &ext));
		ck_assert_uint_eq(ext >> 30, class);
		for (j = 0; j < ARRAY_SIZE(at); j++) {
			u32 ref = dep_ref(4711, n, ext, at[j]);

			ck_assert(ref & REF_EXT);
			ck_assert_ptr_eq(dep_of(e, ref, &opi), &ext_of(e, ext)->deps[at[j]]);
			ck_assert_uint_eq(opi, 4711);
		}
		ext_put(t, ext);
	}
	OK(pawl_engine_destroy(e));
}
END_TEST

/* The sort is in place and removes doubles; below and above the limit of the insertion. */
START_TEST(test_deps_sort)
{
	u64 seed = 1;
	u32 sizes[] = { 0, 1, 2, 3, 4, 5, 15, 16, 17, 100, 1000 };
	size_t s;

	for (s = 0; s < ARRAY_SIZE(sizes); s++) {
		u32 n = sizes[s], i, k, left;
		struct dep *d = calloc(n + 1, sizeof(*d));
		u8 *want = calloc(n + 1, 1);	/* 1 read, 2 write */

		for (i = 0; i < n; i++) {
			u32 v = (u32)(rnd(&seed) % (n + 1));
			bool w = rnd(&seed) & 1;

			d[i].var = v | (w ? DEP_WRITE : 0);
			want[v] |= w ? 2 : 1;
		}
		left = deps_sort(d, n);
		for (i = 0, k = 0; i <= n; i++) {
			if (!want[i])
				continue;
			ck_assert_uint_lt(k, left);
			ck_assert_uint_eq(d[k].var, i | (want[i] & 2 ? DEP_WRITE : 0));
			k++;
		}
		ck_assert_uint_eq(k, left);
		free(d);
		free(want);
	}
}
END_TEST

SUITE("state", test_widths, test_word_fields, test_word_join, test_word_join_wraps,
      test_word_write, test_tags, test_records, test_block_state, test_status,
      test_ext_capacity, test_refs, test_deps_sort)
