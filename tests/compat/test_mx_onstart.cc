// SPDX-License-Identifier: Apache-2.0
/* The interface of MXNet's master: on_start is the second argument of an asynchronous body. */
#define PAWL_MX_API 20000
#include <mxnet/c_api.h>
#include <mxnet/engine.h>
#include <mxnet/ndarray.h>
#include "mx_test.hpp"

using mxnet::Context;
using mxnet::Engine;
using mxnet::RunContext;
typedef Engine::CallbackOnStart Start;
typedef Engine::CallbackOnComplete Done;

static_assert(MXNET_VERSION == 20000, "");
static_assert(std::is_same<decltype(MXEnginePushAsync), decltype(MXEnginePushAsyncOnStart)>::value, "");

MX_TEST(cxx)
{
	Engine *all[] = { mxnet::engine::CreateNaiveEngine(), mxnet::engine::CreateThreadedEnginePooled(),
			  mxnet::engine::CreateThreadedEnginePerDevice(), Engine::Get() };

	for (Engine *e : all) {
		Engine::VarHandle v = e->NewVariable();
		std::atomic<int> ran(0);
		auto fn = [&](RunContext, Start start, Done done) {
			start();
			ran++;
			done();
		};
		Engine::OprHandle o = e->NewOperator(fn, {}, { v });

		e->PushAsync(fn, Context(), {}, { v });
		e->Push(o, Context());
		e->PushSync([&](RunContext) { ran++; }, Context(), {}, { v });
		/* on_start is not on_complete, and may be called late or not at all */
		e->PushAsync([&](RunContext, Start, Done done) {
			ran++;
			done();
		}, Context(), {}, { v });
		e->WaitForVar(v);
		EXPECT(ran == 4 && v->version() == 4);
		e->DeleteOperator(o);
		e->DeleteVariable([](RunContext) {}, Context(), v);
		e->WaitForAll();
		if (e != Engine::Get())
			delete e;
	}
}

static int starts, ends;

static void Body(void *, void *on_start, void *on_complete, void *param)
{
	EXPECT(param == &ends);
	(*static_cast<mxnet::engine::CallbackOnStart *>(on_start))();
	starts++;
	(*static_cast<mxnet::engine::CallbackOnComplete *>(on_complete))();
}

static void Deleter(void *) { ends++; }

MX_TEST(c)
{
	Context ctx;
	mxnet::NDArray nd({ 2 }, ctx);
	NDArrayHandle h = &nd;
	Engine::VarHandle v = nd.var();

	EXPECT(!MXEnginePushAsync(Body, &ends, Deleter, &ctx, nullptr, 0, &v, 1));
	EXPECT(!MXEnginePushAsyncND(Body, &ends, Deleter, &ctx, nullptr, 0, &h, 1));
	EXPECT(!MXNDArrayWaitAll());
	EXPECT(starts == 2 && ends == 2 && nd.version() == 2);
}

int main(int argc, char **argv)
{
	return MxMain(argc, argv);
}
