/* SPDX-License-Identifier: Apache-2.0 */
/* CPUs: how many the process may use, and lists of them; layer 4, inside core only. */
#ifndef CORE_CPUS_H
#define CORE_CPUS_H

#if !defined(PAWL_LAYER) || (PAWL_LAYER != 4 && !defined(PAWL_TEST_INTERNAL))
#error "core/cpus.h is inside core"
#endif
#include <sched.h>
#include <base/bug.h>

/*
 * The number of CPUs that the process may use, at least 1: its affinity mask, and no more than
 * the CPU quota of its cgroups, rounded up.  groups is /proc/self/cgroup, root is
 * /sys/fs/cgroup; what cannot be read sets no limit.
 */
u32 cpus_usable(const char *groups, const char *root);
/*
 * Parse "0-3,8;4-7": at most `most` lists of CPUs, separated by semicolons.  Returns the number
 * of lists, or -EINVAL with a text that names the place.
 */
int cpus_parse(const char *text, cpu_set_t *sets, u32 most);

#endif
