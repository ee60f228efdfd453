// SPDX-License-Identifier: Apache-2.0
/* C++ exceptions travel along data and are thrown once, with their own type. */
#include <mxnet/c_api.h>
#include <mxnet/engine.h>
#include <cerrno>
#include <memory>
#include <stdexcept>
#include "mx_test.hpp"

using mxnet::Context;
using mxnet::Engine;
using mxnet::FnProperty;
using mxnet::RunContext;
typedef Engine::CallbackOnComplete Done;
typedef std::vector<Engine::VarHandle> Vars;

/* Carries a count of itself, to see that none is kept for good. */
struct Boom : public std::logic_error {
	explicit Boom(const char *s) : std::logic_error(s), code(42) { alive++; }
	Boom(const Boom &o) : std::logic_error(o), code(o.code) { alive++; }
	~Boom() override { alive--; }
	int code;
	static std::atomic<int> alive;
};
std::atomic<int> Boom::alive(0);

static void Fail(Engine *e, const Vars &reads, const Vars &writes, const char *what = "boom")
{
	std::string s(what);

	e->PushSync([s](RunContext) { throw Boom(s.c_str()); }, Context(), reads, writes,
		    FnProperty::kNormal, 0, "Fail");
}

static void FailAsync(Engine *e, const Vars &reads, const Vars &writes)
{
	e->PushAsync([](RunContext, Done) { throw Boom("async"); }, Context(), reads, writes);
}

static void Touch(Engine *e, std::atomic<int> *ran, const Vars &reads, const Vars &writes,
		  FnProperty prop = FnProperty::kNormal)
{
	e->PushSync([ran](RunContext) { ++*ran; }, Context(), reads, writes, prop);
}

struct Threaded {
	std::vector<Engine *> all;
	Threaded()
		: all{ mxnet::engine::CreateThreadedEnginePooled(),
		       mxnet::engine::CreateThreadedEnginePerDevice(), Engine::Get() }
	{
	}
	~Threaded()
	{
		delete all[0];
		delete all[1];
	}
	Threaded(const Threaded &) = delete;
};

MX_TEST(through_several_vars)
{
	Threaded engines;

	for (Engine *e : engines.all) {
		Engine::VarHandle a = e->NewVariable(), b = e->NewVariable(),
				  c = e->NewVariable(), d = e->NewVariable();
		std::atomic<int> ran(0);

		Fail(e, { d }, { a });
		Touch(e, &ran, { a }, { b });		/* skipped, and passed on */
		Touch(e, &ran, { b }, { c });
		e->WaitForVar(d);			/* what it only read is fine */
		Touch(e, &ran, {}, { d });
		THROWS(Boom, "boom", e->WaitForVar(c));
		EXPECT(ran <= 1);			/* that on d may be on its way */
		/* once: it is cleared everywhere */
		e->WaitForVar(a);
		e->WaitForVar(b);
		e->WaitForVar(c);
		e->WaitForAll();
		EXPECT(ran == 1);
		Touch(e, &ran, { a, b }, { c });
		e->WaitForVar(c);
		EXPECT(ran == 2);
		try {
			Fail(e, {}, { a });
			e->WaitForVar(a);
			EXPECT(!"thrown");
		} catch (const Boom &x) {
			EXPECT(x.code == 42);
		}
		for (Engine::VarHandle v : { a, b, c, d })
			e->DeleteVariable([](RunContext) {}, Context(), v);
		e->WaitForAll();
		EXPECT(Soon([] { return Boom::alive == 0; }));
	}
}

/* The version of a failed write counts, as do those of skipped ones. */
MX_TEST(versions_count)
{
	Threaded engines;

	for (Engine *e : engines.all) {
		Engine::VarHandle a = e->NewVariable();
		std::atomic<int> ran(0);

		Fail(e, {}, { a });
		Touch(e, &ran, {}, { a });
		THROWS(Boom, "boom", e->WaitForVar(a));
		EXPECT(a->version() == 2 && ran == 0);
		e->DeleteVariable([](RunContext) {}, Context(), a);
	}
}

MX_TEST(wait_for_all)
{
	Threaded engines;

	for (Engine *e : engines.all) {
		Engine::VarHandle a = e->NewVariable(), b = e->NewVariable();

		Fail(e, {}, { a });
		THROWS(Boom, "boom", e->WaitForAll());
		e->WaitForAll();	/* a wait after that does not throw again */
		e->WaitForVar(a);
		Fail(e, {}, { a }, "one of two");
		Fail(e, {}, { b }, "one of two");
		THROWS(Boom, "one of two", e->WaitForAll());
		e->WaitForAll();
		e->WaitForVar(a);
		e->WaitForVar(b);
		Fail(e, {}, {});	/* of an op without vars: no other op reports it */
		THROWS(Boom, "boom", e->WaitForAll());
		e->DeleteVariable([](RunContext) {}, Context(), a);
		e->DeleteVariable([](RunContext) {}, Context(), b);
		e->WaitForAll();
		EXPECT(Soon([] { return Boom::alive == 0; }));
	}
}

MX_TEST(multiple_waits)
{
	Threaded engines;

	for (Engine *e : engines.all) {
		Engine::VarHandle a = e->NewVariable();

		for (int i = 0; i < 5; i++) {
			Fail(e, {}, { a });
			THROWS(Boom, "boom", e->WaitForVar(a));
			e->WaitForVar(a);
			FailAsync(e, {}, { a });
			THROWS(Boom, "async", e->WaitForAll());
			e->WaitForAll();
		}
		e->DeleteVariable([](RunContext) {}, Context(), a);
	}
}

/* Throw() does not wait for ops. */
MX_TEST(throw_without_waiting)
{
	Threaded engines;

	for (Engine *e : engines.all) {
		Engine::VarHandle a = e->NewVariable(), b = e->NewVariable();
		std::atomic<bool> in(false);
		Done held;

		e->Throw(a);
		Fail(e, {}, { a });
		THROWS(Boom, "boom", Soon([&] { e->Throw(a); return false; }));
		e->Throw(a);
		e->WaitForVar(a);
		e->PushAsync([&](RunContext, Done done) {
			held = done;
			in = true;
		}, Context(), {}, { b });
		e->Throw(b);
		EXPECT(Soon([&] { return in.load(); }));
		dmlc::Error error("by on_complete");
		held(&error);
		THROWS(dmlc::Error, "by on_complete", e->WaitForVar(b));
		e->DeleteVariable([](RunContext) {}, Context(), a);
		e->DeleteVariable([](RunContext) {}, Context(), b);
		e->WaitForAll();
	}
}

/* kNoSkip, wait, and deletes run all the same; the error stays. */
MX_TEST(what_runs_anyway)
{
	Threaded engines;

	for (Engine *e : engines.all) {
		Engine::VarHandle a = e->NewVariable(), b = e->NewVariable();
		std::atomic<int> ran(0);

		Fail(e, {}, { a });
		Touch(e, &ran, { a }, { b }, FnProperty::kNoSkip);
		e->PushAsync([&](RunContext, Done done) {
			ran++;
			done();
		}, Context(), { a }, {}, FnProperty::kNormal, 0, "WaitForVar", true);
		THROWS(Boom, "boom", e->WaitForVar(b));
		EXPECT(Soon([&] { return ran == 2; }));
		/* `wait` with every property, on what is read and on what is written */
		for (int prop = 0; prop <= static_cast<int>(FnProperty::kNoSkip); prop++) {
			FnProperty p = static_cast<FnProperty>(prop);
			bool skips = p != FnProperty::kNoSkip;
			Engine::VarHandle c = e->NewVariable(), d = e->NewVariable();
			Engine::AsyncFn count = [&](RunContext, Done done) {
				ran++;
				done();
			};
			Engine::OprHandle o = e->NewOperator(count, { c }, {}, p, "op", true);

			ran = 0;
			Fail(e, {}, { c, d });
			e->PushAsync(count, Context(), { c }, {}, p, 0, "read", true);
			e->PushAsync(count, Context(), {}, { d }, p, 0, "written", true);
			e->Push(o, Context());
			e->PushAsync(count, Context(), { c }, {}, p, 0, "skipped", false);
			e->DeleteOperator(o);
			THROWS(Boom, "boom", e->WaitForAll());
			EXPECT(ran == (skips ? 3 : 4));
			e->DeleteVariable([](RunContext) {}, Context(), c);
			e->DeleteVariable([](RunContext) {}, Context(), d);
			e->WaitForAll();
		}
		ran = 0;
		Fail(e, {}, { a });
		e->DeleteVariable([&](RunContext) { ran++; }, Context(), a);
		THROWS(Boom, "boom", e->WaitForAll());
		EXPECT(ran == 1);
		e->DeleteVariable([&](RunContext) { throw Boom("in a delete"); }, Context(), b);
		THROWS(Boom, "in a delete", e->WaitForAll());
		EXPECT(Soon([] { return Boom::alive == 0; }));
	}
}

/* Naive: the pushing thread receives it. */
MX_TEST(naive_throws_at_the_push)
{
	Engine *e = mxnet::engine::CreateNaiveEngine();
	Engine::VarHandle a = e->NewVariable();
	std::atomic<int> ran(0);

	THROWS(Boom, "boom", Fail(e, {}, { a }));
	THROWS(Boom, "async", FailAsync(e, {}, { a }));
	Touch(e, &ran, { a }, { a });
	EXPECT(ran == 1 && a->version() == 3);
	e->WaitForVar(a);
	e->WaitForAll();
	Engine::OprHandle o = e->NewOperator([](RunContext, Done) { throw Boom("opr"); }, {}, { a });
	THROWS(Boom, "opr", e->Push(o, Context()));
	/* from inside a body: the outermost push */
	THROWS(Boom, "boom", e->PushSync([&](RunContext) {
		Fail(e, {}, { a });
		ran++;
	}, Context(), {}, {}));
	EXPECT(ran == 2);
	delete e;
	EXPECT(Boom::alive == 0);
}

/* Stop waits for all, and throws as that does; the engine is stopped all the same. */
MX_TEST(stop_throws)
{
	Engine *e = mxnet::engine::CreateThreadedEnginePerDevice();
	Engine::VarHandle a = e->NewVariable();

	Fail(e, {}, { a });
	THROWS(Boom, "boom", e->Stop());
	e->Stop();
	e->Start();
	e->WaitForAll();
	delete e;
}

/* No thread waits for them: no leak (the sanitizer and the count check it). */
MX_TEST(nobody_asks)
{
	Engine *e = mxnet::engine::CreateThreadedEnginePerDevice();
	Engine::VarHandle a[10];

	for (Engine::VarHandle &v : a)
		v = e->NewVariable();
	for (int i = 0; i < 1000; i++)
		Fail(e, {}, { a[i % 10] });
	delete e;
	EXPECT(Boom::alive == 0);
}

/* Things that are no std::exception, and texts that are long. */
MX_TEST(anything_can_be_thrown)
{
	Engine *e = Engine::Get();
	Engine::VarHandle a = e->NewVariable();
	bool caught = false;

	e->PushSync([](RunContext) { throw 17; }, Context(), {}, { a });
	try {
		e->WaitForVar(a);
	} catch (int x) {
		caught = x == 17;
	}
	EXPECT(caught);
	EXPECT(!std::strcmp(MXGetLastError(), "an exception that is no std::exception"));
	std::string text(5000, 'x');
	e->PushSync([text](RunContext) { throw std::runtime_error(text + "end"); }, Context(), {}, { a });
	THROWS(std::runtime_error, "xxend", e->WaitForVar(a));
	/* by on_complete, too */
	e->PushAsync([text](RunContext, Done done) {
		dmlc::Error error(text + "end");

		done(&error);
	}, Context(), {}, { a });
	THROWS(dmlc::Error, "xxend", e->WaitForVar(a));
	e->DeleteVariable([](RunContext) {}, Context(), a);
}

/* --- the C interface: -1, and the text --- */

static void ThrowSync(void *, void *what) { throw Boom(static_cast<const char *>(what)); }
static void ThrowAsync(void *, void *, void *what) { throw Boom(static_cast<const char *>(what)); }

MX_TEST(c_interface)
{
	Context ctx;
	NDArrayHandle a, b;
	const uint32_t shape[] = { 4 };
	static char what[] = "thrown through C", other[] = "thrown through C, async";
	float data[4];

	EXPECT(!MXNDArrayCreate(shape, 1, 1, 0, 0, &a));
	EXPECT(!MXNDArrayCreate(shape, 1, 1, 0, 0, &b));
	EXPECT(!MXEnginePushSyncND(ThrowSync, what, nullptr, &ctx, nullptr, 0, &a, 1));
	EXPECT(!MXEnginePushSyncND([](void *, void *) {}, nullptr, nullptr, &ctx, &a, 1, &b, 1));
	EXPECT(MXNDArrayWaitToRead(b) == -1);
	EXPECT(!std::strcmp(MXGetLastError(), what));
	EXPECT(!MXNDArrayWaitToRead(a));
	EXPECT(!MXNDArrayWaitAll());
	EXPECT(!MXEnginePushAsyncND(ThrowAsync, other, nullptr, &ctx, nullptr, 0, &a, 1));
	EXPECT(MXNDArrayWaitAll() == -1);
	EXPECT(!std::strcmp(MXGetLastError(), other));
	EXPECT(!MXNDArrayWaitAll());
	/* the whole text */
	std::string longer(600, 'l');

	longer += "onger";
	EXPECT(!MXEnginePushSyncND(ThrowSync, &longer[0], nullptr, &ctx, nullptr, 0, &a, 1));
	EXPECT(MXNDArrayWaitToRead(a) == -1);
	EXPECT(MXGetLastError() == longer);
	EXPECT(!MXEnginePushSyncND(ThrowSync, what, nullptr, &ctx, nullptr, 0, &a, 1));
	EXPECT(MXNDArraySyncCopyToCPU(a, data, 4) == -1);
	EXPECT(!std::strcmp(MXGetLastError(), what));
	EXPECT(!MXEnginePushSyncND(ThrowSync, what, nullptr, &ctx, nullptr, 0, &a, 1));
	EXPECT(MXNDArrayWaitToWrite(a) == -1);
	/* the text is this thread's */
	std::thread([] { EXPECT(!*MXGetLastError()); }).join();
	EXPECT(!MXNDArrayFree(a));
	EXPECT(!MXNDArrayFree(b));
	EXPECT(!MXNDArrayWaitAll());
	EXPECT(Soon([] { return Boom::alive == 0; }));
}

static void CompleteWith(void *, void *on_complete, void *what)
{
	const pawl_mx_callback done = *static_cast<pawl_mx_callback *>(on_complete);
	dmlc::Error error(static_cast<const char *>(what));

	done.callback(done.engine, done.param, &error);
}

/* The result of a call of the bridge: -EIO, the text, and the exception if it is asked for. */
static void Told(int rc, bool asked, void *const &exception, const char *what, bool boom)
{
	EXPECT(rc == -EIO && !std::strcmp(pawl_mx_last_error(), what));
	if (!asked)
		return;
	EXPECT(exception);
	if (boom)
		THROWS(Boom, what, std::rethrow_exception(*static_cast<std::exception_ptr *>(exception)));
	else
		THROWS(dmlc::Error, what,
		       std::rethrow_exception(*static_cast<std::exception_ptr *>(exception)));
	pawl_mx_exception_free(exception);
}

MX_TEST(calls_of_the_bridge_return_EIO_and_the_exception)
{
	static char what[] = "of the bridge";
	pawl_mx_engine *e;
	pawl_mx_var *v;

	for (int kind : { PAWL_MX_NAIVE, PAWL_MX_POOLED, PAWL_MX_PER_DEVICE }) {
		EXPECT(!pawl_mx_engine_create(kind, &e) && !pawl_mx_var_new(e, &v));
		for (int k = 0; k < 3 * 2 * 4; k++) {
			const int how = k % 3, wait = k / 6;
			const bool asked = k / 3 % 2;
			void *exception = &v, **to = asked ? &exception : nullptr;
			pawl_mx_op op = {};
			auto call = [&] {
				return wait == 0 ? pawl_mx_wait_var(e, v, to) :
				       wait == 1 ? pawl_mx_wait_write(e, v, to) :
				       /* stop reports only errors that its caller can have */
				       wait == 2 || !to ? pawl_mx_wait_all(e, to) :
							  pawl_mx_engine_stop(e, to);
			};

			op.ctx = { PAWL_MX_CPU, 0 };
			op.writes = &v;
			op.nwrites = 1;
			op.arg = what;
			if (how == 0)
				op.sync = ThrowSync;
			else
				op.async = how == 1 ? ThrowAsync : CompleteWith;
			if (kind == PAWL_MX_NAIVE) {
				Told(pawl_mx_push(e, &op, to), asked, exception, what, how < 2);
			} else {
				EXPECT(!pawl_mx_push(e, &op, to) && (!asked || !exception));
				Told(call(), asked, exception, what, how < 2);
			}
			exception = &v;
			EXPECT(!call() && exception == (asked ? nullptr : &v));
			EXPECT(!pawl_mx_engine_start(e));
		}
		EXPECT(pawl_mx_var_version(v) == 24);
		EXPECT(!pawl_mx_var_delete(e, v, { PAWL_MX_CPU, 0 }, ThrowSync, what, nullptr));
		Told(pawl_mx_wait_all(e, nullptr), false, nullptr, what, true);
		EXPECT(!pawl_mx_engine_free(e));
	}
	EXPECT(Boom::alive == 0);
}

static void FailsTwice(void *run, void *)
{
	pawl_mx_fail(run, "the first");
	pawl_mx_fail(run, "the second");
}

static void FailsAndThrows(void *run, void *what)
{
	pawl_mx_fail(run, "the first");
	throw Boom(static_cast<const char *>(what));
}

/* Also when a body fails more than once, in a bulk as well. */
MX_TEST(the_last_failure_of_a_body_is_reported)
{
	static char what[] = "thrown after it";
	pawl_mx_engine *e = pawl_mx_engine_get();
	pawl_mx_var *v;
	pawl_mx_op op = {};

	EXPECT(!pawl_mx_var_new(e, &v));
	op.ctx = { PAWL_MX_CPU, 0 };
	op.writes = &v;
	op.nwrites = 1;
	op.arg = what;
	for (int size : { 0, 10 }) {
		void *exception = &op;

		EXPECT(!pawl_mx_set_bulk_size(e, size));
		op.sync = FailsTwice;
		EXPECT(!pawl_mx_push(e, &op, nullptr));
		EXPECT(pawl_mx_wait_var(e, v, &exception) == -EIO && !exception);
		EXPECT(!std::strcmp(pawl_mx_last_error(), "the second"));
		op.sync = FailsAndThrows;
		EXPECT(!pawl_mx_push(e, &op, nullptr));
		Told(pawl_mx_wait_var(e, v, &exception), true, exception, what, true);
		EXPECT(pawl_mx_set_bulk_size(e, 0) == size);
	}
	EXPECT(!pawl_mx_var_delete(e, v, op.ctx, nullptr, nullptr, nullptr));
	EXPECT(!pawl_mx_wait_all(e, nullptr));
	EXPECT(Soon([] { return Boom::alive == 0; }));
}

/* The times of a body that throws count, as do those of the others. */
MX_TEST(the_profiler_counts_bodies_that_throw)
{
	const char *key = "aggregate_stats", *on = "1", *off = "0", *text = nullptr;
	static char what[] = "thrown";
	Context ctx;

	EXPECT(!MXSetProfilerConfig(1, &key, &on) && !MXSetProfilerState(1));
	for (int i = 0; i < 3; i++) {
		EXPECT(!MXEnginePushSync(ThrowSync, what, nullptr, &ctx, nullptr, 0, nullptr, 0,
					 nullptr, 0, "sync"));
		EXPECT(!MXEnginePushAsync(ThrowAsync, what, nullptr, &ctx, nullptr, 0, nullptr, 0,
					  nullptr, 0, "async"));
		EXPECT(MXNDArrayWaitAll() == -1);
	}
	EXPECT(!MXSetProfilerState(0));
	EXPECT(!MXAggregateProfileStatsPrintEx(&text, 1, 1, 0, 0));
	EXPECT(std::strstr(text, "\"sync\": {\"Count\": 3,"));
	EXPECT(std::strstr(text, "\"async\": {\"Count\": 3,"));
	EXPECT(!MXSetProfilerConfig(1, &key, &off));
}

/* Many threads wait for the same var: one receives it. */
MX_TEST(one_of_many_gets_it)
{
	Engine *e = mxnet::engine::CreateThreadedEnginePerDevice();

	for (int round = 0; round < 50; round++) {
		Engine::VarHandle a = e->NewVariable();
		std::vector<std::thread> threads;
		std::atomic<int> got(0), go(0);

		for (int t = 0; t < 4; t++)
			threads.emplace_back([&] {
				go++;
				while (go < 5)
					std::this_thread::yield();
				try {
					e->WaitForVar(a);
				} catch (const Boom &) {
					got++;
				}
			});
		Fail(e, {}, { a });
		go++;
		for (std::thread &t : threads)
			t.join();
		EXPECT(got == 1);
		e->DeleteVariable([](RunContext) {}, Context(), a);
	}
	delete e;
	EXPECT(Boom::alive == 0);
}

int main(int argc, char **argv)
{
	return MxMain(argc, argv);
}
