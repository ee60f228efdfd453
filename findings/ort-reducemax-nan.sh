#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# onnxruntime 1.32.0: the maximum of values with a NaN depends on the operator.
# Expected: one rule; onnx says that ReduceMax behaves like numpy's, which returns NaN.
# Seen: Max returns NaN and ReduceMax the largest other value.
. "$(dirname "$0")/lib.sh"
packages onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
program <<'PY'
from common import *
from onnx import TensorProto as T
y = [("y", T.FLOAT)]
a = {"a": np.array([np.nan], np.float32), "b": np.array([2], np.float32)}
v = {"v": np.array([1, np.nan, 2], np.float32)}
nan = float("nan")
seen("Max of nan and 2", ort(model("Max", a, y, 13), a)[0], [nan], [nan])
seen("ReduceMax of [1, nan, 2]", ort(model("ReduceMax", v, y, 20, keepdims=0), v)[0], nan, 2.0)
PY
