# SPDX-License-Identifier: Apache-2.0
"""One run of MLPerf LoadGen, in a separate process.  The system under test is a server; each
sample is a request over HTTP, sent by pool.c.

	loadgen.py JSON		{port, model, inputs, scenario, seconds, qps, latency_ms, percentile}

Prints one line of JSON with what LoadGen's summary says."""
import ctypes
import gc
import json
import os
import queue
import re
import resource
import sys
import tempfile
import threading
import time

import mlperf_loadgen as lg

import client

MOST = 64       # answers at once
SAMPLES = 64
SUMMARY = {"valid": r"Result is : (\w+)",
           "p50_ns": r"50\.00 percentile latency \(ns\)\s*: (\d+)",
           "p99_ns": r"99\.00 percentile latency \(ns\)\s*: (\d+)",
           "scheduled": r"Scheduled samples per second\s*: ([\d.]+)",
           "rate": r"(?:Completed samples|Samples) per second\s*: ([\d.]+)",
           "per_query": r"samples_per_query : (\d+)"}


class System:
    """A thread that sends what LoadGen issues, and reports the answers."""

    def __init__(self, spec):
        data = client.request(spec["model"], spec["inputs"])
        self.lib = ctypes.CDLL(os.path.abspath("tests/serve/judge/pool.so"))
        self.lib.pool_wake.restype, self.pool = None, ctypes.c_void_p()
        self.data = ctypes.create_string_buffer(data, len(data))
        rc = self.lib.pool_open(ctypes.byref(self.pool), spec["port"], self.data,
                                ctypes.c_size_t(len(data)))
        if rc:
            raise OSError(-rc, "no connections")
        self.queue = queue.SimpleQueue()
        self.failed, self.ended, self.sleeping = 0, False, False
        self.thread = threading.Thread(target=self.work)
        self.thread.start()

    def issue(self, samples):
        self.queue.put([s.id for s in samples])
        self.wake()

    def wake(self):
        if self.sleeping:
            self.lib.pool_wake(self.pool)

    def work(self):
        tokens, failed = (ctypes.c_uint64 * MOST)(), ctypes.c_int()
        while not self.ended:
            # set this before reading the queue: issue() does both in the other order
            self.sleeping = True
            n = self.lib.pool_poll(self.pool, 1000 if self.queue.empty() else 0, tokens, MOST,
                                   ctypes.byref(failed))
            self.sleeping = False
            self.failed += failed.value
            new = []
            while not self.queue.empty():
                new += self.queue.get()
            if new and self.lib.pool_send(self.pool, (ctypes.c_uint64 * len(new))(*new),
                                          ctypes.c_size_t(len(new))):
                os._exit(1)
            if n:
                lg.QuerySamplesComplete([lg.QuerySampleResponse(t, 0, 0)
                                         for t in tokens[:n]])

    def end(self):
        self.ended = True
        self.wake()
        self.thread.join()


def settings(spec):
    s = lg.TestSettings()
    s.scenario = getattr(lg.TestScenario, spec["scenario"])
    s.mode = lg.TestMode.PerformanceOnly
    s.min_duration_ms, s.min_query_count = int(spec["seconds"] * 1000), 10
    s.max_duration_ms = int(spec["seconds"] * 3000)
    if spec["scenario"] == "Server":
        s.server_target_qps = spec["qps"]
        # samples that are due at once are issued by one call
        s.server_coalesce_queries = True
        s.server_target_latency_ns = int(spec["latency_ms"] * 1e6)
        s.server_target_latency_percentile = spec["percentile"]
    elif spec["scenario"] == "Offline":
        s.offline_expected_qps = spec["qps"]
    elif spec["scenario"] == "MultiStream":
        s.multi_stream_samples_per_query = 8
        s.multi_stream_expected_latency_ns = int(8e9 / spec["qps"])
    else:
        s.single_stream_expected_latency_ns = int(1e9 / spec["qps"])
    return s


def cpu_time():
    r = resource.getrusage(resource.RUSAGE_SELF)
    return r.ru_utime + r.ru_stime


def main():
    spec = json.loads(sys.argv[1])
    gc.disable()        # there are no cycles, and a hundred thousand samples
    system = System(spec)
    sut = lg.ConstructSUT(system.issue, lambda: None)
    qsl = lg.ConstructQSL(SAMPLES, SAMPLES, lambda _: None, lambda _: None)
    log = lg.LogSettings()
    log.enable_trace = False
    with tempfile.TemporaryDirectory() as folder:
        log.log_output.outdir = folder
        began, cpu = time.monotonic(), cpu_time()
        lg.StartTestWithLogSettings(sut, qsl, settings(spec), log)
        cpu = (cpu_time() - cpu) / (time.monotonic() - began)
        with open(folder + "/mlperf_log_summary.txt", encoding="ascii") as f:
            text = f.read()
    lg.DestroyQSL(qsl)
    lg.DestroySUT(sut)
    system.end()
    result = {"failed": system.failed, "client_cpu": cpu}
    for key, pattern in SUMMARY.items():
        found = re.search(pattern, text)
        if found:
            value = found.group(1)
            result[key] = value == "VALID" if key == "valid" else float(value)
    print(json.dumps(result))


main()
