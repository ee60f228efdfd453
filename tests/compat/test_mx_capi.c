// SPDX-License-Identifier: Apache-2.0
/*
 * The C interface as a C program uses it: pushes with arrays and deleters, bad arguments, the
 * end of a program.  Only installed headers are included.
 */
#include "mx_test.h"
#include <malloc.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/wait.h>

/* --- bodies --- */

static int deleted;

static void sync_nothing(void *run, void *arg) { }

static void on_start_body(void *run, void *on_start, void *on_complete, void *param)
{
	struct pawl_mx_callback start = *(struct pawl_mx_callback *)on_start;
	struct pawl_mx_callback done = *(struct pawl_mx_callback *)on_complete;

	/* both are of this op, and the op is complete after the second of them only */
	ck_assert(start.engine == done.engine && start.param == done.param);
	start.callback(start.engine, start.param, NULL);
	ADD(&ran, 1);
	OK(pawl_mx_complete(on_complete, NULL));
}

static void fail_body(void *run, void *param)
{
	pawl_mx_fail(run, param);
}

static void fail_async(void *run, void *on_complete, void *param)
{
	ck_assert_int_eq(pawl_mx_complete(on_complete, param), 0);
	REFUSED(-EALREADY, pawl_mx_complete(on_complete, param), "complete");
}

static void deleter(void *param)
{
	ck_assert_ptr_nonnull(param);
	ADD(&deleted, 1);
	free(param);
}

static void fresh(void)
{
	OK(MXNDArrayWaitAll());
	ran = deleted = 0;
}

/* --- ops --- */

/* A deleter is called once, whether the push succeeds or not. */
START_TEST(test_deleter_once)
{
	NDArrayHandle a = floats(1), none, bad[] = { NULL };
	struct pawl_mx_var *var = pawl_mx_nd_var(a);
	const struct pawl_mx_context gpu = { PAWL_MX_GPU, 0 }, odd = { 4, 0 };
	const int bad_prop = 77;
	int i, n = 0;

	fresh();
	OK(MXNDArrayCreateNone(&none));
	for (i = 0; i < 10; i++) {
		OK(MXEnginePushSync(body, malloc(1), deleter, &cpu, NULL, 0, &var, 1, NULL, 0, "s"));
		OK(MXEnginePushAsync(async_body, malloc(1), deleter, &cpu, &var, 1, NULL, 0,
				     NULL, 0, NULL, false));
		OK(MXEnginePushAsyncOnStart(on_start_body, malloc(1), deleter, &cpu, &var, 1,
					    NULL, 0, NULL, 0, NULL, false));
		OK(MXEnginePushSyncND(body, malloc(1), deleter, &cpu, &a, 1, NULL, 0, NULL, 0,
				      NULL));
		OK(MXEnginePushAsyncND(async_body, malloc(1), deleter, &cpu, NULL, 0, &a, 1,
				       NULL, 0, NULL, false));
		OK(MXEnginePushAsyncNDOnStart(on_start_body, malloc(1), deleter, &cpu, NULL, 0,
					      &a, 1, NULL, 0, NULL, true));
		OK(MXEnginePushSync(fail_body, strdup("fails"), deleter, &cpu, NULL, 0, &var, 1,
				    NULL, 0, NULL));
		/* skipped */
		OK(MXEnginePushSync(body, malloc(1), deleter, &cpu, NULL, 0, &var, 1, NULL, 0,
				    NULL));
		FAILS(MXNDArrayWaitToRead(a), "fails");
		OK(MXNDArrayWaitAll());
		n += 8;
		ck_assert_int_eq(GET(&deleted), n);
		/* refused */
		FAILS(MXEnginePushSync(body, malloc(1), deleter, &cpu, &var, -1, NULL, 0, NULL,
				       0, NULL),
		      "const vars");
		FAILS(MXEnginePushAsync(async_body, malloc(1), deleter, &cpu, NULL, 0, &var, -5,
					NULL, 0, NULL, false),
		      "mutable vars");
		FAILS(MXEnginePushSyncND(body, malloc(1), deleter, &cpu, &a, -1, NULL, 0, NULL,
					 0, NULL),
		      "const");
		FAILS(MXEnginePushAsyncND(async_body, malloc(1), deleter, &cpu, NULL, 0, &a, -1,
					  NULL, 0, NULL, false),
		      "mutable");
		FAILS(MXEnginePushSync(body, malloc(1), deleter, NULL, NULL, 0, &var, 1, NULL,
				       0, NULL),
		      "context");
		FAILS(MXEnginePushSync(NULL, malloc(1), deleter, &cpu, NULL, 0, &var, 1, NULL,
				       0, NULL),
		      "function");
		FAILS(MXEnginePushAsync(NULL, malloc(1), deleter, &cpu, NULL, 0, &var, 1, NULL,
					0, NULL, false),
		      "function");
		FAILS(MXEnginePushSync(body, malloc(1), deleter, &cpu, NULL, 2, &var, 1, NULL,
				       0, NULL),
		      "list of const");
		FAILS(MXEnginePushSync(body, malloc(1), deleter, &gpu, NULL, 0, &var, 1, NULL,
				       0, NULL),
		      "GPU");
		FAILS(MXEnginePushSync(body, malloc(1), deleter, &odd, NULL, 0, &var, 1, NULL,
				       0, NULL),
		      "device type 4");
		FAILS(MXEnginePushSync(body, malloc(1), deleter, &cpu, bad, 1, NULL, 0, NULL, 0, NULL),
		      "const var 0 is NULL");
		FAILS(MXEnginePushSync(body, malloc(1), deleter, &cpu, NULL, 0, &var, 1,
				       &bad_prop, 0, NULL),
		      "property 77");
		FAILS(MXEnginePushSyncND(body, malloc(1), deleter, &cpu, bad, 1, NULL, 0, NULL,
					 0, NULL),
		      "array 0 is NULL");
		FAILS(MXEnginePushSyncND(body, malloc(1), deleter, &cpu, NULL, 0, &none, 1,
					 NULL, 0, NULL),
		      "none");
		FAILS(MXEnginePushSyncND(body, malloc(1), deleter, &cpu, NULL, 0, NULL, 1, NULL,
					 0, NULL),
		      "list of mutable arrays is NULL");
		n += 15;
		ck_assert_int_eq(GET(&deleted), n);
	}
	ck_assert_int_eq(ran, 60);
	OK(MXNDArrayFree(a));
	OK(MXNDArrayFree(none));
}
END_TEST

/* Every property, and priorities; a list that is too long for the stack. */
START_TEST(test_properties)
{
	NDArrayHandle nds[200];
	int prop, i;

	fresh();
	for (i = 0; i < 200; i++)
		nds[i] = floats(1);
	for (prop = 0; prop < 8; prop++) {
		OK(MXEnginePushSyncND(body, NULL, NULL, &cpu, nds, 100, nds + 100, 100, &prop,
				      prop - 3, "p"));
		OK(MXEnginePushAsyncND(async_body, NULL, NULL, &cpu, nds, 1, nds + 1, 2, &prop,
				       0, "p", prop & 1));
	}
	OK(MXNDArrayWaitAll());
	ck_assert_int_eq(ran, 16);
	ck_assert_uint_eq(version(nds[0]), 0);
	ck_assert_uint_eq(version(nds[150]), 8);
	for (i = 0; i < 200; i++)
		OK(MXNDArrayFree(nds[i]));
}
END_TEST

/* Short ones, and those for which there is no room on the stack, however they are split. */
START_TEST(test_lists_of_any_length_are_read_and_written)
{
	static const int lists[][2] = {
		{ 64, 0 }, { 0, 64 }, { 65, 0 }, { 0, 65 }, { 32, 32 }, { 32, 33 }, { 40, 40 },
		{ 1, 64 }, { 64, 1 }, { 64, 64 }, { 1, 120 }, { 120, 1 }, { 128, 128 }, { 1, 255 },
		{ 128, 129 }, { 256, 1 }, { 1, 256 }, { 150, 150 }, { 299, 1 }, { 1, 299 },
	};
	enum { MOST = 300, LISTS = sizeof(lists) / sizeof(*lists) };
	struct pawl_mx_var *vars[MOST];
	uint64_t want[MOST] = { 0 };
	NDArrayHandle nds[MOST];
	int i, k, nd;

	for (i = 0; i < MOST; i++) {
		nds[i] = floats(1);
		vars[i] = pawl_mx_nd_var(nds[i]);
	}
	for (k = 0; k < 2 * LISTS; k++) {
		const int r = lists[k / 2][0], w = lists[k / 2][1];

		nd = k % 2;
		ran = holds = 0;
		/* behind what writes the last one that it reads */
		if (r) {
			OK(MXEnginePushAsync(hold, NULL, NULL, &cpu, NULL, 0, &vars[r - 1], 1, NULL, 0,
					     "hold", false));
			want[r - 1]++;
			ck_assert(soon(is_held));
		}
		if (nd)
			OK(MXEnginePushSyncND(body, NULL, NULL, &cpu, nds, r, nds + r, w, NULL, 0, "l"));
		else
			OK(MXEnginePushSync(body, NULL, NULL, &cpu, vars, r, vars + r, w, NULL, 0, "l"));
		if (r) {
			ck_assert_int_eq(GET(&ran), 0);
			hold_done.callback(hold_done.engine, hold_done.param, NULL);
		}
		OK(MXNDArrayWaitAll());
		ck_assert_int_eq(ran, 1);
		for (i = 0; i < MOST; i++) {
			want[i] += i >= r && i < r + w;
			ck_assert_msg(version(nds[i]) == want[i], "%d + %d: array %d", r, w, i);
		}
	}
	for (i = 0; i < MOST; i++)
		OK(MXNDArrayFree(nds[i]));
}
END_TEST

/* The text names it, in a list of either kind. */
START_TEST(test_one_bad_array_or_var_in_a_list_refuses_the_op)
{
	NDArrayHandle a = floats(1), none, nds[80];
	struct pawl_mx_var *vars[80];
	char text[64];
	int i, k;

	fresh();
	OK(MXNDArrayCreateNone(&none));
	for (i = 0; i < 80; i++) {
		nds[i] = a;
		vars[i] = pawl_mx_nd_var(a);
	}
	for (i = 0; i < 80; i += i < 4 ? 1 : 25) {
		for (k = 0; k < 2; k++) {
			nds[i] = k ? none : NULL;
			snprintf(text, sizeof(text), "const array %d is %s", i, k ? "none" : "NULL");
			FAILS(MXEnginePushSyncND(body, malloc(1), deleter, &cpu, nds, 80, &a, 1, NULL,
						 0, NULL), text);
			snprintf(text, sizeof(text), "mutable array %d is %s", i, k ? "none" : "NULL");
			FAILS(MXEnginePushSyncND(body, malloc(1), deleter, &cpu, &a, 1, nds, i + 1,
						 NULL, 0, NULL), text);
		}
		nds[i] = a;
		vars[i] = NULL;
		snprintf(text, sizeof(text), "const var %d is NULL", i);
		FAILS(MXEnginePushSync(body, malloc(1), deleter, &cpu, vars, i + 1, NULL, 0, NULL, 0,
				       NULL), text);
		snprintf(text, sizeof(text), "mutable var %d is NULL", i);
		FAILS(MXEnginePushSync(body, malloc(1), deleter, &cpu, vars, i, vars, i + 1, NULL, 0,
				       NULL), text);
		vars[i] = vars[79 - i];
	}
	OK(MXNDArrayWaitAll());
	ck_assert_int_eq(ran, 0);
	ck_assert_int_eq(deleted, 6 * 8);
	ck_assert_uint_eq(version(a), 0);
	OK(MXNDArrayFree(none));
	OK(MXNDArrayFree(a));
}
END_TEST

/* --- the six calls that push --- */

enum { FORMS = 6 };

static struct op {
	int priority;
	bool wait, write;
} forms[FORMS];

static int order[FORMS], nrun;

static void form_ran(void *run, void *param)
{
	order[ADD(&nrun, 1) - 1] = (int)((struct op *)param - forms);
}

static void form_async(void *run, void *on_complete, void *param)
{
	struct pawl_mx_callback done = *(struct pawl_mx_callback *)on_complete;

	form_ran(run, param);
	done.callback(done.engine, done.param, NULL);
}

static void form_start(void *run, void *on_start, void *on_complete, void *param)
{
	form_async(run, on_complete, param);
}

/* Push forms[i] on one array, which it reads or writes. */
static int push_form(int i, NDArrayHandle nd)
{
	struct pawl_mx_var *var = pawl_mx_nd_var(nd);
	const struct op *o = &forms[i];
	int r = !o->write, w = o->write, p = o->priority;
	void *arg = &forms[i];

	switch (i) {
	case 0:
		return MXEnginePushAsync(form_async, arg, NULL, &cpu, &var, r, &var, w, NULL, p,
					 NULL, o->wait);
	case 1:
		return MXEnginePushAsyncOnStart(form_start, arg, NULL, &cpu, &var, r, &var, w,
						NULL, p, NULL, o->wait);
	case 2:
		return MXEnginePushAsyncND(form_async, arg, NULL, &cpu, &nd, r, &nd, w, NULL, p,
					   NULL, o->wait);
	case 3:
		return MXEnginePushAsyncNDOnStart(form_start, arg, NULL, &cpu, &nd, r, &nd, w,
						  NULL, p, NULL, o->wait);
	case 4:
		return MXEnginePushSync(form_ran, arg, NULL, &cpu, &var, r, &var, w, NULL, p, NULL);
	}
	return MXEnginePushSyncND(form_ran, arg, NULL, &cpu, &nd, r, &nd, w, NULL, p, NULL);
}

/* A synchronous op never is one, so it is skipped when its data have failed. */
START_TEST(test_an_op_that_is_a_wait_runs_although_its_data_failed)
{
	static char text[] = "gone";
	NDArrayHandle a = floats(1);
	int i, k;

	fresh();
	for (i = 0; i < FORMS; i++) {
		for (k = 0; k < 4; k++) {
			forms[i] = (struct op){ .wait = k & 1, .write = k & 2 };
			nrun = 0;
			OK(MXEnginePushSyncND(fail_body, text, NULL, &cpu, NULL, 0, &a, 1, NULL, 0,
					      "f"));
			OK(push_form(i, a));
			FAILS(MXNDArrayWaitAll(), text);
			ck_assert_msg(GET(&nrun) == (i < 4 && (k & 1)), "form %d, %d", i, k);
		}
	}
	OK(MXNDArrayFree(a));
}
END_TEST

static int opened;

static int is_opened(void)
{
	return GET(&opened);
}

static void until_opened(void *run, void *param)
{
	ADD(&holds, 1);
	if (!soon(is_opened))
		abort();
}

/* Whatever form and priority they have, since MXNet's normal queue ignores it. */
START_TEST(test_normal_ops_run_in_the_order_of_their_pushes)
{
	NDArrayHandle a = floats(1);
	int way, i;

	for (way = -1; way < 2; way += 2) {
		fresh();
		holds = opened = nrun = 0;
		OK(MXEnginePushSync(until_opened, NULL, NULL, &cpu, NULL, 0, NULL, 0, NULL, 0, "b"));
		ck_assert(soon(is_held));
		for (i = 0; i < FORMS; i++) {
			forms[i] = (struct op){ .priority = way * (i - 3) };
			OK(push_form(i, a));
		}
		PUT(&opened, 1);
		OK(MXNDArrayWaitAll());
		ck_assert_int_eq(nrun, FORMS);
		for (i = 0; i < FORMS; i++)
			ck_assert_int_eq(order[i], i);
	}
	OK(MXNDArrayFree(a));
}
END_TEST

START_TEST(test_async_fails)
{
	NDArrayHandle a = floats(1);
	static char text[] = "it did not work out";

	OK(MXEnginePushAsyncND(fail_async, text, NULL, &cpu, NULL, 0, &a, 1, NULL, 0, "x",
			       false));
	FAILS(MXNDArrayWaitToRead(a), text);
	OK(MXNDArrayWaitToRead(a));
	OK(MXNDArrayFree(a));
}
END_TEST

START_TEST(test_bulk_size)
{
	NDArrayHandle a = floats(1);
	int was = -1, i;

	fresh();
	OK(MXEngineSetBulkSize(15, &was));
	ck_assert_int_eq(was, 0);
	for (i = 0; i < 30; i++)
		OK(MXEnginePushSyncND(body, malloc(1), deleter, &cpu, NULL, 0, &a, 1, NULL, 0, "b"));
	OK(MXNDArrayWaitToRead(a));
	ck_assert_int_eq(ran, 30);
	ck_assert_int_eq(deleted, 30);
	ck_assert_uint_eq(version(a), 2);
	OK(MXEngineSetBulkSize(0, &was));
	ck_assert_int_eq(was, 15);
	OK(MXEngineSetBulkSize(0, NULL));
	OK(MXNDArrayFree(a));
}
END_TEST

/* Far more ops than there are objects of them at first wait for one, and no push waits. */
START_TEST(test_pushes_do_not_wait_for_ops_that_wait)
{
	enum { OPS = 50000 };
	NDArrayHandle a = floats(1);
	int i;

	fresh();
	holds = 0;
	OK(MXEnginePushAsyncND(hold, NULL, NULL, &cpu, NULL, 0, &a, 1, NULL, 0, "hold", false));
	ck_assert(soon(is_held));
	for (i = 0; i < OPS; i++)
		OK(MXEnginePushSyncND(body, NULL, NULL, &cpu, NULL, 0, &a, 1, NULL, 0, "w"));
	ck_assert_int_eq(GET(&ran), 0);
	hold_done.callback(hold_done.engine, hold_done.param, NULL);
	OK(MXNDArrayWaitAll());
	ck_assert_int_eq(ran, OPS);
	ck_assert_uint_eq(version(a), OPS + 1);
	OK(MXNDArrayFree(a));
}
END_TEST

/* Names belong to the caller, who may free them when the call returns. */
START_TEST(test_names_are_copied)
{
	NDArrayHandle a = floats(1);
	char name[32];
	int i;

	fresh();
	for (i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "op%d", i % 10);
		OK(MXEnginePushSyncND(body, NULL, NULL, &cpu, NULL, 0, &a, 1, NULL, 0, name));
		memset(name, 'x', sizeof(name) - 1);
	}
	OK(MXNDArrayFree(a));
	OK(MXNDArrayWaitAll());
	ck_assert_int_eq(ran, 100);
}
END_TEST

START_TEST(test_small_calls)
{
	int n = 0;

	OK(MXGetVersion(&n));
	ck_assert_int_eq(n, 10901);
	OK(MXGetGPUCount(&n));
	ck_assert_int_eq(n, 0);
	FAILS(MXGetVersion(NULL), "NULL");
	FAILS(MXGetGPUCount(NULL), "NULL");
}
END_TEST

/* The first bytes of a var, and a room, may have an object of any type. */
START_TEST(test_memory_for_a_front_end_has_the_largest_alignment)
{
	struct pawl_mx_engine *e = pawl_mx_engine_get();
	struct pawl_mx_var *v[20];
	void *room[20];
	int i;

	for (i = 0; i < 20; i++) {
		OK(pawl_mx_var_new(e, &v[i]));
		room[i] = pawl_mx_room_get();
		ck_assert_ptr_nonnull(room[i]);
		ck_assert_uint_eq((uintptr_t)v[i] % _Alignof(max_align_t), 0);
		ck_assert_uint_eq((uintptr_t)room[i] % _Alignof(max_align_t), 0);
		memset(v[i], i, PAWL_MX_VAR_ROOM);
		memset(room[i], i, PAWL_MX_ROOM);
	}
	for (i = 0; i < 20; i++) {
		ck_assert(*(char *)v[i] == i && ((char *)v[i])[PAWL_MX_VAR_ROOM - 1] == i);
		ck_assert(*(char *)room[i] == i && ((char *)room[i])[PAWL_MX_ROOM - 1] == i);
		pawl_mx_room_put(room[i]);
		OK(pawl_mx_var_delete(e, v[i], cpu, NULL, NULL, NULL));
	}
	OK(pawl_mx_wait_all(e, NULL));
}
END_TEST

static int fails_with(int rc, int code, const char *text)
{
	return rc == code && strstr(pawl_mx_last_error(), text);
}

/* Each is refused with a text that says what was wrong, and has no effect. */
START_TEST(test_bad_arguments)
{
	const uint32_t shape[64] = { 1 };
	struct pawl_mx_op op = { .sync = sync_nothing, .ctx = cpu };
	struct pawl_mx_engine *e;
	struct pawl_mx_opr *opr;
	NDArrayHandle nd = floats(6), other;
	int dims[64] = { 2, 3 }, bad[] = { 2, -3 };

	ck_assert(fails_with(pawl_mx_engine_create(99, &e), -EINVAL, "99"));
	ck_assert(fails_with(pawl_mx_engine_create(0, NULL), -EINVAL, "NULL"));
	e = pawl_mx_engine_get();
	ck_assert(fails_with(pawl_mx_opr_push(e, NULL, cpu, 0, NULL), -EINVAL, "NULL"));
	ck_assert(fails_with(pawl_mx_opr_delete(e, NULL), -EINVAL, "NULL"));
	ck_assert_int_eq(pawl_mx_opr_new(e, &op, &opr), 0);
	ck_assert_int_eq(pawl_mx_opr_delete(e, opr), 0);
	ck_assert(fails_with(pawl_mx_complete(NULL, NULL), -EINVAL, "NULL"));
	pawl_mx_set_last_error("a text");
	ck_assert_str_eq(MXGetLastError(), "a text");
	pawl_mx_set_last_error(NULL);
	ck_assert_str_eq(MXGetLastError(), "");
	FAILS(MXEnginePushSync(sync_nothing, NULL, NULL, &cpu, NULL, -3, NULL, -7, NULL, 0, NULL),
	      "non-negative number of const vars expected, not -3");
	FAILS(MXEnginePushSync(sync_nothing, NULL, NULL, &cpu, NULL, 4, NULL, -7, NULL, 0, NULL),
	      "non-negative number of mutable vars expected, not -7");
	FAILS(MXEnginePushSyncND(sync_nothing, NULL, NULL, &cpu, NULL, 1, NULL, 1, NULL, 0, NULL),
	      "the list of const arrays is NULL");
	FAILS(MXSetNumOMPThreads(0), "MXSetNumOMPThreads: 0 threads");
	FAILS(MXSetNumOMPThreads(-5), "MXSetNumOMPThreads: -5 threads");
	FAILS(MXNDArrayCreate(shape, 64, PAWL_MX_CPU, 0, 0, &other), "64 dimensions");
	FAILS(MXNDArrayReshape(nd, 64, dims, &other), "64 dimensions");
	FAILS(MXNDArrayReshape(nd, 2, NULL, &other), "2 dimensions");
	FAILS(MXNDArrayReshape(nd, 2, bad, &other), "dimension 1 is -3");
	FAILS(MXNDArrayReshape(nd, 2, dims, NULL), "");
	OK(MXNDArrayReshape(nd, 2, dims, &other));
	OK(MXNDArrayFree(other));
	OK(MXNDArrayFree(nd));
}
END_TEST

/* Vars and operators of another engine: refused by everything that takes them. */
START_TEST(test_var_of_another_engine_is_refused)
{
	struct pawl_mx_engine *e, *other;
	struct pawl_mx_var *v, *foreign;
	struct pawl_mx_op op = { .sync = sync_nothing, .ctx = { PAWL_MX_CPU, 0 } };
	struct pawl_mx_opr *opr;

	ck_assert_int_eq(pawl_mx_engine_create(PAWL_MX_PER_DEVICE, &e), 0);
	ck_assert_int_eq(pawl_mx_engine_create(PAWL_MX_PER_DEVICE, &other), 0);
	ck_assert_int_eq(pawl_mx_var_new(e, &v), 0);
	ck_assert_int_eq(pawl_mx_var_new(other, &foreign), 0);
	op.writes = &foreign;
	op.nwrites = 1;
	ck_assert_int_eq(pawl_mx_push(e, &op, NULL), -ESTALE);
	ck_assert(strstr(pawl_mx_last_error(), "mutable var 0"));
	op.reads = &foreign;
	op.nreads = 1;
	op.writes = &v;
	ck_assert_int_eq(pawl_mx_push(e, &op, NULL), -ESTALE);
	ck_assert_int_eq(pawl_mx_opr_new(e, &op, &opr), -ESTALE);
	ck_assert_int_eq(pawl_mx_wait_var(e, foreign, NULL), -EINVAL);
	ck_assert_int_eq(pawl_mx_wait_write(e, foreign, NULL), -EINVAL);
	ck_assert_int_eq(pawl_mx_var_delete(e, foreign, op.ctx, NULL, NULL, NULL), -EINVAL);
	op.nreads = 0;
	ck_assert_int_eq(pawl_mx_opr_new(e, &op, &opr), 0);
	ck_assert_int_eq(pawl_mx_opr_push(other, opr, op.ctx, 0, NULL), -ESTALE);
	ck_assert(strstr(pawl_mx_last_error(), "the operator was deleted, or is of another"));
	ck_assert_int_eq(pawl_mx_opr_push(e, opr, op.ctx, 0, NULL), 0);
	ck_assert_int_eq(pawl_mx_wait_all(e, NULL), 0);
	ck_assert_uint_eq(pawl_mx_var_version(v), 1);
	ck_assert_uint_eq(pawl_mx_var_version(foreign), 0);
	ck_assert_int_eq(pawl_mx_opr_delete(e, opr), 0);
	ck_assert_int_eq(pawl_mx_engine_free(e), 0);
	ck_assert_int_eq(pawl_mx_engine_free(other), 0);
}
END_TEST

/* --- the last error --- */

/* A text is taken as it is, and 4095 bytes of it. */
START_TEST(test_the_last_error_is_a_copy_of_its_text)
{
	char text[5000];

	pawl_mx_set_last_error("50 %s of %n 100 %");
	ck_assert_str_eq(MXGetLastError(), "50 %s of %n 100 %");
	memset(text, 'a', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	pawl_mx_set_last_error(text);
	memset(text, 'b', sizeof(text) - 1);
	ck_assert_uint_eq(strlen(MXGetLastError()), 4095);
	ck_assert_uint_eq(strspn(MXGetLastError(), "a"), 4095);
	/* a call that succeeds leaves it */
	pawl_mx_set_last_error("stays");
	OK(MXNDArrayWaitAll());
	ck_assert_str_eq(MXGetLastError(), "stays");
}
END_TEST

enum { LATE_BLOCKS = 64, LATE_SIZE = 5000, LATE_TURNS = THREAD_SANITIZED ? 2 : 3 };

struct late {
	pthread_key_t key;
	int turns, wrong;
};

static void one_error(const char *text, const char *name)
{
	OK(MXEnginePushSync(sync_nothing, NULL, NULL, &cpu, NULL, 0, NULL, 0, NULL, 0, name));
	pawl_mx_set_last_error(text);
}

/*
 * In its later turns the thread's text was freed, and the program uses that memory.  The thread
 * sanitizer has gone before the last turn.
 */
static void errs_late(void *arg)
{
	unsigned char *block[LATE_BLOCKS];
	struct late *l = arg;
	int i, k;

	if (++l->turns < LATE_TURNS && pthread_setspecific(l->key, l))
		abort();
	for (i = 0; i < LATE_BLOCKS; i++) {
		block[i] = malloc(LATE_SIZE);
		if (!block[i])
			abort();
		memset(block[i], 0x5a, LATE_SIZE);
	}
	one_error("late", "late op");
	if (strcmp(MXGetLastError(), "late"))
		l->wrong++;
	for (i = 0; i < LATE_BLOCKS; i++) {
		for (k = 0; k < LATE_SIZE; k++)
			if (block[i][k] != 0x5a)
				l->wrong++;
		free(block[i]);
	}
}

static void *errs(void *arg)
{
	struct late *l = arg;

	if (*MXGetLastError())
		l->wrong++;
	one_error("of this thread", "an op");
	if (strcmp(MXGetLastError(), "of this thread"))
		l->wrong++;
	if (l->key && pthread_setspecific(l->key, l))
		abort();
	return NULL;
}

/* Destructors of a thread's data run in turns, the library's own in the first one, too. */
START_TEST(test_a_destructor_of_a_threads_data_has_a_last_error)
{
	struct late l = { 0 };
	pthread_key_t first;
	pthread_t t;
	int i;

	pawl_mx_set_last_error("of the main thread");
	/* so that 0 means none */
	ck_assert(!pthread_key_create(&first, NULL) && !pthread_key_create(&l.key, errs_late));
	for (i = 0; i < 10; i++) {
		l.turns = 0;
		ck_assert(!pthread_create(&t, NULL, errs, &l) && !pthread_join(t, NULL));
		ck_assert(l.turns == LATE_TURNS && !l.wrong);
	}
	ck_assert_str_eq(MXGetLastError(), "of the main thread");
	OK(MXNDArrayWaitAll());
	pthread_key_delete(l.key);
	pthread_key_delete(first);
}
END_TEST

START_TEST(test_the_last_error_of_a_thread_ends_with_it)
{
	enum { THREADS = 300 };
	struct late l = { 0 };
	size_t before = 0;
	pthread_t t;
	int i;

	for (i = 0; i < 2 * THREADS; i++) {
		if (i == THREADS)
			before = mallinfo2().uordblks;
		ck_assert(!pthread_create(&t, NULL, errs, &l) && !pthread_join(t, NULL));
	}
	ck_assert_int_eq(l.wrong, 0);
	ck_assert_uint_lt(mallinfo2().uordblks, before + THREADS * 1000);
	OK(MXNDArrayWaitAll());
}
END_TEST

/* A program of its own, whose op is never completed; it ends by exit(). */
#define EXIT_CHILD "PAWL_TEST_EXIT_CHILD"

static int exit_child(void)
{
	const uint32_t shape[] = { 1 };
	NDArrayHandle a;

	alarm(40);	/* which an exit that waits for the op would meet */
	/* one that is complete before */
	return MXEnginePushSync(sync_nothing, NULL, NULL, &cpu, NULL, 0, NULL, 0, NULL, 0, NULL) ||
	       MXNDArrayWaitAll() || MXNDArrayCreate(shape, 1, PAWL_MX_CPU, 0, 0, &a) ||
	       MXEnginePushAsyncND(hold, NULL, NULL, &cpu, NULL, 0, &a, 1, NULL, 0, "hold", false) ||
	       !soon(is_held);
}

START_TEST(test_a_program_ends_although_an_op_is_never_completed)
{
	int status = -1, ends[2];
	char said[256] = "";
	pid_t pid;

	ck_assert_int_eq(setenv(EXIT_CHILD, "1", 1), 0);
	ck_assert_int_eq(pipe(ends), 0);
	pid = fork();
	if (!pid) {
		dup2(ends[1], 2);
		/* What the op has is not freed. */
		setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
		execl("/proc/self/exe", "test_mx_capi", (char *)NULL);
		_exit(127);
	}
	ck_assert_int_eq(unsetenv(EXIT_CHILD), 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert(read(ends[0], said, sizeof(said) - 1) > 0);
	ck_assert_msg(strstr(said, "the process ends with 1 ops in flight") != NULL, "%s", said);
	close(ends[0]);
	close(ends[1]);
}
END_TEST

/* Last: nothing but deletes runs any more. */
START_TEST(test_shutdown)
{
	NDArrayHandle a = floats(1);

	fresh();
	OK(MXNotifyShutdown());
	OK(MXEnginePushSyncND(body, malloc(1), deleter, &cpu, NULL, 0, &a, 1, NULL, 0, "s"));
	OK(MXNDArrayWaitAll());
	ck_assert_int_eq(ran, 0);
	ck_assert_int_eq(deleted, 1);
	OK(MXNDArrayFree(a));
	OK(MXNDArrayWaitAll());
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		test_deleter_once, test_properties, test_lists_of_any_length_are_read_and_written,
		test_one_bad_array_or_var_in_a_list_refuses_the_op, test_async_fails, test_bulk_size,
		test_an_op_that_is_a_wait_runs_although_its_data_failed, test_normal_ops_run_in_the_order_of_their_pushes,
		test_pushes_do_not_wait_for_ops_that_wait,
		test_names_are_copied, test_small_calls,
		test_memory_for_a_front_end_has_the_largest_alignment, test_bad_arguments,
		test_var_of_another_engine_is_refused, test_the_last_error_is_a_copy_of_its_text,
		test_a_destructor_of_a_threads_data_has_a_last_error,
		test_the_last_error_of_a_thread_ends_with_it,
		test_a_program_ends_although_an_op_is_never_completed, test_shutdown, NULL
	};

	if (getenv(EXIT_CHILD))
		return exit_child();
	return suite_run("mx_capi", tests, 50);
}
