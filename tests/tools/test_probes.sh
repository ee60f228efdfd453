#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# test_probes.sh BUILD: the library has the probes that pawl(7) lists, with as many arguments.
# With gdb, a program's ops also pass each of them, once.  Exit status 0: passed, 1: failed, 77:
# built without CONFIG_USDT.
set -u

build=${1:-.}
src=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
bad=0

fail() {
	echo "test_probes: $1" >&2
	bad=1
}

grep -q '^#define CONFIG_USDT 1' "$build/include/generated/autoconf.h" || {
	echo "test_probes: built without CONFIG_USDT"
	exit 77
}

# "name arguments", once for each place in the code; the linker may have merged none of them
LC_ALL=C readelf -n "$build/libpawl.so" >"$tmp/notes" || exit 1
awk '/Provider: / { own = $2 == "pawl" }
	/Name: / { name = $2 }
	/Arguments: / && own { print name, NF - 1 }' "$tmp/notes" | sort -u >"$tmp/has"
# In the page: "*name*(engine, op, ...)"
sed -n '/^# PROBES/,/^# [^P]/p' "$src/Documentation/man/pawl.7.scd" |
	sed -n 's/^\*\([a-z]*\)\*(\(.*\))$/\1,\2/p' | awk -F, '{ print $1, NF - 1 }' |
	sort -u >"$tmp/listed"
[ -s "$tmp/listed" ] || fail "pawl(7) lists no probe"
diff "$tmp/listed" "$tmp/has" >&2 || fail "< pawl(7) lists other probes than > libpawl.so has"

if ! command -v gdb >/dev/null; then
	echo "test_probes: no gdb: not counted"
	exit $bad
fi
debug() {
	gdb -q -nx -batch -ex 'set debuginfod enabled off' "$@" --args "$build/examples/push_wait" \
		>"$tmp/out" 2>"$tmp/err"
}
debug -ex run
if ! grep -q 'exited normally' "$tmp/out"; then
	# The system may not permit a debugger.
	cat "$tmp/err"
	echo "test_probes: gdb cannot run a program: not counted"
	exit $bad
fi
{
	echo set pagination off
	for probe in push ready start end; do
		# shellcheck disable=SC2016 # gdb's variables
		printf '%s\n' "break -probe-stap pawl:$probe" commands silent \
			'printf "AT '$probe' %d %d\n", $_probe_arg0, $_probe_arg1' continue end
	done
	echo run
} >"$tmp/script"
debug -x "$tmp/script"
grep -q 'exited normally' "$tmp/out" || fail "the program with breakpoints: $(cat "$tmp/err")"
for probe in push ready start end; do
	sed -n "s/^AT $probe //p" "$tmp/out" | sort >"$tmp/$probe"
	[ "$(wc -l <"$tmp/$probe")" -eq 3 ] || fail "3 ops passed $probe otherwise than once"
	diff "$tmp/push" "$tmp/$probe" >&2 || fail "$probe names other ops than push"
done
[ "$(sed 's/ .*//' "$tmp/push" | sort -u)" = 1 ] || fail "the engine is not number 1"
[ $bad -eq 0 ] || sed 's/^/  | /' "$tmp/out" >&2
exit $bad
