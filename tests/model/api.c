// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <core/wait.h>
#include "api.h"

const struct test *test;
struct pawl_engine *e;
pawl_var_t var[VARS];
u64 passed, runs, count_given, dropped;
u64 data[VARS];
int null_fd;

void note(u64 *p)
{
	model_note(p, *p + 1);
}

void run_all(void)
{
	while (pawl_run_one(e))
		;
}

void push(pawl_fn fn, void *arg, u32 w, u32 prop)
{
	struct pawl_op d = PAWL_OP_INIT;

	d.fn = fn;
	d.arg = arg;
	d.writes = &var[w];
	d.nwrites = 1;
	d.prop = (u16)prop;
	MODEL_CHECK(!pawl_push(e, &d));
}

int body_ok(struct pawl_run *run, void *arg)
{
	data[(uintptr_t)arg]++;
	note(&runs);
	return 0;
}

void push_ok(u32 w)
{
	push(body_ok, (void *)(uintptr_t)w, w, PAWL_NORMAL);
}

static void drop(void *user, void *p)
{
	note(&dropped);
	(*(u64 *)p)++;
}

static void warm(struct thread *t)
{
	static const u32 pools[] = { POOL_OP, POOL_BLOCK, POOL_VAR, POOL_ERROR, POOL_GRAPH, POOL_NOTE,
		POOL_CQ };
	u32 i, idx;

	for (i = 0; i < ARRAY_SIZE(pools); i++) {
		struct pool *p = e->pool[pools[i]];

		if (pool_get(p, &t->cache[pools[i]], &idx))
			pool_put(p, &t->cache[pools[i]], idx);
	}
}

void setup(void)
{
	struct pawl_config c;
	u32 i;

	test = model_arg();
	null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	pawl_config_init(&c);
	c.kind = test->kind;
	c.workers = 0;
	c.max_ops = 64;
	c.max_vars = 16;
	c.max_threads = 8;
	c.spin_ns = 0;
	c.trim_ns = 0;
	c.drop = drop;
	if (test->window) {
		c.window = test->window;
		c.window_policy = PAWL_WINDOW_FAIL;
	}
	if (pawl_engine_create(&c, &e))
		model_fail("create: %s", pawl_error_text());
	for (i = 0; i < VARS; i++)
		if (pawl_var_create(e, &var[i]))
			model_fail("var_create");
	warm(thread_get(e));
}

/* The set-up belongs to thread 0. */
void enter(u32 i)
{
	struct thread *t = thread_get(e);

	if (!t)
		model_fail("enter");
	warm(t);
	t->next_check = test->window ? 0 : ~0ull;
	if (!i && test->before)
		test->before();
	if (!test->leaves)
		model_forget_exit();
}

void thread(u32 i)
{
	test->thread[i]();
	run_all();
}

void check(void)
{
	run_all();
	if (test->check)
		test->check();
	MODEL_CHECK(!ops_in_flight(e));
}
