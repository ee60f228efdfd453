// SPDX-License-Identifier: Apache-2.0
/* main.c - one engine, one test, one process.  Users call run.py. */
#define _GNU_SOURCE
#include <getopt.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "measure.h"

struct bench_opts bench_opts = {
	.window = -1, .spin_ns = -1, .policy = -1,
};

static cpu_set_t allowed;

void bench_die(const char *fmt, ...)
{
	va_list ap;

	fflush(stdout);
	fprintf(stderr, "bench: ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n");
	/* not exit(): threads of the engine may still run */
	_exit(1);
}

int bench_cpu(int k)
{
	int n = CPU_COUNT(&allowed), cpu;

	k %= n > 0 ? n : 1;
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &allowed) && !k--)
			return cpu;
	return 0;
}

void bench_pin_self(int k)
{
	cpu_set_t set;

	if (!bench_opts.pin)
		return;
	CPU_ZERO(&set);
	CPU_SET(bench_cpu(k), &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		bench_die("cannot pin a thread to CPU %d", bench_cpu(k));
}

void bench_unpin_self(void)
{
	if (bench_opts.pin && sched_setaffinity(0, sizeof(allowed), &allowed))
		bench_die("cannot unpin a thread");
}

/* Some libraries read their environment before main(): set it and start again. */
static void set_env(const struct bench_engine *e, char **argv)
{
	const char *const *kv;
	bool again = false;

	for (kv = e->env; kv && *kv; kv++) {
		char key[64];
		size_t len = strcspn(*kv, "=");
		const char *old;

		if (len >= sizeof(key))
			bench_die("long name: %s", *kv);
		memcpy(key, *kv, len);
		key[len] = 0;
		old = getenv(key);
		if (!(*kv)[len]) {
			again |= old != NULL;
			unsetenv(key);
			continue;
		}
		if (old && !strcmp(old, *kv + len + 1))
			continue;
		setenv(key, *kv + len + 1, 1);
		again = true;
	}
	if (again) {
		execv("/proc/self/exe", argv);
		bench_die("cannot start again with another environment");
	}
}

static const struct bench_engine *find_engine(const char *name)
{
	const struct bench_engine *const *e;

	for (e = bench_engines; *e; e++)
		if (!strcmp((*e)->name, name))
			return *e;
	if (!strcmp(bench_serial.name, name))
		return &bench_serial;
	bench_die("no engine \"%s\" in this binary (--list)", name);
}

static void list(void)
{
	const struct bench_engine *const *e;

	for (e = bench_engines; *e; e++)
		printf("{\"engine\":\"%s\",\"threads\":%d,\"many_pushers\":%s,\"worker\":%s}\n",
		       (*e)->name, (*e)->threads,
		       (*e)->flags & BENCH_MANY_PUSHERS ? "true" : "false",
		       (*e)->flags & BENCH_HAS_WORKER ? "true" : "false");
}

static const char usage[] =
"usage: bench-LIB --engine NAME --test TEST [options]     (all in turns: run.py)\n"
"  --list             engines of this binary\n"
"  --engine NAME      one of them, or serial\n"
"  --test TEST        chain indep readers random stencil cholesky\n"
"                     ping ping-w wake wake-w mpush metg line hand\n"
"                     own own2 shared push pushers (each of them also with -each)\n"
"                     gone idle complete-gone\n"
"                     tell collect lambda with-ticket with-deadline with-group with-limit with-cost\n"
"                     with-trace with-record graph-chain graph-fan graph-private\n"
"                     graph-cholesky (pawl only)\n"
"  --ops N            ops per run (200000)\n"
"  --reps N           runs that count (1)      --warm N  runs before them (1)\n"
"  --use N            after the warm runs, only the first N ops of the list\n"
"  --samples N        of a latency (100000)    --pushers N  of mpush (1)\n"
"  --threads N        of the engine, where its name says 2; of own, own2, shared, push and\n"
"                     pushers, those that drive it (1)\n"
"  --workers N        of the engine, of pushers (1)\n"
"  --others N         threads that came and went, or are idle (250)\n"
"  --body NS          a busy loop of this length in each op (0)\n"
"  --seed N           of the lists drawn at random (1)\n"
"  --no-check         do not compare with the serial answer\n"
"  --watch            and say at the end how many ops ran inside their own push;\n"
"                     not for metg, and the times are not to be used\n"
"  --pin              one CPU per thread\n"
"  pawl only:\n"
"  --window N         ops in flight per pushing thread (the engine's default)\n"
"  --policy NAME      at the window: fail or block\n"
"  --spin NS          of an idle worker\n"
"  --prefault         touch all memory first\n";

enum { OPT_LIST = 256, OPT_ENGINE, OPT_TEST, OPT_OPS, OPT_REPS, OPT_WARM, OPT_SAMPLES,
       OPT_PUSHERS, OPT_SEED, OPT_NO_CHECK, OPT_PIN, OPT_WINDOW, OPT_POLICY, OPT_SPIN,
       OPT_PREFAULT, OPT_USE, OPT_WATCH, OPT_THREADS, OPT_OTHERS, OPT_BODY,
       OPT_WORKERS };

static const struct option options[] = {
	{ "list", no_argument, NULL, OPT_LIST },
	{ "engine", required_argument, NULL, OPT_ENGINE },
	{ "test", required_argument, NULL, OPT_TEST },
	{ "ops", required_argument, NULL, OPT_OPS },
	{ "reps", required_argument, NULL, OPT_REPS },
	{ "warm", required_argument, NULL, OPT_WARM },
	{ "samples", required_argument, NULL, OPT_SAMPLES },
	{ "pushers", required_argument, NULL, OPT_PUSHERS },
	{ "seed", required_argument, NULL, OPT_SEED },
	{ "no-check", no_argument, NULL, OPT_NO_CHECK },
	{ "pin", no_argument, NULL, OPT_PIN },
	{ "window", required_argument, NULL, OPT_WINDOW },
	{ "policy", required_argument, NULL, OPT_POLICY },
	{ "spin", required_argument, NULL, OPT_SPIN },
	{ "prefault", no_argument, NULL, OPT_PREFAULT },
	{ "use", required_argument, NULL, OPT_USE },
	{ "watch", no_argument, NULL, OPT_WATCH },
	{ "threads", required_argument, NULL, OPT_THREADS },
	{ "others", required_argument, NULL, OPT_OTHERS },
	{ "body", required_argument, NULL, OPT_BODY },
	{ "workers", required_argument, NULL, OPT_WORKERS },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

static unsigned long number(const char *text)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (end == text || *end)
		bench_die("not a number: %s", text);
	return n;
}

static int policy(const char *text)
{
	static const char *const names[] = { "fail", "block" };
	int i;

	for (i = 0; i < 2; i++)
		if (!strcmp(names[i], text))
			return i;
	bench_die("no policy \"%s\"", text);
}

int main(int argc, char **argv)
{
	struct measure m = {
		.ops = 200000, .samples = 100000, .reps = 1, .warm = 1, .pushers = 1,
		.seed = 1, .check = true, .others = 250, .workers = 1,
	};
	const char *engine = NULL;
	uint32_t body = 0;
	int c;

	while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (c) {
		case OPT_LIST:
			list();
			return 0;
		case OPT_ENGINE:
			engine = optarg;
			break;
		case OPT_TEST:
			m.test = optarg;
			break;
		case OPT_OPS:
			m.ops = (uint32_t)number(optarg);
			break;
		case OPT_USE:
			m.use = (uint32_t)number(optarg);
			break;
		case OPT_REPS:
			m.reps = (unsigned int)number(optarg);
			break;
		case OPT_WARM:
			m.warm = (unsigned int)number(optarg);
			break;
		case OPT_SAMPLES:
			m.samples = (uint32_t)number(optarg);
			break;
		case OPT_PUSHERS:
			m.pushers = (unsigned int)number(optarg);
			break;
		case OPT_SEED:
			m.seed = number(optarg);
			break;
		case OPT_NO_CHECK:
			m.check = false;
			break;
		case OPT_WATCH:
			m.watch = true;
			break;
		case OPT_THREADS:
			m.threads = (unsigned int)number(optarg);
			break;
		case OPT_OTHERS:
			m.others = (unsigned int)number(optarg);
			break;
		case OPT_BODY:
			body = (uint32_t)number(optarg);
			break;
		case OPT_WORKERS:
			m.workers = (unsigned int)number(optarg);
			break;
		case OPT_PIN:
			bench_opts.pin = true;
			break;
		case OPT_WINDOW:
			bench_opts.window = (long)number(optarg);
			break;
		case OPT_POLICY:
			bench_opts.policy = policy(optarg);
			break;
		case OPT_SPIN:
			bench_opts.spin_ns = (long)number(optarg);
			break;
		case OPT_PREFAULT:
			bench_opts.prefault = true;
			break;
		case 'h':
			fputs(usage, stdout);
			return 0;
		default:
			fputs(usage, stderr);
			return 2;
		}
	}
	if (!m.test || (!engine && strcmp(m.test, "line") && strcmp(m.test, "hand")) ||
	    !m.ops || !m.reps || !m.samples || (m.watch && !strcmp(m.test, "metg"))) {
		fputs(usage, stderr);
		return 2;
	}
	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		CPU_SET(0, &allowed);
	bench_opts.ops = m.ops;
	if (!strcmp(m.test, "line")) {
		work_clock();
		measure_line(&m);
		return 0;
	}
	if (!strcmp(m.test, "hand")) {
		work_clock();
		measure_hand(&m);
		return 0;
	}
	m.e = find_engine(engine);
	set_env(m.e, argv);
	if (m.watch)
		m.e = measure_watched(m.e);
	work_clock();
	if (body)
		bench_grain = work_turns(body);
	bench_pin_self(0);
	if (measure_loops(&m) ||
	    (m.e->own_test && m.e->own_test(m.test, m.e->name, m.e->threads)))
		return 0;
	m.e->create(m.threads && m.e->threads > 1 ? (int)m.threads : m.e->threads);
	if (!strncmp(m.test, "ping", 4) || !strncmp(m.test, "wake", 4))
		measure_latency(&m);
	else if (!strcmp(m.test, "mpush"))
		measure_mpush(&m);
	else if (!strcmp(m.test, "metg"))
		measure_metg(&m);
	else
		measure_shape(&m);
	if (bench_watched)
		printf("{\"engine\":\"%s\",\"test\":\"%s\",\"watched\":%u,\"in_push\":%u}\n",
		       m.e->name, m.test, bench_watched, bench_in_push);
	m.e->destroy();
	return 0;
}
