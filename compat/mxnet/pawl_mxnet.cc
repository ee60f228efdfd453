// SPDX-License-Identifier: Apache-2.0
/*
 * libpawl_mxnet.so - the real MXNet on pawl.
 *
 * Compiled against the headers inside an installed mxnet package (1.9.1) and preloaded, it
 * puts its own mxnet::Engine::Get() and _GetSharedRef() in front of those of libmxnet.so,
 * which calls them through its PLT.  What they return is an engine whose vars and ops are
 * libpawl's.  `pawl mxnet` does the compiling and the preloading; Documentation/mxnet.md
 * says how the installed library binds, and what does not work.
 *
 * Two compilers meet here.  libmxnet.so is of GCC 4.8, whose std::function calls its
 * target with the arguments by value; since GCC 5 it is by reference.  The layout is the
 * same, so functions can be moved, copied and destroyed, but not called: see invoke().
 *
 * Structures: Var is what MXNet holds as Engine::VarHandle, Oper as OprHandle; a Call is
 * one push, until its op is over.
 *
 * Ordering: all that is shared is under libpawl's, but for Var::gen, the list of names (both
 * below) and the profiler's state, which are on their own.
 *
 * Progress: as the calls of libpawl; the C library allocates one Call per push.
 *
 * Lifetime: a Call goes with its op's release, or with its body if that is later.  The
 * engine goes when the last shared reference does, at exit.  In the child of a fork the
 * parent's engine is forgotten and a new one made; a Var gets a new var there on its
 * first use.
 */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
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

static_assert(MXNET_VERSION >= 10901 && MXNET_VERSION < 10902, "made for mxnet 1.9.1");

namespace {

using mxnet::Context;
using mxnet::Engine;
using mxnet::FnProperty;
using mxnet::RunContext;
using mxnet::engine::CallbackOnComplete;

// --- the installed library ---------------------------------------------------

const char probe[] = "_ZNSt17_Function_handlerIFvN5mxnet10RunContextENS0_6engine18"
	"CallbackOnCompleteEEZNS0_6Engine8PushSyncESt8functionIFvS1_EENS0_7ContextERKSt6vector"
	"IPNS2_3VarESaISC_EESG_NS0_10FnPropertyEiPKcEUlS1_S3_E_E9_M_invokeERKSt9_Any_data";

// What is taken from libmxnet.so, once.
struct Library {
	void *handle = nullptr;
	bool by_value = false;	// how its std::function calls
	void *(*omp_get)() = nullptr;
	void (*omp_worker)(void *omp, bool use) = nullptr;
	decltype(&MXProfileCreateDomain) domain_create = nullptr;
	decltype(&MXProfileCreateTask) task_create = nullptr;
	decltype(&MXProfileDurationStart) task_start = nullptr;
	decltype(&MXProfileDurationStop) task_stop = nullptr;
	decltype(&MXProfileDestroyHandle) task_destroy = nullptr;

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
	if (dlsym(handle, (std::string(probe) + "S1_S3_").c_str()))
		by_value = true;
	else if (!dlsym(handle, (std::string(probe) + "OS1_OS3_").c_str()))
		throw dmlc::Error("pawl: it is not known how this libmxnet.so calls functions");
	find(&omp_get, "_ZN5mxnet6engine6OpenMP3GetEv");
	find(&omp_worker, "_ZN5mxnet6engine6OpenMP22on_start_worker_threadEb");
	find(&domain_create, "MXProfileCreateDomain");
	find(&task_create, "MXProfileCreateTask");
	find(&task_start, "MXProfileDurationStart");
	find(&task_stop, "MXProfileDurationStop");
	find(&task_destroy, "MXProfileDestroyHandle");
}

Library &library()
{
	static Library lib;
	return lib;
}

// libstdc++'s std::function, the same since GCC 4.5.
struct FunctionLayout {
	void *functor[2];
	void *manager;
	void *invoker;
};

static_assert(sizeof(FunctionLayout) == sizeof(Engine::AsyncFn), "another std::function");

// Call fn the way the compiler of libmxnet.so would.
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

// MXNet's enum, and whether it adds up: kept by SetState() and SetConfig() below.
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

// The environment can start it before anybody calls SetState().
void profile_autostart()
{
	if (dmlc::GetEnv("MXNET_PROFILER_AUTOSTART", 0)) {
		if (dmlc::GetEnv("MXNET_PROFILER_MODE", 1))
			profile_mode = 1 | 2 | 4 | 8;
		profile_on = true;
	}
}

// One op's time, as a task of the domain "operator".
class Profile {
 public:
	Profile() {}
	Profile(const Profile &) = delete;
	~Profile() { stop(); }
	void start(const char *name)
	{
		static ProfileHandle domain = make_domain();
		Library &lib = library();

		if (!domain || lib.task_create(domain, name, &task_))
			return;
		lib.task_start(task_);
	}
	void stop()
	{
		if (!task_)
			return;
		library().task_stop(task_);
		library().task_destroy(task_);
		task_ = nullptr;
	}

 private:
	static ProfileHandle make_domain()
	{
		ProfileHandle domain = nullptr;
		return library().domain_create("operator", &domain) ? nullptr : domain;
	}
	ProfileHandle task_ = nullptr;
};

// --- names -------------------------------------------------------------------

/*
 * pawl keeps the pointer to an op's name for traces and records, MXNet frees its own: a copy
 * that stays.  A list per hash only grows; a thread remembers which copy a pointer had.
 */
struct Name {
	Name *next;
	char text[1];
};

const size_t name_lists = 4096, names_most = 1 << 16;
std::atomic<Name *> names[name_lists];
std::atomic<size_t> name_count{0};

const char *name_find(Name *n, const char *text)
{
	for (; n; n = n->next)
		if (!strcmp(n->text, text))
			return n->text;
	return nullptr;
}

const char *name_add(const char *text)
{
	size_t hash = 5381, len = strlen(text);
	const char *known;

	for (size_t i = 0; i < len; i++)
		hash = hash * 33 + static_cast<unsigned char>(text[i]);
	std::atomic<Name *> &list = names[hash % name_lists];
	Name *first = list.load(std::memory_order_acquire);
	known = name_find(first, text);
	if (known || name_count.fetch_add(1, std::memory_order_relaxed) >= names_most)
		return known;
	Name *n = static_cast<Name *>(malloc(sizeof(Name) + len));
	if (!n)
		return nullptr;
	memcpy(n->text, text, len + 1);
	do {
		known = name_find(first, text);
		if (known) {
			free(n);
			return known;
		}
		n->next = first;
	} while (!list.compare_exchange_weak(first, n, std::memory_order_acq_rel));
	return n->text;
}

const char *name_keep(const char *text)
{
	static thread_local struct { const char *text, *copy; } recent[64];
	auto &r = recent[(reinterpret_cast<uintptr_t>(text) >> 3) % 64];

	if (!text)
		return nullptr;
	if (r.text == text && r.copy && !strcmp(r.copy, text))
		return r.copy;
	r.copy = name_add(text);
	r.text = text;
	return r.copy;
}

// --- objects -----------------------------------------------------------------

class PawlEngine;
struct Call;

// gen: which engine of this process, or of its parents, h belongs to.
struct Var final : public mxnet::engine::Var {
	size_t version() override;
	std::atomic<uint64_t> h{0};
	std::atomic<uint32_t> gen{0};
	PawlEngine *engine = nullptr;
};

struct Oper {
	Engine::AsyncFn fn;
	std::vector<Engine::VarHandle> reads, writes;
	FnProperty prop;
	const char *name;
	bool wait;
	std::atomic<uint32_t> refs{1};	// the handle, and each run

	void put()
	{
		if (refs.fetch_sub(1, std::memory_order_acq_rel) == 1)
			delete this;
	}
};

struct Call {
	PawlEngine *engine;
	Context ctx;
	const char *name;
	Oper *oper = nullptr;		// whose fn is run, or
	Engine::SyncFn sync;		// one of these two
	Engine::AsyncFn async;
	FnProperty prop;
	bool profile;
	Profile *profiled = nullptr;
	pawl_token_t token;
	std::atomic<uint32_t> refs{1};	// the op; for asynchronous ones the body, too

	~Call()
	{
		delete profiled;
		if (oper)
			oper->put();
	}
	void put()
	{
		if (refs.load(std::memory_order_acquire) == 1 ||
		    refs.fetch_sub(1, std::memory_order_acq_rel) == 1)
			delete this;
	}
};

// --- errors ------------------------------------------------------------------

// The exception that is being handled, as a payload; text gets its message.
std::exception_ptr *caught(std::string *text)
{
	std::exception_ptr p = std::current_exception();

	try {
		std::rethrow_exception(p);
	} catch (std::exception &e) {
		*text = e.what();
	} catch (...) {
		*text = "an exception that is no std::exception";
	}
	return new std::exception_ptr(p);
}

void drop_exception(void *, void *payload)
{
	delete static_cast<std::exception_ptr *>(payload);
}

[[noreturn]] void refused(const char *what)
{
	throw dmlc::Error(std::string("pawl: ") + what + ": " + pawl_error_text());
}

// What a wait returned: nothing, an op's error, or a failure of its own.
void told(int rc, const struct pawl_error *err)
{
	if (rc >= 0)
		return;
	if (!err->code)
		refused("wait");
	if (err->payload) {
		std::exception_ptr p = *static_cast<std::exception_ptr *>(err->payload);

		delete static_cast<std::exception_ptr *>(err->payload);
		std::rethrow_exception(p);
	}
	throw dmlc::Error(err->text);
}

// In the naive kind, where the caller of the push gets it: what the body of this thread threw.
thread_local std::exception_ptr *naive_thrown;

// --- the engine --------------------------------------------------------------

// CPU devices with queues and workers of their own; made when they are first used.
const unsigned int devices = 16;

PawlEngine *the_engine;	// of the process

void worker_start(void *, const char *)
{
	Library &lib = library();
	lib.omp_worker(lib.omp_get(), true);
}

thread_local int bulk_wanted, bulk_applied;

class PawlEngine final : public Engine {
 public:
	PawlEngine();
	~PawlEngine() noexcept(false) override;
	void NotifyShutdown() override { shutdown_.store(true, std::memory_order_relaxed); }
	void Stop() override;
	void Start() override;
	VarHandle NewVariable() override;
	OprHandle NewOperator(AsyncFn fn, std::vector<VarHandle> const &const_vars,
			      std::vector<VarHandle> const &mutable_vars, FnProperty prop,
			      const char *opr_name, bool wait) override;
	void DeleteOperator(OprHandle op) override;
	void Push(OprHandle op, Context exec_ctx, int priority, bool profiling) override;
	void PushAsync(AsyncFn exec_fun, Context exec_ctx,
		       std::vector<VarHandle> const &const_vars,
		       std::vector<VarHandle> const &mutable_vars, FnProperty prop, int priority,
		       const char *opr_name, bool wait) override;
	void PushSync(SyncFn exec_fn, Context exec_ctx,
		      std::vector<VarHandle> const &const_vars,
		      std::vector<VarHandle> const &mutable_vars, FnProperty prop, int priority,
		      const char *opr_name) override;
	void DeleteVariable(SyncFn delete_fn, Context exec_ctx, VarHandle var) override;
	void WaitForVar(VarHandle var) override;
	void WaitForAll() override;
	void Throw(VarHandle var) override;
	int bulk_size() const override { return profile_aggregating() ? 0 : bulk_wanted; }
	int set_bulk_size(int size) override;

	size_t version(Var *v);
	// Called by bodies.
	bool shutdown() const { return shutdown_.load(std::memory_order_relaxed); }
	int thrown(struct pawl_run *run);
	void complete(Call *c, std::exception_ptr *payload, const char *text);
	CallbackOnComplete callback(Call *c) { return CreateCallback(on_complete, c); }
	bool by_value() const { return by_value_; }

 private:
	static void on_complete(Engine *engine, void *param, const dmlc::Error *error);
	void create();
	static void forked();
	pawl_var_t handle(VarHandle var);
	void renew(Var *v);
	void apply_bulk(int size);
	void push(Call *c, struct pawl_op *op, VarHandle const *reads, size_t nreads,
		  VarHandle const *writes, size_t nwrites);

	struct pawl_engine *e_ = nullptr;
	bool naive_ = false;
	bool by_value_ = library().by_value;
	bool info_ = dmlc::GetEnv("MXNET_ENGINE_INFO", false);
	std::atomic<bool> shutdown_{false};
	std::atomic<uint32_t> gen_{0};
	pid_t pid_ = 0;
};

void PawlEngine::create()
{
	const char *type = getenv("MXNET_ENGINE_TYPE");
	std::string kind = type ? type : "ThreadedEnginePerDevice";
	bool child = gen_.load(std::memory_order_relaxed);
	struct pawl_config cfg;

	pawl_config_init(&cfg);
	cfg.workers = dmlc::GetEnv("MXNET_CPU_WORKER_NTHREADS", 1);
	if (child)
		cfg.workers = dmlc::GetEnv("MXNET_MP_WORKER_NTHREADS", 1);
	if (kind == "ThreadedEnginePerDevice") {
		cfg.kind = PAWL_PER_DEVICE;
	} else if (kind == "ThreadedEngine") {
		cfg.kind = PAWL_POOLED;
		cfg.workers = 16;
	} else if (kind == "NaiveEngine") {
		cfg.kind = PAWL_NAIVE;
	} else {
		throw dmlc::Error("pawl: unknown MXNET_ENGINE_TYPE " + kind);
	}
	naive_ = cfg.kind == PAWL_NAIVE;
	cfg.priority_workers = dmlc::GetEnv("MXNET_CPU_PRIORITY_NTHREADS", 4);
	cfg.cpu_devices = devices;
	cfg.max_vars = 1 << 20;
	cfg.max_threads = 512;
	cfg.no_help = !dmlc::GetEnv("PAWL_MXNET_HELP", false);
	cfg.name = "mxnet";
	cfg.thread_start = worker_start;
	cfg.drop = drop_exception;
	if (pawl_engine_create(&cfg, &e_))
		refused("engine");
	pid_ = getpid();
	gen_.fetch_add(1, std::memory_order_release);
	if (type && !child)
		LOG(INFO) << "MXNet start using engine: " << kind << " of pawl "
			  << pawl_version();
	else if (info_)
		LOG(INFO) << "pawl " << pawl_version() << " is MXNet's engine, " << cfg.workers
			  << " CPU workers";
}

PawlEngine::PawlEngine()
{
	profile_autostart();
	create();
	the_engine = this;
	// behind those of libpawl, which the first engine registered
	pthread_atfork(nullptr, nullptr, forked);
}

PawlEngine::~PawlEngine() noexcept(false)
{
	struct pawl_stats s;

	s.size = sizeof(s);
	if (info_ && pid_ == getpid() && !pawl_stats(e_, &s))
		fprintf(stderr, "pawl: %llu ops pushed, %llu completed, %llu failed, %llu skipped\n",
			static_cast<unsigned long long>(s.pushed),
			static_cast<unsigned long long>(s.completed),
			static_cast<unsigned long long>(s.failed),
			static_cast<unsigned long long>(s.skipped));
	the_engine = nullptr;
	pawl_engine_destroy(e_);
}

// Before a fork, among others.  On a worker MXNet's engine does nothing either.
void PawlEngine::Stop()
{
	if (pawl_engine_stop(e_) == -EDEADLK)
		return;
	bulk_applied = 0;
}

// After a fork: in the child, MXNet's handler may come before those of libpawl, when it is
// too early for a new engine.  forked() comes behind them.
void PawlEngine::Start()
{
	if (pid_ == getpid())
		pawl_engine_start(e_);
}

void PawlEngine::forked()
{
	PawlEngine *self = the_engine;

	if (!self || self->pid_ == getpid())
		return;
	pawl_engine_destroy(self->e_);	// forgets the parent's
	bulk_applied = 0;
	try {
		self->create();
	} catch (std::exception &e) {
		fprintf(stderr, "pawl: no engine in the child of a fork: %s\n", e.what());
		_exit(1);
	}
}

// --- vars --------------------------------------------------------------------

Engine::VarHandle PawlEngine::NewVariable()
{
	std::unique_ptr<Var> v(new Var);
	pawl_var_t h;

	if (pawl_var_create(e_, &h))
		refused("variable");
	v->h.store(h.h, std::memory_order_relaxed);
	v->gen.store(gen_.load(std::memory_order_relaxed), std::memory_order_release);
	v->engine = this;
	return v.release();
}

/*
 * A var of the parent, used in the child of a fork for the first time.  Several threads may
 * come at once: one makes it, the others wait for that.
 */
void PawlEngine::renew(Var *v)
{
	const uint32_t busy = ~0u, now = gen_.load(std::memory_order_relaxed);
	uint32_t gen = v->gen.load(std::memory_order_acquire);

	while (gen != now) {
		pawl_var_t h;

		if (gen == busy || !v->gen.compare_exchange_strong(gen, busy)) {
			gen = v->gen.load(std::memory_order_acquire);
			continue;
		}
		if (pawl_var_create(e_, &h)) {
			v->gen.store(gen, std::memory_order_release);
			refused("variable");
		}
		v->h.store(h.h, std::memory_order_relaxed);
		v->gen.store(now, std::memory_order_release);
		return;
	}
}

inline pawl_var_t PawlEngine::handle(VarHandle var)
{
	Var *v = static_cast<Var *>(var);
	pawl_var_t h;

	if (v->gen.load(std::memory_order_acquire) != gen_.load(std::memory_order_relaxed))
		renew(v);
	h.h = v->h.load(std::memory_order_relaxed);
	return h;
}

// Writes so far.  In a child of a fork it goes on far above those of the parent.
size_t PawlEngine::version(Var *v)
{
	uint64_t n = 0;

	pawl_var_version(e_, handle(v), &n);
	return n + (static_cast<size_t>(v->gen.load(std::memory_order_relaxed) - 1) << 40);
}

size_t Var::version()
{
	return engine->version(this);
}

struct Delete {
	PawlEngine *engine;
	Engine::SyncFn fn;
	Context ctx;
	Var *var;
};

int run_delete(struct pawl_run *run, void *arg)
{
	std::unique_ptr<Delete> d(static_cast<Delete *>(arg));
	std::unique_ptr<Var> var(d->var);

	try {
		invoke(d->engine->by_value(), d->fn, RunContext{d->ctx, nullptr, nullptr, false});
	} catch (...) {
		return d->engine->thrown(run);
	}
	return 0;
}

void PawlEngine::DeleteVariable(SyncFn delete_fn, Context exec_ctx, VarHandle var)
{
	Var *v = static_cast<Var *>(var);
	pawl_var_t h = handle(var);
	Delete *d = new Delete{this, std::move(delete_fn), exec_ctx, v};

	if (pawl_var_delete(e_, h, run_delete, d)) {
		delete d;
		refused("delete of a variable");
	}
	// At the exit delete_fn may refer to an object that its caller destroys next.
	if (shutdown()) {
		struct pawl_error err;

		if (pawl_wait_all(e_, -1, &err) < 0 && err.code && err.payload)
			drop_exception(nullptr, err.payload);
	}
}

// --- bodies ------------------------------------------------------------------

RunContext run_context(const Call *c)
{
	return RunContext{c->ctx, nullptr, nullptr, false};
}

inline bool body_begin(Call *c)
{
	if (c->engine->shutdown() && c->prop != FnProperty::kDeleteVar)
		return false;
	if (c->profile && c->name) {
		c->profiled = new Profile;
		c->profiled->start(c->name);
	}
	return true;
}

inline void body_end(Call *c)
{
	if (c->profiled)
		c->profiled->stop();
}

// From a handler: the op fails with what is being handled.
int PawlEngine::thrown(struct pawl_run *run)
{
	std::string text;
	std::exception_ptr *p = caught(&text);

	if (naive_) {
		delete naive_thrown;
		naive_thrown = p;
		return 0;
	}
	return pawl_fail_with(run, -EIO, text.c_str(), p);
}

int run_sync(struct pawl_run *run, void *arg)
{
	Call *c = static_cast<Call *>(arg);
	int rc = 0;

	if (!body_begin(c))
		return 0;
	try {
		invoke(c->engine->by_value(), c->sync, run_context(c));
	} catch (...) {
		rc = c->engine->thrown(run);
	}
	body_end(c);
	return rc;
}

void PawlEngine::complete(Call *c, std::exception_ptr *payload, const char *text)
{
	if (payload && naive_) {
		delete naive_thrown;
		naive_thrown = payload;
		payload = nullptr;
	}
	// A second completion is refused, and its payload dropped.
	pawl_complete_with(e_, c->token, payload ? -EIO : 0, text, payload);
}

void PawlEngine::on_complete(Engine *engine, void *param, const dmlc::Error *error)
{
	PawlEngine *self = static_cast<PawlEngine *>(engine);
	Call *c = static_cast<Call *>(param);

	body_end(c);
	if (error)
		self->complete(c, new std::exception_ptr(std::make_exception_ptr(*error)),
			       error->what());
	else
		self->complete(c, nullptr, nullptr);
}

void run_async(struct pawl_run *run, void *arg)
{
	Call *c = static_cast<Call *>(arg);
	PawlEngine *engine = c->engine;
	const Engine::AsyncFn &fn = c->oper ? c->oper->fn : c->async;

	c->token = run->token;
	c->refs.store(2, std::memory_order_relaxed);	// on_complete may end the op any time
	if (body_begin(c)) {
		try {
			invoke(engine->by_value(), fn, run_context(c), engine->callback(c));
		} catch (...) {
			std::string text;
			std::exception_ptr *p = caught(&text);

			body_end(c);
			engine->complete(c, p, text.c_str());
		}
	} else {
		engine->complete(c, nullptr, nullptr);
	}
	c->put();
}

void release(void *arg, int)
{
	static_cast<Call *>(arg)->put();
}

// --- pushes ------------------------------------------------------------------

inline void PawlEngine::apply_bulk(int size)
{
	if (size == bulk_applied)
		return;
	if (pawl_bulk_size(e_, size) < 0)
		refused("bulk size");
	bulk_applied = size;
}

int PawlEngine::set_bulk_size(int size)
{
	int old = bulk_wanted;

	bulk_wanted = size < 0 ? 0 : size;
	if (!naive_)
		apply_bulk(profile_aggregating() ? 0 : bulk_wanted);
	return old;
}

void PawlEngine::push(Call *c, struct pawl_op *op, VarHandle const *reads, size_t nreads,
		      VarHandle const *writes, size_t nwrites)
{
	const size_t room = 24, n = nreads + nwrites;
	pawl_var_t few[room], *h = few;
	std::vector<pawl_var_t> many;
	size_t i;

	if (c->ctx.dev_mask() != Context::kCPU) {
		delete c;
		throw dmlc::Error("pawl runs CPU contexts only");
	}
	if (n > room) {
		many.resize(n);
		h = many.data();
	}
	for (i = 0; i < nreads; i++)
		h[i] = handle(reads[i]);
	for (i = 0; i < nwrites; i++)
		h[nreads + i] = handle(writes[i]);
	op->size = sizeof(*op);
	op->arg = c;
	op->release = release;
	op->reads = h;
	op->nreads = nreads;
	op->writes = h + nreads;
	op->nwrites = nwrites;
	op->device.kind = PAWL_CPU;
	op->device.id = static_cast<unsigned int>(c->ctx.dev_id) % devices;
	op->name = c->name;
	if (pawl_push(e_, op)) {
		delete c;
		refused("push");
	}
	if (naive_ && naive_thrown) {
		std::exception_ptr p = *naive_thrown;

		delete naive_thrown;
		naive_thrown = nullptr;
		std::rethrow_exception(p);
	}
}

void PawlEngine::PushAsync(AsyncFn exec_fun, Context exec_ctx,
			   std::vector<VarHandle> const &const_vars,
			   std::vector<VarHandle> const &mutable_vars, FnProperty prop,
			   int priority, const char *opr_name, bool wait)
{
	struct pawl_op op = PAWL_OP_INIT;
	Call *c = new Call;

	c->engine = this;
	c->ctx = exec_ctx;
	c->name = name_keep(opr_name);
	c->async = std::move(exec_fun);
	c->prop = prop;
	c->profile = profile_imperative();
	op.async_fn = run_async;
	op.prop = wait ? static_cast<int>(PAWL_NO_SKIP) : static_cast<int>(prop);
	op.priority = priority;
	push(c, &op, const_vars.data(), const_vars.size(), mutable_vars.data(),
	     mutable_vars.size());
}

void PawlEngine::PushSync(SyncFn exec_fn, Context exec_ctx,
			  std::vector<VarHandle> const &const_vars,
			  std::vector<VarHandle> const &mutable_vars, FnProperty prop, int priority,
			  const char *opr_name)
{
	struct pawl_op op = PAWL_OP_INIT;
	Call *c = new Call;

	if (bulk_wanted != bulk_applied && !naive_)
		apply_bulk(profile_aggregating() ? 0 : bulk_wanted);
	c->engine = this;
	c->ctx = exec_ctx;
	c->name = name_keep(opr_name);
	c->sync = std::move(exec_fn);
	c->prop = prop;
	c->profile = profile_imperative();
	op.fn = run_sync;
	op.prop = static_cast<int>(prop);
	op.priority = priority;
	push(c, &op, const_vars.data(), const_vars.size(), mutable_vars.data(),
	     mutable_vars.size());
}

Engine::OprHandle PawlEngine::NewOperator(AsyncFn fn, std::vector<VarHandle> const &const_vars,
					  std::vector<VarHandle> const &mutable_vars,
					  FnProperty prop, const char *opr_name, bool wait)
{
	Oper *o = new Oper;

	o->fn = std::move(fn);
	o->reads = const_vars;
	o->writes = mutable_vars;
	o->prop = prop;
	o->name = name_keep(opr_name);
	o->wait = wait;
	return reinterpret_cast<OprHandle>(o);
}

void PawlEngine::Push(OprHandle handle, Context exec_ctx, int priority, bool profiling)
{
	Oper *o = reinterpret_cast<Oper *>(handle);
	struct pawl_op op = PAWL_OP_INIT;
	Call *c = new Call;

	c->engine = this;
	c->ctx = exec_ctx;
	c->name = o->name;
	c->oper = o;
	c->prop = o->prop;
	c->profile = profiling;
	o->refs.fetch_add(1, std::memory_order_relaxed);
	op.async_fn = run_async;
	op.prop = o->wait ? static_cast<int>(PAWL_NO_SKIP) : static_cast<int>(o->prop);
	op.priority = priority;
	push(c, &op, o->reads.data(), o->reads.size(), o->writes.data(), o->writes.size());
}

// With the last of its runs.
void PawlEngine::DeleteOperator(OprHandle handle)
{
	reinterpret_cast<Oper *>(handle)->put();
}

// --- waits -------------------------------------------------------------------

void PawlEngine::WaitForVar(VarHandle var)
{
	struct pawl_error err;

	told(pawl_wait_readable(e_, handle(var), -1, &err), &err);
}

void PawlEngine::WaitForAll()
{
	struct pawl_error err;

	told(pawl_wait_all(e_, -1, &err), &err);
}

void PawlEngine::Throw(VarHandle var)
{
	struct pawl_error err;

	told(pawl_var_take(e_, handle(var), &err), &err);
}

}  // namespace

// --- what libmxnet.so binds to -----------------------------------------------

namespace mxnet {

std::shared_ptr<Engine> Engine::_GetSharedRef()
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

// MXNet's class, as far as its two functions' names need it.
class Profiler {
 public:
	enum ProfilerState { kNotRunning = 0, kRunning = 1 };
	void SetState(ProfilerState state);
	void SetConfig(int mode, std::string file, bool continuous, float period, bool aggregate);
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

void Profiler::SetConfig(int mode, std::string file, bool continuous, float period, bool aggregate)
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

// The pawl engine below, for a program that looks at its counters.
extern "C" const char *pawl_mxnet_engine(void);
const char *pawl_mxnet_engine(void)
{
	return pawl_version();
}
