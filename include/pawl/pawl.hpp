/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pawl/pawl.hpp - the engine in C++17: engine, vars, groups and queues that free themselves,
 * lambdas as bodies, exceptions, and with C++20 coroutines that wait for ops.
 *
 *	pawl::engine e;
 *	pawl::var a(e), b(e);
 *
 *	e.push([&] { x = 1; }, pawl::writes(a));
 *	e.push([&] { y = x + 1; }, pawl::reads(a), pawl::writes(b));
 *	b.wait();
 *
 * It is a layer over pawl/engine.h without code in the library.  What it does not cover
 * (batches, graphs, traces) is called with engine::get() and var::get().
 *
 * Errors: a call that fails throws pawl::error, with the errno in code() and the text of
 * pawl_error_text() in what().  The functions named try_* return the errno instead.  Without
 * exceptions (-fno-exceptions) every call returns a pawl::result, which has the errno.
 *
 * Exceptions: an exception that leaves a body fails the op.  It propagates with the error, and
 * the wait that reports the error throws it.  An op that is skipped does not run its body.
 *
 * Memory: the callable is copied or moved into the op.  If it is small, and trivial to copy and
 * to destroy, it needs no allocation: up to the size of a pointer with any number of vars, else
 * up to PAWL_ARG_ROOM() bytes (56 with one var, 40 with two, 24 with three), 8 fewer with a
 * ticket, group, cost, deadline or queue.  Any other callable is allocated with new.  It is
 * deleted once, when its op ends, also if it never ran.  A push that is refused leaves the
 * callable as it was, if it can be moved without an exception, or copied.
 *
 * Lifetime: an object of an engine that has ended, or that was moved from, throws EINVAL; its
 * destructor does nothing.  Documentation/cpp.md has a table.
 *
 * Threads and progress: as the calls of the same names in pawl/engine.h.  An object itself may
 * be moved or destroyed only while no other thread uses it.
 */
#ifndef PAWL_PAWL_HPP
#define PAWL_PAWL_HPP

#if __cplusplus < 201703L
#error pawl/pawl.hpp needs C++17 or later: -std=c++17
#endif

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#if __cplusplus > 201703L
#include <version>
#endif

#include <pawl/engine.h>

/* co_await throws if the op did not run. */
#if defined(__cpp_impl_coroutine) && defined(__cpp_exceptions) && defined(__has_include)
#if __has_include(<coroutine>)
#include <coroutine>
#define PAWL_HAVE_COROUTINES 1
#endif
#endif

#ifdef __cpp_exceptions
#define PAWL_HAVE_EXCEPTIONS 1
#endif

namespace pawl {
#ifndef PAWL_HAVE_EXCEPTIONS
/* Other functions than those of files with exceptions, which may be in the same program. */
inline namespace without_exceptions {
#endif

/* A call that failed, or an op that failed without an exception. */
class error : public std::system_error {
public:
	/* rc: a negative errno */
	error(int rc, const char *text)
		: std::system_error(-rc, std::generic_category(), text)
	{
	}
};

/*
 * What the calls return: with exceptions a T, or pawl::error is thrown; without them a T or a
 * negative errno.
 */
#ifdef PAWL_HAVE_EXCEPTIONS
template <class T> using result = T;
#else
template <class T> class [[nodiscard]] result {
public:
	result(T value) noexcept : value_(value) {}
	result(int code, T value) noexcept : code_(code < 0 ? code : 0), value_(value) {}

	/* Did the call succeed? */
	explicit operator bool() const noexcept { return !code_; }
	/* 0 or a negative errno; pawl_error_text() has the text of most. */
	int code() const noexcept { return code_; }
	/* Of a call that failed: 0, or false. */
	T value() const noexcept { return value_; }

private:
	int code_ = 0;
	T value_;
};

template <> class [[nodiscard]] result<void> {
public:
	explicit result(int code) noexcept : code_(code < 0 ? code : 0) {}
	template <class T> explicit result(const result<T> &r) noexcept : code_(r.code()) {}

	explicit operator bool() const noexcept { return !code_; }
	int code() const noexcept { return code_; }

private:
	int code_;
};
#endif

/* What a function in C returned, which may be a negative errno. */
inline result<int> check(int rc)
{
#ifdef PAWL_HAVE_EXCEPTIONS
	if (rc < 0)
		throw error(rc, pawl_error_text());
	return rc;
#else
	return {rc, rc < 0 ? 0 : rc};
#endif
}

/* A time without a limit. */
inline constexpr std::chrono::nanoseconds forever = std::chrono::nanoseconds::max();

namespace detail {

/*
 * Any duration in nanoseconds, rounded up: 0 (over at once) if it is negative or no number, and
 * INT64_MAX if it is too long.
 */
template <class R, class P> constexpr std::int64_t nanoseconds(std::chrono::duration<R, P> d)
{
	const long double ns = std::chrono::duration<long double, std::nano>(d).count();

	if (!(ns > 0))
		return 0;
	if (ns >= 9223372036854775807.0L)
		return INT64_MAX;
	return static_cast<std::int64_t>(ns) + (static_cast<std::int64_t>(ns) < ns);
}

/* The same as a limit of a wait. */
template <class R, class P> constexpr std::int64_t limit_of(std::chrono::duration<R, P> d)
{
	std::int64_t ns = detail::nanoseconds(d);

	return ns == INT64_MAX ? -1 : ns;
}

/*
 * What the objects of an engine know of its end: they hold a reference to it.  e becomes NULL when
 * the engine is destroyed.  The rest is for errors that coroutines have thrown, and that a wait for
 * all ops must not throw again.
 */
struct life {
	std::atomic<pawl_engine *> e{nullptr};
	std::atomic<unsigned int> told{0};	/* errors thrown or cleared since the last wait for all */
	std::atomic<unsigned int> epoch{0};	/* of these waits */
	std::atomic<unsigned int> inside{0};	/* pushes that are not known to have returned */
};

/*
 * For a push whose op tells others of its end, which may then destroy the engine: the destructor
 * waits until the push has returned.
 */
class inside {
public:
	explicit inside(const std::shared_ptr<life> &l) noexcept : l_(l)
	{
		if (!l_)
			return;
		l_->inside.fetch_add(1);
		e_ = l_->e.load();
	}
	inside(const inside &) = delete;
	~inside()
	{
		if (l_)
			l_->inside.fetch_sub(1);
	}
	/* NULL if it has ended. */
	pawl_engine *engine() const noexcept { return e_; }
	const std::shared_ptr<life> &of() const noexcept { return l_; }

private:
	std::shared_ptr<life> l_;
	pawl_engine *e_ = nullptr;
};

/* The engines of the process that class engine has made and not destroyed. */
class engines {
public:
	static void add(const std::shared_ptr<life> &l)
	{
		std::lock_guard<std::mutex> lock(mutex());

		all()[l->e.load()] = l;
	}
	static void remove(pawl_engine *e) noexcept
	{
		std::lock_guard<std::mutex> lock(mutex());

		all().erase(e);
	}
	/* NULL if it has ended.  For slow paths. */
	static std::shared_ptr<life> find(pawl_engine *e)
	{
		std::lock_guard<std::mutex> lock(mutex());
		auto at = all().find(e);

		return at == all().end() ? nullptr : at->second;
	}

private:
	/* Never destroyed, because objects with static storage may need them last. */
	static std::mutex &mutex()
	{
		static std::mutex *m = new std::mutex;

		return *m;
	}
	static std::map<pawl_engine *, std::shared_ptr<life>> &all()
	{
		static auto *m = new std::map<pawl_engine *, std::shared_ptr<life>>;

		return *m;
	}
};

/* Of an object that has an engine, and a handle if there must be one.  NULL without exceptions. */
inline pawl_engine *alive(const std::shared_ptr<life> &l, std::uint64_t handle, const char *what)
{
	pawl_engine *e = l && handle ? l->e.load(std::memory_order_relaxed) : nullptr;

#ifdef PAWL_HAVE_EXCEPTIONS
	if (!e)
		throw error(-EINVAL, what);
#else
	(void)what;
#endif
	return e;
}

inline pawl_engine *alive(const std::shared_ptr<life> &l, const char *what)
{
	return alive(l, 1, what);
}

/* Call a function of an engine, which exists, or -EINVAL. */
template <class F> int in_engine(pawl_engine *e, F &&f)
{
	return e ? f(e) : -EINVAL;
}

/* What has no value returns nothing, or its errno. */
inline result<void> done(int rc)
{
	return result<void>(check(rc));
}

template <class T> result<T> done(int rc, T value)
{
	(void)check(rc);
#ifdef PAWL_HAVE_EXCEPTIONS
	return value;
#else
	return {rc, rc < 0 ? T() : value};
#endif
}

struct async_call;

/*
 * What a failed body leaves: its exception.  A coroutine that awaits the op may report it before a
 * wait does, and sets `told`.
 */
struct thrown {
	std::exception_ptr x;
	std::atomic<bool> told{false};
	std::atomic<int> refs;
	unsigned int epoch = 0;

	explicit thrown(const std::exception_ptr &p, int n = 1) noexcept : x(p), refs(n) {}
	static void drop(thrown *t) noexcept
	{
		if (t && t->refs.fetch_sub(1, std::memory_order_acq_rel) == 1)
			delete t;
	}
};

/* config.drop: no wait reported the exception. */
inline void drop(void *, void *payload)
{
	thrown::drop(static_cast<thrown *>(payload));
}

struct failure {
	int code;
	char text[160];
};

#ifdef PAWL_HAVE_EXCEPTIONS
/* The error of an op whose body ended by this exception. */
inline failure failure_of(const std::exception_ptr &x) noexcept
{
	failure f = {-EIO, "an exception that is no std::exception"};
	int code;

	try {
		std::rethrow_exception(x);
	} catch (const std::system_error &e) {
		code = e.code().value();
		if ((e.code().category() == std::generic_category() ||
		     e.code().category() == std::system_category()) && code > 0 && code < 4096)
			f.code = -code;
		std::strncpy(f.text, e.what(), sizeof(f.text) - 1);
	} catch (const std::bad_alloc &e) {
		f.code = -ENOMEM;
		std::strncpy(f.text, e.what(), sizeof(f.text) - 1);
	} catch (const std::exception &e) {
		std::strncpy(f.text, e.what(), sizeof(f.text) - 1);
	} catch (...) {
	}
	f.text[sizeof(f.text) - 1] = '\0';
	return f;
}

/* Without memory for it, the exception is lost, and its errno and text remain. */
inline int fail(pawl_run *run, const std::exception_ptr &x) noexcept
{
	failure f = failure_of(x);

	return pawl_fail_with(run, f.code, f.text, new (std::nothrow) thrown(x));
}
#endif

/* What came with an error that a call has reported, and whether a coroutine has thrown it. */
inline std::exception_ptr take(const pawl_error &err, bool &told)
{
	thrown *t = static_cast<thrown *>(err.payload);
	std::exception_ptr x = t ? t->x : nullptr;

	told = t && t->told.exchange(true);
	thrown::drop(t);
	return x;
}

inline result<bool> raise(int rc, const std::exception_ptr &x, const char *text)
{
#ifdef PAWL_HAVE_EXCEPTIONS
	if (x)
		std::rethrow_exception(x);
	throw error(rc, text);
#else
	(void)x, (void)text;
	return {rc, false};
#endif
}

/*
 * The result of a wait for a var: false if its own time has passed, not for an op's -ETIMEDOUT.
 * Throws what the body threw, unless a coroutine has thrown it.
 */
inline result<bool> waited(int rc, const pawl_error &err, life &l)
{
	std::exception_ptr x;
	bool told;

	if (rc == -ETIMEDOUT && !err.code)
		return false;
	if (rc >= 0)
		return true;
	x = take(err, told);
	if (told)
		return true;
	if (err.code)
		l.told.fetch_add(1);
	return raise(rc, x, pawl_error_text());
}

/*
 * The same for a wait for all ops, of whose failures the library returns the first.  If that was
 * thrown before, and not all others were, the exception says so.
 */
inline result<bool> waited_all(int rc, const pawl_error &err, life &l)
{
	std::exception_ptr x;
	unsigned int all;
	bool told;

	if (rc == -ETIMEDOUT && !err.code)
		return false;
	l.epoch.fetch_add(1);
	all = l.told.exchange(0);
	if (rc >= 0)
		return true;
	x = take(err, told);
	if (!told)
		return raise(rc, x, pawl_error_text());
	if (err.count > all)
		return raise(rc, nullptr,
			     "ops failed besides those whose errors were thrown before");
	return true;
}

inline result<bool> waited(int rc)
{
	if (rc == -ETIMEDOUT)
		return false;
	return done(rc, true);
}

/*
 * Clear the op.  Field by field, because compilers may make a call or a string instruction of an
 * empty initializer, which takes longer than all the rest of a push in this header.
 */
inline void clear(pawl_op &op) noexcept
{
	static_assert(sizeof(op) == 144, "a field is new");	/* description::push() sets four */
	op.size = sizeof(op);
	op.fn = nullptr;
	op.async_fn = nullptr;
	op.arg = nullptr;
	op.release = nullptr;
	op.reads = nullptr;
	op.writes = nullptr;
	op.nreads = 0;
	op.nwrites = 0;
	op.priority = 0;
	op.name = nullptr;
	op.cq.h = 0;
	op.tag = 0;
	op.deadline_ns = 0;
	op.ticket = nullptr;
	op.group.h = 0;
	op.cost = 0;
	op.arg_size = 0;
	op.reserved = 0;
}

/*
 * An op as attributes describe it.  The op is an object of its own, so that its address, which
 * the library gets, leads to nothing else, and the rest stays in registers.
 */
struct description {
	pawl_engine *e;
	const std::shared_ptr<life> &l;
	pawl_op &op;
	std::uint16_t prop = PAWL_NORMAL, flags = 0, kind = PAWL_CPU, id = 0;

	description(pawl_engine *engine, const std::shared_ptr<life> &of, pawl_op &o) noexcept
		: e(engine), l(of), op(o)
	{
		clear(op);
	}

	/* Bytes for a copy of the callable. */
	std::size_t room() const noexcept
	{
		std::size_t vars = std::size_t(op.nreads) + op.nwrites, n = PAWL_ARG_ROOM(vars);

		return n && (op.release || (flags & PAWL_OP_NOTES)) ? n - 8 : n;
	}

	int push() noexcept
	{
		const std::uint16_t where[] = {prop, flags, kind, id};

		/* One store, since the engine reads the fields as one word. */
		static_assert(sizeof(where) == 8 &&
			      offsetof(pawl_op, flags) == offsetof(pawl_op, prop) + 2 &&
			      offsetof(pawl_op, device) == offsetof(pawl_op, prop) + 4);
		std::memcpy(reinterpret_cast<char *>(&op) + offsetof(pawl_op, prop), where,
			    sizeof(where));
		return pawl_push(e, &op);
	}
};

} /* namespace detail */

class engine;
class group;
class queue;
class scheduler;	/* pawl/execution.hpp */

/* --- vars --------------------------------------------------------------------------- */

/* A var.  Its destructor pushes its deletion behind the ops that were pushed before. */
class var {
public:
	var() = default;
	explicit var(const engine &e);	/* without exceptions: it is false if it could not be made */
	var(var &&v) noexcept : l_(std::move(v.l_)), v_(v.v_) { v.v_.h = 0; }
	var &operator=(var &&v) noexcept
	{
		std::swap(l_, v.l_);
		std::swap(v_, v.v_);
		return *this;
	}
	~var()
	{
		pawl_engine *e = l_ ? l_->e.load(std::memory_order_relaxed) : nullptr;

		/* If it is refused, the var lives as long as the engine. */
		if (v_.h && e)
			(void)pawl_var_delete(e, v_, nullptr, nullptr);
	}

	/* Was it made, and not moved from? */
	explicit operator bool() const noexcept { return v_.h; }
	pawl_var_t get() const noexcept { return v_; }
	result<std::uint64_t> version() const
	{
		std::uint64_t n = 0;
		int rc = detail::in_engine(e(), [&](auto *p) { return pawl_var_version(p, v_, &n); });

		return detail::done(rc, n);
	}

	/* Wait until the writes (with_reads: and reads) are complete; throw what a body threw. */
	result<void> wait() const { return result<void>(wait_for(forever)); }
	result<void> wait_with_reads() const { return result<void>(wait_with_reads_for(forever)); }
	/* The same with a time limit; they return false if it has passed. */
	template <class R, class P> result<bool> wait_for(std::chrono::duration<R, P> limit) const
	{
		return waits(PAWL_WAIT_READABLE, detail::limit_of(limit));
	}
	template <class R, class P>
	result<bool> wait_with_reads_for(std::chrono::duration<R, P> limit) const
	{
		return waits(PAWL_WAIT_WRITABLE, detail::limit_of(limit));
	}
	/* Clear the error that poisons the var now, so that no wait reports it. */
	result<void> clear() const
	{
		pawl_error err = {};
		int rc = detail::in_engine(e(), [&](auto *p) { return pawl_var_take(p, v_, &err); });
		bool told;

		if (!err.code)
			return detail::done(rc);
		(void)detail::take(err, told);
		l_->told.fetch_add(!told);
		return detail::done(0);
	}

private:
	result<bool> waits(unsigned int what, std::int64_t ns) const
	{
		pawl_engine *e = this->e();
		pawl_error err = {};

		if (!e)
			return detail::raise(-EINVAL, nullptr, "");
		return detail::waited(pawl_wait(e, what, v_.h, ns, &err), err, *l_);
	}
	pawl_engine *e() const
	{
		return detail::alive(l_, v_.h, "var: it was moved from, or its engine has ended");
	}

	std::shared_ptr<detail::life> l_;
	pawl_var_t v_ = {0};
};

/* --- attributes of an op -------------------------------------------------------------- */

namespace detail {

template <std::size_t N, bool Write> struct access {
	pawl_var_t v[N ? N : 1];

	void apply(description &d) const noexcept
	{
		if constexpr (Write) {
			d.op.writes = v;
			d.op.nwrites = N;
		} else {
			d.op.reads = v;
			d.op.nreads = N;
		}
	}
};

template <bool Write> struct access_list {
	const pawl_var_t *v;
	std::uint32_t n;

	void apply(description &d) const noexcept
	{
		if constexpr (Write) {
			d.op.writes = v;
			d.op.nwrites = n;
		} else {
			d.op.reads = v;
			d.op.nreads = n;
		}
	}
};

inline pawl_var_t handle(const var &v) noexcept { return v.get(); }
inline pawl_var_t handle(pawl_var_t v) noexcept { return v; }

/* Is A a list of reads, or of writes?  Its length, or -1 if it is known at run time only. */
template <bool Write, class A> struct list {
	static constexpr int is = 0;
	static constexpr std::size_t length = 0;
};
template <bool Write, std::size_t N> struct list<Write, access<N, Write>> {
	static constexpr int is = 1;
	static constexpr std::size_t length = N;
};
template <bool Write> struct list<Write, access_list<Write>> {
	static constexpr int is = 1;
	static constexpr std::size_t length = std::size_t(-1);
};

/* Several lists of one op, as one. */
template <bool Write, class... A> struct lists {
	static constexpr int count = (0 + ... + list<Write, A>::is);
	static constexpr bool fixed = (true && ... && (list<Write, A>::length != std::size_t(-1)));
	static constexpr std::size_t length =
		count > 1 ? (std::size_t(0) + ... + list<Write, A>::length) : 0;

	static_assert(count < 2 || fixed, "reads_of() and writes_of() are the only list of their "
		      "kind: put all handles into one array");

	access<fixed ? length : 0, Write> all;
	std::size_t n = 0;

	template <class B> void add(const B &b) noexcept
	{
		if constexpr (count > 1 && list<Write, B>::is)
			for (std::size_t i = 0; i < list<Write, B>::length; i++)
				all.v[n++] = b.v[i];
	}
	void apply(description &d) const noexcept
	{
		if constexpr (count > 1)
			all.apply(d);
	}
};

template <class T, class... A> inline constexpr int same = (0 + ... + std::is_same_v<T, A>);

/* The attributes of an op.  They must live until it is pushed. */
template <class... A> struct attributes {
	static_assert((true && ... && (list<false, A>::is || list<true, A>::is || same<A, A...> == 1)),
		      "an attribute other than reads() and writes() appears twice");

	lists<false, A...> reads;
	lists<true, A...> writes;

	attributes(description &d, const A &...a) noexcept
	{
		(apply(d, a), ...);
		(reads.add(a), ...);
		(writes.add(a), ...);
		reads.apply(d);
		writes.apply(d);
	}
	template <class B> static void apply(description &d, const B &b) noexcept
	{
		if constexpr (!(list<false, B>::is && lists<false, A...>::count > 1) &&
			      !(list<true, B>::is && lists<true, A...>::count > 1))
			b.apply(d);
	}
};

} /* namespace detail */

/* The vars that the op reads or writes: objects of class var, or handles.  Lists add up. */
template <class... V> auto reads(const V &...v) noexcept
{
	return detail::access<sizeof...(V), false>{{detail::handle(v)...}};
}

template <class... V> auto writes(const V &...v) noexcept
{
	return detail::access<sizeof...(V), true>{{detail::handle(v)...}};
}

/* The same with an array of handles. */
inline auto reads_of(const pawl_var_t *v, std::uint32_t n) noexcept
{
	return detail::access_list<false>{v, n};
}

inline auto writes_of(const pawl_var_t *v, std::uint32_t n) noexcept
{
	return detail::access_list<true>{v, n};
}

/* The highest goes first. */
struct priority {
	std::int32_t value;
	void apply(detail::description &d) const noexcept { d.op.priority = value; }
};

/* For traces and messages; the string must outlive the engine. */
struct name {
	const char *text;
	void apply(detail::description &d) const noexcept { d.op.name = text; }
};

struct property {
	pawl_prop value;
	void apply(detail::description &d) const noexcept { d.prop = std::uint16_t(value); }
};

struct on {
	pawl_device device;
	void apply(detail::description &d) const noexcept
	{
		d.kind = device.kind;
		d.id = device.id;
	}
};

/* The body runs even if the op's vars are poisoned. */
struct no_skip {
	void apply(detail::description &d) const noexcept { d.flags |= PAWL_OP_NO_SKIP; }
};

/* If the op has not started at this time, it fails with ETIMEDOUT. */
struct deadline {
	template <class D>
	explicit deadline(std::chrono::time_point<std::chrono::steady_clock, D> time) noexcept
		: ns(detail::nanoseconds(time.time_since_epoch()))
	{
	}
	void apply(detail::description &d) const noexcept
	{
		d.flags |= PAWL_OP_DEADLINE;
		d.op.deadline_ns = ns;
	}

	std::int64_t ns;
};

/* The cost of the op, for limits on costs. */
struct cost {
	std::uint64_t value;
	void apply(detail::description &d) const noexcept
	{
		d.flags |= PAWL_OP_COST;
		d.op.cost = value;
	}
};

/* --- tickets --------------------------------------------------------------------------- */

/* One push of an op, which sets it by an attribute: e.push(body, writes(v), track(t)). */
class ticket {
public:
	pawl_ticket_t get() const noexcept { return t_; }
	enum pawl_ticket_state state() const noexcept
	{
		pawl_engine *e = engine();

		return e ? static_cast<enum pawl_ticket_state>(pawl_ticket_state(e, t_)) :
			   PAWL_TICKET_COMPLETE;
	}
	/* Wait until the op is complete. */
	result<void> wait() const { return result<void>(wait_for(forever)); }
	template <class R, class P> result<bool> wait_for(std::chrono::duration<R, P> limit) const
	{
		pawl_engine *e = engine();

		return detail::waited(e ? pawl_ticket_wait(e, t_, detail::limit_of(limit)) : 0);
	}
	/* Returns true if the op will not start, false if it has started or is complete. */
	bool cancel() const noexcept
	{
		pawl_engine *e = engine();

		return e && !pawl_cancel(e, t_);
	}

private:
	friend struct track;
	/* An engine that has ended has waited for the op. */
	pawl_engine *engine() const noexcept
	{
		return l_ ? l_->e.load(std::memory_order_relaxed) : nullptr;
	}

	std::shared_ptr<detail::life> l_;
	pawl_ticket_t t_ = {0};
};

struct track {
	explicit track(ticket &t) noexcept : t_(&t) {}
	void apply(detail::description &d) const noexcept
	{
		d.flags |= PAWL_OP_TICKET;
		d.op.ticket = &t_->t_;
		t_->l_ = d.l;
	}
	ticket &get() const noexcept { return *t_; }

private:
	ticket *t_;
};

/* --- bodies ------------------------------------------------------------------------- */

/*
 * The right, and the duty, to complete an op whose body was pushed with push_async().  An op
 * whose completion is destroyed fails with ECANCELED.
 */
class completion {
public:
	completion(pawl_engine *e, pawl_token_t token) noexcept : e_(e), t_(token) {}
	completion(completion &&c) noexcept : e_(c.e_), t_(c.t_), checked_(c.checked_) { c.t_.h = 0; }
	completion &operator=(completion &&c) noexcept
	{
		std::swap(e_, c.e_);
		std::swap(t_, c.t_);
		std::swap(checked_, c.checked_);
		return *this;
	}
	/* One that outlives its engine belongs to an op that has ended: its body has thrown. */
	~completion()
	{
		if (t_.h && (!checked_ || detail::engines::find(e_)))
			fail(-ECANCELED, "the completion of the op was destroyed");
	}

	explicit operator bool() const noexcept { return t_.h; }
	/* Each does nothing if the op was completed before. */
	void done() noexcept { end(0, nullptr, nullptr); }
	void fail(int code, const char *text) noexcept { end(code, text, nullptr); }
#ifdef PAWL_HAVE_EXCEPTIONS
	void fail(const std::exception_ptr &x) noexcept
	{
		detail::failure f = detail::failure_of(x);

		if (t_.h)
			end(f.code, f.text, new (std::nothrow) detail::thrown(x));
	}
#endif

private:
	void end(int code, const char *text, void *payload) noexcept
	{
		pawl_token_t t = t_;

		t_.h = 0;
		if (t.h)
			(void)pawl_complete_with(e_, t, code, text, payload);
	}

	friend struct detail::async_call;
	pawl_engine *e_;
	pawl_token_t t_;
	bool checked_ = false;	/* of push_async(): its engine is one of detail::engines */
};

namespace detail {

/* f(run) or f(), which returns nothing, or 0 or a negative errno. */
template <class F> int call(F &f, pawl_run *run)
{
	if constexpr (std::is_invocable_v<F &, pawl_run &>) {
		using result = std::invoke_result_t<F &, pawl_run &>;

		static_assert(std::is_void_v<result> || std::is_same_v<result, int>,
			      "a body returns void or int");
		if constexpr (std::is_void_v<result>)
			f(*run);
		else
			return f(*run);
	} else {
		static_assert(std::is_invocable_v<F &>, "a body takes no argument or pawl_run &");
		using result = std::invoke_result_t<F &>;

		static_assert(std::is_void_v<result> || std::is_same_v<result, int>,
			      "a body returns void or int");
		if constexpr (std::is_void_v<result>)
			f();
		else
			return f();
	}
	return 0;
}

/* How an op runs its callable: as a synchronous body, or as an asynchronous one. */
struct sync_call {
	template <class F> static int run(F &f, pawl_run *run) noexcept
	{
#ifdef PAWL_HAVE_EXCEPTIONS
		try {
			return call(f, run);
		} catch (...) {
			return fail(run, std::current_exception());
		}
#else
		return call(f, run);
#endif
	}
	static void set(description &d, int (*fn)(pawl_run *, void *)) noexcept { d.op.fn = fn; }
	using result = int;
};

struct async_call {
	/*
	 * If f throws when it has moved the completion, the op fails nevertheless, unless it has
	 * been completed: the token of an op that is complete is refused.
	 */
	template <class F> static void run(F &f, pawl_run *run) noexcept
	{
		pawl_engine *e = run->engine;
		pawl_token_t token = run->token;
		completion c(e, token);

		c.checked_ = true;
#ifdef PAWL_HAVE_EXCEPTIONS
		try {
			f(std::move(c));
		} catch (...) {
			completion(e, token).fail(std::current_exception());
			c.t_.h = 0;
		}
#else
		f(std::move(c));
#endif
	}
	static void set(description &d, void (*fn)(pawl_run *, void *)) noexcept
	{
		d.op.async_fn = fn;
	}
	using result = void;
};

template <class F> inline constexpr bool plain =
	std::is_trivially_copyable_v<F> && std::is_trivially_destructible_v<F>;
template <class F> inline constexpr bool in_pointer = plain<F> && sizeof(F) <= sizeof(void *);
template <class F> inline constexpr bool in_op =
	plain<F> && sizeof(F) <= PAWL_ARG_ROOM(0) && alignof(F) <= 16;

/* A copy of a trivially copyable callable, for the time of a call. */
template <class F> struct copy {
	alignas(F) unsigned char byte[sizeof(F)];

	explicit copy(const void *from) noexcept { std::memcpy(byte, from, sizeof(F)); }
	F &get() noexcept { return *std::launder(reinterpret_cast<F *>(byte)); }
};

template <class F, class C> typename C::result run_pointer(pawl_run *run, void *arg)
{
	copy<F> f(&arg);

	return C::run(f.get(), run);
}

template <class F, class C> typename C::result run_copy(pawl_run *run, void *arg)
{
	copy<F> f(arg);

	return C::run(f.get(), run);
}

template <class F, class C> typename C::result run_new(pawl_run *run, void *arg)
{
	if constexpr (std::is_same_v<C, async_call>) {
		/* release may delete it before its call returns. */
		F f(std::move(*static_cast<F *>(arg)));

		return C::run(f, run);
	} else {
		return C::run(*static_cast<F *>(arg), run);
	}
}

template <class F> void release_new(void *arg, int) noexcept
{
	delete static_cast<F *>(arg);
}

/* NULL only without exceptions. */
template <class G, class F> G *allocated(F &&f)
{
#ifdef PAWL_HAVE_EXCEPTIONS
	return new G(std::forward<F>(f));
#else
	return new (std::nothrow) G(std::forward<F>(f));
#endif
}

/* Push a callable that is allocated.  If the push is refused, f is as it was. */
template <class G, class C, class F> int push_new(description &d, F &&f)
{
	constexpr bool moves = std::is_same_v<F, G> && std::is_nothrow_move_constructible_v<G>;
	constexpr bool copies = !moves && std::is_constructible_v<G, const G &>;
	std::unique_ptr<G> g;
	int rc;

	static_assert(!std::is_same_v<C, async_call> || std::is_nothrow_move_constructible_v<G>,
		      "the callable of push_async() must not throw when it is moved");
	if constexpr (copies)
		g.reset(allocated<G>(static_cast<const G &>(f)));
	else
		g.reset(allocated<G>(std::forward<F>(f)));
	if (!g)
		return -ENOMEM;
	d.op.arg = g.get();
	d.op.release = release_new<G>;
	C::set(d, run_new<G, C>);
	rc = d.push();
	if (!rc) {
		(void)g.release();
		return 0;
	}
	if constexpr (moves) {
		f.~G();
		new (std::addressof(f)) G(std::move(*g));
	}
	return rc;
}

template <class C, class F, class... A>
int push(pawl_engine *e, const std::shared_ptr<life> &l, F &&f, const A &...a)
{
	using G = std::decay_t<F>;
	pawl_op op;
	description d(e, l, op);
	const attributes<A...> kept(d, a...);

	if (!e)
		return -EINVAL;
	if constexpr (in_pointer<G>) {
		const G g(std::forward<F>(f));

		std::memcpy(&d.op.arg, &g, sizeof(g));
		C::set(d, run_pointer<G, C>);
		return d.push();
	} else if constexpr (in_op<G>) {
		if (sizeof(G) <= d.room()) {
			d.flags |= PAWL_OP_ARG;
			d.op.arg = const_cast<G *>(std::addressof(f));
			d.op.arg_size = sizeof(G);
			C::set(d, run_copy<G, C>);
			return d.push();
		}
		return push_new<G, C>(d, std::forward<F>(f));
	} else {
		return push_new<G, C>(d, std::forward<F>(f));
	}
}

} /* namespace detail */

/* --- engines ----------------------------------------------------------------------------- */

/* The defaults.  An engine sets drop itself; a value of the program is not used. */
struct config : pawl_config {
	config() { pawl_config_init(this); }
};

class engine {
public:
	explicit engine(const pawl_config &c = config()) : l_(std::make_shared<detail::life>())
	{
		pawl_config own = c;

		own.drop = detail::drop;
#ifdef PAWL_HAVE_EXCEPTIONS
		check(pawl_engine_create(&own, &e_));
		l_->e.store(e_);
		try {
			detail::engines::add(l_);
		} catch (...) {
			(void)pawl_engine_destroy(e_);
			throw;
		}
#else
		if (pawl_engine_create(&own, &e_))
			return;
		l_->e.store(e_);
		detail::engines::add(l_);
#endif
	}
	engine(engine &&e) noexcept : e_(std::exchange(e.e_, nullptr)), l_(std::move(e.l_)) {}
	engine &operator=(engine &&e) noexcept
	{
		std::swap(e_, e.e_);
		std::swap(l_, e.l_);
		return *this;
	}
	/*
	 * Waits for all ops.  In a body of the engine that is impossible: the engine then remains
	 * until the process ends.
	 */
	~engine()
	{
		if (!e_ || pawl_engine_stop(e_) == -EDEADLK)
			return;
		/* What a sender's continuation pushed when its op, the last one, was complete. */
		(void)pawl_wait_all(e_, -1, nullptr);
		detail::engines::remove(e_);
		l_->e.store(nullptr);
		while (l_->inside.load())
			std::this_thread::yield();
		(void)pawl_engine_destroy(e_);
	}

	/* Was it made, and not moved from?  Without exceptions, pawl_error_text() says why not. */
	explicit operator bool() const noexcept { return e_; }
	pawl_engine *get() const noexcept { return e_; }

	/*
	 * Push a body: f() or f(pawl_run &), which returns nothing, or 0 or a negative errno.  The
	 * attributes are reads(), writes(), priority, name, property, on, no_skip, deadline, cost,
	 * track, in and notify.
	 */
	template <class F, class... A> result<void> push(F &&f, const A &...a) const
	{
		int rc = try_push(std::forward<F>(f), a...);

		if (rc)
			(void)alive();
		return detail::done(rc);
	}
	/* The same; returns 0, or the negative errno of a push that was refused. */
	template <class F, class... A> int try_push(F &&f, const A &...a) const
	{
		return detail::push<detail::sync_call>(e_, l_, std::forward<F>(f), a...);
	}
	/*
	 * Push an asynchronous body: f(completion &&) starts something, and moves the completion
	 * to the code that will end the op.
	 */
	template <class F, class... A> result<void> push_async(F &&f, const A &...a) const
	{
		return detail::done(detail::push<detail::async_call>(alive(), l_, std::forward<F>(f),
								     a...));
	}

	/* Wait until no op is in flight.  Throws what a body threw. */
	result<void> wait() const { return result<void>(wait_for(forever)); }
	template <class R, class P> result<bool> wait_for(std::chrono::duration<R, P> limit) const
	{
		pawl_engine *e = alive();
		pawl_error err = {};

		if (!e)
			return detail::raise(-EINVAL, nullptr, "");
		return detail::waited_all(pawl_wait_all(e, detail::limit_of(limit), &err), err, *l_);
	}

	result<void> stop() const { return detail::done(detail::in_engine(alive(), pawl_engine_stop)); }
	result<void> start() const
	{
		return detail::done(detail::in_engine(alive(), pawl_engine_start));
	}
	/* Run one ready op on this thread.  Returns false if none is ready. */
	result<bool> run_one() const
	{
		int rc = detail::in_engine(alive(), pawl_run_one);

		return detail::done(rc, rc > 0);
	}
	result<struct pawl_stats> stats() const
	{
		struct pawl_stats s = {};
		int rc;

		s.size = sizeof(s);
		rc = detail::in_engine(alive(), [&](auto *p) { return pawl_stats(p, &s); });
		return detail::done(rc, s);
	}

private:
	friend class var;
	friend class group;
	friend class queue;
	friend class scheduler;
	pawl_engine *alive() const { return detail::alive(l_, "engine: it was moved from"); }

	pawl_engine *e_ = nullptr;
	std::shared_ptr<detail::life> l_;
};

inline var::var(const engine &e) : l_(e.l_)
{
	(void)check(detail::in_engine(e.alive(), [&](auto *p) { return pawl_var_create(p, &v_); }));
}

/* --- groups ------------------------------------------------------------------------------- */

/* Ops that are counted, limited, waited for and canceled together. */
class group {
public:
	explicit group(const engine &e) : l_(e.l_) { create(e, nullptr); }
	group(const engine &e, pawl_group_limits limits) : l_(e.l_)
	{
		limits.size = sizeof(limits);
		create(e, &limits);
	}
	group(group &&g) noexcept : l_(std::move(g.l_)), g_(g.g_) { g.g_.h = 0; }
	group &operator=(group &&g) noexcept
	{
		std::swap(l_, g.l_);
		std::swap(g_, g.g_);
		return *this;
	}
	/* Waits for its ops. */
	~group()
	{
		pawl_engine *e = l_ ? l_->e.load(std::memory_order_relaxed) : nullptr;

		if (!g_.h || !e)
			return;
		(void)pawl_group_wait(e, g_, -1);
		(void)pawl_group_destroy(e, g_);
	}

	explicit operator bool() const noexcept { return g_.h; }
	pawl_group_t get() const noexcept { return g_; }
	/* Ops that are not complete. */
	result<std::uint64_t> count() const
	{
		std::uint64_t n = 0;
		int rc = detail::in_engine(e(), [&](auto *p) {
			return pawl_group_count(p, g_, &n, nullptr);
		});

		return detail::done(rc, n);
	}
	result<void> wait() const { return result<void>(wait_for(forever)); }
	template <class R, class P> result<bool> wait_for(std::chrono::duration<R, P> limit) const
	{
		return detail::waited(detail::in_engine(e(), [&](auto *p) {
			return pawl_group_wait(p, g_, detail::limit_of(limit));
		}));
	}
	/* The ops that have not started end with ECANCELED. */
	result<void> cancel() const
	{
		return detail::done(detail::in_engine(e(), [&](auto *p) {
			return pawl_group_cancel(p, g_);
		}));
	}

private:
	friend struct in;
	void create(const engine &e, const pawl_group_limits *limits)
	{
		(void)check(detail::in_engine(e.alive(), [&](auto *p) {
			return pawl_group_create(p, limits, &g_);
		}));
	}
	/* The handle 0 would be the engine itself. */
	pawl_engine *e() const
	{
		return detail::alive(l_, g_.h, "group: it was moved from, or its engine has ended");
	}

	std::shared_ptr<detail::life> l_;
	pawl_group_t g_ = {0};
};

/* The op belongs to the group. */
struct in {
	/* The engine refuses the handle of a group that does not exist. */
	explicit in(const group &g) : h(g.e() ? g.get() : pawl_group_t{~UINT64_C(0)}) {}
	void apply(detail::description &d) const noexcept
	{
		d.flags |= PAWL_OP_GROUP;
		d.op.group = h;
	}

	pawl_group_t h;
};

/* --- completion queues -------------------------------------------------------------- */

/*
 * A completion queue.  A program either pushes ops with notify(queue, tag) and calls reap(), or
 * pushes all ops of the queue with run() and calls dispatch().
 */
class queue {
public:
	explicit queue(const engine &e) : l_(e.l_)
	{
		(void)check(detail::in_engine(e.alive(), [&](auto *p) {
			return pawl_cq_create(p, &q_);
		}));
	}
	queue(const queue &) = delete;
	/*
	 * Waits for the ops that name it.  Coroutines that wait for them continue in the destructor,
	 * as in dispatch(); what they throw is lost, and a co_await of this queue throws.  Completions
	 * of other ops are discarded.
	 */
	~queue()
	{
		pawl_engine *e = l_ && q_.h ? l_->e.load(std::memory_order_relaxed) : nullptr;
		pawl_completion c;

#ifdef PAWL_HAVE_COROUTINES
		ending_ = true;
#endif
		while (e && pawl_cq_destroy(e, q_) == -EBUSY) {
			if (pawl_cq_wait(e, q_, -1) || pawl_cq_reap(e, q_, &c, 1) < 0)
				break;
#ifdef PAWL_HAVE_COROUTINES
			try {
				if (runs_.load(std::memory_order_relaxed))
					resume(c);
			} catch (...) {
			}
#endif
		}
	}

	explicit operator bool() const noexcept { return q_.h; }
	pawl_cq_t get() const noexcept { return q_; }
	/* Readable while there is a completion; for epoll, libuv and others. */
	result<int> fd() const
	{
		return check(detail::in_engine(e(), [&](auto *p) { return pawl_cq_fd(p, q_); }));
	}
	/* Take up to n completions without waiting; returns how many. */
	result<unsigned int> reap(pawl_completion *out, unsigned int n) const
	{
		int rc = detail::in_engine(e(), [&](auto *p) { return pawl_cq_reap(p, q_, out, n); });

		return detail::done(rc, unsigned(rc));
	}
	/* Wait until there is a completion. */
	result<void> wait() const { return result<void>(wait_for(forever)); }
	template <class R, class P> result<bool> wait_for(std::chrono::duration<R, P> limit) const
	{
		return detail::waited(detail::in_engine(e(), [&](auto *p) {
			return pawl_cq_wait(p, q_, detail::limit_of(limit));
		}));
	}

#ifdef PAWL_HAVE_COROUTINES
	struct node;
	class handler;
	template <class F, class... A> class run_op;

	/*
	 * co_await q.run(f, attributes...): push f, and continue on the thread that calls
	 * dispatch() when the op is complete.  f is called as f() or f(pawl_run &).  The result is
	 * what f returns, any object or reference; an exception of f is thrown, and no wait throws
	 * it again.  If the op did not run f, pawl::error is thrown.
	 *
	 * If the coroutine is destroyed meanwhile, the op is canceled, and the destructor waits
	 * until its body has ended; an op that had not started fails with ECANCELED, which a wait
	 * reports.  That must not happen during a dispatch() of another thread.
	 */
	template <class F, class... A> run_op<F, A...> run(F f, A... a) const;
	/*
	 * Continue the coroutines whose ops are complete; returns how many.  An exception that
	 * leaves a coroutine leaves dispatch(); the others continue in the next call.
	 */
	unsigned int dispatch() const;
#endif

private:
	pawl_engine *e() const { return detail::alive(l_, q_.h, "queue: its engine has ended"); }

	std::shared_ptr<detail::life> l_;
	pawl_cq_t q_ = {0};
#ifdef PAWL_HAVE_COROUTINES
	static bool resume(const pawl_completion &c);

	mutable std::atomic<bool> runs_{false};	/* the tags are nodes */
	bool ending_ = false;
#endif
};

/* The completion arrives in the queue, with the tag. */
struct notify {
	notify(const queue &q, std::uint64_t n) noexcept : h(q.get()), tag(n) {}
	void apply(detail::description &d) const noexcept
	{
		d.flags |= PAWL_OP_CQ;
		d.op.cq = h;
		d.op.tag = tag;
	}

	pawl_cq_t h;
	std::uint64_t tag;
};

#ifdef PAWL_HAVE_COROUTINES
/* The tag is the address of a node, which outlives a coroutine that is destroyed. */
struct queue::node {
	handler *waits;
};

/* A coroutine that waits for a completion. */
class queue::handler {
protected:
	friend class queue;
	std::coroutine_handle<> waiting_;
	node *node_ = nullptr;	/* while the op is in flight or its completion is not reaped */
	int status_ = 0;
};

namespace detail {

template <class F> auto co_call(F &f, pawl_run &run) -> decltype(auto)
{
	if constexpr (std::is_invocable_v<F &, pawl_run &>)
		return f(run);
	else
		return f();
}

/* What co_await returns is kept as: a value, or the address of what a reference names. */
template <class R> struct kept {
	using type = std::optional<R>;
	template <class G> static void set(type &t, G &&g) { t.emplace(g()); }
	static R get(type &t) { return std::move(*t); }
};
template <class R> struct kept<R &> {
	using type = R *;
	template <class G> static void set(type &t, G &&g) { t = std::addressof(g()); }
	static R &get(type &t) { return *t; }
};
template <class R> struct kept<R &&> {
	using type = std::optional<R>;
	template <class G> static void set(type &t, G &&g) { t.emplace(g()); }
	static R &&get(type &t) { return std::move(*t); }
};
template <> struct kept<void> {
	using type = char;
	template <class G> static void set(type &, G &&g) { g(); }
	static void get(type &) {}
};

} /* namespace detail */

template <class F, class... A> class queue::run_op : private queue::handler {
public:
	using result = decltype(detail::co_call(std::declval<F &>(), std::declval<pawl_run &>()));

	run_op(const queue &q, F f, A... a) : q_(q), f_(std::move(f)), a_(std::move(a)...) {}
	run_op(const run_op &) = delete;
	~run_op()
	{
		detail::thrown::drop(thrown_);
		if (!node_)
			return;
		/* The coroutine is being destroyed. */
		node_->waits = nullptr;
		(void)ticket_->cancel();
		while (ticket_->state() != PAWL_TICKET_COMPLETE) {
			try {
				ticket_->wait();
			} catch (const error &x) {
				if (x.code().value() == EDEADLK)
					break;
				/* Another thread waits for the ticket. */
				std::this_thread::sleep_for(std::chrono::microseconds(100));
			}
		}
	}
	bool await_ready() const noexcept { return false; }
	void await_suspend(std::coroutine_handle<> h)
	{
		std::unique_ptr<node> n(new node{this});

		if (q_.ending_)
			throw error(-ECANCELED, "co_await: the queue has ended");
		waiting_ = h;
		node_ = n.get();
		q_.runs_.store(true, std::memory_order_relaxed);
		try {
			std::apply([this](const A &...a) { push(a...); }, a_);
		} catch (...) {
			node_ = nullptr;
			throw;
		}
		/* Another thread may have resumed the coroutine. */
		(void)n.release();
	}
	result await_resume()
	{
		if (thrown_) {
			std::exception_ptr x = thrown_->x;
			auto l = q_.l_;

			/* No wait throws it again. */
			if (!thrown_->told.exchange(true) && thrown_->epoch == l->epoch.load())
				l->told.fetch_add(1);
			std::rethrow_exception(x);
		}
		if (!ran_)
			throw error(status_ < 0 ? status_ : -ECANCELED, "co_await: the op did not run");
		return detail::kept<result>::get(result_);
	}

private:
	void push(const A &...a)
	{
		const std::uint64_t tag = reinterpret_cast<std::uintptr_t>(node_);
		const detail::inside in(q_.l_);
		auto body = [this](pawl_run &run) { return this->body(run); };

		/* After the push, another thread may have resumed the coroutine, and ended it. */
		if constexpr ((false || ... || std::is_same_v<A, track>)) {
			(keep(a), ...);
			check(detail::push<detail::sync_call>(q_.e(), in.of(), body, a..., notify(q_, tag)));
		} else {
			check(detail::push<detail::sync_call>(q_.e(), in.of(), body, a...,
							      track(own_), notify(q_, tag)));
		}
	}
	template <class B> void keep(const B &b) noexcept
	{
		if constexpr (std::is_same_v<B, track>)
			ticket_ = &b.get();
	}
	int body(pawl_run &run) noexcept
	{
		try {
			detail::kept<result>::set(result_, [&]() -> decltype(auto) {
				return detail::co_call(f_, run);
			});
			ran_ = true;
			return 0;
		} catch (...) {
			return fail(run);
		}
	}
	/* Of the two references, one is the payload of the error. */
	int fail(pawl_run &run) noexcept
	{
		std::exception_ptr x = std::current_exception();
		detail::failure f = detail::failure_of(x);

		thrown_ = new (std::nothrow) detail::thrown(x, 2);
		if (thrown_)
			thrown_->epoch = q_.l_->epoch.load();
		return pawl_fail_with(&run, f.code, f.text, thrown_);
	}

	const queue &q_;
	F f_;
	std::tuple<A...> a_;
	ticket own_, *ticket_ = &own_;	/* or that of the program, which exists as long */
	detail::thrown *thrown_ = nullptr;
	bool ran_ = false;
	typename detail::kept<result>::type result_{};
};

template <class F, class... A>
queue::run_op<F, A...> queue::run(F f, A... a) const
{
	return {*this, std::move(f), a...};
}

/* Returns false if the coroutine was destroyed. */
inline bool queue::resume(const pawl_completion &c)
{
	std::unique_ptr<node> n(reinterpret_cast<node *>(static_cast<std::uintptr_t>(c.tag)));
	handler *h = n->waits;

	if (!h)
		return false;
	h->node_ = nullptr;
	h->status_ = c.status;
	n.reset();
	h->waiting_.resume();
	return true;
}

inline unsigned int queue::dispatch() const
{
	pawl_completion c;
	unsigned int n = 0;

	while (reap(&c, 1))
		n += resume(c);
	return n;
}
#endif

#ifndef PAWL_HAVE_EXCEPTIONS
} /* inline namespace without_exceptions */
#endif
} /* namespace pawl */

#if defined(PAWL_EXECUTION) || defined(__cpp_lib_senders)
#include <pawl/execution.hpp>
#endif

#endif
