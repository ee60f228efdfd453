/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads of the system, layer 0: each call is the pthread_*() of that name.  Under PAWL_SIM
 * they are threads of a simulator, which also gives each thread its own copy of the __thread
 * variables.
 */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <base/compiler.h>

/* The attributes of a new thread. */
struct os_thread_attr {
	size_t stack;		/* bytes; 0: the C library's default */
	int policy, priority;	/* scheduling; policy -1: as its creator */
	const cpu_set_t *cpus;	/* CPUs on which it may run; NULL: as its creator */
};

#ifdef PAWL_SIM

typedef u32 os_thread;
int os_thread_create(os_thread *t, void *(*fn)(void *), void *arg);
static inline int os_thread_start(os_thread *t, const struct os_thread_attr *a, void *(*fn)(void *),
				  void *arg)
{
	return os_thread_create(t, fn, arg);
}
static inline void os_signals_block(sigset_t *before)
{
}
static inline void os_signals_restore(const sigset_t *before)
{
}
void os_thread_join(os_thread t);
void os_thread_name(const char *name);
void os_thread_yield(void);
int os_key_create(pthread_key_t *key, void (*exit)(void *));
int os_key_set(pthread_key_t key, const void *value);

#else

typedef pthread_t os_thread;

/*
 * A thread of the library must not take signals that the program expects on its own threads,
 * so it blocks them.  Fault signals stay open: they belong to the thread that faults, and for
 * a blocked one the kernel kills the process without calling the program's handler, so a crash
 * in a body would leave no report.
 */
static inline void os_signals_block(sigset_t *before)
{
	static const int faults[] = {
		SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS, SIGABRT,
	};
	sigset_t blocked;
	u32 i;

	sigfillset(&blocked);
	for (i = 0; i < ARRAY_SIZE(faults); i++)
		sigdelset(&blocked, faults[i]);
	pthread_sigmask(SIG_SETMASK, &blocked, before);
}

static inline void os_signals_restore(const sigset_t *before)
{
	pthread_sigmask(SIG_SETMASK, before, NULL);
}

/* Returns 0 or the errno of pthread_create(3). */
static inline int os_thread_start(os_thread *t, const struct os_thread_attr *a, void *(*fn)(void *),
				  void *arg)
{
	struct sched_param sp = { .sched_priority = a->priority };
	pthread_attr_t attr;
	sigset_t before;
	int rc = pthread_attr_init(&attr);

	if (rc)
		return rc;
	if (a->stack)
		rc = pthread_attr_setstacksize(&attr, a->stack);
	if (!rc && a->policy >= 0) {
		pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
		rc = pthread_attr_setschedpolicy(&attr, a->policy);
		if (!rc)
			rc = pthread_attr_setschedparam(&attr, &sp);
	}
	if (!rc && a->cpus)
		rc = pthread_attr_setaffinity_np(&attr, sizeof(*a->cpus), a->cpus);
	if (!rc) {
		os_signals_block(&before);
		rc = pthread_create(t, &attr, fn, arg);
		os_signals_restore(&before);
	}
	pthread_attr_destroy(&attr);
	return rc;
}

static inline void os_thread_join(os_thread t)
{
	pthread_join(t, NULL);
}

/* Name the calling thread; at most 15 bytes. */
static inline void os_thread_name(const char *name)
{
	pthread_setname_np(pthread_self(), name);
}

/* For loops that wait a long time for another thread. */
static inline void os_thread_yield(void)
{
	sched_yield();
}

static inline int os_key_create(pthread_key_t *key, void (*exit)(void *))
{
	return pthread_key_create(key, exit);
}

/* With NULL the key's function is not called at the end of this thread. */
static inline int os_key_set(pthread_key_t key, const void *value)
{
	return pthread_setspecific(key, value);
}

#endif /* !PAWL_SIM */
#endif
