#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# deep.sh LIST [JOBS]: search the scenarios of the list to the end, with room for many more states
# than the short run has (tables of 2 GiB each), in the build of this folder.  Fails if one is not
# exhausted: the tables bound it, and so the machine's load does not matter; a search that has no
# end after six hours hangs.  A line of the list:
#
#	PROGRAM SCENARIO BOUND		bound: of preemptions, or none
set -u
list=${1:?} jobs=${2:-2}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
start=$EPOCHSECONDS n=0 rc=0

while read -r program scenario bound; do
	[ "$n" -lt "$jobs" ] || wait -n
	n=$((n + 1))
	[ "$bound" != none ] || bound=$((0xffffffff))
	./tests/model/model_"$program" -s "$scenario" -p "$bound" -M 27 -t 21600 \
		>"$out/$program.$scenario" 2>&1 &
done < <(grep -v '^#' "$list")
wait

for f in "$out"/*; do
	if ! grep -Eq '^C03 .* exhausted .* ok$' "$f"; then
		echo "FAILED: ${f##*/} was not searched to the end"
		tail -n 20 "$f"
		rc=1
	fi
done
grep -h '^C03' "$out"/* | awk -v n="$n" -v s=$((EPOCHSECONDS - start)) -v rc=$rc '
	/ exhausted / { done++ }
	{
		for (i = 1; i <= NF; i++) {
			split($i, w, "=")
			if (w[1] == "states")
				states += w[2]
			else if (w[1] == "transitions")
				steps += w[2]
			else if (w[1] == "schedules")
				runs += w[2]
		}
	}
	END {
		printf "C03 deep: scenarios=%d/%d exhausted=%d states=%.4g transitions=%.4g schedules=%.4g %ds %s\n",
			done, n, done, states, steps, runs, s, rc ? "FAIL" : "PASS"
	}'
exit $rc
