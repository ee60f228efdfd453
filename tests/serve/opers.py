# SPDX-License-Identifier: Apache-2.0
"""opers.py [-n MODELS] [-s SEED] [WORD...]: models of one operator with random attributes, shapes
and types give the answers of onnxruntime.

By hand, in the environment of run.sh (MODEL_RUN is tests/serve/model_run), for the operators with
one of the words in their names.  Where the server would let requests share a run, each row of
onnxruntime's answer must be that of the row alone.  The seed of model i is SEED + i.  Exit status:
1 if an answer is wrong.
"""
import argparse
import collections
import os
import random
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

from nodes import pawl, same

F32, F64, I32, I64, U8, I8 = np.float32, np.float64, np.int32, np.int64, np.uint8, np.int8
ort.set_default_logger_severity(4)


class Case:
    """Inputs are arrays, None is left out; const says which are initializers."""

    def __init__(self, seed):
        self.rng, self.noise = random.Random(seed), np.random.default_rng(seed)
        self.attrs, self.inputs, self.const, self.outputs, self.opset = {}, [], set(), 1, 18

    def dims(self, low=1, high=4):
        return [self.rng.choice((1, 2, 3, 4, 5, 7)) for _ in range(self.rng.randint(low, high))]

    def data(self, shape, dtype=F32):
        if dtype is np.bool_:
            return self.noise.integers(0, 2, shape).astype(dtype)
        if np.dtype(dtype).kind == "f":
            return (self.noise.integers(-40, 41, shape) / 8).astype(dtype)
        return self.noise.integers(0 if np.dtype(dtype).kind == "u" else -9, 10, shape).astype(dtype)

    def kind(self, *kinds):
        return self.rng.choice(kinds)

    def axis(self, rank):
        k = self.rng.randrange(rank)
        return k - rank if self.rng.random() < .4 else k

    def maybe(self, name, *values):
        if self.rng.random() < .7:
            self.attrs[name] = self.rng.choice(values)

    def add(self, array, const=False):
        if const:
            self.const.add(len(self.inputs))
        self.inputs.append(array)
        return self

    def whole(self, values):
        return self.add(np.array(values, I64), True)

    def like(self, dims):
        """Dimensions that broadcast to these."""
        dims = [1 if self.rng.random() < .4 else d for d in dims]
        return dims[self.rng.randint(0, len(dims)):] if self.rng.random() < .4 else dims


def two(*kinds, back=True):
    def make(c):
        kind, dims = c.kind(*kinds), c.dims()
        c.add(c.data(dims, kind)).add(c.data(c.like(dims), kind))
        if back and c.rng.random() < .5:
            c.inputs.reverse()
    return make


def one(*kinds, **attrs):
    def make(c):
        c.add(c.data(c.dims(), c.kind(*kinds)))
        for name, values in attrs.items():
            c.maybe(name, *values)
    return make


def split(c):
    dims = c.dims()
    k = c.axis(len(dims))
    c.attrs["axis"], c.outputs = k, c.rng.randint(1, 4)
    c.opset = c.kind(11, 13, 18)
    if c.opset == 18 and c.rng.random() < .5:
        c.attrs["num_outputs"] = c.outputs
        while (dims[k] + c.outputs - 1) // c.outputs * (c.outputs - 1) > dims[k]:
            dims[k] += 1
    elif c.rng.random() < .6 or c.opset == 18:
        sizes = [c.rng.randint(0, 3) for _ in range(c.outputs)]
        dims[k] = sum(sizes)
        c.add(c.data(dims, c.kind(F32, I64)))
        if c.opset < 13:
            c.attrs["split"] = sizes
        else:
            c.whole(sizes)
        return
    else:
        dims[k] = c.outputs * c.rng.randint(1, 3)
    c.add(c.data(dims, c.kind(F32, I32, U8)))


def tile(c):
    dims = c.dims()
    c.add(c.data(dims, c.kind(F32, I64, U8))).whole([c.rng.choice((1, 1, 2, 3)) for _ in dims])


def trilu(c):
    c.add(c.data(c.dims(2, 4), c.kind(F32, I64)))
    if c.rng.random() < .7:
        c.inputs.append(np.array(c.rng.randint(-5, 5), I64))
        c.const.add(1)
    c.maybe("upper", 0, 1)


def blocks(space):
    def make(c):
        b, d = c.rng.randint(1, 3), c.dims(4, 4)
        if space:
            d[1] *= b * b
            c.opset = c.kind(9, 13)
            if c.opset >= 11:
                c.maybe("mode", "DCR", "CRD")
        else:
            d[2], d[3] = d[2] * b, d[3] * b
        c.attrs["blocksize"] = b
        c.add(c.data(d))
    return make


def span(c):
    kind = c.kind(F32, I64, I32, F64)
    low, step = c.rng.randint(-9, 9), c.rng.choice((-3, -1, 1, 2, 5))
    for v in (low, low + step * c.rng.randint(-1, 9) + c.rng.randint(0, 1), step):
        c.add(np.array(v, kind), True)


def one_hot(c):
    dims = c.dims(1, 3)
    c.add(c.noise.integers(-4, 8, dims).astype(c.kind(I64, I64, F32)))
    c.add(np.array(c.rng.randint(1, 6), I64), True)
    c.add(c.data([2], c.kind(F32, I64)), True)
    c.attrs["axis"] = c.axis(len(dims) + 1)


def reverse(c):
    d = c.dims(2, 4)
    t = c.rng.randint(0, 1)
    c.attrs.update(time_axis=t, batch_axis=1 - t)
    c.add(c.data(d)).add(c.noise.integers(1, d[t] + 1, [d[1 - t]]))


def gather_elements(c):
    d = c.dims()
    k = c.axis(len(d))
    index = [c.rng.randint(1, n) for n in d]
    index[k] = c.rng.randint(1, 6)
    c.attrs["axis"] = k
    c.add(c.data(d, c.kind(F32, I64, U8)))
    c.add(c.noise.integers(-d[k], d[k], index).astype(c.kind(I64, I32)))


def scatter_elements(c):
    d = c.dims()
    k, kind = c.axis(len(d)), c.kind(F32, I64)
    index = [c.rng.randint(1, n) for n in d]
    c.attrs["axis"] = k
    c.maybe("reduction", "none", "add", "mul", "min", "max")
    at = c.noise.integers(-d[k], d[k], index)
    if c.attrs.get("reduction", "none") == "none":     # else the order of equal ones matters
        one_at = c.noise.permutation(d[k])[:index[k]]
        at = np.broadcast_to(one_at.reshape([-1 if i == k % len(d) else 1 for i in range(len(d))]),
                             index).copy()
    c.add(c.data(d, kind)).add(at).add(c.data(index, kind))


def gather_nd(c):
    d = c.dims(1, 4)
    batch = c.rng.randint(0, len(d) - 1)
    n = c.rng.randint(1, len(d) - batch)
    index = d[:batch] + c.dims(0, 2)
    at = np.stack([c.noise.integers(-m, m, index) for m in d[batch:batch + n]], -1)
    c.attrs["batch_dims"] = batch
    c.add(c.data(d, c.kind(F32, I64, np.bool_))).add(at)


def scatter_nd(c):
    d, kind = c.dims(1, 4), c.kind(F32, I64)
    n, index = c.rng.randint(1, len(d)), c.dims(0, 2)
    c.maybe("reduction", "none", "add", "mul", "min", "max")
    at = np.stack([c.noise.integers(-m, m, index) for m in d[:n]], -1)
    if c.attrs.get("reduction", "none") == "none":
        rows = int(np.prod(d[:n]))
        index = [c.rng.randint(1, rows)]
        at = np.stack(np.unravel_index(c.noise.permutation(rows)[:index[0]], d[:n]), -1)
    c.add(c.data(d, kind)).add(at).add(c.data(index + d[n:], kind))


def arg(c):
    d = c.dims()
    c.add(c.data(d, c.kind(F32, I32, F64, U8, I8)))
    c.maybe("axis", c.axis(len(d)))
    c.maybe("keepdims", 0, 1)
    c.maybe("select_last_index", 0, 1)


def top_k(c):
    d = c.dims()
    k = c.axis(len(d))
    d[k] = c.rng.choice((1, 2, 5, 30, 70))
    x = c.data(d, c.kind(F32, F64, I32, I64))
    c.attrs["axis"], c.outputs = k, 2
    c.maybe("largest", 0, 1)
    c.add(x).whole([c.rng.randint(1, d[k])])


def cum_sum(c):
    d = c.dims()
    c.add(c.data(d, c.kind(F32, F64, I32, I64)))
    c.add(np.array(c.axis(len(d)), c.kind(I64, I32)), True)
    c.maybe("exclusive", 0, 1)
    c.maybe("reverse", 0, 1)


def group_norm(c):
    d = c.dims(3, 4)
    g = c.rng.randint(1, 3)
    d[1] *= g
    c.opset = 21
    c.attrs["num_groups"] = g
    c.maybe("epsilon", 1e-3, 0.5)
    c.add(c.data(d)).add(c.data([d[1]])).add(c.data([d[1]]))


def instance_norm(c):
    d = c.dims(3, 4)
    c.maybe("epsilon", 1e-3, 0.5)
    c.add(c.data(d)).add(c.data([d[1]]), True).add(c.data([d[1]]), True)


def prelu(c):
    d = c.dims()
    c.add(c.data(d)).add(c.data(c.like(d)), True)


def pad(c):
    d = c.dims(1, 4)
    mode = c.kind("constant", "reflect", "edge", "wrap")
    most = [n - 1 if mode == "reflect" else n if mode == "wrap" else 3 for n in d]
    c.attrs["mode"] = mode
    c.opset = 19 if mode == "wrap" else c.kind(11, 13, 18)
    low = -1 if mode == "constant" else 0
    axes = list(range(len(d)))
    if c.opset >= 18 and c.rng.random() < .5:
        c.rng.shuffle(axes)
        axes = axes[:c.rng.randint(1, len(axes))]
    pads = [c.rng.randint(low if d[k] > 2 else 0, min(3, most[k])) for k in axes + axes]
    c.add(c.data(d, c.kind(F32, I64) if c.opset >= 13 else F32)).whole(pads)
    if mode == "constant" and c.rng.random() < .5:
        c.add(c.data([], c.inputs[0].dtype), True)
    elif len(axes) < len(d) or c.rng.random() < .2:
        c.add(None)
    if len(axes) < len(d) or (len(c.inputs) == 3 and c.opset >= 18):
        c.whole([k - len(d) if c.rng.random() < .3 else k for k in axes])


def reduce(c):
    d = c.dims()
    c.add(c.data(d, c.kind(F32, F32, I32)))
    if c.inputs[0].dtype == I32:        # onnxruntime's product does not wrap
        c.inputs[0] = np.clip(c.inputs[0], -1, 1)
    axes = c.rng.sample(range(len(d)), c.rng.randint(0, len(d)))
    axes = [k - len(d) if c.rng.random() < .3 else k for k in axes]
    c.maybe("keepdims", 0, 1)
    c.opset = 18
    if axes or c.rng.random() < .5:
        c.whole(axes)
        c.maybe("noop_with_empty_axes", 0, 1)


def where(c):
    d, kind = c.dims(), c.kind(F32, I64, U8)
    c.add(c.data(c.like(d), np.bool_)).add(c.data(d, kind)).add(c.data(c.like(d), kind))


def einsum(c):
    size = {k: c.rng.randint(1, 4) for k in "abcdef"}
    terms = []
    for _ in range(c.rng.choice((1, 2, 2, 2, 2))):
        terms.append("".join(c.rng.sample("abcdef", c.rng.randint(1, 4))))
    used = sorted(set("".join(terms)))
    out = "".join(c.rng.sample(used, c.rng.randint(0, len(used))))
    c.attrs["equation"] = c.kind(",", ", ").join(terms) + c.kind("->", " -> ") + out
    if c.rng.random() < .1 and "->" in c.attrs["equation"]:
        c.attrs["equation"] = c.attrs["equation"].split("->")[0].strip()
    for t in terms:
        c.add(c.data([size[k] for k in t]))


def recurrent(gates):
    def make(c):
        t, b, i, h = c.rng.randint(1, 4), c.rng.randint(1, 3), c.rng.randint(1, 5), c.rng.randint(1, 4)
        way = c.kind("forward", "reverse", "bidirectional")
        n = 2 if way == "bidirectional" else 1
        small = lambda *d: (c.data(d) / 8).astype(F32)
        c.attrs.update(hidden_size=h, direction=way)
        c.outputs, c.opset = 2 + (gates == 4), 14
        if gates == 3:
            c.maybe("linear_before_reset", 0, 1)
        c.add(c.data([t, b, i])).add(small(n, gates * h, i), True).add(small(n, gates * h, h), True)
        more = [small(n, 2 * gates * h), None, small(n, b, h)]
        if gates == 4:
            more.append(small(n, b, h))
        for k, a in enumerate(more[:c.rng.randint(0, len(more))]):
            c.add(a if c.rng.random() < .8 else None, k == 0 and a is not None)
        while c.inputs[-1] is None:
            c.inputs.pop()
    return make


def quantize(c):
    d = c.dims(2, 4)
    kind = c.kind(U8, I8)
    c.opset = c.kind(11, 13, 19)
    k = 1 if c.opset < 13 else c.axis(len(d))
    n = [] if c.opset < 13 or c.rng.random() < .5 else [d[k]]
    if c.opset >= 13:
        c.attrs["axis"] = k
    c.add(c.data(d)).add((c.noise.integers(1, 9, n) / 16).astype(F32), True)
    if c.rng.random() < .8:
        c.add(c.noise.integers(0, 7, n).astype(kind), True)


def dequantize(c):
    quantize(c)
    kind = c.inputs[2].dtype.type if len(c.inputs) > 2 else c.kind(U8, I8)
    c.inputs[0] = c.data(c.inputs[0].shape, kind)


def dynamic(c):
    c.outputs = 3
    c.add(c.data(c.dims()) * c.kind(1, -1) + c.rng.choice((0, 9)))
    c.inputs[0] = c.inputs[0].astype(F32)


def scale_of(c, const=True):
    c.add(np.array(c.rng.randint(1, 9) / 64, F32), const)


def zero_of(c, kind, shape=(), const=True):
    c.add(c.noise.integers(0, 7, shape).astype(kind), const)


def windows_of(c, const):
    """Data, weights, and the attributes of a convolution of them."""
    kind, w = c.kind(*((U8, I8) if const else (U8,))), c.kind(*((U8, I8) if const else (U8,)))
    rank, g, ic, oc = 2, c.rng.randint(1, 2), c.rng.randint(1, 3), c.rng.randint(1, 3)
    kernel = [c.rng.randint(1, 3) for _ in range(rank)]
    c.attrs.update(group=g, strides=[c.rng.randint(1, 2) for _ in range(rank)],
                   pads=[c.rng.randint(0, k - 1) for k in kernel * 2])
    c.maybe("kernel_shape", kernel)
    return (c.data([c.rng.randint(1, 3), g * ic, *(c.rng.randint(3, 6) for _ in range(rank))], kind),
            c.data([g * oc, ic, *kernel], w))


def conv_integer(c):
    x, w = windows_of(c, False)
    c.add(x).add(w, True)
    if c.rng.random() < .7:
        zero_of(c, x.dtype)
        zero_of(c, w.dtype)


def matrices(c):
    d, k = c.dims(1, 3), c.rng.randint(1, 9)
    return [*d, k], [k, c.rng.randint(1, 9)]


def mat_mul_integer(c):
    a, b = matrices(c)
    x, w = c.kind(U8, I8), c.kind(U8, I8)
    c.add(c.data(a, x)).add(c.data(b, w), c.rng.random() < .7)
    if c.rng.random() < .8:
        zero_of(c, x)
        if c.rng.random() < .7:
            zero_of(c, w, () if c.rng.random() < .5 else b[1:])


def q_linear_conv(c):
    c.opset = 10
    x, w = windows_of(c, True)
    n = (w.shape[0],) if c.rng.random() < .5 else ()
    c.add(x)
    scale_of(c)
    zero_of(c, x.dtype)
    c.add(w, True).add((c.noise.integers(1, 9, n) / 64).astype(F32), True)
    c.add(np.zeros(n, w.dtype) if n else c.noise.integers(0, 7, ()).astype(w.dtype), True)
    scale_of(c)
    zero_of(c, x.dtype)
    if c.rng.random() < .5:
        c.add(c.noise.integers(-99, 99, w.shape[:1]).astype(I32), True)


def q_linear_mat_mul(c):
    c.opset = 10
    a, b = matrices(c)
    x = c.kind(U8, I8)
    w = U8 if x == U8 and c.rng.random() < .5 else I8
    for d, kind in ((a, x), (b, w)):
        c.add(c.data(d, kind), d is b)
        scale_of(c)
        zero_of(c, kind)
    scale_of(c)
    zero_of(c, x)


def loss(c):
    d, kind = [c.rng.randint(1, 3), c.rng.randint(2, 5), *c.dims(1, 3)[1:]], c.kind(I64, I32)
    c.add(c.data(d)).add(c.noise.integers(0, d[1], [d[0], *d[2:]]).astype(kind))
    c.maybe("reduction", "none", "mean", "sum")
    c.maybe("ignore_index", -1, 0)
    if c.rng.random() < .5:
        c.add((c.noise.integers(1, 9, d[1]) / 4).astype(F32))


def attention(c):
    c.opset = c.kind(23, 24)
    b, kv, s, t, past = (c.rng.randint(1, 3) for _ in range(5))
    h, d, dv = kv * c.rng.randint(1, 3), c.kind(4, 8, 20), c.kind(4, 8, 20)
    flat = c.rng.random() < .5
    heads = lambda n, rows, width: c.data([b, rows, n * width] if flat else [b, n, rows, width])
    past = past if c.rng.random() < .4 else 0
    t = t if s > 1 else 1               # onnxruntime lets a causal query that is alone see all keys
    if flat:
        c.attrs.update(q_num_heads=h, kv_num_heads=kv)
    c.maybe("scale", .25, .5)
    c.maybe("is_causal", 0, 1)
    if c.rng.random() < .3:
        c.attrs["softcap"] = 2.0
    c.add(heads(h, s, d)).add(heads(kv, t, d)).add(heads(kv, t, dv))
    n = t + past
    mask = [None, [s, n], [1, 1, s, n], [b, 1, s, n], [b, h, s, n]][c.rng.randint(0, 4)]
    c.add(mask and c.data(mask, c.kind(F32, np.bool_)), bool(mask) and mask[0] != b)
    if past:
        c.add(c.data([b, kv, past, d])).add(c.data([b, kv, past, dv]))
        c.outputs = 3
    while c.inputs[-1] is None:
        c.inputs.pop()


def clip(c):
    kind, d = c.kind(F32, I32, I64, U8), c.dims()
    c.add(c.data(d, kind))
    for k, v in enumerate((c.rng.randint(0, 3), c.rng.randint(0, 7))):
        c.add(np.array(v, kind) if c.rng.random() < .8 else None, c.rng.random() < .7)
    while c.inputs[-1] is None:
        c.inputs.pop()


def deconv(c):
    rank = c.rng.randint(1, 2)
    g, ic, oc = c.rng.randint(1, 2), c.rng.randint(1, 3), c.rng.randint(1, 3)
    kernel = [c.rng.randint(1, 4) for _ in range(rank)]
    strides = [c.rng.randint(1, 3) for _ in range(rank)]
    c.add(c.data([c.rng.randint(1, 2), g * ic, *(c.rng.randint(3, 6) for _ in range(rank))]))
    c.add(c.data([g * ic, oc, *kernel]), True)
    if c.rng.random() < .5:
        c.add(c.data([g * oc]), True)
    c.attrs.update(group=g, strides=strides, kernel_shape=kernel,
                   pads=[c.rng.randint(0, min(k - 1, 1)) for k in kernel * 2],
                   output_padding=[c.rng.randint(0, s - 1) for s in strides])


def resize(c):
    d = [1, c.rng.randint(1, 3), c.rng.randint(2, 6), c.rng.randint(2, 6)]
    mode = c.kind("cubic", "cubic", "linear", "nearest")
    c.attrs["mode"] = mode
    c.maybe("coordinate_transformation_mode", "half_pixel", "align_corners", "asymmetric",
            "pytorch_half_pixel")
    if mode == "cubic":
        c.maybe("cubic_coeff_a", -.5, -.75)
        c.maybe("exclude_outside", 0, 1)
    c.add(c.data(d)).add(None)
    if c.rng.random() < .5:
        c.add(np.array([1, 1, *(c.rng.choice((.5, 1.5, 2, 3)) for _ in "hw")], F32), True)
    else:
        c.add(None).whole([*d[:2], c.rng.randint(2, 9), c.rng.randint(2, 9)])


NUMBERS = (F32, F64, I32, I64)
OPERS = {
    "And": two(np.bool_), "Or": two(np.bool_), "Xor": two(np.bool_), "Where": where,
    "Add": two(*NUMBERS), "Sub": two(*NUMBERS), "Mul": two(*NUMBERS), "Equal": two(*NUMBERS, np.bool_),
    "Less": two(*NUMBERS), "GreaterOrEqual": two(*NUMBERS), "Max": two(*NUMBERS), "Min": two(*NUMBERS),
    "Abs": one(*NUMBERS, I8), "Neg": one(*NUMBERS, I8), "Sign": one(*NUMBERS, I8), "Floor": one(F32, F64),
    "Exp": one(F32, F64), "Sqrt": one(F32, F64), "Tanh": one(F32, F64), "Sigmoid": one(F32, F64),
    "Atan": one(F32), "Sinh": one(F32), "Selu": one(F32, alpha=(1.5, 2.0), gamma=(.5, 1.0)),
    "Celu": one(F32, alpha=(.5, 2.0)), "ThresholdedRelu": one(F32, alpha=(.5, 2.0)),
    "Shrink": one(F32, lambd=(.5, 1.5), bias=(.0, .5)), "IsNaN": one(F32), "Hardmax": one(F32),
    "LpNormalization": one(F32, p=(1, 2)), "Size": one(F32, I64),
    "Mod": lambda c: (two(I32, I64, U8, F32)(c), c.attrs.update(
        fmod=int(c.inputs[0].dtype == F32 or c.rng.random() < .5)), c.inputs.__setitem__(
            1, np.where(c.inputs[1] == 0, 3, c.inputs[1]).astype(c.inputs[1].dtype))),
    "Split": split, "Tile": tile, "Trilu": trilu, "DepthToSpace": blocks(True),
    "SpaceToDepth": blocks(False), "Range": span, "OneHot": one_hot, "ReverseSequence": reverse,
    "GatherElements": gather_elements, "ScatterElements": scatter_elements, "GatherND": gather_nd,
    "ScatterND": scatter_nd, "ArgMax": arg, "ArgMin": arg, "TopK": top_k, "CumSum": cum_sum,
    "GroupNormalization": group_norm, "InstanceNormalization": instance_norm, "PRelu": prelu,
    "Pad": pad, "Einsum": einsum, "LSTM": recurrent(4), "GRU": recurrent(3),
    "QuantizeLinear": quantize, "DequantizeLinear": dequantize,
    "DynamicQuantizeLinear": dynamic, "ConvInteger": conv_integer, "MatMulInteger": mat_mul_integer,
    "QLinearConv": q_linear_conv, "QLinearMatMul": q_linear_mat_mul, "Attention": attention,
    "NegativeLogLikelihoodLoss": loss, "SoftmaxCrossEntropyLoss": loss,
    "Clip": clip, "ConvTranspose": deconv, "Resize": resize,
    "ReduceL1": reduce, "ReduceL2": reduce, "ReduceProd": reduce, "ReduceSumSquare": reduce,
    "ReduceLogSum": reduce, "ReduceLogSumExp": reduce, "ReduceMax": reduce, "ReduceMean": reduce,
}


def build(op, c):
    names = [f"x{i}" if a is not None else "" for i, a in enumerate(c.inputs)]
    outs = [f"y{i}" for i in range(c.outputs)]
    tensor = lambda i: helper.np_dtype_to_tensor_dtype(c.inputs[i].dtype)
    live = [i for i, a in enumerate(c.inputs) if a is not None and i not in c.const]
    # one input with any number of rows
    dims = lambda a: ["n", *a.shape[1:]] if a.shape else []
    given = [helper.make_tensor_value_info(f"x{i}", tensor(i), dims(c.inputs[i])) for i in live]
    inits = [numpy_helper.from_array(c.inputs[i], f"x{i}") for i in sorted(c.const)
             if i < len(c.inputs) and c.inputs[i] is not None]
    nodes, arrays = [helper.make_node(op, names, outs, **c.attrs)], [c.inputs[i] for i in live]
    if not live:                # a run needs an input
        nodes.append(helper.make_node("Identity", ["d"], ["e"]))
        given.append(helper.make_tensor_value_info("d", onnx.TensorProto.FLOAT, ["n"]))
        outs.append("e")
        arrays.append(np.zeros(2, F32))
    graph = helper.make_graph(nodes, "g", given,
                              [onnx.ValueInfoProto(name=o) for o in outs], inits)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", c.opset)])
    model.ir_version = 10 if c.opset > 21 else 8
    # onnxruntime finds the types
    return onnx.shape_inference.infer_shapes(model), arrays


def one_unit(a, b):
    """Quantized numbers that are rounded from sums in another order."""
    return (a.shape == b.shape and a.dtype == b.dtype and a.dtype in (U8, I8) and
            np.max(np.abs(a.astype(I32) - b.astype(I32)), initial=0) <= 1)


def check(op, seed, folder, counts):
    c = Case(seed)
    OPERS[op](c)
    try:
        model, arrays = build(op, c)
        rank = {o.name: len(o.type.tensor_type.shape.dim) if o.type.tensor_type.HasField("shape")
                else arrays[0].ndim for o in model.graph.output}
        for o in model.graph.output:
            t = o.type.tensor_type
            kind = t.elem_type or helper.np_dtype_to_tensor_dtype(arrays[0].dtype)
            o.CopyFrom(helper.make_tensor_value_info(o.name, kind, ["n"] + [None] * (rank[o.name] - 1)
                                                     if rank[o.name] else []))
        data = model.SerializeToString()
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        feed = {i.name: a for i, a in zip(session.get_inputs(), arrays)}
        want = dict(zip(rank, session.run(None, feed)))
    except Exception as e:      # noqa: all of its errors are of one kind
        counts[f"{op}: not for onnxruntime"] += 1
        counts["reasons"].setdefault(op + " by onnxruntime", str(e)[-150:])
        return None
    with open(folder + "/model.onnx", "wb") as f:
        f.write(data)
    got = pawl(folder, arrays, "-p", "-r")
    if isinstance(got, str):
        counts[f"{op}: refused"] += 1
        counts["reasons"].setdefault(op, got[-200:])
        return None
    bad = [n for n, w in want.items() if not same(got[n], w, 1e-3, 1e-4) and not (
        op.startswith("QLinear") and one_unit(got[n], w))]
    if bad:
        return f"{bad} {[(got[n].dtype, got[n].shape, got[n].ravel()[:8], want[n].dtype, want[n].shape, want[n].ravel()[:8]) for n in bad[:1]]}"
    counts[f"{op}: right"] += 1
    if pawl.apart and arrays:
        counts[f"{op}: shares runs"] += 1
        for i in range(arrays[0].shape[0]):
            row = session.run(None, {k: a[i:i + 1] for k, a in feed.items()})
            for n, r in zip(rank, row):
                if not same(np.ascontiguousarray(r), np.ascontiguousarray(want[n][i:i + 1]), 1e-3, 1e-4):
                    return f"rows of {n} are not apart"
    return None


def main():
    p = argparse.ArgumentParser()
    p.add_argument("-n", type=int, default=1000)
    p.add_argument("-s", type=int, default=random.SystemRandom().randrange(1 << 31))
    p.add_argument("words", nargs="*")
    args = p.parse_args()
    print(f"seed {args.s}", flush=True)
    counts, wrong = collections.Counter(), 0
    counts["reasons"] = {}
    names = [op for op in OPERS if not args.words or any(w in op for w in args.words)]
    with tempfile.TemporaryDirectory() as folder:
        for i in range(args.s, args.s + args.n):
            op = names[i % len(names)]
            bad = check(op, i, folder, counts)
            if bad:
                wrong += 1
                c = Case(i)
                OPERS[op](c)
                print(f"WRONG seed {i} {op} {c.attrs} {[a if a is None else (a.dtype.name, a.shape) for a in c.inputs]}: {bad}", flush=True)
    reasons = counts.pop("reasons")
    for name, n in sorted(counts.items()):
        print(f"{n:6} {name}")
    for name, why in sorted(reasons.items()):
        print(f"{name}: {why}")
    print(f"{args.n} models, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
