/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pawl/mx_engine.hpp - mxnet::Engine on libpawl; link with -lpawl_mx.
 *
 * Declares the names of MXNet 1.9.1's engine.h and the parts of its base.h that they use;
 * C++11.  Code for mxnet/engine.h compiles with this header, or unchanged if the folder
 * <prefix>/include/pawl/compat is on its include path.
 *
 * A body may throw any exception.  Then the op fails, the vars that it would have written are
 * poisoned, ops on these are skipped and propagate the failure, and one WaitForVar(),
 * WaitForAll() or Throw() rethrows the exception with its type.  A refused call throws
 * dmlc::Error.
 *
 * If PAWL_MX_API is defined as 20000 before the first of these headers, an asynchronous
 * function has the form of MXNet's master, with on_start as the second argument; both forms
 * in one program are different types.
 */
#ifndef PAWL_MX_ENGINE_HPP
#define PAWL_MX_ENGINE_HPP

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <ostream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>
#include <pawl/mx_bridge.h>
#include <pawl/mx_c_api.h>
#include <pawl/mx_error.hpp>

#if PAWL_MX_API >= 20000
#define PAWL_MX_ABI __attribute__((abi_tag("on_start")))
#else
#define PAWL_MX_ABI
#endif

#ifndef MXNET_MAJOR
#if PAWL_MX_API >= 20000
#define MXNET_MAJOR 2
#define MXNET_MINOR 0
#define MXNET_PATCH 0
#else
#define MXNET_MAJOR 1
#define MXNET_MINOR 9
#define MXNET_PATCH 1
#endif
#define MXNET_VERSION (MXNET_MAJOR * 10000 + MXNET_MINOR * 100 + MXNET_PATCH)
#define MXNET_MAKE_VERSION(major, minor, patch) ((major) * 10000 + (minor) * 100 + (patch))
#endif
#ifndef MXNET_API
#define MXNET_API
#endif

namespace mshadow {

struct cpu { static const int kDevMask = 1 << 0; };
struct gpu { static const int kDevMask = 1 << 1; };
template <typename Device> struct Stream;

}

namespace mxnet {

typedef mshadow::cpu cpu;
typedef mshadow::gpu gpu;

struct Context {
	enum DeviceType {
		kCPU = 1,
		kGPU = 2,
		kCPUPinned = 3,
		kCPUShared = 5,
	};
	static const int32_t kMaxDevType = 6;
	static const int32_t kMaxDevID = 16;

	DeviceType dev_type;
	int32_t dev_id;

	Context() : dev_type(kCPU), dev_id(0) {}

	DeviceType dev_mask() const
	{
		return dev_type == kCPUPinned || dev_type == kCPUShared ? kCPU : dev_type;
	}
	int real_dev_id() const
	{
		return dev_type == kCPUPinned || dev_type == kGPU ? dev_id : 0;
	}
	bool operator<(const Context &b) const
	{
		return dev_type != b.dev_type ? dev_type < b.dev_type : dev_id < b.dev_id;
	}
	bool operator==(const Context &b) const
	{
		return dev_type == b.dev_type && dev_id == b.dev_id;
	}
	bool operator!=(const Context &b) const { return !(*this == b); }

	static Context Create(DeviceType type, int32_t id = -1)
	{
		Context ctx;

		if (type == kGPU && id < 0)
			throw dmlc::Error("there is no current GPU");
		ctx.dev_type = type;
		ctx.dev_id = id < 0 ? 0 : id;
		return ctx;
	}
	static Context CPU(int32_t id = 0) { return Create(kCPU, id); }
	static Context GPU(int32_t id = -1) { return Create(kGPU, id); }
	static Context CPUPinned(int32_t id = -1) { return Create(kCPUPinned, id); }
	static Context CPUShared(int32_t id = 0) { return Create(kCPUShared, id); }
	static bool GPUDriverPresent() { return GetGPUCount() > 0; }
	static int32_t GetGPUCount()
	{
		int n = 0;

		return MXGetGPUCount(&n) ? 0 : n;
	}
	static Context FromString(const std::string &s)
	{
		static const struct { const char *name; DeviceType type; } types[] = {
			{ "cpu(", kCPU }, { "gpu(", kGPU }, { "cpu_pinned(", kCPUPinned },
			{ "cpu_shared(", kCPUShared },
		};

		for (const auto &t : types) {
			const std::string name(t.name);

			if (s.size() < name.size() + 2 || s.compare(0, name.size(), name) ||
			    s.back() != ')' || s.size() > name.size() + 10)
				continue;
			const std::string id = s.substr(name.size(), s.size() - name.size() - 1);

			if (id.find_first_not_of("0123456789") == std::string::npos)
				return Create(t.type, std::stoi(id));
		}
		throw dmlc::Error("Invalid context string " + s);
	}
};

inline std::ostream &operator<<(std::ostream &out, const Context &ctx)
{
	switch (ctx.dev_type) {
	case Context::kCPU: out << "cpu("; break;
	case Context::kGPU: out << "gpu("; break;
	case Context::kCPUPinned: out << "cpu_pinned("; break;
	case Context::kCPUShared: out << "cpu_shared("; break;
	default: out << "unknown("; break;
	}
	return out << ctx.dev_id << ")";
}

struct RunContext {
	Context ctx;
	void *stream;
	void *aux_stream;
	bool is_bulk;

	template <typename xpu>
	mshadow::Stream<xpu> *get_stream() const
	{
		return static_cast<mshadow::Stream<xpu> *>(stream);
	}
	const Context &get_ctx() const { return ctx; }
};

class PAWL_MX_ABI Engine;

namespace engine {

/* Never created or copied by users: the engine returns a pointer to its own object. */
struct Var {
	size_t version()
	{
		return static_cast<size_t>(pawl_mx_var_version(reinterpret_cast<pawl_mx_var *>(this)));
	}
	/* For code that knows what the object is. */
	template <typename T> T *Cast()
	{
		static_assert(std::is_base_of<Var, T>::value, "must inherit mxnet::engine::Var");
		return static_cast<T *>(this);
	}
	Var() = delete;
	Var(const Var &) = delete;
};
struct Opr {
	template <typename T> T *Cast()
	{
		static_assert(std::is_base_of<Opr, T>::value, "must inherit mxnet::engine::Opr");
		return static_cast<T *>(this);
	}
	Opr() = delete;
	Opr(const Opr &) = delete;
};
typedef Var *VarHandle;
typedef Opr *OprHandle;

namespace detail {
class PAWL_MX_ABI PawlEngine;
}

/* Three words with MXNet's layout, also used as the on_complete of the C interface. */
class CallbackBase {
public:
	void operator()(const dmlc::Error *error = nullptr) const { callback_(engine_, param_, error); }

protected:
	friend class ::mxnet::Engine;
	void (*callback_)(Engine *, void *, const dmlc::Error *);
	Engine *engine_;
	void *param_;
};
class CallbackOnComplete : public CallbackBase {};
class CallbackOnStart : public CallbackBase {};

static_assert(std::is_standard_layout<Context>::value, "Context");
static_assert(sizeof(RunContext) == sizeof(pawl_mx_run), "RunContext");
static_assert(sizeof(CallbackOnComplete) == sizeof(pawl_mx_callback), "CallbackOnComplete");

}

enum class FnProperty {
	kNormal,
	kCopyFromGPU,
	kCopyToGPU,
	kCPUPrioritized,
	kAsync,
	kDeleteVar,
	kGPUPrioritized,
	kNoSkip
};

class PAWL_MX_ABI Engine {
public:
	typedef engine::CallbackOnComplete CallbackOnComplete;
	typedef engine::CallbackOnStart CallbackOnStart;
	typedef std::function<void(RunContext)> SyncFn;
#if PAWL_MX_API >= 20000
	typedef std::function<void(RunContext, CallbackOnStart, CallbackOnComplete)> AsyncFn;
#else
	typedef std::function<void(RunContext, CallbackOnComplete)> AsyncFn;
#endif
	typedef engine::VarHandle VarHandle;
	typedef engine::OprHandle OprHandle;

	virtual ~Engine() noexcept(false) {}
	/* From now on only the functions of deletes run; other ops complete without theirs. */
	virtual void NotifyShutdown() = 0;
	/* Waits for everything, joins the threads, and throws what WaitForAll() would. */
	virtual void Stop() = 0;
	virtual void Start() = 0;
	virtual VarHandle NewVariable() = 0;
	virtual OprHandle NewOperator(AsyncFn fn, std::vector<VarHandle> const &const_vars,
				      std::vector<VarHandle> const &mutable_vars,
				      FnProperty prop = FnProperty::kNormal,
				      const char *opr_name = nullptr, bool wait = false) = 0;
	/* Deleted after its last run; the handle must not be used any more. */
	virtual void DeleteOperator(OprHandle op) = 0;
	virtual void Push(OprHandle op, Context exec_ctx, int priority = 0,
			  bool profiling = false) = 0;
	virtual void PushAsync(AsyncFn exec_fun, Context exec_ctx,
			       std::vector<VarHandle> const &const_vars,
			       std::vector<VarHandle> const &mutable_vars,
			       FnProperty prop = FnProperty::kNormal, int priority = 0,
			       const char *opr_name = nullptr, bool wait = false) = 0;
	virtual void PushSync(SyncFn exec_fn, Context exec_ctx,
			      std::vector<VarHandle> const &const_vars,
			      std::vector<VarHandle> const &mutable_vars,
			      FnProperty prop = FnProperty::kNormal, int priority = 0,
			      const char *opr_name = nullptr) = 0;
	virtual void DeleteVariable(SyncFn delete_fn, Context exec_ctx, VarHandle var) = 0;
	/* Wait until all earlier writes are complete; does not wait for reads. */
	virtual void WaitForVar(VarHandle var) = 0;
	virtual void WaitForAll() = 0;
	virtual void Throw(VarHandle var) = 0;
	virtual int bulk_size() const { return 0; }
	virtual int set_bulk_size(int) { return 0; }

	static Engine *Get();
	static std::shared_ptr<Engine> _GetSharedRef();

	CallbackOnComplete CreateCallback(void (*callback)(Engine *, void *, const dmlc::Error *),
					  void *param)
	{
		return Create<CallbackOnComplete>(callback, param);
	}
#if PAWL_MX_API >= 20000
	CallbackOnStart CreateOnStart(void (*callback)(Engine *, void *, const dmlc::Error *),
				      void *param)
	{
		return Create<CallbackOnStart>(callback, param);
	}
#endif

	/* Sort both lists and remove duplicates; a write wins over a read. */
	void DeduplicateVarHandle(std::vector<engine::VarHandle> *read_vars,
				  std::vector<engine::VarHandle> *write_vars)
	{
		Unique(write_vars);
		Unique(read_vars);
		read_vars->erase(std::remove_if(read_vars->begin(), read_vars->end(),
						[write_vars](engine::VarHandle v) {
							return std::binary_search(write_vars->begin(),
										  write_vars->end(), v,
										  std::less<engine::VarHandle>());
						}),
				 read_vars->end());
	}

private:
	static void Unique(std::vector<engine::VarHandle> *vars)
	{
		std::sort(vars->begin(), vars->end(), std::less<engine::VarHandle>());
		vars->erase(std::unique(vars->begin(), vars->end()), vars->end());
	}
	template <typename Callback>
	Callback Create(void (*callback)(Engine *, void *, const dmlc::Error *), void *param)
	{
		Callback cb;

		cb.callback_ = callback;
		cb.engine_ = this;
		cb.param_ = param;
		return cb;
	}
};

namespace engine {
namespace detail {

/* Throw the error of a failed call: the body's exception, or its text. */
[[noreturn]] inline void Raise(void *exception)
{
	if (exception) {
		std::exception_ptr p = std::move(*static_cast<std::exception_ptr *>(exception));

		pawl_mx_exception_free(exception);
		std::rethrow_exception(std::move(p));
	}
	throw dmlc::Error(pawl_mx_last_error());
}

/* A function object as the argument of a body. */
template <typename Fn>
struct Body {
	static void *Make(Fn &&fn)
	{
		static_assert(sizeof(Fn) <= PAWL_MX_ROOM, "room");
		void *room = pawl_mx_room_get();

		if (!room)
			throw std::bad_alloc();
		return new (room) Fn(std::move(fn));
	}
	static void Drop(void *arg)
	{
		static_cast<Fn *>(arg)->~Fn();
		pawl_mx_room_put(arg);
	}
};

inline void RunSync(void *run, void *arg)
{
	(*static_cast<Engine::SyncFn *>(arg))(*static_cast<const RunContext *>(run));
}

#if PAWL_MX_API >= 20000
PAWL_MX_ABI inline void RunAsync(void *run, void *on_start, void *on_complete, void *arg)
{
	(*static_cast<Engine::AsyncFn *>(arg))(*static_cast<const RunContext *>(run),
					       *static_cast<const CallbackOnStart *>(on_start),
					       *static_cast<const CallbackOnComplete *>(on_complete));
}
#else
inline void RunAsync(void *run, void *on_complete, void *arg)
{
	(*static_cast<Engine::AsyncFn *>(arg))(*static_cast<const RunContext *>(run),
					       *static_cast<const CallbackOnComplete *>(on_complete));
}
#endif

class PAWL_MX_ABI PawlEngine final : public Engine {
public:
	/* own: e is freed with this object; otherwise it is the shared engine. */
	PawlEngine(pawl_mx_engine *e, bool own) : e_(e), own_(own) {}
	PawlEngine(const PawlEngine &) = delete;
	PawlEngine &operator=(const PawlEngine &) = delete;
	~PawlEngine() noexcept(false) override
	{
		if (own_ && pawl_mx_engine_free(e_))
			Raise(nullptr);
	}

	static Engine *Make(int kind)
	{
		pawl_mx_engine *e;

		if (pawl_mx_engine_create(kind, &e))
			Raise(nullptr);
		return new PawlEngine(e, true);
	}
	static pawl_mx_engine *Shared()
	{
		pawl_mx_engine *e = pawl_mx_engine_get();

		if (!e)
			Raise(nullptr);
		return e;
	}

	void NotifyShutdown() override { Check(pawl_mx_engine_shutdown(e_)); }
	void Stop() override
	{
		void *exception = nullptr;
		const int rc = pawl_mx_engine_stop(e_, &exception);

		Check(rc, exception);
	}
	void Start() override { Check(pawl_mx_engine_start(e_)); }

	VarHandle NewVariable() override
	{
		pawl_mx_var *var = nullptr;

		Check(pawl_mx_var_new(e_, &var));
		return reinterpret_cast<VarHandle>(var);
	}
	void DeleteVariable(SyncFn delete_fn, Context exec_ctx, VarHandle var) override
	{
		pawl_mx_sync_fn run = delete_fn ? RunSync : nullptr;

		Check(pawl_mx_var_delete(e_, Of(var), Of(exec_ctx), run,
					 Body<SyncFn>::Make(std::move(delete_fn)),
					 Body<SyncFn>::Drop));
	}

	OprHandle NewOperator(AsyncFn fn, std::vector<VarHandle> const &const_vars,
			      std::vector<VarHandle> const &mutable_vars, FnProperty prop,
			      const char *opr_name, bool wait) override
	{
		pawl_mx_op op = Op(const_vars, mutable_vars, prop, opr_name);
		pawl_mx_opr *opr = nullptr;

		op.ctx = Of(Context());
		op.wait = wait;
		SetAsync(&op, std::move(fn));
		Check(pawl_mx_opr_new(e_, &op, &opr));
		return reinterpret_cast<OprHandle>(opr);
	}
	void DeleteOperator(OprHandle op) override { Check(pawl_mx_opr_delete(e_, Of(op))); }
	void Push(OprHandle op, Context exec_ctx, int priority, bool) override
	{
		void *exception = nullptr;
		const int rc = pawl_mx_opr_push(e_, Of(op), Of(exec_ctx), priority, &exception);

		Check(rc, exception);
	}
	void PushAsync(AsyncFn exec_fun, Context exec_ctx, std::vector<VarHandle> const &const_vars,
		       std::vector<VarHandle> const &mutable_vars, FnProperty prop, int priority,
		       const char *opr_name, bool wait) override
	{
		pawl_mx_op op = Op(const_vars, mutable_vars, prop, opr_name);

		op.ctx = Of(exec_ctx);
		op.priority = priority;
		op.wait = wait;
		SetAsync(&op, std::move(exec_fun));
		PushOp(op);
	}
	void PushSync(SyncFn exec_fn, Context exec_ctx, std::vector<VarHandle> const &const_vars,
		      std::vector<VarHandle> const &mutable_vars, FnProperty prop, int priority,
		      const char *opr_name) override
	{
		pawl_mx_op op = Op(const_vars, mutable_vars, prop, opr_name);

		op.ctx = Of(exec_ctx);
		op.priority = priority;
		op.sync = exec_fn ? RunSync : nullptr;
		op.arg = Body<SyncFn>::Make(std::move(exec_fn));
		op.drop = Body<SyncFn>::Drop;
		op.in_room = true;
		PushOp(op);
	}

	void WaitForVar(VarHandle var) override
	{
		void *exception = nullptr;
		const int rc = pawl_mx_wait_var(e_, Of(var), &exception);

		Check(rc, exception);
	}
	void WaitForAll() override
	{
		void *exception = nullptr;
		const int rc = pawl_mx_wait_all(e_, &exception);

		Check(rc, exception);
	}
	void Throw(VarHandle var) override
	{
		void *exception = nullptr;
		const int rc = pawl_mx_var_throw(e_, Of(var), &exception);

		Check(rc, exception);
	}
	int bulk_size() const override { return pawl_mx_bulk_size(e_); }
	int set_bulk_size(int size) override
	{
		int was = pawl_mx_set_bulk_size(e_, size);

		if (was < 0)
			Raise(nullptr);
		return was;
	}

private:
	static void Check(int rc, void *exception = nullptr)
	{
		if (rc)
			Raise(exception);
	}
	static pawl_mx_var *Of(VarHandle var) { return reinterpret_cast<pawl_mx_var *>(var); }
	static pawl_mx_opr *Of(OprHandle opr) { return reinterpret_cast<pawl_mx_opr *>(opr); }
	static pawl_mx_context Of(const Context &ctx)
	{
		pawl_mx_context c;

		c.dev_type = ctx.dev_type;
		c.dev_id = ctx.dev_id;
		return c;
	}
	static pawl_mx_op Op(std::vector<VarHandle> const &reads, std::vector<VarHandle> const &writes,
			     FnProperty prop, const char *name)
	{
		pawl_mx_op op = pawl_mx_op();

		op.reads = reinterpret_cast<pawl_mx_var *const *>(reads.data());
		op.writes = reinterpret_cast<pawl_mx_var *const *>(writes.data());
		op.nreads = reads.size();
		op.nwrites = writes.size();
		op.prop = static_cast<int>(prop);
		op.name = name;
		return op;
	}
	static void SetAsync(pawl_mx_op *op, AsyncFn &&fn)
	{
#if PAWL_MX_API >= 20000
		op->async_start = fn ? RunAsync : nullptr;
#else
		op->async = fn ? RunAsync : nullptr;
#endif
		op->arg = Body<AsyncFn>::Make(std::move(fn));
		op->drop = Body<AsyncFn>::Drop;
		op->in_room = true;
		/* Its captures must stay valid until it returns, also after on_complete. */
		op->keep = true;
	}
	void PushOp(const pawl_mx_op &op)
	{
		void *exception = nullptr;
		const int rc = pawl_mx_push(e_, &op, &exception);

		Check(rc, exception);
	}

	pawl_mx_engine *e_;
	bool own_;
};

/*
 * Never freed, because destructors of static objects may still use the engine.  Not a static
 * object: another thread may hold its guard during a fork, and the child would wait forever.
 */
PAWL_MX_ABI inline Engine *SharedEngine()
{
	static std::atomic<Engine *> shared(nullptr);
	Engine *e = shared.load(std::memory_order_acquire), *mine;

	if (e)
		return e;
	mine = new PawlEngine(PawlEngine::Shared(), false);
	if (shared.compare_exchange_strong(e, mine))
		return mine;
	delete mine;
	return e;
}

}

PAWL_MX_ABI inline Engine *CreateNaiveEngine() { return detail::PawlEngine::Make(PAWL_MX_NAIVE); }
PAWL_MX_ABI inline Engine *CreateThreadedEnginePooled()
{
	return detail::PawlEngine::Make(PAWL_MX_POOLED);
}
PAWL_MX_ABI inline Engine *CreateThreadedEnginePerDevice()
{
	return detail::PawlEngine::Make(PAWL_MX_PER_DEVICE);
}

}

inline Engine *Engine::Get() { return engine::detail::SharedEngine(); }

/* The engine outlives all holders of this reference: it is freed with the library. */
inline std::shared_ptr<Engine> Engine::_GetSharedRef()
{
	return std::shared_ptr<Engine>(engine::detail::SharedEngine(), [](Engine *) {});
}

}

namespace std {

template <> struct hash<mxnet::Context> {
	size_t operator()(const mxnet::Context &ctx) const
	{
		return static_cast<size_t>(ctx.dev_type) * 31 + static_cast<size_t>(ctx.dev_id);
	}
};

}

#endif
