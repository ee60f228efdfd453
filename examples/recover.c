// SPDX-License-Identifier: Apache-2.0
/*
 * recover - catch an error inside a pipeline whose buffers are used again.
 *
 * Each frame passes two ops in one of a few buffers; one frame in ten is bad.  An error poisons the
 * buffer's vars, and would skip every later frame in this buffer.  So the last op of each frame is
 * pushed with PAWL_OP_NO_SKIP: it runs in any case, and if run->status is not 0, it takes the error
 * from the var that it reads.  pawl_var_take() clears this error everywhere, so the buffer is clean
 * for the next frame, and what the op itself writes is not poisoned.  The call belongs inside this
 * body: when a completion arrives, the next frame may already have been skipped.
 */
#include <errno.h>
#include <pawl/engine.h>
#include <stdio.h>

#define BUFFERS	4
#define FRAMES	100

struct buffer {
	int frame, raw, out;
	pawl_var_t vraw, vout;		/* of raw and of out */
};

static struct buffer buffer[BUFFERS];
static int pushed;
static struct { int good, bad; } count;	/* of the frames; its var is vcount */

static int decode(struct pawl_run *run, void *arg)
{
	struct buffer *b = arg;

	if (b->frame % 10 == 3)
		return pawl_fail(run, -EBADMSG, "frame %d: bad header", b->frame);
	b->raw = b->frame;
	return 0;
}

static int encode(struct pawl_run *run, void *arg)
{
	struct buffer *b = arg;

	(void)run;
	b->out = b->raw + 1;
	return 0;
}

/* The catch: it reads b->vout and writes vcount. */
static int deliver(struct pawl_run *run, void *arg)
{
	struct buffer *b = arg;
	struct pawl_error why;

	if (run->status && pawl_var_take(run->engine, b->vout, &why)) {
		if (!count.bad++)
			printf("the first bad frame: op %s: %s\n", why.op, why.text);
		return 0;		/* handled: count is not poisoned */
	}
	if (b->out != b->frame + 1)
		return -EPROTO;
	count.good++;
	return 0;
}

/* Push the ops of the next frame, in a buffer that no op uses. */
static int frame_push(struct pawl_engine *e, struct buffer *b, pawl_var_t vcount, pawl_cq_t cq)
{
	struct pawl_op ops[] = {
		{ sizeof(struct pawl_op), .fn = decode, .arg = b,
		  .writes = &b->vraw, .nwrites = 1, .name = "decode" },
		{ sizeof(struct pawl_op), .fn = encode, .arg = b, .reads = &b->vraw, .nreads = 1,
		  .writes = &b->vout, .nwrites = 1, .name = "encode" },
		{ sizeof(struct pawl_op), .fn = deliver, .arg = b, .reads = &b->vout, .nreads = 1,
		  .writes = &vcount, .nwrites = 1, .name = "deliver",
		  .flags = PAWL_OP_NO_SKIP | PAWL_OP_CQ, .cq = cq, .tag = (uint64_t)(b - buffer) },
	};

	b->frame = pushed++;
	return pawl_push_batch(e, ops, 3);
}

int main(void)
{
	struct pawl_named_completion c[BUFFERS];
	int done = 0, failed = 0, n, i;
	struct pawl_engine *e;
	pawl_var_t vcount;
	pawl_cq_t cq;

	if (pawl_engine_create(NULL, &e) || pawl_cq_create(e, &cq) || pawl_var_create(e, &vcount))
		goto err;
	for (i = 0; i < BUFFERS; i++)
		if (pawl_var_create(e, &buffer[i].vraw) || pawl_var_create(e, &buffer[i].vout) ||
		    frame_push(e, &buffer[i], vcount, cq))
			goto err;
	while (done < FRAMES) {
		if (pawl_cq_wait(e, cq, -1))
			goto err;
		n = pawl_cq_reap_named(e, cq, c, BUFFERS);
		if (n < 0)
			goto err;
		for (i = 0; i < n; i++, done++) {
			/* The completion still has the error that the op found. */
			if (c[i].status && !failed++)
				printf("its completion: op %s, status %d\n", c[i].op, c[i].status);
			if (pushed < FRAMES && frame_push(e, &buffer[c[i].tag], vcount, cq))
				goto err;
		}
	}
	/* All errors were handled, so this wait finds none. */
	if (pawl_wait_all(e, -1, NULL))
		goto err;
	printf("%d frames: %d good, %d bad\n", FRAMES, count.good, count.bad);
	if (count.good != FRAMES - FRAMES / 10 || count.bad != FRAMES / 10 || failed != count.bad)
		return 1;
	return pawl_engine_destroy(e) != 0;
err:
	fprintf(stderr, "recover: %s\n", pawl_error_text());
	return 1;
}
