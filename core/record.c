// SPDX-License-Identifier: Apache-2.0
/*
 * Recording: writes the ops of all engines of the process to a file, for pawl record and pawl
 * replay.  Documentation/record.md describes the format.
 *
 * Structures: a process has at most one session.  In the session each engine has a
 * rec_engine, which has a buffer for each thread slot; the buffer is the next chunk of the
 * file.  Only the thread that owns the slot writes to it.  An event is a few bytes and keeps
 * no order with other threads.  The order follows from the contents: the buffer keeps the
 * program order of its thread, and a begin event stores for each access how many writes of
 * the var were complete, which is the exact position of the access in the var's queue.
 *
 * An op is identified by its index and a generation (op_gen()), which is kept in the op's token
 * and advances with each push, so nothing is allocated or looked up per op.
 *
 * A thread writes its full buffer itself: one write() per 64 KiB, about 2000 ops, before a
 * push links its op, before a body begins, or after a body ended.  The file is opened for
 * appending, so chunks of several threads never interleave.  A truncated file is readable up
 * to its last whole chunk.
 *
 * Ordering:
 *   CORE-Y1 (release) <-> CORE-Y2 (control lock): the session, the list of engines
 *   CORE-Y3 (rec_engine published) <-> CORE-Y4 (event)
 *   CORE-Y5 (buffers written, release) <-> CORE-Y6 (end of the session)
 * Only start, stop, and the creation and destruction of an engine take the control lock; they
 * are blocking by design.  An event is an RCU read section.  A stop unpublishes the
 * rec_engine, waits for a grace period, and writes the rest of the buffers.
 *
 * Progress: an event is wait-free, except for a thread's first one (which allocates) and for
 * a full buffer (which makes a system call).
 */
#include <endian.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <base/thread.h>
#include <core/device.h>
#include <core/push.h>
#include <core/record.h>
#include <core/record_format.h>

#define REC_NAMES	64u
#define REC_FLUSH_NS	1000000000ull	/* the next event writes an older buffer */
/* Largest size of an event without its list of accesses. */
#define REC_EVENT_ROOM	64u
#define REC_ACCESS_ROOM	16u
#define REC_BYTES	65536u

struct rec_buf {
	u32 engine;		/* I: number of the rec_engine */
	u32 slot;		/* I */
	u32 number;		/* chunks written */
	u32 pos;		/* bytes of the event list */
	u32 names;		/* names defined so far */
	u64 last;		/* cycles() at the last event */
	u64 written;		/* cycles() at the last write */
	u32 push_op, push_gen;	/* of the last push */
	u32 begin_op, begin_gen;	/* of the last begin */
	u32 open_op, open_gen;	/* the op begun last, unless it was also ended last; 0: none */
	struct rec_name {
		const char *p;
		u32 id;
	} name[REC_NAMES];
	u64 head[REC_HEAD / 8];	/* followed without a gap by data */
	u8 data[REC_BYTES];
};

BUILD_BUG_ON(offsetof(struct rec_buf, data) != offsetof(struct rec_buf, head) + REC_HEAD);
BUILD_BUG_ON(REC_HEAD % 8 || REC_BYTES % 8);

struct rec_engine {
	struct rcu_defer rcu;
	u32 number;		/* I: in the file */
	u32 slots;		/* I */
	struct rec_buf *buf[];	/* O: each by the thread that has the slot */
};

/* The session.  The control lock protects all fields without a mark. */
static struct {
	bool on;
	bool env_done;		/* PAWL_RECORD was read */
	bool from_env;
	int fd;			/* R */
	u32 engines;
	u64 flush;		/* R: cycles */
	u32 ending;		/* A: engines whose buffers are not written yet */
	u32 failed;		/* A: errno of a write */
	u64 lost;		/* A: events */
} session = { .fd = -1 };

static struct pawl_engine *engines;	/* W(control lock) */
static u32 control;

/*
 * Call thread_setup() first: it registers the fork handler, which in a child frees the lock
 * that another thread of the parent may have held.
 */
static void control_lock(void)
{
	while (xchg_acq_rel(&control, 1))	/* CORE-Y2 <-> CORE-Y1 */
		os_thread_yield();
}

static void control_unlock(void)
{
	store_release(&control, 0);	/* CORE-Y1 <-> CORE-Y2 */
}

/* --- chunks --- */

/* Append a whole chunk to the file: header, bytes, and zeros up to a multiple of 8. */
static void chunk_write(u64 *head, enum rec_chunk type, u32 engine, u32 slot, u32 number,
			u32 bytes)
{
	u32 *w = (u32 *)(void *)head;
	u8 *data = (u8 *)head + REC_HEAD;
	u32 padded = (bytes + 7) & ~7u;
	ssize_t n;

	memset(data + bytes, 0, padded - bytes);
	w[0] = htole32(REC_MAGIC);
	w[1] = htole32(type);
	w[2] = htole32(bytes);
	w[3] = htole32(engine);
	w[4] = htole32(slot);
	w[5] = htole32(number);
	head[3] = htole64(cycles());
	head[4] = htole64(exec_now_ns());
	head[5] = htole64(rec_sum(data, padded));
	head[6] = htole64(rec_sum((u8 *)head, REC_HEAD - 8));
	if (load_relaxed(&session.failed))
		return;
	do {
		n = write(session.fd, head, REC_HEAD + padded);
	} while (n < 0 && errno == EINTR);
	/* Part of the chunk may be written: the file is not readable from here on. */
	if (n != (ssize_t)(REC_HEAD + padded))
		store_relaxed(&session.failed, (u32)(n < 0 ? errno : ENOSPC));
}

static __noinline void buf_write(struct rec_buf *b)
{
	int saved = errno;

	if (b->pos)
		chunk_write(b->head, REC_CHUNK_EVENTS, b->engine, b->slot, b->number++, b->pos);
	b->pos = 0;
	b->written = b->last;
	errno = saved;
}

static __cold struct rec_buf *buf_new(struct rec_engine *r, struct thread *t)
{
	struct rec_buf *b = malloc(sizeof(*b));

	if (!b) {
		fetch_add_relaxed(&session.lost, 1);
		return NULL;
	}
	memset(b, 0, offsetof(struct rec_buf, data));
	b->engine = r->number;
	b->slot = t->slot;
	b->written = b->last = cycles();
	/* Times are stored as differences; this is the first absolute one. */
	memcpy(b->data, &(u64){ htole64(b->last) }, 8);
	b->pos = 8;
	r->buf[t->slot] = b;
	return b;
}

/* Return the calling thread's buffer with room for an event.  Call it in a read section. */
static inline struct rec_buf *buf_get(struct thread *t)
{
	struct rec_engine *r = load_acquire(&t->e->record);	/* CORE-Y4 <-> CORE-Y3 */
	struct rec_buf *b;

	if (unlikely(!r))
		return NULL;
	b = r->buf[t->slot];
	if (unlikely(!b))
		return buf_new(r, t);
	if (unlikely(b->pos > REC_BYTES - REC_EVENT_ROOM - REC_ACCESS_ROOM ||
		     b->last - b->written > session.flush))
		buf_write(b);
	return b;
}

/* --- events --- */

static inline u8 *put(u8 *p, u64 v)
{
	for (; v >= 0x80; v >>= 7)
		*p++ = (u8)(v | 0x80);
	*p++ = (u8)v;
	return p;
}

/* Encode a signed number, so that small absolute values are short. */
static inline u8 *put_signed(u8 *p, s64 v)
{
	return put(p, (u64)v << 1 ^ (u64)(v >> 63));
}

static inline u8 *put_time(struct rec_buf *b, u8 *p)
{
	u64 now = cycles();

	/* Never go backwards, even if the clocks of the cores differ. */
	if (unlikely(now < b->last))
		now = b->last;
	p = put(p, now - b->last);
	b->last = now;
	return p;
}

/* Make room for one more access: an op may have more of them than fit in a buffer. */
static inline u8 *room(struct rec_buf *b, u8 *p)
{
	if (likely(p <= b->data + REC_BYTES - REC_ACCESS_ROOM))
		return p;
	b->pos = (u32)(p - b->data);
	buf_write(b);
	return b->data;
}

static __noinline u32 name_new(struct rec_buf *b, struct rec_name *n, const char *name)
{
	u32 len = (u32)strnlen(name, REC_NAME_MAX);
	u8 *p;

	if (b->pos + len + REC_EVENT_ROOM + REC_ACCESS_ROOM > REC_BYTES)
		buf_write(b);
	p = b->data + b->pos;
	*p++ = REC_NAME;
	p = put(p, len);
	memcpy(p, name, len);
	b->pos = (u32)(p + len - b->data);
	n->p = name;
	return n->id = ++b->names;
}

/* Return the number of the name in this thread's events, or 0 without a name. */
static inline u32 name_id(struct rec_buf *b, const char *name)
{
	struct rec_name *n = &b->name[((uintptr_t)name * 0x9e3779b97f4a7c15ull >> 32) % REC_NAMES];

	if (!name)
		return 0;
	return likely(n->p == name) ? n->id : name_new(b, n, name);
}

/*
 * Begin an event, which is a read section.  Returns its position in the buffer, or NULL if
 * nothing is recorded.
 */
static inline u8 *event_begin(struct thread *t, struct rec_buf **b)
{
	pool_rcu_lock();
	*b = buf_get(t);
	if (likely(*b))
		return (*b)->data + (*b)->pos;
	pool_rcu_unlock();
	return NULL;
}

static inline void event_end(struct rec_buf *b, u8 *p)
{
	b->pos = (u32)(p - b->data);
	pool_rcu_unlock();
}

/*
 * Called before the op is linked into its vars.  more: this thread's next op is linked in the
 * same batch.
 */
void record_push(struct thread *t, struct op *op, u32 opi, bool more)
{
	u32 gen = op_gen(op), n = op->ndeps, name, j, var, last = 0;
	struct pawl_device dev;
	const struct dep *deps = op_deps(t->e, op, n, op->ext);
	struct rec_buf *b;
	u8 *p = event_begin(t, &b), *kind;

	if (unlikely(!p))
		return;
	name = name_id(b, op_name(op));
	kind = p = b->data + b->pos;	/* after a new name, if there was one */
	*p++ = REC_PUSH | (op->flags & OP_ASYNC ? REC_PUSH_ASYNC : 0) |
	       (more ? REC_PUSH_MORE : 0) | (op->fn ? 0 : REC_PUSH_EMPTY);
	p = put_time(b, p);
	p = put_signed(p, (s64)opi - b->push_op);
	p = put_signed(p, (s64)gen - b->push_gen);
	b->push_op = opi;
	b->push_gen = gen;
	p = put(p, name);
	if (op->prio) {
		*kind |= REC_PUSH_PRIO;
		p = put_signed(p, op->prio);
	}
	if (op->prop || op->dev) {
		*kind |= REC_PUSH_WHERE;
		*p++ = op->prop | (op->flags & OP_DELETE ? REC_PROP_ENDS : 0);
		dev = device_name(t->e, op->dev);
		*p++ = (u8)dev.kind;
		p = put(p, dev.id);
	}
	p = put(p, n);
	for (j = 0; j < n; j++) {
		p = room(b, p);
		var = deps[j].var & ~DEP_WRITE;
		p = put(p, (u64)(var - last) << 1 | deps[j].var >> 31);
		p = put(p, (deps[j].gen - t->e->gen_first) >> 1);
		last = var;
	}
	event_end(b, p);
}

/* The recorded push was refused. */
void record_undo(struct thread *t, struct op *op, u32 opi)
{
	struct rec_buf *b;
	u8 *p = event_begin(t, &b);

	if (unlikely(!p))
		return;
	*p++ = REC_UNDO;
	p = put(put(p, opi), op_gen(op));
	event_end(b, p);
}

void record_begin(struct thread *t, struct op *op, u32 opi)
{
	u32 n = op->ndeps, gen = op_gen(op), stale = op->flags & OP_STALE, j;
	const struct dep *deps = op_deps(t->e, op, n, op->ext);
	struct rec_buf *b;
	u8 *p;

	if (op->flags & OP_WAITER)
		return;
	p = event_begin(t, &b);
	if (unlikely(!p))
		return;
	*p++ = REC_BEGIN;
	p = put_time(b, p);
	p = put_signed(p, (s64)opi - b->begin_op);
	p = put_signed(p, (s64)gen - b->begin_gen);
	b->begin_op = b->open_op = opi;
	b->begin_gen = b->open_gen = gen;
	p = put(p, n);
	for (j = 0; j < n; j++) {
		u32 var = deps[j].var & ~DEP_WRITE;

		p = room(b, p);
		/* The var was deleted during the push: the access has no position. */
		if (unlikely(stale && dep_dead(&deps[j])))
			*p++ = 0;
		else
			p = put(p, load_relaxed(&var_side_of(t->e, var)->version) + 1);
	}
	event_end(b, p);
}

void record_end(struct thread *t, struct op *op, u32 opi, int status)
{
	u32 gen = op_gen_begun(op);
	struct rec_buf *b;
	u8 *p, *kind;

	if (op->flags & OP_WAITER)
		return;
	kind = p = event_begin(t, &b);
	if (unlikely(!p))
		return;
	*p++ = REC_END;
	p = put_time(b, p);
	if (opi == b->open_op && gen == b->open_gen) {
		*kind |= REC_END_OPEN;
		b->open_op = 0;
	} else {
		p = put(put(p, opi), gen);
	}
	if (status) {
		*kind |= REC_END_STATUS;
		p = put_signed(p, status);
	}
	event_end(b, p);
}

/* The op and generation of a launch, as those of a begin. */
static inline u8 *put_launch(struct thread *t, struct rec_buf *b, u8 *p, const struct launch *l)
{
	u32 gen = op_gen(op_of(t->e, l->op));

	p = put_signed(p, (s64)l->op - b->begin_op);
	p = put_signed(p, (s64)gen - b->begin_gen);
	b->begin_op = l->op;
	b->begin_gen = gen;
	return p;
}

/* A body of a launch begins, or is skipped. */
void record_node_begin(struct thread *t, const struct launch *l, u32 node, bool skipped)
{
	const struct node *nd = &l->plan->node[node];
	struct rec_buf *b;
	u8 *p = event_begin(t, &b);
	u32 name;

	if (unlikely(!p))
		return;
	name = name_id(b, nd->name);
	p = b->data + b->pos;	/* after a new name, if there was one */
	*p++ = REC_BEGIN | REC_BEGIN_NODE | (nd->async ? REC_BEGIN_ASYNC : 0) |
	       (skipped ? REC_BEGIN_SKIPPED : 0);
	p = put_time(b, p);
	p = put_launch(t, b, p, l);
	p = put(put(p, node), name);
	event_end(b, p);
}

/* It has ended.  The launch exists, because those behind it have not been counted down. */
void record_node_end(struct thread *t, const struct launch *l, u32 node, int status)
{
	const struct node *nd = &l->plan->node[node];
	struct rec_buf *b;
	u8 *p = event_begin(t, &b);
	u32 i;

	if (unlikely(!p))
		return;
	*p++ = REC_END | REC_END_NODE | (status ? REC_END_STATUS : 0);
	p = put_time(b, p);
	p = put_launch(t, b, p, l);
	p = put(p, node);
	if (status)
		p = put_signed(p, status);
	p = put(p, nd->nsucc);
	for (i = 0; i < nd->nsucc; i++) {
		p = room(b, p);
		p = put(p, l->plan->succ[nd->succ + i]);
	}
	event_end(b, p);
}

/* A wait begins: on a var, or for all ops if v is {0}. */
void record_wait(struct thread *t, u32 what, pawl_var_t v)
{
	struct rec_buf *b;
	u8 *p = event_begin(t, &b);

	if (unlikely(!p))
		return;
	*p++ = (u8)(REC_WAIT | what);
	p = put_time(b, p);
	if (what != REC_WAIT_ALL)
		p = put(put(p, (u32)v.h), ((u32)(v.h >> 32) - t->e->gen_first) >> 1);
	event_end(b, p);
}

/* The innermost pending wait of this thread has ended. */
void record_waited(struct thread *t, int status)
{
	struct rec_buf *b;
	u8 *p = event_begin(t, &b);

	if (unlikely(!p))
		return;
	*p++ = REC_WAITED;
	p = put_time(b, p);
	p = put_signed(p, status);
	event_end(b, p);
}

/* --- the session, under the control lock --- */

struct small_chunk {
	u64 head[REC_HEAD / 8];
	u8 data[512];
	u8 *p;
};

static void small_u32(struct small_chunk *c, u32 v)
{
	v = htole32(v);
	memcpy(c->p, &v, 4);
	c->p += 4;
}

static void small_text(struct small_chunk *c, const char *s)
{
	u32 n = (u32)strnlen(s, 100);

	*c->p++ = (u8)n;
	memcpy(c->p, s, n);
	c->p += n;
}

static void small_write(struct small_chunk *c, enum rec_chunk type, u32 engine)
{
	chunk_write(c->head, type, engine, 0, 0, (u32)(c->p - c->data));
}

static void start_write(void)
{
	struct small_chunk c = { .p = c.data };
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	small_u32(&c, REC_VERSION);
	small_u32(&c, (u32)getpid());
	small_u32(&c, (u32)((u64)ts.tv_sec & 0xffffffff));
	small_u32(&c, (u32)((u64)ts.tv_sec >> 32));
	small_text(&c, PAWL_VERSION_STRING);
	small_text(&c, program_invocation_short_name);
	small_write(&c, REC_CHUNK_START, 0);
}

static void engine_write(struct pawl_engine *e, u32 number)
{
	struct small_chunk c = { .p = c.data };

	small_u32(&c, e->kind);
	small_u32(&c, (u32)e->cfg.workers);
	small_u32(&c, (u32)e->cfg.priority_workers);
	small_u32(&c, (u32)e->cfg.copy_workers);
	small_u32(&c, e->ndev);
	small_u32(&c, e->cfg.max_ops);
	small_u32(&c, e->cfg.max_vars);
	small_text(&c, e->cfg.name);
	small_write(&c, REC_CHUNK_ENGINE, number);
}

static int engine_begin(struct pawl_engine *e)
{
	struct rec_engine *r = calloc(1, sizeof(*r) + e->max_threads * sizeof(r->buf[0]));

	if (!r)
		return err(-ENOMEM, "record: no memory for an engine of %u threads",
			   e->max_threads);
	r->number = session.engines++;
	r->slots = e->max_threads;
	engine_write(e, r->number);
	store_release(&e->record, r);		/* CORE-Y3 <-> CORE-Y4 */
	/* Relaxed: a thread that sees the flag reads e->record, acquire. */
	fetch_or_relaxed(&e->special, SPECIAL_RECORDING);
	return 0;
}

/* Write the rest of the buffers; no thread is inside an event. */
static void engine_end(struct rcu_defer *d)
{
	struct rec_engine *r = container_of(d, struct rec_engine, rcu);
	u32 i;

	for (i = 0; i < r->slots; i++) {
		if (r->buf[i])
			buf_write(r->buf[i]);
		free(r->buf[i]);
	}
	free(r);
	fetch_add_acq_rel(&session.ending, -1u);	/* CORE-Y5 <-> CORE-Y6 */
}

/*
 * Take the rec_engine from the engine; the caller then ends it.  Relaxed: only holders of the
 * control lock change e->record and count up, and before engine_end() there is a grace period,
 * or no thread uses the engine any more.
 */
static struct rec_engine *record_take(struct pawl_engine *e)
{
	struct rec_engine *r = load_relaxed(&e->record);

	store_relaxed(&e->record, NULL);
	if (r)
		fetch_add_relaxed(&session.ending, 1);
	return r;
}

static int session_end(void)
{
	struct small_chunk c = { .p = c.data };
	struct pawl_engine *e;
	u64 lost;

	for (e = engines; e; e = e->next) {
		struct rec_engine *r = record_take(e);

		fetch_and_relaxed(&e->special, ~(u32)SPECIAL_RECORDING);
		if (r)
			pool_rcu_defer(&r->rcu, engine_end);
	}
	(void)pool_rcu_reclaim();
	/* Another thread's reclaim may be running the deferred functions. */
	while (load_acquire(&session.ending))	/* CORE-Y6 <-> CORE-Y5 */
		os_thread_yield();
	lost = load_relaxed(&session.lost);
	small_u32(&c, (u32)lost);
	small_u32(&c, (u32)(lost >> 32));
	small_write(&c, REC_CHUNK_END, 0);
	if (close(session.fd) && !load_relaxed(&session.failed))
		store_relaxed(&session.failed, (u32)errno);
	session.fd = -1;
	session.on = false;
	return -(int)load_relaxed(&session.failed);
}

/* In the child of a fork(): the file and the engines belong to the parent. */
void record_fork_child(void)
{
	if (session.on)
		close(session.fd);
	session.on = false;
	session.fd = -1;
	engines = NULL;
	store_relaxed(&control, 0);
}

static int file_open(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
	struct stat st;

	if (fd < 0)
		return err(-errno, "record: %s: %s", path, strerror(errno));
	if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		close(fd);
		return err(-EINVAL, "record: %s is not a regular file", path);
	}
	/* Another process with the same PAWL_RECORD must not write to this file. */
	if (flock(fd, LOCK_EX | LOCK_NB)) {
		close(fd);
		return err(-EBUSY, "record: %s: another recording writes to it", path);
	}
	if (ftruncate(fd, 0)) {
		int e = errno;

		close(fd);
		return err(-e, "record: %s: %s", path, strerror(e));
	}
	return fd;
}

static int session_begin(const char *path)
{
	struct pawl_engine *e;
	int rc = 0, fd;

	if (session.on)
		return err(-EALREADY, "record_start: a recording is running");
	/* Stopping needs a grace period. */
	if (!pool_rcu_reclaim())
		return err(-EOWNERDEAD, "record_start: not in this child of fork(): threads of the "
			   "parent were recording or tracing");
	fd = file_open(path);
	if (fd < 0)
		return fd;
	session.fd = fd;
	session.engines = 0;
	store_relaxed(&session.failed, 0);
	store_relaxed(&session.lost, 0);
	session.flush = ns_to_cycles(exec_cycles_per_us(), REC_FLUSH_NS);
	session.on = true;
	start_write();
	for (e = engines; e && !rc; e = e->next)
		rc = engine_begin(e);
	if (!rc && load_relaxed(&session.failed))
		rc = err(-(int)load_relaxed(&session.failed), "record: %s: %s", path,
			 strerror((int)load_relaxed(&session.failed)));
	if (rc)
		session_end();
	return rc;
}

int pawl_record_start(const char *path)
{
	int rc;

	if (!path || !*path)
		return err(-EINVAL, "record_start: path is %s", path ? "empty" : "NULL");
	rc = thread_setup();
	if (rc)
		return rc;
	control_lock();
	rc = session_begin(path);
	if (!rc) {
		session.env_done = true;	/* the call overrides the variable */
		session.from_env = false;
	}
	control_unlock();
	return rc;
}
PAWL_EXPORT(pawl_record_start);

int pawl_record_stop(void)
{
	bool on;
	int rc = thread_setup();

	if (rc)
		return rc;
	control_lock();
	on = session.on;
	if (on)
		rc = session_end();
	control_unlock();
	if (!on)
		return err(-EALREADY, "record_stop: no recording is running");
	return rc ? err(rc, "record_stop: the recording is not complete: %s", strerror(-rc)) : 0;
}
PAWL_EXPORT(pawl_record_stop);

/* PAWL_RECORD=file; %p in it is replaced by the process id. */
static void session_env(void)
{
	const char *name = secure_getenv("PAWL_RECORD"), *p;
	char path[4096];
	int n;

	session.env_done = true;
	if (!name || !*name)
		return;
	p = strstr(name, "%p");
	if (p)
		n = snprintf(path, sizeof(path), "%.*s%d%s", (int)(p - name), name,
			     (int)getpid(), p + 2);
	else
		n = snprintf(path, sizeof(path), "%s", name);
	if (n < 0 || (size_t)n >= sizeof(path))
		fprintf(stderr, "pawl: PAWL_RECORD is too long; nothing is recorded\n");
	else if (session_begin(path))
		fprintf(stderr, "pawl: PAWL_RECORD: %s; nothing is recorded\n", err_text());
	else
		session.from_env = true;
}

/* An engine was created; no thread uses it yet. */
void record_engine(struct pawl_engine *e)
{
	control_lock();
	if (!session.env_done && !session.on)
		session_env();
	/* An engine that cannot be recorded works, and counts as lost. */
	if (session.on && engine_begin(e))
		fetch_add_relaxed(&session.lost, 1);
	e->next = engines;
	engines = e;
	control_unlock();
}

/* The engine is destroyed; no thread uses it any more. */
void record_engine_end(struct pawl_engine *e)
{
	struct pawl_engine **p = &engines;
	struct rec_engine *r;

	control_lock();
	while (*p && *p != e)
		p = &(*p)->next;
	if (*p)
		*p = e->next;
	r = record_take(e);
	if (r)
		engine_end(&r->rcu);
	control_unlock();
}

/*
 * The program ends, or the library is unloaded: write the rest of the buffers.  It is lost if
 * a thread that holds the control lock is stopped.
 */
__attribute__((destructor)) static void record_fini(void)
{
	u32 i;

	for (i = 0; i < 1000000 && xchg_acq_rel(&control, 1); i++)	/* CORE-Y2 <-> CORE-Y1 */
		os_thread_yield();
	if (i == 1000000)
		return;
	if (session.on) {
		int rc = session_end();

		if (rc && session.from_env)
			fprintf(stderr, "pawl: PAWL_RECORD: the recording is not complete: %s\n",
				strerror(-rc));
	}
	control_unlock();
}
