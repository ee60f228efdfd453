// SPDX-License-Identifier: Apache-2.0
/*
 * Three million arrays at once, more than libpawl has blocks for.  Each is written, then four
 * threads push random ops on all of them, with errors, deletions and asynchronous ops.  The
 * results must be those of a serial program.  The test needs 0.6 GB of memory.
 */
#include <mxnet/engine.h>
#include <random>
#include "mx_test.hpp"

using mxnet::Context;
using mxnet::Engine;
using mxnet::FnProperty;
using mxnet::RunContext;
typedef Engine::CallbackOnComplete Done;

static const size_t BLOCKS = 1 << 21;	/* core/state.h, BLOCK_BITS */
/*
 * Fewer than blocks in a brief run: with a sanitizer so many take two minutes and 8 GB;
 * test_parked_few.c parks vars there.
 */
static const size_t ARRAYS = BRIEF ? 50000 : 3000000;
static const unsigned THREADS = 4, OPS = BRIEF ? 10000 : 100000, SHARED = 1024;

struct Array {
	Engine::VarHandle var;
	unsigned data;		/* changed by ops */
	unsigned want, writes;	/* of the serial program */
};

/*
 * The first SHARED arrays are only read.  Of the others each thread uses every fourth, so that
 * its own order is that of a serial program.
 */
struct Part {
	Engine *e;
	std::vector<Array> *all;
	unsigned number;
	std::mt19937 rnd;
	unsigned failed, deleted;

	Array &Pick()
	{
		size_t i = SHARED + number + rnd() % ((ARRAYS - SHARED) / THREADS) * THREADS;

		return (*all)[i];
	}

	void Compute()
	{
		Array &a = Pick(), &b = Pick(), &to = Pick(), &fixed = (*all)[rnd() % SHARED];
		auto body = [&a, &b, &to, &fixed] {
			to.data = to.data * 3 + a.data * 5 + b.data * 7 + fixed.data;
		};
		std::vector<Engine::VarHandle> reads{ a.var, b.var, fixed.var };

		if (rnd() % 2)
			e->PushSync([body](RunContext) { body(); }, Context::CPU(), reads,
				    { to.var });
		else
			e->PushAsync([body](RunContext, Done done) {
				body();
				done();
			}, Context::CPU(), reads, { to.var });
		to.want = to.want * 3 + a.want * 5 + b.want * 7 + fixed.want;
		to.writes++;
	}

	/* Does not wait for the ops that use it.  The next array has the same data. */
	void Replace(Array &x)
	{
		e->DeleteVariable([](RunContext) {}, Context::CPU(), x.var);
		x.var = e->NewVariable();
		x.writes = 0;
		deleted++;
	}

	void Fail()
	{
		Array &x = Pick(), &to = Pick();

		if (&x == &to)
			return;
		e->PushSync([](RunContext) { throw dmlc::Error("no array is that good"); },
			    Context::CPU(), {}, { x.var });
		/* It is skipped. */
		e->PushSync([&to](RunContext) { to.data = 0; }, Context::CPU(), { x.var },
			    { to.var });
		THROWS(dmlc::Error, "no array is that good", e->WaitForVar(to.var));
		e->WaitForVar(to.var);
		/* The error that was thrown before. */
		e->WaitForVar(x.var);
		Replace(x);
		Replace(to);
		failed++;
	}

	void Run()
	{
		for (unsigned i = 0; i < OPS; i++) {
			switch (rnd() % 64) {
			case 0: {
				/* An op that uses it is pending, and the next op must see its data. */
				Array &x = Pick();

				e->PushSync([&x](RunContext) { x.data++; }, Context::CPU(), {},
					    { x.var });
				x.want++;
				e->WaitForVar(x.var);
				EXPECT(x.data == x.want);
				Replace(x);
				break;
			}
			case 1: {
				Array &x = Pick();

				e->WaitForVar(x.var);
				EXPECT(x.data == x.want && x.var->version() == x.writes);
				break;
			}
			case 2:
				if (rnd() % 4 == 0)
					Fail();
				break;
			default:
				Compute();
			}
		}
	}
};

MX_TEST(more_arrays_than_blocks)
{
	std::unique_ptr<Engine> e(mxnet::engine::CreateThreadedEnginePerDevice());
	std::vector<Array> all(ARRAYS);
	std::vector<std::thread> threads;
	std::vector<Part> parts;

	EXPECT(BRIEF || ARRAYS > BLOCKS);
	for (size_t i = 0; i < ARRAYS; i++) {
		Array &x = all[i];

		x.var = e->NewVariable();
		x.data = 0;
		x.want = static_cast<unsigned>(i * 2654435761u);
		x.writes = 1;
		e->PushSync([&x](RunContext) { x.data = x.want; }, Context::CPU(), {}, { x.var });
	}
	e->WaitForAll();
	for (const Array &x : all)
		EXPECT(x.data == x.want && x.var->version() == 1);
	for (unsigned i = 0; i < THREADS; i++)
		parts.push_back(Part{ e.get(), &all, i, std::mt19937(i), 0, 0 });
	for (Part &p : parts)
		threads.emplace_back([&p] { p.Run(); });
	for (std::thread &t : threads)
		t.join();
	e->WaitForAll();
	for (const Array &x : all)
		EXPECT(x.data == x.want && x.var->version() == x.writes);
	for (const Part &p : parts)
		EXPECT(p.failed && p.deleted);

	std::atomic<size_t> ended(0);

	for (const Array &x : all)
		e->DeleteVariable([&](RunContext) { ended++; }, Context::CPU(), x.var);
	e->WaitForAll();
	EXPECT(ended == ARRAYS);
}

int main(int argc, char **argv)
{
	return MxMain(argc, argv);
}
