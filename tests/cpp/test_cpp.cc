// SPDX-License-Identifier: Apache-2.0
/* pawl/pawl.hpp, as a program of a user: vars, bodies, exceptions, and what is allocated. */
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <chrono>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <pawl/pawl.hpp>
#include "must.hh"
#include "../sanitized.h"

/* The call throws an error with this errno. */
#define THROWS(call, errno_)							\
	do {									\
		int code_ = 0;							\
		try {								\
			call;							\
		} catch (const pawl::error &e_) {				\
			code_ = e_.code().value();				\
		}								\
		MUST(code_ == (errno_));					\
	} while (0)

static thread_local unsigned long allocations;

#if !SANITIZED	/* a sanitizer has these operators itself */
__attribute__((noinline)) void *operator new(std::size_t n)
{
	void *p = std::malloc(n ? n : 1);

	allocations++;
	if (!p)
		throw std::bad_alloc();
	return p;
}

__attribute__((noinline)) void *operator new(std::size_t n, const std::nothrow_t &) noexcept
{
	return std::malloc(n ? n : 1);
}

__attribute__((noinline)) void operator delete(void *p) noexcept
{
	std::free(p);
}

__attribute__((noinline)) void operator delete(void *p, std::size_t) noexcept
{
	std::free(p);
}
#endif

static pawl::config with_workers(int n)
{
	pawl::config c;

	c.workers = n;
	return c;
}

/* An object that counts itself, and is not trivial to copy. */
struct counted {
	static std::atomic<int> alive;

	counted() { alive++; }
	counted(const counted &) { alive++; }
	counted(counted &&) noexcept { alive++; }
	~counted() { alive--; }
};

std::atomic<int> counted::alive{0};

/* An asynchronous op that holds its vars until it is opened. */
class gate {
public:
	template <class... A> explicit gate(const pawl::engine &e, const A &...a)
	{
		e.push_async([this](pawl::completion &&c) {
			c_.emplace(std::move(c));
			running_.store(true);
		}, a...);
		while (!running_.load())
			if (!e.run_one())
				std::this_thread::yield();
	}
	void open() { c_->done(); }

private:
	std::optional<pawl::completion> c_;
	std::atomic<bool> running_{false};
};

static void bodies_run_in_the_order_of_their_vars()
{
	pawl::engine e(with_workers(2));
	pawl::var a(e), b(e);
	int x = 0, y = 0, i;

	for (i = 0; i < 1000; i++) {
		e.push([&] { x++; }, pawl::writes(a));
		e.push([&] { y += x; }, pawl::reads(a), pawl::writes(b));
	}
	b.wait();
	MUST(x == 1000 && y == 1000 * 1001 / 2);
	MUST(a.version() == 1000);
	e.push([&](pawl_run &run) { y = run.engine == e.get(); return 0; }, pawl::writes(b),
	       pawl::priority{3}, pawl::name{"named"}, pawl::property{PAWL_CPU_PRIORITIZED},
	       pawl::on{{PAWL_CPU, 0}}, pawl::no_skip{});
	b.wait_with_reads();
	MUST(y == 1);
	MUST(e.stats().completed >= 2001);
}

static int *function_ran;

static void function()
{
	++*function_ran;
}

static void small_callables_are_not_allocated()
{
	pawl::engine e(with_workers(0));
	pawl::var a(e), b(e), c(e), d(e);
	int n = 0, *p = &n, *q = &n, *r = &n;
	char byte = 1;
	unsigned long before;

	function_ran = &n;
	e.push([] {}, pawl::writes(a));
	e.wait();
	before = allocations;
	e.push([] { function(); }, pawl::writes(a));
	e.push(function, pawl::writes(a));
	e.push([p] { ++*p; }, pawl::writes(a, b, c, d));
	e.push([p, q, r] { *p += q == r; }, pawl::writes(a, b), pawl::reads(c));
	e.push([p, byte] { *p += byte; }, pawl::writes(a), pawl::reads(b, c));
	e.push([p, q, r, byte] { *p += byte + (q != r); }, pawl::writes(a), pawl::cost{1});
	e.push([p, q, r, byte, x = *p, y = 2l, z = 3l]() mutable {
		*p += byte + (q != r) + x + int(y - 2 + z - 3);
		x = 7;
	}, pawl::writes(a));
	MUST(allocations == before);
	e.wait();
	MUST(n == 7);
	/* With more vars there is no room. */
	e.push([p, q, r] { *p += q == r; }, pawl::writes(a, b, c, d));
	MUST(allocations == before + !SANITIZED);
	e.wait();
	MUST(n == 8);
}

static void large_callables_are_deleted_once()
{
	pawl::engine e(with_workers(1));
	pawl::var a(e), b(e);
	int n = 0;
	counted c;
	pawl::ticket t;

	MUST(counted::alive == 1);
	/* It runs. */
	e.push([c, &n] { n++; }, pawl::writes(a));
	a.wait();
	e.wait();
	MUST(n == 1 && counted::alive == 1);
	/* It is skipped. */
	e.push([] { throw 1; }, pawl::writes(a));
	e.push([c, &n] { n++; }, pawl::writes(a));
	try {
		e.wait();
		MUST(false);
	} catch (int) {
	}
	MUST(n == 1 && counted::alive == 1);
	/* It is canceled. */
	{
		gate g(e, pawl::writes(a));

		e.push([c, &n] { n++; }, pawl::writes(a), pawl::track(t));
		MUST(t.state() == PAWL_TICKET_QUEUED && !t.wait_for(std::chrono::nanoseconds(0)));
		MUST(t.cancel());
		g.open();
		t.wait();
		MUST(t.state() == PAWL_TICKET_COMPLETE && !t.cancel());
	}
	THROWS(e.wait(), ECANCELED);
	MUST(n == 1 && counted::alive == 1);
	/* It is too late. */
	e.push([c, &n] { n++; }, pawl::writes(a),
	       pawl::deadline{std::chrono::steady_clock::time_point(std::chrono::nanoseconds(1))});
	THROWS(a.wait(), ETIMEDOUT);
	e.wait();
	MUST(n == 1 && counted::alive == 1);
	/* A function object of the library, and a large trivial one. */
	e.push(std::function<void()>([c, &n] { n++; }), pawl::writes(a));
	char text[100] = "large";
	e.push([text, &n] { n += text[0] == 'l'; }, pawl::writes(a));
	e.wait();
	MUST(n == 3 && counted::alive == 1);
	/* The engine is destroyed with it. */
	{
		pawl::engine never(with_workers(1));

		never.push([c, &n] { n++; });
		never.push_async([c](pawl::completion &&done) { done.done(); });
	}
	MUST(n == 4 && counted::alive == 1);
}

/* Copies, but never moves. */
struct copies {
	std::string s;

	explicit copies(const char *text) : s(text) {}
	copies(const copies &) = default;
	void operator()() const {}
};

static void a_refused_push_leaves_the_callable()
{
	pawl::engine e(with_workers(1));
	pawl::var a(e);
	pawl_var_t gone = {0};
	int n = 0;
	auto f = [p = std::make_unique<int>(5), &n] { n = *p; };
	copies k("a text that is too long to be inside the string");

	MUST(e.try_push(std::move(f), pawl::writes(gone)) == -ESTALE);
	THROWS(e.push(std::move(f), pawl::writes(gone)), ESTALE);
	THROWS(e.push(std::move(k), pawl::writes(gone)), ESTALE);
	THROWS(e.push(k, pawl::writes(gone)), ESTALE);
	MUST(k.s.size() > 20);
	e.push(std::move(f), pawl::writes(a));
	e.push(std::move(k), pawl::writes(a));
	a.wait();
	MUST(n == 5);
	/* Small ones, too. */
	MUST(e.try_push([&n] { n = 6; }, pawl::writes(gone)) == -ESTALE);
	MUST(e.try_push([&n, g = gone, h = gone] { n = 6 + int(g.h - h.h); },
			pawl::writes(gone)) == -ESTALE);
	e.wait();
	MUST(n == 5);
}

struct special : std::runtime_error {
	counted c;
	int value;

	explicit special(int n) : std::runtime_error("special"), value(n) {}
};

static void exceptions_reach_the_wait()
{
	pawl::engine e(with_workers(2));
	pawl::var a(e), b(e);
	bool ran = false;
	int caught = 0;

	/* Along the data: the op behind is skipped. */
	e.push([] { throw special(7); }, pawl::writes(a));
	e.push([&] { ran = true; }, pawl::reads(a), pawl::writes(b));
	try {
		b.wait();
	} catch (const special &s) {
		caught = s.value;
	}
	MUST(caught == 7 && !ran);
	/* Once. */
	a.wait();
	e.wait();
	/* By a wait for all, and by one for readers. */
	e.push([] { throw special(8); }, pawl::writes(a));
	try {
		e.wait();
	} catch (const special &s) {
		caught = s.value;
	}
	MUST(caught == 8);
	e.push([] { throw special(9); }, pawl::writes(a));
	try {
		a.wait_with_reads();
	} catch (const special &s) {
		caught = s.value;
	}
	MUST(caught == 9);
	/* Errors without an exception. */
	e.push([] { return -ENOSPC; }, pawl::writes(a));
	THROWS(a.wait(), ENOSPC);
	/* Cleared: it is dropped. */
	e.push([] { throw special(10); }, pawl::writes(a));
	std::atomic<int> status{0};
	e.push([&](pawl_run &run) { status.store(run.status); }, pawl::reads(a), pawl::no_skip{});
	while (!status.load())
		std::this_thread::yield();
	MUST(status.load() == -EIO && pawl_var_error(e.get(), a.get(), nullptr) == -EIO);
	a.clear();
	e.wait();
	MUST(counted::alive == 0);
}

static void exceptions_have_an_errno_and_a_text()
{
	pawl::engine e(with_workers(1));
	pawl::var a(e);
	pawl_error err;

	struct {
		void (*body)();
		int code;
		const char *text;
	} const cases[] = {
		{[] { throw std::bad_alloc(); }, -ENOMEM, ""},
		{[] { throw std::system_error(ENOSPC, std::generic_category(), "full"); },
		 -ENOSPC, "full"},
		{[] { throw std::runtime_error("the text"); }, -EIO, "the text"},
		{[] { throw std::runtime_error(std::string(1000, 'y')); }, -EIO, "yyy"},
		{[] { throw 1; }, -EIO, "no std::exception"},
	};

	for (const auto &c : cases) {
		e.push(c.body, pawl::writes(a), pawl::name{"thrower"});
		MUST(pawl_wait_readable(e.get(), a.get(), -1, &err) == c.code);
		MUST(std::strstr(err.text, c.text));
		MUST(!std::strcmp(err.op, "thrower"));
		MUST(err.payload);
		pawl::detail::drop(nullptr, err.payload);
	}
}

static void exceptions_that_nothing_reports_are_dropped()
{
	{
		pawl::engine e(with_workers(2));
		pawl::var a(e), b(e);

		e.push([] { throw special(1); }, pawl::writes(a));
		e.push([] { throw special(2); }, pawl::writes(b));
		e.push([] { throw special(3); });
	}
	MUST(counted::alive == 0);
}

static void timeouts_return_false()
{
	pawl::engine e(with_workers(1));
	pawl::var a(e);
	pawl::group grp(e);
	std::chrono::nanoseconds none(0);
	gate g(e, pawl::writes(a), pawl::in(grp));

	MUST(!a.wait_for(none) && !a.wait_with_reads_for(none) && !e.wait_for(none));
	MUST(!grp.wait_for(none) && grp.count() == 1);
	g.open();
	MUST(a.wait_for(pawl::forever) && grp.wait_for(pawl::forever));
	MUST(e.wait_for(pawl::forever) && grp.count() == 0);
}

static void groups_are_canceled_and_limited()
{
	pawl::engine e(with_workers(1));
	pawl::var a(e);
	pawl_group_limits limits = {};
	int n = 0;

	limits.ops = 2;
	{
		pawl::group grp(e, limits);
		gate g(e, pawl::writes(a));

		e.push([&] { n++; }, pawl::writes(a), pawl::in(grp));
		e.push([&] { n++; }, pawl::writes(a), pawl::in(grp));
		MUST(e.try_push([&] { n++; }, pawl::writes(a), pawl::in(grp)) == -EAGAIN);
		grp.cancel();
		g.open();
	}	/* waits */
	MUST(n == 0);
	THROWS(e.wait(), ECANCELED);
}

static void queues_tell_of_completions()
{
	pawl::engine e(with_workers(1));
	pawl::var a(e);
	pawl_completion c[4];
	unsigned int got = 0, i, k;
	bool seen[4] = {};
	{
		pawl::queue q(e);

		MUST(q.fd() >= 0 && !q.wait_for(std::chrono::nanoseconds(0)));
		for (i = 0; i < 4; i++)
			e.push([] {}, pawl::writes(a), pawl::notify(q, i));
		while (got < 4) {
			q.wait();
			k = q.reap(c, 4);
			for (i = 0; i < k; i++)
				seen[c[i].tag] = !c[i].status;
			got += k;
		}
		MUST(seen[0] && seen[1] && seen[2] && seen[3]);
		e.push([] {}, pawl::writes(a), pawl::notify(q, 9));
	}	/* the last one is discarded */
	e.wait();
}

/* An op is complete before the body that completed it has returned. */
static void none_alive()
{
	while (counted::alive)
		std::this_thread::yield();
}

static void asynchronous_ops_end_by_their_completion()
{
	pawl::engine e(with_workers(1));
	pawl::var a(e);
	std::optional<pawl::completion> held;
	std::atomic<bool> begun{false};
	int x = 0, caught = 0;
	char pad[80] = "";

	e.push_async([&](pawl::completion &&c) {
		held.emplace(std::move(c));
		begun.store(true);
	}, pawl::writes(a));
	std::thread later([&] {
		while (!begun.load())
			std::this_thread::yield();
		x = 1;
		held->done();
		held->fail(-EIO, "too late");
	});
	a.wait();
	MUST(x == 1);
	later.join();
	/* Completed in the body, by a callable that is allocated. */
	e.push_async([c2 = counted(), pad](pawl::completion &&c) {
		c.done();
		MUST(!c && counted::alive > 0 && !pad[0]);
	}, pawl::writes(a));
	a.wait();
	none_alive();
	/* Destroyed: the op fails. */
	e.push_async([](pawl::completion &&) {}, pawl::writes(a));
	THROWS(a.wait(), ECANCELED);
	e.push_async([](pawl::completion &&c) { c.fail(-ENOSPC, "full"); }, pawl::writes(a));
	THROWS(a.wait(), ENOSPC);
	/* An exception, and one that the body throws. */
	e.push_async([](pawl::completion &&c) {
		c.fail(std::make_exception_ptr(special(4)));
		c.fail(std::make_exception_ptr(special(5)));
	}, pawl::writes(a));
	try {
		a.wait();
	} catch (const special &s) {
		caught = s.value;
	}
	MUST(caught == 4);
	e.push_async([](pawl::completion &&) { throw special(6); }, pawl::writes(a));
	try {
		a.wait();
	} catch (const special &s) {
		caught = s.value;
	}
	MUST(caught == 6);
	e.wait();
	none_alive();
}

static void objects_move()
{
	pawl::engine e(with_workers(1));
	std::vector<pawl::var> vars;
	std::vector<pawl_var_t> handles;
	pawl::var none;
	int n = 0, i;

	for (i = 0; i < 10; i++)
		vars.emplace_back(e);
	for (const auto &v : vars)
		handles.push_back(v.get());
	e.push([&] { n++; }, pawl::writes_of(handles.data(), 10));
	e.push([&] { MUST(n == 1); }, pawl::reads_of(handles.data(), 10));
	none = std::move(vars[3]);
	MUST(none.get().h == handles[3].h);
	none.wait();
	pawl::engine other(std::move(e));
	pawl::group g(other), h(std::move(g));
	other.push([&] { n++; }, pawl::writes(none), pawl::in(h));
	h.wait();
	MUST(n == 2);
	vars.clear();
	none = pawl::var();	/* before its engine */
	THROWS(other.push([] {}, pawl::writes(handles[0])), ESTALE);
}

static void bad_calls_throw()
{
	pawl::config c;

	c.workers = -2;
	THROWS(pawl::engine e(c), EINVAL);
	pawl::engine e(with_workers(1));
	THROWS(e.push([] {}, pawl::on{{PAWL_CPU, 99}}), ENODEV);
	e.stop();
	e.start();
}

/* A gate that bodies wait for. */
struct door {
	std::atomic<bool> open{false}, entered{false};
	void wait()
	{
		entered = true;
		while (!open)
			std::this_thread::yield();
	}
};

static void every_list_of_vars_counts()
{
	pawl::engine e(with_workers(3));
	pawl::var a(e), b(e), c(e), d(e);
	door g;
	std::atomic<int> n{0};

	e.push([&] { g.wait(); n = 1; }, pawl::writes(a));
	e.push([&] { MUST(n == 1); n = 2; }, pawl::reads(a), pawl::reads(b), pawl::writes(c),
	       pawl::writes(d));
	e.push([&] { MUST(n == 2); }, pawl::reads(c), pawl::priority{1}, pawl::reads(d, b));
	e.push([&] { MUST(n == 2); n = 3; }, pawl::writes(), pawl::writes(a), pawl::writes(c));
	g.open = true;
	e.wait();
	MUST(n == 3 && a.version() == 2 && c.version() == 2 && d.version() == 1);
}

static void a_limit_can_be_any_duration()
{
	using namespace std::chrono;
	pawl::engine e(with_workers(1));
	pawl::var a(e);
	pawl::group group(e);
	pawl::ticket t;
	door g;

	e.push([&] { g.wait(); }, pawl::writes(a), pawl::in(group), pawl::track(t));
	/* On the worker, not in one of the waits. */
	while (!g.entered)
		std::this_thread::yield();
	/* Below 0 a limit is over at once. */
	MUST(!a.wait_for(seconds(-1)) && !a.wait_for(-pawl::forever) && !a.wait_for(hours::min()));
	MUST(!a.wait_with_reads_for(duration<double>(-0.5)) && !e.wait_for(milliseconds(-3)));
	MUST(!group.wait_for(nanoseconds(-1)) && !t.wait_for(nanoseconds(-1)));
	MUST(!a.wait_for(duration<double>(0.001)) && !a.wait_for(duration<float, std::micro>(0.5f)));
	g.open = true;
	MUST(a.wait_for(hours::max()) && e.wait_for(duration<double>(1e300)));
	MUST(e.wait_for(pawl::forever));
	e.push([] {}, pawl::writes(a), pawl::deadline{steady_clock::now() + duration<double>(1e3)});
	a.wait();
	e.push([] {}, pawl::writes(a), pawl::deadline{steady_clock::time_point(seconds(-1))});
	THROWS(a.wait(), ETIMEDOUT);
}

static void a_body_may_throw_after_its_completion()
{
	static std::optional<pawl::completion> outlives;
	std::optional<pawl::completion> kept;
	pawl::engine e(with_workers(1));
	pawl::var a(e), b(e);
	int caught = 0;

	e.push_async([](pawl::completion &&c) {
		c.done();
		throw special(1);
	}, pawl::writes(a));
	a.wait();
	/* It has moved the completion: the op fails, and the completion does nothing any more. */
	for (auto *keep : {&kept, &outlives}) {
		e.push_async([keep](pawl::completion &&c) {
			keep->emplace(std::move(c));
			throw special(2);
		}, pawl::writes(b));
		try {
			b.wait();
		} catch (const special &s) {
			caught += s.value;
		}
	}
	kept->done();
	kept.reset();
	MUST(caught == 4);
	e.wait();
}

static void objects_that_were_moved_from_or_have_no_engine_throw()
{
	pawl::var none, late;
	pawl::ticket t;
	std::optional<pawl::group> group;
	std::optional<pawl::queue> queue;
	{
		pawl::engine e(with_workers(1));
		pawl::var v(e), w(std::move(v));
		pawl::group g(e), h(std::move(g));

		THROWS(none.wait(), EINVAL);
		THROWS(v.wait(), EINVAL);
		THROWS(v.clear(), EINVAL);
		THROWS(e.push([] {}, pawl::writes(v)), ESTALE);
		THROWS(g.wait(), EINVAL);
		THROWS(g.count(), EINVAL);
		THROWS(e.push([] {}, pawl::in(g)), EINVAL);

		pawl::engine f(std::move(e));

		THROWS(e.push([] {}), EINVAL);
		MUST(e.try_push([] {}) == -EINVAL);
		THROWS(e.push_async([](pawl::completion &&) {}), EINVAL);
		THROWS(e.wait(), EINVAL);
		THROWS(pawl::var x(e), EINVAL);
		THROWS(pawl::queue q(e), EINVAL);
		f.push([] {}, pawl::writes(w), pawl::in(h), pawl::track(t));
		f.wait();
		late = std::move(w);
		group.emplace(std::move(h));
		queue.emplace(f);
	}
	/* Their engine has ended. */
	THROWS(late.wait(), EINVAL);
	THROWS(group->wait(), EINVAL);
	THROWS(queue->wait(), EINVAL);
	MUST(t.state() == PAWL_TICKET_COMPLETE && !t.cancel());
	t.wait();
}

/* Trivial to move, but not to be copied. */
struct move_only {
	int *n;
	explicit move_only(int *p) : n(p) {}
	move_only(const move_only &) = delete;
	move_only(move_only &&) = default;
	void operator()() { ++*n; }
};

static void a_callable_need_not_be_copyable()
{
	pawl::engine e(with_workers(1));
	int n = 0;

	e.push(move_only(&n));
	e.wait();
	MUST(n == 1);
}

int main()
{
	every_list_of_vars_counts();
	a_limit_can_be_any_duration();
	a_body_may_throw_after_its_completion();
	objects_that_were_moved_from_or_have_no_engine_throw();
	a_callable_need_not_be_copyable();
	bodies_run_in_the_order_of_their_vars();
	small_callables_are_not_allocated();
	large_callables_are_deleted_once();
	a_refused_push_leaves_the_callable();
	exceptions_reach_the_wait();
	exceptions_have_an_errno_and_a_text();
	exceptions_that_nothing_reports_are_dropped();
	timeouts_return_false();
	groups_are_canceled_and_limited();
	queues_tell_of_completions();
	asynchronous_ops_end_by_their_completion();
	objects_move();
	bad_calls_throw();
	return 0;
}
