#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh [ARGUMENT OF judge.py...]: pawl serve beside Triton, in the build folder.  Makes a
# virtualenv with packages from PyPI.  Exit status 0: measured, 77: PyPI is out of reach.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
venv=$PWD/build/judge-venv

# shellcheck source=tests/serve/venv.sh
. "$here/../venv.sh"

# Triton's Python backend has a program for each version of Python.
if [ ! -x "$venv/bin/python" ]; then
	install "$venv" python3.11 -r "$here/requirements.txt"
	"$venv.new/bin/pip" install -q --retries 1 --timeout 20 --no-deps \
		nvidia-pytriton==0.7.0 tritonclient==2.50.0 magika==1.0.3 ||
		skip "PyPI is out of reach"
	mv "$venv.new" "$venv"
fi
export PYTHONDONTWRITEBYTECODE=1
exec "$venv/bin/python" "$here/judge.py" "$@"
