#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Time two commands that run bench.py against each other, in turns of a fraction of a second.

compare.py [OPTION]... NAME=COMMAND NAME=COMMAND [WORK]...

Both programs live at once; one works on its slice while the other is blocked on its pipe.
A pair is one slice of each, the same work; pairs go AB, BA, AB ... What slows the machine
for longer than a pair slows both, so the ratio of a pair says something where times do not.
Printed are the median of the ratios (first / second: above 1 the second is faster), of wall time
without pauses and of CPU time, and an interval that holds the true median with 95 % (order
statistics, no assumption but that pairs are alike and independent). After some pairs both programs
are started anew, since one that got lucky with its memory or its CPU stays so: a round. Behind each
median is the range of the medians of the rounds. A pair during which other processes (or the hypervisor)
used more than 0.1 CPU is tried again, up to as often as --tries says; the quietest count.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
QUIET = 0.1


class Quota:
    """A group whose processes may use so many CPUs together, by either version of cgroups."""

    def __init__(self, cpus):
        old = os.path.isdir("/sys/fs/cgroup/cpu")
        root = "/sys/fs/cgroup/cpu" if old else "/sys/fs/cgroup"
        limits = {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "%d" % (cpus * 100000)} \
            if old else {"cpu.max": "%d 100000" % (cpus * 100000)}
        with open("/proc/self/cgroup") as f:
            groups = [line.rstrip("\n").split(":", 2) for line in f]
        here = [g for _, c, g in groups if ("cpu" in c.split(",") if old else not c)]
        try:
            self.folder = tempfile.mkdtemp(prefix="bench-", dir=root + here[0])
            for name, text in limits.items():
                with open(os.path.join(self.folder, name), "w") as f:
                    f.write(text)
        except OSError as e:
            print("no quota of %g CPUs: %s" % (cpus, e))
            sys.exit(77)

    def enter(self):
        with open(os.path.join(self.folder, "cgroup.procs"), "w") as f:
            f.write("0")

    def stopped(self):
        """Seconds for which its processes were stopped because the quota was used up."""
        with open(os.path.join(self.folder, "cpu.stat")) as f:
            stat = dict(line.split() for line in f)
        return int(stat["throttled_time"]) * 1e-9 if "throttled_time" in stat else \
            int(stat["throttled_usec"]) * 1e-6

    def end(self):
        os.rmdir(self.folder)


class Neighbours:
    """Processes that are always busy, as another program's threads beside the measured ones."""

    def __init__(self, n, cpus):
        self.procs = [subprocess.Popen([sys.executable, "-c", "while True: pass"],
                                       preexec_fn=lambda: os.sched_setaffinity(0, cpus))
                      for _ in range(n)]

    def cpu(self):
        return sum(cpu_of("/proc/%d" % p.pid) for p in self.procs)

    def end(self):
        for p in self.procs:
            p.kill()
            p.wait()


def cpu_of(folder):
    with open(folder + "/schedstat") as f:
        return int(f.read().split()[0]) * 1e-9


def family(pid):
    """A process and its descendants."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % name) as f:
                parents[int(name)] = int(f.read().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            pass
    found = [pid]
    for p in found:
        found += [child for child, parent in parents.items() if parent == p]
    return found


class Program:
    """A bench.py that waits for orders."""

    def __init__(self, command, opt):
        env = dict(os.environ, MXNET_CPU_WORKER_NTHREADS=str(opt.workers), PYTHONHASHSEED="0")
        env.setdefault("OMP_NUM_THREADS", "1")
        self.quota = Quota(opt.quota) if opt.quota else None

        def limits():
            os.sched_setaffinity(0, opt.cpus)
            if self.quota:
                self.quota.enter()
        self.proc = subprocess.Popen(command.split() + [os.path.join(HERE, "bench.py")], env=env,
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     universal_newlines=True, bufsize=1, preexec_fn=limits)

    def ask(self, line):
        self.proc.stdin.write(line + "\n")
        self.proc.stdin.flush()
        answer = self.proc.stdout.readline()
        if not answer:
            raise SystemExit("%s ended: status %s" % (self.proc.args, self.proc.wait()))
        if line.startswith("work"):
            self.pids = family(self.proc.pid)
        return json.loads(answer)

    def cpu(self):
        """Seconds of CPU of all its threads and those of its children.

        They stay while it works, so the sum only grows.
        """
        total = 0
        for pid in self.pids:
            folder = "/proc/%d/task" % pid
            for task in os.listdir(folder):
                total += cpu_of("%s/%s" % (folder, task))
        return total

    def stopped(self):
        return self.quota.stopped() if self.quota else 0

    def end(self):
        self.proc.stdin.close()
        self.proc.stdout.close()
        self.proc.wait()
        if self.quota:
            self.quota.end()
        if self.proc.returncode:
            raise SystemExit("%s: status %d" % (self.proc.args, self.proc.returncode))


def machine():
    """Seconds that all CPUs were not idle, what was stolen included."""
    with open("/proc/stat") as f:
        cpu = [int(word) for word in f.readline().split()[1:9]]
    return (sum(cpu) - cpu[3] - cpu[4]) / os.sysconf("SC_CLK_TCK")


class Pair:
    """One slice of each program: microseconds per unit, and who else used CPUs."""

    def __init__(self, programs, neighbours, n, order):
        self.us, self.cpu, self.idle, self.stopped = [0, 0], [0, 0], 0, [0, 0]
        start = time.perf_counter()
        other = machine() - time.process_time() - neighbours.cpu()
        for j in order:
            before, stopped = [p.cpu() for p in programs], programs[j].stopped()
            got = programs[j].ask("slice %d" % n)
            after = [p.cpu() for p in programs]
            self.stopped[j] = programs[j].stopped() - stopped
            self.us[j] = got["seconds"] / n / got["units"] * 1e6
            self.cpu[j] = (after[j] - before[j]) / n / got["units"] * 1e6
            self.idle += after[1 - j] - before[1 - j]
            other += after[j] - before[j]
        self.seconds = time.perf_counter() - start
        # clock ticks are coarse: a little below 0 is possible
        other = machine() - time.process_time() - neighbours.cpu() - other
        self.others = max(0, other) / self.seconds


def times(programs, work, seconds):
    """How often the work is done in a slice, the same for both."""
    for p in programs:
        p.ask("work " + work)
    n = 1
    while True:
        # the best of three: a disturbed one would make all slices too short
        took = max(min(p.ask("slice %d" % n)["wall"] for _ in range(3)) for p in programs)
        if took > seconds / 3:
            return max(1, round(n * seconds / took))
        n *= 2


def interval(values):
    """Order statistics around the median: the tightest that holds it with 95 %."""
    values, n, k, tail = sorted(values), len(values), 0, 0.0
    while 2 * (tail + math.comb(n, k) / 2 ** n) <= 0.05:
        tail += math.comb(n, k) / 2 ** n
        k += 1
    return values[max(k - 1, 0)], values[n - max(k, 1)]


def measure(opt, got):
    """The pairs of one life of both programs: a round."""
    programs = [Program(c, opt) for _, c in opt.command]
    neighbours = Neighbours(opt.neighbours, opt.cpus)
    try:
        for work in opt.work:
            n = times(programs, work, opt.slice)
            pairs, quiet = [], 0
            while quiet < opt.pairs and len(pairs) < opt.tries * opt.pairs:
                pairs.append(Pair(programs, neighbours, n,
                                  (0, 1) if len(pairs) % 2 == 0 else (1, 0)))
                quiet += pairs[-1].others <= QUIET
            got.setdefault(work, []).append(sorted(pairs, key=lambda p: p.others)[:opt.pairs])
    finally:
        neighbours.end()
    for p in programs:
        p.end()


def spread(rounds, value):
    """The median of all pairs, and the range of the rounds' medians."""
    each = [statistics.median(value(p) for p in r) for r in rounds]
    return "%.3g (%.3g to %.3g)" % (statistics.median(value(p) for r in rounds for p in r),
                                    min(each), max(each))


def show(opt, got):
    every = [p for rounds in got.values() for r in rounds for p in r]
    a, b = (name for name, _ in opt.command)
    print("us per unit: the median, and the range of the medians of %d rounds of %d pairs of slices "
          "of %g s." % (opt.starts, opt.pairs, opt.slice))
    print("%d workers; CPUs %s; %s; neighbours: %d." % (
        opt.workers, ",".join(map(str, sorted(opt.cpus))),
        "a quota of %g CPUs" % opt.quota if opt.quota else "no quota", opt.neighbours))
    print("The program whose turn it was not used %.2f %% of a CPU. Others used %.2f CPUs "
          "(median); %d of %d pairs were not quiet." % (
              100 * sum(p.idle for p in every) / sum(p.seconds for p in every),
              statistics.median(p.others for p in every),
              sum(p.others > QUIET for p in every), len(every)))
    if opt.quota:
        print("Stopped as the quota was used up: %s %.1f %% of the time of all pairs, %s %.1f %%." % (
            a, 100 * sum(p.stopped[0] for p in every) / sum(p.seconds for p in every),
            b, 100 * sum(p.stopped[1] for p in every) / sum(p.seconds for p in every)))
    print("| work | %s | %s | %s / %s | 95 %% | CPU time, %s / %s |" % (a, b, a, b, a, b))
    print("| --- | --- | --- | --- | --- | --- |")
    for work, rounds in got.items():
        ratios = [p.us[0] / p.us[1] for r in rounds for p in r]
        print("| %s | %s | %s | %s | %.2f to %.2f | %s |" % (
            work, spread(rounds, lambda p: p.us[0]), spread(rounds, lambda p: p.us[1]),
            spread(rounds, lambda p: p.us[0] / p.us[1]), *interval(ratios),
            spread(rounds, lambda p: p.cpu[0] / p.cpu[1])), flush=True)
    if opt.json:
        with open(opt.json, "w") as f:
            json.dump({"commands": opt.command, "workers": opt.workers,
                       "rounds": {w: [[vars(p) for p in r] for r in rounds]
                                  for w, rounds in got.items()}},
                      f, indent=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=8, help="per start of the programs")
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--tries", type=int, default=2, help="times as many pairs, at most")
    parser.add_argument("--slice", type=float, default=0.1, help="seconds")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--cpu", type=int, action="append", help="may be used; default: all")
    parser.add_argument("--quota", type=float, default=0, help="CPUs of each program's cgroup")
    parser.add_argument("--neighbours", type=int, default=0, help="busy processes beside them")
    parser.add_argument("--json", help="keep all times there")
    parser.add_argument("command", nargs=2)
    parser.add_argument("work", nargs="*")
    opt = parser.parse_intermixed_args()
    opt.cpus = set(opt.cpu or os.sched_getaffinity(0))
    opt.command = [c.split("=", 1) for c in opt.command]
    if not opt.work:
        opt.work = subprocess.run(
            opt.command[0][1].split() + [os.path.join(HERE, "bench.py"), "--list"], check=True,
            stdout=subprocess.PIPE, universal_newlines=True).stdout.split()

    got = {}
    for _ in range(opt.starts):
        measure(opt, got)
    show(opt, got)
    return 0


if __name__ == "__main__":
    sys.exit(main())
