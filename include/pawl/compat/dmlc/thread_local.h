/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dmlc/thread_local.h - an object per thread and type.  As in dmlc-core it is kept when its
 * thread ends, and destroyed with the static objects of the program.
 */
#ifndef PAWL_COMPAT_DMLC_THREAD_LOCAL_H
#define PAWL_COMPAT_DMLC_THREAD_LOCAL_H

#include <memory>
#include <mutex>
#include <vector>
#include <pawl/compat/dmlc/base.h>

namespace dmlc {

template <typename T>
class ThreadLocalStore {
public:
	ThreadLocalStore(const ThreadLocalStore &) = delete;
	ThreadLocalStore &operator=(const ThreadLocalStore &) = delete;

	/* The calling thread's object. */
	static T *Get()
	{
		static thread_local T *mine = nullptr;

		if (!mine)
			mine = Store().Keep(std::unique_ptr<T>(new T()));
		return mine;
	}

private:
	ThreadLocalStore() {}
	static ThreadLocalStore &Store()
	{
		static ThreadLocalStore store;

		return store;
	}
	T *Keep(std::unique_ptr<T> object)
	{
		std::lock_guard<std::mutex> lock(mutex_);

		all_.push_back(std::move(object));
		return all_.back().get();
	}

	std::mutex mutex_;
	std::vector<std::unique_ptr<T>> all_;
};

}

#endif
