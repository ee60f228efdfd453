// SPDX-License-Identifier: Apache-2.0
/*
 * libpawl_mxnet.so - the real MXNet on pawl.
 *
 * It is compiled against the headers of an installed mxnet package (1.9.1, or 2.0.0, of which
 * PyPI has the beta 1) and preloaded.  Its mxnet::Engine::Get() and _GetSharedRef() then replace those of libmxnet.so, which calls them
 * through its PLT.  They return an engine whose vars and ops are libpawl's.  `pawl mxnet`
 * compiles and preloads it; Documentation/mxnet.md describes how the installed library binds,
 * and what does not work.
 *
 * Two compilers are involved.  libmxnet.so 1.9.1 was built with GCC 4.8, whose std::function passes
 * arguments to its target by value; since GCC 5 it passes them by reference.  The layout is
 * the same, so functions can be moved, copied and destroyed, but not called: see invoke().
 *
 * The engine is the same as behind the other interfaces (<pawl/mx_bridge.h>, linked in).  This
 * file contains what differs: how MXNet's library is found, how its functions are called, its
 * profiler, and the layout of its objects.  Engine::VarHandle is a pawl_mx_var, whose first
 * bytes are a Var; OprHandle is an Oper.
 *
 * Ordering: the bridge orders all shared data, except Oper::refs and the profiler's state,
 * which are independent atomics.
 *
 * Progress: that of the bridge's calls.
 *
 * Lifetime: a function is destroyed with its op, or when its body returns if that is later.
 * The engine is destroyed with its last shared reference, at exit.
 */
#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <mxnet/base.h>
#include <mxnet/c_api.h>
#include <mxnet/engine.h>
#include <pawl/engine.h>
#include <pawl/mx_bridge.h>

static_assert((MXNET_VERSION >= 10901 && MXNET_VERSION < 10902) ||
	      (MXNET_VERSION >= 20000 && MXNET_VERSION < 20001), "made for mxnet 1.9.1 and 2.0.0");

// In 2.0 an asynchronous function also has an on_start, which it calls before its work.
#define TWO	(MXNET_VERSION >= 20000)

namespace {

using mxnet::Context;
using mxnet::Engine;
using mxnet::FnProperty;
using mxnet::RunContext;
using mxnet::engine::CallbackOnComplete;

// --- the installed library ---------------------------------------------------

// The instance of std::function's invoker for the lambda in Engine::PushSync(), less its
// arguments.
#if TWO
const char probe[] = "_ZNSt17_Function_handlerIFvN5mxnet10RunContextENS0_6engine15CallbackOnStart"
	"ENS2_18CallbackOnCompleteEEZNS0_6Engine8PushSyncESt8functionIFvS1_EENS0_7ContextERKSt6"
	"vectorIPNS2_3VarESaISD_EESH_NS0_10FnPropertyEiPKcEUlS1_S3_S4_E_E9_M_invokeERKSt9_Any_data";
const char probe_value[] = "S1_S3_S4_", probe_reference[] = "OS1_OS3_OS4_";
#else
const char probe[] = "_ZNSt17_Function_handlerIFvN5mxnet10RunContextENS0_6engine18"
	"CallbackOnCompleteEEZNS0_6Engine8PushSyncESt8functionIFvS1_EENS0_7ContextERKSt6vector"
	"IPNS2_3VarESaISC_EESG_NS0_10FnPropertyEiPKcEUlS1_S3_E_E9_M_invokeERKSt9_Any_data";
const char probe_value[] = "S1_S3_", probe_reference[] = "OS1_OS3_";
#endif

// The functions of libmxnet.so that are used; looked up once.
struct Library {
	void *handle = nullptr;
	bool by_value = false;	// its std::function passes arguments by value
	void *(*omp_get)() = nullptr;
	void (*omp_worker)(void *omp, bool use) = nullptr;
	decltype(&MXProfileCreateDomain) domain_create = nullptr;
	decltype(&MXProfileCreateTask) task_create = nullptr;
	decltype(&MXProfileDurationStart) task_start = nullptr;
	decltype(&MXProfileDurationStop) task_stop = nullptr;
	decltype(&MXProfileDestroyHandle) task_destroy = nullptr;
	void *(*custom_get)() = nullptr;
	const char *(*custom_name)(void *profiler, const char *name) = nullptr;

	Library();
	template <typename F> void find(F *fn, const char *name)
	{
		*fn = reinterpret_cast<F>(dlsym(handle, name));
		if (!*fn)
			throw dmlc::Error(std::string("pawl: libmxnet.so has no ") + name);
	}
};

int find_mxnet(struct dl_phdr_info *info, size_t, void *arg)
{
	const char *base = strrchr(info->dlpi_name, '/');

	if (strcmp(base ? base + 1 : info->dlpi_name, "libmxnet.so"))
		return 0;
	*static_cast<std::string *>(arg) = info->dlpi_name;
	return 1;
}

Library::Library()
{
	std::string path;

	dl_iterate_phdr(find_mxnet, &path);
	if (!path.empty())
		handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
	if (!handle)
		throw dmlc::Error("pawl: there is no libmxnet.so in this process");
	if (dlsym(handle, (std::string(probe) + probe_value).c_str()))
		by_value = true;
	else if (!dlsym(handle, (std::string(probe) + probe_reference).c_str()))
		throw dmlc::Error("pawl: it is not known how this libmxnet.so calls functions");
	find(&omp_get, "_ZN5mxnet6engine6OpenMP3GetEv");
	find(&omp_worker, "_ZN5mxnet6engine6OpenMP22on_start_worker_threadEb");
	find(&domain_create, "MXProfileCreateDomain");
	find(&task_create, "MXProfileCreateTask");
	find(&task_start, "MXProfileDurationStart");
	find(&task_stop, "MXProfileDurationStop");
	find(&task_destroy, "MXProfileDestroyHandle");
	find(&custom_get, "_ZN5mxnet8profiler16CustomOpProfiler3GetEv");
	find(&custom_name, "_ZN5mxnet8profiler16CustomOpProfiler19GenerateDisplayNameEPKc");
}

Library &library()
{
	static Library lib;
	return lib;
}

// The layout of libstdc++'s std::function, the same since GCC 4.5.
struct FunctionLayout {
	void *functor[2];
	void *manager;
	void *invoker;
};

static_assert(sizeof(FunctionLayout) == sizeof(Engine::AsyncFn), "another std::function");

// Call fn as code from the compiler of libmxnet.so would.
template <typename... Args>
void invoke(bool by_value, const std::function<void(Args...)> &fn, Args... args)
{
	if (!by_value) {
		fn(args...);
		return;
	}
	const FunctionLayout *f = reinterpret_cast<const FunctionLayout *>(&fn);
	if (!f->manager)
		throw std::bad_function_call();
	reinterpret_cast<void (*)(const void *, Args...)>(f->invoker)(f->functor, args...);
}

// --- the profiler ------------------------------------------------------------

// The profiler's state (MXNet's enum) and its aggregation, set by SetState() and SetConfig().
enum { MODE_IMPERATIVE = 2 };
std::atomic<bool> profile_on{false}, profile_adds{false};
std::atomic<int> profile_mode{1 | 4 | 8};

bool profile_aggregating()
{
	return profile_on.load(std::memory_order_relaxed) &&
		profile_adds.load(std::memory_order_relaxed);
}

bool profile_imperative()
{
	return profile_on.load(std::memory_order_relaxed) &&
		(profile_mode.load(std::memory_order_relaxed) & MODE_IMPERATIVE);
}

// The environment can start the profiler before the first SetState().
void profile_autostart()
{
	if (dmlc::GetEnv("MXNET_PROFILER_AUTOSTART", 0)) {
		profile_mode = dmlc::GetEnv("MXNET_PROFILER_MODE", profile_mode.load());
		profile_on = true;
	}
}

ProfileHandle profile_domain(const char *name)
{
	ProfileHandle domain = nullptr;

	return library().domain_create(name, &domain) ? nullptr : domain;
}

// One op's time, as a task.  As in MXNet the ops of custom operators have their own domain, and
// the ops that only run or await a custom operator are left out.
void *profile_begin(const char *name)
{
	static ProfileHandle ops = profile_domain("operator");
	static ProfileHandle custom_ops = profile_domain("Custom Operator");
	Library &lib = library();
	ProfileHandle task = nullptr;

	if (!name || !strcmp(name, "Custom") || !strcmp(name, "_backward_Custom") ||
	    !strcmp(name, "CustomOperatorWait"))
		return nullptr;
	if (lib.task_create(strstr(name, "::") ? custom_ops : ops, name, &task))
		return nullptr;
	lib.task_start(task);
	return task;
}

// The name of an op that this thread pushes: inside a custom operator with its name before it.
const char *profile_name(const char *name)
{
	Library &lib = library();

	return lib.custom_name(lib.custom_get(), name);
}

const char *profile_delete()
{
	return profile_imperative() ? profile_name("DeleteVariable") : nullptr;
}

void profile_end(void *task)
{
	library().task_stop(task);
	library().task_destroy(task);
}

// --- the engine --------------------------------------------------------------

[[noreturn]] void raise(void *exception)
{
	if (exception) {
		std::exception_ptr p = std::move(*static_cast<std::exception_ptr *>(exception));

		pawl_mx_exception_free(exception);
		std::rethrow_exception(std::move(p));
	}
	throw dmlc::Error(std::string("pawl: ") + pawl_mx_last_error());
}

inline void check(int rc, void *exception = nullptr)
{
	if (rc)
		raise(exception);
}

// What MXNet uses as a var: the beginning of a pawl_mx_var.
struct Var final : public mxnet::engine::Var {
	size_t version() override;
};

static_assert(sizeof(Var) == PAWL_MX_VAR_ROOM, "another Var");
static_assert(sizeof(RunContext) == sizeof(pawl_mx_run), "another RunContext");
static_assert(sizeof(CallbackOnComplete) == sizeof(pawl_mx_callback), "another callback");

inline pawl_mx_var *of(Engine::VarHandle var)
{
	return reinterpret_cast<pawl_mx_var *>(var);
}

size_t Var::version()
{
	return pawl_mx_var_version(of(this));
}

inline pawl_mx_context of(const Context &ctx)
{
	return pawl_mx_context{ ctx.dev_type, ctx.dev_id };
}

// A function as the argument of a body, stored in the room of a pawl call.
template <typename Fn> struct Body {
	static void *make(Fn &&fn)
	{
		static_assert(sizeof(Fn) <= PAWL_MX_ROOM, "room");
		void *room = pawl_mx_room_get();

		if (!room)
			throw std::bad_alloc();
		return new (room) Fn(std::move(fn));
	}
	static void drop(void *arg)
	{
		static_cast<Fn *>(arg)->~Fn();
		pawl_mx_room_put(arg);
	}
};

bool by_value;		// as in the library; set by the engine

void run_sync(void *run, void *fn)
{
	invoke(by_value, *static_cast<const Engine::SyncFn *>(fn),
	       *static_cast<const RunContext *>(run));
}

void run_async(void *run, void *on_start, void *on_complete, void *fn)
{
	invoke(by_value, *static_cast<const Engine::AsyncFn *>(fn),
	       *static_cast<const RunContext *>(run),
#if TWO
	       *static_cast<const mxnet::engine::CallbackOnStart *>(on_start),
#endif
	       *static_cast<const CallbackOnComplete *>(on_complete));
}

// An operator: every push makes a separate op, in the context of that push.
struct Oper {
	Engine::AsyncFn fn;
	std::vector<Engine::VarHandle> reads, writes;
	FnProperty prop;
	std::string name;
	bool wait;
	std::atomic<uint32_t> refs{1};	// the handle, and each run

	static void run(void *run, void *on_start, void *on_complete, void *arg)
	{
		run_async(run, on_start, on_complete, &static_cast<Oper *>(arg)->fn);
	}
	static void put(void *arg)
	{
		Oper *o = static_cast<Oper *>(arg);

		if (o->refs.fetch_sub(1, std::memory_order_acq_rel) == 1)
			delete o;
	}
};

inline pawl_mx_op describe(std::vector<Engine::VarHandle> const &reads,
			   std::vector<Engine::VarHandle> const &writes, const Context &ctx,
			   FnProperty prop, int priority, const char *name)
{
	pawl_mx_op op = pawl_mx_op();

	op.ctx = of(ctx);
	op.prop = static_cast<int>(prop);
	op.priority = priority;
	op.name = name;
	op.reads = reinterpret_cast<pawl_mx_var *const *>(reads.data());
	op.writes = reinterpret_cast<pawl_mx_var *const *>(writes.data());
	op.nreads = reads.size();
	op.nwrites = writes.size();
	return op;
}

void worker_start()
{
	Library &lib = library();
	lib.omp_worker(lib.omp_get(), true);
}

class PawlEngine final : public Engine {
 public:
	PawlEngine();
	~PawlEngine() noexcept(false) override;
	void NotifyShutdown() override
	{
		shutdown_.store(true, std::memory_order_relaxed);
		check(pawl_mx_engine_shutdown(e_));
	}
	// Errors are left for a wait to report: MXNet's fork handler also calls this.
	void Stop() override { pawl_mx_engine_stop(e_, nullptr); }
	void Start() override { pawl_mx_engine_start(e_); }
	VarHandle NewVariable() override
	{
		pawl_mx_var *var;

		check(pawl_mx_var_new(e_, &var));
		return new (var) Var;
	}
	OprHandle NewOperator(AsyncFn fn, std::vector<VarHandle> const &const_vars,
			      std::vector<VarHandle> const &mutable_vars, FnProperty prop,
			      const char *opr_name, bool wait) override
	{
		Oper *o = new Oper;

		o->fn = std::move(fn);
		o->reads = const_vars;
		o->writes = mutable_vars;
		o->prop = prop;
		o->name = opr_name ? opr_name : "";
		o->wait = wait;
		return reinterpret_cast<OprHandle>(o);
	}
	// It is deleted with the last of its runs.
	void DeleteOperator(OprHandle op) override
	{
		void *task = nullptr;

		// In MXNet it is an op, except in the naive kind.
		if (profile_imperative() && pawl_mx_engine_kind(e_) != PAWL_MX_NAIVE)
			task = profile_begin(profile_name("DeleteOperator"));
		Oper::put(op);
		if (task)
			profile_end(task);
	}
	void Push(OprHandle handle, Context exec_ctx, int priority, bool profiling) override
	{
		Oper *o = reinterpret_cast<Oper *>(handle);
		pawl_mx_op op = describe(o->reads, o->writes, exec_ctx, o->prop, priority,
					 o->name.empty() ? nullptr : o->name.c_str());

		o->refs.fetch_add(1, std::memory_order_relaxed);
		op.async_start = Oper::run;
		op.arg = o;
		op.drop = Oper::put;
		op.keep = true;
		op.wait = o->wait;
		op.timed = profiling;
		push(op);
	}
	void PushAsync(AsyncFn exec_fun, Context exec_ctx,
		       std::vector<VarHandle> const &const_vars,
		       std::vector<VarHandle> const &mutable_vars, FnProperty prop,
		       int priority, const char *opr_name, bool wait) override
	{
		pawl_mx_op op = describe(const_vars, mutable_vars, exec_ctx, prop, priority,
					 opr_name);

		op.async_start = run_async;
		op.arg = Body<AsyncFn>::make(std::move(exec_fun));
		op.drop = Body<AsyncFn>::drop;
		op.in_room = true;
		// Its captures must stay valid until it returns, also after on_complete.
		op.keep = true;
		op.wait = wait;
		op.timed = profile_imperative();
		push(op);
	}
	void PushSync(SyncFn exec_fn, Context exec_ctx,
		      std::vector<VarHandle> const &const_vars,
		      std::vector<VarHandle> const &mutable_vars, FnProperty prop, int priority,
		      const char *opr_name) override
	{
		pawl_mx_op op = describe(const_vars, mutable_vars, exec_ctx, prop, priority,
					 opr_name);

		op.sync = run_sync;
		op.arg = Body<SyncFn>::make(std::move(exec_fn));
		op.drop = Body<SyncFn>::drop;
		op.in_room = true;
		op.timed = profile_imperative();
		push(op);
	}
	void DeleteVariable(SyncFn delete_fn, Context exec_ctx, VarHandle var) override
	{
		check(pawl_mx_var_delete(e_, of(var), of(exec_ctx), run_sync,
					 Body<SyncFn>::make(std::move(delete_fn)),
					 Body<SyncFn>::drop));
		// At exit delete_fn may refer to an object that its caller destroys next.
		if (shutdown_.load(std::memory_order_relaxed))
			pawl_mx_wait_all(e_, nullptr);
	}
	void WaitForVar(VarHandle var) override
	{
		void *exception = nullptr;
		const int rc = pawl_mx_wait_var(e_, of(var), &exception);

		check(rc, exception);
	}
	void WaitForAll() override
	{
		void *exception = nullptr;
		const int rc = pawl_mx_wait_all(e_, &exception);

		check(rc, exception);
	}
	void Throw(VarHandle var) override
	{
		void *exception = nullptr;
		const int rc = pawl_mx_var_throw(e_, of(var), &exception);

		check(rc, exception);
	}
	int bulk_size() const override { return pawl_mx_bulk_size(e_); }
	int set_bulk_size(int size) override
	{
		int was = pawl_mx_set_bulk_size(e_, size);

		if (was < 0)
			raise(nullptr);
		return was;
	}

 private:
	void push(pawl_mx_op &op)
	{
		void *exception = nullptr;

		if (op.timed)
			op.name = profile_name(op.name);
		const int rc = pawl_mx_push(e_, &op, &exception);

		check(rc, exception);
	}

	struct pawl_mx_engine *e_;
	bool info_ = dmlc::GetEnv("MXNET_ENGINE_INFO", false);
	std::atomic<bool> shutdown_{false};
	pid_t pid_ = getpid();
};

PawlEngine::PawlEngine()
{
	const char *type = getenv("MXNET_ENGINE_TYPE");
	struct pawl_mx_hooks hooks = { worker_start, profile_aggregating, profile_begin,
				       profile_end, profile_delete, true };

	by_value = library().by_value;
	profile_autostart();
	pawl_mx_set_hooks(&hooks);
	e_ = pawl_mx_engine_get();
	if (!e_)
		raise(nullptr);
	if (type)
		LOG(INFO) << "MXNet start using engine: " << type << " of pawl "
			  << pawl_version();
	else if (info_)
		LOG(INFO) << "pawl " << pawl_version() << " is MXNet's engine";
}

PawlEngine::~PawlEngine() noexcept(false)
{
	struct pawl_stats s;

	s.size = sizeof(s);
	if (info_ && pid_ == getpid() && !pawl_stats(pawl_mx_engine_pawl(e_), &s))
		fprintf(stderr, "pawl: %llu ops pushed, %llu completed, %llu failed, %llu skipped\n",
			static_cast<unsigned long long>(s.pushed),
			static_cast<unsigned long long>(s.completed),
			static_cast<unsigned long long>(s.failed),
			static_cast<unsigned long long>(s.skipped));
	pawl_mx_engine_free(e_);
}

}  // namespace

// --- what libmxnet.so binds to -----------------------------------------------

namespace mxnet {

#if TWO
const std::shared_ptr<Engine> &Engine::_GetSharedRef()
#else
std::shared_ptr<Engine> Engine::_GetSharedRef()
#endif
{
	static std::shared_ptr<Engine> engine = std::make_shared<PawlEngine>();
	return engine;
}

Engine *Engine::Get()
{
	static Engine *engine = _GetSharedRef().get();
	return engine;
}

namespace profiler {

// The part of MXNet's class that the names of its two functions need.
class Profiler {
 public:
	enum ProfilerState { kNotRunning = 0, kRunning = 1 };
	void SetState(ProfilerState state);
	void SetConfig(int mode, std::string file, bool continuous, float period,
		       bool aggregate);
};

void Profiler::SetState(ProfilerState state)
{
	typedef void (*Fn)(Profiler *, ProfilerState);
	static Fn real;

	if (!real)
		library().find(&real, "_ZN5mxnet8profiler8Profiler8SetStateENS1_13ProfilerStateE");
	real(this, state);
	profile_on.store(state == kRunning, std::memory_order_relaxed);
}

void Profiler::SetConfig(int mode, std::string file, bool continuous, float period,
			 bool aggregate)
{
	typedef void (*Fn)(Profiler *, int, std::string, bool, float, bool);
	static Fn real;

	if (!real)
		library().find(&real, "_ZN5mxnet8profiler8Profiler9SetConfigEiSsbfb");
	real(this, mode, file, continuous, period, aggregate);
	profile_mode.store(mode, std::memory_order_relaxed);
	profile_adds.store(aggregate, std::memory_order_relaxed);
}

}  // namespace profiler
}  // namespace mxnet

// The underlying pawl engine, for programs that read its counters.
extern "C" const char *pawl_mxnet_engine(void);
const char *pawl_mxnet_engine(void)
{
	return pawl_version();
}
