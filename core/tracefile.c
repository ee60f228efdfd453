// SPDX-License-Identifier: Apache-2.0
/*
 * PAWL_TRACE=file: each engine of the process is traced from its creation to its end, or to the
 * end of the program.  The first engine writes the file; others, and other processes that
 * inherit the variable, find it and write one beside it.
 *
 * Ordering: CORE-S7 (unlock, release) <-> CORE-S8 (lock): the list of traced engines.
 *
 * Progress: blocking: creation and end of engines.
 */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
#include <base/futex.h>
#include <core/thread.h>
#include <core/trace.h>

#define TRACE_EVENTS	65536u
#define TRACE_PATH	4096u

static u32 lock;			/* A, futex */
static struct pawl_engine *traced;	/* W(lock) */

static void trace_lock(void)
{
	while (xchg_acq_rel(&lock, 1))	/* CORE-S8 <-> CORE-S7 */
		futex_wait(&lock, 1, 0);
}

static void trace_unlock(void)
{
	store_release(&lock, 0);	/* CORE-S7 <-> CORE-S8 */
	futex_wake(&lock);
}

/* Create the file, or a new one whose name has the numbers of the process and the engine. */
static int file_create(const struct pawl_engine *e, const char *path)
{
	const char *base = strrchr(path, '/'), *dot = strrchr(base ? base : path, '.');
	int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, fd = open(path, flags, 0600), n;
	size_t len = dot && dot > path && dot != (base ? base + 1 : path) ?
		     (size_t)(dot - path) : strlen(path);
	char other[TRACE_PATH];

	if (fd >= 0 || errno != EEXIST)
		return fd;
	n = snprintf(other, sizeof(other), "%.*s-%d-%llu%s", (int)len, path, (int)getpid(),
		     (unsigned long long)e->id, path + len);
	if (n < 0 || (size_t)n >= sizeof(other)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	return open(other, flags, 0600);
}

void trace_begin_env(struct pawl_engine *e)
{
	const char *path = secure_getenv("PAWL_TRACE"), *most = secure_getenv("PAWL_TRACE_EVENTS");
	unsigned long n = most ? strtoul(most, NULL, 10) : 0;
	int fd;

	if (!path || !*path)
		return;
	fd = file_create(e, path);
	if (fd < 0) {
		fprintf(stderr, "pawl: PAWL_TRACE: %s: %s; the engine is not traced\n", path,
			strerror(errno));
		return;
	}
	if (pawl_trace_start(e, n && n <= 1u << 24 ? (unsigned int)n : TRACE_EVENTS)) {
		fprintf(stderr, "pawl: PAWL_TRACE: %s\n", err_text());
		close(fd);
		return;
	}
	e->trace_fd = fd + 1;
	trace_lock();
	e->next_traced = traced;
	traced = e;
	trace_unlock();
}

static void trace_finish(struct pawl_engine *e)
{
	int fd = e->trace_fd - 1;

	e->trace_fd = 0;
	pawl_trace_stop(e);
	if (trace_write_fd(e, fd))
		fprintf(stderr, "pawl: PAWL_TRACE: %s\n", err_text());
}

void trace_end_env(struct pawl_engine *e)
{
	struct pawl_engine **p = &traced;

	if (!e->trace_fd)
		return;
	trace_lock();
	while (*p && *p != e)
		p = &(*p)->next_traced;
	if (*p)
		*p = e->next_traced;
	trace_unlock();
	trace_finish(e);
}

/* The child has one thread.  The files are its parent's. */
void trace_fork_child(void)
{
	struct pawl_engine *e;

	for (e = traced; e; e = e->next_traced)
		close(e->trace_fd - 1);
	traced = NULL;
	store_relaxed(&lock, 0);
}

/* The program ends with engines that it has not destroyed. */
__attribute__((destructor)) static void trace_fini(void)
{
	struct pawl_engine *e;

	trace_lock();
	while ((e = traced)) {
		traced = e->next_traced;
		trace_finish(e);
	}
	trace_unlock();
}
