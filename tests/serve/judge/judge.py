#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure pawl serve beside Triton 2.51 and beside itself on an engine with mutexes, by
perf_analyzer, MLPerf LoadGen and pawl load.  run.sh starts it in the build folder.

The server has one core, the client another one.  All servers are up, and take turns at each
step.  The results go into a file of JSON, and report.py writes the tables from it.
"""
import argparse
import collections
import json
import os
import signal
import subprocess
import sys
import time

import client
import judges
import models
import report
import scenes
import servers

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "bench"))
import run as bench     # noqa: E402


class Judge:
    def __init__(self, args, files):
        self.full, self.files, self.models = not args.quick, files, args.models
        self.seconds, self.swap_rate = args.seconds, 200
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) < 2:
            sys.exit("judge: two CPUs are needed, one for the server and one for the client")
        self.client_core, self.server_core = cores[-1], cores[0]
        self.perf = judges.PerfAnalyzer(args.folder, self.client_core, models.SITE)
        self.load = judges.PawlLoad(os.path.abspath(args.load), self.client_core)
        make = {"pawl": (servers.Server, [os.path.abspath("tools/pawl/pawl"), "serve"]),
                "twin": (servers.Server, [os.path.abspath("tests/serve/judge/serve-twin")]),
                "triton": (servers.Triton, []),
                "floor": (servers.Floor, [os.path.abspath("tests/serve/judge/floor")])}
        self.servers, self.floor = [], None
        for i, name in enumerate(args.servers):
            kind, command = make[name]
            s = kind(name, command, files, args.folder, args.port + i, self.server_core)
            s.twin = name == "twin"
            if s.floor:
                self.floor = s
            else:
                self.servers.append(s)
        self.version = {s.name: 1 for s in self.servers}
        self.data, self.failures = collections.defaultdict(list), []
        self.limit = time.monotonic() + args.limit

    def all(self):
        return self.servers + ([self.floor] if self.floor else [])

    def turns(self, rnd):
        k = rnd % len(self.servers)
        return self.servers[k:] + self.servers[:k]

    def use(self, *names):
        for s in self.servers:
            s.use(*names)

    def results(self, scene, server, step):
        return self.data[scene, server.name, step]

    def step(self, scene, server, step, measure):
        if time.monotonic() > self.limit:
            return
        cpu, began = server.cpu(), time.monotonic()
        try:
            r = measure()
        except (judges.Failed, OSError, RuntimeError) as e:
            self.failures.append(f"{scene}, {server.name}, {step}: {e}")
            print(f"  {self.failures[-1]}", file=sys.stderr)
            return
        r["server_cpu"] = (server.cpu() - cpu) / (time.monotonic() - began)
        self.data[scene, server.name, step].append(r)
        shown = " ".join(f"{k} {v:.0f}" for k, v in r.items()
                         if k in ("rate", "p50", "p99", "asked") and v is not None)
        print(f"{scene:10} {server.name:6} {step:20} {shown}", flush=True)


def arguments():
    p = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    p.add_argument("--quick", action="store_true",
                   help="one round of short runs; serve.md is not changed")
    p.add_argument("--rounds", type=int, default=0, help="rounds (2; with --quick 1)")
    p.add_argument("--seconds", type=float, default=0, help="of a run; default 1; 0.5")
    p.add_argument("--limit", type=float, default=615,
                   help="start no step after this many seconds")
    p.add_argument("--servers", default="pawl,triton,twin,floor")
    p.add_argument("--models", default="empty,small,magika,large")
    p.add_argument("--scenes", default=",".join(s.__name__ for s in scenes.SCENES))
    p.add_argument("--load", default="tools/pawl/pawl", help="the program that has pawl load")
    p.add_argument("--port", type=int, default=18700)
    p.add_argument("--folder", default=os.path.abspath("build/judge"))
    p.add_argument("--json", default="build/serve.json")
    p.add_argument("--no-document", action="store_true", help="do not change serve.md")
    args = p.parse_args()
    args.rounds = args.rounds or (1 if args.quick else 2)
    args.seconds = args.seconds or (0.5 if args.quick else 1.0)
    for key, known in (("servers", ("pawl", "triton", "twin", "floor")),
                       ("models", tuple(scenes.CONCURRENCY)),
                       ("scenes", tuple(s.__name__ for s in scenes.SCENES))):
        setattr(args, key, getattr(args, key).split(","))
        for name in getattr(args, key):
            if name not in known:
                p.error(f"{name} is none of {key}: {', '.join(known)}")
    return args


def check_load(program):
    p = subprocess.run([program, "load", "--help"], capture_output=True, check=False)
    if p.returncode:
        sys.exit(f"judge: {program} has no subcommand load")


def ended(signum, _):
    sys.exit(128 + signum)


def main():
    args = arguments()
    signal.signal(signal.SIGTERM, ended)
    signal.signal(signal.SIGHUP, ended)
    os.makedirs(args.folder, exist_ok=True)
    files = models.make(os.path.join(args.folder, "files"))
    j, use, machine = Judge(args, files), bench.CpuUse(), bench.machine("")
    client.pin(j.client_core)
    began, done = time.monotonic(), 0
    try:
        check_load(args.load)
        for s in j.all():
            s.start()
        for rnd in range(args.rounds):
            for scene in scenes.SCENES:
                if scene.__name__ in args.scenes and time.monotonic() < j.limit:
                    scene(j, rnd)
            if time.monotonic() < j.limit:
                done += 1
    finally:
        for s in j.all():
            s.end()
        for s in j.all():
            s.stop()
    record = {"schema": 1, "machine": machine, "arguments": vars(args),
              "rounds_done": done, "seconds": time.monotonic() - began, "use": use.result(),
              "failures": j.failures,
              "results": [{"scene": k[0], "server": k[1], "step": k[2], "rounds": v}
                          for k, v in j.data.items() if v]}
    with open(args.json, "w", encoding="utf-8") as f:
        json.dump(record, f, indent=1)
    lines = report.tables(record)
    print("\n".join(lines))
    if not args.no_document and not args.quick:
        report.put(lines)
    return 1 if j.failures else 0


if __name__ == "__main__":
    sys.exit(main())
