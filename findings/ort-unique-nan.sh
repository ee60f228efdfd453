#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# onnxruntime 1.32.0, Unique: a NaN makes other values disappear.
# Expected: the operator returns all unique values; the reference of onnx 1.23.2 returns 1 and NaN.
# Seen: of [NaN, 1, NaN] only NaN is left, and the output `inverse_indices` maps 1 to it.
. "$(dirname "$0")/lib.sh"
packages onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
program <<'PY'
from common import *
from onnx import TensorProto as T
feed = {"x": np.array([np.nan, 1, np.nan], np.float32)}
m = model("Unique", feed, [("y", T.FLOAT), ("first", T.INT64), ("inverse", T.INT64)], 21)
y, _, inverse = ort(m, feed)
seen("the unique values of [nan, 1, nan]", y, [1.0, "nan"], [float("nan")])
seen("where each element went", inverse, "1 apart from nan", [0, 0, 0])
PY
