// SPDX-License-Identifier: Apache-2.0
/*
 * Small objects of a few sizes, from and to any thread, without a lock.
 *
 * Purpose: allocates the objects for bodies, vars and operators.  malloc() takes locks.  Also,
 * since memory here keeps its type, all objects can be visited after a fork, and an old
 * pointer to a freed object is detected.
 *
 * Structures: each thread has a list per pool; lists of MX_BATCH objects move to and from a
 * stack of lists.  Memory is allocated in chunks, which are kept until the process ends.
 *
 * Ordering:
 *   COMPAT-P1 (list pushed, CAS) <-> COMPAT-P2 (list taken): the links inside the list.
 *   COMPAT-P3 (chunk published) <-> COMPAT-P4 (walk): the objects' memory.
 *
 * Progress: lock-free; a new chunk calls the C library's allocator.
 *
 * Lifetime: a head is a pointer and a tag of 64 bits, which counts the changes of the stack and
 * excludes ABA: a list that was taken and pushed again has another tag.
 */
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <compat/internal.h>

#define MX_BATCH	64u
#define MX_CHUNK	512u

struct chunk {
	ck_stack_entry_t link;	/* I */
	char *objs;		/* I */
};

static const u32 sizes[MX_POOLS] = {
	[MX_CALLS] = sizeof(struct mx_call),
	[MX_VARS] = sizeof(struct pawl_mx_var),
	[MX_OPRS] = sizeof(struct pawl_mx_opr),
};

/* Offset of the node in an object; 0 except for vars. */
static const u32 node_at[MX_POOLS] = {
	[MX_VARS] = offsetof(struct pawl_mx_var, node),
};

/* Of lists. */
static struct {
	struct pair head __cacheline_aligned;	/* A: the tag, and the pointer as val */
} stacks[MX_POOLS];
static ck_stack_t chunks[MX_POOLS];
CK_STACK_CONTAINER(struct chunk, link, chunk_of)

struct cache {
	void *head;
	u32 n;
};

static __thread struct cache caches[MX_POOLS];
static __thread bool registered;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool have_key;

static struct mx_node *node_of(u64 next)
{
	return (struct mx_node *)(uintptr_t)next;
}

/* The value is the one that belongs to the tag, or a compare-and-swap with it fails. */
static struct pair stack_read(int pool)
{
	struct pair was;

	was.tag = load_acquire(&stacks[pool].head.tag);	/* COMPAT-P2 <-> COMPAT-P1 */
	was.val = load_acquire(&stacks[pool].head.val);	/* COMPAT-P2 <-> COMPAT-P1 */
	return was;
}

static void list_push(int pool, void *head)
{
	struct pair was = stack_read(pool), new = { .val = (u64)(uintptr_t)head };
	struct mx_node *l = head;

	do {
		store_relaxed(&l->next_list, was.val);
		new.tag = was.tag + 1;
		/* COMPAT-P1 <-> COMPAT-P2 */
	} while (!pair_cas_acq_rel(&stacks[pool].head, &was, new));
}

static void *list_pop(int pool)
{
	struct pair was = stack_read(pool), new;
	struct mx_node *l;

	while ((l = node_of(was.val))) {
		new.tag = was.tag + 1;
		/* Another list's, if another thread took this one meanwhile. */
		new.val = load_relaxed(&l->next_list);
		if (pair_cas_acq_rel(&stacks[pool].head, &was, new))	/* COMPAT-P2 <-> COMPAT-P1 */
			return l;
	}
	return NULL;
}

/* The thread ends: return its objects to the stacks. */
static void caches_exit(void *arg)
{
	int i;

	for (i = 0; i < MX_POOLS; i++) {
		if (caches[i].head)
			list_push(i, caches[i].head);
		caches[i].head = NULL;
		caches[i].n = 0;
	}
	registered = false;
}

static void key_make(void)
{
	have_key = !pthread_key_create(&key, caches_exit);
}

/* Without a key, or memory for it, an ending thread loses up to two lists per pool. */
static __noinline void thread_register(void)
{
	registered = true;
	pthread_once(&once, key_make);
	if (have_key)
		pthread_setspecific(key, &key);
}

static struct mx_node *chunk_new(int pool)
{
	u32 size = sizes[pool], i;
	struct chunk *c = malloc(sizeof(*c));
	char *objs = c ? aligned_alloc(64, (size_t)size * MX_CHUNK) : NULL, *nodes;

	if (!objs) {
		free(c);
		return NULL;
	}
	memset(objs, 0, (size_t)size * MX_CHUNK);
	nodes = objs + node_at[pool];
	for (i = 0; i + 1 < MX_CHUNK; i++)
		((struct mx_node *)(void *)(nodes + (size_t)i * size))->next =
			(u64)(uintptr_t)(nodes + (size_t)(i + 1) * size);
	c->objs = objs;
	ck_stack_push_upmc(&chunks[pool], &c->link);	/* COMPAT-P3 <-> COMPAT-P4 */
	return (struct mx_node *)(void *)nodes;
}

static __noinline struct mx_node *refill(int pool)
{
	struct mx_node *head = list_pop(pool);

	if (!registered)
		thread_register();
	return head ? head : chunk_new(pool);
}

void *mx_pool_get(int pool)
{
	struct cache *c = &caches[pool];
	struct mx_node *node = c->head;

	if (unlikely(!node)) {
		node = refill(pool);
		if (!node)
			return NULL;
		c->n = 0;
	}
	c->head = node_of(node->next);
	c->n -= !!c->n;
	return (char *)node - node_at[pool];
}

/* The thread has freed more objects than it should keep: return a list to the stack. */
static __noinline void spill(int pool, struct cache *c)
{
	struct mx_node *last = c->head;
	void *head = c->head;
	u32 i;

	for (i = 1; i < MX_BATCH; i++)
		last = node_of(last->next);
	c->head = node_of(last->next);
	c->n -= MX_BATCH;
	last->next = 0;
	list_push(pool, head);
}

void mx_pool_put(int pool, void *obj)
{
	struct cache *c = &caches[pool];
	struct mx_node *node = (struct mx_node *)(void *)((char *)obj + node_at[pool]);

	if (unlikely(!registered))
		thread_register();
	node->next = (u64)(uintptr_t)c->head;
	c->head = node;
	if (unlikely(++c->n >= 2 * MX_BATCH))
		spill(pool, c);
}

void mx_pool_each(int pool, void (*fn)(void *obj, void *arg), void *arg)
{
	ck_stack_entry_t *c = load_acquire(&chunks[pool].head);	/* COMPAT-P4 <-> COMPAT-P3 */
	u32 i;

	for (; c; c = c->next)
		for (i = 0; i < MX_CHUNK; i++)
			fn(chunk_of(c)->objs + (size_t)i * sizes[pool], arg);
}
