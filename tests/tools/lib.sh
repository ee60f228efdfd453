# SPDX-License-Identifier: Apache-2.0
#
# What the tests of the pawl command share; sourced by each, with its arguments.
set -u

self=$(basename "$0" .sh)
src=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
pawl=${1:-${PAWL:-tools/pawl/pawl}}
[ -x "$pawl" ] || pawl=$src/tools/pawl/pawl
[ -x "$pawl" ] || { echo "$self: tools/pawl/pawl is not built"; exit 77; }
python=${PYTHON3:-python3}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
bad=0
checks=0

# what is wrong, and what the last command said
fail() {
	echo "$self: $1" >&2
	sed 's/^/  | /' "$tmp/out" "$tmp/err" >&2
	bad=$((bad + 1))
}
