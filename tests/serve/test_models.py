# SPDX-License-Identifier: Apache-2.0
"""Models of pawl serve give the answers of onnxruntime and mxnet.

Networks come from packages of PyPI; small models, one per operator and set of attributes, are
made here.  run.sh installs what is needed.
"""
import glob
import json
import os
import re
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from weights import random_weights

RUN = os.environ["MODEL_RUN"]
FUZZ = os.environ["FUZZ_MODELS"]
MXNET = os.environ["MXNET_PYTHON"]
ZOO = os.path.join(os.path.dirname(os.path.abspath(__file__)), "zoo.py")
TYPES = {0: np.bool_, 1: np.uint8, 5: np.int8, 7: np.int32, 8: np.int64, 10: np.float32,
         11: np.float64}
SITE = os.path.dirname(os.path.dirname(onnx.__file__))
LIGHT = sorted(glob.glob(SITE + "/onnx/backend/test/data/light/*.onnx"))
ort.set_default_logger_severity(4)


class Refused(Exception):
    """The model, or a shape of its inputs."""


def run_folder(folder, arrays, *options):
    args = []
    for i, a in enumerate(arrays):
        path = os.path.join(folder, f"input{i}")
        np.ascontiguousarray(a).tofile(path)
        args.append(",".join(map(str, a.shape)) + ":" + path)
    p = subprocess.run([RUN, *options, folder, *args], capture_output=True, check=False,
                       timeout=300)
    if p.returncode == 2:
        raise Refused(p.stderr.decode())
    assert p.returncode == 0, (p.returncode, p.stderr.decode())
    outputs, at, rest = [], 0, []
    for line in p.stderr.decode().splitlines():
        if not line.startswith("output "):
            rest.append(line)
            continue
        words = line.split()
        dtype, shape = np.dtype(TYPES[int(words[2])]), tuple(map(int, words[3:]))
        n = int(np.prod(shape)) * dtype.itemsize
        outputs.append(np.frombuffer(p.stdout[at:at + n], dtype).reshape(shape))
        at += n
    assert at == len(p.stdout)
    return outputs, rest


def run_file(tmp_path, path, arrays, *options):
    folder = tmp_path / "model"
    folder.mkdir(exist_ok=True)
    link = folder / "model.onnx"
    if not link.exists():
        link.symlink_to(path)
    return run_folder(str(folder), arrays, *options)[0]


def close(got, want, tolerance=1e-4):
    assert len(got) == len(want)
    for g, w in zip(got, want):
        assert g.shape == w.shape and g.dtype == w.dtype
        np.testing.assert_allclose(g, w, rtol=tolerance, atol=tolerance)


def runtime(path, arrays):
    s = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return s.run(None, {i.name: a for i, a in zip(s.get_inputs(), arrays)})


def noise(*shape, seed=1):
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


# --- networks -------------------------------------------------------------------

@pytest.mark.parametrize("path", LIGHT, ids=os.path.basename)
def test_light_network(tmp_path, path):
    """Their weights are constant, which hides errors of weights: see the zoo for those."""
    x = noise(1, 3, 224, 224)
    close(run_file(tmp_path, path, [x]), runtime(path, [x]))


@pytest.mark.parametrize("name", ["densenet121", "inception_v1", "inception_v2", "resnet50",
                                  "shufflenet", "squeezenet"])
@pytest.mark.parametrize("tiles", ["1", "3"])
def test_network_with_random_weights(tmp_path, name, tiles):
    path = tmp_path / "random.onnx"
    random_weights(f"{SITE}/onnx/backend/test/data/light/light_{name}.onnx", path)
    x = noise(1, 3, 224, 224)
    want = runtime(path, [x])
    scale = np.abs(want[0]).max()
    got = run_file(tmp_path, path, [x], "-t", tiles, "-w", "3", "-n", "3")
    close([got[0] / scale], [want[0] / scale])


PACKAGED = {
    "ddddocr/common_det.onnx": [(1, 3, 416, 416)],
    "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx": [(3, 3, 48, 192)],
    "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx": [(1, 3, 160, 224)],
    "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx": [(2, 3, 48, 160)],
}


@pytest.mark.parametrize("name", PACKAGED, ids=os.path.basename)
def test_packaged_network(tmp_path, name):
    xs = [noise(*shape) for shape in PACKAGED[name]]
    close(run_file(tmp_path, f"{SITE}/{name}", xs), runtime(f"{SITE}/{name}", xs))


def test_magika(tmp_path):
    [path] = glob.glob(SITE + "/magika/models/standard_v3_3/model.onnx")
    x = np.random.default_rng(1).integers(0, 257, (5, 2048)).astype(np.int32)
    close(run_file(tmp_path, path, [x]), runtime(path, [x]))


# --- MXNet ----------------------------------------------------------------------

ZOO_NETS = ["resnet18_v1", "resnet18_v2", "mobilenet0.25", "mobilenetv2_0.25", "squeezenet1.1",
            "densenet121", "vgg11_bn", "alexnet", "inceptionv3"]
MX_OPERATORS = """flat_fc fc_rows softmax_output softmax_rows softmax_axis log_softmax deconv deconv_bias
    conv pool_full avg_full avg_inside global_max batch_norm batch_norm_gamma leaky elu scalars
    reshape transpose mean max sum lrn broadcast elemwise softmax_act softmax_channel
    softmax_act3 softmax_output4 softmax_output3 mean_of_all max_of_axes sum_kept clip_exchanged
    pool_outside scalars_too expand embedding layer_norm instance_norm group_norm argmax up_sampling
    pad slice_channel slice_channel_squeezed slice_axis swap_axis adaptive batch_dot batch_dot_turned
    prelu stack lstm gru activations""".split()


@pytest.mark.parametrize("name", ZOO_NETS + MX_OPERATORS)
def test_mxnet(tmp_path, name):
    subprocess.run([MXNET, ZOO, name, str(tmp_path)], check=True, timeout=280,
                   env=dict(os.environ, OMP_NUM_THREADS="1"), stderr=subprocess.DEVNULL)
    with open(tmp_path / "shapes", encoding="ascii") as f:
        in_shape, out_shape = [tuple(map(int, line.split())) for line in f]
    x = np.fromfile(tmp_path / "x.f32", np.float32).reshape(in_shape)
    y = np.fromfile(tmp_path / "y.f32", np.float32).reshape(out_shape)
    [got], _ = run_folder(str(tmp_path), [x], "-t", "2")
    scale = max(1, np.abs(y).max())
    close([got / scale], [y / scale])
    text = subprocess.run([RUN, str(tmp_path)], capture_output=True, check=True).stdout.decode()
    # The states of these are weights for two rows: no other size says what the output is.
    unknown = name in ("lstm", "gru")
    assert "platform mxnet" in text and f"batch {int(out_shape[0] == 2 or unknown)}" in text


@pytest.mark.parametrize("op,changes,word", [
    ("Convolution", {"kernel": None, "stride": None, "dilate": None, "pad": None}, "no kernel"),
    ("Convolution", {"num_group": "3x"}, "num_group"), ("LeakyReLU", {"slope": "x"}, "slope"),
    ("LeakyReLU", {"op": "Dropout", "mode": "always"}, "mode always"),
    ("LeakyReLU", {"op": "softmax", "dtype": "float64"}, "dtype float64"),
    ("LeakyReLU", {"op": "LRN", "nsize": "4"}, "nsize is 4"),
    ("LeakyReLU", {"op": "SoftmaxActivation", "mode": "all"}, "mode all"),
    ("LeakyReLU", {"op": "Pooling", "pool_type": "max"}, "no kernel"),
    ("LeakyReLU", {"op": "Pad", "mode": "wrap", "pad_width": "(1, 1)"}, "pad_width or mode"),
    ("LeakyReLU", {"op": "SliceChannel", "num_outputs": "0"}, "0 outputs"),
    ("LeakyReLU", {"op": "argmax"}, "no axis"), ("LeakyReLU", {"op": "RNN"}, "1 inputs"),
    ("null", {"__dtype__": "1"}, "not float32")])
def test_mxnet_attribute_is_refused(tmp_path, op, changes, word):
    subprocess.run([MXNET, ZOO, "leaky", str(tmp_path)], check=True, timeout=280,
                   stderr=subprocess.DEVNULL)
    path = tmp_path / "model-symbol.json"
    symbol = json.loads(path.read_text())
    node = next(n for n in symbol["nodes"] if n["op"] == op)
    for key, value in changes.items():
        if key == "op":
            node["op"] = value
        elif value is None:
            node["attrs"].pop(key, None)
        else:
            node["attrs"][key] = value
    path.write_text(json.dumps(symbol))
    with pytest.raises(Refused) as e:
        run_folder(str(tmp_path), [noise(2, 3, 9, 12)])
    assert word in str(e.value), str(e.value)


def test_damaged_mxnet_files_do_no_harm(tmp_path):
    subprocess.run([MXNET, ZOO, "mobilenet0.25", str(tmp_path)], check=True, timeout=280,
                   stderr=subprocess.DEVNULL)
    p = subprocess.run([FUZZ, "100", f"{tmp_path}/model-symbol.json",
                        f"{tmp_path}/model-0000.params"], capture_output=True, check=False,
                       timeout=280)
    assert p.returncode == 0, p.stderr.decode()[-2000:]


def test_every_mxnet_operator_of_the_script_is_tested():
    out = subprocess.run([MXNET, ZOO], capture_output=True, check=True).stdout.decode()
    assert out.split() == MX_OPERATORS


# --- operators ------------------------------------------------------------------

def const(values, dtype=np.int64):
    return np.array(values, dtype)


def case(op, inputs, opset=13, **attrs):
    return op, inputs, opset, attrs


# Inputs: arrays are constants of the model, tuples the shapes of its inputs, None is left out.
W = noise
CASES = [
    case("Conv", [(2, 3, 9, 10), W(4, 3, 3, 3)], kernel_shape=[3, 3]),
    case("Conv", [(2, 3, 9, 10), W(4, 3, 3, 3), W(4)], pads=[1, 2, 0, 1], strides=[2, 1]),
    case("Conv", [(1, 4, 12, 12), W(6, 2, 3, 3), W(6)], group=2, dilations=[2, 3]),
    case("Conv", [(1, 8, 9, 9), W(8, 1, 3, 3), W(8)], group=8, pads=[1, 1, 1, 1]),
    case("Conv", [(1, 8, 9, 9), W(16, 1, 3, 3)], group=8, strides=[2, 2]),
    case("Conv", [(2, 3, 11, 8), W(5, 3, 3, 2)], auto_pad="SAME_UPPER", strides=[2, 2]),
    case("Conv", [(2, 3, 11, 8), W(5, 3, 4, 2)], auto_pad="SAME_LOWER", strides=[2, 3]),
    case("Conv", [(2, 3, 11, 8), W(5, 3, 3, 2)], auto_pad="VALID"),
    case("Conv", [(2, 3, 20), W(4, 3, 5), W(4)], pads=[2, 1], strides=[2]),
    case("Conv", [(2, 3, 9, 10), (4, 3, 3, 3), (4,)]),
    case("Conv", [(1, 3, 9, 1), (4, 3, 3, 1)], auto_pad="SAME_UPPER"),
    case("Conv", [(1, 32, 56, 56), W(64, 32, 3, 3), W(64)], pads=[1, 1, 1, 1]),
    case("Conv", [(1, 32, 5, 56), W(64, 32, 7, 7)], pads=[3, 3, 3, 3]),
    case("Conv", [(5, 16, 28, 28), W(64, 16, 3, 3), W(64)], pads=[1, 1, 1, 1], strides=[2, 2]),
    # a picture of width 1
    case("Conv", [(2, 3, 11, 1), W(4, 3, 5, 1), W(4)], pads=[2, 0, 1, 0], strides=[2, 1]),
    case("Conv", [(1, 64, 900, 1), W(64, 64, 3, 1)], pads=[1, 0, 1, 0], dilations=[2, 1]),
    case("Conv", [(2, 4, 11, 1), W(6, 2, 5, 1)], group=2, pads=[0, 1, 0, 0], strides=[1, 2]),
    case("ConvTranspose", [(2, 3, 5, 6), W(3, 4, 2, 2)], strides=[2, 2]),
    case("ConvTranspose", [(1, 4, 5, 6), W(4, 3, 3, 3), W(6)], group=2, strides=[2, 3],
         pads=[1, 1, 0, 1], output_padding=[1, 0], dilations=[1, 2]),
    case("Gemm", [(3, 5), W(5, 7), W(7)]),
    case("Gemm", [(3, 5), W(7, 5), W(7)], transB=1, alpha=0.5, beta=2.0),
    case("Gemm", [(5, 3), W(5, 7), W(3, 1)], transA=1),
    case("Gemm", [(3, 5), (5, 7), (3, 7)]),
    case("Gemm", [(3, 5), W(5, 7)]),
    case("Gemm", [(600, 256), W(256, 300), W(300)]),
    case("MatMul", [(3, 5), W(5, 7)]),
    case("MatMul", [(2, 4, 3, 5), (2, 4, 5, 6)]),
    case("MatMul", [(2, 4, 3, 5), (5, 6)]),
    case("MatMul", [(4, 3, 5), W(4, 5, 6)]),
    case("MatMul", [(2, 4, 3, 5), W(5, 6)]),
    case("MaxPool", [(2, 3, 9, 10)], kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1]),
    case("MaxPool", [(2, 3, 9, 10)], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    case("MaxPool", [(1, 2, 10, 10)], kernel_shape=[3, 3], dilations=[2, 2]),
    case("MaxPool", [(1, 2, 10, 9)], kernel_shape=[3, 3], strides=[2, 2],
         auto_pad="SAME_UPPER"),
    case("MaxPool", [(1, 2, 10, 9)], kernel_shape=[2, 2], strides=[2, 2],
         auto_pad="SAME_LOWER"),
    case("MaxPool", [(2, 3, 17)], kernel_shape=[4], strides=[3], pads=[1, 2]),
    case("AveragePool", [(2, 3, 9, 10)], kernel_shape=[3, 2], strides=[2, 2],
         pads=[1, 0, 1, 1]),
    case("AveragePool", [(2, 3, 9, 10)], kernel_shape=[3, 2], pads=[1, 0, 1, 1],
         count_include_pad=1),
    case("AveragePool", [(1, 3, 8, 8)], 19, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1,
         pads=[1, 1, 1, 1], count_include_pad=1),
    case("AveragePool", [(1, 3, 8, 8)], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    case("AveragePool", [(1, 3, 8, 8)], 19, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1,
         count_include_pad=1, auto_pad="VALID"),
    case("AveragePool", [(1, 3, 7, 8)], kernel_shape=[3, 3], strides=[2, 2],
         auto_pad="SAME_UPPER"),
    case("GlobalAveragePool", [(2, 5, 7, 6)]),
    case("GlobalAveragePool", [(2, 5, 7)]),
    case("GlobalMaxPool", [(2, 5, 7, 6)]),
    case("BatchNormalization", [(2, 4, 3, 5), W(4), W(4), W(4), W(4) + 2], 9, epsilon=1e-3),
    case("BatchNormalization", [(2, 4), W(4), W(4), W(4), W(4) + 2], 15),
    case("LRN", [(2, 7, 4, 5)], size=5, alpha=0.02, beta=0.75, bias=2.0),
    case("LRN", [(2, 7, 4, 5)], size=3, alpha=0.5, beta=0.6),
    case("Softmax", [(2, 3, 4)], 9, axis=1),
    case("Softmax", [(2, 3, 4, 2)], 11),
    case("Softmax", [(2, 3, 4)], 13, axis=1),
    case("Softmax", [(2, 3, 4)], 13),
    case("LogSoftmax", [(2, 3, 4)], 13, axis=-2),
    case("LayerNormalization", [(2, 3, 4), W(4), W(4)], 17),
    case("LayerNormalization", [(2, 3, 4), W(4)], 17, epsilon=1e-2),
    case("LayerNormalization", [(2, 3, 4), W(3, 4), W(1, 4)], 17, axis=1),
    case("LayerNormalization", [(2, 3, 4), W(2, 3, 4)], 17, axis=0),
    case("RMSNormalization", [(2, 3, 4), W(4)], 23),
    case("RMSNormalization", [(2, 3, 4), W(3, 1)], 23, axis=-2, epsilon=0.1),
    case("Gelu", [(3, 7)], 20), case("Gelu", [(3, 7)], 20, approximate="tanh"),
    case("Round", [(3, 7)]), case("Sign", [(3, 7)]), case("Sin", [(3, 7)]), case("Cos", [(3, 7)]),
    case("Add", [(2, 3, 4, 5), (4, 1)]),
    case("Sub", [W(5), (2, 3, 4, 5)]),
    case("Mul", [(2, 1, 4, 5), (3, 1, 5)]),
    case("Div", [(2, 3), (2, 3)]),
    case("Max", [(2, 3), (3,), W(2, 1)]),
    case("Min", [(2, 3), (3,)]),
    case("Sum", [(2, 3, 4, 4), (2, 3, 1, 1), (4, 4), W(1)]),
    case("Sum", [(2, 3)]),
    case("Elu", [(3, 7)], alpha=0.7),
    case("LeakyRelu", [(3, 7)]),
    case("HardSigmoid", [(3, 7)], alpha=1.2, beta=0.3),
    case("HardSwish", [(3, 7)], 14),
    case("Clip", [(3, 7)], 9, min=-0.3, max=0.2),
    case("Clip", [(3, 7), W(), None], 11),
    case("Clip", [(3, 7), None, const(0.1, np.float32)], 13),
    case("Clip", [(3, 7)], 13),
    case("Concat", [(2, 3, 4, 4), (2, 1, 4, 4), W(2, 2, 4, 4)], axis=1),
    case("Concat", [(2, 3), (2, 3)], axis=-2),
    case("Slice", [(2, 7, 6)], 9, starts=[1, -3], ends=[2, 100], axes=[0, 2]),
    case("Slice",
         [(2, 7, 6), const([-1, 5]), const([-100, 0]), const([2, 1]), const([-2, -1])]),
    case("Slice", [(2, 7, 6), const([1, 2]), const([2, -1])]),
    case("Slice", [(2, 3, 8, 8), const([0]), const([2**63 - 1]), const([3]), const([2])]),
    case("Slice", [(2, 5), const([-9]), const([-2**63]), const([1]), const([-1])]),
    case("Slice", [(2, 5), const([9]), const([-9]), const([1]), const([-2])]),
    case("Reshape", [(2, 3, 4), const([0, -1])]),
    case("Reshape", [(2, 3, 4), const([4, 3, 2])]),
    case("Flatten", [(2, 3, 4, 5)]),
    case("Flatten", [(2, 3, 4, 5)], axis=-1),
    case("Flatten", [(2, 3)], axis=0),
    case("Squeeze", [(1, 3, 1, 5)], 11, axes=[0, -2]),
    case("Squeeze", [(1, 3, 1, 5), const([2])], 13),
    case("Squeeze", [(1, 3, 1, 5)], 13),
    case("Unsqueeze", [(3, 5)], 11, axes=[0, 3]),
    case("Unsqueeze", [(3, 5), const([-1, 1])], 13),
    case("Transpose", [(2, 3, 4, 5)], perm=[0, 2, 3, 1]),
    case("Transpose", [(2, 3, 4)]),
    case("Expand", [(3, 1), const([2, 1, 6])]),
    case("Pad", [(2, 3, 4)], 9, pads=[0, 1, 2, 0, 0, 3], value=0.5),
    case("Pad", [(2, 3, 4), const([0, 1, 2, 0, 0, 3]), const(1.5, np.float32)], 13),
    case("Pad", [(2, 3, 4), const([0, 1, 2, 0, 0, 3])], 13),
    case("Gather", [(4, 5), const([[0, 3], [-1, 2]])], axis=0),
    case("Gather", [(4, 5, 2), const([1, 1, 0])], axis=1),
    case("ReduceMean", [(2, 3, 4, 5)], axes=[-1], keepdims=0),
    case("ReduceMean", [(2, 3, 4, 5)], axes=[2, 3]),
    case("ReduceMean", [(2, 3, 4), const([1])], 18),
    case("ReduceMax", [(2, 3, 4)], 11, axes=[0]),
    case("ReduceMin", [(2, 3, 4)], 11),
    case("ReduceSum", [(2, 3, 4), const([0, 2])], keepdims=0),
    case("ReduceSum", [(2, 3, 4)], noop_with_empty_axes=1),
    case("Resize", [(1, 3, 4, 5), const([], np.float32), const([1, 1, 2, 2], np.float32)], 11,
         mode="nearest",
         coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
    case("Resize", [(1, 3, 4, 5), None, None, const([1, 3, 7, 9])], mode="linear"),
    case("Resize", [(2, 3, 6, 5), None, const([1, 1, .5, 1.5], np.float32)], mode="linear",
         coordinate_transformation_mode="align_corners"),
    case("Resize", [(1, 3, 4, 5), None, const([1, 1, 2.5, 3], np.float32)],
         coordinate_transformation_mode="half_pixel", nearest_mode="round_prefer_ceil"),
    case("Resize", [(1, 3, 4, 5), None, None, const([1, 3, 9, 2])], nearest_mode="ceil",
         coordinate_transformation_mode="asymmetric"),
    case("Resize", [(1, 3, 4, 5), None, None, const([1, 3, 8, 15])], mode="linear",
         coordinate_transformation_mode="pytorch_half_pixel"),
    # halves, which the rounded scales miss
    *(case("Resize", [(1, 1, n, n + 1), None, None, const([1, 1, o, o + 3])],
           nearest_mode="round_prefer_" + to, coordinate_transformation_mode=mode)
      for n, o in ((7, 4), (7, 2), (49, 266), (22, 28)) for to in ("ceil", "floor")
      for mode in ("asymmetric", "half_pixel", "pytorch_half_pixel")),
    *(case("Resize", [(1, 1, n, 3), None, const([1, 1, k, 1], np.float32)],
           nearest_mode="round_prefer_ceil", coordinate_transformation_mode="asymmetric")
      for n, k in ((60, 1.2), (29, .3))),
    case("Resize", [(1, 3, 4, 5), const([1, 1, 2, 2], np.float32)], 10, mode="nearest"),
    case("Resize", [(1, 2, 9, 7), const([1, 1, .4, .7], np.float32)], 10, mode="nearest"),
    case("Resize", [(1, 2, 9, 7), const([1, 1, .6, 1.3], np.float32)], 10, mode="linear"),
    case("Resize", [(1, 2, 4, 3), None, const([1, 1, 1, 1.1], np.float32)], mode="linear"),
    case("Upsample", [(1, 3, 4, 5), const([1, 1, 2, 3], np.float32)], 9, mode="nearest"),
    case("Dropout", [(2, 3)], 11, ratio=0.4),
    case("Dropout", [(2, 3), const(0.4, np.float32), const(False, np.bool_)], 13),
    case("Identity", [(2, 3)]),
    case("Where", [const([True, False, True], np.bool_), (2, 3), (1, 3)], 9),
]
CASES += [case(op, [(2, 3, 5)]) for op in (
    "Abs", "Ceil", "Erf", "Exp", "Floor", "Neg", "Relu", "Sigmoid", "Softplus", "Softsign",
    "Tanh")]


def make(tmp_path, op, inputs, opset, attrs, ir=8):
    names, ins, inits, arrays = [], [], [], []
    for i, x in enumerate(inputs):
        name = f"x{i}" if x is not None else ""
        names.append(name)
        if isinstance(x, tuple):
            ins.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, x))
            arrays.append(noise(*x, seed=10 + i))
        elif x is not None:
            inits.append(numpy_helper.from_array(x, name))
    if op == "Where" and not arrays:
        raise AssertionError
    node = helper.make_node(op, names, ["y"], "node", **attrs)
    graph = helper.make_graph([node], "g", ins, [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], inits)
    path = tmp_path / "made.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)],
                              ir_version=ir)
    model = onnx.shape_inference.infer_shapes(model)
    if not model.graph.output[0].type.tensor_type.HasField("shape"):
        model.graph.output[0].type.tensor_type.shape.SetInParent()
    onnx.save(model, path)
    return path, arrays


def name_of(c):
    return f"{c[0]}-{c[2]}-" + "-".join(c[3])


@pytest.mark.parametrize("c", CASES, ids=name_of)
def test_operator(tmp_path, c):
    path, arrays = make(tmp_path, *c)
    close(run_file(tmp_path, path, arrays, "-t", "3"), runtime(path, arrays))


def graph_file(tmp_path, nodes, inputs, outputs, inits=(), opset=13):
    g = helper.make_graph(
        [helper.make_node(op, i, o, o[0], **a) for op, i, o, a in nodes], "g",
        [helper.make_tensor_value_info(n, t, s) for n, t, s in inputs],
        [helper.make_tensor_value_info(n, t, s) for n, t, s in outputs],
        [numpy_helper.from_array(a, n) for n, a in inits])
    path = tmp_path / "graph.onnx"
    model = helper.make_model(g, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    if not all(s for _, _, s in outputs):
        model = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    onnx.save(model, path)
    return path


F, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def test_positive_arguments(tmp_path):
    path = graph_file(tmp_path, [("Abs", ["x"], ["a"], {}), ("Log", ["a"], ["l"], {}),
                                 ("Sqrt", ["a"], ["s"], {}), ("Reciprocal", ["a"], ["r"], {}),
                                 ("Pow", ["a", "p"], ["q"], {}),
                                 ("Pow", ["x", "two"], ["z"], {})],
                      [("x", F, [3, 4])], [(n, F, [3, 4]) for n in "lsrqz"],
                      [("p", const(1.7, np.float32)), ("two", const(2, np.float32))])
    x = noise(3, 4)
    close(run_file(tmp_path, path, [x]), runtime(path, [x]))


def test_functions_far_from_zero(tmp_path):
    """In partial vectors, and where the result overflows or underflows."""
    path = graph_file(tmp_path, [
        *((op, ["x"], [op], {}) for op in ("Exp", "Sigmoid", "Tanh", "Erf", "Softplus", "Elu")),
        *((op, ["x"], [op + str(axis)], {"axis": axis}) for op in ("Softmax", "LogSoftmax")
          for axis in (0, 1))], [("x", F, [3, 37])],
        [(op, F, [3, 37])
         for op in ("Exp", "Sigmoid", "Tanh", "Erf", "Softplus", "Elu", "Softmax0", "Softmax1",
                    "LogSoftmax0", "LogSoftmax1")])
    x = np.concatenate([[0, 1e-6, -1e-6, 88.7, 88.8, 100, np.inf, -np.inf, np.nan],
                        np.linspace(-110, 80, 52), np.linspace(-5, 5, 50)])
    x = x.astype(np.float32).reshape(3, 37)
    close(run_file(tmp_path, path, [x]), runtime(path, [x]))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32, np.int64])
def test_cast_of_numbers_that_do_not_fit(tmp_path, dtype):
    """Undefined for ONNX: what onnxruntime makes of them on x86."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    path = graph_file(tmp_path, [("Cast", ["x"], ["y"], {"to": kind})], [("x", F, [18])],
                      [("y", kind, [18])])
    x = np.array([3e9, -3e9, 1e20, -1e20, np.inf, -np.inf, np.nan, 2.5, 300, -300, 127.9, -128.9,
                  256.5, -0.5, 70000, 2147483648, -2147483649, 2147483520], np.float32)
    assert run_file(tmp_path, path, [x])[0].tolist() == runtime(path, [x])[0].tolist()


def test_sums_of_many_numbers(tmp_path):
    path = graph_file(tmp_path, [
        ("ReduceMean", ["x"], ["a"], {"axes": [1]}), ("ReduceMean", ["x"], ["b"], {}),
        ("Softmax", ["x"], ["s"], {"axis": 1}), ("ReduceSum", ["s"], ["c"], {})],
        [("x", F, [3, 1 << 20])], [(n, F, None) for n in "abc"])
    x = np.full((3, 1 << 20), 0.1, np.float32)
    a, b, c = run_file(tmp_path, path, [x])
    np.testing.assert_allclose(a, np.full((3, 1), .1), rtol=1e-5)
    np.testing.assert_allclose(b, np.full((1, 1), .1), rtol=1e-5)
    np.testing.assert_allclose(c, np.full((1, 1), 3), rtol=1e-5)


def test_a_constant_table_is_not_copied(tmp_path):
    path = graph_file(tmp_path, [("Gather", ["t", "i"], ["y"], {"axis": 0})],
                      [("i", I64, [4])], [("y", F, [4, 5])], [("t", noise(9, 5))])
    i = const([0, 8, -1, 3])
    close(run_file(tmp_path, path, [i]), runtime(path, [i]))
    (tmp_path / "i").write_bytes(i.tobytes())
    out = subprocess.run([RUN, "-l", str(tmp_path / "model"), f"4:{tmp_path}/i"],
                         capture_output=True, check=True).stdout.decode()
    assert [line.split()[1] for line in out.splitlines() if len(line.split()) > 1] == ["Gather"]


def test_integers_and_comparisons(tmp_path):
    path = graph_file(tmp_path, [
        ("Add", ["i", "k"], ["s"], {}), ("Mul", ["s", "i"], ["m"], {}),
        ("Sub", ["m", "k"], ["d"], {}), ("Equal", ["i", "k"], ["e"], {}),
        ("Less", ["i", "k"], ["lt"], {}), ("Greater", ["x", "y"], ["gt"], {}),
        ("LessOrEqual", ["i", "k"], ["le"], {}), ("GreaterOrEqual", ["x", "y"], ["ge"], {}),
        ("Not", ["gt"], ["n"], {}), ("Where", ["n", "x", "y"], ["w"], {}),
        ("Cast", ["d"], ["c"], {"to": F}), ("Cast", ["x"], ["ci"], {"to": I64}),
        ("Cast", ["ci"], ["cb"], {"to": BOOL}), ("Div", ["s", "k"], ["q"], {}),
        ("ReduceSum", ["d", "ax"], ["rs"], {}), ("ReduceMax", ["m"], ["rm"], {"axes": [0]})],
        [("i", I64, [3, 4]), ("x", F, [3, 4]), ("y", F, [4])],
        [("d", I64, [3, 4]), ("e", BOOL, [3, 4]), ("lt", BOOL, [3, 4]), ("w", F, [3, 4]),
         ("c", F, [3, 4]), ("ci", I64, [3, 4]), ("cb", BOOL, [3, 4]),
         ("le", BOOL, [3, 4]), ("ge", BOOL, [3, 4]), ("q", I64, [3, 4]),
         ("rs", I64, [3, 1]), ("rm", I64, [1, 4])],
        [("k", const([3, 4, 5, 6])), ("ax", const([1]))])
    arrays = [np.arange(12).reshape(3, 4), noise(3, 4) * 3, noise(4, seed=2)]
    close(run_file(tmp_path, path, arrays), runtime(path, arrays))


def test_shapes_that_the_model_computes(tmp_path):
    path = graph_file(tmp_path, [
        ("Shape", ["x"], ["s"], {}), ("Gather", ["s", "zero"], ["n"], {}),
        ("Unsqueeze", ["n", "ax"], ["n1"], {}), ("Concat", ["n1", "rest"], ["to"], {"axis": 0}),
        ("Reshape", ["x", "to"], ["y"], {}), ("ConstantOfShape", ["s"], ["ones"], {}),
        ("Expand", ["b", "s"], ["be"], {}), ("Add", ["be", "x"], ["z"], {})],
        [("x", F, ["n", 3, 4])], [("y", F, ["n", 12]), ("z", F, ["n", 3, 4])],
        [("zero", const(0)), ("ax", const([0])), ("rest", const([-1])), ("b", noise(4))])
    for n in (1, 5):
        x = noise(n, 3, 4)
        close(run_file(tmp_path, path, [x]), runtime(path, [x]))


def test_outputs_that_are_inputs_constants_or_used_inside(tmp_path):
    path = graph_file(tmp_path, [
        ("Identity", ["x"], ["same"], {}), ("Conv", ["x", "w"], ["c"], {}),
        ("Relu", ["c"], ["r"], {}), ("Neg", ["r"], ["m"], {}), ("Identity", ["k"], ["kk"], {})],
        [("x", F, [1, 2, 6, 6])],
        [("same", F, [1, 2, 6, 6]), ("c", F, [1, 3, 4, 4]), ("r", F, [1, 3, 4, 4]),
         ("m", F, [1, 3, 4, 4]), ("kk", F, [2])],
        [("w", noise(3, 2, 3, 3)), ("k", noise(2))])
    x = noise(1, 2, 6, 6)
    close(run_file(tmp_path, path, [x]), runtime(path, [x]))


@pytest.mark.parametrize("tail", [
    [("BatchNormalization", ["c", "g", "b", "m", "v"], ["n"], {}), ("Relu", ["n"], ["y"], {})],
    [("BatchNormalization", ["c", "g", "b", "m", "v"], ["n"], {}),
     ("Mul", ["n", "k"], ["o"], {}),
     ("Add", ["k4", "o"], ["y"], {})],
    [("Sigmoid", ["c"], ["s"], {}), ("Mul", ["s", "c"], ["y"], {})],
    [("Relu", ["c"], ["p"], {}), ("BatchNormalization", ["p", "g", "b", "m", "v"], ["n"], {}),
     ("Mul", ["n", "k"], ["o"], {}), ("Add", ["o", "k4"], ["q"], {}),
     ("Relu", ["q"], ["y"], {})],
    [("Clip", ["c", "lo", "hi"], ["y"], {})],
    [("Clip", ["c", "hi", "lo"], ["y"], {})],
    [("LeakyRelu", ["c"], ["y"], {"alpha": 0.2})],
    [("Elu", ["c"], ["y"], {"alpha": 0.6})],
    [("Tanh", ["c"], ["y"], {})],
    [("Sigmoid", ["c"], ["y"], {})],
    [("HardSwish", ["c"], ["y"], {})],
    [("HardSigmoid", ["c"], ["y"], {})],
    [("Add", ["c", "c"], ["y"], {})],
    [("Relu", ["c"], ["a"], {}), ("Add", ["a", "c"], ["y"], {})],
    [("Tanh", ["c"], ["a"], {}), ("Add", ["a", "c"], ["s"], {}), ("Relu", ["s"], ["y"], {})],
    [("Tanh", ["c"], ["a"], {}), ("Sum", ["k", "a"], ["s"], {}), ("Relu", ["s"], ["y"], {})],
    [("Tanh", ["c"], ["a"], {}), ("Sum", ["c", "a", "c"], ["s"], {}),
     ("Relu", ["s"], ["y"], {})],
    # not merged: its third input is left out, where the convolution has one
    [("Pad", ["c", "no_pads"], ["y"], {})],
], ids=lambda t: "-".join(n[0] for n in t))
def test_merged_operators(tmp_path, tail):
    """What graph.c merges into a convolution gives what the operators give one by one."""
    path = graph_file(tmp_path,
                      [("Conv", ["x", "w", "wb"], ["c"], {"pads": [1, 1, 1, 1]})] + tail,
                      [("x", F, [2, 3, 8, 8])], [("y", F, [2, 4, 8, 8])],
                      [("w", noise(4, 3, 3, 3)), ("wb", noise(4)), ("g", noise(4, seed=2)),
                       ("b", noise(4, seed=3)), ("m", noise(4, seed=4)),
                       ("v", noise(4, seed=5) + 2), ("k", noise(4, 1, 1, seed=6)),
                       ("k4", noise(1, 4, 1, 1, seed=7)), ("no_pads", const([0] * 8)),
                       ("lo", const(-.1, np.float32)),
                       ("hi", const(.2, np.float32))], opset=14)
    x = noise(2, 3, 8, 8)
    close(run_file(tmp_path, path, [x], "-t", "2"), runtime(path, [x]))


@pytest.mark.parametrize("first,numbers,last", [
    (0, 7, 1), (3, 7, 1), (-2, 7, 7), (0, 1, 1), (0, 7, 0)])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_one_hot(tmp_path, first, numbers, last, dtype):
    """A product with one-hot rows takes rows of the matrix; last 0: not all numbers follow."""
    hot = np.arange(first, first + numbers).astype(dtype).reshape(1, 1, -1)
    if not last:
        hot[0, 0, 2] = 9
    path = graph_file(tmp_path, [
        ("Equal", ["x", "hot"], ["e"], {}), ("Cast", ["e"], ["c"], {"to": F}),
        ("MatMul", ["c", "w"], ["m"], {}), ("Add", ["m", "b"], ["y"], {})],
        [("x", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), ["n", 5, max(last, 1)])],
        [("y", F, ["n", 5, 6])], [("hot", hot), ("w", noise(numbers, 6)), ("b", noise(6))])
    x = np.random.default_rng(4).integers(first - 2, first + numbers + 2,
                                          (3, 5, max(last, 1))).astype(dtype)
    x[0] = hot[..., :max(last, 1)]
    x[2, 0, 0] = np.iinfo(dtype).min
    close(run_file(tmp_path, path, [x]), runtime(path, [x]))


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 9, 30, 40), (1, 1, 1, 1)])
def test_chains(tmp_path, shape):
    """Chains of operators on elements, with constants and inputs that are repeated, a value
    that is also an output, one that is read in another shape, and more operators than a chain
    takes."""
    n, c, h, w = shape
    nodes = [("Conv", ["x", "cw"], ["x1"], {"pads": [1, 1, 1, 1]}),
             ("Mul", ["half", "x1"], ["a"], {}), ("Add", ["a", "bias"], ["a1"], {}),
             ("Tanh", ["a1"], ["a2"], {}), ("Mul", ["a2", "x1"], ["a3"], {}),
             ("Sub", ["row", "a3"], ["out"], {}), ("Exp", ["out"], ["a4"], {}),
             ("ReduceMean", ["a4"], ["mean"], {"axes": [1]}),
             ("Sub", ["a4", "mean"], ["a5"], {}), ("Max", ["a5", "half"], ["a6"], {}),
             ("Reshape", ["a6", "flat"], ["f"], {}), ("Sqrt", ["f"], ["f1"], {}),
             ("Div", ["f1", "half"], ["f2"], {}), ("Mul", ["f2", "f1"], ["z"], {}),
             ("Add", ["x", "y"], ["s"], {}), ("Add", ["s", "row"], ["l0"], {})]
    for i in range(40):
        nodes.append(("Add" if i % 3 else "Mul", [f"l{i}", "x" if i % 2 else "half"],
                      [f"l{i + 1}"], {}))
    path = graph_file(tmp_path, nodes, [("x", F, shape), ("y", F, [n, 1, 1, w])],
                      [(o, F, None) for o in ("out", "z", "l40")],
                      [("cw", noise(c, c, 3, 3)), ("half", const(.5, np.float32)),
                       ("bias", noise(1, c, 1, 1)), ("row", noise(w)), ("flat", const([-1]))])
    arrays = [noise(*shape), noise(n, 1, 1, w, seed=2)]
    close(run_file(tmp_path, path, arrays, "-t", "2"), runtime(path, arrays))


@pytest.mark.parametrize("tail", [
    [("Slice", ["c", "zeros", "large"], ["s"], {}), ("Squeeze", ["s", "ax"], ["q"], {}),
     ("Relu", ["q"], ["r"], {}), ("GlobalMaxPool", ["r"], ["y"], {})],
    [("Slice", ["c", "last", "small", "two", "minus"], ["y"], {})],
    [("Slice", ["c", "zeros", "large"], ["y"], {})],
    [("Transpose", ["c"], ["t"], {"perm": [0, 2, 3, 1]}), ("Relu", ["t"], ["r"], {}),
     ("Transpose", ["r"], ["u"], {"perm": [0, 3, 1, 2]}), ("Conv", ["u", "w2"], ["y"], {})],
    [("Transpose", ["c"], ["y"], {"perm": [0, 3, 2, 1]})],
    [("Transpose", ["c"], ["y"], {"perm": [1, 0, 2, 3]})],
    [("Unsqueeze", ["c", "ax"], ["u"], {}), ("Neg", ["u"], ["y"], {})],
    [("Reshape", ["c", "wide"], ["u"], {}), ("Neg", ["u"], ["n"], {}),
     ("ReduceMax", ["n"], ["y"], {"axes": [1]})],
    [("Cast", ["c"], ["y"], {"to": F})],
    [("Squeeze", ["c", "ax"], ["q"], {}), ("Transpose", ["q"], ["t"], {"perm": [0, 2, 1]}),
     ("MatMul", ["t", "mw"], ["y"], {})],
], ids=lambda t: "-".join(n[0] for n in t))
def test_operators_that_move_nothing(tmp_path, tail):
    path = graph_file(tmp_path, [("Conv", ["x", "w"], ["c"], {})] + tail,
                      [("x", F, [2, 3, 9, 1])], [("y", F, None)],
                      [("w", noise(4, 3, 3, 1)), ("w2", noise(5, 4, 2, 1)), ("ax", const([3])),
                       ("zeros", const([0, 0, 0, 0])), ("large", const([2, 4, 2**31, 1])),
                       ("last", const([-1])), ("small", const([-100])), ("two", const([2])),
                       ("minus", const([-1])), ("wide", const([2, 4, 7])),
                       ("mw", noise(4, 6))])
    x = noise(2, 3, 9, 1)
    close(run_file(tmp_path, path, [x]), runtime(path, [x]))


def batch_file(tmp_path, c):
    """The model of a case with any number of rows, or None; and the inputs for two rows."""
    op, inputs, opset, attrs = c
    names, infos, inits, arrays = [], [], [], []
    for i, x in enumerate(inputs):
        names.append(f"x{i}" if x is not None else "")
        if isinstance(x, tuple):
            if not x or x[0] != 2:
                return None, None
            infos.append(helper.make_tensor_value_info(names[-1], F, ["n", *x[1:]]))
            arrays.append(noise(*x, seed=10 + i))
        elif x is not None:
            inits.append(numpy_helper.from_array(x, names[-1]))
    node = helper.make_node(op, names, ["y"], "node", **attrs)
    model = helper.make_model(
        helper.make_graph([node], "g", infos, [helper.make_tensor_value_info("y", F, ["n"])],
                          inits), opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.save(model, tmp_path / "rows.onnx")
    return tmp_path / "rows.onnx", arrays


def rows_are_apart(path, arrays):
    """Whether onnxruntime gives the same answer for two rows as for each of them."""
    state = ort.capi.onnxruntime_pybind11_state
    [whole] = runtime(path, arrays)
    try:
        parts = [runtime(path, [a[i:i + 1] for a in arrays])[0] for i in range(2)]
    except (state.InvalidArgument, state.RuntimeException, state.Fail):
        return False
    return all(p.ndim and p.shape[0] == 1 for p in parts) and \
        whole.shape[1:] == parts[0].shape[1:] and whole.shape[0] == 2 and \
        np.allclose(whole, np.concatenate(parts), 1e-4, 1e-4)


ROWS = [c for c in CASES if any(isinstance(x, tuple) for x in c[1])] + [
    case("Softmax", [(2, 3, 4)], 13, axis=0), case("Softmax", [(2, 3, 4)], 11, axis=0),
    case("Transpose", [(2, 2, 3)], perm=[1, 0, 2]), case("MatMul", [(2, 2), (2, 2)]),
    case("Gather", [(2, 5), const([1, 0])], axis=0), case("Gemm", [(2, 2), W(2, 2)], transA=1),
    case("Slice", [(2, 3), const([-1]), const([-3]), const([0]), const([-1])]),
    case("Concat", [(2, 3), (2, 3)], axis=0), case("Add", [(2, 3), W(2, 3)]),
    case("Add", [(2, 3), (2, 1, 3)]), case("ReduceSum", [(2, 3), const([0])]),
    case("Pad", [(2, 3), const([1, 0, -1, 0])]), case("Reshape", [(2, 3), const([3, 2])])]


@pytest.mark.parametrize("c", ROWS, ids=name_of)
def test_rows_that_are_apart(tmp_path, c):
    """Requests may share a run only if that does not change their answers."""
    path, arrays = batch_file(tmp_path, c)
    if not path:
        pytest.skip("the case does not have two rows")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.onnx").symlink_to(path)
    try:
        outputs, lines = run_folder(str(folder), arrays, "-r")
    except Refused:
        return
    by_rows = outputs[0].ndim and outputs[0].shape[0] == 2
    assert (lines[0] == "apart 1" and bool(by_rows)) == rows_are_apart(path, arrays)


def test_rows_of_networks_are_apart(tmp_path):
    for name in ("ch_ppocr_mobile_v2.0_cls_infer", "ch_PP-OCRv4_det_infer",
                 "ch_PP-OCRv4_rec_infer"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "model.onnx").symlink_to(f"{SITE}/rapidocr_onnxruntime/models/{name}.onnx")
        shape = PACKAGED[f"rapidocr_onnxruntime/models/{name}.onnx"][0]
        assert run_folder(str(folder), [noise(2, *shape[1:])], "-r")[1] == ["apart 1"]


def test_random_graphs_that_share_runs():
    """For longer: graphs.py -n 10000.  It prints its seed."""
    p = subprocess.run([sys.executable, os.path.dirname(ZOO) + "/graphs.py", "-n", "300"],
                       capture_output=True, check=False, text=True)
    assert p.returncode == 0, p.stdout[-4000:] + p.stderr[-4000:]
    counts = json.loads(p.stdout.splitlines()[-1])
    assert counts["shared"] > 30 and counts["refused"] < 30, counts


def test_random_models_of_one_operator():
    """For longer, and others: opers.py -n 10000.  It prints its seed."""
    p = subprocess.run([sys.executable, os.path.dirname(ZOO) + "/opers.py", "-n", "300", "-s", "1"],
                       capture_output=True, check=False, text=True)
    assert p.returncode == 0, p.stdout[-4000:] + p.stderr[-4000:]


# --- launches -------------------------------------------------------------------

def test_batch_of_any_size(tmp_path):
    path = f"{SITE}/rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx"
    one = noise(1, 3, 48, 192)
    [want] = run_file(tmp_path, path, [one])
    for n in (2, 7):
        [got] = run_file(tmp_path, path, [np.repeat(one, n, 0)])
        np.testing.assert_allclose(got, np.repeat(want, n, 0), atol=1e-5)


def test_launch_allocates_nothing_of_its_own(tmp_path):
    """oneDNN's own calls of operator new are counted apart; see Documentation/serve.md."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.onnx").symlink_to(SITE + "/ddddocr/common_det.onnx")
    _, lines = run_folder(str(folder), [noise(1, 3, 416, 416)], "-m", "-n", "5", "-t", "2")
    words = lines[0].split()
    assert words[:3] == ["ours", "0", "onednn"] and int(words[3]) > 0


def test_deadline_and_cancel_end_a_run_and_the_next_one_is_right(tmp_path):
    path = f"{SITE}/onnx/backend/test/data/light/light_squeezenet.onnx"
    x = noise(1, 3, 224, 224)
    close(run_file(tmp_path, path, [x], "-F"), runtime(path, [x]))


# --- what is refused ------------------------------------------------------------

def refused(tmp_path, path, arrays, *words):
    with pytest.raises(Refused) as e:
        run_file(tmp_path, path, arrays)
    for word in words:
        assert word in str(e.value), str(e.value)


def test_the_documents_list_each_operator():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    with open(root + "/Documentation/serve.md", encoding="utf-8") as f:
        known = set(re.findall(r"\w+", "".join(line.split("|")[1] for line in f if line[0] == "|")))
    for name in glob.glob(root + "/tools/serve/*.c"):
        with open(name, encoding="utf-8") as f:
            for op in re.findall(r'^\t(?:\{ |[A-Z]+\()"([A-Z]\w+)", (?:OP_|"|[A-Z_]+\)|SHIFT|BITS)',
                                 f.read(), re.M):
                assert op in known, op


def test_unknown_operator_is_refused_by_name(tmp_path):
    path = graph_file(tmp_path, [("Relu", ["x"], ["r"], {}), ("Mish", ["r"], ["y"], {})],
                      [("x", F, [2])], [("y", F, [2])])
    refused(tmp_path, path, [noise(2)], "model.onnx", "Mish 'y'", "not supported")


def test_operator_of_another_domain_is_refused(tmp_path):
    n = helper.make_node("Relu", ["x"], ["y"], "z", domain="com.example")
    g = helper.make_graph([n], "g", [helper.make_tensor_value_info("x", F, [2])],
                          [helper.make_tensor_value_info("y", F, [2])])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 13)]),
              tmp_path / "m.onnx")
    refused(tmp_path, tmp_path / "m.onnx", [noise(2)], "Relu 'z'", "com.example")


@pytest.mark.parametrize("c,word", [
    (case("Resize", [(1, 1, 4, 4), None, const([1, 1, 2, 2], np.float32)], mode="other"),
     "mode"),
    (case("Pad", [(2, 3), const([0, 1, 0, 1])], mode="other"), "mode"),
    (case("Pad", [(2, 3), const([0, 3, 0, 1])], mode="reflect"), "pads of 3 and 1"),
    (case("Pad", [(2, 3), const([0, -2, 0, -2])]), "more is cut off"),
    (case("Pad", [(2, 3), const([0, 2**62, 0, 2**62])]), "out of range"),
    (case("Pad", [(2, 3), const([1, 1]), None, const([2])], 18), "axis 2"),
    (case("Split", [(2, 3), const([2**62, 2**62])], axis=1), "1 outputs"),
    (case("Split", [(2, 3), const([2])], axis=1), "add up"),
    (case("Split", [(2, 3)], axis=-2**63), "axis"),
    (case("Tile", [(2, 3), const([2**31 - 1, 2**31 - 1])]), "too large"),
    (case("Tile", [(2, 3), const([-1, 1])]), "repeated -1"),
    (case("Trilu", [(3,)], 14), "1 dimensions"),
    (case("Trilu", [(2, 3)], 14, upper=1.0), "attribute 'upper'"),
    (case("Trilu", [(2, 3)], 14, lower=1), "attribute 'lower'"),
    (case("OneHot", [(2, 3), const(2**40), W(2)]), "depth"),
    (case("TopK", [(2, 3), const([4])]), "the first 4"),
    (case("TopK", [(2, 3), const([1, 1])]), "k has 2 elements"),
    (case("Hardmax", [(2, 3)], axis=2**63 - 1), "axis"),
    (case("CumSum", [(2, 3), const(-3)]), "axis"),
    (case("GatherElements", [(2, 3), const([[0, 0]] * 3)], axis=1), "more indices"),
    (case("GatherND", [(2, 3), const([[0, 0, 0]])]), "indices of 2"),
    (case("GatherND", [(2, 3), const([[0]])], batch_dims=-2**63), "batch_dims"),
    (case("ScatterND", [(2, 3), const([[0]]), W(1, 2)]), "updates"),
    (case("ScatterElements", [(2, 3), const([[0]]), W(1, 2)], 18), "differ"),
    (case("DepthToSpace", [(1, 8, 2, 2)], blocksize=2**62), "blocksize"),
    (case("DepthToSpace", [(1, 8, 2, 2)]), "no blocksize"),
    (case("GroupNormalization", [(1, 4, 2), W(4), W(4)], 21, num_groups=0), "groups"),
    (case("PRelu", [(1, 3), W(2, 3)]), "larger"),
    (case("DequantizeLinear", [(2, 3), W(1)]), "this type"),
    (case("QuantizeLinear", [(2, 3), W(2)]), "do not fit axis 1"),
    (case("QuantizeLinear", [(2, 3), W(3), const([0], np.uint8)]), "zero points"),
    (case("Einsum", [(1, 3), W(2, 3)], equation="a...,bc->"), "equation"),
    (case("Einsum", [(2, 3), W(2, 4)], equation="ab,ab->b"), "do not match"),
    (case("Einsum", [(2, 3), W(2, 4)], equation="ab,ab->"), "letter differ"),
    (case("LSTM", [(2, 2, 3), W(1, 8, 3), W(1, 8, 3)], 14, hidden_size=2), "weights of 3 by 8"),
    (case("LSTM", [(2, 2, 3), W(1, 8, 3), W(1, 8, 2)], 14, hidden_size=2, clip=1.0), "clip"),
    (case("Conv", [(1, 1, 3, 3, 3), W(1, 1, 2, 2, 2)]), "5 dimensions"),
    (case("Softmax", [(2, 3)], 6), "operator set: 6"),
    (case("MaxPool", [(2, 3, 4, 4)], kernel_shape=[0, 2]), "out of range"),
    (case("LeakyRelu", [(2, 3)], alpha=1), "attribute 'alpha'"),
    (case("MaxPool", [(2, 3, 4)], kernel_shape=[2], dilations=[2], auto_pad="SAME_LOWER"),
     "dilations"),
    (case("Slice", [(2, 3), const([1]), const([2**63 - 1]), const([1]), const([-1])]),
     "INT_MAX"),
    (case("LRN", [(2, 7, 4, 5)], size=4), "size is 4"),
    (case("LayerNormalization", [(2, 3), W(3)], 17, stash_type=0), "stash_type"),
    (case("LayerNormalization", [(2, 3), W(2, 3)], 17), "has 2 dimensions"),
    (case("LayerNormalization", [(2, 3), W(4)], 17), "do not match"),
    (case("LayerNormalization", [(2, 1), W(4)], 17), "larger than a row"),
    (case("Flatten", [(2, 3)], axis=1.0), "attribute 'axis'"),
    (case("Slice", [(2, 3), const([0, 1]), const([1, 2]), const([0, -2])]), "axis -2"),
    (case("ConvTranspose", [(1, 1, 4, 4), W(1, 1, 3, 3)], strides=[2, 2],
          output_padding=[-4, 0]), "out of range"),
    (case("ConvTranspose", [(1, 1, 4, 4), W(1, 1, 3, 3)], strides=[2, 2],
          output_padding=[2**63 - 1, 0]), "out of range"),
], ids=lambda c: c[0] if isinstance(c, tuple) else c)
def test_attribute_is_refused(tmp_path, c, word):
    op, inputs, opset, attrs = c
    kind = TensorProto.UINT8 if op == "QuantizeLinear" else F
    node = helper.make_node(op,
                            [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)],
                            ["y"], "node", **attrs)
    g = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x0", F, inputs[0])],
        [helper.make_tensor_value_info("y", kind, [1])],
        [numpy_helper.from_array(x, f"x{i}") for i, x in enumerate(inputs)
         if i and x is not None])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", opset)]),
              tmp_path / "m.onnx")
    refused(tmp_path, tmp_path / "m.onnx", [noise(*inputs[0])], word)


@pytest.mark.parametrize("tail", [
    [("Conv", ["e", "w"], ["y"], {"pads": [0, 1, 0, 1]})],
    [("MaxPool", ["e"], ["y"], {"kernel_shape": [1, 2], "pads": [0, 1, 0, 1]})],
], ids=lambda t: t[-1][0])
def test_empty_operands_are_refused(tmp_path, tail):
    """oneDNN would not write the output, which then had the data of an earlier run."""
    path = graph_file(tmp_path, [("Slice", ["x", "k", "k", "last"], ["e"], {})] + tail,
                      [("x", F, [1, 2, 3, 3])], [("y", F, [1, 2, 3, 3])],
                      [("k", const([0])), ("last", const([3])), ("ax", const([2])),
                       ("w", noise(2, 2, 1, 1))])
    refused(tmp_path, path, [noise(1, 2, 3, 3)], tail[-1][0])


def test_sums_and_extremes_of_nothing(tmp_path):
    path = graph_file(tmp_path, [
        ("MatMul", ["x", "y"], ["m"], {}), ("Gemm", ["x", "w", "b"], ["g"], {}),
        ("Relu", ["g"], ["r"], {}), ("ReduceSum", ["x", "ax"], ["s"], {}),
        ("ReduceMean", ["x"], ["a"], {"axes": [1]}),
        ("ReduceMax", ["x"], ["h"], {"axes": [1]}), ("Concat", ["x", "k"], ["c"], {"axis": 1})],
        [("x", F, ["n", "k"]), ("y", F, ["k", "m"])],
        [("m", F, ["n", "m"]), ("r", F, ["n", 3]), ("s", F, ["n", 1]), ("h", F, ["n", 1]),
         ("a", F, ["n", 1]), ("c", F, ["n", "l"])],
        [("w", noise(0, 3)), ("b", noise(3)), ("ax", const([1])), ("k", noise(2, 3))])
    for n, m in ((2, 4), (2, 0)):
        arrays = [noise(n, 0), noise(0, m)]
        close(run_file(tmp_path, path, arrays), runtime(path, arrays))


def test_outputs_without_a_stated_shape(tmp_path):
    path = graph_file(tmp_path, [
        ("Shape", ["x"], ["s"], {}), ("Gather", ["s", "z"], ["n"], {}),
        ("Concat", ["n", "m"], ["t"], {"axis": 0}), ("Reshape", ["x", "t"], ["y"], {})],
        [("x", F, ["n", 4, 3])], [("y", F, ["n", 12])],
        [("z", const([0])), ("m", const([-1]))])
    model = onnx.load(path)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(model, path)
    close(run_file(tmp_path, path, [noise(2, 4, 3)]), runtime(path, [noise(2, 4, 3)]))
    p = subprocess.run([RUN, str(tmp_path / "model")], capture_output=True, check=True)
    assert b"batch 1" in p.stdout and b"output y 10 -1 12" in p.stdout


def test_outputs_have_the_type_that_the_file_says(tmp_path):
    path = graph_file(tmp_path, [("Relu", ["x"], ["y"], {})], [("x", F, [3])],
                      [("y", TensorProto.DOUBLE, [3])])
    refused(tmp_path, path, [noise(3)], "output 'y'", "type")


def test_the_value_of_pads_is_a_float32(tmp_path):
    path = graph_file(tmp_path, [("Cast", ["x"], ["d"], {"to": TensorProto.DOUBLE}),
                                 ("Pad", ["d"], ["y"], {"pads": [1, 0], "value": 2.0})],
                      [("x", F, [3])], [("y", TensorProto.DOUBLE, [4])], opset=9)
    refused(tmp_path, path, [noise(3)], "Pad", "this type")


def test_attribute_of_zero_may_be_left_out(tmp_path):
    """Writers with version 3 of protocol buffers do so."""
    path = graph_file(tmp_path, [("Flatten", ["x"], ["y"], {"axis": 0})],
                      [("x", F, [2, 3])], [("y", F, [1, 6])])
    model = onnx.load(path)
    model.graph.node[0].attribute[0].ClearField("i")
    onnx.save(model, path)
    assert run_file(tmp_path, path, [noise(2, 3)])[0].shape == (1, 6)


def test_shape_of_an_input_is_checked(tmp_path):
    path = f"{SITE}/onnx/backend/test/data/light/light_squeezenet.onnx"
    refused(tmp_path, path, [noise(1, 3, 224, 223)], "data_0")


def test_missing_files_are_named(tmp_path):
    p = subprocess.run([RUN, str(tmp_path)], capture_output=True, check=False)
    assert p.returncode == 2 and b"model.onnx" in p.stderr


@pytest.mark.parametrize("path", [
    "onnx/backend/test/data/light/light_squeezenet.onnx",
    "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
], ids=os.path.basename)
def test_damaged_files_do_no_harm(path):
    p = subprocess.run([FUZZ, "150", f"{SITE}/{path}"], capture_output=True, check=False,
                       timeout=280)
    assert p.returncode == 0, p.stderr.decode()[-2000:]


def outside(tmp_path, place, folder="v", **more):
    """A model whose weights are in another file, as place says."""
    (tmp_path / folder).mkdir(exist_ok=True)
    path = graph_file(tmp_path / folder, [("MatMul", ["x", "w"], ["y"], {})],
                      [("x", F, [2, 3])], [("y", F, [2, 4])],
                      [("w", np.arange(12, dtype=np.float32).reshape(3, 4))], **more)
    model = onnx.load(path)
    w = model.graph.initializer[0]
    data, w.raw_data = w.raw_data, b""
    w.data_location = TensorProto.EXTERNAL
    for key, value in place.items():
        w.external_data.add(key=key, value=value)
    path = tmp_path / folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path, data


def test_weights_in_files_beside_the_model(tmp_path):
    x = noise(2, 3)
    for folder, place in (("a", {"location": "w.bin"}),
                          ("b", {"location": "w.bin", "offset": "5", "length": "48"}),
                          ("c", {"location": "./sub/w.bin", "offset": "5", "length": "48",
                                 "checksum": "x"})):
        path, data = outside(tmp_path, place, folder)
        at = path.parent / place["location"]
        at.parent.mkdir(exist_ok=True)
        at.write_bytes(b"12345" * ("offset" in place) + data + b"more" * ("offset" in place))
        close(run_folder(str(path.parent), [x])[0],
              [x @ np.arange(12, dtype=np.float32).reshape(3, 4)])


@pytest.mark.parametrize("backend", ["native", "onnxruntime"])
@pytest.mark.parametrize("place, word", [
    ({"location": "../w.bin"}, "not below the folder"),
    ({"location": "sub/../../w.bin"}, "not below the folder"),
    ({"location": "/etc/passwd"}, "not below the folder"),
    ({"location": "link"}, "without links"), ({"location": "away/w.bin"}, "Not a directory"),
    ({"location": "fifo"}, "not a regular file"), ({"location": "sub"}, "not a regular file"),
    ({"location": "none"}, "No such file"), ({"location": ""}, "not below the folder"),
    ({"offset": "0"}, "is not clear"), ({"location": "w.bin", "offset": "-1"}, "is not clear"),
    ({"location": "w.bin", "offset": "1", "length": "48"}, "has 48 bytes"),
    ({"location": "w.bin", "offset": "18446744073709551615", "length": "48"}, "has 48 bytes"),
    ({"location": "w.bin", "length": "18446744073709551614"}, "has 48 bytes"),
], ids=str)
def test_files_beside_the_model_are_below_its_folder(tmp_path, monkeypatch, place, word, backend):
    """Also if another library would read them."""
    monkeypatch.setenv("ONNXRUNTIME", sys.prefix)
    path, data = outside(tmp_path, place)
    (tmp_path / "w.bin").write_bytes(data)
    (path.parent / "w.bin").write_bytes(data)
    (path.parent / "sub").mkdir()
    (path.parent / "link").symlink_to(tmp_path / "w.bin")
    (path.parent / "away").symlink_to(tmp_path)
    os.mkfifo(path.parent / "fifo")
    with pytest.raises(Refused, match=word):
        run_folder(str(path.parent), [noise(2, 3)],
                   *(["-b"] if backend == "onnxruntime" else []))


def test_nodes_in_any_order(tmp_path):
    nodes = [("Add", ["c", "a"], ["y"], {}), ("Neg", ["b"], ["c"], {}),
             ("Mul", ["a", "x"], ["b"], {}), ("Relu", ["x"], ["a"], {})]
    path = graph_file(tmp_path, nodes, [("x", F, [2, 3])], [("y", F, [2, 3])])
    x = noise(2, 3)
    a = np.maximum(x, 0)
    close(run_file(tmp_path, path, [x]), [a - a * x])
    nodes[3] = ("Add", ["c", "x"], ["a"], {})
    refused(tmp_path, graph_file(tmp_path, nodes, [("x", F, [2, 3])], [("y", F, [2, 3])]), [x],
            "depends on itself")


@pytest.mark.parametrize("where", [{}, {"start": 1}, {"end": -1}, {"start": -2, "end": 9},
                                   {"start": 2, "end": 1}, {"start": -9, "end": 2}], ids=str)
def test_part_of_a_shape(tmp_path, where):
    path = graph_file(tmp_path, [("Shape", ["x"], ["y"], where)], [("x", F, [2, 3, 4])],
                      [("y", I64, None)], opset=15)
    x = noise(2, 3, 4)
    close(run_file(tmp_path, path, [x]), runtime(path, [x]))


def test_the_newest_operator_sets(tmp_path):
    path = graph_file(tmp_path, [("Cast", ["x"], ["c"], {"to": F, "round_mode": "up"}),
                                 ("Relu", ["c"], ["y"], {})],
                      [("x", I64, [3])], [("y", F, [3])], opset=onnx.defs.onnx_opset_version())
    assert run_file(tmp_path, path, [np.array([-1, 0, 2])])[0].tolist() == [0, 0, 2]


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_weights_of_half_the_size(tmp_path, kind):
    values = [0.0, -0.0, 1.5, -65504.0, 6e-8, 3e-5, float("inf"), float("-inf"), float("nan")]
    path = graph_file(tmp_path, [("Cast", ["w"], ["c"], {"to": F}), ("Add", ["x", "c"], ["y"], {})],
                      [("x", F, [9])], [("y", F, [9])])
    model = onnx.load(path)
    model.graph.initializer.append(helper.make_tensor("w", kind, [9], values))
    onnx.save(model, path)
    want = numpy_helper.to_array(model.graph.initializer[0]).astype(np.float32)
    got = run_file(tmp_path, path, [np.zeros(9, np.float32)])[0]
    assert np.array_equal(got, want, equal_nan=True), (got, want)


def test_damaged_names_of_files_do_no_harm(tmp_path):
    path, data = outside(tmp_path, {"location": "sub/w.bin", "offset": "5", "length": "48"})
    (path.parent / "sub").mkdir()
    (path.parent / "sub" / "w.bin").write_bytes(bytes(5) + data)
    p = subprocess.run([FUZZ, "2000", str(path)], capture_output=True, check=False, timeout=280)
    assert p.returncode == 0, p.stderr.decode()[-2000:]


def test_damaged_operators_of_tables_do_no_harm(tmp_path):
    path = graph_file(tmp_path, [("Split", ["x"], ["a", "b"], {"axis": 1}),
                                 ("Einsum", ["a", "b"], ["e"], {"equation": "ij,kj->ik"}),
                                 ("GroupNormalization", ["y", "s", "s"], ["g"], {"num_groups": 2}),
                                 ("DepthToSpace", ["y"], ["d"], {"blocksize": 2, "mode": "CRD"})],
                      [("x", F, [2, 6]), ("y", F, [1, 4, 2, 2]), ("s", F, [4])],
                      [("e", F, [2, 2]), ("g", F, [1, 4, 2, 2]), ("d", F, [1, 1, 4, 4])], opset=21)
    p = subprocess.run([FUZZ, "1000", str(path)], capture_output=True, check=False, timeout=280)
    assert p.returncode == 0, p.stderr.decode()[-2000:]


def test_nested_messages_are_refused(tmp_path):
    """Unpacking calls itself for each level: a deep file must not use up the stack."""
    def field(key, data):
        n, size = len(data), b""
        while n > 0x7f:
            size += bytes([n & 0x7f | 0x80])
            n >>= 7
        return bytes([key]) + size + bytes([n]) + data

    data = b""
    while len(data) < 1 << 18:
        # an attribute with a graph, in a node, in a graph
        data = field(0x0a, field(0x2a, field(0x32, data)))
    (tmp_path / "model.onnx").write_bytes(field(0x3a, data))
    p = subprocess.run([RUN, str(tmp_path)], capture_output=True, check=False)
    assert p.returncode == 2 and b"damaged" in p.stderr
