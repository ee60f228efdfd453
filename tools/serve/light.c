// SPDX-License-Identifier: Apache-2.0
/*
 * Light runs: short runs that loop 0 executes itself.
 *
 * To hand a run to a worker, loop 0 wakes a thread; at the end an eventfd wakes loop 0.  Both
 * together cost about LIGHT_NS of CPU time (18 us on a virtual machine), so a shorter run is
 * cheaper without a worker.  For such runs the server has a second engine without workers.  The
 * first engine would not do: when loop 0 runs its ops, it may take ops of a long run.
 *
 * The time of a run depends on the model and the shapes, so each slot is measured.  A slot
 * begins on the workers.  Its first MEASURED runs of each PERIOD are timed op by op, which
 * excludes the hand-over.  The shortest counts, because a run may be interrupted.  If it takes
 * at most LIGHT_NS, the slot moves to the second engine.  There the time of a run is that from
 * its launch to its end.  After SLOW_RUNS runs in a row of more than twice LIGHT_NS the slot
 * moves back.  A slot moves only while it is free.
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

/* If the move fails, it is tried again after the next run. */
void light_settle(struct slot *s)
{
	bool light = s->light ? s->slow < SLOW_RUNS :
				s->runs >= MEASURED && s->least_ns <= LIGHT_NS;

	if (light == s->light || serve_slot_move(s->s, s->sv->e[light]))
		return;
	s->light = light;
	s->slow = 0;
	/* the next measurement is in the next period */
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
