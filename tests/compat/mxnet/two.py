# SPDX-License-Identifier: Apache-2.0
"""MXNet 2.0: use what it has on top of its engine; print what came out.

The same output is expected from MXNet's engine and from pawl.
"""

import ctypes
import os
import sys
import tempfile
import threading

import mxnet as mx
import numpy as onp
from mxnet import autograd, gluon, np, npx, profiler


def want(ok, what):
    if not ok:
        raise SystemExit("wrong: %s" % what)


def show(label, *values):
    """Every bit of floating point numbers."""
    print(label, *("%s" % float(v).hex() for v in values), flush=True)


def operators():
    a = np.arange(12).reshape(3, 4)
    want(((a * 2 + 1).sum(axis=1).asnumpy() == [16, 48, 80]).all(), "sums")
    s = np.zeros((4,))
    for i in range(1000):
        s[:] = s * 0.5 + i
    b = a.copyto(mx.cpu(1))
    b[1:, ::2] += 1
    show("operators", s.sum(), np.einsum("ij,kj->", a, b.copyto(mx.cpu(0))), np.linalg.norm(a))
    q, r = np.linalg.qr(np.random.normal(0, 1, (5, 5)))
    show("qr", abs(np.dot(q, r)).sum(), *npx.topk(a, k=2, axis=1).reshape(-1)[:3])
    x = np.array([1.0, 2.0, 3.0])
    x.attach_grad()
    with autograd.record():
        y = (x * x).sum()
    y.backward()
    want((x.grad.asnumpy() == [2, 4, 6]).all(), "gradient")


def dense(workers):
    """Training; the workers of the loader are forked."""
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(32, activation="relu"), gluon.nn.Dense(10))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01})
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    x = np.array(onp.random.rand(256, 20).astype("float32"))
    y = np.array(onp.random.randint(0, 10, 256))
    loader = gluon.data.DataLoader(gluon.data.ArrayDataset(x, y), batch_size=32,
                                   num_workers=workers)
    for _ in range(3):
        total = 0
        for a, b in loader:
            with autograd.record():
                loss = loss_of(net(a), b).mean()
            loss.backward()
            trainer.step(1)
            total += float(loss)
        show("dense, %d workers" % workers, total)


def networks():
    for static in (False, True):
        net = gluon.nn.HybridSequential()
        net.add(gluon.nn.Conv2D(8, 3), gluon.nn.BatchNorm(), gluon.nn.Activation("relu"),
                gluon.nn.MaxPool2D(), gluon.nn.Dense(4))
        net.initialize()
        net.hybridize(static_alloc=static, static_shape=static)
        for i in range(20):
            with autograd.record():
                out = net(np.ones((2, 3, 16, 16)) * i).sum()
            out.backward()
        show("convolutions, static %d" % static, out)
    rnn = gluon.rnn.LSTM(16, 2)
    rnn.initialize()
    show("lstm", rnn(np.ones((5, 3, 8))).sum())


def raised(what, fn):
    try:
        fn()
    except (mx.base.MXNetError, ValueError) as e:
        lines = [ln.strip() for ln in str(e).split("\n") if ln.strip() and "[bt]" not in ln]
        print("raised by %s: %s: %s" % (what, type(e).__name__, lines[-1][-120:]), flush=True)
        return
    raise SystemExit("wrong: %s raised nothing" % what)


def errors():
    def bad():
        return np.random.normal(0, -1, (3,))

    naive = os.environ.get("MXNET_ENGINE_TYPE") == "NaiveEngine"
    raised("a wait", lambda: bad().wait_to_read())
    raised("asnumpy", lambda: (bad() + 1).asnumpy())
    if not naive:
        bad()
    raised("waitall", bad if naive else npx.waitall)
    npx.waitall()
    want((np.ones((2,)) + 1).asnumpy().sum() == 4, "work after a failure")
    raised("the operator's shapes", lambda: np.dot(np.ones((2, 3)), np.ones((2, 3))).asnumpy())


def kvstore():
    kv = mx.kv.create("local")
    kv.init(3, np.ones((2, 2)))
    kv.push(3, [np.ones((2, 2), ctx=mx.cpu(i)) * (i + 1) for i in range(4)], priority=-1)
    out = [np.zeros((2, 2), ctx=mx.cpu(i)) for i in range(4)]
    kv.pull(3, out=out, priority=-1)
    want(all((o.asnumpy() == 10).all() for o in out), "kvstore sum")
    kv = mx.kv.create("device")
    kv.init(4, np.ones((4,)) * 10)
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.25))
    for _ in range(5):
        kv.pushpull(4, [np.ones((4,), ctx=mx.cpu(i)) for i in range(2)])
    got = np.zeros((4,))
    kv.pull(4, out=got)
    show("kvstore", *got)


def profiled():
    with tempfile.TemporaryDirectory() as tmp:
        profiler.set_config(profile_all=True, aggregate_stats=True,
                            filename=os.path.join(tmp, "profile.json"))
        profiler.set_state("run")
        a = np.ones((32, 32))
        for _ in range(5):
            a = np.dot(a, a) * 0.01
        a.wait_to_read()
        npx.waitall()
        profiler.set_state("stop")
        table = profiler.dumps(reset=True)
    rows = sorted(ln.split()[:2] for ln in table.split("\n") if ln.startswith("_n"))
    print("profiled:", *(" ".join(row) for row in rows), flush=True)


def forked():
    """fork() by hand: old arrays and new ones in the child."""
    a = np.arange(10)
    b = a * 2
    npx.waitall()
    pid = os.fork()
    if not pid:
        ok = (b.asnumpy() == onp.arange(10) * 2).all()
        a += b
        ok = ok and (a.asnumpy() == onp.arange(10) * 3).all()
        npx.waitall()
        os._exit(0 if ok else 1)
    b += 1
    want(os.waitpid(pid, 0)[1] == 0, "the child's arrays")
    want((a.asnumpy() == onp.arange(10)).all(), "the child wrote the parent's array")
    show("forked", b.sum())


def bulked():
    with mx.engine.bulk(10):
        x = np.ones((8,))
        for _ in range(100):
            x += 1
    want((x.asnumpy() == 101).all(), "bulk")


def threads():
    def work():
        z = np.zeros((4,))
        for _ in range(500):
            z += 1
        got.append(float(z.sum()))

    got = []
    pool = [threading.Thread(target=work) for _ in range(4)]
    for t in pool:
        t.start()
    for t in pool:
        t.join()
    want(got == [2000] * 4, "threads: %s" % got)


def c_api():
    """MXEnginePushAsyncND(): its function has an on_start in 2.0."""
    lib = mx.base._LIB
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    fn_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p,
                               ctypes.c_void_p)
    ran = []

    class Callback(ctypes.Structure):
        _fields_ = [("fn", call), ("engine", ctypes.c_void_p), ("param", ctypes.c_void_p)]

    class Ctx(ctypes.Structure):
        _fields_ = [("dev_type", ctypes.c_int), ("dev_id", ctypes.c_int)]

    @fn_type
    def fn(run, on_start, on_complete, arg):
        for p in (on_start, on_complete):
            cb = ctypes.cast(p, ctypes.POINTER(Callback)).contents
            ran.append(1)
            cb.fn(cb.engine, cb.param, None)

    a = np.ones((2,))
    handles = (ctypes.c_void_p * 1)(a.handle)
    rc = lib.MXEnginePushAsyncND(fn, None, None, ctypes.byref(Ctx(1, 0)), None, 0, handles, 1,
                                 None, 0, b"mine", False)
    want(rc == 0, "MXEnginePushAsyncND: %s" % mx.base.py_str(lib.MXGetLastError()))
    a.wait_to_read()
    want(ran == [1, 1], "MXEnginePushAsyncND ran: %s" % ran)
    print("c api works", flush=True)


def main():
    want(mx.__version__.startswith("2.0"), "the version is %s" % mx.__version__)
    npx.set_np()
    mx.np.random.seed(3)
    onp.random.seed(3)
    for part in (operators, networks, errors, kvstore, profiled, forked, bulked, threads, c_api):
        part()
    dense(0)
    dense(2)
    print("all parts done", flush=True)


if __name__ == "__main__":
    sys.exit(main())
