// SPDX-License-Identifier: Apache-2.0
/*
 * Light runs, which loop 0 runs itself.
 *
 * To hand a run to a worker, loop 0 wakes a thread; to take it back, it is woken by an eventfd.
 * Both together cost about LIGHT_NS of CPU time (18 us were measured on a virtual machine), so a
 * run that takes less is cheaper without a worker.  For such runs the server has a second engine,
 * which has no workers.  It is not the first engine because loop 0, when it runs ops of an engine,
 * takes any of them, also those of a long run.
 *
 * The time of a run depends on the model and the shapes, so each slot is measured.  A slot
 * begins on the workers.  Its first MEASURED runs of each PERIOD are timed, op by op, so that
 * the time for the hand-over is not part of it, and the least of them counts, because a run may
 * be interrupted.  If that is less than LIGHT_NS, the slot moves to the second engine.  There
 * the time from the launch to the end is that of the run.  If it is above twice LIGHT_NS in
 * SLOW_RUNS runs in a row, the slot moves back.  A slot moves only while it is free.
 */

#include "serve.h"

#define LIGHT_NS	20000u
#define MEASURED	4
#define PERIOD		1000
#define SLOW_RUNS	8

bool light_measures(const struct slot *s)
{
	return !s->light && s->runs < MEASURED;
}

void light_ran(struct slot *s, uint64_t used_ns)
{
	if (s->light) {
		s->slow = used_ns > 2 * LIGHT_NS ? s->slow + 1 : 0;
		return;
	}
	if (light_measures(s) && (!s->runs || used_ns < s->least_ns))
		s->least_ns = used_ns;
	s->runs = (s->runs + 1) % PERIOD;
}

/* A move that fails is tried again after the next run. */
void light_settle(struct slot *s)
{
	bool light = s->light ? s->slow < SLOW_RUNS :
				s->runs >= MEASURED && s->least_ns <= LIGHT_NS;

	if (light == s->light || serve_slot_move(s->s, s->sv->e[light]))
		return;
	s->light = light;
	s->slow = 0;
	/* measured again when this period is over */
	s->runs = MEASURED;
	s->least_ns = UINT64_MAX;
	fetch_add_relaxed(&s->v->e->nlight, light ? 1 : (u32)-1);
}

struct pawl_completion light_finish(struct server *sv)
{
	struct pawl_completion done;

	/* the wait runs the ops */
	while (pawl_cq_reap(sv->e[LIGHT], sv->loops[0].cq[LIGHT], &done, 1) < 1)
		pawl_cq_wait(sv->e[LIGHT], sv->loops[0].cq[LIGHT], -1);
	return done;
}
