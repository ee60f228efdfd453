#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""foreign.py LIBRARY: a package with its own C++ code on MXNet's engine (foreign.cc)."""

import ctypes
import os
import sys
import tempfile
import time

os.environ["MXNET_CPU_PRIORITY_NTHREADS"] = "1"
import mxnet as mx      # noqa: E402, which reads it
from mxnet import profiler      # noqa: E402

from common import show     # noqa: E402

lib = ctypes.CDLL(sys.argv[1])


def handles(arrays):
    return (ctypes.c_void_p * len(arrays))(*(a.handle for a in arrays)), len(arrays)


def average(inputs, outputs, error=None, priority=0):
    mx.base.check_call(lib.foreign_average(*handles(inputs), *handles(outputs), error, priority))


def bulk_sizes():
    """Nothing is gathered while the profiler runs and adds up, whatever else it does."""
    with tempfile.TemporaryDirectory() as tmp, mx.engine.bulk(6):
        for adds in False, True, False:
            profiler.set_config(profile_all=True, aggregate_stats=adds,
                                filename=os.path.join(tmp, "profile.json"))
            show("bulk size before", lib.foreign_bulk_size())
            profiler.set_state("run")
            show("bulk size, adds %d" % adds, lib.foreign_bulk_size())
            profiler.set_state("stop")
            show("bulk size after", lib.foreign_bulk_size())


def main():
    pushes = 0
    lib.foreign_start()
    # gradients of several workers, reduced in place between ops of MXNet
    grads = [mx.nd.arange(16) * (k + 1) for k in range(4)]
    mean = mx.nd.zeros((16,))
    for step in range(200):
        for k, g in enumerate(grads):
            g += k * step
        average(grads, [mean], priority=step % 7)
        for g in grads:
            mx.base.check_call(lib.foreign_copy(handles([mean])[0], *handles([g])))
        mean *= 0.5
        pushes += 1 + len(grads)
        average(grads, grads, priority=-1)
        pushes += 1
    show("mean", *mean.asnumpy())
    show("gradients", *(g.sum().asscalar() for g in grads))
    # a failed operation: the error meets the wait, and the other arrays are untouched
    bad = mx.nd.ones((16,))
    average(grads, [bad], error=b"rank 3 is lost")
    pushes += 1
    try:
        (bad + 1).wait_to_read()
        raise SystemExit("no error")
    except mx.MXNetError as e:
        print("error:", str(e).strip().splitlines()[-1], flush=True)
    show("after", grads[0].sum().asscalar())
    # an exception of its own has its type, and meets one call
    for wait_for_all in 0, 1:
        show("thrown", lib.foreign_throws(bad.handle, wait_for_all))
        bad.wait_to_read()
    # it also works inside a bulk, and arrays may be dropped at once
    with mx.engine.bulk(8):
        x = mx.nd.ones((16,))
        for _ in range(10):
            x += 1
        y = mx.nd.zeros((16,))
        average([x, x * 3], [y])
        pushes += 1
        del x
        y += 1
    show("bulk", y.sum().asscalar())
    mx.nd.waitall()
    # versions count writes; urgent operations come first; the bulk size is the thread's
    show("versions", *(lib.foreign_version(a.handle) for a in (mean, y, bad)))
    show("order", lib.foreign_order())
    with mx.engine.bulk(6):
        show("bulk size", lib.foreign_bulk_size())
    show("bulk size", lib.foreign_bulk_size())
    bulk_sizes()
    lib.foreign_stop()
    # an operation can be complete just before its body returns and its parameter is dropped
    for _ in range(6000):
        if lib.foreign_deleted() == pushes:
            break
        time.sleep(0.01)
    if lib.foreign_deleted() != pushes:
        raise SystemExit("%d of %d parameters were deleted" % (lib.foreign_deleted(), pushes))
    print("all operations done", flush=True)
    a, b = mx.nd.ones((16,)), mx.nd.ones((16,))
    mx.nd.waitall()
    handle, a.handle = a.handle, None       # it is freed there
    if not lib.foreign_exit(handle, b.handle):
        raise SystemExit("an array is freed at exit before the operations are done")


if __name__ == "__main__":
    main()
