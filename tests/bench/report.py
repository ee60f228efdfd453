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
# the engines of README's table, and what they are called there
README = [("pawl-default", "pawl, default"), ("twin-2w", "mutex twin of MXNet's engine"),
          ("gomp-2", "OpenMP, libgomp"), ("libomp-2", "OpenMP, libomp"),
          ("tbb-group-2", "oneTBB, counters by hand")]
# what README shows of push to start: the test, and the head of its column
STARTS = [("ping-w", "start"), ("wake-w", "start, asleep")]


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


def starts(b, engine, test):
    """The median from push to start, of a thread that does what the test says it does."""
    if test == "wake-w" and (b.mid(engine, test, "idle_cpu") or 0) >= run.MAX_AWAKE:
        return "does not sleep"
    return run.fmt(b.mid(engine, test, "p50"))


def span(b, peer, shapes):
    """The smallest and the largest ratio of the medians of a shape."""
    both = [(b.mid("pawl-default", t), b.mid(peer, t)) for t in shapes]
    ratios = [x / y for x, y in both if x and y]
    return f"{run.fmt(min(ratios), 2)} to {run.fmt(max(ratios), 2)}" if ratios else "–"


def readme(quiet):
    """One table: the default configuration beside the others, or None without the shapes."""
    del LINES[:]
    shaped = [r for r in quiet if set(r["arguments"]["tests"]) & set(run.SHAPES)]
    if not shaped:
        return None
    b, late = Recorded(shaped), Recorded(quiet)
    shapes = [t for t in run.SHAPES if t in b.args.tests]
    engines = [e for e in README if e[0] in b.engines]
    tests = [s for s in STARTS if s[0] in late.args.tests]
    say(f"{run.describe(shaped[0]['machine'])}. {b.args.ops} ops; median (smallest) of {b.rounds} "
        "rounds, in ns.")
    grid(["ns"] + shapes + [head for _, head in tests],
         [[name] + [b.cell(e, t) for t in shapes] + [starts(late, e, t) for t, _ in tests]
          for e, name in engines])
    if not all(b.queues(e, t) for e, _ in engines for t in shapes):
        say("*: half of the ops or more ran inside their own push, so nothing was queued.")
    if any("–" in line for line in LINES):
        say("–: not measured.")
    say(f"pawl takes {span(b, 'twin-2w', shapes)} of the twin's time per op, and "
        f"{span(b, 'tbb-group-2', shapes)} of oneTBB's.")
    shown = set(run.SHAPES) | {test for test, _ in STARTS}
    if any(r["noise"] for r in quiet if set(r["arguments"]["tests"]) & shown):
        say("The machine was not quiet: single figures may be off by a factor of two.")
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
    table = readme(quiet) if quiet else None
    if table:
        put("README.md", table)


if __name__ == "__main__":
    main()
