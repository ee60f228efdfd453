// SPDX-License-Identifier: Apache-2.0
/*
 * limits - a server that accepts no more than it can hold.
 *
 * The ops of a client are a group with a limit on their bytes.  A push beyond it is refused at
 * once; the loop then does nothing for this client until a completion says that there is room.
 */
#include <errno.h>
#include <pawl/engine.h>
#include <stdio.h>

#define REQUESTS 200
#define ROOM 1000	/* the tag of "there is room again"; others are requests */

static int serve(struct pawl_run *run, void *arg)
{
	(void)run;
	(void)arg;
	return 0;
}

int main(void)
{
	struct pawl_group_limits limits = { .size = sizeof(limits) };
	struct pawl_op op = PAWL_OP_INIT;
	struct pawl_completion c[16];
	struct pawl_engine *e;
	pawl_group_t client;
	pawl_cq_t cq;
	int sent = 0, served = 0, room = 1, i, n, rc;

	if (pawl_engine_create(NULL, &e) || pawl_cq_create(e, &cq))
		goto err;
	limits.cost = 64 << 10;
	limits.low = 25;
	limits.cq = cq;
	limits.tag = ROOM;
	if (pawl_group_create(e, &limits, &client))
		goto err;
	op.fn = serve;
	op.flags = PAWL_OP_CQ | PAWL_OP_GROUP | PAWL_OP_COST;
	op.cq = cq;
	op.group = client;
	op.cost = 8 << 10;

	while (served < REQUESTS) {
		while (room && sent < REQUESTS) {
			op.tag = (uint64_t)sent;
			rc = pawl_push(e, &op);
			if (rc && rc != -EAGAIN)
				goto err;
			room = !rc;
			sent += !rc;
		}
		/* A loop would sleep until pawl_cq_fd() is readable. */
		if (pawl_wait(e, PAWL_WAIT_CQ | PAWL_WAIT_NO_HELP, cq.h, -1, NULL))
			goto err;
		n = pawl_cq_reap(e, cq, c, 16);
		for (i = 0; i < n; i++) {
			if (c[i].tag == ROOM)
				room = 1;
			else if (!c[i].status)
				served++;
		}
	}
	printf("%d served\n", served);
	return pawl_engine_destroy(e) || served != REQUESTS;
err:
	fprintf(stderr, "limits: %s\n", pawl_error_text());
	return 1;
}
