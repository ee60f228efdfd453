// SPDX-License-Identifier: Apache-2.0
/*
 * Random programs are checked by independent oracles.
 *
 * A program is a list of events (pushes of all kinds, waits, deletes, clears) that one seed
 * determines.
 *
 * With one pushing thread:
 *   oracle B checks while ops run: every op carries the version that each of its vars must
 *     have when it starts, and counts which ops run on it.  It only knows how many writes were
 *     pushed before on each var.
 *   oracle A checks afterwards: it executes the events one after the other, as if there were
 *     no engine, and compares what every op read (a hash of all its data), which ops were
 *     skipped and with which error, and the data at the end.
 *
 * With several pushing threads no such order is known.  Oracle C records what each op saw and
 * checks that some serial order explains it: versions along every var, the order of each
 * thread, and the time between begin and end of each push; no cycle.  A batch is one node of
 * that order: no other push comes between its ops.
 *
 *	stress_random [--seed N] [--programs N] [--seconds S] [--verbose]
 *
 * A failure prints the command that runs the program again.  The seed does not determine how
 * threads interleave: --programs repeats it.
 */
#include "stress.h"
#include <stdarg.h>
#include "random.h"

bool verbose;

void broken(const char *fmt, ...)
{
	va_list ap;

	fflush(stdout);
	fprintf(stderr, "FAILED: ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	replay();
	abort();
}

void engine_make(struct program *p, u64 *seed, bool multi)
{
	struct pawl_config c = small((int)(rnd(seed) % 3), (int)(rnd(seed) % 4));

	c.cpu_devices = 1 + (u32)(rnd(seed) % 3);
	if (rnd(seed) % 3 == 0) {
		c.window = 4 + (u32)(rnd(seed) % 60);
		c.window_policy = PAWL_WINDOW_BLOCK;
	}
	if (rnd(seed) % 4 == 0)
		c.spin_ns = 0;
	p->e = engine_with(&c);
	if (verbose)
		printf("  kind %d, workers %d, devices %u, window %u policy %d, spin %llu\n",
		       c.kind, c.workers, c.cpu_devices, c.window, c.window_policy,
		       (unsigned long long)c.spin_ns);
}

void program_begin(struct program *p)
{
	u32 i;

	for (i = 0; i < p->ncompleters; i++)
		p->completer[i] = spawn(completer, p);
}

void program_end(struct program *p)
{
	u32 i;

	store_release(&p->stop, 1);
	for (i = 0; i < p->ncompleters; i++)
		join(p->completer[i]);
	OK(pawl_engine_destroy(p->e));
	free(p->slot);
	free(p->op);
	free(p);
}

int main(int argc, char **argv)
{
	u64 seed = 1, programs = ~0ull, done, end = 0;
	double seconds = 3;
	int i;

	for (i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--verbose")) {
			verbose = true;
		} else if (i + 1 < argc && !strcmp(argv[i], "--seed")) {
			seed = strtoull(argv[++i], NULL, 0);
		} else if (i + 1 < argc && !strcmp(argv[i], "--programs")) {
			programs = strtoull(argv[++i], NULL, 0);
			seconds = 0;
		} else if (i + 1 < argc && !strcmp(argv[i], "--seconds")) {
			seconds = atof(argv[++i]);
		} else {
			fprintf(stderr, "usage: %s [--seed N] [--programs N] [--seconds S] [--verbose]\n",
				argv[0]);
			return 2;
		}
	}
	stress_start(argv[0], "--programs 1 --verbose");
	if (seconds)
		end = now_ms() + (u64)(seconds * 1000);
	for (done = 0; done < programs && (!end || now_ms() < end); done++) {
		u64 now = seed + done;

		if (verbose)
			printf("program %llu\n", (unsigned long long)now);
		round_begin(now);
		if (mix(now, 7) % 2)
			single(mix(now, 1));
		else
			several(mix(now, 1));
		round_end();
	}
	printf("stress_random: %llu programs from seed %llu\n", (unsigned long long)done,
	       (unsigned long long)seed);
	return 0;
}
