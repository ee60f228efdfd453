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
 * pawl_error_text() in what().  The functions named try_* return the errno instead.
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
 * Lifetime: vars, groups and queues must be destroyed before their engine.
 *
 * Threads and progress: as the calls of the same names in pawl/engine.h.  An object itself may
 * be moved or destroyed only while no other thread uses it.
 */
#ifndef PAWL_PAWL_HPP
#define PAWL_PAWL_HPP

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>

#include <pawl/engine.h>

#if defined(__cpp_impl_coroutine) && defined(__has_include)
#if __has_include(<coroutine>)
#include <coroutine>
#define PAWL_HAVE_COROUTINES 1
#endif
#endif

namespace pawl {

/* A call that failed, or an op that failed without an exception. */
class error : public std::system_error {
public:
	/* rc: a negative errno */
	error(int rc, const char *text)
		: std::system_error(-rc, std::generic_category(), text)
	{
	}
};

/* What a call returned: throws if it is a negative errno. */
inline int check(int rc)
{
	if (rc < 0)
		throw error(rc, pawl_error_text());
	return rc;
}

/* A time without a limit. */
inline constexpr std::chrono::nanoseconds forever{-1};

namespace detail {

/* config.drop: no wait reported the exception. */
inline void drop(void *, void *payload)
{
	delete static_cast<std::exception_ptr *>(payload);
}

struct failure {
	int code;
	char text[160];
};

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

	return pawl_fail_with(run, f.code, f.text, new (std::nothrow) std::exception_ptr(x));
}

/* A wait reported an error of an op: throw what came with it. */
[[noreturn]] inline void raise(int rc, const pawl_error &err)
{
	std::unique_ptr<std::exception_ptr> x(static_cast<std::exception_ptr *>(err.payload));

	if (x && *x) {
		std::exception_ptr thrown = *x;

		x.reset();
		std::rethrow_exception(thrown);
	}
	throw error(rc, pawl_error_text());
}

/* The result of a wait: false if its own time has passed, not for an op's -ETIMEDOUT. */
inline bool waited(int rc, const pawl_error &err)
{
	if (rc == -ETIMEDOUT && !err.code)
		return false;
	if (rc < 0)
		raise(rc, err);
	return true;
}

inline bool waited(int rc)
{
	if (rc == -ETIMEDOUT)
		return false;
	check(rc);
	return true;
}

/* An op as attributes describe it. */
struct description {
	pawl_engine *e;
	pawl_op op;
	std::uint16_t prop = PAWL_NORMAL;
	std::uint16_t flags = 0;
	pawl_device device = {PAWL_CPU, 0};

	/* Fields from cq on are read only if their flag is set. */
	explicit description(pawl_engine *engine) : e(engine)
	{
		std::memset(&op, 0, offsetof(pawl_op, cq));
		op.size = sizeof(op);
	}

	/* Bytes for a copy of the callable. */
	std::size_t room() const noexcept
	{
		std::size_t vars = std::size_t(op.nreads) + op.nwrites, n = PAWL_ARG_ROOM(vars);

		return n && (op.release || (flags & PAWL_OP_NOTES)) ? n - 8 : n;
	}

	int push() noexcept
	{
		struct {
			std::uint16_t prop, flags;
			pawl_device device;
		} where = {prop, flags, device};

		/* One store, since the engine reads the fields as one word. */
		static_assert(sizeof(where) == 8 &&
			      offsetof(pawl_op, device) == offsetof(pawl_op, prop) + 4);
		std::memcpy(reinterpret_cast<char *>(&op) + offsetof(pawl_op, prop), &where,
			    sizeof(where));
		return pawl_push(e, &op);
	}
};

} /* namespace detail */

class engine;
class group;
class queue;

/* --- vars --------------------------------------------------------------------------- */

/*
 * A var.  Its destructor pushes its deletion behind the ops that were pushed before.  One that
 * was made without an engine, or moved from, may only be assigned to and destroyed.
 */
class var {
public:
	var() = default;
	explicit var(const engine &e);
	var(var &&v) noexcept : e_(v.e_), v_(v.v_) { v.v_.h = 0; }
	var &operator=(var &&v) noexcept
	{
		std::swap(e_, v.e_);
		std::swap(v_, v.v_);
		return *this;
	}
	~var()
	{
		/* If it is refused, the var lives as long as the engine. */
		if (v_.h)
			(void)pawl_var_delete(e_, v_, nullptr, nullptr);
	}

	pawl_var_t get() const noexcept { return v_; }
	std::uint64_t version() const
	{
		std::uint64_t n;

		check(pawl_var_version(e_, v_, &n));
		return n;
	}

	/* Wait until the writes (with_reads: and reads) are complete; throw what a body threw. */
	void wait() const { (void)wait_for(forever); }
	void wait_with_reads() const { (void)wait_with_reads_for(forever); }
	/* The same with a time limit; they return false if it has passed. */
	bool wait_for(std::chrono::nanoseconds limit) const
	{
		pawl_error err = {};
		int rc = pawl_wait_readable(e_, v_, limit.count(), &err);

		return detail::waited(rc, err);
	}
	bool wait_with_reads_for(std::chrono::nanoseconds limit) const
	{
		pawl_error err = {};
		int rc = pawl_wait_writable(e_, v_, limit.count(), &err);

		return detail::waited(rc, err);
	}
	/* Clear the error that poisons the var now, so that no wait reports it. */
	void clear() const { check(pawl_var_clear(e_, v_)); }

private:
	pawl_engine *e_ = nullptr;
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

} /* namespace detail */

/* The vars that the op reads or writes: objects of class var, or handles. */
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
	void apply(detail::description &d) const noexcept { d.device = device; }
};

/* The body runs even if the op's vars are poisoned. */
struct no_skip {
	void apply(detail::description &d) const noexcept { d.flags |= PAWL_OP_NO_SKIP; }
};

/* If the op has not started at this time, it fails with ETIMEDOUT. */
struct deadline {
	std::chrono::steady_clock::time_point time;
	void apply(detail::description &d) const noexcept
	{
		d.flags |= PAWL_OP_DEADLINE;
		d.op.deadline_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
			time.time_since_epoch()).count();
	}
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
		return e_ ? static_cast<enum pawl_ticket_state>(pawl_ticket_state(e_, t_)) :
			    PAWL_TICKET_COMPLETE;
	}
	/* Wait until the op is complete. */
	void wait() const { (void)wait_for(forever); }
	bool wait_for(std::chrono::nanoseconds limit) const
	{
		return !e_ || detail::waited(pawl_ticket_wait(e_, t_, limit.count()));
	}
	/* Returns true if the op will not start, false if it has started or is complete. */
	bool cancel() const noexcept { return e_ && !pawl_cancel(e_, t_); }

private:
	friend struct track;
	pawl_engine *e_ = nullptr;
	pawl_ticket_t t_ = {0};
};

struct track {
	explicit track(ticket &t) noexcept : t_(&t) {}
	void apply(detail::description &d) const noexcept
	{
		d.flags |= PAWL_OP_TICKET;
		d.op.ticket = &t_->t_;
		t_->e_ = d.e;
	}

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
	completion(completion &&c) noexcept : e_(c.e_), t_(c.t_) { c.t_.h = 0; }
	completion &operator=(completion &&c) noexcept
	{
		std::swap(e_, c.e_);
		std::swap(t_, c.t_);
		return *this;
	}
	~completion() { fail(-ECANCELED, "the completion of the op was destroyed"); }

	explicit operator bool() const noexcept { return t_.h; }
	/* Each does nothing if the op was completed before. */
	void done() noexcept { end(0, nullptr, nullptr); }
	void fail(int code, const char *text) noexcept { end(code, text, nullptr); }
	void fail(const std::exception_ptr &x) noexcept
	{
		detail::failure f = detail::failure_of(x);

		if (t_.h)
			end(f.code, f.text, new (std::nothrow) std::exception_ptr(x));
	}

private:
	void end(int code, const char *text, void *payload) noexcept
	{
		pawl_token_t t = t_;

		t_.h = 0;
		if (t.h)
			(void)pawl_complete_with(e_, t, code, text, payload);
	}

	pawl_engine *e_;
	pawl_token_t t_;
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
		try {
			return call(f, run);
		} catch (...) {
			return fail(run, std::current_exception());
		}
	}
	static void set(description &d, int (*fn)(pawl_run *, void *)) noexcept { d.op.fn = fn; }
	using result = int;
};

struct async_call {
	/* Once f has moved the completion, an exception could not fail the op: terminate. */
	template <class F> static void run(F &f, pawl_run *run) noexcept
	{
		completion c(run->engine, run->token);

		try {
			f(std::move(c));
		} catch (...) {
			if (!c)
				std::terminate();
			c.fail(std::current_exception());
		}
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
		g.reset(new G(static_cast<const G &>(f)));
	else
		g.reset(new G(std::forward<F>(f)));
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

template <class C, class F, class... A> int push(pawl_engine *e, F &&f, const A &...a)
{
	using G = std::decay_t<F>;
	description d(e);

	(a.apply(d), ...);
	if constexpr (in_pointer<G>) {
		const G g(f);

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
	explicit engine(const pawl_config &c = config())
	{
		pawl_config own = c;

		own.drop = detail::drop;
		check(pawl_engine_create(&own, &e_));
	}
	engine(engine &&e) noexcept : e_(std::exchange(e.e_, nullptr)) {}
	engine &operator=(engine &&e) noexcept
	{
		std::swap(e_, e.e_);
		return *this;
	}
	/* Waits for all ops. */
	~engine() { (void)pawl_engine_destroy(e_); }

	pawl_engine *get() const noexcept { return e_; }

	/*
	 * Push a body: f() or f(pawl_run &), which returns nothing, or 0 or a negative errno.  The
	 * attributes are reads(), writes(), priority, name, property, on, no_skip, deadline, cost,
	 * track, in and notify.
	 */
	template <class F, class... A> void push(F &&f, const A &...a) const
	{
		check(detail::push<detail::sync_call>(e_, std::forward<F>(f), a...));
	}
	/* The same; returns 0, or the negative errno of a push that was refused. */
	template <class F, class... A> int try_push(F &&f, const A &...a) const
	{
		return detail::push<detail::sync_call>(e_, std::forward<F>(f), a...);
	}
	/*
	 * Push an asynchronous body: f(completion &&) starts something, and moves the completion
	 * to the code that will end the op.
	 */
	template <class F, class... A> void push_async(F &&f, const A &...a) const
	{
		check(detail::push<detail::async_call>(e_, std::forward<F>(f), a...));
	}

	/* Wait until no op is in flight.  Throws what a body threw. */
	void wait() const { (void)wait_for(forever); }
	bool wait_for(std::chrono::nanoseconds limit) const
	{
		pawl_error err = {};
		int rc = pawl_wait_all(e_, limit.count(), &err);

		return detail::waited(rc, err);
	}

	void stop() const { check(pawl_engine_stop(e_)); }
	void start() const { check(pawl_engine_start(e_)); }
	/* Run one ready op on this thread.  Returns false if none is ready. */
	bool run_one() const { return check(pawl_run_one(e_)); }
	struct pawl_stats stats() const
	{
		struct pawl_stats s = {};

		s.size = sizeof(s);
		check(pawl_stats(e_, &s));
		return s;
	}

private:
	pawl_engine *e_ = nullptr;
};

inline var::var(const engine &e) : e_(e.get())
{
	check(pawl_var_create(e_, &v_));
}

/* --- groups ------------------------------------------------------------------------------- */

/* Ops that are counted, limited, waited for and canceled together. */
class group {
public:
	explicit group(const engine &e) : e_(e.get())
	{
		check(pawl_group_create(e_, nullptr, &g_));
	}
	group(const engine &e, pawl_group_limits limits) : e_(e.get())
	{
		limits.size = sizeof(limits);
		check(pawl_group_create(e_, &limits, &g_));
	}
	group(group &&g) noexcept : e_(g.e_), g_(g.g_) { g.g_.h = 0; }
	group &operator=(group &&g) noexcept
	{
		std::swap(e_, g.e_);
		std::swap(g_, g.g_);
		return *this;
	}
	/* Waits for its ops. */
	~group()
	{
		if (!g_.h)
			return;
		(void)pawl_group_wait(e_, g_, -1);
		(void)pawl_group_destroy(e_, g_);
	}

	pawl_group_t get() const noexcept { return g_; }
	/* Ops that are not complete. */
	std::uint64_t count() const
	{
		std::uint64_t n;

		check(pawl_group_count(e_, g_, &n, nullptr));
		return n;
	}
	void wait() const { (void)wait_for(forever); }
	bool wait_for(std::chrono::nanoseconds limit) const
	{
		return detail::waited(pawl_group_wait(e_, g_, limit.count()));
	}
	/* The ops that have not started end with ECANCELED. */
	void cancel() const { check(pawl_group_cancel(e_, g_)); }

private:
	pawl_engine *e_;
	pawl_group_t g_ = {0};
};

/* The op belongs to the group. */
struct in {
	explicit in(const group &g) noexcept : h(g.get()) {}
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
	explicit queue(const engine &e) : e_(e.get()) { check(pawl_cq_create(e_, &q_)); }
	queue(const queue &) = delete;
	/* Waits for the ops that name it, and discards their completions. */
	~queue()
	{
		pawl_completion c;

		while (pawl_cq_destroy(e_, q_) == -EBUSY)
			if (pawl_cq_wait(e_, q_, -1) || pawl_cq_reap(e_, q_, &c, 1) < 0)
				break;
	}

	pawl_cq_t get() const noexcept { return q_; }
	/* Readable while there is a completion; for epoll, libuv and others. */
	int fd() const { return check(pawl_cq_fd(e_, q_)); }
	/* Take up to n completions without waiting; returns how many. */
	unsigned int reap(pawl_completion *out, unsigned int n) const
	{
		return unsigned(check(pawl_cq_reap(e_, q_, out, n)));
	}
	/* Wait until there is a completion. */
	void wait() const { (void)wait_for(forever); }
	bool wait_for(std::chrono::nanoseconds limit) const
	{
		return detail::waited(pawl_cq_wait(e_, q_, limit.count()));
	}

#ifdef PAWL_HAVE_COROUTINES
	class handler;
	template <class F, class... A> class run_op;

	/*
	 * co_await q.run(f, attributes...): push f, and continue on the thread that calls
	 * dispatch() when the op is complete.  The result is that of f, which may be any object;
	 * an exception of f is thrown.  If the op did not run f, pawl::error is thrown.
	 */
	template <class F, class... A> run_op<std::decay_t<F>, A...> run(F &&f, A... a) const;
	/* Continue the coroutines whose ops are complete; returns how many. */
	unsigned int dispatch() const;
#endif

private:
	pawl_engine *e_;
	pawl_cq_t q_ = {0};
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
/* A coroutine that waits for a completion; the tag is its address. */
class queue::handler {
protected:
	friend class queue;
	std::coroutine_handle<> waiting_;
	int status_ = 0;
};

template <class F, class... A> class queue::run_op : private queue::handler {
public:
	using result = std::invoke_result_t<F &>;

	run_op(const queue &q, F f, A... a) : q_(q), f_(std::move(f)), a_(std::move(a)...) {}
	bool await_ready() const noexcept { return false; }
	void await_suspend(std::coroutine_handle<> h)
	{
		waiting_ = h;
		/* After the push, another thread may have resumed the coroutine. */
		std::apply([this](const A &...a) {
			std::uint64_t tag =
				reinterpret_cast<std::uintptr_t>(static_cast<handler *>(this));

			check(detail::push<detail::sync_call>(
				q_.e_, [this] { body(); }, a..., notify(q_, tag)));
		}, a_);
	}
	result await_resume()
	{
		if (thrown_)
			std::rethrow_exception(thrown_);
		if (status_ < 0)
			throw error(status_, "the op");
		if constexpr (!std::is_void_v<result>)
			return std::move(*result_);
	}

private:
	void body()
	{
		try {
			if constexpr (std::is_void_v<result>)
				f_();
			else
				result_.emplace(f_());
		} catch (...) {
			thrown_ = std::current_exception();
			throw;
		}
	}

	const queue &q_;
	F f_;
	std::tuple<A...> a_;
	std::exception_ptr thrown_;
	std::optional<std::conditional_t<std::is_void_v<result>, char, result>> result_;
};

template <class F, class... A>
queue::run_op<std::decay_t<F>, A...> queue::run(F &&f, A... a) const
{
	return {*this, std::forward<F>(f), a...};
}

inline unsigned int queue::dispatch() const
{
	pawl_completion c;
	unsigned int n = 0;

	while (reap(&c, 1)) {
		handler *h = reinterpret_cast<handler *>(static_cast<std::uintptr_t>(c.tag));

		h->status_ = c.status;
		h->waiting_.resume();
		n++;
	}
	return n;
}
#endif

} /* namespace pawl */

#endif
