// SPDX-License-Identifier: Apache-2.0
/*
 * Resources: temporary spaces and random generators per context, each guarded by a var.
 *
 * Structures: a list of the contexts that were requested, which only grows.  Those of a process's
 * engine that was freed stay in it without their spaces, and are not used any more.
 *
 * Ordering: COMPAT-R1 (context published) <-> COMPAT-R2 (found): its resources.  The var of a
 * resource orders its contents, like any data.
 *
 * Progress: lock-free; a context's first request allocates.
 *
 * Lifetime: until the process ends, as in MXNet.
 */
#include <stdlib.h>
#include <compat/engine.h>
#include <pawl/mx_c_api.h>

#define COPIES_MAX	64

struct resource {
	struct pawl_mx_resource r;	/* must be first; its ptr points to this struct */
	void *space;		/* this and all below: guarded by the var */
	size_t size;
	u64 state[4];
};

struct context {
	struct context *next;	/* I */
	struct pawl_mx_engine *engine;	/* I */
	u32 ends;		/* I: of the engine, when this was made */
	struct pawl_mx_context ctx;	/* I */
	u32 turn[3];		/* A: requests so far, by type */
	u32 n[3];		/* I */
	struct resource *of[3];	/* I */
};

static struct context *contexts;	/* A */
static u32 global_seed;			/* A */

/* --- random: xoshiro256**, seeded by splitmix64 --- */

static void seed(struct resource *r, u64 x)
{
	int i;

	for (i = 0; i < 4; i++) {
		u64 z = x += 0x9e3779b97f4a7c15ull;

		z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
		z = (z ^ z >> 27) * 0x94d049bb133111ebull;
		r->state[i] = z ^ z >> 31;
	}
}

static u64 rotl(u64 x, int k)
{
	return x << k | x >> (64 - k);
}

uint64_t pawl_mx_resource_random(const struct pawl_mx_resource *res)
{
	u64 *s = ((struct resource *)res->ptr)->state;
	u64 out = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = rotl(s[3], 45);
	return out;
}
PAWL_EXPORT(pawl_mx_resource_random);

void *pawl_mx_resource_space(const struct pawl_mx_resource *res, size_t size)
{
	struct resource *r = res->ptr;

	if (size > SIZE_MAX / 2) {
		mx_err(-ENOMEM, "temporary space of %zu bytes", size);
		return NULL;
	}
	if (size > r->size || !r->space) {
		free(r->space);
		r->size = ((size ? size : 1) + 63) & ~(size_t)63;
		r->space = aligned_alloc(64, r->size);
		if (!r->space)
			mx_err(-ENOMEM, "no memory for %zu bytes of temporary space", size);
	}
	return r->space;
}
PAWL_EXPORT(pawl_mx_resource_space);

/* --- contexts --- */

static u64 seed_of(u32 from, const struct resource *r, int dev_id)
{
	return (u64)(u32)dev_id + (u64)(u32)r->r.id * 16 + (u64)from * 127;
}

static void context_free(struct context *c)
{
	int t;
	u32 i;

	for (t = 0; t < 3; t++) {
		for (i = 0; c->of[t] && i < c->n[t]; i++)
			if (c->of[t][i].r.var)
				pawl_mx_var_delete(c->engine, c->of[t][i].r.var, c->ctx, NULL,
						   NULL, NULL);
		free(c->of[t]);
	}
	free(c);
}

static struct context *context_new(struct pawl_mx_engine *e, struct pawl_mx_context ctx, u32 from)
{
	static const char *const names[] = {
		NULL, "MXNET_CPU_TEMP_COPY", "MXNET_CPU_PARALLEL_RAND_COPY",
	};
	static const int defs[] = { 1, 4, 1 };
	struct context *c = calloc(1, sizeof(*c));
	int t, n, id = 0;
	u32 i;

	if (!c)
		goto no_memory;
	c->engine = e;
	c->ends = load_relaxed(&e->ends);
	c->ctx = ctx;
	for (t = 0; t < 3; t++) {
		n = defs[t];
		if (names[t] && mx_env_int(names[t], defs[t], &n)) {
			context_free(c);
			return NULL;
		}
		c->n[t] = (u32)(n < 1 ? 1 : n > COPIES_MAX ? COPIES_MAX : n);
		c->of[t] = calloc(c->n[t], sizeof(struct resource));
		if (!c->of[t])
			goto no_memory;
		for (i = 0; i < c->n[t]; i++) {
			struct resource *r = &c->of[t][i];

			r->r.type = t;
			r->r.id = id++;
			r->r.ptr = r;
			seed(r, seed_of(from, r, ctx.dev_id));
			if (pawl_mx_var_new(e, &r->r.var)) {
				context_free(c);
				return NULL;
			}
		}
	}
	return c;

no_memory:
	mx_err(-ENOMEM, "no memory for resources");
	if (c)
		context_free(c);
	return NULL;
}

/* Is it of this engine, not of one that had its entry before? */
static bool context_is_of(const struct context *c, const struct pawl_mx_engine *e)
{
	/* Relaxed: the caller has e, so the number is not older than e (COMPAT-E4). */
	return c->engine == e && c->ends == load_relaxed(&e->ends);
}

static struct context *context_find(struct context *c, const struct pawl_mx_engine *e,
				    struct pawl_mx_context ctx)
{
	for (; c; c = c->next)
		if (c->ctx.dev_type == ctx.dev_type && c->ctx.dev_id == ctx.dev_id &&
		    context_is_of(c, e))
			return c;
	return NULL;
}

void mx_resources_end(struct pawl_mx_engine *e)
{
	struct context *c;
	u32 i;

	for (c = load_acquire(&contexts); c; c = c->next) {	/* COMPAT-R2 <-> COMPAT-R1 */
		for (i = 0; context_is_of(c, e) && i < c->n[PAWL_MX_TEMP_SPACE]; i++) {
			struct resource *r = &c->of[PAWL_MX_TEMP_SPACE][i];

			free(r->space);
			r->space = NULL;
			r->size = 0;
		}
	}
}

static int context_seed(struct context *c, u32 from, bool exact);

static struct context *context_of(struct pawl_mx_context ctx)
{
	struct pawl_mx_engine *e = pawl_mx_engine_get();
	struct context *head, *c, *new;
	struct pawl_device dev;
	u32 from = load_relaxed(&global_seed), now;

	if (!e || mx_ctx_cpu(e, ctx, &dev))
		return NULL;
	head = load_acquire(&contexts);	/* COMPAT-R2 <-> COMPAT-R1 */
	c = context_find(head, e, ctx);
	if (c)
		return c;
	new = context_new(e, ctx, from);
	if (!new)
		return NULL;
	do {
		c = context_find(head, e, ctx);
		if (c) {
			context_free(new);
			return c;
		}
		new->next = head;
	} while (!cas_acq_rel_acquire(&contexts, &head, new));	/* COMPAT-R1 <-> COMPAT-R2 */
	/* COMPAT-R3 <-> COMPAT-R4: MXRandomSeed() finds the context, or its seed is found here. */
	smp_mb();
	/* Of seeds that are set meanwhile, the last one goes last. */
	for (; (now = load_relaxed(&global_seed)) != from; from = now)
		if (context_seed(new, now, false))
			return NULL;
	return new;
}

int pawl_mx_resource_get(struct pawl_mx_context ctx, int type, struct pawl_mx_resource *out)
{
	struct context *c;
	u32 i;

	if (!out || type < PAWL_MX_RANDOM || type > PAWL_MX_PARALLEL_RANDOM)
		return mx_err(-EINVAL, "resource: type %d, or out is NULL", type);
	c = context_of(ctx);
	if (!c)
		return -ENODEV;
	i = fetch_add_relaxed(&c->turn[type], 1) % c->n[type];
	*out = c->of[type][i].r;
	return 0;
}
PAWL_EXPORT(pawl_mx_resource_get);

/* --- seeds: set by ops, so they follow the current uses of the generators --- */

struct reseed {
	struct resource *r;
	u64 seed;
};

static void reseed_body(void *run, void *arg)
{
	struct reseed *s = arg;

	seed(s->r, s->seed);
}

static int reseed(struct context *c, struct resource *r, u64 to)
{
	struct reseed *s = pawl_mx_room_get();
	struct pawl_mx_op op = { .sync = reseed_body, .arg = s, .drop = pawl_mx_room_put,
				 .ctx = c->ctx, .writes = &r->r.var, .nwrites = 1,
				 .name = "ResourceRandomSetSeed" };

	if (!s)
		return mx_err(-ENOMEM, "no memory for a seed");
	s->r = r;
	s->seed = to;
	return pawl_mx_push(c->engine, &op, NULL);
}

static int context_seed(struct context *c, u32 from, bool exact)
{
	static const int types[] = { PAWL_MX_RANDOM, PAWL_MX_PARALLEL_RANDOM };
	u32 t, i;

	for (t = 0; t < ARRAY_SIZE(types); t++) {
		for (i = 0; i < c->n[types[t]]; i++) {
			struct resource *r = &c->of[types[t]][i];

			/* With a context named, the numbers do not depend on its device id. */
			if (reseed(c, r, seed_of(from, r, exact ? 0 : c->ctx.dev_id)))
				return -1;
		}
	}
	return 0;
}

int MXRandomSeed(int from)
{
	struct pawl_mx_engine *e;
	struct context *c;

	store_relaxed(&global_seed, (u32)from);
	smp_mb();	/* COMPAT-R4 <-> COMPAT-R3 */
	c = load_acquire(&contexts);	/* COMPAT-R2 <-> COMPAT-R1 */
	for (e = mx_engine_shared(); c; c = c->next)
		if (context_is_of(c, e) && context_seed(c, (u32)from, false))
			return -1;
	return 0;
}
PAWL_EXPORT(MXRandomSeed);

int MXRandomSeedContext(int from, int dev_type, int dev_id)
{
	struct pawl_mx_context ctx = { dev_type, dev_id };
	struct context *c = context_of(ctx);

	return c && !context_seed(c, (u32)from, true) ? 0 : -1;
}
PAWL_EXPORT(MXRandomSeedContext);
