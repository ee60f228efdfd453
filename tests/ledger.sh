#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# ledger.sh CLASS SECONDS: one long run of a class of tests in the build of this folder, and a
# line about it at the end of tests/ledger.tsv: class, seed, commit, date, seconds that it
# took, figures.  Seeds are new each time, where a class has seeds.  A run that fails adds
# no line.
set -eu -o pipefail

class=$1 seconds=$2 seed=$(date +%s)
here=$(cd "$(dirname "$0")" && pwd)
commit=$(git -C "$here" rev-parse --short HEAD)
[ -z "$(git -C "$here" status --porcelain -uno)" ] || commit=$commit+

case $class in
C02) run="./tests/stress/stress_random --seed $seed --seconds $seconds" ;;
C03) run="for p in core api exec engine graph device; do ./tests/model/model_\$p -j 2 -M 25 -T $((seconds / 60 + 1)); done" ;;
C05) run="for p in core api exec engine graph device; do ./tests/model/model_\$p -w -m random -j 2 -S $seed -T $((seconds / 60 + 1)); done" ;;
C10) run="./tests/suspend/suspend --seed $seed --seconds $seconds" ;;
# two parts of half of them; about 3 million ops a second
C11) seed=-; run="./tests/purity/purity --ops $((seconds * 1000000))" ;;
# three parts of a third of the time
C12) run="./tests/stress/stress_life --seed $seed --seconds $((seconds / 3 + 1));
	./tests/stress/stress_engines --seed $seed --seconds $((seconds / 3 + 1));
	./tests/compat/test_mx_threads $seed $((seconds / 3 + 1))" ;;
# for each of its threads in turn
C13) seed=-; run="./tests/memory/memory --seconds $seconds" ;;
C15) run="./tests/lin/lin_histories -s $seed -t $seconds" ;;
C16) run="timeout $((seconds + 600)) ./tests/fuzz/fuzz_engine -r $seed -n $((seconds * 400)) tests/fuzz/corpus/engine" ;;
C18) seed=-; run="./tests/teardown/fairness --seconds $seconds" ;;
C19) run="./tests/teardown/teardown --seed $seed --seconds $seconds ./libpawl.so" ;;
C20) run="./tests/device/orders $((seconds * 100)) $seed" ;;
*) echo "no long run of $class" >&2; exit 2 ;;
esac

start=$EPOCHSECONDS
figures=$(bash -c "set -e; $run" | tee /dev/stderr)
# the lines of the class; of programs without one the rounds, or what they say at their end
figures=$(grep "^$class .* PASS$" <<<"$figures" || grep ' rounds' <<<"$figures" ||
	tail -n 1 <<<"$figures")
while read -r line; do
	printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$class" "$seed" "$commit" "$(date -u +%F)" \
		$((EPOCHSECONDS - start)) "$line" >>"$here/ledger.tsv"
done <<<"$figures"
