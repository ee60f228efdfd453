// SPDX-License-Identifier: Apache-2.0
/* pawl/pawl.hpp with C++20: coroutines that wait for ops. */
#include <atomic>
#include <chrono>
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

static int left;

static void dispatch_all(const pawl::queue &q)
{
	while (left) {
		q.wait();
		q.dispatch();
	}
}

static task behind_an_error(const pawl::queue &q, const pawl::var &v)
{
	left++;
	MUST(co_await q.run([] { return 42; }, pawl::reads(v), pawl::no_skip{}) == 42);
	co_await q.run([] {}, pawl::reads(v), pawl::no_skip{});
	left--;
}

static void a_body_that_ran_gives_its_result_behind_an_error()
{
	pawl::engine e(with_workers(1));
	pawl::var v(e);
	pawl::queue q(e);

	e.push([] { throw std::runtime_error("bad"); }, pawl::writes(v));
	behind_an_error(q, v);
	dispatch_all(q);
	v.clear();
	e.wait();
}

static task fails(const pawl::queue &q, const pawl::var &v, bool writes)
{
	bool caught = false;

	left++;
	try {
		auto f = [] { throw std::runtime_error("once"); };

		if (writes)
			co_await q.run(f, pawl::writes(v));
		else
			co_await q.run(f);
	} catch (const std::runtime_error &x) {
		caught = std::string(x.what()) == "once";
	}
	MUST(caught);
	left--;
}

template <class F> static std::string text_of(F wait)
{
	try {
		wait();
	} catch (const std::exception &x) {
		return x.what();
	}
	return "";
}

static void an_error_is_thrown_once()
{
	pawl::engine e(with_workers(2));
	pawl::var v(e), w(e);
	pawl::queue q(e);
	int i;

	/* Many, all of which the coroutines have caught. */
	for (i = 0; i < 40; i++) {
		fails(q, v, i == 3);
		dispatch_all(q);
	}
	MUST(text_of([&] { e.wait(); }).empty());
	fails(q, v, true);
	dispatch_all(q);
	MUST(text_of([&] { v.wait(); }).empty() && text_of([&] { e.wait(); }).empty());
	/* One among them that nobody has caught. */
	fails(q, v, false);
	dispatch_all(q);
	e.push([] { throw std::runtime_error("another"); });
	MUST(!text_of([&] { e.wait(); }).empty());
	e.push([] { throw std::runtime_error("alone"); }, pawl::writes(w));
	MUST(text_of([&] { e.wait(); }) == "alone");
	v.clear();
	w.clear();
}

static task references(const pawl::queue &q, std::string *text)
{
	left++;
	std::string &same = co_await q.run([text]() -> std::string & { return *text; });
	MUST(&same == text);
	MUST(co_await q.run([](pawl_run &run) { return pawl_run_canceled(&run); }) == 0);
	left--;
}

static void a_callable_may_return_a_reference_or_take_the_run()
{
	pawl::engine e(with_workers(1));
	pawl::queue q(e);
	std::string text = "x";

	references(q, &text);
	dispatch_all(q);
}

/* A coroutine that its owner destroys. */
struct owned {
	struct promise_type {
		owned get_return_object()
		{
			return {std::coroutine_handle<promise_type>::from_promise(*this)};
		}
		std::suspend_never initial_suspend() noexcept { return {}; }
		std::suspend_always final_suspend() noexcept { return {}; }
		void return_void() {}
		void unhandled_exception() {}
	};
	std::coroutine_handle<promise_type> h;
};

static owned counts(const pawl::queue &q, std::atomic<int> *began, std::atomic<int> *ended,
		    bool *over)
{
	auto body = [began, ended] {
		++*began;
		std::this_thread::sleep_for(std::chrono::milliseconds(20));
		++*ended;
	};

	co_await q.run(body);
	*over = true;
}

static void a_coroutine_may_be_destroyed_while_its_op_is_in_flight()
{
	pawl::engine e(with_workers(1));
	pawl::queue q(e);
	std::atomic<int> began[3] = {}, ended[3] = {};
	bool over[3] = {};
	owned c[] = {counts(q, &began[0], &ended[0], &over[0]),
		     counts(q, &began[1], &ended[1], &over[1]),
		     counts(q, &began[2], &ended[2], &over[2])};

	while (!began[0])
		std::this_thread::yield();
	/* One that runs, and one that has not started, or has by now. */
	for (int i : {0, 1}) {
		c[i].h.destroy();
		MUST(began[i] == ended[i]);
	}
	while (!over[2]) {
		q.wait();
		q.dispatch();
	}
	MUST(!over[0] && !over[1] && c[2].h.done());
	c[2].h.destroy();
	/* None is left when the queue ends; the wait reports an op that was canceled in time. */
	try {
		e.wait();
	} catch (const pawl::error &x) {
		MUST(x.code().value() == ECANCELED && !ended[1]);
	}
}

static task retries(const pawl::queue &q, int *state)
{
	co_await q.run([] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
	*state = 1;
	try {
		co_await q.run([] {});
	} catch (const pawl::error &x) {
		*state = x.code().value() == ECANCELED ? 2 : 3;
	}
}

static void coroutines_continue_when_their_queue_ends()
{
	pawl::engine e(with_workers(1));
	int state[5] = {}, n = 0;
	{
		pawl::queue q(e);

		for (int &s : state)
			retries(q, &s);
	}
	for (int s : state)
		n += s;
	MUST(n == 10);
}

int main()
{
	a_body_that_ran_gives_its_result_behind_an_error();
	an_error_is_thrown_once();
	a_callable_may_return_a_reference_or_take_the_run();
	a_coroutine_may_be_destroyed_while_its_op_is_in_flight();
	coroutines_continue_when_their_queue_ends();
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
