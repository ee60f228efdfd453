// SPDX-License-Identifier: Apache-2.0
/* traces KIND FILE: a program whose trace is known; check.py compares what a viewer finds in it. */
#define _GNU_SOURCE
#include <pawl/engine.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define OK(call) do { if (call) { fprintf(stderr, "%s: %s\n", #call, pawl_error_text()); exit(1); } } while (0)

static struct pawl_engine *e;
static pawl_var_t inner;

static int spins(struct pawl_run *run, void *arg)
{
	struct timespec a, b;

	(void)run;
	clock_gettime(CLOCK_MONOTONIC, &a);
	do
		clock_gettime(CLOCK_MONOTONIC, &b);
	while ((b.tv_sec - a.tv_sec) * 1000000000 + b.tv_nsec - a.tv_nsec < (long)arg);
	return 0;
}

static void push(const char *name, const pawl_var_t *r, unsigned int nr, const pawl_var_t *w,
		 unsigned int nw)
{
	struct pawl_op op = PAWL_OP_INIT;

	op.name = name;
	op.fn = spins;
	op.arg = (void *)1000L;
	op.reads = r;
	op.nreads = nr;
	op.writes = w;
	op.nwrites = nw;
	OK(pawl_push(e, &op));
}

/* 200 ops that may all run at once. */
static void plain(void)
{
	pawl_var_t v;
	int i;

	for (i = 0; i < 200; i++) {
		OK(pawl_var_create(e, &v));
		push("plain", NULL, 0, &v, 1);
	}
}

static int waits(struct pawl_run *run, void *arg)
{
	(void)run;
	(void)arg;
	push("inside", NULL, 0, &inner, 1);
	OK(pawl_wait_readable(e, inner, -1, NULL));
	return 0;
}

/* 20 bodies that push and wait: the thread runs another body inside. */
static void nested(void)
{
	struct pawl_op op = PAWL_OP_INIT;
	int i;

	OK(pawl_var_create(e, &inner));
	op.name = "outside";
	op.fn = waits;
	for (i = 0; i < 20; i++) {
		OK(pawl_push(e, &op));
		OK(pawl_wait_all(e, -1, NULL));
	}
}

static void *completes(void *arg)
{
	pawl_token_t *t = arg;

	spins(NULL, (void *)2000000L);
	OK(pawl_complete(e, *t, 0, NULL));
	free(t);
	return NULL;
}

static void starts(struct pawl_run *run, void *arg)
{
	pawl_token_t *t = malloc(sizeof(*t));
	pthread_t thread;

	(void)arg;
	*t = run->token;
	if (pthread_create(&thread, NULL, completes, t) || pthread_detach(thread))
		abort();
}

/* 16 asynchronous ops that overlap, and an op behind each. */
static void async(void)
{
	struct pawl_op op = PAWL_OP_INIT;
	pawl_var_t v;
	int i;

	op.name = "io";
	op.async_fn = starts;
	op.writes = &v;
	op.nwrites = 1;
	for (i = 0; i < 16; i++) {
		OK(pawl_var_create(e, &v));
		OK(pawl_push(e, &op));
		push("behind", &v, 1, NULL, 0);
	}
}

/* 100 launches of a diamond, each of which reads what the one before wrote. */
static void launches(void)
{
	static const pawl_var_t s[3] = { PAWL_SLOT(0), PAWL_SLOT(1), PAWL_SLOT(2) };
	pawl_var_t v;
	struct pawl_op op[4] = {
		{ sizeof(op[0]), .name = "top", .fn = spins, .reads = &v, .nreads = 1,
		  .writes = &s[0], .nwrites = 1 },
		{ sizeof(op[0]), .name = "left", .fn = spins, .reads = &s[0], .nreads = 1,
		  .writes = &s[1], .nwrites = 1 },
		{ sizeof(op[0]), .name = "right", .fn = spins, .reads = &s[0], .nreads = 1,
		  .writes = &s[2], .nwrites = 1 },
		{ sizeof(op[0]), .name = "bottom", .fn = spins, .reads = &s[1], .nreads = 2,
		  .writes = &v, .nwrites = 1 },
	};
	struct pawl_launch how = { sizeof(how), .nvars = 3 };
	pawl_var_t none[3] = { { 0 }, { 0 }, { 0 } };
	pawl_graph_t g;
	int i;

	OK(pawl_var_create(e, &v));
	OK(pawl_graph_create(e, op, 4, 0, &g));
	how.vars = none;
	for (i = 0; i < 100; i++)
		OK(pawl_graph_push(e, g, &how));
	OK(pawl_graph_delete(e, g));
}

/* A write, 20 reads and a write; ten writes that one op reads; the same index for another var. */
static void arrows(void)
{
	pawl_var_t v, w[10], x;
	int i;

	OK(pawl_var_create(e, &v));
	push("w1", NULL, 0, &v, 1);
	for (i = 0; i < 20; i++)
		push("r", &v, 1, NULL, 0);
	push("w2", NULL, 0, &v, 1);
	for (i = 0; i < 10; i++) {
		OK(pawl_var_create(e, &w[i]));
		push("part", NULL, 0, &w[i], 1);
	}
	push("join", w, 10, NULL, 0);
	OK(pawl_var_create(e, &x));
	push("first", NULL, 0, &x, 1);
	OK(pawl_wait_all(e, -1, NULL));
	OK(pawl_var_delete(e, x, NULL, NULL));
	OK(pawl_wait_all(e, -1, NULL));
	OK(pawl_var_create(e, &x));
	push("alone", NULL, 0, &x, 1);
}

static void names(void)
{
	static const char *const name[] = { "quote \" and \\", "line\n", "\xc3\xa9", "\xff\xfe", "\x1b[2J",
					    "\xed\xa0\x80", "", NULL };
	pawl_var_t v;
	size_t i;

	for (i = 0; i < sizeof(name) / sizeof(name[0]); i++) {
		OK(pawl_var_create(e, &v));
		push(name[i], NULL, 0, &v, 1);
	}
}

/* A chain that is longer than the rings. */
static void wrapped(void)
{
	static char name[5000][16];
	pawl_var_t v;
	int i;

	OK(pawl_var_create(e, &v));
	for (i = 0; i < 5000; i++) {
		snprintf(name[i], sizeof(name[i]), "step %d", i);
		push(name[i], NULL, 0, &v, 1);
	}
}

int main(int argc, char **argv)
{
	static const struct { const char *name; void (*fn)(void); } kinds[] = {
		{ "plain", plain }, { "nested", nested }, { "async", async }, { "launches", launches },
		{ "arrows", arrows }, { "names", names }, { "wrapped", wrapped },
	};
	struct pawl_config config;
	size_t i;

	if (argc != 3)
		return 2;
	pawl_config_init(&config);
	config.workers = 2;
	OK(pawl_engine_create(&config, &e));
	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (strcmp(argv[1], kinds[i].name))
			continue;
		if (pawl_trace_start(e, kinds[i].fn == wrapped ? 256 : 16384))
			return 77;	/* built without traces */
		kinds[i].fn();
		OK(pawl_wait_all(e, -1, NULL));
		OK(pawl_trace_stop(e));
		OK(pawl_trace_write(e, argv[2]));
	}
	return pawl_engine_destroy(e) != 0;
}
