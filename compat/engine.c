// SPDX-License-Identifier: Apache-2.0
/*
 * Engines: creation by the settings of the environment; the process's engine, and its end.
 *
 * Ordering: COMPAT-E1 (engine published) <-> COMPAT-E2 (engine found): its fields.
 * COMPAT-E3 (object free) <-> COMPAT-E4 (taken): the end of the engine that was in it.
 *
 * Progress: blocking; finding the process's engine is wait-free once it exists.
 *
 * Lifetime: engine objects are never freed, because a program may hold a stale pointer; a new
 * engine reuses one that was deleted.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <compat/engine.h>

ck_stack_t mx_engines;				/* all, newest first */
static struct pawl_mx_engine *the_engine;	/* A: the process's */

struct pawl_mx_hooks mx_hooks = {
	.aggregating = mx_profile_aggregating,
	.begin = mx_profile_begin,
	.end = mx_profile_end,
};

void pawl_mx_set_hooks(const struct pawl_mx_hooks *hooks)
{
	if (hooks->worker_start)
		mx_hooks.worker_start = hooks->worker_start;
	if (hooks->aggregating)
		mx_hooks.aggregating = hooks->aggregating;
	mx_hooks.cpus_only = hooks->cpus_only;
	if (hooks->begin && hooks->end) {
		mx_hooks.begin = hooks->begin;
		mx_hooks.end = hooks->end;
		mx_hooks.delete_name = hooks->delete_name;
	}
}
PAWL_EXPORT(pawl_mx_set_hooks);

static void worker_start(void *user, const char *name)
{
	struct pawl_mx_engine *e = user;

	mx_bulk_worker(e);
	if (mx_hooks.worker_start)
		mx_hooks.worker_start();
	else
		mx_omp_set(e->omp_threads);
}

/* A pawl engine for e; in the child of a fork with the workers for that. */
int mx_engine_make(struct pawl_mx_engine *e, bool child)
{
	struct pawl_device gpus[MX_GPUS];
	struct pawl_config cfg;
	struct pawl_engine *pe;
	struct mx_env env;
	int rc, i, n;

	rc = mx_env_read(&env);
	if (rc)
		return rc;
	/* The child of a fork has no device: CUDA's cannot be used there. */
	n = child || mx_hooks.cpus_only ? 0 : env.gpus;
	for (i = 0; i < n; i++)
		gpus[i] = (struct pawl_device){ PAWL_CUDA, (u16)i };
	pawl_config_init(&cfg);
	cfg.devices = gpus;
	cfg.ndevices = (u32)n;
	cfg.kind = e->kind == PAWL_MX_NAIVE ? PAWL_NAIVE :
		   e->kind == PAWL_MX_POOLED ? PAWL_POOLED : PAWL_PER_DEVICE;
	if (e->kind == PAWL_MX_POOLED) {
		cfg.workers = 16;
		cfg.copy_workers = 1;
	} else {
		cfg.workers = child ? env.mp_workers : env.cpu_workers;
		cfg.priority_workers = env.cpu_priority_workers;
		cfg.copy_workers = env.copy_workers;
	}
	cfg.cpu_devices = child ? MX_CHILD_DEVICES : MX_CPU_DEVICES;
	cfg.max_ops = 960000;
	cfg.max_threads = MX_THREADS;
	if (cfg.workers * (int)cfg.cpu_devices > (int)MX_THREADS / 2)
		cfg.cpu_devices = 1;
	e->devices = cfg.cpu_devices;
	/* As MXNet, whose priority queues let the lower wait. */
	cfg.strict_priority = true;
	/* 0 with one CPU */
	if (cfg.spin_ns)
		cfg.spin_ns = MX_SPIN_NS;
	if (env.spin_ns >= 0)
		cfg.spin_ns = (uint64_t)env.spin_ns;
	cfg.drop = mx_payload_drop;
	cfg.name = "mxnet";
	cfg.thread_start = worker_start;
	cfg.user = e;
	e->omp_threads = child ? 1 : env.omp_threads;
	if (child && !mx_hooks.worker_start)
		mx_omp_set(1);
	cfg.max_vars = MX_VARS_MOST;
	rc = pawl_engine_create(&cfg, &pe);
	if (rc == -ENOMEM) {
		/* The process may have a limit of address space (ulimit -v). */
		cfg.max_vars = MX_VARS_LEAST;
		rc = pawl_engine_create(&cfg, &pe);
	}
	if (rc)
		return mx_err_pawl(rc);
	e->gpus = (u32)n;
	e->info = env.info;
	e->pid = getpid();
	store_release(&e->pe, pe);	/* COMPAT-E1 <-> COMPAT-E2 */
	return 0;
}

static struct pawl_mx_engine *engine_object(void)
{
	ck_stack_entry_t *i = load_acquire(&mx_engines.head);	/* COMPAT-E2 <-> COMPAT-E1 */
	struct pawl_mx_engine *e;
	u32 unused;

	/* Reuse a freed object, or add one; none is freed, as there may be stale pointers. */
	for (; i; i = i->next) {
		e = mx_engine_of(i);
		unused = 0;
		if (cas_acquire_relaxed(&e->used, &unused, 1))	/* COMPAT-E4 <-> COMPAT-E3 */
			return e;
	}
	e = calloc(1, sizeof(*e));
	if (!e)
		return NULL;
	e->used = 1;
	ck_stack_push_upmc(&mx_engines, &e->link);	/* COMPAT-E1 <-> COMPAT-E2 */
	return e;
}

int pawl_mx_engine_create(int kind, struct pawl_mx_engine **out)
{
	struct pawl_mx_engine *e;
	int rc;

	if (!out || kind < PAWL_MX_NAIVE || kind > PAWL_MX_PER_DEVICE)
		return mx_err(-EINVAL, "engine create: kind %d, or out is NULL", kind);
	e = engine_object();
	if (!e)
		return mx_err(-ENOMEM, "engine create: no memory");
	e->kind = (u32)kind;
	store_relaxed(&e->shutdown, 0);
	rc = mx_engine_make(e, false);
	if (rc) {
		store_release(&e->used, 0);	/* COMPAT-E3 <-> COMPAT-E4 */
		return rc;
	}
	rc = mx_fork_setup();
	if (rc) {
		pawl_mx_engine_free(e);
		return rc;
	}
	*out = e;
	return 0;
}
PAWL_EXPORT(pawl_mx_engine_create);

int pawl_mx_engine_free(struct pawl_mx_engine *e)
{
	struct pawl_engine *pe = e ? mx_pe(e) : NULL;
	struct pawl_mx_engine *none = NULL;
	bool shared;
	int rc;

	if (!pe)
		return 0;
	/* Relaxed: only the address is compared, and NULL publishes nothing. */
	shared = e == load_relaxed(&the_engine);
	if (shared)
		store_relaxed(&the_engine, NULL);
	rc = mx_bulk_end(e);
	if (!rc || rc == -EOWNERDEAD) {
		mx_fork_ending(e, true);
		rc = pawl_engine_destroy(pe);
		if (!rc)
			store_relaxed(&e->pe, NULL);
		mx_fork_ending(e, false);
	}
	/* If another thread created the shared engine meanwhile, e is not shared any more. */
	if (rc && shared)
		cas_release_relaxed(&the_engine, &none, e);	/* COMPAT-E1 <-> COMPAT-E2 */
	if (rc)
		return mx_err_pawl(rc);
	mx_resources_end(e);
	/* Relaxed: COMPAT-E3 orders it before the next engine in this entry. */
	fetch_add_relaxed(&e->ends, 1);
	store_release(&e->used, 0);	/* COMPAT-E3 <-> COMPAT-E4 */
	return 0;
}
PAWL_EXPORT(pawl_mx_engine_free);

struct pawl_mx_engine *mx_engine_shared(void)
{
	return load_acquire(&the_engine);	/* COMPAT-E2 <-> COMPAT-E1 */
}

/*
 * At exit(), run the ops that were pushed.  Objects that were created after the engine are
 * destroyed before this, older ones after it.  A body that never ends must not keep the process
 * from ending, so this gives up when no op was completed for a while.
 */
static void the_engine_drain(void)
{
	struct pawl_mx_engine *e = mx_engine_shared();
	struct pawl_stats s = { .size = sizeof(s) };
	uint64_t completed = 0;

	if (!e || !mx_pe(e) || pawl_engine_start(mx_pe(e)))
		return;
	mx_bulk_flush();
	while (mx_wait(e, PAWL_WAIT_ALL, 0, MX_EXIT_NS, NULL) == -ETIMEDOUT) {
		pawl_stats(mx_pe(e), &s);
		if (s.completed == completed) {
			fprintf(stderr, "pawl_mx: the process ends with %llu ops in flight\n",
				(unsigned long long)(s.pushed - s.completed));
			return;
		}
		completed = s.completed;
	}
}

struct pawl_mx_engine *pawl_mx_engine_get(void)
{
	struct pawl_mx_engine *e = mx_engine_shared(), *new;
	struct mx_env env;
	bool ours;
	int kind;

	if (likely(e))
		return e;
	if (mx_env_kind(&kind) || mx_env_read(&env) || pawl_mx_engine_create(kind, &new))
		return NULL;
	/* COMPAT-E1 <-> COMPAT-E2; when it fails, COMPAT-E2 <-> COMPAT-E1 */
	ours = cas_acq_rel_acquire(&the_engine, &e, new);
	if (BUSTED(MX_ENGINE_TWICE))
		ours = true;
	if (!ours) {
		pawl_mx_engine_free(new);
		return e;
	}
	if (env.profile && mx_hooks.aggregating == mx_profile_aggregating)
		mx_profile_engine(new);
	atexit(the_engine_drain);
	return new;
}
PAWL_EXPORT(pawl_mx_engine_get);

int pawl_mx_engine_kind(struct pawl_mx_engine *e)
{
	return (int)e->kind;
}
PAWL_EXPORT(pawl_mx_engine_kind);

struct pawl_engine *pawl_mx_engine_pawl(struct pawl_mx_engine *e)
{
	return mx_pe(e);
}
PAWL_EXPORT(pawl_mx_engine_pawl);

/*
 * A fork handler that was registered before ours, as MXNet's own is, starts the engine
 * while it is still the parent's; ours makes a new one, which is started.
 */
static bool early_in_child(const struct pawl_mx_engine *e)
{
	return e->pid != getpid();
}

int pawl_mx_engine_stop(struct pawl_mx_engine *e, void **exception)
{
	struct pawl_error err = { 0 };
	int rc;

	if (exception)
		*exception = NULL;
	if (early_in_child(e))
		return 0;
	if (!mx_pe(e))
		return mx_bad_engine();
	mx_bulk_flush();
	rc = pawl_engine_stop(mx_pe(e));
	if (rc)
		return rc == -EDEADLK ? 0 : mx_err_pawl(rc);
	/* An error stays with its vars if the caller, as MXNet's fork handler, cannot have it. */
	if (!exception)
		return 0;
	rc = pawl_wait_all(mx_pe(e), 0, &err);
	return err.code ? mx_told(rc, &err, exception) : 0;
}
PAWL_EXPORT(pawl_mx_engine_stop);

int pawl_mx_engine_start(struct pawl_mx_engine *e)
{
	int rc;

	if (early_in_child(e))
		return 0;
	if (!mx_pe(e))
		return mx_bad_engine();
	rc = pawl_engine_start(mx_pe(e));
	return rc && rc != -EDEADLK ? mx_err_pawl(rc) : 0;
}
PAWL_EXPORT(pawl_mx_engine_start);

int pawl_mx_engine_shutdown(struct pawl_mx_engine *e)
{
	store_relaxed(&e->shutdown, 1);
	return 0;
}
PAWL_EXPORT(pawl_mx_engine_shutdown);

/*
 * The library's destructor runs after those of the program, which may still have pushed ops.
 * The bodies of these ops do not run, because the objects that they use were destroyed.
 */
static __attribute__((destructor)) void the_engine_exit(void)
{
	/* COMPAT-E2 <-> COMPAT-E1 */
	struct pawl_mx_engine *e = xchg_acquire(&the_engine, NULL);

	if (!e || !mx_pe(e))
		return;
	store_relaxed(&e->shutdown, 1);
	mx_bulk_flush();
	if (pawl_engine_start(mx_pe(e)) ||
	    mx_wait(e, PAWL_WAIT_ALL, 0, MX_LAST_NS, NULL) == -ETIMEDOUT || mx_bulk_end(e))
		return;
	pawl_engine_destroy(mx_pe(e));
	store_relaxed(&e->pe, NULL);
}
