// SPDX-License-Identifier: Apache-2.0
/*
 * All orders of small programs: every program of a few ops over two vars, where each op is on
 * a compute stream, on a copy stream or on the CPU, and reads, writes or ignores each var.
 * Each program runs in every order in which the device may complete the work of its streams,
 * and then once for every call of the device, with that call failing.
 *
 *	small [OPS [FROM TO [ORDERS]]]	default: PAWL_DEVICE_SMALL, else 2 ops; programs
 *					FROM to TO of them; ORDERS random orders (1)
 *					with each failing call
 *
 * An op writes a hash of all that it reads: a missed dependency changes it in some order.
 * Only the test completes work of the device, the engine has no workers, and the reaper polls
 * without sleeping, so the same choices lead to the same run.
 */
#define UTIL_NO_CHECK
#include "../unit/util.h"
#include <base/clock.h>
#include <core/devices.h>
#include "backend.h"

#define NV	2u
#define MAXOPS	4u
#define KINDS	3u
#define FORMS	(8u * KINDS)	/* of an op: accesses (not none at all) times kinds */
#define STEPS	64u

struct item {
	u32 id, use[NV];	/* 0 not used, 1 read, 2 written */
	u32 kind;		/* 0 compute, 1 copied from the device, 2 CPU */
	u32 issued, over;	/* A: its body, its work */
	struct lane *lane;	/* the lane of its work, and its number there */
	u64 seq;
};

static struct backend *b;
static struct pawl_engine *e;
static struct item item[MAXOPS];
static u64 cell[NV], want[NV];
static u32 nops;

static void compute(const struct item *i, u64 *c)
{
	u64 h = i->id + 1;
	u32 v;

	for (v = 0; v < NV; v++)
		if (i->use[v])
			h = (h ^ c[v]) * 0x9e3779b97f4a7c15ull + i->use[v];
	for (v = 0; v < NV; v++)
		if (i->use[v] == 2)
			c[v] = h + v;
}

static void kernel(void *arg)
{
	struct item *i = arg;

	compute(i, cell);
	store_release(&i->over, 1);
}

static int body(struct pawl_run *run, void *arg)
{
	struct item *i = arg;
	int rc = 0;

	if (i->kind == 2) {
		kernel(i);
	} else {
		i->lane = (struct lane *)((uintptr_t)run->reserved & ~(uintptr_t)1);
		i->seq = load_relaxed(&i->lane->issued) + 1;
		rc = pawl_run_call(run, kernel, i);
	}
	store_release(&i->issued, !rc);
	return rc;
}

static void decode(u64 program)
{
	u32 i, form;

	memset(want, 0, sizeof(want));
	for (i = 0; i < nops; i++) {
		form = (u32)(program % FORMS);
		program /= FORMS;
		item[i] = (struct item){ .id = i, .kind = form % KINDS,
			.use = { (form / KINDS + 1) % 3, (form / KINDS + 1) / 3 } };
		compute(&item[i], want);
	}
}

static bool conflict(const struct item *x, const struct item *y)
{
	u32 v;

	for (v = 0; v < NV; v++)
		if (x->use[v] && y->use[v] && x->use[v] + y->use[v] > 2)
			return true;
	return false;
}

/* Return whether successors of x may begin, on the device or on the host. */
static bool lets_go(struct item *x, bool host)
{
	if (x->kind == 2)
		return load_acquire(&x->over);
	if (!load_acquire(&x->issued) || !host)
		return load_acquire(&x->issued);
	/* The work may be complete and its event not. */
	lane_poll(x->lane);
	return lane_state(x->lane, x->seq) == LANE_DONE;
}

/* Check that everything that can be issued was issued before the device continues. */
static bool settled(void *arg)
{
	u32 i, j;

	for (i = 0; i < nops; i++) {
		for (j = 0; j < i; j++)
			if (conflict(&item[i], &item[j]) &&
			    !lets_go(&item[j], item[i].kind == 2))
				break;
		if (j == i && !load_acquire(&item[i].issued))
			return false;
	}
	return true;
}

/* Run until nothing is in flight; a wait for the device also records events. */
static int finish(u64 *seed)
{
	u64 until = clock_ns() + SOON_NS;
	int rc;

	do {
		while (pawl_run_one(e))
			;
		b->step(rnd(seed));
		rc = pawl_wait_all(e, 0, NULL);
	} while (rc == -ETIMEDOUT && clock_ns() < until);
	MUST(rc != -ETIMEDOUT);
	return rc;
}

static void begin(pawl_var_t *var)
{
	struct dev_class *c = e->devices->rows[0].class;
	u32 i, v;

	memset(cell, 0, sizeof(cell));
	for (i = 0; i < CLASSES; i++)
		store_relaxed(&c[i].turn, 0);	/* the same streams each time */
	for (v = 0; v < NV; v++)
		var[v] = var_new(e);
	for (i = 0; i < nops; i++) {
		struct pawl_op op = PAWL_OP_INIT;
		pawl_var_t r[NV], w[NV];

		store_relaxed(&item[i].issued, 0);
		store_relaxed(&item[i].over, 0);
		op.reads = r;
		op.writes = w;
		for (v = 0; v < NV; v++) {
			if (item[i].use[v] == 1)
				r[op.nreads++] = var[v];
			else if (item[i].use[v])
				w[op.nwrites++] = var[v];
		}
		op.fn = body;
		op.arg = &item[i];
		if (item[i].kind != 2)
			op.device = (struct pawl_device){ (u16)b->kind, 0 };
		op.prop = item[i].kind == 1 ? PAWL_COPY_FROM_DEVICE : PAWL_NORMAL;
		OK(pawl_push(e, &op));
	}
}

static void end(pawl_var_t *var)
{
	u64 seed = 1;
	u32 v;

	for (v = 0; v < NV; v++)
		OK(pawl_var_delete(e, var[v], NULL, NULL));
	OK(finish(&seed));
}

/*
 * Run one order: the given choices up to `depth`, then always the first.  Returns the number of
 * choices.
 */
static u32 run(u64 program, const u32 *choice, u32 depth, u32 *width)
{
	pawl_var_t var[NV];
	u32 n = 0, v, i;

	begin(var);
	for (;;) {
		while (pawl_run_one(e))
			;
		OK(pawl_run_until(e, settled, NULL, SOON_NS));
		MUST(n < STEPS);
		width[n] = b->step(n < depth ? choice[n] : 0);
		if (!width[n])
			break;
		n++;
	}
	for (i = 0; i < nops; i++) {
		if (load_acquire(&item[i].over))
			continue;
		fprintf(stderr, "%s: %u ops, program %llu: op %u is not over, and nothing goes on\n",
			b->name, nops, (unsigned long long)program, i);
		pawl_dump(e, 2);
		abort();
	}
	for (v = 0; v < NV; v++) {
		if (cell[v] != want[v]) {
			fprintf(stderr, "%s: %u ops, program %llu: var %u differs, choices", b->name,
				nops, (unsigned long long)program, v);
			for (i = 0; i < n; i++)
				fprintf(stderr, " %u/%u", i < depth ? choice[i] : 0, width[i]);
			fprintf(stderr, "\n");
			abort();
		}
	}
	end(var);
	return n;
}

static u64 all_orders(u64 program)
{
	u32 choice[STEPS] = { 0 }, width[STEPS], depth = 0, n;
	u64 orders = 0;

	for (;;) {
		n = run(program, choice, depth, width);
		orders++;
		while (n && (n > depth ? 0 : choice[n - 1]) + 1 >= width[n - 1])
			n--;
		if (!n)
			return orders;
		memset(choice + depth, 0, (STEPS - depth) * sizeof(*choice));
		choice[n - 1]++;
		depth = n;
	}
}

/*
 * Let call k fail: an error is reported at the end, or all results are right.  Returns false if
 * there is no call k.
 */
static bool one_failure(u64 program, u64 k, u64 seed)
{
	u64 first = b->calls(), s = seed;
	pawl_var_t var[NV];
	int rc, told = 0;
	bool was;
	u32 v;

	b->fail_call(k, false);
	begin(var);
	told = finish(&s);
	was = b->calls() - first >= k;
	b->fail_call(0, false);
	for (v = 0; v < NV; v++) {
		rc = pawl_wait_readable(e, var[v], SOON_NS, NULL);
		MUST(rc != -ETIMEDOUT);
		told |= rc;
	}
	for (v = 0; v < NV && !told; v++) {
		if (cell[v] != want[v]) {
			fprintf(stderr,
				"%s: %u ops, program %llu, call %llu fails: var %u differs\n",
				b->name, nops, (unsigned long long)program,
				(unsigned long long)k, v);
			abort();
		}
	}
	end(var);
	return was;
}

int main(int argc, char **argv)
{
	const char *env = getenv("PAWL_DEVICE_SMALL");
	u32 most = argc > 1 ? (u32)atoi(argv[1]) : env ? (u32)atoi(env) : SANITIZED ? 1 : 2;
	u64 from = argc > 2 ? strtoull(argv[2], NULL, 0) : 0, to = ~0ull, p, programs, k, times;
	u64 orders = 0, failures = 0, done = 0;
	struct backend list[4];
	int n = backends(list), i;
	u64 t;
	const struct fake_setup fs = { .devices = 1, .seed = 1, .manual = true };

	MUST(most >= 1 && most <= MAXOPS);
	if (argc > 3)
		to = strtoull(argv[3], NULL, 0);
	times = argc > 4 ? strtoull(argv[4], NULL, 0) : 1;
	for (i = 0; i < n; i++) {
		struct pawl_device dev = { (u16)list[i].kind, 0 };
		struct pawl_config c = small(PAWL_PER_DEVICE, 0);

		b = &list[i];
		if (!b->kind || b->real)
			continue;
		b->setup(&fs);
		c.devices = &dev;
		c.ndevices = 1;
		c.device_streams = 2;
		for (nops = argc > 2 ? most : 1; nops <= most; nops++) {
			for (p = 0, programs = 1; p < nops; p++)
				programs *= FORMS;
			c.spin_ns = 1000000000u;	/* the reaper always polls */
			e = engine_with(&c);
			for (p = from; p < min_u(to, programs); p++, done++) {
				decode(p);
				orders += all_orders(p);
			}
			OK(pawl_engine_destroy(e));
			c.spin_ns = 0;		/* it requests a notice, which may fail, too */
			e = engine_with(&c);
			for (p = from; times && p < min_u(to, programs); p++) {
				bool more = true;

				decode(p);
				for (k = 1; more; k++)
					for (t = 0, more = false; t < times; t++, failures++)
						more |= one_failure(p, k, p * 977 + k * 31 + t);
			}
			OK(pawl_engine_destroy(e));
		}
	}
	printf("%llu programs of up to %u ops, %llu orders; %llu runs with a failing call\n",
	       (unsigned long long)done, most, (unsigned long long)orders,
	       (unsigned long long)failures);
	return 0;
}
