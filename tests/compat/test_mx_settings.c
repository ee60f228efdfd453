// SPDX-License-Identifier: Apache-2.0
/*
 * The configuration of the engines that libpawl_mx creates, for each kind and environment, also
 * in the child of a fork, and what it does when libpawl refuses to create or to destroy one.
 * Calls of these two functions go through this file (--wrap), as in tests/unit/engines.c.
 */
#include "mx_test.h"
#include <sched.h>
#include <sys/wait.h>

int __real_pawl_engine_create(const struct pawl_config *cfg, struct pawl_engine **out);
int __wrap_pawl_engine_create(const struct pawl_config *cfg, struct pawl_engine **out);
int __real_pawl_engine_destroy(struct pawl_engine *e);
int __wrap_pawl_engine_destroy(struct pawl_engine *e);

/* The last call. */
static struct pawl_config asked;
static struct pawl_device devices[32];
static int creates, destroys;	/* calls */
static int refusals, refusal;	/* so many calls of either are refused, with that errno */
static bool exits;		/* the process, when an engine ends */
static bool small;		/* the engine has one worker, whatever is asked for */
static void (*meanwhile)(void);	/* called once, inside of a call */

static void happens(void)
{
	void (*fn)(void) = meanwhile;

	meanwhile = NULL;
	if (fn)
		fn();
}

static bool refuses(void)
{
	return refusals && refusals--;
}

int __wrap_pawl_engine_create(const struct pawl_config *cfg, struct pawl_engine **out)
{
	struct pawl_config c = *cfg;
	unsigned int i;
	bool refused;

	asked = c;
	for (i = 0; i < c.ndevices && i < 32; i++)
		devices[i] = c.devices[i];
	creates++;
	refused = refuses();
	happens();
	if (refused) {
		if (refusal != -EINVAL)
			return refusal;
		c.kind = 77;	/* with its text */
	}
	/* CUDA need not be there */
	c.ndevices = 0;
	if (small)
		c.workers = c.priority_workers = c.copy_workers = 1;
	return __real_pawl_engine_create(&c, out);
}

int __wrap_pawl_engine_destroy(struct pawl_engine *e)
{
	bool refused = refuses();

	destroys++;
	if (exits)
		_exit(0);
	happens();
	return refused ? refusal : __real_pawl_engine_destroy(e);
}

static void env_clear(void)
{
	static const char *const all[] = {
		"MXNET_ENGINE_TYPE", "MXNET_CPU_WORKER_NTHREADS", "MXNET_CPU_PRIORITY_NTHREADS",
		"MXNET_GPU_COPY_NTHREADS", "MXNET_MP_WORKER_NTHREADS", "PAWL_MX_GPUS",
		"PAWL_MXNET_SPIN_NS", "MXNET_ENGINE_INFO", "MXNET_GPU_WORKER_NTHREADS",
		"MXNET_PROFILER_AUTOSTART",
	};
	size_t i;

	for (i = 0; i < sizeof(all) / sizeof(*all); i++)
		ck_assert(!unsetenv(all[i]));
}

static void env(const char *name, const char *val)
{
	ck_assert(!setenv(name, val, 1));
}

static struct pawl_mx_engine *engine(int kind)
{
	struct pawl_mx_engine *e = NULL;

	OK(pawl_mx_engine_create(kind, &e));
	return e;
}

/* What an engine of that kind has, and then it ends. */
static void asks(int kind)
{
	OK(pawl_mx_engine_free(engine(kind)));
}

/* It runs ops. */
static void works(struct pawl_mx_engine *e)
{
	struct pawl_mx_var *v;
	const struct pawl_mx_op op = { .sync = body, .ctx = cpu, .writes = &v, .nwrites = 1 };

	OK(pawl_mx_var_new(e, &v));
	OK(pawl_mx_push(e, &op, NULL));
	OK(pawl_mx_wait_all(e, NULL));
	ck_assert_uint_eq(pawl_mx_var_version(v), 1);
}

/* --- configurations --- */

/* Those of MXNet, and room for large programs. */
static void is_mxnets(int kind, int workers, int priority_workers, int copy_workers)
{
	struct pawl_config def;

	pawl_config_init(&def);
	ck_assert_uint_eq(asked.size, def.size);
	ck_assert_int_eq(asked.kind, kind);
	ck_assert_int_eq(asked.workers, workers);
	ck_assert_int_eq(asked.priority_workers, priority_workers);
	ck_assert_int_eq(asked.copy_workers, copy_workers);
	ck_assert_uint_eq(asked.max_ops, 960000);
	ck_assert_uint_eq(asked.max_vars, 1u << 26);
	ck_assert_uint_eq(asked.max_threads, 512);
	ck_assert_str_eq(asked.name, "mxnet");
	ck_assert(asked.thread_start && asked.user && asked.drop);
	ck_assert_uint_eq(asked.spin_ns, def.spin_ns ? 60000 : 0);
	/* all else as by default */
	ck_assert(asked.window == def.window && asked.window_policy == def.window_policy);
	ck_assert(!asked.prefault && !asked.start_workers && !asked.thread_stop && !asked.cpus);
	ck_assert(!asked.thread_create && !asked.thread_join && !asked.cpu_list);
	ck_assert(asked.trim_ns == def.trim_ns && asked.stack_size == def.stack_size);
	ck_assert(asked.sched_policy == def.sched_policy);
	ck_assert(asked.device_workers == def.device_workers);
}

START_TEST(test_each_kind_has_the_threads_of_mxnets)
{
	struct pawl_config def;

	env_clear();
	pawl_config_init(&def);
	asks(PAWL_MX_PER_DEVICE);
	is_mxnets(PAWL_PER_DEVICE, 1, 4, 2);
	ck_assert_uint_eq(asked.cpu_devices, 16);
	asks(PAWL_MX_POOLED);
	is_mxnets(PAWL_POOLED, 16, def.priority_workers, 1);
	ck_assert_uint_eq(asked.cpu_devices, 16);
	asks(PAWL_MX_NAIVE);
	ck_assert_int_eq(asked.kind, PAWL_NAIVE);
	/* each number by its own variable */
	env("MXNET_CPU_WORKER_NTHREADS", "3");
	env("MXNET_CPU_PRIORITY_NTHREADS", "5");
	env("MXNET_GPU_COPY_NTHREADS", "6");
	env("MXNET_MP_WORKER_NTHREADS", "7");
	asks(PAWL_MX_PER_DEVICE);
	is_mxnets(PAWL_PER_DEVICE, 3, 5, 6);
	asks(PAWL_MX_POOLED);
	is_mxnets(PAWL_POOLED, 16, def.priority_workers, 1);
	env_clear();
}
END_TEST

/* Up to 16 workers per context each context has its own queue, beyond that all share one. */
START_TEST(test_numbers_of_the_environment)
{
	static const struct { const char *text; int workers; unsigned int cpus; } tries[] = {
		{ "1", 1, 16 }, { "16", 16, 16 }, { "17", 17, 1 }, { " 8", 8, 16 }, { "+8", 8, 16 },
		{ "8 ", 8, 16 }, { "255", 255, 1 }, { "256", 256, 1 }, { "257", 256, 1 },
		{ "2147483647", 256, 1 },
	};
	static const struct { const char *text, *says; } odd[] = {
		{ "x", "is 'x', not a whole number" }, { "x8", "is 'x8', not a whole" },
		{ "8x", "is '8x', not a whole" }, { "2.5", "is '2.5', not a whole" },
		{ "2147483648", "is '2147483648', not a whole" }, { "-", "is '-', not a whole" },
		{ "99999999999999999999", "is '99999999999999999999', not a whole" },
		{ " ", "is ' ', not a whole" }, { "0", "is 0, not a number of threads" },
		{ "-1", "is -1, not a number of threads" },
	};
	static const char *const names[] = {
		"MXNET_CPU_WORKER_NTHREADS", "MXNET_CPU_PRIORITY_NTHREADS", "MXNET_GPU_COPY_NTHREADS",
	};
	const int *const fields[] = { &asked.workers, &asked.priority_workers, &asked.copy_workers };
	static const int defaults[] = { 1, 4, 2 };
	struct pawl_mx_engine *e;
	char text[100];
	size_t i, k;

	env_clear();
	small = true;
	for (k = 0; k < 3; k++) {
		for (i = 0; i < sizeof(tries) / sizeof(*tries); i++) {
			env(names[k], tries[i].text);
			asks(PAWL_MX_PER_DEVICE);
			ck_assert_msg(*fields[k] == tries[i].workers, "%s=%s: %d", names[k],
				      tries[i].text, *fields[k]);
			ck_assert_uint_eq(asked.cpu_devices, k ? 16 : tries[i].cpus);
		}
		env(names[k], "");
		asks(PAWL_MX_PER_DEVICE);
		ck_assert_int_eq(*fields[k], defaults[k]);
		/* what MXNet refuses */
		for (i = 0; i < sizeof(odd) / sizeof(*odd); i++) {
			snprintf(text, sizeof(text), "%s %s", names[k], odd[i].says);
			env(names[k], odd[i].text);
			REFUSED(-EINVAL, pawl_mx_engine_create(PAWL_MX_PER_DEVICE, &e), text);
		}
		env_clear();
	}
	small = false;
}
END_TEST

START_TEST(test_switches_and_times_of_the_environment)
{
	static const struct { const char *name, *text, *says; } odd[] = {
		{ "MXNET_ENGINE_INFO", "no", "is 'no', not 0, 1, true or false" },
		{ "MXNET_ENGINE_INFO", "2", "is '2', not 0, 1, true or false" },
		{ "MXNET_ENGINE_INFO", "truely", "is 'truely', not 0, 1, true or false" },
		{ "PAWL_MXNET_SPIN_NS", "soon", "is 'soon', not a whole number" },
		{ "MXNET_PROFILER_AUTOSTART", "yes", "is 'yes', not a whole number" },
		{ "MXNET_GPU_WORKER_NTHREADS", "x", "is 'x', not a whole number" },
	};
	static const struct { const char *text; long ns; } times[] = {
		{ "0", 0 }, { "5", 5 }, { "1000000000", 1000000000 }, { "-1", -1 }, { "-7", -1 },
		{ "", -1 },
	};
	struct pawl_mx_engine *e;
	struct pawl_config def;
	char text[100];
	cpu_set_t all, one;
	size_t i;

	env_clear();
	pawl_config_init(&def);
	for (i = 0; i < sizeof(times) / sizeof(*times); i++) {
		env("PAWL_MXNET_SPIN_NS", times[i].text);
		asks(PAWL_MX_PER_DEVICE);
		ck_assert_uint_eq(asked.spin_ns, times[i].ns >= 0 ? (uint64_t)times[i].ns :
				  def.spin_ns ? 60000 : 0);
	}
	for (i = 0; i < sizeof(odd) / sizeof(*odd); i++) {
		env_clear();
		env(odd[i].name, odd[i].text);
		snprintf(text, sizeof(text), "%s %s", odd[i].name, odd[i].says);
		REFUSED(-EINVAL, pawl_mx_engine_create(PAWL_MX_PER_DEVICE, &e), text);
		ck_assert_ptr_null(pawl_mx_engine_get());
	}
	/* with one CPU nothing spins, unless it is asked for */
	CPU_ZERO(&one);
	ck_assert(!sched_getaffinity(0, sizeof(all), &all));
	for (i = 0; !CPU_ISSET(i, &all); i++)
		;
	CPU_SET(i, &one);
	ck_assert(!sched_setaffinity(0, sizeof(one), &one));
	env_clear();
	asks(PAWL_MX_PER_DEVICE);
	ck_assert_uint_eq(asked.spin_ns, 0);
	env("PAWL_MXNET_SPIN_NS", "7");
	asks(PAWL_MX_PER_DEVICE);
	ck_assert_uint_eq(asked.spin_ns, 7);
	ck_assert(!sched_setaffinity(0, sizeof(all), &all));
	env_clear();
}
END_TEST

START_TEST(test_types_of_the_environment)
{
	static const struct { const char *name; int kind; } types[] = {
		{ "NaiveEngine", PAWL_MX_NAIVE },
		{ "ThreadedEngine", PAWL_MX_POOLED },
		{ "ThreadedEnginePerDevice", PAWL_MX_PER_DEVICE },
	};
	static const char *const odd[] = {
		"", "Naive", "naiveengine", "ThreadedEngine2", "ThreadedEngineAsync", "ThreadedEnginePerDevices", " NaiveEngine",
	};
	struct pawl_mx_engine *e;
	char text[100];
	size_t i;

	env_clear();
	OK(pawl_mx_engine_free(pawl_mx_engine_get()));
	for (i = 0; i < sizeof(types) / sizeof(*types); i++) {
		env("MXNET_ENGINE_TYPE", types[i].name);
		e = pawl_mx_engine_get();
		ck_assert_ptr_nonnull(e);
		ck_assert_ptr_eq(pawl_mx_engine_get(), e);
		ck_assert_int_eq(pawl_mx_engine_kind(e), types[i].kind);
		works(e);
		OK(pawl_mx_engine_free(e));
	}
	for (i = 0; i < sizeof(odd) / sizeof(*odd); i++) {
		env("MXNET_ENGINE_TYPE", odd[i]);
		ck_assert_ptr_null(pawl_mx_engine_get());
		snprintf(text, sizeof(text), "unknown engine type '%s' (MXNET_ENGINE_TYPE)", odd[i]);
		ck_assert_str_eq(pawl_mx_last_error(), text);
	}
	/* It is only that of the process's engine. */
	asks(PAWL_MX_POOLED);
	/* of two that are wrong the type is the first */
	env("PAWL_MX_GPUS", "x");
	ck_assert_ptr_null(pawl_mx_engine_get());
	ck_assert_ptr_nonnull(strstr(pawl_mx_last_error(), "(MXNET_ENGINE_TYPE)"));
	env_clear();
}
END_TEST

START_TEST(test_as_many_gpus_as_the_environment_says)
{
	static const char *const odd[] = { "17", "-1", "1000" };
	struct pawl_mx_op op = { .sync = body, .ctx = { PAWL_MX_GPU, 0 } };
	struct pawl_mx_resource r;
	struct pawl_mx_engine *e;
	NDArrayHandle nd = NULL;
	unsigned int n, i;
	char text[100];

	env_clear();
	/* the real one of the process, of which MXGetGPUCount() tells */
	OK(pawl_mx_engine_free(pawl_mx_engine_get()));
	for (n = 0; n <= 16; n += n ? 15 : 1) {
		int count = -1;

		snprintf(text, sizeof(text), "%u", n);
		env("PAWL_MX_GPUS", text);
		e = pawl_mx_engine_get();
		ck_assert_ptr_nonnull(e);
		ck_assert_uint_eq(asked.ndevices, n);
		for (i = 0; i < n; i++)
			ck_assert(devices[i].kind == PAWL_CUDA && devices[i].id == i);
		OK(MXGetGPUCount(&count));
		ck_assert_int_eq(count, (int)n);
		snprintf(text, sizeof(text), "gpu(%u); the engine has %u (PAWL_MX_GPUS)", n, n);
		op.ctx.dev_id = (int)n;
		REFUSED(-ENODEV, pawl_mx_push(e, &op, NULL), text);
		/* ops run there, and arrays do not exist there */
		if (n) {
			op.ctx.dev_id = (int)n - 1;
			snprintf(text, sizeof(text),
				 "gpu(%u): arrays and resources are supported on CPUs only", n - 1);
			FAILS(MXNDArrayCreate(&(uint32_t){ 2 }, 1, PAWL_MX_GPU, (int)n - 1, 0, &nd), text);
			REFUSED(-ENODEV, pawl_mx_resource_get(op.ctx, PAWL_MX_RANDOM, &r), text);
			ck_assert_ptr_null(nd);
		}
		works(e);
		OK(pawl_mx_engine_free(e));
	}
	for (i = 0; i < sizeof(odd) / sizeof(*odd); i++) {
		env("PAWL_MX_GPUS", odd[i]);
		creates = 0;
		snprintf(text, sizeof(text), "PAWL_MX_GPUS is %s, not a number in 0..16", odd[i]);
		REFUSED(-EINVAL, pawl_mx_engine_create(PAWL_MX_PER_DEVICE, &e), text);
		ck_assert_ptr_null(pawl_mx_engine_get());
		ck_assert_int_eq(creates, 0);
	}
	env_clear();
}
END_TEST

/* The exit status of a child that ends with fn(e), which says what is not so. */
static int child(int (*fn)(struct pawl_mx_engine *e), struct pawl_mx_engine *e)
{
#if THREAD_SANITIZED	/* which does not let a child have threads */
	return 0;
#else
	int status = -1;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (!pid) {
		alarm(60);
		_exit(fn(e));
	}
	ck_assert(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
	return WEXITSTATUS(status);
#endif
}

static int in_the_child_it_works(struct pawl_mx_engine *e)
{
	const struct pawl_mx_op op = { .sync = body, .ctx = cpu };

	ran = 0;
	return asked.workers != 1 || pawl_mx_push(e, &op, NULL) || pawl_mx_wait_all(e, NULL) ||
	       ran != 1;
}

static int mp_workers;

static int in_the_child_it_has(struct pawl_mx_engine *e)
{
	const struct pawl_mx_op op = { .sync = body, .ctx = { PAWL_MX_GPU, 0 } };
	int n = -1;

	if (asked.workers != mp_workers || asked.priority_workers != 5 || asked.copy_workers != 6)
		return 1;
	if (asked.kind != PAWL_PER_DEVICE || asked.cpu_devices != 4 || asked.ndevices)
		return 2;
	if (asked.max_ops != 960000 || strcmp(asked.name, "mxnet"))
		return 3;
	if (MXGetGPUCount(&n) || n)
		return 4;
	if (pawl_mx_push(e, &op, NULL) != -ENODEV)
		return 5;
	return MXNDArrayWaitAll() ? 6 : 0;
}

START_TEST(test_the_child_of_a_fork_has_workers_of_its_own_number_and_no_gpu)
{
	struct pawl_mx_engine *e;

	env_clear();
	OK(pawl_mx_engine_free(pawl_mx_engine_get()));
	env("MXNET_CPU_WORKER_NTHREADS", "3");
	env("MXNET_CPU_PRIORITY_NTHREADS", "5");
	env("MXNET_GPU_COPY_NTHREADS", "6");
	env("PAWL_MX_GPUS", "2");
	e = pawl_mx_engine_get();
	ck_assert(e && asked.ndevices == 2 && asked.workers == 3);
	mp_workers = 1;
	ck_assert_int_eq(child(in_the_child_it_has, e), 0);
	env("MXNET_MP_WORKER_NTHREADS", "7");
	mp_workers = 7;
	ck_assert_int_eq(child(in_the_child_it_has, e), 0);
	OK(pawl_mx_engine_free(e));
	env_clear();
}
END_TEST

static void twice(void *run, void *on_complete, void *arg)
{
	async_body(run, on_complete, arg);
	async_body(run, on_complete, arg);
}

/* Whether the engine says that an op was completed twice. */
static bool says_it(struct pawl_mx_engine *e)
{
	const struct pawl_mx_op op = { .async = twice, .ctx = cpu };
	char path[] = "/tmp/pawl-mx-XXXXXX";
	int to = mkstemp(path), err = dup(2);
	off_t n;

	ck_assert(to >= 0 && err >= 0 && !unlink(path) && dup2(to, 2) == 2);
	OK(pawl_mx_push(e, &op, NULL));
	OK(pawl_mx_engine_stop(e, NULL));	/* the body has returned */
	ck_assert_int_eq(dup2(err, 2), 2);
	n = lseek(to, 0, SEEK_END);
	close(to);
	close(err);
	return n > 0;
}

/* Also in the place of one that had others. */
START_TEST(test_an_engine_has_the_settings_of_its_creation)
{
	struct pawl_mx_op op = { .sync = body, .ctx = { PAWL_MX_GPU, 0 } };
	struct pawl_mx_engine *e;
	int i;

	for (i = 0; i < 4; i++) {
		env_clear();
		if (i & 1) {
			env("MXNET_ENGINE_INFO", "1");
			env("PAWL_MX_GPUS", "3");
			env("MXNET_CPU_WORKER_NTHREADS", "17");
		}
		e = engine(i & 1 ? PAWL_MX_POOLED : PAWL_MX_PER_DEVICE);
		ck_assert_int_eq(pawl_mx_engine_kind(e), i & 1 ? PAWL_MX_POOLED : PAWL_MX_PER_DEVICE);
		op.ctx.dev_id = 3;
		REFUSED(-ENODEV, pawl_mx_push(e, &op, NULL), i & 1 ? "has 3" : "has 0");
		ck_assert(says_it(e) == (i & 1));
		OK(pawl_mx_engine_shutdown(e));
		OK(pawl_mx_engine_free(e));
	}
	env_clear();
}
END_TEST

/* --- refusals --- */

static void refuse(int rc, int n)
{
	refusal = rc;
	refusals = n;
	creates = destroys = 0;
}

START_TEST(test_kinds_that_there_are_not)
{
	static const int odd[] = { PAWL_MX_NAIVE - 1, PAWL_MX_PER_DEVICE + 1, -1, 99 };
	struct pawl_mx_engine *e = NULL;
	char text[50];
	size_t i;

	creates = 0;
	for (i = 0; i < sizeof(odd) / sizeof(*odd); i++) {
		snprintf(text, sizeof(text), "engine create: kind %d", odd[i]);
		REFUSED(-EINVAL, pawl_mx_engine_create(odd[i], &e), text);
	}
	ck_assert(!e && !creates);
}
END_TEST

/* Without memory for the most arrays it asks for fewer, once; after other errors it does not. */
START_TEST(test_an_engine_that_libpawl_refuses)
{
	struct pawl_mx_engine *gone, *e = NULL, *all[3];
	int i;

	env_clear();
	for (i = 0; i < 3; i++)
		all[i] = engine(PAWL_MX_PER_DEVICE);
	gone = all[1];
	OK(pawl_mx_engine_free(gone));
	refuse(-ENOMEM, 2);
	ck_assert_int_eq(pawl_mx_engine_create(PAWL_MX_PER_DEVICE, &e), -ENOMEM);
	ck_assert_int_eq(creates, 2);
	refuse(-EINVAL, 1);
	REFUSED(-EINVAL, pawl_mx_engine_create(PAWL_MX_PER_DEVICE, &e), "kind");
	ck_assert_int_eq(creates, 1);
	ck_assert_ptr_null(e);
	refuse(-ENOMEM, 1);
	OK(pawl_mx_engine_create(PAWL_MX_PER_DEVICE, &e));
	ck_assert_int_eq(creates, 2);
	ck_assert_uint_eq(asked.max_vars, 1u << 20);
	works(e);
	/* a new one is in the place of that which ended, also after refusals */
	ck_assert_ptr_eq(e, gone);
	OK(pawl_mx_engine_free(e));
	for (i = 0; i < 3; i += 2) {
		works(all[i]);
		OK(pawl_mx_engine_free(all[i]));
	}
	/* the process's, too */
	OK(pawl_mx_engine_free(pawl_mx_engine_get()));
	refuse(-EINVAL, 1);
	ck_assert_ptr_null(pawl_mx_engine_get());
	works(pawl_mx_engine_get());
	OK(pawl_mx_engine_free(pawl_mx_engine_get()));
}
END_TEST

static struct pawl_mx_engine *other;	/* that gets_one() got */

static void gets_one(void)
{
	other = pawl_mx_engine_get();
}

/* Both have the one that was there first; the second one ends. */
START_TEST(test_the_process_has_one_engine_when_two_create_it)
{
	struct pawl_mx_engine *e;

	env_clear();
	OK(pawl_mx_engine_free(pawl_mx_engine_get()));
	other = NULL;
	refuse(0, 0);
	meanwhile = gets_one;
	e = pawl_mx_engine_get();
	ck_assert_int_eq(creates, 2);
	ck_assert_int_eq(destroys, 1);
	ck_assert(e && e == other && pawl_mx_engine_get() == e);
	works(e);
	OK(pawl_mx_engine_free(e));
}
END_TEST

/* It stays the process's engine, and a fork uses it. */
START_TEST(test_an_engine_that_libpawl_does_not_destroy)
{
	struct pawl_mx_engine *e;

	env_clear();
	e = pawl_mx_engine_get();
	refuse(-EBUSY, 1);
	ck_assert_int_eq(pawl_mx_engine_free(e), -EBUSY);
	ck_assert_ptr_eq(pawl_mx_engine_get(), e);
	OK(pawl_mx_engine_start(e));
	works(e);
	asked.workers = 0;
	ck_assert_int_eq(child(in_the_child_it_works, e), 0);
	/* unless another one has become that meanwhile */
	refuse(-EBUSY, 1);
	meanwhile = gets_one;
	ck_assert_int_eq(pawl_mx_engine_free(e), -EBUSY);
	ck_assert(other && other != e && pawl_mx_engine_get() == other);
	works(other);
	OK(pawl_mx_engine_free(e));
	ck_assert_ptr_eq(pawl_mx_engine_get(), other);
	OK(pawl_mx_engine_free(other));
}
END_TEST

static struct pawl_mx_engine *ends;
static int in_child = -1;

/* In the child the thread that ends it is not there, and a new engine may have its place. */
static int in_the_child_it_has_ended(struct pawl_mx_engine *e)
{
	struct pawl_mx_engine *next = NULL;

	if (pawl_mx_engine_pawl(e))
		return 1;
	if (pawl_mx_engine_create(PAWL_MX_PER_DEVICE, &next) || next != e)
		return 2;
	return in_the_child_it_works(next);
}

static void forks(void)
{
	in_child = child(in_the_child_it_has_ended, ends);
}

START_TEST(test_a_fork_while_an_engine_ends)
{
	env_clear();
	ends = engine(PAWL_MX_PER_DEVICE);
	refuse(0, 0);
	asked.workers = 1;
	meanwhile = forks;
	OK(pawl_mx_engine_free(ends));
	ck_assert_int_eq(in_child, 0);
	asks(PAWL_MX_PER_DEVICE);
}
END_TEST

static int in_the_child_the_next_has_resources_of_its_own(struct pawl_mx_engine *e)
{
	struct pawl_mx_resource r;

	if (pawl_mx_engine_get() != e)
		return 1;
	if (MXRandomSeed(3) || pawl_mx_resource_get(cpu, PAWL_MX_RANDOM, &r))
		return 2;
	return pawl_mx_wait_var(e, r.var, NULL) ? 3 : 0;
}

static void forks_again(void)
{
	in_child = child(in_the_child_the_next_has_resources_of_its_own, ends);
}

/* What the process's engine had ends with it, also in a child of that moment. */
START_TEST(test_a_fork_while_the_engine_of_the_process_ends)
{
	struct pawl_mx_resource r;

	env_clear();
	ends = pawl_mx_engine_get();
	OK(pawl_mx_resource_get(cpu, PAWL_MX_RANDOM, &r));
	OK(MXNDArrayWaitAll());
	refuse(0, 0);
	in_child = -1;
	meanwhile = forks_again;
	OK(pawl_mx_engine_free(ends));
	ck_assert_int_eq(in_child, 0);
	works(pawl_mx_engine_get());
	OK(pawl_mx_engine_free(pawl_mx_engine_get()));
}
END_TEST

static int in_the_child_it_exits(struct pawl_mx_engine *e)
{
	if (!pawl_mx_engine_get())
		return 1;
	exits = true;
	exit(2);
}

START_TEST(test_the_engine_of_the_process_ends_with_it)
{
	env_clear();
	ck_assert_int_eq(child(in_the_child_it_exits, NULL), 0);
}
END_TEST

static int in_the_child_there_is_none(struct pawl_mx_engine *e)
{
	const struct pawl_mx_op op = { .sync = body, .ctx = cpu };
	struct pawl_mx_var *v = NULL;

	if (pawl_mx_engine_pawl(e) || pawl_mx_push(e, &op, NULL) != -EOWNERDEAD)
		return 1;
	if (pawl_mx_var_new(e, &v) != -EOWNERDEAD || v || pawl_mx_wait_all(e, NULL) != -EOWNERDEAD)
		return 2;
	/* as in every child whose engine was not created again */
	if (pawl_mx_engine_stop(e, NULL) || pawl_mx_engine_start(e))
		return 3;
	/* nothing frees the parent's engine, which the address sanitizer would report at exit() */
	if (ADDRESS_SANITIZED)
		_exit(0);
	exit(0);
}

static void fails(void *run, void *arg)
{
	pawl_mx_fail(run, "before the fork");
}

/* A child for which libpawl creates no engine says so, refuses its calls, and ends. */
START_TEST(test_the_child_of_a_fork_without_an_engine_ends)
{
	struct pawl_mx_var *v = NULL;
	const struct pawl_mx_op op = { .sync = fails, .ctx = cpu, .writes = &v, .nwrites = 1 };
	struct pawl_mx_engine *e;

	env_clear();
	e = pawl_mx_engine_get();
	works(e);
	OK(pawl_mx_var_new(e, &v));
	OK(pawl_mx_push(e, &op, NULL));
	/* the child also destroys that of its parent */
	refuse(-EINVAL, 2);
	ck_assert_int_eq(child(in_the_child_there_is_none, e), 0);
	refusals = 0;
	REFUSED(-EIO, pawl_mx_wait_var(e, v, NULL), "before the fork");
	works(e);
	OK(pawl_mx_engine_free(e));
}
END_TEST

SUITE("mx_settings", 60, test_each_kind_has_the_threads_of_mxnets, test_numbers_of_the_environment,
      test_switches_and_times_of_the_environment, test_types_of_the_environment,
      test_as_many_gpus_as_the_environment_says,
      test_the_child_of_a_fork_has_workers_of_its_own_number_and_no_gpu,
      test_kinds_that_there_are_not, test_an_engine_that_libpawl_refuses,
      test_the_process_has_one_engine_when_two_create_it,
      test_an_engine_that_libpawl_does_not_destroy, test_a_fork_while_an_engine_ends,
      test_a_fork_while_the_engine_of_the_process_ends,
      test_the_engine_of_the_process_ends_with_it,
      test_the_child_of_a_fork_without_an_engine_ends, test_an_engine_has_the_settings_of_its_creation)
