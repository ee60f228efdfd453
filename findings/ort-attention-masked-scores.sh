#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# onnxruntime 1.32.0, Attention: causally masked scores in the output qk_matmul_output are finite.
# Expected: minus infinity, as the reference of onnx 1.23.2 and its node tests have it, so that a
# later Softmax of this output gives masked keys the weight 0 in every row.
# Seen: the lowest finite float.
. "$(dirname "$0")/lib.sh"
packages onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
program <<'PY'
from common import *
from onnx import TensorProto as T
a = np.ones((1, 1, 2, 4), np.float32)
feed = {"q": a, "k": a, "v": a}
m = model("Attention", feed, [("y", T.FLOAT), ("pk", T.FLOAT), ("pv", T.FLOAT), ("qk", T.FLOAT)],
          23, is_causal=1, qk_matmul_output_mode=2)
m.graph.node[0].output[:] = ["y", "", "", "qk"]
del m.graph.output[1:3]
seen("the score of the first query and the second key", ort(m, feed)[-1][0, 0, 0, 1],
     reference(m, feed)[-1][0, 0, 0, 1], float(np.finfo(np.float32).min))
PY
