// SPDX-License-Identifier: Apache-2.0
/*
 * Controls that the harness must convict, in the same run: a queue with a mutex; the ring of
 * Concurrency Kit with several producers and consumers; and liburcu's wfcqueue, whose dequeue
 * waits for an unfinished enqueue.  A thread is stopped after 0, 1, 2 ... instructions of an
 * enqueue and a dequeue, until other threads make no progress.  One more control must pass: a
 * counter that changes by one compare-and-swap.
 */
#include "step.h"
#include "control.h"

#include <ck_ring.h>
/* Inline the small functions. */
#define _LGPL_SOURCE
#include <urcu/wfcqueue.h>

#define SIZE	1024u

/* --- a mutex --- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static u64 line[SIZE], in, out;

static void mutex_turn(u32 who)
{
	pthread_mutex_lock(&lock);
	if (in - out < SIZE)
		line[in++ % SIZE] = who;
	pthread_mutex_unlock(&lock);
	pthread_mutex_lock(&lock);
	if (in != out)
		out++;
	pthread_mutex_unlock(&lock);
}

/* --- Concurrency Kit --- */

static ck_ring_t ring;
static ck_ring_buffer_t ring_slots[SIZE];

static void ck_turn(u32 who)
{
	void *p = NULL;

	(void)ck_ring_enqueue_mpmc(&ring, ring_slots, &line[who]);
	(void)ck_ring_dequeue_mpmc(&ring, ring_slots, &p);
}

/* --- liburcu: several enqueue, one dequeues --- */

static struct cds_wfcq_head wf_head;
static struct cds_wfcq_tail wf_tail;
static struct { struct cds_wfcq_node node; u32 queued; } wf_node[OTHERS + 1];

static void wf_turn(u32 who)
{
	struct cds_wfcq_node *n;

	if (who && !load_acquire(&wf_node[who].queued)) {
		cds_wfcq_node_init(&wf_node[who].node);
		store_release(&wf_node[who].queued, 1);
		cds_wfcq_enqueue(&wf_head, &wf_tail, &wf_node[who].node);
	}
	if (who)
		return;
	n = __cds_wfcq_dequeue_blocking(&wf_head, &wf_tail);
	if (n)
		store_release(&caa_container_of(n, __typeof__(wf_node[0]), node)->queued, 0);
}

/* --- a counter --- */

static void counter_turn(u32 who)
{
	u64 v = load_relaxed(&in);

	while (!cas_acq_rel_relaxed(&in, &v, v + 1))
		;
}

static const struct control {
	const char *name;
	void (*turn)(u32 who);	/* 0, 1: others; 2: the victim */
	bool guilty;
} controls[] = {
	{ "mutex", mutex_turn, true },
	{ "ck_ring", ck_turn, true },
	{ "wfcqueue", wf_turn, true },
	{ "compare-and-swap", counter_turn, false },
};

static const struct control *current;

static void round_control(struct other *o)
{
	u32 i;

	for (i = 0; i < 20; i++)
		current->turn(o->id ? 0 : 1);
}

static void job_control(struct victim *v)
{
	step_begin(v);
	current->turn(2);
	step_end(v);
}

static void control_child(void *arg)
{
	struct victim *v = &victims[0];
	u64 k;

	current = arg;
	step_init();
	step_anywhere = step_convict = true;
	stall_ms = 600;
	ck_ring_init(&ring, SIZE);
	cds_wfcq_init(&wf_head, &wf_tail);
	victims_start(1);
	others_start(OTHERS, round_control);
	for (k = 0; k < 3000; k++) {
		v->crawl = true;
		v->every = false;
		v->left = k;
		victim_job(v, job_control);
		if (!victim_wait(v))
			break;
		if (!others_go(v->at, k)) {
			victim_finish(v);
			/* Check that the others waited for the stopped thread. */
			step_convict = false;
			stall_ms = STALL_MS;
			MUST(others_go(v->at, k));
			break;
		}
		victim_finish(v);
	}
	MUST(k > 5);
	others_stop();
	victims_stop(1);
}

const char *controls_run(void)
{
	static char names[100];
	u64 parks = found->parks, rounds = found->rounds, jobs = found->jobs;
	bool bad = false;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(controls); i++) {
		const struct control *c = &controls[i];
		u32 convicted;

		step_what = c->name;
		found->convicted = 0;
		if (child(control_child, (void *)(uintptr_t)c, 120))
			bad = true;
		convicted = found->convicted;
		printf("  control  %s: %s after %llu parks\n", c->name,
		       convicted ? "convicted" : "not convicted",
		       (unsigned long long)(found->parks - parks));
		if (convicted != (u32)c->guilty) {
			printf("    that is wrong\n");
			bad = true;
		} else if (c->guilty) {
			strcat(strcat(names, *names ? "," : ""), c->name);
		}
		/* These instructions are not the engine's. */
		found->parks = parks;
		found->rounds = rounds;
		found->jobs = jobs;
	}
	return bad ? NULL : names;
}
