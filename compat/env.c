// SPDX-License-Identifier: Apache-2.0
/*
 * The environment variables of MXNet, with MXNet's defaults.  Only compat reads them, when an
 * engine is created.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>
#include <compat/engine.h>

/* Returns the default if the variable is unset, empty or not a number. */
int mx_env_int(const char *name, int def)
{
	const char *s = getenv(name);
	char *end;
	long v;

	if (!s || !*s)
		return def;
	v = strtol(s, &end, 10);
	if (end == s || v < -1000000000 || v > 1000000000)
		return def;
	return (int)v;
}

static bool mx_env_bool(const char *name, bool def)
{
	const char *s = getenv(name);

	if (!s || !*s)
		return def;
	if (!strcasecmp(s, "true"))
		return true;
	if (!strcasecmp(s, "false"))
		return false;
	return mx_env_int(name, def);
}

static int env_workers(const char *name, int def)
{
	int n = mx_env_int(name, def);

	return n < 1 ? 1 : n > 256 ? 256 : n;
}

static int env_kind(void)
{
	static const struct { const char *name; int kind; } types[] = {
		{ "NaiveEngine", PAWL_MX_NAIVE },
		{ "ThreadedEngine", PAWL_MX_POOLED },
		{ "ThreadedEngineAsync", PAWL_MX_POOLED },
		{ "ThreadedEnginePerDevice", PAWL_MX_PER_DEVICE },
		{ "ThreadedEnginePerDeviceAsync", PAWL_MX_PER_DEVICE },
	};
	const char *s = getenv("MXNET_ENGINE_TYPE");
	size_t i;

	if (!s || !*s)
		return PAWL_MX_PER_DEVICE;
	for (i = 0; i < ARRAY_SIZE(types); i++)
		if (!strcmp(s, types[i].name))
			return types[i].kind;
	return mx_err(-EINVAL, "unknown engine type %s (MXNET_ENGINE_TYPE)", s);
}

/* MXNet's recommended number of OpenMP threads per CPU worker; 0 if the user has set it. */
static int env_omp(void)
{
	int procs = (int)sysconf(_SC_NPROCESSORS_ONLN), n;

	if (getenv("OMP_NUM_THREADS"))
		return 0;
#if defined(__x86_64__) || defined(__i386__)
	procs /= 2;	/* hyper-threads */
#endif
	n = mx_env_int("MXNET_OMP_MAX_THREADS", procs);
	return n < 1 ? 1 : n;
}

/* PAWL_MX_GPUS: the number of CUDA devices to use. */
static int env_gpus(void)
{
	const char *s = getenv("PAWL_MX_GPUS");
	char *end;
	long v;

	if (!s || !*s)
		return 0;
	v = strtol(s, &end, 10);
	if (end == s || *end || v < 0 || v > MX_GPUS)
		return mx_err(-EINVAL, "PAWL_MX_GPUS is %s, not a number in 0..%d", s, MX_GPUS);
	return (int)v;
}

void mx_env_read(struct mx_env *env)
{
	env->gpus = env_gpus();
	env->kind = env_kind();
	env->cpu_workers = env_workers("MXNET_CPU_WORKER_NTHREADS", 1);
	env->cpu_priority_workers = env_workers("MXNET_CPU_PRIORITY_NTHREADS", 4);
	env->copy_workers = env_workers("MXNET_GPU_COPY_NTHREADS", 2);
	env->mp_workers = env_workers("MXNET_MP_WORKER_NTHREADS", 1);
	env->omp_threads = env_omp();
	env->info = mx_env_bool("MXNET_ENGINE_INFO", false);
	env->help = mx_env_bool("PAWL_MXNET_HELP", false);
	env->spin_ns = mx_env_int("PAWL_MXNET_SPIN_NS", -1);
}

/* Set the calling thread's number of OpenMP threads, if the program has an OpenMP library. */
void mx_omp_set(int threads)
{
	void (*set)(int);
	void *sym = dlsym(RTLD_DEFAULT, "omp_set_num_threads");

	memcpy(&set, &sym, sizeof(set));
	if (sym && threads > 0)
		set(threads);
}
