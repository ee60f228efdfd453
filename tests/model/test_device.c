// SPDX-License-Identifier: Apache-2.0
/*
 * Whole engines with a device (device.c): nothing of the library is replaced, its thread for
 * devices runs, and one more thread is the device.
 *
 * The set-up creates the engine, so that thread sleeps when a scenario begins.  No deadline
 * passes: after a missing wake-up a thread sleeps forever, and the model finds it, though the
 * library would check again after 10 ms.
 */
#include <errno.h>
#include <core/devices.h>
#include "device.h"
#include "engine.h"

struct dev_test {
	const char *program;
	int streams, window, workers, kind;
	u32 events;
	u32 fail;		/* the number of the device call that fails, */
	int code;		/* with this */
	bool odd;
	bool stops;		/* thread_stop() reads plain data */
	bool group;		/* a graph of several ops, which read var 0 */
	bool late;		/* the engine is created by a thread, */
	u32 max_threads;	/* with this many slots */
};

static const struct dev_test *d;

static const struct pawl_device name = { MODEL_KIND, 0 };

/*
 * Runs on the engine's own threads, which end after everything that precedes the engine's end.
 */
static void stopped(void *user, const char *thread)
{
	if (me.ending != 1)
		model_fail("a thread ends before its engine does");
}

static void lose(void *op)
{
	model_note(&me.lost, 1);
	model_device_lose();
}

static void config(struct pawl_config *c)
{
	engine_config(c);
	c->kind = d->kind;
	c->workers = d->workers;
	c->devices = &name;
	c->ndevices = 1;
	c->device_streams = d->streams ? d->streams : 1;
	c->device_workers = 1;
	c->device_window = d->window ? d->window : 512;
	c->thread_stop = d->stops ? stopped : NULL;
	if (d->max_threads)
		c->max_threads = d->max_threads;
}

/* Called by a thread: an engine without a slot for its own thread is refused. */
static void create(void)
{
	struct pawl_config c;

	config(&c);
	if (d->max_threads != 1)
		return engine_create(&c);
	if (!pawl_engine_create(&c, &me.e))
		model_fail("an engine without a thread for its devices");
	model_note(&me.destroyed, 1);
}

static u64 group_runs;

static int body_group(struct pawl_run *run, void *arg)
{
	model_note(&group_runs, group_runs + 1);
	return 0;
}

static void make_group(void)
{
	struct pawl_op op[2] = { PAWL_OP_INIT, PAWL_OP_INIT };
	u32 i;

	for (i = 0; i < 2; i++) {
		op[i].fn = body_group;
		op[i].reads = &me.var[0];
		op[i].nreads = 1;
		op[i].device = name;
	}
	if (pawl_graph_create(me.e, op, 2, PAWL_GRAPH_CAPTURE, &me.group))
		model_fail("graph_create");
}

static void dev_setup(void)
{
	struct pawl_config c;

	d = model_arg();
	config(&c);
	lane_events = d->events ? d->events : 4;
	me.odd = d->odd || d->fail;
	me.lose = lose;
	me.stream = model_device_stream;
	me.create = create;
	if (d->late) {
		/*
		 * Time does not advance while threads run, so the first engine measures the
		 * clock here.
		 */
		c.ndevices = 0;
		if (pawl_engine_create(&c, &me.e) || pawl_engine_destroy(me.e))
			model_fail("an engine before");
		me.e = NULL;
	}
	engine_setup_with(d->program, d->late ? NULL : &c);
	if (d->group)
		make_group();
	if (!d->late)
		model_settle();
	model_device_fail(d->fail, d->code);
}

static void dev_check(void)
{
	struct devices *dv;

	/*
	 * Run ops that became ready after the last thread had stopped polling, and their work
	 * on the device.
	 */
	if (!me.destroyed) {
		engine_settle();
		engine_complete();
		engine_settle();
	}
	if (!model_device_empty())
		model_fail("the device has work, and does not do it");
	if (me.destroyed)
		return;
	dv = me.e->devices;
	if (dv->held || dv->kept || dv->parked)
		model_fail("parked ops are left: %u held, %u kept, %u parked", dv->held,
			   dv->kept, dv->parked);
	if (d->group && group_runs % 2)
		model_fail("a graph's bodies ran %u times", (u32)group_runs);
	engine_check();
}

#define ROW(enter_, name_, program_, threads_, bound_, seconds_, flags_, ...)	\
	{ .name = name_, .what = program_, .threads = threads_, .bound = bound_,	\
	  .seconds = seconds_, .setup = dev_setup, .enter = enter_,		\
	  .thread = engine_thread, .check = dev_check, .flags = MODEL_SLEEPS_OK | (flags_),	\
	  .arg = &(const struct dev_test){ .program = program_, __VA_ARGS__ } }
#define S(...)	ROW(engine_enter, __VA_ARGS__)

const struct scenario scenarios[] = {
	S("same", "gw0 | gw0", 2, 2, 5, MODEL_NO_TIME, .streams = 1),
	S("chain", "gw0 gr0 | gw0", 2, 2, 1, MODEL_NO_TIME, .streams = 2),
	S("follow", "gw0 | gr0w1", 2, 2, 5, MODEL_NO_TIME, .streams = 2),
	S("readers", "gr0 | gr0 | gw0", 3, 2, 1, MODEL_NO_TIME, .streams = 2),
	S("host_reads", "gw0 r0", 1, 3, 5, MODEL_NO_TIME, .streams = 1),
	S("host_reads_2", "gw0 | r0", 2, 2, 1, MODEL_NO_TIME, .streams = 1),
	S("host_writes", "gr0 | gr0 | w0", 3, 2, 1, MODEL_NO_TIME, .streams = 2),
	S("wait", "gw0 R0", 1, 3, 5, MODEL_NO_TIME, .streams = 1),
	S("wait_2", "gw0 R0 | gr0 W0", 2, 2, 1, MODEL_NO_TIME, .streams = 2),
	S("all", "gw0 A", 1, 3, 5, MODEL_NO_TIME, .streams = 1),
	S("all_2", "gw0 A | gw1", 2, 2, 1, MODEL_NO_TIME, .streams = 2),
	S("all_3", "gw0 A | gw1 A", 2, 2, 1, MODEL_NO_TIME, .streams = 2),
	/* Two threads find the only stream taken, for as long as the third one runs. */
	S("taken", "gw0 gw1 A | r0 | R0 | r1", 4, 2, 1, MODEL_NO_TIME, .streams = 1),
	S("delete", "gw0 d0 | gr0", 2, 2, 1, MODEL_NO_TIME, .streams = 2),
	S("delete_on", "gw0 gd0 | gr0", 2, 2, 1, MODEL_NO_TIME, .streams = 2),
	S("window", "gw0 gw1 | gw2", 2, 2, 1, MODEL_NO_TIME, .streams = 1, .window = 1),
	S("window_2", "gw0 gw1 A | gw2", 2, 2, 1, MODEL_NO_TIME, .streams = 2, .window = 2),
	S("window_host", "gw0 gw1 | r0", 2, 2, 1, MODEL_NO_TIME, .streams = 1, .window = 1),
	S("fails", "fgw0 kr0 | kgw0", 2, 2, 1, MODEL_NO_TIME, .streams = 2),
	S("lost", "lw0 r0 | kgw0 R0", 2, 2, 1, MODEL_TIME_LAST, .streams = 1),
	/* An event cannot be created, so the stream is queried. */
	S("no_event", "gw0 R0 | gr0w1 R1", 2, 2, 1, MODEL_NO_TIME, .streams = 1, .fail = 3, .code = -ENOMEM),
	S("naive", "gw0 r0 | gw0", 2, 2, 1, MODEL_NO_TIME, .kind = PAWL_NAIVE),
	S("events", "gr0 gr0 gr0 | gw0", 2, 2, 1, MODEL_NO_TIME, .streams = 2, .events = 2),
	S("kinds", "iw0 | ow1 | hw0r1", 3, 2, 1, MODEL_NO_TIME, .streams = 1),
	S("ranks", "gw0 gw1 p2gw2 | gr0", 2, 2, 1, MODEL_NO_TIME, .streams = 1, .window = 1),
	S("looks", "gw0 # gw0 gw1 | q0 z0", 2, 2, 5, MODEL_NO_TIME, .streams = 1),
	S("reuse", "gw1 gr1 gr0 d1 # n1 gr0 gr1 | gr0 | gw0 w0", 3, 2, 1, MODEL_NO_TIME, .streams = 3),
	S("reuse_2", "gr1 gr1 gr1 gr1 gw1 d1 # gr0 w0 | gr0 | gr0", 3, 2, 1, MODEL_NO_TIME, .streams = 3),
	S("async", "ygw0 r0 | Y", 2, 2, 1, MODEL_NO_TIME, .streams = 1, .odd = true),
	S("group", "G | G w0", 2, 2, 1, MODEL_NO_TIME, .streams = 2, .group = true),
	S("group_3", "G r0 | G | G", 3, 2, 1, MODEL_NO_TIME, .streams = 2, .group = true),
	S("adopt", "N uw0 | uw0 | r0", 3, 2, 1, MODEL_NO_TIME, .streams = 1),
	S("adopt_2", "N uw0 | N uw0", 2, 2, 1, MODEL_NO_TIME, .streams = 1),
	S("adopt_look", "gw0 # N uw0 | q0 R0", 2, 2, 1, MODEL_NO_TIME, .streams = 1),
	S("adopt_look_2", "gw0 # N ur0 | z0 W0", 2, 2, 1, MODEL_NO_TIME, .streams = 1),
	S("adopt_held", "gw0 gw1 gw2 | N uw0 N", 2, 2, 1, MODEL_NO_TIME, .streams = 1, .window = 1),
	S("adopt_rows", "gw0 gw1 gw2 | N N N N", 2, 2, 1, MODEL_NO_TIME, .streams = 1, .window = 1),
	S("adopt_none", "gw0 # N | A", 2, 2, 1, MODEL_NO_TIME, .streams = 1),
	S("adopt_reads", "gw0 # N ur0 | gr0", 2, 2, 1, MODEL_NO_TIME, .streams = 1),
	S("adopt_all", "gw0 # N uw0 | A", 2, 2, 1, MODEL_NO_TIME, .streams = 1),
	ROW(NULL, "worker", "gw0 R0", 1, 2, 1, MODEL_NO_TIME, .streams = 1, .workers = 1),
	ROW(NULL, "create", "Z gw0 A X", 1, 2, 1, MODEL_NO_TIME, .late = true),
	ROW(NULL, "refused", "Z", 1, MODEL_ALL, 5, MODEL_NO_TIME, .late = true, .max_threads = 1),
	ROW(NULL, "destroy", "gw0 X", 1, 3, 1, MODEL_NO_TIME, .streams = 1, .stops = true),
	ROW(NULL, "destroy_idle", "X", 1, 3, 1, MODEL_NO_TIME, .streams = 1, .stops = true),
	/* The device is lost during the notice. */
	ROW(NULL, "destroy_lost", "gw0 X", 1, 3, 1, MODEL_TIME_LAST, .streams = 1, .fail = 11, .code = -ENOTRECOVERABLE),
	ROW(NULL, "destroy_2", "X | gw0 . x", 2, 2, 1, MODEL_NO_TIME, .streams = 1),
	{ .name = NULL },
};
