#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# gen-cdef.sh OUTPUT INCLUDEDIR: the declarations of pawl/engine.h and pawl/device.h without
# directives and attributes, for readers of plain C like Python's cffi, which knows the types
# of stdint.h, stddef.h and stdbool.h by itself.
set -eu

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
for header in stdbool.h stddef.h stdint.h; do
	: >"$tmp/$header"
done
{
	echo '/* SPDX-License-Identifier: Apache-2.0 */'
	echo '/* Made from pawl/engine.h and pawl/device.h, for ffi.cdef() of Python'\''s cffi. */'
	printf '#include <pawl/engine.h>\n#include <pawl/device.h>\n' |
		${CC:-cc} -E -P -nostdinc "-I$tmp" "-I$2" -D'__attribute__(x)=' -x c -
} >"$tmp/cdef"
mv "$tmp/cdef" "$1"
