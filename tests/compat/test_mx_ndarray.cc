// SPDX-License-Identifier: Apache-2.0
/*
 * <pawl/mx_ndarray.hpp>: the arrays and resources of C++, what their copies, moves and views
 * share, and what each call throws.
 */
#include <mxnet/ndarray.h>
#include <mxnet/resource.h>
#include <stdexcept>
#include "mx_test.hpp"

using mxnet::Context;
using mxnet::Engine;
using mxnet::NDArray;
using mxnet::Resource;
using mxnet::ResourceManager;
using mxnet::ResourceRequest;
using mxnet::RunContext;

typedef std::vector<int64_t> Shape;

static void Fill(const NDArray &a, std::vector<float> values)
{
	a.SyncCopyFromCPU(values.data(), values.size());
}

static std::vector<float> Values(const NDArray &a, size_t n)
{
	std::vector<float> values(n, -1);

	a.SyncCopyToCPU(values.data(), n);
	return values;
}

/* --- arrays --- */

MX_TEST(an_array_is_none_or_has_what_it_was_made_with)
{
	const NDArray none, empty{ Context::CPU(4) };
	const NDArray a({ 2, 3 }, Context::CPUPinned(7)), delayed({ 5 }, Context::CPU(2), true, 6);

	EXPECT(none.is_none() && !none.var() && !none.version() && none.shape().empty());
	EXPECT(none.dtype() == -1 && !none.dptr<float>());
	EXPECT(!empty.is_none() && empty.shape() == Shape(1, 0) && empty.ctx() == Context::CPU(4));
	EXPECT(empty.dtype() == 0 && empty.var());
	EXPECT(!a.is_none() && a.shape() == Shape({ 2, 3 }) && a.ctx() == Context::CPUPinned(7));
	EXPECT(a.dtype() == 0 && a.dptr<float>() && a.dptr<float>() == a.dptr<float>());
	EXPECT(delayed.shape() == Shape(1, 5) && delayed.dtype() == 6);
	EXPECT(delayed.ctx() == Context::CPU(2) && delayed.dptr<int64_t>());
	EXPECT(NDArray(Shape(), Context::CPU()).shape().empty());
	/* which is more memory than there is */
	EXPECT(NDArray({ int64_t(1) << 57 }, Context::CPU(), true).version() == 0);
	none.WaitToRead();
	none.WaitToWrite();
	empty.WaitToRead();
	empty.WaitToWrite();
}

MX_TEST(an_array_that_cannot_be_made_throws)
{
	THROWS(dmlc::Error, "GPU", NDArray({ 2 }, Context::GPU(0)));
	THROWS(dmlc::Error, "type 99", NDArray({ 2 }, Context::CPU(), false, 99));
	THROWS(dmlc::Error, "33 dimensions", NDArray(Shape(33, 1), Context::CPU()));
	THROWS(dmlc::Error, "-4", NDArray({ -4 }, Context::CPU(), true));
	THROWS(dmlc::Error, "the engine has 0", NDArray(Context::GPU(1)));
}

MX_TEST(values_are_copied_in_and_out)
{
	NDArray a({ 2, 2 }, Context::CPU());
	float x[4];

	Fill(a, { 1, 2, 3, 4 });
	EXPECT(a.version() == 1 && a.var()->version() == 1);
	EXPECT(Values(a, 4) == std::vector<float>({ 1, 2, 3, 4 }));
	EXPECT(a.version() == 1 && a.dptr<float>()[3] == 4);
	THROWS(dmlc::Error, "3 elements, the array has 4", a.SyncCopyFromCPU(x, 3));
	THROWS(dmlc::Error, "5 elements, the array has 4", a.SyncCopyToCPU(x, 5));
	THROWS(dmlc::Error, "none", NDArray().SyncCopyToCPU(x, 0));
}

MX_TEST(copies_and_views_share_the_memory_and_the_var)
{
	NDArray a({ 3, 2 }, Context::CPU()), moved;

	Fill(a, { 1, 2, 3, 4, 5, 6 });
	{
		NDArray copy(a), assigned, slice = a.Slice(1, 3), row = slice.At(1), one = row.At(1);

		assigned = copy;
		for (const NDArray &nd : { copy, assigned, slice, row, one })
			EXPECT(nd.var() == a.var() && nd.ctx() == a.ctx() && nd.version() == a.version());
		EXPECT(copy.shape() == a.shape() && copy.dptr<float>() == a.dptr<float>());
		EXPECT(assigned.shape() == a.shape());
		EXPECT(slice.shape() == Shape({ 2, 2 }) && slice.dptr<float>() == a.dptr<float>() + 2);
		EXPECT(row.shape() == Shape(1, 2) && row.dptr<float>() == a.dptr<float>() + 4);
		EXPECT(one.shape() == Shape(1, 1) && one.dptr<float>() == a.dptr<float>() + 5);
		Fill(row, { 7, 8 });
		THROWS(dmlc::Error, "slice 2:4 of 3", a.Slice(2, 4));
		THROWS(dmlc::Error, "index 3 of 3", a.At(3));
		/* the array has nothing afterwards, and those that share keep the memory */
		moved = std::move(slice);
		EXPECT(moved.shape() == Shape({ 2, 2 }) && moved.var() == a.var());
		NDArray stolen(std::move(copy));

		EXPECT(stolen.var() == a.var() && copy.is_none() && copy.shape().empty());
		EXPECT(copy.dtype() == -1);
		a = *&a;
		a = NDArray();
		EXPECT(a.is_none() && stolen.shape() == Shape({ 3, 2 }));
		EXPECT(Values(stolen, 6) == std::vector<float>({ 1, 2, 3, 4, 7, 8 }));
	}
	EXPECT(Values(moved, 4) == std::vector<float>({ 3, 4, 7, 8 }));
	EXPECT(NDArray(NDArray()).is_none());
}

/* The memory goes with the last array, by an op, which the engine's statistics count. */
MX_TEST(each_array_is_freed_once)
{
	struct pawl_stats s = {};
	pawl_engine *e = pawl_mx_engine_pawl(pawl_mx_engine_get());
	uint64_t vars = 0;

	s.size = sizeof(s);
	for (int i = 0; i < 4000; i++) {
		NDArray a({ 2 }, Context::CPU()), b(a), c, d = a.Slice(0, 1);

		c = std::move(b);
		d = c;
		a = NDArray({ 3 }, Context::CPU(), true);
		if (i % 50 == 0)
			Engine::Get()->WaitForAll();
		EXPECT(!pawl_stats(e, &s));
		if (i == 2000)
			vars = s.vars;
	}
	EXPECT(s.vars < vars + 1000);
	Engine::Get()->WaitForAll();
}

struct Odd : std::runtime_error {
	Odd() : std::runtime_error("an odd failure") {}
};

/* WaitToRead() waits for writes alone, WaitToWrite() also for reads; both rethrow as it was. */
MX_TEST(waits_are_for_ops_on_the_array_and_rethrow)
{
	NDArray a({ 1 }, Context::CPU());
	Engine *e = Engine::Get();

	for (int writes = 0; writes < 2; writes++) {
		for (int to_write = 0; to_write < 2; to_write++) {
			std::atomic<bool> go(false), over(false);
			std::vector<Engine::VarHandle> vars(1, a.var()), no;

			e->PushSync([&](RunContext) {
				while (!go)
					std::this_thread::yield();
				over = true;
			}, Context::CPU(), writes ? no : vars, writes ? vars : no);
			if (!writes && !to_write)
				a.WaitToRead();
			EXPECT(!over);
			std::thread t([&] {
				std::this_thread::sleep_for(std::chrono::milliseconds(3));
				go = true;
			});
			if (to_write)
				a.WaitToWrite();
			else
				a.WaitToRead();
			EXPECT(over || (!writes && !to_write));
			t.join();
			a.WaitToWrite();
		}
	}
	for (int to_write = 0; to_write < 2; to_write++) {
		e->PushSync([](RunContext) { throw Odd(); }, Context::CPU(), {}, { a.var() });
		if (to_write)
			THROWS(Odd, "an odd failure", a.WaitToWrite());
		else
			THROWS(Odd, "an odd failure", a.WaitToRead());
		a.WaitToWrite();
		a.WaitToRead();
	}
}

/* In the order of their priorities, behind what writes the source. */
MX_TEST(arrays_are_copied_with_a_priority)
{
	NDArray a({ 2 }, Context::CPU()), b({ 2 }, Context::CPU()), c({ 2 }, Context::CPU());
	NDArray far({ 2 }, Context::CPU(3)), longer({ 3 }, Context::CPU());
	std::atomic<bool> go(false), busy(false);
	std::atomic<int> n(0);
	int at_b = 0, at_c = 0;
	Engine *e = Engine::Get();

	Fill(a, { 1, 2 });
	e->PushSync([&](RunContext) {
		busy = true;
		while (!go)
			std::this_thread::yield();
	}, Context::CPU(), {}, {});
	EXPECT(Soon([&] { return busy == true; }));
	CopyFromTo(a, b, -5);
	CopyFromTo(a, c, 5);
	e->PushSync([&](RunContext) { at_b = ++n; }, Context::CPU(), {}, { b.var() },
		    mxnet::FnProperty::kNormal, 9);
	e->PushSync([&](RunContext) { at_c = ++n; }, Context::CPU(), {}, { c.var() },
		    mxnet::FnProperty::kNormal, 9);
	go = true;
	e->WaitForAll();
	/* MXNet's normal queue, where these run, ignores priorities */
	EXPECT(at_b == 1 && at_c == 2);
	CopyFromTo(c, far);
	for (const NDArray &nd : { b, c, far })
		EXPECT(Values(nd, 2) == std::vector<float>({ 1, 2 }));
	EXPECT(b.version() == 2 && c.version() == 2 && far.version() == 1 && a.version() == 1);
	THROWS(dmlc::Error, "shapes are not the same", CopyFromTo(a, longer));
	THROWS(dmlc::Error, "none", CopyFromTo(NDArray(), longer));
	THROWS(dmlc::Error, "none", CopyFromTo(longer, NDArray()));
}

/* --- resources --- */

static std::vector<uint64_t> Numbers(const Resource &r)
{
	std::vector<uint64_t> got;

	Engine::Get()->PushSync([&](RunContext) {
		for (int i = 0; i < 3; i++)
			got.push_back(r.random());
	}, Context::CPU(), {}, { r.var });
	Engine::Get()->WaitForAll();
	return got;
}

MX_TEST(a_resource_is_that_of_the_c_interface)
{
	ResourceManager *m = ResourceManager::Get();
	const ResourceRequest::Type types[] = { ResourceRequest::kRandom, ResourceRequest::kParallelRandom };
	const pawl_mx_context ctx = { PAWL_MX_CPU, 5 };
	pawl_mx_resource raw;
	Resource none;

	EXPECT(m && m == ResourceManager::Get());
	EXPECT(!none.var && !none.id && !none.ptr_ && none.req.type == ResourceRequest::kRandom);
	EXPECT(ResourceRequest().type == ResourceRequest::kRandom);
	for (ResourceRequest::Type type : types) {
		Resource r = m->Request(Context::CPU(5), type), other = m->Request(Context::CPU(6), type);

		EXPECT(!pawl_mx_resource_get(ctx, type, &raw));
		EXPECT(r.req.type == type && r.id == raw.id && r.ptr_ == raw.ptr);
		EXPECT(reinterpret_cast<pawl_mx_var *>(r.var) == raw.var && r.var != other.var);
	}
	THROWS(dmlc::Error, "GPU", m->Request(Context::GPU(0), ResourceRequest::kTempSpace));
}

MX_TEST(a_space_is_aligned_and_its_lack_throws)
{
	Resource r = ResourceManager::Get()->Request(Context::CPU(), ResourceRequest::kTempSpace);
	Resource next = ResourceManager::Get()->Request(Context::CPU(), ResourceRequest::kTempSpace);
	void *p = r.get_space_internal(1000);

	EXPECT(r.req.type == ResourceRequest::kTempSpace && r.var != next.var && r.id != next.id);
	EXPECT(p && !(reinterpret_cast<uintptr_t>(p) & 63));
	std::memset(p, 1, 1000);
	EXPECT(r.get_space_internal(1000) == p && r.get_host_space_internal(8) == p);
	EXPECT(next.get_host_space_internal(8) != p);
	THROWS(dmlc::Error, "temporary space of", r.get_space_internal(SIZE_MAX));
	THROWS(dmlc::Error, "temporary space of", r.get_host_space_internal(SIZE_MAX));
}

/* A seed is for all contexts or for one. */
MX_TEST(seeds_are_set_for_all_contexts_or_one)
{
	ResourceManager *m = ResourceManager::Get();
	Resource a = m->Request(Context::CPU(1), ResourceRequest::kRandom);
	Resource b = m->Request(Context::CPU(2), ResourceRequest::kRandom);

	m->SeedRandom(7);
	const std::vector<uint64_t> first = Numbers(a), of_b = Numbers(b);

	EXPECT(first != of_b && Numbers(a) != first);
	m->SeedRandom(7);
	EXPECT(Numbers(a) == first && Numbers(b) == of_b);
	m->SeedRandom(8);
	EXPECT(Numbers(a) != first && Numbers(b) != of_b);
	/* with a context named, its id does not count, and the others stay */
	m->SeedRandom(7);
	m->SeedRandom(Context::CPU(1), 3000000000u);
	const std::vector<uint64_t> named = Numbers(a);

	EXPECT(Numbers(b) == of_b && named != first);
	m->SeedRandom(Context::CPU(2), 3000000000u);
	EXPECT(Numbers(b) == named);
	EXPECT(!MXRandomSeedContext(static_cast<int>(3000000000u), PAWL_MX_CPU, 1));
	EXPECT(Numbers(a) == named);
	THROWS(dmlc::Error, "GPU", m->SeedRandom(Context::GPU(0), 1));
}

int main(int argc, char **argv)
{
	return MxMain(argc, argv);
}
