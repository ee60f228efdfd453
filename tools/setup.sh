#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# setup.sh [run|check]: install the Debian packages that make run or make check needs.
# Without root: print the command, and fail if anything is missing.
set -eu

packages='gcc libc6-dev make pkg-config python3 python3-kconfiglib liburcu-dev
	libjansson-dev libopenblas-dev zlib1g-dev'
if [ "${1:-check}" = check ]; then
	packages="$packages libck-dev binutils"
	packages="$packages g++ clang libclang-rt-14-dev cmake check scdoc spin perl util-linux"
fi

if ! command -v dpkg-query >/dev/null; then
	echo "setup: not a Debian system; needed is what Debian calls $packages"
	exit 0
fi

missing=
for package in $packages; do
	status=$(dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null || :)
	case $status in
	installed*) ;;
	*) missing="$missing $package" ;;
	esac
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
	echo "setup: packages are missing; as root:" >&2
	echo "	apt-get install --no-install-recommends$missing" >&2
	exit 1
fi
echo "setup: installing$missing"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# shellcheck disable=SC2086 # a list of words
if ! { apt-get update && apt-get install -y --no-install-recommends $missing; } >"$log" 2>&1; then
	tail -n 20 "$log" >&2
	exit 1
fi
