#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train the two digit classifiers of the demonstrations with MXNet 1.9.1.

Writes, all from the UCI handwritten digits that scikit-learn carries:

  OUT/digits.img              the 1,797 images, format below
  OUT/model-a-symbol.json     the network, as MXNet's save_checkpoint() wrote it
  OUT/model-a-0000.params     its weights, likewise
  OUT/model-b-symbol.json     the same network, trained from another seed and
  OUT/model-b-0000.params     for fewer epochs, so that it answers differently
  OUT/models/digits/1/model.onnx  model b, and
  OUT/models/digits/2/model.onnx  model a, as a repository of `pawl serve`
  OUT/SHA256SUMS              checksums of the seven, for `sha256sum -c`
  REF/digits-softmax.txt      MXNet's own outputs for 32 images, both models
  REF/digits-answers.txt      MXNet's own answers for all images, both models
  REF/ops-symbol.json         a small network with the operators the others do
  REF/ops-0000.params         not use, random weights, for the reader's tests;
                              its outputs are in digits-softmax.txt too

MXNet's files are those of its own save_checkpoint().  The ONNX files have the
same weights, bit by bit.

With --check nothing is written: the files already in OUT are loaded by MXNet
and compared with the reference files in REF, and the ONNX files with the
weights that MXNet loaded.  With --onnx only the ONNX files are written, from
the weights in OUT.

The image file.  IDX, as MNIST uses it, was the other choice, but it wants two
files (images and labels) that can get out of step, has no place for the
train/test split, and carries no checksum.  This one is a single file, fixed
record size, little-endian:

  offset  size  field
       0     8  magic "PAWLIMG1"
       8     4  version, 1
      12     4  count of images, at least 1
      16     2  height in pixels
      18     2  width in pixels
      20     2  highest pixel value, 1..255 (16 here: 0 is paper, 16 is ink)
      22     2  count of classes, 1..256; labels are below it
      24     4  how many of the images are held out (split 1)
      28     4  zero
      32     -  count records: label (1 byte), split (1 byte: 0 the model was
                trained on it, 1 held out), height * width pixels, row by row
     end     4  CRC-32 (IEEE, as zlib.crc32) of everything before it

The size follows from the header, so a truncated or padded file is seen before
anything else is read, and the CRC finds the rest.

A network's input is pixel / highest pixel value, so 0.0 to 1.0.
"""

import argparse
import hashlib
import os
import struct
import sys
import zlib

# One thread and the serial engine, so that two runs give the same bytes.  They
# must be set before mxnet is imported.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MXNET_ENGINE_TYPE"] = "NaiveEngine"

import mxnet as mx                                      # noqa: E402
import numpy as np                                      # noqa: E402
import onnx                                             # noqa: E402
import onnx.numpy_helper                                # noqa: E402
import sklearn                                          # noqa: E402
from sklearn.datasets import load_digits                # noqa: E402

MODELS = {
    # name: (seed, epochs, learning rate of adam)
    "model-a": (11, 40, 0.002),
    "model-b": (23, 4, 0.002),
}
# The better one is the newer version.
VERSIONS = {"model-b": 1, "model-a": 2}
SPLIT_SEED = 1797
HELD_OUT = 450
BATCH = 32
REF_IMAGES = 32


def network():
    """64 -> 128 relu -> 64 tanh -> 10 softmax."""
    net = mx.sym.Variable("data")
    net = mx.sym.FullyConnected(net, num_hidden=128, name="fc1")
    net = mx.sym.Activation(net, act_type="relu", name="relu1")
    net = mx.sym.FullyConnected(net, num_hidden=64, name="fc2")
    net = mx.sym.Activation(net, act_type="tanh", name="tanh2")
    net = mx.sym.FullyConnected(net, num_hidden=10, name="fc3")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def save_ops(prefix):
    """The other operators pawl reads, and the V3 spelling of .params."""
    net = mx.sym.Variable("data")
    net = mx.sym.Flatten(net, name="flat")
    net = mx.sym.FullyConnected(net, num_hidden=12, no_bias=True, name="fc1")
    net = mx.sym.Activation(net, act_type="sigmoid", name="sigmoid1")
    net = mx.sym.FullyConnected(net, num_hidden=11, name="fc2")
    net = mx.sym.Activation(net, act_type="softrelu", name="softrelu2")
    net = mx.sym.FullyConnected(net, num_hidden=9, name="fc3")
    net = mx.sym.Activation(net, act_type="softsign", name="softsign3")
    net = mx.sym.FullyConnected(net, num_hidden=10, name="fc4")
    net = mx.sym.softmax(net, axis=-1, temperature=0.5, name="softmax")
    rnd = np.random.RandomState(5)
    shapes, _, _ = net.infer_shape(data=(1, 64))
    args = {name: mx.nd.array(rnd.uniform(-1, 1, shape))
            for name, shape in zip(net.list_arguments(), shapes)
            if name != "data"}
    # Arrays are saved as V3 under numpy shape semantics, as V2 otherwise.
    with mx.util.np_shape(True):
        mx.model.save_checkpoint(prefix, 0, net, args, {})


def dataset():
    """Pixels as bytes, labels, and the split (1 is held out)."""
    digits = load_digits()
    pixels = digits.data.astype(np.uint8)
    assert np.array_equal(pixels, digits.data), "pixels are not whole bytes"
    assert pixels.shape == (1797, 64) and pixels.max() == 16
    split = np.zeros(len(pixels), dtype=np.uint8)
    # RandomState, not default_rng: numpy keeps its stream fixed for good.
    order = np.random.RandomState(SPLIT_SEED).permutation(len(pixels))
    split[order[:HELD_OUT]] = 1
    return pixels, digits.target.astype(np.uint8), split


def image_file(pixels, labels, split):
    out = bytearray(struct.pack("<8sIIHHHHII", b"PAWLIMG1", 1, len(pixels), 8,
                                8, 16, 10, int(split.sum()), 0))
    for pix, label, held in zip(pixels, labels, split):
        out += bytes([label, held]) + pix.tobytes()
    return bytes(out) + struct.pack("<I", zlib.crc32(out))


def train(name, x, y):
    seed, epochs, rate = MODELS[name]
    np.random.seed(seed)            # NDArrayIter shuffles with it
    mx.random.seed(seed)            # the initialiser draws from it
    data = mx.io.NDArrayIter(x, y, batch_size=BATCH, shuffle=True,
                             label_name="softmax_label")
    mod = mx.mod.Module(network(), context=mx.cpu())
    mod.fit(data, num_epoch=epochs, optimizer="adam",
            optimizer_params={"learning_rate": rate},
            initializer=mx.init.Xavier())
    return mod


def outputs(prefix, x):
    """What MXNet answers with the files as saved, not the live module."""
    # V3 is loaded only under numpy shape semantics, V2 only without.
    with mx.util.np_shape(prefix.endswith("ops")):
        sym, args, aux = mx.model.load_checkpoint(prefix, 0)
    labels = [n for n in sym.list_arguments() if n.endswith("_label")]
    mod = mx.mod.Module(sym, context=mx.cpu(), label_names=labels)
    mod.bind([("data", x.shape)], for_training=False)
    mod.set_params(args, aux)
    return mod.predict(mx.io.NDArrayIter(x, batch_size=len(x))).asnumpy()


def onnx_bytes(prefix):
    """The network of network(), with the weights that MXNet saved."""
    _, args, _ = mx.model.load_checkpoint(prefix, 0)
    layer = onnx.helper.make_node
    info = onnx.helper.make_tensor_value_info
    number = onnx.TensorProto.FLOAT

    def dense(name, x, y):
        return layer("Gemm", [x, name + "_weight", name + "_bias"], [y],
                     name=name, transB=1)

    graph = onnx.helper.make_graph(
        [dense("fc1", "image", "fc1"),
         layer("Relu", ["fc1"], ["relu1"], name="relu1"),
         dense("fc2", "relu1", "fc2"),
         layer("Tanh", ["fc2"], ["tanh2"], name="tanh2"),
         dense("fc3", "tanh2", "fc3"),
         layer("Softmax", ["fc3"], ["probabilities"], name="softmax", axis=1)],
        "digits",
        [info("image", number, ["batch", 64])],
        [info("probabilities", number, ["batch", 10])],
        [onnx.numpy_helper.from_array(args[k].asnumpy(), k)
         for k in sorted(args)])
    model = onnx.helper.make_model(
        graph, producer_name="demo/train/digits.py", ir_version=8,
        opset_imports=[onnx.helper.make_opsetid("", 13)])
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString(deterministic=True)


def softmax_lines(chosen, probs):
    yield "# Softmax outputs of MXNet %s; written by demo/train/digits.py.\n" \
        % mx.__version__
    yield "# model, index of the image in digits.img, ten probabilities\n"
    # The last letter names the model: a, b, or s for ops.
    for name, prob in probs.items():
        for i in chosen:
            yield "%s %d %s\n" % (name[-1], i,
                                  " ".join("%.9g" % p for p in prob[i]))


def answer_lines(labels, split, probs):
    yield "# Answers of MXNet %s; written by demo/train/digits.py.\n" \
        % mx.__version__
    yield "# image, label, split (1: held out), answer of a, answer of b\n"
    a, b = (p.argmax(axis=1) for p in probs.values())
    for i, (label, held) in enumerate(zip(labels, split)):
        yield "%d %d %d %d %d\n" % (i, label, held, a[i], b[i])


def choose(split, probs):
    """Held-out images: first those where the models differ, then the rest."""
    a, b = (p.argmax(axis=1) for p in probs.values())
    held = np.flatnonzero(split)
    differ = [i for i in held if a[i] != b[i]][:REF_IMAGES // 2]
    agree = [i for i in held if a[i] == b[i]][:REF_IMAGES - len(differ)]
    return sorted(differ + agree)


def report(labels, split, probs):
    held = split == 1
    answers = [p.argmax(axis=1) for p in probs.values()]
    for name, ans in zip(probs, answers):
        right = ans == labels
        print("%s: train %d/%d (%.2f %%), held out %d/%d (%.2f %%)" % (
            name, right[~held].sum(), (~held).sum(),
            100 * right[~held].mean(), right[held].sum(), held.sum(),
            100 * right[held].mean()))
    differ = answers[0] != answers[1]
    print("the two answer differently on %d images, %d of them held out" % (
        differ.sum(), differ[held].sum()))
    # An answer that hangs on the last float bit could not be compared across
    # BLAS libraries, so say how far the nearest runner-up is.
    margin = min(np.diff(np.sort(p, axis=1)[:, -2:]).min()
                 for p in probs.values())
    print("smallest margin between the first and second class: %.3g" % margin)


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    ap.add_argument("--out", default="demo/data", metavar="DIR",
                    help="images and models (default %(default)s)")
    ap.add_argument("--ref", default="tests/data", metavar="DIR",
                    help="reference outputs (default %(default)s)")
    ap.add_argument("--check", action="store_true",
                    help="write nothing, compare what is there with MXNet")
    ap.add_argument("--onnx", action="store_true",
                    help="write the ONNX files alone")
    opt = ap.parse_args()

    pixels, labels, split = dataset()
    x = pixels.astype(np.float32) / 16
    images = image_file(pixels, labels, split)
    prefixes = {name: os.path.join(opt.out, name) for name in MODELS}
    img_path = os.path.join(opt.out, "digits.img")
    onnx_path = {name: os.path.join(opt.out, "models", "digits", str(number),
                                    "model.onnx")
                 for name, number in VERSIONS.items()}
    ops = os.path.join(opt.ref, "ops")
    ref_soft = os.path.join(opt.ref, "digits-softmax.txt")
    ref_ans = os.path.join(opt.ref, "digits-answers.txt")

    print("mxnet %s, numpy %s, scikit-learn %s" % (
        mx.__version__, np.__version__, sklearn.__version__))
    if not opt.check and not opt.onnx:
        os.makedirs(opt.out, exist_ok=True)
        os.makedirs(opt.ref, exist_ok=True)
        with open(img_path, "wb") as f:
            f.write(images)
        for name, prefix in prefixes.items():
            mod = train(name, x[split == 0],
                        labels[split == 0].astype(np.float32))
            mod.save_checkpoint(prefix, 0)
        save_ops(ops)

    probs = {name: outputs(p, x) for name, p in prefixes.items()}
    report(labels, split, probs)
    soft = dict(probs, ops=outputs(ops, x))

    if opt.check:
        bad = []
        with open(img_path, "rb") as f:
            if f.read() != images:
                bad.append(img_path)
        with open(ref_ans) as f:
            if f.read() != "".join(answer_lines(labels, split, probs)):
                bad.append(ref_ans)
        with open(ref_soft) as f:
            rows = [ln.split() for ln in f if not ln.startswith("#")]
        off = max(np.abs(np.array(r[2:], dtype=np.float64) -
                         next(p for name, p in soft.items()
                              if name[-1] == r[0])[int(r[1])]).max()
                  for r in rows)
        if not off <= 1e-5:
            bad.append(ref_soft)
        for name, path in onnx_path.items():
            with open(path, "rb") as f:
                if f.read() != onnx_bytes(prefixes[name]):
                    bad.append(path)
        for path in bad:
            print("differs: %s" % path)
        return 1 if bad else 0

    if not opt.onnx:
        with open(ref_soft, "w") as f:
            f.writelines(softmax_lines(choose(split, probs), soft))
        with open(ref_ans, "w") as f:
            f.writelines(answer_lines(labels, split, probs))
    for name, path in onnx_path.items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(onnx_bytes(prefixes[name]))
    sums = []
    for path in [img_path] + [p + s for p in prefixes.values()
                              for s in ("-symbol.json", "-0000.params")] + \
            sorted(onnx_path.values()):
        with open(path, "rb") as f:
            sums.append("%s  %s\n" % (hashlib.sha256(f.read()).hexdigest(),
                                      os.path.relpath(path, opt.out)))
    with open(os.path.join(opt.out, "SHA256SUMS"), "w") as f:
        f.writelines(sums)
    print("".join(sums), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
