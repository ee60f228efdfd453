// SPDX-License-Identifier: Apache-2.0
/*
 * Fault points of devices (see fault.c): memory, threads and the CUDA library are refused
 * while engines with devices are created, used and destroyed.  The devices are the fake
 * device, and device/cuda.c on the runtime of tests/device/fakecudart.c.  tests/device/errors
 * lets each call of a device fail.
 *
 * An op may fail here, since the work that its body queues on the stream may be refused.  Then
 * everything that reads its data is skipped; an op that is not skipped must find all work done.
 */
#include "fault.h"
#include <pawl/device.h>
#include "../device/backend.h"

const char fault_program[] = "fault_device";

#define CELLS	8u
#define OPS	60u

/* Changed by kernels in order, since the var gives exclusive access. */
static struct cell {
	u64 kernels;		/* by the device */
	u64 put;		/* bodies that queued a kernel; protected by the var */
} cells[CELLS];

static struct world w;
static struct backend *b;
static u32 released_ops;	/* A */
static const struct pawl_device cpu0 = { PAWL_CPU, 0 };
static struct pawl_device dev0;

static void kernel(void *arg)
{
	struct cell *c = arg;

	store_relaxed(&c->kernels, load_relaxed(&c->kernels) + 1);
}

static int dev_body(struct pawl_run *run, void *arg)
{
	struct cell *c = arg;
	int rc = TRY(pawl_run_call(run, kernel, c));

	c->put += !rc;
	return rc;
}

static void *kept[4 * OPS];
static u32 nkept;		/* A */

/* Memory that is allocated and freed in the order of the stream. */
static int alloc_body(struct pawl_run *run, void *arg)
{
	void *p;
	int rc = TRY(pawl_run_alloc(run, 64, &p));

	if (rc)
		return rc;
	rc = TRY(pawl_run_set(run, p, 7, 64));
	if (TRY(pawl_run_free(run, p))) {
		/* It still belongs to the op, and the stream may write to it. */
		kept[fetch_add_relaxed(&nkept, 1)] = p;
		rc = -EIO;
	}
	return rc ? rc : dev_body(run, arg);
}

/* On the host: it begins when all work on the data is complete. */
static int look_body(struct pawl_run *run, void *arg)
{
	const struct cell *c = arg;

	CHECK(load_acquire(&c->kernels) == c->put, "%s: %llu kernels are over, %llu were put", where,
	      (unsigned long long)c->kernels, (unsigned long long)c->put);
	return 0;
}

static void op_over(void *arg, int status)
{
	fetch_add_relaxed(&released_ops, 1);
}

static struct pawl_op dev_op(u32 cell, bool look, bool alloc)
{
	struct pawl_op op = op_of_fn(look ? look_body : alloc ? alloc_body : dev_body, &cells[cell]);

	op.device = look ? cpu0 : dev0;
	op.release = op_over;
	op.name = look ? "look" : "kernel";
	if (look) {
		op.reads = &w.v[cell];
		op.nreads = 1;
	} else {
		op.writes = &w.v[cell];
		op.nwrites = 1;
	}
	return op;
}

static void dev_push(u32 i)
{
	struct pawl_op op = dev_op(i * 5 % CELLS, i % 3 == 2, i % 7 == 3);

	if (i % 11 == 5 && op.nwrites) {
		/* After the work of another cell, perhaps in another stream. */
		op.reads = &w.v[(i * 5 + 1) % CELLS];
		op.nreads = 1;
	}
	op.prop = i % 13 == 4 && op.nwrites ? PAWL_COPY_TO_DEVICE : PAWL_NORMAL;
	push(&w, &op);
}

static void backend_use(const char *name)
{
	static struct backend list[4];
	const struct fake_setup fs = { .devices = 2, .seed = 1, .delay = 4 };
	int i, n = backends(list);

	b = NULL;
	for (i = 0; i < n; i++)
		if (!strcmp(list[i].name, name))
			b = &list[i];
	if (!b)
		return;
	b->setup(&fs);
	memset(&w, 0, sizeof(w));
	dev0 = (struct pawl_device){ (u16)b->kind, 0 };
	cfg.devices = &dev0;
	cfg.ndevices = 1;
	cfg.device_streams = 2;
	cfg.max_ops = cfg.max_vars = 4096;
}

/* The failure is reported; then devices work as usual. */
static void dev_check(void)
{
	u32 i;
	int rc;

	rc = pawl_wait_all(w.e, SOON_NS, NULL);
	CHECK(rc != -ETIMEDOUT, "%s: ops never end", where);
	CHECK(released_ops == w.accepted, "%s: %u accepted, %u released", where, w.accepted,
	      released_ops);
	CHECK(!pawl_wait_all(w.e, SOON_NS, NULL), "%s: told twice: %s", where,
	      pawl_error_text());
	world_vars(&w, CELLS);
	CHECK(w.nv >= CELLS, "%s: no vars afterwards: %s", where, pawl_error_text());
	for (i = 0; i < OPS; i++) {
		struct pawl_op op = dev_op(i % CELLS, i % 3 == 2, i % 7 == 3);

		CHECK(!pawl_push(w.e, &op), "%s: push afterwards: %s", where,
		      pawl_error_text());
		w.accepted++;
	}
	CHECK(!pawl_wait_all(w.e, SOON_NS, NULL), "%s: wait afterwards: %s", where,
	      pawl_error_text());
	CHECK(released_ops == w.accepted, "%s: afterwards %u accepted, %u released", where,
	      w.accepted, released_ops);
	for (i = 0; i < CELLS; i++)
		look_body(NULL, &cells[i]);
	for (i = 0; i < nkept; i++)
		CHECK(!pawl_device_free(w.e, dev0, kept[i]), "%s: free: %s", where,
		      pawl_error_text());
	CHECK(!pawl_engine_destroy(w.e), "%s: destroy: %s", where, pawl_error_text());
}

static bool dev_make(void)
{
	return !TRY(pawl_engine_create(&cfg, &w.e));
}

static void dev_make_sure(void)
{
	disarm();
	CHECK(!pawl_engine_create(&cfg, &w.e), "%s: create afterwards: %s", where,
	      pawl_error_text());
}

/* --- scenarios --- */

/* Creation, use and destruction, with faults throughout. */
static void life(const char *name)
{
	u32 i;

	backend_use(name);
	if (!b)
		return;
	arm(ALL);
	if (!dev_make())
		dev_make_sure();
	world_vars(&w, CELLS);
	for (i = 0; w.nv >= CELLS && i < OPS; i++)
		dev_push(i);
	/* With or without an error, the op is complete. */
	pawl_wait_all(w.e, -1, NULL);
	disarm();
	dev_check();
}

static void create(const char *name, int kind)
{
	backend_use(name);
	if (!b)
		return;
	cfg.kind = kind;
	arm(ALL);
	if (dev_make())
		disarm();
	else
		dev_make_sure();
	dev_check();
}

static void sc_fake_create(void) { create("fake", PAWL_PER_DEVICE); }
static void sc_fake_create_naive(void) { create("fake", PAWL_NAIVE); }
static void sc_fake_create_pooled(void) { create("fake", PAWL_POOLED); }
static void sc_fake_life(void) { life("fake"); }
static void sc_cuda_create(void) { create("cuda on a fake runtime", PAWL_PER_DEVICE); }
static void sc_cuda_life(void) { life("cuda on a fake runtime"); }

/* The contract's reference, to which no engine of this program belongs. */
static void sc_cpu(void)
{
	void *dev, *thing[3];
	u32 i;

	arm(ALL);
	if (!TRY(device_cpu.open(0, &dev))) {
		memset(thing, 0, sizeof(thing));
		TRY(device_cpu.alloc(dev, 8, &thing[0]));
		TRY(device_cpu.stream_create(dev, 0, &thing[1]));
		TRY(device_cpu.event_create(dev, &thing[2]));
		for (i = 0; i < ARRAY_SIZE(thing); i++)
			CHECK(!device_cpu.release(dev, thing[i]), "%s: release", where);
		device_cpu.close(dev);
	}
	disarm();
}

static void sc_cuda_info(void)
{
	struct pawl_device_info info = { .size = sizeof(info) };
	int n;

	backend_use("cuda on a fake runtime");
	if (!b)
		return;
	arm(ALL);
	n = TRY(pawl_device_count(b->kind));
	CHECK(n < 0 || n == 2, "%s: %d devices", where, n);
	TRY(pawl_device_info(dev0, &info));
	disarm();
	CHECK(pawl_device_count(b->kind) == 2, "%s: count afterwards: %s", where,
	      pawl_error_text());
	CHECK(!pawl_device_info(dev0, &info), "%s: info afterwards: %s", where,
	      pawl_error_text());
}

static void sc_fake_ops(void)
{
	u32 i;

	backend_use("fake");
	dev_make_sure();
	world_vars(&w, CELLS);
	arm(ALL);
	for (i = 0; i < 3 * OPS; i++)
		dev_push(i);
	pawl_wait_all(w.e, -1, NULL);
	disarm();
	dev_check();
}

static void sc_fake_naive(void)
{
	u32 i;

	backend_use("fake");
	cfg.kind = PAWL_NAIVE;
	dev_make_sure();
	world_vars(&w, CELLS);
	arm(ALL);
	for (i = 0; i < OPS; i++)
		dev_push(i);
	disarm();
	dev_check();
}

/* A graph that is captured, replayed, and captured again. */
static void sc_fake_graph(void)
{
	pawl_graph_t o;
	struct pawl_op ops[4];
	u32 i;

	backend_use("fake");
	dev_make_sure();
	world_vars(&w, CELLS);
	for (i = 0; i < ARRAY_SIZE(ops); i++) {
		ops[i] = dev_op(i % 2, false, false);
		ops[i].fn = body;
		ops[i].arg = &w;
		ops[i].release = NULL;
	}
	arm(ALL);
	if (!TRY(pawl_graph_create(w.e, ops, ARRAY_SIZE(ops), PAWL_GRAPH_CAPTURE, &o))) {
		for (i = 0; i < 9; i++) {
			TRY(pawl_graph_push(w.e, o, NULL));
			if (i == 5)
				TRY(pawl_graph_refresh(w.e, o));
		}
		CHECK(!TRY(pawl_graph_delete(w.e, o)), "%s: delete: %s", where,
		      pawl_error_text());
	}
	pawl_wait_all(w.e, -1, NULL);
	disarm();
	dev_check();
}

static void sc_fake_memory(void)
{
	void *p, *q, *stream;
	struct pawl_device mine;
	u32 i;

	backend_use("fake");
	dev_make_sure();
	/* A stream of the device that another library owns. */
	CHECK(!device_fake.open(1, &p) && !device_fake.stream_create(p, 0, &stream),
	      "%s: no stream", where);
	arm(ALL);
	for (i = 0; i < 4; i++) {
		if (!TRY(pawl_device_alloc(w.e, dev0, 100, &q)))
			CHECK(!TRY(pawl_device_free(w.e, dev0, q)), "%s: free", where);
		if (!TRY(pawl_host_alloc(w.e, dev0, 100, &q)))
			CHECK(!TRY(pawl_host_free(w.e, dev0, q)), "%s: free", where);
		TRY(pawl_stream_adopt(w.e, dev0, stream, &mine));
		TRY(pawl_device_count(FAKE_KIND));
	}
	disarm();
	dev_check();
	CHECK(!device_fake.stream_destroy(p, stream), "%s: stream", where);
	device_fake.close(p);
}

/* Waits with timeouts, by threads that have not called the engine before. */
static void *dev_visitor(void *arg)
{
	u32 i;

	for (i = 0; i < 6; i++) {
		tried("pawl_wait_readable", pawl_wait_readable(w.e, w.v[i], 1000000, NULL));
		tried("pawl_wait_writable", pawl_wait_writable(w.e, w.v[i], 1000000, NULL));
	}
	return NULL;
}

static void sc_fake_waits(void)
{
	pthread_t t;
	u32 i;

	backend_use("fake");
	dev_make_sure();
	world_vars(&w, CELLS);
	for (i = 0; i < OPS; i++)
		dev_push(i);
	arm(ALL);
	CHECK(!thread_for_sure(&t, dev_visitor, NULL), "%s: no thread", where);
	for (i = 0; i < OPS; i++)
		dev_push(i);
	pthread_join(t, NULL);
	pawl_wait_all(w.e, -1, NULL);
	disarm();
	dev_check();
}

const struct scenario scenarios[] = {
	{ "fake_create", sc_fake_create, 0, 0 },
	{ "fake_create_naive", sc_fake_create_naive, 100, 0 },
	{ "fake_create_pooled", sc_fake_create_pooled, 100, 0 },
	{ "fake_life", sc_fake_life, 0, 0 },
	{ "fake_ops", sc_fake_ops, 60, 0 },
	{ "fake_naive", sc_fake_naive, 40, 0 },
	{ "fake_graph", sc_fake_graph, 60, 0 },
	{ "fake_memory", sc_fake_memory, 0, 0 },
	{ "fake_waits", sc_fake_waits, 60, 0 },
	{ "cpu", sc_cpu, 0, 0 },
	{ "cuda_info", sc_cuda_info, 0, 0 },
	{ "cuda_create", sc_cuda_create, 0, 0 },
	{ "cuda_life", sc_cuda_life, 0, 0 },
	{ NULL, NULL, 0, 0 },
};
