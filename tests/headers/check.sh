#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# check.sh HEADER...: each public header compiles alone, as C11 and as C++17, with what
# its users may have on.  Runs in the build folder.
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# a header of ours may include a generated one, but no internal one
mkdir "$tmp/pawl"
cp "$@" "$tmp/pawl"

warn='-Wall -Wextra -Wundef -Wpedantic -Werror -fsyntax-only'
for header; do
	name=pawl/${header##*/}
	# twice: its guard
	printf '#include <%s>\n#include <%s>\nextern int pawl_dummy;\n' "$name" "$name" >"$tmp/user.c"
	cp "$tmp/user.c" "$tmp/user.cc"
	# shellcheck disable=SC2086 # lists of words
	{
		${CC:-gcc} -std=c11 $warn -Wshadow -Wstrict-prototypes -Wmissing-prototypes -I"$tmp" "$tmp/user.c"
		${CXX:-g++} -std=c++17 $warn -I"$tmp" "$tmp/user.cc"
	}
	echo "$name"
done
