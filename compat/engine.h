/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations shared by body.c, bridge.c, engine.c and fork.c. */
#ifndef COMPAT_ENGINE_H
#define COMPAT_ENGINE_H

#include <compat/internal.h>

/* CPU contexts with their own queue; others share these queues by number modulo this. */
#define MX_CPU_DEVICES	16u
/* In the child of a fork, which is often short-lived: each costs 20 KB that are written at once. */
#define MX_CHILD_DEVICES	4u
#define MX_THREADS	512u
/* Most arrays of an engine, which may have to reserve 80 bytes of address space for each. */
#define MX_VARS_MOST	(1u << 26)
#define MX_VARS_LEAST	(1u << 20)
#define MX_GPUS		16
#define MX_TEXT		1024u
#define MX_EXIT_NS	5000000000ll
#define MX_SPIN_NS	60000	/* a Python program usually pushes its next op sooner */
#define MX_LAST_NS	100000000ll

/* A running synchronous body, on the stack. */
struct mx_frame {
	struct pawl_mx_run run;		/* first */
	struct pawl_run *pawl;		/* NULL for an asynchronous body */
	int status;
};

static inline struct pawl_engine *mx_pe(struct pawl_mx_engine *e)
{
	return load_acquire(&e->pe);	/* COMPAT-E2 <-> COMPAT-E1 */
}

extern ck_stack_t mx_engines;
CK_STACK_CONTAINER(struct pawl_mx_engine, link, mx_engine_of)
struct pawl_mx_engine *mx_engine_shared(void);
int mx_engine_make(struct pawl_mx_engine *e, bool child);
int mx_opr_make(struct pawl_mx_opr *o);
/* The same, for memory that this library allocates. */
int mx_ctx_cpu(struct pawl_mx_engine *e, struct pawl_mx_context ctx, struct pawl_device *dev);

/* body.c */
struct mx_call *mx_call_new(struct pawl_mx_engine *e, const struct pawl_mx_op *op);
void mx_call_put(struct mx_call *c);
void mx_call_release(void *arg, int status);
int mx_run_sync(struct pawl_run *run, void *arg);
void mx_run_async(struct pawl_run *run, void *arg);
void mx_payload_drop(void *user, void *payload);
/* The result of a wait: sets the full text of its error, and *exception if wanted. */
int mx_told(int rc, struct pawl_error *err, void **exception);
int mx_bad_engine(void);

/* bulk.c */
extern __thread bool mx_bulk_used;	/* the thread has set a bulk size */
void mx_bulk_flush_slow(void);
/* Does op gather?  Then mx_bulk_add() is next. */
bool mx_bulk_wants(struct pawl_mx_engine *e, const struct pawl_mx_op *op,
		   const struct pawl_op *d);
void mx_bulk_add(struct pawl_mx_engine *e, struct mx_call *c, const struct pawl_op *d);
/* Flush; the error of a bulk of this thread that was refused, once. */
int mx_bulk_lost(void);
/* The engine ends: run everything that was gathered for it. */
int mx_bulk_end(struct pawl_mx_engine *e);
void mx_bulk_worker(struct pawl_mx_engine *e);
bool mx_bulk_works(void);	/* the thread is a worker, so it is in a body */
int mx_wait(struct pawl_mx_engine *e, unsigned int what, uint64_t h, int64_t ns,
	    struct pawl_error *err);
void mx_bulk_fork_child(void);

/* Push what the calling thread has gathered. */
static inline void mx_bulk_flush(void)
{
	if (unlikely(mx_bulk_used))
		mx_bulk_flush_slow();
}

/* resource.c */
/* The engine of the process ended: free the spaces that its ops used. */
void mx_resources_end(struct pawl_mx_engine *e);

/* fork.c */
int mx_fork_setup(void);
/* While `ending` is set, a fork does not use e->pe. */
void mx_fork_ending(struct pawl_mx_engine *e, bool ending);

#endif
