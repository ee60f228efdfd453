#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# gpu.sh [-b | -r] [LOG]: everything about devices that needs a GPU: the tests of
# tests/device on the real CUDA, the digits network on the device, compute-sanitizer, and the
# measurements.  What was run, and what was not and why, is in the log, with the commit
# and the driver.  Status 77: no GPU.
#
# Without an option it builds, then runs.  -b only builds, where nvcc and the packages of make check
# are; -r only runs what -b has built, on a machine with a GPU and nothing else: build/gpu
# holds the libraries that it needs besides CUDA's.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=y run=y
case ${1-} in
-b) run= && shift ;;
-r) build= && shift ;;
esac
log=${1:-build/gpu.log}
out=build/gpu
suites='conformance engine streams capture errors'
programs="$suites orders"
rc=0
mkdir -p build
: >"$log"

say() { printf '%s\n' "$*" | tee -a "$log"; }

# step NAME SECONDS COMMAND...
step() {
	local name=$1 seconds=$2 status
	shift 2
	say "== $name: $*"
	timeout -k 5 "$seconds" "$@" >>"$log" 2>&1
	status=$?
	if [ $status = 0 ]; then
		say "== $name: passed"
	elif [ $status = 77 ]; then
		say "== $name: not run, see above"
	else
		say "== $name: FAILED, status $status"
		tail -n 20 "$log"
		rc=1
	fi
	return $status
}

skip() { say "== $1: not run: $2"; }

commit=$(git rev-parse HEAD 2>/dev/null || cat $out/commit 2>/dev/null || echo unknown)
git diff --quiet HEAD 2>/dev/null || [ -z "$(git rev-parse HEAD 2>/dev/null)" ] || commit+=', changed'
if [ -z "$build" ]; then
	# what was built counts, not what lies here
	commit=$(cat $out/commit 2>/dev/null || echo unknown)
fi
say "commit $commit"
say "date $(date -u +%FT%TZ)"
nvcc=${NVCC:-${CUDA_HOME:-/usr/local/cuda}/bin/nvcc}
[ -x "$nvcc" ] || nvcc=$(command -v nvcc || echo "$nvcc")
home=${CUDA_HOME:-$(dirname "$(dirname "$(readlink -f "$nvcc")")")}
if [ -n "$run" ]; then
	if ! nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader >>"$log" 2>&1; then
		say "no GPU, or no driver: nothing was run"
		exit 77
	fi
	tail -n 1 "$log"
fi

build_all() {
	local arch=all-major f
	[ -x "$nvcc" ] || { say "no nvcc ($nvcc): nothing was built"; exit 77; }
	"$nvcc" --version | tail -n 2 >>"$log"
	[ -z "$run" ] || arch=native
	rm -rf "${out:?}/lib" $out/commit
	step configure 60 make O=$out defconfig || exit 1
	# shellcheck disable=SC2046,SC2086 # a list of words
	step build 900 make O=$out -j"$(nproc)" lib $(printf 'tests/device/%s ' $programs) || exit 1
	step 'build measure' 300 "$nvcc" -O2 -std=c++17 -arch=$arch -cudart shared \
		-Iinclude -I$out/include -o $out/tests/device/measure tests/device/measure.cu \
		$out/libpawl.a -lurcu-memb -lpthread -ldl
	if grep -q CONFIG_TOOL_PAWL=y $out/.config; then
		step 'build infer' 900 make O=$out NVCC="$nvcc" NVCC_ARCH=$arch tools/pawl/pawl cuda-kernels
	fi
	# what is not the C library's nor CUDA's goes along
	mkdir -p $out/lib
	for f in $programs measure; do echo $out/tests/device/"$f"; done |
		cat - <(echo $out/tools/pawl/pawl) | xargs ldd 2>/dev/null |
		sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | sort -u |
		grep -vE '/(libc|libm|libpthread|libdl|librt|libgcc_s|libstdc..|libcuda[^/]*|libcublas[^/]*)\.so' |
		xargs -r cp -Lft $out/lib
	echo "$commit" >$out/commit
}

[ -z "$build" ] || build_all
if [ -z "$run" ]; then
	say "built in $out, nothing was run; log: $log"
	exit $rc
fi

[ -x $out/tests/device/conformance ] || { say "nothing is built in $out"; exit 1; }
export LD_LIBRARY_PATH=$home/lib64:$home/lib:$PWD/$out/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export PAWL_TEST_CUDA=1
for f in $suites; do
	step "$f" 300 $out/tests/device/"$f"
done
step orders 300 $out/tests/device/orders 2000
sanitizer=$(command -v compute-sanitizer || echo "$home/bin/compute-sanitizer")
if [ -x "$sanitizer" ]; then
	# its tests provoke errors of calls
	step 'memcheck conformance' 300 "$sanitizer" --error-exitcode 1 --report-api-errors no \
		$out/tests/device/conformance
	step 'memcheck orders' 300 "$sanitizer" --error-exitcode 1 $out/tests/device/orders 100
else
	skip 'memcheck conformance, memcheck orders' 'compute-sanitizer is not installed'
fi
if [ -x $out/tools/pawl/pawl ] && [ -e $out/tools/pawl/pawl-cuda.so ]; then
	step 'infer on the device' 120 $out/tools/pawl/pawl infer --device cuda --duration 5 \
		--data demo/data
	[ ! -x "$sanitizer" ] || step 'memcheck infer' 300 "$sanitizer" --error-exitcode 1 \
		$out/tools/pawl/pawl infer --device cuda --requests 50 --data demo/data
else
	skip 'infer on the device' 'the pawl command or its kernels are not built (jansson, OpenBLAS, cuBLAS)'
fi
step measure 300 $out/tests/device/measure && grep -E '^(device|issue|chain|overlap|graph) ' "$log"

say "log: $log"
exit $rc
