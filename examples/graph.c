// SPDX-License-Identifier: Apache-2.0
/*
 * graph - ops described once and pushed many times, each time with other data.
 *
 * The ops of a graph run as their data allows: here left() and right() may run at the same
 * time, and sum() after both.  Which waits for which is computed once, and a push of the graph,
 * a launch, costs little more than a push of one op.
 *
 * The weight is the same var in each launch.  What belongs to a request is a slot: the launch
 * says which var it is, or that nothing outside the launch uses the data.
 */
#include <pawl/engine.h>
#include <stdio.h>

#define REQUESTS	8

enum { LEFT, RIGHT, ANSWER, SLOTS };

static double weight = 0.5;

struct request {
	double question, left, right, answer;
};

static int left(struct pawl_run *run, void *arg)
{
	struct request *r = arg;

	(void)run;
	r->left = weight * r->question;
	return 0;
}

static int right(struct pawl_run *run, void *arg)
{
	struct request *r = arg;

	(void)run;
	r->right = r->question * r->question;
	return 0;
}

static int sum(struct pawl_run *run, void *arg)
{
	struct request *r = arg;

	(void)run;
	r->answer = r->left + r->right;
	return 0;
}

int main(void)
{
	static const pawl_var_t slot[SLOTS] = {
		PAWL_SLOT(LEFT), PAWL_SLOT(RIGHT), PAWL_SLOT(ANSWER),
	};
	struct request req[REQUESTS];
	pawl_var_t w, answer[REQUESTS];
	struct pawl_completion c[REQUESTS];
	struct pawl_engine *e;
	int i, k, n, wrong = 0;
	pawl_graph_t net;
	pawl_cq_t cq;

	if (pawl_engine_create(NULL, &e) || pawl_var_create(e, &w) || pawl_cq_create(e, &cq))
		goto err;

	const struct pawl_op ops[] = {
		{ sizeof(ops[0]), .fn = left, .reads = &w, .nreads = 1, .writes = &slot[LEFT],
		  .nwrites = 1, .name = "left" },
		{ sizeof(ops[0]), .fn = right, .writes = &slot[RIGHT], .nwrites = 1,
		  .name = "right" },
		{ sizeof(ops[0]), .fn = sum, .reads = &slot[LEFT], .nreads = 2,
		  .writes = &slot[ANSWER], .nwrites = 1, .name = "sum" },
	};

	if (pawl_graph_create(e, ops, 3, 0, &net))
		goto err;
	for (i = 0; i < REQUESTS; i++) {
		/* In place of op.arg, one for each op.  The engine copies both arrays. */
		void *args[] = { &req[i], &req[i], &req[i] };
		/* {0} for left and right: they belong to this launch alone. */
		pawl_var_t vars[SLOTS] = { { 0 } };
		struct pawl_launch how = {
			sizeof(how), .vars = vars, .nvars = SLOTS, .args = args, .nargs = 3,
			.flags = PAWL_OP_CQ, .cq = cq, .tag = (uint64_t)i,
		};

		req[i].question = i;
		if (pawl_var_create(e, &answer[i]))
			goto err;
		vars[ANSWER] = answer[i];
		if (pawl_graph_push(e, net, &how))
			goto err;
	}
	/* Deletion takes effect after the last launch. */
	if (pawl_graph_delete(e, net))
		goto err;
	/* An op pushed later, or a wait, finds the answer behind its var. */
	if (pawl_wait_readable(e, answer[2], -1, NULL))
		goto err;
	printf("the answer to 2 is %.1f\n", req[2].answer);
	/* One completion per launch, in the order in which they end. */
	for (i = 0; i < REQUESTS; i += n) {
		n = pawl_cq_wait(e, cq, -1) ? -1 : pawl_cq_reap(e, cq, c, REQUESTS);
		if (n < 0)
			goto err;
		for (k = 0; k < n; k++) {
			double x = (double)c[k].tag;

			wrong += c[k].status || req[c[k].tag].answer != weight * x + x * x;
		}
	}
	printf("%d of %d launches are wrong\n", wrong, REQUESTS);
	return pawl_engine_destroy(e) || wrong;
err:
	fprintf(stderr, "graph: %s\n", pawl_error_text());
	return 1;
}
