/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mark of a public function, after its definition; layer 0.
 *
 *	int pawl_push(struct pawl_engine *e, const struct pawl_op *op)
 *	{
 *		...
 *	}
 *	PAWL_EXPORT(pawl_push);
 *
 * tools/gen-version-map.py makes the linker's version map from these lines, alone on
 * theirs; a public function without one is not in the shared library.  To the compiler
 * it is a second declaration, so the name must be that of something declared.
 */
#ifndef BASE_EXPORT_H
#define BASE_EXPORT_H

#define PAWL_EXPORT(sym) extern __typeof__(sym) sym

#endif
