// SPDX-License-Identifier: Apache-2.0
/*
 * The part that needs C++: catches the exceptions of bodies and describes them.  The layer
 * passes an exception as a pointer to a std::exception_ptr on the heap.
 */
#include <cstdio>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include "catch.h"

/* As in dmlc-core; catch clauses match it by its name. */
namespace dmlc {
struct Error : public std::runtime_error {
	explicit Error(const std::string &s) : std::runtime_error(s) {}
};
}

namespace {

void *keep(std::exception_ptr p) noexcept
{
	return new (std::nothrow) std::exception_ptr(std::move(p));
}

void say(const std::exception_ptr &p, char *text, size_t room) noexcept
{
	try {
		std::rethrow_exception(p);
	} catch (const std::exception &e) {
		std::snprintf(text, room, "%s", e.what());
	} catch (...) {
		std::snprintf(text, room, "an exception that is no std::exception");
	}
}

}

int mx_catch_body(int form, union mx_body fn, void *run, void *on_start, void *on_complete,
		  void *arg, void **exception, char *text, size_t room) noexcept
{
	try {
		if (form == 0)
			fn.sync(run, arg);
		else if (form == 1)
			fn.async(run, on_complete, arg);
		else
			fn.async_start(run, on_start, on_complete, arg);
		return 0;
	} catch (...) {
		std::exception_ptr p = std::current_exception();

		say(p, text, room);
		*exception = keep(p);
		return -1;
	}
}

/* error: the argument of on_complete. */
void *mx_exception_of(const void *error, char *text, size_t room) noexcept
{
	const dmlc::Error *e = static_cast<const dmlc::Error *>(error);

	std::snprintf(text, room, "%s", e->what());
	return keep(std::make_exception_ptr(*e));
}

void mx_exception_what(void *exception, char *text, size_t room) noexcept
{
	say(*static_cast<std::exception_ptr *>(exception), text, room);
}

void mx_exception_free(void *exception) noexcept
{
	delete static_cast<std::exception_ptr *>(exception);
}
