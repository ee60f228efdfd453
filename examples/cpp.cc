// SPDX-License-Identifier: Apache-2.0
/*
 * The engine in C++: lambdas as bodies, an exception that reaches the wait behind the data that
 * it spoiled, and, with C++20, a coroutine that waits for ops without a thread.
 */
#include <cstdio>
#include <stdexcept>
#include <vector>

#include <pawl/pawl.hpp>

#ifdef PAWL_HAVE_COROUTINES
struct task {
	struct promise_type {
		task get_return_object() { return {}; }
		std::suspend_never initial_suspend() noexcept { return {}; }
		std::suspend_never final_suspend() noexcept { return {}; }
		void return_void() {}
		void unhandled_exception() { throw; }
	};
};

static task serve(const pawl::queue &q, const pawl::var &v, std::vector<double> &data,
		  bool &done)
{
	double last = co_await q.run([&] { return data.back(); }, pawl::reads(v));

	std::printf("the coroutine read %g\n", last);
	co_await q.run([&] { data.push_back(last + 1); }, pawl::writes(v));
	done = true;
}
#endif

int main()
{
	pawl::engine engine;
	std::vector<double> data(1000, 1.0);
	double sum = 0;
	pawl::var v(engine), s(engine);
	bool caught = false;

	/* The second op waits for the first, since it reads what that one writes. */
	engine.push([&] { for (double &x : data) x *= 2; }, pawl::writes(v));
	engine.push([&] { for (double x : data) sum += x; }, pawl::reads(v), pawl::writes(s),
		    pawl::name{"sum"});
	s.wait();
	std::printf("the sum is %g\n", sum);

	/* The op behind one that threw does not run; its wait throws what that one threw. */
	engine.push([] { throw std::runtime_error("no more data"); }, pawl::writes(v));
	engine.push([&] { sum = -1; }, pawl::reads(v), pawl::writes(s));
	try {
		s.wait();
	} catch (const std::runtime_error &e) {
		std::printf("the wait threw: %s\n", e.what());
		caught = true;
	}

#ifdef PAWL_HAVE_COROUTINES
	pawl::queue q(engine);
	bool done = false;

	serve(q, v, data, done);
	while (!done) {
		q.wait();	/* an event loop would poll q.fd() */
		q.dispatch();
	}
#endif
	engine.wait();
	return !caught || sum != 2000;
}
