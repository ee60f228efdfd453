# SPDX-License-Identifier: Apache-2.0
"""Pieces of work on the engine that MXNet finds, timed when compare.py asks for it.

Reads lines: "work NAME" makes that work and warms it up, "slice N" does it N times. Answers
each with a JSON object on a line: the seconds it took, and how many units one time is.
Between two lines it waits for the next, with nothing in flight.  The seconds do not contain the
pauses that the work itself makes; "wall" does.
"""

import gc
import json
import os
import sys
import time

import mxnet as mx
from mxnet import autograd, gluon
from mxnet.gluon.model_zoo import vision

import dist
import dist_bench
from common import LSTM, digits, make


class Work:
    """fn(), `group` times and then a wait for all, is done once; it is so many units."""

    def __init__(self, fn, group=1, units=None, keep=None):
        self.fn, self.group, self.units, self.keep = fn, group, units or group, keep
        self.paused = 0.0

    def once(self):
        for _ in range(self.group):
            self.fn()
        mx.nd.waitall()


def storm_chain(n=2000):
    """Every op waits for the one before."""
    x = mx.nd.ones((2,))

    def run():
        nonlocal x
        for _ in range(n):
            x += 1
    return Work(run, units=n)


def storm_wide(n=2000):
    """64 chains side by side."""
    xs = [mx.nd.ones((2,)) for _ in range(64)]

    def run():
        for i in range(n):
            xs[i & 63] += 1
    return Work(run, units=n)


def storm_new(n=2000):
    """Every op makes an array and drops one."""
    x = mx.nd.ones((2,))

    def run():
        for _ in range(n):
            mx.nd.negative(x)
    return Work(run, units=n)


def sparse(gap, n):
    """An op, its end, and a pause in which the thread sleeps: as a server under little load."""
    x = mx.nd.ones((2,))

    def run():
        nonlocal x
        for _ in range(n):
            x += 1
            x.wait_to_read()
            start = time.perf_counter()
            time.sleep(gap)
            work.paused += time.perf_counter() - start
    work = Work(run, units=n)
    return work


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
    return Work(run, units=n, keep=arrays)


def inference(net, shape, n):
    x = mx.nd.random.uniform(shape=shape)
    return Work(lambda: net(x).wait_to_read(), n)


def resnet(hybrid, n=1):
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
    return Work(step, n)


class Training:
    """A step on each node of a cluster: see dist_bench.py.  A unit is an image."""

    paused = 0.0

    def __init__(self, kind, n=10):
        self.cluster, self.n = dist_bench.Cluster(kind, "digits"), n
        self.units = n * dist.WORKERS * dist_bench.BATCH

    def once(self):
        self.cluster.steps(self.n)

    def end(self):
        self.cluster.end()


WORK = {
    "storm-chain": storm_chain,
    "storm-wide": storm_wide,
    "storm-new": storm_new,
    "push-wide": push_wide,
    "sparse-10us": lambda: sparse(10e-6, 100),
    "sparse-100us": lambda: sparse(100e-6, 50),
    "sparse-1ms": lambda: sparse(1e-3, 10),
    "sparse-10ms": lambda: sparse(10e-3, 2),
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
    "dist-sync": lambda: Training("dist_sync"),
    "dist-async": lambda: Training("dist_async"),
}


def end(work):
    if hasattr(work, "end"):
        work.end()


def main():
    # What MXNet or a library prints must not get between the answers.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if sys.argv[1:] == ["--list"]:
        print("\n".join(WORK), file=out, flush=True)
        return
    work = None
    for line in sys.stdin:
        what, arg = line.split()
        if what == "work":
            # what the work before left must not be freed in a slice of this one
            end(work)
            work = None
            gc.collect()
            work = WORK[arg]()
        paused, start = work.paused, time.perf_counter()
        for _ in range(3 if what == "work" else int(arg)):
            work.once()
        wall = time.perf_counter() - start
        print(json.dumps({"seconds": wall - (work.paused - paused), "wall": wall,
                          "units": work.units}), file=out, flush=True)
    end(work)


if __name__ == "__main__":
    main()
