#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# onnxruntime 1.32.0, Resize with scales and align_corners: the length in the formula is rounded.
# Expected: onnx 1.23.2's node test and reference take the fractional length 4 * 0.6 = 2.4 of the
# output, so the second of two pixels is at 1 * 3 / 1.4 of the input, 3.1429.
# Seen: the integral length 2, so the second pixel is the last of the input, 4.
. "$(dirname "$0")/lib.sh"
packages onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
program <<'PY'
from common import *
from onnx import TensorProto as T
feed = {"x": np.array([[[[1, 2, 3, 4]]]], np.float32), "roi": None,
        "scales": np.array([1, 1, 1, 0.6], np.float32)}
m = model("Resize", feed, [("y", T.FLOAT)], 19, mode="linear",
          coordinate_transformation_mode="align_corners")
seen("4 pixels times 0.6", ort(m, feed)[0].round(4),
     reference(m, feed)[0].round(4).tolist(), [[[[1.0, 4.0]]]])
PY
