// SPDX-License-Identifier: Apache-2.0
/*
 * insight - what an engine is doing, for an operator.
 *
 * Statistics can be read at any time without stopping any thread: as structs, or as text for
 * Prometheus.  A watchdog reports what has not moved for long; a timer of the host would call
 * it.  pawl_dump() writes the state of an engine that hangs, also from a signal handler.
 */
#include <inttypes.h>
#include <pawl/engine.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct pawl_engine *e;
static atomic_bool go;

static int slow(struct pawl_run *run, void *arg)
{
	(void)run;
	(void)arg;
	while (!atomic_load_explicit(&go, memory_order_acquire))
		usleep(100);
	return 0;
}

/* kill -USR1 shows why nothing happens. */
static void on_usr1(int sig)
{
	(void)sig;
	pawl_dump(e, STDOUT_FILENO);
}

static void stalled(void *arg, const struct pawl_stalled *s)
{
	if (s->what != PAWL_STALLED_BODY)
		return;
	printf("%s has run for more than %" PRIu64 " ms; %" PRIu64 " op waits for it\n",
	       s->name, s->ns / 1000000, s->behind);
	*(int *)arg += 1;
}

int main(void)
{
	struct pawl_queue_stats q = { .size = sizeof(q) };
	struct pawl_stats s = { .size = sizeof(s) };
	struct sigaction act = { .sa_handler = on_usr1 };
	struct pawl_op op = PAWL_OP_INIT;
	struct pawl_config cfg;
	char text[16384];
	uint64_t version;
	int reports = 0, n;
	pawl_var_t v;

	/* pawl top can show what follows, with PAWL_PUBLISH=0 in the environment not. */
	if (pawl_publish(true))
		fprintf(stderr, "insight: %s\n", pawl_error_text());
	pawl_config_init(&cfg);
	cfg.workers = 1;
	if (pawl_engine_create(&cfg, &e) || pawl_var_create(e, &v) || sigaction(SIGUSR1, &act, NULL))
		goto err;
	op.fn = slow;
	op.name = "slow";
	op.writes = &v;
	op.nwrites = 1;
	if (pawl_push(e, &op) || pawl_push(e, &op))
		goto err;
	/* What two calls both find has not moved for as long as lies between them. */
	while (!reports) {
		if (pawl_watch(e, 2000000, stalled, &reports) < 0)
			goto err;
		usleep(1000);
	}
	fflush(stdout);
	raise(SIGUSR1);
	atomic_store_explicit(&go, true, memory_order_release);
	if (pawl_wait_all(e, -1, NULL) || pawl_var_version(e, v, &version))
		goto err;

	if (pawl_stats(e, &s) ||
	    pawl_queue_stats(e, (struct pawl_device){ PAWL_CPU, 0 }, PAWL_NORMAL, &q))
		goto err;
	printf("%" PRIu64 " pushed, %" PRIu64 " completed, %" PRIu64 " writes of v; queue %s: %"
	       PRIu64 " waited\n", s.pushed, s.completed, version, q.name, q.pushed);
	n = pawl_prometheus(&e, 1, text, sizeof(text));
	if (n < 0)
		goto err;
	printf("%.*s...\n", (int)strcspn(text, "\n"), text);
	return pawl_engine_destroy(e) || s.completed != s.pushed || version != 2;
err:
	fprintf(stderr, "insight: %s\n", pawl_error_text());
	return 1;
}
