#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# forms.sh BUILD INCLUDE: the tests of pawl.hpp compile without a warning with each compiler that
# is installed, as C++17 and as C++20; and they pass with the optimizations of a release, clang's as
# C++20; make tests has those of gcc.
set -u
build=$1 include=$2
here=$(cd "$(dirname "$0")" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
failed=0

for form in 'g++ 17' 'g++ 20' 'clang++ 17' 'clang++ 20 run'; do
	read -r cxx std run <<<"$form"
	command -v "$cxx" >/dev/null || continue
	for test in "$here"/test_*.cc; do
		set -- "$cxx" "-std=c++$std" -Wall -Wextra -Wundef -Wshadow -Wpedantic -Werror \
			"-I$include" "-I$build/include" "$test"
		if [ "$run" ]; then
			"$@" -O2 -o "$tmp/test" "$build/libpawl.a" -lurcu-memb -pthread && "$tmp/test"
		else
			"$@" -fsyntax-only
		fi
		rc=$?
		# coroutines came with C++20
		[ $rc = 0 ] || [ $rc-$std = 77-17 ] || {
			echo "$form $test: $rc"
			failed=1
		}
	done
done
exit $failed
