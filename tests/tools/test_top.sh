#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# test_top.sh [PAWL]: pawl top and pawl trace beside a program that runs, as a user runs both.
# Exit status 0: passed, 1: failed, 77: cannot be tested here.
. "$(dirname "$0")/lib.sh"

host=$(dirname "$pawl")/../../tests/tools/published
[ -x "$host" ] || { echo "$self: tests/tools/published is not built"; exit 77; }
PAWL_PUBLISH=$tmp/sockets
export PAWL_PUBLISH
trap 'kill -KILL $pids 2>/dev/null; rm -rf "$tmp"' EXIT
pids=

# begin ARGS...: start the program, in $pid
begin() {
	mkfifo "$tmp/ready"
	"$host" "$@" >"$tmp/ready" &
	pid=$!
	pids="$pids $pid"
	read -r word <"$tmp/ready"
	rm "$tmp/ready"
	[ "$word" = begun ] || { echo "$self: $host does not begin" >&2; exit 1; }
}

# run STATUS PATTERN ARGS...: that exit status, and PATTERN in what it says
run() {
	want=$1 pattern=$2
	shift 2
	checks=$((checks + 1))
	timeout 60 "$pawl" "$@" >"$tmp/out" 2>"$tmp/err"
	got=$?
	[ "$got" -eq "$want" ] || { fail "pawl $*: exit status $got, not $want"; return; }
	cat "$tmp/out" "$tmp/err" | grep -qE -- "$pattern" || fail "pawl $*: no '$pattern'"
}

# a busy one: both engines, and what they do
begin
run 0 "^ +$pid +published$" top
run 0 'published, process '"$pid"', pawl ' top -n 2 -i 0.2 "$pid"
grep -q '^engine 2, other, per-device' "$tmp/out" || fail "the second engine is missing"
[ "$(grep -c ', process ' "$tmp/out")" -eq 2 ] || fail "not two samples"
grep -q "$(printf '\033')" "$tmp/out" && fail "controls of a terminal in a file"
run 0 '"ops_per_s"' top --count=3 --interval=0.3 --json "$pid"
"$python" - "$tmp/out" <<'EOF' || fail "the samples in JSON"
import json, sys
samples = [json.loads(line) for line in open(sys.argv[1])]
assert len(samples) == 3
for s in samples:
    e = s["engines"][0]
    assert s["format"] == 1 and len(s["engines"]) == 2 and not s["more"]
    assert s["seconds"] > 0 and e["completed"] <= e["pushed"] and e["bytes"] > 0
    assert [q["name"] for q in e["queues"]][:2] == ["c0", "prio"]
assert sum(s["engines"][0]["ops_per_s"] for s in samples) > 0
assert all(s["engines"][1]["ops_per_s"] == 0 for s in samples)
EOF
# a trace of it: until the time is over, and until SIGINT
run 0 "^engine 1: $tmp/t.json" trace -d 0.3 -o "$tmp/t.json" "$pid"
trace_ok() {
	"$python" - "$1" "$2" <<'EOF' || fail "the trace $1"
import json, os, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
assert any(e["ph"] == "X" and e["name"] == sys.argv[2] for e in events)
assert os.stat(sys.argv[1]).st_mode & 0o777 == 0o600
EOF
}
trace_ok "$tmp/t.json" step
[ -s "$tmp/t-2.json" ] || fail "no trace of the second engine"
timeout 60 "$pawl" trace --output "$tmp/u.json" --events=4096 "$pid" >"$tmp/trace" 2>&1 &
trace=$!
while ! grep -qs 'is traced' "$tmp/trace"; do sleep 0.1; done
run 1 'another client traces the process' trace -d 0.1 -o "$tmp/v.json" "$pid"
sleep 0.2
kill -TERM "$trace"
wait "$trace" || fail "pawl trace, ended by a signal: exit status $?"
trace_ok "$tmp/u.json" step
run 1 'No such file' trace -d 0.1 -o "$tmp/none/t.json" "$pid"
# the process ends while it is observed
timeout 60 "$pawl" top -i 0.1 "$pid" >"$tmp/top" 2>&1 &
top=$!
while ! grep -qs process "$tmp/top"; do sleep 0.1; done
kill -KILL "$pid"
wait "$top" || fail "pawl top, and the process ends: exit status $?"
grep -q "process $pid has ended" "$tmp/top" || fail "pawl top does not say that the process has ended"
wait "$pid" 2>/dev/null
[ -e "$tmp/sockets/$pid" ] || fail "a killed process removed its socket"
run 1 "there is no process $pid" top "$pid"
run 1 'no process of yours publishes an engine' top
[ ! -e "$tmp/sockets/$pid" ] || fail "the socket of a killed process stays"

# what holds a var, by its name
begin stuck
run 0 'runs +stuck for .* holds var .*, for which 3 ops wait' top -n 2 -i 0.2 "$pid"
kill -STOP "$pid"
run 1 "process $pid is stopped" top "$pid"
kill -KILL "$pid"
begin away
run 1 "process $pid does not answer: all its workers run bodies" top "$pid"

# who does not publish
PAWL_PUBLISH=0
begin
PAWL_PUBLISH=$tmp/sockets
run 1 "process $pid publishes no engine" top "$pid"
run 2 "'x' is not a process id" top x
run 2 'interval=0: not in' top -i 0 "$pid"
run 2 'count=0: not a number' top -n 0 "$pid"
run 2 'one process at a time' top "$pid" "$pid"

# a command, with an engine that ends
unset PAWL_PUBLISH
run 0 "^pawl trace: $tmp/c.json" trace -o "$tmp/c.json" -- "$pawl" infer --requests 30 --reload-every 10 --in-flight 4 --no-naive
trace_ok "$tmp/c.json" fc1
run 1 'true wrote no trace' trace -o "$tmp/d.json" true
run 127 'none: No such file' trace -o "$tmp/d.json" "$tmp/none"
run 3 '' trace -o "$tmp/d.json" sh -c 'exit 3'
run 2 'a process id or a command is missing' trace
run 2 'events=0: not in' trace -e 0 true
run 2 'the trace of a command ends with' trace -d 1 true

[ $bad -eq 0 ] && echo "$self: $checks commands"
[ $bad -eq 0 ]
