#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# static.sh LIBDIR INCLUDEDIR...: the archives define pawl_* (libpawl_mx.a: pawl_mx_* and MX*) and
# no other names, so a program may have functions that are called like the library's, and
# the C library's err() stays what it is.  With each compiler that is there.
# Exit status 0: passed, 1: failed.
set -eu

lib=$(cd "$1" && pwd)
shift
here=$(cd "$(dirname "$0")" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# only ARCHIVE PATTERN: its names match
only() {
	nm -g --defined-only "$1" | awk 'NF == 3 { print $3 }' | sort >"$tmp/names"
	[ -s "$tmp/names" ] || { echo "static: $1 defines nothing"; exit 1; }
	if grep -Ev "$2" "$tmp/names"; then
		echo "static: $1 defines these, and should not"
		exit 1
	fi
}

only "$lib/libpawl.a" '^pawl_'
[ ! -e "$lib/libpawl_mx.a" ] || only "$lib/libpawl_mx.a" '^(pawl_mx_|MX)'
echo "static: no other names"

includes=
for dir; do
	includes="$includes -I$dir"
done
for cc in "${CC:-cc}" gcc clang; do
	command -v "${cc%% *}" >/dev/null || continue
	for how in '' -static; do
		# shellcheck disable=SC2086 # lists of words
		for program in names err; do
			$cc $how -std=gnu11 -Wall -Wextra -Werror -fno-builtin $includes \
				"$here/$program.c" -o "$tmp/$program" "$lib/libpawl.a" \
				-lurcu-memb -pthread >"$tmp/said" 2>&1 || { cat "$tmp/said"; exit 1; }
		done
		"$tmp/names"
		status=0
		"$tmp/err" 2>"$tmp/said" || status=$?
		if [ $status != 3 ] || ! grep -q 'own message' "$tmp/said"; then
			echo "static: err() gave status $status, and \"$(cat "$tmp/said")\""
			exit 1
		fi
		echo "static: $cc $how"
	done
done
