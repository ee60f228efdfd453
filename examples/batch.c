// SPDX-License-Identifier: Apache-2.0
/*
 * batch - several ops that take their positions at one point in time.
 *
 * Two threads move money between two accounts; a transfer is two ops, one for each account.
 * Because a batch takes all its positions at once, no other push comes between the two, and an
 * op that reads both accounts always sees the same total.  Two single pushes would not
 * guarantee that.
 */
#include <pawl/engine.h>
#include <pthread.h>
#include <stdio.h>

#define TRANSFERS 1000

static struct pawl_engine *e;
static pawl_var_t v[2];
static int account[2] = { 500, 500 };

static int take(struct pawl_run *run, void *arg)
{
	(void)run;
	*(int *)arg -= 1;
	return 0;
}

static int give(struct pawl_run *run, void *arg)
{
	(void)run;
	*(int *)arg += 1;
	return 0;
}

static int audit(struct pawl_run *run, void *arg)
{
	(void)arg;
	if (account[0] + account[1] == 1000)
		return 0;
	return pawl_fail(run, -22, "%d + %d is not 1000", account[0], account[1]);
}

/* Transfers from account `from` to the other one, with an audit now and then. */
static void *transfers(void *arg)
{
	int from = *(int *)arg, i;
	const struct pawl_op move[] = {
		{ sizeof(move[0]), .fn = take, .arg = &account[from], .writes = &v[from],
		  .nwrites = 1 },
		{ sizeof(move[0]), .fn = give, .arg = &account[!from], .writes = &v[!from],
		  .nwrites = 1 },
	};
	const struct pawl_op check = { sizeof(check), .fn = audit, .reads = v, .nreads = 2 };

	for (i = 0; i < TRANSFERS; i++)
		if (pawl_push_batch(e, move, 2) || (i % 10 == 0 && pawl_push(e, &check)))
			return (void *)pawl_error_text();
	return NULL;
}

int main(void)
{
	int from[2] = { 0, 1 };
	pthread_t thread;
	void *failed, *other = NULL;

	if (pawl_engine_create(NULL, &e) || pawl_var_create(e, &v[0]) || pawl_var_create(e, &v[1]) ||
	    pthread_create(&thread, NULL, transfers, &from[1]))
		goto err;
	failed = transfers(&from[0]);
	pthread_join(thread, &other);
	if (failed || other || pawl_wait_all(e, -1, NULL))
		goto err;
	printf("%d\n", account[0] + account[1]);
	return pawl_engine_destroy(e) != 0;
err:
	fprintf(stderr, "batch: %s\n", pawl_error_text());
	return 1;
}
