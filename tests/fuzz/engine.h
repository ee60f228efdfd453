/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of fuzz_engine: the structures of an input and of the serial model.
 *
 * The model is independent of the engine: a list of nodes in push order (a node is an op, a
 * delete, or one run of a graph), for each var the last node that writes it, and a log of
 * what happened.
 */
#ifndef TESTS_FUZZ_ENGINE_H
#define TESTS_FUZZ_ENGINE_H

#define UTIL_NO_CHECK
#include "../unit/util.h"
#include <fcntl.h>
#include <semaphore.h>
#include <core/engine.h>
#include "fuzz.h"

#define CALLERS		3u
#define SLOTS		160u		/* vars of an input, over all deletes */
#define LIVE		12u		/* maximum of them alive at once */
#define NODES		600u
#define OPERS		6u
#define ACC		24u
#define NAMED		14u		/* maximum of vars that one op names */
#define LOGS		8192u
#define FRAMES		32u
#define QUEUES		2u
#define GROUPS		2u

/* A var over its life; its slot is never used for another one. */
struct slot {
	pawl_var_t v;
	u64 version, data;	/* plain: the engine must protect it */
	u32 readers, writers;	/* A: ops that hold the var */
	u64 pushed;		/* writes that have their position */
	u32 last;		/* node + 1 of the last such write */
	u32 waits;		/* waits for it that have not returned */
	bool dead, gave_up;	/* deleted; a wait that timed out left its position */
};

enum kind { SYNC, ASYNC_NOW, ASYNC_LATER, NO_BODY };
enum { NOT_YET, PLACED };

struct node {
	u32 n;
	u16 slot[ACC];
	bool write[ACC];
	u64 expect[ACC];
	u32 pred[ACC];		/* node + 1 that wrote the version it reads, or 0 */
	u32 func;
	u8 state;
	bool entered, no_skip, deletes, silent;
	u32 over;		/* A */
	/* of the model, after the run */
	bool began, ended;
	u32 failure;		/* func + 1 whose error poisons what it writes */
};

struct func {
	u32 id, node;
	u32 n;
	u16 slot[NAMED];
	bool write[NAMED];
	u8 kind;
	bool busy, fails, positive, dropped;
	int code;
	struct oper *oper;
	u64 token;		/* A */
	u32 tstate;		/* A: 0 no token, 1 to be completed, 2 completed */
	u32 ran, released;	/* A */
	int status, inherited;
	u64 hash, seq;
	bool gone;		/* of the model: its error was returned or cleared */
	char name[16];
	/* What the op has in its note; queue and group: index + 1, or 0. */
	u8 queue, group, cost;
	bool late, group_canceled;
	u32 copied;		/* bytes that the engine copied as its argument */
	u32 stage;		/* of a launch of several ops: those that began, plain */
	u32 canceled;		/* A: a cancel returned 0 */
	u32 arrived;
	pawl_ticket_t ticket;
};

struct queue {
	pawl_cq_t h;
};

struct group {
	pawl_group_t h;
	u64 max_ops, max_cost;
	bool refused;		/* a push, and no report of room since */
};

enum full { NOT_FULL, FULL, MAYBE_FULL };

struct oper {
	pawl_graph_t h;
	u32 n;
	u16 slot[NAMED];
	bool write[NAMED];
	u8 kind;
	bool several;		/* three ops on slots, with their own arguments */
	u32 released;
	u32 nruns;		/* A */
	u32 run[NODES];		/* A: funcs */
	bool deleted;
};

enum log_kind { L_START, L_END, L_TAKE, L_CLEAR, L_ALL };

struct log {
	u8 kind;
	u32 id, by, count;	/* func; or slot, func that is named, and the last writer */
	u32 last;
	int rc;
};

struct caller {
	u32 id, depth, nframes;
	pthread_t thread;
	bool alive, in;
	sem_t go, done;
	void (*fn)(void);
	u32 frame[FRAMES];	/* nodes */
};

struct world {
	struct pawl_engine *e;
	struct pawl_config cfg;
	const uint8_t *p;
	size_t n, at;
	bool det, errors, naive, blocks, traced, read_mostly, notes;
	bool interrupted;	/* an interrupt is pending */
	u32 depth;		/* bodies on all stacks (det) */
	u32 autos;		/* A: async bodies complete at once */
	u32 nslots, nlive, nnodes, norder, nfuncs, nopers, narrived;
	u16 live[LIVE];
	u16 order[NODES];
	u64 seq;
	u32 nlog;		/* A */
	u64 failed, skipped;	/* count of the model */
	struct slot slot[SLOTS];
	struct node node[NODES];
	struct func func[NODES];
	struct oper oper[OPERS];
	struct queue queue[QUEUES];
	struct group group[GROUPS];
	struct log log[LOGS];
	struct caller caller[CALLERS];
};

extern struct world *w;
extern __thread struct caller *me;	/* NULL: a worker */
extern int null_fd;
/* The line of figures. */
extern u64 total_ops, total_arrived, total_canceled, total_refused, total_interrupts;
extern u64 total_launches, total_copied;	/* A: that ended; uses of a copied argument */

/* engine_run.c */
struct log *note(u8 kind, u32 id, int rc);
u64 work(const struct func *f, u64 *data);
int sync_body(struct pawl_run *run, void *arg);
int oper_body(struct pawl_run *run, void *arg);
int launch_first(struct pawl_run *run, void *arg);
int launch_last(struct pawl_run *run, void *arg);
int copied_body(struct pawl_run *run, void *arg);
void complete(struct func *f);
void async_body(struct pawl_run *run, void *arg);
void oper_async(struct pawl_run *run, void *arg);
void copied_async(struct pawl_run *run, void *arg);
void released(void *arg, int status);
void copied_released(void *arg, int status);
bool func_over(const struct func *f);
void oper_released(void *arg, int status);
u32 func_new(void);
void access_add(u16 *slot, bool *write, u32 *n, u16 s, bool wr);
u32 node_new(void);
void node_add(u32 ni, u32 fi);
void place(u32 ni);
void unplace(u32 ni);

/* engine_push.c */
u16 slot_new(void);
u16 slot_pick(u8 b);
void do_push(void);
void do_batch(void);
void do_oper_new(void);
void do_oper_push(void);
void do_oper_delete(void);
void do_var_new(void);
void do_var_delete(void);
void do_complete(void);
void do_bad(void);

/* engine_wait.c */
bool may_push(void);
bool push_begin(void);
void push_end(bool begun);
u64 in_flight(void);
void auto_begin(void);
void auto_end(void);
void quiesce(void);
void do_wait_readable(void);
void do_wait_writable(void);
void do_wait_all(void);
void do_run_one(void);
void do_run_until(void);
void do_clear(void);
void do_query(void);
void do_look(void);
void do_stop(void);

/* engine_notes.c */
void notes_begin(void);
void notes_end(void);
void describe_notes(struct pawl_op *op, struct func *f);
void launch_notes(struct pawl_launch *how, struct func *f);
enum full notes_full(u32 first, u32 n);
void notes_refused(void);
void do_queue(void);
void do_ticket(void);
void do_group(void);
void do_thread(void);

/* engine_model.c */
int func_refused(const struct func *f);
void model_run(void);

/* fuzz_engine.c */
u8 byte(void);
bool more(void);
void steps(u32 n);

#endif
