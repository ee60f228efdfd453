#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# onnxruntime 1.32.0, MaxUnpool with output_shape: values land in other pixels.
# Expected: onnx says that the indices do not consider padding, so 5, 7, 13 and 15 count in the 4x4
# input of the pooling, wherever output_shape pads it to 5x5; the reference of onnx 1.23.2 and the
# expected output of onnx's own node test agree.
# Seen: the indices count in the padded 5x5 output.
. "$(dirname "$0")/lib.sh"
packages onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
program <<'PY'
from common import *
from onnx import TensorProto as T
feed = {"x": np.array([[[[5, 6], [7, 8]]]], np.float32),
        "indices": np.array([[[[5, 7], [13, 15]]]], np.int64),
        "output_shape": np.array([1, 1, 5, 5], np.int64)}
m = model("MaxUnpool", feed, [("y", T.FLOAT)], 22, kernel_shape=[2, 2], strides=[2, 2])
where = lambda y: [tuple(int(i) for i in np.argwhere(y[0, 0] == v)[0]) for v in (5, 6, 7, 8)]
seen("pixels of 5, 6, 7, 8", where(ort(m, feed)[0]), where(reference(m, feed)[0]),
     [[1, 0], [1, 2], [2, 3], [3, 0]])
PY
