#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# check.sh short|all
#
# short, for make check: the configured build, all its unit and integration tests, and a short
# form of each proof.  all, for make check-all: everything that can be checked, in the configured
# build and in those of CHECK_BUILDS (name=compiler[+fragment]...).  It runs in the build folder;
# $make and $srctree come from make.  With $RESULTS the outcome is appended to that file.
set -u
case ${1:-} in
short | all) form=$1 ;;
*) echo "usage: check.sh short|all" >&2; exit 2 ;;
esac
: "${srctree:?}" "${make:?}" "${CHECK_BUILDS?}"

run=$(cd "$srctree" && pwd)/tests/run.sh
results=${RESULTS:-$(mktemp)}
[ -n "${RESULTS:-}" ] || trap 'rm -f "$results" "$results.failed" "$results.figures"' EXIT
# figures of this form alone
rm -f "$results.figures"
build_time=1200
jobs=
case ${MAKEFLAGS:-} in
*jobserver*) ;;
*) jobs=-j$(nproc) ;;
esac

# item PREFIX NAME SECONDS COMMAND
item() {
	printf '%s\t%s\t%s\n' "$2" "$3" "$4" | "$run" -n -p "$1" -r "$results"
}

# programs PREFIX FOLDER LIST..., several at a time and the long ones first: most wait more than half
# of theirs, for the clock or a thread.
programs() {
	local prefix=$1 folder=$2
	shift 2
	(cd "$folder" && { cat "${@/%/.list}" || printf 'lists\t1\tfalse\n'; } |
		"$run" -n -j $(($(nproc) * 2)) -p "$prefix" -r "$results")
}
plain='tests/tools tests/unit tests/stress'
search='tests/fault tests/fuzz tests/lin'

for lint in kconfig tokens sources exports edges docs proof; do
	item '' "$lint" 200 "$make check-$lint"
done

# Ctrl-C reaches the tests that run in the background too.
trap 'trap "" TERM; kill -s TERM 0; trap - INT; kill -s INT $$' INT
# shellcheck disable=SC2046 # a list of words
trap 'kill $(jobs -p) 2>/dev/null; exit 143' TERM

short_form() {
	item '' build $build_time "$make $jobs all tests" || return
	item '' headers 400 "$make check-headers" &
	# shellcheck disable=SC2086 # lists of words
	programs '' . $plain tests/fuzz tests/lin
	wait
	item '' model-build $build_time "$make $jobs model"
	item '' model 900 "$make check-model MODEL_ARGS='-T 0.02' MODEL_WEAK=0.01"
	item '' proof-build $build_time "$make $jobs tests/suspend/suspend tests/suspend.list proof"
	PAWL_SUSPEND_SECONDS=2 "$run" -n -r "$results" tests/suspend.list
	PAWL_PURITY_OPS=1e6 "$run" -n -r "$results" tests/purity.list
	PAWL_TEARDOWN_SECONDS=2 PAWL_FAIRNESS_SECONDS=1 "$run" -n -r "$results" \
		tests/memory.list tests/teardown.list
}

if [ "$form" = short ]; then
	short_form
	echo
	echo "Shown (what the figures mean: Documentation/proof.md):"
	sed 's/^/    /' "$results.figures"
	"$run" -r "$results" /dev/null
	exit
fi

# The builds, and the tests of each while the next one is built: most of them wait for minutes.
builds() {
	local build name cc config fragment fragments there
	for build in $CHECK_BUILDS; do
		name=${build%%=*}
		fragments=${build#*=}
		cc=${fragments%%+*}
		fragments=${fragments#"$cc"}
		# lines for a report's frames, and no more
		there="$make O=build/$name CC=$cc CFLAGS=-g1"
		config=defconfig
		for fragment in ${fragments//+/ }; do
			config="$config $fragment.config"
		done
		item "$name/" build $build_time "$there $config && $there $jobs all tests" || continue
		# of one build at a time
		# shellcheck disable=SC2086
		(flock 9 && programs "$name/" "build/$name" $plain $search 9>&-) 9>"$results.lock" &
	done
}

# What builds nothing in this folder and needs no other item, the long ones first: NAME SECONDS COMMAND.
others() {
	local serve="$srctree/tests/tools/test_serve.sh tests/serve/http/server"
	# these need packages of PyPI; the first run installs them
	printf '%s\t%s\t%s\n' models 1800 "$srctree/tests/serve/run.sh" \
		perfetto 600 "$srctree/tests/perfetto/check.sh"
	printf '%s\t%s\t%s\n' model-deep 22000 "$make check-model-deep" \
		busted 900 "$make check-busted" \
		coverage 1800 "make='$make' $srctree/tests/coverage/run.sh" \
		model 900 "$make check-model MODEL_ARGS='-T 0.05' MODEL_WEAK=0.01" \
		cross 1800 "make='$make' $srctree/tests/cross/run.sh"
	# from the tarball, with the other compiler, without the optional parts; or from here if
	# this is no git clone
	printf '%s\t%s\t%s\n' dist 1800 "CC=clang CONFIGS=minimal.config $srctree/tests/install/dist.sh"
	[ -e "$srctree/.git" ] || printf '%s\t%s\t%s\n' install 600 "$make check-install"
	printf '%s\t%s\t%s\n' walk 1800 "$srctree/tests/install/walk.sh" \
		deb 1800 "$srctree/tests/install/deb.sh" \
		headers 400 "$make check-headers" \
		serve-soak 600 "PAWL_SERVE_SOAK=20 $serve -s -k soak" \
		serve-client 600 "PAWL_SERVE_CLIENT=y $serve -k client" \
		spin 600 "$make check-spin" \
		cores 600 "$make check-cores"
}

if item '' build $build_time "$make $jobs all tests"; then
	item '' layers 200 "$make check-layers"
	item '' bench-build 400 "$make $jobs bench-build"
	item '' model-build $build_time "$make $jobs model"
	item '' busted-build $build_time "$make $jobs busted-build"
	item '' proof-build $build_time "$make $jobs tests/suspend/suspend tests/suspend.list proof"
	# shellcheck disable=SC2086 # lists of words
	programs '' . $plain $search &
	builds
	rm -f build/coverage/summary.txt
	others | "$run" -n -j 2 -r "$results"
	wait
	rm -f "$results.lock"
	# not in parallel: they stop threads, and count what the others do meanwhile
	PAWL_SUSPEND_SECONDS=3 PAWL_PURITY_OPS=4e6 "$run" -n -r "$results" \
		tests/suspend.list tests/purity.list tests/memory.list tests/teardown.list
fi

# for make proof-table
mkdir -p build
[ ! -e "$results.figures" ] || cp "$results.figures" build/proof.txt
if [ -e build/coverage/summary.txt ]; then
	echo
	echo "Coverage by the unit and fault tests:"
	cat build/coverage/summary.txt
	echo
fi
"$run" -r "$results" /dev/null
