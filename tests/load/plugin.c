/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin TLS LIBPAWL [LIBPAWL_MX]: a program that is not linked with libpawl and loads it
 * late, after a library that has used up the space for thread-local variables.  It then runs
 * ops from two threads, with a recording in plugin.rec if the library has recordings (its
 * events are RCU sections).
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <pawl/engine.h>

static void *lib;

#define CALL(f) ((__typeof__(&(f)))symbol(lib, #f))

static void *load(const char *path)
{
	void *l = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (!l) {
		fprintf(stderr, "plugin: %s\n", dlerror());
		exit(1);
	}
	return l;
}

static void *symbol(void *l, const char *name)
{
	void *p = dlsym(l, name);

	if (!p) {
		fprintf(stderr, "plugin: %s\n", dlerror());
		exit(1);
	}
	return p;
}

static void check(int err, const char *what)
{
	if (!err)
		return;
	fprintf(stderr, "plugin: %s: %d, %s\n", what, err, CALL(pawl_error_text)());
	exit(1);
}

static struct pawl_engine *engine;
static pawl_var_t var;
static int count;

static int add(struct pawl_run *run, void *arg)
{
	(void)run;
	*(int *)arg += 1;
	return 0;
}

static void *push(void *arg)
{
	struct pawl_op op = PAWL_OP_INIT;
	int i;

	op.fn = add;
	op.arg = &count;
	op.writes = &var;
	op.nwrites = 1;
	for (i = 0; i < 100; i++)
		check(CALL(pawl_push)(engine, &op), "push");
	return arg;
}

int main(int argc, char **argv)
{
	pthread_t t;
	int err;

	if (argc < 3)
		return 2;
	load(argv[1]);
	lib = load(argv[2]);
	check(CALL(pawl_engine_create)(NULL, &engine), "create");
	check(CALL(pawl_var_create)(engine, &var), "var");
	err = CALL(pawl_record_start)("plugin.rec");
	if (err != -38)	/* ENOSYS: built without */
		check(err, "record");
	push(NULL);
	if (pthread_create(&t, NULL, push, NULL) || pthread_join(t, NULL))
		return 2;
	check(CALL(pawl_wait_all)(engine, -1, NULL), "wait");
	if (!err)
		check(CALL(pawl_record_stop)(), "end of the recording");
	check(CALL(pawl_engine_destroy)(engine), "destroy");
	if (count != 200) {
		fprintf(stderr, "plugin: %d of 200 ops ran\n", count);
		return 1;
	}
	if (argc > 3) {
		void *mx = load(argv[3]);
		const char *(*text)(void) =
			(const char *(*)(void))symbol(mx, "pawl_mx_last_error");

		if (text()[0])
			return 1;
		dlclose(mx);
	}
	dlclose(lib);
	return 0;
}
