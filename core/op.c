// SPDX-License-Identifier: Apache-2.0
/*
 * Ops: from the caller's description to an op with sorted, checked accesses and the blocks
 * that its writes will make.  push.c has the cases of up to four accesses.
 *
 * Progress: wait-free, apart from the pools (lock-free).  No other thread knows the op yet.
 */
#include <stdio.h>
#include <core/admit.h>
#include <core/device.h>
#include <core/link.h>
#include <core/sizes.h>
#include <core/sort.h>

void ext_put(struct thread *t, u32 ext)
{
	u32 p = POOL_EXT0 + (ext >> 30);

	pool_put(t->e->pool[p], &t->cache[p], ext & 0x3fffffffu);
	if (BUSTED(EXT_HOARDED))
		return;
	/* There are few large ones, so no thread keeps any in its cache. */
	if (p != POOL_EXT0)
		pool_cache_flush(t->e->pool[p], &t->cache[p]);
}

int ext_get(struct thread *t, u32 n, u32 opi, u32 *ext)
{
	u32 class, p, idx;
	struct ext *x;

	for (class = 0; class < EXT_CLASSES && ext_cap(class) < n; class++)
		;
	if (class == EXT_CLASSES)
		return err(-E2BIG, "push: %u vars in one op, at most %u", n,
			   ext_cap(EXT_CLASSES - 1));
	p = POOL_EXT0 + class;
	x = pool_get(t->e->pool[p], &t->cache[p], &idx);
	if (!x)
		return err_pool_empty(t, p, "push: too many ops with so many vars are in flight");
	store_relaxed(&x->op, opi);
	*ext = class << 30 | idx;
	return 0;
}

/*
 * Is a field set without the flag that says so?  For an op of the current size.  A deadline is not
 * checked, so that a program can push one description with it and without.
 */
bool op_strays(const struct pawl_op *d)
{
	u64 set = d->flags & PAWL_OP_CQ ? 0 : d->cq.h | d->tag;

	set |= d->flags & PAWL_OP_TICKET ? 0 : (u64)(uintptr_t)d->ticket;
	set |= d->flags & PAWL_OP_GROUP ? 0 : d->group.h;
	set |= d->flags & PAWL_OP_COST ? 0 : d->cost;
	set |= d->flags & PAWL_OP_ARG ? 0 : d->arg_size;
	return set;
}

/* A part of op_check(): property, device, flags and the fields that need one are right. */
bool op_extras_right(struct pawl_engine *e, const struct pawl_op *d)
{
	return !op_strays(d) && (!(d->flags & PAWL_OP_ARG) || op_arg_fits(d)) &&
	       (!(op_where(d) & ~WHERE_FLAGS(PAWL_OP_NOTES | PAWL_OP_ARG)) ||
		(d->prop <= PAWL_NO_SKIP && !(d->flags & ~OP_FLAGS_KNOWN) &&
		 d->device.kind == PAWL_CPU && d->device.id < e->ndev));
}

/* Name the field that op_strays() found. */
__cold int op_stray(const struct pawl_op *d, const char *who, const char *of)
{
	static const struct {
		const char *field, *flag;
		u16 bit;
	} pairs[] = {
		{ "cq", "CQ", PAWL_OP_CQ },
		{ "tag", "CQ", PAWL_OP_CQ },
		{ "ticket", "TICKET", PAWL_OP_TICKET },
		{ "group", "GROUP", PAWL_OP_GROUP },
		{ "cost", "COST", PAWL_OP_COST },
		{ "arg_size", "ARG", PAWL_OP_ARG },
	};
	const bool set[] = { d->cq.h, d->tag, d->ticket, d->group.h, d->cost, d->arg_size };
	u32 i;

	for (i = 0; i < ARRAY_SIZE(pairs); i++)
		if (set[i] && !(d->flags & pairs[i].bit))
			break;
	return i == ARRAY_SIZE(pairs) ? 0 :
	       err(-EINVAL, "%s: %s.%s is set, but %s.flags has no PAWL_OP_%s", who, of,
		   pairs[i].field, of, pairs[i].flag);
}

/* Slow path of op_check(): find out what is wrong.  Returns 0 if nothing is. */
__cold int op_bad(struct pawl_engine *e, const struct pawl_op *d, const char *who)
{
	char name[64];
	size_t need;
	int rc;

	/* Programs of the first release get here with every push: format no text for them. */
	if (!d || (d->size != OP_SIZE_0 && d->size != sizeof(*d))) {
		snprintf(name, sizeof(name), "%s: op", who);
		rc = size_check(name, d, OP_SIZE_0, sizeof(*d));
		if (rc)
			return rc;
	}
	if (d->fn && d->async_fn)
		return err(-EINVAL, "%s: op.fn and op.async_fn are both set", who);
	if (d->prop > PAWL_NO_SKIP)
		return err(-EINVAL, "%s: op.prop is %u, the largest is %u", who, d->prop,
			   PAWL_NO_SKIP);
	if (d->flags & ~OP_FLAGS_KNOWN)
		return err(-EINVAL, "%s: op.flags is %#x, known is %#x", who, d->flags,
			   OP_FLAGS_KNOWN);
	need = d->flags & PAWL_OP_ARG ? sizeof(*d) :
	       d->flags & PAWL_OP_NOTES ? offsetof(struct pawl_op, arg_size) : 0;
	if (d->size < need)
		return err(-EINVAL, "%s: op.size is %zu, op.flags %#x needs %zu", who, d->size,
			   d->flags, need);
	/* A struct of an older header may end before these fields. */
	rc = d->size == sizeof(*d) ? op_stray(d, who, "op") : 0;
	if (rc)
		return rc;
	if ((d->flags & PAWL_OP_ARG) && d->arg_size && !d->arg)
		return err(-EINVAL, "%s: op.arg is NULL but op.arg_size is %u", who, d->arg_size);
	if ((d->flags & PAWL_OP_ARG) && !op_arg_fits(d))
		return err(-E2BIG, "%s: op.arg_size is %u, beside %llu vars%s at most %llu fit", who,
			   d->arg_size, (unsigned long long)d->nreads + d->nwrites,
			   d->release ? " and op.release" :
			   d->flags & PAWL_OP_NOTES ? " and these op.flags" : "",
			   op_arg_beside(d) < PAWL_ARG_ROOM(0) ?
			   (unsigned long long)PAWL_ARG_ROOM(0) - op_arg_beside(d) : 0);
	if (d->device.kind != PAWL_CPU && !device_row(e, d->device))
		return err(-ENODEV, "%s: no device of kind %u, number %u in this engine", who,
			   d->device.kind, d->device.id);
	if (d->device.kind == PAWL_CPU && d->device.id >= e->ndev)
		return err(-ENODEV, "%s: no CPU device %u, this engine has %u", who,
			   d->device.id, e->ndev);
	/* Valid after all: a device or another size, which op_check() does not cover. */
	if ((d->reads || !d->nreads) && (d->writes || !d->nwrites))
		return 0;
	if (d->nreads && !d->reads)
		return err(-EINVAL, "%s: op.reads is NULL, but op.nreads is %u", who, d->nreads);
	return err(-EINVAL, "%s: op.writes is NULL, but op.nwrites is %u", who, d->nwrites);
}

static inline u32 dep_key(const struct dep *d)
{
	return d->var & ~DEP_WRITE;
}

static bool dep_less(const void *deps, u32 i, u32 j)
{
	const struct dep *d = deps;

	return dep_key(&d[i]) < dep_key(&d[j]);
}

static void dep_swap(void *deps, u32 i, u32 j)
{
	struct dep *d = deps, tmp = d[i];

	dep_copy(&d[i], &d[j]);
	dep_copy(&d[j], &tmp);
}

/* Sort by var and merge the entries of one var; a write wins.  Returns the new number. */
u32 deps_sort(struct dep *d, u32 n)
{
	u32 i, k;

	sort_array(d, n, dep_less, dep_swap);
	for (i = 1, k = 0; i < n; i++) {
		if (unlikely(dep_key(&d[i]) == dep_key(&d[k])))
			store_helped(&d[k].var, d[k].var | (d[i].var & DEP_WRITE));
		else if (++k != i)
			dep_copy(&d[k], &d[i]);
	}
	return n ? k + 1 : 0;
}

__cold int var_bad(const char *who, const char *list, u32 i, pawl_var_t v)
{
	return err(-ESTALE, "%s: op.%s[%u] is %s", who, list, i,
		   v.h ? "a var that was deleted, or of another engine" : "no var");
}

__cold int var_check_slow(struct thread *t, pawl_var_t h)
{
	u32 carved = pool_carved(t->e->pool[POOL_VAR]);

	/* No var has index 0; its memory exists with that of the first var. */
	t->var_limit = carved ? carved + 1 : 0;
	return (u32)h.h < t->var_limit ? var_check(t, h) : -ESTALE;
}

/* Store the described accesses in out[nreads + nwrites], sorted; *n of them remain. */
int deps_from(struct thread *t, struct dep *out, const struct pawl_op *d, u32 *n,
	      const char *who)
{
	u32 i, k = 0;

	for (i = 0; i < d->nreads; i++, k++) {
		if (unlikely(var_check(t, d->reads[i])))
			return var_bad(who, "reads", i, d->reads[i]);
		dep_set(&out[k], var_index(d->reads[i]), 0, 0, (u32)(d->reads[i].h >> 32));
	}
	for (i = 0; i < d->nwrites; i++, k++) {
		if (unlikely(var_check(t, d->writes[i])))
			return var_bad(who, "writes", i, d->writes[i]);
		dep_set(&out[k], var_index(d->writes[i]) | DEP_WRITE, 0, 0,
			(u32)(d->writes[i].h >> 32));
	}
	*n = deps_sort(out, k);
	return 0;
}

/* Get the blocks that the op's writes will make; all or none. */
int op_blocks(struct thread *t, struct op *op)
{
	struct pawl_engine *e = t->e;
	struct dep *deps = op_deps(e, op, op->ndeps, op->ext);
	u32 j;

	for (j = 0; j < op->ndeps; j++) {
		if (!(deps[j].var & DEP_WRITE) || dep_block(t, &deps[j]))
			continue;
		blocks_put(t, deps, j);
		return err_pool_empty(t, POOL_BLOCK, "push: out of blocks (max_vars, max_ops)");
	}
	return 0;
}

/* Free the blocks of the first n accesses. */
__cold void blocks_put(struct thread *t, const struct dep *deps, u32 n)
{
	while (n--)
		if (deps[n].var & DEP_WRITE)
			block_free(t, deps[n].block);
}

/* Copy n sorted accesses into the op and make its blocks. */
int op_deps_copy(struct thread *t, struct op *op, u32 opi, const struct dep *from, u32 n)
{
	struct dep *deps;
	u32 j, ext = 0;
	int rc;

	if (unlikely(n > INLINE_DEPS)) {
		rc = ext_get(t, n, opi, &ext);
		if (rc)
			return rc;
		store_helped(&op->ext, ext);
	}
	store_helped16(&op->ndeps, (u16)n);
	deps = op_deps(t->e, op, n, ext);
	for (j = 0; j < n; j++)
		dep_copy(&deps[j], &from[j]);
	rc = op_blocks(t, op);
	if (unlikely(rc) && n > INLINE_DEPS)
		ext_put(t, op->ext);
	if (unlikely(rc))
		store_helped16(&op->ndeps, 0);
	return rc;
}

/*
 * op_fill() for a description that names more vars than an op holds.  On error the op is as
 * op_new() made it.
 */
int op_fill_many(struct thread *t, struct op *op, u32 opi, const struct pawl_op *d)
{
	u32 total = d->nreads + d->nwrites, n = 0, ext, j;
	struct dep *deps;
	int rc;

	if (total < d->nreads)
		return err(-E2BIG, "push: %u reads and %u writes in one op", d->nreads,
			   d->nwrites);
	/* Sort in the chunk itself, which may turn out larger than needed. */
	rc = ext_get(t, total, opi, &ext);
	if (rc)
		return rc;
	store_helped(&op->ext, ext);
	deps = ext_of(t->e, ext)->deps;
	rc = deps_from(t, deps, d, &n, "push");
	if (rc) {
		ext_put(t, op->ext);
		return rc;
	}
	if (n <= INLINE_DEPS) {
		for (j = 0; j < n; j++)
			dep_copy(&op->deps[j], &deps[j]);
		ext_put(t, op->ext);
	}
	store_helped16(&op->ndeps, (u16)n);
	rc = op_blocks(t, op);
	if (rc) {
		if (n > INLINE_DEPS)
			ext_put(t, op->ext);
		store_helped16(&op->ndeps, 0);
	}
	return rc;
}
