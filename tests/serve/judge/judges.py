# SPDX-License-Identifier: Apache-2.0
"""The judges: load generators of other projects, and pawl load.  This file needs only the
standard library, because test_judge.py uses it to read the reports of pawl load."""
import csv
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


# a slow model is measured for longer, until it has had so many requests: a p99 needs a hundred
PERF_REQUESTS, LOAD_REQUESTS = 40, 110
# of an open loop, for all servers; the cost of a request grows with their number
CONNECTIONS = 64
# of gRPC; each carries many requests at once
GRPC_CONNECTIONS = 8


class Failed(Exception):
    """A judge gave no figures."""


def call(core, argv, limit, env=None, good=(0,)):
    try:
        p = subprocess.run(["taskset", "-c", str(core), *argv], capture_output=True, text=True,
                           env=env, timeout=limit, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired as e:
        raise Failed(f"{os.path.basename(argv[0])} ran longer than {limit:.0f} s") from e
    if p.returncode not in good:
        raise Failed(f"{os.path.basename(argv[0])}: {(p.stdout + p.stderr).strip()[-300:]}")
    return p.stdout


class PerfAnalyzer:
    """Of tritonclient.  Latencies count from the time at which a request was sent."""

    def __init__(self, folder, core, site):
        self.core = core
        # the libraries that it needs are in the wheel of Triton, under other names
        self.libs = os.path.join(folder, "lib")
        os.makedirs(self.libs, exist_ok=True)
        wheel = os.path.join(site, "nvidia_pytriton.libs")
        for found in os.listdir(wheel):
            for name, soname in (("libb64", "libb64.so.0d"), ("libcudart", "libcudart.so.12")):
                if found.startswith(name) and not os.path.exists(f"{self.libs}/{soname}"):
                    os.symlink(f"{wheel}/{found}", f"{self.libs}/{soname}")
        self.program = os.path.join(os.path.dirname(sys.executable), "perf_analyzer")

    def measure(self, server, model, options, seconds):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "out.csv")
            # three windows, all equally valid
            call(self.core, [self.program, "-m", model, "-u", f"127.0.0.1:{server.port}",
                             "--input-data", "zero",
                             "-p", str(max(100, int(seconds * 1000 / 3))),
                             "-r", "3", "-s", "999", "--percentile", "99", "-f", out, *options],
                 seconds * 4 + 20, dict(os.environ, LD_LIBRARY_PATH=self.libs))
            if not os.path.exists(out):
                raise Failed("perf_analyzer: no stable measurement")
            with open(out, encoding="ascii") as f:
                row = next(csv.DictReader(f))
        return {"rate": float(row["Inferences/Second"]), "p50": float(row["p50 latency"]),
                "p99": float(row["p99 latency"])}

    def closed(self, server, model, concurrency, seconds):
        return self.measure(server, model, ["--concurrency-range", str(concurrency)], seconds)

    def open(self, server, model, rate, seconds):
        return self.measure(server, model, ["--request-rate-range", f"{rate:.2f}",
                                            "--request-distribution", "poisson"],
                            max(seconds, PERF_REQUESTS / rate))


class PawlLoad:
    """`pawl load`.  Latencies count from the time at which a request should have been sent."""

    def __init__(self, program, core):
        self.program, self.core = program, core

    def measure(self, server, model, options, seconds, grpc):
        url = f"grpc://127.0.0.1:{server.grpc_port}" if grpc else f"127.0.0.1:{server.port}"
        text = call(self.core, [self.program, "load", "--url", url, "--model", model, "--zero",
                                "--duration", f"{seconds:.3f}",
                                "--warmup", f"{seconds / 4:.3f}", "--wait", "3",
                                "--output-json", "-", *options], seconds * 3 + 20,
                    good=(0, 1))
        if not text:
            raise Failed("pawl load: no figures")
        [r] = json.loads(text)["runs"]
        client = r["client"]
        result = {"rate": r["throughput"], "failed": r["failed"] + r["lost"] + r["timed_out"],
                  "refused": r["refused"], "due": r["due"],
                  "waited": client["waited_for_connection"],
                  "client_cpu": client["cpu_share_of_busiest_thread"],
                  "client_us": client["cpu_us_per_request"]}
        # of one thread
        if result["client_us"]:
            result["sent"] = 1e6 * result["client_cpu"] / result["client_us"]
        for key, name in (("latency", ""), ("refusal_latency", "refused_")):
            for p in r[key]["percentiles"]:
                result[f"{name}p{p['percentile']:g}".replace(".", "")] = 1000 * p["ms"]
        if "lag" in r:
            result["lag_p99"] = max((1000 * p["ms"] for p in r["lag"]["percentiles"]
                                     if p["percentile"] <= 99), default=None)
        return result

    def closed(self, server, model, concurrency, seconds, grpc=False):
        options = ["--connections", str(GRPC_CONNECTIONS)] if grpc else []
        return self.measure(server, model, ["--concurrency", str(concurrency), *options],
                            seconds, grpc)

    def open(self, server, model, rate, seconds, connections=CONNECTIONS, grpc=False):
        connections = GRPC_CONNECTIONS if grpc else connections
        return self.measure(server, model, ["--rate", f"{rate:.2f}", "--connections",
                                            str(connections)],
                            max(seconds, LOAD_REQUESTS / rate), grpc)


def loadgen(core, server, model, inputs, scenario, seconds, qps, **more):
    spec = dict(port=server.port, model=model, inputs=inputs, scenario=scenario,
                seconds=seconds, qps=qps, **more)
    text = call(core, [sys.executable, os.path.join(HERE, "loadgen.py"), json.dumps(spec)],
                seconds * 6 + 20)
    return json.loads(text.splitlines()[-1])
