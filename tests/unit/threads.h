/* SPDX-License-Identifier: Apache-2.0 */
/* The number of the process's threads. */
#ifndef TESTS_UNIT_THREADS_H
#define TESTS_UNIT_THREADS_H

#include <dirent.h>
#include "util.h"

/* The end has begun: a thread that was joined may be listed for a moment more. */
static inline bool thread_ends(const char *tid)
{
	char path[64], line[512], *p, state;
	unsigned int flags = 0;
	FILE *f;
	bool got;

	snprintf(path, sizeof(path), "/proc/self/task/%.20s/stat", tid);
	f = fopen(path, "r");
	if (!f)
		return true;
	got = fgets(line, sizeof(line), f);
	fclose(f);
	/* The name in parentheses, the state, five numbers, the kernel's flags: proc(5). */
	p = got ? strrchr(line, ')') : NULL;
	if (!p)
		return true;
	MUST(sscanf(p + 1, " %c %*d %*d %*d %*d %*d %u", &state, &flags) == 2);
	return flags & 4;	/* PF_EXITING */
}

static inline u32 threads_now(void)
{
	DIR *d = opendir("/proc/self/task");
	struct dirent *entry;
	u32 n = 0;

	MUST(d);
	while ((entry = readdir(d)))
		n += entry->d_name[0] != '.' && !thread_ends(entry->d_name);
	closedir(d);
	return n;
}

#endif
