#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs, builds and runs a user's program in all supported ways, uninstalls, and checks that
# nothing is left.  Runs in the build folder; $make and $srctree come from make.
set -eu
: "${srctree:?}" "${make:?}"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
here=$(cd "$srctree/tests/install" && pwd)
dest=$tmp/dest
prefix=/opt/pawl
lib=$dest$prefix/lib

$make install DESTDIR="$dest" PREFIX=$prefix
before=$(cd "$dest" && find . | sort)
echo "$before"

echo '--- pkg-config'
export PKG_CONFIG_SYSROOT_DIR=$dest PKG_CONFIG_PATH=$lib/pkgconfig
read -ra cflags <<<"$($PKG_CONFIG --cflags pawl)"
read -ra libs <<<"$($PKG_CONFIG --libs pawl)"
read -ra static <<<"$($PKG_CONFIG --libs --static pawl)"
std=(-Wall -Wextra -Wpedantic -Werror)
$CC -std=c11 "${std[@]}" "${cflags[@]}" "$here/user.c" -o "$tmp/c" "${libs[@]}"
$CXX -std=c++17 "${std[@]}" "${cflags[@]}" "$here/user.cc" -o "$tmp/cxx" "${libs[@]}"
$CC -std=c11 "${std[@]}" "${cflags[@]}" "$here/user.c" -o "$tmp/static" \
	-Wl,-Bstatic -lpawl -Wl,-Bdynamic "${static[@]}"
mx=
if [ -e "$lib/pkgconfig/pawl-mx.pc" ]; then
	read -ra mxlibs <<<"$($PKG_CONFIG --libs pawl-mx)"
	read -ra mxstatic <<<"$($PKG_CONFIG --libs --static pawl-mx)"
	read -ra mxcflags <<<"$($PKG_CONFIG --cflags pawl-mx)"
	# some versions prefix a variable with the system's root, others do not
	mxnet=$($PKG_CONFIG --variable=mxnetincludes pawl-mx)
	mxnet=$dest${mxnet#"$dest"}
	$CC -std=c11 "${std[@]}" "${mxcflags[@]}" "$here/mx_user.c" -o "$tmp/mx-c" "${mxlibs[@]}"
	$CXX -std=c++14 "${std[@]}" "-I$mxnet" "${mxcflags[@]}" "$here/mx_user.cc" -o "$tmp/mx-cxx" "${mxlibs[@]}"
	$CC -std=c11 "${std[@]}" "${mxcflags[@]}" "$here/mx_user.c" -o "$tmp/mx-static" \
		-Wl,-Bstatic -lpawl_mx -lpawl -Wl,-Bdynamic "${mxstatic[@]}"
	mx="mx-c mx-cxx mx-static cmake/user-mx-c cmake/user-mx-cxx"
fi
unset PKG_CONFIG_SYSROOT_DIR PKG_CONFIG_PATH

echo '--- CMake'
cmake -S "$here" -B "$tmp/cmake" -DCMAKE_PREFIX_PATH="$dest$prefix" -DCMAKE_C_COMPILER="$CC" \
	-DCMAKE_CXX_COMPILER="$CXX"
cmake --build "$tmp/cmake"

# shellcheck disable=SC2086 # a list of words
for program in c cxx static cmake/user-c cmake/user-cxx cmake/user-static $mx; do
	LD_LIBRARY_PATH=$lib "$tmp/$program"
done
# the archive is plain code, so that any compiler can link it
for other in gcc clang; do
	command -v $other >/dev/null || continue
	$other -std=c11 "${cflags[@]}" "$here/user.c" -o "$tmp/$other" -Wl,-Bstatic "-L$lib" -lpawl \
		-Wl,-Bdynamic -lurcu-memb -pthread
	"$tmp/$other"
done
if [ -x "$dest$prefix/bin/pawl" ]; then
	"$dest$prefix/bin/pawl" --version
	"$dest$prefix/bin/pawl" bench --duration=0.1 --rounds=1 shapes
	[ -r "$dest$prefix/share/bash-completion/completions/pawl" ]
	# with the data that was installed
	"$dest$prefix/bin/pawl" infer --quick --no-naive
	if "$dest$prefix/bin/pawl" help demo >/dev/null 2>&1; then
		"$dest$prefix/bin/pawl" demo --seconds=0.2
		grep -q "^ExecStart=$prefix/bin/pawl serve" "$dest$prefix/share/pawl/pawl-serve.service"
	fi
fi

echo '--- loaded late, and linked statically'
if [ -z "$(nm -D "$lib/libpawl.so" | grep -E '__[at]san_')" ]; then
	CC=$CC "$here/../load/dlopen.sh" "$lib" "$dest$prefix/include/pawl" "$dest$prefix/include"
	CC=$CC "$here/../load/static.sh" "$lib" "$dest$prefix/include"
	CC=$CC "$here/../abi/run.sh" "$lib"
fi

echo '--- as a folder of a CMake project'
cmake -S "$here/sub" -B "$tmp/sub" -DPAWL_SOURCE="$(cd "$srctree" && pwd)" -DCMAKE_C_COMPILER="$CC"
cmake --build "$tmp/sub"
"$tmp/sub/user"

echo '--- what is there'
for file in share/doc/pawl/COPYING share/doc/pawl/README.md include/pawl/pawl.cdef; do
	[ -e "$dest$prefix/$file" ] || { echo "$file is not installed" >&2; exit 1; }
done
if grep pawl-cuda <<<"$before"; then
	echo "these kernels are built on the user's machine" >&2
	exit 1
fi
$make install DESTDIR="$tmp/lib-only" PREFIX=$prefix PARTS=
if find "$tmp/lib-only" | grep -E '/bin|_mx|pawl-mx|compat|/man|share/pawl|completion'; then
	echo "these are of parts that were left out" >&2
	exit 1
fi
$make install DESTDIR="$tmp/pages" PREFIX=$prefix PARTS=man
pages=$(cd "$tmp/pages$prefix" && find . -path './share/man/*' -type f)
if grep -E '/man1/|pawl-mx' <<<"$pages"; then
	echo "these pages are of parts that were left out" >&2
	exit 1
fi
if grep -q /man3/pawl_push.3 <<<"$before" && ! grep -q /man3/pawl_push.3 <<<"$pages"; then
	echo "the pages of the library are not installed" >&2
	exit 1
fi

if $make install DESTDIR="$tmp/none" PREFIX=$prefix PARTS='man tools' 2>"$tmp/said" ||
   ! grep -q 'PARTS: no part.*tools' "$tmp/said" || [ -e "$tmp/none" ]; then
	echo "a part that does not exist is not refused" >&2
	exit 1
fi

echo '--- exported'
nm -D --defined-only "$lib/libpawl.so" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort >"$tmp/shown"
if grep -v '^pawl_' "$tmp/shown"; then
	echo "these are exported, and should not be" >&2
	exit 1
fi
if [ -e "$lib/libpawl_mx.so" ] &&
   nm -D --defined-only "$lib/libpawl_mx.so" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' |
   grep -v -e '^pawl_mx_' -e '^MX'; then
	echo "libpawl_mx exports these, and should not" >&2
	exit 1
fi

echo '--- uninstall'
# files of other programs must stay
touch "$lib/other" "$lib/pkgconfig/other.pc"
$make uninstall DESTDIR="$dest" PREFIX=$prefix
left=$(cd "$dest" && find . ! -type d | sort)
if [ "$left" != "$(printf '%s\n' .$prefix/lib/other .$prefix/lib/pkgconfig/other.pc)" ] ||
   [ -e "$dest$prefix/include/pawl" ] || [ -e "$lib/cmake/pawl" ] ||
   [ -e "$dest$prefix/share/pawl" ]; then
	find "$dest" >&2
	exit 1
fi
