#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# check.sh FOLDER HEADER...: each public header of FOLDER (include/pawl) compiles alone, twice,
# with what its users may have on: as C11 and as C++17; pawl.hpp and execution.hpp as C++17 and
# C++20, with clang too; the other headers for C++ (*.hpp, compat/) as C++11, and the one that includes them all as
# C++11 in one form of MXNet's callbacks, and as C++20 in the other, with clang too.  Generated
# headers are named after it.  Runs in the build folder.
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# a header of ours may include a generated one, but no internal one
cp -r "$1" "$tmp/pawl"
shift
cp "$@" "$tmp/pawl"

warn='-Wall -Wextra -Wundef -Wshadow -Wpedantic -Werror -fsyntax-only'
# user NAME: a program that includes it
user() {
	printf '#include <%s>\n#include <%s>\nextern int pawl_dummy;\n' "$1" "$1" >"$tmp/user.c"
	cp "$tmp/user.c" "$tmp/user.cc"
}
# shellcheck disable=SC2086 # lists of words
for header in "$tmp"/pawl/*.h; do
	name=pawl/${header##*/}
	user "$name"
	${CC:-gcc} -std=c11 $warn -Wstrict-prototypes -Wmissing-prototypes -I"$tmp" "$tmp/user.c"
	${CXX:-g++} -std=c++17 $warn -I"$tmp" "$tmp/user.cc"
	echo "$name"
done
# shellcheck disable=SC2086
for header in "$tmp"/pawl/*.hpp "$tmp"/pawl/compat/*/*.h "$tmp"/pawl/compat/*/*/*.h; do
	name=${header#"$tmp/"}
	user "${name#pawl/compat/}"
	# includes GoogleTest, which is not of C++11: tests/compat/forms.sh compiles it
	[ "$name" != pawl/compat/include/test_util.h ] || continue
	if [ "$name" = pawl/pawl.hpp ] || [ "$name" = pawl/execution.hpp ]; then
		for cxx in ${CXX:-g++} clang++; do
			command -v "$cxx" >/dev/null || continue
			for std in 17 20; do
				$cxx -std=c++$std $warn -I"$tmp" "$tmp/user.cc"
			done
		done
		echo "$name"
		continue
	fi
	${CXX:-g++} -std=c++11 $warn -I"$tmp/pawl/compat" -I"$tmp" "$tmp/user.cc"
	[ "$name" = pawl/compat/mxnet/resource.h ] || continue
	for cxx in ${CXX:-g++} clang++; do
		command -v "$cxx" >/dev/null || continue
		for how in '10901 11' '20000 20'; do
			$cxx -std=c++${how#* } $warn -DPAWL_MX_API=${how% *} -I"$tmp/pawl/compat" -I"$tmp" \
				"$tmp/user.cc"
		done
	done
done
