#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# onnx 1.23.2, ReferenceEvaluator, AveragePool with auto_pad VALID and dilations: zeros at the end.
# Expected: a dilated window of 2 covers 3 values, so 5 values have 3 windows; onnxruntime 1.32.0
# returns these.
# Seen: get_output_shape_auto_pad() in op_pool_common.py does not have the dilations, so the
# output has one element more, which no window fills.
. "$(dirname "$0")/lib.sh"
packages onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
program <<'PY'
from common import *
from onnx import TensorProto as T
feed = {"x": np.array([[[1, 2, 3, 4, 5]]], np.float32)}
m = model("AveragePool", feed, [("y", T.FLOAT)], 22, kernel_shape=[2], dilations=[2],
          auto_pad="VALID")
seen("averages of values two apart", reference(m, feed)[0], ort(m, feed)[0].tolist(),
     [[[2.0, 3.0, 4.0, 0.0]]])
PY
