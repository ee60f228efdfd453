#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# test_demo.sh [PAWL]: pawl demo in a short form: pawl serve as a process, under load, with swaps
# of versions and a stop.  The run fails by itself if an answer is wrong; this script checks the
# figures that it prints against those of MXNet, and that it does fail.
# Exit status 0: passed, 1: failed, 77: the command is not built.
. "$(dirname "$0")/lib.sh"

unset PAWL_DATA
"$pawl" help demo >/dev/null 2>&1 || { echo "$self: pawl has no serve, so no demo"; exit 77; }
data=$src/demo/data

# run STATUS PATTERN ARGS...: the exit status, and a line of either output
run() {
	want=$1 pattern=$2
	shift 2
	checks=$((checks + 1))
	"$pawl" demo "$@" >"$tmp/out" 2>"$tmp/err"
	got=$?
	[ "$got" -eq "$want" ] || fail "pawl demo $*: exit status $got, not $want"
	printed "$pattern"
}
printed() {
	cat "$tmp/out" "$tmp/err" | grep -qE -- "$1" || fail "no '$1' in the output"
}

export TMPDIR="$tmp/tmp"
mkdir "$TMPDIR"
run 0 '^Usage: pawl demo' --help
run 2 'is not a number' --seconds=x
run 2 'is not a number' --seconds=nan
run 2 "not 'more'" more
run 2 'frobnicate' --frobnicate

# the figures of demo/train/README.md, which are MXNet's
run 0 '^1 +1751 of 1797 .* 435 of 450' --seconds=0.5
printed '^2 +1790 of 1797 .* 443 of 450'
printed '^32 connections +[1-9]'
printed '^a quarter of that '
printed '^[1-9][0-9]* times a new version'
printed 'ended with status 0; of [1-9][0-9]* requests'
printed '^0 requests failed, 0 answers mix two versions, 0 differ'
[ ! -s "$tmp/err" ] || fail 'messages of a run in which all is right'
printed '^pawl serve answers on port [1-9][0-9]*: model digits, 1797 images of 8x8 pixels$'
printed '^load +requests/s +images/s +p50 +p99 +p99.9 +max$'
printed '^\*: requests arrive at random times; latency counts from the arrival$'
cat >"$tmp/figures.py" <<'EOF'
import re, sys
text = open(sys.argv[1]).read()
sent, accepted, answered, has = re.search(r"of (\d+) requests it accepted\n(\d+) and answered (\d+), "
                                          r"and the client has (\d+) answers", text).groups()
swaps = int(re.search(r"(\d+) times a new version", text).group(1))
assert sent == accepted == answered == has, "a request without an answer"
# those for the accuracy of two versions, a load of each version, and the other loads
assert int(sent) > 2 * 1797 // 8 + swaps, "%s requests with %d swaps" % (sent, swaps)
unit = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}
for load in ("32 connections", r"a quarter of that \*"):
    requests, images, times = re.search(load + r" +(\d+) +(\d+) +(.*)", text).groups()
    # a request has 1 to 8 images, in turns; of a few requests the mean is another one
    assert int(requests) < 100 or 2 * int(requests) < int(images) < 7 * int(requests), "%s images/s of %s requests/s" % (images, requests)
    times = [float(x) * unit[u] for x, u in re.findall(r"([\d.]+) (ns|us|ms|s)\b", times)]
    assert times and times == sorted(times) and times[0] > 0, "the percentiles are %s" % times
EOF
"$python" "$tmp/figures.py" "$tmp/out" >"$tmp/err" 2>&1 || fail 'the figures contradict each other'

# Wrong answers are found: a version is the other network, and then neither of the two.
cp -rL "$data" "$tmp/data"
swap() {
	mv "$tmp/data/models/digits/1" "$tmp/data/models/digits/3"
	mv "$tmp/data/models/digits/2" "$tmp/data/models/digits/1"
	mv "$tmp/data/models/digits/3" "$tmp/data/models/digits/2"
}
swap
run 1 '^pawl demo: FAILED: the answer for image' --seconds=0.1 --data="$tmp/data"
printed '^0 requests failed, [1-9][0-9]* answers mix two versions, 0 differ'
swap
# bytes in the middle of the weights: other numbers
printf '\274\274\274\274\274\274\274\274' |
	dd of="$tmp/data/models/digits/2/model.onnx" bs=1 seek=20000 conv=notrunc 2>/dev/null
run 1 '^pawl demo: FAILED: the answer for image' --seconds=0.1 --data="$tmp/data"
printed ' 0 answers mix two versions, [1-9][0-9]* differ'

# a version that cannot be loaded is a failed request; no server at all is an error
: >"$tmp/data/models/digits/2/model.onnx"
run 1 'status 400: .*failed to load' --seconds=0.1 --data="$tmp/data"
rm -r "$tmp/data/models/digits/1"
run 1 'models/digits/1: No such file' --data="$tmp/data"
PAWL_DATA=$tmp/none run 1 "$tmp/none/digits.img: cannot open"
rmdir "$TMPDIR" || fail "something is left in \$TMPDIR: $(ls "$TMPDIR")"

echo "test_demo: $checks runs, $bad failed"
[ "$bad" -eq 0 ]
