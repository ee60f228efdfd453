// SPDX-License-Identifier: Apache-2.0
/*
 * Several threads use the library at once for the first time in their process: the engine,
 * contexts and their resources, arrays, the profiler, and engines that they create.  They also
 * fork.
 *
 *	test_mx_threads [SEED [SECONDS]]
 *
 * Each round is a process in which libpawl_mx was not used before.
 */
#include <mxnet/c_api.h>
#include <mxnet/engine.h>
#include <mxnet/ndarray.h>
#include <memory>
#include <random>
#include <sys/wait.h>
#include <unistd.h>
#include "mx_test.hpp"

using mxnet::Context;
using mxnet::Engine;
using mxnet::RunContext;

#define OK(call) EXPECT(!(call))

static const unsigned THREADS = 4, STEPS = 60, CONTEXTS = 3, TYPES = 3, IDS = 8;
static const int SEEDED = 7;
static unsigned long long round_seed = 1;
static const char *program;
static char dump[] = "/tmp/pawl-mx-XXXXXX";

/* State of the round's process. */
static std::atomic<unsigned> ready;
static std::atomic<Engine *> engine;
static std::atomic<pawl_mx_var *> resources[CONTEXTS][TYPES][IDS];
static std::atomic<bool> seeded;
static ProfileHandle domains[THREADS];	/* never freed, as in MXNet */

static void Repeat(int sig)
{
	std::fprintf(stderr, "repeat: %s %llu\n", program, round_seed);
	MxHang(sig);
}

/* The same object for every thread. */
template <typename T>
static void Same(std::atomic<T> &where, T mine)
{
	T none = nullptr;

	EXPECT(mine);
	if (!where.compare_exchange_strong(none, mine))
		EXPECT(none == mine);
}

struct User {
	std::mt19937_64 rnd;
	Engine::VarHandle var = nullptr;
	unsigned pushed = 0, ran = 0;
	ProfileHandle &domain;

	explicit User(unsigned i) : rnd(round_seed * 1000 + i), domain(domains[i]) {}

	Engine *Get()
	{
		Engine *e = Engine::Get();

		Same(engine, e);
		if (!var)
			var = e->NewVariable();
		return e;
	}

	void Push()
	{
		Engine *e = Get();

		for (unsigned n = rnd() % 20; n; n--, pushed++)
			e->PushSync([this](RunContext) { ran++; }, Context::CPU(rnd() % CONTEXTS),
				    {}, { var });
		if (rnd() % 4 == 0) {
			e->WaitForVar(var);
			EXPECT(ran == pushed);
		}
	}

	void Bulk()
	{
		Engine *e = Get();
		int was = e->set_bulk_size(8);

		Push();
		e->set_bulk_size(was);
	}

	void Resource()
	{
		pawl_mx_context ctx = { PAWL_MX_CPU, static_cast<int>(rnd() % CONTEXTS) };
		pawl_mx_resource r;

		OK(pawl_mx_resource_get(ctx, static_cast<int>(rnd() % TYPES), &r));
		EXPECT(static_cast<unsigned>(r.id) < IDS);
		Same(resources[ctx.dev_id][r.type][r.id], r.var);
	}

	void Array()
	{
		mxnet::NDArray a({ 3 }, Context::CPU(rnd() % CONTEXTS)),
			b({ 3 }, Context::CPU(rnd() % CONTEXTS));
		float in[] = { 1, 2, 3 }, out[3] = {};

		a.SyncCopyFromCPU(in, 3);
		CopyFromTo(a, b);
		b.SyncCopyToCPU(out, 3);
		EXPECT(out[0] == 1 && out[2] == 3);
	}

	void Own()
	{
		std::unique_ptr<Engine> e(rnd() % 3 == 0 ? mxnet::engine::CreateNaiveEngine() :
					  rnd() % 2 ? mxnet::engine::CreateThreadedEnginePooled() :
					  mxnet::engine::CreateThreadedEnginePerDevice());
		Engine::VarHandle v = e->NewVariable();
		unsigned n = 0, many = rnd() % 20;

		for (unsigned i = 0; i < many; i++)
			e->PushSync([&n](RunContext) { n++; }, Context::CPU(), {}, { v });
		e->WaitForVar(v);
		EXPECT(n == many && v->version() == many);
		if (rnd() % 2)
			e->DeleteVariable([](RunContext) {}, Context::CPU(), v);
	}

	void Objects()
	{
		ProfileHandle task, counter;

		if (!domain)
			OK(MXProfileCreateDomain("domain", &domain));
		OK(MXProfileCreateTask(domain, "task", &task));
		OK(MXProfileCreateCounter(domain, "counter", &counter));
		OK(MXProfileDurationStart(task));
		OK(MXProfileAdjustCounter(counter, 3));
		OK(MXProfileSetMarker(domain, "marker", "thread"));
		OK(MXProfileDurationStop(task));
		OK(MXProfileDestroyHandle(task));
		OK(MXProfileDestroyHandle(counter));
	}

	void Profile()
	{
		const char *keys[] = { "filename", "aggregate_stats" };
		const char *vals[] = { dump, rnd() % 2 ? "1" : "0" };
		const char *text;
		int format;

		switch (rnd() % 5) {
		case 0:
			OK(MXSetProfilerConfig(2, keys, vals));
			break;
		case 1:
			OK(MXSetProfilerState(static_cast<int>(rnd() % 2)));
			break;
		case 2:
			OK(MXProfilePause(static_cast<int>(rnd() % 2)));
			break;
		case 3:
			format = rnd() % 2;
			OK(MXAggregateProfileStatsPrintEx(&text, rnd() % 2, format, rnd() % 5,
							  rnd() % 2));
			EXPECT(text[std::strlen(text) - 1] == (format ? '}' : '\n'));
			break;
		default:
			OK(MXSetProfilerConfig(2, keys, vals));
#ifdef CONFIG_TRACE
			OK(MXDumpProfile(static_cast<int>(rnd() % 2)));
#endif
		}
	}

	void Child()
	{
		Engine *e = Engine::Get();
		Engine::VarHandle v;
		int n = 0;

		alarm(60);
		if (engine)
			EXPECT(e == engine);
		v = e->NewVariable();
		for (int i = 0; i < 10; i++)
			e->PushSync([&n](RunContext) { n++; }, Context::CPU(), {}, { v });
		e->WaitForVar(v);
		EXPECT(n == 10 && v->version() == 10);
		Resource();
		Own();
		_exit(0);
	}

	void Fork()
	{
		int status;
		pid_t pid = fork();

		EXPECT(pid >= 0);
		if (!pid)
			Child();
		EXPECT(waitpid(pid, &status, 0) == pid);
		EXPECT(WIFEXITED(status) && !WEXITSTATUS(status));
	}

	void Run()
	{
		ready++;
		while (ready < THREADS)
			std::this_thread::yield();
		/* in every other round all of them create the engine first */
		if (round_seed % 2)
			Get();
		for (unsigned i = 0; i < STEPS; i++) {
			switch (rnd() % 9) {
			case 0:
				Resource();
				break;
			case 1:
				Array();
				break;
			case 2:
				Own();
				break;
			case 3:
				Objects();
				break;
			case 4:
				Profile();
				break;
			case 5:
				OK(MXRandomSeed(SEEDED));
				seeded = true;
				break;
			case 6:
				Bulk();
				break;
			case 7:
				/* a sanitizer's child of fork() must not start threads */
				if (!SANITIZED && rnd() % 4 == 0)
					Fork();
				break;
			default:
				Push();
			}
		}
		Get()->WaitForVar(var);
		EXPECT(ran == pushed);
		Get()->DeleteVariable([](RunContext) {}, Context::CPU(), var);
	}
};

static uint64_t Random(const pawl_mx_resource &r)
{
	uint64_t x = 0;

	Engine::Get()->PushSync([&](RunContext) { x = pawl_mx_resource_random(&r); },
				Context::CPU(), {}, { static_cast<Engine::VarHandle>(
				static_cast<void *>(r.var)) });
	OK(pawl_mx_wait_var(pawl_mx_engine_get(), r.var, nullptr));
	return x;
}

/* Every generator has the seed that was set, whichever thread made it, and when. */
static void Generators()
{
	pawl_mx_context ctx = { PAWL_MX_CPU, 0 };

	for (; ctx.dev_id < static_cast<int>(CONTEXTS); ctx.dev_id++) {
		pawl_mx_resource r;
		uint64_t x;

		OK(pawl_mx_resource_get(ctx, PAWL_MX_RANDOM, &r));
		x = Random(r);
		OK(MXRandomSeed(SEEDED));
		EXPECT(x == Random(r));
		OK(MXRandomSeed(SEEDED));
	}
}

static void Round()
{
	std::vector<std::unique_ptr<User>> users;
	std::vector<std::thread> threads;

	std::signal(SIGALRM, Repeat);
	std::signal(SIGTERM, Repeat);
	alarm(SANITIZED ? 500 : 100);
	for (unsigned i = 0; i < THREADS; i++)
		users.emplace_back(new User(i));
	for (auto &u : users)
		threads.emplace_back([&u] { u->Run(); });
	for (std::thread &t : threads)
		t.join();
	if (seeded)
		Generators();
	Engine::Get()->WaitForAll();
}

int main(int argc, char **argv)
{
	std::chrono::steady_clock::time_point end;
	unsigned long long rounds = 0;
	double seconds = argc > 2 ? std::atof(argv[2]) : argc > 1 ? 0 : 4;

	program = argv[0];
	if (argc > 1)
		round_seed = std::strtoull(argv[1], nullptr, 0);
	end = std::chrono::steady_clock::now() +
	      std::chrono::milliseconds(static_cast<long long>(seconds * 1000));
	close(mkstemp(dump));
	std::signal(SIGTERM, SIG_IGN);	/* the round's process prints its position */
	do {
		int status = -1;
		pid_t pid = fork();

		EXPECT(pid >= 0);
		if (!pid) {
			Round();
			std::exit(0);
		}
		EXPECT(waitpid(pid, &status, 0) == pid);
		if (status) {
			std::fprintf(stderr, "status %#x; repeat: %s %llu\n", status, program,
				     round_seed);
			unlink(dump);
			return 1;
		}
		rounds++;
		round_seed++;
	} while (std::chrono::steady_clock::now() < end);
	std::printf("%llu rounds\n", rounds);
	unlink(dump);
	return 0;
}
