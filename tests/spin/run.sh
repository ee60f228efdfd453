#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh [MODEL]...: check each model of this folder, and each of its broken twins (the lines
# " * twin NAME" of its head; spin -DNAME): the model must hold with all its states
# visited, each twin must be refuted.  One line of figures.  77: no spin here.
set -u
here=$(cd "$(dirname "$0")" && pwd)
command -v spin >/dev/null || { echo "spin is not installed"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rc=0 models=0 held=0 twins=0 refuted=0 states=0

# verify MODEL FLAGS: what pan says goes to $work/log
verify() {
	(cd "$work" && rm -f pan* ./*.trail && spin $2 -a "$here/$1.pml" >log 2>&1 &&
		${CC:-gcc} -O0 -w -DSAFETY -DVECTORSZ=2048 -o pan pan.c >>log 2>&1 &&
		timeout 100 ./pan -m200000 -w22 >>log 2>&1)
}

[ $# -gt 0 ] || set -- park unpark stop exit
for model; do
	models=$((models + 1))
	verify "$model" ''
	if grep -q 'errors: 0' "$work/log" && ! grep -qi 'max search depth too small\|out of memory' "$work/log"; then
		held=$((held + 1))
		n=$(awk '/states, stored/ { printf "%d", $1 }' "$work/log")
		states=$((states + n))
	else
		echo "FAILED: the model $model does not hold"
		tail -n 30 "$work/log"
		echo "replay: cd $here && spin -a $model.pml && cc -w -DSAFETY -o pan pan.c && ./pan && spin -t -p $model.pml"
		rc=1
	fi
	while read -r flag; do
		twins=$((twins + 1))
		verify "$model" "-D$flag"
		if grep -Eq 'errors: [1-9]' "$work/log"; then
			refuted=$((refuted + 1))
		else
			echo "FAILED: the twin $flag of $model is not refuted"
			tail -n 15 "$work/log"
			rc=1
		fi
	done < <(sed -n 's/^ \* twin \([A-Z_]*\).*/\1/p' "$here/$model.pml")
done
verdict=PASS
[ $rc = 0 ] || verdict=FAIL
echo "C07 models=$held/$models states=$states twins=$refuted/$twins $verdict"
exit $rc
