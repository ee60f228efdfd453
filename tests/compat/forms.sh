#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# forms.sh INCLUDE: the two forms of asynchronous callbacks do not mix: what is written for
# the one does not compile, or not link, as the other.
set -u
include=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
rc=0

# try yes|no NAME COMPILER...: whether $tmp/NAME compiles
try() {
	local want=$1 name=$2 got=no
	shift 2
	"$@" -Werror -fsyntax-only "-I$include/pawl/compat" "-I$include" "-I$PWD/include" "$tmp/$name" \
		>"$tmp/log" 2>&1 && got=yes
	if [ $got != "$want" ]; then
		echo "$* $name: compiles: $got, should be: $want"
		cat "$tmp/log"
		rc=1
	fi
}

cat >"$tmp/three.c" <<'EOF'
#include <mxnet/c_api.h>
static void body(void *run, void *on_complete, void *param) { (void)run; (void)on_complete; (void)param; }
int use(const void *ctx) { return MXEnginePushAsync(body, 0, 0, ctx, 0, 0, 0, 0, 0, 0, 0, 0); }
int use_nd(const void *ctx) { return MXEnginePushAsyncND(body, 0, 0, ctx, 0, 0, 0, 0, 0, 0, 0, 0); }
EOF
sed 's/void \*run, /void *run, void *on_start, /; s/(void)run;/(void)run; (void)on_start;/' "$tmp/three.c" >"$tmp/four.c"
cp "$tmp/three.c" "$tmp/three.cc"
cp "$tmp/four.c" "$tmp/four.cc"
cat >"$tmp/three_fn.cc" <<'EOF'
#include <mxnet/engine.h>
void use(mxnet::Engine *e)
{
	e->PushAsync([](mxnet::RunContext, mxnet::Engine::CallbackOnComplete done) { done(); },
		     mxnet::Context(), {}, {});
}
EOF
sed 's/RunContext, /RunContext, mxnet::Engine::CallbackOnStart, /' "$tmp/three_fn.cc" >"$tmp/four_fn.cc"

for source in three.c four.c three.cc four.cc three_fn.cc four_fn.cc; do
	case $source in
	*.cc) compiler="${CXX:-g++} -std=c++14" ;;
	*) compiler="${CC:-gcc} -std=c11" ;;
	esac
	three=yes four=no
	[ "${source#four}" = "$source" ] || three=no four=yes
	# shellcheck disable=SC2086 # a list of words
	try $three $source $compiler
	# shellcheck disable=SC2086
	try $four $source $compiler -DPAWL_MX_API=20000
done
# Two units of one program: their engines are different types, by name.
cat >"$tmp/a.cc" <<'EOF'
#include <mxnet/engine.h>
void give(mxnet::Engine *e);
int main() { give(nullptr); }
EOF
cat >"$tmp/b.cc" <<'EOF'
#include <mxnet/engine.h>
void give(mxnet::Engine *) {}
EOF
for apis in '10901 10901 yes' '10901 20000 no'; do
	read -r a b want <<<"$apis"
	got=no
	# a sanitized library is not what this is about: objects alone
	for x in "a $a" "b $b"; do
		read -r unit api <<<"$x"
		"${CXX:-g++}" -std=c++14 "-DPAWL_MX_API=$api" "-I$include/pawl/compat" "-I$include" \
			"-I$PWD/include" -c "$tmp/$unit.cc" -o "$tmp/$unit.o" || rc=1
	done
	undefined=$(nm "$tmp/a.o" | awk '$1 == "U" && /give/ { print $2 }')
	if nm "$tmp/b.o" | awk '{ print $3 }' | grep -qxF "$undefined"; then
		got=yes
	fi
	if [ $got != "$want" ]; then
		echo "units of form $a and $b link: $got, should be: $want"
		rc=1
	fi
done
exit $rc
