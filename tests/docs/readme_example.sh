#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# readme_example.sh [BUILD]: the example of README.md compiles without a warning, runs,
# and prints what it should.  BUILD: the folder with libpawl.a (default: the top).
# Exit status 0: passed, 1: failed, 77: no compiler, or the library is not built.
set -u

src=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
build=${1:-${OBJTREE:-.}}
[ -e "$build/libpawl.a" ] || build=$src
[ -e "$build/libpawl.a" ] || { echo "readme_example: libpawl.a is not built"; exit 77; }
cc=${CC:-cc}
# CC may have arguments
if ! command -v "${cc%% *}" >/dev/null; then
	echo "readme_example: no compiler ($cc)"
	exit 77
fi

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

# the lines between the fences, between the markers
sed -n '/^<!-- example:begin -->$/,/^<!-- example:end -->$/p' "$src/README.md" |
	grep -v -e '^<!-- ' -e '^```' >"$tmp/example.c"
[ -s "$tmp/example.c" ] || { echo "readme_example: README.md has no example"; exit 1; }

san=
if [ -r "$build/include/config/auto.conf" ]; then
	grep -q '^CONFIG_SANITIZE_ADDRESS=y' "$build/include/config/auto.conf" &&
		san=-fsanitize=address,undefined
	grep -q '^CONFIG_SANITIZE_THREAD=y' "$build/include/config/auto.conf" &&
		san=-fsanitize=thread
	grep -q '^CONFIG_COVERAGE=y' "$build/include/config/auto.conf" && san="$san --coverage"
fi

# shellcheck disable=SC2086 # lists of words
$cc -std=c11 -Wall -Wextra -Wpedantic -Werror $san -I"$src/include" -I"$build/include" \
	"$tmp/example.c" -o "$tmp/example" "$build/libpawl.a" -lurcu-memb -lpthread || exit 1
got=$("$tmp/example") || { echo "readme_example: exit status $?"; exit 1; }
[ "$got" = 42 ] || { echo "readme_example: printed \"$got\", not 42"; exit 1; }
echo "readme_example: passed"
