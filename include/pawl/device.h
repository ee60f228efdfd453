/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pawl/device.h - devices with their own streams: CUDA.
 *
 * An engine has the devices that its configuration names (config.devices).  The body of an
 * op on a device queues work on run->stream and returns; the device completes that work
 * later.  For its successors on devices the op counts as complete once its work is queued:
 * the engine makes their streams wait where needed, and no host thread waits.  Ops on CPUs,
 * and waits, begin only when the work on the data that they name is complete.
 *
 * Rules for a body on a device:
 *   - It must not use host memory that may be freed before its work is complete.  release()
 *     is called when the body has returned; free the buffer of a var by deleting the var.
 *   - It must not wait for its stream.
 *   - While it runs it has exclusive use of the stream, and the device is current on its
 *     thread.
 *
 * A device whose work failed (for example by an invalid access in a kernel) is lost: later
 * ops on it, and ops and waits on data that it was working on, fail with -ENOTRECOVERABLE
 * and a text that says what happened.
 *
 * This file follows the life of a program: find devices, allocate memory, queue work in
 * bodies, free the memory behind a var, lend a stream.  The conventions are those of
 * pawl/engine.h.  In a child of fork() every call fails with -EOWNERDEAD.
 */
#ifndef PAWL_DEVICE_H
#define PAWL_DEVICE_H

#include <pawl/engine.h>

#ifdef __cplusplus
extern "C" {
#endif

enum pawl_copy_dir {
	PAWL_HOST_TO_DEVICE = 0,
	PAWL_DEVICE_TO_HOST = 1,
	PAWL_DEVICE_TO_DEVICE = 2,
	PAWL_HOST_TO_HOST = 3,
};

struct pawl_device_info {
	size_t size;
	char name[64];
	uint64_t memory;		/* bytes */
	uint64_t memory_free;
	int major, minor;		/* compute capability, or 0.0 */
	int units;			/* multiprocessors */
	int driver, runtime;		/* versions as CUDA reports them, or 0 */
};

/*
 * Return the number of devices of a kind in this machine, or an error: -ENODEV (no driver or
 * no library), -ENOSYS (built without support).  The first call loads the driver's library.
 * Progress: blocking, as the driver.
 */
PAWL_API int pawl_device_count(int kind);
/*
 * Describe a device in *out; the caller sets out->size.  Errors: -ENODEV, -ENOSYS, -EINVAL.
 * Progress: blocking, as the driver.
 */
PAWL_TAG_BEGIN
PAWL_API int pawl_device_info(struct pawl_device device, struct pawl_device_info *out);
PAWL_TAG_END

/*
 * Allocate and free memory of one of the engine's devices, and pinned host memory, which
 * the device copies from and to by itself.  Errors: -ENOMEM, -ENODEV.
 * Progress: blocking.  The driver may wait for the device, so use pawl_run_alloc() in a body.
 */
PAWL_API int pawl_device_alloc(struct pawl_engine *e, struct pawl_device device, size_t bytes,
			       void **out);
PAWL_API int pawl_device_free(struct pawl_engine *e, struct pawl_device device, void *p);
PAWL_API int pawl_host_alloc(struct pawl_engine *e, struct pawl_device device, size_t bytes,
			     void **out);
PAWL_API int pawl_host_free(struct pawl_engine *e, struct pawl_device device, void *p);

/*
 * For bodies: queue work on the op's stream.  On a CPU the work is done before the call
 * returns.  pawl_run_call() calls fn(arg) in stream order on a thread of the driver; fn must
 * neither call the device nor wait.  pawl_run_alloc() returns memory for work that is queued
 * on this stream later; pawl_run_free() frees it when the stream reaches that point.  If one
 * fails, the body should return the error.  Thread: the one that runs the body.
 * Progress: that of the driver.
 */
PAWL_API int pawl_run_copy(struct pawl_run *run, void *to, const void *from, size_t bytes,
			   int dir);
PAWL_API int pawl_run_set(struct pawl_run *run, void *to, int byte, size_t bytes);
PAWL_API int pawl_run_call(struct pawl_run *run, void (*fn)(void *arg), void *arg);
PAWL_API int pawl_run_alloc(struct pawl_run *run, size_t bytes, void **out);
PAWL_API int pawl_run_free(struct pawl_run *run, void *p);

/*
 * Like pawl_var_delete(), but fn runs on the device as soon as all earlier work on the var
 * is queued on streams.  run->stream is ordered after all of it, so memory that fn frees in
 * the order of that stream is freed after its last use.  Errors: as pawl_push().
 * Progress: lock-free.
 */
PAWL_API int pawl_var_delete_on(struct pawl_engine *e, pawl_var_t v, struct pawl_device device,
				pawl_fn fn, void *arg);

/*
 * Let ops run on a stream of the caller: *out is the op.device that names it.  The caller
 * keeps ownership, and the stream must exist until the engine is destroyed.  Work that the
 * caller queues on it is ordered by the stream only; the engine does not track it.  An engine
 * adopts at most 64 streams; one more fails with -ENOMEM.
 * Progress: blocking, because it allocates.
 */
PAWL_API int pawl_stream_adopt(struct pawl_engine *e, struct pawl_device device, void *stream,
			       struct pawl_device *out);

#ifdef __cplusplus
}
#endif

#endif
