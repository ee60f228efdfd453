#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tables of MXNet's profiler: for each kind of work every domain and name, and how often.

Left out: times; WaitForVar, which MXNet's engine pushes only if the wait would block; the seed of a
random generator, which the first op that asks for one sets; and how many arrays a custom operator
deletes, because that depends on which thread drops the last reference.
"""
import ctypes
import gc
import json
import os
import sys
import tempfile

import mxnet as mx
from mxnet import autograd, gluon, profiler


class Add(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        dummy = mx.nd.zeros((4, 4))
        self.assign(out_data[0], req[0], in_data[0] + 1 + dummy[0, 0])

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], out_grad[0] * 2)


def register(name):
    @mx.operator.register(name)
    class Prop(mx.operator.CustomOpProp):
        def __init__(self):
            super().__init__(need_top_grad=True)

        def list_arguments(self):
            return ["data"]

        def list_outputs(self):
            return ["output"]

        def infer_shape(self, in_shape):
            return [in_shape[0]], [in_shape[0]], []

        def create_operator(self, ctx, shapes, dtypes):
            return Add()


def imperative():
    a = mx.nd.ones((8, 8))
    for _ in range(5):
        a = mx.nd.dot(a, a) * 0.1
    b = mx.nd.zeros((8, 8), ctx=mx.cpu(1))
    a.copyto(b)
    a.attach_grad()
    with autograd.record():
        y = (a * a).sum()
    y.backward()
    a.grad.asnumpy()


def symbolic():
    x = mx.sym.Variable("x")
    net = mx.sym.FullyConnected(x, num_hidden=3, name="dense")
    net = mx.sym.Activation(net, act_type="relu", name="relu")
    net = mx.sym.FullyConnected(net, num_hidden=2, name="last")
    e = net.simple_bind(mx.cpu(), x=(2, 4))
    for _ in range(3):
        e.forward(is_train=True, x=mx.nd.ones((2, 4)))
        e.backward(mx.nd.ones((2, 2)))
    e.outputs[0].asnumpy()
    mx.nd.waitall()


def gluon_net():
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(4, activation="relu"), gluon.nn.Dense(2))
    net.initialize()
    net.hybridize(static_alloc=True, static_shape=True)
    for _ in range(3):
        net(mx.nd.ones((2, 3))).asnumpy()


def custom():
    x = mx.nd.ones((4, 4))
    x.attach_grad()
    with autograd.record():
        y = mx.nd.Custom(x, op_type="AddOne")
        z = mx.nd.Custom(y, op_type="AddTwo")
    z.backward()
    x.grad.asnumpy()


def custom_symbolic():
    x = mx.sym.Variable("x")
    y = mx.sym.Custom(data=x, op_type="AddOne", name="a") + mx.sym.Custom(data=x, op_type="AddTwo",
                                                                          name="b")
    e = y.bind(mx.cpu(), {"x": mx.nd.ones((4, 4))})
    e.forward()[0].asnumpy()


def bulk():
    with mx.engine.bulk(10):
        x = mx.nd.ones((8,))
        for _ in range(25):
            x += 1
    x.asnumpy()


def named():
    """Objects that a program names itself."""
    domain = profiler.Domain("Python::domain")
    for thing in (profiler.Task(domain, "task"), profiler.Frame(domain, "frame"),
                  profiler.Event("event")):
        thing.start()
        mx.nd.ones((2,)).asnumpy()
        thing.stop()
    counter = profiler.Counter(domain, "counter", 5)
    counter += 2
    profiler.Marker(domain, "marker").mark()


class Context(ctypes.Structure):
    _fields_ = [("dev_type", ctypes.c_int), ("dev_id", ctypes.c_int)]


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
def nothing(run, arg):
    pass


def settle():
    """Wait until the workers, one per context, have also dropped what their last ops held."""
    for dev in (0, 1):
        mx.nd.waitall()
        mx.base.check_call(mx.base._LIB.MXEnginePushSyncND(
            nothing, None, None, ctypes.byref(Context(1, dev)), None, 0, None, 0, None, 0, None))
    mx.nd.waitall()


def show(part, tmp, all_ops):
    profiler.set_config(profile_symbolic=True, profile_imperative=all_ops, profile_memory=False,
                        profile_api=False, aggregate_stats=True,
                        filename=os.path.join(tmp, "profile.json"))
    profiler.set_state("run")
    profiler.dumps(reset=True)
    part()
    settle()
    table = json.loads(profiler.dumps(reset=True, format="json"))
    profiler.set_state("stop")
    gc.collect()
    settle()
    label = part.__name__ + ("" if all_ops else " symbols alone")
    deletes = 0
    for domain, rows in sorted(table["Time"].items()):
        for name, row in sorted(rows.items()):
            last = name.split("::")[-1]
            if last == "DeleteVariable" and part.__name__.startswith("custom"):
                deletes += row["Count"]
            elif last not in ("WaitForVar", "ResourceParallelRandomSetSeed"):
                print(label, domain, name, row["Count"], flush=True)
    if deletes:
        print(label, "deletes arrays", flush=True)


def main():
    parts = [imperative, symbolic, gluon_net, custom, custom_symbolic, bulk, named]
    for name in ("AddOne", "AddTwo"):
        register(name)
    gc.disable()
    for part in parts:
        part()              # the first use of a context makes its resources
    settle()
    with tempfile.TemporaryDirectory() as tmp:
        for part in parts:
            if not sys.argv[1:] or part.__name__ in sys.argv[1:]:
                show(part, tmp, True)
        # the ops of a symbol alone
        for part in (imperative, symbolic, custom, bulk):
            show(part, tmp, False)
    print("all tables done", flush=True)


if __name__ == "__main__":
    main()
