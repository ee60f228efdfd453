// SPDX-License-Identifier: Apache-2.0
/* The var queue: the real core and pools, with a minimal executor. */
#include "engine.h"

#define S(...)	PROGRAM(__VA_ARGS__, .setup = engine_setup, .check = engine_check)
#define N(...)	PROGRAM(__VA_ARGS__, .setup = engine_setup_naive, .check = engine_check)
#define T(...)	COMERS(__VA_ARGS__, .setup = engine_setup_few, .check = engine_check)
#define M(...)	PROGRAM(__VA_ARGS__, .setup = engine_setup_rm, .check = engine_check)
/* One thread may be stopped forever at any point, and the pushes of the others must return. */
#define F(...)	PROGRAM(__VA_ARGS__, .setup = engine_setup, .flags = MODEL_FREEZE)

/* Complete the op whose token came last, too. */
static void check_token(void)
{
	engine_complete();
	engine_check();
}

/* Op 0 fails: those that were pushed after it are skipped. */
static void check_skipped(void)
{
	u32 i;

	me.odd = true;
	engine_check();
	for (i = 1; i < me.nops; i++)
		if (me.ran[i] && (me.before[i] & 1))
			model_fail("op %u ran behind a write that failed", i);
}

const struct scenario scenarios[] = {
	S("ww", "w0 | w0", 2, MODEL_ALL, 2),
	S("wr", "w0 | r0", 2, MODEL_ALL, 2),
	S("wr2", "w0 r0 | r0 w0", 2, MODEL_ALL, 5),
	S("ww2", "w0 w0 | w0 w0", 2, MODEL_ALL, 5),
	S("pair", "w0w1 | w0w1", 2, MODEL_ALL, 5),
	S("cross", "w0r1 | r0w1", 2, MODEL_ALL, 5),
	S("again", "w0w1 w0w2 | w1w2 w0w1", 2, 3, 6),
	S("again_2", "w0w1 r1w2 | w0w2 w1w2", 2, 3, 6),
	S("wide", "w0w1w2w3w4 | w4r3 w0", 2, 3, 6),
	S("wide_batch", "w0r1+w1r2+w2r3+w3r4+w4r0 | w0w4 r2", 2, 2, 6),
	S("wait_2", "w0 W0 | w0 R0 | r0", 3, 2, 6),
	S("delete_3", "d0 n1 w1 | w0w2 | r0r2", 3, 2, 6),
	S("next", "w0w1 w2w3 | w0w1", 2, MODEL_ALL, 5),
	S("next_3", "w2w3 w4 . w0w1 w2w3 | w0w1", 2, 3, 5),
	S("recycle", "w0w1 . w2w3 | w0w1", 2, 3, 3),
	S("recycle_wide", "w0w1 . w2w3w4w5w6 | w0w1", 2, 2, 3),
	S("next_2", "w0w1 w2w3w4 | r0r1 w2", 2, 3, 5),
	S("triple", "w0w1 | w1w2 | w0w2", 3, MODEL_ALL, 6),
	S("three", "w0 r0 | r0 w0 | w0 w0", 3, MODEL_ALL, 6),
	S("chain", "w0w1 w0 | w0 w1 | r0r1", 3, MODEL_ALL, 6),
	S("delete", "d0 | w0 | r0", 3, MODEL_ALL, 6),
	S("delete2", "d0 n1 w1 | w0r2 | r0", 3, MODEL_ALL, 6),
	S("batch", "w0r1+w1r0 | w0w1 r0", 2, MODEL_ALL, 6),
	S("wait", "w0 W0 | r0 R0", 2, MODEL_ALL, 6),
	S("waitall2", "w0 A | w1", 2, MODEL_ALL, 6),
	S("waitall", "w0 A | w0", 2, MODEL_ALL, 6),
	S("reuse", "w0 d0 . n1 w1 | w0 R0 V0 r0", 2, 2, 3),
	S("handle", "d0 . n1 | V1 R1 V1", 2, 3, 3),
	S("limits", "w0 q0 z0 q0 R0 | w0 z0 W0", 2, 2, 3),
	S("errors", "fw0 . kw0 . fkw0 E0 | E0 C0 kw0 | T0 E0", 3, 1, 3),
	PROGRAM("error_meets_push", "fw0 | w0 r0", 2, MODEL_ALL, 2, .setup = engine_setup,
		.check = check_skipped),
	/* A thread records for a push while its op ends and another op takes the memory. */
	S("recycle_attached", "yw0w1w2w3w4w5 # w0w1w2w3w4w5 | r0 | Y . r0r1r2r3r4", 3, 2, 4),
	S("trim", "w0w1 d0 . M n2 w2 | w0w1 V0 R0", 2, 2, 3),
	S("trim_wide", "w0w1 . M w2w3w4w5w6 | w0w1", 2, 2, 3),
	PROGRAM("trim_token", "yw0 . Y M yw1 . | Y Y", 2, 2, 3, .setup = engine_setup,
		.check = check_token),
	S("trim_handle", "d0 . M n1 | V1 R1 V1 w1", 2, 2, 3),
	S("trims", "M w0 . | w0 d0 . M n1", 2, 2, 3),
	N("naive", "w0 r0 | w0w1 w1", 2, 2, 3),
	T("threads", "w0 | w0", 2, 2, 3),
	T("detach", "w0 . D w0 | w0", 2, 2, 3),
	T("detach_2", "w0 . D | w0 . D r0", 2, 2, 3),
	T("leave_all", "w0 . | w1 A", 2, 3, 3),
	T("leave_all_3", "w0 . | w1 . | w2 A", 3, 2, 3),
	T("threads_destroy", "w0 . X | w0 . x", 2, 2, 3),
	PROGRAM("complete_destroy", "yw0 . # X | x Y", 2, 3, 3, .setup = engine_setup_few,
		.check = engine_check),
	T("threads_destroy_3", "X | w0 . x | w0 . x", 3, 1, 3),
	M("rm", "w0 | r0", 2, MODEL_ALL, 3),
	M("rm_2", "w0 r0 | r0 w0", 2, MODEL_ALL, 5),
	M("rm_pair", "w0w1 | r0w1", 2, MODEL_ALL, 5),
	M("rm_above", "w1w2 | w1r2", 2, MODEL_ALL, 5),
	M("rm_cross", "w0r2 | r0w2", 2, MODEL_ALL, 5),
	M("rm_three", "w0 | r0r1 | w1r0", 3, 3, 5),
	M("rm_circle", "w1w2 | r2w3 | w1w3", 3, 3, 6),
	M("rm_read", "r0r1 . w0 | r0r1 | r0w1", 3, 2, 6),
	M("rm_late", "r0 | r0 | w0", 3, 3, 4),
	M("rm_begin", "r1r3 . # r1r3 | r1r5 | w1", 3, 3, 5),
	M("rm_again", "w0w1 r0w3 | r0r1 w0", 2, 3, 5),
	M("rm_delete", "d0 | r0r1 | r0", 3, 3, 5),
	M("rm_delete_2", "d0 n3 r3 | r0w1 | w0", 3, 2, 5),
	M("rm_batch", "r0w1+r0w3 | w0w1", 2, 3, 5),
	M("rm_batch_2", "r0w1+r0w0 | r0w1", 2, 3, 5),
	M("rm_wide", "r0r1r2r3w4 | w0w4 r2", 2, 2, 5),
	M("rm_wait", "W0 | r0r1 | R0", 3, 2, 5),
	M("rm_error", "fw0 . kw0 | kr0w1 E0 | kr0w3", 3, 1, 4),
	S("park", "K # w0 | r0", 2, MODEL_ALL, 2),
	S("park_2", "K # w0 r0 | r0 w0", 2, MODEL_ALL, 5),
	S("park_cross", "K # w0r1 | r0w1", 2, MODEL_ALL, 5),
	S("park_race", "K | r0 . w0", 2, MODEL_ALL, 3),
	S("park_used", "w0 . K | r0 w0", 2, MODEL_ALL, 5),
	S("park_again", "K # r0 . w0 . K | r0 w0", 2, 3, 5),
	S("park_helped", "K | w0w1 | r0w1", 3, 3, 6),
	S("parks", "K r0 . | K w0 | r0", 3, 2, 5),
	S("park_delete", "K # d0 n1 w1 | r0 | K", 3, 2, 5),
	S("park_delete_2", "K # d0 | r0r1 | w0w1", 3, 2, 5),
	S("park_batch", "K # r0w1+r0w0 | w0w1 K", 2, 3, 6),
	S("park_wide", "K # r0r1r2r3w4 | w0w4 r2", 2, 2, 5),
	S("park_wait", "K # r0 W0 V0 | w0 R0 K", 2, 2, 5),
	S("park_errors", "K # fw0 . kw0 K | E0 kr0", 2, 2, 4),
	M("park_rm", "K # r1r3 | r1r5 K | w1", 3, 2, 5),
	F("stop_park", "K | w0w1 | w1w0", 3, 2, 6),
	F("stop_pair", "w0w1 | w1w0", 2, MODEL_ALL, 6),
	F("stop_trim", "M | w0w1 . w0", 2, 1, 3),
	F("stop_three", "w0w1 | w1w0 | w0", 3, MODEL_ALL, 6),
	PROGRAM("stop_rm", "w0w1 | r0w1 | w1w0", 3, 3, 6, .setup = engine_setup_rm,
		.flags = MODEL_FREEZE),
	PROGRAM("stop_rm_2", "w1w2 | w1r2", 2, MODEL_ALL, 6, .setup = engine_setup_rm,
		.flags = MODEL_FREEZE),
	{ .name = NULL },
};
