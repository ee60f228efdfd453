// SPDX-License-Identifier: Apache-2.0
/*
 * The whole engine: nothing is replaced.  Without workers, the threads run what is ready and
 * help while they wait; with one, it is created by the first push and sleeps at the end.
 */
#include "engine.h"

#define S(...)	PROGRAM(__VA_ARGS__, .setup = engine_setup, .check = engine_check)
#define W(...)	PROGRAM(__VA_ARGS__, .setup = engine_setup_worker, .check = engine_check,	\
			.flags = MODEL_SLEEPS_OK)

#define T(...)	COMERS(__VA_ARGS__, .setup = engine_setup_few, .check = engine_check)

const struct scenario scenarios[] = {
	S("run_ww", "w0 | w0", 2, MODEL_ALL, 6),
	S("run_pair", "w0w1 | r0w1", 2, 3, 6),
	S("run_3", "w0 | r0 | w0", 3, 2, 6),
	S("wait_readable", "w0 R0 | w0", 2, 3, 6),
	S("wait_writable", "r0 W0 | r0", 2, 3, 6),
	S("wait_all", "w0 A | w1", 2, 3, 6),
	S("wait_all_2", "w0 A | w0 A", 2, 2, 6),
	S("prio", "p2w0 m1r0 | w0", 2, 2, 6),
	S("batch", "w0r1+r0 | w1", 2, 2, 6),
	S("delete", "d0 | w0 | r0", 3, 2, 6),
	S("delete_all", "d0 A | w0", 2, 3, 6),
	W("worker_w", "w0 W0", 1, 3, 6),
	W("worker_ww", "w0 | w0", 2, 2, 6),
	W("worker_all", "w0 r0 A", 1, 2, 6),
	W("worker_stop", "w0 S", 1, 2, 6),
	W("worker_stop_2", "w0 S | w0", 2, 2, 6),
	W("worker_destroy", "w0 X", 1, 2, 3),
	{ .name = NULL },
};
