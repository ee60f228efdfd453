/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stress programs of the whole engine share: the rounds, the seed of the running round,
 * and a watchdog that prints the command that repeats the round.
 */
#ifndef TESTS_STRESS_H
#define TESTS_STRESS_H

#define UTIL_NO_CHECK
#include <signal.h>
#include <sys/mman.h>
#include "../unit/util.h"

#define ROUND_MS	patience_ms(100000)	/* a round that takes longer hangs */

static const char *program_name;
static const char *replay_args;		/* further arguments after --seed N */
static u64 seed_now;			/* A: of the running round */
static u64 deadline_ms;			/* A: 0: no round runs */
static bool round_forks;		/* each round is a separate process */

static void replay(void)
{
	fprintf(stderr, "\nreplay: %s --seed %llu %s\n", program_name,
		(unsigned long long)load_relaxed(&seed_now), replay_args);
}

static void *watchdog(void *arg)
{
	for (;;) {
		u64 d = load_acquire(&deadline_ms);

		nap_us(100000);
		if (!d || now_ms() < d || load_acquire(&deadline_ms) != d)
			continue;
		fprintf(stderr, "FAILED: no end\n");
		replay();
		engines_dump();
		abort();
	}
	return NULL;
}

static void round_begin(u64 seed)
{
	store_relaxed(&seed_now, seed);
	store_release(&deadline_ms, now_ms() + ROUND_MS);
}

static void round_end(void)
{
	store_release(&deadline_ms, 0);
}

/* tests/run.sh ends a program that takes too long. */
static void terminated(int sig)
{
	static const char text[] = "FAILED: terminated\n";

	if (write(2, text, sizeof(text) - 1) > 0)
		replay();
	engines_dump();
	abort();
}

static void stress_start(const char *name, const char *args)
{
	signal(SIGTERM, terminated);
	program_name = name;
	replay_args = args;
	pthread_detach(spawn(watchdog, NULL));
}

/* --- programs that run rounds until the time has passed --- */

struct stress_option {
	const char *name;
	u32 *value, min, max;
};

static __unused_fn int stress_usage(const struct stress_option *o)
{
	fprintf(stderr, "usage: %s [--seed N] [--seconds S]", program_name);
	for (; o->name; o++)
		fprintf(stderr, " [%s %u..%u]", o->name, o->min, o->max);
	fprintf(stderr, "\n");
	return 2;
}

/* Handle one option and its value.  Returns false if it is unknown. */
static __unused_fn bool stress_option(const struct stress_option *o, const char *name,
				      const char *value)
{
	for (; o->name; o++)
		if (!strcmp(name, o->name)) {
			*o->value = (u32)strtoul(value, NULL, 0);
			return *o->value >= o->min && *o->value <= o->max;
		}
	return false;
}

static __unused_fn u64 stress_round(u64 seed, u64 (*round)(u64 seed))
{
	u64 ops;

	round_begin(seed);
	ops = round(seed * 0x9e3779b97f4a7c15ull);
	round_end();
	return ops;
}

/* Run a round in a new process with one thread, in which the library was not used before. */
static __unused_fn u64 stress_round_forked(u64 seed, u64 (*round)(u64 seed))
{
	static u64 *ops;	/* shared with the child */
	int status;
	pid_t pid;

	if (!ops)
		ops = mmap(NULL, sizeof(*ops), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			   -1, 0);
	MUST(ops != MAP_FAILED);
	signal(SIGTERM, SIG_IGN);	/* the child, in the same group, says where it is */
	pid = fork();
	MUST(pid >= 0);
	if (!pid) {
		stress_start(program_name, replay_args);
		*ops = stress_round(seed, round);
		exit(0);
	}
	MUST(waitpid(pid, &status, 0) == pid);
	if (status) {
		store_relaxed(&seed_now, seed);
		fprintf(stderr, "FAILED: the round ended with status %#x\n", (u32)status);
		replay();
		exit(1);
	}
	return *ops;
}

/* The whole of main(): round() gives the number of ops that it pushed. */
static __unused_fn int stress_main(int argc, char **argv, const struct stress_option *options,
				   u64 (*round)(u64 seed))
{
	u64 seed = 1, ops = 0, rounds = 0, end;
	double seconds = 3;
	int i;

	program_name = argv[0];
	for (i = 1; i < argc; i += 2) {
		if (i + 1 == argc)
			return stress_usage(options);
		if (!strcmp(argv[i], "--seed"))
			seed = strtoull(argv[i + 1], NULL, 0);
		else if (!strcmp(argv[i], "--seconds"))
			seconds = atof(argv[i + 1]);
		else if (!stress_option(options, argv[i], argv[i + 1]))
			return stress_usage(options);
	}
	replay_args = "--seconds 1";
	if (!round_forks)
		stress_start(argv[0], replay_args);
	end = now_ms() + (u64)(seconds * 1000);
	do {
		ops += (round_forks ? stress_round_forked : stress_round)(seed + rounds, round);
		rounds++;
	} while (now_ms() < end);
	printf("%s: %llu ops in %llu rounds from seed %llu\n", program_name,
	       (unsigned long long)ops, (unsigned long long)rounds, (unsigned long long)seed);
	return 0;
}

#endif
