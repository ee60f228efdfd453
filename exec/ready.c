// SPDX-License-Identifier: Apache-2.0
/*
 * Purpose: a file descriptor is readable while there is work for exec_take(), for a host that
 * sleeps in its own event loop.
 *
 * Structures: an eventfd, which is one more sleeper of the helpers (park.c) while it is armed.
 * `armed` says that the next push has to write it.  `written` counts the writes that were begun
 * and not cleared: it is incremented before the write, and a read returns the number of writes
 * that it cleared.  So it is not 0 while the eventfd is readable, or will become readable by a
 * pusher that was stopped.
 *
 *	armed 0 -> 1	exec_take_ready() found nothing: counted in helpers.attn before
 *	armed 1 -> 0	ready_wake(): a pusher, which then writes the eventfd
 *
 * Ordering: no wake-up is lost, as for a sleeper, with `armed` instead of attn.
 *
 *	pusher                                  exec_take_ready()
 *	EXEC-E1 publish the work (seq_cst)      clear the eventfd, armed = 1
 *	    load armed (seq_cst)                EXEC-E2 smp_mb(); take again
 *
 * Bad outcome: the pusher reads 0, and the second take misses the work.  Whichever of the load
 * and the barrier is first in the total order, one of the two sees the other's store.
 *
 * A thread that finds work by its second take has cleared the eventfd, and other work may be
 * left: it writes the eventfd again, unless a pusher has done so.
 *
 * Progress: lock-free, and one system call when the queues turn from empty to not empty.
 *
 * Lifetime: the eventfd stays until the executor is destroyed.
 */
#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <exec/internal.h>

/* Kept out of line: check-calls ends here. */
static __noinline void ready_write(struct exec *x, int fd)
{
	u64 one = 1;

	/* Relaxed: a thread that finds the eventfd readable finds the count, too. */
	fetch_add_relaxed(&x->ready_written, 1);
	(void)!write(fd, &one, sizeof(one));
}

static __noinline void ready_clear(struct exec *x, int fd)
{
	u64 sum;

	if (read(fd, &sum, sizeof(sum)) > 0)
		fetch_add_relaxed(&x->ready_written, -(u32)sum);
}

/*
 * Work was published, followed by the caller's barrier.  Returns true if this call signals the
 * host.  Progress: wait-free, and a system call.
 */
bool ready_wake(struct exec *x)
{
	if (BUSTED(READY_FORGOTTEN))
		return false;
	/* EXEC-E1 <-> EXEC-E2 */
	if (!load_seq_cst(&x->ready_armed) ||
	    !xchg_acquire(&x->ready_armed, 0))	/* EXEC-E3 <-> EXEC-E4: the descriptor */
		return false;
	fetch_add_relaxed(&x->helpers.attn, -1u);
	ready_write(x, (int)load_relaxed(&x->ready_fd) - 1);
	return true;
}

u32 exec_take_ready(struct exec *x, struct exec_thread *t)
{
	u32 work = exec_take(x, t);

	if (likely(work || !load_acquire(&x->ready_fd)))	/* EXEC-E6 <-> EXEC-E5 */
		return work;
	if (load_relaxed(&x->ready_written))
		ready_clear(x, (int)load_relaxed(&x->ready_fd) - 1);
	if (!load_relaxed(&x->ready_armed)) {
		/* Counted before: a pusher that disarms it takes the count back. */
		fetch_add_relaxed(&x->helpers.attn, 1);
		if (xchg_release(&x->ready_armed, 1))	/* EXEC-E4 <-> EXEC-E3 */
			fetch_add_relaxed(&x->helpers.attn, -1u);
	}
	if (!BUSTED(READY_NO_MB))
		smp_mb();	/* EXEC-E2 <-> EXEC-E1 */
	work = exec_take(x, t);
	if (unlikely(work))
		ready_wake(x);
	return work;
}

int exec_ready_fd(struct exec *x)
{
	u32 none = load_acquire(&x->ready_fd);		/* EXEC-E6 <-> EXEC-E5 */
	int fd;

	if (none)
		return (int)none - 1;
	fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	/* EXEC-E5 <-> EXEC-E6 */
	if (!cas_acq_rel_acquire(&x->ready_fd, &none, (u32)fd + 1)) {
		close(fd);
		return (int)none - 1;
	}
	/* Work may be queued already. */
	ready_write(x, fd);
	return fd;
}
