// SPDX-License-Identifier: Apache-2.0
/* pawl/pawl.hpp without exceptions: what a call was refused for, or a body failed with, is a code. */
#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>

#include <pawl/pawl.hpp>
#include "must.hh"

#ifdef __cpp_exceptions
#error this test is compiled with -fno-exceptions
#endif

using namespace std::chrono_literals;

static pawl::config with_workers(int n)
{
	pawl::config c;

	c.workers = n;
	return c;
}

static void calls_that_succeed_have_values()
{
	pawl::engine e(with_workers(1));
	pawl::var a(e), b(e);
	pawl::group g(e);
	pawl::queue q(e);
	pawl::ticket t;
	pawl_completion c;
	std::string text(100, 'a');
	int x = 0, y = 0;

	MUST(e && a && b && g && q);
	MUST(e.push([&] { x = 1; }, pawl::writes(a)));
	MUST(e.push([&, text] { y = x + int(text.size()); }, pawl::reads(a), pawl::writes(b),
		    pawl::in(g), pawl::track(t), pawl::notify(q, 7)));
	MUST(b.wait() && y == 101);
	MUST(t.wait() && g.wait() && g.count().value() == 0);
	MUST(q.wait() && q.reap(&c, 1).value() == 1 && c.tag == 7 && q.fd().value() > 0);
	MUST(e.push_async([](pawl::completion &&end) { end.done(); }, pawl::writes(a)));
	MUST(a.wait_with_reads_for(pawl::forever).value() && a.version().value() == 2);
	MUST(e.wait() && e.stats().value().completed >= 3);
}

static void bodies_and_calls_fail_with_codes()
{
	pawl::engine e(with_workers(0)), other(with_workers(0));
	pawl::var v(e), foreign(other), moved(std::move(v)), none;
	pawl::group g(e), gone(std::move(g));
	pawl::ticket t;
	int ran = 0;

	MUST(e.push([] { return -ENOSPC; }, pawl::writes(moved)));
	MUST(e.push([&] { ran++; }, pawl::reads(moved), pawl::track(t)));
	MUST(!t.wait_for(0s).value() && t.wait_for(0s));
	auto waited = moved.wait_for(pawl::forever);
	MUST(!waited && waited.code() == -ENOSPC && !waited.value() && !ran);
	MUST(moved.wait() && e.wait());
	MUST(e.push([] { return -ENOSPC; }, pawl::writes(moved)) && e.wait().code() == -ENOSPC);
	MUST(e.push([] { return -ENOSPC; }, pawl::writes(moved)));
	while (e.run_one().value())
		;
	MUST(moved.clear() && moved.wait() && e.wait());

	MUST(e.push([] {}, pawl::writes(foreign)).code() == -ESTALE);
	MUST(e.try_push([] {}, pawl::writes(foreign)) == -ESTALE);
	MUST(e.push([] {}, pawl::in(g)).code() == -ESTALE && gone.wait());
	MUST(!v && v.wait().code() == -EINVAL && v.version().code() == -EINVAL);
	MUST(!none && none.clear().code() == -EINVAL && g.count().code() == -EINVAL);

	pawl::engine taken(std::move(other));
	pawl::queue q(other);
	MUST(!other && other.push([] {}).code() == -EINVAL && other.wait().code() == -EINVAL);
	MUST(!q && q.wait().code() == -EINVAL && q.fd().code() == -EINVAL);
	MUST(!pawl::var(other) && taken);
}

static void an_engine_that_cannot_be_made_is_false()
{
	pawl::config c;

	c.window = ~0u;
	c.max_ops = 16;
	pawl::engine e(c);
	MUST(!e && *pawl_error_text());
	MUST(e.push([] {}).code() == -EINVAL);
}

int main()
{
	calls_that_succeed_have_values();
	bodies_and_calls_fail_with_codes();
	an_engine_that_cannot_be_made_is_false();
	return 0;
}
