// SPDX-License-Identifier: Apache-2.0
/*
 * Large texts: the JSON of requests and answers, and the metrics of many models.
 *
 * To read or write a text of megabytes takes as long as thousands of requests, so ops of the
 * engine do it, while the loop continues.  An op works for about PIECE_NS; then the loop pushes
 * the next one, behind the runs that wait for a worker.  A loop has few ops in flight, so that
 * a run waits for one or two of them, and its texts take turns, so that a small one does not
 * wait for a large one.
 *
 * Ownership: the op owns the text, and what its step reads and writes, from its push until the
 * loop receives its message.
 */

#include <errno.h>

#include "serve.h"

#define PIECE_NS	250000u

static void push(struct loop *l);

static void append(struct loop *l, struct text *t)
{
	t->next = NULL;
	*(l->texts ? l->texts_tail : &l->texts) = t;
	l->texts_tail = &t->next;
}

static void arrived(struct msg *m)
{
	struct text *t = m->arg;
	struct loop *l = t->loop;

	l->ntexts--;
	if (t->status == -EAGAIN) {
		append(l, t);
	} else {
		add_relaxed(&l->busy, (u64)-1);
		t->done(t);
	}
	push(l);
}

static int piece(struct pawl_run *run, void *arg)
{
	struct text *t = arg;

	(void)run;
	t->status = t->step(t, now_ns() + PIECE_NS);
	port_send(&t->loop->port, &t->msg, arrived, t);
	return 0;
}

static void push(struct loop *l)
{
	const struct config *cfg = &l->sv->cfg;
	unsigned int most = cfg->workers > cfg->loops ? (cfg->workers - 1) / cfg->loops : 1;
	struct pawl_op op;
	struct text *t;

	while (l->texts && l->ntexts < (most ? most : 1)) {
		t = l->texts;
		l->texts = t->next;
		l->ntexts++;
		op = (struct pawl_op)PAWL_OP_INIT;
		op.fn = piece;
		op.arg = t;
		op.name = "text";
		if (!pawl_push_batch(l->sv->e[WORKERS], &op, 1))
			continue;
		/* the engine has no memory: without an op the loop does it */
		do
			t->status = t->step(t, UINT64_MAX);
		while (t->status == -EAGAIN);
		port_send(&l->port, &t->msg, arrived, t);
	}
}

void text_begin(struct text *t, struct loop *l, int (*step)(struct text *, uint64_t),
		void (*done)(struct text *))
{
	t->loop = l;
	t->step = step;
	t->done = done;
	append(l, t);
	add_relaxed(&l->busy, 1);
	push(l);
}
