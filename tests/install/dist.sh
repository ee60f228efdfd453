#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# dist.sh, for make distcheck: the tarball that make dist packs is the same from another clone.
# Its contents build without git, in another folder and without a warning, pass some of the tests
# and the check of the installation, and change nothing in their own folder.
# CC: the compiler.  CONFIGS: more fragments of configs/.
# Exit status 0: passed, 1: failed, 77: this is not a git clone.
set -eu
name=pawl-${pawlversion:?}
src=$(cd "$(dirname "$0")/../.." && pwd)
if [ "$(git -C "$src" rev-parse --show-prefix 2>&1)" ]; then
	echo "distcheck: $src is not a git clone"
	exit 77
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
jobs=
case ${MAKEFLAGS:-} in
*jobserver*) ;;
*) jobs=-j$(nproc) ;;
esac

echo '--- reproducible'
mkdir "$tmp/one" "$tmp/two"
(cd "$tmp/one" && "$src/tools/dist.sh" "$name")
(umask 077 && git clone -q "$src" "$tmp/clone")
(umask 077 && cd "$tmp/two" && TZ=Asia/Tokyo "$tmp/clone/tools/dist.sh" "$name")
cmp "$tmp/one/$name.tar.gz" "$tmp/two/$name.tar.gz"
sha256sum "$tmp/one/$name.tar.gz"

echo '--- build'
cd "$tmp"
tar -xzf "one/$name.tar.gz"
cd "$name"
# a repository around it has nothing to say
export GIT_CEILING_DIRECTORIES=$tmp
files() {
	find . -type f -exec sha256sum {} + | sort -k 2
}
files >"$tmp/before"
# not for speed
inside() {
	make "O=$tmp/build" "CC=${CC:-gcc}" CFLAGS='-g0 -O0' "$@"
}
# shellcheck disable=SC2086 # a list of words
inside defconfig werror.config ${CONFIGS:-}
inside ${jobs:+"$jobs"} all

echo '--- tests'
# Those that depend on what a configuration leaves out, or that read files of the sources.  The
# others find the same in every folder.
programs=$(printf 'tests/%s ' unit/test_{engine,push,record,sizes,trace,workers,workload,order} \
	compat/test_mx_ops device/{conformance,cuda} stress/stress_push)
# shellcheck disable=SC2086 # a list of words
inside ${jobs:+"$jobs"} $programs tests/unit.list tests/stress.list tests/tools.list
(cd "$tmp/build" && {
	cat tests/unit.list tests/stress.list | while IFS=$'\t' read -r test rest; do
		[[ " $programs " != *" tests/$test "* ]] || printf '%s\t%s\n' "$test" "$rest"
	done
	grep '^docs/' tests/tools.list
} | "$tmp/$name/tests/run.sh" -j "$(nproc)")

echo '--- install'
inside check-install

echo '--- sources as they were'
files | diff "$tmp/before" - || {
	echo "distcheck: a build in another folder changed these" >&2
	exit 1
}
