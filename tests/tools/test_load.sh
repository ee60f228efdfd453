#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# test_load.sh [PAWL [PYTEST ARGUMENT...]]: the latency client against pawl serve and against a
# server that does all that a server should not (tests/tools/load).  Exit status 0: passed, 77:
# python3-pytest is missing, or the command is not built or has no load.
. "$(dirname "$0")/lib.sh"

[ $# -eq 0 ] || shift
"$pawl" load --help >/dev/null 2>&1 || { echo "$self: pawl load is not built"; exit 77; }
if ! "$python" -c 'import pytest' 2>/dev/null; then
	echo "$self: $python lacks python3-pytest (make setup)"
	[ -n "${CI:-}" ] || exit 77
	exit 1
fi
PAWL=$(cd "$(dirname "$pawl")" && pwd)/$(basename "$pawl")
export PAWL PYTHONDONTWRITEBYTECODE=1
"$python" -m pytest -q -p no:cacheprovider -o faulthandler_timeout=250 \
	--basetemp="$tmp/pytest" "$src/tests/tools/load" "$@"
