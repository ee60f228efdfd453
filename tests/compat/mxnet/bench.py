# SPDX-License-Identifier: Apache-2.0
"""Time MXNet on the engine that it finds: prints a JSON object, seconds per unit of work.

Used by compare.py, which runs it on both engines in turns.
"""

import json
import os
import statistics
import sys
import time

import mxnet as mx
from mxnet import autograd, gluon
from mxnet.gluon.model_zoo import vision

from common import LSTM, digits, make


SECONDS = float(os.environ.get("BENCH_SECONDS", "1"))


def timed(fn, n, warm=1):
    """Seconds per call: after warming up, groups of n calls, and of these the median."""
    for _ in range(warm):
        fn()
    mx.nd.waitall()
    groups = []
    end = time.perf_counter() + SECONDS
    while len(groups) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(n):
            fn()
        mx.nd.waitall()
        groups.append((time.perf_counter() - start) / n)
    return statistics.median(groups)


def storm_chain(n=2000):
    """Every op waits for the one before."""
    x = mx.nd.ones((2,))

    def run():
        nonlocal x
        for _ in range(n):
            x += 1
    return timed(run, 1) / n


def storm_wide(n=2000):
    """64 chains side by side."""
    xs = [mx.nd.ones((2,)) for _ in range(64)]

    def run():
        for i in range(n):
            xs[i & 63] += 1
    return timed(run, 1) / n


def storm_new(n=2000):
    """Every op makes an array and drops one."""
    x = mx.nd.ones((2,))

    def run():
        for _ in range(n):
            mx.nd.negative(x)
    return timed(run, 1) / n


def push_wide(n=4000):
    """The engine alone: empty functions through the C API, 64 vars."""
    import ctypes
    lib = mx.base._LIB
    nothing = ctypes.cast(lib.MXGetVersion, ctypes.c_void_p)

    class Ctx(ctypes.Structure):
        _fields_ = [("dev_type", ctypes.c_int), ("dev_id", ctypes.c_int)]

    # int MXGetVersion(int *): harmless with this pointer, and no Python in the body
    room = ctypes.create_string_buffer(64)
    arrays = [mx.nd.ones((2,)) for _ in range(64)]
    handles = [(ctypes.c_void_p * 1)(a.handle) for a in arrays]
    ctx = ctypes.byref(Ctx(1, 0))
    push = lib.MXEnginePushSyncND
    push.argtypes = [ctypes.c_void_p] * 5 + [ctypes.c_int, ctypes.c_void_p, ctypes.c_int,
                                             ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p]

    def run():
        for i in range(n):
            push(nothing, room, None, ctx, None, 0, handles[i & 63], 1, None, 0, b"nothing")
    return timed(run, 1) / n


def inference(net, shape, n):
    x = mx.nd.random.uniform(shape=shape)
    return timed(lambda: net(x).wait_to_read(), n, 3)


def resnet(hybrid, n=2):
    mx.random.seed(3)
    net = vision.resnet18_v1()
    net.initialize(mx.init.Xavier())
    if hybrid:
        net.hybridize(static_alloc=True, static_shape=True)
    return inference(net, (1, 3, 224, 224), n)


def lstm(hybrid, fused, n=10):
    net = LSTM(fused)
    net.initialize(mx.init.Xavier())
    if hybrid:
        net.hybridize()
    return inference(net, (1, 64), n)


def training(name, hybrid, n=5):
    x, y = digits()
    x, y = mx.nd.array(x[:32]), mx.nd.array(y[:32])
    net = make(name, hybrid=hybrid)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01})
    loss = gluon.loss.SoftmaxCrossEntropyLoss()

    def step():
        with autograd.record():
            err = loss(net(x), y)
        err.backward()
        trainer.step(32)
    return timed(step, n, 3)


WORK = {
    "storm-chain": storm_chain,
    "storm-wide": storm_wide,
    "storm-new": storm_new,
    "push-wide": push_wide,
    "resnet18": lambda: resnet(False),
    "resnet18-hybrid": lambda: resnet(True),
    "lstm": lambda: lstm(False, True),
    "lstm-hybrid": lambda: lstm(True, True),
    "lstmcell": lambda: lstm(False, False),
    "lstmcell-hybrid": lambda: lstm(True, False),
    "train-digits": lambda: training("digits", False),
    "train-digits-hybrid": lambda: training("digits", True),
    "train-conv": lambda: training("conv", False),
    "train-conv-hybrid": lambda: training("conv", True),
    "train-lstm": lambda: training("lstm", False),
}


def main():
    names = sys.argv[1:] or sorted(WORK)
    print(json.dumps({name: WORK[name]() for name in names}))


if __name__ == "__main__":
    main()
