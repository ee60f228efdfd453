// SPDX-License-Identifier: Apache-2.0
/* What the host is, as far as the figures depend on it. */

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "suite.h"

/* The model of the first CPU, or the architecture. */
static void cpu_model(char *text, size_t size)
{
	FILE *f = fopen("/proc/cpuinfo", "re");
	struct utsname u;
	char line[256];

	uname(&u);
	snprintf(text, size, "%s", u.machine);
	while (f && fgets(line, sizeof(line), f)) {
		char *p = strchr(line, ':');

		if (p && !strncmp(line, "model name", 10)) {
			p += 1 + strspn(p + 1, " ");
			snprintf(text, size, "%.*s", (int)strcspn(p, "\n"), p);
			break;
		}
	}
	if (f)
		fclose(f);
}

/* The CPUs of the affinity mask as a list: 0-3,8. */
static void cpu_list(char *text, size_t size)
{
	unsigned int i, first, n = 0;
	cpu_set_t set;

	*text = 0;
	if (sched_getaffinity(0, sizeof(set), &set))
		return;
	for (i = 0; i < CPU_SETSIZE && n + 16 < size; i++) {
		if (!CPU_ISSET(i, &set))
			continue;
		for (first = i; i + 1 < CPU_SETSIZE && CPU_ISSET(i + 1, &set); i++)
			;
		n += (unsigned int)snprintf(text + n, size - n, first < i ? "%s%u-%u" : "%s%u",
					    n ? "," : "", first, i);
	}
}

json_t *host_json(const struct options *o)
{
	char model[128], cpus[256];
	struct utsname u;

	uname(&u);
	cpu_model(model, sizeof(model));
	cpu_list(cpus, sizeof(cpus));
	return json_pack("{s:s, s:s, s:s, s:s, s:i}", "kernel", u.release, "machine", u.machine,
			 "cpu", model, "cpu_list", cpus, "cpus", (int)o->cpus);
}

void host_text(const struct options *o)
{
	char model[128], cpus[256];
	struct utsname u;

	uname(&u);
	cpu_model(model, sizeof(model));
	cpu_list(cpus, sizeof(cpus));
	printf("host     %s, CPUs %s, of which %u can run at a time; Linux %s\n", model, cpus,
	       o->cpus, u.release);
}
