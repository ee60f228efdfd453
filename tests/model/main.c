// SPDX-License-Identifier: Apache-2.0
/* The command line of a model program, and the run of all its scenarios. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include <base/bug.h>
#include "rt.h"

#define TABLE_LOG2	22u

const char *program;
unsigned int pawl_busted;

#define BUSTED_NAME(name, what) #name,
static const char *const busted_names[] = { "NONE", BUSTED_LIST(BUSTED_NAME) };

const char *busted_name(u32 i)
{
	return busted_names[i];
}

const char *program_name(void)
{
	return strrchr(program, '/') ? strrchr(program, '/') + 1 : program;
}

static const struct scenario *find(const char *name)
{
	const struct scenario *s;

	for (s = scenarios; s->name; s++)
		if (!strcmp(s->name, name))
			return s;
	fprintf(stderr, "no scenario %s\n", name);
	exit(2);
}

static u32 busted_number(const char *s)
{
	u32 i;

	for (i = 1; i < BUSTED_COUNT; i++)
		if (!strcmp(busted_names[i], s))
			return i;
	fprintf(stderr, "no planted bug %s\n", s);
	exit(2);
}

/* A planted bug may crash the program, which is also a failure. */
static void on_fault(int sig)
{
	static u64 last_ops;
	u64 ops = fig.transitions * 1000003 + fixed[self].ops;

	if (sig == SIGPROF) {
		if ((!in_thread && !in_check) || ops != last_ops) {
			last_ops = ops;
			return;
		}
		model_fail("no end: a loop without any access");
	}
	model_fail("signal %d", sig);
}

void catch_faults(void)
{
	static char stack[65536];
	stack_t alt = { .ss_sp = stack, .ss_size = sizeof(stack) };
	struct sigaction a = { .sa_handler = on_fault, .sa_flags = SA_NODEFER | SA_ONSTACK };
	struct itimerval every = { { 2, 0 }, { 2, 0 } };

	sigaltstack(&alt, NULL);
	sigaction(SIGSEGV, &a, NULL);
	sigaction(SIGBUS, &a, NULL);
	a.sa_flags |= SA_RESTART;
	sigaction(SIGPROF, &a, NULL);
	setitimer(ITIMER_PROF, &every, NULL);
}

struct options {
	const char *mode;
	double seconds, scale;
	u64 most;
	u32 log2, bound, jobs;
};

/* Run one scenario in this process. */
static bool run_scenario(const struct scenario *s, const struct options *o)
{
	catch_faults();
	scenario_setup(s);
	return run(s->flags & MODEL_NO_DFS ? "random" : o->mode,
		   o->seconds > 0 ? o->seconds : s->seconds * o->scale, o->most,
		   o->bound != ~0u ? o->bound : s->bound);
}

/* Run all scenarios, each in its own process, and print a line with the sums. */
static int run_all(const struct options *o)
{
	struct sums {
		u64 n, exhausted, transitions, states, schedules, ok;
	} *sum = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	const struct scenario *s;
	double start = now();
	u32 running = 0;

	if (sum == MAP_FAILED)
		return 2;
	for (s = scenarios; s->name; s++) {
		pid_t pid;

		if (running == o->jobs) {
			wait(NULL);
			running--;
		}
		sum->n++;
		pid = fork();
		if (!pid) {
			bool ok = run_scenario(s, o);

			__atomic_fetch_add(&sum->ok, ok, __ATOMIC_SEQ_CST);
			__atomic_fetch_add(&sum->exhausted, fig.exhausted, __ATOMIC_SEQ_CST);
			__atomic_fetch_add(&sum->transitions, fig.transitions,
					   __ATOMIC_SEQ_CST);
			__atomic_fetch_add(&sum->states, fig.states, __ATOMIC_SEQ_CST);
			__atomic_fetch_add(&sum->schedules, fig.schedules, __ATOMIC_SEQ_CST);
			exit(!ok);
		}
		running++;
	}
	while (wait(NULL) > 0)
		;
	printf("%s %s: scenarios=%llu/%llu exhausted=%llu states=%.4g transitions=%.4g schedules=%.4g %.0fs %s\n",
	       weak ? "C05" : "C03", program_name(),
	       (unsigned long long)sum->ok, (unsigned long long)sum->n,
	       (unsigned long long)sum->exhausted, (double)sum->states, (double)sum->transitions,
	       (double)sum->schedules, now() - start, sum->ok == sum->n ? "PASS" : "FAIL");
	return sum->ok != sum->n;
}

int main(int argc, char **argv)
{
	struct options o = { .mode = "search", .scale = 1, .most = ~0ull, .log2 = TABLE_LOG2,
			     .bound = ~0u, .jobs = 1 };
	const char *name = NULL, *again = NULL;
	const struct scenario *s;
	const char *list = NULL;
	bool undo = false;
	u32 trials = 0;
	double total = 1e9;
	int c;

	program = argv[0];
	while ((c = getopt(argc, argv, "ls:m:r:b:t:T:n:S:p:wM:j:uXBk:D:o:")) != -1) {
		switch (c) {
		case 'l':
			for (s = scenarios; s->name; s++)
				printf("%-22s %s\n", s->name, s->what);
			return 0;
		case 's': name = optarg; break;
		case 'm': o.mode = optarg; break;
		case 'r': again = optarg; break;
		case 'b': pawl_busted = busted_number(optarg); break;
		case 't': o.seconds = atof(optarg); break;
		case 'T': o.scale = atof(optarg); break;
		case 'j': o.jobs = (u32)atoi(optarg); break;
		case 'n': o.most = strtoull(optarg, NULL, 10); break;
		case 'S': seed = strtoull(optarg, NULL, 10); break;
		case 'p': o.bound = (u32)atoi(optarg); break;
		case 'u': undo = true; break;
		case 'X': trials = 1; break;
		case 'B': trials = 2; break;
		case 'k': list = optarg; break;
		case 'o': trials_only = optarg; break;
		case 'D': total = atof(optarg); break;
		case 'w': weak = true; break;
		case 'M': o.log2 = (u32)atoi(optarg); break;
		default: return 2;
		}
	}
	memory_init();
	search_init(o.log2);
	trials_in = name;
	if (trials)
		return run_trials(trials == 2, list, o.jobs, o.most == ~0ull ? 3000 : o.most,
				  o.seconds > 0 ? o.seconds : 0.5, total);
	if (!name)
		return run_all(&o);
	s = find(name);
	if (again) {
		bool ok;

		scenario_setup(s);
		ok = replay(again);

		printf("%s\n", ok ? "ok" : failed);
		if (!ok)
			describe_stuck(stdout);
		return !ok;
	}
	if (undo) {
		scenario_setup(s);
		return !check_undo();
	}
	return !run_scenario(s, &o);
}
