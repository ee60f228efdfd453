/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dmlc/thread_group.h - the part that tests of an engine use: an event that a thread sets, and
 * a group of named threads that are joined together.
 */
#ifndef PAWL_COMPAT_DMLC_THREAD_GROUP_H
#define PAWL_COMPAT_DMLC_THREAD_GROUP_H

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <pawl/compat/dmlc/base.h>

namespace dmlc {

class ManualEvent {
public:
	ManualEvent() : set_(false) {}
	void wait()
	{
		std::unique_lock<std::mutex> lock(mutex_);

		changed_.wait(lock, [this] { return set_; });
	}
	void signal()
	{
		std::lock_guard<std::mutex> lock(mutex_);

		set_ = true;
		changed_.notify_all();
	}
	void reset()
	{
		std::lock_guard<std::mutex> lock(mutex_);

		set_ = false;
	}

private:
	std::mutex mutex_;
	std::condition_variable changed_;
	bool set_;
};

class ThreadGroup {
public:
	ThreadGroup() {}
	ThreadGroup(const ThreadGroup &) = delete;
	ThreadGroup &operator=(const ThreadGroup &) = delete;
	~ThreadGroup() { join_all(); }

	/* Returns false if the name is in use.  auto_remove has no effect here. */
	template <typename Fn, typename... Args>
	bool create(const std::string &name, bool auto_remove, Fn fn, Args... args)
	{
		std::lock_guard<std::mutex> lock(mutex_);

		(void)auto_remove;
		if (threads_.count(name))
			return false;
		threads_[name] = std::thread(std::move(fn), std::move(args)...);
		return true;
	}
	size_t size() const
	{
		std::lock_guard<std::mutex> lock(mutex_);

		return threads_.size();
	}
	bool empty() const { return !size(); }
	/* Also joins threads that are started meanwhile.  Not for threads of the group. */
	void join_all()
	{
		std::map<std::string, std::thread> some;

		do {
			for (auto &t : some)
				t.second.join();
			some.clear();
			std::lock_guard<std::mutex> lock(mutex_);
			some.swap(threads_);
		} while (!some.empty());
	}

private:
	mutable std::mutex mutex_;
	std::map<std::string, std::thread> threads_;
};

}

#endif
