// SPDX-License-Identifier: Apache-2.0
/*
 * drive_tbb.cc - oneTBB for pawl bench --vs: tasks without dependences, which an arena of workers
 * runs.  Threads that push are outside of it, as they are with the other engines.
 */
#include <tbb/global_control.h>
#include <tbb/task_arena.h>

#include "driver.h"

namespace {

struct drive {
	tbb::global_control limit;
	tbb::task_arena arena;

	drive(unsigned pushers, unsigned workers) :
		limit(tbb::global_control::max_allowed_parallelism, workers + 1),
		arena((int)workers + 1, 1)
	{
		(void)pushers;
		arena.initialize();
	}
};

void *create(unsigned pushers, unsigned workers, uint32_t)
{
	return new drive(pushers, workers);
}

void push(void *e, uint32_t, void (*body)(void *arg), void *arg)
{
	((drive *)e)->arena.enqueue([=] { body(arg); });
}

void destroy(void *e)
{
	delete (drive *)e;
}

} /* namespace */

extern "C" {
/* version, name, unordered, create, enter, push, destroy */
const struct bench_driver bench_driver = {
	BENCH_DRIVER_VERSION, "tbb", true, create, nullptr, push, destroy,
};
}
