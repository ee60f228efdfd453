/* SPDX-License-Identifier: Apache-2.0 */
/* A few lines of a test framework for C++: MX_TEST(name) { ... }, EXPECT(), THROWS(). */
#ifndef TESTS_COMPAT_MX_TEST_HPP
#define TESTS_COMPAT_MX_TEST_HPP

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>
#include <pawl/engine.h>
#include <pawl/mx_bridge.h>
#include "../sanitized.h"

struct MxTest {
	const char *name;
	void (*fn)();
	MxTest(const char *n, void (*f)()) : name(n), fn(f) { All().push_back(this); }
	static std::vector<MxTest *> &All()
	{
		static std::vector<MxTest *> all;

		return all;
	}
};

#define MX_TEST(name)						\
	static void name();					\
	static MxTest name##_test(#name, name);			\
	static void name()

#define EXPECT(x)									\
	do {										\
		if (!(x)) {								\
			std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #x);	\
			std::abort();							\
		}									\
	} while (0)

#define THROWS(type, what_, ...)							\
	do {										\
		bool caught_ = false;							\
		try {									\
			__VA_ARGS__;							\
		} catch (const type &x_) {						\
			caught_ = true;							\
			EXPECT(std::strstr(x_.what(), what_));				\
		}									\
		EXPECT(caught_ && "throws " #type);					\
	} while (0)

/* A test that takes a minute hangs. */
template <typename Cond>
bool Soon(Cond cond)
{
	for (int i = 0; i < 60000 && !cond(); i++)
		std::this_thread::sleep_for(std::chrono::milliseconds(1));
	return cond();
}

extern "C" void engines_dump(void);	/* tests/unit/engines.c */

/* A test that is ended because it hangs, as by tests/run.sh: the state of its engines. */
inline void MxHang(int sig)
{
	std::fprintf(stderr, "no end of this test: signal %d\n", sig);
	engines_dump();
	std::signal(SIGABRT, SIG_DFL);
	std::abort();
}

/* A name on the command line selects that test. */
inline int MxMain(int argc, char **argv)
{
	std::signal(SIGALRM, MxHang);
	std::signal(SIGTERM, MxHang);
	for (MxTest *t : MxTest::All()) {
		if (argc > 1 && std::strcmp(argv[1], t->name))
			continue;
		std::printf("%s\n", t->name);
		std::fflush(stdout);
		t->fn();
	}
	return 0;
}

#endif
