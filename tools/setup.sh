#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# setup.sh [run|check|all|cross]: install the Debian packages that make run, make check or make
# check-all needs; cross: those of make check and make check-cross.  Without root: print the
# command, and fail if anything is missing.
#
# cross: the compilers and the emulator are installed.  The libraries of the other machines are
# unpacked in build/cross of the current folder, one folder for each; nothing is installed of
# them, and apt has lists and settings of its own in there, so that the system's stay as they
# are: dpkg never hears of another architecture.
set -eu

packages='gcc g++ libc6-dev make pkg-config python3 python3-kconfiglib liburcu-dev libck-dev
	libjansson-dev libopenblas-dev zlib1g-dev systemtap-sdt-dev
	libdnnl-dev libonnx-dev libprotobuf-c-dev protobuf-c-compiler
	libhttp-parser-dev libnghttp2-dev'
if [ "${1:-check}" != run ]; then
	packages="$packages binutils abigail-tools python3-cffi libuv1-dev"
	packages="$packages python3-pytest python3-h2 python3-numpy python3-pip python3-venv"
	packages="$packages python3-setuptools python3-wheel"
	packages="$packages clang libclang-rt-14-dev cmake check scdoc spin perl util-linux"
fi
if [ "${1:-check}" = all ]; then
	packages="$packages gcovr git dpkg-dev debhelper lintian haproxy mmdebstrap"
fi
if [ "${1:-check}" = cross ]; then
	packages="$packages gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
	packages="$packages gcc-s390x-linux-gnu libc6-dev-s390x-cross qemu-user"
fi
machines='arm64 s390x'
libraries='libck-dev liburcu-dev liburcu8 check libsubunit-dev libsubunit0'

if ! command -v dpkg-query >/dev/null; then
	echo "setup: not a Debian system; needed is what Debian calls $packages"
	exit 0
fi

log=$(mktemp)
trap 'rm -f "$log" "$log.failed"' EXIT

# What a failed command said, and what it was for.
failed() {
	tail -n 20 "$log" >&2
	echo "setup: FAILED: $1" >&2
	exit 1
}

# Run apt-get, and print a line for each fifth of what it downloads and installs.
apt() {
	{ apt-get -o Acquire::Retries=3 -o APT::Status-Fd=3 "$@" 3>&1 >>"$log" 2>&1 || : >"$log.failed"; } | awk -F: '
		$1 == "dlstatus" { now = "downloaded" }
		$1 == "pmstatus" { now = "installed" }
		$1 ~ /^(dl|pm)status$/ && (now " " int($3 / 20)) != last {
			last = now " " int($3 / 20)
			if ($3 >= 20)
				print "setup: " int($3 / 20) * 20 " % " now
			fflush()
		}'
	[ ! -e "$log.failed" ]
}

missing=
for package in $packages; do
	status=$(dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null || :)
	case $status in
	installed*) ;;
	*) missing="$missing $package" ;;
	esac
done
if [ -n "$missing" ]; then
	if [ "$(id -u)" -ne 0 ]; then
		echo "setup: packages are missing; as root:" >&2
		echo "	apt-get update && apt-get install --no-install-recommends$missing" >&2
		exit 1
	fi
	echo "setup: installing$missing"
	export DEBIAN_FRONTEND=noninteractive
	# shellcheck disable=SC2086 # a list of words
	{ apt-get -o Acquire::Retries=3 update >"$log" 2>&1 && apt install -y --no-install-recommends $missing; } ||
		failed "installing$missing"
fi
[ "${1:-check}" = cross ] || exit 0

# A folder is there as a whole: its mark is the list of what is in it.
there=y
for machine in $machines; do
	[ "$(cat "build/cross/$machine/.done" 2>/dev/null)" = "$libraries" ] || there=
done
[ -z "$there" ] || exit 0
echo "setup: libraries of $machines, into build/cross"
rm -rf build/cross
mkdir -p build/cross/apt/lists/partial build/cross/apt/archives/partial
cd build/cross
: >apt/status
# apt-get with a state of its own, for these machines alone
own="-q -o Dir::State=$PWD/apt -o Dir::State::status=$PWD/apt/status -o Dir::Cache=$PWD/apt
	-o APT::Architecture=${machines%% *} -o APT::Architectures=$(echo "$machines" | tr ' ' ,)
	-o Acquire::Languages=none -o APT::Sandbox::User=root"
# shellcheck disable=SC2086 # lists of words
apt-get $own update >"$log" 2>&1 || failed "the lists of packages of $machines"
for machine in $machines; do
	mkdir -p "$machine/debs"
	cd "$machine/debs"
	# shellcheck disable=SC2086
	apt-get $own download $(printf "%s:$machine " $libraries) >>"$log" 2>&1 ||
		failed "the download of libraries for $machine"
	for library in *.deb; do
		dpkg -x "$library" .. >>"$log" 2>&1 || failed "unpacking $library"
	done
	cd ../..
	rm -r "$machine/debs"
	echo "$libraries" >"$machine/.done"
done
rm -r apt
