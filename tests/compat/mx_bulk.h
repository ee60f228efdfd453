/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of bulks share. */
#ifndef TESTS_COMPAT_MX_BULK_H
#define TESTS_COMPAT_MX_BULK_H

#include "mx_test.h"
#include <pthread.h>


/* Bodies run on other threads, where Check's assertions do not work. */
#define MUST(x) do {								\
		if (!(x)) {							\
			fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #x, \
				pawl_mx_last_error());				\
			abort();						\
		}								\
	} while (0)

static const struct pawl_mx_context cpu1 MX_UNUSED = { PAWL_MX_CPU, 1 };

MX_UNUSED static void nap_us(long us)
{
	const struct timespec ts = { 0, us * 1000 };

	nanosleep(&ts, NULL);
}

MX_UNUSED static void until(unsigned int *word, unsigned int v)
{
	int i;

	for (i = 0; i < 600000 && GET(word) != v; i++)
		nap_us(100);
	MUST(GET(word) == v);
}

MX_UNUSED static struct pawl_mx_engine *engine(void)
{
	struct pawl_mx_engine *e = NULL;

	MUST(!pawl_mx_engine_create(PAWL_MX_PER_DEVICE, &e));
	/*
	 * The size belongs to the thread: without a fork per test, the previous test has left
	 * its own.
	 */
	MUST(pawl_mx_set_bulk_size(e, 0) >= 0);
	return e;
}

MX_UNUSED static struct pawl_mx_var *var_new(struct pawl_mx_engine *e)
{
	struct pawl_mx_var *v = NULL;

	MUST(!pawl_mx_var_new(e, &v));
	return v;
}

MX_UNUSED static pthread_t spawn(void *(*fn)(void *), void *arg)
{
	pthread_t t;

	MUST(!pthread_create(&t, NULL, fn, arg));
	return t;
}

MX_UNUSED static void join(pthread_t t)
{
	MUST(!pthread_join(t, NULL));
}

MX_UNUSED static uint64_t pushed(struct pawl_mx_engine *e)
{
	struct pawl_stats st = { .size = sizeof(st) };

	MUST(!pawl_stats(pawl_mx_engine_pawl(e), &st));
	return st.pushed;
}

/* --- bodies --- */

MX_UNUSED static void add_one(void *run, void *arg)
{
	ADD((unsigned int *)arg, 1);
}

MX_UNUSED static void nothing(void *run, void *arg)
{
}

MX_UNUSED static void fails(void *run, void *arg)
{
	pawl_mx_fail(run, "disk on fire");
}

MX_UNUSED static void at_once(void *run, void *on_complete, void *arg)
{
	struct pawl_mx_callback cb = *(struct pawl_mx_callback *)on_complete;

	cb.callback(cb.engine, cb.param, NULL);
}

/* Until the test opens it. */
MX_UNUSED static void gate(void *run, void *arg)
{
	until(arg, 1);
}

static unsigned int dropped MX_UNUSED;

MX_UNUSED static void drop(void *arg)
{
	ADD(&dropped, 1);
}

MX_UNUSED static struct pawl_mx_op op_on(pawl_mx_sync_fn fn, void *arg, struct pawl_mx_var *const *v)
{
	struct pawl_mx_op op = { .sync = fn, .arg = arg, .drop = drop, .ctx = cpu,
				 .writes = v, .nwrites = 1 };

	return op;
}

MX_UNUSED static int push(struct pawl_mx_engine *e, pawl_mx_sync_fn fn, void *arg, struct pawl_mx_var *v)
{
	struct pawl_mx_op op = op_on(fn, arg, &v);

	return pawl_mx_push(e, &op, NULL);
}

#endif
