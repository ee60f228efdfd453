#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run bench.py on MXNet's own engine and on pawl in turns; print medians side by side.

compare.py [--rounds N] [--workers N] [--json FILE] --stock COMMAND --pawl COMMAND [WORK]...
COMMAND is what runs a Python program, in one argument.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def run(command, names, workers):
    env = dict(os.environ, MXNET_CPU_WORKER_NTHREADS=str(workers))
    env.setdefault("OMP_NUM_THREADS", "1")
    out = subprocess.run(command.split() + [os.path.join(HERE, "bench.py")] + names, env=env,
                         stdout=subprocess.PIPE, check=True).stdout
    return json.loads(out.decode().strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--json")
    parser.add_argument("--stock", required=True)
    parser.add_argument("--pawl", required=True)
    parser.add_argument("work", nargs="*")
    opt = parser.parse_args()

    got = {"stock": [], "pawl": []}
    for i in range(opt.rounds):
        for name in ("stock", "pawl") if i % 2 == 0 else ("pawl", "stock"):
            got[name].append(run(getattr(opt, name), opt.work, opt.workers))
    print("%d rounds in turns, MXNET_CPU_WORKER_NTHREADS=%d, us per unit, medians" %
          (opt.rounds, opt.workers))
    print("| work | stock | pawl | stock / pawl | per round |")
    print("| --- | --- | --- | --- | --- |")
    for work in got["stock"][0]:
        a = [r[work] * 1e6 for r in got["stock"]]
        b = [r[work] * 1e6 for r in got["pawl"]]
        print("| %s | %.4g | %.4g | %.2f | %s |" % (
            work, statistics.median(a), statistics.median(b),
            statistics.median(a) / statistics.median(b),
            " ".join("%.2f" % (x / y) for x, y in zip(a, b))))
    if opt.json:
        with open(opt.json, "w") as f:
            json.dump(got, f, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
