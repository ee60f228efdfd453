#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh: build build/coverage with counters, run the tests of the library in it, and report which
# lines and branches they executed: report.py.  Runs in the build folder; $make and $srctree come
# from make.  A test that fails here is shown, and judged where it runs without counters.
# Exit status 0: passed, 1: too little is covered, 77: gcovr or gcc is not installed.
set -eu
: "${srctree:?}" "${make:?}"
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$srctree" && pwd)
for tool in gcovr gcc; do
	command -v $tool >/dev/null || { echo "coverage: $tool is missing (tools/setup.sh all)"; exit 77; }
done
jobs=
case ${MAKEFLAGS:-} in
*jobserver*) ;;
*) jobs=-j$(nproc) ;;
esac

there="$make O=build/coverage CC=gcc CXX=g++ CFLAGS=-g0"
$there defconfig coverage.config
# the tests' own objects as they were built here, if the library alone is configured otherwise
alike() {
	diff -q <(alone .config) <(alone build/coverage/.config) >/dev/null
}
alone() {
	grep -vE '^#|^CONFIG_(CC_OPTIMIZE_.*|LTO|COVERAGE|TOOL_PAWL|SERVE|LOAD)=' "$1"
}
if [ -e tests/unit.list ] && alike; then
	$make $jobs tests
	there="$there TEST_OBJS=$PWD"
fi
$there $jobs tests
cd build/coverage
find . -name '*.gcda' -delete
# all but the tests of the server, and those that end by the clock
cat tests/fault.list tests/unit.list | grep -vE '^(fault/fault_|unit/test_)serve' |
	PAWL_TEST_SHORT=1 "$here/../run.sh" -j "$(nproc)" || :
cd "$top"
folders=(core exec pool device compat)
# Threads count without locks, so a branch may have a negative count, at which gcovr would hang.
gcovr --root . --object-directory "$OLDPWD" "$OLDPWD" "${folders[@]/#/--filter=}" --json -j "$(nproc)" \
	--exclude-throw-branches --gcov-ignore-parse-errors >"$OLDPWD/coverage.json"
"$here/report.py" "$OLDPWD" "${folders[@]}"
