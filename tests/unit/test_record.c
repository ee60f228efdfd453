// SPDX-License-Identifier: Apache-2.0
/*
 * core/record.c and its reader, tools/pawl/record.c: the file contains what ran, has a serial
 * order that respects every var, and is replayed in it.
 */
#include "recordings.h"
#include <fcntl.h>
#include <sys/file.h>
#include <tools/pawl/replay.h>

#ifdef CONFIG_RECORD

static void replay(const struct recording *r, int kind, int workers)
{
	struct replay_options o = { .kind = kind, .workers = workers };
	struct replay_result res;
	size_t n;
	u32 *order = order_of(r, &n);
	int rc = replay_run(r, order, n, &o, &res, text, sizeof(text));

	ck_assert_msg(!rc, "%s", text);
	ck_assert_msg(!res.wrong, "%s", res.first);
	ck_assert_uint_eq(res.ops, n);
	free(order);
}

/* One of everything, on one thread: each field comes back. */
START_TEST(test_fields)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 0);
	struct pawl_engine *e;
	struct recording r;
	struct rec_op *o;
	pawl_var_t v[40];
	struct pawl_op op;
	char *path = temp_path();
	u32 i, n = 0;

	OK(pawl_record_start(path));
	c.cpu_devices = 3;
	e = engine_with(&c);
	for (i = 0; i < 40; i++)
		v[i] = var_new(e);
	op = op_write(add_one, &n, &v[0]);
	op.name = "first";
	op.priority = -77;
	OK(pawl_push(e, &op));
	op = op_of_fn(add_one, &n);
	op.reads = v;
	op.nreads = 30;
	op.writes = v + 30;
	op.nwrites = 10;
	op.prop = PAWL_NO_SKIP;
	op.device.id = 2;
	OK(pawl_push(e, &op));
	op = op_write(NULL, NULL, &v[0]);
	OK(pawl_push(e, &op));
	OK(pawl_var_delete(e, v[39], NULL, NULL));
	op = op_write(fail_io, NULL, &v[1]);
	op.name = "first";
	OK(pawl_push(e, &op));
	OK(pawl_push_batch(e, (struct pawl_op[]){ op_read(add_one, &n, &v[2]),
						  op_read(add_one, &n, &v[3]) }, 2));
	ck_assert_int_eq(pawl_wait_readable(e, v[1], -1, NULL), -EIO);
	OK(pawl_wait_all(e, -1, NULL));
	OK(pawl_engine_destroy(e));
	OK(pawl_record_stop());

	load(path, &r);
	ck_assert(r.ended);
	ck_assert_uint_eq(r.nops, 7);
	ck_assert_uint_eq(r.nvars, 40);
	ck_assert_uint_eq(r.nengines, 1);
	ck_assert_uint_eq(r.engines[0].devices, 3);
	ck_assert_uint_eq(r.lost, 0);
	ck_assert_uint_eq(r.foreign, 0);
	ck_assert_str_eq(r.library, pawl_version());
	o = &r.ops[0];
	ck_assert_str_eq(o->name, "first");
	ck_assert_int_eq(o->priority, -77);
	ck_assert_uint_eq(o->naccesses, 1);
	ck_assert(r.accesses[o->access].write && r.accesses[o->access].placed);
	ck_assert_uint_eq(r.accesses[o->access].version, 0);
	o = &r.ops[1];
	ck_assert_str_eq(o->name, "");
	ck_assert_uint_eq(o->prop, PAWL_NO_SKIP);
	ck_assert_uint_eq(o->device, 2);
	ck_assert(!o->ends);
	ck_assert_uint_eq(o->naccesses, 40);
	ck_assert_uint_eq(r.accesses[o->access].version, 1);
	ck_assert(!r.accesses[o->access].write);
	ck_assert(r.accesses[o->access + 39].write);
	ck_assert(r.ops[2].empty && r.ops[2].begun && r.ops[2].ended);
	ck_assert(r.ops[3].ends && r.ops[3].prop == PAWL_DELETE_VAR);
	ck_assert_int_eq(r.ops[4].status, -EIO);
	ck_assert(r.ops[4].name == r.ops[0].name || !strcmp(r.ops[4].name, "first"));
	for (i = 0; i < 7; i++) {
		o = &r.ops[i];
		/* Only the first op of the batch is pushed together with the next one. */
		ck_assert_uint_eq(o->more, i == 5);
		ck_assert(o->begun && o->ended && !o->undone);
		ck_assert_uint_le(o->push, o->begin);
		ck_assert_uint_le(o->begin, o->end);
		ck_assert_uint_le(o->end, r.length);
	}
	ck_assert_uint_eq(r.nwaits, 2);
	ck_assert(r.waits[0].ended && r.waits[0].status == -EIO && !r.waits[0].write);
	ck_assert_uint_eq(r.waits[0].var, r.accesses[r.ops[4].access].var);
	ck_assert_uint_eq(r.waits[1].var, REC_NONE);
	rec_free(&r);
	unlink(path);
}
END_TEST

/* More accesses than a buffer holds: the event goes over several chunks. */
START_TEST(test_many_accesses)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	struct pawl_engine *e;
	struct recording r;
	struct pawl_op op;
	char *path = temp_path();
	enum { N = 30000 };
	pawl_var_t *v = calloc(N, sizeof(*v));
	u32 i, k;

	e = engine_with(&c);
	OK(pawl_record_start(path));
	for (i = 0; i < N; i++)
		v[i] = var_new(e);
	for (k = 0; k < 3; k++) {
		op = op_of_fn(nothing, NULL);
		op.reads = v;
		op.nreads = k ? N - 100 : 0;
		op.writes = v + op.nreads;
		op.nwrites = N - op.nreads;
		OK(pawl_push(e, &op));
	}
	OK(pawl_wait_all(e, -1, NULL));
	OK(pawl_record_stop());
	OK(pawl_engine_destroy(e));
	load(path, &r);
	ck_assert_uint_gt(r.chunks, 4);
	ck_assert_uint_eq(r.nops, 3);
	for (k = 0; k < 3; k++) {
		ck_assert_uint_eq(r.ops[k].naccesses, N);
		for (i = 0; i < N; i++)
			MUST(r.accesses[r.ops[k].access + i].placed &&
			     r.accesses[r.ops[k].access + i].version == (i < N - 100 ? !!k : k));
	}
	replay(&r, PAWL_PER_DEVICE, 1);
	rec_free(&r);
	unlink(path);
	free(v);
}
END_TEST

/* --- random programs --- */

#define RVARS 24

struct prog {
	struct pawl_engine *e;
	pawl_var_t v[RVARS];
	u64 seed;
	u64 nested;	/* A */
	u32 ids;	/* A */
	u32 bodies;	/* A: bodies that ran */
	u32 rounds;
};

static u32 pick(u64 *s, const struct prog *g, pawl_var_t *out, u32 most)
{
	u32 n = (u32)(rnd(s) % (most + 1)), i;

	for (i = 0; i < n; i++)
		out[i] = g->v[rnd(s) % RVARS];
	return n;
}

static int count_body(struct pawl_run *run, void *arg)
{
	fetch_add_relaxed(&((struct prog *)arg)->bodies, 1);
	return 0;
}

static int bad_body(struct pawl_run *run, void *arg)
{
	count_body(run, arg);
	return -EIO;
}

static void async_body(struct pawl_run *run, void *arg)
{
	count_body(run, arg);
	MUST(!pawl_complete(run->engine, run->token, 0, NULL));
}

static int nest_body(struct pawl_run *run, void *arg)
{
	struct prog *g = arg;
	struct pawl_op op = op_of_fn(count_body, g);
	u64 s = fetch_add_relaxed(&g->nested, 1);

	op.writes = &g->v[rnd(&s) % RVARS];
	op.nwrites = 1;
	op.name = "inner";
	MUST(!pawl_push(run->engine, &op));
	return count_body(run, arg);
}

static void one(struct prog *g, u64 *s, struct pawl_op *op, pawl_var_t *r, pawl_var_t *w)
{
	static const pawl_fn fn[] = { count_body, count_body, count_body, nest_body, bad_body };
	static const char *const names[] = { NULL, "a", "b", "some longer name of an op" };

	*op = op_of_fn(fn[rnd(s) % 5], g);
	if (rnd(s) % 6 == 0) {
		op->fn = NULL;
		op->async_fn = async_body;
	}
	op->reads = r;
	op->nreads = pick(s, g, r, 6);
	op->writes = w;
	op->nwrites = pick(s, g, w, 3);
	op->priority = rnd(s) % 4 ? 0 : (int)(rnd(s) % 2000) - 1000;
	op->prop = (u16)(rnd(s) % 4 ? 0 : rnd(s) % 8);
	op->name = names[rnd(s) % 4];
}

static void *random_pusher(void *arg)
{
	struct prog *g = arg;
	u64 s = g->seed * 1000 + fetch_add_relaxed(&g->ids, 1);
	pawl_var_t lists[4][2][8], mine;
	struct pawl_op op, batch[4];
	pawl_graph_t oper;
	u32 i, k, n;

	one(g, &s, &op, lists[0][0], lists[0][1]);
	op.prop = PAWL_NORMAL;
	MUST(!pawl_graph_create(g->e, &op, 1, 0, &oper));
	for (i = 0; i < g->rounds; i++) {
		switch (rnd(&s) % 16) {
		case 0:
			n = 2 + (u32)(rnd(&s) % 3);
			for (k = 0; k < n; k++)
				one(g, &s, &batch[k], lists[k][0], lists[k][1]);
			MUST(!pawl_push_batch(g->e, batch, n));
			break;
		case 1:
			MUST(!pawl_graph_push(g->e, oper, NULL));
			break;
		case 2:
			mine = var_new(g->e);
			op = op_of_fn(count_body, g);
			op.writes = &mine;
			op.nwrites = 1;
			MUST(!pawl_push(g->e, &op));
			MUST(!pawl_var_delete(g->e, mine, count_body, g));
			break;
		case 3:
			pawl_wait_readable(g->e, g->v[rnd(&s) % RVARS], SOON_NS, NULL);
			break;
		default:
			one(g, &s, &op, lists[0][0], lists[0][1]);
			MUST(!pawl_push(g->e, &op));
		}
	}
	MUST(!pawl_graph_delete(g->e, oper));
	return NULL;
}

static void random_program(const char *path, u64 seed, int kind, int workers, u32 pushers,
			   u32 rounds)
{
	struct prog g = { .seed = seed, .rounds = rounds };
	struct pawl_config c = small(kind, workers);
	struct pawl_stats st;
	struct recording r;
	pthread_t t[4];
	u32 i;
	size_t n, begun = 0;

	OK(pawl_record_start(path));
	g.e = engine_with(&c);
	for (i = 0; i < RVARS; i++)
		g.v[i] = var_new(g.e);
	for (i = 0; i < pushers; i++)
		t[i] = spawn(random_pusher, &g);
	for (i = 0; i < pushers; i++)
		join(t[i]);
	pawl_wait_all(g.e, -1, NULL);
	st = stats(g.e);
	OK(pawl_engine_destroy(g.e));
	OK(pawl_record_stop());

	load(path, &r);
	ck_assert(r.ended);
	ck_assert_uint_eq(r.lost, 0);
	ck_assert_uint_eq(r.foreign, 0);
	ck_assert_uint_le(r.nops, st.pushed);	/* waits count there, too */
	for (i = 0; i < r.nops; i++)
		begun += r.ops[i].begun && r.ops[i].ended;
	ck_assert_uint_eq(begun, r.nops);
	/* No write of a var is missing. */
	for (i = 0; i < r.nvars; i++)
		MUST(r.vars[i].first == 0 || !r.vars[i].writes);
	free(order_of(&r, &n));
	ck_assert_uint_eq(n, r.nops);
	replay(&r, PAWL_PER_DEVICE, 2);
	replay(&r, PAWL_POOLED, 0);
	replay(&r, PAWL_NAIVE, 0);
	rec_free(&r);
}

START_TEST(test_random)
{
	char *path = temp_path();
	u64 seed;

	for (seed = 1; seed <= (u64)TIMES(24); seed++)
		random_program(path, seed, (int)(seed % 3), 2, 1 + (u32)(seed % 3),
			       (u32)TIMES(1500));
	unlink(path);
}
END_TEST

/* A wrong recording has no order: the versions of two ops exchanged, or one doubled. */
START_TEST(test_order_refuses)
{
	char *path = temp_path();
	struct pawl_engine *e;
	struct recording r;
	pawl_var_t v;
	u32 order[16];
	size_t n;
	int i;

	OK(pawl_record_start(path));
	e = engine(PAWL_PER_DEVICE, 1);
	v = var_new(e);
	for (i = 0; i < 4; i++)
		OK(push_write(e, nothing, NULL, v));
	OK(pawl_wait_all(e, -1, NULL));
	OK(pawl_engine_destroy(e));
	OK(pawl_record_stop());
	load(path, &r);
	OK(rec_order(&r, order, &n, text, sizeof(text)));
	ck_assert_uint_eq(n, 4);
	r.accesses[r.ops[1].access].version = 2;
	ck_assert_int_eq(rec_order(&r, order, &n, text, sizeof(text)), -EBADMSG);
	ck_assert_msg(strstr(text, "both wrote version 3") != NULL, "%s", text);
	r.accesses[r.ops[2].access].version = 1;
	ck_assert_int_eq(rec_order(&r, order, &n, text, sizeof(text)), -EBADMSG);
	ck_assert_msg(strstr(text, "no serial order") != NULL, "%s", text);
	rec_free(&r);
	unlink(path);
}
END_TEST

enum { HISTORY = 40, HISTORY_VARS = 4, HISTORY_THREADS = 3 };

/* Ops in a serial order that only their accesses tell: their threads and times are random. */
static void history(struct recording *r, u64 *seed)
{
	u32 writes[HISTORY_VARS] = { 0 }, thread[HISTORY], i, k, t;

	for (i = 0; i < HISTORY; i++)
		thread[i] = (u32)(rnd(seed) % HISTORY_THREADS);
	for (t = 0; t < HISTORY_THREADS; t++) {
		for (i = 0; i < HISTORY; i++) {
			if (thread[i] != t)
				continue;
			r->ops[r->nops] = (struct rec_op){
				.thread = t, .push = rnd(seed) % 30, .index = i, .name = "",
				.parent = REC_NONE, .access = 2 * i, .naccesses = 1 + i % 2 };
			r->ops[r->nops].undone = rnd(seed) % 8 == 0;
			r->ops[r->nops].begun = !r->ops[r->nops].undone && rnd(seed) % 8;
			thread[i] = HISTORY_THREADS + (u32)r->nops++;
		}
	}
	for (i = 0; i < HISTORY; i++) {
		struct rec_op *o = &r->ops[thread[i] - HISTORY_THREADS];

		for (k = 0; k < o->naccesses; k++) {
			struct rec_access *a = &r->accesses[o->access + k];

			a->var = (u32)((i + 2 * k) % HISTORY_VARS);
			a->write = rnd(seed) % 2;
			a->placed = o->begun;
			a->version = writes[a->var];
			writes[a->var] += a->placed && a->write;
		}
	}
}

/* Is it the turn of op i: of its thread, and on each of its vars? */
static bool may_be_next(const struct recording *r, const bool *done, u32 i)
{
	const struct rec_op *o = &r->ops[i], *p;
	u32 j, k, m;

	for (j = 0; j < r->nops; j++) {
		p = &r->ops[j];
		if (done[j] || p->undone || j == i)
			continue;
		if (j < i && p->thread == o->thread && (p->begun || !o->begun))
			return false;
		for (k = 0; k < o->naccesses; k++) {
			for (m = 0; m < p->naccesses; m++) {
				const struct rec_access *a = &r->accesses[o->access + k],
							*b = &r->accesses[p->access + m];

				if (a->placed && b->placed && a->var == b->var &&
				    (b->version < a->version ||
				     (b->version == a->version && a->write && !b->write)))
					return false;
			}
		}
	}
	return true;
}

/* Of the ops that may be next the one that began, and of these the one that was pushed first. */
START_TEST(test_order_of_random_histories)
{
	struct rec_op ops[HISTORY];
	struct rec_access accesses[2 * HISTORY];
	u32 order[HISTORY], i, k, next;
	bool done[HISTORY];
	u64 seed = 1;
	size_t n, at;

	for (i = 0; i < (u32)TIMES(200); i++) {
		struct recording r = { .ops = ops, .accesses = accesses, .nvars = HISTORY_VARS,
				       .naccesses = 2 * HISTORY };
		struct rec_var var[HISTORY_VARS] = { 0 };

		r.vars = var;
		history(&r, &seed);
		ck_assert_msg(!rec_order(&r, order, &n, text, sizeof(text)), "%u: %s", i, text);
		memset(done, 0, sizeof(done));
		for (at = 0; ; at++) {
			next = REC_NONE;
			for (k = 0; k < r.nops; k++) {
				if (done[k] || ops[k].undone || !may_be_next(&r, done, k))
					continue;
				if (next == REC_NONE || ops[k].begun > ops[next].begun ||
				    (ops[k].begun == ops[next].begun &&
				     ops[k].push < ops[next].push))
					next = k;
			}
			if (next == REC_NONE)
				break;
			MUST(at < n && order[at] == next);
			done[next] = true;
		}
		ck_assert_uint_eq(at, n);
	}
}
END_TEST

/* A replay in another order than the recorded one is detected. */
START_TEST(test_replay_sees)
{
	struct replay_options o = { .workers = 0 };
	struct replay_result res;
	char *path = temp_path();
	struct pawl_engine *e;
	struct recording r;
	struct rec_edge edge = { 1, 0 }, kept[] = { { 0, 1 }, { 1, 2 }, { 2, 3 } };
	u32 order[] = { 0, 1, 2, 3 }, i;

	OK(pawl_record_start(path));
	e = engine(PAWL_PER_DEVICE, 1);
	for (i = 0; i < 4; i++)
		OK(push_write(e, nothing, NULL, var_new(e)));
	OK(pawl_wait_all(e, -1, NULL));
	OK(pawl_engine_destroy(e));
	OK(pawl_record_stop());
	load(path, &r);
	OK(replay_run(&r, order, 4, &o, &res, text, sizeof(text)));
	ck_assert_uint_eq(res.wrong, 0);
	/* Edges that the accesses do not give, in the order of the pushes and against it. */
	r.edges = kept;
	r.nedges = COUNT(kept);
	OK(replay_run(&r, order, 4, &o, &res, text, sizeof(text)));
	ck_assert_uint_eq(res.wrong, 0);
	r.edges = &edge;
	r.nedges = 1;
	OK(replay_run(&r, order, 4, &o, &res, text, sizeof(text)));
	ck_assert_uint_eq(res.wrong, 1);
	ck_assert_msg(strstr(res.first, "op 1 is not over") != NULL, "%s", res.first);
	r.edges = NULL;
	r.nedges = 0;
	rec_free(&r);
	unlink(path);
}
END_TEST

START_TEST(test_a_replay_has_the_devices_that_the_ops_name)
{
	struct pawl_config c = small(PAWL_PER_DEVICE, 1);
	char *path = temp_path();
	struct pawl_engine *e;
	struct recording r, again;
	struct pawl_op op;
	pawl_var_t v;

	c.cpu_devices = 5;
	OK(pawl_record_start(path));
	e = engine_with(&c);
	v = var_new(e);
	op = op_write(nothing, NULL, &v);
	OK(pawl_push(e, &op));
	op.device.id = 2;
	OK(pawl_push(e, &op));
	OK(pawl_wait_all(e, -1, NULL));
	OK(pawl_engine_destroy(e));
	OK(pawl_record_stop());
	load(path, &r);
	OK(pawl_record_start(path));
	replay(&r, PAWL_PER_DEVICE, 1);
	OK(pawl_record_stop());
	load(path, &again);
	ck_assert_uint_eq(again.engines[0].devices, 3);
	ck_assert_uint_eq(again.nops, 2);
	ck_assert_uint_eq(again.ops[0].device, 0);
	ck_assert_uint_eq(again.ops[1].device, 2);
	rec_free(&again);
	rec_free(&r);
	unlink(path);
}
END_TEST

/* Ops that did not begin come after those that did, whenever they were pushed. */
START_TEST(test_ops_that_did_not_begin_come_last)
{
	char *path = temp_path();
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 0);
	struct recording r;
	struct pawl_op op;
	pawl_var_t v[6];
	size_t n, i;
	u32 *order;

	OK(pawl_record_start(path));
	for (i = 0; i < 6; i++) {
		v[i] = var_new(e);
		op = op_write(nothing, NULL, &v[i]);
		op.priority = i % 2 ? 1 : 0;
		OK(pawl_push(e, &op));
	}
	for (i = 0; i < 3; i++)
		ck_assert(pawl_run_one(e));
	OK(pawl_record_stop());
	OK(pawl_engine_destroy(e));
	load(path, &r);
	order = order_of(&r, &n);
	ck_assert_uint_eq(n, 6);
	for (i = 0; i < 6; i++) {
		ck_assert_int_eq(r.ops[order[i]].begun, i < 3);
		ck_assert(i % 3 == 0 || r.ops[order[i - 1]].push < r.ops[order[i]].push);
	}
	free(order);
	rec_free(&r);
	unlink(path);
}
END_TEST

/* --- start and stop --- */

START_TEST(test_calls)
{
	char *path = temp_path();
	struct pawl_engine *e = engine(PAWL_PER_DEVICE, 1);
	struct recording r;
	pawl_var_t v = var_new(e);
	struct gate g;
	int i, round, fd;

	FAILS(pawl_record_start(NULL), -EINVAL, "path");
	FAILS(pawl_record_start(""), -EINVAL, "path");
	FAILS(pawl_record_start("/no/such/folder/file"), -ENOENT, "/no/such/folder/file");
	FAILS(pawl_record_start("/tmp"), -EISDIR, "/tmp");
	FAILS(pawl_record_start("/dev/null"), -EINVAL, "regular");
	FAILS(pawl_record_stop(), -EALREADY);
	/* A recording locks its file. */
	fd = open(path, O_RDWR);
	ck_assert(fd >= 0 && !flock(fd, LOCK_EX));
	FAILS(pawl_record_start(path), -EBUSY, path);
	close(fd);
	/* Ops that were pushed before it and end in it, and the other way round. */
	for (round = 0; round < 3; round++) {
		gate_write(e, &g, v);
		OK(pawl_record_start(path));
		FAILS(pawl_record_start(path), -EALREADY);
		for (i = 0; i < 10; i++)
			OK(push_write(e, nothing, NULL, v));
		gate_open(&g);
		OK(pawl_wait_all(e, SOON_NS, NULL));
		gate_write(e, &g, v);
		OK(pawl_record_stop());
		gate_open(&g);
		for (i = 0; i < 10; i++)
			OK(push_write(e, nothing, NULL, v));
		OK(pawl_wait_all(e, SOON_NS, NULL));
		load(path, &r);
		ck_assert(r.ended);
		ck_assert_uint_eq(r.nops, 11);
		ck_assert_uint_eq(r.foreign, 1);	/* the end of the first gate */
		ck_assert(r.ops[9].ended && r.ops[10].begun && !r.ops[10].ended);
		ck_assert_uint_eq(r.vars[0].first, 22u * (u32)round + 1);
		replay(&r, PAWL_PER_DEVICE, 1);
		rec_free(&r);
	}
	OK(pawl_engine_destroy(e));
	unlink(path);
}
END_TEST

static int starter(struct pawl_run *run, void *arg)
{
	MUST(!pawl_record_start(arg));
	return 0;
}

static int stopper(struct pawl_run *run, void *arg)
{
	MUST(!pawl_record_stop());
	return 0;
}

/* Inside bodies, too, and again and again while threads push. */
struct churn {
	struct pawl_engine *e;
	pawl_var_t v;
	u32 stop;	/* A */
};

static void *churn_pusher(void *arg)
{
	struct churn *c = arg;

	while (!load_acquire(&c->stop)) {
		MUST(!push_write(c->e, nothing, NULL, c->v));
		MUST(!pawl_wait_writable(c->e, c->v, SOON_NS, NULL));
	}
	return NULL;
}

START_TEST(test_churn)
{
	char *path = temp_path();
	struct churn c = { .e = engine(PAWL_PER_DEVICE, 2) };
	struct pawl_engine *e2;
	struct recording r;
	pthread_t t[2];
	u32 i;
	pawl_var_t w = var_new(c.e);
	size_t n;

	c.v = var_new(c.e);
	for (i = 0; i < 2; i++)
		t[i] = spawn(churn_pusher, &c);
	for (i = 0; i < (u32)TIMES(60); i++) {
		if (i % 3) {
			OK(pawl_record_start(path));
			e2 = engine(PAWL_PER_DEVICE, 1);
			OK(push_write(e2, nothing, NULL, var_new(e2)));
			nap_us(200);
			OK(pawl_engine_destroy(e2));
			OK(pawl_record_stop());
		} else {
			OK(push_write(c.e, starter, path, w));
			OK(push_write(c.e, stopper, NULL, w));
			OK(pawl_wait_readable(c.e, w, SOON_NS, NULL));
		}
		load(path, &r);
		ck_assert(r.ended && !r.lost);
		free(order_of(&r, &n));
		rec_free(&r);
	}
	store_release(&c.stop, 1);
	for (i = 0; i < 2; i++)
		join(t[i]);
	OK(pawl_engine_destroy(c.e));
	unlink(path);
}
END_TEST

static void keeps_token(struct pawl_run *run, void *arg)
{
	*(pawl_token_t *)arg = run->token;
}

static int fails(struct pawl_run *run, void *arg)
{
	return *(int *)arg;
}

/*
 * A launch is no body: its bodies are recorded with their threads and times, and with those that
 * wait for them.  A push inside a body is in the launch; a replay has the same bodies.
 */
static struct pawl_engine *pushes_on;

static int pushes(struct pawl_run *run, void *arg)
{
	MUST(!push_write(pushes_on, nothing, NULL, *(pawl_var_t *)arg));
	return 0;
}

START_TEST(test_bodies_of_launches)
{
	enum { TOP, ASYNC, FAILS, PUSHES, BOTTOM, N };
	static const char *const names[N] = { "top", "async", "fails", "pushes", "bottom" };
	static const u32 succ[N] = { 3, 1, 1, 1, 0 };
	struct replay_options o = { .workers = 1 };
	struct replay_result res;
	char *path = temp_path();
	struct recording r;
	u32 round, i, k, *order;
	size_t n;

	OK(pawl_record_start(path));
	struct pawl_engine *e = pushes_on = engine(PAWL_PER_DEVICE, 0);
	pawl_var_t v = var_new(e), mine = var_new(e);
	pawl_var_t s[4] = { PAWL_SLOT(0), PAWL_SLOT(1), PAWL_SLOT(2), PAWL_SLOT(3) };
	pawl_token_t token;
	int code = 0;
	struct pawl_op op[N] = {
		[TOP] = { sizeof(op[0]), .fn = nothing, .reads = &v, .nreads = 1, .writes = &s[0],
			  .nwrites = 1 },
		[ASYNC] = { sizeof(op[0]), .async_fn = keeps_token, .arg = &token, .reads = &s[0],
			    .nreads = 1, .writes = &s[1], .nwrites = 1 },
		[FAILS] = { sizeof(op[0]), .fn = fails, .arg = &code, .reads = &s[0], .nreads = 1,
			    .writes = &s[2], .nwrites = 1 },
		[PUSHES] = { sizeof(op[0]), .fn = pushes, .arg = &mine, .reads = &s[0],
			     .nreads = 1, .writes = &s[3], .nwrites = 1 },
		[BOTTOM] = { sizeof(op[0]), .fn = nothing, .reads = &s[1], .nreads = 3 },
	};
	struct pawl_launch how = { sizeof(how), .nvars = 4 };
	pawl_var_t none[4] = { { 0 }, { 0 }, { 0 }, { 0 } };
	pawl_graph_t g;

	how.vars = none;
	for (i = 0; i < N; i++)
		op[i].name = names[i];
	OK(pawl_graph_create(e, op, N, 0, &g));
	for (round = 0; round < 2; round++) {
		OK(pawl_graph_push(e, g, &how));
		while (pawl_run_one(e) == 1)
			;
		OK(pawl_complete(e, token, 0, NULL));
		pawl_wait_all(e, SOON_NS, NULL);
		code = -EIO;
	}
	OK(pawl_graph_delete(e, g));
	OK(pawl_engine_destroy(e));
	OK(pawl_record_stop());

	load(path, &r);
	ck_assert(r.ended && r.nops == 4 && r.nnodes == 2 * N);
	for (i = 0, round = 0; i < r.nops; i++) {
		if (!r.ops[i].launch) {
			ck_assert(r.ops[i].parent != REC_NONE && r.ops[r.ops[i].parent].launch);
			continue;
		}
		ck_assert(r.ops[i].nnodes == N && r.ops[i].parent == REC_NONE);
		for (k = 0; k < N; k++) {
			const struct rec_node *node = &r.nodes[r.ops[i].node + k];

			ck_assert(node->op == i && node->number == k && node->begun && node->ended);
			ck_assert_str_eq(node->name, names[k]);
			ck_assert_uint_eq(node->nsucc, succ[k]);
			ck_assert(node->async == (k == ASYNC));
			ck_assert_int_eq(node->status, round && k == FAILS ? -EIO : 0);
			ck_assert(node->skipped == (round && k == BOTTOM));
			ck_assert(node->begin >= r.ops[i].begin && node->begin <= node->end &&
				  node->end <= r.ops[i].end);
			ck_assert(rec_node_find(&r, &r.ops[i], k) == node);
		}
		ck_assert_ptr_null(rec_node_find(&r, &r.ops[i], N));
		round++;
	}
	order = order_of(&r, &n);
	ck_assert_msg(!replay_run(&r, order, n, &o, &res, text, sizeof(text)), "%s", text);
	ck_assert(res.bodies == 2 * N && res.ops == 4 && !res.wrong);
	free(order);
	rec_free(&r);
	unlink(path);
}
END_TEST

SUITE("record", test_fields, test_bodies_of_launches, test_many_accesses, test_random, test_order_refuses,
      test_order_of_random_histories, test_replay_sees,
      test_a_replay_has_the_devices_that_the_ops_name, test_calls, test_churn,
      test_ops_that_did_not_begin_come_last)

#else

START_TEST(test_not_built)
{
	char *path = temp_path();

	FAILS(pawl_record_start(path), -ENOSYS, "CONFIG_RECORD");
	FAILS(pawl_record_stop(), -ENOSYS, "CONFIG_RECORD");
	unlink(path);
}
END_TEST

SUITE("record", test_not_built)

#endif
