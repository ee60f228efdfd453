#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# forms.sh BUILD INCLUDE: the tests of pawl.hpp compile without a warning, and pass, with each
# compiler that is installed, as C++17 and as C++20, with the optimizations of a release.
set -u
build=$1 include=$2
here=$(cd "$(dirname "$0")" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
failed=0

for cxx in g++ clang++; do
	command -v $cxx >/dev/null || continue
	for std in 17 20; do
		for test in "$here"/test_*.cc; do
			$cxx -std=c++$std -O2 -Wall -Wextra -Wundef -Wshadow -Wpedantic -Werror \
				"-I$include" "-I$build/include" "$test" -o "$tmp/test" \
				"$build/libpawl.a" -lurcu-memb -pthread && "$tmp/test"
			rc=$?
			# coroutines came with C++20
			[ $rc = 0 ] || [ $rc-$std = 77-17 ] || {
				echo "$cxx -std=c++$std $test: $rc"
				failed=1
			}
		done
	done
done
exit $failed
