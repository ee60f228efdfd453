// SPDX-License-Identifier: Apache-2.0
/*
 * What the host is, as far as the figures depend on it, and what spoils them: facts that the
 * kernel tells, before and after the run, and two measurements without the engine: how long a
 * thread that only reads the clock is stopped, and how long a cache line takes from CPU to CPU.
 */

#include <ctype.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "suite.h"

#define LOOK_CPUS	64u		/* that are looked at */
#define LINE_CPUS	8u		/* between which lines are sent */
#define LINE_NS		3000000u	/* a pair, */
#define LINE_MOST_NS	30000000u	/* if its threads do not run at the same time */
#define LINE_SLOW_NS	2000.0		/* one way: that is the scheduler */
#define LINE_TRIPS	50u
#define HICCUP_NS	20000000u	/* in each round */
#define GAP_NS		2000u		/* a shorter one is no hiccup */
#define WARNINGS	16u

/* Times of all CPUs that are used, in clock ticks, and of this process. */
struct usage {
	uint64_t busy, steal, own, at_ns;
	uint64_t throttled, throttled_us;
};

struct host {
	unsigned int cpu[LOOK_CPUS], ncpus, affine;
	char model[128], list[256], governor[64], clock[64], cgroup[512];
	struct utsname u;
	bool virtual;
	unsigned int siblings[2];	/* two CPUs that are used, and share a core */
	bool smt;
	long slack_ns;
	double clock_ns, load;
	double line[LINE_CPUS][LINE_CPUS];	/* ns one way; 0: no value */
	double line_least, line_most;
	uint64_t hiccup_max, hiccup_lost, hiccup_ns;
	struct usage before, after;
	unsigned int nwarnings;
	char warning[WARNINGS][256];
};

static struct host host;

/* --- what the kernel tells ----------------------------------------------------------------- */

/* The first line of a file, without its end.  Returns false if there is none. */
static bool first_line(const char *path, char *text, size_t size)
{
	FILE *f = fopen(path, "re");
	bool ok = f && fgets(text, (int)size, f);

	if (f)
		fclose(f);
	if (ok)
		text[strcspn(text, "\n")] = 0;
	return ok;
}

static bool cpu_line(unsigned int cpu, const char *name, char *text, size_t size)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%u/%s", cpu, name);
	return first_line(path, text, size);
}

/* The model of the first CPU, or the architecture. */
static void read_cpuinfo(void)
{
	FILE *f = fopen("/proc/cpuinfo", "re");
	char line[4096];

	snprintf(host.model, sizeof(host.model), "%.100s", host.u.machine);
	while (f && fgets(line, sizeof(line), f)) {
		char *p = strchr(line, ':');

		if (!p)
			break;		/* the end of the first CPU */
		p += 1 + strspn(p + 1, " ");
		p[strcspn(p, "\n")] = 0;
		if (!strncmp(line, "model name", 10))
			snprintf(host.model, sizeof(host.model), "%.127s", p);
		if (!strncmp(line, "flags", 5))
			host.virtual = strstr(p, " hypervisor") != NULL;
	}
	if (f)
		fclose(f);
}

/* The CPUs of the affinity mask, also as a list: 0-3,8. */
static void read_cpus(void)
{
	unsigned int i, first;
	size_t n = 0, size = sizeof(host.list);
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set))
		return;
	host.affine = (unsigned int)CPU_COUNT(&set);
	for (i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &set) && host.ncpus < LOOK_CPUS)
			host.cpu[host.ncpus++] = i;
	for (i = 0; i < CPU_SETSIZE && n + 16 < size; i++) {
		if (!CPU_ISSET(i, &set))
			continue;
		for (first = i; i + 1 < CPU_SETSIZE && CPU_ISSET(i + 1, &set); i++)
			;
		n += (size_t)snprintf(host.list + n, size - n, first < i ? "%s%u-%u" : "%s%u",
				      n ? "," : "", first, i);
	}
}

/* Does a list such as 0-3,8 have this number? */
static bool in_list(const char *list, unsigned int number)
{
	char *end;

	while (isdigit((unsigned char)*list)) {
		unsigned long from = strtoul(list, &end, 10), to = from;

		if (*end == '-')
			to = strtoul(end + 1, &end, 10);
		if (number >= from && number <= to)
			return true;
		list = end + (*end == ',');
	}
	return false;
}

static void read_topology(void)
{
	unsigned int i, k;
	char text[256];

	for (i = 0; i < host.ncpus; i++) {
		if (cpu_line(host.cpu[i], "cpufreq/scaling_governor", text, sizeof(text)) &&
		    (!*host.governor || strcmp(text, "performance")))
			snprintf(host.governor, sizeof(host.governor), "%.63s", text);
		if (host.smt ||
		    !cpu_line(host.cpu[i], "topology/thread_siblings_list", text, sizeof(text)))
			continue;
		for (k = i + 1; k < host.ncpus && !host.smt; k++) {
			host.smt = in_list(text, host.cpu[k]);
			host.siblings[0] = host.cpu[i];
			host.siblings[1] = host.cpu[k];
		}
	}
}

/* The folder of the process's cgroup, version 2. */
static void read_cgroup(void)
{
	char line[400];
	FILE *f = fopen("/proc/self/cgroup", "re");

	while (f && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		if (!strncmp(line, "0::", 3))
			snprintf(host.cgroup, sizeof(host.cgroup), "/sys/fs/cgroup%s", line + 3);
	}
	if (f)
		fclose(f);
}

/* A value of the cgroup and of those above it: the sum. */
static uint64_t cgroup_sum(const char *name)
{
	char dir[sizeof(host.cgroup)], path[sizeof(dir) + 16], line[128];
	uint64_t sum = 0;
	char *slash;

	snprintf(dir, sizeof(dir), "%s", host.cgroup);
	while (strlen(dir) > strlen("/sys/fs/cgroup")) {
		FILE *f;

		snprintf(path, sizeof(path), "%s/cpu.stat", dir);
		f = fopen(path, "re");
		while (f && fgets(line, sizeof(line), f))
			if (!strncmp(line, name, strlen(name)) && line[strlen(name)] == ' ')
				sum += strtoull(line + strlen(name), NULL, 10);
		if (f)
			fclose(f);
		slash = strrchr(dir, '/');
		*slash = 0;
	}
	return sum;
}

static void read_usage(struct usage *u)
{
	unsigned long long user, nice, system, idle, iowait, irq, softirq, steal;
	FILE *f = fopen("/proc/stat", "re");
	struct timespec own;
	char line[512];
	unsigned int cpu;

	memset(u, 0, sizeof(*u));
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "cpu%u %llu %llu %llu %llu %llu %llu %llu %llu", &cpu, &user,
			   &nice, &system, &idle, &iowait, &irq, &softirq, &steal) != 9 ||
		    !in_list(host.list, cpu))
			continue;
		u->busy += user + nice + system + irq + softirq;
		u->steal += steal;
	}
	if (f)
		fclose(f);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
	u->own = (uint64_t)own.tv_sec * 1000000000u + (uint64_t)own.tv_nsec;
	u->at_ns = now_ns();
	u->throttled = cgroup_sum("nr_throttled");
	u->throttled_us = cgroup_sum("throttled_usec");
}

/* --- what is measured without the engine ----------------------------------------------------- */

static void pin(unsigned int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

/* The median of differences between two readings. */
static void measure_clock(void)
{
	double v[101];
	unsigned int i, k;

	for (i = 0; i < 101; i++) {
		uint64_t t0 = now_ns(), t1 = t0;

		for (k = 0; k < 20; k++)
			t1 = now_ns();
		v[i] = (double)(t1 - t0) / 20;
	}
	host.clock_ns = median_of(v, 101);
}

struct spinner {
	pthread_t id;
	unsigned int cpu;
	uint64_t max, lost, ns;
};

static void *spinner_thread(void *arg)
{
	struct spinner *s = arg;
	uint64_t begin, last, now;

	pin(s->cpu);
	begin = last = now_ns();
	do {
		now = now_ns();
		if (now - last > s->max)
			s->max = now - last;
		if (now - last > GAP_NS)
			s->lost += now - last;
		last = now;
	} while (now - begin < HICCUP_NS);
	s->ns = now - begin;
	return NULL;
}

/* One thread on each CPU reads the clock; its gaps are the hiccups. */
void host_round(void)
{
	struct spinner s[LOOK_CPUS] = { 0 };
	unsigned int i, n = 0;

	for (i = 0; i < host.ncpus; i++) {
		s[n].cpu = host.cpu[i];
		if (!pthread_create(&s[n].id, NULL, spinner_thread, &s[n]))
			n++;
	}
	for (i = 0; i < n; i++) {
		pthread_join(s[i].id, NULL);
		if (s[i].max > host.hiccup_max)
			host.hiccup_max = s[i].max;
		host.hiccup_lost += s[i].lost;
		host.hiccup_ns += s[i].ns;
	}
}

struct line {
	uint32_t ball __attribute__((aligned(128)));	/* atomic: odd: the other's turn */
	uint32_t end __attribute__((aligned(128)));	/* atomic: it is the last ball */
	unsigned int cpu[2];
	double ns;
};

static void line_wait(const uint32_t *ball, uint32_t v)
{
	while (__atomic_load_n(ball, __ATOMIC_ACQUIRE) != v)
		;
}

static void *line_other(void *arg)
{
	struct line *l = arg;
	uint32_t i;

	pin(l->cpu[1]);
	for (i = 1; !__atomic_load_n(&l->end, __ATOMIC_RELAXED); i += 2) {
		line_wait(&l->ball, i);
		__atomic_store_n(&l->ball, i + 1, __ATOMIC_RELEASE);
	}
	return NULL;
}

static bool line_slow(double ns)
{
	return ns > LINE_SLOW_NS;
}

/* The fastest of some batches: the way without disturbance. */
static void *line_first(void *arg)
{
	struct line *l = arg;
	uint64_t begin = now_ns(), t0, t1 = begin, best = UINT64_MAX;
	pthread_t other;
	uint32_t i = 1;
	unsigned int k;

	pin(l->cpu[0]);
	if (pthread_create(&other, NULL, line_other, l))
		return NULL;
	while (t1 - begin < LINE_NS ||
	       (t1 - begin < LINE_MOST_NS && line_slow((double)best / LINE_TRIPS / 2))) {
		t0 = now_ns();
		for (k = 0; k < LINE_TRIPS; k++, i += 2) {
			__atomic_store_n(&l->ball, i, __ATOMIC_RELEASE);
			line_wait(&l->ball, i + 1);
		}
		t1 = now_ns();
		best = t1 - t0 < best ? t1 - t0 : best;
	}
	__atomic_store_n(&l->end, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&l->ball, i, __ATOMIC_RELEASE);
	pthread_join(other, NULL);
	l->ns = (double)best / LINE_TRIPS / 2;
	return NULL;
}

static void measure_lines(void)
{
	unsigned int n = host.ncpus < LINE_CPUS ? host.ncpus : LINE_CPUS, i, k;
	pthread_t id;

	for (i = 0; i < n; i++) {
		for (k = i + 1; k < n; k++) {
			struct line l = { .cpu = { host.cpu[i], host.cpu[k] } };

			/* a thread, so that this one keeps its CPUs */
			if (pthread_create(&id, NULL, line_first, &l))
				return;
			pthread_join(id, NULL);
			if (line_slow(l.ns))
				continue;
			host.line[i][k] = host.line[k][i] = l.ns;
			if (!host.line_least || l.ns < host.line_least)
				host.line_least = l.ns;
			host.line_most = fmax(host.line_most, l.ns);
		}
	}
}

void host_begin(void)
{
	host = (struct host){ 0 };
	uname(&host.u);
	read_cpuinfo();
	read_cpus();
	read_topology();
	read_cgroup();
	host.slack_ns = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
	if (!first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource",
			host.clock, sizeof(host.clock)))
		strcpy(host.clock, "unknown");
	if (getloadavg(&host.load, 1) != 1)
		host.load = 0;
	measure_clock();
	measure_lines();
	read_usage(&host.before);
}

/* --- what spoils the figures ------------------------------------------------------------------- */

void host_warn(const char *fmt, ...)
{
	va_list ap;

	if (host.nwarnings == WARNINGS)
		return;
	va_start(ap, fmt);
	vsnprintf(host.warning[host.nwarnings++], sizeof(host.warning[0]), fmt, ap);
	va_end(ap);
}

/* Of the time of all CPUs that are used. */
static double share_of(uint64_t ns)
{
	double all = (double)(host.after.at_ns - host.before.at_ns) * host.affine;

	return all > 0 ? fmax(0, (double)ns / all) : 0;
}

static double ticks_ns(uint64_t ticks)
{
	return (double)ticks * 1e9 / (double)sysconf(_SC_CLK_TCK);
}

static double steal_share(void)
{
	return share_of((uint64_t)ticks_ns(host.after.steal - host.before.steal));
}

static double others_share(void)
{
	double busy = ticks_ns(host.after.busy - host.before.busy);
	double own = (double)(host.after.own - host.before.own);

	return busy > own ? share_of((uint64_t)(busy - own)) : 0;
}

static double lost_share(void)
{
	return host.hiccup_ns ? (double)host.hiccup_lost / (double)host.hiccup_ns : 0;
}

void host_end(const struct options *o)
{
	char text[32];
	uint64_t throttled;

	read_usage(&host.after);
	throttled = host.after.throttled - host.before.throttled;
	if (others_share() > 0.05)
		host_warn("Other programs used %.0f %% of the CPUs: rates and long times are worse "
			  "than those of the engine.", others_share() * 100);
	if (steal_share() > 0.01)
		host_warn("Other guests of the machine took %.0f %% of the CPUs: all figures "
			  "contain that.", steal_share() * 100);
	if (throttled)
		host_warn("The CPU quota of the cgroup stopped the program %llu times, for %.1f ms: "
			  "long times contain that.", (unsigned long long)throttled,
			  (double)(host.after.throttled_us - host.before.throttled_us) / 1e3);
	if (host.hiccup_max > 1000000)
		host_warn("A thread that only reads the clock was stopped for up to %s: greatest "
			  "times, and percentiles near them, are the host's.",
			  bench_value(UNIT_NS, (double)host.hiccup_max, text, sizeof(text)));
	if (*host.governor && strcmp(host.governor, "performance"))
		host_warn("The governor '%s' changes the frequency with the load: times after "
			  "idleness (wake, open) are longer.", host.governor);
	if (host.smt)
		host_warn("CPUs %u and %u share a core: threads on both slow each other down.",
			  host.siblings[0], host.siblings[1]);
	if (host.clock_ns > 150)
		host_warn("Reading the clock (%s) takes %.0f ns, which each single time contains.",
			  host.clock, host.clock_ns);
	if (host.slack_ns > 100000)
		host_warn("The timer slack is %ld us: sleeps end late.", host.slack_ns / 1000);
	if (o->cpus < host.affine)
		host_warn("The CPU quota permits %u of %u CPUs.", o->cpus, host.affine);
	if (o->cpus == 1)
		host_warn("There is one CPU: times between threads contain a switch of threads.");
}

/* --- reports ------------------------------------------------------------------------------------- */

static json_t *json_lines(void)
{
	unsigned int n = host.ncpus < LINE_CPUS ? host.ncpus : LINE_CPUS, i, k;
	json_t *list = json_array();

	for (i = 0; i < n; i++)
		for (k = i + 1; k < n; k++)
			if (host.line[i][k] > 0)
				json_array_append_new(list, json_pack(
					"{s:i, s:i, s:f}", "from", (int)host.cpu[i], "to",
					(int)host.cpu[k], "ns", host.line[i][k]));
	return list;
}

json_t *host_json(const struct options *o)
{
	json_t *j = json_pack("{s:s, s:s, s:s, s:s, s:i, s:b, s:b, s:s*}", "kernel",
			      host.u.release, "machine", host.u.machine, "cpu", host.model,
			      "cpu_list", host.list, "cpus", (int)o->cpus, "virtual", host.virtual,
			      "smt_siblings_used", host.smt, "governor",
			      *host.governor ? host.governor : NULL);
	json_t *k = json_pack("{s:s, s:f, s:I, s:f, s:f, s:f, s:I, s:I, s:f, s:o}", "clock_source",
			      host.clock, "clock_ns", host.clock_ns, "timer_slack_ns",
			      (json_int_t)host.slack_ns, "load_average", host.load, "steal_share",
			      steal_share(), "others_share", others_share(), "throttled",
			      (json_int_t)(host.after.throttled - host.before.throttled),
			      "hiccup_max_ns", (json_int_t)host.hiccup_max, "hiccup_share",
			      lost_share(), "line_ns", json_lines());

	json_object_update(j, k);
	json_decref(k);
	return j;
}

json_t *host_warnings(void)
{
	json_t *list = json_array();
	unsigned int i;

	for (i = 0; i < host.nwarnings; i++)
		json_array_append_new(list, json_string(host.warning[i]));
	return list;
}

void host_text(const struct options *o)
{
	char text[32];

	printf("host     %s%s, CPUs %s, of which %u can run at a time; Linux %s\n", host.model,
	       host.virtual ? ", a virtual machine" : "", host.list, o->cpus, host.u.release);
	printf("         governor %s, %s used, timer slack %ld us, clock %s: %.0f ns a reading",
	       *host.governor ? host.governor : "unknown",
	       host.smt ? "both threads of a core" : "no two threads of a core",
	       host.slack_ns / 1000, host.clock, host.clock_ns);
	if (host.line_most > 0)
		printf(", a cache line from CPU to CPU %.0f to %.0f ns", host.line_least,
		       host.line_most);
	printf("\n         during the run: other programs %.1f %% of the CPUs, steal %.1f %%, "
	       "without the engine a thread was stopped for %.1f %% of the time, at most %s\n",
	       others_share() * 100, steal_share() * 100, lost_share() * 100,
	       bench_value(UNIT_NS, (double)host.hiccup_max, text, sizeof(text)));
}

void host_text_warnings(void)
{
	unsigned int i;

	for (i = 0; i < host.nwarnings; i++)
		printf("! %s\n", host.warning[i]);
}
