/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads of the system, layer 0: as pthread_*() each.  PAWL_MODEL: threads of the
 * controlled scheduler, which also gives each its own copy of __thread variables.
 */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>
#include <sched.h>
#include <base/compiler.h>

#ifdef PAWL_MODEL

typedef u32 os_thread;
int os_thread_create(os_thread *t, void *(*fn)(void *), void *arg);
void os_thread_join(os_thread t);
void os_thread_name(const char *name);
void os_thread_yield(void);
int os_key_create(pthread_key_t *key, void (*exit)(void *));
int os_key_set(pthread_key_t key, const void *value);

#else

typedef pthread_t os_thread;

static inline int os_thread_create(os_thread *t, void *(*fn)(void *), void *arg)
{
	return pthread_create(t, NULL, fn, arg);
}

static inline void os_thread_join(os_thread t)
{
	pthread_join(t, NULL);
}

/* Of the calling thread; at most 15 bytes. */
static inline void os_thread_name(const char *name)
{
	pthread_setname_np(pthread_self(), name);
}

/* In a loop that waits long for another thread. */
static inline void os_thread_yield(void)
{
	sched_yield();
}

static inline int os_key_create(pthread_key_t *key, void (*exit)(void *))
{
	return pthread_key_create(key, exit);
}

/* NULL: the key's function is not called at the end of this thread. */
static inline int os_key_set(pthread_key_t key, const void *value)
{
	return pthread_setspecific(key, value);
}

#endif /* !PAWL_MODEL */
#endif
