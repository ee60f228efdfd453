// SPDX-License-Identifier: Apache-2.0
/*
 * mxnet::Engine in C++, on all three kinds: what MXNet's own tests of its engine check (start
 * and stop, random work against a serial run, operators, versions, C calls with vars of the
 * C++ side), and its behaviours by number (Documentation/mxnet.md).
 */
#include <mxnet/c_api.h>
#include <mxnet/engine.h>
#include <mxnet/ndarray.h>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include "mx_test.hpp"

using mxnet::Context;
using mxnet::Engine;
using mxnet::FnProperty;
using mxnet::RunContext;
typedef Engine::CallbackOnComplete Done;
typedef std::vector<Engine::VarHandle> Vars;

/* One of each kind, and the shared engine. */
struct Engines {
	std::vector<Engine *> all;
	Engines()
	    : all{ mxnet::engine::CreateNaiveEngine(),
		   mxnet::engine::CreateThreadedEnginePooled(),
		   mxnet::engine::CreateThreadedEnginePerDevice(), Engine::Get() }
	{
	}
	~Engines()
	{
		for (int i = 0; i < 3; i++)
			delete all[i];
	}
	Engines(const Engines &) = delete;
};

static bool Naive(Engine *e, const Engines &of) { return e == of.all[0]; }

/* An op that holds its vars until it is opened. */
class Gate {
public:
	Gate(Engine *e, Vars reads, Vars writes) : in_(false)
	{
		e->PushAsync([this](RunContext, Done done) {
			done_ = done;
			in_ = true;
		}, Context::CPU(), reads, writes, FnProperty::kAsync);
		EXPECT(Soon([this] { return in_.load(); }));
	}
	void Open(const dmlc::Error *error = nullptr) { done_(error); }

private:
	std::atomic<bool> in_;
	Done done_;
};

MX_TEST(start_stop)
{
	Engines engines;

	for (Engine *e : engines.all) {
		std::atomic<int> ran(0);

		for (int round = 0; round < 3; round++) {
			e->Stop();
			e->Stop();
			e->Start();
			e->Start();
			e->PushSync([&](RunContext) { ran++; }, Context(), {}, {});
			e->WaitForAll();
			EXPECT(ran == round + 1);
		}
	}
}

/* --- random work: data[w] = sum(data[r]) / (n + 1), each result depends on all before --- */

struct Work {
	std::vector<int> reads;
	int write;
};

static std::vector<Work> MakeWork(unsigned seed, int n, int vars)
{
	std::mt19937 rnd(seed);
	std::vector<Work> all(n);

	for (Work &w : all) {
		w.write = rnd() % vars;
		for (int k = 2 + rnd() % 18; k; k--)
			w.reads.push_back(rnd() % vars);
	}
	return all;
}

static void Do(const Work &w, std::vector<double> *data)
{
	double sum = 0;

	for (int i : w.reads)
		sum += (*data)[i];
	(*data)[w.write] = sum / (w.reads.size() + 1) + 1;
}

MX_TEST(random_work_is_as_serial)
{
	Engines engines;
	const int vars = 100;

	for (unsigned round = 0; round < 3; round++) {
		std::vector<Work> all = MakeWork(round, 3000, vars);
		std::vector<double> serial(vars, 1.0);

		for (const Work &w : all)
			Do(w, &serial);
		for (Engine *e : engines.all) {
			std::vector<double> data(vars, 1.0);
			Vars v;

			for (int i = 0; i < vars; i++)
				v.push_back(e->NewVariable());
			for (const Work &w : all) {
				Vars reads;

				/* Duplicates stay in, and a read of what it writes too. */
				for (int i : w.reads)
					reads.push_back(v[i]);
				if (w.write % 3 == 0)
					e->PushSync([w, &data](RunContext) { Do(w, &data); },
						    Context::CPU(w.write % 4), reads, { v[w.write] },
						    FnProperty::kNormal, w.write % 7 - 3);
				else
					e->PushAsync([w, &data](RunContext, Done done) {
						Do(w, &data);
						done();
					}, Context::CPU(), reads, { v[w.write] },
					FnProperty(w.write % 2 ? 0 : 3));
			}
			e->WaitForAll();
			EXPECT(data == serial);
			for (Engine::VarHandle x : v)
				e->DeleteVariable([](RunContext) {}, Context::CPU(), x);
			e->WaitForAll();
		}
	}
}

/* --- operators --- */

MX_TEST(operators)
{
	Engines engines;

	for (Engine *e : engines.all) {
		std::atomic<int> ran(0), inside(0), most(0);
		Engine::VarHandle var = e->NewVariable();
		std::vector<Engine::OprHandle> oprs;

		/* readers; pushed again while they may still run */
		for (int i = 0; i < 10; i++) {
			oprs.push_back(e->NewOperator([&](RunContext, Done done) {
				int n = ++inside;

				if (n > most)
					most = n;
				inside--;
				ran++;
				done();
			}, { var }, {}, FnProperty::kNormal, "reader"));
			e->Push(oprs[i], Context{});
			e->Push(oprs[i], Context{}, 3);
		}
		e->WaitForAll();
		EXPECT(ran == 20);
		EXPECT(var->version() == 0);
		for (Engine::OprHandle o : oprs)
			e->DeleteOperator(o);
		e->WaitForAll();

		/* writers, deleted while they are in flight */
		auto token = std::make_shared<int>(0);
		std::weak_ptr<int> gone = token;
		Engine::OprHandle o = e->NewOperator([&, token](RunContext, Done done) {
			++*token;
			ran++;
			done();
		}, {}, { var });

		token.reset();
		for (int i = 0; i < 10; i++)
			e->Push(o, Context{});
		e->DeleteOperator(o);
		e->WaitForAll();
		EXPECT(ran == 30);
		EXPECT(var->version() == 10);
		/* its function goes with the last run */
		EXPECT(Soon([&] { return gone.expired(); }));

		/* without vars (F10) */
		o = e->NewOperator([&](RunContext, Done done) {
			ran++;
			done();
		}, {}, {});
		e->Push(o, Context{});
		e->DeleteOperator(o);
		e->WaitForAll();
		EXPECT(ran == 31);
		e->DeleteVariable([&](RunContext) { ran++; }, Context{}, var);
		e->WaitForAll();
		EXPECT(ran == 32);
	}
}

MX_TEST(versions)
{
	Engines engines;

	for (Engine *e : engines.all) {
		Engine::VarHandle var = e->NewVariable();

		EXPECT(var->version() == 0);
		for (int i = 0; i < 10; i++)
			e->PushAsync([](RunContext, Done done) { done(); }, Context{}, { var }, {});
		e->WaitForAll();
		EXPECT(var->version() == 0);
		for (int i = 0; i < 10; i++)
			e->PushAsync([](RunContext, Done done) { done(); }, Context{}, {}, { var });
		e->WaitForVar(var);
		EXPECT(var->version() == 10);
		e->DeleteVariable([](RunContext) {}, Context{}, var);
	}
}

/* A wait is for writes: a reader may go on. */
MX_TEST(wait_for_var_is_not_for_reads)
{
	Engines engines;

	for (Engine *e : engines.all) {
		if (Naive(e, engines))
			continue;
		Engine::VarHandle a = e->NewVariable(), b = e->NewVariable();
		Gate reader(e, { a }, {}), writer(e, {}, { b });
		std::atomic<bool> over(false);

		e->WaitForVar(a);
		std::thread t([&] {
			e->WaitForVar(b);
			EXPECT(over);
		});
		over = true;
		writer.Open();
		t.join();
		reader.Open();
		e->WaitForAll();
	}
}

/* --- the C calls, with vars of the C++ side --- */

static std::atomic<int> says, deleted;

static void AsyncSays(void *, void *on_complete, void *param)
{
	EXPECT(!param || *static_cast<int *>(param) == 100);
	says++;
	auto done = *static_cast<mxnet::engine::CallbackOnComplete *>(on_complete);
	done();
}

static void SyncSays(void *run, void *param)
{
	EXPECT(!param || *static_cast<int *>(param) == 101);
	EXPECT(static_cast<RunContext *>(run)->ctx.dev_type == Context::kCPU);
	says++;
}

static void Delete(void *param)
{
	delete static_cast<int *>(param);
	deleted++;
}

MX_TEST(push_func)
{
	Engine::VarHandle var = Engine::Get()->NewVariable();
	Context ctx;
	FnProperty prop = FnProperty::kCPUPrioritized;

	says = deleted = 0;
	EXPECT(!MXEnginePushAsync(AsyncSays, new int(100), Delete, &ctx, &var, 1, nullptr, 0));
	EXPECT(!MXEnginePushAsync(AsyncSays, nullptr, nullptr, &ctx, nullptr, 0, &var, 0));
	EXPECT(!MXEnginePushAsync(AsyncSays, nullptr, nullptr, &ctx, nullptr, 0, &var, 1, &prop,
				  5, "says", true));
	EXPECT(MXEnginePushAsync(AsyncSays, nullptr, nullptr, &ctx, &var, -1, nullptr, 0) == -1);
	EXPECT(std::strstr(MXGetLastError(), "const vars"));
	EXPECT(MXEnginePushAsync(AsyncSays, nullptr, nullptr, &ctx, nullptr, 0, &var, -1) == -1);
	EXPECT(std::strstr(MXGetLastError(), "mutable vars"));
	EXPECT(!MXEnginePushSync(SyncSays, new int(101), Delete, &ctx, &var, 1, nullptr, 0));
	EXPECT(!MXEnginePushSync(SyncSays, nullptr, nullptr, &ctx, nullptr, 0, &var, 1));
	EXPECT(MXEnginePushSync(SyncSays, nullptr, nullptr, &ctx, &var, -1, nullptr, 0) == -1);
	EXPECT(MXEnginePushSync(SyncSays, nullptr, nullptr, &ctx, nullptr, 0, &var, -1) == -1);
	EXPECT(!MXNDArrayWaitAll());
	EXPECT(says == 5);
	EXPECT(deleted == 2);
	EXPECT(var->version() == 2);
	Engine::Get()->DeleteVariable([](RunContext) {}, ctx, var);
}

MX_TEST(push_func_nd)
{
	Context ctx;
	std::vector<mxnet::NDArray *> nds;

	says = deleted = 0;
	for (int i = 0; i < 5; i++)
		nds.push_back(i % 2 ? new mxnet::NDArray(ctx) :
			      new mxnet::NDArray(std::vector<int64_t>{ 2, 3 }, ctx));
	/* the first n are read, all others written */
	for (int n = 0; n <= 5; n++) {
		void **reads = reinterpret_cast<void **>(nds.data()), **writes = reads + n;

		EXPECT(!MXEnginePushAsyncND(AsyncSays, new int(100), Delete, &ctx, reads, n,
					    writes, 5 - n));
		EXPECT(!MXEnginePushSyncND(SyncSays, new int(101), Delete, &ctx, n ? reads : nullptr, n,
					   n < 5 ? writes : nullptr, 5 - n));
		EXPECT(!MXEnginePushAsyncND(AsyncSays, nullptr, nullptr, &ctx, nullptr, 0,
					    writes, 0));
		EXPECT(MXEnginePushAsyncND(AsyncSays, nullptr, nullptr, &ctx, reads, -1,
					   nullptr, 0) == -1);
		EXPECT(MXEnginePushSyncND(SyncSays, nullptr, nullptr, &ctx, nullptr, 0, reads,
					  -1) == -1);
	}
	EXPECT(!MXNDArrayWaitAll());
	EXPECT(says == 18);
	EXPECT(deleted == 12);
	EXPECT(nds[0]->version() == 2);		/* written with n = 0 alone, twice */
	EXPECT(nds[4]->version() == 10);
	for (mxnet::NDArray *nd : nds)
		delete nd;
}

/* --- queues and order --- */

/* One worker, as by default: what is ready is run by priority, the same in order. */
MX_TEST(priority_orders)
{
	Engine *e = mxnet::engine::CreateThreadedEnginePerDevice();
	FnProperty props[] = { FnProperty::kNormal, FnProperty::kCopyToGPU, FnProperty::kCopyFromGPU };

	for (int k = 0; k < 6; k++) {
		const FnProperty prop = props[k / 2];
		const bool by_operator = k % 2;
		std::vector<Engine::OprHandle> oprs;
		std::vector<int> order;
		std::mutex m;
		std::atomic<int> in(0);
		std::atomic<bool> out(false);
		const int workers = prop == FnProperty::kNormal ? 1 : 2;

		/* keep the workers of that queue busy while it fills */
		for (int i = 0; i < workers; i++)
			e->PushSync([&](RunContext) {
				in++;
				EXPECT(Soon([&] { return out.load(); }));
			}, Context::CPU(), {}, {}, prop, 1000);
		EXPECT(Soon([&] { return in == workers; }));
		Engine::VarHandle one = e->NewVariable();

		for (int i = 0; i < 30; i++) {
			auto body = [&, i](RunContext) {
				std::lock_guard<std::mutex> lock(m);
				order.push_back(i);
			};
			if (!by_operator) {
				e->PushSync(body, Context::CPU(), {}, {}, prop, i % 3);
				continue;
			}
			oprs.push_back(e->NewOperator([body](RunContext run, Done done) {
				body(run);
				done();
			}, {}, {}, prop));
			e->Push(oprs.back(), Context::CPU(), i % 3);
		}
		out = true;
		e->WaitForAll();
		EXPECT(order.size() == 30);
		if (workers == 1)
			for (int i = 0; i < 30; i++)
				EXPECT(order[i] == i);	/* as MXNet: pushed so */
		for (Engine::OprHandle o : oprs)
			e->DeleteOperator(o);
		e->DeleteVariable([](RunContext) {}, Context(), one);
	}
	delete e;
}

/* One CPU worker: never two bodies at once, whichever thread waits. */
MX_TEST(one_worker_is_one)
{
	Engine *e = mxnet::engine::CreateThreadedEnginePerDevice();
	std::atomic<int> inside(0), ran(0);
	std::vector<std::thread> threads;
	std::set<std::thread::id> ids;

	for (int i = 0; i < 4; i++)
		threads.emplace_back([&] {
			for (int k = 0; k < 200; k++) {
				e->PushSync([&](RunContext) {
					EXPECT(++inside == 1);
					ids.insert(std::this_thread::get_id());
					inside--;
					ran++;
				}, Context(), {}, {});
				if (k % 50 == 49)
					e->WaitForAll();
			}
		});
	for (std::thread &t : threads)
		t.join();
	e->WaitForAll();
	EXPECT(ran == 800);
	EXPECT(ids.size() == 1);
	delete e;
}

/* kAsync and deletes that are ready run inside the push; what they make ready does not. */
MX_TEST(inline_runs)
{
	Engine *e = mxnet::engine::CreateThreadedEnginePerDevice();
	std::thread::id me = std::this_thread::get_id(), ran;
	Engine::VarHandle a = e->NewVariable();

	e->PushAsync([&](RunContext run, Done done) {
		ran = std::this_thread::get_id();
		EXPECT(!run.stream && run.ctx == Context::CPUPinned(3));
		done();
	}, Context::CPUPinned(3), {}, { a }, FnProperty::kAsync);
	EXPECT(ran == me);
	/* so do the runs of an operator */
	ran = std::thread::id();
	Engine::OprHandle o = e->NewOperator([&](RunContext, Done done) {
		ran = std::this_thread::get_id();
		done();
	}, {}, { a }, FnProperty::kAsync);
	e->Push(o, Context());
	EXPECT(ran == me);
	e->DeleteOperator(o);
	ran = std::thread::id();
	e->DeleteVariable([&](RunContext) { ran = std::this_thread::get_id(); }, Context(), a);
	EXPECT(ran == me);
	delete e;
}

/* A body gets the context that the push named. */
MX_TEST(contexts)
{
	Engines engines;
	const Context all[] = { Context::CPU(0), Context::CPU(7), Context::CPU(100),
				Context::CPUPinned(1), Context::CPUShared(0) };

	for (Engine *e : engines.all) {
		for (const Context &ctx : all) {
			std::atomic<int> right(0);

			e->PushSync([&](RunContext run) { right += run.get_ctx() == ctx; }, ctx, {}, {});
			e->WaitForAll();
			EXPECT(right == 1);
		}
		THROWS(dmlc::Error, "GPU",
		       e->PushSync([](RunContext) {}, Context::GPU(0), {}, {}));
		THROWS(dmlc::Error, "device id", Context bad; bad.dev_id = -3;
		       e->PushSync([](RunContext) {}, bad, {}, {}));
	}
	EXPECT(Context::FromString("cpu_pinned(2)") == Context::CPUPinned(2));
	THROWS(dmlc::Error, "Invalid context", Context::FromString("tpu(1)"));
	THROWS(dmlc::Error, "Invalid context", Context::FromString("cpu(x)"));
}

/* --- duplicates, bad arguments --- */

MX_TEST(deduplicate)
{
	Engine *e = Engine::Get();
	Vars v;

	for (int i = 0; i < 4; i++)
		v.push_back(e->NewVariable());
	std::sort(v.begin(), v.end());
	Vars reads = { v[3], v[0], v[1], v[0], v[2], v[3] }, writes = { v[2], v[1], v[2] };

	e->DeduplicateVarHandle(&reads, &writes);
	EXPECT(reads == Vars({ v[0], v[3] }));
	EXPECT(writes == Vars({ v[1], v[2] }));
	/* F2: no need to; a write wins. */
	std::atomic<int> ran(0);

	e->PushSync([&](RunContext) { ran++; }, Context(), { v[0], v[0], v[1] }, { v[1], v[1] });
	e->WaitForVar(v[1]);
	EXPECT(ran == 1 && v[1]->version() == 1 && v[0]->version() == 0);
	for (Engine::VarHandle x : v)
		e->DeleteVariable([](RunContext) {}, Context(), x);
}

MX_TEST(bad_arguments)
{
	Engines engines;

	for (Engine *e : engines.all) {
		Engine::VarHandle mine = e->NewVariable();
		Engine *other = e == engines.all[1] ? engines.all[2] : engines.all[1];

		THROWS(dmlc::Error, "NULL", e->PushSync([](RunContext) {}, Context(), { nullptr }, {}));
		THROWS(dmlc::Error, "NULL", e->WaitForVar(nullptr));
		THROWS(dmlc::Error, "function is NULL",
		       e->PushSync(nullptr, Context(), {}, {}));
		THROWS(dmlc::Error, "function is NULL",
		       e->PushAsync(nullptr, Context(), {}, {}));
		THROWS(dmlc::Error, "another engine",
		       other->PushSync([](RunContext) {}, Context(), {}, { mine }));
		THROWS(dmlc::Error, "another engine", other->WaitForVar(mine));
		THROWS(dmlc::Error, "property",
		       e->PushSync([](RunContext) {}, Context(), {}, {}, FnProperty(99)));
		e->DeleteVariable(nullptr, Context(), mine);
		e->WaitForAll();
	}
}

/* F1: threads that push pairs in opposite orders. */
MX_TEST(pushers_do_not_block_each_other)
{
	Engine *e = mxnet::engine::CreateThreadedEnginePerDevice();
	Engine::VarHandle a = e->NewVariable(), b = e->NewVariable();
	std::vector<std::thread> threads;
	long count = 0;

	for (int t = 0; t < 4; t++)
		threads.emplace_back([&, t] {
			for (int i = 0; i < 2000; i++)
				e->PushSync([&](RunContext) { count++; }, Context::CPU(t), {},
					    t % 2 ? Vars{ a, b } : Vars{ b, a });
		});
	for (std::thread &t : threads)
		t.join();
	e->WaitForAll();
	EXPECT(count == 8000);
	EXPECT(a->version() == 8000);
	delete e;
}

/* F3: a wait inside a body, with one worker. */
MX_TEST(wait_inside)
{
	Engine *e = mxnet::engine::CreateThreadedEnginePerDevice();
	Engine::VarHandle a = e->NewVariable(), b = e->NewVariable();
	std::atomic<int> ran(0);

	e->PushSync([&](RunContext) {
		e->PushSync([&](RunContext) { ran++; }, Context(), {}, { b });
		e->WaitForVar(b);
		EXPECT(ran == 1);
		THROWS(dmlc::Error, "", e->WaitForVar(a));
		e->Stop();	/* does nothing on a worker */
		ran++;
	}, Context(), {}, { a });
	e->WaitForVar(a);
	EXPECT(ran == 2);
	delete e;
}

/* F5: completed twice, and thrown afterwards. */
MX_TEST(on_complete_twice)
{
	Engine *e = mxnet::engine::CreateThreadedEnginePerDevice();
	Engine::VarHandle a = e->NewVariable();
	auto token = std::make_shared<int>(7);
	std::weak_ptr<int> gone = token;

	for (int i = 0; i < 100; i++)
		e->PushAsync([token](RunContext, Done done) {
			dmlc::Error late("late");

			done();
			done();
			done(&late);
			EXPECT(*token == 7);	/* what it captured is there until it returns */
			throw std::runtime_error("later");
		}, Context(), {}, { a });
	token.reset();
	e->WaitForAll();
	EXPECT(a->version() == 100);
	EXPECT(Soon([&] { return gone.expired(); }));
	delete e;
}

/* F7: the destructor drains. */
MX_TEST(destructor_drains)
{
	for (int kind = 0; kind < 3; kind++) {
		Engine *e = kind == 0 ? mxnet::engine::CreateNaiveEngine() :
			    kind == 1 ? mxnet::engine::CreateThreadedEnginePooled() :
			    mxnet::engine::CreateThreadedEnginePerDevice();
		std::atomic<int> ran(0);
		Engine::VarHandle a = e->NewVariable();

		for (int i = 0; i < 500; i++)
			e->PushSync([&](RunContext) { ran++; }, Context(), {}, { a });
		delete e;
		EXPECT(ran == 500);
	}
}

/* --- bulk --- */

MX_TEST(bulk)
{
	Engines engines;

	for (Engine *e : engines.all) {
		if (Naive(e, engines)) {
			EXPECT(e->set_bulk_size(10) == 0 && e->bulk_size() == 0);
			continue;
		}
		Engine::VarHandle a = e->NewVariable();
		std::vector<int> order;

		EXPECT(e->bulk_size() == 0);
		EXPECT(e->set_bulk_size(10) == 0);
		EXPECT(e->bulk_size() == 10);
		for (int i = 0; i < 25; i++)
			e->PushSync([&, i](RunContext) { order.push_back(i); }, Context(), {}, { a });
		e->WaitForVar(a);	/* what is gathered goes first */
		EXPECT(order.size() == 25);
		for (int i = 0; i < 25; i++)
			EXPECT(order[i] == i);
		EXPECT(a->version() == 3);	/* 10, 10 and 5 in one op each */
		/* F6: of a thread that ends */
		std::thread([&] {
			EXPECT(e->bulk_size() == 0);
			e->set_bulk_size(100);
			e->PushSync([&](RunContext) { order.push_back(99); }, Context(), {}, { a });
		}).join();
		e->WaitForVar(a);
		EXPECT(order.back() == 99);
		EXPECT(e->set_bulk_size(0) == 10);
		e->DeleteVariable([](RunContext) {}, Context(), a);
	}
}

/* After NotifyShutdown only deletes run; the others complete. */
MX_TEST(shutdown)
{
	Engine *e = mxnet::engine::CreateThreadedEnginePerDevice();
	Engine::VarHandle a = e->NewVariable();
	std::atomic<int> ran(0), ended(0);

	e->PushSync([&](RunContext) { ran++; }, Context(), {}, { a });
	e->WaitForAll();
	e->NotifyShutdown();
	for (int prop = 0; prop <= static_cast<int>(FnProperty::kNoSkip); prop++) {
		if (prop == static_cast<int>(FnProperty::kDeleteVar))
			continue;
		e->PushSync([&](RunContext) { ran++; }, Context(), {}, { a }, FnProperty(prop));
		e->PushAsync([&](RunContext, Done done) {
			ran++;
			done();
		}, Context(), {}, { a }, FnProperty(prop));
	}
	e->DeleteVariable([&](RunContext) { ended++; }, Context(), a);
	e->WaitForAll();
	EXPECT(ran == 1 && ended == 1);
	delete e;
}

MX_TEST(shared_reference)
{
	std::shared_ptr<Engine> ref = Engine::_GetSharedRef();

	EXPECT(ref.get() == Engine::Get());
	EXPECT(std::hash<Context>()(Context::CPU(1)) != std::hash<Context>()(Context::CPU(2)));
	/* As MXNet's: an array that is destroyed after the engine was stopped. */
	static std::unique_ptr<mxnet::NDArray> late;

	late.reset(new mxnet::NDArray(Context::CPU()));
	ref->Stop();
	ref->Start();
}

int main(int argc, char **argv)
{
	return MxMain(argc, argv);
}
