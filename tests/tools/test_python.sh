#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# test_python.sh OBJDIR [PYTEST ARGUMENT...]: the tests of the Python package (python/tests) with
# the library of OBJDIR.  Exit status 0: passed, 77: Debian's packages for it are missing.
set -eu

lib=$(cd "$1" && pwd)
shift
top=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON3:-/usr/bin/python3}

missing=
for module in pytest:python3-pytest numpy:python3-numpy cffi:python3-cffi pip:python3-pip \
	setuptools:python3-setuptools wheel:python3-wheel venv:python3-venv; do
	"$python" -c "import ${module%:*}" 2>/dev/null || missing="$missing ${module#*:}"
done
if [ "$missing" ]; then
	echo "$python lacks$missing (make setup)"
	[ -n "${CI:-}" ] || exit 77
	exit 1
fi
# Files of Python's are not written into the source tree.
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$top/python" PAWL_LIBRARY="$lib/libpawl.so" \
	PAWL_CDEF="$lib/pawl.cdef"
exec "$python" -X dev -m pytest -q -p no:cacheprovider -o faulthandler_timeout=200 \
	-W error::pytest.PytestUnraisableExceptionWarning \
	-W error::pytest.PytestUnhandledThreadExceptionWarning "$top/python/tests" "$@"
