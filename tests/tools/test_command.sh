#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# test_command.sh [PAWL]: the command line of every subcommand of pawl: what it takes, what it
# refuses and how, its help, and the options of pawl infer, by their short and long names.
# Exit status 0: passed, 1: failed, 77: the command is not built.
. "$(dirname "$0")/lib.sh"

unset PAWL_DATA
man=$src/Documentation/man

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

# refused WHO ARGS...: a usage error, which names WHO and of which nothing is on standard output
refused() {
	who=$1
	shift
	run 2 "$@"
	[ ! -s "$tmp/out" ] || fail "pawl $*: refused, but printed to standard output"
	grep -q "^$who: ." "$tmp/err" || fail "pawl $*: no message of $who"
}

# says TEXT: standard error has this line
says() {
	grep -qxF -- "$1" "$tmp/err" || fail "no line '$1' in the message"
}

# same FILE: what the last run printed
same() {
	cmp -s "$1" "$tmp/out" || fail "the output is not that of $1"
}

# --- pawl itself ---

run 0 help
cp "$tmp/out" "$tmp/help"
cat >"$tmp/want" <<'END'
Usage: pawl COMMAND [OPTION]...
Run work through pawl, a dependency engine.

Commands:
  bench      measure the engine on this host
  check      say what runs the models of files and folders, or what blocks them
  demo       start pawl serve, send it handwritten digits, and check its answers
  infer      classify handwritten digits; every layer of every request is an op
  load       measure the latency of an inference server
  mxnet      run a program that uses Apache MXNet, with pawl as its engine
  record     show and check a recording (PAWL_RECORD=file)
  replay     push a recorded workload again, and check its order
  serve      answer inference requests over HTTP and gRPC with ONNX and MXNet models
  top        show what the engines of a running process do
  trace      write a trace of a running process, or of a command
  version    print the version of the library
  help       print this help, or that of a command

'pawl COMMAND --help' lists the options of a command; see also pawl(1).
END
# commands that this build lacks
for command in check demo load serve; do
	grep -q "^  $command " "$tmp/help" || sed -i "/^  $command /d" "$tmp/want"
done
same "$tmp/want"
[ ! -s "$tmp/err" ] || fail 'pawl help writes to standard error'
for args in --help -h 'help help' 'help version' '--help more' '-h more'; do
	# shellcheck disable=SC2086 # words
	run 0 $args
	same "$tmp/help"
done
run 2
[ ! -s "$tmp/out" ] || fail 'pawl alone prints to standard output'
cmp -s "$tmp/help" "$tmp/err" || fail 'pawl alone does not print its help'
run 0 version
cp "$tmp/out" "$tmp/version"
[ "$(wc -l <"$tmp/version")" -eq 1 ] || fail 'the version is not one line'
grep -qE '^pawl [0-9]+\.[0-9]+\.[0-9]+' "$tmp/version" || fail 'the version is another text'
for args in --version -V '--version more' '-V more'; do
	# shellcheck disable=SC2086 # words
	run 0 $args
	same "$tmp/version"
done
refused pawl frobnicate
says "pawl: no command 'frobnicate'; 'pawl help' lists the commands"
refused pawl --frobnicate
says "pawl: no option '--frobnicate'; 'pawl help' lists the commands"
refused pawl -x
says "pawl: no option '-x'; 'pawl help' lists the commands"
refused pawl ''
says "pawl: no command ''; 'pawl help' lists the commands"
# a part of a name is no name, and neither is one with more behind it
refused pawl inf
refused pawl inferx
refused pawl help frobnicate
says "pawl: no command 'frobnicate'; 'pawl help' lists the commands"
refused pawl help --help
says "pawl: no command '--help'; 'pawl help' lists the commands"
refused 'pawl help' help infer record
says "pawl help: takes one command, and 'record' is a second"
refused 'pawl version' version --verbose
says "pawl version: takes no arguments, not '--verbose'"
for args in 'version --help' 'version -h'; do
	# shellcheck disable=SC2086 # words
	run 0 $args
	grep -q '^Usage: pawl version' "$tmp/out" || fail "pawl $args prints no help"
done

# a write that failed long before the end counts as well: without a buffer each write fails at once
for buffer in '' 'stdbuf -o0'; do
	[ -w /dev/full ] || break
	[ "$buffer" ] && ! command -v stdbuf >/dev/null && break
	checks=$((checks + 1))
	# shellcheck disable=SC2086 # a command and its option, or none
	$buffer "$pawl" help >/dev/full 2>"$tmp/err"
	got=$?
	[ $got -eq 1 ] || fail "$buffer pawl help on a full disk: exit status $got"
	grep -q '^pawl: standard output: ' "$tmp/err" || fail "$buffer pawl help: no message of a full disk"
done

# --- every command ---

commands=$(sed -n 's/^  \([a-z]*\)  *[a-z].*/\1/p' "$tmp/help")
for command in bench infer mxnet record replay version help; do
	echo "$commands" | grep -qx $command || fail "pawl help has no $command"
done
for command in $commands; do
	case $command in
	help | version) continue ;;
	esac
	run 0 help "$command"
	cp "$tmp/out" "$tmp/own"
	[ ! -s "$tmp/err" ] || fail "the help of $command is on standard error"
	head -n 1 "$tmp/own" | grep -q "^Usage: pawl $command " || fail "the help of $command is another one's"
	for option in --help -h; do
		run 0 "$command" $option
		same "$tmp/own"
	done
	# the list of commands in the manual has it
	grep -q "^\*$command\*\$" "$man/pawl.1.scd" && grep -q "\*pawl-$command\*(1)" "$man/pawl.1.scd" || fail "pawl(1) does not name pawl-$command(1)"
	if [ "$command" = record ]; then
		refused "pawl record" record --no-such-option file
		for what in info dump json trace wfformat; do
			grep -qE "^  $what  +[a-z]+ [a-z]+" "$tmp/own" ||
				fail "the help of record does not tell what $what does"
		done
		continue
	fi
	refused "pawl $command" "$command" --no-such-option
	grep -q -- --no-such-option "$tmp/err" || fail "$command does not say which option it has not"
	case $command in
	check | mxnet | trace) ;;
	*) refused "pawl $command" "$command" more arguments ;;
	esac
	# each option of the manual page is in the help: by both names, and with an argument if it has one
	sed -nE 's/^\*(-[A-Za-z])\*, \*(--[a-z0-9-]+)\*(=.*)?$/\1 \2 \3/p
		s/^\*(--[a-z0-9-]+)\*(=.*)?$/- \1 \2/p' "$man/pawl-$command.1.scd" >"$tmp/options"
	[ -s "$tmp/options" ] || fail "no options in pawl-$command.1"
	while read -r letter option argument; do
		checks=$((checks + 1))
		line="^  $letter, $option"
		[ "$letter" = - ] && line="^  (    )?$option"
		grep -qE -e "$line${argument:+=}( |[^a-z= -]|\$)" "$tmp/own" ||
			fail "the help of $command has no '$letter $option$argument' of its manual page"
		# an option of which the argument is missing is refused, by either name
		[ "$argument" ] || continue
		refused "pawl $command" "$command" "$option"
		[ "$letter" = - ] || refused "pawl $command" "$command" "$letter"
	done <"$tmp/options"
done

# --- the options of pawl infer ---

# taken ARGS...: no option is refused; there is no data, which is found only after that
taken() {
	run 1 infer --data="$tmp/none" "$@"
	grep -q "^pawl infer: $tmp/none/digits.img: cannot open" "$tmp/err" || fail "pawl infer $*: refused"
}

# the least and the most of each number, and what is beyond; and its message
whole() {
	taken "--$1=$2"
	taken "--$1=$3"
	for value in $4; do
		refused 'pawl infer' infer --data="$tmp/none" "--$1=$value"
		says "pawl infer: --$1: '$value' is not a whole number in $2..$3"
		says "Try 'pawl infer --help'."
	done
}
whole batch 1 4096 '0 4097 +1 0x1 1.5 99999999999999999999'
whole in-flight 1 4096 '0 4097'
whole requests 1 281474976710656 '0 281474976710657'
whole workers 0 1024 '-1 1025'
whole reload-every 0 18446744073709551615 '-1 18446744073709551616'
whole seed 0 18446744073709551615 '-1 18446744073709551616'
for value in '' ' 1'; do
	refused 'pawl infer' infer "--batch=$value"
	says "pawl infer: --batch: '$value' is not a whole number in 1..4096"
	refused 'pawl infer' infer "--rate=$value "
	says "pawl infer: --rate: '$value ' is not a number in 0.001..1e+08"
done
real() {
	taken "--$1=$2"
	taken "--$1=$3"
	for value in $5 nan; do
		refused 'pawl infer' infer --data="$tmp/none" "--$1=$value"
		says "pawl infer: --$1: '$value' is not a number in $4"
	done
}
real rate 0.001 1e8 0.001..1e+08 '0 0.0009 1.01e8 inf 1x'
real duration 0.001 1e6 0.001..1e+06 '0 0.0009 1.01e6 inf'
for choice in engine:per-device:pooled:naive device:cpu:cuda arrivals:constant:poisson; do
	list=$(echo "${choice#*:}" | tr : ' ')
	for value in '' "${list%% *}x"; do
		refused 'pawl infer' infer --rate 1 "--${choice%%:*}=$value"
		says "pawl infer: --${choice%%:*}: '$value' is not one of $list"
		says "Try 'pawl infer --help'."
	done
	[ "${choice%%:*}" = device ] && continue	# the device comes before the files
	for value in $list; do
		taken --rate 1 "--${choice%%:*}=$value"
	done
done
# options that contradict each other; the naive engine has no workers
refused 'pawl infer' infer --arrivals=poisson
says 'pawl infer: --arrivals needs --rate'
refused 'pawl infer' infer --rate=1 --workers=0
says 'pawl infer: --rate needs --workers of at least 1: its pushing thread only pushes'
taken --rate=1 --workers=0 --engine=naive
taken --rate=1 --workers=1
taken --workers=0
refused 'pawl infer' infer one two
says "pawl infer: 'one' is more than was expected"
says "Try 'pawl infer --help'."

# option FILE EXPRESSION: holds for the JSON of the last run; o: its options
option() {
	"$python" - "$tmp/out" "$1" <<'END' || fail "JSON: not so: $1"
import json, sys
d = json.load(open(sys.argv[1], encoding="utf-8"))
o, runs = d["options"], d["runs"]
sys.exit(0 if eval(sys.argv[2]) else 1)
END
}

# by short names; each value is another one than the default and than the others
files=$src/demo/data
cp "$files/digits.img" "$tmp/images"
for f in symbol.json 0000.params; do
	cp "$files/model-a-$f" "$tmp/one-$f"
	cp "$files/model-b-$f" "$tmp/two-$f"
done
run 0 infer -j -a "$tmp/two" -b "$tmp/one" -i "$tmp/images" -B 7 -r 5 -f 3 -n 60 -d 1000 -e pooled -w 2
option 'o["batch"] == 7 and o["reload_every"] == 5 and o["in_flight"] == 3 and o["requests"] == 60'
option 'o["duration"] == 1000 and o["rate"] is None and o["arrivals"] is None and not o["quick"]'
option 'o["loop"] == "closed" and o["latency_from"] == "push" and o["trace"] is None and o["seed"] == 1'
option '[r["engine"] for r in runs] == ["pooled", "naive"]'
option 'runs[0]["workers"] == 2 and runs[1]["workers"] is None'
option "d['model']['a'] == '$tmp/two' and d['model']['b'] == '$tmp/one'"
option "d['images']['file'] == '$tmp/images' and d['images']['count'] == 1797 and d['images']['held_out'] == 450"
option 'd["verified"] and d["tool"] == "pawl infer" and d["schema_version"] == 1 and d["rounds"] == 1'
option "d['version'] == '$(cut -d ' ' -f 2 "$tmp/version")'"
option 'runs[0]["requests"] == 60 and runs[1]["requests"] == 60'
option 'all(r["images_per_s"] == 0 or abs(r["images_per_s"] / r["requests_per_s"] - 7) < 0.01 for r in runs)'
option '[(a["model"]) for a in d["accuracy"]] == ["a", "b"]'
option '[(l["name"], l["kind"], l["in"], l["out"]) for l in d["model"]["layers"]] == [
	("fc1", "fully connected", 64, 128), ("relu1", "activation", 128, 128),
	("fc2", "fully connected", 128, 64), ("tanh2", "activation", 64, 64),
	("fc3", "fully connected", 64, 10), ("softmax", "softmax", 10, 10)]'
option 'd["model"]["weights"] == 64 * 128 + 128 + 128 * 64 + 64 + 64 * 10 + 10'
# -q is 4000 requests and a reload every 100, unless either is said; -R is a rate
run 0 infer -jq --no-naive --seed 9
option 'o["quick"] and o["requests"] == 4000 and o["reload_every"] == 100 and o["duration"] is None'
option 'o["batch"] == 8 and o["in_flight"] == 64 and o["seed"] == 9 and len(runs) == 1'
run 0 infer -jq --no-naive -n 40 -r 7
option 'o["quick"] and o["requests"] == 40 and o["reload_every"] == 7'
run 0 infer -jq --no-naive -d 0.05
option 'o["requests"] is None and o["duration"] == 0.05 and o["reload_every"] == 100'
run 0 infer -j -R 500 -n 20 --no-naive
option 'o["rate"] == 500 and o["arrivals"] == "poisson" and o["reload_every"] == 500'
option 'o["loop"] == "open" and o["latency_from"] == "intended arrival"'
option 'all(k in runs[0] for k in ("lateness_ns", "pushed_late", "no_free_slot", "never_pushed"))'
run 0 infer -j -n 20 -e naive
option '[r["engine"] for r in runs] == ["naive"] and o["requests"] == 20'
option '"lateness_ns" not in runs[0] and d["ratio_to_naive"] is None'
# without a limit it runs for three seconds; this is one request of the most, which has its answer
run 0 infer -j -R 2 --no-naive
option 'o["duration"] == 3 and o["requests"] is None and runs[0]["requests"] >= 1'

# --- what a person sees of them ---

# a build without CONFIG_TRACE has none
trace=
"$pawl" infer -n 1 --no-naive -t "$tmp/trace" >/dev/null 2>&1 && trace="-t $tmp/trace"
rm -f "$tmp/trace"
# shellcheck disable=SC2086 # an option and its argument
run 0 infer -a "$tmp/two" -b "$tmp/one" -i "$tmp/images" -B 7 -r 5 -f 3 -n 60 -w 2 $trace
printed() {
	grep -qE -- "$1" "$tmp/out" || fail "no '$1' in the output"
}
[ -s "$tmp/err" ] && grep -v warning "$tmp/err" && fail 'messages of a run in which all is right'
if [ "$got" -eq 0 ]; then
	printed "^pawl $(cut -d ' ' -f 2 "$tmp/version"): digits "
	printed "^model a    $tmp/two: 6 layers, 64 -> 10, 17226 weights\$"
	printed "^model b    $tmp/one: the same layers, other weights\$"
	printed "^images     $tmp/images: 1797 of 8 x 8, 450 of them held out of training\$"
	printed '^load       closed loop, 3 requests in flight, 7 images each$'
	printed '^reloads    a and b change places every 5 requests, '
	printed '^machine    .*, [0-9]+ CPUs?; '
	printed '^engine +workers +requests +requests/s +images/s +p50 +p90 +p99 +p99.9 +max$'
	printed '^per-device +2 +60 '
	printed '^naive +- +60 '
	printed '^ratio .*x  \(requests/s by the naive engine.s; median of 1 turns\)$'
	printed '^p50 to max: the latency of a request, from its push to the end of its last$'
	printed '  With 3 in flight it includes waiting for those before\.  The naive$'
	printed '^-: too few requests to tell that percentile\.$'
	printed '^model a +[0-9]+ +[0-9]+ of [0-9]+ .*% +[0-9]+ of [0-9]+ .*%$'
	printed '^per-device [0-9]+ ops pushed, [0-9]+ helped, [0-9]+ handed, [0-9]+ stolen; [0-9]+ sleeps, [0-9]+ wakes$'
	[ -z "$trace" ] || printed "^trace      $tmp/trace, of the per-device engine; "
	[ -z "$trace" ] || [ -s "$tmp/trace" ] || fail 'no trace'
fi
run 0 infer -n 40 -R 1000 --arrivals constant -r 0 -e pooled -w 1 --no-naive
printed '^load       open loop, 1000 requests/s \(constant arrivals\), at most 64 in flight, 8 images each$'
printed '^p50 to max: the latency of a request, from its intended arrival to the end of its last$'
printed '^ +arrivals were pushed late by p50 '
for text in '^reloads ' '^naive ' '^ratio ' ' reloads, from push' '^trace ' ' in flight it includes'; do
	grep -qE -- "$text" "$tmp/out" && fail "'$text' in the output"
done

# --- pawl check ---

if echo "$commands" | grep -qx check; then
	run 0 check "$src/demo/data/models"
	grep -q '^.*digits/2: native$' "$tmp/out" || fail 'pawl check: digits is not native'
	for text in 'input image FP32 \[-1,64\]' 'a run with one row: [0-9.]* ms' 'share a run'; do
		grep -q "^  .*$text" "$tmp/out" || fail "pawl check: no line with '$text'"
	done
	run 0 check --no-run "$src/demo/data/models/digits"
	mkdir "$tmp/empty"
	echo 'no model' >"$tmp/broken.onnx"
	run 1 check --no-run "$src/demo/data/models" "$tmp/empty" "$tmp/broken.onnx" "$tmp/none"
	for text in empty broken.onnx none; do
		grep -q "^$tmp/$text: " "$tmp/out" || fail "pawl check does not mention $text"
	done
	grep -qx '1 served, 3 not' "$tmp/out" || fail 'pawl check counts otherwise'
	refused 'pawl check' check
	says 'pawl check: no file or folder is named'
	refused 'pawl check' check --backend=other x
	says "pawl check: 'other' is not good for --backend"
fi

# --- pawl demo ---

if echo "$commands" | grep -qx demo; then
	for value in 0.1 1e6; do
		run 1 demo --data="$tmp/none" --seconds="$value"
		says "pawl demo: $tmp/none/digits.img: cannot open: No such file or directory"
	done
	for value in 0.09 1.1e6 '' nan 1x; do
		refused 'pawl demo' demo --data="$tmp/none" --seconds="$value"
		says "pawl demo: --seconds: '$value' is not a number in 0.1..1e6"
	done
	refused 'pawl demo' demo one two
	says "pawl demo: takes options only, not 'one'"
	PAWL_DATA=$tmp/other run 1 demo --data="$tmp/none"
	says "pawl demo: $tmp/none/digits.img: cannot open: No such file or directory"
fi

# --- pawl record and pawl replay ---

refused 'pawl record' record --help more
for args in '' info 'show file' 'info file more' 'inf file' 'information file' '--no-such-option file'; do
	# shellcheck disable=SC2086 # words
	refused 'pawl record' record $args
	says 'pawl record: info, dump, json, trace or wfformat, and a file'
	says "Try 'pawl record --help'."
done
for args in ',which file?' 'a b,one file' '-w 1 -r 2 a b,one file'; do
	# shellcheck disable=SC2086 # words
	refused 'pawl replay' replay ${args%,*}
	says "pawl replay: ${args#*,}"
	says "Try 'pawl replay --help'."
done
for args in '-w 0' '-w 1024' '-s 0' '-s 1e9' '-r 1' '-r 1e6' '-e naive' --sleep; do
	# shellcheck disable=SC2086 # words
	run 1 replay $args "$tmp/none"
	says "pawl replay: $tmp/none: No such file or directory"
done
# the last of an option counts, and options may come behind the file
run 1 replay "$tmp/none" -w 3 -w 4
says "pawl replay: $tmp/none: No such file or directory"
# an empty text is no number, nor is one that underflows; only the first mistake is reported
for args in workers=,0..1024 repeat=,1..1e+06 speed=,0..1e+09 speed=1e-999,0..1e+09; do
	option=${args%,*}
	refused 'pawl replay' replay "--$option" --workers=x
	says "pawl replay: --${option%=*}: '${option#*=}' is not a number in ${args#*,}"
	says "Try 'pawl replay --help'."
	[ "$(wc -l <"$tmp/err")" -eq 2 ] || fail "pawl replay --$option: more than one mistake"
done
refused 'pawl replay' replay --engine=x -e y
says "pawl replay: --engine: 'x' is not per-device, pooled or naive"
[ "$(wc -l <"$tmp/err")" -eq 2 ] || fail 'pawl replay: more than one mistake of --engine'

echo "test_command: $checks checks, $bad wrong"
[ $bad -eq 0 ]
