# SPDX-License-Identifier: Apache-2.0
"""The light networks of the package onnx, with weights that differ."""
import numpy as np
import onnx
from onnx import numpy_helper


def random_weights(path, to):
    """A light network whose constant weights became random ones: He's scale, and a variance
    near 1, so that numbers neither vanish nor overflow."""
    model = onnx.load(path)
    shapes = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    uses = {}
    for n in model.graph.node:
        for k, name in enumerate(n.input):
            uses.setdefault(name, (n.op_type, k))
    rng, nodes, inits = np.random.default_rng(3), [], []
    for n in model.graph.node:
        if n.op_type != "ConstantOfShape":
            nodes.append(n)
            continue
        shape = shapes[n.input[0]]
        kind, k = uses.get(n.output[0], ("", 0))
        if kind in ("Conv", "Gemm") and k == 1:
            fan = int(np.prod(shape[1:]))
            w = rng.normal(0, np.sqrt(2 / fan), shape)
        elif kind == "BatchNormalization" and k in (1, 4):
            w = rng.uniform(0.5, 1.5, shape)
        else:
            w = rng.uniform(-0.1, 0.1, shape)
        inits.append(numpy_helper.from_array(w.astype(np.float32), n.output[0]))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(inits)
    onnx.save(model, to)
