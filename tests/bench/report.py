#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tables of Documentation/benchmarks.md and README.md, from files of run.py --json.

	report.py FILE...

A file is one run of make bench; several (of other tests, or of the same) are put together.
Runs with --busy have a part of their own.
"""

import argparse
import collections
import json
import os
import sys
import textwrap

import run

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
BEGIN, END = "<!-- bench:begin -->\n", "<!-- bench:end -->\n"
# engines of README's tables, the defaults first, and what they are called there
README2 = [("default", "pawl, `pawl_engine_create(NULL)`"),
           (None, "pawl, the best of eight settings"),
           ("twin-2w", "mutex twin of MXNet's engine, two workers"), ("gomp-2", "libgomp"),
           ("libomp-2", "libomp"), ("tbb-group-2", "oneTBB task_group, counters by hand")]
README1 = [("pawl-1", "pawl, no worker, the host drives"), ("gomp-1", "libgomp"),
           ("tbb-group-1", "oneTBB task_group, counters by hand")]


class Recorded(run.Bench):
    """What runs wrote down, with the same questions to ask as after a run."""

    def __init__(self, records):
        first = records[0]
        asked = {t for r in records for t in r["arguments"]["tests"]}
        tests = [t for t in run.TESTS if t in asked]
        self.args = argparse.Namespace(**dict(first["arguments"], tests=tests, only=[],
                                              quick=False))
        self.data, self.dropped, self.in_push = collections.defaultdict(list), {}, {}
        self.engines, self.lines, self.hands, self.rounds = {}, [], [], 0
        for r in records:
            for e in r["engines"]:
                self.engines.setdefault(e["engine"], e)
            for d in r["rounds"]:
                key = (d["engine"], d["test"])
                self.data[key] += d["results"]
                if d["dropped"]:
                    self.dropped[key] = d["dropped"]
            for d in r["in_push"]:
                self.in_push[d["engine"], d["test"]] = d["share"]
            self.lines += r["line"]
            self.hands += r["hand"]
        self.rounds = max(len(v) for v in self.data.values())


def markdown(title, head, rows, notes=()):
    """In place of run.table(): the same as lines of markdown."""
    rows = [r for r in rows
            if "no figure" not in r and any(str(c) not in ("", "–") for c in r[1:])]
    if not rows:
        return
    name, _, rest = title.partition(": ")
    text = (f"**{name}**" + (f": {rest}" if rest else "") + ".",
            *(n[0].upper() + n[1:] + "." for n in notes))
    say(text[0])
    grid(head, rows)
    for n in text[1:]:
        say(n)


def say(text):
    if text[0] == "*" != text[1]:
        text = "\\" + text
    LINES.extend([textwrap.fill(text, 96, break_long_words=False, break_on_hyphens=False), ""])


def grid(head, rows):
    LINES.extend("| " + " | ".join(str(c).replace("*", "\\*") for c in r) + " |"
                 for r in [head, ["---"] * len(head)] + rows)
    LINES.append("")


LINES = []


def head(records):
    """What was measured, and where."""
    say(f"{run.describe(records[0]['machine']).rpartition(', ')[0]}.")
    rows = [[" ".join(r["arguments"]["tests"]) + ", busy" * r["arguments"]["busy"],
             r["rounds_done"], r["arguments"]["ops"], r["machine"]["commit"],
             "; ".join(r["noise"])] for r in records]
    grid(["tests of a run", "rounds", "ops", "commit", "noise"], rows)


def all_tables(records):
    targets = []
    b = Recorded(records)
    run.shapes_tables(b, targets)
    run.latency_tables(b, targets)
    run.mpush_table(b)
    run.metg_table(b, targets)
    for test in [t for t in run.ROWS if t in b.args.tests]:
        run.ROW_TABLES[test](b, targets)
    run.in_push_table(b)
    run.target_table(targets)


def benchmarks(quiet, busy):
    del LINES[:]
    head(quiet + busy)
    if quiet:
        all_tables(quiet)
    if busy:
        say("**Beside one busy program.** The same, while another program uses a CPU.")
        all_tables(busy)
    return LINES


def best_setting(b, shape):
    return b.best([f"{name}: {shape}" for name, _, _ in run.TUNED], "default")


def readme(quiet, busy):
    del LINES[:]
    b = Recorded(quiet)
    shapes = [t for t in run.SHAPES if t in b.args.tests]
    say(f"ns per op from the first push to the last completion, {b.args.ops} tiny ops pushed "
        f"one call each: median (smallest) of {b.rounds} rounds. "
        f"{run.describe(quiet[0]['machine'])}. Written by `make bench-report`.")
    if any(r["noise"] for r in quiet + busy):
        say("The machine was not quiet, so single figures may be off by a factor of two: "
            "[benchmarks.md](Documentation/benchmarks.md#figures) says for each run what was.")

    def cell(engine, shape):
        if engine in ("default", None):
            row = f"default: {shape}" if engine else best_setting(b, shape)
            return b.cell(row, "default") if row else "–"
        return b.cell(engine, shape)

    for what, engines in (("two threads", README2), ("one thread", README1)):
        grid([what] + shapes, [[name] + [cell(e, t) for t in shapes] for e, name in engines
                               if e in ("default", None) or e in b.engines])
    say("*: most ops run inside their own push, and nothing is queued.")
    runs = [("all CPUs free", b)]
    if busy:
        runs.append(("beside one busy program", Recorded(busy)))
    rows = [[f"default / best of eight settings, {what}"]
            + [run.fmt(x.ratio(f"default: {t}", best_setting(x, t), "default"))
               for t in run.SHAPES]
            for what, x in runs if best_setting(x, "indep")]
    if rows:
        grid(["ratio"] + run.SHAPES, rows)
    rows = []
    for what, test, field, mine, peers in (
            ("push to start, the waiting thread runs the op, ns", "ping", "p50", "pawl-1",
             run.PEERS1),
            ("push to start on a worker that looks for work, p50, ns", "ping-w", "p50",
             "pawl-help", run.PEERS2),
            ("push to start on a worker that sleeps, p50, ns", "wake-w", "p50", "pawl-help",
             [p for p in run.PEERS2 if (b.mid(p, "wake-w", "idle_cpu") or 0) < run.MAX_AWAKE]),
            ("METG(50 %), stencil, ns", "metg", "ns", "pawl-help", run.PEERS2)):
        peer = b.best(peers, test, field)
        rows.append((what, run.fmt(b.mid(mine, test, field)),
                     f"{run.fmt(b.mid(peer, test, field))}, {peer}" if peer else "–"))
    rows += [(f"{what}, ns per op of a thread", run.fmt(b.mid(row, "own")),
              f"{run.fmt(b.mid(row + run.TBB, 'own'))}, oneTBB" if b.mid(row + run.TBB, "own")
              else "–")
             for what, row in (("push one, run one: one thread", "own 1"),
                               ("two threads on one engine", "own 2"),
                               ("two threads that read one var", "shared 2"))]
    rows = [r for r in rows if r[1] not in ("", "–")]
    if rows:
        grid(["what", "pawl", "best other"], rows)
    return LINES


def put(doc, lines):
    path = os.path.join(ROOT, doc)
    with open(path, encoding="utf-8") as f:
        before, rest = f.read().split(BEGIN)
    after = rest.split(END)[1]
    text = "\n".join(lines).rstrip() + "\n"
    with open(path, "w", encoding="utf-8") as f:
        f.write(before + BEGIN + text + END + after)


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    records = []
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as f:
            records.append(json.load(f))
    quiet = [r for r in records if not r["arguments"]["busy"]]
    busy = [r for r in records if r["arguments"]["busy"]]
    run.table = markdown
    put("Documentation/benchmarks.md", benchmarks(quiet, busy))
    if quiet:
        put("README.md", readme(quiet, busy))


if __name__ == "__main__":
    main()
