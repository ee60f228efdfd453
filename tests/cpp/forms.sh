#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# forms.sh BUILD INCLUDE: each installed compiler compiles the tests of pawl.hpp as C++20 without a
# warning, and they pass when clang compiles them with the optimizations of a release.  make tests
# compiles them as C++17.
set -u
build=$1 include=$2
here=$(cd "$(dirname "$0")" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
failed=0

for form in 'g++ 20' 'clang++ 20 run'; do
	read -r cxx std run <<<"$form"
	command -v "$cxx" >/dev/null || continue
	for test in "$here"/test_*.cc; do
		without=
		[ "${test##*/}" != test_codes.cc ] || without=-fno-exceptions
		set -- "$cxx" "-std=c++$std" $without -Wall -Wextra -Wundef -Wshadow -Wpedantic -Werror \
			"-I$include" "-I$build/include" "$test"
		if [ "$run" ]; then
			"$@" -O2 -o "$tmp/test" "$build/libpawl.a" -lurcu-memb -pthread && "$tmp/test"
		else
			"$@" -fsyntax-only
		fi
		rc=$?
		[ $rc = 0 ] || {
			echo "$form $test: $rc"
			failed=1
		}
	done
done
# PAWL_STDEXEC: the include folder of github.com/NVIDIA/stdexec, which needs g++ 12.
if [ "${PAWL_STDEXEC:-}" ]; then
	g++ -std=c++20 -O1 -Wall -Wextra -Wundef -Wshadow -Wpedantic -Werror -DWITH_STDEXEC \
		"-I$include" "-I$build/include" -isystem "$PAWL_STDEXEC" "$here/test_senders.cc" \
		-o "$tmp/test" "$build/libpawl.a" -lurcu-memb -ltbb -pthread && "$tmp/test" || {
		echo "stdexec $here/test_senders.cc: $?"
		failed=1
	}
fi
exit $failed
