// SPDX-License-Identifier: Apache-2.0
/*
 * CPUs: how many the process may use, and lists of them.
 *
 * A cgroup can limit CPU time without a change of the affinity mask: 200 ms in each 100 ms are
 * two CPUs, however many exist.  More workers than that are stopped by the kernel for the rest
 * of each period, also in the middle of an op.  Version 2 of cgroups has the limit in
 * <root>/<group>/cpu.max, version 1 in <root>/cpu/<group>/cpu.cfs_quota_us and cpu.cfs_period_us.
 * All groups up to the root count, and the smallest limit is the one that holds.
 *
 * Progress: blocking (reads files).
 *
 * References: Documentation/admin-guide/cgroup-v2.rst and scheduler/sched-bwc.rst of Linux.
 */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <base/err.h>
#include <core/cpus.h>

#define NO_LIMIT	UINT32_MAX

static bool line_read(const char *path, char *line, int size)
{
	FILE *f = fopen(path, "re");
	bool ok;

	if (!f)
		return false;
	ok = fgets(line, size, f);
	fclose(f);
	return ok;
}

static u32 quota_cpus(long long quota, long long period)
{
	if (quota <= 0 || period <= 0)
		return NO_LIMIT;
	return (u32)min_u((u64)((quota - 1) / period + 1), NO_LIMIT);
}

/* The limit of one group.  v1: the folder is one of version 1. */
static u32 group_cpus(const char *dir, bool v1)
{
	long long quota = 0, period = 0;
	char path[PATH_MAX], line[128];

	snprintf(path, sizeof(path), "%s/%s", dir, v1 ? "cpu.cfs_quota_us" : "cpu.max");
	if (!line_read(path, line, sizeof(line)))
		return NO_LIMIT;
	/* "max 100000" has no number. */
	if (sscanf(line, "%lld %lld", &quota, &period) < 1 || !v1)
		return quota_cpus(quota, period);
	snprintf(path, sizeof(path), "%s/cpu.cfs_period_us", dir);
	if (!line_read(path, line, sizeof(line)) || sscanf(line, "%lld", &period) != 1)
		return NO_LIMIT;
	return quota_cpus(quota, period);
}

/* The smallest limit of a group and of those above it. */
static u32 groups_cpus(const char *root, const char *controllers, const char *group)
{
	bool v1 = *controllers;
	char dir[PATH_MAX - 32];
	size_t base;
	char *slash;
	u32 n;

	base = (size_t)snprintf(dir, sizeof(dir), v1 ? "%s/%s" : "%s", root, controllers);
	if (base + strlen(group) >= sizeof(dir))
		return NO_LIMIT;
	memcpy(dir + base, group, strlen(group) + 1);
	n = group_cpus(dir, v1);
	while ((slash = strrchr(dir + base, '/'))) {
		*slash = 0;
		n = (u32)min_u(n, group_cpus(dir, v1));
	}
	return n;
}

static bool has_cpu(const char *controllers)
{
	const char *p = controllers;
	size_t n;

	for (; *p; p += n + !!p[n]) {
		n = strcspn(p, ",");
		if (n == 3 && !memcmp(p, "cpu", 3))
			return true;
	}
	return !*controllers;		/* version 2 */
}

/* Lines are "4:cpu,cpuacct:/group", and "0::/group" for version 2. */
static u32 cgroup_cpus(const char *groups, const char *root)
{
	FILE *f = fopen(groups, "re");
	char line[PATH_MAX], *controllers, *group;
	u32 n = NO_LIMIT;

	if (!f)
		return n;
	while (fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		controllers = strchr(line, ':');
		group = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!group)
			continue;
		*group++ = 0;
		if (has_cpu(controllers + 1))
			n = (u32)min_u(n, groups_cpus(root, controllers + 1, group));
	}
	fclose(f);
	return n;
}

u32 cpus_usable(const char *groups, const char *root)
{
	long online = sysconf(_SC_NPROCESSORS_ONLN);
	u32 n = online > 0 ? (u32)online : 1;
	cpu_set_t set;

	/* It fails on machines with more CPUs than fit in the set. */
	if (!sched_getaffinity(0, sizeof(set), &set))
		n = (u32)CPU_COUNT(&set);
	return (u32)max_u(min_u(n, cgroup_cpus(groups, root)), 1);
}

/* Parse a number at *p, and move *p behind it.  -1: there is none below CPU_SETSIZE. */
static int number(const char **p)
{
	int n = 0;

	if (!isdigit((unsigned char)**p))
		return -1;
	for (; isdigit((unsigned char)**p); ++*p) {
		n = n * 10 + (**p - '0');
		if (n >= CPU_SETSIZE)
			return -1;
	}
	return n;
}

int cpus_parse(const char *text, cpu_set_t *sets, u32 most)
{
	const char *p = text;
	int first, last;
	u32 n = 0;

	CPU_ZERO(&sets[0]);
	for (;;) {
		first = last = number(&p);
		if (first >= 0 && *p == '-') {
			p++;
			last = number(&p);
		}
		if (first < 0 || last < first)
			goto bad;
		for (; first <= last; first++)
			CPU_SET(first, &sets[n]);
		if (!*p)
			return (int)n + 1;
		if (*p == ';' && ++n < most)
			CPU_ZERO(&sets[n]);
		else if (*p != ',')
			goto bad;
		p++;
	}
bad:
	if (n == most)
		return err(-EINVAL, "config.cpu_list has more lists than cpu_devices (%u)", most);
	return err(-EINVAL, "engine_create: config.cpu_list \"%s\" is wrong at byte %zu: CPUs below %d, as in \"0-3,8\"",
		   text, (size_t)(p - text), CPU_SETSIZE);
}
