// SPDX-License-Identifier: Apache-2.0
/*
 * A minimal executor, for scenarios of the var queue alone: a ready op belongs to the thread
 * that made it ready, in order; a waiting thread spins.
 */
#include <errno.h>
#include <exec/exec.h>
#include <base/bug.h>
#include <base/err.h>
#include "model.h"

#define WORKS 64u

struct exec_queue {
	u32 id;
};

struct mine {
	u32 n, next;
	u32 work[WORKS];
};

struct exec {
	struct exec_client cl;
	u32 nqueues;
	struct exec_queue q[16];
	struct mine mine[16];
};

static struct exec *the;

int exec_create(const struct exec_config *cfg, const struct exec_client *cl, struct exec **out)
{
	struct exec *x = calloc(1, sizeof(*x));

	x->cl = *cl;
	the = x;
	*out = x;
	return 0;
}

void exec_set_warm(struct exec *x, const char *base, u32 stride)
{
}

void exec_destroy(struct exec *x)
{
}

int exec_queue_add(struct exec *x, const char *name, u32 workers, bool drive,
		   struct exec_queue **out)
{
	*out = &x->q[x->nqueues++];
	return 0;
}

void exec_queue_cpus(struct exec_queue *q, const cpu_set_t *cpus)
{
}

int exec_os_thread_start(struct exec *x, struct exec_os_thread *t, const cpu_set_t *cpus,
			 void *(*fn)(void *arg), void *arg)
{
	return os_thread_create(&t->os, fn, arg);
}

void exec_os_thread_join(struct exec *x, struct exec_os_thread *t)
{
	os_thread_join(t->os);
}

void exec_start(struct exec *x)
{
}

void exec_stop(struct exec *x)
{
}

void exec_look_now(struct exec *x)
{
}

void exec_slot_freed(struct exec *x)
{
}

int exec_worker_error(struct exec *x)
{
	return 0;
}

int exec_thread_init(struct exec *x, struct exec_thread *t, u32 slot)
{
	t->slot = slot;
	t->budget = EXEC_UNLIMITED;
	return 0;
}

int exec_thread_reserve(struct exec *x, struct exec_thread *t, u32 ready)
{
	return 0;
}

void exec_thread_fini(struct exec *x, struct exec_thread *t)
{
}

void exec_push(struct exec_queue *q, struct exec_thread *t, u32 work, s32 prio, u32 flags)
{
	struct mine *m = &the->mine[t->slot];

	m->work[m->n++ % WORKS] = work;
}

void exec_push_more(struct exec_queue *q, struct exec_thread *t, u32 work, s32 prio, u32 flags)
{
	exec_push(q, t, work, prio, flags);
}

void exec_pushed(struct exec_queue *q, struct exec_thread *t)
{
}

bool exec_handoff(struct exec_queue *q, struct exec_thread *t, u32 work, s32 prio)
{
	exec_push(q, t, work, prio, 0);
	return false;
}

u32 exec_take(struct exec *x, struct exec_thread *t)
{
	struct mine *m = &x->mine[t->slot];

	return m->next == m->n ? 0 : m->work[m->next++ % WORKS];
}

u32 exec_look(const struct exec_thread *t)
{
	const struct mine *m = &the->mine[t->slot];

	return m->next == m->n ? 0 : m->work[m->next % WORKS];
}

u32 exec_take_this(struct exec_thread *t, u32 work)
{
	return exec_look(t) == work ? exec_take(the, t) : 0;
}

bool exec_turn_over(const struct exec *x, u64 since)
{
	return false;
}

bool exec_next(struct exec *x, struct exec_thread *t, u32 work)
{
	return t->budget && exec_take(x, t);
}

u32 exec_take_ready(struct exec *x, struct exec_thread *t)
{
	return exec_take(x, t);
}

int exec_ready_fd(struct exec *x)
{
	return MODEL_EVENT_FD;
}

int exec_wait(struct exec *x, struct exec_thread *t, bool (*cond)(void *arg), void *arg,
	      s64 timeout_ns, u32 help)
{
	while (!cond(arg)) {
		u32 w = help & EXEC_HELPS ? exec_take(x, t) : 0;

		if (w)
			x->cl.run(x->cl.user, t, w);
		else if (timeout_ns >= 0)
			return -ETIMEDOUT;
		else
			cpu_relax();
	}
	return 0;
}

int exec_wait_inside(struct exec *x, struct exec_thread *t, bool (*cond)(void *arg), void *arg,
		     s64 timeout_ns, u32 flags, struct exec_inside *in)
{
	return exec_wait(x, t, cond, arg, timeout_ns, in->takes ? EXEC_HELP : EXEC_WAIT);
}

void exec_unpark(struct exec *x, struct exec_thread *t)
{
}

void exec_stats(struct exec *x, struct exec_stats *s)
{
	memset(s, 0, sizeof(*s));
}

void exec_queue_stats(struct exec_queue *q, struct exec_queue_stats *s)
{
	memset(s, 0, sizeof(*s));
}

bool exec_queue_works(struct exec_queue *q)
{
	return false;
}

const char *exec_name(const struct exec *x)
{
	return "model";
}

struct exec_queue *exec_queue_at(struct exec *x, u32 i)
{
	return i < x->nqueues ? &x->q[i] : NULL;
}

bool exec_wanted(const struct exec_thread *t)
{
	return false;
}

u64 exec_now_ns(void)
{
	return 0;
}

bool exec_late(u64 deadline)
{
	return exec_now_ns() >= deadline;
}

void exec_trim(struct exec *x, struct exec_thread *t)
{
}
