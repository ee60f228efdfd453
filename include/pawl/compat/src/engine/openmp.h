/* SPDX-License-Identifier: Apache-2.0 */
/*
 * src/engine/openmp.h - what MXNet recommends about OpenMP, for code that queries it.  Without
 * OpenMP (-fopenmp), and in the child of a fork, it recommends one thread.  The workers of an
 * engine take their number of threads from the environment (Documentation/mxnet.md), not from
 * this object.
 */
#ifndef PAWL_COMPAT_SRC_ENGINE_OPENMP_H
#define PAWL_COMPAT_SRC_ENGINE_OPENMP_H

#include <pthread.h>
#include <atomic>
#include <cstdlib>
#include <pawl/compat/dmlc/logging.h>
#include <pawl/compat/dmlc/omp.h>

namespace mxnet {
namespace engine {

class OpenMP {
public:
	OpenMP()
		: enabled_(true), max_(0), reserved_(0), by_user_(Number("OMP_NUM_THREADS") != none)
	{
#ifdef _OPENMP
		const long max = Number("MXNET_OMP_MAX_THREADS");

		if (max != none) {
			max_ = static_cast<int>(max);
		} else if (by_user_) {
			max_ = omp_get_max_threads();
		} else {
#if defined(__i386__) || defined(__x86_64__)
			max_ = omp_get_num_procs() / 2;
#else
			max_ = omp_get_num_procs();
#endif
			omp_set_num_threads(max_ < 1 ? 1 : max_.load());
		}
#else
		enabled_ = false;
		max_ = 1;
#endif
	}
	OpenMP(const OpenMP &) = delete;
	OpenMP &operator=(const OpenMP &) = delete;

	int GetRecommendedOMPThreadCount(bool exclude_reserved = true) const
	{
#ifdef _OPENMP
		if (enabled_) {
			int n = omp_get_max_threads();

			if (by_user_)
				return n;
			if (exclude_reserved)
				n = reserved_ >= n ? 1 : n - reserved_;
			return !max_ || n < max_ ? n : max_.load();
		}
#else
		(void)exclude_reserved;
#endif
		return 1;
	}
	void set_enabled(bool enabled) { enabled_ = enabled; }
	bool enabled() const { return enabled_; }
	void set_thread_max(int thread_max) { max_ = thread_max; }
	int thread_max() const { return max_; }
	void set_reserve_cores(int cores)
	{
		if (cores < 0)
			throw dmlc::Error("OpenMP: a negative number of cores");
		reserved_ = cores;
		omp_set_num_threads(cores >= max_ ? 1 : max_ - cores);
	}
	int reserve_cores() const { return reserved_; }
	void on_start_worker_thread(bool use_omp)
	{
		if (!by_user_)
			omp_set_num_threads(use_omp ? GetRecommendedOMPThreadCount(true) : 1);
	}
	void initialize_process() { omp_get_num_procs(); }

	static OpenMP *Get()
	{
		static OpenMP *openmp = Make();

		return openmp;
	}

private:
	static const long none = -2147483647L - 1;

	/* A variable of the environment, or none if it is not a number. */
	static long Number(const char *name)
	{
		const char *s = std::getenv(name);
		char *end = nullptr;
		const long v = s ? std::strtol(s, &end, 10) : none;

		return s && end != s && v > -1000000000 && v < 1000000000 ? v : none;
	}
	/* Never freed, because the handler of forks refers to it. */
	static OpenMP *Make()
	{
		static OpenMP *openmp;

		openmp = new OpenMP;
		pthread_atfork(nullptr, nullptr, [] { openmp->set_enabled(false); });
		return openmp;
	}

	std::atomic<bool> enabled_;
	std::atomic<int> max_, reserved_;
	const bool by_user_;
};

}
}

#endif
