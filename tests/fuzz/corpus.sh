#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# corpus.sh add NAME FILE...		add files to tests/fuzz/corpus/NAME.tar
# corpus.sh pack FOLDER ARCHIVE		make the archive from all files of a folder
# corpus.sh unpack ARCHIVE FOLDER	replace the folder by the contents of the archive
#
# The corpus of the target fuzz_NAME is one archive, which make unpacks in the build folder.  An
# added file is named by its SHA-1, as libFuzzer does.  An archive depends on its files alone:
# the same files give the same archive.
set -eu

pack() {
	(cd "$1" && find . -type f -printf '%P\0') | LC_ALL=C sort -z |
		tar -C "$1" --null -T - --format=ustar --blocking-factor=1 --mtime=@0 --mode=0644 \
			--owner=0 --group=0 --numeric-owner -cf "$2"
}

unpack() {
	rm -rf "$2"
	mkdir -p "$2"
	tar -C "$2" -xf "$1"
}

add() {
	local archive=$1 file folder
	shift
	folder=$(mktemp -d)
	# shellcheck disable=SC2064 # expanded now: the variable is local
	trap "rm -rf '$folder'" EXIT
	[ ! -e "$archive" ] || unpack "$archive" "$folder"
	for file; do
		cp "$file" "$folder/$(sha1sum <"$file" | cut -d ' ' -f 1)"
	done
	pack "$folder" "$archive"
}

case "${1:-} $#" in
"add "[3-9] | "add "[1-9][0-9]*)
	name=$2
	shift 2
	add "$(dirname "$0")/corpus/$name.tar" "$@"
	;;
"pack 3") pack "$2" "$3" ;;
"unpack 3") unpack "$2" "$3" ;;
*) sed -n 's/^# \(corpus.sh .*\)/usage: \1/p' "$0" >&2; exit 2 ;;
esac
