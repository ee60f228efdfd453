/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What threads use while one of them is stopped: an engine with shared and private vars, and the
 * rounds of the others.  Ops on shared vars count their writes without atomics, because a write
 * is alone.
 */
#ifndef TESTS_SUSPEND_WORLD_H
#define TESTS_SUSPEND_WORLD_H

#include "step.h"

#define NSHARED		24u
#define NFEED		40u
#define NPRIVATE	192u
#define DIAMOND		6u	/* ops of the graph `diamond` */

/* The vars that victims and others share. */
struct shared_var {
	pawl_var_t v;
	u64 value;		/* plain: the var gives exclusive access */
	u64 writes;		/* A */
};

extern struct pawl_engine *eng;
extern struct shared_var shared[NSHARED];
extern u64 sh_pushed, sh_ran;	/* A */
extern u64 foreign;		/* A: ops of others that parked victims may have taken */
extern s64 sh_budget;		/* A: how many more times the others may delay the victim */
extern __thread bool is_worker;
extern u32 workers_armed;	/* A: the next worker is this victim; 0: none is */
extern pawl_cq_t sh_cq;
extern pawl_group_t sh_group;
extern pawl_graph_t oper, diamond;
extern const u32 diamond_masks[DIAMOND][2];	/* reads and writes of its ops */
extern pawl_var_t feed_var[NFEED];
extern u64 feed_pushed[NFEED], feed_done[NFEED];	/* done: A */

void world_make(int workers, u64 spin_ns, u32 flags);
void world_end(void);		/* every op ran once, and wrote alone */
void drain(void);

/* Ops on the shared vars of two masks; sh_count() counts one that the caller pushed itself. */
u32 sh_vars(pawl_var_t *out, u32 mask);
struct pawl_op sh_op(pawl_var_t *vars, u32 reads, u32 writes);
void sh_count(u32 writes);
int sh_push(u32 reads, u32 writes, s32 prio, u16 prop);
void sh_write_alone(pawl_fn fn);
void sh_check(void);

/* The shared completion queue and group. */
void sh_post(u32 flags);
bool sh_post_try(u32 flags);	/* false: refused, because the window is full */
void sh_reap(u32 n);
void sh_reap_all(void);
void sh_reap_named(void);
void notes_use(u32 n);		/* completions arrive in the shared queue, and are reaped */

void async_now(struct pawl_run *run, void *arg);
void body_async(struct pawl_run *run, void *arg);
int store_done(struct pawl_run *run, void *arg);

/* What the others do. */
void private_push_of(struct other *o, u32 n);	/* one op that writes n vars of o's */
void round_strict(struct other *o);
void round_strict_cq(struct other *o);
void round_spread(struct other *o);
void round_spread_cq(struct other *o);
void round_mixed(struct other *o);
void round_last(struct other *o);
void round_deaf(struct other *o);
void round_returns(struct other *o);

#endif
