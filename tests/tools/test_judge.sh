#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# test_judge.sh [PAWL]: tests the programs of make bench-serve that this tree has
# (tests/serve/judge).
# Exit status 0: passed, 77: pawl load, the server or taskset is missing.
. "$(dirname "$0")/lib.sh"

"$pawl" load --help >/dev/null 2>&1 || { echo "$self: pawl load is not built"; exit 77; }
command -v taskset >/dev/null || { echo "$self: taskset is missing (util-linux)"; exit 77; }
for program in serve-twin floor pool.so; do
	[ -x "tests/serve/judge/$program" ] ||
		{ echo "$self: tests/serve/judge/$program is not built"; exit 77; }
done
PYTHONDONTWRITEBYTECODE=1 "$python" "$src/tests/serve/judge/test_judge.py" "$pawl" \
	tests/serve/judge/serve-twin tests/serve/judge/floor tests/serve/judge/pool.so
