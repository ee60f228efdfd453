// SPDX-License-Identifier: Apache-2.0
/*
 * device/cuda_abi.h agrees with CUDA's own headers, if they are installed: otherwise this file
 * does not compile.
 */
#include <cuda_runtime_api.h>
#include <device/cuda_abi.h>

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)

SAME(CU_SUCCESS, cudaSuccess);
SAME(CU_INVALID_VALUE, cudaErrorInvalidValue);
SAME(CU_MEMORY_ALLOCATION, cudaErrorMemoryAllocation);
SAME(CU_INITIALIZATION, cudaErrorInitializationError);
SAME(CU_UNLOADING, cudaErrorCudartUnloading);
SAME(CU_INSUFFICIENT_DRIVER, cudaErrorInsufficientDriver);
SAME(CU_DEVICES_UNAVAILABLE, cudaErrorDevicesUnavailable);
SAME(CU_NO_DEVICE, cudaErrorNoDevice);
SAME(CU_INVALID_DEVICE, cudaErrorInvalidDevice);
SAME(CU_ECC, cudaErrorECCUncorrectable);
SAME(CU_NVLINK, cudaErrorNvlinkUncorrectable);
SAME(CU_INVALID_HANDLE, cudaErrorInvalidResourceHandle);
SAME(CU_NOT_READY, cudaErrorNotReady);
SAME(CU_ILLEGAL_ADDRESS, cudaErrorIllegalAddress);
SAME(CU_LAUNCH_TIMEOUT, cudaErrorLaunchTimeout);
SAME(CU_ASSERT, cudaErrorAssert);
SAME(CU_HARDWARE_STACK, cudaErrorHardwareStackError);
SAME(CU_ILLEGAL_INSTRUCTION, cudaErrorIllegalInstruction);
SAME(CU_MISALIGNED_ADDRESS, cudaErrorMisalignedAddress);
SAME(CU_INVALID_ADDRESS_SPACE, cudaErrorInvalidAddressSpace);
SAME(CU_INVALID_PC, cudaErrorInvalidPc);
SAME(CU_LAUNCH_FAILURE, cudaErrorLaunchFailure);
SAME(CU_NOT_SUPPORTED, cudaErrorNotSupported);
SAME(CU_SYSTEM_NOT_READY, cudaErrorSystemNotReady);
SAME(CU_SYSTEM_DRIVER_MISMATCH, cudaErrorSystemDriverMismatch);
SAME(CU_UNKNOWN, cudaErrorUnknown);
SAME(CU_STREAM_NON_BLOCKING, cudaStreamNonBlocking);
SAME(CU_EVENT_DISABLE_TIMING, cudaEventDisableTiming);
SAME(CU_HOST_ALLOC_PORTABLE, cudaHostAllocPortable);
SAME(CU_CAPTURE_THREAD_LOCAL, cudaStreamCaptureModeThreadLocal);
SAME(CU_COPY_H2H, cudaMemcpyHostToHost);
SAME(CU_COPY_H2D, cudaMemcpyHostToDevice);
SAME(CU_COPY_D2H, cudaMemcpyDeviceToHost);
SAME(CU_COPY_D2D, cudaMemcpyDeviceToDevice);
SAME(CU_COPY_DEFAULT, cudaMemcpyDefault);
SAME(CU_ATTR_MULTIPROCESSORS, cudaDevAttrMultiProcessorCount);
SAME(CU_ATTR_MAJOR, cudaDevAttrComputeCapabilityMajor);
SAME(CU_ATTR_MINOR, cudaDevAttrComputeCapabilityMinor);

_Static_assert(sizeof(struct cudaDeviceProp) <= CU_PROPERTIES_BYTES, "properties");
_Static_assert(offsetof(struct cudaDeviceProp, name) == 0, "name");
_Static_assert(sizeof(cudaError_t) == sizeof(int) &&
		       sizeof(enum cudaMemcpyKind) == sizeof(int) &&
		       sizeof(enum cudaStreamCaptureMode) == sizeof(int),
	       "enums");
_Static_assert(sizeof(cudaStream_t) == sizeof(void *) && sizeof(cudaEvent_t) == sizeof(void *) &&
	       sizeof(cudaGraph_t) == sizeof(void *) && sizeof(cudaGraphExec_t) == sizeof(void *) &&
	       sizeof(cudaHostFn_t) == sizeof(void *), "handles");

/* The arguments, as they are passed: handles are pointers, enums int. */
static __attribute__((unused)) void calls(void)
{
	void *p = 0;
	int i = 0;
	size_t n = 0;
	struct cudaDeviceProp prop;
	cudaStream_t s = 0;
	cudaEvent_t ev = 0;
	cudaGraph_t g = 0;
	cudaGraphExec_t x = 0;
	cudaHostFn_t fn = 0;

	(void)sizeof(cudaGetDeviceCount(&i));
	(void)sizeof(cudaGetDeviceProperties(&prop, i));
	(void)sizeof(cudaDeviceGetAttribute(&i, (enum cudaDeviceAttr)i, i));
	(void)sizeof(cudaDeviceGetStreamPriorityRange(&i, &i));
	(void)sizeof(cudaDriverGetVersion(&i));
	(void)sizeof(cudaRuntimeGetVersion(&i));
	(void)sizeof(cudaGetLastError());
	(void)sizeof(cudaSetDevice(i));
	(void)sizeof(cudaGetDevice(&i));
	(void)sizeof(cudaMemGetInfo(&n, &n));
	(void)sizeof(cudaMalloc(&p, n));
	(void)sizeof(cudaFree(p));
	(void)sizeof(cudaHostAlloc(&p, n, 0u));
	(void)sizeof(cudaFreeHost(p));
	(void)sizeof(cudaMallocAsync(&p, n, s));
	(void)sizeof(cudaFreeAsync(p, s));
	(void)sizeof(cudaStreamCreateWithPriority(&s, 0u, i));
	(void)sizeof(cudaStreamDestroy(s));
	(void)sizeof(cudaStreamQuery(s));
	(void)sizeof(cudaStreamSynchronize(s));
	(void)sizeof(cudaStreamWaitEvent(s, ev, 0u));
	(void)sizeof(cudaEventCreateWithFlags(&ev, 0u));
	(void)sizeof(cudaEventDestroy(ev));
	(void)sizeof(cudaEventRecord(ev, s));
	(void)sizeof(cudaEventQuery(ev));
	(void)sizeof(cudaMemcpyAsync(p, p, n, (enum cudaMemcpyKind)i, s));
	(void)sizeof(cudaMemsetAsync(p, i, n, s));
	(void)sizeof(cudaLaunchHostFunc(s, fn, p));
	(void)sizeof(cudaStreamBeginCapture(s, (enum cudaStreamCaptureMode)i));
	(void)sizeof(cudaStreamEndCapture(s, &g));
	(void)sizeof(cudaGraphInstantiateWithFlags(&x, g, 0ull));
	(void)sizeof(cudaGraphLaunch(x, s));
	(void)sizeof(cudaGraphExecDestroy(x));
	(void)sizeof(cudaGraphDestroy(g));
	(void)sizeof(cudaGetErrorString((cudaError_t)i));
}
