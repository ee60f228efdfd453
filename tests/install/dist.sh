#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# dist.sh, for make distcheck: the tarball that make dist packs is the same from another clone.
# Its contents build without git, in another folder and without a warning, pass the unit tests,
# the tests of tools and the check of the installation, and change nothing in their own folder.
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
inside ${jobs:+"$jobs"} all tests

echo '--- tests'
# The tests that are left out take long, and find the same in every folder.
(cd "$tmp/build" && cat tests/tools.list tests/unit.list |
	grep -v -E '^tools/test_(serve|load|judge|demo|mxnet|infer|python|command)\b' |
	grep -v -E '^(unit/test_(trim|delete|model|images|park|realtime|prioq_.*)|compat/test_mx_(many|engine|arrays|bulk|bulk_ends|profile|resources|stats|threads))\b' |
	"$tmp/$name/tests/run.sh" -j "$(nproc)")

echo '--- install'
inside check-install

echo '--- sources as they were'
files | diff "$tmp/before" - || {
	echo "distcheck: a build in another folder changed these" >&2
	exit 1
}
