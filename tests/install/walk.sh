#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# walk.sh [ORDER]..., for make check-walk: the first hour of a user, in bare roots of Debian 12.
# README.md's commands do what it says, in each order, as root and as an ordinary user, and after
# packages came or went; what they install can be used as README.md says.  The roots are in
# build/walk.
#
#	run	as root: make run, the server and its page, make install, make check, make install, the
#		example in four ways, C++, Python, make uninstall; packages that go and come
#	check	as a user: make check, make lib, make check, make run, make install
#	deb	Debian's packages: build, install, use, purge.  DEBS: a folder with packages, which are
#		not built then
#
# By default run and check use one root, in which the user's commands are tried before those of root
# and after them; make check ends by Ctrl-C when it has compiled something, and one test is run; and
# nothing is optimized.  WALK=full: each order in a root of its own, and each command to its end.
# Exit status 0: passed, 1: failed, 77: no such root can be made here.
set -eu
src=$(cd "$(dirname "$0")/../.." && pwd)
walk=$PWD/build/walk
full=${WALK:-}
skip() {
	echo "check-walk: $1"
	exit 77
}

# --- outside: is it possible here? -------------------------------------------

if [ "${1:-}" != --inside ]; then
	[ "$(id -u)" = 0 ] || skip "only root can make a root of its own"
	grep -qs '^VERSION_CODENAME=bookworm' /etc/os-release || skip "this is not Debian 12"
	for tool in mmdebstrap unshare setpriv git; do
		command -v "$tool" >/dev/null || skip "$tool is missing (tools/setup.sh all)"
	done
	git -C "$src" rev-parse --verify -q HEAD >/dev/null || skip "this is not a git clone"
	unshare -m -p -n -f --mount-proc true 2>/dev/null || skip "no new namespaces here"
	mkdir -p "$walk"
	# Mounts and processes end with it.
	exec unshare -m -p -f --kill-child --mount-proc "$0" --inside "$@"
fi
shift
# of a process that is number 1 for itself
log=$(mktemp "$walk/log.XXXXXX")
trap 'rm -f "$log" "$log.before"' EXIT

# --- the root that all begin with --------------------------------------------

# The packages come from where this machine's come from.
exec 9>"$walk/lock"
flock 9
if [ ! -e "$walk/base.made" ]; then
	echo "walk: a bare Debian 12, in build/walk/base"
	rm -rf "$walk/base"
	sources=()
	for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources}; do
		[ ! -s "$file" ] || sources+=("$file")
	done
	settings=()
	for file in /etc/apt/apt.conf /etc/apt/apt.conf.d/*; do
		! grep -qsi '^acquire::' "$file" || settings+=("--aptopt=$file")
	done
	for try in 1 2 3; do
		rm -rf "$walk/base"
		! mmdebstrap --variant=minbase --include=make,ca-certificates "${settings[@]}" \
			--aptopt='Acquire::Retries "3"' --dpkgopt=force-unsafe-io \
			--skip=cleanup/apt/lists bookworm "$walk/base" "${sources[@]}" >"$log" 2>&1 || break
		tail -n 3 "$log"
		[ $try != 3 ] || skip "Debian's packages are out of reach"
		sleep 10
	done
	cp -L /etc/ssl/certs/ca-certificates.crt "$walk/base/etc/ssl/certs"
	cp -L /etc/resolv.conf /etc/hosts "$walk/base/etc"
	chroot "$walk/base" useradd --create-home --shell /bin/bash user
	touch "$walk/base.made"
fi
flock -u 9

# --- steps --------------------------------------------------------------------

fail() {
	echo "walk: FAILED: $1" >&2
	[ ! -s "$log" ] || tail -n "${2:-30}" "$log" | sed 's/^/    /' >&2
	exit 1
}

# begin ORDER: a bare root, with the last commit as a user unpacks it.
begin() {
	local home
	order=$1 root=$walk/$1/root
	echo "--- $order"
	rm -rf "${walk:?}/$order"
	mkdir -p "$root" "$walk/$order/upper" "$walk/$order/work"
	mount -t overlay overlay -o "lowerdir=$walk/base,upperdir=$walk/$order/upper,workdir=$walk/$order/work" \
		"$root" 2>/dev/null || cp -a "$walk/base/." "$root"
	mount -t proc proc "$root/proc"
	mount -t tmpfs tmpfs "$root/dev/shm"
	(cd "$walk/$order" && "$src/tools/dist.sh" pawl)
	for home in root home/user; do
		tar -xzf "$walk/$order/pawl.tar.gz" --no-same-owner -C "$root/$home"
	done
	chroot "$root" chown -R user: /home/user/pawl
}

# What it installed and built takes a gigabyte.
end() {
	umount "$root"/{dev/shm,proc}
	umount "$root" 2>/dev/null || :
	rm -rf --one-file-system "${walk:?}/${order%%/*}"
}

# in_root USER COMMAND: a shell of that user, in the sources; below the command that $ns has
ns=()
in_root() {
	local path=/usr/local/bin:/usr/bin:/bin home=/home/$1 flags=()
	[ "$1" != root ] || path=/usr/local/sbin:/usr/sbin:/sbin:$path home=/root
	[ -z "$fast" ] || flags=("CFLAGS=$fast")
	"${ns[@]}" chroot "$root" setpriv --reuid "$1" --regid "$1" --init-groups env -i \
		HOME="$home" USER="$1" PATH=$path LANG=C.UTF-8 TERM=dumb DEBIAN_FRONTEND=noninteractive \
		"${flags[@]}" bash -c "cd ~/pawl && $2" </dev/null
}

# step COMMAND, as_root COMMAND: succeeds.  What apt cannot fetch, it tries again to fetch.
step() {
	local who=${who:-$user} try
	echo "walk: $order, $who: $1"
	for try in 1 2 3; do
		! in_root "$who" "$1" >"$log" 2>&1 || return 0
		grep -qE '^E: (Failed to fetch|Unable to fetch)|Could not (resolve|connect)' "$log" ||
			fail "$1"
		sleep 10
	done
	tail -n 20 "$log"
	skip "Debian's packages are out of reach"
}
as_root() {
	who=root step "$1"
}

# says PATTERN...: the last step printed a line with each
says() {
	local pattern
	for pattern; do
		grep -qE -- "$pattern" "$log" || fail "no line with \"$pattern\""
	done
}

# refused COMMAND PATTERN...: ends with an error, and prints these
refused() {
	local command=$1
	shift
	echo "walk: $order, $user: $command (refused)"
	! in_root "$user" "$command" >"$log" 2>&1 || fail "not refused: $command"
	says "$@"
}

# alone COMMAND: a step with a network of its own, so that README.md's port is free
alone() {
	local ns=(unshare -n /usr/bin/python3 -c '
import fcntl, os, socket, struct, sys
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sH14s", b"lo", 1, b""))  # SIOCSIFFLAGS, IFF_UP
os.execvp(sys.argv[1], sys.argv[1:])')
	step "$1"
}

# make check to its end, or to Ctrl-C when it compiles; then one test
check() {
	local pid session home=home/user ns=()
	[ "$user" != root ] || home=root
	if [ "$full" ]; then
		step "make check"
		says ' passed, 0 failed'
		return
	fi
	echo "walk: $order, $user: make check, Ctrl-C"
	ns=(env --default-signal=INT setsid)
	in_root "$user" "make check" >"$log" 2>&1 &
	pid=$!
	until [ "$root/$home/pawl/examples/async.o" -nt "$root/$home/pawl/pawl.cdef" ] ||
	      [ -n "$(find "$root/$home/pawl/tests" -name '*.o' -print -quit)" ]; do
		kill -0 $pid 2>/dev/null || fail "make check ended before it compiled"
		sleep 0.5
	done
	session=$(pgrep -P $pid)
	pkill -INT -g "$session"
	wait $pid || :
	for _ in {1..100}; do
		pgrep -s "$session" >/dev/null || break
		sleep 0.1
	done
	! pgrep -l -s "$session" >>"$log" || fail "Ctrl-C leaves processes of make check"
	! grep '^fail' "$log" || fail "make check"
	says '^pass  kconfig' '^pass  proof'
	ns=()
	step "make tests/unit/test_engine && tests/unit/test_engine"
}

# shown BEGIN END: what README.md shows in lines that begin with a tab, from a line with BEGIN to one
# with END
shown() {
	awk -v from="$1" -v to="$2" '!on && /^\t/ && index($0, from) { on = 1 }
		on { print substr($0, 2) } on && index($0, to) { exit }' "$src/README.md"
}

# The server, as README.md starts and asks it; the page; and the same with the installed one.
serves() {
	local serve curl
	serve=$(shown 'pawl serve' repository | sed "s,^./tools/pawl/,${1-&},")
	curl=$(shown 'curl localhost' "}'")
	[[ $serve = *serve* && $curl = *infer* ]] || fail "README.md shows no server or no request"
	alone "{ $serve & } >/tmp/serve.log 2>&1
		for i in {1..300}; do curl -sf localhost:8000/v2/health/ready && break; sleep 0.1; done
		$curl && curl -sf localhost:8000/ && kill %1 && wait %1 && cat /tmp/serve.log"
	says '0\.993' '<title>'
}

# The example of README.md in C, built in four ways, other examples, and C++, with what is installed
# below $1.
uses() {
	local prefix=$1 lib=$1/lib env='' rpath=''
	if [ "$prefix" != /usr/local ]; then
		env="PKG_CONFIG_PATH=$lib/pkgconfig" rpath="-Wl,-rpath,$lib"
	fi
	[ "$prefix" != /usr ] || env='' rpath='' lib="$1/lib/$(uname -m)-linux-gnu"
	mkdir -p "$root/tmp/use"
	sed -n '/^<!-- example:begin -->$/,/^<!-- example:end -->$/p' "$src/README.md" |
		grep -v -e '^<!-- ' -e '^```' >"$root/tmp/use/example.c"
	printf '%s\n' 'cmake_minimum_required(VERSION 3.18)' 'project(example C)' 'find_package(pawl REQUIRED)' \
		'add_executable(example example.c)' 'target_link_libraries(example pawl::pawl)' \
		>"$root/tmp/use/CMakeLists.txt"
	chmod -R a+rwX "$root/tmp/use"
	step "cd /tmp/use && cc example.c \$($env pkg-config --cflags --libs pawl) $rpath && ./a.out"
	says '^42$'
	step "cd /tmp/use && cc example.c -I$prefix/include -L$lib -lpawl $rpath && ./a.out"
	says '^42$'
	step "cd /tmp/use && cc example.c -I$prefix/include $lib/libpawl.a -lurcu-memb -pthread && ./a.out"
	says '^42$'
	step "cd /tmp/use && cmake -B cmake -DCMAKE_PREFIX_PATH=$prefix && cmake --build cmake && cmake/example"
	says '^42$'
	step "for e in push_wait recover; do cc examples/\$e.c \
		\$($env pkg-config --cflags --libs pawl) $rpath -o /tmp/use/e && /tmp/use/e || exit 1; done"
	step "c++ -std=c++20 examples/cpp.cc \$($env pkg-config --cflags --libs pawl) $rpath -o /tmp/use/e &&
		/tmp/use/e"
}

# --- the orders -----------------------------------------------------------------

fast='-O0 -g0' seconds='RUN_ARGS=--seconds=0.3'
[ -z "$full" ] || fast='' seconds=''

walk_run() {
	local file
	user=root
	step "make run $seconds"
	says '^0 requests failed, 0 answers mix two versions, 0 differ'
	as_root 'apt-get install -y --no-install-recommends curl'
	serves
	refused 'make install' 'the part man needs packages that are missing: scdoc'
	check
	echo '--- packages go and come'
	as_root 'apt-get purge -y check scdoc'
	step make
	says 'configuration: it follows what is installed: MAN_PAGES is off; TESTS is off'
	refused 'make tests' 'tests needs packages that are missing: check'
	step 'make setup'
	step "make tests/unit/test_engine && tests/unit/test_engine"
	echo '--- install'
	(cd "$root/usr/local" && find . ! -type d | sort) >"$log.before"
	step 'make install && ldconfig'
	uses /usr/local
	step 'cd / && pawl demo --seconds=0.3 && pawl --version'
	says '^0 requests failed'
	serves ''
	for file in share/man/man3/pawl_push.3 share/man/man1/pawl.1 lib/libpawl_mx.so; do
		[ -e "$root/usr/local/$file" ] || fail "make install has no $file"
	done
	echo '--- Python'
	step 'python3 -m venv --system-site-packages /tmp/venv &&
		/tmp/venv/bin/pip install --no-build-isolation --no-index ./python'
	# shellcheck disable=SC2016 # Markdown
	sed -n '/^```python$/,/^```$/p' "$src/python/README.md" | grep -v '^```' >"$root/tmp/example.py"
	step 'cd / && /tmp/venv/bin/python /tmp/example.py'
	echo '--- uninstall'
	step 'make uninstall && ldconfig'
	(cd "$root/usr/local" && find . ! -type d | sort) | diff "$log.before" - >"$log" ||
		fail 'make uninstall leaves files'
}

# What a user meets before the packages are there; $command: what he is told to do.
walk_bare() {
	user=user
	refused make 'make setup'
	refused 'make check' '^setup: packages are missing; as root:'
	command=$(sed -n 's/^\t\(apt-get update && apt-get install\)/\1/p' "$log")
	[ "$command" ] || fail 'no command that installs the packages is printed'
}

walk_check() {
	user=user
	as_root "yes | { $command; }"
	step 'make lib'
	check
	step "make run $seconds"
	says '^0 requests failed'
	step 'make install PREFIX=/home/user/pawl-0'
	uses /home/user/pawl-0
}

walk_deb() {
	local made
	made=$(mktemp -d "$walk/made.XXXXXX")
	fast=''
	user=user
	if [ "${DEBS:-}" ]; then
		cp "$DEBS"/*.deb "$made"
	else
		begin deb
		as_root 'apt-get update && apt-get build-dep -y ./'
		step "DEB_BUILD_OPTIONS=parallel=$(nproc) dpkg-buildpackage -us -uc -b"
		mv "$root"/home/user/*.deb "$made"
		end
	fi
	begin deb
	as_root 'apt-get update && apt-get install -y --no-install-recommends gcc g++ cmake make pkg-config curl'
	files() {
		(cd "$root" && find etc usr var/lib -path var/lib/dpkg -prune -o -path var/lib/apt -prune \
			-o ! -type d -name '*pawl*' -print | sort)
	}
	mv "$made"/*.deb "$root/home/user"
	rmdir "$made"
	as_root 'apt-get install -y /home/user/*.deb'
	[ "$(files)" ] || fail 'the packages install nothing'
	uses /usr
	step 'cd / && pawl demo --seconds=0.3 && pawl --version'
	says '^0 requests failed'
	serves ''
	as_root "apt-get purge -y pawl 'libpawl*'"
	[ -z "$(files)" ] || fail "the packages leave $(files)"
	end
}

[ $# != 0 ] || set -- run check ${full:+deb}
case $full,$* in
,'run check')
	begin both
	walk_bare
	as_root "${command/install/install --simulate}"
	walk_run
	walk_check
	end
	;;
*)
	for order; do
		case $order in
		run) begin run; walk_run; end ;;
		check) begin check; walk_bare; walk_check; end ;;
		deb) walk_deb ;;
		esac
	done
	;;
esac
echo "walk: passed: $*"
