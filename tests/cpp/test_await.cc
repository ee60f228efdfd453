// SPDX-License-Identifier: Apache-2.0
/* pawl/pawl.hpp with C++20: coroutines that wait for ops. */
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include <pawl/pawl.hpp>
#include "must.hh"

#ifdef PAWL_HAVE_COROUTINES

/* A coroutine that nothing waits for. */
struct task {
	struct promise_type {
		task get_return_object() { return {}; }
		std::suspend_never initial_suspend() noexcept { return {}; }
		std::suspend_never final_suspend() noexcept { return {}; }
		void return_void() {}
		void unhandled_exception() { std::abort(); }
	};
};

static pawl::config with_workers(int n)
{
	pawl::config c;

	c.workers = n;
	return c;
}

static task steps(const pawl::queue &q, const pawl::var &a, int *data, int *left)
{
	int was = co_await q.run([data] { return ++*data; }, pawl::writes(a));
	auto thread = std::this_thread::get_id();
	std::string text = co_await q.run([data] { return std::to_string(*data); }, pawl::reads(a));

	MUST(std::stoi(text) >= was && thread == std::this_thread::get_id());
	co_await q.run([data] { ++*data; }, pawl::writes(a), pawl::priority{1});
	--*left;
}

static void coroutines_continue_where_the_queue_is_dispatched()
{
	pawl::engine e(with_workers(2));
	pawl::var a(e);
	pawl::queue q(e);
	int data = 0, left = 100, i;
	unsigned int n = 0;

	for (i = 0; i < 100; i++)
		steps(q, a, &data, &left);
	while (left) {
		q.wait();
		n += q.dispatch();
	}
	MUST(n == 300 && data == 200);
}

static task failures(const pawl::engine &e, const pawl::queue &q, const pawl::var &a,
		     int *caught)
{
	pawl_var_t gone = {0};

	/* What the body threw. */
	try {
		co_await q.run([]() -> int { throw std::runtime_error("thrown"); },
			       pawl::writes(a));
	} catch (const std::runtime_error &x) {
		*caught += std::string(x.what()) == "thrown";
	}
	/* The op is skipped, because its var is poisoned. */
	try {
		co_await q.run([] {}, pawl::reads(a));
	} catch (const pawl::error &x) {
		*caught += x.code().value() == EIO ? 10 : 0;
	}
	a.clear();
	/* The push is refused: the coroutine continues at once. */
	try {
		co_await q.run([] {}, pawl::writes(gone));
	} catch (const pawl::error &x) {
		*caught += x.code().value() == ESTALE ? 100 : 0;
	}
	/* Too late. */
	try {
		co_await q.run([] {}, pawl::deadline{std::chrono::steady_clock::time_point(
						std::chrono::nanoseconds(1))});
	} catch (const pawl::error &x) {
		*caught += x.code().value() == ETIMEDOUT ? 1000 : 0;
	}
	MUST(e.stats().failed == 2);
	*caught += 10000;
}

static void failures_are_thrown_at_the_await()
{
	pawl::engine e(with_workers(1));
	pawl::var a(e);
	pawl::queue q(e);
	int caught = 0;

	failures(e, q, a, &caught);
	while (caught < 10000) {
		q.wait();
		q.dispatch();
	}
	MUST(caught == 11111);
}

int main()
{
	coroutines_continue_where_the_queue_is_dispatched();
	failures_are_thrown_at_the_await();
	return 0;
}

#else

int main()
{
	return 77;
}

#endif
