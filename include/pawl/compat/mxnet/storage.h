/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mxnet/storage.h - memory on CPU contexts, aligned to 64 bytes.  There is no pool: Free() and
 * DirectFree() are the same.  Memory that several processes share, and memory on GPUs, is
 * refused with a dmlc::Error.
 */
#ifndef PAWL_COMPAT_MXNET_STORAGE_H
#define PAWL_COMPAT_MXNET_STORAGE_H

#include <cstdlib>
#include <memory>
#include <new>
#include <pawl/compat/mxnet/base.h>

namespace mxnet {

class Storage {
public:
	struct Handle {
		void *dptr;
		size_t size;
		Context ctx;

		Handle() : dptr(nullptr), size(0) {}
	};

	Handle Alloc(size_t size, Context ctx)
	{
		Handle handle;

		handle.size = size;
		handle.ctx = ctx;
		Alloc(&handle);
		return handle;
	}
	void Alloc(Handle *handle)
	{
		void *p = nullptr;

		if (handle->ctx.dev_mask() != Context::kCPU || handle->ctx.dev_type == Context::kCPUShared)
			throw dmlc::Error("Storage: there is only memory of CPUs, which is not shared");
		if (handle->size && posix_memalign(&p, 64, handle->size))
			throw std::bad_alloc();
		handle->dptr = p;
	}
	void Free(Handle handle) { std::free(handle.dptr); }
	void DirectFree(Handle handle) { std::free(handle.dptr); }
	void ReleaseAll(Context) {}

	static Storage *Get() { return _GetSharedRef().get(); }
	static std::shared_ptr<Storage> _GetSharedRef()
	{
		static std::shared_ptr<Storage> storage = std::make_shared<Storage>();

		return storage;
	}
};

}

#endif
