/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread is stopped after each of its instructions in turn, by the trap flag of x86-64; the
 * signal handler then makes the calls of the other threads.  Not with the thread sanitizer: its
 * own code cannot be entered again from a handler that stopped it.
 */
#ifndef TESTS_UNIT_TRAP_H
#define TESTS_UNIT_TRAP_H

#include "must.h"

#if defined(__x86_64__) && !THREAD_SANITIZED
#define CAN_TRAP 1

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <ucontext.h>
#include <base/atomic.h>

static struct {
	void (*others)(void);
	long left;		/* instructions until the stop; < 0: the call has returned */
	u32 stops;
	long ran;		/* instructions before the stop, or in the whole call */
} trap;

static void on_trap(int sig, siginfo_t *si, void *ctx)
{
	greg_t *flags = &((ucontext_t *)ctx)->uc_mcontext.gregs[REG_EFL];

	if (trap.left < 0) {
		*flags &= ~0x100ll;
		return;
	}
	if (trap.left-- == 0) {
		*flags &= ~0x100ll;
		trap.stops++;
		trap.others();
	}
}

/* Skip the red zone. */
#define TRAP(how)								\
	__asm__ __volatile__("lea -128(%%rsp), %%rsp\n\tpushf\n\t" how ", (%%rsp)\n\t" \
			     "popf\n\tlea 128(%%rsp), %%rsp" ::: "memory", "cc")

static inline void trap_init(void (*others)(void))
{
	struct sigaction sa = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO };

	trap.others = others;
	sigaction(SIGTRAP, &sa, NULL);
}

/* Make the call, and those of the others after its k-th instruction, if it has so many. */
#define trap_after(k, call)							\
	do {									\
		trap.left = (k);						\
		trap.stops = 0;							\
		TRAP("orq $0x100");						\
		call;								\
		trap.ran = (k) - trap.left;					\
		trap.left = -1;							\
		TRAP("andq $~0x100");						\
	} while (0)

/*
 * The calls of the others by a thread of its own, for a library that knows its threads and cannot
 * be entered again.
 */
static struct {
	void (*calls)(void);
	sem_t go, done;
	bool end;
	pthread_t id;
} elsewhere;

static void *elsewhere_main(void *arg)
{
	for (;;) {
		MUST(!sem_wait(&elsewhere.go));
		if (elsewhere.end)
			return arg;
		elsewhere.calls();
		sem_post(&elsewhere.done);
	}
}

static void elsewhere_now(void)
{
	sem_post(&elsewhere.go);
	MUST(!sem_wait(&elsewhere.done));
}

static inline void elsewhere_begin(void (*calls)(void))
{
	elsewhere.calls = calls;
	elsewhere.end = false;
	MUST(!sem_init(&elsewhere.go, 0, 0) && !sem_init(&elsewhere.done, 0, 0));
	MUST(!pthread_create(&elsewhere.id, NULL, elsewhere_main, NULL));
	trap_init(elsewhere_now);
}

static inline void elsewhere_end(void)
{
	elsewhere.end = true;
	sem_post(&elsewhere.go);
	pthread_join(elsewhere.id, NULL);
}

#else
#define CAN_TRAP 0
#endif
#endif
