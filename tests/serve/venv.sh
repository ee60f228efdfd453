# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# For run.sh of this folder and those below: virtualenvs with packages from PyPI.

skip() {
	echo "$1"
	[ -n "${CI:-}" ] || exit 77
	exit 1
}

# Also where all packages of Debian are there, PyPI may not be.
unreachable() {
	echo "PyPI is out of reach"
	exit 77
}

# install FOLDER PYTHON ARGUMENTS...: a virtualenv in FOLDER.new, which the caller renames
install() {
	local folder=$1 with=$2
	shift 2
	rm -rf "$folder.new"
	"$with" -m venv "$folder.new" || skip "no virtualenv (make setup)"
	"$folder.new/bin/pip" install -q --retries 1 --timeout 20 "$@" || unreachable
}
