// SPDX-License-Identifier: Apache-2.0
/*
 * The environment variables of MXNet, with MXNet's defaults.  Only compat reads them, when an
 * engine is created.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include <compat/engine.h>

#define WORKERS_MAX	256

/* Set *out to the variable, or to def if that is unset or empty, as MXNet does. */
int mx_env_int(const char *name, int def, int *out)
{
	const char *s = getenv(name);
	const char *blank = " \t\n\v\f\r";
	char *end;
	long v;

	*out = def;
	if (!s || !*s)
		return 0;
	errno = 0;
	v = strtol(s, &end, 10);
	if (end == s || end[strspn(end, blank)] || errno || v != (int)v)
		return mx_err(-EINVAL, "%s is '%s', not a whole number", name, s);
	*out = (int)v;
	return 0;
}

static int env_bool(const char *name, bool *out)
{
	const char *s = getenv(name);

	*out = s && (!strcasecmp(s, "true") || !strcmp(s, "1"));
	if (!s || !*s || *out || !strcasecmp(s, "false") || !strcmp(s, "0"))
		return 0;
	return mx_err(-EINVAL, "%s is '%s', not 0, 1, true or false", name, s);
}

static int env_workers(const char *name, int def, int *out)
{
	int rc = mx_env_int(name, def, out);

	if (!rc && *out < 1)
		return mx_err(-EINVAL, "%s is %d, not a number of threads", name, *out);
	if (*out > WORKERS_MAX)
		*out = WORKERS_MAX;
	return rc;
}

int mx_env_kind(int *kind)
{
	static const struct { const char *name; int kind; } types[] = {
		{ "NaiveEngine", PAWL_MX_NAIVE },
		{ "ThreadedEngine", PAWL_MX_POOLED },
		{ "ThreadedEnginePerDevice", PAWL_MX_PER_DEVICE },
	};
	const char *s = getenv("MXNET_ENGINE_TYPE");
	size_t i;

	*kind = PAWL_MX_PER_DEVICE;
	if (!s)
		return 0;
	for (i = 0; i < ARRAY_SIZE(types); i++) {
		if (strcmp(s, types[i].name))
			continue;
		*kind = types[i].kind;
		return 0;
	}
	return mx_err(-EINVAL, "unknown engine type '%s' (MXNET_ENGINE_TYPE)", s);
}

/* MXNet's recommended number of OpenMP threads per CPU worker; 0 if the user has set it. */
static int env_omp(int *threads)
{
	int procs = (int)sysconf(_SC_NPROCESSORS_ONLN), rc;

	*threads = 0;
	if (getenv("OMP_NUM_THREADS"))
		return 0;
#if defined(__x86_64__) || defined(__i386__)
	procs /= 2;	/* hyper-threads */
#endif
	rc = mx_env_int("MXNET_OMP_MAX_THREADS", procs, threads);
	if (*threads < 1)
		*threads = 1;
	return rc;
}

/* PAWL_MX_GPUS: the number of CUDA devices to use. */
static int env_gpus(int *gpus)
{
	int rc = mx_env_int("PAWL_MX_GPUS", 0, gpus);

	if (!rc && (*gpus < 0 || *gpus > MX_GPUS))
		return mx_err(-EINVAL, "PAWL_MX_GPUS is %d, not a number in 0..%d", *gpus, MX_GPUS);
	return rc;
}

int mx_env_read(struct mx_env *env)
{
	int rc = env_gpus(&env->gpus), unused;

	rc = rc ?: env_workers("MXNET_CPU_WORKER_NTHREADS", 1, &env->cpu_workers);
	rc = rc ?: env_workers("MXNET_CPU_PRIORITY_NTHREADS", 4, &env->cpu_priority_workers);
	rc = rc ?: env_workers("MXNET_GPU_COPY_NTHREADS", 2, &env->copy_workers);
	/* MXNet reads it on CPUs, too, and refuses what is no number. */
	rc = rc ?: mx_env_int("MXNET_GPU_WORKER_NTHREADS", 2, &unused);
	rc = rc ?: env_workers("MXNET_MP_WORKER_NTHREADS", 1, &env->mp_workers);
	rc = rc ?: env_omp(&env->omp_threads);
	rc = rc ?: env_bool("MXNET_ENGINE_INFO", &env->info);
	rc = rc ?: mx_env_int("MXNET_PROFILER_AUTOSTART", 0, &env->profile);
	return rc ?: mx_env_int("PAWL_MXNET_SPIN_NS", -1, &env->spin_ns);
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
