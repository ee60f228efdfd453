// SPDX-License-Identifier: Apache-2.0
/*
 * Selects the planted bug, in builds with CONFIG_BUSTED, which are for tests: the one that
 * PAWL_BUSTED in the environment names, from before main() on.  The model selects its bugs
 * itself.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <base/bug.h>

#ifdef CONFIG_BUSTED

#define BUSTED_NAME(name, what) #name,
static const char *const names[] = { "NONE", BUSTED_LIST(BUSTED_NAME) };

unsigned int pawl_busted;

/* Progress: wait-free; there are no other threads yet. */
__attribute__((constructor)) static void busted_init(void)
{
	const char *s = getenv("PAWL_BUSTED");

	if (!s || !*s)
		return;
	while (pawl_busted < BUSTED_COUNT && strcmp(names[pawl_busted], s))
		pawl_busted++;
	if (pawl_busted < BUSTED_COUNT)
		return;
	/* A test that passes with an unknown bug would prove nothing. */
	fprintf(stderr, "pawl: there is no planted bug %s\n", s);
	exit(2);
}

#endif
