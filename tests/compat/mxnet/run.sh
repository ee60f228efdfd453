#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh smoke|all|two|bench: the installed MXNet on its own engine and on pawl, side by side.
#
#	smoke	imports, one training, some features; if there is a virtualenv already
#	all	makes the virtualenvs from PyPI; everything
#	two	the part of all that is about MXNet 2.0, which needs a Python 3.8
#	bench	both engines in turns (compare.py; about ten minutes, with --quick three):
#		WORK	which pieces of work, WORKERS how many CPU workers ("1 4"); without WORK also
#			sparse ops on one CPU, with a CPU quota (as root), and beside a busy process,
#			and what priorities do in distributed training (dist_bench.py)
#		COMPARE	engines; same: MXNet's engine twice, how wrong the method is;
#			record: pawl without and with PAWL_RECORD
#		STARTS, PAIRS, TRIES, SLICE	see compare.py --help
#
# $MXNET_PYTHON is a Python with mxnet 1.9.1, $MXNET2_PYTHON one with 2.0.0b1; without,
# build/mxnet-venv and build/mxnet2-venv are used.
# Runs in the build folder.  Exit status 0: passed, 1: failed, 77: no mxnet to be had.
set -u

mode=${1:-smoke}
here=$(cd "$(dirname "$0")" && pwd) || exit 1
pawl=${PAWL:-tools/pawl/pawl}
[ -x "$pawl" ] || { echo "tools/pawl/pawl is not built"; exit 77; }
pawl=$(realpath "$pawl")
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
bad=0
export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 MXNET_STORAGE_FALLBACK_LOG_VERBOSE=0
unset LD_PRELOAD MXNET_ENGINE_TYPE MXNET_CPU_WORKER_NTHREADS MXNET_ENGINE_INFO

skip() {
	echo "$1"
	exit 77
}

fail() {
	echo "FAILED: $1"
	bad=1
}

# --- the virtualenv ----------------------------------------------------------

# make_venv FOLDER REQUIREMENTS OLDEST NEWEST PYTHON...: with the first Python that is of these
# versions; 1 and a message if that fails.
make_venv() {
	local venv=$1 requirements=$2 oldest=$3 newest=$4 python
	shift 4
	for python; do
		"$python" -c "import sys, venv, ensurepip
sys.exit(not ($oldest) <= sys.version_info[:2] <= ($newest))" 2>/dev/null && break
		python=
	done
	[ -n "$python" ] || { echo "no Python of (${oldest}) to ($newest) with venv"; return 1; }
	rm -rf "$venv.new"
	"$python" -m venv "$venv.new" || { echo "no virtualenv"; return 1; }
	"$venv.new/bin/pip" install -q --retries 1 --timeout 20 -r "$requirements" ||
		{ echo "PyPI is out of reach: no mxnet"; return 1; }
	rm -rf "$venv"
	# scripts in it name the folder, Python itself does not
	mv "$venv.new" "$venv"
}

# The newest Python for which mxnet 1.9.1 and a numpy before 1.24 exist is 3.11.
have_python() {
	python=${MXNET_PYTHON:-$PWD/build/mxnet-venv/bin/python}
	if [ ! -x "$python" ]; then
		[ -z "${MXNET_PYTHON:-}" ] || { echo "$MXNET_PYTHON is no program"; exit 1; }
		[ "$mode" != smoke ] || skip "no virtualenv with mxnet; make check-mxnet makes one from PyPI"
		make_venv build/mxnet-venv "$here/requirements.txt" 3,8 3,11 python3.11 python3.10 \
			python3.9 python3.8 python3 || exit 77
	fi
	"$python" -c 'import mxnet' 2>"$tmp/err" || { cat "$tmp/err"; skip "$python cannot import mxnet"; }
}

# The only Python for which mxnet 2.0.0b1 exists is 3.8.  1: there is none.
have_python2() {
	python=${MXNET2_PYTHON:-$PWD/build/mxnet2-venv/bin/python}
	[ -x "$python" ] || make_venv build/mxnet2-venv "$here/requirements2.txt" 3,8 3,8 python3.8 \
		"${PYENV_ROOT:-${HOME:-}/.pyenv}"/versions/3.8.*/bin/python3.8 || return 1
	"$python" -c 'import mxnet' 2>"$tmp/err" || { cat "$tmp/err"; return 1; }
}

# --- both engines ------------------------------------------------------------

export XDG_CACHE_HOME=$PWD/build/cache

engine() {
	"$pawl" mxnet --print --python "$python" >"$tmp/lib" || { echo "FAILED: building"; exit 1; }
	echo "engine: $(cat "$tmp/lib")"
}

# on stock|pawl SECONDS NAME PROGRAM [ARG]...: what it prints goes to $tmp/NAME.stock or .pawl
on() {
	local engine=$1 seconds=$2 out=$tmp/$3.$1 run=() rc
	shift 3
	[ "$engine" = stock ] || run=("$pawl" mxnet)
	MXNET_ENGINE_INFO=$([ "$engine" = stock ] && echo 0 || echo 1) \
		timeout -k 5 "$seconds" "${run[@]}" "$python" "$here/$1" "${@:2}" \
		>"$out" 2>"$out.err"
	rc=$?
	[ $rc = 0 ] || { echo "$engine: $*: status $rc"; tail -n 15 "$out" "$out.err"; }
	return $rc
}

# both SECONDS NAME PROGRAM [ARG]...: both end well, and print the same
both() {
	local name=$2 start=$SECONDS
	on stock "$@" || { fail "$name on MXNet's engine"; return; }
	on pawl "$@" || { fail "$name on pawl"; return; }
	grep -q 'pawl: [1-9][0-9]* ops pushed, [1-9][0-9]* completed, [0-9]* failed, [0-9]* skipped' \
		"$tmp/$name.pawl.err" || fail "$name: pawl ran nothing"
	grep -q "pawl [0-9.]* is MXNet's engine" "$tmp/$name.pawl.err" || fail "$name: no version"
	! grep -q 'pawl' "$tmp/$name.stock.err" || fail "$name: that was not MXNet's engine"
	if diff "$tmp/$name.stock" "$tmp/$name.pawl"; then
		echo "same: $name ($(wc -l <"$tmp/$name.pawl") lines, $((SECONDS - start)) s)"
	else
		fail "$name: the engines differ"
	fi
}

# How libmxnet.so's own calls are bound.
bindings() {
	LD_DEBUG=bindings LD_DEBUG_OUTPUT=$tmp/ld "$pawl" mxnet "$python" -c \
		'import mxnet as mx; (mx.nd.ones((2,)) + 1).asnumpy()' || fail "bindings"
	cat "$tmp"/ld.* | grep 'libmxnet\.so .*_ZN5mxnet6Engine\(3Get\|13_GetSharedRef\)Ev' >"$tmp/bound"
	rm -f "$tmp"/ld.*
	grep -q 'to .*/libpawl_mxnet-.*Engine3GetEv' "$tmp/bound" || fail "Engine::Get is not ours"
	! grep -v 'to .*/libpawl_mxnet-' "$tmp/bound" || fail "some call goes to MXNet's engine"
	echo "bound: $(wc -l <"$tmp/bound") symbols of the engine, all to pawl"
}

# The functions of <pawl/mx_c_api.h> are declared as in MXNet's own header: one program that
# has both would not compile if any differed.  Default arguments can only be given once.
signatures() {
	local include header=$here/../../../include/pawl/mx_c_api.h name n=0
	include=$("$python" -c 'import mxnet; print(mxnet.__path__[0])')/include
	sed '/#define/!s/ PAWL_MX_DEFAULT([a-zA-Z0-9]*)//' "$header" >"$tmp/ours.h"
	printf '#include <mxnet/c_api.h>\n#include "%s"\n' "$tmp/ours.h" >"$tmp/both.cc"
	"${CXX:-c++}" -std=c++11 -Werror -fsyntax-only "-I$include" "-I$here/../../../include" \
		-Iinclude "$tmp/both.cc" || fail "the signatures differ from MXNet's header"
	for name in $(grep -o 'PAWL_API.* \**MX[A-Za-z0-9]*(' "$header" | grep -o 'MX[A-Za-z0-9]*'); do
		case $name in
		*OnStart) ;; # ours, for both forms of the callback
		*) grep -q "[ *]$name(" "$include/mxnet/c_api.h" || fail "$name is not MXNet's"; n=$((n + 1)) ;;
		esac
	done
	[ $n -ge 40 ] && echo "same: $n functions of the C interface" || fail "only $n functions"
}

# A package with its own C++ code that pushes into the engine, built as such packages are.
foreign() {
	local package
	package=$("$python" -c 'import mxnet; print(mxnet.__path__[0])')
	"${CXX:-c++}" -std=c++14 -O1 -fPIC -shared -pthread -D_GLIBCXX_USE_CXX11_ABI=0 -DDMLC_USE_CXX11=1 \
		-DMXNET_USE_CUDA=0 -DMSHADOW_USE_CUDA=0 -DMSHADOW_USE_CBLAS=0 -DMSHADOW_USE_MKL=0 \
		-DMXNET_USE_MKLDNN=1 -isystem "$package/include" -isystem "$package/include/mkldnn" \
		"$here/foreign.cc" -o "$tmp/foreign.so" "-L$package" -l:libmxnet.so \
		"-Wl,-rpath,$package" || { fail "foreign.cc"; return; }
	both 120 foreign foreign.py "$tmp/foreign.so"
}

# The profiler runs from the start, with the ops of the imperative interface (2) or without.
autostart() {
	local MXNET_PROFILER_AUTOSTART=1 MXNET_PROFILER_MODE
	export MXNET_PROFILER_AUTOSTART MXNET_PROFILER_MODE
	for MXNET_PROFILER_MODE in 1 2; do
		both 120 "autostart$MXNET_PROFILER_MODE" features.py autostart
	done
}

# All nodes are killed in the end, so pawl does not count its ops.
dist_lost() {
	on stock 300 dist_lost dist.py dist_sync lost || { fail "dist_lost on MXNet's engine"; return; }
	on pawl 300 dist_lost dist.py dist_sync lost || { fail "dist_lost on pawl"; return; }
	grep -q "is MXNet's engine" "$tmp/dist_lost.pawl.err" || fail "dist_lost: pawl ran nothing"
	diff "$tmp/dist_lost.stock" "$tmp/dist_lost.pawl" && echo "same: dist_lost" ||
		fail "dist_lost: the engines differ"
}

smoke() {
	bindings
	signatures
	both 120 features features.py imperative sliced custom exceptions bulked c_api forked loader
	foreign
	both 120 tables tables.py
	autostart
	both 120 train train.py --epochs 1 digits
}

# settings NAME PROGRAM [ARG]...: other settings of pawl against MXNet's engine in its default
# kind: equal numbers, whatever the kind.
settings() {
	[ -f "$tmp/$1.stock" ] || on stock 300 "$@" || { fail "$1 on MXNet's engine"; return; }
	for setting in MXNET_CPU_WORKER_NTHREADS=4 MXNET_ENGINE_TYPE=NaiveEngine \
		MXNET_ENGINE_TYPE=ThreadedEngine; do
		( export "${setting?}"; on pawl 300 "$@" ) || { fail "$1, $setting"; continue; }
		if diff "$tmp/$1.stock" "$tmp/$1.pawl"; then
			echo "same: $1, $setting"
		else
			fail "$1, $setting: other numbers than MXNet's engine"
		fi
	done
}

# MXNet 2.0, where it can be had.
two() {
	have_python2 || { echo "skipped: MXNet 2.0"; return 77; }
	engine
	both 300 two two.py
	settings two two.py
}

all() {
	bindings
	signatures
	both 300 features features.py
	foreign
	both 120 tables tables.py
	autostart
	both 600 train train.py --epochs 3
	both 300 dist_sync dist.py dist_sync
	both 300 dist_async dist.py dist_async
	dist_lost
	both 300 kvstore train.py --epochs 1 --kvstore local digits
	settings base train.py --epochs 2 digits conv lstm
	on pawl 120 threads features.py threads || fail "four threads that push on pawl"
	if on stock 60 threads features.py threads >"$tmp/says"; then
		echo "four threads that push: both end"
	else
		echo "four threads that push: pawl ends, MXNet's engine does not in 60 s"
	fi
	two || true
}

# turns WORKERS [OPTION of compare.py | WORK]...
turns() {
	local workers=$1
	shift
	"${PYTHON3:-python3}" "$here/compare.py" --starts "${STARTS:-5}" --pairs "${PAIRS:-8}" \
		--slice "${SLICE:-0.1}" --tries "${TRIES:-2}" --workers "$workers" "$a" "$b" "$@"
}

# Sparse ops where CPUs are few.
few_cpus() {
	local cpu limit rc
	cpu=$("${PYTHON3:-python3}" -c 'import os; print(min(os.sched_getaffinity(0)))')
	for limit in "--cpu=$cpu" --quota=0.5 --quota=1 --neighbours=1; do
		turns 1 "$limit" sparse-10us sparse-100us sparse-1ms sparse-10ms
		rc=$?
		[ $rc = 0 ] || [ $rc = 77 ] || bad=1
	done
}

# Transfers of distributed training between layers, with priorities and without.  On pawl alone:
# in a trace of MXNet's engine the backward pass has no names.
overlap() {
	local workers
	for workers in 1 2; do
		echo "$workers workers"
		MXNET_CPU_WORKER_NTHREADS=$workers timeout -k 5 300 "$pawl" mxnet "$python" \
			"$here/dist_bench.py" || bad=1
	done
}

# With more than one worker the tiny ops alone, unless WORK says which.
bench() {
	local workers work
	local a="stock=$python" b="pawl=$pawl mxnet $python"
	if [ "${1:-}" = --quick ]; then
		STARTS=${STARTS:-2} PAIRS=${PAIRS:-4}
	fi
	case ${COMPARE:-engines} in
	engines) ;;
	same) b=$a ;;
	record) a=$b b="recorded=env PAWL_RECORD=$tmp/%p.rec $pawl mxnet $python" ;;
	*) fail "COMPARE=$COMPARE"; return ;;
	esac
	for workers in ${WORKERS:-1 4}; do
		work=${WORK:-}
		[ -n "$work" ] || [ "$workers" = 1 ] ||
			work='storm-chain storm-wide storm-new push-wide'
		# shellcheck disable=SC2086 # a list of words
		turns "$workers" $work || bad=1
		[ "${COMPARE:-}" != record ] || ls "$tmp"/*.rec >/dev/null || fail "no recording"
		rm -f "$tmp"/*.rec
	done
	[ -n "${WORK:-}" ] || [ "${COMPARE:-engines}" != engines ] || { few_cpus; overlap; }
}

case $mode in
smoke | all) have_python; engine; $mode ;;
two) two || exit $? ;;
bench) have_python; engine; bench "${2:-}" ;;
*) echo "usage: run.sh smoke|all|two|bench [--quick]"; exit 1 ;;
esac
[ $bad = 0 ] && echo passed
exit $bad
