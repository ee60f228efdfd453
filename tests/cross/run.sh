#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh [arm64 | s390x]...: build the library and some of its tests for other machines with
# Debian's cross compilers, and run them under user-mode emulation.  tools/setup.sh cross gets
# what that needs.  Runs in a build folder: build/cross has the machines' libraries and what
# the tests said, build/cross-MACHINE what was built.
#
# 77: there is no compiler, emulator or library.  With CROSS_NEEDED=y that is a failure.
# CROSS_TESTS: other programs, without their folder, on each machine.
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
here=$PWD
: "${make:=make -f $top/Makefile}"
# byte order and widths of words, and the structures of one thread
words='test_state test_ring test_var test_push test_queue test_take test_prioq test_pool fuzz_engine'
# what threads do at once, as far as it is compiled otherwise: an x86-64 runs it, in its own order
threads='test_ring test_queue test_prioq test_pool test_wait test_delete test_async lin_histories
	stress_random'
machines=${*:-arm64 s390x}
patience=300	# seconds for a program
start=$SECONDS
jobs=
case ${MAKEFLAGS:-} in
*jobserver*) ;;
*) jobs=-j$(nproc) ;;
esac

# names MACHINE: cpu, as the emulator calls it, and triplet
names() {
	case $1 in
	arm64) cpu=aarch64 ;;
	s390x) cpu=s390x ;;
	*) echo "unknown: $1"; exit 2 ;;
	esac
	triplet=$cpu-linux-gnu
}

for machine in $machines; do
	names "$machine"
	what=
	command -v $triplet-gcc >/dev/null || what=$triplet-gcc
	command -v qemu-$cpu >/dev/null || what=${what:-qemu-$cpu}
	[ -e "build/cross/$machine/.done" ] || what=${what:-libraries for $machine}
	[ -n "$what" ] || continue
	echo "no $what: tools/setup.sh cross"
	[ -z "${CROSS_NEEDED:-}" ] || exit 1
	exit 77
done

# programs MACHINE
programs() {
	if [ -n "${CROSS_TESTS:-}" ]; then
		echo "$CROSS_TESTS"
	elif [ "$1" = s390x ]; then
		echo "$words"
	else
		echo "$threads"
	fi
}

# folder PROGRAM: where it is
folder() {
	case $1 in
	test_*) echo tests/unit ;;
	*) echo "tests/${1%%_*}" ;;
	esac
}

# arguments PROGRAM: little work, where it does not say itself how much
arguments() {
	case $1 in
	lin_*) echo -t 5 ;;
	stress_random) echo --seconds 4 ;;
	fuzz_engine) echo -r 1 -n 100 tests/fuzz/corpus/engine ;;
	esac
}

# run_machine NAME: adds to `says` and `calls`
run_machine() {
	local machine=$1 sys=$here/build/cross/$1 build=$here/build/cross-$1
	local lib log=$here/build/cross/$1.build programs=() test status passed=0 all=0

	names "$machine"
	lib=$sys/usr/lib/$triplet
	export PKG_CONFIG_LIBDIR=$lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$sys
	for test in $(programs "$machine"); do
		programs+=("$(folder "$test")/$test")
	done
	# -isystem: the libraries' headers are nobody's to warn about.  What minimal.config leaves out
	# does not depend on the machine.
	set -- O="$build" CC=$triplet-gcc AR=$triplet-ar LDFLAGS="-L$lib" \
		CFLAGS="-DPAWL_EMULATED -isystem $sys/usr/include -isystem $sys/usr/include/$triplet"
	if ! { $make "$@" defconfig minimal.config && $make $jobs "$@" "${programs[@]}"; } \
		>"$log" 2>&1; then
		tail -n 30 "$log"
		echo "FAILED: the build for $machine"
		return 1
	fi
	# qemu cannot always fork beside threads: the tests that do are left out
	for test in $(programs "$machine"); do
		all=$((all + 1))
		log=$here/build/cross/$machine.$test
		# shellcheck disable=SC2046 # words
		(cd "$build" && CK_FORK=no CK_EXCLUDE_TAGS=fork timeout $patience qemu-$cpu \
			-L /usr/$triplet -E LD_LIBRARY_PATH="$lib" "$(folder "$test")/$test" \
			$(arguments "$test")) >"$log" 2>&1
		status=$?
		if [ $status = 0 ]; then
			passed=$((passed + 1))
		else
			tail -n 15 "$log"
			echo "FAILED: $machine: $test: status $status"
		fi
	done
	# the compiler's 16-byte builtins are calls of a library that may lock
	calls=$((calls + $($triplet-nm "$build/libpawl-plain.a" | grep -c ' U __atomic_.*_16$')))
	says="$says $machine=$passed/$all"
	[ $passed = $all ]
}

calls=0 says='' rc=0
for machine in $machines; do
	run_machine "$machine" || rc=1
done
[ $calls = 0 ] || rc=1
echo "C21 cross:$says calls-to-libatomic-16=$calls $((SECONDS - start))s $([ $rc = 0 ] && echo PASS || echo FAIL)"
exit $rc
