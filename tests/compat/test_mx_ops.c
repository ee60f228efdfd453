// SPDX-License-Identifier: Apache-2.0
/*
 * Ops, operators and vars of the bridge: what each refusal says, queues, what a body may do
 * after its op is complete, and what libpawl is asked for.  Calls of pawl_push() go through
 * this file (--wrap).
 */
#include "mx_bulk.h"
#include <limits.h>
#include <malloc.h>

int __real_pawl_push(struct pawl_engine *e, const struct pawl_op *op);
int __wrap_pawl_push(struct pawl_engine *e, const struct pawl_op *op);
int __real_pawl_engine_create(const struct pawl_config *cfg, struct pawl_engine **out);
int __wrap_pawl_engine_create(const struct pawl_config *cfg, struct pawl_engine **out);
int __real_pawl_engine_destroy(struct pawl_engine *e);
int __wrap_pawl_engine_destroy(struct pawl_engine *e);

static bool looks;		/* pushes are noted, and refused */
static struct pawl_op asked;	/* the last one */
static pawl_var_t asked_reads[4], asked_writes[4];

int __wrap_pawl_push(struct pawl_engine *e, const struct pawl_op *op)
{
	unsigned int i;

	if (!looks)
		return __real_pawl_push(e, op);
	asked = *op;
	for (i = 0; i < op->nreads && i < 4; i++)
		asked_reads[i] = op->reads[i];
	for (i = 0; i < op->nwrites && i < 4; i++)
		asked_writes[i] = op->writes[i];
	return -ENOSPC;
}

/* CUDA need not be there. */
int __wrap_pawl_engine_create(const struct pawl_config *cfg, struct pawl_engine **out)
{
	struct pawl_config c = *cfg;

	c.ndevices = 0;
	return __real_pawl_engine_create(&c, out);
}

int __wrap_pawl_engine_destroy(struct pawl_engine *e)
{
	return __real_pawl_engine_destroy(e);
}

static int ndropped;

static void drops(void *arg)
{
	ADD(&ndropped, 1);
}

/* --- what libpawl is asked for --- */

START_TEST(test_libpawl_gets_the_op_as_it_was_pushed)
{
	static const int devs[][3] = {
		/* type, id, the device's id */
		{ PAWL_MX_CPU, 0, 0 }, { PAWL_MX_CPU, 15, 15 }, { PAWL_MX_CPU, 16, 0 },
		{ PAWL_MX_CPU, INT_MAX, 15 }, { PAWL_MX_CPU_PINNED, 3, 3 },
		{ PAWL_MX_CPU_SHARED, 18, 2 }, { PAWL_MX_GPU, 0, 0 }, { PAWL_MX_GPU, 2, 2 },
	};
	/* the properties whose queues obey priorities in MXNet */
	static const bool obeys[2][PAWL_NO_SKIP + 1] = {
		{ [PAWL_CPU_PRIORITIZED] = true },
		{ [PAWL_COPY_FROM_DEVICE] = true, [PAWL_COPY_TO_DEVICE] = true,
		  [PAWL_GPU_PRIORITIZED] = true },
	};
	struct pawl_mx_engine *e = NULL;
	struct pawl_mx_var *v[3];
	struct pawl_mx_op op = { .name = "as it was" };
	unsigned int i;
	int prop;

	ck_assert(!setenv("PAWL_MX_GPUS", "3", 1));
	OK(pawl_mx_engine_create(PAWL_MX_PER_DEVICE, &e));
	ck_assert(!unsetenv("PAWL_MX_GPUS"));
	for (i = 0; i < 3; i++)
		OK(pawl_mx_var_new(e, &v[i]));
	op.reads = v;
	op.nreads = 2;
	op.writes = v + 2;
	op.nwrites = 1;
	op.drop = drops;
	looks = true;
	ndropped = 0;
	for (i = 0; i < sizeof(devs) / sizeof(*devs); i++) {
		op.ctx = (struct pawl_mx_context){ devs[i][0], devs[i][1] };
		op.priority = (int)i - 4;
		op.wait = i & 1;
		op.sync = i & 2 ? nothing : NULL;
		op.async = i & 2 ? NULL : at_once;
		prop = (int)i % (PAWL_NO_SKIP + 1);
		op.prop = prop;
		ck_assert_int_eq(pawl_mx_push(e, &op, NULL), -ENOSPC);
		ck_assert_int_eq(ndropped, (int)i + 1);
		ck_assert_int_eq(asked.device.kind,
				 devs[i][0] == PAWL_MX_GPU ? PAWL_CUDA : PAWL_CPU);
		ck_assert_int_eq(asked.device.id, devs[i][2]);
		ck_assert_int_eq(asked.prop, prop);
		ck_assert_int_eq(asked.priority, obeys[devs[i][0] == PAWL_MX_GPU][prop] ?
				 op.priority : 0);
		ck_assert_uint_eq(asked.flags, op.wait ? PAWL_OP_NO_SKIP : 0);
		ck_assert(!asked.fn == !op.sync && !asked.async_fn == !op.async);
		ck_assert(asked.release && asked.arg);
		ck_assert_str_eq(asked.name, "as it was");
		ck_assert(asked.name != op.name);
		ck_assert(asked.nreads == 2 && asked.nwrites == 1);
		ck_assert(asked_reads[0].h && asked_reads[1].h && asked_writes[0].h);
		ck_assert(asked_reads[0].h != asked_reads[1].h);
		ck_assert(asked_writes[0].h != asked_reads[1].h);
	}
	/* what gathers is for one device, whatever its kind */
	op.prop = PAWL_NORMAL;
	op.priority = 0;
	op.wait = false;
	op.async = NULL;
	op.sync = nothing;
	for (i = 0; i < 8; i++) {
		op.ctx.dev_type = i & 1 ? PAWL_MX_GPU : PAWL_MX_CPU;
		op.ctx.dev_id = (int)(i >> 1) % 3;
		OK(pawl_mx_set_bulk_size(e, 8));
		OK(pawl_mx_push(e, &op, NULL));
		ck_assert_int_eq(pawl_mx_set_bulk_size(e, 0), 8);
		ck_assert_int_eq(asked.device.kind, i & 1 ? PAWL_CUDA : PAWL_CPU);
		ck_assert_int_eq(asked.device.id, op.ctx.dev_id);
		ck_assert(asked.priority == 0 && asked.prop == PAWL_NORMAL && !asked.flags);
	}
	OK(pawl_mx_set_bulk_size(e, 8));
	for (i = 0; i < 4; i++) {
		asked.name = NULL;
		op.ctx.dev_type = i & 1 ? PAWL_MX_GPU : PAWL_MX_CPU;
		op.ctx.dev_id = 2;
		OK(pawl_mx_push(e, &op, NULL));
		/* what was gathered before */
		ck_assert(!asked.name == !i);
		ck_assert(!i || asked.device.kind == (i & 1 ? PAWL_CPU : PAWL_CUDA));
	}
	ck_assert_int_eq(pawl_mx_set_bulk_size(e, 0), 8);
	looks = false;
	ck_assert_int_eq(pawl_mx_wait_all(e, NULL), -ENOSPC);
	OK(pawl_mx_wait_all(e, NULL));
	OK(pawl_mx_engine_free(e));
}
END_TEST

struct doomed {
	struct pawl_mx_engine *e;
	struct pawl_mx_var *v;
};

static void *deletes(void *arg)
{
	struct doomed *d = arg;

	MUST(!pawl_mx_var_delete(d->e, d->v, cpu, NULL, NULL, NULL));
	return NULL;
}

/* Of several bulks that were refused the next wait reports the first. */
START_TEST(test_the_first_refused_bulk_is_reported)
{
	struct pawl_mx_engine *e = engine();
	struct pawl_mx_var *v = var_new(e), *gone = var_new(e);
	unsigned int n = 0;

	OK(pawl_mx_set_bulk_size(e, 8));
	OK(push(e, add_one, &n, gone));
	join(spawn(deletes, &(struct doomed){ e, gone }));
	ck_assert_int_eq(pawl_mx_set_bulk_size(e, 9), 8);
	looks = true;
	OK(push(e, add_one, &n, v));
	ck_assert_int_eq(pawl_mx_set_bulk_size(e, 0), 9);
	looks = false;
	REFUSED(-ESTALE, pawl_mx_wait_all(e, NULL), "(bulk) was refused");
	OK(pawl_mx_wait_all(e, NULL));
	ck_assert_uint_eq(n, 0);
	OK(pawl_mx_engine_free(e));
}
END_TEST

/* An op that gathers is accepted at once, and one that does not is refused at once. */
START_TEST(test_a_size_of_one_gathers_nothing)
{
	static const int sizes[] = { 1, 0, -1, 2 };
	struct pawl_mx_engine *e = engine();
	struct pawl_mx_var *v = var_new(e);
	unsigned int n = 0;
	size_t i;

	OK(pawl_mx_set_bulk_size(e, 8));
	for (i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		ck_assert_int_ge(pawl_mx_set_bulk_size(e, sizes[i]), 0);
		looks = true;
		ck_assert_int_eq(push(e, add_one, &n, v), sizes[i] == 2 ? 0 : -ENOSPC);
		looks = false;
		ck_assert_int_eq(pawl_mx_bulk_size(e), sizes[i] < 0 ? 0 : sizes[i]);
	}
	ck_assert_int_eq(pawl_mx_set_bulk_size(e, 0), 2);
	OK(pawl_mx_wait_all(e, NULL));
	ck_assert_uint_eq(n, 1);
	OK(pawl_mx_engine_free(e));
}
END_TEST

static void where(void *run, void *arg)
{
	*(pthread_t *)arg = pthread_self();
}

static pthread_t worker_of(struct pawl_mx_engine *e, int type, int id)
{
	pthread_t t = pthread_self();
	struct pawl_mx_op op = { .sync = where, .arg = &t, .ctx = { type, id } };

	OK(pawl_mx_push(e, &op, NULL));
	OK(pawl_mx_wait_all(e, NULL));
	return t;
}

/* One worker each, of which a context has that of its number modulo 16. */
START_TEST(test_contexts_share_queues_by_number)
{
	struct pawl_mx_engine *e = engine();
	pthread_t of[16], t;
	int i, k;

	for (i = 0; i < 16; i++) {
		of[i] = worker_of(e, PAWL_MX_CPU, i);
		for (k = 0; k < i; k++)
			ck_assert(!pthread_equal(of[i], of[k]));
	}
	for (i = 0; i < 48; i += 5) {
		t = worker_of(e, i % 2 ? PAWL_MX_CPU_PINNED : PAWL_MX_CPU_SHARED, i);
		ck_assert(pthread_equal(t, of[i % 16]));
	}
	OK(pawl_mx_engine_free(e));
}
END_TEST

/* --- refusals --- */

START_TEST(test_a_refusal_says_what_is_wrong)
{
	struct pawl_mx_engine *e = engine(), *other = engine();
	struct pawl_mx_var *v = var_new(e), *gone = var_new(e), *foreign = var_new(other);
	struct pawl_mx_var *list[4] = { v, v, v, v };
	struct pawl_mx_op op = { .ctx = cpu, .sync = nothing, .async = at_once };
	struct pawl_mx_opr *opr = NULL;
	void *exception = &op;
	char text[80];
	unsigned int i;

	REFUSED(-EINVAL, pawl_mx_push(e, &op, NULL), "push: more than one function");
	REFUSED(-EINVAL, pawl_mx_opr_new(e, &op, &opr), "push: more than one function");
	op.async = NULL;
	OK(pawl_mx_var_delete(e, gone, cpu, NULL, NULL, NULL));
	OK(pawl_mx_wait_all(e, NULL));
	op.reads = op.writes = list;
	for (i = 0; i < 4; i++) {
		list[i] = i & 1 ? gone : foreign;
		op.nreads = i + 1;
		op.nwrites = 0;
		snprintf(text, sizeof(text),
			 "push: const var %u was deleted, or is of another engine", i);
		REFUSED(-ESTALE, pawl_mx_push(e, &op, NULL), text);
		op.nreads = 0;
		op.nwrites = i + 1;
		snprintf(text, sizeof(text),
			 "push: mutable var %u was deleted, or is of another engine", i);
		REFUSED(-ESTALE, pawl_mx_push(e, &op, NULL), text);
		REFUSED(-ESTALE, pawl_mx_opr_new(e, &op, &opr), text);
		list[i] = v;
	}
	REFUSED(-EINVAL, pawl_mx_var_delete(e, foreign, cpu, NULL, NULL, NULL),
		"delete variable: it is of another engine");
	ndropped = 0;
	REFUSED(-EINVAL, pawl_mx_var_delete(e, foreign, cpu, NULL, NULL, drops),
		"of another engine");
	ck_assert_int_eq(ndropped, 1);
	REFUSED(-EINVAL, pawl_mx_wait_var(e, foreign, &exception),
		"wait: the variable is of another engine");
	ck_assert_ptr_null(exception);
	REFUSED(-EINVAL, pawl_mx_var_throw(e, foreign, NULL),
		"wait: the variable is of another engine");
	REFUSED(-EINVAL, pawl_mx_var_throw(e, NULL, NULL), "wait: the variable is NULL");
	REFUSED(-EINVAL, pawl_mx_wait_write(e, NULL, NULL), "wait: the variable is NULL");
	ck_assert_ptr_null(opr);
	OK(pawl_mx_var_delete(other, foreign, cpu, NULL, NULL, drops));
	OK(pawl_mx_wait_all(other, NULL));
	/* without a function, too */
	ck_assert_int_eq(ndropped, 2);
	OK(pawl_mx_engine_free(other));
	OK(pawl_mx_engine_free(e));
}
END_TEST

/* Its argument went with the engine; the object that the program has is deleted once. */
START_TEST(test_an_operator_is_deleted_after_its_engine)
{
	struct pawl_mx_engine *e = engine();
	struct pawl_mx_op op = { .sync = nothing, .ctx = cpu, .drop = drops };
	struct pawl_mx_opr *opr;

	ndropped = 0;
	OK(pawl_mx_opr_new(e, &op, &opr));
	OK(pawl_mx_engine_free(e));
	ck_assert_int_eq(ndropped, 1);
	REFUSED(-EOWNERDEAD, pawl_mx_opr_delete(e, opr), "does not exist any more");
	REFUSED(-ESTALE, pawl_mx_opr_delete(e, opr), "delete operator: it was deleted");
	ck_assert_int_eq(ndropped, 1);
}
END_TEST

static size_t allocated(void)
{
	return mallinfo2().uordblks + mallinfo2().hblkhd;
}

START_TEST(test_operators_of_a_freed_engine_leave_no_memory)
{
	enum { OPERATORS = 100, VARS = 1000 };
	static struct pawl_mx_var *list[VARS];
	struct pawl_mx_opr *opr[OPERATORS];
	struct pawl_mx_op op = { .sync = nothing, .ctx = cpu, .reads = list, .nreads = VARS };
	struct pawl_mx_engine *e;
	size_t before = 0;
	int i, k;

	for (k = 0; k < 2; k++) {
		before = allocated();
		e = engine();
		list[0] = var_new(e);
		for (i = 1; i < VARS; i++)
			list[i] = list[0];
		for (i = 0; i < OPERATORS; i++)
			OK(pawl_mx_opr_new(e, &op, &opr[i]));
		OK(pawl_mx_engine_free(e));
		for (i = 0; i < OPERATORS; i++)
			ck_assert_int_eq(pawl_mx_opr_delete(e, opr[i]), -EOWNERDEAD);
	}
	ck_assert_uint_lt(allocated(), before + OPERATORS * VARS);
}
END_TEST

/* A second call of on_complete may come at any time, also after the end of the engine. */
START_TEST(test_an_op_is_completed_once_whenever_it_is_called_again)
{
	const struct pawl_mx_op op = { .async = hold, .ctx = cpu };
	struct pawl_mx_callback done;
	struct pawl_mx_engine *e = engine();

	holds = 0;
	OK(pawl_mx_push(e, &op, NULL));
	ck_assert(soon(is_held));
	done = hold_done;
	REFUSED(-EINVAL, pawl_mx_complete(NULL, "text"), "on_complete is NULL");
	OK(pawl_mx_complete(&done, NULL));
	REFUSED(-EALREADY, pawl_mx_complete(&done, "again"), "completed before");
	OK(pawl_mx_wait_all(e, NULL));
	REFUSED(-EALREADY, pawl_mx_complete(&done, "again"), "completed before");
	OK(pawl_mx_engine_free(e));
	done.callback(done.engine, done.param, NULL);
	REFUSED(-EOWNERDEAD, pawl_mx_complete(&done, "again"), "does not exist any more");
}
END_TEST

/* --- the naive kind --- */

static struct pawl_mx_engine *naive_engine;

static void *pushes_held(void *arg)
{
	const struct pawl_mx_op op = { .async = hold, .ctx = cpu };

	return pawl_mx_push(naive_engine, &op, NULL) ? arg : NULL;
}

/* The push of an operator returns its error, also while an op of another thread is in flight. */
START_TEST(test_a_naive_push_of_an_operator_returns_its_error)
{
	struct pawl_mx_op op = { .sync = fails, .ctx = cpu, .nwrites = 2, .nreads = 2 };
	struct pawl_mx_opr *opr, *narrow, *good;
	struct pawl_mx_var *v[4];
	struct pawl_mx_engine *e;
	void *refusing = &op;
	pthread_t t;
	int i;

	OK(pawl_mx_engine_create(PAWL_MX_NAIVE, &e));
	naive_engine = e;
	for (i = 0; i < 4; i++)
		v[i] = var_new(e);
	op.reads = v;
	op.writes = v + 2;
	OK(pawl_mx_opr_new(e, &op, &opr));
	op.nwrites = 1;
	OK(pawl_mx_opr_new(e, &op, &narrow));
	op.nwrites = 2;
	op.sync = nothing;
	OK(pawl_mx_opr_new(e, &op, &good));
	holds = 0;
	REFUSED(-EIO, pawl_mx_opr_push(e, opr, cpu, 0, NULL), "disk on fire");
	t = spawn(pushes_held, &refusing);
	ck_assert(soon(is_held));
	for (i = 0; i < 2; i++) {
		REFUSED(-EIO, pawl_mx_opr_push(e, opr, cpu, 0, NULL), "disk on fire");
		REFUSED(-EIO, pawl_mx_opr_push(e, narrow, cpu, 0, NULL), "disk on fire");
		REFUSED(-EIO, push(e, fails, NULL, v[3]), "disk on fire");
		/* and no var is poisoned */
		OK(pawl_mx_opr_push(e, good, cpu, 0, NULL));
	}
	ck_assert_uint_eq(pawl_mx_var_version(v[2]), 7);
	ck_assert_uint_eq(pawl_mx_var_version(v[3]), 7);
	releases_now();
	join(t);
	OK(pawl_mx_wait_all(e, NULL));
	OK(pawl_mx_opr_delete(e, opr));
	OK(pawl_mx_opr_delete(e, narrow));
	OK(pawl_mx_opr_delete(e, good));
	OK(pawl_mx_engine_free(e));
}
END_TEST

static struct pawl_mx_var *doomed[3];

static void deletes_and_fails(void *run, void *arg)
{
	unsigned int i, n = *(unsigned int *)arg;

	for (i = 0; i < n; i++)
		MUST(!pawl_mx_var_delete(naive_engine, doomed[i], cpu, NULL, NULL, NULL));
	pawl_mx_fail(run, "and fails");
}

/* Whichever of its vars a body deletes, and whether or not another thread has an op in flight. */
START_TEST(test_a_naive_push_returns_the_error_of_a_body_that_deletes)
{
	unsigned int n, i, busy;
	struct pawl_mx_op op = { .sync = deletes_and_fails, .arg = &n, .ctx = cpu, .writes = doomed };
	struct pawl_mx_opr *opr;
	struct pawl_mx_engine *e;
	void *refusing = &op;
	pthread_t t;

	OK(pawl_mx_engine_create(PAWL_MX_NAIVE, &e));
	naive_engine = e;
	for (busy = 0; busy < 2; busy++) {
		holds = 0;
		if (busy) {
			t = spawn(pushes_held, &refusing);
			ck_assert(soon(is_held));
		}
		for (n = 0; n < 3; n++) {
			op.nwrites = 3;
			for (i = 0; i < 3; i++)
				doomed[i] = var_new(e);
			REFUSED(-EIO, pawl_mx_push(e, &op, NULL), "and fails");
			OK(pawl_mx_var_throw(e, doomed[2], NULL));
			for (i = 0; i < n; i++)
				doomed[i] = var_new(e);
			OK(pawl_mx_opr_new(e, &op, &opr));
			REFUSED(-EIO, pawl_mx_opr_push(e, opr, cpu, 0, NULL), "and fails");
			OK(pawl_mx_opr_delete(e, opr));
		}
	}
	releases_now();
	ck_assert(!pthread_join(t, &refusing) && !refusing);
	OK(pawl_mx_wait_all(e, NULL));
	OK(pawl_mx_engine_free(e));
}
END_TEST

struct self {
	struct pawl_mx_engine *e;
	struct pawl_mx_opr *opr;
};

static void deletes_itself(void *run, void *arg)
{
	struct self *s = arg;

	MUST(!pawl_mx_opr_delete(s->e, s->opr));
	pawl_mx_fail(run, "after its end");
}

/* An operator may be deleted by its body: the push that runs it returns its error. */
START_TEST(test_a_body_deletes_its_operator)
{
	static const int kinds[] = { PAWL_MX_NAIVE, PAWL_MX_PER_DEVICE };
	struct self s;
	struct pawl_mx_var *v;
	struct pawl_mx_op op = { .sync = deletes_itself, .arg = &s, .ctx = cpu, .drop = drops,
				 .writes = &v, .nwrites = 1 };
	int i, rc;

	for (i = 0; i < 2; i++) {
		ndropped = 0;
		OK(pawl_mx_engine_create(kinds[i], &s.e));
		v = var_new(s.e);
		OK(pawl_mx_opr_new(s.e, &op, &s.opr));
		rc = pawl_mx_opr_push(s.e, s.opr, cpu, 0, NULL);
		ck_assert_int_eq(rc, i ? 0 : -EIO);
		ck_assert_int_eq(pawl_mx_wait_all(s.e, NULL), i ? -EIO : 0);
		OK(pawl_mx_engine_free(s.e));
		ck_assert_int_eq(ndropped, 1);
	}
}
END_TEST

static int freeing;

static void frees(void *run, void *arg)
{
	PUT(&freeing, pawl_mx_engine_free(arg));
}

/* An engine that could not be freed is not the process's, if it was not before. */
START_TEST(test_an_engine_of_its_own_stays_one)
{
	struct pawl_mx_engine *e = NULL, *shared = pawl_mx_engine_get();
	struct pawl_mx_op op = { .sync = frees, .ctx = cpu };

	OK(pawl_mx_engine_create(PAWL_MX_PER_DEVICE, &e));
	OK(pawl_mx_engine_free(shared));
	op.arg = e;
	OK(pawl_mx_push(e, &op, NULL));
	OK(pawl_mx_wait_all(e, NULL));
	ck_assert_int_eq(freeing, -EDEADLK);
	shared = pawl_mx_engine_get();
	ck_assert(shared && shared != e);
	OK(pawl_mx_engine_free(shared));
	OK(pawl_mx_engine_free(e));
}
END_TEST

/* --- objects that are used again --- */

struct next {
	struct pawl_mx_engine *e;
	struct pawl_mx_callback done;
	int held, dropped;
	unsigned int in;
};

static void drops_next(void *arg)
{
	struct next *n = arg;

	ADD(&n->dropped, 1);
}

static void holds_next(void *run, void *on_complete, void *arg)
{
	struct next *n = arg;

	n->done = *(struct pawl_mx_callback *)on_complete;
	PUT(&n->in, 1);
}

/* The object of a completed op is that of the next one that its thread pushes. */
static void completes_and_pushes(void *run, void *on_complete, void *arg)
{
	struct next *n = arg;
	const struct pawl_mx_op op = { .async = holds_next, .arg = n, .drop = drops_next,
				       .keep = true, .ctx = cpu1 };

	MUST(!pawl_mx_complete(on_complete, NULL));
	MUST(!pawl_mx_push(n->e, &op, NULL));
}

START_TEST(test_a_body_pushes_after_its_op_is_complete)
{
	struct next n = { .e = engine() };
	const struct pawl_mx_op op = { .async = completes_and_pushes, .arg = &n, .ctx = cpu };
	struct pawl_mx_var *v = var_new(n.e);
	int i;

	for (i = 0; i < 20; i++) {
		n.in = 0;
		OK(pawl_mx_push(n.e, &op, NULL));
		until(&n.in, 1);
		/* the body of the first op has returned, whose worker runs this one */
		OK(push(n.e, nothing, NULL, v));
		OK(pawl_mx_wait_var(n.e, v, NULL));
		ck_assert_int_eq(GET(&n.dropped), i);
		n.done.callback(n.done.engine, n.done.param, NULL);
		OK(pawl_mx_wait_all(n.e, NULL));
	}
	OK(pawl_mx_engine_free(n.e));
	ck_assert_int_eq(n.dropped, 20);
}
END_TEST

struct roomy {
	struct pawl_mx_engine *e;
	void *room;
	unsigned int dropped[2];
};

static struct roomy *roomy;

static void counts_drop(void *arg)
{
	ADD((unsigned int *)arg, 1);
}

/* The op that is pushed here has the object of the one that is over. */
static void puts_room_and_pushes(void *room)
{
	const struct pawl_mx_op op = { .async = hold, .arg = &roomy->dropped[0], .ctx = cpu1,
				       .drop = counts_drop };

	MUST(room == roomy->room);
	pawl_mx_room_put(room);
	MUST(!pawl_mx_push(roomy->e, &op, NULL));
}

static void pushes_another(void *run, void *arg)
{
	const struct pawl_mx_op op = { .sync = nothing, .arg = &roomy->dropped[1], .ctx = cpu,
				       .drop = counts_drop };

	MUST(!pawl_mx_push(roomy->e, &op, NULL));
}

START_TEST(test_the_drop_of_a_room_pushes)
{
	struct roomy r = { .e = engine() };
	struct pawl_mx_op op = { .sync = nothing, .in_room = true, .drop = puts_room_and_pushes,
				 .ctx = cpu };
	struct pawl_mx_var *v = var_new(r.e);

	roomy = &r;
	holds = 0;
	r.room = pawl_mx_room_get();
	ck_assert_ptr_nonnull(r.room);
	op.arg = r.room;
	OK(pawl_mx_push(r.e, &op, NULL));
	ck_assert(soon(is_held));
	OK(push(r.e, pushes_another, NULL, v));
	OK(pawl_mx_wait_var(r.e, v, NULL));
	OK(push(r.e, nothing, NULL, v));
	OK(pawl_mx_wait_var(r.e, v, NULL));
	ck_assert(GET(&r.dropped[0]) == 0 && GET(&r.dropped[1]) == 1);
	releases_now();
	OK(pawl_mx_wait_all(r.e, NULL));
	OK(pawl_mx_engine_free(r.e));
	ck_assert(r.dropped[0] == 1 && r.dropped[1] == 1);
}
END_TEST

/* A refused push frees its room, and an op whose argument was no room frees its object. */
START_TEST(test_rooms_are_used_again)
{
	struct pawl_mx_engine *e;
	struct pawl_mx_op op = { .drop = pawl_mx_room_put };
	const struct pawl_mx_op plain = { .sync = nothing, .ctx = cpu };
	size_t before = 0;
	int i;

	/* whose ops have the objects of one thread */
	OK(pawl_mx_engine_create(PAWL_MX_NAIVE, &e));
	op.sync = nothing;
	op.in_room = true;
	for (i = 0; i < 4000; i++) {
		if (i == 2000)
			before = allocated();
		op.arg = pawl_mx_room_get();
		ck_assert_ptr_nonnull(op.arg);
		op.ctx = (struct pawl_mx_context){ i & 1 ? 99 : PAWL_MX_CPU, 0 };
		ck_assert_int_eq(pawl_mx_push(e, &op, NULL), i & 1 ? -EINVAL : 0);
		OK(pawl_mx_push(e, &plain, NULL));
		pawl_mx_room_put(pawl_mx_room_get());
	}
	ck_assert_uint_lt(allocated(), before + 50000);
	OK(pawl_mx_engine_free(e));
}
END_TEST

/* The argument goes with the completion, or with keep when the body has returned. */
static void completes_itself(void *run, void *on_complete, void *keep)
{
	const int before = GET(&ndropped);

	MUST(!pawl_mx_complete(on_complete, NULL));
	MUST(GET(&ndropped) == before + !keep);
}

START_TEST(test_an_object_does_not_keep_what_it_was_for)
{
	struct pawl_mx_op op = { .async = completes_itself, .drop = drops, .ctx = cpu };
	struct pawl_mx_engine *e;
	int i;

	OK(pawl_mx_engine_create(PAWL_MX_NAIVE, &e));
	ndropped = 0;
	for (i = 0; i < 20; i++) {
		op.keep = i & 1;
		op.arg = op.keep ? &op : NULL;
		OK(pawl_mx_push(e, &op, NULL));
		ck_assert_int_eq(ndropped, i + 1);
	}
	OK(pawl_mx_engine_free(e));
}
END_TEST

SUITE("mx_ops", 60, test_libpawl_gets_the_op_as_it_was_pushed,
      test_the_first_refused_bulk_is_reported, test_a_size_of_one_gathers_nothing,
      test_contexts_share_queues_by_number,
      test_a_refusal_says_what_is_wrong, test_an_operator_is_deleted_after_its_engine,
      test_operators_of_a_freed_engine_leave_no_memory,
      test_an_op_is_completed_once_whenever_it_is_called_again,
      test_a_naive_push_of_an_operator_returns_its_error,
      test_a_naive_push_returns_the_error_of_a_body_that_deletes, test_a_body_deletes_its_operator,
      test_an_engine_of_its_own_stays_one,
      test_a_body_pushes_after_its_op_is_complete, test_the_drop_of_a_room_pushes,
      test_rooms_are_used_again, test_an_object_does_not_keep_what_it_was_for)
