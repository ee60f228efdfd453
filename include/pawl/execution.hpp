/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pawl/execution.hpp - ops as senders of std::execution (C++26): a scheduler of an engine.
 *
 *	pawl::scheduler s(e);
 *	auto work = s.run([&] { return load(x); }, pawl::writes(a))
 *		| std::execution::then([](auto n) { return n + 1; });
 *	auto [n] = std::this_thread::sync_wait(std::move(work)).value();
 *
 * pawl/pawl.hpp includes it where the standard library has senders (__cpp_lib_senders).  With
 * another library of the same interface, include that one first, and define PAWL_EXECUTION as its
 * namespace, for example stdexec or beman::execution.
 *
 * An operation allocates nothing, apart from an error's exception: the op is in the operation
 * state, which the library's own rules keep until it is complete.
 *
 * Threads and progress: start() is a push, pawl_push().  set_value() is called on the thread that
 * ran the body, and so are the other functions if the body ran.  set_stopped() and set_error() of an
 * op that did not run are called on the thread that ends it, or by start().
 */
#ifndef PAWL_EXECUTION_HPP
#define PAWL_EXECUTION_HPP

#include <pawl/pawl.hpp>

#if defined(PAWL_HAVE_COROUTINES) && (defined(PAWL_EXECUTION) || defined(__cpp_lib_senders))
#define PAWL_HAVE_EXECUTION 1

#ifndef PAWL_EXECUTION
#include <execution>
#include <stop_token>
#endif

namespace pawl {

class scheduler;

namespace detail {

#ifdef PAWL_EXECUTION
namespace ex = PAWL_EXECUTION;
#else
namespace ex {
using namespace std::execution;
using std::get_stop_token;
using std::stop_callback_for_t;
using std::stop_token_of_t;
using std::unstoppable_token;
}
#endif

/* Of what was refused, or did not run. */
inline std::exception_ptr refused(int rc, const char *text) noexcept
{
	try {
		return std::make_exception_ptr(error(rc, text));
	} catch (...) {
		return std::current_exception();
	}
}

/* The end of an op whose body did not run. */
template <class R> void not_run(R &&r, int status) noexcept
{
	if (status == -ECANCELED)
		ex::set_stopped(std::move(r));
	else
		ex::set_error(std::move(r), detail::refused(status, "the op did not run"));
}

/* What all senders here have in common. */
class sender_base {
public:
	using sender_concept = ex::sender_tag;

	struct env {
		std::shared_ptr<life> l;
		std::int32_t priority;

		template <class... E>
		scheduler query(ex::get_completion_scheduler_t<ex::set_value_t>, const E &...) const noexcept;
	};
	env get_env() const noexcept { return {l_, priority_}; }

protected:
	sender_base(const std::shared_ptr<life> &l, std::int32_t p) noexcept : l_(l), priority_(p) {}

	std::shared_ptr<life> l_;
	std::int32_t priority_;
};

/* And their operation states. */
template <class R> class operation {
public:
	using operation_state_concept = ex::operation_state_tag;

	operation(const operation &) = delete;

protected:
	using stop_token = ex::stop_token_of_t<ex::env_of_t<R>>;

	operation(const std::shared_ptr<life> &l, std::int32_t p, R &&r)
		: l_(l), priority_(p), r_(std::move(r))
	{
	}
	stop_token token() const noexcept { return ex::get_stop_token(ex::get_env(r_)); }
	bool stopped() const noexcept { return token().stop_requested(); }
	/* The push returned rc: if it is 0, the operation state may not exist any more. */
	void pushed(int rc, pawl_engine *e) noexcept
	{
		if (rc)
			ex::set_error(std::move(r_), detail::refused(rc, e ? pawl_error_text() :
								"scheduler: its engine has ended"));
	}

	std::shared_ptr<life> l_;
	std::int32_t priority_;
	R r_;
};

/*
 * schedule(): an op without vars.  set_value() is called in its body, so a wait for all ops waits for
 * what is behind it, too.  Afterwards the operation state may not exist any more: that the body has
 * run is known by the status 0.
 */
template <class R> class schedule_operation : operation<R> {
public:
	using operation_state_concept = ex::operation_state_tag;

	schedule_operation(const std::shared_ptr<life> &l, std::int32_t p, R &&r)
		: operation<R>(l, p, std::move(r))
	{
	}
	void start() & noexcept
	{
		const inside in(this->l_);
		pawl_engine *e = in.engine();
		pawl_op op;
		description d(e, in.of(), op);

		if (this->stopped())
			return ex::set_stopped(std::move(this->r_));
		op.fn = body;
		op.release = release;
		op.arg = this;
		op.priority = this->priority_;
		this->pushed(e ? d.push() : -EINVAL, e);
	}

private:
	static int body(pawl_run *, void *arg) noexcept
	{
		auto *s = static_cast<schedule_operation *>(arg);

		if (s->stopped())
			ex::set_stopped(std::move(s->r_));
		else
			ex::set_value(std::move(s->r_));
		return 0;
	}
	static void release(void *arg, int status) noexcept
	{
		if (status)
			detail::not_run(std::move(static_cast<schedule_operation *>(arg)->r_), status);
	}
};

class schedule_sender : public sender_base {
public:
	using completion_signatures =
		ex::completion_signatures<ex::set_value_t(), ex::set_error_t(std::exception_ptr),
					  ex::set_stopped_t()>;
	template <class, class...> static consteval completion_signatures get_completion_signatures()
	{
		return {};
	}
	template <class R> schedule_operation<R> connect(R r) const
	{
		return {l_, priority_, std::move(r)};
	}

private:
	friend class pawl::scheduler;
	using sender_base::sender_base;
};

template <class T> struct signature {
	using type = ex::set_value_t(T);
};
template <> struct signature<void> {
	using type = ex::set_value_t();
};

/*
 * An op with vars.  Its body completes the op and only then the operation, so that what is behind
 * it holds no vars.
 */
template <class R, class F, class... A> class run_operation : operation<R> {
public:
	using operation_state_concept = ex::operation_state_tag;
	using result = decltype(detail::co_call(std::declval<F &>(), std::declval<pawl_run &>()));

	template <class G, class T>
	run_operation(const std::shared_ptr<life> &l, std::int32_t p, R &&r, G &&f, T &&a)
		: operation<R>(l, p, std::move(r)), f_(std::forward<G>(f)), a_(std::forward<T>(a))
	{
	}
	void start() & noexcept
	{
		const inside in(this->l_);
		pawl_engine *e = in.engine();
		int rc;

		try {
			listen();
		} catch (...) {
			return ex::set_error(std::move(this->r_), std::current_exception());
		}
		if (this->stopped()) {
			stops_.reset();
			return ex::set_stopped(std::move(this->r_));
		}
		rc = e ? std::apply([&](const A &...a) { return push(in, a...); }, a_) : -EINVAL;
		if (rc)
			stops_.reset();
		this->pushed(rc, e);
	}

private:
	using stop_token = typename operation<R>::stop_token;
	static constexpr bool stoppable = !ex::unstoppable_token<stop_token>;

	/*
	 * The op is told of a stop.  If it has not started, it finds that out when it starts, since
	 * it then stores ran_ before it reads the token.
	 */
	struct stop {
		run_operation *s;
		void operator()() const noexcept
		{
			if (s->ran_.load())
				(void)pawl_cancel(s->l_->e.load(), *s->ticket_);
		}
	};
	template <class T> struct hook {
		using type = std::optional<ex::stop_callback_for_t<T, stop>>;
	};
	struct none {
		void reset() noexcept {}
	};
	struct no_hook {
		using type = none;
	};

	void listen()
	{
		if constexpr (stoppable)
			stops_.emplace(this->token(), stop{this});
	}
	int push(const inside &in, const A &...a) noexcept
	{
		pawl_op op;
		description d(in.engine(), in.of(), op);

		op.priority = this->priority_;
		const attributes<A...> kept(d, a...);
		if (stoppable && !op.ticket) {
			d.flags |= PAWL_OP_TICKET;
			op.ticket = &own_;
		}
		ticket_ = op.ticket;
		op.async_fn = body;
		op.release = release;
		op.arg = this;
		return d.push();
	}
	static void body(pawl_run *run, void *arg) noexcept
	{
		static_cast<run_operation *>(arg)->run(run);
	}
	/* During the body's pawl_complete() it does nothing. */
	static void release(void *arg, int status) noexcept
	{
		auto *s = static_cast<run_operation *>(arg);

		if (s->ran_.load(std::memory_order_relaxed))
			return;
		s->stops_.reset();
		detail::not_run(std::move(s->r_), status);
	}
	void run(pawl_run *run) noexcept
	{
		std::exception_ptr x;
		bool stopped;

		ran_.store(true);
		stopped = this->stopped();
		if (!stopped) {
			try {
				kept<result>::set(result_, [&]() -> decltype(auto) {
					return detail::co_call(f_, *run);
				});
			} catch (...) {
				x = std::current_exception();
			}
		}
		stops_.reset();
		if (stopped) {
			fail(run, refused(-ECANCELED, "stopped before it started"));
			ex::set_stopped(std::move(this->r_));
		} else if (x) {
			fail(run, x);
			ex::set_error(std::move(this->r_), std::move(x));
		} else {
			(void)pawl_complete(run->engine, run->token, 0, nullptr);
			value();
		}
	}
	/* The op fails with what the operation reports, so no wait reports it again. */
	void fail(pawl_run *run, const std::exception_ptr &x) noexcept
	{
		failure f = failure_of(x);
		thrown *t = new (std::nothrow) thrown(x);

		if (t) {
			t->told.store(true);
			this->l_->told.fetch_add(1);
		}
		(void)pawl_complete_with(run->engine, run->token, f.code, f.text, t);
	}
	void value() noexcept
	{
		if constexpr (std::is_void_v<result>)
			ex::set_value(std::move(this->r_));
		else
			ex::set_value(std::move(this->r_), static_cast<result &&>(*result_));
	}

	F f_;
	std::tuple<A...> a_;
	pawl_ticket_t own_ = {0};
	const pawl_ticket_t *ticket_ = nullptr;	/* own_, or that of track() */
	std::atomic<bool> ran_{false};
	typename kept<result>::type result_{};
	[[no_unique_address]] typename std::conditional_t<stoppable, hook<stop_token>, no_hook>::type
		stops_;
};

template <class F, class... A> class run_sender : public sender_base {
public:
	using completion_signatures = ex::completion_signatures<
		typename signature<decltype(detail::co_call(std::declval<F &>(),
							    std::declval<pawl_run &>()))>::type,
		ex::set_error_t(std::exception_ptr), ex::set_stopped_t()>;
	template <class, class...> static consteval completion_signatures get_completion_signatures()
	{
		return {};
	}
	template <class R> run_operation<R, F, A...> connect(R r) &&
	{
		return {l_, priority_, std::move(r), std::move(f_), std::move(a_)};
	}
	template <class R> run_operation<R, F, A...> connect(R r) const &
	{
		return {l_, priority_, std::move(r), f_, a_};
	}

private:
	friend class pawl::scheduler;
	run_sender(const std::shared_ptr<life> &l, std::int32_t p, F &&f, std::tuple<A...> &&a)
		: sender_base(l, p), f_(std::move(f)), a_(std::move(a))
	{
	}

	F f_;
	std::tuple<A...> a_;
};

} /* namespace detail */

/*
 * A scheduler of the engine's workers.  Schedulers of one engine with the same priority are equal.
 * It does not keep the engine: what is started when that has ended completes with set_error().
 */
class scheduler {
public:
	using scheduler_concept = detail::ex::scheduler_tag;

	explicit scheduler(const engine &e, priority p = {0}) noexcept : l_(e.l_), priority_(p.value) {}

	detail::schedule_sender schedule() const noexcept { return {l_, priority_}; }
	/*
	 * A sender of an op: f() or f(pawl_run &) runs when its data allows, with the attributes
	 * of engine::push().  It completes with what f returns, any object or reference; with
	 * set_error(std::exception_ptr) if f throws, the push is refused, or the op is skipped or
	 * too late; with set_stopped() if it is stopped or canceled before it has started.  A body
	 * that runs learns of a stop by pawl_run_canceled().
	 *
	 * The op ends before the operation, and what f throws is thrown by no wait.
	 */
	template <class F, class... A> detail::run_sender<F, A...> run(F f, A... a) const
	{
		return {l_, priority_, std::move(f), std::tuple<A...>(std::move(a)...)};
	}
	/* A body that has started runs to its end, whatever others do. */
	detail::ex::forward_progress_guarantee
	query(detail::ex::get_forward_progress_guarantee_t) const noexcept
	{
		return detail::ex::forward_progress_guarantee::parallel;
	}
	template <class... E>
	scheduler query(detail::ex::get_completion_scheduler_t<detail::ex::set_value_t>,
			const E &...) const noexcept
	{
		return *this;
	}
	friend bool operator==(const scheduler &a, const scheduler &b) noexcept
	{
		return a.l_ == b.l_ && a.priority_ == b.priority_;
	}

private:
	friend class detail::sender_base;
	scheduler(const std::shared_ptr<detail::life> &l, std::int32_t p) noexcept : l_(l), priority_(p) {}

	std::shared_ptr<detail::life> l_;
	std::int32_t priority_;
};

template <class... E>
scheduler detail::sender_base::env::query(ex::get_completion_scheduler_t<ex::set_value_t>,
					  const E &...) const noexcept
{
	return {l, priority};
}

} /* namespace pawl */
#endif
#endif
