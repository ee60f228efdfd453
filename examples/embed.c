// SPDX-License-Identifier: Apache-2.0
/*
 * embed - an engine inside a host that has its own threads.
 *
 * The host decides when the engine's threads exist, where they run and what memory they use.
 * All threads and all memory are made at creation, so later pushes create and allocate nothing.
 * A thread of the host holds a slot in the engine only between attach and detach.  The host
 * stops the workers while it needs the CPUs for itself, and frees unused memory.
 */
#include <inttypes.h>
#include <pawl/engine.h>
#include <pthread.h>
#include <stdio.h>

#define OPS 1000

static struct pawl_engine *e;
static pawl_var_t v;
static uint64_t sum;

static int add(struct pawl_run *run, void *arg)
{
	(void)run;
	*(uint64_t *)arg += 1;
	return 0;
}

/* A thread of the host.  A real-time thread would also lock its memory: see pawl(7). */
static void *host_thread(void *arg)
{
	struct pawl_op op = PAWL_OP_INIT;
	int *rc = arg, i;

	*rc = pawl_thread_attach(e);
	op.fn = add;
	op.arg = &sum;
	op.writes = &v;
	op.nwrites = 1;
	for (i = 0; !*rc && i < OPS; i++)
		*rc = pawl_push(e, &op);
	if (!*rc)
		*rc = pawl_thread_detach(e);
	if (*rc)
		fprintf(stderr, "embed: %s\n", pawl_error_text());
	return NULL;
}

int main(void)
{
	struct pawl_stats s = { .size = sizeof(s) };
	struct pawl_config cfg;
	pthread_t t;
	int rc = 0;

	pawl_config_init(&cfg);
	cfg.workers = 1;
	cfg.max_ops = 4096;
	cfg.max_vars = 64;
	cfg.max_threads = 8;
	cfg.start_workers = true;
	cfg.prefault = true;
	cfg.name = "host";
	/* A real-time host sets these, too: cfg.sched_policy, sched_priority, cpu_list. */
	if (pawl_engine_create(&cfg, &e) || pawl_var_create(e, &v))
		goto err;
	if (pthread_create(&t, NULL, host_thread, &rc) || pthread_join(t, NULL) || rc)
		return 1;
	/* Waits for all ops and joins the workers; start makes them again. */
	if (pawl_engine_stop(e) || pawl_trim(e) || pawl_engine_start(e) || pawl_stats(e, &s))
		goto err;
	printf("pawl %s: %" PRIu64 " ops, %u workers, %" PRIu64 " KiB\n", pawl_version(), sum,
	       s.workers, s.bytes / 1024);
	return pawl_engine_destroy(e) || sum != OPS;
err:
	fprintf(stderr, "embed: %s\n", pawl_error_text());
	return 1;
}
