#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# examples.sh [BUILD]: every example was built, runs, and says that its answer is right.
# BUILD: the build folder (default: the top).  Exit status 0: passed, 1: failed.
set -u

src=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
build=${1:-${OBJTREE:-$src}}
failed=0
for example in "$src"/examples/*.c "$src"/examples/*.cc; do
	file=$(basename "$example")
	name=${file%.c*}
	# without a compiler for C++
	[ "$file" = "$name.c" ] || command -v "${CXX:-g++}" >/dev/null || continue
	if ! "$build/examples/$name"; then
		echo "examples: $name failed"
		failed=1
	fi
	grep -qF "[$file]" "$src/examples/README.md" || {
		echo "examples: $file is not in examples/README.md"
		failed=1
	}
done
exit $failed
