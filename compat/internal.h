/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internals of compat, layer 5: MXNet's interface, implemented on <pawl/engine.h> only.
 *
 * Field legend: I set at creation; A atomic, any thread; F changed only in the child of a
 * fork(), which has one thread.
 */
#ifndef COMPAT_INTERNAL_H
#define COMPAT_INTERNAL_H

#if !defined(PAWL_LAYER) || (PAWL_LAYER != 5 && !defined(PAWL_TEST_INTERNAL))
#error "compat/internal.h is for compat only"
#endif

#include <errno.h>
#include <string.h>
#include <sys/types.h>
#include <ck_stack.h>
#include <pawl/engine.h>
#include <pawl/mx_bridge.h>
#include <base/atomic.h>
#include <base/bug.h>
#include <base/compiler.h>
#include <base/export.h>
#include <base/futex.h>
#include <compat/catch.h>

/* Pools of objects; memory keeps its type until the process ends. */
enum { MX_CALLS, MX_VARS, MX_OPRS, MX_POOLS };

/* Separate from the object: a thread that takes a list may read one already taken. */
struct mx_node {
	u64 next;		/* in a list, which one thread owns */
	u64 next_list;		/* A: from the first node of a list to that of another */
};

void *mx_pool_get(int pool);
void mx_pool_put(int pool, void *obj);
/* Visit every object ever created, including free ones.  For a single thread. */
void mx_pool_each(int pool, void (*fn)(void *obj, void *arg), void *arg);

/* A body, until its op is complete. */
struct mx_call {
	struct mx_node node;
	struct pawl_mx_engine *engine;	/* I */
	union mx_body fn;	/* I */
	void *arg;		/* I */
	void (*drop)(void *arg);	/* I */
	struct pawl_mx_context ctx;	/* I */
	const char *name;	/* I: interned */
	u32 refs;		/* A: the op, and a running body */
	u8 form;		/* I: MX_SYNC ... */
	u8 prop;		/* I */
	bool keep;		/* I */
	bool fixed;		/* I: runs once, in the context of the call, not of a push */
	bool timed;		/* I: the profiler measures it */
	bool in_room;		/* I: arg is the room below, and drop frees this call */
	void *task;		/* the profiler's, from the body to completion */
	struct pawl_mx_var *var;	/* I: the var that it deletes */
	struct mx_call *next;	/* in a bulk: the function behind it */
	_Alignas(16) char room[PAWL_MX_ROOM];
};

enum { MX_SYNC, MX_ASYNC, MX_ASYNC_START };

struct pawl_mx_var {
	_Alignas(16) char room[PAWL_MX_VAR_ROOM];	/* for the front end */
	struct mx_node node;
	struct pawl_mx_engine *engine;	/* I while alive; A: a fork reads all vars */
	u64 h;			/* A: pawl_var_t; 0 while free */
	u64 base;		/* F, A: versions counted in the parent processes */
	u64 snap;		/* by the forking thread: version at the fork, */
	int snap_code;		/* and its error */
};

struct pawl_mx_opr {
	struct mx_node node;
	struct pawl_mx_engine *engine;	/* I while alive */
	u64 h;			/* A: pawl_graph_t; 0 while free */
	struct mx_call *call;	/* I */
	struct pawl_mx_var **vars;	/* I: reads, then writes */
	u32 nreads, nwrites;	/* I */
	u16 prop;		/* I */
	bool wait;		/* I */
};

struct pawl_mx_engine {
	ck_stack_entry_t link;	/* I: all engines of the process */
	struct pawl_engine *pe;	/* A: NULL while the entry is free; F */
	u32 kind;		/* I */
	u32 shutdown;		/* A */
	u32 devices;		/* F: CPU devices */
	u32 gpus;		/* F: number of GPU contexts */
	u32 used;		/* A */
	u32 ends;		/* A: engines that have ended in this entry */
	bool ending;		/* W(fork_lock), fork.c: pe is being destroyed */
	int omp_threads;	/* F: for omp_set_num_threads() in workers */
	bool info;		/* I */
	pid_t pid;		/* F: the process that created pe */
};

/* The environment, as MXNet reads it. */
struct mx_env {
	int cpu_workers, cpu_priority_workers, copy_workers, mp_workers;
	int omp_threads;	/* recommended for CPU workers; 0: do not set */
	int gpus;		/* GPU contexts */
	int profile;		/* the trace runs from the start */
	bool info;
	int spin_ns;		/* as in struct pawl_config */
};

/* Return -EINVAL, with a message, for a value that MXNet refuses, too. */
int mx_env_read(struct mx_env *env);
int mx_env_kind(int *kind);	/* of the process's engine */
int mx_env_int(const char *name, int def, int *out);
void mx_omp_set(int threads);

/* A lock for calls that may block; ops take no lock.  Progress: blocking. */
static inline void mx_lock(u32 *lock)
{
	while (xchg_acquire(lock, 1))	/* COMPAT-L2 <-> COMPAT-L1 */
		futex_wait(lock, 1, 0);
}

static inline void mx_unlock(u32 *lock)
{
	store_release(lock, 0);		/* COMPAT-L1 <-> COMPAT-L2 */
	futex_wake(lock);
}

/* Set the calling thread's last error; returns code. */
int mx_err(int code, const char *fmt, ...) __printf(2, 3) __cold;
/* The same, with libpawl's message. */
int mx_err_pawl(int code) __cold;

/* Intern a name. */
const char *mx_name(const char *name);

/* The hooks of the front end, or those of profiler.c. */
extern struct pawl_mx_hooks mx_hooks;

/* profiler.c */
bool mx_profile_aggregating(void);
void *mx_profile_begin(const char *name);
void mx_profile_end(void *task);
void mx_profile_engine(struct pawl_mx_engine *e);
void mx_profile_fork_child(void);

#endif
