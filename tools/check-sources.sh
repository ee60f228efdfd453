#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Check that every C file of a layer, and of the pawl command, is named in its Makefile.
cd "$(dirname "$0")/.." || exit 2
rc=0
for dir in pool device exec core compat tools/pawl tools/serve tools/load tools/bench demo; do
	case $dir in
	tools/pawl | demo) makefile=tools/Makefile ;;
	tools/serve) makefile='tools/serve/Makefile tools/serve/http.mk' ;;
	*) makefile=$dir/Makefile ;;
	esac
	for file in "$dir"/*.c "$dir"/*.cc; do
		[ -e "$file" ] || continue
		# shellcheck disable=SC2086 # a list of words
		if ! grep -qw "$(basename "${file%.c*}")\.o" $makefile; then
			echo "$file: not in $makefile" >&2
			rc=1
		fi
	done
done
exit $rc
