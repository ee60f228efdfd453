#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# dist.sh NAME: pack the last commit into NAME.tar.gz in the current folder; all paths in it begin
# with NAME/.  The same commit gives the same bytes: git sorts the files and gives all of them
# the time of the commit, and gzip adds neither a name nor a time.
set -eu

name=$1
to=$PWD/$name.tar.gz
cd "$(dirname "$0")/.."
# In a tarball there is no history, and a repository around this folder is another's.
where=$(git rev-parse --show-prefix 2>&1) || :
if [ "$where" ]; then
	echo "dist: $PWD is not the top of a git clone ($where)" >&2
	exit 1
fi
if [ "$(git status --porcelain)" ]; then
	echo "dist: uncommitted changes are left out" >&2
fi
trap 'rm -f "$to.tar"' EXIT
git -c tar.umask=0022 archive --format=tar --prefix="$name/" HEAD >"$to.tar"
gzip -9n <"$to.tar" >"$to"
