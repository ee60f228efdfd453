#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh [arm64 | s390x]...: build the library and its tests for another machine with Debian's
# cross compiler, and run them under user-mode emulation.  Needs, as root, beside what make
# check needs: gcc-aarch64-linux-gnu gcc-s390x-linux-gnu qemu-user.  liburcu and check for the
# machine are downloaded as Debian packages into build/cross and unpacked there.  77: no
# compiler or emulator.
#
# CROSS_TESTS: the programs, without their folder.  One at a time; emulation is slow.
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
: "${CROSS_TESTS:=test_state test_ring test_var}"
[ $# -gt 0 ] || set -- arm64 s390x
rc=0

# unpack ARCH: a folder with the packages of that machine
unpack() {
	local sys=$top/build/cross/$1 package
	[ -e "$sys/.done" ] && return
	mkdir -p "$sys/debs" && cd "$sys/debs" || return
	dpkg --print-foreign-architectures | grep -qx "$1" || {
		dpkg --add-architecture "$1" && apt-get -qq update && touch "$sys/.added"
	}
	for package in liburcu-dev liburcu8 check libsubunit-dev libsubunit0; do
		apt-get -qq download "$package:$1" 2>/dev/null || return
	done
	[ ! -e "$sys/.added" ] || dpkg --remove-architecture "$1"
	for package in *.deb; do
		dpkg -x "$package" "$sys" || return
	done
	touch "$sys/.done"
}

for arch; do
	case $arch in
	arm64) cpu=aarch64 triplet=aarch64-linux-gnu ;;
	s390x) cpu=s390x triplet=s390x-linux-gnu ;;
	*) echo "unknown: $arch"; exit 2 ;;
	esac
	if ! command -v $triplet-gcc >/dev/null || ! command -v qemu-$cpu >/dev/null; then
		echo "no $triplet-gcc or no qemu-$cpu"
		exit 77
	fi
	unpack $arch || { echo "FAILED: packages for $arch"; exit 1; }
	sys=$top/build/cross/$arch lib=$top/build/cross/$arch/usr/lib/$triplet
	export PKG_CONFIG_LIBDIR=$lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$sys
	make="make -C $top O=build/cross-$arch CC=$triplet-gcc AR=$triplet-ar
		CFLAGS=-Wno-error\ -I$sys/usr/include\ -I$sys/usr/include/$triplet LDFLAGS=-L$lib"
	programs=
	for test in $CROSS_TESTS; do
		case $test in
		test_*) programs="$programs tests/unit/$test" ;;
		*) programs="$programs tests/${test%%_*}/$test" ;;
		esac
	done
	if ! { eval $make defconfig && eval $make -j"$(nproc)" lib $programs; } >"$sys/log" 2>&1; then
		tail -n 30 "$sys/log"
		echo "FAILED: the build for $arch"
		rc=1
		continue
	fi
	locks=$($triplet-nm "$top/build/cross-$arch/libpawl-plain.a" | grep -c ' U __atomic_.*_16$')
	passed=0 failed=0
	for test in $CROSS_TESTS; do
		args='' folder=unit
		case $test in
		lin_*) args='-t 5' folder=lin ;;
		stress_random) args='--seconds 5' folder=stress ;;
		stress_prioq) args='1 3' folder=stress ;;
		stress_pool) args='-s 1 -t 3' folder=stress ;;
		fuzz_*) args='-r 1 -n 100' folder=fuzz ;;
		esac
		if (cd "$top/build/cross-$arch" && CK_FORK=no CK_DEFAULT_TIMEOUT=600 timeout 300 \
			qemu-$cpu -L /usr/$triplet -E LD_LIBRARY_PATH="$lib" \
			tests/$folder/$test $args) >"$sys/$test.log" 2>&1; then
			passed=$((passed + 1))
		else
			failed=$((failed + 1)) rc=1
			echo "FAILED: $arch: $test: status $?"
			tail -n 15 "$sys/$test.log"
		fi
	done
	echo "C21 $arch programs=$passed/$((passed + failed)) calls_to_libatomic_16=$locks $([ $failed = 0 ] && [ "$locks" = 0 ] && echo PASS || echo FAIL)"
	[ "$locks" = 0 ] || rc=1
done
exit $rc
