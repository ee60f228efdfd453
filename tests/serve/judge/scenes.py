# SPDX-License-Identifier: Apache-2.0
"""What is measured.  A scene is called with a Judge and a round; it measures its steps for each
server in turn, and records a result for each step and server."""
import statistics
import threading
import time

import client
import judges
import models
import servers

# requests in flight in a closed loop: of perf_analyzer, and of pawl load
CONCURRENCY = {"empty": (8, (16, 64)), "small": (8, (16, 64)), "magika": (8, (16,)),
               "large": (2, (2,))}
LOADS = (50, 70, 90)
OVERLOAD = 3.0
# more than the queues of models.QUEUES hold
OVERLOAD_CONNECTIONS = 256


def throughput(j, rnd):
    """The greatest throughput in a closed loop, by perf_analyzer and by pawl load, and the rate
    of answers in an open loop that requests more than that."""
    j.use(*j.models)
    for model in j.models:
        perf, load = CONCURRENCY[model]
        for s in j.turns(rnd):
            j.step("throughput", s, f"{model} perf_analyzer {perf}",
                   lambda s=s, m=model, n=perf: j.perf.closed(s, m, n, j.seconds))
        for n in load:
            for s in j.turns(rnd):
                j.step("throughput", s, f"{model} load {n}",
                       lambda s=s, m=model, n=n: j.load.closed(s, m, n, j.seconds))
            if j.floor and model in servers.Floor.models:
                j.step("throughput", j.floor, f"{model} load {n}",
                       lambda m=model, n=n: j.load.closed(j.floor, m, n, j.seconds))
        for s in j.turns(rnd):
            most = capacity(j, s, model, "load")
            # slow models take long
            if most and not (rnd and most < 200):
                j.step("throughput", s, f"{model} open {judges.CONNECTIONS}",
                       lambda s=s, m=model, r=most: saturate(j, s, m, r))


def saturate(j, server, model, rate, **more):
    """The result of an open loop that requests more than the server answers."""
    while True:
        rate *= 1.2
        r = j.load.open(server, model, rate, j.seconds, **more)
        if r["rate"] < 0.95 * rate:
            return dict(r, asked=rate)


def median(rounds):
    return statistics.median(r["rate"] for r in rounds) if rounds else None


def capacity(j, server, model, judge="open"):
    """The median of the best number in flight, or None if nothing was measured."""
    perf, load = CONCURRENCY[model]
    numbers = {"perf_analyzer": (perf,), "load": load, "open": (judges.CONNECTIONS,)}
    rounds = [j.results("throughput", server, f"{model} {judge} {n}") for n in numbers[judge]]
    return max((median(some) for some in rounds if some), default=None)


def latency(j, rnd):
    """Poisson arrivals at shares of each server's greatest load, and of Triton's."""
    j.use(*j.models)
    triton = [s for s in j.servers if s.triton]
    for model in j.models:
        for judge, measure, loads in (("load", j.load, LOADS),
                                      ("perf_analyzer", j.perf, (70,)),
                                      ("same", j.load, (70,))):
            for load in loads:
                for s in j.turns(rnd):
                    if s.twin and load != 70 or judge == "same" and (s.triton or not triton):
                        continue
                    most = (capacity(j, triton[0], model) if judge == "same" else
                            capacity(j, s, model, "open" if judge == "load" else judge))
                    # slow models take long
                    if most and not (rnd and load != 70 and most < 200):
                        j.step("latency", s, f"{model} {judge} {load}",
                               lambda s=s, m=model, r=most * load / 100, by=measure:
                               dict(by.open(s, m, r, j.seconds), asked=r))


# models whose requests cost more than their computation
GRPC = {"empty": 64, "small": 64}


def grpc(j, rnd):
    """Throughput and latency over gRPC."""
    names = [m for m in GRPC if m in j.models]
    j.use(*names)
    for model in names:
        turns = [s for s in j.turns(rnd) if not s.twin]
        for s in turns:
            j.step("grpc", s, f"{model} closed",
                   lambda s=s, m=model: j.load.closed(s, m, GRPC[m], j.seconds, grpc=True))
        for s in turns:
            most = median(j.results("grpc", s, f"{model} closed"))
            if most:
                j.step("grpc", s, f"{model} open",
                       lambda s=s, m=model, r=most: saturate(j, s, m, r, grpc=True))
        for s in turns:
            most = median(j.results("grpc", s, f"{model} open"))
            if most:
                j.step("grpc", s, f"{model} 70",
                       lambda s=s, m=model, r=0.7 * most:
                       dict(j.load.open(s, m, r, j.seconds, grpc=True), asked=r))


def overload(j, rnd):
    """Arrivals at three times the greatest load, with a short queue."""
    names = [m + "_q" for m in j.models if m + "_q" in models.SERVED]
    j.use(*names)
    for model in names:
        for s in j.turns(rnd):
            most = capacity(j, s, model[:-2])
            if not most or s.twin:
                continue

            def measure(s=s, model=model, most=most):
                below = j.load.open(s, model, 0.7 * most, j.seconds)
                r = j.load.open(s, model, OVERLOAD * most, j.seconds,
                                OVERLOAD_CONNECTIONS)
                return dict(r, asked=OVERLOAD * most, capacity=most,
                            below_p99=below.get("p99"))
            j.step("overload", s, model[:-2], measure)


def swap(j, rnd):
    """Versions of a model are loaded one after the other, while requests arrive."""
    j.use("swap")
    data = client.request("swap", models.inputs_of(j.files, "swap"), binary=False)
    for s in j.turns(rnd):
        def measure(s=s):
            quiet = client.run(s.port, [{"data": data, "rate": j.swap_rate}], j.seconds * 2,
                               check_swap)[0]
            loads, ended = [], threading.Event()
            thread = threading.Thread(target=load_versions, args=(j, s, loads, ended))
            thread.start()
            try:
                busy = client.run(s.port, [{"data": data, "rate": j.swap_rate}], j.seconds * 2,
                                  check_swap)[0]
            finally:
                ended.set()
                thread.join()
            return dict(busy, quiet_p50=quiet["p50"], quiet_p99=quiet["p99"],
                        quiet_failed=quiet["failed"], loads=len(loads),
                        load_ms=1000 * statistics.median(loads) if loads else None)
        j.step("swap", s, "swap", measure)


def load_versions(j, server, loads, ended):
    while not ended.wait(0.1) and j.version[server.name] < models.VERSIONS:
        j.version[server.name] += 1
        models.place(j.files, server.repository, "swap", j.version[server.name])
        begin = time.monotonic()
        server.load("swap")
        loads.append(time.monotonic() - begin)


def check_swap(body):
    """An answer is wholly that of one version: v, 2v, 3v."""
    outputs = client.json_outputs(body)
    v = outputs["y1"]
    if v != int(v) or not 1 <= v <= models.VERSIONS:
        return f"no version: {outputs}"
    if outputs["y2"] != 2 * v or outputs["y3"] != 3 * v:
        return f"a mix: {outputs}"
    return None


def fairness(j, rnd):
    """A flood on one model, and a steady load on another one of the same kind."""
    names = ("flood", "equal", "favoured")
    j.use(*names)
    data = {n: client.request(n, models.inputs_of(j.files, n)) for n in names}
    for s in j.turns(rnd):
        if s.triton and not j.full:
            continue
        def measure(s=s):
            most = 0.1 * (capacity(j, s, "magika") or 200)
            result = {"asked": most}
            for key, steady, flood in (("alone", "equal", False), ("equal", "equal", True),
                                       ("favoured", "favoured", True)):
                if s.triton and key == "favoured":
                    continue
                streams = [{"data": data[steady], "rate": most}]
                if flood:
                    streams.append({"data": data["flood"], "flood": 16})
                r = client.run(s.port, streams, j.seconds * 2)
                result[key] = r[0]
                if flood:
                    result[key]["flood_rate"] = r[1]["rate"]
            return result
        j.step("fairness", s, "magika", measure)


# LoadGen's own limits are for long runs on large machines
LOADGEN = {"small": {"latency_ms": 15, "percentile": 0.99, "times": 2},
           "large": {"latency_ms": 1000, "percentile": 0.9, "times": 8}}


def mlperf(j, rnd):
    """LoadGen's four scenarios; Server at 0.85 of the throughput of Offline."""
    names = [m for m in LOADGEN if m in j.models]
    j.use(*names)
    for model in names:
        limits = LOADGEN[model]
        for s in j.turns(rnd):
            if s.twin:
                continue
            most = capacity(j, s, model)
            if not most:
                continue

            def run(scenario, qps, times=1.0, s=s, model=model, limits=limits):
                return judges.loadgen(j.client_core, s, model,
                                      models.inputs_of(j.files, model), scenario,
                                      j.seconds * times, qps, latency_ms=limits["latency_ms"],
                                      percentile=limits["percentile"])

            j.step("loadgen", s, f"{model} SingleStream", lambda: run("SingleStream", most))
            j.step("loadgen", s, f"{model} MultiStream", lambda: run("MultiStream", most))
            j.step("loadgen", s, f"{model} Offline", lambda: run("Offline", most))
            offline = j.results("loadgen", s, f"{model} Offline")
            if offline:
                rate = statistics.median(r["rate"] for r in offline)
                j.step("loadgen", s, f"{model} Server",
                       lambda rate=rate: run("Server", 0.85 * rate, limits["times"]))


SCENES = [throughput, latency, grpc, overload, swap, fairness, mlperf]
