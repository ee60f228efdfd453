#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Check for tokens that must not occur in the sources:
#   - in the library, outside include/base: the compiler's and C11's atomics, volatile and
#     assembly (the model and the mutation of orders only cover base/atomic.h), and locks;
#   - in the library: a planted bug (BUSTED) that is not a whole if;
#   - anywhere: words that claim too much, or that mark unfinished work;
#   - a file without an SPDX tag.
cd "$(dirname "$0")/.." || exit 2
rc=0

files() {
	find "$@" \( -path ./build -o -path ./.git -o -path ./include/generated \
		-o -path ./include/config -o -path ./tests/bench/out -o -name .config \) -prune -o -type f -print
}

complain() {
	if [ -n "$2" ]; then
		printf '%s:\n%s\n' "$1" "$2" >&2
		rc=1
	fi
}

# The sources without comments and strings, each line with its place.
code() {
	perl -0777 -ne 's{("(?:\\.|[^"\\])*"|\x27(?:\\.|[^\x27\\\n])+\x27)|/\*.*?\*/|//[^\n]*}
		{ defined $1 ? "\"\"" : "\n" x ($& =~ tr/\n//) }gsex;
		my $n = 0; print map { $n++; "$ARGV:$n: $_\n" } split /\n/, $_, -1' "$@"
}

mapfile -t library < <(files ./pool ./device ./exec ./core ./compat ./include/pawl | grep '\.[ch]$')
atomics='\b(__atomic_\w+|__sync_\w+|atomic_[a-z]\w*|_Atomic|stdatomic\.h|volatile|__volatile__|asm|__asm__|__asm)\b'
locks='\b(pthread_(mutex|cond|rwlock|spin|barrier)_\w+|mtx_\w+|cnd_\w+|sem_(init|wait|post)\w*|threads\.h|PTHREAD_MUTEX_INITIALIZER)\b'

complain 'raw atomics, volatile or assembly outside include/base' \
	"$(code "${library[@]}" | grep -E "$atomics"; grep -nH '#include <stdatomic' "${library[@]}")"
complain 'a planted bug that is not a whole if' "$(grep -nH 'BUSTED(' "${library[@]}" |
	grep -vE ':\s*(else )?if \(!?BUSTED\([A-Z_]+\)\)$')"
complain 'locks in the library' "$(code "${library[@]}" | grep -E "$locks")"

mapfile -t text < <(files . | grep -E '\.(c|h|cc|py|sh|in|scd|md)$|/(Makefile|Kconfig)[^/]*$|/README$')
complain 'banned words' \
	"$(grep -nHwiE 'lock''less|TO''DO|FIX''ME|X''XX' "${text[@]}")"

mapfile -t tagged < <(files . | grep -E '\.(c|h|cc|py|sh|in|scd|config|supp)$|/(Makefile|Kconfig)[^/]*$|/\.ci/run$')
complain 'no SPDX-License-Identifier: Apache-2.0 at the top' \
	"$(for file in "${tagged[@]}"; do
		head -n 5 "$file" | grep -q 'SPDX-License-Identifier: Apache-2\.0' || echo "$file"
	done)"
exit $rc
