#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training with MXNet's parameter server on this machine: a scheduler, a server, two workers.

dist.py TYPE [lost]: TYPE is dist_sync or dist_async.  It starts itself four times, as
MXNet's tools do.  Each worker has its half of the digits; the server has the optimizer.  With
"lost" the second worker is killed in the middle: the other nodes must stay, as the first worker
waits for the second one's gradients.
"""

import os
import signal
import socket
import subprocess
import sys
import time

WORKERS = 2
STEPS = 12
LOST_AFTER = 4


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def worker(kind, lost):
    import mxnet as mx
    from mxnet import autograd, gluon
    from common import digits, make, show

    kv = mx.kv.create(kind)
    rank, n = kv.rank, kv.num_workers
    if n != WORKERS:
        raise SystemExit("%d workers, not %d" % (n, WORKERS))
    x, y = (mx.nd.array(a[rank * 256:(rank + 1) * 256]) for a in digits())
    net = make("digits")
    net(x[:1])                          # makes the weights
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore=kv,
                            update_on_kvstore=True)
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    first = None
    for step in range(STEPS):
        if lost and rank == 1 and step == LOST_AFTER:
            os.kill(os.getpid(), signal.SIGKILL)
        with autograd.record():
            error = loss(net(x), y).mean()
        error.backward()
        trainer.step(1)
        if first is None:
            first = error.asscalar()
    kv._barrier()
    last = loss(net(x), y).mean().asscalar()
    if not last < first:
        raise SystemExit("worker %d learned nothing: %f, %f" % (rank, first, last))
    if kind == "dist_sync":
        # the sum of both gradients has one value, whatever the order of the workers
        show("worker %d" % rank, first, last)
        if rank == 0:
            show("weights", *(p.data().sum().asscalar()
                              for p in net.collect_params().values()))
    else:
        print("worker %d learned" % rank, flush=True)


def start(argv):
    """Start argv as each node, as MXNet's tools do: pairs of a role and a process."""
    env = dict(os.environ, DMLC_PS_ROOT_URI="127.0.0.1", DMLC_PS_ROOT_PORT=str(free_port()),
               DMLC_NUM_WORKER=str(WORKERS), DMLC_NUM_SERVER="1", DMLC_INTERFACE="lo",
               DMLC_NODE_HOST="127.0.0.1")
    return [(role, subprocess.Popen([sys.executable, *argv], env=dict(env, DMLC_ROLE=role),
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            for role in ["scheduler", "server"] + ["worker"] * WORKERS]


def await_all(procs):
    """What they print, line by line, when all have ended."""
    out = []
    for role, p in procs:
        out += p.stdout.read().splitlines()
        if p.wait():
            raise SystemExit("%s: status %d" % (role, p.returncode))
    return out


def main():
    kind, lost = sys.argv[1], sys.argv[2:] == ["lost"]
    role = os.environ.get("DMLC_ROLE")
    if role == "worker":
        return worker(kind, lost)
    if role:
        import mxnet    # noqa: F401, runs the server or the scheduler, and exits
        raise SystemExit("%s returned" % role)
    # a time limit must not leave the nodes behind
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("too slow"))
    procs = start(sys.argv)
    try:
        if lost:
            dead = None
            while dead is None:
                time.sleep(0.1)
                dead = next((p for r, p in procs if r == "worker" and p.poll() is not None),
                            None)
                if any(p.poll() is not None for r, p in procs if r != "worker"):
                    raise SystemExit("a %s ended" % "server or scheduler")
            if dead.returncode != -signal.SIGKILL:
                raise SystemExit("a worker ended by itself: %d" % dead.returncode)
            time.sleep(2)
            alive = [r for r, p in procs if p.poll() is None]
            print("after the loss there are:", *alive, flush=True)
            return
        print("\n".join(sorted(await_all(procs))), flush=True)
        print("all nodes ended", flush=True)
    finally:
        for _, p in procs:
            p.kill()
            p.wait()


if __name__ == "__main__":
    main()
