// SPDX-License-Identifier: Apache-2.0
/*
 * Threads in an engine.
 *
 * Purpose: any thread may call the engine at any time; its first call allocates a slot
 * (caches, descriptor, rings), and its exit or pawl_thread_detach() frees the slot.
 *
 * Structures: a pool of struct thread, whose indexes are the slots; per calling thread a list
 * of tls_entry, one per engine that it used, with the last one cached in thread_last.
 *
 * Lifetime: a slot's object exists as long as the engine, so a thread with a stale slot
 * number reads an object of the right type.  Its push number continues under the next user.
 * A thread may end before or after the engine is destroyed: the two agree by one CAS on the
 * entry's state (ATTACHED -> EXITING by the thread, -> ORPHANED by the engine).  Entries are
 * recycled through a list of the process and are never returned to the C library, so an
 * engine may read one that its thread has just left; the state contains the engine's id, so
 * an entry of another engine is not mistaken for its own.
 *
 * Progress: thread_get() is wait-free after the first call; a slot is taken or left
 * lock-free.  The first call allocates and may touch fresh memory.
 */
#include <stdlib.h>
#include <string.h>
#include <base/thread.h>
#include <unistd.h>
#include <core/batch.h>
#include <core/publish.h>
#include <core/readmostly.h>
#include <core/record.h>
#include <core/trace.h>
#include <core/wait.h>

enum { ENTRY_ATTACHED, ENTRY_EXITING, ENTRY_ORPHANED, ENTRY_GONE };

struct tls_entry {
	struct tls_entry *next;	/* O */
	u64 id;			/* O */
	struct thread *t;	/* O */
	u64 state;		/* A: engine id << 3 | ENTRY_* */
	u64 free_next;		/* A: next in the list of the process */
	ck_stack_entry_t all;	/* I: every entry, so that a search for leaks finds it */
};

static u64 entry_state(u64 id, u64 st)
{
	return id << 3 | st;
}

__thread struct thread_tls thread_last;
static __thread struct tls_entry *thread_entries;
static u64 thread_key;		/* A: the process's key plus 1; 0: none yet */
static u32 thread_forks;	/* A: the fork handler is registered */
static u32 thread_pid;		/* A: the process to which pawl_fork_gen belongs */
static u32 thread_forking;	/* A: set before a fork, cleared in the child */
u32 pawl_fork_gen;

/*
 * A stack of free entries: val is the address of the first one.  The tag counts all changes in
 * 64 bits, so it never repeats, however long a thread was stopped.
 */
static struct pair free_entries;
static ck_stack_t all_entries;	/* never read */

static inline u64 entries_next_tag(const struct pair *head)
{
	if (BUSTED(ENTRY_ABA))
		return head->tag;
	return head->tag + 1;
}

/* If the two loads tear, the CAS fails and loads a consistent pair. */
static void entry_put(struct tls_entry *en)
{
	struct pair head = { load_relaxed(&free_entries.tag), load_relaxed(&free_entries.val) };
	struct pair new;

	do {
		store_relaxed(&en->free_next, head.val);
		new = (struct pair){ entries_next_tag(&head), (u64)(uintptr_t)en };
	} while (!pair_cas_acq_rel(&free_entries, &head, new));	/* CORE-T11 <-> CORE-T12 */
}

static struct tls_entry *entry_new(void)
{
	/* CORE-T12 <-> CORE-T11: next must not be older than head, or an entry is used twice. */
	struct pair head = { load_acquire(&free_entries.tag), load_acquire(&free_entries.val) };
	struct pair new;
	struct tls_entry *en;

	while ((en = (struct tls_entry *)(uintptr_t)head.val)) {
		new = (struct pair){ entries_next_tag(&head), load_relaxed(&en->free_next) };
		if (pair_cas_acq_rel(&free_entries, &head, new))	/* CORE-T12 <-> CORE-T11 */
			return en;
	}
	en = calloc(1, sizeof(*en));
	if (en)
		ck_stack_push_upmc(&all_entries, &en->all);
	return en;
}

static void fork_prepare(void)
{
	store_relaxed(&thread_forking, 1);
}

/*
 * The child has one thread, so no order is needed.  Its next call enters again.  If the handler
 * is registered twice, the second call does nothing: a handler of the program may have run
 * between the two and created an engine, which belongs to the child.
 */
static void fork_child(void)
{
	if (!load_relaxed(&thread_forking))
		return;
	store_relaxed(&thread_forking, 0);
	thread_last.id = 0;
	if (!BUSTED(FORK_FORGOTTEN))
		store_relaxed(&pawl_fork_gen, pawl_fork_gen + 1);
	store_relaxed(&thread_pid, (u32)getpid());
	record_fork_child();
	publish_fork_child();
	trace_fork_child();
}

/*
 * Fork handlers of the child run in the order of their registration.  One that was registered
 * before the first engine was created runs before ours, when pawl_fork_gen is still the
 * parent's.
 */
int fork_check(void)
{
	u32 pid = load_relaxed(&thread_pid);

	if (likely(!pid || pid == (u32)getpid()))
		return 0;
	return err(-EOWNERDEAD, "in the child of fork(), before libpawl's own fork handler has run");
}

/* Magazines of this pool have one object, so the caches are empty before and after. */
static bool slot_take(struct pawl_engine *e, u32 *slot)
{
	struct pool_cache c = { 0 };
	u32 idx;

	if (!pool_get(e->pool[POOL_THREAD], &c, &idx))
		return false;
	*slot = idx - 1;
	return true;
}

/* The slot's next user sees what the last one wrote. */
static void slot_leave(struct pawl_engine *e, u32 slot)
{
	struct pool_cache c = { 0 };

	pool_put(e->pool[POOL_THREAD], &c, slot + 1);
	pool_cache_flush(e->pool[POOL_THREAD], &c);
}

/* Reset a counter and add its value to the engine's sum. */
static void count_keep(u64 *counter, u64 *gone)
{
	u64 n = load_relaxed(counter);

	store_relaxed(counter, (u64)0);
	fetch_add_relaxed(gone, n);
}

/*
 * Move the thread's counters to the engine's sums.  Another thread may add them up meanwhile
 * (ops_in_flight()): it may miss completions and count pushes twice, but must not count
 * completions twice or miss pushes.  Therefore completions are added to the engine's sum after
 * the slot's counter is reset, and pushes before.
 */
static void live_leave(struct thread *t)
{
	struct pawl_engine *e = t->e;
	u64 n = t->completed;

	count_keep(&t->failed, &e->gone.failed);
	count_keep(&t->skipped, &e->gone.skipped);
	count_keep(&t->inlined, &e->gone.inlined);
	count_keep(&t->records, &e->gone.records);
	count_keep(&t->helps, &e->gone.helps);
	if (BUSTED(LEAVE_COUNTED_TWICE))
		fetch_add_relaxed(&e->gone.completed, n);
	store_relaxed(&t->completed, (u64)0);
	if (!BUSTED(LEAVE_COUNTED_TWICE))
		fetch_add_release(&e->gone.completed, n);	/* CORE-N11 <-> CORE-N12 */
	n = t->freed;
	store_relaxed(&t->freed, (u64)0);
	fetch_add_release(&e->gone.freed, n);		/* CORE-N11 <-> CORE-N12 */
	n = t->pushed;
	fetch_add_relaxed(&e->gone.pushed, n);
	store_release(&t->pushed, (u64)0);		/* CORE-N9 <-> CORE-N10 */
	n = t->taken;
	fetch_add_relaxed(&e->gone.taken, n);
	store_release(&t->taken, (u64)0);		/* CORE-N9 <-> CORE-N10 */
	count_keep(&t->unreaped, &e->gone.unreaped);
	/* CORE-N9 <-> CORE-N10 */
	fetch_and_acq_rel(&e->live[t->slot / 64], ~(1ull << t->slot % 64));
}

static struct thread *slot_user(struct pawl_engine *e, struct tls_entry *entry)
{
	struct thread *t;
	u32 slot, words = 0;

	if (!slot_take(e, &slot)) {
		thread_last.code = slots_used(e) < e->max_threads ?
			err(-ENOMEM, "no memory for a thread's first call") :
			err(-EUSERS, "more than %u threads are inside the engine (max_threads)",
			    e->max_threads);
		return NULL;
	}
	t = thread_of(e, slot);
	t->e = e;
	t->slot = slot;
	t->depth = 0;
	t->next_check = 0;
	t->level = 0;
	store_relaxed(&t->user, load_relaxed(&t->user) + 1);
	while (words <= slot / 64 && !cas_relaxed(&e->live_words, &words, slot / 64 + 1))
		;
	/* Before its first push: a thread that learns of its pushes sees the bit, too. */
	fetch_or_relaxed(&e->live[slot / 64], 1ull << slot % 64);
	if (exec_thread_init(e->x, &t->ex, slot)) {
		live_leave(t);
		slot_leave(e, slot);
		thread_last.code = err(-ENOMEM, "no memory for a thread's run queues");
		return NULL;
	}
	/* CORE-T5 <-> CORE-T6: threads_fini() finds the entry initialized. */
	store_release(&t->entry, entry);
	return t;
}

/* The thread leaves the engine: its ready work, caches and counters are handed over. */
static void thread_leave(struct thread *t)
{
	struct pawl_engine *e = t->e;
	u32 i;

	batch_exit(t);
	wait_exit(t);
	exec_thread_fini(e->x, &t->ex);
	for (i = 0; i < POOLS; i++)
		pool_cache_flush(e->pool[i], &t->cache[i]);
	live_leave(t);
	/* A sum that was made meanwhile may have missed completions. */
	flight_check(t);
	/* The next user of the slot replaces this thread's entry, for which threads_fini() waits. */
	fetch_add_relaxed(&e->leaving, 1);
	if (!BUSTED(SLOT_KEPT))
		slot_leave(e, t->slot);
	exec_slot_freed(e->x);
	fetch_add_release(&e->leaving, -1u);	/* CORE-T20 <-> CORE-T21 */
}

/* Returns true if the thread comes first, and false if the engine did. */
static bool entry_exiting(struct tls_entry *en)
{
	u64 st = entry_state(en->id, ENTRY_ATTACHED);

	/*
	 * CORE-T7 <-> CORE-T8: either the thread or the engine comes first.  If the engine
	 * did, its last access to the entry is before the entry's next use.  Acquire is needed
	 * for that failure only: ATTACHED is the thread's own store, and an engine that reads
	 * EXITING waits for GONE.
	 */
	return cas_acquire(&en->state, &st, entry_state(en->id, ENTRY_EXITING));
}

/* The calling thread leaves the engine of an entry that it has taken off its list. */
static void entry_leave(struct tls_entry *en)
{
	if (entry_exiting(en)) {
		if (en->t->e->fork_gen == load_relaxed(&pawl_fork_gen)) {
			thread_last.id = en->id;
			thread_last.t = en->t;
			thread_leave(en->t);
		}
		/* CORE-T9 <-> CORE-T10: the engine may be freed now. */
		store_release(&en->state, entry_state(en->id, ENTRY_GONE));
	}
	entry_put(en);
	thread_last.id = 0;
	thread_last.t = NULL;
}

static void thread_exit_hook(void *arg)
{
	struct tls_entry *en = thread_entries, *next;

	thread_entries = NULL;
	for (; en; en = next) {
		next = en->next;
		entry_leave(en);
	}
}

/*
 * Create the key and register the fork handler, once per process.  After a failure the next
 * engine tries again.  If two threads do it at once, a key stays unused, or the handler runs
 * twice, both harmless.  The orders are for thread_pid, and for the C library's data about the
 * key and the handler.
 */
int thread_setup(void)
{
	u64 none = load_acquire(&thread_key);	/* CORE-T14 <-> CORE-T13 */
	pthread_key_t key;
	int rc;

	if (!none) {
		rc = os_key_create(&key, thread_exit_hook);
		if (rc)
			return err(-EAGAIN, "no thread-specific data key is free");
		/* CORE-T13 <-> CORE-T14 */
		cas_acq_rel_acquire(&thread_key, &none, (u64)key + 1);
	}
	if (load_acquire(&thread_forks))	/* CORE-T19 <-> CORE-T18 */
		return 0;
	if (pthread_atfork(fork_prepare, NULL, fork_child))
		return err(-ENOMEM, "no memory for a fork handler");
	store_relaxed(&thread_pid, (u32)getpid());
	store_release(&thread_forks, 1);	/* CORE-T18 <-> CORE-T19 */
	return 0;
}

/* Free the entries of destroyed engines: the thread is the second of the two that agree. */
static void entries_clean(void)
{
	struct tls_entry **p = &thread_entries, *en;

	while ((en = *p)) {
		/* CORE-T7 <-> CORE-T8 */
		if (load_acquire(&en->state) == entry_state(en->id, ENTRY_ORPHANED)) {
			*p = en->next;
			entry_put(en);
		} else {
			p = &en->next;
		}
	}
}

/* 0, or the error if this process did not create the engine. */
static int parents_check(const struct pawl_engine *e)
{
	if (likely(e->fork_gen == load_relaxed(&pawl_fork_gen)))
		return 0;
	return err(-EOWNERDEAD, "the engine belongs to the parent of this process; only destroy it");
}

struct thread *thread_enter(struct pawl_engine *e)
{
	struct tls_entry *en;
	struct thread *t;

	thread_last.code = parents_check(e);
	if (thread_last.code)
		return NULL;
	for (en = thread_entries; en; en = en->next) {
		if (en->id == e->id) {
			thread_last.id = en->id;
			thread_last.t = en->t;
			return en->t;
		}
	}
	entries_clean();
	/* The hook runs if the value is not NULL.  CORE-T14 <-> CORE-T13 */
	if (os_key_set((pthread_key_t)(load_acquire(&thread_key) - 1), &thread_key)) {
		thread_last.code = err(-ENOMEM, "no memory for thread-specific data");
		return NULL;
	}
	en = entry_new();
	if (!en) {
		thread_last.code = err(-ENOMEM, "no memory for a thread's first call");
		return NULL;
	}
	en->id = e->id;
	/*
	 * CORE-T15 <-> CORE-T8: a free slot may still refer to this entry.  If threads_fini()
	 * finds it there, it sees that the slot's thread has left.
	 */
	store_release(&en->state, entry_state(en->id, ENTRY_ATTACHED));
	t = slot_user(e, en);
	if (!t) {
		entry_put(en);
		return NULL;
	}
	en->t = t;
	en->next = thread_entries;
	thread_entries = en;
	thread_last.id = e->id;
	thread_last.t = t;
	return t;
}

/* Write to each page of a thread's own memory, so that no page fault comes later. */
static void memory_touch(char *p, size_t bytes)
{
	size_t i;

	for (i = 0; i < bytes; i += CACHELINE)
		page_touch(p + i);
}

/* Progress: as a thread's first call.  Without prefault the pools' pages fault later. */
int thread_reserve(struct thread *t)
{
	struct pawl_engine *e = t->e;
	if (exec_thread_reserve(e->x, &t->ex, e->cfg.prefault ? e->pool[POOL_OP]->max : 0))
		return err(-ENOMEM, "no memory for a thread's run queues");
	if (e->cfg.prefault)
		memory_touch((char *)t, THREAD_SIZE);
	return 0;
}

int pawl_thread_attach(struct pawl_engine *e)
{
	struct thread *t = thread_get(e);

	return unlikely(!t) ? thread_last.code : thread_reserve(t);
}
PAWL_EXPORT(pawl_thread_attach);

int pawl_thread_detach(struct pawl_engine *e)
{
	struct tls_entry **p = &thread_entries, *en;
	int rc = parents_check(e);

	if (rc)
		return rc;
	while ((en = *p) && en->id != e->id)
		p = &en->next;
	if (!en)
		return 0;
	if (en->t->depth || thread_last.callbacks)
		return err(-EDEADLK, "thread_detach: from inside an op, or a function that the engine calls");
	*p = en->next;
	entry_leave(en);
	return 0;
}
PAWL_EXPORT(pawl_thread_detach);

int threads_init(struct pawl_engine *e)
{
	int rc = fork_check();

	if (!rc)
		rc = thread_setup();
	if (rc)
		return rc;
	e->fork_gen = load_relaxed(&pawl_fork_gen);
	e->live = calloc((e->max_threads + 63) / 64, sizeof(*e->live));
	return e->live ? 0 : err(-ENOMEM, "no memory for %u thread slots", e->max_threads);
}

/* Wait for a thread that is leaving: a bounded piece of its work. */
static void entry_await(struct pawl_engine *e, struct tls_entry *en, u64 st)
{
	while (st == entry_state(e->id, ENTRY_EXITING)) {
		cpu_relax();
		st = load_acquire(&en->state);	/* CORE-T10 <-> CORE-T9 */
	}
}

/* The engine is destroyed.  No thread is inside it: contract of pawl_engine_destroy(). */
void threads_fini(struct pawl_engine *e)
{
	u32 i, n = e->live ? slots_used(e) : 0;

	for (i = 0; i < n; i++) {
		/* CORE-T6 <-> CORE-T5 */
		struct tls_entry *en = load_acquire(&thread_of(e, i)->entry);
		u64 st = entry_state(e->id, ENTRY_ATTACHED);

		if (en) {
			/* CORE-T8 <-> CORE-T7, CORE-T15; a failure may load GONE: CORE-T10 */
			cas_acq_rel_acquire(&en->state, &st,
					    entry_state(e->id, ENTRY_ORPHANED));
			entry_await(e, en, st);
		}
		batch_exit(thread_of(e, i));
		wait_exit(thread_of(e, i));
	}
	while (load_acquire(&e->leaving))	/* CORE-T21 <-> CORE-T20 */
		cpu_relax();
	free(e->live);
	e->live = NULL;
	entries_clean();
	if (thread_last.id == e->id)
		thread_last.id = 0;
}

/* In a child of fork(): its only thread drops its entry of the engine. */
void threads_forget(struct pawl_engine *e)
{
	struct tls_entry *en;

	for (en = thread_entries; en; en = en->next)
		if (en->id == e->id)
			store_relaxed(&en->state, entry_state(e->id, ENTRY_ORPHANED));
	if (thread_last.id == e->id)
		thread_last.id = 0;
	entries_clean();
}
