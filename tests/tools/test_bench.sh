#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# test_bench.sh [PAWL]: pawl bench as a person uses it: measure, read, compare, interrupt; and the
# completion of the command line.  The figures are not judged.  Exit status 0: passed, 1: failed,
# 77: the command is not built.
. "$(dirname "$0")/lib.sh"

# run STATUS ARGS...: the exit status must be that one
run() {
	want=$1
	shift
	checks=$((checks + 1))
	"$pawl" bench "$@" >"$tmp/out" 2>"$tmp/err"
	got=$?
	[ "$got" -eq "$want" ] || fail "pawl bench $*: exit status $got, not $want"
}

printed() {
	checks=$((checks + 1))
	grep -qE -- "$1" "$tmp/out" || fail "no '$1' in the output"
}

said() {
	checks=$((checks + 1))
	grep -qF -- "$1" "$tmp/err" || fail "no '$1' in the message"
}

# so FILE EXPRESSION: holds for the JSON d; f: its figures by name
so() {
	checks=$((checks + 1))
	"$python" - "$1" "$2" "$tmp/names" <<'END' || fail "JSON: not so: $2"
import json, sys
d = json.load(open(sys.argv[1], encoding="utf-8"))
f = {figure["name"]: figure for figure in d["figures"]}
names = open(sys.argv[3], encoding="utf-8").read().split()
sys.exit(0 if eval(sys.argv[2]) else 1)
END
}

# --- measure ---

# the suites of the help are those that exist, and each has figures
"$pawl" help bench | sed -n 's/^  \([a-z][a-z]*\)  *[a-z].*/\1/p' >"$tmp/suites"
run 0 --list
cut -d ' ' -f 1 "$tmp/out" >"$tmp/names"
{ cut -d / -f 1 "$tmp/names" | uniq; echo preempted; } >"$tmp/want"
cmp -s "$tmp/want" "$tmp/suites" || fail 'the help has other suites than --list, and preempted'

# each figure has a value, even in the shortest run; but threads that have no CPU never do half of
# the ideal work
run 0 --duration=1 --rounds=1 --warmup=0 --output-json="$tmp/all.json" --html="$tmp/all.html"
cp "$tmp/out" "$tmp/report"
[ ! -s "$tmp/err" ] || fail 'messages of a run in which all is right'
printed '^run +1 of 1 rounds, '
while read -r name; do
	case $name in
	metg/*) ;;
	*) printed "^$name  +[0-9.-]+" ;;
	esac
done <"$tmp/names"
so "$tmp/all.json" '[n for n in names if n in f or n[:5] != "metg/"] == list(f) and d["tool"] == "pawl bench" and not d["interrupted"]'
so "$tmp/all.json" 'all(len(x["rounds"]) == 1 and x["least"] <= x["median"] <= x["most"] for x in f.values())'
so "$tmp/all.json" 'all(x["rounds"][0] > 0 for x in f.values() if x["unit"] != "share" and "lag" not in x["name"])'
# the host, and what spoils the figures, in both forms
printed '^host +[^,].*, CPUs [0-9,-]+, of which [0-9]+ can run at a time; Linux '
printed ' clock [a-z0-9_-]+: [0-9.]+ ns a reading'
printed ' other programs [0-9.]+ % of the CPUs, steal [0-9.]+ %, '
so "$tmp/all.json" 'all(0 <= d["host"][k] <= 1 for k in ("steal_share", "hiccup_share"))'
so "$tmp/all.json" 'd["host"]["hiccup_max_ns"] > 0 and d["host"]["clock_ns"] > 0 and d["host"]["timer_slack_ns"] > 0'
so "$tmp/all.json" 'd["warnings"] == [l[2:].rstrip() for l in open("'"$tmp/report"'", encoding="utf-8") if l[:2] == "! "]'
so "$tmp/all.json" 'd["host"]["cpus"] >= 1 and d["rounds"] == d["rounds_planned"] == 1 and d["seed"] == 1'
# no percentile without ten samples beyond it, and none that is out of order
so "$tmp/all.json" 'all(p["beyond"] >= 10 for x in f.values() if "times" in x for p in x["times"]["percentiles"])'
so "$tmp/all.json" 'all(t["min_ns"] <= a["ns"] <= b["ns"] <= t["max_ns"] for t in
	(x["times"] for x in f.values() if "times" in x) for a, b in zip(t["percentiles"], t["percentiles"][1:]))'
so "$tmp/all.json" 'all(t["count"] >= 1 for t in (x["times"] for x in f.values() if "times" in x))'

# the page: each figure has a row, what opens is closed, and the data is that of the JSON
checks=$((checks + 1))
"$python" - "$tmp/all.html" "$tmp/all.json" <<'END' || fail 'the page'
import html.parser, json, re, sys
text = open(sys.argv[1], encoding="utf-8").read()
d = json.load(open(sys.argv[2], encoding="utf-8"))
opened = []

class Page(html.parser.HTMLParser):
    def handle_starttag(self, tag, attrs):
        if tag != "meta":
            opened.append(tag)
        assert not any("//" in (v or "") for k, v in attrs), attrs

    def handle_endtag(self, tag):
        assert opened.pop() == tag, tag

Page().feed(text)
inside = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL).group(1))
sys.exit(not (not opened and inside == d and "nan" not in re.sub(r'<script.*?</script>', "", text, flags=re.DOTALL) and
              all("<tr><td>" + f["name"] in text for f in d["figures"]) and
              text.count("<svg") == 2 * len(d["figures"]) + len({f["name"].split("/")[0]
                  for f in d["figures"] if "times" in f})))
END

# a suite, on one CPU, as JSON on standard output
cpu=$("$python" -c 'import os; print(min(os.sched_getaffinity(0)))')
run 0 -j -d 1s -r 2 -w 0 -S 7 -C "$cpu" requests fairness open
cp "$tmp/out" "$tmp/one.json"
"$pawl" bench --cpus="$cpu" --list requests fairness open | cut -d ' ' -f 1 >"$tmp/names"
so "$tmp/one.json" 'list(f) == names and d["host"]["cpus"] == 1 and d["host"]["cpu_list"] == "'"$cpu"'"'
so "$tmp/one.json" 'any("There is one CPU" in w for w in d["warnings"])'
so "$tmp/one.json" 'all(len(x["rounds"]) == 2 for x in f.values()) and d["seed"] == 7'

# --- more threads than CPUs, beside another engine ---

"$pawl" bench --list preempted | cut -d ' ' -f 1 >"$tmp/names"
run 0 -d 1 -r 1 -w 0 -o "$tmp/pre.json" preempted
so "$tmp/pre.json" 'list(f) == names and not d["interrupted"]'
cc=${CC:-cc}
if command -v "${cc%% *}" >/dev/null; then
	mkdir "$tmp/drivers"
	run 1 --vs="$tmp/drivers" preempted
	said "pawl bench: $tmp/drivers: no drivers"
	bench=$src/tests/bench
	# shellcheck disable=SC2086 # a compiler, and its options
	$cc -std=gnu11 -O1 -fPIC -shared -pthread -I"$bench" -I"$src/tools/bench" "$bench/drive_twin.c" \
		"$bench"/twin/*.c -o "$tmp/drivers/twin.so" 2>"$tmp/err" || fail 'the driver does not compile'
	run 0 -d 1 -r 1 -w 0 --vs="$tmp/drivers" -o "$tmp/vs.json" preempted
	so "$tmp/vs.json" 'set(f) == set(names) | {"%s/%s@twin/%s" % tuple(n.split("/")) for n in names}'
	printed '^preempted/2-1us@twin/rate +[0-9.]+ [kM]?/s .* of pawl.s$'
	echo 'int x;' | $cc -x c -shared -fPIC - -o "$tmp/drivers/other.so"
	run 1 --vs="$tmp/drivers" preempted
	said 'other.so: not a driver of this version'
fi
run 1 --vs="$tmp/nothing" preempted
said "$tmp/nothing: No such file or directory"

# --- compare ---

run 0 -d 1 -r 9 -w 0 -o "$tmp/a.json" primitives
run 0 --compare "$tmp/a.json" "$tmp/a.json"
printed '^[0-9]+ figures: 0 worse, 0 better$'
# change NAME FACTOR: b.json is a.json with other values of this figure
change() {
	"$python" - "$tmp/a.json" "$tmp/b.json" "$1" "$2" <<'END'
import json, sys
d = json.load(open(sys.argv[1], encoding="utf-8"))
for x in d["figures"]:
    x["rounds"] = [100 + i for i in range(9)]
json.dump(d, open(sys.argv[1], "w", encoding="utf-8"))
for x in d["figures"]:
    if x["name"] == sys.argv[3]:
        x["rounds"] = [v * float(sys.argv[4]) for v in x["rounds"]]
json.dump(d, open(sys.argv[2], "w", encoding="utf-8"))
END
}
change primitives/wake 1.5
run 1 --compare "$tmp/a.json" "$tmp/b.json"
printed '^primitives/wake .* \+50\.0 % .* worse$'
printed '^[0-9]+ figures: 1 worse, 0 better$'
run 0 --compare "$tmp/b.json" "$tmp/a.json"
printed '^primitives/wake .* -33\.3 % .* better$'
run 0 --compare --threshold=60 "$tmp/a.json" "$tmp/b.json"
# overlapping rounds are no difference, even without a threshold
change primitives/wake 1.01
run 0 -c -t 0 "$tmp/a.json" "$tmp/b.json"
printed '^[0-9]+ figures: 0 worse, 0 better$'
# two rounds of a side can show nothing, and several files have their rounds together
run 0 -d 1 -r 2 -w 0 -o "$tmp/c.json" primitives
run 1 --compare "$tmp/c.json" "$tmp/c.json"
printed 'too few rounds'
run 0 --compare "$tmp/a.json,$tmp/a.json" "$tmp/a.json"
# no measurements
echo '{}' >"$tmp/empty"
for file in "$tmp/empty" "$tmp/suites" "$tmp/none"; do
	run 1 --compare "$tmp/a.json" "$file"
	said "pawl bench: $file: "
done

# --- interrupt ---

"$pawl" bench --list >"$tmp/out"
cut -d ' ' -f 1 "$tmp/out" >"$tmp/names"
checks=$((checks + 1))
"$python" - "$pawl" "$tmp/cut.json" >"$tmp/out" 2>"$tmp/err" <<'END' || fail 'SIGINT'
import json, os, signal, subprocess, sys, time

def cpu(pid):
    fields = open("/proc/%d/stat" % pid).read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

# a shell's child in the background ignores SIGINT
p = subprocess.Popen([sys.argv[1], "bench", "-d", "3600", "-r", "1000", "-w", "0", "-o", sys.argv[2]],
                     stdout=subprocess.PIPE, text=True,
                     preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
while cpu(p.pid) < 1:
    if p.poll() is not None:
        sys.exit("it has ended")
    time.sleep(0.05)
p.send_signal(signal.SIGINT)
out = p.communicate()[0]
print(out)
d = json.load(open(sys.argv[2], encoding="utf-8"))
sys.exit(not (p.returncode == 1 and "! A signal ended the run." in out and "primitives/vars-1/push" in out and
              d["interrupted"] and d["figures"][0]["rounds"] and d["rounds"] < 1000))
END

# --- a limit ---

# waking a sleeping thread takes longer than a microsecond
run 1 -d 1 -r 1 -w 0 --break-us=1 --trace="$tmp/trace.json" -o "$tmp/limit.json" primitives
if grep -q CONFIG_TRACE "$tmp/err"; then
	echo "$self: no traces in this build"
else
	printed '^! primitives/[a-z-]+ took [0-9.]+ [um]s, more than --break-us permits\.$'
	printed "^  That is the time from [0-9.]+ to [0-9.]+ us of the trace $tmp/trace.json\$"
	so "$tmp/limit.json" 'd["break"]["ns"] > 1000 and 0 <= d["break"]["from_us"] < d["break"]["to_us"]'
	so "$tmp/limit.json" 'any(d["break"]["from_us"] <= e.get("ts", -1) <= d["break"]["to_us"]
		for e in json.load(open(d["break"]["trace"], encoding="utf-8"))["traceEvents"])'
fi
run 0 -d 1 -r 1 -w 0 --break-us=86400000000 --trace="$tmp/none.json" busy
[ ! -e "$tmp/none.json" ] || fail 'a trace without a reason'

# --- what is refused ---

refused() {
	message=$1
	shift
	run 2 "$@"
	said "pawl bench: $message"
	[ ! -s "$tmp/out" ] || fail "pawl bench $*: refused, but printed to standard output"
}
for option in duration=0 duration=x duration=-1 duration=2d rounds=0 rounds=1001 warmup=-1 seed=x \
	cpus= cpus=x cpus=3-1 cpus=0, cpus=0-99999 break-us=0 break-us=1ms threshold=-1 threshold=x; do
	refused "'${option#*=}' is not good for --${option%%=*}" "--$option"
done
refused "no suite 'primitive'; there are primitives shapes metg" primitive
refused '--compare needs two measurements' --compare "$tmp/a.json"
refused '--compare needs two measurements' --compare a b c
run 1 -d 1 -r 1 -w 0 -o "$tmp/no/file" busy
said "$tmp/no/file: No such file or directory"
run 1 -d 1 -r 1 -w 0 --html="$tmp/no/page" busy
said "$tmp/no/page: No such file or directory"

# --- completion ---

# offers WORD WORDS...: what bash offers for the last of these words
if command -v bash >/dev/null; then
	offers() {
		checks=$((checks + 1))
		offer=$1
		shift
		bash -c '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _pawl
			printf "%s\n" "${COMPREPLY[@]}"' - "$src/tools/completion/pawl" "$pawl" "$@" \
			>"$tmp/out" 2>"$tmp/err"
		[ "$(tr '\n' ' ' <"$tmp/out")" = "$offer " ] && [ ! -s "$tmp/err" ] ||
			fail "completion of 'pawl $*': not '$offer'"
	}
	offers bench be
	offers 'record replay' re
	offers bench help be
	offers 'primitives producers preempted' bench pr
	offers '--duration=' bench --du
	offers '--threshold=' bench shapes --th
	offers '--json' bench --json
	offers info record in
	offers '' bench nothing
fi

echo "test_bench: $checks checks, $bad wrong"
[ $bad -eq 0 ]
