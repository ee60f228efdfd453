#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# scale.sh [--ops N] [--budget SECONDS] [--json FILE]: what 1, 2, 4 ... and all cores do, beside
# oneTBB if it is installed.  Builds what it needs (its messages go to stderr) and prints one
# table, in markdown, on stdout; ends after about eight minutes at most.  Needs no privileges.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
# make scale has built it, and says where
if [ "$1" != --bin ]; then
	make -C "$here/../.." bench-build >&2 || exit 1
fi
exec "${PYTHON3:-python3}" "$here/scale.py" "$@"
