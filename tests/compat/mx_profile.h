/* SPDX-License-Identifier: Apache-2.0 */
/* What the suites of the profiler share. */
#ifndef TESTS_COMPAT_MX_PROFILE_H
#define TESTS_COMPAT_MX_PROFILE_H

#include "mx_test.h"

static char path[] = "/tmp/pawl-mx-XXXXXX";

/* A domain is never freed; a leak checker finds it here. */
MX_UNUSED static ProfileHandle domain_new(const char *name)
{
	static ProfileHandle kept[16];
	static unsigned int n;

	ck_assert_uint_lt(n, 16);
	OK(MXProfileCreateDomain(name, &kept[n]));
	return kept[n++];
}

MX_UNUSED static void set_up(const char *aggregate)
{
	const char *keys[] = { "filename", "aggregate_stats" };
	const char *vals[] = { path, aggregate };

	OK(MXSetProfilerConfig(2, keys, vals));
}

#endif
