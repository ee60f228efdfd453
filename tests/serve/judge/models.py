# SPDX-License-Identifier: Apache-2.0
"""The models, the same ONNX files for both servers, and Triton's configuration of them.

empty   y = x: what a request costs
small   784 > 128 > 10, the size of a network for digits
magika  which of 214 types a file has, of the package magika; about a millisecond
large   resnet50 with random weights; the file has a fixed batch of 1
swap    three outputs that name its version, and 4 MB of weights
"""
import functools
import glob
import os
import shutil
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from weights import random_weights      # noqa: E402

SITE = os.path.dirname(os.path.dirname(onnx.__file__))
MAX_BATCH = 8
# short queues: a slower model needs fewer requests to be busy
QUEUES = {"small": 64, "magika": 16, "large": 4}
VERSIONS = 64
TRITON_TYPES = {TensorProto.FLOAT: "TYPE_FP32", TensorProto.INT32: "TYPE_INT32",
                TensorProto.INT64: "TYPE_INT64"}
# an entry per model that is served: the file, and the settings that differ
SERVED = {
    "empty": ("empty", {}), "small": ("small", {}), "magika": ("magika", {}),
    "large": ("large", {}), "swap": ("swap", {}),
    **{f"{name}_q": (name, {"queue": n}) for name, n in QUEUES.items()},
    "flood": ("magika", {}), "equal": ("magika", {}), "favoured": ("magika", {"weight": 4}),
}


def floats(name, shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def save(path, nodes, inputs, outputs, constants=None):
    graph = helper.make_graph(nodes, "model", inputs, outputs,
                              [numpy_helper.from_array(np.asarray(a, np.float32), n)
                               for n, a in (constants or {}).items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def make_swap(path, version):
    """Layers whose constants are the version: outputs of one version are v, 2v and 3v."""
    node, size = helper.make_node, 1024
    eye = np.eye(size)
    save(path,
         [node("Gemm", ["x", "w1", "v"], ["a"]), node("Relu", ["a"], ["a1"]),
          node("Gemm", ["a1", "w2", "v"], ["b"]), node("Relu", ["b"], ["b1"]),
          node("Gemm", ["b1", "w3", "v3"], ["c"]),
          node("ReduceMax", ["a1"], ["y1"], axes=[1]),
          node("ReduceMin", ["b1"], ["y2"], axes=[1]),
          node("ReduceMax", ["c"], ["y3"], axes=[1])],
         [floats("x", ["N", 16])],
         [floats(y, ["N", 1]) for y in ("y1", "y2", "y3")],
         {"w1": np.zeros((16, size)), "w2": eye, "w3": eye[:, :16],
          "v": np.full(size, version), "v3": np.full(16, version)})


def make(folder):
    """The files.  Returns the path of each."""
    os.makedirs(folder, exist_ok=True)
    files = {n: os.path.join(folder, n + ".onnx") for n in ("empty", "small", "large")}
    if not os.path.exists(files["large"]):
        save(files["empty"], [helper.make_node("Identity", ["x"], ["y"])],
             [floats("x", ["N", 16])], [floats("y", ["N", 16])])
        rng, node = np.random.default_rng(1), helper.make_node
        save(files["small"],
             [node("Gemm", ["x", "w1", "b1"], ["a"]), node("Relu", ["a"], ["b"]),
              node("Gemm", ["b", "w2", "b2"], ["c"]), node("Softmax", ["c"], ["y"], axis=1)],
             [floats("x", ["N", 784])], [floats("y", ["N", 10])],
             {"w1": rng.normal(0, 0.05, (784, 128)), "b1": rng.normal(0, 0.1, 128),
              "w2": rng.normal(0, 0.1, (128, 10)), "b2": rng.normal(0, 0.1, 10)})
        for v in range(1, VERSIONS + 1):
            make_swap(os.path.join(folder, f"swap{v}.onnx"), v)
        random_weights(SITE + "/onnx/backend/test/data/light/light_resnet50.onnx",
                       files["large"])
    [files["magika"]] = glob.glob(SITE + "/magika/models/standard_v3_3/model.onnx")
    files["swap"] = os.path.join(folder, "swap1.onnx")
    return files


def place(files, repository, name, version):
    """Create a version of a model; it is complete when its folder has its final name."""
    source = files[SERVED[name][0]]
    if version > 1:
        source = os.path.join(os.path.dirname(files["swap"]), f"swap{version}.onnx")
    to = os.path.join(repository, name, str(version))
    shutil.rmtree(to + ".new", ignore_errors=True)
    os.makedirs(to + ".new")
    os.symlink(source, os.path.join(to + ".new", "model.onnx"))
    if os.path.exists(os.path.join(repository, name, "config.pbtxt")):
        shutil.copy(os.path.join(HERE, "triton_model.py"),
                    os.path.join(to + ".new", "model.py"))
    os.rename(to + ".new", to)


def repository(files, folder, triton):
    shutil.rmtree(folder, ignore_errors=True)
    for name in SERVED:
        os.makedirs(os.path.join(folder, name))
        if triton:
            with open(os.path.join(folder, name, "config.pbtxt"), "w", encoding="ascii") as f:
                f.write(triton_config(files, name))
        place(files, folder, name, 1)


@functools.cache
def tensors_of(path):
    """Inputs and outputs: name, type of ONNX, and shape, with -1 for the number of rows."""
    graph = onnx.load(path).graph
    constants = {i.name for i in graph.initializer}
    return [[(v.name, v.type.tensor_type.elem_type,
              [d.dim_value if d.HasField("dim_value") else -1
               for d in v.type.tensor_type.shape.dim])
             for v in values if v.name not in constants]
            for values in (graph.input, graph.output)]


def inputs_of(files, name):
    return tensors_of(files[SERVED[name][0]])[0]


def triton_config(files, name):
    inputs, outputs = tensors_of(files[SERVED[name][0]])
    batched = inputs[0][2][0] < 0
    tensors = ""
    for kind, values in (("input", inputs), ("output", outputs)):
        for tensor, datatype, shape in values:
            tensors += (f'{kind} {{ name: "{tensor}" data_type: {TRITON_TYPES[datatype]} '
                        f"dims: {shape[batched:]} }}\n")
    queue = SERVED[name][1].get("queue")
    policy = f"default_queue_policy {{ max_queue_size: {queue} }}" if queue else ""
    return (f'backend: "python"\nmax_batch_size: {MAX_BATCH if batched else 0}\n'
            f"{tensors}dynamic_batching {{ {policy} }}\n"
            "instance_group { kind: KIND_CPU count: 1 }\n"
            f'parameters {{ key: "site" value {{ string_value: "{SITE}" }} }}\n'
            f'parameters {{ key: "identity" '
            f'value {{ string_value: "{int(SERVED[name][0] == "empty")}" }} }}\n')


def pawl_config():
    text = f"[model]\nmax_batch = {MAX_BATCH}\nqueue_requests = 1000\n"
    for name, (_, settings) in SERVED.items():
        if settings:
            text += f"[model {name}]\n"
        for key, value in settings.items():
            text += f"{'queue_requests' if key == 'queue' else key} = {value}\n"
    return text
