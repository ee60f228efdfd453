/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pawl/device.h - devices with streams of their own: CUDA, and a fake one for tests.
 *
 * An engine has the devices that its configuration names (config.devices).  The body of an
 * op on a device puts work into run->stream and returns; that work is over later.  For ops
 * that come after it on the device the op counts as over then: the engine makes their
 * streams wait where they must, and no thread of the host waits.  Ops on CPUs, and waits,
 * begin when the work on the data that they name is over.
 *
 * So a body on a device
 *   - uses no memory of the host that may go before its work is over (release() is called
 *     when the body is over; delete a var to free what its data lives in);
 *   - does not wait for its stream;
 *   - has its stream for itself while it runs, and the device is current on its thread.
 *
 * A device whose work failed (a kernel that touched what it must not, say) is lost: ops
 * that come later on it, and ops and waits on data that it was working on, fail with
 * -ENOTRECOVERABLE and a text that says what happened.
 *
 * After fork() the child calls nothing of this: -EOWNERDEAD.
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
	int driver, runtime;		/* versions as CUDA gives them, or 0 */
};

/*
 * How many devices of a kind this machine has; negative, and pawl_error_text() says why:
 * -ENODEV (no driver, no library), -ENOSYS (built without).  Loads the driver's library on the
 * first call.  Any thread.  Blocking.
 */
PAWL_API int pawl_device_count(int kind);
/* What it is.  Fill out->size.  -ENODEV, -ENOSYS, -EINVAL.  Any thread.  Blocking. */
PAWL_TAG_BEGIN
PAWL_API int pawl_device_info(struct pawl_device device, struct pawl_device_info *out);
PAWL_TAG_END

/*
 * Memory of a device of the engine, and memory of the host that it can copy from and to
 * without help of the CPU.  -ENOMEM, -ENODEV.  Any thread.  Blocking: the driver may wait
 * for the device; in a body use pawl_run_alloc().
 */
PAWL_API int pawl_device_alloc(struct pawl_engine *e, struct pawl_device device, size_t bytes,
			       void **out);
PAWL_API int pawl_device_free(struct pawl_engine *e, struct pawl_device device, void *p);
PAWL_API int pawl_host_alloc(struct pawl_engine *e, struct pawl_device device, size_t bytes,
			     void **out);
PAWL_API int pawl_host_free(struct pawl_engine *e, struct pawl_device device, void *p);

/*
 * For bodies: put work into the op's stream.  On a CPU it is done before the call returns.
 * call: fn(arg) in the order of the stream, on a thread of the driver; it must not call
 * the device nor wait.  alloc: memory that work put into this stream later may use; free:
 * when the stream gets there.  0 or what went wrong, to be returned by the body.
 */
PAWL_API int pawl_run_copy(struct pawl_run *run, void *to, const void *from, size_t bytes,
			   int dir);
PAWL_API int pawl_run_set(struct pawl_run *run, void *to, int byte, size_t bytes);
PAWL_API int pawl_run_call(struct pawl_run *run, void (*fn)(void *arg), void *arg);
PAWL_API int pawl_run_alloc(struct pawl_run *run, size_t bytes, void **out);
PAWL_API int pawl_run_free(struct pawl_run *run, void *p);

/*
 * As pawl_var_delete(), but fn runs on the device as soon as everything before it is in
 * streams: run->stream is behind all pending work on the var, so what fn frees in the
 * order of that stream is freed after its last use.  Any thread; lock-free.
 */
PAWL_API int pawl_var_delete_on(struct pawl_engine *e, pawl_var_t v, struct pawl_device device,
				pawl_fn fn, void *arg);

/*
 * Let ops run in a stream of the caller's: *out names it as op.device.  The stream stays
 * the caller's and must live until the engine is destroyed; what he puts into it himself
 * is in the order of the stream, and nothing else is known of it.  At most 64 per engine:
 * -ENOMEM.  Any thread.  Blocking: allocates.
 */
PAWL_API int pawl_stream_adopt(struct pawl_engine *e, struct pawl_device device, void *stream,
			       struct pawl_device *out);

#ifdef __cplusplus
}
#endif

#endif
