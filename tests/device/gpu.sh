#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# gpu.sh [LOG]: everything about devices that needs a GPU, on a machine that has one and
# nvcc.  Builds in build/gpu, runs the tests of tests/device on the real CUDA, the digits
# network on the device if the pawl command can, compute-sanitizer, and the measurements.  What was run, and what was
# not and why, is in the log, with the commit and the driver.  Status 77: no GPU.
set -u
cd "$(dirname "$0")/../.." || exit 2
log=${1:-build/gpu.log}
mkdir -p build
home=${CUDA_HOME:-/usr/local/cuda}
nvcc=$home/bin/nvcc
out=build/gpu
rc=0
mkdir -p build
: >"$log"

say() { printf '%s\n' "$*" | tee -a "$log"; }

# step NAME SECONDS COMMAND...
step() {
	local name=$1 seconds=$2
	shift 2
	say "== $name: $*"
	if timeout -k 5 "$seconds" "$@" >>"$log" 2>&1; then
		say "== $name: passed"
	else
		say "== $name: FAILED, status $?"
		tail -n 20 "$log"
		rc=1
	fi
}

skip() { say "== $1: not run: $2"; }

say "commit $(git rev-parse HEAD 2>/dev/null || echo unknown)$(git diff --quiet HEAD 2>/dev/null || echo ', changed')"
say "date $(date -u +%FT%TZ)"
if ! nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader >>"$log" 2>&1; then
	say "no GPU, or no driver: nothing was run"
	exit 77
fi
[ -x "$nvcc" ] || { say "no $nvcc: nothing was run"; exit 77; }
"$nvcc" --version | tail -n 2 >>"$log"
export LD_LIBRARY_PATH=$home/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

step configure 60 make O=$out defconfig
step build 900 make O=$out -j"$(nproc)" lib tests/device/conformance tests/device/engine \
	tests/device/orders tests/device/libcudart.so tests/device/abi.o
step 'build measure' 300 "$nvcc" -O2 -std=c++17 -arch=native -Iinclude -I$out/include \
	-o $out/tests/device/measure tests/device/measure.cu $out/libpawl.a -lurcu-memb -lpthread -ldl

export PAWL_TEST_CUDA=1
step conformance 120 $out/tests/device/conformance
step engine 300 $out/tests/device/engine
step orders 300 $out/tests/device/orders 2000
if command -v compute-sanitizer >/dev/null || [ -x "$home/bin/compute-sanitizer" ]; then
	sanitizer=$(command -v compute-sanitizer || echo "$home/bin/compute-sanitizer")
	step 'memcheck conformance' 300 "$sanitizer" --error-exitcode 1 $out/tests/device/conformance
	step 'memcheck orders' 300 "$sanitizer" --error-exitcode 1 $out/tests/device/orders 100
else
	skip compute-sanitizer 'it is not installed'
fi
if make -n O=$out tools/pawl/pawl >/dev/null 2>&1 && grep -q CONFIG_TOOL_PAWL=y $out/.config; then
	step 'build infer' 600 make O=$out tools/pawl/pawl cuda-kernels NVCC_ARCH=native
	step 'infer on the device' 120 $out/tools/pawl/pawl infer --device cuda --duration 5
else
	skip 'infer on the device' 'the pawl command is not configured (jansson, OpenBLAS)'
fi
step measure 300 $out/tests/device/measure
grep -E '^(device|issue|chain|overlap|graph) ' "$log" | tail -n 6

say "log: $log"
exit $rc
