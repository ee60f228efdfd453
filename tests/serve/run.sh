#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh [PYTEST ARGUMENT...]: compares models of pawl serve with onnxruntime and mxnet, in the
# build folder.  run.sh --speed [WORD...]: compares their times with onnxruntime (speed.py);
# run.sh --memory: the memory of a server (memory.py).
# Makes a virtualenv with packages from PyPI, among them models, and the one of make
# check-mxnet.  Exit status 0: passed, 77: PyPI is out of reach.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON3:-/usr/bin/python3}
venv=$PWD/build/models-venv
mx=${MXNET_PYTHON:-$PWD/build/mxnet-venv/bin/python}

# shellcheck source=tests/serve/venv.sh
. "$here/venv.sh"

[ -x tests/serve/model_run ] ||
	skip "tests/serve/model_run is not built: packages are missing (make setup)"
if [ ! -x "$venv/bin/python" ]; then
	install "$venv" "$python" -r "$here/requirements.txt"
	"$venv.new/bin/pip" install -q --retries 1 --timeout 20 --no-deps ddddocr==1.6.1 \
		rapidocr-onnxruntime==1.4.4 magika==1.0.3 || unreachable
	mv "$venv.new" "$venv"
fi
# The newest Python with mxnet 1.9.1 is 3.11.
if [ ! -x "$mx" ]; then
	install "$PWD/build/mxnet-venv" python3.11 -r "$here/../compat/mxnet/requirements.txt"
	mv "$PWD/build/mxnet-venv.new" "$PWD/build/mxnet-venv"
fi
export PYTHONDONTWRITEBYTECODE=1 MODEL_RUN=$PWD/tests/serve/model_run \
	FUZZ_MODELS=$PWD/tests/serve/fuzz_models MXNET_PYTHON="$mx" \
	PAWL_COMMAND=$PWD/tools/pawl/pawl
case ${1:-} in
--speed | --memory)
	program=$here/${1#--}.py
	shift
	exec "$venv/bin/python" "$program" "$@" ;;
esac
exec "$venv/bin/python" -m pytest -q -p no:cacheprovider "$here/test_models.py" \
	"$here/test_backend.py" "$@"
