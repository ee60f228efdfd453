/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Included before every source of the library in this build: memory comes from the simulator,
 * which knows whose it is, and copies of whole objects are accesses.
 */
#ifndef CORES_SHIM_H
#define CORES_SHIM_H

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void *sim_alloc(const char *who, size_t n);
void *sim_realloc(const char *who, void *p, size_t n);
void sim_free(void *p);
void *sim_memset(void *p, int c, size_t n);
void *sim_memcpy(void *to, const void *from, size_t n);
ssize_t sim_write(int fd, const void *from, size_t n);

#define malloc(n)		sim_alloc(__func__, n)
#define calloc(n, m)		sim_alloc(__func__, (size_t)(n) * (m))
#define aligned_alloc(a, n)	sim_alloc(__func__, n)
#define realloc(p, n)		sim_realloc(__func__, p, n)
#define free(p)			sim_free(p)
#define mmap(a, n, ...)		sim_alloc(__func__, n)
#define munmap(p, n)		sim_free(p)
#define mprotect(p, n, r)	0
#define memset(p, c, n)		sim_memset(p, c, n)
#define memcpy(t, f, n)		sim_memcpy(t, f, n)
#define write(fd, p, n)		sim_write(fd, p, n)
#define pthread_atfork(a, b, c)	((void)(a), (void)(b), (void)(c), 0)
#define sched_setaffinity(p, n, s) 0

/* The compiler's instrumentation calls sim.c. */
#undef __SANITIZE_THREAD__

#endif
