// SPDX-License-Identifier: Apache-2.0
/*
 * device/cuda.c on the runtime of fakecudart.c: how it finds the runtime, and what becomes of
 * the runtime's errors.
 *
 *	cuda			all tests
 *	cuda case NAME		a process of a test, in which no runtime was used before
 */
#include <malloc.h>
#include "../unit/util.h"
#include "backend.h"

#ifdef CONFIG_DEVICE_CUDA

static const struct device_ops *const o = &device_cuda;
static struct backend *b;
static const char *self;

/* The runtime, as a program uses it beside the engine. */
static int (*rt_get_device)(int *id), (*rt_set_device)(int id), (*rt_last_error)(void);
static u64 (*rt_calls_of)(const char *name);
static int (*rt_kind)(void), (*rt_handles)(void), (*rt_memory)(void);

/* --- how it is found --- */

static int devices(void)
{
	int n = -1, rc = o->count(&n);

	MUST(rc ? n == 0 : n == 1);
	return rc;
}

static void *loader(void *arg)
{
	pthread_barrier_wait(arg);
	MUST(!devices());
	return NULL;
}

/* dlopen() comes here (tests/Makefile). */
void *__real_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags);

static struct {
	bool on;
	u32 n;
	const char *name[8];
	int flags[8];
} tried;

void *__wrap_dlopen(const char *name, int flags)
{
	if (!tried.on)
		return __real_dlopen(name, flags);
	MUST(tried.n < ARRAY_SIZE(tried.name));
	tried.name[tried.n] = name;
	tried.flags[tried.n++] = flags;
	return __real_dlopen("/nowhere", flags);
}

static int names_tried(void)
{
	static const char *const names[] = { "libcudart.so", "libcudart.so.13", "libcudart.so.12",
					     "libcudart.so.11.0" };
	u32 i;

	tried.on = true;
	MUST(devices() == -ENODEV);
	MUST(tried.n == 2 * ARRAY_SIZE(names));
	for (i = 0; i < tried.n; i++) {
		MUST(!strcmp(tried.name[i], names[i % ARRAY_SIZE(names)]));
		MUST(tried.flags[i] == (RTLD_NOW | RTLD_LOCAL |
					(i < ARRAY_SIZE(names) ? RTLD_NOLOAD : 0)));
	}
	return 0;
}

static int run_case(const char *name)
{
	pthread_barrier_t all;
	size_t before = 0;
	pthread_t t[8];
	u32 i;

	if (!strcmp(name, "found"))
		return devices();
	if (!strcmp(name, "order"))
		return names_tried();
	if (!strcmp(name, "loaded")) {
		MUST(dlopen("libcudart.so.11.0", RTLD_NOW | RTLD_LOCAL));
		return devices();
	}
	if (!strcmp(name, "newest")) {
		MUST(dlopen("libcudart.so", RTLD_NOW | RTLD_LOCAL));
		MUST(dlopen("libcudart.so.11.0", RTLD_NOW | RTLD_LOCAL));
		return devices();
	}
	if (!strcmp(name, "threads")) {
		pthread_barrier_init(&all, NULL, ARRAY_SIZE(t));
		for (i = 0; i < ARRAY_SIZE(t); i++)
			t[i] = spawn(loader, &all);
		for (i = 0; i < ARRAY_SIZE(t); i++)
			join(t[i]);
		pthread_barrier_destroy(&all);
		return devices();
	}
	/* the others are names of what the message says; the next call says it again */
	for (i = 0; i < 100; i++) {
		before = i == 50 ? mallinfo2().uordblks : before;
		MUST(devices() == -ENODEV);
		MUST(strstr(pawl_error_text(), name));
	}
	MUST(mallinfo2().uordblks < before + 50 * 100);
	return 0;
}

/* A process with these values of PAWL_CUDART (runtime) and LD_LIBRARY_PATH, or without them. */
static void in_process(const char *name, const char *runtime, const char *folder)
{
	int status = -1;
	pid_t pid = fork();

	MUST(pid >= 0);
	if (!pid) {
		unsetenv("PAWL_CUDART");
		if (runtime)
			setenv("PAWL_CUDART", runtime, 1);
		if (folder)
			setenv("LD_LIBRARY_PATH", folder, 1);
		execl(self, self, "case", name, NULL);
		_exit(127);
	}
	MUST(waitpid(pid, &status, 0) == pid);
	ck_assert_msg(!status, "case %s, PAWL_CUDART %s: status %#x", name,
		      runtime ? runtime : "unset", (unsigned int)status);
}

START_TEST(a_library_that_is_no_runtime_is_refused_by_name)
{
	in_process("no libcudart", "/nowhere/libcudart.so", NULL);
	in_process("/nowhere/libcudart.so", "/nowhere/libcudart.so", NULL);
	in_process("libm.so.6 has no cuda", "libm.so.6", NULL);
}
END_TEST

/* Our runtime, without the function that device/cuda.c looks up last. */
static void runtime_without(const char *from, const char *to, const char *function)
{
	FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
	size_t n, len = strlen(function) + 1, room = 1 << 24, at, found = 0;
	char *bytes = malloc(room);

	MUST(in && out && bytes);
	n = fread(bytes, 1, room, in);
	MUST(n && n < room);
	for (at = 0; at + len <= n; at++) {
		if (memcmp(bytes + at, function, len))
			continue;
		bytes[at] = 'x';
		found++;
	}
	MUST(found && fwrite(bytes, 1, n, out) == n);
	MUST(!fclose(in) && !fclose(out));
	free(bytes);
}

/*
 * A library that the program has already loaded is preferred to one with a newer name; of two
 * such libraries the one with the newer name is.
 */
START_TEST(the_runtime_is_found_by_its_names)
{
	static const char ours[] = PAWL_OBJDIR "/tests/device/libcudart.so";
	char folder[] = "/tmp/pawl-cuda-XXXXXX", plain[64], old[64], other[64];

	MUST(mkdtemp(folder));
	snprintf(plain, sizeof(plain), "%s/libcudart.so", folder);
	snprintf(old, sizeof(old), "%s/libcudart.so.11.0", folder);
	snprintf(other, sizeof(other), "%s/other", folder);
	MUST(!symlink(ours, plain));
	in_process("found", NULL, folder);
	MUST(!unlink(plain) && !symlink(ours, old));
	runtime_without(ours, plain, "cudaGetErrorString");
	in_process("libcudart.so has no cudaGetErrorString", NULL, folder);
	in_process("loaded", NULL, folder);
	MUST(!rename(old, other) && !rename(plain, old) && !rename(other, plain));
	in_process("newest", NULL, folder);
	MUST(!unlink(plain) && !unlink(old) && !rmdir(folder));
}
END_TEST

/* First among those that the program has loaded, and of several the newest. */
START_TEST(the_names_are_tried_from_the_newest_on)
{
	in_process("order", NULL, NULL);
}
END_TEST

START_TEST(several_threads_load_the_runtime_at_once)
{
	u32 i;

	for (i = 0; i < 10; i++)
		in_process("threads", PAWL_OBJDIR "/tests/device/libcudart.so", NULL);
}
END_TEST

/* --- errors --- */

static void *dev, *stream, *event;
static void *made;		/* by the call under test */

static void begin(void)
{
	const struct fake_setup s = { .devices = 2, .seed = 1 };

	b->setup(&s);
	OK(o->open(0, &dev));
	OK(o->stream_create(dev, 0, &stream));
	OK(o->event_create(dev, &event));
}

static void end(void)
{
	OK(o->stream_sync(dev, stream));
	OK(o->event_destroy(dev, event));
	OK(o->stream_destroy(dev, stream));
	o->close(dev);
	ck_assert_int_eq(rt_handles(), 0);
}

/*
 * As the runtime's documentation has them; abi.c compares them with its headers, where there
 * are some.  The tests use our names, so a wrong number would be wrong on both sides.
 */
START_TEST(the_numbers_are_those_of_the_runtime)
{
	static const struct { int ours, theirs; } n[] = {
		{ CU_SUCCESS, 0 }, { CU_INVALID_VALUE, 1 }, { CU_MEMORY_ALLOCATION, 2 },
		{ CU_INITIALIZATION, 3 }, { CU_UNLOADING, 4 }, { CU_INSUFFICIENT_DRIVER, 35 },
		{ CU_DEVICES_UNAVAILABLE, 46 }, { CU_NO_DEVICE, 100 },
		{ CU_INVALID_DEVICE, 101 }, { CU_ECC, 214 }, { CU_NVLINK, 220 },
		{ CU_INVALID_HANDLE, 400 }, { CU_NOT_READY, 600 }, { CU_ILLEGAL_ADDRESS, 700 },
		{ CU_LAUNCH_TIMEOUT, 702 }, { CU_ASSERT, 710 }, { CU_HARDWARE_STACK, 714 },
		{ CU_ILLEGAL_INSTRUCTION, 715 }, { CU_MISALIGNED_ADDRESS, 716 },
		{ CU_INVALID_ADDRESS_SPACE, 717 }, { CU_INVALID_PC, 718 },
		{ CU_LAUNCH_FAILURE, 719 }, { CU_NOT_SUPPORTED, 801 },
		{ CU_SYSTEM_NOT_READY, 802 }, { CU_SYSTEM_DRIVER_MISMATCH, 803 },
		{ CU_UNKNOWN, 999 },
		{ CU_STREAM_NON_BLOCKING, 1 }, { CU_EVENT_DISABLE_TIMING, 2 },
		{ CU_HOST_ALLOC_PORTABLE, 1 }, { CU_CAPTURE_THREAD_LOCAL, 1 },
		{ CU_COPY_H2H, 0 }, { CU_COPY_H2D, 1 }, { CU_COPY_D2H, 2 }, { CU_COPY_D2D, 3 },
		{ CU_ATTR_MULTIPROCESSORS, 16 }, { CU_ATTR_MAJOR, 75 }, { CU_ATTR_MINOR, 76 },
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(n); i++)
		ck_assert_int_eq(n[i].ours, n[i].theirs);
}
END_TEST

START_TEST(each_error_of_the_runtime_has_an_errno_and_a_text)
{
	static const struct { int code, want; } codes[] = {
		{ CU_MEMORY_ALLOCATION, -ENOMEM }, { CU_INVALID_VALUE, -EINVAL },
		{ CU_INVALID_HANDLE, -EINVAL }, { CU_UNLOADING, -ESHUTDOWN },
		{ CU_NO_DEVICE, -ENODEV }, { CU_INVALID_DEVICE, -ENODEV },
		{ CU_INITIALIZATION, -ENODEV }, { CU_INSUFFICIENT_DRIVER, -ENODEV },
		{ CU_DEVICES_UNAVAILABLE, -ENODEV }, { CU_SYSTEM_NOT_READY, -ENODEV },
		{ CU_SYSTEM_DRIVER_MISMATCH, -ENODEV }, { CU_NOT_SUPPORTED, -ENOTSUP },
		{ CU_ECC, -ENOTRECOVERABLE }, { CU_NVLINK, -ENOTRECOVERABLE },
		{ CU_ILLEGAL_ADDRESS, -ENOTRECOVERABLE }, { CU_LAUNCH_TIMEOUT, -ENOTRECOVERABLE },
		{ CU_ASSERT, -ENOTRECOVERABLE }, { CU_HARDWARE_STACK, -ENOTRECOVERABLE },
		{ CU_ILLEGAL_INSTRUCTION, -ENOTRECOVERABLE },
		{ CU_MISALIGNED_ADDRESS, -ENOTRECOVERABLE },
		{ CU_INVALID_ADDRESS_SPACE, -ENOTRECOVERABLE }, { CU_INVALID_PC, -ENOTRECOVERABLE },
		{ CU_UNKNOWN, -ENOTRECOVERABLE }, { 12345, -EIO },
	};
	char number[16];
	u32 i;

	begin();
	for (i = 0; i < ARRAY_SIZE(codes); i++) {
		cudart.fail_call(1, codes[i].code);
		snprintf(number, sizeof(number), "(%d)", codes[i].code);
		FAILS(o->event_query(dev, event), codes[i].want, "cudaEventQuery: ", number);
		if (codes[i].want == -ESHUTDOWN)
			ck_assert_str_eq(pawl_error_text(),
					 "cudaEventQuery: the driver unloads (4)");
		/* a driver that unloads must not be called any more */
		ck_assert_int_eq(rt_last_error(), codes[i].want == -ESHUTDOWN ? CU_UNLOADING : 0);
		OK(o->event_query(dev, event));
	}
	end();
}
END_TEST

static void call_back(void *arg)
{
}

/* The runtime counts it as one, and a body that checks its own launch would find it. */
START_TEST(work_that_is_pending_is_no_error_of_the_program)
{
	const struct fake_setup s = { .devices = 2, .seed = 1, .manual = true };

	b->setup(&s);
	OK(o->open(0, &dev));
	OK(o->stream_create(dev, 0, &stream));
	OK(o->event_create(dev, &event));
	OK(o->host_call(dev, stream, call_back, NULL));
	OK(o->event_record(dev, event, stream));
	ck_assert_int_eq(o->stream_query(dev, stream), -EBUSY);
	ck_assert_int_eq(rt_last_error(), CU_SUCCESS);
	ck_assert_int_eq(o->event_query(dev, event), -EBUSY);
	ck_assert_int_eq(rt_last_error(), CU_SUCCESS);
	end();
}
END_TEST

/* Most runtimes find out by themselves where memory is; not all, and not on each device. */
START_TEST(a_copy_says_where_its_memory_is)
{
	static const struct { enum device_copy dir; int kind; } dirs[] = {
		{ DEVICE_H2D, 1 }, { DEVICE_D2H, 2 }, { DEVICE_D2D, 3 }, { DEVICE_H2H, 0 } };
	char to[8], from[8] = "";
	u32 i;

	begin();
	for (i = 0; i < ARRAY_SIZE(dirs); i++) {
		OK(o->copy(dev, stream, to, from, sizeof(to), dirs[i].dir));
		ck_assert_int_eq(rt_kind(), dirs[i].kind);
	}
	end();
}
END_TEST

static int count_call(void)
{
	int n = -1, rc = o->count(&n);

	ck_assert_int_eq(n, rc ? 0 : 2);
	return rc;
}

static int info_call(void)
{
	struct device_info i;
	int rc = o->info(0, &i);

	if (!rc)
		ck_assert_str_eq(i.name, "fake 0");
	return rc;
}

static int open_call(void)
{
	void *d = dev;
	int rc = o->open(0, &d);

	ck_assert_ptr_eq(d, rc ? NULL : dev);
	return rc;
}

static int use_call(void) { return o->use(dev); }
static int alloc_call(void) { return o->alloc(dev, 8, &made); }
static int free_call(void) { return o->release(dev, made); }
static int host_alloc_call(void) { return o->host_alloc(dev, 8, &made); }
static int host_free_call(void) { return o->host_free(dev, made); }
static int alloc_async_call(void) { return o->alloc_async(dev, stream, 8, &made); }
static int free_async_call(void) { return o->free_async(dev, stream, made); }
static int stream_create_call(void) { return o->stream_create(dev, 0, &made); }
static int stream_destroy_call(void) { return o->stream_destroy(dev, made); }
static int stream_query_call(void) { return o->stream_query(dev, stream); }
static int stream_sync_call(void) { return o->stream_sync(dev, stream); }
static int stream_wait_call(void) { return o->stream_wait(dev, stream, event); }
static int event_create_call(void) { return o->event_create(dev, &made); }
static int event_destroy_call(void) { return o->event_destroy(dev, made); }
static int event_record_call(void) { return o->event_record(dev, event, stream); }
static int set_call(void) { return o->set(dev, stream, made, 0, 8); }
static int copy_call(void) { return o->copy(dev, stream, made, made, 8, DEVICE_D2D); }
static int host_call_call(void) { return o->host_call(dev, stream, call_back, NULL); }
static int capture_begin_call(void) { return o->capture_begin(dev, stream); }
static int capture_end_call(void) { return o->capture_end(dev, stream, &made); }
static int graph_launch_call(void) { return o->graph_launch(dev, stream, made); }
static int graph_destroy_call(void) { return o->graph_destroy(dev, made); }

static int capture(void)
{
	int rc = capture_begin_call();

	return rc ? rc : capture_end_call();
}

static int capture_undo(void)
{
	int rc = capture_end_call();

	return rc ? rc : graph_destroy_call();
}

static const struct call {
	const char *name;
	int (*before)(void);
	int (*fn)(void);
	int (*undo)(void);
	const char *ends;	/* the runtime's function that ends the object, even if it fails */
} ops[] = {
	{ "count", NULL, count_call, NULL, NULL },
	{ "info", NULL, info_call, NULL, NULL },
	{ "open", NULL, open_call, NULL, NULL },
	{ "use", NULL, use_call, NULL, NULL },
	{ "alloc", NULL, alloc_call, free_call, NULL },
	{ "release", alloc_call, free_call, NULL, "cudaFree" },
	{ "host_alloc", NULL, host_alloc_call, host_free_call, NULL },
	{ "host_free", host_alloc_call, host_free_call, NULL, "cudaFreeHost" },
	{ "alloc_async", NULL, alloc_async_call, free_async_call, NULL },
	{ "free_async", alloc_async_call, free_async_call, NULL, NULL },
	{ "stream_create", NULL, stream_create_call, stream_destroy_call, NULL },
	{ "stream_destroy", stream_create_call, stream_destroy_call, NULL, "cudaStreamDestroy" },
	{ "stream_query", stream_sync_call, stream_query_call, NULL, NULL },
	{ "stream_sync", NULL, stream_sync_call, NULL, NULL },
	{ "stream_wait", NULL, stream_wait_call, NULL, NULL },
	{ "event_create", NULL, event_create_call, event_destroy_call, NULL },
	{ "event_destroy", event_create_call, event_destroy_call, NULL, "cudaEventDestroy" },
	{ "event_record", NULL, event_record_call, NULL, NULL },
	{ "set", alloc_async_call, set_call, free_async_call, NULL },
	{ "copy", alloc_async_call, copy_call, free_async_call, NULL },
	{ "host_call", NULL, host_call_call, NULL, NULL },
	{ "capture_begin", NULL, capture_begin_call, capture_undo, NULL },
	{ "capture_end", capture_begin_call, capture_end_call, graph_destroy_call,
	  "cudaStreamEndCapture" },
	{ "graph_launch", capture, graph_launch_call, graph_destroy_call, NULL },
	{ "graph_destroy", capture, graph_destroy_call, NULL, "cudaGraphExecDestroy" },
};

/*
 * Let the k-th call of the runtime inside this one fail.  Returns false if it makes fewer.
 * Afterwards the calling thread still uses device `here`, and the runtime holds no error of
 * which the program does not know.
 */
static bool fails_at(const struct call *c, int here, u32 k)
{
	u64 ended, calls, sets;
	bool reached, restores;
	int rc, now = -1;

	made = NULL;
	if (c->before)
		OK(c->before());
	MUST(!rt_set_device(here));
	ended = c->ends ? rt_calls_of(c->ends) : 0;
	calls = b->calls();
	sets = rt_calls_of("cudaSetDevice");
	cudart.fail_call(k, CU_MEMORY_ALLOCATION);
	rc = c->fn();
	cudart.fail_call(0, 0);
	calls = b->calls() - calls;
	reached = calls >= k;
	/* The last call of the runtime puts the thread back on its device, or frees a graph. */
	restores = calls == k && !rc && (rt_calls_of("cudaSetDevice") == sets + 2 ||
					 c->fn == capture_end_call);
	ck_assert_int_eq(rt_last_error(), CU_SUCCESS);
	MUST(!rt_get_device(&now));
	ck_assert_msg(now == here || c->fn == use_call || (restores && !now),
		      "%s, call %u: device %d", c->name, k, now);
	if (!reached || restores) {
		ck_assert_msg(!rc, "%s, call %u: %d", c->name, k, rc);
	} else {
		ck_assert_msg(rc == -ENOMEM, "%s, call %u: %d", c->name, k, rc);
		ck_assert_msg(!strncmp(pawl_error_text(), "cuda", 4), "%s", pawl_error_text());
	}
	/* It succeeds once the cause is gone. */
	if (rc && !(c->ends && rt_calls_of(c->ends) > ended))
		OK(c->fn());
	else if (rc)
		return true;
	if (c->undo)
		OK(c->undo());
	return reached;
}

START_TEST(a_call_that_fails_inside_has_no_effect)
{
	u32 i, k;
	int here;

	begin();
	for (here = 0; here < 2; here++) {
		for (i = 0; i < ARRAY_SIZE(ops); i++) {
			for (k = 1; fails_at(&ops[i], here, k); k++)
				ck_assert_uint_lt(k, 20);
			ck_assert_msg(k > 1, "%s calls nothing", ops[i].name);
		}
	}
	MUST(!rt_set_device(0));
	end();
}
END_TEST

/* calloc() comes here (tests/Makefile). */
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

static bool refuse_memory;

void *__wrap_calloc(size_t n, size_t size)
{
	return refuse_memory ? NULL : __real_calloc(n, size);
}

START_TEST(the_runtime_describes_a_device)
{
	struct device_info i;

	begin();
	OK(o->info(1, &i));
	ck_assert_str_eq(i.name, "fake 1");
	ck_assert(i.major == 8 && i.minor == 6 && i.units == 1);
	ck_assert(i.driver == 13000 && i.runtime == 12090);
	ck_assert(i.memory == 1 << 30 && i.memory_free == 1 << 29);
	refuse_memory = true;
	FAILS(o->info(1, &i), -ENOMEM, "cuda: no memory");
	refuse_memory = false;
	end();
}
END_TEST

START_TEST(bad_arguments)
{
	struct device_info info;
	char bytes[8];
	void *d;

	begin();
	FAILS(o->info(2, &info), -ENODEV, "cuda: there is no device 2, but 2");
	FAILS(o->info(-1, &info), -ENODEV, "cuda: there is no device -1, but 2");
	FAILS(o->open(2, &d), -ENODEV, "cuda: there is no device 2, but 2");
	FAILS(o->open(-1, &d), -ENODEV, "cuda: there is no device -1, but 2");
	FAILS(o->copy(dev, stream, bytes, bytes, 8, (enum device_copy)9), -EINVAL, "direction 9");
	FAILS(o->copy(dev, stream, bytes, bytes, 8, (enum device_copy)4), -EINVAL, "tion 4");
	FAILS(o->copy(dev, stream, bytes, bytes, 8, (enum device_copy)-1), -EINVAL, "direction -1");
	end();
}
END_TEST

/* In the runtime's numbers 0 is the least urgent one, and -5 the most urgent one. */
START_TEST(a_priority_out_of_range_is_the_nearest_one)
{
	void *s;

	begin();
	OK(o->stream_create(dev, -100, &s));
	OK(o->stream_destroy(dev, s));
	ck_assert_int_eq(b->urgent(), 0);
	OK(o->stream_create(dev, 3, &s));
	OK(o->stream_destroy(dev, s));
	ck_assert_int_eq(b->urgent(), -3);
	OK(o->stream_create(dev, 100, &s));
	OK(o->stream_destroy(dev, s));
	ck_assert_int_eq(b->urgent(), -5);
	end();
}
END_TEST

/* Whichever device the calling thread uses. */
START_TEST(a_stream_is_on_the_device_that_it_was_created_for)
{
	void *d, *s;

	begin();
	OK(o->open(1, &d));
	MUST(!rt_set_device(0));
	OK(o->stream_create(d, 0, &s));
	b->lose(1);
	(void)!o->host_call(d, s, call_back, NULL);
	FAILS(o->stream_sync(d, s), -ENOTRECOVERABLE, "cuda");
	OK(o->host_call(dev, stream, call_back, NULL));
	(void)!o->stream_destroy(d, s);
	o->close(d);
	end();
}
END_TEST

/* Whichever device the calling thread uses, that is the one afterwards, too. */
START_TEST(memory_is_on_its_device)
{
	struct device_info info;
	int here, there, now;
	void *d, *p, *s, *ev;

	begin();
	for (here = 0; here < 2; here++) {
		for (there = 0; there < 2; there++) {
			MUST(!rt_set_device(here));
			OK(o->open(there, &d));
			ck_assert_int_eq(rt_memory(), there);
			OK(o->info(1 - there, &info));
			ck_assert_int_eq(rt_memory(), 1 - there);
			OK(o->alloc(d, 8, &p));
			ck_assert_int_eq(rt_memory(), there);
			OK(o->info(1 - there, &info));
			OK(o->release(d, p));
			ck_assert_int_eq(rt_memory(), there);
			OK(o->info(1 - there, &info));
			OK(o->host_alloc(d, 8, &p));
			ck_assert_int_eq(rt_memory(), there);
			OK(o->host_free(d, p));
			/* The runtime refuses an event of another device. */
			OK(o->stream_create(d, 0, &s));
			OK(o->event_create(d, &ev));
			OK(o->event_record(d, ev, s));
			OK(o->event_destroy(d, ev));
			OK(o->stream_destroy(d, s));
			MUST(!rt_get_device(&now));
			ck_assert_int_eq(now, here);
			o->close(d);
		}
	}
	MUST(!rt_set_device(0));
	end();
}
END_TEST

START_TEST(a_description_leaves_no_memory)
{
	enum { N = 50 };
	struct device_info info;
	size_t before = 0, after;
	u32 i;

	begin();
	for (i = 0; i < 2 * N; i++) {
		if (i == N)
			before = mallinfo2().uordblks;
		OK(o->info(0, &info));
	}
	after = mallinfo2().uordblks;
	ck_assert_msg(after < before + N * 8, "%zu bytes", after - before);
	end();
}
END_TEST

static void runtime_find(void)
{
	void *lib = dlopen(getenv("PAWL_CUDART"), RTLD_NOW | RTLD_NOLOAD);

	MUST(lib);
	rt_get_device = (int (*)(int *))dlsym(lib, "cudaGetDevice");
	rt_set_device = (int (*)(int))dlsym(lib, "cudaSetDevice");
	rt_last_error = (int (*)(void))dlsym(lib, "cudaGetLastError");
	rt_calls_of = (u64 (*)(const char *))dlsym(lib, "fakecudart_calls_of");
	rt_kind = (int (*)(void))dlsym(lib, "fakecudart_kind");
	rt_handles = (int (*)(void))dlsym(lib, "fakecudart_handles");
	rt_memory = (int (*)(void))dlsym(lib, "fakecudart_memory");
	MUST(rt_memory && rt_get_device && rt_set_device && rt_last_error && rt_calls_of && rt_kind &&
	     rt_handles);
}

int main(int argc, char **argv)
{
	const TTest *const tests[] = {
		a_library_that_is_no_runtime_is_refused_by_name, the_runtime_is_found_by_its_names,
		the_names_are_tried_from_the_newest_on, several_threads_load_the_runtime_at_once,
		memory_is_on_its_device, a_description_leaves_no_memory,
		the_numbers_are_those_of_the_runtime,
		each_error_of_the_runtime_has_an_errno_and_a_text,
		work_that_is_pending_is_no_error_of_the_program, a_copy_says_where_its_memory_is,
		a_priority_out_of_range_is_the_nearest_one,
		a_call_that_fails_inside_has_no_effect, the_runtime_describes_a_device,
		bad_arguments, a_stream_is_on_the_device_that_it_was_created_for, NULL };
	struct backend list[4];
	int n, i;

	self = argv[0];
	if (argc == 3 && !strcmp(argv[1], "case"))
		return run_case(argv[2]);
	unsetenv("PAWL_TEST_CUDA");
	n = backends(list);
	for (i = 0; i < n; i++)
		if (list[i].ops == o)
			b = &list[i];
	runtime_find();
	setenv("CK_FORK", "no", 1);
	return tests_run("cuda", tests);
}

#else

int main(void)
{
	printf("built without CUDA\n");
	return 77;
}

#endif
