// SPDX-License-Identifier: Apache-2.0
/*
 * fork(): the child continues with copies of its parent's engine, vars, operators and arrays.
 */
#include <mxnet/c_api.h>
#include <mxnet/engine.h>
#include <mxnet/ndarray.h>
#include <fcntl.h>
#include <memory>
#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include "mx_test.hpp"

using mxnet::Context;
using mxnet::Engine;
using mxnet::RunContext;
typedef Engine::CallbackOnComplete Done;

/* Run fn in a child, which must end with success. */
template <typename Fn>
static void InChild(Fn fn)
{
	std::fflush(stdout);
	pid_t pid = fork();

	EXPECT(pid >= 0);
	if (!pid) {
		alarm(60);
		fn();
		std::fflush(stdout);
		_exit(0);
	}
	int status = -1;

	EXPECT(waitpid(pid, &status, 0) == pid);
	EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void Count(Engine *e, int *n, Engine::VarHandle v)
{
	e->PushSync([n](RunContext) { ++*n; }, Context(), {}, { v });
}

MX_TEST(child_goes_on)
{
	Engine *e = Engine::Get();
	Engine::VarHandle v = e->NewVariable(), w = e->NewVariable();
	static int n, m;
	Engine::OprHandle o = e->NewOperator([](RunContext, Done done) {
		m++;
		done();
	}, { v }, { w });

	n = m = 0;
	for (int i = 0; i < 1000; i++)
		Count(e, &n, v);
	e->Push(o, Context());
	/* all of that is complete when the child begins */
	InChild([&] {
		EXPECT(Engine::Get() == e);
		EXPECT(n == 1000 && m == 1);
		EXPECT(v->version() == 1000 && w->version() == 1);
		for (int i = 0; i < 100; i++)
			Count(e, &n, v);
		e->Push(o, Context());
		e->WaitForVar(w);
		EXPECT(n == 1100 && m == 2);
		EXPECT(v->version() == 1100 && w->version() == 2);
		Engine::VarHandle x = e->NewVariable();

		std::vector<std::thread> threads;
		for (int t = 0; t < 3; t++)
			threads.emplace_back([&] {
				for (int i = 0; i < 100; i++)
					Count(e, &n, x);
			});
		for (std::thread &t : threads)
			t.join();
		e->WaitForAll();
		EXPECT(n == 1400);
		e->DeleteOperator(o);
		for (Engine::VarHandle y : { v, w, x })
			e->DeleteVariable([](RunContext) {}, Context(), y);
		e->WaitForAll();
		/* a stop waits, and throws, as in the parent */
		Engine::VarHandle stopped = e->NewVariable();

		e->PushSync([](RunContext) {
			n++;
			throw std::out_of_range("before the stop");
		}, Context(), {}, { stopped });
		THROWS(std::out_of_range, "before the stop", e->Stop());
		Count(e, &n, stopped);
		EXPECT(n == 1401);
		e->Start();
		e->WaitForAll();
		EXPECT(n == 1402);
		/* New variables in the memory of deleted ones, whose versions continued, begin at 0. */
		for (int i = 0; i < 1200; i++)
			EXPECT(e->NewVariable()->version() == 0);
	});
	for (int i = 0; i < 100; i++)
		Count(e, &n, v);
	e->Push(o, Context());
	e->WaitForAll();
	EXPECT(n == 1100 && m == 2 && v->version() == 1100);
	e->DeleteOperator(o);
	e->DeleteVariable([](RunContext) {}, Context(), v);
	e->DeleteVariable([](RunContext) {}, Context(), w);
}

/* Children of children, in turn. */
MX_TEST(generations)
{
	Engine *e = Engine::Get();
	Engine::VarHandle v = e->NewVariable();
	static int n;

	n = 0;
	Count(e, &n, v);
	InChild([&] {
		Count(e, &n, v);
		InChild([&] {
			Count(e, &n, v);
			e->WaitForVar(v);
			EXPECT(n == 3 && v->version() == 3);
		});
		Count(e, &n, v);
		e->WaitForVar(v);
		EXPECT(n == 3 && v->version() == 3);
	});
	for (int i = 0; i < 20; i++)
		InChild([&] {
			Count(e, &n, v);
			e->WaitForAll();
		});
	e->WaitForVar(v);
	EXPECT(n == 1 && v->version() == 1);
	e->DeleteVariable([](RunContext) {}, Context(), v);
}

/* Arrays, by the C interface. */
MX_TEST(arrays)
{
	mxnet::NDArray a({ 3 }, Context::CPU()), b({ 3 }, Context::CPU(1));
	float in[] = { 1, 2, 3 }, out[3] = {};

	a.SyncCopyFromCPU(in, 3);
	InChild([&] {
		CopyFromTo(a, b);
		b.SyncCopyToCPU(out, 3);
		EXPECT(out[2] == 3);
		mxnet::NDArray c({ 3 }, Context::CPU());

		c = a.Slice(1, 3);
		a = mxnet::NDArray();
		c.SyncCopyToCPU(out, 2);
		EXPECT(out[0] == 2);
		EXPECT(!MXNDArrayWaitAll());
	});
	CopyFromTo(a, b);
	b.SyncCopyToCPU(out, 3);
	EXPECT(out[0] == 1);
}

/* What poisons a var poisons it on both sides. */
MX_TEST(errors)
{
	Engine *e = Engine::Get();
	Engine::VarHandle v = e->NewVariable();

	e->PushSync([](RunContext) { throw std::out_of_range("before the fork"); }, Context(), {}, { v });
	InChild([&] {
		EXPECT(v->version() == 1);
		/* the text; what it was stays with the parent */
		THROWS(dmlc::Error, "before the fork", e->WaitForVar(v));
		e->WaitForAll();
	});
	THROWS(std::out_of_range, "before the fork", e->WaitForVar(v));
	e->DeleteVariable([](RunContext) {}, Context(), v);
}

/* What a wait throws, or "". */
static std::string Told(Engine *e, Engine::VarHandle v)
{
	try {
		e->WaitForVar(v);
	} catch (const std::exception &x) {
		return x.what();
	} catch (...) {
		return "not std::exception";
	}
	return "";
}

static void FailInC(void *run, void *) { pawl_mx_fail(run, "in C"); }

/*
 * Each var has its own error in the child, however it failed: 159 bytes of its text.  An error
 * that was thrown on one side is not there in a later child of it.
 */
MX_TEST(errors_of_several_vars)
{
	const std::string longer(300, 'l');
	const std::string texts[] = {
		"sync", "async", "completed", "an exception that is no std::exception", "in C",
		longer.substr(0, 159), "",
	};
	const int many = sizeof(texts) / sizeof(*texts);
	Engine *engines[] = { Engine::Get(), mxnet::engine::CreateThreadedEnginePooled(),
			      mxnet::engine::CreateThreadedEnginePerDevice() };
	Engine::VarHandle v[3][many];
	Context ctx;
	static int n;

	for (int k = 0; k < 3; k++) {
		Engine *e = engines[k];

		for (int i = 0; i < many; i++) {
			v[k][i] = e->NewVariable();
			for (int w = 0; w < 10 * k + i; w++)
				Count(e, &n, v[k][i]);
		}
		e->PushSync([](RunContext) { throw std::out_of_range("sync"); }, ctx, {}, { v[k][0] });
		e->PushAsync([](RunContext, Done) { throw std::logic_error("async"); }, ctx, {},
			     { v[k][1] });
		e->PushAsync([](RunContext, Done done) {
			dmlc::Error error("completed");

			done(&error);
		}, ctx, {}, { v[k][2] });
		e->PushSync([](RunContext) { throw 17; }, ctx, {}, { v[k][3] });
		if (k)
			e->PushSync([](RunContext) { throw dmlc::Error("in C"); }, ctx, {}, { v[k][4] });
		else
			EXPECT(!MXEnginePushSync(FailInC, nullptr, nullptr, &ctx, nullptr, 0, &v[0][4], 1));
		e->PushSync([longer](RunContext) { throw std::out_of_range(longer); }, ctx, {},
			    { v[k][5] });
		/* what failed and was thrown before is no error of the child */
		e->PushSync([](RunContext) { throw std::out_of_range("thrown"); }, ctx, {}, { v[k][6] });
		EXPECT(Told(e, v[k][6]) == "thrown");
	}

	/* A fork waits for the engine of the process alone, and to wait for the others would throw. */
	for (int k = 0; k < 3; k++)
		for (int i = 0; i < many; i++)
			while (v[k][i]->version() != static_cast<uint64_t>(10 * k + i + 1))
				std::this_thread::yield();

	auto check = [&](bool poisoned, bool child) {
		for (int k = 0; k < 3; k++)
			for (int i = 0; i < many; i++) {
				std::string want = !poisoned ? "" : child ? texts[i] :
						   i == 3 ? "not std::exception" :
						   i == 5 ? longer : texts[i];

				EXPECT(v[k][i]->version() == static_cast<uint64_t>(10 * k + i + 1));
				EXPECT(Told(engines[k], v[k][i]) == want);
				EXPECT(Told(engines[k], v[k][i]).empty());
			}
	};
	InChild([&] {
		InChild([&] { check(true, true); });
		check(true, true);
		for (Engine *e : engines)
			e->WaitForAll();
	});
	InChild([&] {
		check(true, true);
		InChild([&] { check(false, true); });
	});
	check(true, false);
	InChild([&] { check(false, true); });
	for (int k = 0; k < 3; k++) {
		for (Engine::VarHandle x : v[k])
			engines[k]->DeleteVariable([](RunContext) {}, ctx, x);
		engines[k]->WaitForAll();
		if (k)
			delete engines[k];
	}
}

static Engine *handled;
static pawl_mx_engine *ends_before, *ends_in_child;
static int stops, starts;

static void EndIt(pawl_mx_engine *&e)
{
	EXPECT(!pawl_mx_engine_free(e));
	EXPECT(!e || !pawl_mx_engine_pawl(e));
	e = nullptr;
}

static void StopIt()
{
	EndIt(ends_before);
	if (handled) {
		stops++;
		/* as MXNet on libpawl_mx does: an exception cannot leave the handler */
		EXPECT(!pawl_mx_engine_stop(pawl_mx_engine_get(), nullptr));
	}
}

static void StartIt()
{
	if (handled) {
		starts++;
		handled->Start();
	}
}

static void InChildFirst()
{
	EndIt(ends_in_child);
	StartIt();
}

/*
 * MXNet's own handlers are registered before the library's: they stop the engine, and start it,
 * in the child while it is still that of the parent.
 */
MX_TEST(handlers_of_the_program)
{
	Engine *e = Engine::Get();
	Engine::VarHandle v = e->NewVariable();
	static int n;

	n = 0;
	stops = starts = 0;
	handled = e;
	Count(e, &n, v);
	InChild([&] {
		EXPECT(stops == 1 && starts == 1 && n == 1);
		Count(e, &n, v);
		e->WaitForVar(v);
		EXPECT(n == 2 && v->version() == 2);
	});
	EXPECT(stops == 1 && starts == 1);
	Count(e, &n, v);
	e->WaitForVar(v);
	EXPECT(n == 2 && v->version() == 2);
	/* an error that no call has reported is reported on both sides */
	e->PushSync([](RunContext) { throw std::out_of_range("unseen"); }, Context(), {}, { v });
	InChild([&] { THROWS(dmlc::Error, "unseen", e->WaitForVar(v)); });
	THROWS(std::out_of_range, "unseen", e->WaitForVar(v));
	handled = nullptr;
	e->DeleteVariable([](RunContext) {}, Context(), v);
}

static void OneOp(pawl_mx_engine *e)
{
	pawl_mx_var *v;
	pawl_mx_op op = {};

	op.sync = [](void *, void *) {};
	op.ctx.dev_type = PAWL_MX_CPU;
	op.writes = &v;
	op.nwrites = 1;
	EXPECT(!pawl_mx_var_new(e, &v) && !pawl_mx_push(e, &op, nullptr));
	EXPECT(!pawl_mx_wait_all(e, nullptr) && pawl_mx_var_version(v) == 1);
}

/* An engine may end in a handler, too, of the parent or of the child. */
MX_TEST(a_handler_of_the_program_frees_an_engine)
{
	for (pawl_mx_engine **e : { &ends_before, &ends_in_child }) {
		EXPECT(!pawl_mx_engine_create(PAWL_MX_PER_DEVICE, e));
		OneOp(*e);
	}
	InChild([] {
		EXPECT(!ends_before && !ends_in_child);
		OneOp(pawl_mx_engine_get());
		/* also the process's, which the next call creates again */
		ends_before = pawl_mx_engine_get();
		InChild([] { OneOp(pawl_mx_engine_get()); });
		EXPECT(!ends_before);
		OneOp(pawl_mx_engine_get());
	});
	EXPECT(!ends_before && ends_in_child);
	OneOp(ends_in_child);
	EndIt(ends_in_child);
	OneOp(pawl_mx_engine_get());
}

/* What this thread has gathered runs before the fork; another's bulk stays with the parent. */
MX_TEST(bulks)
{
	Engine *e = Engine::Get(), *own = mxnet::engine::CreateThreadedEnginePerDevice();
	Engine::VarHandle v = e->NewVariable(), w = own->NewVariable(), x = own->NewVariable();
	std::atomic<bool> gathered(false), go(false);
	static int n, m;

	n = m = 0;
	std::thread other([&] {
		own->set_bulk_size(8);
		Count(own, &m, w);
		gathered = true;
		EXPECT(Soon([&] { return go.load(); }));
		own->set_bulk_size(0);
	});
	EXPECT(Soon([&] { return gathered.load(); }));
	e->set_bulk_size(8);
	for (int i = 0; i < 3; i++)
		Count(e, &n, v);
	InChild([&] {
		EXPECT(n == 3 && e->bulk_size() == 8 && v->version() == 1);
		/* another thread has the memory of the parent's other one, not that of this thread */
		std::atomic<bool> has(false), end(false);
		std::thread another([&] {
			own->set_bulk_size(8);
			Count(own, &n, x);
			has = true;
			EXPECT(Soon([&] { return end.load(); }));
		});
		EXPECT(Soon([&] { return has.load(); }));
		own->WaitForVar(x);
		EXPECT(n == 3 && x->version() == 0);
		end = true;
		another.join();
		own->WaitForVar(x);
		EXPECT(n == 4 && x->version() == 1 && w->version() == 0);
		Count(e, &n, v);
		Count(e, &n, v);
		e->WaitForVar(v);
		EXPECT(n == 6 && v->version() == 2);
		delete own;
		EXPECT(n == 6 && m == 0);
	});
	go = true;
	other.join();
	e->set_bulk_size(0);
	own->WaitForAll();
	EXPECT(n == 3 && m == 1 && v->version() == 1 && w->version() == 1);
	e->DeleteVariable([](RunContext) {}, Context(), v);
	delete own;
}

/*
 * In the child this thread is no worker any more, so the thread that frees the engine pushes its
 * bulk.
 */
MX_TEST(bulk_of_a_worker_that_forks)
{
	for (bool has_one : { false, true }) {
		Engine *own = mxnet::engine::CreateThreadedEnginePerDevice();
		Engine::VarHandle v = own->NewVariable();
		static int n;

		n = 0;
		/* as in from_a_body */
		own->PushSync([](RunContext) {}, Context(), {}, { v });
		own->WaitForVar(v);
		own->PushSync([&](RunContext) {
			if (has_one)
				own->set_bulk_size(8);
			InChild([&] {
				own->set_bulk_size(8);
				Count(own, &n, own->NewVariable());
				std::thread([&] { delete own; }).join();
				EXPECT(n == 1);
			});
		}, Context(), {}, { v });
		own->WaitForVar(v);
		delete own;
	}
}

/* F9: from inside a body. */
MX_TEST(from_a_body)
{
	Engine *e = Engine::Get();
	Engine::VarHandle v = e->NewVariable(), w = e->NewVariable();
	static int n;

	n = 0;
	/* a worker that begins allocates: it is there before the fork */
	for (int i = 0; i < 5; i++)
		e->PushSync([](RunContext) {}, Context(), {}, { v });
	e->WaitForVar(v);
	e->PushSync([](RunContext) { throw std::out_of_range("before"); }, Context(), {}, { w });
	e->PushSync([&](RunContext) {
		InChild([&] {
			/* what a fork finds at rest has its version, and its error */
			EXPECT(v->version() == 5 && w->version() == 1);
			EXPECT(Told(e, w) == "before");
			Count(e, &n, w);
			Count(e, &n, v);	/* the body's own var is at rest here */
			e->WaitForAll();
			EXPECT(n == 2);
		});
	}, Context(), {}, { v });
	e->WaitForVar(v);
	EXPECT(n == 0 && v->version() == 6 && Told(e, w) == "before");
	e->DeleteVariable([](RunContext) {}, Context(), v);
	e->DeleteVariable([](RunContext) {}, Context(), w);
}

#if !ADDRESS_SANITIZED	/* whose allocator's locks a child inherits as they are */

/*
 * While other threads push: each child has an engine that works.  A fork is at a moment when
 * nothing is in flight; nobody promises it one while others push without end, so each of them
 * pushes so much for a fork and no more.
 */
MX_TEST(under_load)
{
	Engine *e = Engine::Get();
	std::atomic<bool> stop(false);
	std::atomic<int> turn(0);
	std::vector<std::thread> threads;

	for (int t = 0; t < 2; t++)
		threads.emplace_back([&] {
			Engine::VarHandle v = e->NewVariable();
			int mine = 0, pushed = 0, seen = -1, left = 0;

			while (!stop) {
				if (seen != turn) {
					seen = turn;
					left = 10000;
				}
				if (!left) {
					std::this_thread::yield();
					continue;
				}
				left--;
				Count(e, &mine, v);
				pushed++;
				if (pushed % 64 == 0)
					e->WaitForVar(v);
			}
			e->WaitForVar(v);
			EXPECT(mine == pushed);
			e->DeleteVariable([](RunContext) {}, Context(), v);
		});
	for (int i = 0; i < 10; i++) {
		InChild([&] {
			Engine::VarHandle v = e->NewVariable();
			int mine = 0;

			for (int k = 0; k < 100; k++)
				Count(e, &mine, v);
			e->WaitForVar(v);
			EXPECT(mine == 100);
		});
		turn++;
	}
	stop = true;
	for (std::thread &t : threads)
		t.join();
	e->WaitForAll();
}

static int drops;

/*
 * The runs of the operator belong to the parent: in the child a delete drops its argument at
 * once.
 */
MX_TEST(operator_that_runs)
{
	pawl_mx_engine *e = pawl_mx_engine_get();
	pawl_mx_opr *o;
	pawl_mx_op op = {};

	drops = 0;
	op.ctx.dev_type = PAWL_MX_CPU;
	op.keep = true;
	op.arg = &o;
	op.drop = [](void *) { drops++; };
	op.async = [](void *, void *done, void *arg) {
		InChild([&] {
			EXPECT(!pawl_mx_opr_delete(pawl_mx_engine_get(),
						   *static_cast<pawl_mx_opr **>(arg)));
			EXPECT(drops == 1);
		});
		EXPECT(!pawl_mx_complete(done, nullptr));
	};
	EXPECT(!pawl_mx_opr_new(e, &op, &o) && !pawl_mx_opr_push(e, o, op.ctx, 0, nullptr));
	EXPECT(!pawl_mx_wait_all(e, nullptr));
	EXPECT(!pawl_mx_opr_delete(e, o));
	EXPECT(Soon([] { return drops == 1; }));
}

/* Engines of one's own live on, too. */
MX_TEST(own_engines)
{
	Engine *all[] = { mxnet::engine::CreateNaiveEngine(), mxnet::engine::CreateThreadedEnginePooled(),
			  mxnet::engine::CreateThreadedEnginePerDevice() };

	for (Engine *e : all) {
		Engine::VarHandle v = e->NewVariable();
		static int n;

		n = 0;
		Count(e, &n, v);
		e->WaitForAll();
		InChild([&] {
			Count(e, &n, v);
			e->WaitForVar(v);
			EXPECT(n == 2 && v->version() == 2);
			delete e;
		});
		Count(e, &n, v);
		e->WaitForVar(v);
		EXPECT(n == 2);
		delete e;
	}
}

/* Each operator is again that of its engine, whichever engine the child creates first. */
MX_TEST(operators_of_several_engines)
{
	pawl_mx_engine *e[3] = {};
	pawl_mx_opr *o[3];
	pawl_mx_var *v[3];
	static int n[3];

	for (int i = 0; i < 3; i++) {
		pawl_mx_op op = {};

		EXPECT(!pawl_mx_engine_create(PAWL_MX_PER_DEVICE, &e[i]) && !pawl_mx_var_new(e[i], &v[i]));
		n[i] = 0;
		op.ctx.dev_type = PAWL_MX_CPU;
		op.arg = &n[i];
		op.sync = [](void *, void *arg) { ++*static_cast<int *>(arg); };
		op.writes = &v[i];
		op.nwrites = 1;
		EXPECT(!pawl_mx_opr_new(e[i], &op, &o[i]));
	}
	InChild([&] {
		const pawl_mx_context cpu = { PAWL_MX_CPU, 0 };

		for (int i = 0; i < 3; i++) {
			EXPECT(!pawl_mx_opr_push(e[i], o[i], cpu, 0, nullptr));
			EXPECT(!pawl_mx_wait_all(e[i], nullptr));
			EXPECT(n[i] == 1 && pawl_mx_var_version(v[i]) == 1);
			EXPECT(!pawl_mx_opr_delete(e[i], o[i]));
			EXPECT(!pawl_mx_var_delete(e[i], v[i], cpu, nullptr, nullptr, nullptr));
		}
	});
	for (int i = 0; i < 3; i++) {
		EXPECT(n[i] == 0);
		EXPECT(!pawl_mx_opr_delete(e[i], o[i]) && !pawl_mx_engine_free(e[i]));
	}
}

/* In the child an operator whose var was deleted is refused, and is no other one. */
MX_TEST(an_operator_whose_var_was_deleted)
{
	const pawl_mx_context cpu = { PAWL_MX_CPU, 0 };
	pawl_mx_engine *e = nullptr;
	pawl_mx_opr *o[2];
	pawl_mx_var *v[2];
	static int n[2];

	EXPECT(!pawl_mx_engine_create(PAWL_MX_PER_DEVICE, &e));
	for (int i = 0; i < 2; i++) {
		pawl_mx_op op = {};

		n[i] = 0;
		op.ctx = cpu;
		op.arg = &n[i];
		op.sync = [](void *, void *arg) { ++*static_cast<int *>(arg); };
		op.writes = &v[i];
		op.nwrites = 1;
		EXPECT(!pawl_mx_var_new(e, &v[i]) && !pawl_mx_opr_new(e, &op, &o[i]));
	}
	/* whichever of them the child creates first */
	for (int gone = 0; gone < 2; gone++)
		InChild([&] {
			EXPECT(!pawl_mx_var_delete(e, v[gone], cpu, nullptr, nullptr, nullptr));
			EXPECT(!pawl_mx_wait_all(e, nullptr));
			InChild([&] {
				EXPECT(pawl_mx_opr_push(e, o[gone], cpu, 0, nullptr) == -ESTALE);
				EXPECT(std::strstr(pawl_mx_last_error(), "the operator was deleted"));
				EXPECT(!pawl_mx_opr_push(e, o[!gone], cpu, 0, nullptr));
				EXPECT(!pawl_mx_wait_all(e, nullptr));
				EXPECT(!n[gone] && n[!gone] == 1);
			});
		});
	EXPECT(!pawl_mx_opr_delete(e, o[0]) && !pawl_mx_opr_delete(e, o[1]));
	EXPECT(!pawl_mx_engine_free(e));
}

/* What an op has thrown: when it is dropped, it waits for the other side. */
struct Held {
	static std::atomic<bool> reached, released;

	~Held()
	{
		reached = true;
		while (!released)
			std::this_thread::yield();
	}
};
std::atomic<bool> Held::reached, Held::released;

struct Thrown : std::runtime_error {
	std::shared_ptr<Held> held;

	Thrown() : std::runtime_error("for the end of the engine"), held(new Held) {}
};

/* An engine that another thread frees meanwhile, or has freed, keeps no other from living on. */
MX_TEST(an_engine_that_ends)
{
	Engine *e = Engine::Get(), *own = mxnet::engine::CreateThreadedEnginePerDevice();
	Engine::VarHandle v = e->NewVariable(), w = own->NewVariable();
	static int n;

	n = 0;
	own->PushSync([](RunContext) { throw Thrown(); }, Context(), {}, { w });
	std::thread t([&] { delete own; });

	/* the last thing that an engine does */
	EXPECT(Soon([] { return Held::reached.load(); }));
	for (bool ended : { false, true }) {
		InChild([&] {
			Count(e, &n, v);
			e->WaitForVar(v);
			EXPECT(n == 1 && v->version() == 1);
			/* and another one may be created in its place */
			Engine *another = mxnet::engine::CreateThreadedEnginePerDevice();

			InChild([&] {
				Count(another, &n, another->NewVariable());
				another->WaitForAll();
				EXPECT(n == 2);
			});
			delete another;
		});
		if (!ended) {
			Held::released = true;
			t.join();
		}
	}
	e->DeleteVariable([](RunContext) {}, Context(), v);
}

/* A thread of the parent is in a call of the profiler, and stays there: a reader is missing. */
MX_TEST(the_profiler_is_used_meanwhile)
{
	struct pawl_engine *e = pawl_mx_engine_pawl(pawl_mx_engine_get());

	/* There is no trace to write. */
	if (pawl_trace_start(e, 64) == -ENOSYS)
		return;
	EXPECT(!pawl_trace_stop(e));

	char dir[] = "/tmp/pawl-mx-XXXXXX";
	std::string fifo = std::string(mkdtemp(dir)) + "/trace";
	const char *key = "filename", *name = fifo.c_str(), *other = "/dev/null";
	std::atomic<pid_t> tid(0);
	char state = 0;

	EXPECT(!mkfifo(name, 0600));
	EXPECT(!MXSetProfilerConfig(1, &key, &name) && !MXSetProfilerState(1));
	std::thread t([&] {
		tid = static_cast<pid_t>(syscall(SYS_gettid));
		MXDumpProfile(1);
	});
	EXPECT(Soon([&] {
		std::FILE *f = std::fopen(("/proc/self/task/" + std::to_string(tid) + "/stat").c_str(), "r");

		if (f) {
			EXPECT(std::fscanf(f, "%*d (%*[^)]) %c", &state) == 1);
			std::fclose(f);
		}
		return state == 'S';
	}));
	InChild([&] {
		EXPECT(!MXSetProfilerConfig(1, &key, &other));
		EXPECT(!MXSetProfilerState(0));
	});
	int fd = open(name, O_RDONLY);
	char text[4096];

	EXPECT(fd >= 0);
	while (read(fd, text, sizeof(text)) > 0)
		;
	t.join();
	close(fd);
	EXPECT(!MXSetProfilerConfig(1, &key, &other) && !MXSetProfilerState(0));
	EXPECT(!unlink(name) && !rmdir(dir));
}

#endif

static bool starves;
static struct rlimit space;

/* In the child, before the library's handler. */
static void Starve()
{
	if (starves) {
		EXPECT(!getrlimit(RLIMIT_AS, &space));
		const struct rlimit none = { 0, space.rlim_max };

		EXPECT(!setrlimit(RLIMIT_AS, &none));
	}
}

#if !ADDRESS_SANITIZED	/* its allocator ends the process */

static std::string said;

/* The first text that the library prints ends it. */
static ssize_t Say(void *, const char *text, size_t n)
{
	if (setrlimit(RLIMIT_AS, &space))
		return 0;
	said.append(text, n);
	return static_cast<ssize_t>(n);
}

/* An engine that cannot be created in the child keeps no other from living on. */
MX_TEST(no_memory_for_an_engine)
{
	Engine *e = Engine::Get(), *own = mxnet::engine::CreateThreadedEnginePerDevice();
	Engine::VarHandle v = e->NewVariable();
	cookie_io_functions_t io = {};
	FILE *err = stderr;
	static int n;

	n = 0;
	io.write = Say;
	stderr = fopencookie(nullptr, "w", io);
	EXPECT(stderr && !std::setvbuf(stderr, nullptr, _IONBF, 0));
	starves = true;
	InChild([&] {
		stderr = err;
		EXPECT(said.find("no engine after fork") != std::string::npos);
		EXPECT(said.find("memory") != std::string::npos);
		Count(e, &n, v);
		e->WaitForVar(v);
		EXPECT(n == 1 && v->version() == 1);
	});
	starves = false;
	std::fclose(stderr);
	stderr = err;
	e->DeleteVariable([](RunContext) {}, Context(), v);
	e->WaitForAll();
	delete own;
}

#endif

int main(int argc, char **argv)
{
#if THREAD_SANITIZED
	std::printf("the thread sanitizer does not let a child have threads\n");
	return 77;
#endif
	EXPECT(!pthread_atfork(StopIt, StartIt, InChildFirst));
	EXPECT(!pthread_atfork(nullptr, nullptr, Starve));
	return MxMain(argc, argv);
}
