// SPDX-License-Identifier: Apache-2.0
/*
 * Devices, measured: each figure beside plain CUDA code that does the same, in the same
 * run.  Built and run by gpu.sh.  The last column says what is aimed at; the program's
 * status says only whether everything ran and every result was right.
 *
 *   issue     host time per op of a chain of empty kernels over one var: of the pushing
 *             thread, and of all threads; plain: of the thread that launches
 *   chain     time per op of that chain, against the same kernels in one stream, and
 *             against a synchronize after each (MXNet 1.9.1's way)
 *   overlap   upload, compute and download of independent pieces, against the slowest alone;
 *             plain: three streams and events
 *   graph     a captured graph of 20 kernels, against cudaGraphLaunch()
 */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <time.h>
#include <cuda_runtime.h>
#include <pawl/device.h>

#define CU(call)								\
	do {									\
		cudaError_t e_ = (call);					\
		if (e_ != cudaSuccess) {					\
			fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(e_)); \
			exit(1);						\
		}								\
	} while (0)
#define OK(call)								\
	do {									\
		if (call) {							\
			fprintf(stderr, "%s: %s\n", #call, pawl_error_text());	\
			exit(1);						\
		}								\
	} while (0)

static const pawl_device gpu = { PAWL_CUDA, 0 };
static pawl_engine *e;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec * 1e-9;
}

/* Of all threads of the process. */
static double cpu(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return ts.tv_sec + ts.tv_nsec * 1e-9;
}

__global__ void empty(void)
{
}

/* Arithmetic on the whole device: two of these do not run beside each other for long. */
__global__ void spin(float *x, int rounds)
{
	int at = blockIdx.x * blockDim.x + threadIdx.x;
	float v = x[at];

	for (int i = 0; i < rounds; i++)
		v = v * 1.0001f + 0.5f;
	x[at] = v;
}

__global__ void add(unsigned int *x)
{
	atomicAdd(x, 1u);
}

static int launched(pawl_run *run)
{
	cudaError_t rc = cudaGetLastError();

	return rc == cudaSuccess ? 0 : pawl_fail(run, -5, "%s", cudaGetErrorString(rc));
}

static int empty_body(pawl_run *run, void *)
{
	empty<<<1, 1, 0, (cudaStream_t)run->stream>>>();
	return launched(run);
}

static pawl_op op_on(pawl_fn fn, void *arg, const pawl_var_t *w, uint16_t prop)
{
	pawl_op op = {};

	op.size = sizeof(op);
	op.fn = fn;
	op.arg = arg;
	op.writes = w;
	op.nwrites = 1;
	op.prop = prop;
	op.device = gpu;
	return op;
}

static double middle(std::vector<double> t)
{
	std::sort(t.begin(), t.end());
	return t[t.size() / 2];
}

template <typename F> static double median(int times, F f)
{
	std::vector<double> t;

	for (int i = 0; i < times; i++) {
		double a = now();

		f();
		t.push_back(now() - a);
	}
	return middle(t);
}

static void chain(void)
{
	const int n = 10000;
	cudaStream_t s;
	pawl_var_t v;
	std::vector<double> pushed, worked, launch;

	CU(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	OK(pawl_var_create(e, &v));
	pawl_op op = op_on(empty_body, NULL, &v, PAWL_NORMAL);
	double ours = median(9, [&] {
		double a = now(), c = cpu();

		for (int i = 0; i < n; i++)
			OK(pawl_push(e, &op));
		pushed.push_back(now() - a);
		OK(pawl_wait_readable(e, v, -1, NULL));
		worked.push_back(cpu() - c);
	});
	double plain = median(9, [&] {
		double a = now();

		for (int i = 0; i < n; i++)
			empty<<<1, 1, 0, s>>>();
		CU(cudaGetLastError());
		launch.push_back(now() - a);
		CU(cudaStreamSynchronize(s));
	});
	double sync = median(5, [&] {
		for (int i = 0; i < n; i++) {
			empty<<<1, 1, 0, s>>>();
			CU(cudaStreamSynchronize(s));
		}
	});
	printf("issue    %8.0f ns of the pushing thread per op, %.0f ns of all threads; plain launch "
	       "%.0f ns\n", middle(pushed) / n * 1e9, middle(worked) / n * 1e9,
	       middle(launch) / n * 1e9);
	printf("chain    %8.0f ns per op, plain stream %.0f ns: ratio %.3f (aim: at most 1.2)\n",
	       ours / n * 1e9, plain / n * 1e9, ours / plain);
	printf("chain    against a synchronize per op, %.0f ns: %.2f times as fast (aim: at least 5)\n",
	       sync / n * 1e9, sync / ours);
	OK(pawl_var_delete(e, v, NULL, NULL));
	CU(cudaStreamDestroy(s));
}

/* --- overlap --- */

struct piece {
	float *host_in, *host_out, *in, *out;
	int rounds;
};

static const size_t PIECE = 4u << 20;
static int blocks;		/* of spin(): no more threads than a piece has floats */

static int up_body(pawl_run *run, void *arg)
{
	piece *p = (piece *)arg;

	return pawl_run_copy(run, p->in, p->host_in, PIECE, PAWL_HOST_TO_DEVICE);
}

static int spin_body(pawl_run *run, void *arg)
{
	piece *p = (piece *)arg;

	spin<<<blocks, 256, 0, (cudaStream_t)run->stream>>>(p->in, p->rounds);
	return launched(run);
}

static int down_body(pawl_run *run, void *arg)
{
	piece *p = (piece *)arg;

	return pawl_run_copy(run, p->host_out, p->out, PIECE, PAWL_DEVICE_TO_HOST);
}

static void overlap(void)
{
	const int n = 64;	/* so that the first piece up and the last one down do not count */
	std::vector<piece> p(n);
	std::vector<pawl_var_t> in(n), out(n);

	for (int i = 0; i < n; i++) {
		OK(pawl_host_alloc(e, gpu, PIECE, (void **)&p[i].host_in));
		OK(pawl_host_alloc(e, gpu, PIECE, (void **)&p[i].host_out));
		OK(pawl_device_alloc(e, gpu, PIECE, (void **)&p[i].in));
		OK(pawl_device_alloc(e, gpu, PIECE, (void **)&p[i].out));
		p[i].rounds = 1000;
		OK(pawl_var_create(e, &in[i]));
		OK(pawl_var_create(e, &out[i]));
	}
	auto part = [&](pawl_fn fn, uint16_t prop, std::vector<pawl_var_t> &v) {
		for (int i = 0; i < n; i++) {
			pawl_op op = op_on(fn, &p[i], &v[i], prop);

			OK(pawl_push(e, &op));
		}
	};
	auto all = [&] { OK(pawl_wait_all(e, -1, NULL)); };
	/* Computing is made as long as the upload. */
	double up = median(5, [&] { part(up_body, PAWL_COPY_TO_DEVICE, in); all(); });
	double down = median(5, [&] { part(down_body, PAWL_COPY_FROM_DEVICE, out); all(); });
	double comp = median(5, [&] { part(spin_body, PAWL_NORMAL, in); all(); });
	for (int i = 0; i < n; i++)
		p[i].rounds = std::max(1, (int)(p[i].rounds * up / comp));
	comp = median(5, [&] { part(spin_body, PAWL_NORMAL, in); all(); });
	double together = median(5, [&] {
		part(up_body, PAWL_COPY_TO_DEVICE, in);
		part(down_body, PAWL_COPY_FROM_DEVICE, out);
		part(spin_body, PAWL_NORMAL, in);
		all();
	});
	/* The same by hand. */
	cudaStream_t s[3];
	std::vector<cudaEvent_t> ev(n);
	for (int i = 0; i < 3; i++)
		CU(cudaStreamCreateWithFlags(&s[i], cudaStreamNonBlocking));
	for (int i = 0; i < n; i++)
		CU(cudaEventCreateWithFlags(&ev[i], cudaEventDisableTiming));
	double plain = median(5, [&] {
		for (int i = 0; i < n; i++) {
			CU(cudaMemcpyAsync(p[i].in, p[i].host_in, PIECE, cudaMemcpyHostToDevice, s[0]));
			CU(cudaEventRecord(ev[i], s[0]));
			CU(cudaMemcpyAsync(p[i].host_out, p[i].out, PIECE, cudaMemcpyDeviceToHost, s[2]));
			CU(cudaStreamWaitEvent(s[1], ev[i], 0));
			spin<<<blocks, 256, 0, s[1]>>>(p[i].in, p[i].rounds);
		}
		CU(cudaGetLastError());
		for (int i = 0; i < 3; i++)
			CU(cudaStreamSynchronize(s[i]));
	});
	double slowest = std::max(up, std::max(down, comp));
	printf("overlap  plain streams and events %.2f ms together: %.3f of the slowest's rate\n",
	       plain * 1e3, slowest / plain);
	printf("overlap  up %.2f ms, compute %.2f ms, down %.2f ms; together %.2f ms: %.3f of the "
	       "slowest's rate (aim: at least 0.9)\n", up * 1e3, comp * 1e3, down * 1e3,
	       together * 1e3, slowest / together);
	for (int i = 0; i < n; i++) {
		OK(pawl_host_free(e, gpu, p[i].host_in));
		OK(pawl_host_free(e, gpu, p[i].host_out));
		OK(pawl_device_free(e, gpu, p[i].in));
		OK(pawl_device_free(e, gpu, p[i].out));
		OK(pawl_var_delete(e, in[i], NULL, NULL));
		OK(pawl_var_delete(e, out[i], NULL, NULL));
		CU(cudaEventDestroy(ev[i]));
	}
	for (int i = 0; i < 3; i++)
		CU(cudaStreamDestroy(s[i]));
}

/* --- graph --- */

static int add_body(pawl_run *run, void *arg)
{
	add<<<1, 1, 0, (cudaStream_t)run->stream>>>((unsigned int *)arg);
	return launched(run);
}

static void graph(void)
{
	const int kernels = 20, n = 2000;
	unsigned int *x, have = 0, *y;
	std::vector<pawl_op> ops;
	cudaGraphExec_t exec;
	pawl_graph_t oper;
	cudaGraph_t g;
	cudaStream_t s;
	pawl_var_t v;
	int runs = 0;

	CU(cudaMalloc(&x, 4));
	CU(cudaMalloc(&y, 4));
	CU(cudaMemset(x, 0, 4));
	CU(cudaMemset(y, 0, 4));
	/* Other streams do not wait for that. */
	CU(cudaDeviceSynchronize());
	OK(pawl_var_create(e, &v));
	for (int i = 0; i < kernels; i++)
		ops.push_back(op_on(add_body, x, &v, PAWL_NORMAL));
	OK(pawl_graph_create(e, ops.data(), ops.size(), PAWL_GRAPH_CAPTURE, &oper));
	auto ours_run = [&](int times) {
		for (int i = 0; i < times; i++, runs++)
			OK(pawl_graph_push(e, oper, NULL));
		OK(pawl_wait_readable(e, v, -1, NULL));
	};
	ours_run(4);
	double ours = median(9, [&] { ours_run(n); });
	CU(cudaMemcpy(&have, x, 4, cudaMemcpyDeviceToHost));
	if (have != (unsigned int)(runs * kernels)) {
		fprintf(stderr, "graph: %u kernels ran, not %d\n", have, runs * kernels);
		exit(1);
	}
	CU(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	CU(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
	for (int i = 0; i < kernels; i++)
		add<<<1, 1, 0, s>>>(y);
	CU(cudaStreamEndCapture(s, &g));
	CU(cudaGraphInstantiateWithFlags(&exec, g, 0));
	auto plain_run = [&] {
		for (int i = 0; i < n; i++)
			CU(cudaGraphLaunch(exec, s));
		CU(cudaStreamSynchronize(s));
	};
	plain_run();
	double plain = median(9, plain_run);
	CU(cudaMemcpy(&have, y, 4, cudaMemcpyDeviceToHost));
	if (have != (unsigned int)(10 * n * kernels)) {
		fprintf(stderr, "graph: %u kernels ran plainly, not %d\n", have, 10 * n * kernels);
		exit(1);
	}
	printf("graph    %8.0f ns per replay, cudaGraphLaunch %.0f ns: ratio %.3f (aim: at most 1.1)\n",
	       ours / n * 1e9, plain / n * 1e9, ours / plain);
	OK(pawl_graph_delete(e, oper));
	OK(pawl_var_delete(e, v, NULL, NULL));
	CU(cudaGraphExecDestroy(exec));
	CU(cudaGraphDestroy(g));
	CU(cudaStreamDestroy(s));
	CU(cudaFree(x));
	CU(cudaFree(y));
}

int main(void)
{
	struct pawl_device_info info = {};
	pawl_config cfg;

	info.size = sizeof(info);
	OK(pawl_device_count(PAWL_CUDA) < 1);
	OK(pawl_device_info(gpu, &info));
	printf("device   %s, compute %d.%d, %d multiprocessors, driver %d, runtime %d\n", info.name,
	       info.major, info.minor, info.units, info.driver, info.runtime);
	blocks = std::min(8 * info.units, (int)(PIECE / sizeof(float) / 256));
	pawl_config_init(&cfg);
	cfg.devices = &gpu;
	cfg.ndevices = 1;
	OK(pawl_engine_create(&cfg, &e));
	CU(cudaSetDevice(0));
	chain();
	overlap();
	graph();
	OK(pawl_engine_destroy(e));
	return 0;
}
