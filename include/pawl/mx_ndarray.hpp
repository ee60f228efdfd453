/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pawl/mx_ndarray.hpp - the parts of mxnet::NDArray, Resource and ResourceManager that users of
 * an engine need; C++11, link with -lpawl_mx.
 *
 * An NDArray is dense memory on a CPU context with a var; copies and views share both.  Its
 * address is a valid NDArrayHandle for calls that do not keep it; MXNDArrayFree() is only for
 * handles that the C interface created.
 */
#ifndef PAWL_MX_NDARRAY_HPP
#define PAWL_MX_NDARRAY_HPP

#include <cstdint>
#include <utility>
#include <vector>
#include <pawl/mx_engine.hpp>

namespace mxnet {

typedef std::vector<int64_t> TShape;

class NDArray {
public:
	NDArray() : handle_(nullptr) { Check(MXNDArrayCreateNone(&handle_)); }
	/* An array without elements: only a var and a context. */
	explicit NDArray(Context ctx) : NDArray(std::vector<int64_t>(1, 0), ctx) {}
	NDArray(const std::vector<int64_t> &shape, Context ctx, bool delay_alloc = false, int dtype = 0)
		: handle_(nullptr)
	{
		Check(MXNDArrayCreateEx64(shape.data(), static_cast<int>(shape.size()), ctx.dev_type,
					  ctx.dev_id, delay_alloc, dtype, &handle_));
	}
	NDArray(const NDArray &other) : handle_(nullptr)
	{
		Check(MXShallowCopyNDArray(other.handle_, &handle_));
	}
	NDArray(NDArray &&other) : NDArray() { std::swap(handle_, other.handle_); }
	NDArray &operator=(NDArray other)
	{
		std::swap(handle_, other.handle_);
		return *this;
	}
	~NDArray()
	{
		if (handle_)
			MXNDArrayFree(handle_);
	}

	bool is_none() const { return !var(); }
	Engine::VarHandle var() const
	{
		return reinterpret_cast<Engine::VarHandle>(pawl_mx_nd_var(handle_));
	}
	size_t version() const { return var() ? var()->version() : 0; }
	std::vector<int64_t> shape() const
	{
		const int64_t *p = nullptr;
		int n = 0;

		Check(MXNDArrayGetShapeEx64(handle_, &n, &p));
		return n > 0 ? std::vector<int64_t>(p, p + n) : std::vector<int64_t>();
	}
	Context ctx() const
	{
		int type = 0, id = 0;

		Check(MXNDArrayGetContext(handle_, &type, &id));
		return Context::Create(static_cast<Context::DeviceType>(type), id);
	}
	int dtype() const
	{
		int type = 0;

		Check(MXNDArrayGetDType(handle_, &type));
		return type;
	}
	/* For bodies that have the var, or after a wait. */
	template <typename DType>
	DType *dptr() const
	{
		void *p = nullptr;

		Check(MXNDArrayGetData(handle_, &p));
		return static_cast<DType *>(p);
	}
	void WaitToRead() const { Wait(&Engine::WaitForVar); }
	void WaitToWrite() const
	{
		void *exception = nullptr;

		if (is_none())
			return;
		const int rc = pawl_mx_wait_write(pawl_mx_engine_get(), pawl_mx_nd_var(handle_), &exception);

		if (rc)
			engine::detail::Raise(exception);
	}
	void SyncCopyFromCPU(const void *data, size_t size) const
	{
		Check(MXNDArraySyncCopyFromCPU(handle_, data, size));
	}
	void SyncCopyToCPU(void *data, size_t size) const
	{
		Check(MXNDArraySyncCopyToCPU(handle_, data, size));
	}
	NDArray Slice(int64_t begin, int64_t end) const
	{
		NDArrayHandle h = nullptr;

		Check(MXNDArraySlice64(handle_, begin, end, &h));
		return NDArray(h);
	}
	NDArray At(int64_t idx) const
	{
		NDArrayHandle h = nullptr;

		Check(MXNDArrayAt64(handle_, idx, &h));
		return NDArray(h);
	}

	friend void CopyFromTo(const NDArray &from, const NDArray &to, int priority);

private:
	explicit NDArray(NDArrayHandle h) : handle_(h) {}
	static void Check(int rc)
	{
		if (rc)
			engine::detail::Raise(nullptr);
	}
	void Wait(void (Engine::*wait)(Engine::VarHandle)) const
	{
		if (!is_none())
			(Engine::Get()->*wait)(var());
	}

	/* Must be the only member, since the address of an NDArray is also a handle. */
	NDArrayHandle handle_;
};

/* Asynchronous; on a copy queue if the contexts differ. */
inline void CopyFromTo(const NDArray &from, const NDArray &to, int priority = 0)
{
	NDArray::Check(pawl_mx_nd_copy(from.handle_, to.handle_, priority));
}

struct ResourceRequest {
	enum Type {
		kRandom = PAWL_MX_RANDOM,
		kTempSpace = PAWL_MX_TEMP_SPACE,
		kParallelRandom = PAWL_MX_PARALLEL_RANDOM,
	};
	Type type;
	ResourceRequest() : type(kRandom) {}
	ResourceRequest(Type t) : type(t) {}
};

/* An op that uses a resource must name its var among those that it mutates. */
struct Resource {
	ResourceRequest req;
	engine::VarHandle var;
	int32_t id;
	void *ptr_;

	Resource() : var(nullptr), id(0), ptr_(nullptr) {}
	/* For the op's body: at least size bytes; old contents may be lost. */
	void *get_space_internal(size_t size) const
	{
		pawl_mx_resource r = Raw();
		void *p = pawl_mx_resource_space(&r, size);

		if (!p)
			engine::detail::Raise(nullptr);
		return p;
	}
	void *get_host_space_internal(size_t size) const { return get_space_internal(size); }
	/* For the op's body: the next 64 random bits. */
	uint64_t random() const
	{
		pawl_mx_resource r = Raw();

		return pawl_mx_resource_random(&r);
	}

private:
	pawl_mx_resource Raw() const
	{
		pawl_mx_resource r;

		r.type = req.type;
		r.id = id;
		r.var = reinterpret_cast<pawl_mx_var *>(var);
		r.ptr = ptr_;
		return r;
	}
};

class ResourceManager {
public:
	Resource Request(Context ctx, const ResourceRequest &req)
	{
		pawl_mx_context c;
		pawl_mx_resource r;
		Resource out;

		c.dev_type = ctx.dev_type;
		c.dev_id = ctx.dev_id;
		if (pawl_mx_resource_get(c, req.type, &r))
			engine::detail::Raise(nullptr);
		out.req = req;
		out.var = reinterpret_cast<engine::VarHandle>(r.var);
		out.id = r.id;
		out.ptr_ = r.ptr;
		return out;
	}
	void SeedRandom(uint32_t seed) { Check(MXRandomSeed(static_cast<int>(seed))); }
	void SeedRandom(Context ctx, uint32_t seed)
	{
		Check(MXRandomSeedContext(static_cast<int>(seed), ctx.dev_type, ctx.dev_id));
	}
	static ResourceManager *Get()
	{
		static ResourceManager manager;

		return &manager;
	}

private:
	static void Check(int rc)
	{
		if (rc)
			engine::detail::Raise(nullptr);
	}
};

}

#endif
