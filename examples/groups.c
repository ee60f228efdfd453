// SPDX-License-Identifier: Apache-2.0
/*
 * groups - the ops of a client together: counted, limited, waited for, canceled.
 *
 * The group {0} is the engine.  With PAWL_WINDOW_FAIL a push never waits: beyond config.window
 * it returns -EAGAIN, and a completion says when there is room.
 */
#include <errno.h>
#include <inttypes.h>
#include <pawl/engine.h>
#include <stdatomic.h>
#include <stdio.h>

#define OPS 5000
#define ROOM 1		/* the tag of "there is room again" */

static _Atomic uint64_t done;

static int work(struct pawl_run *run, void *arg)
{
	(void)run;
	atomic_fetch_add_explicit((_Atomic uint64_t *)arg, 1, memory_order_relaxed);
	return 0;
}

static int hold(struct pawl_run *run, void *arg)
{
	(void)arg;
	while (!pawl_run_canceled(run))
		;
	return -ECANCELED;
}

int main(void)
{
	struct pawl_group_limits limits = { .size = sizeof(limits), .tag = ROOM, .low = 25 };
	struct pawl_op op = PAWL_OP_INIT;
	struct pawl_completion c;
	struct pawl_config cfg;
	struct pawl_engine *e;
	pawl_group_t client;
	uint64_t ops, cost;
	pawl_cq_t cq;
	pawl_var_t v;
	int i, rc;

	pawl_config_init(&cfg);
	cfg.window = 64;
	cfg.window_policy = PAWL_WINDOW_FAIL;
	cfg.max_ops = 1024;
	if (pawl_engine_create(&cfg, &e) || pawl_cq_create(e, &cq) || pawl_var_create(e, &v))
		goto err;
	limits.cq = cq;
	if (pawl_group_limit(e, (pawl_group_t){ 0 }, &limits) ||
	    pawl_group_create(e, NULL, &client))
		goto err;
	op.flags = PAWL_OP_GROUP | PAWL_OP_COST;
	op.group = client;
	op.cost = 10;
	op.fn = work;
	op.arg = &done;
	for (i = 0; i < OPS; i++) {
		while ((rc = pawl_push(e, &op)) == -EAGAIN) {
			/* A loop would sleep until pawl_cq_fd() is readable. */
			if (pawl_cq_wait(e, cq, -1) || pawl_cq_reap(e, cq, &c, 1) != 1 || c.tag != ROOM)
				goto err;
		}
		if (rc)
			goto err;
	}
	if (pawl_group_wait(e, client, -1) || done != OPS)
		goto err;

	/* The client is gone: what it has pushed need not run. */
	op.writes = &v;
	op.nwrites = 1;
	op.fn = hold;
	if (pawl_push(e, &op))
		goto err;
	op.fn = work;
	for (i = 0; i < 10; i++)
		if (pawl_push(e, &op))
			goto err;
	if (pawl_group_count(e, client, &ops, &cost))
		goto err;
	printf("%" PRIu64 " ops of cost %" PRIu64 " are canceled\n", ops, cost);
	if (pawl_group_cancel(e, client) || pawl_group_wait(e, client, -1) ||
	    pawl_group_destroy(e, client))
		goto err;
	if (pawl_wait_all(e, -1, NULL) != -ECANCELED)
		return 1;
	return pawl_engine_destroy(e) || done != OPS || ops != 11 || cost != 110;
err:
	fprintf(stderr, "groups: %s\n", pawl_error_text());
	return 1;
}
