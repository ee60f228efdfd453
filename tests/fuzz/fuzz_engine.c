// SPDX-License-Identifier: Apache-2.0
/*
 * The engine under calls that bytes select: which call, with which arguments, by which of
 * three threads; and, if the engine has no workers, also the actions of bodies, which ready op
 * runs when, and which thread completes what.  One call is made at a time, so there is one
 * order of all pushes, and a serial model predicts the result.  Without workers (three inputs
 * of four) the bytes determine everything.
 *
 *   while ops run: no op runs beside a writer; each op finds the version that the number of
 *     writes pushed before it demands (engine_run.c);
 *   graphs: a launch is one op; of three bodies, with vars, arguments and notes of the launch,
 *     each runs once and in order;
 *   completion queues, tickets, deadlines, groups, interrupts: engine_notes.c;
 *   calls: each returns what the documentation says, also with bad arguments (engine_push.c,
 *     engine_wait.c);
 *   waits: the ops that they wait for are complete when they return (engine_wait.c);
 *   at the end: the data are those of a serial run; the skipped ops, their errors, and the
 *     errors that each wait returned follow from the log and the rules of errors.md; each op
 *     was released once (engine_model.c); the engine's own counts agree.
 */
#include "engine.h"

#define BYTES	2048u

const char fuzz_target[] = "engine";
const uint8_t *fuzz_data;
size_t fuzz_size;

struct world *w;
__thread struct caller *me;
int null_fd = -1;
u64 total_ops, total_arrived, total_canceled, total_refused, total_interrupts;
u64 total_launches, total_copied;
static u64 total_calls;

u8 byte(void)
{
	return w->at < w->n ? w->p[w->at++] : 0;
}

bool more(void)
{
	return w->at < w->n;
}

static void end_thread(struct caller *c)
{
	if (!c->alive)
		return;
	c->fn = NULL;
	sem_post(&c->go);
	pthread_join(c->thread, NULL);
	c->alive = false;
}

/* End one of the two helpers; another thread replaces it later. */
static void do_end_thread(void)
{
	struct caller *c = &w->caller[1 + byte() % (CALLERS - 1)];

	if (c->in || !c->alive)
		return;
	end_thread(c);
}

/* --- which call, by whom --- */

static void *caller_main(void *arg)
{
	me = arg;
	for (;;) {
		while (sem_wait(&me->go))
			;
		if (!me->fn)
			return NULL;
		me->fn();
		sem_post(&me->done);
	}
}

static void on(u32 k, void (*fn)(void))
{
	struct caller *c = k < CALLERS ? &w->caller[k] : me;

	total_calls++;
	fuzz_say("call %u by %u\n", w->p[w->at - 1] & 63, c->id);
	/* In a naive engine the push of another thread would wait for this body. */
	if (c->in || (w->naive && w->depth)) {
		fn();
		return;
	}
	if (!c->alive) {
		c->thread = spawn(caller_main, c);
		c->alive = true;
	}
	c->in = true;
	c->fn = fn;
	sem_post(&c->go);
	while (sem_wait(&c->done))
		;
	c->in = false;
}

static void (*const calls[64])(void) = {
	do_push, do_push, do_push, do_push, do_push, do_push, do_push, do_push,
	do_push, do_push, do_push, do_push, do_push, do_push, do_push, do_push,
	do_batch, do_batch, do_batch, do_batch, do_oper_new, do_oper_new,
	do_oper_push, do_oper_push, do_oper_push, do_oper_push, do_oper_delete,
	do_var_new, do_var_new, do_var_delete, do_var_delete, do_var_delete,
	do_complete, do_complete, do_complete, do_complete, do_complete, do_complete,
	do_wait_readable, do_wait_readable, do_wait_readable, do_wait_readable,
	do_wait_writable, do_wait_writable, do_wait_writable, do_wait_all, do_wait_all,
	do_run_one, do_run_one, do_run_one, do_run_one, do_run_one, do_run_until,
	do_push, do_batch, do_clear, do_clear, do_query, do_query, do_look,
	do_stop, do_bad, do_bad, do_end_thread,
};

/* In an input with notes, instead of some of these calls. */
static void (*const notes_calls[64])(void) = {
	[10] = do_thread, [11] = do_queue, [12] = do_queue, [13] = do_ticket, [14] = do_ticket,
	[15] = do_group, [22] = do_queue, [23] = do_ticket, [24] = do_group, [36] = do_ticket,
	[37] = do_group, [54] = do_thread,
};

void steps(u32 n)
{
	while (n-- && more()) {
		u8 b = byte(), k = b & 63;

		on(b >> 6, w->notes && notes_calls[k] ? notes_calls[k] : calls[k]);
	}
}

static void finish(void)
{
	struct pawl_stats st = { .size = sizeof(st) };
	u64 n;
	u32 i;

	for (i = 1; i < CALLERS; i++) {
		struct caller *c = &w->caller[i];

		if (!c->alive)
			continue;
		end_thread(c);
	}
	quiesce();
	if (w->notes)
		notes_end();
	for (i = 0; i < w->nslots; i++)
		if (!w->slot[i].dead) {
			GOOD(!pawl_var_version(w->e, w->slot[i].v, &n));
			if (n != w->slot[i].pushed)
				fuzz_broken("slot %u ends at version %llu, expected %llu", i,
					    (unsigned long long)n, (unsigned long long)w->slot[i].pushed);
		}
	GOOD(!pawl_stats(w->e, &st));
	GOOD(!pawl_engine_destroy(w->e));
	model_run();
	if (st.failed != w->failed || st.skipped != w->skipped)
		fuzz_broken("the engine counts %llu failed and %llu skipped, expected %llu and %llu",
			    (unsigned long long)st.failed, (unsigned long long)st.skipped,
			    (unsigned long long)w->failed, (unsigned long long)w->skipped);
	for (i = 0; i < w->nopers; i++)
		GOOD(w->oper[i].released == 1);
}

static void configure(void)
{
	static const u8 workers[8] = { 0, 0, 0, 0, 0, 0, 1, 2 };
	u8 a = byte(), b = byte();
	struct pawl_config *c = &w->cfg;

	*c = small(a % 3, workers[a >> 2 & 7]);
	c->max_ops = 1024;
	c->max_vars = 256;
	c->max_threads = 16;
	c->cpu_devices = 1 + (a >> 5 & 1);
	w->errors = a & 64;
	w->naive = c->kind == PAWL_NAIVE;
	w->det = !c->workers || w->naive;
	if (a & 128)
		c->spin_ns = 0;
	if (b & 1) {
		c->window = 1 + (b >> 3 & 15);
		c->window_policy = b >> 1 & 3;
		if (c->window_policy > PAWL_WINDOW_BLOCK || (w->det && c->window_policy == PAWL_WINDOW_BLOCK))
			c->window_policy = PAWL_WINDOW_FAIL;
		w->blocks = c->window_policy != PAWL_WINDOW_FAIL;
	}
	w->notes = (b & 3) == 2 || (b & 7) == 7;
	w->read_mostly = (b & 65) == 64;
	fuzz_say("kind %d workers %d devices %u window %u policy %d errors %d\n", c->kind,
		 c->workers, c->cpu_devices, c->window, c->window_policy, w->errors);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	u32 i;

	fuzz_data = data;
	fuzz_size = size;
	if (size > BYTES)
		return 0;
	if (null_fd < 0)
		null_fd = open("/dev/null", O_WRONLY);
	w = calloc(1, sizeof(*w));
	GOOD(w);
	w->p = data;
	w->n = size;
	for (i = 0; i < CALLERS; i++) {
		w->caller[i].id = i;
		sem_init(&w->caller[i].go, 0, 0);
		sem_init(&w->caller[i].done, 0, 0);
	}
	me = &w->caller[0];
	me->in = me->alive = true;
	configure();
	GOOD(!pawl_engine_create(&w->cfg, &w->e));
	/* Vars change to read-mostly mode at the first read by another thread. */
	if (w->read_mostly)
		w->e->rm_reads = 0;
	for (i = 0; i < 3; i++)
		slot_new();
	if (w->notes)
		notes_begin();
	while (more())
		steps(1);
	finish();
	for (i = 0; i < CALLERS; i++) {
		sem_destroy(&w->caller[i].go);
		sem_destroy(&w->caller[i].done);
	}
	free(w);
	w = NULL;
	return 0;
}

void fuzz_figures(char *buf, size_t len)
{
	snprintf(buf, len,
		 "calls=%llu ops=%llu arrived=%llu canceled=%llu refused=%llu interrupts=%llu "
		 "launches=%llu copied=%llu",
		 (unsigned long long)total_calls, (unsigned long long)total_ops,
		 (unsigned long long)total_arrived, (unsigned long long)total_canceled,
		 (unsigned long long)total_refused, (unsigned long long)total_interrupts,
		 (unsigned long long)load_relaxed(&total_launches),
		 (unsigned long long)load_relaxed(&total_copied));
}
