#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# dlopen.sh LIBDIR CDEFDIR INCLUDEDIR...: libpawl.so and libpawl_mx.so can be loaded by a program that runs already,
# from C and from Python, also when other libraries have used up most of the space
# that the C library keeps for the thread-local variables of libraries that are loaded late.
# Exit status 0: passed, 1: failed.
set -eu

lib=$(cd "$1" && pwd)
shift
cdef=$(cd "$1" && pwd)/pawl.cdef
shift
here=$(cd "$(dirname "$0")" && pwd)
cc=${CC:-cc}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

includes=
for dir; do
	includes="$includes -I$dir"
done
# shellcheck disable=SC2086 # lists of words
$cc -D_GNU_SOURCE -std=gnu11 -Wall -Wextra -Werror $includes "$here/plugin.c" -o "$tmp/plugin" \
	-ldl -pthread
cd "$tmp"
mx=
[ ! -e "$lib/libpawl_mx.so" ] || mx=$lib/libpawl_mx.so
# libpawl_mx.so finds the libpawl.so beside it: a copy of both in a folder that the loader does
# not know is enough
if [ "$mx" ]; then
	mkdir alone
	cp -L "$lib/libpawl.so.0" "$lib/libpawl_mx.so" alone
	env -u LD_LIBRARY_PATH ldd "$tmp/alone/libpawl_mx.so" |
		grep -q "libpawl\.so\.0 => $tmp/alone/libpawl\.so\.0 " ||
		{ echo "dlopen: libpawl_mx.so does not find libpawl.so beside it" >&2; exit 1; }
	echo "dlopen: libpawl_mx.so finds libpawl.so beside it"
fi
for bytes in 1 1400; do
	$cc -DBYTES=$bytes -shared -fPIC "$here/tls.c" -o tls$bytes.so
	./plugin ./tls$bytes.so "$lib/libpawl.so" ${mx:+"$mx"}
	echo "dlopen: loaded after $bytes bytes of thread-local variables"
	"${PYTHON3:-python3}" - ./tls$bytes.so "$lib/libpawl.so" <<-'END'
		import ctypes, sys
		ctypes.CDLL(sys.argv[1])
		pawl = ctypes.CDLL(sys.argv[2])
		engine = ctypes.c_void_p()
		assert pawl.pawl_engine_create(None, ctypes.byref(engine)) == 0
		assert pawl.pawl_wait_all(engine, ctypes.c_int64(-1), None) == 0
		assert pawl.pawl_engine_destroy(engine) == 0
	END
	if [ "$mx" ]; then
		"${PYTHON3:-python3}" - ./tls$bytes.so "$mx" <<-'END'
			import ctypes, sys
			ctypes.CDLL(sys.argv[1])
			mx = ctypes.CDLL(sys.argv[2])
			nd, text = ctypes.c_void_p(), (ctypes.c_float * 2)()
			shape, data = (ctypes.c_uint32 * 1)(2), (ctypes.c_float * 2)(3, 4)
			assert mx.MXNDArrayCreate(shape, 1, 1, 0, 0, ctypes.byref(nd)) == 0
			assert mx.MXNDArraySyncCopyFromCPU(nd, data, ctypes.c_size_t(2)) == 0
			assert mx.MXNDArraySyncCopyToCPU(nd, text, ctypes.c_size_t(2)) == 0
			assert list(text) == [3, 4]
			assert mx.MXNDArrayFree(nd) == 0 and mx.MXNDArrayWaitAll() == 0
		END
	fi
	echo "dlopen: loaded by Python after $bytes bytes"
	if "${PYTHON3:-python3}" -c 'import cffi' 2>/dev/null; then
		"${PYTHON3:-python3}" "$here/read_cdef.py" "$lib/libpawl.so" "$cdef"
		echo "dlopen: loaded by cffi"
	else
		echo "dlopen: not by cffi, which is not installed (make setup, or python3-cffi)"
	fi
done
