#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# onnx 1.23.2, ReferenceEvaluator, LpPool with ceil_mode: windows beyond the edge count too much.
# Expected: the norm of the values in the window; onnxruntime 1.32.0 returns that.
# Seen: op_lp_pool.py multiplies an average over the values that exist by the size of the whole
# window, so the last window, with one value of two, has twice its norm.
. "$(dirname "$0")/lib.sh"
packages onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
program <<'PY'
from common import *
from onnx import TensorProto as T
feed = {"x": np.array([[[1, 2, 3]]], np.float32)}
m = model("LpPool", feed, [("y", T.FLOAT)], 22, kernel_shape=[2], strides=[2], ceil_mode=1, p=1)
seen("sums of [1, 2] and [3]", reference(m, feed)[0], ort(m, feed)[0].tolist(), [[[3.0, 6.0]]])
PY
