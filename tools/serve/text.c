// SPDX-License-Identifier: Apache-2.0
/*
 * Large texts: the JSON of requests and answers, and the metrics of many models.
 *
 * To read or write a text of megabytes takes as long as thousands of requests, so ops of the
 * engine do it, while the loop continues.  They have the engine's priority queue, whose threads
 * run nothing else: a text does not wait for a layer that takes seconds, nor a run for a text,
 * and the kernel divides the CPUs among them.  An op works for about PIECE_NS; then the loop
 * pushes the next one.  A loop has as many ops in flight as its share of these threads, and its
 * texts take turns, so that a small one does not wait for a large one.
 *
 * Ownership: the op owns the text, and what its step reads and writes, from its push until the
 * loop receives its message.
 */

#include <errno.h>

#include "serve.h"

#define PIECE_NS	500000u

static void push(struct loop *l);

unsigned int text_threads(const struct config *cfg)
{
	return cfg->workers > 2 ? cfg->workers / 2 : 1;
}

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
	unsigned int most = text_threads(cfg) / cfg->loops;
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
		op.prop = PAWL_CPU_PRIORITIZED;
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
