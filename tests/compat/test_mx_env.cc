// SPDX-License-Identifier: Apache-2.0
/* MXNet's environment variables take effect.  Each case runs this program as a process. */
#include <mxnet/c_api.h>
#include <mxnet/engine.h>
#include <dlfcn.h>
#include <pawl/device.h>
#include <pawl/engine.h>
#include <sys/wait.h>
#include <unistd.h>
#include "mx_test.hpp"

using mxnet::Context;
using mxnet::Engine;
using mxnet::FnProperty;
using mxnet::RunContext;

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif

extern char **environ;
static const char *self;

/* This program again, for one case, with these variables and no other of MXNet's. */
static void Run(const char *name, const std::vector<std::string> &vars)
{
	std::vector<char *> env;
	pid_t pid;
	int status = -1;

	for (char **p = environ; *p; p++)
		if (std::strncmp(*p, "MXNET_", 6) && std::strncmp(*p, "PAWL_MX", 7) &&
		    std::strncmp(*p, "OMP_", 4))
			env.push_back(*p);
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

/* How many bodies run at once, with that property: exactly n, and no more come. */
static void AtOnce(FnProperty prop, int n)
{
	Engine *e = Engine::Get();
	std::atomic<int> in(0);
	std::atomic<bool> out(false);

	for (int i = 0; i < n + 3; i++)
		e->PushSync([&](RunContext) {
			in++;
			EXPECT(Soon([&] { return out.load(); }));
			in--;
		}, Context::CPU(), {}, {}, prop);
	EXPECT(Soon([&] { return in == n; }));
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

/* With an OpenMP in the program: what a worker would use for a parallel region. */
static int OmpThreads()
{
	static int (*get)();
	int n = -1;

	if (!get) {
		void *omp = dlopen("libgomp.so.1", RTLD_NOW | RTLD_GLOBAL);

		EXPECT(omp);
		get = reinterpret_cast<int (*)()>(dlsym(omp, "omp_get_max_threads"));
		EXPECT(get);
	}
	Engine::Get()->PushSync([&](RunContext) { n = get(); }, Context::CPU(), {}, {});
	Engine::Get()->WaitForAll();
	return n;
}

static int Case(const std::string &name)
{
	pawl_mx_engine *e = pawl_mx_engine_get();

	if (name == "unknown") {
		EXPECT(!e);
		THROWS(dmlc::Error, "NoSuchEngine", Engine::Get());
		EXPECT(MXNDArrayWaitAll() == -1);
		EXPECT(std::strstr(MXGetLastError(), "NoSuchEngine"));
		return 0;
	}
	if (name == "gpus-odd") {
		EXPECT(!e);
		EXPECT(std::strstr(MXGetLastError(), "PAWL_MX_GPUS is lots"));
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
#ifndef __SANITIZE_THREAD__
		int status = -1;
		pid_t pid = fork();

		EXPECT(pid >= 0);
		if (!pid) {
			alarm(60);
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
#ifndef __SANITIZE_THREAD__	/* which does not let a child have threads */
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
	} else if (name == "temp") {
		pawl_mx_resource a, b, c;
		pawl_mx_context cpu = { PAWL_MX_CPU, 0 };

		EXPECT(!pawl_mx_resource_get(cpu, PAWL_MX_TEMP_SPACE, &a));
		EXPECT(!pawl_mx_resource_get(cpu, PAWL_MX_TEMP_SPACE, &b));
		EXPECT(!pawl_mx_resource_get(cpu, PAWL_MX_TEMP_SPACE, &c));
		EXPECT(a.var == c.var && a.var != b.var);
	} else if (name == "profiler") {
		/* it runs already: -EALREADY, or the library has no trace */
		int rc = pawl_trace_start(pawl_mx_engine_pawl(e), 64);

		EXPECT(rc == -EALREADY || rc == -ENOSYS);
	} else {
		EXPECT(!"a case");
	}
	return 0;
}

MX_TEST(types)
{
	Run("default", {});
	Run("default", { "MXNET_ENGINE_TYPE=" });
	Run("default", { "MXNET_ENGINE_TYPE=ThreadedEnginePerDevice", "MXNET_ENGINE_INFO=1" });
	Run("default", { "MXNET_ENGINE_TYPE=ThreadedEnginePerDeviceAsync" });
	Run("pooled", { "MXNET_ENGINE_TYPE=ThreadedEngine" });
	Run("naive", { "MXNET_ENGINE_TYPE=NaiveEngine" });
	Run("unknown", { "MXNET_ENGINE_TYPE=NoSuchEngine" });
}

MX_TEST(numbers)
{
	std::string cudart = "PAWL_CUDART=";

	cudart += std::string(self, std::strrchr(self, '/') - self) + "/../device/libcudart.so";
	Run("threads", { "MXNET_CPU_WORKER_NTHREADS=3", "MXNET_CPU_PRIORITY_NTHREADS=2",
			 "MXNET_GPU_COPY_NTHREADS=1", "MXNET_MP_WORKER_NTHREADS=2" });
	Run("default", { "MXNET_CPU_WORKER_NTHREADS=none", "MXNET_CPU_PRIORITY_NTHREADS=" });
	Run("default", { "MXNET_CPU_WORKER_NTHREADS=-4" });
	Run("temp", { "MXNET_CPU_TEMP_COPY=2" });
	Run("profiler", { "MXNET_PROFILER_AUTOSTART=1" });
	Run("omp", { "MXNET_OMP_MAX_THREADS=3", "WANT_THREADS=3", "WANT_CHILD=1" });
	Run("omp", { "MXNET_OMP_MAX_THREADS=3", "OMP_NUM_THREADS=5", "WANT_THREADS=5", "WANT_CHILD=1" });
	Run("gpus", { "PAWL_MX_GPUS=1", cudart });
	Run("gpus-odd", { "PAWL_MX_GPUS=lots" });
}

int main(int argc, char **argv)
{
	self = argv[0];
	if (argc == 3 && !std::strcmp(argv[1], "case"))
		return Case(argv[2]);
	return MxMain(argc, argv);
}
