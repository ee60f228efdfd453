/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marks a public function, after its definition; layer 0.
 *
 *	int pawl_push(struct pawl_engine *e, const struct pawl_op *op)
 *	{
 *		...
 *	}
 *	PAWL_EXPORT(pawl_push);
 *
 * tools/gen-version-map.py makes the linker's version map from these marks, each of which
 * stands on its own line; the shared library does not export a function without one.  The
 * compiler sees a second declaration, so it rejects a name that was not declared.
 */
#ifndef BASE_EXPORT_H
#define BASE_EXPORT_H

#define PAWL_EXPORT(sym) extern __typeof__(sym) sym

#endif
