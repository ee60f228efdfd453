#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# test_serve.sh SERVER [PYTEST ARGUMENT...]: the tests of the server's protocol and operation
# (tests/serve/http) with the program SERVER.  With $PAWL_SERVE_CLIENT also those with Triton's
# client, and with Debian's chromium those of the page, which need the pawl command, too; the
# client and playwright are installed from PyPI into a virtualenv of the build folder.  Exit
# status 0: passed, 77: Debian's packages for it are missing, or SERVER is not built.
set -eu

[ -x "${1:-}" ] || { echo "the server is not built: its libraries are missing (make setup)"; exit 77; }
server=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
shift
tests=$(cd "$(dirname "$0")/../serve/http" && pwd)
python=${PYTHON3:-/usr/bin/python3}
if [ -n "${PAWL_SERVE_CLIENT:-}" ]; then
	venv=build/serve-client
	packages="pytest tritonclient[http,grpc]==2.73.0 h2==4.1.0 playwright==1.49.1"
	if [ "$(cat $venv/.done 2>/dev/null)" != "$packages" ]; then
		rm -rf $venv
		# shellcheck disable=SC2086 # a list of words
		if ! { "$python" -m venv $venv &&
			$venv/bin/pip install -q --retries 1 --timeout 20 $packages; }; then
			echo "no virtualenv (make setup), or PyPI is out of reach"
			exit 77
		fi
		echo "$packages" >$venv/.done
	fi
	python=$venv/bin/python
fi
if ! "$python" -c 'import pytest' 2>/dev/null; then
	echo "$python lacks python3-pytest (make setup)"
	[ -n "${CI:-}" ] || exit 77
	exit 1
fi
# the thread sanitizer does not see what oneDNN's assembly accesses
if [ -z "${PAWL_TEST_SHORT:-}" ] && [ -x tools/pawl/pawl ]; then
	export PAWL_COMMAND="$PWD/tools/pawl/pawl"
fi
export PAWL_SERVE_TEST="$server" PYTHONDONTWRITEBYTECODE=1
exec "$python" -m pytest -q -p no:cacheprovider -o faulthandler_timeout=250 "$tests" "$@"
