#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# test_infer.sh [PAWL]: run the pawl command as a user would: what it prints, what it
# refuses and how, and that it does not let a wrong answer pass.  With PAWL_TEST_SHORT=1,
# for the thread sanitizer, it runs fewer requests, and no options that are refused.
# Exit status 0: passed, 1: failed, 77: the command is not built.
. "$(dirname "$0")/lib.sh"

unset PAWL_DATA
files=$src/demo/data
short=${PAWL_TEST_SHORT:-}
if [ -n "$short" ]; then
	quick='--requests 300 --reload-every 30 --in-flight 16' requests=600
else
	quick=--quick requests=6000
fi

# run STATUS ARGS...: the exit status must be that one
run() {
	want=$1
	shift
	checks=$((checks + 1))
	"$pawl" "$@" >"$tmp/out" 2>"$tmp/err"
	got=$?
	[ "$got" -eq "$want" ] && return 0
	fail "pawl $*: exit status $got, not $want"
	return 1
}

# the same, but nothing in a short run
long() {
	[ -z "$short" ] && run "$@"
}

# refused STATUS PATTERN ARGS...: that status, nothing on stdout, PATTERN on stderr
refused() {
	pattern=$2
	want=$1
	shift 2
	run "$want" "$@" || return
	[ ! -s "$tmp/out" ] || fail "pawl $*: refused, but printed to standard output"
	grep -qE -- "$pattern" "$tmp/err" || fail "pawl $*: no '$pattern' in the message"
}

# printed PATTERN: the last run's standard output has it
printed() {
	grep -qE -- "$1" "$tmp/out" || fail "no '$1' in the output"
}

# json EXPRESSION: holds for the last run's output, which is one JSON object
json() {
	"$python" - "$tmp/out" "$1" <<'END' || fail "JSON: not so: $1"
import json, sys
d = json.load(open(sys.argv[1], encoding="utf-8"))
run, naive = d["runs"][0], d["runs"][-1]
sys.exit(0 if eval(sys.argv[2]) else 1)
END
}

words() {
	# the command itself
	run 0 --help && printed '^Usage: pawl'
	run 0 help && printed '  infer '
	run 0 version && printed '^pawl [0-9]+\.[0-9]+\.[0-9]+'
	run 0 infer --help && printed '--reload-every'
	run 0 help infer && printed '--reload-every'
	for command in --version -V; do
		run 0 $command && printed '^pawl [0-9]+\.[0-9]+\.[0-9]+'
	done
	for command in -h 'help help' 'help version'; do
		# shellcheck disable=SC2086 # a command and its argument
		run 0 $command && printed '^Usage: pawl COMMAND'
	done
	# each option of a command's help is in its manual page, with the same letter
	for command in infer mxnet replay serve load demo; do
		"$pawl" help $command >"$tmp/out" 2>"$tmp/err" || continue	# not built
		sed -nE 's/^  (-(.), |    )(--[a-z0-9-]+).*/\2 \3/p' "$tmp/out" | sed 's/^ //' >"$tmp/options"
		while read -r letter option; do
			case $letter in
			-*) line="^\*$letter\*" ;;
			*) line="^\*-$letter\*, \*$option\*" ;;
			esac
			grep -q -e "$line" "$src/Documentation/man/pawl-$command.1.scd" ||
				fail "pawl-$command.1 has no '$letter $option' of its help"
			checks=$((checks + 1))
		done <"$tmp/options"
	done
	refused 2 "pawl version: takes no arguments, not 'more'" version more
	refused 2 "pawl help: takes one command, and 'more' is a second" help infer more
	refused 2 'Usage: pawl'
	refused 2 "no command 'frobnicate'" frobnicate
	refused 2 "no command 'frobnicate'" help frobnicate
	refused 2 "no option '--frobnicate'" --frobnicate

	# options
	refused 2 'frobnicate' infer --frobnicate
	refused 2 "'more' is more" infer more
	refused 2 "'--batch'|requires an argument" infer --batch
	for arg in --batch=0 --batch=x --batch=-1 --batch=1x --in-flight=0 --in-flight=9999999 \
		--requests=0 --requests=1e3 --rate=0 --rate=nan --duration=-1 --engine=fast \
		--workers=x --reload-every=-1 --seed=99999999999999999999 '--batch= 1'; do
		refused 2 "${arg%%=*}: .*'${arg#*=}' is not" infer "$arg"
	done
	refused 2 'needs --rate' infer --arrivals constant
	refused 2 'needs --workers' infer --rate 100 --workers 0
}
[ -n "$short" ] || words

# what a person sees
# shellcheck disable=SC2086 # a list of options
if run 0 infer $quick; then
	printed '^model a +.*model-a: 6 layers, 64 -> 10'
	printed '^per-device +[0-9]+ +[1-9][0-9]+ +[0-9]+'
	printed '^naive +- +[1-9][0-9]+ +[0-9]+'
	printed '^ratio +[0-9]+\.[0-9]+x'
	printed '^model b +[1-9][0-9]* .* of [0-9]+ .*%'
	printed '^Verified: each of [1-9][0-9]* answers is equal'
	printed 'one version of the weights \([1-9][0-9]* reloads\)'
fi

# what a program sees; the figures of demo/train/README.md, which are MXNet's
if run 0 infer --json --requests $requests --reload-every 50; then
	json 'd["schema_version"] == 1 and d["verified"] is True and d["machine"]["cores"] > 0'
	json '[r["engine"] for r in d["runs"]] == ["per-device", "naive"]'
	json 'all(r["requests"] == '$requests' and r["reloads"] > 0 for r in d["runs"])'
	json 'all(r["answers_wrong"] == 0 and r["versions_mixed"] == 0 for r in d["runs"])'
	json 'all(r["answers_checked"] >= r["requests"] for r in d["runs"])'
	json 'all(r["stats"]["failed"] == 0 and (not r["stats"]["pushed"] or r["stats"]["pushed"] >= '$requests') for r in d["runs"])'
	json 'sum(a["requests"] for a in d["accuracy"]) == 2 * '$requests
	json 'all(0 < r["latency_ns"]["p50"] <= r["latency_ns"]["p99"] <= r["latency_ns"]["max"] for r in d["runs"])'
	json 'all((r["latency_ns"]["p99.9"] is None) == (r["requests"] < 1000) for r in d["runs"])'
	json 'd["ratio_to_naive"] > 0 and d["rounds"] == min(8, '$requests' // 500)'
	# a short run may not have asked each model about each image
	json 'all((a["seen"] < 1797 and '$requests' < 6000) or (a["seen"], a["right"], a["held_out_seen"], a["held_out_right"]) == want for a, want in zip(d["accuracy"], [(1797, 1790, 450, 443), (1797, 1751, 450, 435)]))'
fi

# no percentile that the requests cannot support
if long 0 infer --json --requests 500 --no-naive; then
	json 'len(d["runs"]) == 1 and d["ratio_to_naive"] is None'
	json 'run["latency_ns"]["p99"] > 0 and run["latency_ns"]["p99.9"] is None'
fi
if long 0 infer --json --requests 1 --no-naive --reload-every 0; then
	json 'run["latency_ns"]["p50"] is None and run["latency_ns"]["max"] > 0'
	json 'run["reloads"] == 0 and d["accuracy"][1]["seen"] == 0'
fi

# other shapes of load
# shellcheck disable=SC2086
run 0 infer --json $quick --engine pooled --no-naive &&
	json 'run["engine"] == "pooled" and run["requests"] == d["options"]["requests"]'
# shellcheck disable=SC2086
long 0 infer --json $quick --engine naive &&
	json 'len(d["runs"]) == 1 and run["engine"] == "naive"'
run 0 infer --json --requests 600 --no-naive --in-flight 1 --batch 7 --workers 3 --reload-every 1 &&
	json 'run["reloads"] > 0 and d["verified"]'
run 0 infer --json --requests 300 --no-naive --workers 0 --batch 9 && json 'd["verified"]'
# on a device: a CUDA runtime and kernels of ours; then what this machine has, a GPU or not
if "$pawl" infer --requests 1 --device cuda 2>&1 | grep -q 'built without'; then
	refused 1 'built without' infer --device cuda
else
	mkdir "$tmp/cuda" && cp "$pawl" tests/tools/pawl-cuda.so "$tmp/cuda" &&
		cp -rL "$(dirname "$pawl")/data" "$tmp/cuda" || fail 'no kernels'
	shipped=$pawl
	pawl=$tmp/cuda/pawl
	export PAWL_CUDART=$PWD/tests/device/libcudart.so
	run 0 infer --json --requests 600 --device cuda --workers 2 --reload-every 20 &&
		json 'd["verified"] and run["reloads"] > 0'
	run 0 infer --json --requests 100 --device cuda --workers 0 --batch 3 && json 'd["verified"]'
	pawl=$shipped
	unset PAWL_CUDART
fi
refused 2 "'tpu' is not one of" infer --device tpu
"$pawl" infer --json --requests 100 --device cuda >"$tmp/out" 2>"$tmp/err" ||
	grep -qE 'pawl infer: --device' "$tmp/err" || fail 'no reason why there is no CUDA'
long 0 infer --json --requests 20 --no-naive --batch 2000 --in-flight 2 &&
	json 'd["accuracy"][0]["right"] == 1790'
long 0 infer --json --duration 0.3 --no-naive && json '0.1 < run["seconds"] < 20'
for kind in constant poisson; do
	[ $kind = constant ] && [ -n "$short" ] && continue
	run 0 infer --json --rate 1000 --arrivals $kind --requests 300 --batch 1 &&
		json 'd["options"]["latency_from"] == "intended arrival" and d["ratio_to_naive"] is None' &&
		json 'all(r["requests"] == 300 and r["seconds"] > 0.1 for r in d["runs"])'
done
# more than can be answered: ends in time, and says so
long 0 infer --json --rate 1e7 --duration 0.3 --batch 64 --no-naive &&
	json 'run["never_pushed"] > 0 and any("overloaded" in w for w in d["warnings"])'

# the same model twice: reloads change nothing
# shellcheck disable=SC2086
long 0 infer --json $quick --no-naive --model-b "$files/model-a" &&
	json 'all(a["right"] >= 0.9 * a["seen"] for a in d["accuracy"]) and "same answer" in d["warnings"][0]'

# the trace is JSON, and has arrows
checks=$((checks + 1))
if "$pawl" infer --no-naive --requests 200 --trace "$tmp/trace.json" >"$tmp/out" 2>"$tmp/err"; then
	"$python" - "$tmp/trace.json" <<'END' || fail "the trace is not what a viewer reads"
import json, sys
d = json.load(open(sys.argv[1], encoding="utf-8"))
events = d["traceEvents"] if isinstance(d, dict) else d
kinds = {e["ph"] for e in events}
names = {e.get("name") for e in events}
sys.exit(0 if {"s", "f"} <= kinds and {"fc1", "softmax"} <= names else 1)
END
else
	# a build without CONFIG_TRACE says so
	grep -q 'CONFIG_TRACE' "$tmp/err" || fail 'no trace'
fi
refused 1 'no/such/trace.json: No such file' infer --quick --trace "$tmp/no/such/trace.json"
if [ -w /dev/full ]; then
	for command in 'infer --requests 100 --json --no-naive' 'infer --help' help version --version; do
		checks=$((checks + 1))
		# shellcheck disable=SC2086 # a command and its options
		"$pawl" $command >/dev/full 2>"$tmp/err"
		[ $? -eq 1 ] || fail "pawl $command: a full disk passed"
		grep -q 'No space left' "$tmp/err" || fail "pawl $command: does not name the full disk"
	done
fi
"$pawl" help >&- 2>"$tmp/err" && fail 'a closed output passed'

# where the files come from
few='infer --json --requests 50 --no-naive --reload-every 0'
mkdir -p "$tmp/bin" "$tmp/share" "$tmp/empty"
cp "$pawl" "$tmp/bin/pawl"
PAWL_DATA=$tmp/empty refused 1 "$tmp/empty/digits\.img: cannot open" infer
# shellcheck disable=SC2086
PAWL_DATA=$tmp/empty long 0 $few --data "$files" && json 'd["images"]["file"].endswith("/data/digits.img")'
pawl_built=$pawl
pawl=$tmp/bin/pawl
refused 1 "$tmp/bin/data/digits\.img: cannot open" infer
cp -R "$files" "$tmp/share/pawl"
# shellcheck disable=SC2086
long 0 $few && json 'd["images"]["file"].endswith("/share/pawl/digits.img")'
cp -R "$files" "$tmp/bin/data"
# shellcheck disable=SC2086
long 0 $few && json 'd["images"]["file"].endswith("/bin/data/digits.img")'
pawl=$pawl_built

# files that cannot be used: which, where and why
data=$tmp/data
fresh() {
	rm -rf "$data"
	mkdir "$data"
	cp "$files"/model-* "$files"/digits.img "$data"
}
cut_file() {
	head -c "$2" "$data/$1" >"$tmp/cut" && mv "$tmp/cut" "$data/$1"
}
broken() {
	PAWL_DATA=$data refused 1 "$@"
}

fresh; rm "$data/digits.img"
broken 'digits\.img: cannot open' infer --quick
fresh; rm "$data/model-b-0000.params"
broken 'model-b-0000\.params: cannot open' infer --quick
for size in 0 5 40 60000; do
	fresh; cut_file digits.img $size
	broken 'digits\.img: .*[0-9]' infer --quick
	fresh; cut_file model-a-0000.params $size
	broken 'model-a-0000\.params: .*offset [0-9]+' infer --quick
done
fresh; cut_file model-b-symbol.json 1000
broken 'model-b-symbol\.json' infer --quick
fresh; printf 'x' | dd of="$data/digits.img" bs=1 seek=5000 conv=notrunc 2>/dev/null
broken 'digits\.img: offset [0-9]+' infer --quick
fresh; printf 'x' >>"$data/digits.img"
broken 'digits\.img: .*bytes' infer --quick
fresh; sed 's/"128"/"127"/' "$files/model-a-symbol.json" >"$data/model-a-symbol.json"
broken 'model-a-0000\.params|fc1' infer --quick
fresh; sed 's/"relu"/"sigmoid"/' "$files/model-b-symbol.json" >"$data/model-b-symbol.json"
broken 'layer 1: .*relu1' infer --quick
broken 'ops-symbol\.json|ops: ' infer --quick --model-a "$src/tests/data/ops"
broken 'digits\.img' infer --quick --model-a "$data/digits.img"
broken 'not a regular file' infer --quick --images "$data"

echo "test_infer: $checks runs, $bad failed"
[ "$bad" -eq 0 ]
