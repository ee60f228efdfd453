# SPDX-License-Identifier: Apache-2.0
"""What the MXNet programs of this folder share: the digits, networks, numbers as text."""

import os
import struct
import zlib

import mxnet as mx
import numpy as np
from mxnet import gluon

DIGITS = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                      "../../../demo/data/digits.img")


def digits():
    """Images (n, 64) of 0..1 and labels; the format is in demo/train/digits.py."""
    with open(DIGITS, "rb") as f:
        raw = f.read()
    n, height, width, top = struct.unpack_from("<IHHH", raw, 12)
    if raw[:8] != b"PAWLIMG1" or struct.unpack("<I", raw[-4:])[0] != zlib.crc32(raw[:-4]):
        raise ValueError("%s is damaged" % DIGITS)
    rec = np.frombuffer(raw, np.uint8, n * (2 + height * width), 32).reshape(n, -1)
    return (rec[:, 2:].astype(np.float32) / top), rec[:, 0].astype(np.float32)


def dense_net():
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(128, activation="relu"), gluon.nn.Dense(64, activation="tanh"),
            gluon.nn.Dense(10))
    return net


def conv_net():
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.HybridLambda(lambda F, x: F.reshape(x, (-1, 1, 8, 8))),
            gluon.nn.Conv2D(16, 3, padding=1), gluon.nn.BatchNorm(),
            gluon.nn.Activation("relu"), gluon.nn.MaxPool2D(),
            gluon.nn.Conv2D(32, 3, padding=1, activation="relu"),
            gluon.nn.Flatten(), gluon.nn.Dropout(0.25), gluon.nn.Dense(10))
    return net


class LSTM(gluon.HybridBlock):
    """Reads an image row by row."""

    def __init__(self, fused):
        super().__init__()
        with self.name_scope():
            self.fused = fused
            self.lstm = gluon.rnn.LSTM(32, layout="NTC") if fused else \
                gluon.rnn.LSTMCell(32)
            self.out = gluon.nn.Dense(10)

    def hybrid_forward(self, F, x):
        x = F.reshape(x, (-1, 8, 8))
        if self.fused:
            y = self.lstm(x)
        else:
            y, _ = self.lstm.unroll(8, x, layout="NTC", merge_outputs=True)
        return self.out(F.reshape(F.slice_axis(y, axis=1, begin=7, end=8), (-1, 32)))


NETS = {
    "digits": dense_net,
    "conv": conv_net,
    "lstm": lambda: LSTM(True),
    "lstmcell": lambda: LSTM(False),
}


def make(name, seed=11, hybrid=False):
    mx.random.seed(seed)
    np.random.seed(seed)
    net = NETS[name]()
    net.initialize(mx.init.Xavier())
    if hybrid:
        net.hybridize()
    return net


def show(label, *values):
    """Every bit of floating point numbers."""
    print(label, *("%s" % float(v).hex() for v in values), flush=True)
