#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One table: what 1, 2, 4 ... and all cores do.  scale.sh builds and calls this."""

import argparse
import json
import os
import sys
import time

import run

ROUNDS = 5
# slowest process that is waited for, in s; its cell is left out from then on
LIMIT = 10


def threads(cores):
    """1, 2, 4 ... and all."""
    few = [1]
    while few[-1] * 2 < cores:
        few.append(few[-1] * 2)
    return few + [cores] * (cores > 1)


def rows():
    """(unit, row, field, engine, test, options by number of threads or None)."""
    out = []
    for engine, name in (("pawl-1", "pawl"), ("tbb-group-2", "oneTBB")):
        for test in ("own", "own-each", "own2", "shared", "push"):
            if name == "pawl" or test in ("own", "own-each", "shared"):
                out.append(("ns per op of a thread", f"{test}, {name}", "ns_op", engine, test,
                            lambda t: ["--threads", t, "--reps", 3]))
    for engine, name in (("pawl-1", "pawl"), ("tbb-group-2", "oneTBB")):
        for what, test, options in (
                ("T pushers x T workers", "pushers", lambda t: ["--threads", t, "--workers", t]),
                ("T pushers x 1 worker", "pushers", lambda t: ["--threads", t]),
                ("1 pusher x T workers", "pushers", lambda t: ["--workers", t]),
                ("T engines of 1 x 1", "pushers-each", lambda t: ["--threads", t])):
            out.append(("million ops per second", f"{what}, {name}", "mops", engine, test,
                        options))
    for body in (0, 1000):
        for shape in run.SHAPES:
            for engine, name in (("pawl-help", "pawl"), ("tbb-group-2", "oneTBB")):
                out.append(("ns per op", f"{shape}, ops of {body} ns, {name}", "ns_op", engine,
                            shape, lambda t, body=body: ["--threads", t, "--body", body]))
    for test in ("ping", "ping-w", "wake", "wake-w"):
        for engine, name in (("pawl-help", "pawl"), ("tbb-group-2", "oneTBB")):
            samples = 5000 if test.startswith("ping") else 50
            out.append(("ns to its start, p50", f"{test}, {name}", "p50", engine, test,
                        lambda t, test=test, samples=samples: None
                        if t == 1 and test.endswith("-w")
                        else ["--threads", t, "--samples", samples]))
    return out


def measure(b, many, budget):
    """Rounds of all cells, as many as fit; the cells of a row one after the other."""
    began = time.monotonic()
    for rnd in range(ROUNDS):
        spent = time.monotonic() - began
        if rnd and spent + spent / rnd > budget:
            break
        for _, row, _, engine, test, options in rows():
            for t in many if engine in b.engines else ():
                extra = options(t)
                if extra is None or time.monotonic() - began > budget:
                    continue
                ops = [] if "--samples" in extra else ["--ops", b.args.ops]
                b.run(engine, test, ops + extra, LIMIT, (row, t))
                run.progress(f"round {rnd + 1}/{ROUNDS} {row} {t}")
        b.rounds = rnd + 1
    run.progress("")


def arguments():
    here = os.path.dirname(os.path.abspath(__file__))
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--bin", default=os.path.join(here, "out"))
    p.add_argument("--ops", type=int, default=50000, help="of a thread, or of a list (50000)")
    p.add_argument("--budget", type=int, default=400, metavar="SECONDS",
                   help="start nothing that would not end by then (400)")
    p.add_argument("--json", metavar="FILE", help="all raw figures and what the machine is")
    a = p.parse_args()
    a.bin = os.path.abspath(a.bin)
    # what Bench looks at besides
    a.only, a.quick, a.pin, a.seed, a.pawl_args, a.slow = [], False, False, 1, "", LIMIT
    return a


def main():
    args = arguments()
    b = run.Bench(args)
    facts = run.machine(args.bin)
    use = run.CpuUse()
    many = threads(facts["cores"])
    measure(b, many, args.budget)
    noise = run.noise(facts, use.result(), None)
    print(f"{run.describe(facts)}; medians of {b.rounds} rounds, {args.ops} ops"
          + ("" if "tbb-group-2" in b.engines else "; oneTBB is not installed")
          + (f"; noisy: {'; '.join(noise)}" if noise else "") + ".\n")
    print("| T threads | unit | " + " | ".join(str(t) for t in many) + " |")
    print("|" + " --- |" * (len(many) + 2))
    for unit, row, field, engine, _, _ in rows():
        if engine in b.engines:
            print(f"| {row} | {unit} | "
                  + " | ".join("slow" if b.dropped.get((row, t)) == "slow"
                               else run.fmt(b.mid(row, t, field)) for t in many) + " |")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump({"machine": facts, "arguments": vars(args), "noise": noise,
                       "rounds": [{"row": row, "threads": t, "results": r}
                                  for (row, t), r in b.data.items()]}, f, indent=1)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except run.Failed as err:
        sys.exit(f"bench: FAILED: {err}")
