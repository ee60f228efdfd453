#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# test_mxnet.sh [PAWL]: what `pawl mxnet` finds, refuses and sets up.  No mxnet is needed:
# packages and compilers are stand-ins here; tests/compat/mxnet/run.sh has the real one.
# Exit status 0: passed, 1: failed, 77: the command is not built.
. "$(dirname "$0")/lib.sh"

export XDG_CACHE_HOME="$tmp/cache"
unset LD_PRELOAD CXX

# run STATUS ARGS...: the exit status must be that one
run() {
	want=$1
	shift
	checks=$((checks + 1))
	"$pawl" mxnet "$@" >"$tmp/out" 2>"$tmp/err"
	got=$?
	[ $got -eq "$want" ] || fail "pawl mxnet $*: status $got, not $want"
}

# says WHERE TEXT
says() {
	grep -qF -- "$2" "$tmp/$1" || fail "$1 does not say '$2'"
}

# a Python that says its mxnet is in FOLDER: python NAME FOLDER
python() {
	printf '#!/bin/sh\n[ "$1" = -c ] && { echo "%s"; exit; }\necho "runs $*; $LD_PRELOAD"\n' \
		"$2" >"$tmp/$1"
	chmod +x "$tmp/$1"
}

# a package: package NAME MAJOR MINOR PATCH
package() {
	mkdir -p "$tmp/$1/include/mxnet"
	printf '#define MXNET_MAJOR %s\n#define MXNET_MINOR %s\n#define MXNET_PATCH %s\n' \
		"$2" "$3" "$4" >"$tmp/$1/include/mxnet/base.h"
	echo >"$tmp/$1/include/mxnet/engine.h"
	echo >"$tmp/$1/libmxnet.so"
}

# a compiler that writes what it is called with into its output
cat >"$tmp/cxx" <<'EOF'
#!/bin/sh
echo compiled >>"$(dirname "$0")/compiled"
args=$*
while [ "$1" != -o ]; do shift; done
echo "$args" >"$2"
EOF
chmod +x "$tmp/cxx"

cat >"$tmp/want" <<'EOF'
Usage: pawl mxnet [OPTION]... [--] COMMAND [ARG]...
Run COMMAND, a program that uses Apache MXNet 1.9.1 or 2.0, with pawl as its engine.

  -p, --python=PROGRAM  use the mxnet of this Python (default: COMMAND if it is a
                        Python, or the one that the script names, or the first
                        one among the arguments, or python3)
  -l, --library=FILE    preload this library; build nothing
  -r, --rebuild         build the library again
  -P, --print           print the name of the library, and run nothing
  -h, --help            print this

The library is built with $CXX, or c++, on the first use.  See pawl-mxnet(1).
EOF
for option in --help -h; do
	run 0 $option
	cmp -s "$tmp/want" "$tmp/out" || fail 'another help'
done
for args in '' -- '-r' '-p x' '-l x --'; do
	# shellcheck disable=SC2086 # words
	run 2 $args
	grep -qx "pawl mxnet: no command to run; 'pawl mxnet --help' lists the options" "$tmp/err" ||
		fail "without a command after '$args'"
done
run 2 --nonsense

python python-none ''
run 1 "$tmp/python-none" train.py
says err 'has no mxnet'
advice='; name the Python that has mxnet: pawl mxnet --python /path/to/python ...'
grep -qxF "pawl mxnet: $tmp/python-none has no mxnet$advice, or pip install mxnet==1.9.1 'numpy<1.24'" "$tmp/err" ||
	fail 'it does not say what to do without mxnet'
run 1 --python "$tmp/nowhere" true
grep -qxF "pawl mxnet: cannot run $tmp/nowhere$advice" "$tmp/err" || fail 'it does not say what to do without a Python'
# COMMAND is the Python if its name says so, whether or not there is such a file
for file in "$tmp/python-nowhere" python-nowhere "$tmp/no/python3" "$tmp/a python/python of mine" "$tmp/python nowhere"; do
	run 1 "$file" "$tmp/python-none"
	grep -qxF "pawl mxnet: cannot run $file$advice" "$tmp/err" || fail "another Python than '$file'"
done
# so it says if it can have no pipe from that Python
if (ulimit -n 4 && "$pawl" version) >/dev/null 2>&1 </dev/null; then
	(ulimit -n 4 && exec "$pawl" mxnet --python "$tmp/python-none" true) >"$tmp/out" 2>"$tmp/err" </dev/null
	[ $? -eq 1 ] || fail 'another status without a pipe'
	grep -qxF "pawl mxnet: cannot run $tmp/python-none$advice" "$tmp/err" || fail 'another message without a pipe'
fi
printf '#!/bin/sh\nexit 3\n' >"$tmp/python-broken"
chmod +x "$tmp/python-broken"
run 1 "$tmp/python-broken"
says err 'does not say where'
printf '#!/bin/sh\n' >"$tmp/python-broken"
run 1 "$tmp/python-broken"
says err "pawl mxnet: $tmp/python-broken does not say where mxnet is"
# what it prints does not count if it fails or is killed
for end in 'exit 3' 'exit 126' 'exit 128' 'kill -9 $$'; do
	printf '#!/bin/sh\necho %s\n%s\n' "$tmp" "$end" >"$tmp/python-broken"
	run 1 "$tmp/python-broken"
	says err "$tmp/python-broken does not say where mxnet is"
done

mkdir "$tmp/bare"
python python-bare "$tmp/bare"
run 1 "$tmp/python-bare"
says err "pawl mxnet: $tmp/bare/include/mxnet/base.h: No such file or directory; the package has no headers"
package old 1 8 0
python python-old "$tmp/old"
run 1 "$tmp/python-old"
says err 'is 1.8.0; only 1.9.1 and 2.0.0 are known'
for version in '2 9 1' '0 9 1' '1 8 1' '1 10 1' '1 9 0' '1 9 2' '2 0 1' '2 1 0' '1 0 0'; do
	# shellcheck disable=SC2086 # three words
	package old $version
	run 1 "$tmp/python-old"
	says err "is $(echo "$version" | tr ' ' .); only 1.9.1 and 2.0.0 are known"
done
echo >"$tmp/old/include/mxnet/base.h"
run 1 "$tmp/python-old"
says err 'is -1.-1.-1; only 1.9.1 and 2.0.0 are known'

package good 1 9 1
python python-good "$tmp/good"
export CXX=false
run 1 "$tmp/python-good"
says err 'false could not build the library'
export CXX="$tmp/nowhere"
run 1 "$tmp/python-good"
says err 'could not build'
says err "pawl mxnet: $tmp/nowhere: No such file or directory"
# what a compiler has written does not count if it fails or is killed
for end in 'exit 1' 'kill -9 $$' 'kill -2 $$'; do
	printf '#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho >"$2"\n%s\n' "$end" >"$tmp/cxx-broken"
	chmod +x "$tmp/cxx-broken"
	CXX=$tmp/cxx-broken run 1 -P -p "$tmp/python-good"
	grep -q "^pawl mxnet: $tmp/cxx-broken could not build the library from /.*/pawl_mxnet\.cc and libpawl_mx\.a; \$CXX names another compiler\$" \
		"$tmp/err" || fail 'it does not say what could not be built'
	[ ! -s "$tmp/out" ] || fail "a library of a compiler that ended with $end"
done
[ -z "$(find "$tmp/cache" -type f)" ] || fail 'a failed build left something'
export CXX="$tmp/cxx"
run 0 "$tmp/python-good" train.py --epochs 3
grep -q "^pawl mxnet: building $tmp/cache/pawl/libpawl_mxnet-[0-9a-f]\{16\}\.so (once)\$" "$tmp/err" ||
	fail 'it does not say what it builds'
says out "runs train.py --epochs 3; $tmp/cache/pawl/libpawl_mxnet-"
lib=$(find "$tmp/cache" -name '*.so')
grep -q -- "-isystem $tmp/good/include" "$lib" || fail 'not against the headers of the package'
grep -q -- 'pawl_mxnet\.cc' "$lib" || fail 'another source'
grep -q -- '-l:libpawl_mx\.a -lpawl ' "$lib" || fail 'without what stands behind the other doors'
# built once
run 0 "$tmp/python-good" train.py
[ "$(wc -l <"$tmp/compiled")" -eq 1 ] || fail 'built again'
! grep -q building "$tmp/err" || fail 'says that it builds'
run 0 --rebuild "$tmp/python-good"
[ "$(wc -l <"$tmp/compiled")" -eq 2 ] || fail '--rebuild did not build'
# another mxnet is another library
echo more >>"$tmp/good/libmxnet.so"
run 0 --print --python "$tmp/python-good"
[ "$(wc -l <"$tmp/compiled")" -eq 3 ] || fail 'a new mxnet, and not built again'
[ "$(cat "$tmp/out")" != "$lib" ] && [ -f "$(cat "$tmp/out")" ] || fail '--print'
# so is any other file that it is made of, another compiler, and another release of the package
seen=$(cat "$tmp/out")
for change in 'echo >>"$tmp/good/include/mxnet/engine.h"' 'cp "$tmp/cxx" "$tmp/cxx2"; CXX=$tmp/cxx2' \
	'cp -r "$tmp/good" "$tmp/moved"; python python-good "$tmp/moved"' 'touch -d 2001-01-01 "$tmp/moved/libmxnet.so"' \
	'touch -d "2001-01-01 00:00:00.5" "$tmp/moved/libmxnet.so"' \
	'echo more >>"$tmp/moved/libmxnet.so"; touch -d "2001-01-01 00:00:00.5" "$tmp/moved/libmxnet.so"'; do
	eval "$change"
	run 0 -P -p "$tmp/python-good"
	case $seen in
	*"$(cat "$tmp/out")"*) fail "the same library after: $change" ;;
	esac
	[ -f "$(cat "$tmp/out")" ] || fail "no library after: $change"
	seen="$seen $(cat "$tmp/out")"
done
compiled=$(wc -l <"$tmp/compiled")
[ "$compiled" -eq 9 ] || fail "compiled $compiled times, not 9"
# -P runs nothing
run 0 -p "$tmp/python-good" -r -P touch "$tmp/touched"
[ "$(wc -l <"$tmp/compiled")" -eq 10 ] || fail '-r did not build'
[ "$(wc -l <"$tmp/out")" -eq 1 ] && [ ! -e "$tmp/touched" ] || fail '-P runs the command'
python python-good "$tmp/good"
CXX=$tmp/cxx
# it is in the user's cache, wherever that is; a relative name is none
lib=$tmp/home/.cache/pawl/libpawl_mxnet-
XDG_CACHE_HOME='' HOME=$tmp/home run 0 --print --python "$tmp/python-good"
says out "$lib"
XDG_CACHE_HOME=cache HOME=$tmp/home run 0 --print --python "$tmp/python-good"
says out "$lib"
[ "$(wc -l <"$tmp/compiled")" -eq 11 ] || fail 'not built once in another cache'
XDG_CACHE_HOME=/proc/no-such run 1 --print --python "$tmp/python-good"
says err 'pawl mxnet: /proc/no-such: No such file or directory'
echo >"$tmp/file"
XDG_CACHE_HOME=$tmp/file run 1 --print --python "$tmp/python-good"
says err "pawl mxnet: $tmp/file/pawl: Not a directory"
XDG_CACHE_HOME=$tmp/file/more run 1 --print --python "$tmp/python-good"
says err "pawl mxnet: $tmp/file/more: Not a directory"
# any number of folders is made
XDG_CACHE_HOME=$tmp/some/more/folders run 0 --print --python "$tmp/python-good"
says out "$tmp/some/more/folders/pawl/libpawl_mxnet-"
[ -f "$(cat "$tmp/out")" ] || fail 'no library in a new folder'
mkdir "$tmp/compilers"
cp "$tmp/cxx" "$tmp/compilers/c++"
CXX='' PATH=$tmp/compilers:$PATH run 0 --print --rebuild --python "$tmp/python-good"
[ "$(wc -l <"$tmp/compilers/compiled")" -eq 1 ] || fail 'without CXX the compiler is not c++'
unset CXX
PATH=$tmp/compilers:$PATH run 0 --print --rebuild --python "$tmp/python-good"
[ "$(wc -l <"$tmp/compilers/compiled")" -eq 2 ] || fail 'without a variable CXX the compiler is not c++'
export CXX="$tmp/cxx"
lib=$(find "$tmp/cache" -name '*.so' | head -n 1)
# the script names its Python
printf '#!%s -u\n' "$tmp/python-good" >"$tmp/script"
chmod +x "$tmp/script"
run 0 "$tmp/script" one
says out "runs -u $tmp/script one; $tmp/cache/pawl/"
# so does one that the PATH has, and one of pip with a long path
cp "$tmp/script" "$tmp/mx-script"
PATH=$PATH:$tmp run 0 mx-script two
says out "runs -u $tmp/mx-script two; $tmp/cache/pawl/"
printf "#!/bin/sh\n'''exec' %s \"\$0\" \"\$@\"\n' '''\n" "$tmp/python-good" >"$tmp/long"
chmod +x "$tmp/long"
run 0 "$tmp/long" three
says out "runs $tmp/long three; $tmp/cache/pawl/"
# the first line that names a Python counts, and no line behind it
printf "#!%s\n'''exec' %s\n" "$tmp/python-good" "$tmp/python-none" >"$tmp/both"
chmod +x "$tmp/both"
run 0 -P "$tmp/both"
# a Python whose path has a space is one, and a program whose name has a Python behind a space is none
mkdir "$tmp/a python"
cp "$tmp/python-good" "$tmp/a python/python of mine"
cp "$tmp/python-good" "$tmp/python of mine"
for file in "$tmp/a python/python of mine" "$tmp/python of mine"; do
	run 0 "$file" seven
	says out "runs seven; $tmp/cache/pawl/"
done
mkdir "$tmp/bare-bin"
cp "$tmp/python-none" "$tmp/bare-bin/python3"
printf '#!/bin/sh\n' >"$tmp/run python-good"
chmod +x "$tmp/run python-good"
for option in '' -P; do
	PATH=$tmp/bare-bin:$tmp:$PATH run 1 $option "$tmp/run python-good"
	says err "python3 has no mxnet"
done
PATH=$tmp/bare-bin:$PATH run 0 -P "$tmp/python of mine"
# a Python that is none by its name may be named; a Python only in the name of a folder does not count
cp "$tmp/python-good" "$tmp/snake"
run 0 --python="$tmp/snake" sh -c 'echo "$LD_PRELOAD"'
says out "$tmp/cache/pawl/libpawl_mxnet-"
PATH=$tmp/bare-bin:$PATH run 1 "$tmp/a python/../snake"
says err "python3 has no mxnet"
# --python has precedence over COMMAND, and the last one over the others
run 0 -P --python "$tmp/python-good" "$tmp/python-none"
run 0 -P -p "$tmp/python-none" -p "$tmp/python-good" "$tmp/python-none"
run 1 -P -p "$tmp/python-good" -p "$tmp/python-none" "$tmp/python-good"
# the first Python among the arguments counts
run 0 -P env "$tmp/python-good" "$tmp/python-none"
run 1 -P env "$tmp/python-none" "$tmp/python-good"
# a folder is what the whole line says
mkdir "$tmp/a folder"
cp -r "$tmp/good" "$tmp/a folder/mxnet"
python python-folded "$tmp/a folder/mxnet"
run 0 -P -p "$tmp/python-folded"
grep -qF -- "-isystem $tmp/a folder/mxnet/include " "$(cat "$tmp/out")" || fail 'a name is cut at its space'
rm "$(cat "$tmp/out")"
# the name may lack an end of the line, and only the first line counts
for text in '%s' '%s\\nmore\\n'; do
	printf '#!/bin/sh\nprintf "%s" "%s"\n' "$text" "$tmp/good" >"$tmp/python-folded"
	run 0 -P -p "$tmp/python-folded"
	grep -qF -- "-isystem $tmp/good/include " "$(cat "$tmp/out")" || fail "another folder of '$text'"
done
# the Python inherits no descriptor of pawl
printf '#!/bin/sh\nls /proc/$$/fd >"%s"\necho "%s"\n' "$tmp/asked" "$tmp/good" >"$tmp/python-folded"
"$tmp/python-folded" | cat >/dev/null
cp "$tmp/asked" "$tmp/alone"
run 0 -P -p "$tmp/python-folded"
cmp -s "$tmp/alone" "$tmp/asked" || fail "the Python has the files $(xargs <"$tmp/asked"), not $(xargs <"$tmp/alone")"
# a real one says where the package is without importing it; a module is no package
printf '#!/bin/sh\nexec "%s" -S "$@"\n' "$python" >"$tmp/real"
chmod +x "$tmp/real"
mkdir -p "$tmp/site/mxnet" "$tmp/site1/mxnet" "$tmp/site2/mxnet" "$tmp/module"
echo 'raise SystemExit(3)' >"$tmp/site/mxnet/__init__.py"
echo >"$tmp/module/mxnet.py"
PYTHONPATH=$tmp/module:$tmp/site1 run 1 -P -p "$tmp/real"
says err "$tmp/real has no mxnet; name"
PYTHONPATH=$tmp run 1 -P -p "$tmp/real"
says err "$tmp/real has no mxnet; name"
PYTHONPATH=$tmp/site:$tmp/module run 1 -P -p "$tmp/real"
says err "pawl mxnet: $tmp/site/mxnet/include/mxnet/base.h: No such file"
PYTHONPATH=$tmp/site2:$tmp/site1 run 1 -P -p "$tmp/real"
says err "pawl mxnet: $tmp/site2/mxnet/include/mxnet/base.h: No such file"
# any of these separates words, and what is no program is none, whatever its name
mkdir "$tmp/python-folder"
echo >"$tmp/python-data2"
for c in ' ' '	' '
' ';' '&' '|' '(' ')' '<' '>' '{' '}' "'" '"' '`' '$'; do
	run 0 -P sh -c "$tmp/python-folder $tmp/python-data2${c}$tmp/python-good${c}x"
done
# the program has no file open but its own
run 0 "$tmp/script" one
cp "$tmp/out" "$tmp/one"
printf '#!/bin/sh\n[ "$1" = -c ] && { echo "%s"; exit; }\nls /proc/$$/fd\n' "$tmp/good" >"$tmp/python-open"
chmod +x "$tmp/python-open"
"$tmp/python-open" x >"$tmp/open" 2>/dev/null
printf '#!%s\n' "$tmp/python-open" >"$tmp/opens"
chmod +x "$tmp/opens"
run 0 "$tmp/opens"
cmp -s "$tmp/open" "$tmp/out" || fail "the program has other files open than $(xargs <"$tmp/open")"
# programs that run a Python
run 0 env A=1 nice -n 1 "$tmp/python-good" train.py
says out "runs train.py; $tmp/cache/pawl/"
run 0 bash -c "cd / && A=1 '$tmp/python-good' -u train.py; true"
says out "runs -u train.py; $tmp/cache/pawl/"
run 0 sh -ec "exec $tmp/python-good"
says out "runs ; $tmp/cache/pawl/"
run 0 sh -c ": $(printf '%05000d' 0); $tmp/python-good train.py"
says out "runs train.py; $tmp/cache/pawl/"
printf '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n' >"$tmp/launcher"
chmod +x "$tmp/launcher"
run 0 "$tmp/launcher" --workers 2 -- "$tmp/script" four
says out "runs -u $tmp/script four; $tmp/cache/pawl/"
# a name that is no program does not count, and without one the text says what to do
mkdir "$tmp/bin"
cp "$tmp/python-none" "$tmp/bin/python3"
PATH=$tmp/bin:$PATH run 1 sh -c "echo $tmp/python-data"
says err 'python3 has no mxnet; name the Python that has mxnet: pawl mxnet --python /path/to/python'
# a first line that is no #! names none, and neither does a second one behind another program's
for line in '# ' '! ' '' "#!/bin/sh\n# for use with " "#!/bin/sh\n'''exec " "#!/bin/sh\n'''exec   "; do
	printf '%b%s\n' "$line" "$tmp/python-good" >"$tmp/bin/other"
	chmod +x "$tmp/bin/other"
	PATH=$tmp/bin:$PATH run 1 other
	says err 'python3 has no mxnet'
done
# so it is without a command
PATH=$tmp/bin:$PATH run 1 --print
says err 'python3 has no mxnet; name the Python that has mxnet'
run 0 --python "$tmp/python-good" sh -c "echo \"$tmp/python-data \$LD_PRELOAD\""
says out "$tmp/python-data $tmp/cache/pawl/"
# what was preloaded before stays
LD_PRELOAD=$lib
export LD_PRELOAD
run 0 --library "$tmp/out" -- sh -c 'echo "$LD_PRELOAD"'
says out "$tmp/out:$lib"
LD_PRELOAD='' run 0 -l "$tmp/out" -- sh -c 'echo "<$LD_PRELOAD>"'
says out "<$tmp/out>"
unset LD_PRELOAD
pawl=$(realpath "$pawl")
# the name of the library is whole, wherever the program runs
cd "$tmp" && run 0 -P -l ./cxx
says out "$tmp/cxx"
cd "$OLDPWD" || exit 1
# what the program returns
run 5 -l "$tmp/out" sh -c 'exit 5'
# a name without a folder, in a PATH that has an empty one
cd "$tmp" && PATH=":$PATH" run 0 script five
says out "runs -u script five; $tmp/cache/pawl/"
# or whose last folder is empty, or which has no other
for path in "$PATH:" ''; do
	cd "$tmp" && PATH=$path run 0 mx-script five
	says out "runs -u mx-script five; $tmp/cache/pawl/"
done
# and one with a folder, which no PATH has
run 0 ./script six
says out "runs -u ./script six; $tmp/cache/pawl/"
cd "$OLDPWD" || exit 1
# of an installed pawl it is another library when any file has changed that it is made of
mkdir -p "$tmp/in/bin" "$tmp/in/share/pawl" "$tmp/in/include/pawl" "$tmp/in/lib"
cp "$pawl" "$tmp/in/bin/pawl"
files='share/pawl/pawl_mxnet.cc share/pawl/pawl_mxnet.map include/pawl/engine.h include/pawl/mx_bridge.h
	lib/libpawl_mx.a'
for file in $files lib/libpawl.so; do
	echo >"$tmp/in/$file"
done
built=$pawl pawl=$tmp/in/bin/pawl
run 0 -P -p "$tmp/python-good"
seen=$(cat "$tmp/out")
for file in $files; do
	echo more >>"$tmp/in/$file"
	run 0 -P -p "$tmp/python-good"
	case $seen in
	*"$(cat "$tmp/out")"*) fail "the same library with another $file" ;;
	esac
	seen="$seen $(cat "$tmp/out")"
done
# what the compiler is called with
run 0 -r -P -p "$tmp/python-good"
echo "-std=c++17 -O2 -g -fPIC -shared -pthread -ftls-model=initial-exec -D_GLIBCXX_USE_CXX11_ABI=0" \
	"-DDMLC_USE_CXX11=1 -DMXNET_USE_CUDA=0 -DMSHADOW_USE_CUDA=0 -DMSHADOW_USE_CBLAS=0 -DMSHADOW_USE_MKL=0" \
	"-isystem $tmp/good/include -I$tmp/in/include -o $(cat "$tmp/out").PID $tmp/in/share/pawl/pawl_mxnet.cc" \
	"-Wl,--version-script=$tmp/in/share/pawl/pawl_mxnet.map -Wl,-z,defs -Wl,--exclude-libs,libpawl_mx.a" \
	"-L$tmp/in/lib -Wl,-rpath,$tmp/in/lib -l:libpawl_mx.a -lpawl -ldl" >"$tmp/want"
sed 's/\(\.so\)\.[0-9]* /\1.PID /' "$(cat "$tmp/out")" >"$tmp/made"
cmp -s "$tmp/made" "$tmp/want" || fail "the compiler gets $(cat "$tmp/made")"
# the file cannot be put into its place
lib=$(cat "$tmp/out")
rm "$lib"
mkdir -p "$lib/full"
run 1 -r -P -p "$tmp/python-good"
says err "pawl mxnet: $lib: Is a directory"
! grep -q 'could not build' "$tmp/err" || fail 'it says that it could not build what has no place'
[ -z "$(find "$tmp/cache" -name '*.so.*')" ] || fail 'a library without a place is left'
rm -r "$lib"
# a library in lib64, or where the linker looks
mv "$tmp/in/lib" "$tmp/in/lib64"
run 0 -P -p "$tmp/python-good"
grep -q -- "-L$tmp/in/lib64 -Wl,-rpath,$tmp/in/lib64 " "$(cat "$tmp/out")" || fail 'not from lib64'
rm "$tmp/in/lib64/libpawl.so"
run 0 -P -p "$tmp/python-good"
grep -q -- '-L\. -Wl,-rpath,/usr/local/lib ' "$(cat "$tmp/out")" || fail 'not from the default folder'
# without its own files it says which one is missing
rm "$tmp/in/include/pawl/engine.h"
run 1 -P -p "$tmp/python-good"
says err 'the header of pawl is not found, neither in the tree nor installed'
rm "$tmp/in/share/pawl/pawl_mxnet.cc"
run 1 -P -p "$tmp/python-good"
says err 'pawl_mxnet.cc of pawl is not found, neither in the tree nor installed'
pawl=$built
run 1 --library "$tmp/nowhere" true
says err "pawl mxnet: $tmp/nowhere: No such file or directory"
run 1 --python "$tmp/python-good" "$tmp/no-command"
says err "pawl mxnet: $tmp/no-command: No such file or directory"
unset XDG_CACHE_HOME
HOME='' run 1 "$tmp/python-good"
says err 'pawl mxnet: neither XDG_CACHE_HOME nor HOME is set: nowhere to keep the library'
unset HOME
run 1 "$tmp/python-good"
says err 'neither XDG_CACHE_HOME nor HOME'

echo "test_mxnet: $checks commands, $bad wrong"
[ $bad -eq 0 ]
