#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# install.sh [-u] DESTDIR MODE:FILE:FOLDER...
#
# Install each file in its folder, or with -u remove it.  MODE is octal; "link" copies a
# symbolic link; "dir" has no file: the folder is removed if it is empty.
set -eu

remove=
if [ "$1" = -u ]; then
	remove=y
	shift
fi
destdir=$1
shift

for line; do
	mode=${line%%:*}
	dir=$destdir${line##*:}
	file=${line#*:}
	file=${file%:*}
	to=$dir/${file##*/}
	if [ "$mode" = dir ]; then
		[ ! -d "$dir" ] || rmdir --ignore-fail-on-non-empty "$dir"
	elif [ -n "$remove" ]; then
		rm -f "$to"
	elif [ "$mode" = link ]; then
		cp -Pf "$file" "$to"
	else
		install -D -m "$mode" "$file" "$to"
	fi
done
