// SPDX-License-Identifier: Apache-2.0
/*
 * src/engine/openmp.h in a program with OpenMP, of which this file has the three functions that
 * it uses.
 */
#ifndef _OPENMP
#define _OPENMP 201511
#endif
#define PAWL_COMPAT_DMLC_OMP_H	/* this file is that header */

static int threads, procs, set, asked;

static int omp_get_max_threads() { return threads; }

static int omp_get_num_procs()
{
	asked++;
	return procs;
}

static void omp_set_num_threads(int n)
{
	set++;
	threads = n;
}

#include <src/engine/openmp.h>
#include <algorithm>
#include <sys/wait.h>
#include <unistd.h>
#include "mx_test.hpp"

using mxnet::engine::OpenMP;

/* The environment of a new object: NULL is not set. */
static void Environment(const char *max, const char *by_user)
{
	EXPECT(!(max ? setenv("MXNET_OMP_MAX_THREADS", max, 1) : unsetenv("MXNET_OMP_MAX_THREADS")));
	EXPECT(!(by_user ? setenv("OMP_NUM_THREADS", by_user, 1) : unsetenv("OMP_NUM_THREADS")));
	threads = 12;
	procs = 8;
	set = asked = 0;
}

/* By default, the cores of the processors. */
static int Cores(int n)
{
#if defined(__i386__) || defined(__x86_64__)
	return n / 2;
#else
	return n;
#endif
}

MX_TEST(the_environment_has_the_number_of_threads)
{
	/* what is no number, or too large a one, is as if it were not set */
	static const struct {
		const char *text;
		int n;
	} numbers[] = {
		{ "5", 5 }, { "0", 0 }, { "-3", -3 }, { "7x", 7 }, { "999999999", 999999999 },
		{ "-999999999", -999999999 }, { "x", -1 }, { "", -1 }, { "1000000000", -1 },
		{ "-1000000000", -1 }, { "99999999999999999999", -1 }, { nullptr, -1 },
	};

	for (const auto &number : numbers) {
		const bool none = number.n == -1;

		Environment(number.text, nullptr);
		{
			OpenMP o;

			EXPECT(o.enabled() && !o.reserve_cores());
			EXPECT(o.thread_max() == (none ? Cores(8) : number.n));
			/* only the default is also OpenMP's */
			EXPECT(set == none && threads == (none ? Cores(8) : 12));
		}
		/* the user's number: OpenMP has read it */
		Environment(nullptr, number.text);
		{
			OpenMP o;

			EXPECT(o.thread_max() == (none ? Cores(8) : 12) && set == none);
			EXPECT(o.GetRecommendedOMPThreadCount() == (none ? Cores(8) : 12));
		}
		Environment("3", number.text);
		{
			OpenMP o;

			EXPECT(o.thread_max() == 3 && !set);
			EXPECT(o.GetRecommendedOMPThreadCount() == (none ? 3 : 12));
		}
	}
	/* at least one */
	Environment(nullptr, nullptr);
	for (procs = 0; procs < 4; procs++) {
		OpenMP o;

		EXPECT(o.thread_max() == Cores(procs));
		EXPECT(threads == std::max(1, Cores(procs)));
	}
}

MX_TEST(cores_that_are_reserved_are_not_recommended)
{
	Environment("10", nullptr);
	OpenMP o;

	EXPECT(o.GetRecommendedOMPThreadCount() == 10);
	EXPECT(o.GetRecommendedOMPThreadCount(false) == 10);
	threads = 6;
	EXPECT(o.GetRecommendedOMPThreadCount() == 6);
	for (int cores = 0; cores < 13; cores++) {
		o.set_reserve_cores(cores);
		EXPECT(o.reserve_cores() == cores);
		EXPECT(threads == (cores < 10 ? 10 - cores : 1));
		threads = 6;
		EXPECT(o.GetRecommendedOMPThreadCount() == (cores < 6 ? 6 - cores : 1));
		EXPECT(o.GetRecommendedOMPThreadCount(true) == (cores < 6 ? 6 - cores : 1));
		EXPECT(o.GetRecommendedOMPThreadCount(false) == 6);
	}
	set = 0;
	THROWS(dmlc::Error, "negative", o.set_reserve_cores(-1));
	EXPECT(o.reserve_cores() == 12 && !set);
	o.set_reserve_cores(0);
	/* 0: without a limit */
	threads = 6;
	for (int max : { 5, 6, 7, 0 }) {
		o.set_thread_max(max);
		EXPECT(o.thread_max() == max);
		EXPECT(o.GetRecommendedOMPThreadCount() == (max == 5 ? 5 : 6));
	}
	o.set_enabled(false);
	EXPECT(!o.enabled() && o.GetRecommendedOMPThreadCount() == 1);
	EXPECT(o.GetRecommendedOMPThreadCount(false) == 1);
	o.set_enabled(true);
	EXPECT(o.enabled() && o.GetRecommendedOMPThreadCount() == 6);
	asked = 0;
	o.initialize_process();
	EXPECT(asked == 1);
}

MX_TEST(a_worker_has_the_threads_that_are_recommended_or_one)
{
	Environment("4", nullptr);
	OpenMP o;

	o.set_reserve_cores(1);
	threads = 12;
	o.on_start_worker_thread(true);
	EXPECT(threads == 4);
	threads = 4;
	o.on_start_worker_thread(true);
	EXPECT(threads == 3);
	o.on_start_worker_thread(false);
	EXPECT(threads == 1);
	/* the user's number is kept, and counts whatever is reserved */
	Environment("4", "9");
	OpenMP by_user;

	by_user.set_reserve_cores(1);
	threads = 9;
	set = 0;
	EXPECT(by_user.GetRecommendedOMPThreadCount() == 9);
	by_user.on_start_worker_thread(true);
	by_user.on_start_worker_thread(false);
	EXPECT(!set && threads == 9);
}

MX_TEST(the_child_of_a_fork_uses_one_thread)
{
	int status = -1;
	OpenMP *o;
	pid_t pid;

	Environment("4", nullptr);
	o = OpenMP::Get();
	EXPECT(o == OpenMP::Get() && o->thread_max() == 4);
	EXPECT(o->GetRecommendedOMPThreadCount() == 4);
	pid = fork();
	EXPECT(pid >= 0);
	if (!pid)
		_exit(o->enabled() || o->GetRecommendedOMPThreadCount() != 1);
	EXPECT(waitpid(pid, &status, 0) == pid && !status);
	EXPECT(o->enabled() && o->GetRecommendedOMPThreadCount() == 4);
}

int main(int argc, char **argv)
{
	return MxMain(argc, argv);
}
