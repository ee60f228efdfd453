#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# test_record.sh [PAWL]: PAWL_RECORD in a program's environment, pawl record and pawl replay
# as a user runs them.  What MXNet pushed for a training step and an inference (tests/data) is
# replayed, recorded, and compared.  With PAWL_DATA=folder the workloads under its wfformat/ and
# pytorch-et/ are replayed, too.  Exit status 0: passed, 1: failed, 77: cannot be tested here.
. "$(dirname "$0")/lib.sh"

data=${PAWL_DATA:-}
unset PAWL_DATA PAWL_RECORD

# run STATUS PATTERN ARGS...: that exit status, and PATTERN in what it says
run() {
	want=$1 pattern=$2
	shift 2
	"$pawl" "$@" >"$tmp/out" 2>"$tmp/err"
	got=$?
	[ "$got" -eq "$want" ] || { fail "pawl $*: exit status $got, not $want"; return; }
	cat "$tmp/out" "$tmp/err" | grep -qE -- "$pattern" || fail "pawl $*: no '$pattern'"
}

infer='infer --requests 300 --reload-every 30 --in-flight 16 --no-naive'
PAWL_RECORD=$tmp/rec "$pawl" $infer >"$tmp/out" 2>"$tmp/err" || fail "pawl infer, recorded"
if [ ! -e "$tmp/rec" ]; then
	[ $bad -eq 0 ] && { echo "test_record: built without CONFIG_RECORD"; exit 77; }
	exit 1
fi

run 0 '^order +serial order of [0-9]+ ops found' record info "$tmp/rec"
# the time is that of UTC everywhere
cp "$tmp/out" "$tmp/here"
TZ=XYZ-9 run 0 ' UTC' record info "$tmp/rec"
cmp -s "$tmp/here" "$tmp/out" || fail "info depends on the time zone"
grep -qxF "file       $tmp/rec: pawl, $(wc -c <"$tmp/rec") bytes" "$tmp/out" || fail "info does not name the file"
grep -q 'by pawl (process' "$tmp/out" || fail "info does not name the program"
grep -q ' 0 with an error, 0 refused' "$tmp/out" || fail "ops are missing"
grep -q 'ends early' "$tmp/out" && fail "the recording was not ended"
ops=$(sed -n 's/^ops  *\([0-9]*\).*/\1/p' "$tmp/out")
[ "$ops" -ge 300 ] || fail "only $ops ops of 300 requests"
run 0 '"fc1"' record dump "$tmp/rec"
[ "$(wc -l <"$tmp/out")" -eq $((ops + 1)) ] || fail "dump has not a line per op"
run 0 '"format":"pawl-record"' record json "$tmp/rec"
"$python" -c 'import json, sys; d = json.load(open(sys.argv[1])); sys.exit(len(d["ops"]) != int(sys.argv[2]))' \
	"$tmp/out" "$ops" || fail "json is no JSON, or has not $ops ops"
for kind in per-device pooled naive; do
	run 0 "^pawl: $ops ops.*: order kept" replay --engine $kind "$tmp/rec"
done
run 0 'order kept' replay --workers 0 --speed 10 "$tmp/rec"
run 0 'order kept' replay --workers 2 --speed 100 --sleep "$tmp/rec"

# What MXNet pushed: every kind of engine runs it in its order, and a recording of that run
# says the same of every op: its place, name, accesses, and how many writes each access saw.
cat >"$tmp/same.py" <<'EOF'
import json, sys

# Ops, and of each var by whom, how and after how many writes it was accessed: sorted, since
# vars have other numbers in another run.
def look(path):
    ops, vars = [], {}
    for place, o in enumerate(json.load(open(path))["ops"]):
        # a delete has its own name
        ops.append("end of a var" if o.get("ends") else
                   (o["name"], o["prop"], o["priority"], o["async"], len(o["accesses"])))
        for a in o["accesses"]:
            vars.setdefault(a["var"], []).append((place, a["write"], a["version"]))
    for v in vars.values():
        v[:] = [(place, write, version - v[0][2]) for place, write, version in v]
    return ops, sorted(vars.values())

one, two = look(sys.argv[1]), look(sys.argv[2])
for i in range(2):
    if len(one[i]) != len(two[i]) or len(one[i]) != int(sys.argv[3 + i]):
        sys.exit("%d, and then %d" % (len(one[i]), len(two[i])))
    for k, (x, y) in enumerate(zip(one[i], two[i])):
        if x != y:
            sys.exit("%s %d: %s, and then %s" % (("op", "var")[i], k, x, y))
EOF
workload() {
	file=$src/tests/data/$1.pwr
	run 0 "^ops +$2 pushed by .*, $6 of them in bodies; $2 begun, $2 over, 0 with an error, 0 refused" record info "$file"
	grep -q "^order  *serial order of $2 ops" "$tmp/out" || fail "$1: no order"
	grep -qE "^vars +$3; $4 reads, $5 writes" "$tmp/out" || fail "$1: other vars"
	waits=$(sed -n 's/^waits  *\([0-9]*\).*/\1/p' "$tmp/out")
	"$pawl" record json "$file" >"$tmp/json.one" || fail "$1 as json"
	[ "$(grep -c '"begin_ns".*"after"' "$tmp/json.one")" -eq "${waits:-none}" ] || fail "$1: waits"
	for how in 'per-device --workers 2' 'per-device --workers 0' 'pooled --workers 4' 'naive --workers 0'; do
		export PAWL_RECORD="$tmp/again"
		# shellcheck disable=SC2086 # an option and its argument
		run 0 "^pawl: $2 ops, $3 vars, $(($4 + $5)) accesses.*: order kept" \
			replay --engine $how "$file"
		unset PAWL_RECORD
		run 0 "^engine 0  *\"replay\", ${how%% *}, ${how##* } workers," record info "$tmp/again"
		"$pawl" record json "$tmp/again" >"$tmp/json.two" || fail "$1, replayed, as json"
		"$python" "$tmp/same.py" "$tmp/json.one" "$tmp/json.two" "$2" "$3" >"$tmp/out" 2>"$tmp/err" ||
			fail "$1 ($how): another order"
	done
}
workload mxnet-train-step 54 60 52 105 0
# it lasts from the first time in the file to the last
run 0 ' for 0\.012114 s$' record info "$src/tests/data/mxnet-train-step.pwr"
PAWL_RECORD=$tmp/twice "$pawl" replay --repeat 2 "$src/tests/data/mxnet-train-step.pwr" >/dev/null
run 0 '^engine 1  *"replay", per-device' record info "$tmp/twice"
[ "$(grep -c '^engine ' "$tmp/out")" -eq 2 ] || fail "info has not a line for each of two engines"
# without an option it has as many workers as an engine has by itself
run 0 '^engine 0 ' record info "$tmp/rec"
workers=$(sed -n 's/^engine 0 .* per-device, \([0-9]* workers\),.*/\1/p' "$tmp/out")
run 0 "^engine 0  *\"replay\", per-device, ${workers:-none}, 1 devices\$" record info "$tmp/twice"
run 0 '"engines":' record json "$tmp/twice"
"$python" -c 'import json, sys; sys.exit([e["engine"] for e in json.load(open(sys.argv[1]))["engines"]] != [0, 1])' \
	"$tmp/out" || fail "json has not two engines"
workload mxnet-resnet18 189 228 138 311 12

# %p, a name that cannot be, and a file that is in use
PAWL_RECORD=$tmp/p-%p-x "$pawl" $infer >"$tmp/out" 2>"$tmp/err" || fail "pawl infer with %p"
ls "$tmp"/p-[0-9]*-x >/dev/null 2>&1 || fail "no file for %p"
PAWL_RECORD=/no/such/file "$pawl" $infer >"$tmp/out" 2>"$tmp/err" || fail "a recording that fails"
grep -q 'PAWL_RECORD: .*/no/such/file: No such file' "$tmp/err" || fail "it does not say so"
if command -v flock >/dev/null; then
	PAWL_RECORD=$tmp/rec flock "$tmp/rec" "$pawl" $infer >"$tmp/out" 2>"$tmp/err"
	grep -q 'another recording' "$tmp/err" || fail "a file that is in use"
	run 0 "serial order of $ops ops" record info "$tmp/rec"
fi

# in the formats of others, and back: the same ops in the same order
run 0 '"runtimeInSeconds"' record wfformat "$tmp/rec"
cp "$tmp/out" "$tmp/back.json"
run 0 "^wfformat: $ops ops,.*order kept" replay "$tmp/back.json"
run 0 '^parents .*, of which no file implies 0$' record info "$tmp/back.json"
run 0 '"traceEvents"' record trace "$tmp/rec"
"$python" -c 'import json, sys
e = json.load(open(sys.argv[1]))["traceEvents"]
sys.exit(sum(x["ph"] in "Xb" and x["cat"] != "launch" for x in e) < int(sys.argv[2]))' "$tmp/out" "$ops" ||
	fail "a trace of a recording lacks bodies"
"$python" -c 'import json, sys
e = json.load(open(sys.argv[1]))["traceEvents"]
at = {(x["tid"], x["ts"]) for x in e if x["ph"] == "X"}
ends = [x for x in e if x["ph"] in "sf"]
sys.exit(not ends or any((x["tid"], x["ts"]) not in at for x in ends))' "$tmp/out" ||
	fail "arrows of a recording do not begin and end at bodies"
cp "$tmp/out" "$tmp/chrome.json"
bodies=$(grep -c '"ph":"X"' "$tmp/chrome.json")
run 0 "^chrome: $bodies ops,.*order kept" replay "$tmp/chrome.json"
run 0 "^ops +$bodies " record info "$tmp/chrome.json"
# a trace of torch.profiler: operators that compute, with the time of their kernels; the order of a
# thread, and from forward to backward
cat >"$tmp/kineto.json" <<'EOF'
{"schemaVersion": 1, "traceEvents": [
{"ph": "X", "cat": "user_annotation", "name": "step", "pid": 9, "tid": 9, "ts": 100.5, "dur": 400},
{"ph": "X", "cat": "cpu_op", "name": "aten::addmm", "pid": 9, "tid": 9, "ts": 130, "dur": 70},
{"ph": "X", "cat": "cpu_op", "name": "aten::empty", "pid": 9, "tid": 9, "ts": 131, "dur": 5},
{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9, "ts": 150,
	"dur": 5, "args": {"correlation": 77}},
{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 200, "dur": 250,
	"args": {"correlation": 77, "stream": 7}},
{"ph": "X", "cat": "cpu_op", "name": "aten::relu", "pid": 9, "tid": 9, "ts": 300, "dur": 50},
{"ph": "X", "cat": "cpu_op", "name": "ReluBackward0", "pid": 9, "tid": 11, "ts": 600, "dur": 50},
{"ph": "s", "cat": "fwdbwd", "id": 1, "name": "fwdbwd", "pid": 9, "tid": 9, "ts": 300},
{"ph": "f", "bp": "e", "cat": "fwdbwd", "id": 1, "name": "fwdbwd", "pid": 9, "tid": 11, "ts": 600},
{"ph": "M", "name": "process_name", "pid": "Spans", "args": {"name": "python"}}]}
EOF
run 0 '^parents +1, of which no file implies 1$' record info "$tmp/kineto.json"
grep -q '^ops  *3 ' "$tmp/out" && grep -q 'longest chain 0.000350 s' "$tmp/out" ||
	fail "the operators of a profile: $(cat "$tmp/out")"
run 0 'order kept' replay "$tmp/kineto.json"
# kernels that an operator launches itself beside another one, and those of no operator, are ops
cat >"$tmp/own.json" <<'EOF'
[{"ph": "X", "cat": "user_annotation", "name": "step", "pid": 9, "tid": 9, "ts": 0, "dur": 400},
{"ph": "X", "cat": "cpu_op", "name": "CompiledFunction", "pid": 9, "tid": 9, "ts": 10, "dur": 100},
{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 9, "tid": 9, "ts": 20, "dur": 30},
{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9, "ts": 30, "dur": 5,
	"args": {"correlation": 1}},
{"ph": "X", "cat": "cuda_runtime", "name": "cuLaunchKernel", "pid": 9, "tid": 9, "ts": 60, "dur": 5,
	"args": {"correlation": 2}},
{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9, "ts": 200, "dur": 5,
	"args": {"correlation": 3}},
{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9, "ts": 500, "dur": 5,
	"args": {"correlation": 4}},
{"ph": "X", "cat": "kernel", "name": "mm", "pid": 0, "tid": 7, "ts": 40, "dur": 10, "args": {"correlation": 1}},
{"ph": "X", "cat": "kernel", "name": "own", "pid": 0, "tid": 7, "ts": 70, "dur": 20, "args": {"correlation": 2}},
{"ph": "X", "cat": "kernel", "name": "adam", "pid": 0, "tid": 7, "ts": 210, "dur": 40, "args": {"correlation": 3}},
{"ph": "X", "cat": "kernel", "name": "last", "pid": 0, "tid": 7, "ts": 510, "dur": 80, "args": {"correlation": 4}}]
EOF
run 0 '^covered +100.0 %' record info "$tmp/own.json"
run 0 '"step"' record dump "$tmp/own.json"
[ "$(awk 'NR > 1 { printf "%s%.0f", $9, $6 - $5 }' "$tmp/out")" = \
	'"step"40"CompiledFunction"20"aten::mm"10"cudaLaunchKernel"80' ] || fail "kernels of operators: $(cat "$tmp/out")"
# the list of events alone, and a member behind it
for whole in '[d]' '[d["traceEvents"]]'; do
	"$python" -c "import json, sys; d = json.load(open(sys.argv[1])); json.dump($whole[0], sys.stdout, indent=1)" \
		"$tmp/kineto.json" >"$tmp/cut"
	run 0 '^ops +3 ' record info "$tmp/cut"
done
echo '{"traceEvents": [], "a": 1, "traceEvents": []}' >"$tmp/cut"
run 1 'line 1, column [0-9]+: duplicate' record info "$tmp/cut"
printf '[{"ph": "X"},\n {"ph": "X"]' >"$tmp/cut"
run 1 'line 2, column 1[0-9]: ' record info "$tmp/cut"
for odd in '{"traceEvents": [7, {}, {"ph": "X", "ts": "a"}, {"ph": "s"}, {"ph": 5}]}' '{"traceEvents": []}'; do
	echo "$odd" >"$tmp/cut"
	run 0 '^ops +0 ' record info "$tmp/cut"
done
# parents that no file implies are arrows, and parents again
cat >"$tmp/told.json" <<'EOF'
{"name": "told", "schemaVersion": "1.5", "workflow": {"specification": {"tasks": [
{"id": "a", "name": "a", "parents": [], "children": ["b"]},
{"id": "b", "name": "b", "parents": ["a"], "children": []}]}, "execution": {"tasks": [
{"id": "a", "runtimeInSeconds": 0.001}, {"id": "b", "runtimeInSeconds": 0.001}]}}}
EOF
run 0 '"parents":\["op0"\],"children":\[\]' record wfformat "$tmp/told.json"
run 0 '"ph":"s"' record trace "$tmp/told.json"

# cut and damaged
head -c -10 "$tmp/rec" >"$tmp/cut"
run 0 'whole up to byte [0-9]+: the program did not end it' record info "$tmp/cut"
grep -q 'ends early' "$tmp/out" || fail "a cut recording does not end early"
run 0 'order kept' replay "$tmp/cut"
head -c 20 "$tmp/rec" >"$tmp/cut"
run 1 'not a recording' record info "$tmp/cut"
{ head -c 5000 "$tmp/rec"; echo damaged; tail -c +5009 "$tmp/rec"; } >"$tmp/cut"
run 1 'offset [0-9]+: the contents of a chunk are damaged' record info "$tmp/cut"
echo '{"a":1}' >"$tmp/cut"
run 1 'neither a recording' replay "$tmp/cut"
echo nothing >"$tmp/cut"
run 1 'line 1' replay "$tmp/cut"
run 1 'No such file' replay "$tmp/none"
run 2 'info, dump, json, trace or wfformat' record
run 2 'info, dump, json, trace or wfformat' record show "$tmp/rec"
run 2 'which file' replay
for option in workers repeat speed; do
	for value in fast nan -1 1x 2e9; do
		run 2 "^pawl replay: --$option: '$value' is not a number" replay --$option=$value "$tmp/rec"
	done
done
for range in workers=1025:0..1024 repeat=0:1..1e.06 repeat=1000001:1..1e.06 speed=1.01e9:0..1e.09; do
	run 2 "is not a number in ${range#*:}$" replay "--${range%:*}" "$tmp/rec"
done
grep -q "^Try 'pawl replay --help'" "$tmp/err" || fail "replay does not name its help"
for option in --engine=fast -efast; do
	run 2 "^pawl replay: --engine: 'fast' is not per-device, pooled or naive" replay $option "$tmp/rec"
done
run 2 '^pawl replay: one file' replay "$tmp/rec" "$tmp/rec"
run 2 "^Try 'pawl replay --help'" replay --no-such-option "$tmp/rec"
run 2 'info, dump, json, trace or wfformat' record info "$tmp/rec" more
run 2 "^Try 'pawl record --help'" record info
run 0 'Usage' record -h
run 0 'Usage' replay -h
# a recording by its first bytes, not by its name
printf 'PWRC' >"$tmp/cut"
run 1 'not a recording' record info "$tmp/cut"
run 0 'Usage' record --help
run 0 'Usage' replay --help
run 0 '^  replay  ' help
run 0 "^'pawl COMMAND --help' lists" help
for word in help version; do
	run 0 '^Usage: pawl COMMAND ' help $word
done

# workloads of others, small ones made here
cat >"$tmp/wf.json" <<'EOF'
{"schemaVersion": "1.5", "workflow": {"specification": {"tasks": [
 {"id": "first", "parents": [], "outputFiles": ["f"]},
 {"id": "last", "parents": ["left", "right"], "inputFiles": ["l", "r"], "outputFiles": ["o"]},
 {"id": "left", "parents": ["first"], "inputFiles": ["f"], "outputFiles": ["l"]},
 {"id": "right", "parents": ["first"], "inputFiles": ["f"], "outputFiles": ["r"]}]},
 "execution": {"tasks": [{"id": "left", "runtimeInSeconds": 2, "priority": 7}]}}}
EOF
run 0 'wfformat: 4 ops, 4 vars, 8 accesses, 4 parents.*order kept' replay "$tmp/wf.json"
run 0 '^0 0 0:0 0\.000 0\.000 0\.000 0 0 "first" normal 0 0 w0@0$' record dump "$tmp/wf.json"
cat >"$tmp/want" <<'EOF'
1 1 0:0 0.001 0.000 2000000.000 0 0 "left" normal 7 0 r0@1 w1@0
2 2 0:0 0.002 2000000.000 2000000.000 0 0 "right" normal 0 0 r0@1 w2@0
3 3 0:0 0.003 2000000.000 2000000.000 0 0 "last" normal 0 0 r1@1 r2@1 w3@0
EOF
tail -n 3 "$tmp/out" | cmp -s - "$tmp/want" || fail "the ops of a workload are others"
run 0 'longest chain 2.0' record info "$tmp/wf.json"
grep -qxF "file       $tmp/wf.json: wfformat, $(wc -c <"$tmp/wf.json") bytes" "$tmp/out" || fail "another size"
# however long it is, also compressed
{ head -c 600000 /dev/zero | tr '\0' ' '; cat "$tmp/wf.json"; } >"$tmp/long.json"
gzip -c "$tmp/long.json" >"$tmp/long.gz"
for file in "$tmp/long.json" "$tmp/long.gz"; do
	run 0 'wfformat: 4 ops, 4 vars, 8 accesses, 4 parents.*order kept' replay "$file"
	run 0 "^file .*: wfformat, $(wc -c <"$tmp/long.json") bytes$" record info "$file"
done
sed 's/"parents": \[\]/"parents": ["last"]/' "$tmp/wf.json" >"$tmp/cut"
run 1 'wait for each other' replay "$tmp/cut"
sed 's/"outputFiles": \["o"\]/"outputFiles": 7/' "$tmp/wf.json" >"$tmp/cut"
run 1 'the files of a task are no list' replay "$tmp/cut"
echo '{"workflow": {"specification": {"tasks": {}}}}' >"$tmp/cut"
run 1 'no workflow.specification.tasks' replay "$tmp/cut"
echo '{"workflow": {"specification": {"tasks": []}}}' >"$tmp/cut"
run 0 'wfformat: 0 ops' replay --repeat 1 "$tmp/cut"
# of a file that a task reads and writes there is one access
sed 's/\["o"\]/["o", "l", "o"]/' "$tmp/wf.json" >"$tmp/cut"
run 0 '"last".* w1@1 r2@1 w3@0$' record dump "$tmp/cut"
# the chain is of the longest body before, also of those that only read
cat >"$tmp/chain.json" <<'EOF'
{"workflow": {"specification": {"tasks": [
 {"id": "short", "inputFiles": ["f"]}, {"id": "long", "inputFiles": ["f"]},
 {"id": "write", "outputFiles": ["f"]}]}, "execution": {"tasks": [
 {"id": "short", "runtimeInSeconds": 1}, {"id": "long", "runtimeInSeconds": 2},
 {"id": "write", "runtimeInSeconds": 2}]}}}
EOF
run 0 'longest chain 4\.0' record info "$tmp/chain.json"
sed 's/"short", "runtimeInSeconds": 1/"short", "runtimeInSeconds": 4/' "$tmp/chain.json" >"$tmp/first.json"
run 0 'longest chain 6\.0' record info "$tmp/first.json"
sed 's/"id": "long", "inputFiles"/"id": "long", "outputFiles"/; s/"id": "write", "outputFiles"/"id": "write", "inputFiles"/' \
	"$tmp/chain.json" >"$tmp/turned.json"
run 0 'longest chain 5\.0' record info "$tmp/turned.json"
# of ops without a common file it is the longest body alone
sed 's/"inputFiles"/"outputFiles"/; s/"outputFiles": \["f"\]/"outputFiles": []/' "$tmp/chain.json" >"$tmp/apart.json"
run 0 'longest chain 2\.0' record info "$tmp/apart.json"
# names as they are
sed 's/"short"/"a \\"b\\\\c\\u0001"/' "$tmp/chain.json" >"$tmp/names.json"
run 0 '"format"' record json "$tmp/names.json"
"$python" -c 'import json, sys; sys.exit(json.load(open(sys.argv[1]))["ops"][0]["name"] != "a \"b\\c\1")' \
	"$tmp/out" || fail "a name in json is another one"
# a body takes its time divided by the speed; the options have short names
PAWL_RECORD=$tmp/short run 0 'wfformat: 4 ops.*order kept' replay -w 0 -e naive -s 20 -r 3 "$tmp/wf.json"
[ "$(wc -l <"$tmp/out")" -eq 3 ] || fail "-r 3 does not replay three times"
run 0 '^engine 2  *"replay", naive, 0 workers' record info "$tmp/short"
run 0 '^bodies .* max [1-9][0-9]{5,}\.' record info "$tmp/short"
# a parent that no file implies is a dependence, too
sed 's/"inputFiles": \["l", "r"\]/"inputFiles": []/' "$tmp/wf.json" >"$tmp/cut"
run 0 '4 parents.* on 1 thread: order kept' replay --workers 0 -r 3 "$tmp/cut"
run 0 '4 parents.* on [12] of 2 threads: order kept' replay -w 2 "$tmp/cut"
run 0 '^parents  *4, of which no file implies 2$' record info "$tmp/cut"
cat >"$tmp/et.json" <<'EOF'
{"schema": "1.0.1", "nodes": [
 {"id": 2, "parent": 1, "name": "aten::mm", "op_schema": "aten::mm(Tensor self, Tensor mat2) -> Tensor",
  "inputs": [[1, 10, 0, 4, 4, "cpu"], [2, 20, 0, 4, 4, "cpu"]], "outputs": [[3, 30, 0, 4, 4, "cpu"]]},
 {"id": 4, "parent": 3, "name": "aten::t", "op_schema": "aten::t(Tensor(a) self) -> Tensor(a)",
  "inputs": [[3, 30, 0, 4, 4, "cpu"]], "outputs": [[4, 30, 0, 4, 4, "cpu"]]},
 {"id": 3, "parent": 1, "name": "outer", "op_schema": "", "inputs": [], "outputs": []},
 {"id": 5, "parent": 1, "name": "aten::add_",
  "op_schema": "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)",
  "inputs": [[3, 30, 0, 4, 4, "cpu"], [1, 10, 0, 4, 4, "cpu"], 1], "outputs": [[3, 30, 0, 4, 4, "cpu"]]}]}
EOF
gzip -c "$tmp/et.json" >"$tmp/et.json.gz"
run 0 'pytorch-et: 3 ops, 3 vars, 6 accesses.*order kept' replay "$tmp/et.json.gz"
run 0 '"aten::mm" normal 0 0 r0@0 r1@0 w2@0' record dump "$tmp/et.json"
grep -q '"aten::t" normal 0 0 r2@1$' "$tmp/out" || fail "a view does not read"
grep -q '"aten::add_" normal 0 0 w2@1 r0@0$' "$tmp/out" || fail "in place does not write"
# nothing is known of the times
run 0 '^queued +p50 0\.000 us, p99 0\.000 us, max 0\.000 us$' record info "$tmp/et.json"
grep -q '^work  *0\.000000 s, longest chain 0\.000000 s: parallelism 1\.00$' "$tmp/out" || fail "et: work"
# the order of the ids counts, not that of the file; 30 is the parent of 40
sed 's/"id": 2,/"id": 50,/; s/"id": 5,/"id": 20,/; s/"id": 4, "parent": 3/"id": 40, "parent": 30/
	s/"id": 3,/"id": 30,/' "$tmp/et.json" >"$tmp/turned.json"
run 0 '"aten::mm" normal 0 0 r1@0 r2@0 w0@1' record dump "$tmp/turned.json"
[ "$(grep -o '"aten::[a-z_]*"' "$tmp/out" | xargs)" = "aten::add_ aten::t aten::mm" ] ||
	fail "the order is that of the file"
# a result that is an argument by name
sed 's/"aten::add_.Tensor(.*"/"aten::add.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)"/' "$tmp/et.json" >"$tmp/out.json"
run 0 '"aten::add_" normal 0 0 r2@1 w0@0$' record dump "$tmp/out.json"
# the commas of a list are not those between arguments
sed 's/"aten::add_.Tensor(.*"/"aten::add.out(int[2] stride=[1, 1], *, Tensor(a!) out) -> Tensor(a!)"/' "$tmp/et.json" >"$tmp/list.json"
run 0 '"aten::add_" normal 0 0 r2@1 w0@0$' record dump "$tmp/list.json"
# a tensor without a storage is not the storage of that number
sed 's/\[2, 20, 0,/[30, 0, 0,/' "$tmp/et.json" >"$tmp/own.json"
run 0 '"aten::mm" normal 0 0 r0@0 r1@0 w2@0' record dump "$tmp/own.json"
# lists of tensors; a schema and a parent as version 1.1 has them, and an op without a schema
cat >"$tmp/et11.json" <<'EOF'
{"schema": "1.1.0-chakra.0.0.4", "nodes": [
 {"id": 2, "ctrl_deps": 1, "name": "aten::cat", "inputs": {"values":
   [[[], [1, 10, 0, 4, 4, "cpu"], [2, 20, 0, 4, 4, "cpu"]], 0]},
  "outputs": {"values": [[3, 30, 0, 4, 4, "cpu"], [4, 40, 0, 4, 4, "cpu"]]}, "attrs": [{"name": "rf_id"}, {"name": "tid"}]},
 {"id": 3, "ctrl_deps": 1, "name": "aten::add_", "inputs": {"values":
   [[3, 30, 0, 4, 4, "cpu"], [1, 10, 0, 4, 4, "cpu"]]}, "outputs": {"values": []},
  "attrs": [{"name": "rf_id", "value": 1}, {"name": "op_schema", "value":
   "aten::add_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)"}, {"name": "tid"}]}]}
EOF
run 0 '"aten::cat" normal 0 0 r0@0 r1@0 w2@0 w3@0$' record dump "$tmp/et11.json"
grep -q '"aten::add_" normal 0 0 w2@1 r0@0$' "$tmp/out" || fail "a schema among the attributes"
# an operator that contains others is no op of its own
sed 's/"nodes": \[/&{"id": 1, "ctrl_deps": 0, "name": "aten::outer", "inputs": {"values":\
   [[2, 20, 0, 4, 4, "cpu"]]}, "outputs": {"values": []}, "attrs": [{"name": "rf_id", "value": 7}]},/' \
	"$tmp/et11.json" >"$tmp/outer.json"
run 0 '"aten::cat" normal' record dump "$tmp/outer.json"
grep -q '"aten::outer"' "$tmp/out" && fail "an operator that contains others is an op"
sed 's/"ctrl_deps": 1/"ctrl_deps": 0/' "$tmp/outer.json" >"$tmp/beside.json"
run 0 '"aten::outer" normal' record dump "$tmp/beside.json"
sed 's/"id": 3/"id": "3"/' "$tmp/et11.json" >"$tmp/cut"
run 1 'a node without an id' record dump "$tmp/cut"
head -c -1 "$tmp/et.json.gz" >"$tmp/cut.gz"
run 1 'damaged compression' replay "$tmp/cut.gz"

n=0
if [ -n "$data" ]; then
	for file in "$data"/wfformat/*.json "$data"/pytorch-et/*.json*; do
		[ -e "$file" ] || continue
		n=$((n + 1))
		for workers in 0 2; do
			run 0 'order kept' replay --workers $workers "$file"
		done
	done
	echo "test_record: $n workloads of $data"
else
	echo "test_record: PAWL_DATA is not set: no workloads of others"
fi
[ $bad -eq 0 ] || { echo "test_record: $bad failed" >&2; exit 1; }
