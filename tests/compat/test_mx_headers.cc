// SPDX-License-Identifier: Apache-2.0
/*
 * The headers of dmlc and MXNet that programs include besides those of the engine: logging,
 * threads, memory, and OpenMP's calls in a program without it.
 */
#include <dmlc/base.h>
#include <dmlc/logging.h>
#include <dmlc/omp.h>
#include <dmlc/thread_group.h>
#include <dmlc/thread_local.h>
#include <dmlc/timer.h>
#include <mxnet/base.h>
#include <mxnet/c_api.h>
#include <mxnet/engine.h>
#include <mxnet/ndarray.h>
#include <mxnet/resource.h>
#include <mxnet/storage.h>
#include <src/engine/engine_impl.h>
#include <src/engine/openmp.h>
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>
#include "mx_test.hpp"

using mxnet::Context;
using mxnet::Storage;

static_assert(mxnet::engine::kMaxNumGPUs == 16 && !ENGINE_DEBUG && DMLC_USE_CXX11, "");

MX_TEST(begin_of_a_vector_and_a_string)
{
	std::vector<int> v;
	std::string s;
	const std::vector<int> &cv = v;
	const std::string &cs = s;

	EXPECT(!dmlc::BeginPtr(v) && !dmlc::BeginPtr(cv));
	EXPECT(!dmlc::BeginPtr(s) && !dmlc::BeginPtr(cs));
	v = { 7, 8 };
	s = "ab";
	EXPECT(dmlc::BeginPtr(v) == &v[0] && dmlc::BeginPtr(cv) == &v[0]);
	EXPECT(dmlc::BeginPtr(s) == &s[0] && dmlc::BeginPtr(cs) == &s[0]);
}

/* --- logging --- */

/* What fn() prints to std::cerr. */
template <typename Fn>
static std::string Printed(Fn fn)
{
	std::ostringstream out;
	std::streambuf *was = std::cerr.rdbuf(out.rdbuf());

	fn();
	std::cerr.rdbuf(was);
	return out.str();
}

/* The text of what fn() throws; empty if nothing. */
template <typename Fn>
static std::string Thrown(Fn fn)
{
	std::string text;

	EXPECT(Printed([&] {
		try {
			fn();
		} catch (const dmlc::Error &e) {
			text = e.what();
			EXPECT(!text.empty());
		}
	}).empty());
	return text;
}

static std::string Here(int line) { return std::string(__FILE__) + ":" + std::to_string(line) + ": "; }

MX_TEST(log_prints_a_line_and_a_fatal_one_throws)
{
	int line = 0;
	std::string s;

	s = Printed([&] { LOG(INFO) << "an info " << 1; line = __LINE__; });
	EXPECT(s == Here(line) + "an info 1\n");
	s = Printed([&] { LOG(WARNING) << "a warning"; line = __LINE__; });
	EXPECT(s == Here(line) + "a warning\n");
	s = Printed([&] { LOG(ERROR) << "an error"; line = __LINE__; });
	EXPECT(s == Here(line) + "an error\n");
	s = Thrown([&] { line = __LINE__; LOG(FATAL) << "that is all " << 2; });
	EXPECT(s == Here(line) + "that is all 2");
}

MX_TEST(checks_throw_what_was_checked)
{
	int calls = 0, x = 0, *none = nullptr;
	auto one = [&] { return ++calls; };
	/* what holds of 1 and 2, of 2 and 2, and of 3 and 2 */
	std::string got;

	for (int i = 1; i <= 3; i++) {
		got += Thrown([&] { CHECK_EQ(i, 2); }).empty() ? "=" : "";
		got += Thrown([&] { CHECK_NE(i, 2); }).empty() ? "!" : "";
		got += Thrown([&] { CHECK_LT(i, 2); }).empty() ? "<" : "";
		got += Thrown([&] { CHECK_LE(i, 2); }).empty() ? "l" : "";
		got += Thrown([&] { CHECK_GT(i, 2); }).empty() ? ">" : "";
		got += Thrown([&] { CHECK_GE(i, 2); }).empty() ? "g" : "";
		got += " ";
	}
	EXPECT(got == "!<l =lg !>g ");
	EXPECT(Thrown([&] { CHECK(one() == 1) << "first"; }).empty());
	EXPECT(calls == 1);
	EXPECT(Thrown([&] { CHECK(one() == 1) << "again"; }).find("Check failed: one() == 1 again") !=
	       std::string::npos);
	EXPECT(calls == 2);
	EXPECT(Thrown([&] { CHECK_LT(one(), 3) << "more"; }).find("Check failed: one() < 3 more") !=
	       std::string::npos);
	EXPECT(calls == 3);
	EXPECT(CHECK_NOTNULL(&x) == &x);
	EXPECT(Thrown([&] { (void)CHECK_NOTNULL(none); }).find("Check notnull: none") !=
	       std::string::npos);
}

/* --- threads --- */

MX_TEST(time_is_that_of_the_steady_clock)
{
	auto now = [] {
		return std::chrono::duration<double>(
			std::chrono::steady_clock::now().time_since_epoch()).count();
	};

	for (int i = 0; i < 100; i++) {
		const double before = now(), t = dmlc::GetTime(), after = now();

		EXPECT(before <= t && t <= after);
	}
}

MX_TEST(an_event_releases_all_that_wait_until_it_is_reset)
{
	dmlc::ManualEvent event;
	std::atomic<int> asks(0), goes(0);
	std::vector<std::thread> threads;

	event.signal();
	event.wait();
	event.wait();		/* it stays set */
	for (int round = 0; round < 2; round++) {
		event.reset();
		asks = goes = 0;
		for (int i = 0; i < 3; i++)
			threads.emplace_back([&] {
				asks++;
				event.wait();
				goes++;
			});
		EXPECT(Soon([&] { return asks == 3; }));
		std::this_thread::sleep_for(std::chrono::milliseconds(10));
		EXPECT(!goes);
		event.signal();
		EXPECT(Soon([&] { return goes == 3; }));
		for (std::thread &t : threads)
			t.join();
		threads.clear();
	}
}

MX_TEST(a_group_joins_its_threads)
{
	dmlc::ManualEvent go;
	std::atomic<int> ran(0);
	auto add = [&](int n, std::string s) -> int {
		go.wait();
		ran += n + static_cast<int>(s.size());
		return 7;
	};

	{
		dmlc::ThreadGroup group;

		EXPECT(group.empty() && !group.size());
		EXPECT(group.create("one", false, add, 10, std::string("abc")));
		EXPECT(!group.create("one", true, add, 1000, std::string()));
		EXPECT(group.create("two", true, add, 20, std::string("d")));
		EXPECT(!group.empty() && group.size() == 2);
		go.signal();
		group.join_all();
		EXPECT(ran == 34);
		EXPECT(group.empty() && !group.size());
		/* its names are free then, and what a thread starts is joined, too */
		EXPECT(group.create("one", false, [&] {
			std::this_thread::sleep_for(std::chrono::milliseconds(5));
			EXPECT(group.create("late", false, [&] {
				std::this_thread::sleep_for(std::chrono::milliseconds(5));
				ran++;
			}));
		}));
		group.join_all();
		EXPECT(ran == 35 && group.empty());
		go.reset();
		EXPECT(group.create("last", false, add, 1, std::string()));
		go.signal();
	}
	EXPECT(ran == 36);	/* the group's end is a join */
}

struct Mine {
	int n = 0;
	std::vector<int> list;
};

static int told = -1;

/* Says when it is destroyed. */
struct Tells {
	char what = '?';
	~Tells() { EXPECT(told < 0 || write(told, &what, 1) == 1); }
};

MX_TEST(a_thread_has_one_object_of_a_type_which_is_kept)
{
	Mine *mine = dmlc::ThreadLocalStore<Mine>::Get(), *of[3];
	int status = -1, ends[2];
	char text[8] = "";
	pid_t pid;

	EXPECT(mine && !mine->n);
	mine->n = 9;
	EXPECT(dmlc::ThreadLocalStore<Mine>::Get() == mine);
	EXPECT(static_cast<void *>(dmlc::ThreadLocalStore<int>::Get()) != mine);
	EXPECT(*dmlc::ThreadLocalStore<int>::Get() == 0);
	for (int i = 0; i < 3; i++)
		std::thread([&, i] {
			of[i] = dmlc::ThreadLocalStore<Mine>::Get();
			EXPECT(!of[i]->n && of[i]->list.empty());
			of[i]->n = i + 1;
			of[i]->list.assign(100, i);
		}).join();
	for (int i = 0; i < 3; i++)
		EXPECT(of[i] != mine && of[i]->n == i + 1 && of[i]->list[99] == i);
	EXPECT(mine->n == 9);
	/* until the program ends: both, each once */
	EXPECT(!pipe(ends));
	pid = fork();
	EXPECT(pid >= 0);
	if (!pid) {
		alarm(60);
		told = ends[1];
		dmlc::ThreadLocalStore<Tells>::Get()->what = 'a';
#if !THREAD_SANITIZED	/* which does not let a child have threads */
		std::thread([] { dmlc::ThreadLocalStore<Tells>::Get()->what = 'a'; }).join();
#else
		EXPECT(write(told, "a", 1) == 1);
#endif
		EXPECT(write(told, "-", 1) == 1);
		std::exit(0);
	}
	close(ends[1]);
	EXPECT(waitpid(pid, &status, 0) == pid && !status);
	EXPECT(read(ends[0], text, sizeof(text) - 1) >= 0);
	close(ends[0]);
#if !THREAD_SANITIZED
	EXPECT(!std::strcmp(text, "-aa"));
#endif
}

/* --- memory --- */

MX_TEST(storage_is_memory_of_a_cpu)
{
	Storage *s = Storage::Get();
	Storage::Handle h, none;
	const size_t sizes[] = { 1, 63, 64, 65, 1000, 100000 };

	EXPECT(s && s == Storage::Get() && s == Storage::_GetSharedRef().get());
	EXPECT(!none.dptr && !none.size);
	for (const Context &ctx : { Context::CPU(), Context::CPU(3), Context::CPUPinned(1) }) {
		for (size_t size : sizes) {
			h = s->Alloc(size, ctx);
			EXPECT(h.size == size && h.ctx == ctx && h.dptr);
			EXPECT(!(reinterpret_cast<uintptr_t>(h.dptr) & 63));
			EXPECT(malloc_usable_size(h.dptr) >= size);
			std::memset(h.dptr, 1, size);
			if (size % 2)
				s->Free(h);
			else
				s->DirectFree(h);
		}
		s->ReleaseAll(ctx);
	}
	h = s->Alloc(0, Context::CPU());
	EXPECT(!h.dptr && !h.size);
	s->Free(h);
	h.size = 100;
	s->Alloc(&h);
	EXPECT(h.dptr && h.size == 100 && malloc_usable_size(h.dptr) >= 100);
	s->Free(h);
	for (const Context &ctx : { Context::GPU(0), Context::CPUShared(0) }) {
		THROWS(dmlc::Error, "only memory of CPUs", s->Alloc(8, ctx));
		THROWS(dmlc::Error, "only memory of CPUs", s->Alloc(0, ctx));
	}
#if !SANITIZED	/* whose malloc() does not return */
	THROWS(std::bad_alloc, "", s->Alloc(SIZE_MAX / 2, Context::CPU()));
#endif
}

MX_TEST(freed_storage_leaves_no_memory)
{
	Storage *s = Storage::Get();
	size_t before = mallinfo2().uordblks;

	for (int i = 0; i < 1000; i++) {
		s->Free(s->Alloc(1000, Context::CPU()));
		s->DirectFree(s->Alloc(1000, Context::CPU()));
	}
	EXPECT(mallinfo2().uordblks < before + 500000);
}

/* --- OpenMP, which this program does not use --- */

MX_TEST(without_openmp_there_is_one_thread)
{
	mxnet::engine::OpenMP openmp;

	EXPECT(omp_get_thread_num() == 0 && omp_get_num_threads() == 1);
	omp_set_num_threads(5);
	EXPECT(omp_get_max_threads() == 1 && omp_get_num_procs() == 1 && !omp_in_parallel());
	for (bool on : { false, true }) {
		EXPECT(openmp.enabled() == on);
		EXPECT(openmp.GetRecommendedOMPThreadCount() == 1);
		EXPECT(openmp.GetRecommendedOMPThreadCount(false) == 1);
		EXPECT(openmp.thread_max() == 1 && openmp.reserve_cores() == 0);
		openmp.set_enabled(true);
	}
}

int main(int argc, char **argv)
{
	return MxMain(argc, argv);
}
