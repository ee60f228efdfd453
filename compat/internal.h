/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside compat, layer 5: MXNet's names on <pawl/engine.h> and nothing else of pawl.
 *
 * Field legend: I set at creation; A atomic, any thread; F changed only in the child of a
 * fork, which has one thread.
 */
#ifndef COMPAT_INTERNAL_H
#define COMPAT_INTERNAL_H

#if !defined(PAWL_LAYER) || (PAWL_LAYER != 5 && !defined(PAWL_TEST_INTERNAL))
#error "compat/internal.h is inside compat"
#endif

#include <errno.h>
#include <string.h>
#include <sys/types.h>
#include <pawl/engine.h>
#include <pawl/mx_bridge.h>
#include <base/atomic.h>
#include <base/bug.h>
#include <base/compiler.h>
#include <base/export.h>
#include <compat/catch.h>

/* Objects of one size; they stay objects of that type as long as the process lives. */
enum { MX_CALLS, MX_VARS, MX_OPRS, MX_POOLS };

/* Apart from the object: who takes a list may look at one that was taken before. */
struct mx_node {
	u64 next;		/* in a list; its thread's */
	u64 next_list;		/* A: from the first of a list to that of another */
};

void *mx_pool_get(int pool);
void mx_pool_put(int pool, void *obj);
/* Every object that ever was, free ones too; one thread. */
void mx_pool_each(int pool, void (*fn)(void *obj, void *arg), void *arg);

/* A body, until its op is over. */
struct mx_call {
	struct mx_node node;
	struct pawl_mx_engine *engine;	/* I */
	union mx_body fn;	/* I */
	void *arg;		/* I */
	void (*drop)(void *arg);	/* I */
	struct pawl_mx_context ctx;	/* I */
	const char *name;	/* I: interned */
	u32 refs;		/* A: the op, and a body that is on a stack */
	u8 form;		/* I: MX_SYNC ... */
	u8 prop;		/* I */
	bool keep;		/* I */
	bool fixed;		/* I: one run only; the context is the call's, not the push's */
	bool timed;		/* I: the profiler wants it */
	bool in_room;		/* I: arg is room below, and drop gives this back */
	void *task;		/* of the profiler, from the body to the end of the op */
	struct pawl_mx_var *var;	/* I: the var that it deletes */
	_Alignas(16) char room[PAWL_MX_ROOM];
};

enum { MX_SYNC, MX_ASYNC, MX_ASYNC_START };

struct pawl_mx_var {
	char room[PAWL_MX_VAR_ROOM];	/* the front end's */
	struct mx_node node;
	struct pawl_mx_engine *engine;	/* I while alive */
	u64 h;			/* A: pawl_var_t; 0 while free */
	u64 base;		/* F: versions of the processes before */
	u64 snap;		/* of the forking thread: version at the fork, */
	int snap_code;		/* and the error that it had */
};

struct pawl_mx_opr {
	struct mx_node node;
	struct pawl_mx_engine *engine;	/* I while alive */
	u64 h;			/* A: pawl_oper_t; 0 while free */
	struct mx_call *call;	/* I */
	struct pawl_mx_var **vars;	/* I: reads, then writes */
	u32 nreads, nwrites;	/* I */
	u16 prop;		/* I */
	bool wait;		/* I */
};

struct pawl_mx_engine {
	struct pawl_mx_engine *next;	/* I: all engines of the process */
	struct pawl_engine *pe;	/* A: NULL while nobody's; F */
	u32 kind;		/* I */
	u32 shutdown;		/* A */
	u32 devices;		/* F: CPU devices */
	u32 gpus, gpu_kind;	/* F: GPU contexts, and what they are here */
	u32 used;		/* A */
	bool info;		/* I */
	pid_t pid;		/* F: whose pe is */
};

/* The environment, as MXNet reads it. */
struct mx_env {
	int kind;		/* of the process's engine; negative: unknown type */
	int cpu_workers, cpu_priority_workers, copy_workers, mp_workers;
	int omp_threads;	/* recommended for CPU workers; 0: leave them alone */
	int gpus, gpu_kind;	/* GPU contexts; negative: nonsense, with a message */
	bool info;
	bool help;		/* who waits runs ready ops */
	int spin_ns;		/* as in struct pawl_config */
};

void mx_env_read(struct mx_env *env);
int mx_env_int(const char *name, int def);
bool mx_env_bool(const char *name, bool def);
void mx_omp_set(int threads);

/* The last error, one per thread; returns code. */
int mx_err(int code, const char *fmt, ...) __printf(2, 3) __cold;
/* With what libpawl said. */
int mx_err_pawl(int code) __cold;

/* A name that stays. */
const char *mx_name(const char *name);

/* What the front end gave, or profiler.c's. */
extern struct pawl_mx_hooks mx_hooks;

/* profiler.c */
bool mx_profile_aggregating(void);
void *mx_profile_begin(const char *name);
void mx_profile_end(void *task);
void mx_profile_engine(struct pawl_mx_engine *e);

#endif
