// SPDX-License-Identifier: Apache-2.0
/*
 * async - an op whose body starts work and returns.
 *
 * The body hands its token to another thread, which plays the part of a disk or a network.
 * That thread completes the op: it calls pawl_complete() with the token, exactly once.  No
 * worker of the engine waits in the meantime.
 */
#include <pawl/engine.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#define REQUESTS 8

struct request {
	struct pawl_engine *e;
	pawl_token_t token;
	int number, answer;
};

static int queue[2];		/* a pipe to the thread that answers */

static void ask(struct pawl_run *run, void *arg)
{
	struct request *r = arg;

	r->e = run->engine;
	r->token = run->token;
	if (write(queue[1], &r, sizeof(r)) != sizeof(r))
		pawl_complete(r->e, r->token, -5 /* -EIO */, "the pipe is broken");
	/* From here on *r belongs to the other thread. */
}

static void *answers(void *unused)
{
	struct request *r;

	(void)unused;
	while (read(queue[0], &r, sizeof(r)) == sizeof(r)) {
		r->answer = r->number * r->number;
		if (pawl_complete(r->e, r->token, 0, NULL))
			fprintf(stderr, "async: %s\n", pawl_error_text());
	}
	return NULL;
}

static int total(struct pawl_run *run, void *arg)
{
	struct request *r = arg;
	int i, sum = 0;

	(void)run;
	for (i = 0; i < REQUESTS; i++)
		sum += r[i].answer;
	printf("%d\n", sum);
	return sum == 140 ? 0 : -22;	/* -EINVAL: the wait below reports it */
}

int main(void)
{
	struct request r[REQUESTS] = { { 0 } };
	struct pawl_op op = PAWL_OP_INIT;
	pawl_var_t v[REQUESTS];
	struct pawl_engine *e;
	pthread_t thread;
	int i;

	if (pipe(queue) || pthread_create(&thread, NULL, answers, NULL))
		return 1;
	if (pawl_engine_create(NULL, &e))
		goto err;
	op.async_fn = ask;
	op.nwrites = 1;
	for (i = 0; i < REQUESTS; i++) {
		r[i].number = i;
		op.arg = &r[i];
		op.writes = &v[i];
		if (pawl_var_create(e, &v[i]) || pawl_push(e, &op))
			goto err;
	}
	/* This op reads all answers, so it runs after the last of them is complete. */
	if (pawl_push(e, &(struct pawl_op){ sizeof(op), .fn = total, .arg = r, .reads = v,
					    .nreads = REQUESTS }) ||
	    pawl_wait_all(e, -1, NULL))
		goto err;
	/* No thread may be inside a call on the engine when it is destroyed. */
	close(queue[1]);
	pthread_join(thread, NULL);
	return pawl_engine_destroy(e) != 0;
err:
	fprintf(stderr, "async: %s\n", pawl_error_text());
	return 1;
}
