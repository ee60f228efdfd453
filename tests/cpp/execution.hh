/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What pawl/execution.hpp uses of std::execution, with the meaning of C++26, for compilers whose library
 * has no senders: the names, without the checks and the algorithms.
 */
#ifndef TESTS_CPP_EXECUTION_HH
#define TESTS_CPP_EXECUTION_HH

#include <concepts>
#include <exception>
#include <stop_token>
#include <type_traits>
#include <utility>

namespace reference {

struct sender_tag {};
struct receiver_tag {};
struct scheduler_tag {};
struct operation_state_tag {};

struct never_stop_token {
	template <class F> struct callback {
		callback(never_stop_token, F) noexcept {}
	};
	static constexpr bool stop_requested() noexcept { return false; }
	static constexpr bool stop_possible() noexcept { return false; }
};
template <class T> concept unstoppable_token = std::same_as<T, never_stop_token>;
template <class T, class F> using stop_callback_for_t =
	std::conditional_t<unstoppable_token<T>, never_stop_token::callback<F>, std::stop_callback<F>>;

struct get_env_t {
	struct none {};
	template <class T> auto operator()(const T &t) const noexcept
	{
		if constexpr (requires { t.get_env(); })
			return t.get_env();
		else
			return none();
	}
};
inline constexpr get_env_t get_env{};
template <class T> using env_of_t = decltype(get_env(std::declval<const T &>()));

struct get_stop_token_t {
	template <class E> auto operator()(const E &e) const noexcept
	{
		if constexpr (requires { e.query(*this); })
			return e.query(*this);
		else
			return never_stop_token();
	}
};
inline constexpr get_stop_token_t get_stop_token{};
template <class E> using stop_token_of_t = decltype(get_stop_token(std::declval<const E &>()));

enum class forward_progress_guarantee { concurrent, parallel, weakly_parallel };
struct get_forward_progress_guarantee_t {
	template <class E> auto operator()(const E &e) const noexcept { return e.query(*this); }
};
inline constexpr get_forward_progress_guarantee_t get_forward_progress_guarantee{};
template <class C> struct get_completion_scheduler_t {
	template <class E> auto operator()(const E &e) const noexcept { return e.query(*this); }
};
template <class C> inline constexpr get_completion_scheduler_t<C> get_completion_scheduler{};

struct set_value_t {
	template <class R, class... T> void operator()(R &&r, T &&...t) const noexcept
	{
		static_assert(noexcept(std::move(r).set_value(std::forward<T>(t)...)));
		std::move(r).set_value(std::forward<T>(t)...);
	}
};
struct set_error_t {
	template <class R, class T> void operator()(R &&r, T &&t) const noexcept
	{
		std::move(r).set_error(std::forward<T>(t));
	}
};
struct set_stopped_t {
	template <class R> void operator()(R &&r) const noexcept { std::move(r).set_stopped(); }
};
inline constexpr set_value_t set_value{};
inline constexpr set_error_t set_error{};
inline constexpr set_stopped_t set_stopped{};
template <class...> struct completion_signatures {};

struct schedule_t {
	template <class S> auto operator()(S &&s) const { return std::forward<S>(s).schedule(); }
};
struct connect_t {
	template <class S, class R> auto operator()(S &&s, R &&r) const
	{
		return std::forward<S>(s).connect(std::forward<R>(r));
	}
};
struct start_t {
	template <class O> void operator()(O &o) const noexcept
	{
		static_assert(noexcept(o.start()));
		o.start();
	}
};
inline constexpr schedule_t schedule{};
inline constexpr connect_t connect{};
inline constexpr start_t start{};

template <class S> concept sender = std::derived_from<typename S::sender_concept, sender_tag> &&
	std::move_constructible<S> && requires { S::template get_completion_signatures<S>(); };
template <class S> concept scheduler = std::derived_from<typename S::scheduler_concept, scheduler_tag> &&
	std::copyable<S> && std::equality_comparable<S> && requires(S s) { { s.schedule() } -> sender; };

} /* namespace reference */

#endif
