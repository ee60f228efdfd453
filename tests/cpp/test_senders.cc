// SPDX-License-Identifier: Apache-2.0
/*
 * pawl/execution.hpp: ops as senders.  By default with the names of execution.hh; forms.sh compiles it
 * with others, too: stdexec, beman::execution, and the standard library where that has senders.
 */
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <version>

#if defined(WITH_STDEXEC)
#include <stdexec/execution.hpp>
#define PAWL_EXECUTION stdexec
namespace ex = stdexec;
using ex::sync_wait;
#elif defined(WITH_BEMAN)
#include <beman/execution.hpp>
#define PAWL_EXECUTION beman::execution
#define NO_ALGORITHMS 1
namespace ex = beman::execution;
#elif defined(__cpp_lib_senders)
#include <execution>
namespace ex = std::execution;
using std::this_thread::sync_wait;
#else
#include "execution.hh"
#define PAWL_EXECUTION reference
#define NO_ALGORITHMS 1
namespace ex = reference;
#endif
#include <pawl/pawl.hpp>
#include "../sanitized.h"
#include "must.hh"

using namespace std::chrono_literals;

static std::atomic<int> allocations{0};

#if !SANITIZED	/* a sanitizer has these operators itself */
__attribute__((noinline)) void *operator new(std::size_t n)
{
	allocations++;
	if (void *p = std::malloc(n))
		return p;
	throw std::bad_alloc();
}
__attribute__((noinline)) void *operator new(std::size_t n, const std::nothrow_t &) noexcept
{
	return std::malloc(n);
}
__attribute__((noinline)) void operator delete(void *p) noexcept { std::free(p); }
__attribute__((noinline)) void operator delete(void *p, std::size_t) noexcept { std::free(p); }
#endif

static pawl::config with_workers(int n)
{
	pawl::config c;

	c.workers = n;
	c.start_workers = true;
	return c;
}

/* How an operation has ended. */
struct outcome {
	std::atomic<int> how{0};	/* 'v', 'e', 's' */
	std::thread::id thread;
	std::string text;
	int value = 0, code = 0;
	void (*then)(outcome *) = nullptr;
	const pawl::var *var = nullptr;

	void end(int h)
	{
		thread = std::this_thread::get_id();
		if (then)
			then(this);
		MUST(!how.exchange(h));
		how.notify_all();
	}
	int wait()
	{
		how.wait(0);
		return how;
	}
};

template <class Token> struct receiver {
	using receiver_concept = ex::receiver_tag;

	struct env {
		Token token;
#ifdef PAWL_EXECUTION
		Token query(ex::get_stop_token_t) const noexcept { return token; }
#else
		Token query(std::get_stop_token_t) const noexcept { return token; }
#endif
	};

	outcome *o;
	Token token;

	env get_env() const noexcept { return {token}; }
	void set_value() && noexcept { o->end('v'); }
	void set_value(int n) && noexcept
	{
		o->value = n;
		o->end('v');
	}
	void set_error(std::exception_ptr x) && noexcept
	{
		try {
			std::rethrow_exception(x);
		} catch (const std::system_error &err) {
			o->code = err.code().value();
			o->text = err.what();
		} catch (const std::exception &err) {
			o->text = err.what();
		}
		o->end('e');
	}
	void set_stopped() && noexcept { o->end('s'); }
};

#if defined(WITH_STDEXEC) || defined(WITH_BEMAN)
using never = ex::never_stop_token;
using source = ex::inplace_stop_source;
#elif defined(NO_ALGORITHMS)
using never = ex::never_stop_token;
using source = std::stop_source;
#else
using never = std::never_stop_token;
using source = std::inplace_stop_source;
#endif
using token = decltype(std::declval<source &>().get_token());

template <class S> int run(S s, outcome &o)
{
	auto operation = ex::connect(std::move(s), receiver<never>{&o, {}});

	ex::start(operation);
	return o.wait();
}

static void a_scheduler_is_one()
{
	pawl::engine e, other;
	pawl::scheduler s(e), first(e, pawl::priority{1});
	outcome o;

	static_assert(ex::scheduler<pawl::scheduler>);
	static_assert(ex::sender<decltype(s.schedule())>);
	MUST(s == pawl::scheduler(e) && s != first && s != pawl::scheduler(other));
	MUST(ex::get_forward_progress_guarantee(s) == ex::forward_progress_guarantee::parallel);
	MUST(ex::get_completion_scheduler<ex::set_value_t>(ex::get_env(ex::schedule(first))) == first);
	MUST(run(ex::schedule(s), o) == 'v' && o.thread != std::this_thread::get_id());
}

static void an_operation_ends_with_what_its_body_returns()
{
	pawl::engine e(with_workers(2));
	pawl::var a(e), b(e);
	pawl::scheduler s(e);
	int x = 0, was;

	for (int i = 1; i <= 1000; i++) {
		outcome o, p;

		was = allocations;
		e.push([&] { x++; }, pawl::writes(a));
		MUST(run(s.run([&] { return x; }, pawl::reads(a), pawl::writes(b)), o) == 'v');
		MUST(o.value == i && (i == 1 || allocations == was));
		MUST(run(s.run([&](pawl_run &) {}, pawl::writes(a)), p) == 'v');
	}
}

static void an_error_is_reported_once()
{
	pawl::engine e(with_workers(1));
	pawl::var a(e);
	pawl::scheduler s(e);
	outcome thrown, skipped, late, refused, ended;

	MUST(run(s.run([]() -> int { throw std::runtime_error("no"); }, pawl::writes(a)), thrown) == 'e');
	MUST(thrown.text == "no");
	/* It is poisoned, and an op behind it is skipped. */
	MUST(run(s.run([] {}, pawl::reads(a)), skipped) == 'e' && skipped.code == EIO);
	e.wait();
	MUST(run(s.run([] {}, pawl::reads(a), pawl::deadline(std::chrono::steady_clock::now() - 1s)),
		 late) == 'e' && late.code == ETIMEDOUT);
	{
		pawl::engine gone;

		s = pawl::scheduler(gone);
	}
	MUST(run(ex::schedule(s), ended) == 'e' && ended.code == EINVAL);
	a = pawl::var();
	MUST(run(pawl::scheduler(e).run([] {}, pawl::writes(a)), refused) == 'e' && refused.code == ESTALE);
}

static void an_operation_that_is_stopped_ends_as_stopped()
{
	pawl::engine e(with_workers(1));
	pawl::var a(e);
	pawl::group g(e);
	pawl::scheduler s(e);
	std::atomic<bool> go{false}, runs{false};
	source before, queued, running;
	outcome o[4];
	int ran = 0;

	auto body = [&] { ran++; };
	auto second = ex::connect(s.run(body, pawl::writes(a)), receiver<token>{&o[1], queued.get_token()});
	auto third = ex::connect(s.run(body, pawl::reads(a), pawl::in(g)), receiver<never>{&o[2], {}});
	auto fourth = ex::connect(s.run([&](pawl_run &r) {
		runs = true;
		while (!pawl_run_canceled(&r))
			std::this_thread::sleep_for(1ms);
		return 7;
	}), receiver<token>{&o[3], running.get_token()});

	before.request_stop();
	auto first = ex::connect(s.run(body), receiver<token>{&o[0], before.get_token()});
	ex::start(first);
	MUST(o[0].wait() == 's' && o[0].thread == std::this_thread::get_id());

	e.push([&] { go.wait(false); }, pawl::writes(a));
	ex::start(second);
	queued.request_stop();
	ex::start(third);
	g.cancel();
	go = true;
	go.notify_all();
	MUST(o[1].wait() == 's' && o[2].wait() == 's' && !ran);

	/* It is told, and ends as it likes. */
	ex::start(fourth);
	while (!runs)
		std::this_thread::yield();
	running.request_stop();
	MUST(o[3].wait() == 'v' && o[3].value == 7);
}

/* A stop at any time: it ends once, as a value if and only if its body ran. */
static void a_stop_may_come_at_any_time()
{
	pawl::engine e(with_workers(2));
	pawl::var a(e);
	pawl::scheduler s(e);

	for (int i = 0; i < 2000; i++) {
		std::atomic<int> ran{0};
		outcome o;
		source stop;
		auto operation = ex::connect(s.run([&] { return ++ran; }, pawl::writes(a)),
					     receiver<token>{&o, stop.get_token()});
		std::thread other;

		if (i % 16)
			e.push([&] { stop.request_stop(); });
		else
			other = std::thread([&] { stop.request_stop(); });
		ex::start(operation);
		MUST(o.wait() == (ran ? 'v' : 's'));
		if (other.joinable())
			other.join();
		e.wait();
	}
}

static void what_is_behind_an_operation_holds_no_vars()
{
	outcome o, p;
	pawl::engine e(with_workers(1));
	pawl::var a(e);
	pawl::scheduler s(e);

	o.var = &a;
	o.then = [](outcome *out) { out->var->wait_with_reads(); };
	MUST(run(s.run([] { return 1; }, pawl::writes(a)), o) == 'v');
	/* Of what schedule() began a wait for all ops waits for the end. */
	p.then = [](outcome *) { std::this_thread::sleep_for(20ms); };
	auto operation = ex::connect(ex::schedule(s), receiver<never>{&p, {}});
	ex::start(operation);
	e.wait();
	MUST(p.how == 'v');
}

/* The engine's end waits for what one op's end starts. */
struct chain;
struct step {
	using receiver_concept = ex::receiver_tag;
	chain *c;
	template <class... T> void set_value(T &&...) && noexcept;
	template <class T> void set_error(T &&) && noexcept { std::abort(); }
	void set_stopped() && noexcept { std::abort(); }
};
static int nothing() { return 0; }
struct chain {
	using operation = decltype(ex::connect(std::declval<pawl::scheduler &>().run(nothing), step{}));
	pawl::scheduler s;
	int left = 100;
	std::unique_ptr<operation> now, last;

	explicit chain(pawl::scheduler of) : s(std::move(of)) {}
	void next()
	{
		if (!left--)
			return;
		last = std::move(now);
		now.reset(new operation(ex::connect(s.run(nothing), step{this})));
		ex::start(*now);
	}
};
template <class... T> void step::set_value(T &&...) && noexcept
{
	std::this_thread::sleep_for(100us);
	c->next();
}

static void the_end_of_an_engine_waits_for_a_chain()
{
	for (int workers = 1; workers <= 2; workers++) {
		std::optional<chain> c;
		{
			pawl::engine e(with_workers(workers));

			c.emplace(pawl::scheduler(e));
			c->next();
		}
		MUST(c->left == -1);
	}
}

#ifndef NO_ALGORITHMS
static void the_algorithms_of_the_library_take_them()
{
	pawl::engine e(with_workers(2));
	pawl::var a(e), b(e);
	pawl::scheduler s(e);
	int x = 0, y = 0;

	auto both = ex::when_all(s.run([&] { return x = 20; }, pawl::writes(a)),
				 s.run([&] { return std::make_unique<int>(y = 1); }, pawl::writes(b)))
		| ex::let_value([&](int &n, std::unique_ptr<int> &p) {
			return s.run([&, n, m = *p] { return n + m + x + y; }, pawl::reads(a, b));
		})
		| ex::then([](int n) { return n * 10; });
	MUST(std::get<0>(sync_wait(std::move(both)).value()) == 420);

	auto add = s.run([&]() -> int & { return x; }, pawl::reads(a)) | ex::then([](int &n) { n++; });
	MUST(sync_wait(std::move(add)) && x == 21);

	/* The failure of one stops the other. */
	std::atomic<bool> canceled{false};
	auto one = ex::when_all(s.run([&](pawl_run &run) {
		while (!pawl_run_canceled(&run))
			std::this_thread::sleep_for(1ms);
		canceled = true;
	}), s.run([]() -> int { throw std::out_of_range("far"); }, pawl::writes(a)));
	try {
		sync_wait(std::move(one));
		MUST(false);
	} catch (const std::out_of_range &) {
		MUST(canceled);
	}
	e.wait();

	auto id = std::this_thread::get_id();
	auto moved = ex::on(s, ex::just(1) | ex::then([&](int n) {
		MUST(std::this_thread::get_id() != id);
		return n;
	}));
	MUST(std::get<0>(sync_wait(std::move(moved)).value()) == 1);
}

#if defined(WITH_STDEXEC) || defined(__cpp_lib_task)
static ex::task<int> sums(pawl::scheduler s, const pawl::var &a, int &x)
{
	int n = co_await s.run([&] { return ++x; }, pawl::writes(a));

	try {
		(void)co_await s.run([]() -> int { throw std::runtime_error("no"); });
	} catch (const std::runtime_error &) {
		n += 100;
	}
	co_return n + co_await s.run([&] { return ++x; }, pawl::writes(a));
}

static void coroutines_of_the_library_await_them()
{
	pawl::engine e(with_workers(1));
	pawl::var a(e);
	int x = 0;

	MUST(std::get<0>(sync_wait(sums(pawl::scheduler(e), a, x)).value()) == 103);
	e.wait();
}
#else
static void coroutines_of_the_library_await_them() {}
#endif
#endif

int main()
{
	a_scheduler_is_one();
	an_operation_ends_with_what_its_body_returns();
	an_error_is_reported_once();
	an_operation_that_is_stopped_ends_as_stopped();
	a_stop_may_come_at_any_time();
	what_is_behind_an_operation_holds_no_vars();
	the_end_of_an_engine_waits_for_a_chain();
#ifndef NO_ALGORITHMS
	the_algorithms_of_the_library_take_them();
	coroutines_of_the_library_await_them();
#endif
	return 0;
}
