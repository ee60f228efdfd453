// SPDX-License-Identifier: Apache-2.0
/*
 * A list of the program's engines, so that a test that hangs can dump them.  Programs are
 * linked with --wrap, so that the list has also the engines that a library creates.  This file
 * is in an archive, so a program that creates no engine does not link it.
 */
#include <base/atomic.h>
#include <pawl/engine.h>
#include "hang.h"

static struct pawl_engine *engines[64];	/* A; later ones are not dumped */

int __real_pawl_engine_create(const struct pawl_config *cfg, struct pawl_engine **out);
int __wrap_pawl_engine_create(const struct pawl_config *cfg, struct pawl_engine **out);
int __real_pawl_engine_destroy(struct pawl_engine *e);
int __wrap_pawl_engine_destroy(struct pawl_engine *e);

int __wrap_pawl_engine_create(const struct pawl_config *cfg, struct pawl_engine **out)
{
	int rc = __real_pawl_engine_create(cfg, out);
	u32 i;

	for (i = 0; !rc && i < ARRAY_SIZE(engines); i++) {
		struct pawl_engine *none = NULL;

		if (cas_acq_rel_relaxed(&engines[i], &none, *out))
			break;
	}
	return rc;
}

/* The engine stays in the list until it is destroyed, because that may hang. */
int __wrap_pawl_engine_destroy(struct pawl_engine *e)
{
	int rc = __real_pawl_engine_destroy(e);
	u32 i;

	for (i = 0; !rc && e && i < ARRAY_SIZE(engines); i++) {
		struct pawl_engine *was = e;

		cas_acq_rel_relaxed(&engines[i], &was, NULL);
	}
	return rc;
}

void engines_dump(void)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(engines); i++) {
		struct pawl_engine *e = load_acquire(&engines[i]);

		if (e)
			pawl_dump(e, 2);
	}
}
