// SPDX-License-Identifier: Apache-2.0
/* MXNet's environment variables take effect.  Each case runs this program as a process. */
#include <mxnet/c_api.h>
#include <mxnet/engine.h>
#include <algorithm>
#include <chrono>
#include <dlfcn.h>
#include <fstream>
#include <functional>
#include <iterator>
#include <pawl/device.h>
#include <pawl/engine.h>
#include <sys/wait.h>
#include <unistd.h>
#include "mx_test.hpp"

using mxnet::Context;
using mxnet::Engine;
using mxnet::FnProperty;
using mxnet::RunContext;

extern char **environ;
static pawl_mx_context cpu_context = { PAWL_MX_CPU, 0 };
static const char *self;

/* This program again, for one case, with these variables and no other of MXNet's. */
static void Run(const char *name, const std::vector<std::string> &vars)
{
	std::vector<char *> env;
	pid_t pid;
	int status = -1;

	for (char **p = environ; *p; p++) {
		bool set = false;

		for (const std::string &v : vars)
			set |= !v.compare(0, v.find('=') + 1, *p, std::strcspn(*p, "=") + 1);
		if (!set && std::strncmp(*p, "MXNET_", 6) && std::strncmp(*p, "PAWL_MX", 7) &&
		    std::strncmp(*p, "OMP_", 4))
			env.push_back(*p);
	}
	for (const std::string &v : vars)
		env.push_back(const_cast<char *>(v.c_str()));
	env.push_back(nullptr);
	pid = fork();
	EXPECT(pid >= 0);
	if (!pid) {
		char *args[] = { const_cast<char *>(self), const_cast<char *>("case"),
				 const_cast<char *>(name), nullptr };

		execve(self, args, env.data());
		_exit(127);
	}
	EXPECT(waitpid(pid, &status, 0) == pid);
	if (!WIFEXITED(status) || WEXITSTATUS(status)) {
		std::fprintf(stderr, "%s with %s: status %x\n", name, vars.empty() ? "nothing" :
			     vars[0].c_str(), status);
		std::abort();
	}
}

/* How many bodies run at once, with that property, of so many contexts: exactly n, no more come. */
static void AtOnce(FnProperty prop, int n, int contexts = 1)
{
	Engine *e = Engine::Get();
	std::atomic<int> in(0);
	std::atomic<bool> out(false);

	for (int i = 0; i < n + 3; i++)
		e->PushSync([&](RunContext) {
			in++;
			EXPECT(Soon([&] { return out.load(); }));
			in--;
		}, Context::CPU(i % contexts), {}, {}, prop);
	EXPECT(Soon([&] { return in >= n; }));
	std::this_thread::sleep_for(std::chrono::milliseconds(50));
	EXPECT(in == n);
	out = true;
	e->WaitForAll();
	EXPECT(in == 0);
}

/*
 * GPU contexts, on a CUDA runtime of ours: bodies have its stream, and all is in the order of
 * vars.
 */
static int Gpus()
{
	Engine *e = Engine::Get();
	Engine::VarHandle v = e->NewVariable(), w = e->NewVariable();
	const Context gpu = Context::GPU(0);
	int n = 0, seen = -1;

	EXPECT(Context::GetGPUCount() == 1);
	Engine::OprHandle o = e->NewOperator([&](RunContext ctx, Engine::CallbackOnComplete done) {
		EXPECT(ctx.get_ctx() == gpu && ctx.stream);
		n++;
		done();
	}, { v }, { w });
	for (int i = 0; i < 10; i++) {
		e->PushSync([&](RunContext ctx) {
			EXPECT(ctx.get_ctx() == gpu && ctx.stream);
			n++;
		}, gpu, {}, { v });
		e->Push(o, gpu);
		e->PushAsync([&](RunContext ctx, Engine::CallbackOnComplete done) {
			EXPECT(ctx.get_ctx() == Context::CPU() && !ctx.stream);
			n++;
			done();
		}, Context::CPU(), { w }, { v }, FnProperty::kCopyFromGPU);
	}
	e->PushSync([&](RunContext) { seen = n; }, Context::CPU(), { v }, {});
	e->WaitForVar(w);
	e->WaitForAll();
	EXPECT(n == 30 && seen == 30);
	EXPECT(v->version() == 20 && w->version() == 10);
	/* what gathers, gathers for one device */
	EXPECT(e->set_bulk_size(10) == 0);
	for (int i = 0; i < 6; i++)
		e->PushSync([&, i](RunContext ctx) {
			EXPECT(ctx.get_ctx() == (i & 2 ? gpu : Context::CPU()));
			EXPECT(!ctx.stream == !(i & 2));
			n++;
		}, i & 2 ? gpu : Context::CPU(), {}, { v });
	EXPECT(e->set_bulk_size(0) == 10);
	e->WaitForAll();
	EXPECT(n == 36 && v->version() == 23);
	THROWS(dmlc::Error, "the engine has 1 (PAWL_MX_GPUS)",
	       e->PushSync([](RunContext) {}, Context::GPU(1), {}, {}));
	e->PushSync([](RunContext) { throw std::runtime_error("on a device"); }, gpu, {}, { v });
	THROWS(std::runtime_error, "on a device", e->WaitForVar(v));
	void *nd = nullptr;
	uint32_t shape = 2;

	EXPECT(MXNDArrayCreate(&shape, 1, Context::kGPU, 0, 0, &nd) == -1);
	EXPECT(std::strstr(MXGetLastError(), "CPUs only"));
	e->DeleteOperator(o);
	e->DeleteVariable([](RunContext) {}, gpu, v);
	e->DeleteVariable([](RunContext) {}, Context::CPU(), w);
	e->WaitForAll();
	return 0;
}

static int (*omp_get)();

/* With an OpenMP in the program: what a worker would use for a parallel region. */
static int OmpThreads()
{
	int n = -1;

	if (!omp_get) {
		void *omp = dlopen("libgomp.so.1", RTLD_NOW | RTLD_GLOBAL);

		EXPECT(omp);
		omp_get = reinterpret_cast<int (*)()>(dlsym(omp, "omp_get_max_threads"));
		EXPECT(omp_get);
	}
	Engine::Get()->PushSync([&](RunContext) { n = omp_get(); }, Context::CPU(), {}, {});
	Engine::Get()->WaitForAll();
	return n;
}

static int dropped;

static void Nothing(void *, void *) {}
static void Drop(void *) { dropped++; }

/* Without an engine each call that needs one says why, and an op's parameter is released. */
static int NoEngine()
{
	const pawl_mx_context cpu = { PAWL_MX_CPU, 0 };
	pawl_mx_resource r;
	uint32_t shape = 2;
	void *nd = nullptr;
	int n = 7;

	THROWS(dmlc::Error, "unknown engine type", Engine::Get());
	const std::function<int()> calls[] = {
		[] { return MXNDArrayWaitAll(); },
		[&] { return MXGetGPUCount(&n); },
		[] { return MXNotifyShutdown(); },
		[&] { return MXEngineSetBulkSize(4, &n); },
		[&] { return MXNDArrayCreate(&shape, 1, PAWL_MX_CPU, 0, 0, &nd); },
		[&] { return pawl_mx_resource_get(cpu, PAWL_MX_RANDOM, &r) ? -1 : 0; },
		[] { return MXRandomSeedContext(1, PAWL_MX_CPU, 0); },
		[] { return MXSetProfilerState(1); },
		[] { return MXDumpProfile(1); },
		[] { return MXEnginePushSync(Nothing, nullptr, nullptr, &cpu_context, nullptr, 0,
					     nullptr, 0, nullptr, 0, nullptr); },
		[] { return MXEnginePushSync(Nothing, nullptr, Drop, &cpu_context, nullptr, 0,
					     nullptr, 0, nullptr, 0, nullptr); },
	};
	for (const auto &call : calls) {
		pawl_mx_set_last_error("none");
		EXPECT(call() == -1);
		EXPECT(std::strstr(MXGetLastError(), "unknown engine type"));
	}
	EXPECT(n == 7 && !nd && dropped == 1);
	/* and those that need none succeed */
	EXPECT(!MXRandomSeed(3) && !MXProfilePause(0));
	return 0;
}

/* What a program prints to its standard error while fn() runs. */
template <typename Fn>
static std::string Printed(Fn fn)
{
	char text[4096], path[] = "/tmp/pawl-mx-XXXXXX";
	int to = mkstemp(path), err = dup(2);
	ssize_t n;

	EXPECT(to >= 0 && err >= 0 && !unlink(path));
	dup2(to, 2);
	fn();
	dup2(err, 2);
	close(err);
	n = pread(to, text, sizeof(text), 0);
	EXPECT(n >= 0);
	close(to);
	return std::string(text, n);
}

static pawl_mx_callback kept;

static void Keep(void *, void *on_complete, void *)
{
	pawl_mx_callback done = *static_cast<pawl_mx_callback *>(on_complete);

	kept.callback = done.callback;
	kept.engine = done.engine;
	__atomic_store_n(&kept.param, done.param, __ATOMIC_SEQ_CST);
}

/* When its op is complete, another op may have its memory, and another name. */
static void PushesAndThrows(void *, void *on_complete, void *)
{
	EXPECT(!pawl_mx_complete(on_complete, nullptr));
	EXPECT(!MXEnginePushAsync(Keep, nullptr, nullptr, &cpu_context, nullptr, 0, nullptr, 0, nullptr,
				  0, "another", false));
	throw std::runtime_error("after another");
}

/* With MXNET_ENGINE_INFO the engine says what no wait can report. */
static void Info(bool says)
{
	Engine *e = Engine::Get();
	Engine::VarHandle v = e->NewVariable();
	std::string text;

	text = Printed([&] {
		e->PushAsync([](RunContext, Engine::CallbackOnComplete done) {
			const dmlc::Error error("of a second call");

			done();
			done();
			done(&error);
		}, Context::CPU(), {}, { v });
		e->PushAsync([](RunContext, Engine::CallbackOnComplete done) {
			done();
			throw std::runtime_error("too late");
		}, Context::CPU(), {}, { v }, FnProperty::kNormal, 0, "late");
		e->PushAsync([](RunContext, Engine::CallbackOnComplete done) {
			done();
			throw std::runtime_error("nameless");
		}, Context::CPU(), {}, { v });
		EXPECT(!MXEnginePushAsync(PushesAndThrows, nullptr, nullptr, &cpu_context, nullptr, 0,
					  nullptr, 0, nullptr, 0, "pushes", false));
		e->WaitForVar(v);
		EXPECT(Soon([] { return __atomic_load_n(&kept.param, __ATOMIC_SEQ_CST); }));
		kept.callback(kept.engine, kept.param, nullptr);
		e->Stop();	/* the bodies have returned */
		e->Start();
	});
	EXPECT(v->version() == 3);
	for (const char *line : {
		"on_complete: complete: this run was completed before\n",
		"late failed after on_complete, so no wait reports it: too late\n",
		"an op failed after on_complete, so no wait reports it: nameless\n",
		"pushes failed after on_complete, so no wait reports it: after another\n" })
		EXPECT((text.find(line) != std::string::npos) == says);
	/* the second and the third call of the first op */
	EXPECT(std::count(text.begin(), text.end(), '\n') == (says ? 5 : 0));
	EXPECT(says || text.empty());
	e->DeleteVariable([](RunContext) {}, Context::CPU(), v);
}

/* A context has so many resources of a type, in turn, and a seed is for all of them. */
static void Copies(int type, int n)
{
	std::vector<pawl_mx_resource> all;
	std::vector<uint64_t> first;
	pawl_mx_resource r;

	for (int i = 0; i < 200; i++) {
		EXPECT(!pawl_mx_resource_get(cpu_context, type, &r));
		if (i < n)
			all.push_back(r);
		EXPECT(r.type == type && r.var == all[i % n].var && r.id == all[i % n].id);
		EXPECT(r.id - all[0].id == i % n);
	}
	if (type == PAWL_MX_TEMP_SPACE)
		return;
	for (int round = 0; round < 2; round++) {
		EXPECT(!MXRandomSeed(11));
		EXPECT(!MXNDArrayWaitAll());
		for (int i = 0; i < n; i++) {
			uint64_t x = pawl_mx_resource_random(&all[i]);

			EXPECT(std::find(first.begin(), first.end(), x) - first.begin() ==
			       (round ? i : static_cast<int>(first.size())));
			first.push_back(x);
		}
	}
}

static bool late_pushes;

/* It is destroyed after the engine's ops were run at exit(); its op waits for an engine. */
struct Late {
	~Late()
	{
		if (!late_pushes)
			return;
		alarm(60);
		EXPECT(!pawl_mx_engine_stop(pawl_mx_engine_get(), nullptr));
		EXPECT(!MXEnginePushSync([](void *, void *) { std::abort(); }, nullptr,
					 [](void *) { _exit(0); }, &cpu_context, nullptr, 0, nullptr, 0,
					 nullptr, 0, nullptr));
	}
} late;

static std::atomic<bool> elsewhere;

/*
 * A thread that lives on has gathered an op: at the end of the process its parameter is
 * released, without a run of the op.
 */
static void GathersElsewhere()
{
	std::thread([] {
		Engine::Get()->set_bulk_size(10);
		EXPECT(!MXEnginePushSync([](void *, void *) { std::abort(); }, nullptr,
					 [](void *) { _exit(0); }, &cpu_context, nullptr, 0, nullptr, 0,
					 nullptr, 0, nullptr));
		elsewhere = true;
		for (;;)
			pause();
	}).detach();
	EXPECT(Soon([] { return elsewhere.load(); }));
}

static pawl_mx_engine *ended;

/* The last destructor of all, after that of the library. */
__attribute__((destructor(101))) static void AfterTheEnd()
{
	pawl_mx_op op = {};

	if (!ended)
		return;
	op.sync = Nothing;
	op.ctx = cpu_context;
	op.drop = Drop;
	if (pawl_mx_push(ended, &op, nullptr) != -EOWNERDEAD || dropped != 1)
		_exit(6);
	_exit(pawl_mx_wait_all(ended, nullptr) == -EOWNERDEAD ? 0 : 7);
}

static int Case(const std::string &name)
{
	auto began = std::chrono::steady_clock::now();
	pawl_mx_engine *e = pawl_mx_engine_get();

	if (name == "unknown") {
		EXPECT(!e);
		return NoEngine();
	}
	if (name == "gpus-odd") {
		EXPECT(!e);
		EXPECT(std::strstr(MXGetLastError(), "PAWL_MX_GPUS is ") &&
		       std::strstr(MXGetLastError(), std::getenv("PAWL_MX_GPUS")));
		return 0;
	}
	if (name == "gpus" && pawl_device_count(PAWL_CUDA) == -ENOSYS) {
		std::printf("gpus: built without CUDA\n");
		return 0;
	}
	EXPECT(e);
	if (name == "gpus")
		return Gpus();
	if (name == "omp") {
		EXPECT(OmpThreads() == std::atoi(std::getenv("WANT_THREADS")));
		/* of this thread, when it asks for that */
		EXPECT(!MXSetNumOMPThreads(6) && omp_get() == 6);
		EXPECT(!MXSetNumOMPThreads(1) && omp_get() == 1);
		EXPECT(MXSetNumOMPThreads(0) == -1 && omp_get() == 1);
		EXPECT(OmpThreads() == std::atoi(std::getenv("WANT_THREADS")));
		/* a thread that creates an engine keeps its number */
		pawl_mx_engine *another = nullptr;

		EXPECT(!MXSetNumOMPThreads(6));
		EXPECT(!pawl_mx_engine_create(PAWL_MX_PER_DEVICE, &another));
		EXPECT(!pawl_mx_engine_free(another) && omp_get() == 6);
#if !THREAD_SANITIZED
		int status = -1;
		EXPECT(!MXSetNumOMPThreads(6));
		pid_t pid = fork();

		EXPECT(pid >= 0);
		if (!pid) {
			alarm(60);
			/* as the thread that forks has */
			EXPECT(omp_get() == 1);
			EXPECT(OmpThreads() == std::atoi(std::getenv("WANT_CHILD")));
			_exit(0);
		}
		EXPECT(waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
		       !WEXITSTATUS(status));
#endif
	} else if (name == "naive") {
		EXPECT(pawl_mx_engine_kind(e) == PAWL_MX_NAIVE);
	} else if (name == "pooled") {
		EXPECT(pawl_mx_engine_kind(e) == PAWL_MX_POOLED);
		AtOnce(FnProperty::kNormal, 16);
		AtOnce(FnProperty::kCopyToGPU, 1);
	} else if (name == "default") {
		EXPECT(pawl_mx_engine_kind(e) == PAWL_MX_PER_DEVICE);
		AtOnce(FnProperty::kNormal, 1);
		AtOnce(FnProperty::kCPUPrioritized, 4);
		AtOnce(FnProperty::kCopyToGPU, 2);
		AtOnce(FnProperty::kCopyFromGPU, 2);
	} else if (name == "threads") {
		AtOnce(FnProperty::kNormal, 3);
		AtOnce(FnProperty::kCPUPrioritized, 2);
		AtOnce(FnProperty::kCopyToGPU, 1);
#if !THREAD_SANITIZED	/* which does not let a child have threads */
		pid_t pid = fork();

		EXPECT(pid >= 0);
		if (!pid) {
			alarm(60);
			AtOnce(FnProperty::kNormal, 2);
			_exit(0);
		}
		int status = -1;

		EXPECT(waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
		       !WEXITSTATUS(status));
#endif
	} else if (name == "many") {
		/* so many that all contexts share one queue */
		AtOnce(FnProperty::kNormal, 17);
		AtOnce(FnProperty::kNormal, 17, 2);
	} else if (name == "most") {
		/* each context has its own queue */
		AtOnce(FnProperty::kNormal, 32, 2);
	} else if (name == "info" || name == "no-info") {
		Info(name == "info");
	} else if (name == "freed") {
		EXPECT(!pawl_mx_engine_free(e));	/* the process ends without one */
	} else if (name == "ends-stopped" || name == "ends-gathered") {
		/* what was pushed runs before the process ends, and ends it here */
		if (name == "ends-stopped")
			Engine::Get()->Stop();
		else
			Engine::Get()->set_bulk_size(10);
		Engine::Get()->PushSync([](RunContext) { _exit(0); }, Context::CPU(), {}, {});
		return 5;
	} else if (name == "ends-late" || name == "ends-late-gathered") {
		/* of what is pushed even later only the parameter is released */
		late_pushes = true;
		if (name == "ends-late-gathered")
			Engine::Get()->set_bulk_size(10);
		return 5;
	} else if (name == "ends-gathered-elsewhere") {
		GathersElsewhere();
		return 5;
	} else if (name == "ends-last") {
		ended = e;
		return 5;
	} else if (name == "exits") {
		/* the op that calls exit() is in flight at the end of the process */
		Engine::Get()->PushSync([](RunContext) { std::exit(0); }, Context::CPU(), {}, {});
		Engine::Get()->WaitForAll();
		EXPECT(!"the process has ended");
	} else if (name == "copies") {
		Copies(PAWL_MX_RANDOM, 1);
		Copies(PAWL_MX_TEMP_SPACE, std::atoi(std::getenv("WANT_TEMP")));
		Copies(PAWL_MX_PARALLEL_RANDOM, std::atoi(std::getenv("WANT_PARALLEL")));
	} else if (name == "temp") {
		pawl_mx_resource a, b, c;
		pawl_mx_context cpu = { PAWL_MX_CPU, 0 };

		EXPECT(!pawl_mx_resource_get(cpu, PAWL_MX_TEMP_SPACE, &a));
		EXPECT(!pawl_mx_resource_get(cpu, PAWL_MX_TEMP_SPACE, &b));
		EXPECT(!pawl_mx_resource_get(cpu, PAWL_MX_TEMP_SPACE, &c));
		EXPECT(a.var == c.var && a.var != b.var);
	} else if (name == "no-profiler") {
		int rc = pawl_trace_start(pawl_mx_engine_pawl(e), 64);

		EXPECT(!rc || rc == -ENOSYS);
	} else if (name == "profiler") {
		/* it runs already: -EALREADY, or the library has no trace */
		int rc = pawl_trace_start(pawl_mx_engine_pawl(e), 64);

		EXPECT(rc == -EALREADY || rc == -ENOSYS);
		char path[] = "/tmp/pawl-mx-XXXXXX";
		int fd = mkstemp(path);

		EXPECT(fd >= 0 && !close(fd));
		/* and the times of ops are summed */
		const char *keys[] = { "aggregate_stats", "filename" };
		const char *vals[] = { "1", path }, *text = nullptr;
		static ProfileHandle domain;	/* is never freed */

		EXPECT(!MXSetProfilerConfig(2, keys, vals));
		EXPECT(!MXEnginePushSync(Nothing, nullptr, nullptr, &cpu_context, nullptr, 0,
					 nullptr, 0, nullptr, 0, "summed"));
		EXPECT(!MXNDArrayWaitAll());
		EXPECT(!MXAggregateProfileStatsPrint(&text, 0) && std::strstr(text, "\nsummed "));
		if (rc == -ENOSYS)
			return unlink(path);
		/* what the program names has its times from the start of this trace, like the ops */
		EXPECT(!MXProfileCreateDomain("own", &domain));
		EXPECT(!MXProfileSetMarker(domain, "mark", "process"));
		EXPECT(!MXDumpProfile(1));
		std::ifstream file(path);
		std::string trace((std::istreambuf_iterator<char>(file)), {});
		size_t mark = trace.find("\"mark\""), at = trace.find("\"ts\":", mark);
		EXPECT(mark != trace.npos && at != trace.npos);
		double after = std::stod(trace.substr(at + 5));
		std::chrono::duration<double, std::micro> since =
			std::chrono::steady_clock::now() - began;

		EXPECT(after > 0 && after <= since.count());
		EXPECT(!unlink(path));
	} else {
		EXPECT(!"a case");
	}
	return 0;
}

MX_TEST(types)
{
	Run("default", {});
	Run("default", { "MXNET_ENGINE_TYPE=ThreadedEnginePerDevice", "MXNET_ENGINE_INFO=1" });
	Run("pooled", { "MXNET_ENGINE_TYPE=ThreadedEngine" });
	Run("naive", { "MXNET_ENGINE_TYPE=NaiveEngine" });
	for (const char *type : { "NoSuchEngine", "ThreadedEnginePerDeviceAsync", "" })
		Run("unknown", { std::string("MXNET_ENGINE_TYPE=") + type });
}

MX_TEST(numbers)
{
	std::string cudart = "PAWL_CUDART=";

	cudart += std::string(self, std::strrchr(self, '/') - self) + "/../device/libcudart.so";
	Run("threads", { "MXNET_CPU_WORKER_NTHREADS=3", "MXNET_CPU_PRIORITY_NTHREADS=2",
			 "MXNET_GPU_COPY_NTHREADS=1", "MXNET_MP_WORKER_NTHREADS=2" });
	Run("default", { "PAWL_MXNET_SPIN_NS=0", "MXNET_CPU_PRIORITY_NTHREADS=" });
	Run("freed", { "MXNET_CPU_WORKER_NTHREADS=1000000", "MXNET_GPU_COPY_NTHREADS=1000000" });
	Run("many", { "MXNET_CPU_WORKER_NTHREADS=17" });
	Run("most", { "MXNET_CPU_WORKER_NTHREADS=16" });
	Run("temp", { "MXNET_CPU_TEMP_COPY=2" });
	Run("copies", { "WANT_TEMP=4", "WANT_PARALLEL=1" });
	Run("copies", { "MXNET_CPU_TEMP_COPY=0", "WANT_TEMP=1", "WANT_PARALLEL=1" });
	Run("copies", { "MXNET_CPU_TEMP_COPY=1000", "WANT_TEMP=64", "MXNET_CPU_PARALLEL_RAND_COPY=3",
			"WANT_PARALLEL=3" });
	Run("profiler", { "MXNET_PROFILER_AUTOSTART=1" });
	for (const char *no : { "0", "" })
		Run("no-profiler", { std::string("MXNET_PROFILER_AUTOSTART=") + no });
	Run("omp", { "MXNET_OMP_MAX_THREADS=3", "WANT_THREADS=3", "WANT_CHILD=1" });
	Run("omp", { "MXNET_OMP_MAX_THREADS=0", "WANT_THREADS=1", "WANT_CHILD=1" });
#ifdef __x86_64__
	/* by default the processors' cores, each of which has two threads */
	Run("omp", { "WANT_THREADS=" + std::to_string(std::max(1l, sysconf(_SC_NPROCESSORS_ONLN) / 2)),
		     "WANT_CHILD=1" });
#endif
	Run("omp", { "MXNET_OMP_MAX_THREADS=3", "OMP_NUM_THREADS=5", "WANT_THREADS=5", "WANT_CHILD=1" });
	Run("gpus", { "PAWL_MX_GPUS=1", cudart });
	Run("default", { "PAWL_MX_GPUS=" });
	for (const char *odd : { "lots", "1x", "-1", "17" })
		Run("gpus-odd", { std::string("PAWL_MX_GPUS=") + odd });
}

MX_TEST(what_is_printed)
{
	for (const char *yes : { "1", "true", "TRUE" })
		Run("info", { std::string("MXNET_ENGINE_INFO=") + yes });
	for (const char *no : { "0", "false", "" })
		Run("no-info", { std::string("MXNET_ENGINE_INFO=") + no });
	Run("no-info", {});
}

MX_TEST(ends_of_the_process)
{
	Run("freed", {});
	for (const char *ends : { "ends-stopped", "ends-gathered", "ends-late", "ends-late-gathered",
				  "ends-gathered-elsewhere", "ends-last" })
		Run(ends, {});
#if !THREAD_SANITIZED	/* the body's thread ends the process while others run */
	/* what the op has is not freed */
	Run("exits", { "ASAN_OPTIONS=detect_leaks=0" });
#endif
}

int main(int argc, char **argv)
{
	self = argv[0];
	if (argc == 3 && !std::strcmp(argv[1], "case"))
		return Case(argv[2]);
	return MxMain(argc, argv);
}
