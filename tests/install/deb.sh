#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# deb.sh, for make check-deb: Debian's packages build from the tarball that make dist packs, and
# lintian has no error and no warning.  They are installed by dpkg into a root of their own, where
# dpkg finds their dependencies in this machine's list of packages; there the example of README.md,
# the other examples and the command are built and run; then the packages are purged, and nothing
# is left.  Where a bare Debian can be had, walk.sh does the same there with apt.
# Exit status 0: passed, 1: failed, 77: not a git clone, or tools are missing.
set -eu
name=pawl-${pawlversion:?}
src=$(cd "$(dirname "$0")/../.." && pwd)
missing=
for tool in dpkg-buildpackage dh lintian git; do
	command -v $tool >/dev/null || missing="$missing $tool"
done
[ -z "$missing" ] || { echo "check-deb: missing:$missing (tools/setup.sh all)"; exit 77; }
build=$PWD
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"

"$src/tools/dist.sh" "$name" || exit 77
mv "$name.tar.gz" "pawl_$pawlversion.orig.tar.gz"
tar -xzf pawl_*.orig.tar.gz
cd "$name"
dpkg-checkbuilddeps || { echo "check-deb: packages are missing (make setup)"; exit 77; }

echo '--- build'
# As a user builds them: with the distribution's flags, among them _FORTIFY_SOURCE, and the unit tests.
unset MAKEFLAGS MFLAGS MAKEOVERRIDES CC CXX
DEB_BUILD_OPTIONS="parallel=$(nproc)" dpkg-buildpackage -us -uc -b
cd ..
ls -- *.deb

echo '--- lintian'
lintian --allow-root --fail-on error,warning --tag-display-limit 0 ./*.changes

echo '--- install'
root=$tmp/root
mkdir -p "$root/var/lib/dpkg/updates" "$root/var/lib/dpkg/info"
cp /var/lib/dpkg/status "$root/var/lib/dpkg"
files() {
	(cd "$root" && find . -path ./var/lib/dpkg -prune -o ! -type d -print)
}
packages=$(for deb in *.deb; do dpkg-deb -f "$deb" Package; done)
in_root() {
	# it warns of each package of the machine that has no list of files in the root
	dpkg --root="$root" --force-not-root "$@" >"$tmp/log" 2>&1 || { tail -n 20 "$tmp/log"; exit 1; }
}
in_root -i ./*.deb
files | sort

echo '--- use'
triplet=$(dpkg-architecture -q DEB_HOST_MULTIARCH)
export LD_LIBRARY_PATH=$root/usr/lib/$triplet
export PKG_CONFIG_SYSROOT_DIR=$root PKG_CONFIG_LIBDIR=$root/usr/lib/$triplet/pkgconfig
# in the system's own root these are the compiler's defaults
export PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 PKG_CONFIG_ALLOW_SYSTEM_LIBS=1
read -ra flags <<<"$(pkg-config --cflags --libs pawl)"
sed -n '/^<!-- example:begin -->$/,/^<!-- example:end -->$/p' "$name/README.md" |
	grep -v -e '^<!-- ' -e '^```' >example.c
for source in example.c "$root"/usr/share/doc/libpawl-dev/examples/*.c; do
	gcc -Wall -Wextra "$source" "${flags[@]}" -o example
	./example | tail -n 1
done
[ "$(gcc example.c "${flags[@]}" -o example && ./example)" = 42 ]
cmake -S "$name/tests/install" -B cmake -DCMAKE_PREFIX_PATH="$root/usr" >/dev/null
cmake --build cmake >/dev/null
for program in cmake/user-{c,cxx,static,mx-c,mx-cxx}; do
	"$program"
done
"$root/usr/bin/pawl" demo --seconds=0.2
"$root/usr/bin/pawl" --version
"$root/usr/bin/pawl" replay "$name/tests/data/mxnet-train-step.pwr"

echo '--- purge'
# shellcheck disable=SC2086 # a list of words
in_root -P $packages
left=$(files)
if [ "$left" ]; then
	echo "check-deb: left behind: $left" >&2
	exit 1
fi

echo '--- a bare Debian'
cd "$build"
unset LD_LIBRARY_PATH
DEBS=$tmp "$src/tests/install/walk.sh" deb || [ $? = 77 ]
