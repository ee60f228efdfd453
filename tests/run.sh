#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh [-n] [-j JOBS] [-p PREFIX] [-r RESULTS] [LIST]...
#
# Run the tests of the lists (default: standard input).  A line of a list is
#
#	NAME <tab> SECONDS <tab> COMMAND
#
# A command passes with status 0, is skipped with 77, and fails with any other or when its time
# has passed.  For each test one line is printed, with the elapsed and the CPU seconds, then for
# a failure the end of its output, for a pass its lines of figures (C16 ...).  At the end come a
# short list of the failures and "N passed, N failed, N skipped".  The status is 1 if any
# failed.
#
#	-n	leave the last line to a later run
#	-j	so many tests at a time (1)
#	-p	put PREFIX before each name
#	-r	append to RESULTS, and count what is there already
set -u

prefix='' results='' more='' jobs=1
while getopts nj:p:r: opt; do
	case $opt in
	n) more=y ;;
	j) jobs=$OPTARG ;;
	p) prefix=$OPTARG ;;
	r) results=$OPTARG ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# Each test has a process group of its own, which Ctrl-C does not reach.
# shellcheck disable=SC2317 # trap calls it
stop() {
	local running
	# shellcheck disable=SC2046 # a list of words
	kill $(jobs -p) 2>/dev/null
	for running in "$tmp"/running.*; do
		kill "$(cat "$running")"
	done 2>/dev/null
	rm -rf "$tmp"
	trap - EXIT "$1"
	kill -s "$1" $$
}
trap 'stop INT' INT
trap 'stop TERM' TERM
[ -n "$results" ] || results=$tmp/results
touch "$results"

# run_test NUMBER NAME SECONDS COMMAND
run_test() {
	local name=$prefix$2 seconds=$3 command=$4 log=$tmp/log.$1
	local start=$EPOCHREALTIME status verdict note='' ticker='' TIMEFORMAT='%U %S'

	if [ "$jobs" = 1 ]; then
		# a long one says what it does
		while sleep 20 >&- 2>&- && kill -0 $$ 2>&-; do
			printf '      %s: %d s, %s\n' "$name" "$((${EPOCHREALTIME%.*} - ${start%.*}))" \
				"$(tail -n 1 "$log" | sed 's/^ *//' | cut -c 1-60)"
		done &
		ticker=$!
	fi
	# the outer 2>: the times, and what this shell has to say about a signal
	{ time {
		env --default-signal=INT timeout -k 5 "$seconds" bash -c "$command" >"$log" 2>&1 </dev/null &
		echo $! >"$tmp/running.$1"
		wait $!
	}; } 2>"$log.times"
	status=$?
	rm -f "$tmp/running.$1"
	[ -z "$ticker" ] || { kill "$ticker"; wait "$ticker"; } 2>/dev/null
	case $status in
	0) verdict=pass ;;
	77) verdict=skip note=": $(tail -n 1 "$log")" ;;
	124) verdict=fail note=": no end after $seconds s" ;;
	137) verdict=fail note=": killed, or no end after $seconds s" ;;
	*) verdict=fail note=": status $status" ;;
	esac
	echo "$verdict $name" >>"$results"
	{
		tail -n 1 "$log.times" |
			awk -v v="$verdict" -v n="$name" -v a="$start" -v b="$EPOCHREALTIME" -v note="$note" \
				'{ printf "%s  %-44s %6.1f s %6.1f s CPU%s\n", v, n, b - a, $1 + $2, note }'
		if [ "$verdict" = fail ]; then
			echo "      $command"
			tail -n 40 "$log" | sed 's/^/    | /'
			touch "$tmp/failed"
			# a C test names its place in a line of its own, the last line is often make's
			{
				echo "fail  $name$note"
				{ grep -E '^[^ ]+:[0-9]+:[FE]:|FAIL|ERROR:|WARNING:|Error' "$log" || tail -n 3 "$log"; } |
					head -n 4 | cut -c 1-200 | sed 's/^/    | /'
			} >>"$results.failed"
		elif [ "$verdict" = pass ]; then
			# the figures of a class of tests, see proof.md
			grep '^C[0-9][0-9] ' "$log" | sed 's/^/      /'
			[ -n "$prefix" ] || grep '^C[0-9][0-9] .* PASS$' "$log" >>"$results.figures"
		fi
	} >"$log.says"
	# in one piece, not mixed with another's
	cat "$log.says"
}

for list; do
	[ -r "$list" ] || run_test list "$list" 1 "cat $list"
done
number=0
while IFS=$'\t' read -r name seconds command; do
	[ -n "$name" ] || continue
	number=$((number + 1))
	if [ "$jobs" = 1 ]; then
		run_test $number "$name" "$seconds" "$command"
		continue
	fi
	[ "$number" -le "$jobs" ] || wait -n
	run_test $number "$name" "$seconds" "$command" &
done < <(cat -- "$@" 2>/dev/null)
wait

rc=0
[ ! -e "$tmp/failed" ] || rc=1
if [ -z "$more" ]; then
	[ ! -s "$results.failed" ] || cat "$results.failed"
	awk '{ n[$1]++ } END {
		printf "%d passed, %d failed, %d skipped\n", n["pass"], n["fail"], n["skip"] }' "$results"
	! grep -q '^fail' "$results" || rc=1
fi
exit $rc
