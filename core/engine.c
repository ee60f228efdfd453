// SPDX-License-Identifier: Apache-2.0
/*
 * Engines: creation, routes from properties to queues, stop and start, destruction.
 *
 *   property                 per-device            pooled      naive
 *   normal, async, no-skip,
 *   delete-var               device's normal       the pool    the caller
 *   cpu-prioritized          the priority queue    the pool    the caller
 *   gpu-prioritized          CPU: device's normal  the pool    the caller
 *   copy to device           device's copy-in      the copy lane  the caller
 *   copy from device         device's copy-out     the copy lane  the caller
 *
 * Every queue honours priorities.  A queue's threads start with its first op.
 *
 * Progress: blocking (allocation, joining threads).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <base/futex.h>
#include <core/admit.h>
#include <core/cpus.h>
#include <core/cq.h>
#include <core/device.h>
#include <core/error.h>
#include <core/graph.h>
#include <core/opgroup.h>
#include <core/publish.h>
#include <core/readmostly.h>
#include <core/record.h>
#include <core/retire.h>
#include <core/trace.h>
#include <core/wait.h>
#include <core/watch.h>
#include <core/sizes.h>

/* An op of a lower priority waits for so long, without config.strict_priority. */
#define LATE_NS		10000000u

/* Without a setting, where numbers are bounded. */
#define VARS_BOUNDED	262144u
#define THREADS_BOUNDED	256u

static u64 engine_ids;

/* All that does not depend on the CPUs. */
static void config_defaults(struct pawl_config *cfg)
{
	memset(cfg, 0, sizeof(*cfg));
	cfg->size = sizeof(*cfg);
	cfg->sched_policy = -1;
	cfg->priority_workers = 1;
	cfg->copy_workers = 1;
	cfg->cpu_devices = 1;
	cfg->max_ops = 1u << 18;
	cfg->window_policy = -1;
	cfg->spin_ns = 20000;
	cfg->trim_ns = 1000000000;
	cfg->device_streams = 16;
	cfg->device_workers = 1;
	cfg->device_window = 512;
	cfg->name = "pawl";
}

/* With one CPU a thread that polls keeps the one that would push from running. */
static void config_cpus(struct pawl_config *cfg)
{
	u32 n = cpus_usable("/proc/self/cgroup", "/sys/fs/cgroup");

	cfg->workers = n > 1 ? (int)n - 1 : 1;
	if (n == 1)
		cfg->spin_ns = 0;
}

void pawl_config_init_size(struct pawl_config *cfg, size_t size)
{
	struct pawl_config c;

	config_defaults(&c);
	config_cpus(&c);
	cfg->size = size;
	size_copy_out(cfg, &c, sizeof(c));
}
PAWL_EXPORT(pawl_config_init_size);

/* For programs that call the function and not the macro: the struct of the first release. */
void (pawl_config_init)(struct pawl_config *cfg)
{
	pawl_config_init_size(cfg, CONFIG_SIZE_0);
}
PAWL_EXPORT(pawl_config_init);

/* The threads that an engine has when all its workers exist. */
static u64 threads_all(const struct pawl_config *c)
{
	u64 n = 0, cpus = c->kind == PAWL_PER_DEVICE ? c->cpu_devices : 1;

	if (c->kind == PAWL_NAIVE)
		return 0;
	if (c->workers) {
		n = cpus * (u64)c->workers + (u64)c->copy_workers;
		if (c->kind == PAWL_PER_DEVICE)
			n += (2 * cpus - 1) * (u64)c->copy_workers + (u64)c->priority_workers;
		/* A device has three more, for its copies and its priority queue. */
		n += c->ndevices * ((u64)c->device_workers + 3);
	}
	return n + !!c->ndevices;
}

/* How the workers are made. */
static int attr_check(const struct pawl_config *c)
{
	int least = 0, most = 0;

	if (!c->thread_create != !c->thread_join)
		return err(-EINVAL, "engine_create: config.thread_%s is NULL, the other one is not",
			   c->thread_create ? "join" : "create");
	if (c->thread_create && (c->stack_size || c->sched_policy != -1 || c->cpu_list))
		return err(-EINVAL, "engine_create: config.%s is set, but config.thread_create makes the threads",
			   c->stack_size ? "stack_size" : c->cpu_list ? "cpu_list" : "sched_policy");
	if (c->cpu_list && c->ncpus)
		return err(-EINVAL, "engine_create: config.cpus and config.cpu_list are both set");
	if (c->stack_size && c->stack_size < (size_t)sysconf(_SC_THREAD_STACK_MIN))
		return err(-EINVAL, "engine_create: config.stack_size is %zu, the least is %ld",
			   c->stack_size, sysconf(_SC_THREAD_STACK_MIN));
	if (c->sched_policy != -1 && c->sched_policy != SCHED_OTHER &&
	    c->sched_policy != SCHED_FIFO && c->sched_policy != SCHED_RR)
		return err(-EINVAL, "engine_create: config.sched_policy is %d, not -1 or SCHED_OTHER, _FIFO or _RR",
			   c->sched_policy);
	if (c->sched_policy != -1) {
		least = sched_get_priority_min(c->sched_policy);
		most = sched_get_priority_max(c->sched_policy);
	}
	if (c->sched_priority < least || c->sched_priority > most)
		return err(-EINVAL, "engine_create: config.sched_priority is %d, not in %d..%d for this sched_policy",
			   c->sched_priority, least, most);
	return 0;
}

static int config_check(struct pawl_config *c)
{
	const struct { const char *name; s64 v, min, max; } f[] = {
		{ "kind", c->kind, PAWL_PER_DEVICE, PAWL_NAIVE },
		{ "workers", c->workers, 0, 1024 },
		{ "priority_workers", c->priority_workers, 0, 1024 },
		{ "copy_workers", c->copy_workers, 0, 1024 },
		{ "cpu_devices", c->cpu_devices, 1, 64 },
		{ "max_ops", c->max_ops, 64, (1 << OPS_BITS) - 4096 },
		{ "max_vars", c->max_vars, 0, 1 << VAR_BITS },
		{ "max_threads", c->max_threads, 0, THREADS_MOST },
		{ "window", c->window, 0, c->max_ops },
		{ "window_policy", c->window_policy, -1, PAWL_WINDOW_BLOCK },
		{ "ndevices", c->ndevices, 0, MAX_DEVICES },
		{ "device_streams", c->device_streams, 1, MAX_STREAMS },
		{ "device_workers", c->device_workers, 1, 32 },
		{ "device_window", c->device_window, 1, 65536 },
	};
	u64 threads;
	size_t i;
	int rc;

	for (i = 0; i < ARRAY_SIZE(f); i++)
		if (f[i].v < f[i].min || f[i].v > f[i].max)
			return err(-EINVAL, "engine_create: config.%s is %lld, not in %lld..%lld",
				   f[i].name, (long long)f[i].v, (long long)f[i].min,
				   (long long)f[i].max);
	if (!c->name || strlen(c->name) > 7)
		return err(-EINVAL, "engine_create: config.name is %s",
			   c->name ? "longer than 7 bytes" : "NULL");
	if (c->ncpus && !c->cpus)
		return err(-EINVAL, "engine_create: config.cpus is NULL, ncpus is %u", c->ncpus);
	for (i = 0; i < c->ncpus; i++)
		if (c->cpus[i] < 0 || c->cpus[i] >= 4096)
			return err(-EINVAL, "engine_create: config.cpus[%zu] is %d", i, c->cpus[i]);
	/* Workers of other queues start when they are needed, if a slot is free. */
	threads = (u64)c->workers * (c->kind == PAWL_PER_DEVICE ? c->cpu_devices : 1) + 1 +
		  !!c->ndevices;
	if (c->start_workers)
		threads = threads_all(c) + 1;
	if (!c->max_threads)
		c->max_threads = config_bounded(c) ? THREADS_BOUNDED : THREADS_MOST;
	if (c->workers && c->kind != PAWL_NAIVE && threads > c->max_threads)
		return err(-EINVAL, "engine_create: config.max_threads is %u, the workers need %llu",
			   c->max_threads, (unsigned long long)threads);
	rc = attr_check(c);
	return rc ? rc : devices_check(c);
}

/*
 * Generations continue when the memory of a slab was given back and comes back as zero, so a
 * stale handle or token never matches a new object.  `last` and `base` are ages, so that the
 * largest in a slab is the newest.  A token that is DONE belongs to no op: neither a wait nor
 * pawl_complete() changes it.
 */
static u32 op_last(void *obj, u32 idx, void *user)
{
	return gen_age(user, load_relaxed(&((struct op *)obj)->token) >> 2, GEN_TOKEN);
}

static void op_again(void *obj, u32 idx, u32 base, void *user)
{
	store_relaxed(&((struct op *)obj)->token,
		      (gen_first(user, GEN_TOKEN) + base) << 2 | TOKEN_DONE);
}

static u32 var_last(void *obj, u32 idx, void *user)
{
	u32 gen = load_relaxed(&var_of(user, idx)->gen);

	return gen ? gen_age(user, gen, 0) : 0;
}

static void var_again(void *obj, u32 idx, u32 base, void *user)
{
	struct var *v = var_of(user, idx);

	store_relaxed(&v->home.state, BLOCK_DONE);
	if (base)
		store_relaxed(&v->gen, gen_first(user, 0) + base);
}

static u32 graph_last(void *obj, u32 idx, void *user)
{
	u32 gen = load_relaxed(&((struct graph *)obj)->gen);

	return gen ? gen_age(user, gen, 0) : 0;
}

static void graph_again(void *obj, u32 idx, u32 base, void *user)
{
	if (base)
		store_relaxed(&((struct graph *)obj)->gen, gen_first(user, 0) + base);
}

static u32 note_last(void *obj, u32 idx, void *user)
{
	return gen_age(user, load_relaxed(&((struct op_note *)obj)->state) >> NOTE_GEN_SHIFT,
		       GEN_TICKET);
}

static void note_again(void *obj, u32 idx, u32 base, void *user)
{
	store_relaxed(&((struct op_note *)obj)->state,
		      (gen_first(user, GEN_TICKET) + base) << NOTE_GEN_SHIFT);
}

/* The largest number of ops, with those that threads keep. */
static u32 ops_most(const struct pawl_config *c)
{
	return min_u(c->max_ops + 2 * pool_mag(c->max_ops) * c->max_threads, (1u << OPS_BITS) - 1);
}

static int pools_add(struct pawl_engine *e)
{
	const struct pawl_config *c = &e->cfg;
	/* A small engine has small magazines: threads keep few objects, and the pools stay small. */
	u32 mag = pool_mag(c->max_ops), vmag = pool_mag(c->max_vars);
	u32 slack = 2 * mag * c->max_threads, vslack = 2 * vmag * c->max_threads;
	u32 ops = ops_most(c);
	/* Those that a trim withholds from other threads for a moment: at least a slab. */
	u32 aside = (u32)min_u(max_u(c->max_vars, 256u), 2048u);
	u32 vars = min_u((c->max_vars + vslack + aside + 64) & ~63u, 1u << VAR_BITS) - 1;
	/* Errors, graphs and records of pending work are fewer than vars may be. */
	u32 most = min_u(vars, (1u << ERROR_BITS) - 1);
	u32 blocks = (u32)min_u((u64)vars + 3ull * ops + max_u(slack, vslack), RM_BASE - 1);
	/* Of each kind there are more than may exist, by what the caches of all threads can hold. */
	u32 groups = groups_most(e), gmag = pool_mag(groups);
	/* Large ones are so few that an engine that must reserve addresses needs 0.5 GB. */
	u32 ext1 = (u32)min_u(max_u(c->max_ops / 32, 64u), 8192u);
	u32 ext2 = (u32)min_u(max_u(c->max_ops / 1024, 16u), 512u);
	u32 ext3 = (u32)min_u(max_u(c->max_ops / 8192, 4u), 64u);
	const struct pool_desc d[POOLS] = {
		[POOL_OP] = { "op", sizeof(struct op), ops, .mag = mag, .ctor = op_again,
				.last = op_last, .user = e },
		[POOL_BLOCK] = { .name = "block", .size = sizeof(struct block), .max = blocks,
				.mag = max_u(mag, vmag) },
		[POOL_VAR] = { "var", VAR_SIZE, vars, .mag = vmag, .group = VAR_GROUP,
				.ctor = var_again, .last = var_last, .user = e },
		[POOL_ERROR] = { .name = "error", .size = sizeof(struct error),
				.max = (u32)max_u(ops, most), .mag = max_u(mag, vmag) },
		[POOL_GRAPH] = { "graph", sizeof(struct graph), most, .mag = vmag, .ctor = graph_again,
				.last = graph_last, .user = e },
		[POOL_DEVREC] = { .name = "pending", .size = device_rec_size(),
				.max = c->ndevices ? most : 1, .mag = vmag },
		[POOL_NOTE] = { "note", sizeof(struct op_note), ops, .mag = mag, .ctor = note_again,
				.last = note_last, .user = e },
		/* A late completion counts its write to the eventfd, a late push itself in its group. */
		[POOL_CQ] = { "queue", sizeof(struct cq), cqs_most(e) + 2 * c->max_threads, .mag = 1,
				.keep = true },
		[POOL_GROUP] = { "group", sizeof(struct op_group),
				groups + 1 + 2 * gmag * c->max_threads, .mag = gmag, .keep = true },
		/* Late readers compare a slot's numbers, which its next user continues. */
		[POOL_THREAD] = { .name = "thread", .size = THREAD_SIZE, .max = c->max_threads,
				.mag = 1, .keep = true, .lazy = true },
		[POOL_EXT0] = { .name = "deps16", .size = 64 + 24 * 16, .max = min_u(ops, 65536u + slack),
				.mag = mag },
		/* Only an op that names a var several times needs more accesses than vars exist. */
		[POOL_EXT1] = { .name = "deps256", .size = 64 + 24 * 256, .max = ext1,
				.lazy = c->max_vars <= 16 },
		[POOL_EXT2] = { .name = "deps4096", .size = 64 + 24 * 4096, .max = ext2,
				.lazy = c->max_vars <= 256 },
		[POOL_EXT3] = { .name = "deps32768", .size = 64 + 24 * 32768, .max = ext3,
				.lazy = c->max_vars <= 4096 },
	};
	u32 i;
	int rc;

	for (i = 0; i < POOLS; i++) {
		rc = arena_add(e->arena, &d[i], &e->pool[i]);
		if (rc)
			return rc;
		/* There are few: each moves by itself, and no thread keeps any (ext_put()). */
		if (i > POOL_EXT0)
			e->pool[i]->mag = 1;
	}
	return 0;
}

/* Parse config.cpu_list: a set for each CPU device, and behind them one that has them all. */
static int cpus_set(struct pawl_engine *e)
{
	u32 most = e->ndev, i;
	int n;

	if (!e->cfg.cpu_list)
		return 0;
	e->cpu_sets = calloc(most + 1, sizeof(*e->cpu_sets));
	if (!e->cpu_sets)
		return err(-ENOMEM, "engine_create: no memory");
	n = cpus_parse(e->cfg.cpu_list, e->cpu_sets, most);
	if (n < 0)
		return n;
	if (n > 1 && (u32)n < most)
		return err(-EINVAL, "engine_create: config.cpu_list has %d lists, not 1 or cpu_devices (%u)",
			   n, most);
	for (i = 0; i < most; i++) {
		if (n == 1)
			e->cpu_sets[i] = e->cpu_sets[0];
		CPU_OR(&e->cpu_sets[most], &e->cpu_sets[most], &e->cpu_sets[i]);
	}
	return 0;
}

static void *probe_main(void *arg)
{
	return NULL;
}

/*
 * Does the system permit threads with these attributes?  Workers are made later, so a thread
 * that ends at once tells, for each list of CPUs.
 */
static int attr_probe(struct pawl_engine *e)
{
	const struct pawl_config *c = &e->cfg;
	u32 lists = e->cpu_sets ? e->ndev : 1, i;
	struct exec_os_thread t;
	int rc;

	if (!c->stack_size && c->sched_policy == -1 && !e->cpu_sets)
		return 0;
	for (i = 0; i < lists; i++) {
		rc = exec_os_thread_start(e->x, &t, e->cpu_sets ? &e->cpu_sets[i] : NULL,
					  probe_main, NULL);
		if (rc)
			return err(-rc, "engine_create: no thread with config.stack_size %zu, sched_policy %d, sched_priority %d, cpu_list %s: %s",
				   c->stack_size, c->sched_policy, c->sched_priority,
				   c->cpu_list ? c->cpu_list : "NULL", strerror(rc));
		exec_os_thread_join(e->x, &t);
	}
	return 0;
}

static int queues_add(struct pawl_engine *e)
{
	const struct pawl_config *c = &e->cfg;
	struct exec_queue *q, *in, *out, *prio, **r;
	bool naive = c->kind == PAWL_NAIVE, dev = c->kind == PAWL_PER_DEVICE;
	u32 d, p;
	char name[16];
	int rc;

	e->routes = calloc((c->ndevices ? DEV_ROWS : e->ndev) * 8u, sizeof(*e->routes));
	if (!e->routes)
		return err(-ENOMEM, "engine_create: no memory for routes");
	q = in = out = prio = NULL;
	for (d = 0; d < e->ndev; d++) {
		r = &e->routes[d * 8];
		if (!d || dev) {
			snprintf(name, sizeof(name), "c%u", d);
			rc = exec_queue_add(e->x, name, naive ? 0 : (u32)c->workers, true, &q);
			if (rc)
				return rc;
			if (e->cpu_sets && dev)
				exec_queue_cpus(q, &e->cpu_sets[d]);
			in = out = q;
		}
		if (!d) {
			prio = q;
			if (dev) {
				rc = exec_queue_add(e->x, "prio",
						    c->workers ? (u32)c->priority_workers : 0,
						    true, &prio);
				if (rc)
					return rc;
			}
		}
		if (!naive && (!d || dev)) {
			snprintf(name, sizeof(name), dev ? "i%u" : "io", d);
			rc = exec_queue_add(e->x, name, c->workers ? (u32)c->copy_workers : 0,
					    true, &in);
			out = in;
			if (!rc && dev) {
				snprintf(name, sizeof(name), "o%u", d);
				rc = exec_queue_add(e->x, name,
						    c->workers ? (u32)c->copy_workers : 0,
						    true, &out);
			}
			if (rc)
				return rc;
		} else if (d && !dev) {
			in = e->routes[PAWL_COPY_TO_DEVICE];
			out = e->routes[PAWL_COPY_FROM_DEVICE];
		}
		for (p = 0; p < 8; p++)
			r[p] = q;
		r[PAWL_COPY_FROM_DEVICE] = out;
		r[PAWL_COPY_TO_DEVICE] = in;
		r[PAWL_CPU_PRIORITIZED] = prio;
	}
	return 0;
}

static struct exec_thread *worker_enter(void *user)
{
	struct thread *t = thread_enter(user);

	if (t && t->e->cfg.prefault && thread_reserve(t))
		return NULL;
	return t ? &t->ex : NULL;
}

/* The rms and the stamps; pages are touched when used. */
static size_t sides_bytes(const struct pawl_engine *e)
{
	return RM_MAX * sizeof(struct rm) + (ops_most(&e->cfg) + 1) * sizeof(*e->stamps);
}

static void engine_free(struct pawl_engine *e)
{
	devices_free(e);
	if (e->x)
		exec_destroy(e->x);
	if (e->arena)
		arena_destroy(e->arena);
	trace_exit(e);
	watch_exit(e);
	if (e->rms)
		munmap(e->rms, sides_bytes(e));
	if (e->published)
		publish_close();
	free(e->routes);
	free((void *)(uintptr_t)e->cfg.cpus);
	free(e->cpu_sets);
	free(e);
}

/* config.start_workers: an error if a worker could not be made. */
static int workers_made(struct pawl_engine *e, const char *who)
{
	int rc = e->cfg.start_workers ? exec_worker_error(e->x) : 0;

	return rc ? err(rc, "%s: a worker could not be started: %s", who, strerror(-rc)) : 0;
}

int pawl_engine_create(const struct pawl_config *cfg, struct pawl_engine **out)
{
	struct pawl_config c;
	struct pawl_engine *e;
	struct exec_config xc = { 0 };
	struct exec_client cl = { 0 };
	struct thread *t;
	void *p;
	int rc;

	if (!out)
		return err(-EINVAL, "engine_create: out is NULL");
	*out = NULL;
	config_defaults(&c);
	if (cfg) {
		rc = size_check("engine_create: config", cfg, CONFIG_SIZE_0, sizeof(c));
		if (rc)
			return rc;
		memcpy(&c, cfg, cfg->size < sizeof(c) ? cfg->size : sizeof(c));
		c.size = sizeof(c);
	} else {
		config_cpus(&c);
	}
	rc = config_check(&c);
	if (rc)
		return rc;
	e = zalloc_lines(sizeof(*e));
	if (!e)
		return err(-ENOMEM, "engine_create: no memory");
	/* Longer times would overflow when they are added to the time, or counted in cycles. */
	c.spin_ns = min_u(c.spin_ns, 1ull << 50);
	if (!c.max_vars)
		c.max_vars = config_bounded(&c) ? VARS_BOUNDED : 1u << VAR_BITS;
	e->cfg = c;
	e->cfg.cpus = NULL;
	e->cfg.devices = NULL;
	e->kind = (u32)c.kind;
	e->special = e->kind == PAWL_NAIVE ? SPECIAL_NAIVE : 0;
	if (e->kind == PAWL_NAIVE)
		e->cfg.workers = 0;
	e->ndev = c.cpu_devices;
	e->max_threads = c.max_threads;
	e->window = c.window ? c.window : c.max_ops;
	e->policy = c.window_policy >= 0 ? (u32)c.window_policy : PAWL_WINDOW_BLOCK;
	e->id = fetch_add_relaxed(&engine_ids, 1) + 1;
	if (BUSTED(ENGINE_SAME_ID))
		e->id = 1;
	/* Multiples of the golden ratio are far apart, however many engines there are. */
	e->gen_first = (u32)e->id * 0x9e3779b9u & ~1u;
	e->gen_first += !e->gen_first * 2;
	if (c.ncpus) {
		int *cpus = malloc(c.ncpus * sizeof(*cpus));

		if (!cpus) {
			rc = err(-ENOMEM, "engine_create: no memory");
			goto fail;
		}
		memcpy(cpus, c.cpus, c.ncpus * sizeof(*cpus));
		e->cfg.cpus = cpus;
	}
	p = mmap(NULL, sides_bytes(e), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		 -1, 0);
	if (p == MAP_FAILED) {
		rc = err(-ENOMEM, "engine_create: no memory for %u ops", c.max_ops);
		goto fail;
	}
	e->rms = p;
	e->stamps = (void *)(e->rms + RM_MAX);
	e->rm_reads = RM_READS;
	e->published = publish_open();
	rc = arena_create(c.name, &e->arena);
	if (!rc)
		rc = pools_add(e);
	if (rc)
		goto fail;

	xc.arena = e->arena;
	xc.id = (u32)e->id;
	xc.max_threads = e->max_threads;
	xc.max_work = e->pool[POOL_OP]->max + 1;
	xc.works = e->pool[POOL_OP];
	xc.spin_ns = c.spin_ns;
	xc.tidy_ns = c.prefault ? 0 : c.trim_ns;
	xc.look_ns = e->published ? PUBLISH_LOOK_NS : 0;
	xc.late_ns = c.strict_priority ? 0 : LATE_NS;
	rc = cpus_set(e);
	if (rc)
		goto fail;
	xc.attr.stack = c.stack_size;
	xc.attr.policy = c.sched_policy;
	xc.attr.priority = c.sched_priority;
	xc.attr.cpus = e->cpu_sets ? &e->cpu_sets[e->ndev] : NULL;
	xc.eager = c.start_workers;
	xc.cpus = e->cfg.cpus;
	xc.ncpus = c.ncpus;
	xc.name = c.name;
	cl.user = e;
	cl.run = e->kind == PAWL_NAIVE ? naive_run : run_work;
	cl.warm = op_warm;
	cl.enter = worker_enter;
	cl.idle = engine_idle;
	cl.tidy = engine_tidy;
	cl.look = publish_look;
	cl.thread_start = c.thread_start;
	cl.thread_stop = c.thread_stop;
	cl.thread_create = c.thread_create;
	cl.thread_join = c.thread_join;
	cl.user2 = c.user;
	rc = exec_create(&xc, &cl, &e->x);
	if (!rc)
		rc = attr_probe(e);
	e->cfg.cpu_list = NULL;		/* the caller's */
	if (!rc)
		rc = queues_add(e);
	if (!rc)
		rc = devices_create(e, c.devices);
	if (!rc)
		rc = arena_ready(e->arena, c.prefault);
	if (!rc)
		rc = threads_init(e);
	if (rc)
		goto fail;
	e->ops = e->pool[POOL_OP]->base;
	e->blocks = e->pool[POOL_BLOCK]->base;
	e->vars = e->pool[POOL_VAR]->base;
	e->threads = pool_obj(e->pool[POOL_THREAD], 1);
	exec_set_warm(e->x, e->pool[POOL_OP]->base, sizeof(struct op));
	t = thread_enter(e);
	if (!t || groups_init(t) ||
	    !pool_get(e->pool[POOL_ERROR], &t->cache[POOL_ERROR], &e->spare_error)) {
		rc = t ? err(-ENOMEM, "engine_create: no memory") : thread_last.code;
		threads_fini(e);
		goto fail;
	}
	*error_of(e, e->spare_error) = (struct error){ .refs = 1, .gone = 1, .code = -ENOMEM,
		.text = "an op failed, and no memory was left for its error" };
	rc = devices_start(e);
	if (!rc) {
		record_engine(e);
		exec_start(e->x);
		rc = workers_made(e, "engine_create");
		if (rc) {
			exec_stop(e->x);
			record_engine_end(e);
		}
	}
	if (rc) {
		devices_stop(e);
		threads_fini(e);
		goto fail;
	}
	trace_begin_env(e);
	publish_engine(e);
	*out = e;
	return 0;

fail:
	engine_free(e);
	return rc;
}
PAWL_EXPORT(pawl_engine_create);

/* Workers are started and joined by one thread at a time.  Progress: blocking. */
static void workers_lock(struct pawl_engine *e)
{
	while (xchg_acquire(&e->changing, 1))	/* CORE-T17 <-> CORE-T16 */
		futex_wait(&e->changing, 1, 0);
}

static void workers_unlock(struct pawl_engine *e)
{
	store_release(&e->changing, 0);		/* CORE-T16 <-> CORE-T17 */
	futex_wake(&e->changing);
}

int pawl_engine_stop(struct pawl_engine *e)
{
	struct thread *t = thread_get(e);
	int rc = fork_check();

	if (!t || rc)
		return t ? rc : thread_last.code;
	if (t->depth)
		return err(-EDEADLK, "engine_stop: from inside an op");
	if (!BUSTED(STOP_EARLY))
		wait_none(t, -1, 0, EXEC_HELP);
	if (e->devices)
		device_wait_all(t, -1, 0, EXEC_HELP);
	workers_lock(e);
	exec_stop(e->x);
	workers_unlock(e);
	return 0;
}
PAWL_EXPORT(pawl_engine_stop);

int pawl_engine_start(struct pawl_engine *e)
{
	struct thread *t = thread_get(e);
	int rc = fork_check();

	if (!t || rc)
		return t ? rc : thread_last.code;
	if (t->depth)
		return err(-EDEADLK, "engine_start: from inside an op");
	workers_lock(e);
	exec_start(e->x);
	rc = workers_made(e, "engine_start");
	workers_unlock(e);
	return rc;
}
PAWL_EXPORT(pawl_engine_start);

static void drain(struct pawl_engine *e, struct thread *t)
{
	if (BUSTED(DESTROY_EARLY))
		return;
	wait_none(t, -1, 0, EXEC_HELP);
	if (e->devices)
		device_wait_all(t, -1, 0, EXEC_HELP);
}

/* Wait for threads whose pawl_complete() ended an op, and has not returned. */
static void completers_await(struct pawl_engine *e, struct thread *t)
{
	struct thread *w;
	u32 i;

	for_each_live(e, w, i)
		while (w != t && load_acquire(&w->completing))	/* CORE-N24 <-> CORE-N23 */
			os_thread_yield();
}

int pawl_engine_destroy(struct pawl_engine *e)
{
	struct thread *t;

	if (!e)
		return 0;
	if (e->fork_gen != load_relaxed(&pawl_fork_gen) || fork_check()) {
		/* The threads that could be inside are not in this process. */
		threads_forget(e);
		return 0;
	}
	t = thread_get(e);
	if (!t)
		return thread_last.code;
	if (t->depth)
		return err(-EDEADLK, "engine_destroy: from inside an op");
	drain(e, t);
	exec_stop(e->x);
	/* Ending workers may have pushed from their own TLS destructors: run those ops here. */
	drain(e, t);
	completers_await(e, t);
	publish_engine_end(e);
	trace_end_env(e);
	devices_stop(e);
	graphs_exit(t);
	errors_exit(e);
	cqs_exit(e);
	record_engine_end(e);
	threads_fini(e);
	engine_free(e);
	return 0;
}
PAWL_EXPORT(pawl_engine_destroy);

int pawl_stats(struct pawl_engine *e, struct pawl_stats *out)
{
	int rc = size_check_out("stats: out", out, STATS_SIZE_0);
	struct pawl_stats s = { 0 };
	struct exec_stats xs;
	struct thread *t;
	u32 i;

	if (rc)
		return rc;
	/* CORE-N12 <-> CORE-N11 */
	s.completed = load_acquire(&e->gone.completed);
	s.failed = load_relaxed(&e->gone.failed);
	s.skipped = load_relaxed(&e->gone.skipped);
	s.inlined = load_relaxed(&e->gone.inlined);
	s.records = load_relaxed(&e->gone.records);
	s.helps = load_relaxed(&e->gone.helps);
	for_each_live(e, t, i) {
		s.completed += load_acquire(&t->completed);	/* CORE-N3 <-> CORE-N2 */
		s.failed += load_relaxed(&t->failed);
		s.skipped += load_relaxed(&t->skipped);
		s.inlined += load_relaxed(&t->inlined);
		s.records += load_relaxed(&t->records);
		s.helps += load_relaxed(&t->helps);
	}
	/* Read after `completed`, so never less. */
	s.pushed = ops_pushed(e);
	exec_stats(e->x, &xs);
	s.helped = xs.helped;
	s.handed = xs.handed;
	s.stolen = xs.stolen;
	s.sleeps = xs.sleeps;
	s.wakes = xs.wakes;
	s.workers = xs.workers;
	s.threads = slots_used(e);
	s.vars = pool_carved(e->pool[POOL_VAR]);
	s.ops = pool_carved(e->pool[POOL_OP]);
	s.blocks = pool_carved(e->pool[POOL_BLOCK]);
	s.bytes = arena_bytes(e->arena) + xs.bytes;
	s.address_space = arena_space(e->arena) + sides_bytes(e);
	s.unreaped = unreaped(e);
	size_copy_out(out, &s, sizeof(s));
	return 0;
}
PAWL_EXPORT(pawl_stats);

const char *pawl_error_text(void)
{
	return err_text();
}
PAWL_EXPORT(pawl_error_text);

const char *pawl_version(void)
{
	return PAWL_VERSION_STRING;
}
PAWL_EXPORT(pawl_version);
