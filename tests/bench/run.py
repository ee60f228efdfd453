#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pawl beside its peers: runs the bench-* binaries in turns and compares.

Every figure comes from a process of its own: two OpenMP libraries do not fit in
one, and no engine inherits the memory of another.  In a round each engine has one
turn per test, in an order that moves on by one each round; so what disturbs the
machine for a while disturbs all, and ratios are taken inside a round.  Results are
checked against a serial run by the binaries; a wrong one fails the whole run.
"""

import argparse
import collections
import contextlib
import json
import os
import platform
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

SHAPES = ["chain", "indep", "readers", "random", "stencil", "cholesky"]
# a process that uses more CPU than this share of the idle time does not sleep
MAX_AWAKE = 0.2
LATENCY = ["ping", "ping-w", "wake", "wake-w"]
PUSHERS = [1, 2, 4]
BODIES = [0, 300, 1000]

TBB = ", oneTBB"
# Tests made of rows: (what the row is called, engine, test of the binary, its options).
OWN = [(f"{test} {threads}{name}", engine, test, ["--threads", threads, "--reps", 5])
       for engine, name, tests in (("pawl-1", "", ("own", "own2", "shared", "push")),
                                   ("tbb-group-2", TBB, ("own", "shared")))
       for test in tests for threads in (1, 2)]
OWN += [(f"{test} 2{name}", engine, test, ["--threads", 2, "--reps", 5])
        for engine, name, tests in (("pawl-1", "", ("own-each", "own2-each", "push-each")),
                                    ("tbb-group-2", TBB, ("own-each",)))
        for test in tests]
OTHERS = [(f"{test} {n}{name}", engine, test, ["--others", n, "--reps", 5])
          for engine, name, tests in (("pawl-1", "", (("gone", 16), ("gone", 64), ("gone", 250),
                                                      ("idle", 64), ("complete-gone", 250))),
                                      ("tbb-group-2", TBB, (("gone", 250), ("idle", 64))))
          for test, n in tests]
CROWD = [(f"{p} x {w}{name}", engine, "pushers", ["--threads", p, "--workers", w])
         for engine, name in (("pawl-1", ""), ("tbb-group-2", TBB))
         for p, w in ((1, 1), (1, 2), (2, 1), (2, 2))]
CROWD += [(f"2 of 1 x 1{name}", engine, "pushers-each", ["--threads", 2, "--workers", 1])
          for engine, name in (("pawl-1", ""), ("tbb-group-2", TBB))]
TUNED = [(f"{w} worker{'s' * (w > 1)}, window {n}, {policy}", "pawl-help",
          ["--threads", w + 1, "--window", n, "--policy", policy])
         for w in (1, 2) for n in (128, 1024) for policy in ("block",)]
DEFAULT = [(f"{name}: {shape}", engine, shape, extra)
           for name, engine, extra in [("default", "pawl-default", [])] + TUNED
           for shape in SHAPES]
# one thread with a short backlog, which is its best; two as they are
ONE = ["--window", 128]
BODY = [(f"{engine}, {ns} ns: {shape}", engine, shape, ["--body", ns] + extra)
        for ns in BODIES
        for engine, extra in (("pawl-1", ONE), ("pawl-help", []), ("pawl-default", []))
        for shape in SHAPES]
HOST = [("completion to callback", "pawl-help", "tell", []),
        ("completions, one thread", "pawl-1", "collect", []),
        ("completions, two threads", "pawl-help", "collect", []),
        ("C++ / C, one thread", "pawl-1", "lambda", []),
        ("C++ / C, two threads", "pawl-help", "lambda", [])]
LAMBDAS = {"pointer": "a pointer", "words": "three words",
           "owner": "three words and an owner"}
# (feature, test of tell.c); a completion is the "collect" of HOST
FEATURES = [("a ticket", "ticket"), ("a deadline that does not pass", "deadline"),
            ("a group", "group"), ("a cost", "cost"),
            ("a group with limits, and a cost", "limit"), ("a trace runs", "trace"),
            ("a recording is made", "record")]
FEATURE = [(f"{label}, {threads}", engine, f"with-{test}", [])
           for threads, engine in (("one thread", "pawl-1"), ("two threads", "pawl-help"))
           for label, test in FEATURES]
# (the ops, test of launch.c)
GRAPHS = [("chain, 64 ops", "chain"), ("fan, 64 ops", "fan"),
          ("fan with vars of the launch", "private"), ("cholesky step, 36 ops", "cholesky")]
GRAPH = [(f"{label}, {threads}", engine, f"graph-{test}", [])
         for threads, engine in (("one thread", "pawl-1"), ("two threads", "pawl-help"))
         for label, test in GRAPHS]
ROWS = {"own": OWN, "others": OTHERS, "pushers": CROWD, "default": DEFAULT, "body": BODY,
        "host": HOST, "feature": FEATURE, "graph": GRAPH}
TESTS = SHAPES + LATENCY + ["mpush", "metg"] + list(ROWS)

# The figures asked for, and who counts as a peer in them.
TWIN2, PAWL2, PAWL1 = "twin-2w", "pawl-help", "pawl-1"
PEERS2 = ["gomp-2", "gomp-active-2", "libomp-2", "libomp-active-2", "tbb-group-2", "tbb-flow-2"]
PEERS1 = ["gomp-1", "libomp-1", "tbb-group-1", "tbb-flow-1", "starpu-1"]
# from this share of ops that run inside their own push on, a test is no test of queueing
MAX_IN_PUSH = 0.5
MAX_TWIN, MAX_PEER2, MAX_PEER1, MAX_METG = 0.2, 0.6, 1.0, 0.6
MAX_LINES, MAX_TAIL, MAX_SELF_NS = 1.5, 4.0, 100.0
# what a second thread, others that came and went, and settings may change: ratios
MAX_OWN, MAX_SHARED, MIN_PUSH, MAX_OTHERS, MAX_DEFAULT = 1.2, 1.2, 1.7, 1.1, 1.2
MAX_CROWD, MAX_BODY, MAX_EMPTY = 1.2, 1.1, 1.3
# an event loop: beside uv_queue_work(), and throughput with completions beside without
MAX_TELL, MIN_COLLECT = 0.7, 0.85
MAX_LAMBDA = 1.05
MAX_GRAPH = 0.4        # a launch beside pushes of its ops, until all are complete

QUICK_SKIP = ("starpu", "libomp-active", "pawl-naive")


class Failed(Exception):
    """A binary ended badly: a wrong result, or it could not run."""


def median(values):
    return statistics.median(values) if values else None


def fmt(value, digits=3):
    """A number in few digits, or a dash."""
    if value is None:
        return "–"
    if value >= 10 ** digits or value == int(value):
        return str(int(round(value)))
    return f"{value:.{digits}g}"


def table(title, head, rows, notes=()):
    print(f"\n{title}")
    widths = [max(len(str(r[i])) for r in [head] + rows) for i in range(len(head))]
    for k, row in enumerate([head] + rows):
        cells = [str(row[0]).ljust(widths[0])]
        cells += [str(c).rjust(w) for c, w in zip(row[1:], widths[1:])]
        print("  " + "  ".join(cells).rstrip())
        if k == 0:
            print("  " + "-" * (sum(widths) + 2 * (len(widths) - 1)))
    for note in notes:
        print(f"  {note}")


def read(path):
    try:
        with open(path, encoding="utf-8") as f:
            return f.read().strip()
    except OSError:
        return ""


def commit():
    here = os.path.dirname(os.path.abspath(__file__))
    if not shutil.which("git"):
        return "unknown"
    p = subprocess.run(["git", "-C", here, "describe", "--always", "--dirty", "--exclude=*"],
                       capture_output=True, text=True, check=False)
    return p.stdout.strip() or "unknown"


def machine(bindir):
    cpu = re.search(r"^(?:model name|Hardware|Processor)\s*:\s*(.*)$", read("/proc/cpuinfo"), re.M)
    facts = {
        "cpu": cpu.group(1) if cpu else platform.machine(),
        "arch": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
        "virtual": " hypervisor" in read("/proc/cpuinfo"),
        "governor": read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or None,
        "clocksource": read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
                       or None,
        "load": os.getloadavg(),
        "commit": commit(),
    }
    build = read(os.path.join(bindir, "build.json"))
    if build:
        facts["build"] = json.loads(build)
    return facts


def describe(facts):
    return (f"{facts['cpu']}, {facts['cores']} cores"
            f"{', a virtual machine' if facts['virtual'] else ''}, Linux {facts['kernel']}, "
            f"{facts.get('build', {}).get('cc', '')}, commit {facts['commit']}")


class CpuUse:
    """How much of the machine others used meanwhile, and what the host took."""

    def __init__(self):
        self.start = self.now()

    @staticmethod
    def now():
        line = [int(x) for x in read("/proc/stat").split("\n", 1)[0].split()[1:9]]
        own = 0.0
        for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF):
            use = resource.getrusage(who)
            own += use.ru_utime + use.ru_stime
        hz = os.sysconf("SC_CLK_TCK")
        busy = sum(line[:3]) + line[5] + line[6]
        return {"busy": busy / hz, "steal": line[7] / hz, "own": own, "at": time.monotonic(),
                "all": sum(line) / hz}

    def result(self):
        end = self.now()
        d = {k: end[k] - self.start[k] for k in end}
        total = d["all"] or 1
        return {"others": max(0.0, (d["busy"] - d["own"]) / total), "steal": d["steal"] / total,
                "seconds": d["at"]}


class Bench:
    def __init__(self, args):
        self.args = args
        self.engines = {}       # name -> facts and binary, in the order of the tables
        self.data = collections.defaultdict(list)    # (engine, test) -> [result or None]
        self.dropped = {}       # (engine, test) -> why
        self.in_push = {}       # (engine, test) -> share of ops that ran inside their own push
        self.lines = []
        self.hands = []
        self.rounds = 0
        self.find()

    def find(self):
        order = ["pawl", "twin", "gomp", "libomp", "tbb", "starpu"]
        for lib in order:
            path = os.path.join(self.args.bin, "bench-" + lib)
            if not os.access(path, os.X_OK):
                continue
            out = subprocess.run([path, "--list"], capture_output=True, text=True, check=True)
            for line in out.stdout.splitlines():
                e = json.loads(line)
                e["binary"] = path
                self.engines[e["engine"]] = e
        if not self.engines:
            raise Failed(f"no bench-* in {self.args.bin}: make -f tests/bench/Makefile bench-build")

    def wanted(self, name):
        if self.args.only:
            return any(name == o or name.startswith(o + "-") for o in self.args.only)
        return not (self.args.quick and name.startswith(QUICK_SKIP))

    def names(self, threads=None):
        return [n for n, e in self.engines.items()
                if self.wanted(n) and threads in (None, e["threads"])]

    def command(self, name, test, extra):
        e = self.engines[name]
        cmd = [e["binary"], "--engine", name, "--test", test, "--seed", str(self.args.seed)]
        if self.args.pin:
            cmd.append("--pin")
        if name.startswith("pawl"):
            cmd += self.args.pawl_args.split()
        return cmd + [str(x) for x in extra]

    def run(self, name, test, extra, limit, key=None):
        """One process: its result, or None when it was too slow."""
        key = key or (name, test if test != "mpush" else f"mpush-{extra[1]}")
        if key in self.dropped:
            return None
        began = time.monotonic()
        try:
            p = subprocess.run(self.command(name, test, extra), capture_output=True, text=True,
                               timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            self.dropped[key] = "slow"
            self.data[key].append(None)
            return None
        took = time.monotonic() - began
        if p.returncode or not p.stdout.strip():
            raise Failed(f"{' '.join(p.args)}\n  exit {p.returncode}: {p.stderr.strip()}")
        results = [json.loads(text) for text in p.stdout.splitlines()]
        r = sorted(results, key=lambda r: r.get("ns_op", 0))[len(results) // 2]
        r["took"] = round(took, 3)
        if r.get("unsupported"):
            self.dropped[key] = "unsupported"
            return None
        self.data[key].append(r)
        if r.get("hangs"):
            self.dropped[key] = "hangs"
        elif took > self.args.slow and len(self.data[key]) >= 2 and key[1] not in ROWS:
            self.dropped[key] = "enough"
        return r

    def watch(self):
        """Which ops run inside their own push: runs of their own, no time is taken of them."""
        a = self.args
        tests = [(t, t, ["--ops", a.ops]) for t in SHAPES]
        tests += [(t, t, ["--samples", 1000 if t.startswith("ping") else 50]) for t in LATENCY]
        tests += [("mpush", f"mpush-{p}", ["--pushers", p, "--ops", a.ops]) for p in PUSHERS]
        for test, key, extra in tests:
            for name in self.names() if test in a.tests else []:
                if self.dropped.get((name, key), "enough") != "enough":
                    continue    # no figure to be judged by it
                progress(f"watch {key} {name}")
                try:
                    p = subprocess.run(self.command(name, test, extra + ["--watch"]), text=True,
                                       capture_output=True, timeout=a.limit, check=False)
                except subprocess.TimeoutExpired:
                    continue
                if p.returncode or not p.stdout.strip():
                    raise Failed(f"{' '.join(p.args)}\n  exit {p.returncode}: {p.stderr.strip()}")
                r = json.loads(p.stdout.splitlines()[-1])
                if r.get("watched"):
                    self.in_push[name, key] = r["in_push"] / r["watched"]

    def queues(self, name, test):
        return self.in_push.get((name, test), 0) < MAX_IN_PUSH

    def machine(self, test, results):
        """What the machine does without any engine: line, hand."""
        any_binary = next(iter(self.engines.values()))["binary"]
        p = subprocess.run([any_binary, "--test", test], capture_output=True, text=True,
                           timeout=60, check=True)
        r = json.loads(p.stdout)
        if not r.get("unsupported"):
            results.append(r)

    def turns(self, rnd):
        names = self.names()
        k = rnd % len(names)
        return names[k:] + names[:k]

    def rows(self, test, rnd):
        """One turn of each row, in an order that moves on."""
        rows = [r for r in ROWS[test] if r[1] in self.engines and self.wanted(r[1])]
        k = rnd % len(rows) if rows else 0
        for label, engine, name, extra in rows[k:] + rows[:k]:
            self.run(engine, name, ["--ops", self.args.ops] + extra, self.args.limit,
                     (label, test))
            progress(f"round {rnd + 1}/{self.args.rounds} {test} {label}")

    def everything(self):
        a = self.args
        began = time.monotonic()
        for rnd in range(a.rounds):
            spent = time.monotonic() - began
            if rnd and spent + spent / rnd > a.budget:
                print(f"Only {rnd} of {a.rounds} rounds fit into {a.budget} s.")
                break
            self.rounds = rnd + 1
            for test in [t for t in SHAPES if t in a.tests]:
                self.machine("hand", self.hands)
                for name in self.turns(rnd):
                    self.run(name, test, ["--ops", a.ops], a.limit)
                    progress(f"round {rnd + 1}/{a.rounds} {test} {name}")
            if rnd < a.latency_rounds and set(LATENCY) & set(a.tests):
                self.machine("line", self.lines)
                for test in [t for t in LATENCY if t in a.tests]:
                    samples = a.samples if test.startswith("ping") else a.wake_samples
                    for name in self.turns(rnd):
                        self.run(name, test, ["--samples", samples], a.limit + 10)
                        progress(f"round {rnd + 1}/{a.rounds} {test} {name}")
            if "mpush" in a.tests:
                for pushers in PUSHERS:
                    for name in self.turns(rnd):
                        self.run(name, "mpush", ["--pushers", pushers, "--ops", a.ops],
                                 a.limit + 10)
                        progress(f"round {rnd + 1}/{a.rounds} mpush {pushers} {name}")
            if "metg" in a.tests and rnd < a.metg_rounds:
                for name in self.turns(rnd):
                    if self.engines[name]["threads"] != 2:
                        continue
                    if a.quick and name not in (PAWL2, "tbb-group-2", TWIN2):
                        continue
                    self.run(name, "metg", ["--reps", a.metg_reps], 60)
                    progress(f"round {rnd + 1}/{a.rounds} metg {name}")
            for test in [t for t in ROWS if t in a.tests]:
                self.rows(test, rnd)
        self.watch()
        progress("")

    # -- results --

    def values(self, name, test, field="ns_op"):
        return [r[field] for r in self.data.get((name, test), [])
                if r and r.get(field) is not None]

    def mid(self, name, test, field="ns_op"):
        return median(self.values(name, test, field))

    def ratio(self, a, b, test, field="ns_op"):
        """Median over the rounds in which both ran."""
        pairs = [(x, y) for x, y in zip(self.data.get((a, test), []),
                                        self.data.get((b, test), [])) if x and y]
        pairs = [(x[field], y[field]) for x, y in pairs if x.get(field) and y.get(field)]
        return median([x / y for x, y in pairs])

    def best(self, peers, test, field="ns_op"):
        have = [(self.mid(p, test, field), p) for p in peers
                if self.mid(p, test, field) is not None]
        return min(have)[1] if have else None

    def cell(self, name, test):
        v = self.values(name, test)
        if v:
            return f"{fmt(median(v))} ({fmt(min(v))})" + ("" if self.queues(name, test) else " *")
        if self.dropped.get((name, test)) == "slow":
            return f"> {fmt(self.args.limit * 1e9 / self.args.ops / 2)}"
        return "–"

    def named(self, name, test):
        return name + ("" if self.queues(name, test) else " *") if name else "–"

    def spread(self):
        s = []
        for (_, test), results in self.data.items():
            v = [r["ns_op"] for r in results if r and r.get("ns_op")]
            if test in SHAPES and len(v) > 1:
                s.append((max(v) - min(v)) / median(v))
        return median(s)


@contextlib.contextmanager
def busy(wanted):
    """A program beside it that never sleeps; it ends with this one, however this one ends."""
    if not wanted:
        yield
        return
    loop = f"import os\nwhile os.getppid() == {os.getpid()}: sum(range(100000))"
    with subprocess.Popen([sys.executable, "-c", loop]) as p:
        try:
            yield
        finally:
            p.kill()


def progress(text):
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K" + text)
        sys.stderr.flush()


def shapes_tables(b, targets):
    tests = [t for t in SHAPES if t in b.args.tests]
    if not tests:
        return
    for threads in (2, 1):
        names = b.names(threads)
        rows = [[n] + [b.cell(n, t) for t in tests] for n in names]
        notes = []
        if not all(b.queues(n, t) for n in names for t in tests):
            notes.append("* half of the ops or more ran inside their own push"
                         + (": not compared with" if threads == 1 else ""))
        if threads == 1 and "twin-1w" in names:
            notes.append("twin-1w and starpu-1 are one worker and a pusher")
        if rows:
            word = "Two threads" if threads == 2 else "One thread"
            if threads == 2 and b.hands:
                hands = [r["ns"] for r in b.hands]
                notes.append("an op handed to the other core without any engine: "
                             f"{fmt(median(hands))} ({fmt(min(hands))})")
            table(f"{word}: ns per op, median (min) of {b.rounds} rounds, "
                  f"{b.args.ops} ops", ["engine"] + tests, rows, notes)
    me = {}
    for t in tests:
        best2, best1 = b.best(PEERS2, t), b.best([p for p in PEERS1 if b.queues(p, t)], t)
        me[t] = (b.ratio(PAWL2, TWIN2, t),
                 b.ratio(PAWL2, best2, t) if best2 else None, best2,
                 b.ratio(PAWL1, best1, t) if best1 else None, best1)
        targets.append((f"{t}: {PAWL2} / {TWIN2}", me[t][0], MAX_TWIN, ""))
        targets.append((f"{t}: {PAWL2} / best two-thread peer", me[t][1], MAX_PEER2, best2))
        targets.append((f"{t}: {PAWL1} / best one-thread peer that queues", me[t][3], MAX_PEER1,
                        best1))
    if PAWL2 in b.names() or PAWL1 in b.names():
        table("Ratios (median of the rounds' ratios; smaller is better)",
              ["pawl / other", "target"] + tests,
              [[f"{PAWL2} / {TWIN2}", f"<= {MAX_TWIN}"] + [fmt(me[t][0]) for t in tests],
               [f"{PAWL2} / best of two threads", f"<= {MAX_PEER2}"]
               + [fmt(me[t][1]) for t in tests],
               ["  which is", ""] + [b.named(me[t][2], t) for t in tests],
               [f"{PAWL1} / best of one thread that queues", f"<= {MAX_PEER1}"]
               + [fmt(me[t][3]) for t in tests],
               ["  which is", ""] + [b.named(me[t][4], t) for t in tests]])
    rows = [[n] + [fmt(b.ratio(n, TWIN2, t)) for t in tests] for n in b.names(2) if n != TWIN2]
    if TWIN2 in b.names() and rows:
        table(f"Two threads as a share of {TWIN2}", ["engine"] + tests, rows)


def in_push_table(b):
    tests = [t for t in SHAPES + LATENCY + [f"mpush-{p}" for p in PUSHERS]
             if any(test == t for _, test in b.in_push)]
    rows = [[n] + [f"{b.in_push[n, t]:.0%}" if (n, t) in b.in_push else "–" for t in tests]
            for n in b.names() if any(b.in_push.get((n, t)) for t in tests)]
    if rows:
        table("Ops that ran inside their own push: share of all; the other engines have none",
              ["engine"] + tests, rows)


def latency_tables(b, targets):
    tests = [t for t in LATENCY if t in b.args.tests]
    if not tests:
        return
    line = median([r["ns"] for r in b.lines])
    clock = median([r["clock_ns"] for r in b.lines])
    what = {"ping": "idle engine, again at once; the pusher waits with the engine",
            "ping-w": "the same, but a worker must start it: the pusher only looks",
            "wake": "after 1 ms idle; the pusher waits with the engine",
            "wake-w": "after 1 ms idle; a worker must start it"}
    for t in tests:
        rows = []
        idle = t.startswith("wake")
        for n in b.names():
            if not b.values(n, t, "min"):
                if b.dropped.get((n, t)) == "slow":
                    rows.append([n] + ["slow"] * (6 if idle else 5))
                continue
            rows.append([n] + [fmt(b.mid(n, t, f)) for f in ("p50", "p99", "p99_9")]
                        + [fmt(max(b.values(n, t, "max"))),
                           fmt(b.mid(n, t, "p50") / line) if line else "–"])
            if idle:
                rows[-1].append(f"{b.mid(n, t, 'idle_cpu'):.2f}")
        if rows:
            table(f"{t}: ns from push to the start of the body ({what[t]})",
                  ["engine", "p50", "p99", "p99.9", "max", "lines"] + ["awake"] * idle, rows,
                  ["awake: CPU time of the process in the idle time, as a share of it"] * idle)
    if line:
        table("One line from core to core: ns one way", ["", "p50", "p90", "reading the clock"],
              [["line", fmt(line), fmt(median([r["p90"] for r in b.lines])), fmt(clock)]],
              ["the clock is not taken off"])
    p50, p999 = b.mid(PAWL2, "ping-w", "p50"), b.mid(PAWL2, "ping-w", "p99_9")
    targets.append((f"ping-w: {PAWL2} p50 in line transfers",
                    p50 / line if p50 and line else None, MAX_LINES, ""))
    targets.append((f"ping-w: {PAWL2} p99.9 / p50", p999 / p50 if p50 and p999 else None,
                    MAX_TAIL, ""))
    targets.append((f"ping: {PAWL1} p50 in ns (the waiter runs it)", b.mid(PAWL1, "ping", "p50"),
                    MAX_SELF_NS, ""))
    for t in ("wake", "wake-w"):
        # a peer whose threads look all the time does not wake from sleep
        sleeps = [n for n in PEERS2 + ["starpu-2"] if (b.mid(n, t, "idle_cpu") or 0) < MAX_AWAKE]
        peer = b.best(sleeps, t, "p50")
        targets.append((f"{t}: {PAWL2} / best peer that sleeps, p50",
                        b.ratio(PAWL2, peer, t, "p50") if peer else None, 1.0, peer))


def mpush_table(b):
    if "mpush" not in b.args.tests:
        return
    rows = []
    for n in b.names():
        row = [n]
        for p in PUSHERS:
            key = f"mpush-{p}"
            v = b.values(n, key)
            why = b.dropped.get((n, key))
            if any(r and r.get("hangs") for r in b.data.get((n, key), [])):
                row.append("hangs")
            elif why == "slow":
                row.append("hangs?")
            elif why == "unsupported":
                row.append("one pusher")
            else:
                row.append(fmt(1e3 / median(v)) if v else "–")
        rows.append(row)
    table("mpush: million ops per second, by pushing threads", ["engine"] + PUSHERS, rows,
          ["every result is shown to be a serial order that keeps each pusher's own"])


def metg_table(b, targets):
    if "metg" not in b.args.tests:
        return
    rows = []
    for n in b.names(2):
        v = b.values(n, "metg", "ns")
        if v:
            rows.append([n, fmt(median(v)), fmt(min(v))])
        elif b.data.get((n, "metg")):
            rows.append([n, "over 400 µs", ""])
    if rows:
        table("METG(50 %): smallest op in ns with half the ideal speed of two cores, on stencil",
              ["engine", "median", "min"], rows)
    peer = b.best(PEERS2, "metg", "ns")
    targets.append((f"metg: {PAWL2} / best peer",
                    b.ratio(PAWL2, peer, "metg", "ns") if peer else None, MAX_METG, peer))


def own_table(b, targets):
    """ns per op of a thread that pushes ops and runs them; the ratios of the rounds."""
    rows = []

    def add(label, what, other=None, limit=None, field="ns_op"):
        v = b.values(label, "own")
        ratio = b.ratio(label, other, "own", field) if other else None
        if v:
            rows.append([label, what, fmt(median(v)), fmt(min(v)),
                         f"{fmt(ratio)} of {other}" if ratio else "",
                         f"<= {limit}" if limit else ""])
        if limit and ratio:
            targets.append((f"{label} / {other}", ratio, limit, ""))

    for name in ("", TBB):
        most = None if name else MAX_OWN
        add(f"own 1{name}", "one thread, each op writes its var")
        add(f"own 2{name}", "two threads, one engine", f"own 1{name}", most)
        add(f"own-each 2{name}", "two threads, an engine each", f"own 1{name}")
        add(f"own2 1{name}", "as own, and reads a second own var")
        add(f"own2 2{name}", "two threads, one engine", f"own2 1{name}", most)
        add(f"own2-each 2{name}", "two threads, an engine each", f"own2 1{name}")
        add(f"shared 1{name}", "as own, and reads a var that all threads read")
        add(f"shared 2{name}", "two threads, one engine",
            f"shared 1{name}" if name else "own2 2", None if name else MAX_SHARED)
    add("push 1", "push alone, nothing runs meanwhile")
    add("push 2", "two threads, vars of their own", "push 1")
    rate = b.ratio("push 2", "push 1", "own", "mops")
    if rate:
        rows[-1][4] = f"{fmt(rate)} times the rate"
        rows[-1][5] = f">= {MIN_PUSH}"
        targets.append(("push: rate of one thread / of two", 1 / rate, 1 / MIN_PUSH, ""))
    add("push-each 2", "two threads, an engine each: what the machine allows")
    rate = b.ratio("push-each 2", "push 1", "own", "mops")
    if rate:
        rows[-1][4] = f"{fmt(rate)} times the rate of push 1"
    table("Threads that push and run ops of their own: ns per op of a thread",
          ["test", "what", "median", "min", "ratio", "target"], rows)


def others_table(b, targets):
    rows = []
    for label, engine, test, _ in OTHERS:
        with_, without = b.mid(label, "others"), b.mid(label, "others", "without")
        ratio = b.mid(label, "others", "ratio")
        if not ratio:
            continue
        ours = engine == "pawl-1"
        rows.append([label, fmt(with_), fmt(without), fmt(ratio), f"<= {MAX_OTHERS}" * ours])
        if ours:
            targets.append((label, ratio, MAX_OTHERS, ""))
    table("One thread, with others and without: ns per op; complete-gone: per pawl_complete()",
          ["others", "with", "without", "ratio", "target"], rows,
          ["gone: so many threads pushed once and ended; idle: they sleep"])


def pushers_table(b, targets):
    rows = [[label, fmt(b.mid(label, "pushers", "mops")),
             fmt(b.ratio(label, "2 of 1 x 1" + TBB * label.endswith(TBB), "pushers",
                         "mops"))]
            for label, _, _, _ in CROWD if b.values(label, "pushers")]
    table("Pushing threads x workers, vars of their own: million ops per second",
          ["pushers x workers", "rate", "of two engines'"], rows,
          ["2 of 1 x 1: two engines, with a pushing thread and a worker each"])
    rate = b.ratio("2 of 1 x 1", "2 x 2", "pushers", "mops")
    targets.append(("pushers: rate of two engines / of 2 x 2", rate, MAX_CROWD, ""))


def default_table(b, targets):
    names = ["default"] + [name for name, _, _ in TUNED]
    rows = [[n] + [fmt(b.mid(f"{n}: {t}", "default")) for t in SHAPES] for n in names]
    best = {t: b.best([f"{n}: {t}" for n in names[1:]], "default") for t in SHAPES}
    ratio = {t: b.ratio(f"default: {t}", best[t], "default") for t in SHAPES}
    rows.append(["default / best setting"] + [fmt(ratio[t]) for t in SHAPES])
    table(f"pawl_engine_create(NULL) beside settings: ns per op, {b.args.ops} ops",
          ["engine"] + SHAPES, rows, [f"target: the default within {MAX_DEFAULT} of the best"])
    for t in SHAPES:
        targets.append((f"{t}: default / best setting", ratio[t], MAX_DEFAULT,
                        best[t].split(": ")[0] if best[t] else ""))


def body_table(b, targets):
    rows = []
    for ns in BODIES:
        one = [b.mid(f"pawl-1, {ns} ns: {t}", "body") for t in SHAPES]
        rows.append([f"{ns} ns, pawl-1, window 128: ns per op", ""] + [fmt(v) for v in one])
        for engine in ("pawl-help", "pawl-default"):
            limit = MAX_BODY if ns else MAX_EMPTY
            ratio = [b.ratio(f"{engine}, {ns} ns: {t}", f"pawl-1, {ns} ns: {t}", "body")
                     for t in SHAPES]
            rows.append([f"{ns} ns, {engine} / pawl-1", f"<= {limit}"]
                        + [fmt(v) for v in ratio])
            for t, v in zip(SHAPES, ratio):
                targets.append((f"{t}, {ns} ns: {engine} / pawl-1", v, limit, ""))
    table("Longer ops: two threads and one", ["body", "target"] + SHAPES, rows)


def host_table(b, targets):
    """What an event loop gets: see tell.c."""
    rows = []
    for label, _, test, _ in HOST:
        if test == "tell":
            for p in ("p50", "p99"):
                mine, uv = b.mid(label, "host", p), b.mid(label, "host", f"uv_{p}")
                ratio = b.mid(label, "host", f"ratio_{p}")
                if ratio:
                    rows.append([f"{label}, {p}, ns; libuv's thread pool", fmt(mine), fmt(uv),
                                 fmt(ratio), f"<= {MAX_TELL}"])
                    targets.append((f"{label}, {p} / uv_queue_work", ratio, MAX_TELL, ""))
        elif test == "lambda":
            for kind, what in LAMBDAS.items():
                ratio = b.mid(label, "host", f"ratio_{kind}")
                if not ratio:
                    continue
                rows.append([f"{label}: {what}, ns per op; in C", fmt(b.mid(label, "host", kind)),
                             fmt(b.mid(label, "host", f"c_{kind}")), fmt(ratio),
                             f"<= {MAX_LAMBDA}"])
                rows.append([f"{label}: {what}; in C, with a kept struct", "",
                             fmt(b.mid(label, "host", f"kept_{kind}")),
                             fmt(b.mid(label, "host", f"ratio_kept_{kind}")), ""])
                targets.append((f"{label}: {what}", ratio, MAX_LAMBDA, ""))
        elif b.mid(label, "host", "ratio"):
            ratio = b.mid(label, "host", "ratio")
            rows.append([f"{label}, ns per op; without", fmt(b.mid(label, "host")),
                         fmt(b.mid(label, "host", "without")), fmt(ratio),
                         f">= {MIN_COLLECT} of the rate"])
            targets.append((f"{label}: rate without / with", 1 / ratio, 1 / MIN_COLLECT, ""))
    table("An event loop that learns of completed ops", ["what", "pawl", "beside", "ratio",
                                                         "target"], rows)


def feature_table(b, targets):
    """What a feature adds to an op that uses it: see tell.c."""
    rows = []
    for label, _ in FEATURES:
        row = [label]
        for threads in ("one thread", "two threads"):
            name = f"{label}, {threads}"
            row += [fmt(b.mid(name, "feature", "without")), fmt(b.mid(name, "feature")),
                    fmt(b.mid(name, "feature", "ratio"))]
        rows.append(row)
    table("What a feature costs: an op that is pushed and run, ns",
          ["feature", "without, one thread", "with", "ratio", "without, two threads", "with",
           "ratio"], rows)


def graph_table(b, targets):
    """Ops launched as a graph, beside pushes of the same ops: see launch.c."""
    rows = []
    for label, _, _, _ in GRAPH:
        ratio = b.mid(label, "graph", "ratio")
        if not ratio:
            continue
        rows.append([label, fmt(b.mid(label, "graph", "without")), fmt(b.mid(label, "graph")),
                     fmt(ratio), f"<= {MAX_GRAPH}", fmt(b.mid(label, "graph", "ratio_call"))])
        targets.append((f"{label}: launch / pushes", ratio, MAX_GRAPH, ""))
    table("Ops launched as a graph, and pushed one by one: ns per op until all are complete",
          ["ops", "pushed", "launched", "ratio", "target", "ratio of the calls"], rows)


ROW_TABLES = {"own": own_table, "others": others_table, "pushers": pushers_table,
              "default": default_table, "body": body_table,
              "host": host_table, "feature": feature_table,
              "graph": graph_table}


def target_table(targets):
    rows, missed = [], 0
    for what, value, limit, peer in targets:
        verdict = "no figure" if value is None else "met" if value <= limit else "MISSED"
        missed += verdict == "MISSED"
        rows.append([what, fmt(value), f"<= {fmt(limit)}", verdict, peer or ""])
    if any(r[3] != "no figure" for r in rows):
        table("Targets", ["what", "figure", "target", "", "peer"], rows)
    return missed


def noise(facts, use, spread):
    bad = []
    if facts["load"][0] > 0.3 * facts["cores"]:
        bad.append(f"load average {facts['load'][0]:.2f} at the start")
    if use["others"] > 0.03:
        bad.append(f"others used {use['others']:.0%} of the CPUs")
    if use["steal"] > 0.01:
        bad.append(f"the host took {use['steal']:.1%}")
    if spread is not None and spread > 0.25:
        bad.append(f"rounds differ by {spread:.0%} (median of all tests)")
    return bad


def print_noise(bad, use, spread):
    print(f"\nTook {use['seconds']:.0f} s; spread between rounds "
          f"{'–' if spread is None else f'{spread:.0%}'}.")
    if bad:
        print("NOISY MACHINE: " + "; ".join(bad) + ". Do not quote these figures.")


# -- --count: what an op costs in instructions, calls, locks --

LOCKED = re.compile(r"^\s*([0-9a-f]+):\s+(?:lock |xchg\s+.*\()")


def locked_addresses(path, cache):
    if path not in cache:
        cache[path] = set()
        if shutil.which("objdump") and os.path.exists(path):
            out = subprocess.run(["objdump", "-d", "--no-show-raw-insn", path],
                                 capture_output=True, text=True, check=False).stdout
            for text in out.splitlines():
                m = LOCKED.match(text)
                if m:
                    cache[path].add(int(m.group(1), 16))
    return cache[path]


def callgrind(cmd, tmp, cache):
    """Instructions, and those of them that lock the bus (x86), of a whole process."""
    out = os.path.join(tmp, "callgrind.out")
    p = subprocess.run(["valgrind", "--tool=callgrind", "--dump-instr=yes",
                        "--compress-strings=no", "--compress-pos=no",
                        "--callgrind-out-file=" + out] + cmd,
                       capture_output=True, text=True, check=False, timeout=300)
    m = re.search(r"Collected : (\d+)", p.stderr)
    if p.returncode or not m:
        raise Failed("callgrind: " + p.stderr.strip()[-400:])
    locked, obj, skip = 0, set(), False
    with open(out, encoding="utf-8", errors="replace") as f:
        for text in f:
            if text.startswith("ob="):
                obj = locked_addresses(text[3:].strip(), cache)
            elif text.startswith("calls="):
                skip = True     # the next line is the callee's, inclusive
            elif text.startswith("0x"):
                if not skip:
                    at, _, cost = text.split()[:3]
                    if int(at, 16) in obj:
                        locked += int(cost)
                skip = False
    os.unlink(out)
    return {"instructions": int(m.group(1)),
            "locked": locked if platform.machine() == "x86_64" else None}


def preload(cmd, tmp, bindir):
    out = os.path.join(tmp, "count.json")
    env = dict(os.environ, LD_PRELOAD=os.path.join(bindir, "libcount.so"), BENCH_COUNT=out)
    p = subprocess.run(cmd, capture_output=True, text=True, env=env, check=False, timeout=60)
    if p.returncode:
        raise Failed("count: " + p.stderr.strip())
    return json.loads(read(out))


def strace(cmd, tmp):
    out = os.path.join(tmp, "strace.out")
    p = subprocess.run(["strace", "-f", "-c", "-o", out] + cmd, capture_output=True, text=True,
                       check=False, timeout=120)
    if p.returncode:
        raise Failed("strace: " + p.stderr.strip())
    total = re.search(r"^\s*100\.00\s+\S+\s+(?:\S+\s+)?(\d+)(?:\s+\d+)?\s+total$", read(out), re.M)
    if not total:
        raise Failed("strace: cannot read its table")
    return {"syscalls": int(total.group(1))}


def count_one(b, name, test, tmp, cache, tool):
    """Per op, as the difference of two runs that differ only in how many are pushed."""
    full, half = 20000, 10000
    got = []
    for n in (half, full):
        cmd = b.command(name, test, ["--ops", full, "--use", n, "--no-check"])
        if tool == "callgrind":
            serial = list(cmd)
            serial[serial.index("--engine") + 1] = "serial"
            r, s = callgrind(cmd, tmp, cache), callgrind(serial, tmp, cache)
            got.append({k: None if r[k] is None else r[k] - s[k] for k in r})
        elif tool == "preload":
            got.append(preload(cmd, tmp, b.args.bin))
        else:
            got.append(strace(cmd, tmp))
    d = full - half
    if test == "cholesky":      # the list comes in whole tiles and is a little shorter
        d = full_cholesky(full) - half
    return {k: None if got[0][k] is None else (got[1][k] - got[0][k]) / d for k in got[0]}


def full_cholesky(n):
    def ops(t):
        return t + t * (t - 1) + t * (t - 1) * (t - 2) // 6
    t = 1
    while ops(t + 1) <= n:
        t += 1
    return ops(t)


def counts(b):
    tests = [t for t in SHAPES if t in b.args.tests]
    result, cache = {}, {}
    tools = [("callgrind", shutil.which("valgrind"), lambda n: b.engines[n]["threads"] == 1),
             ("preload", os.path.exists(os.path.join(b.args.bin, "libcount.so")), lambda n: True),
             ("strace", shutil.which("strace"), lambda n: True)]
    names = [n for n in b.names() if not n.startswith("starpu") or b.args.only]
    with tempfile.TemporaryDirectory() as tmp:
        for name in names:
            for test in tests:
                r = result.setdefault(name, {}).setdefault(test, {})
                if name.startswith("gomp") and test in ("readers", "stencil") and not b.args.only:
                    continue    # its lists grow: minutes under valgrind
                for tool, there, fits in tools:
                    if there and fits(name):
                        progress(f"{tool} {name} {test}")
                        try:
                            r.update(count_one(b, name, test, tmp, cache, tool))
                        except (Failed, subprocess.TimeoutExpired) as err:
                            r[tool + "_error"] = str(err)
                            print(f"bench: {name} {test} {tool}: {str(err)[-200:]}",
                                  file=sys.stderr)
    progress("")
    for field, title in (("instructions", "Instructions per op, the work itself taken off "
                                          "(all threads together)"),
                         ("locked", "Locked instructions per op"),
                         ("malloc", "Calls for memory per op"),
                         ("lock", "Mutexes taken per op"),
                         ("cond", "Condition variable calls per op"),
                         ("syscalls", "System calls per op (strace slows threads down: "
                                      "sleeps are more frequent than without)")):
        rows = [[n] + [fmt(round(r[t][field], 4)) if r[t].get(field) is not None else "–"
                       for t in tests] for n, r in result.items()]
        rows = [r for r in rows if any(c != "–" for c in r[1:])]
        if rows:
            table(title, ["engine"] + tests, rows)
    return result


def arguments():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bin", help="folder of the bench-* binaries (default: out/ beside this file)")
    p.add_argument("--quick", action="store_true",
                   help="about a minute: fewer ops, engines, rounds")
    p.add_argument("--rounds", type=int, help="rounds (7; quick 3)")
    p.add_argument("--budget", type=int, default=570, metavar="SECONDS",
                   help="start no round that would not end by then (570)")
    p.add_argument("--ops", type=int, help="ops per run (200000; quick 50000)")
    p.add_argument("--only", default="", help="engines or their first words: pawl,tbb-group")
    p.add_argument("--tests", default="", help=f"of {','.join(TESTS)}; shapes: the first six; "
                   f"rows: the last {len(ROWS)}")
    p.add_argument("--samples", type=int, help="of ping (20000)")
    p.add_argument("--wake-samples", type=int, help="of wake (1000; quick 200)")
    p.add_argument("--pin", action="store_true",
                   help="one CPU per thread (default: as the scheduler likes)")
    p.add_argument("--seed", type=int, default=1, help="of the lists drawn at random")
    p.add_argument("--pawl-args", default="", metavar="'--window N --policy block ...'",
                   help="options for bench-pawl only; see bench-pawl --help")
    p.add_argument("--json", metavar="FILE", help="all raw figures and what the machine is")
    p.add_argument("--count", action="store_true",
                   help="instead: instructions, allocations, locks, system calls per op")
    p.add_argument("--busy", action="store_true", help="one busy program runs beside it all")
    p.add_argument("--strict", action="store_true", help="exit 2 when a target is missed")
    a = p.parse_args()
    here = os.path.dirname(os.path.abspath(__file__))
    a.bin = os.path.abspath(a.bin or os.path.join(here, "out"))
    a.only = [x for x in a.only.split(",") if x]
    tests = [x for x in a.tests.split(",") if x] or TESTS
    if "shapes" in tests:
        tests = SHAPES + [t for t in tests if t != "shapes"]
    if "rows" in tests:
        tests = [t for t in tests if t != "rows"] + list(ROWS)
    for t in tests:
        if t not in TESTS:
            p.error(f"no test {t!r}")
    a.tests = tests
    a.rounds = a.rounds or (3 if a.quick else 7)
    a.ops = a.ops or (50000 if a.quick else 200000)
    a.samples = a.samples or 20000
    a.wake_samples = a.wake_samples or (200 if a.quick else 1000)
    a.latency_rounds = 1 if a.quick else 3
    a.metg_rounds = 1 if a.quick else 3
    a.metg_reps = 1 if a.quick else 3
    a.limit = 3 if a.quick else 10
    a.slow = 0.8        # a run this long gets two rounds only
    return a


def main():
    args = arguments()
    try:
        b = Bench(args)
        if not b.names():
            raise Failed("no such engine here; there are: " + " ".join(b.engines))
        facts = machine(args.bin)
        print(f"{describe(facts)}, load {facts['load'][0]:.2f}"
              f"{', pinned' if args.pin else ''}"
              f"{', beside one busy program' if args.busy else ''}")
        use = CpuUse()
        record = {"schema": 1, "machine": facts, "arguments": vars(args)}
        missed = 0
        if args.count:
            record["counts"] = counts(b)
        else:
            try:
                with busy(args.busy):
                    b.everything()
            except KeyboardInterrupt:
                print("Interrupted: what is there so far.")
            targets = []
            shapes_tables(b, targets)
            latency_tables(b, targets)
            mpush_table(b)
            metg_table(b, targets)
            for test in [t for t in ROWS if t in args.tests]:
                ROW_TABLES[test](b, targets)
            in_push_table(b)
            missed = target_table(targets)
            record["noise"] = noise(facts, use.result(), b.spread())
            print_noise(record["noise"], use.result(), b.spread())
            record["engines"] = list(b.engines.values())
            record["rounds_done"] = b.rounds
            record["line"] = b.lines
            record["hand"] = b.hands
            record["in_push"] = [{"engine": e, "test": t, "share": s}
                                 for (e, t), s in b.in_push.items()]
            record["rounds"] = [{"engine": e, "test": t, "results": r,
                                 "dropped": b.dropped.get((e, t))}
                                for (e, t), r in b.data.items()]
            record["targets"] = [{"what": w, "figure": v, "limit": m, "peer": peer}
                                 for w, v, m, peer in targets]
        record["use"] = use.result()
        record["load_after"] = os.getloadavg()
        if args.json:
            with open(args.json, "w", encoding="utf-8") as f:
                json.dump(record, f, indent=1)
    except Failed as err:
        print(f"\nbench: FAILED: {err}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 1
    return 2 if missed and args.strict else 0


if __name__ == "__main__":
    sys.exit(main())
