// SPDX-License-Identifier: Apache-2.0
/* oneDNN throws std::bad_alloc through its C interface; in a program of C that is the end of it. */
#include <cerrno>
#include <exception>
#include <new>

#include "guard.h"

extern "C" int guard(int (*fn)(void *), void *arg)
{
	try {
		return fn(arg);
	} catch (const std::bad_alloc &) {
		return -ENOMEM;
	} catch (const std::exception &) {
		return -EIO;
	}
}
