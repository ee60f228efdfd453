#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# diff.sh LIBPAWL.SO INCLUDEDIR: list what changed in the library's interface since the first
# release, as abidiff sees it.  New functions are welcome.  What an old program could notice
# fails, unless 0.1/changed.suppr names it.
# Exit status 0: passed, 1: failed, 77: abidiff is not installed, or this is another machine.
set -u

here=$(cd "$(dirname "$0")" && pwd)
if ! command -v abidiff >/dev/null; then
	echo "abi: abidiff is not installed (make setup, or the package abigail-tools)"
	exit 77
fi
case $(readelf -h "$1") in
*X86-64*) ;;
*)
	echo "abi: the kept description is of x86-64"
	exit 77
	;;
esac
abidiff --drop-private-types --exported-interfaces-only --headers-dir2 "$2/pawl" \
	--suppressions "$here/0.1/changed.suppr" "$here/0.1/libpawl.abi" "$1"
status=$?
# of its bits 1 and 2 are errors, 4 a change, 8 one that old programs notice
if [ $((status & 11)) != 0 ]; then
	echo "abi: abidiff's status is $status"
	exit 1
fi
