#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training with MXNet's parameter server on this machine, timed: two workers, one server.

bench.py uses Cluster.  As a program, dist_bench.py [ROUNDS [FOLDER]] shows whether priorities let
transfers overlap with layers: Gluon's trainer gives the transfer of array i the priority -i, so the
first layers go first.  It trains a network of wide layers twice, in turns of a few steps, with
these priorities and with 0 for all, records the first worker of each with MXNet's profiler, and
prints what the traces say.  They are kept in FOLDER, for chrome://tracing or ui.perfetto.dev.
On MXNet's own engine a trace has no names for the ops of a backward pass, so this is for pawl.
"""

import json
import os
import statistics
import sys
import tempfile
import time

import dist
from compare import interval

BATCH = 32
WIDE = 512
LAYERS = 6
STEPS = 10    # of one turn


def wide_net():
    import mxnet as mx
    from mxnet import gluon

    net = gluon.nn.HybridSequential()
    for _ in range(LAYERS):
        net.add(gluon.nn.Dense(WIDE, activation="relu"))
    net.add(gluon.nn.Dense(10))
    mx.random.seed(5)
    net.initialize(mx.init.Xavier())
    return net


class Cluster:
    """All nodes of a training; its workers do steps when they are told."""

    def __init__(self, *what):
        self.procs = dist.start([os.path.abspath(__file__), "node", *what])
        self.workers = [p for role, p in self.procs if role == "worker"]

    def steps(self, n):
        """The seconds that the slower worker takes for n steps."""
        for p in self.workers:
            p.stdin.write("%d\n" % n)
            p.stdin.flush()
        answers = [p.stdout.readline() for p in self.workers]
        if not all(answers):
            raise SystemExit("a worker ended")
        return max(map(float, answers))

    def end(self):
        for p in self.workers:
            p.stdin.close()
        dist.await_all(self.procs)


def node(kind, name, flat="", trace=None):
    """A worker: reads how many steps to do, and answers with the seconds they took.

    The first line is for warming up, and not in the trace.
    """
    import mxnet as mx
    from mxnet import autograd, gluon, profiler
    from common import digits, make

    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    kv = mx.kv.create(kind)
    if flat == "flat":
        pushpull = kv.pushpull
        kv.pushpull = lambda key, value, out=None, priority=0: pushpull(key, value, out)
    x, y = (mx.nd.array(a[kv.rank * BATCH:(kv.rank + 1) * BATCH]) for a in digits())
    net = wide_net() if name == "wide" else make(name)
    net(x[:1])
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01}, kvstore=kv,
                            update_on_kvstore=True)
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    trace = trace if kv.rank == 0 else None
    if trace:
        profiler.set_config(profile_all=True, filename=trace)
    for i, line in enumerate(sys.stdin):
        if trace and i == 1:
            profiler.set_state("run")
        start = time.perf_counter()
        for _ in range(int(line)):
            with autograd.record():
                error = loss(net(x), y)
            error.backward()
            trainer.step(BATCH * dist.WORKERS)
        mx.nd.waitall()
        print(time.perf_counter() - start, file=out, flush=True)
    kv._barrier()
    if trace:
        profiler.set_state("stop")
        profiler.dump()


def spans(events, name):
    """The beginnings and ends of the ops of a name, in ms, in the order of their beginnings."""
    open_, found = {}, []
    for e in events:
        if e.get("name") != name or e["ph"] not in "be":
            continue
        if e["ph"] == "b":
            open_[e["id"]] = e["ts"]
        else:
            found.append((open_.pop(e["id"]) / 1e3, e["ts"] / 1e3))
    return sorted(found)


def steps_of(events):
    """Times after the end of a backward pass, of each step that another one of its turn follows."""
    forward, backward = spans(events, "FullyConnected"), spans(events, "_backward_FullyConnected")
    moves = spans(events, "KVStoreDistDefaultStoragePushPull")
    layers, arrays = LAYERS + 1, 2 * (LAYERS + 1)
    found = []
    for i in range(len(forward) // layers - 1):
        if i % STEPS == STEPS - 1:
            continue
        end = max(e for _, e in backward[i * layers:(i + 1) * layers])
        move = moves[i * arrays:(i + 1) * arrays]
        after = forward[(i + 1) * layers:(i + 2) * layers]
        found.append({
            "the first transfer begins": move[0][0] - end,
            "the last transfer ends": max(e for _, e in move) - end,
            "the next forward pass begins": after[0][0] - end,
            "the next forward pass ends": after[-1][1] - end,
            "from step to step": after[0][0] - forward[i * layers][0]})
    return found


def main():
    args = sys.argv[1:]
    role = os.environ.get("DMLC_ROLE")
    if role == "worker":
        return node(*args[1:])
    if role:
        import mxnet    # noqa: F401, runs the server or the scheduler, and exits
        raise SystemExit("%s returned" % role)
    rounds = int(args[0]) if args else 10
    kinds = {"first": "priorities", "flat": "all 0"}
    with tempfile.TemporaryDirectory() as tmp:
        folder = os.path.abspath(args[1]) if args[1:] else tmp
        traces = {k: os.path.join(folder, "trace-%s.json" % k) for k in kinds}
        clusters = {k: Cluster("dist_sync", "wide", k, traces[k]) for k in kinds}
        took = {k: [] for k in kinds}
        for c in clusters.values():
            c.steps(STEPS)
        for i in range(rounds):
            for k in list(kinds)[::1 if i % 2 else -1]:
                took[k].append(clusters[k].steps(STEPS) / STEPS * 1e3)
        found = {}
        for k, c in clusters.items():
            c.end()
            with open(traces[k]) as f:
                found[k] = steps_of(json.load(f)["traceEvents"])
    ratios = [b / a for a, b in zip(took["first"], took["flat"])]
    print("%d rounds of %d steps; without priorities a step takes %.2f times as long (%.2f to %.2f)"
          % ((rounds, STEPS, statistics.median(ratios)) + interval(ratios)))
    print("| ms after the end of a backward pass | %s |" % " | ".join(kinds.values()))
    print("| --- | --- | --- |")
    for what in found["flat"][0]:
        print("| %s | %s |" % (what, " | ".join(
            "%.2f (%.2f to %.2f)" % ((statistics.median(v),) + interval(v))
            for v in ([s[what] for s in found[k]] for k in kinds))))


if __name__ == "__main__":
    main()
