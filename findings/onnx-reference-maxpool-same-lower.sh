#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# onnx 1.23.2, ReferenceEvaluator, MaxPool with SAME_LOWER: a row and a column are missing.
# Expected: onnx gives SAME_UPPER and SAME_LOWER one output size, ceil(5 / 2) = 3; AveragePool of
# the same evaluator and onnxruntime 1.32.0 follow it.
# Seen: op_max_pool.py rounds down for SAME_LOWER, to 2.
. "$(dirname "$0")/lib.sh"
packages onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
program <<'PY'
from common import *
from onnx import TensorProto as T
feed = {"x": np.arange(25, dtype=np.float32).reshape(1, 1, 5, 5)}
a = dict(kernel_shape=[2, 2], strides=[2, 2])
shape = lambda f, op, pad: f(model(op, feed, [("y", T.FLOAT)], 22, auto_pad=pad, **a), feed)[0].shape
seen("MaxPool, SAME_UPPER", shape(reference, "MaxPool", "SAME_UPPER"), [1, 1, 3, 3], [1, 1, 3, 3])
seen("AveragePool, SAME_LOWER", shape(reference, "AveragePool", "SAME_LOWER"), [1, 1, 3, 3],
     [1, 1, 3, 3])
seen("MaxPool, SAME_LOWER", shape(reference, "MaxPool", "SAME_LOWER"),
     list(shape(ort, "MaxPool", "SAME_LOWER")), [1, 1, 2, 2])
PY
