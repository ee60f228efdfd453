# SPDX-License-Identifier: Apache-2.0
"""Use what MXNet has on top of its engine; print what came out.

The same output is expected from the stock engine and from pawl.  Each part also checks its
own result, so a part cannot pass by being wrong twice.
"""

import ctypes
import json
import os
import sys
import tempfile
import threading

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon, profiler

from common import digits, dense_net, make, show


def want(ok, what):
    if not ok:
        raise SystemExit("wrong: %s" % what)


def imperative():
    a = mx.nd.arange(12).reshape((3, 4))
    b = (a * 2 + 1).sum(axis=1)
    want((b.asnumpy() == (np.arange(12).reshape(3, 4) * 2 + 1).sum(1)).all(), "sums")
    x = mx.nd.array([1.0, 2.0, 3.0])
    x.attach_grad()
    with autograd.record():
        y = (x * x).sum()
    y.backward()
    want((x.grad.asnumpy() == [2, 4, 6]).all(), "gradient")
    # many writes of one array, in order
    s = mx.nd.zeros((4,))
    for i in range(1000):
        s[:] = s * 0.5 + i
    show("imperative", s.sum().asscalar())


def sliced():
    """Slices share their array's var."""
    a = mx.nd.zeros((8, 4))
    for i in range(8):
        a[i:i + 1] += i
    want((a.asnumpy().sum(1) == np.arange(8) * 4).all(), "slices")
    b = a.copyto(mx.cpu(1))
    want(b.context == mx.cpu(1) and (b.asnumpy() == a.asnumpy()).all(), "copy to cpu(1)")
    c = (b + 1).as_in_context(mx.cpu(0)) + a
    show("sliced", c.sum().asscalar())


def sparse():
    dense = np.zeros((6, 3), np.float32)
    dense[2] = 1
    dense[4] = [0, 2, 0]
    csr = mx.nd.array(dense).tostype("csr")
    rows = mx.nd.array(dense).tostype("row_sparse")
    want((mx.nd.sparse.dot(csr, mx.nd.ones((3, 2))).asnumpy() == dense.sum(1)[:, None]).all(),
         "csr dot")
    want((rows.tostype("default").asnumpy() == dense).all(), "row sparse")
    show("sparse", csr.sum().asscalar())


def symbolic():
    """Symbol, Module, its executor, and a checkpoint."""
    mx.random.seed(7)
    np.random.seed(7)
    x, y = digits()
    data = mx.sym.var("data")
    net = mx.sym.FullyConnected(data, num_hidden=32, name="a")
    net = mx.sym.Activation(net, act_type="relu")
    net = mx.sym.FullyConnected(net, num_hidden=10, name="b")
    net = mx.sym.SoftmaxOutput(net, name="softmax")
    it = mx.io.NDArrayIter(x[:1024], y[:1024], 64, label_name="softmax_label")
    mod = mx.mod.Module(net)
    mod.fit(it, num_epoch=4, optimizer="sgd", kvstore="local",
            optimizer_params={"learning_rate": 0.5}, initializer=mx.init.Xavier())
    score = dict(mod.score(it, "acc"))["accuracy"]
    want(score > 0.7, "module accuracy %s" % score)
    show("symbolic", score, float(mod.get_params()[0]["a_weight"].abs().sum().asscalar()))
    with tempfile.TemporaryDirectory() as tmp:
        mod.save_checkpoint(os.path.join(tmp, "m"), 1)
        sym, args, aux = mx.model.load_checkpoint(os.path.join(tmp, "m"), 1)
    exe = sym.simple_bind(mx.cpu(), grad_req="null", data=(8, 64))
    exe.copy_params_from(args, aux, allow_extra_params=True)
    out = exe.forward(is_train=False, data=mx.nd.array(x[:8]))[0]
    show("executor", *out.asnumpy().max(axis=1)[:3])
    it.reset()
    two = mx.mod.Module(net, context=[mx.cpu(0), mx.cpu(1)])
    two.bind(it.provide_data, it.provide_label)
    two.init_params(mx.init.Xavier())
    two.init_optimizer(kvstore="local")
    for batch in it:
        two.forward_backward(batch)
        two.update()
        break
    want(np.isfinite(two.get_outputs()[0].asnumpy()).all(), "two contexts")


def kvstore():
    kv = mx.kv.create("local")
    shape = (16, 8)
    kv.init(3, mx.nd.ones(shape))
    kv.push(3, [mx.nd.ones(shape, mx.cpu(i)) * (i + 1) for i in range(4)])
    out = [mx.nd.zeros(shape, mx.cpu(i)) for i in range(4)]
    kv.pull(3, out=out)
    want(all((o.asnumpy() == 10).all() for o in out), "kvstore sum")
    kv = mx.kv.create("local")
    kv.init(4, mx.nd.ones(shape) * 10)
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.25))
    for _ in range(20):
        kv.push(4, [mx.nd.ones(shape, mx.cpu(i)) for i in range(4)])
    kv.pull(4, out=out)
    want((out[2].asnumpy() == 10 - 20 * 4 * 0.25).all(), "kvstore optimizer")
    show("kvstore", out[0].sum().asscalar())


class Plus(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0] + 1)

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], out_grad[0] * 3)


class Wrong(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        raise ValueError("the custom op says no")


@mx.operator.register("pawl_plus")
class PlusProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        return Plus()


@mx.operator.register("pawl_wrong")
class WrongProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        return Wrong()


def custom():
    x = mx.nd.arange(6)
    x.attach_grad()
    with autograd.record():
        y = x
        for _ in range(10):
            y = mx.nd.Custom(y, op_type="pawl_plus")
    y.backward()
    want((y.asnumpy() == np.arange(6) + 10).all(), "custom forward")
    want((x.grad.asnumpy() == 3.0 ** 10).all(), "custom backward")
    show("custom", y.sum().asscalar())


def message(e):
    """Of an MXNetError, without the addresses of a stack trace."""
    lines = [ln for ln in str(e).split("\n") if ln.strip() and "[bt]" not in ln]
    return " / ".join(ln.strip() for ln in lines)


def raised(what, fn):
    try:
        fn()
    except mx.base.MXNetError as e:
        print("raised by %s: %s" % (what, message(e)[-150:]), flush=True)
        return
    raise SystemExit("wrong: %s raised nothing" % what)


def bad():
    return mx.nd.random.normal(0, -1, shape=(3,))


def exceptions():
    a = bad()
    raised("asnumpy", a.asnumpy)
    a = bad()
    b = a + 1
    c = mx.nd.dot(b, b)
    raised("an array behind it", c.wait_to_read)
    b.wait_to_read()                   # told once
    mx.nd.waitall()
    bad()
    raised("waitall", mx.nd.waitall)
    mx.nd.waitall()
    # through a hybridized block, through a recorded graph
    net = gluon.nn.HybridLambda(lambda F, x: F.random.normal(0, -1, shape=(2,)) + x)
    net.hybridize()
    raised("CachedOp", lambda: net(mx.nd.ones((2,))).asnumpy())
    x = mx.nd.ones((3,))
    x.attach_grad()
    with autograd.record():
        y = (x * bad()).sum()
    y.backward()
    raised("backward", x.grad.asnumpy)
    try:
        mx.nd.waitall()
    except mx.base.MXNetError:
        pass
    want((mx.nd.ones((2,)) + 1).asnumpy().sum() == 4, "work after a failure")
    raised("the operator's name", lambda: mx.nd.dot(mx.nd.ones((2, 3)), mx.nd.ones((2, 3))).asnumpy())
    # from a var that had three writers
    v = mx.nd.zeros((3,))
    v[:] = 1
    v += bad()
    v += 1
    raised("several writes", v.asnumpy)
    mx.nd.waitall()


def custom_exception():
    mx.nd.waitall()
    try:
        mx.nd.Custom(mx.nd.ones((2,)), op_type="pawl_wrong").asnumpy()
        raise SystemExit("wrong: no exception of a custom op")
    except mx.base.MXNetError as e:
        want("the custom op says no" in str(e) or "CustomOp" in str(e) or
             "custom" in str(e).lower(), "message of a custom op: %s" % e)
        print("custom op failed", flush=True)
    try:
        mx.nd.waitall()
    except mx.base.MXNetError:
        pass


class Squares(gluon.data.Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, i):
        # MXNet's engine works in the child
        a = mx.nd.array([i]) * 2
        return np.float32(a.asscalar() / 2) ** 2


def loader():
    """Workers that fork, while the parent's engine has been used."""
    for workers in (0, 2):
        busy = mx.nd.ones((256, 256))
        for _ in range(20):
            busy = busy * 1.0001
        total = 0.0
        for epoch in range(2):
            for batch in gluon.data.DataLoader(Squares(), 8, num_workers=workers):
                total += batch.sum().asscalar()
        want(total == 2 * sum(i * i for i in range(96)), "loader of %d workers" % workers)
        want(abs(busy.mean().asscalar() - 1.0001 ** 20) < 1e-3, "the parent goes on")
    show("loader", total)


def forked():
    """fork() by hand: old arrays and new ones in the child."""
    a = mx.nd.arange(10)
    b = a * 2
    pid = os.fork()
    if not pid:
        ok = (b.asnumpy() == np.arange(10) * 2).all()
        c = b + a
        a += 1
        ok = ok and (c.asnumpy() == np.arange(10) * 3).all()
        ok = ok and (a.asnumpy() == np.arange(10) + 1).all()
        mx.nd.waitall()
        os._exit(0 if ok else 1)
    b += 1
    want(os.waitpid(pid, 0)[1] == 0, "the child's arrays")
    want((b.asnumpy() == np.arange(10) * 2 + 1).all(), "the parent's arrays")
    want((a.asnumpy() == np.arange(10)).all(), "the child wrote the parent's array")
    show("forked", b.sum().asscalar())


def profiled():
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "profile.json")
        profiler.set_config(profile_all=True, aggregate_stats=True, filename=path)
        profiler.set_state("run")
        a = mx.nd.ones((32, 32))
        for _ in range(5):
            a = mx.nd.dot(a, a) * 0.01
        a.wait_to_read()
        mx.nd.waitall()
        profiler.set_state("stop")
        table = profiler.dumps(reset=False)
        profiler.dump()
        with open(path) as f:
            events = json.load(f)["traceEvents"]
    dots = [ln.split() for ln in table.split("\n") if ln.startswith("dot ")]
    print("profiled dot:", dots and dots[0][1], "times", flush=True)
    want(dots and dots[0][1] == "5", "table of the profiler:\n%s" % table)
    names = {e.get("name") for e in events}
    want("dot" in names and "_mul_scalar" in names, "events of the profiler: %s" % names)


def autostart():
    """What MXNET_PROFILER_AUTOSTART and MXNET_PROFILER_MODE record without another call."""
    a = mx.nd.ones((32, 32))
    for _ in range(5):
        a = mx.nd.dot(a, a) * 0.01
    mx.nd.waitall()
    with tempfile.TemporaryDirectory() as tmp:
        os.chdir(tmp)
        profiler.set_state("stop")
        profiler.dump()
        with open("profile.json") as f:
            events = json.load(f)["traceEvents"]
        os.chdir("/")
    names = {e.get("name") for e in events}
    print("started by the environment:", *("%s %d" % (name, name in names)
                                           for name in ("dot", "_mul_scalar", "_ones")), flush=True)


def bulked():
    with mx.engine.bulk(10):
        x = mx.nd.ones((8,))
        for i in range(100):
            x += 1
    want((x.asnumpy() == 101).all(), "bulk")
    with mx.engine.bulk(5):
        y = x * 2
        z = y + x
        got = z.asnumpy()              # flushes
        y += 1
    want((got == 303).all() and (y.asnumpy() == 203).all(), "wait inside a bulk")
    show("bulked", z.sum().asscalar())


def threads(n=4, ops=400):
    """Threads that push ops on the same arrays, in different orders of the vars."""
    shared = [mx.nd.zeros((8,)) for _ in range(3)]
    failed = []

    def work(k):
        try:
            for i in range(ops):
                a, b, c = (shared[(i + k + j) % 3] for j in range(3))
                a += 1
                mx.nd.elemwise_add(a, b, out=c)
                c -= a
                if i % 50 == 0:
                    c.wait_to_read()
        except Exception as e:         # noqa: B902, of a thread
            failed.append(e)

    pool = [threading.Thread(target=work, args=(k,), daemon=True) for k in range(n)]
    for t in pool:
        t.start()
    for t in pool:
        t.join(60)
    want(not failed, failed)
    want(not any(t.is_alive() for t in pool), "threads do not end")
    mx.nd.waitall()
    print("threads finished", flush=True)


def c_api():
    """The engine's own C calls."""
    lib = mx.base._LIB
    old = ctypes.c_int()
    want(lib.MXEngineSetBulkSize(7, ctypes.byref(old)) == 0, "set bulk size")
    prev = ctypes.c_int()
    lib.MXEngineSetBulkSize(old, ctypes.byref(prev))
    want(prev.value == 7, "bulk size kept: %d" % prev.value)
    ran = []
    fn_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)

    @fn_type
    def fn(run, arg):
        ran.append(1)

    a = mx.nd.ones((2,))
    handles = (ctypes.c_void_p * 1)(a.handle)

    class Ctx(ctypes.Structure):
        _fields_ = [("dev_type", ctypes.c_int), ("dev_id", ctypes.c_int)]

    rc = lib.MXEnginePushSyncND(fn, None, None, ctypes.byref(Ctx(1, 0)), None, 0, handles, 1,
                                None, 0, b"mine", None)
    want(rc == 0, "MXEnginePushSyncND: %s" % mx.base.py_str(lib.MXGetLastError()))
    a.wait_to_read()
    want(ran == [1], "MXEnginePushSyncND ran: %s" % ran)
    rc = lib.MXEnginePushSyncND(fn, None, None, ctypes.byref(Ctx(1, 0)), None, -1, handles, 1,
                                None, 0, b"mine", None)
    want(rc == -1, "a negative count")
    print("c api works", flush=True)


PARTS = [imperative, sliced, sparse, symbolic, kvstore, custom, exceptions, custom_exception,
         bulked, c_api, forked, loader, profiled, imperative]


def main():
    names = sys.argv[1:]
    for part in PARTS + [autostart, threads]:
        # The environment is for one of them, and MXNet's own engine may never end the last one.
        if part.__name__ in names or (not names and part in PARTS):
            part()
    print("all parts done", flush=True)


if __name__ == "__main__":
    main()
