#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# run.sh LIBDIR: a program that is built with the headers of the first release, which are kept
# in 0.1, runs with the shared library in LIBDIR.
# Exit status 0: passed, 1: failed.
set -eu

lib=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

${CC:-cc} -std=c11 -Wall -Wextra -Werror "-I$here/0.1" "$here/old.c" -o "$tmp/old" \
	"-L$lib" -lpawl
LD_LIBRARY_PATH=$lib "$tmp/old"
