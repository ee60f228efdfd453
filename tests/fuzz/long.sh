#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# long.sh BUILD TARGET...: fuzz each target (tests/fuzz/fuzz_x) with libFuzzer for
# FUZZ_SECONDS (60).  New inputs stay in BUILD/corpus/x; with FUZZ_KEEP=y the smallest set of
# inputs that reaches the same code is added to tests/fuzz/corpus/x.tar.  An input that fails
# is kept, and the command that replays it is printed.
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=$1
shift
seconds=${FUZZ_SECONDS:-60}
export ASAN_OPTIONS=detect_stack_use_after_return=0 UBSAN_OPTIONS=print_stacktrace=1
rc=0
for target; do
	name=${target##*fuzz_}
	corpus=$build/corpus/$name log=$build/fuzz-$name.log given=$build/tests/fuzz/corpus/$name
	long=$build/tests/fuzz/long_$name
	mkdir -p "$corpus"
	"$long" -max_total_time="$seconds" -timeout=60 -max_len=2048 -len_control=20 \
		-rss_limit_mb=4096 -print_final_stats=1 -artifact_prefix="$build/failed-$name-" \
		"$corpus" "$given" >"$log" 2>&1
	status=$?
	execs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
	cov=$(grep -o 'cov: [0-9]* ft: [0-9]*' "$log" | tail -n 1)
	if [ $status -ne 0 ]; then
		grep -v '^#' "$log" | head -n 60
		file=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
		echo "replay: $build/tests/fuzz/fuzz_$name -v $file"
		rc=1
		continue
	fi
	echo "C16 long_$name seconds=$seconds execs=$execs $cov inputs=$(find "$corpus" -type f | wc -l) PASS"
	if [ "${FUZZ_KEEP:-}" = y ]; then
		"$long" -set_cover_merge=1 -max_len=8192 -timeout=60 "$given" "$corpus" >>"$log" 2>&1 &&
			"$here/corpus.sh" pack "$given" "$here/corpus/$name.tar"
	fi
done
exit $rc
