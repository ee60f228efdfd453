// SPDX-License-Identifier: Apache-2.0
/* A user of libpawl_mx in C++, with MXNet's names of headers. */
#include <mxnet/engine.h>
#include <cstdio>
#include <stdexcept>

int main()
{
	mxnet::Engine *e = mxnet::Engine::Get();
	mxnet::Engine::VarHandle v = e->NewVariable();
	int n = 21;

	e->PushSync([&n](mxnet::RunContext) { n *= 2; }, mxnet::Context::CPU(), {}, { v });
	e->WaitForVar(v);
	e->PushSync([](mxnet::RunContext) { throw std::range_error("thrown"); },
		    mxnet::Context::CPU(), {}, { v });
	try {
		e->WaitForVar(v);
		return 1;
	} catch (const std::range_error &x) {
		std::printf("%d %s\n", n, x.what());
	}
	e->DeleteVariable([](mxnet::RunContext) {}, mxnet::Context::CPU(), v);
	return n != 42;
}
