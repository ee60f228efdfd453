#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tables of Documentation/serve.md, from the JSON of judge.py.

	report.py FILE
"""
import json
import os
import statistics
import sys
import textwrap

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "bench"))
import run as bench     # noqa: E402

DOCUMENT = os.path.join(HERE, "..", "..", "..", "Documentation", "serve.md")
BEGIN, END = "<!-- judge:begin -->\n", "<!-- judge:end -->\n"
MODELS = ("empty", "small", "magika", "large")
SERVERS = ("triton", "pawl", "twin", "floor")
BUSY = 0.9      # of the client's CPU
# model: minimum throughput and maximum p99, as ratios to Triton's
TARGETS = {"empty": (10, 0.2), "small": (10, 0.2), "large": (1, 0.7)}


class Results:
    def __init__(self, record):
        self.data = {(r["scene"], r["server"], r["step"]): r["rounds"]
                     for r in record["results"]}

    def get(self, scene, server, step, key):
        """The median of the rounds, or None.  A key such as equal/p99 leads into the result."""
        values = []
        for r in self.data.get((scene, server, step), []):
            for part in key.split("/"):
                r = r.get(part) if isinstance(r, dict) else None
            if r is not None:
                values.append(r)
        return statistics.median(values) if values else None

    def steps(self, scene, start):
        return sorted({k[2] for k in self.data if k[0] == scene and k[2].startswith(start)})

    def best(self, server, model, judge):
        """The greatest throughput of a judge: the best number of requests in flight."""
        return max((v for s in self.steps("throughput", f"{model} {judge} ")
                    if (v := self.get("throughput", server, s, "rate")) is not None),
                   default=None)


def number(v, digits=3):
    if v is None:
        return "–"
    return f"{v:.0f}" if abs(v) >= 100 else f"{v:.{digits}g}"


def ms(v):
    return number(None if v is None else v / 1000)


def ratio(a, b):
    return a / b if a is not None and b else None


class Text:
    def __init__(self):
        self.lines = []

    def say(self, text):
        self.lines += [textwrap.fill(text, 96, break_long_words=False,
                                     break_on_hyphens=False), ""]

    def grid(self, head, rows):
        rows = [r for r in rows if any(c.strip("– /") for c in r[2:])]
        if rows:
            self.lines += ["| " + " | ".join(r) + " |" for r in
                           [head, ["---"] * 2 + ["---:"] * (len(head) - 2)] + rows]
            self.lines.append("")


def share(v):
    return "–" if v is None else f"{100 * v:.0f} %"


def greatest(r, server, model, judge):
    """The greatest throughput; "≥" if the client could not do more."""
    best = r.best(server, model, judge)
    for step in r.steps("throughput", f"{model} {judge} "):
        if best and r.get("throughput", server, step, "rate") == best:
            busy = r.get("throughput", server, step, "client_cpu")
            return ("≥ " if busy and busy > BUSY else "") + number(best), busy
    return "–", None


def throughput(t, r):
    t.say("**Throughput**: answers per second, in a closed loop with the best number of requests "
          "in flight, and in an open loop with 64 connections that requests more than the server "
          "answers. The latter is the greatest load in what follows. The floor is a loop of "
          "epoll, recv and send that answers with a constant. ≥: the client used more than "
          f"{100 * BUSY:.0f} % of its CPU, and is the bottleneck.")
    rows = []
    for model in MODELS:
        for judge, name in (("perf_analyzer", "perf_analyzer, closed"),
                            ("load", "pawl load, closed"), ("open", "pawl load, open")):
            cells = {s: greatest(r, s, model, judge) for s in SERVERS}
            triton, pawl, twin = (r.best(s, model, judge) for s in ("triton", "pawl", "twin"))
            rows.append([model, name, cells["triton"][0], cells["pawl"][0],
                         number(ratio(pawl, triton)), cells["twin"][0],
                         number(ratio(pawl, twin)), cells["floor"][0],
                         " / ".join(share(cells[s][1]) for s in ("triton", "pawl"))
                         if judge != "perf_analyzer" else ""])
    t.grid(["model", "judge", "Triton", "pawl", "pawl / Triton", "mutex twin", "pawl / twin",
            "floor", "client's CPU, Triton / pawl"], rows)


def latency(t, r):
    t.say("**Latency** of Poisson arrivals, in ms: p50 / p99 / p99.9. The load is a share of "
          "each server's own greatest load by that judge, or for all servers 70 % of Triton's. "
          "The client's lag is the time between the intended start of a request and the moment "
          "at which the client acted.")
    rows = []
    for model in MODELS:
        for step, name in (("load 50", "50 %"), ("load 70", "70 %"), ("load 90", "90 %"),
                           ("perf_analyzer 70", "70 %, perf_analyzer"),
                           ("same 70", "as Triton at 70 %")):
            cells, lags = {}, []
            for server in ("triton", "pawl", "twin"):
                # this is Triton's own load at 70 %
                at = "load 70" if step == "same 70" and server == "triton" else step
                values = [r.get("latency", server, f"{model} {at}", p)
                          for p in ("p50", "p99", "p999")]
                cells[server] = (" / ".join(ms(v) for v in values)
                                 if values[0] is not None else "–", values[1])
                lags.append(ms(r.get("latency", server, f"{model} {at}", "lag_p99")))
            rows.append([model, name, *(cells[s][0] for s in ("triton", "pawl")),
                         number(ratio(cells["pawl"][1], cells["triton"][1])), cells["twin"][0],
                         " / ".join(lags[:2]) if lags[:2] != ["–"] * 2 else ""])
    t.grid(["model", "load", "Triton", "pawl", "p99, pawl / Triton", "mutex twin",
            "client's lag p99, Triton / pawl"], rows)


def grpc(t, r):
    t.say("**gRPC**: pawl load with eight connections: answers per second in a closed loop with "
          "64 requests in flight, and in an open loop that requests more than the server "
          "answers; p50 / p99 / p99.9 in ms at 70 % of the latter.")
    rows = []
    for model in MODELS:
        for step, name in (("closed", "closed"), ("open", "open")):
            values, busy = ([r.get("grpc", s, f"{model} {step}", key)
                             for s in ("triton", "pawl")] for key in ("rate", "client_cpu"))
            rows.append([model, name, *(("≥ " if b and b > BUSY else "") + number(v)
                                        for v, b in zip(values, busy)),
                         number(ratio(values[1], values[0])),
                         " / ".join(share(b) for b in busy)])
        tails = [r.get("grpc", s, f"{model} 70", "p99") for s in ("triton", "pawl")]
        rows.append([model, "latency at 70 %", *(
            " / ".join(ms(r.get("grpc", s, f"{model} 70", p)) for p in ("p50", "p99", "p999"))
            for s in ("triton", "pawl")), number(ratio(tails[1], tails[0])),
            " / ".join(share(r.get("grpc", s, f"{model} 70", "client_cpu"))
                       for s in ("triton", "pawl"))])
    t.grid(["model", "what", "Triton", "pawl", "pawl / Triton", "client's CPU, Triton / pawl"],
           rows)


def overload(t, r):
    t.say("**Overload**: the client requests three times the greatest load, with a short queue "
          "and 256 connections. Offered is what it sent, and goodput what was answered, both "
          "relative to the greatest load; p99 / at 70 % is the p99 of answers relative to that "
          "at 70 % load. All times count from the time at which a request should have been sent, "
          "so they contain the client's delay where less than three times is offered or "
          "requests waited for a connection.")
    rows = []
    for model in MODELS:
        for server in ("triton", "pawl"):
            def get(key, server=server, model=model):
                return r.get("overload", server, model, key)
            rows.append([model, server, number(ratio(get("sent"), get("capacity"))),
                         number(ratio(get("rate"), get("capacity"))), number(get("due")),
                         number(get("refused")), number(get("waited")),
                         ms(get("p99")), number(ratio(get("p99"), get("below_p99"))),
                         ms(get("refused_p50")), ms(get("refused_p99")), ms(get("lag_p99")),
                         share(get("client_cpu"))])
    t.grid(["model", "server", "offered", "goodput", "requests", "refused", "waited",
            "p99, ms", "p99 / at 70 %", "refusal p50, ms", "refusal p99, ms",
            "client's lag p99, ms", "client's CPU"], rows)
    floor = r.best("floor", "small", "load")
    most = r.get("overload", "pawl", "small", "capacity")
    offered = ratio(r.get("overload", "pawl", "small", "sent"), most)
    if floor and offered:
        cost = most / floor
        t.say(f"A refusal costs a server at least what the floor needs to read a request and "
              f"send an answer: {1e6 / floor:.1f} us for a request of small, while an answer "
              f"of pawl costs {1e6 / most:.1f} us. If a refusal costs b and an answer a, a "
              "server with one CPU that is offered k times its greatest load answers at most "
              "(1 - k b / a) / (1 - b / a) of it. With these figures "
              f"b / a is {cost:.2f}, and the goodput of small is at most "
              f"{bound(3, cost):.2f} at three times the greatest load, and "
              f"{bound(offered, cost):.2f} at the {offered:.2f} times that the client offered "
              "to pawl, whatever the server does, as long as it answers refusals.")


def bound(k, cost):
    return max(0, (1 - k * cost) / (1 - cost)) if cost < 1 else 0


def mlperf(t, r):
    t.say("**MLPerf LoadGen**: p99 in ms of SingleStream and MultiStream (8 samples); samples "
          "per second of Offline, and of Server at 0.85 of Offline, with its p99; number of "
          "rounds that LoadGen reported VALID. LoadGen calls Python, which uses connections in C "
          f"(pool.c). Where they use more than {100 * BUSY:.0f} % of the client's CPU, the client "
          "is the bottleneck.")
    rows = []
    for model in MODELS:
        for server in ("triton", "pawl"):
            def get(scenario, key, server=server, model=model):
                return r.get("loadgen", server, f"{model} {scenario}", key)
            valid = r.data.get(("loadgen", server, f"{model} Server"), [])
            rows.append([model, server, *(number(None if v is None else v / 1e6) for v in (
                get("SingleStream", "p99_ns"), get("MultiStream", "p99_ns"))),
                number(get("Offline", "rate")), number(get("Server", "rate")),
                number(ratio(get("Server", "p99_ns"), 1e6)),
                f"{sum(v['valid'] for v in valid)} of {len(valid)}" if valid else "–",
                " / ".join(share(get(k, "client_cpu")) for k in ("Offline", "Server"))])
    t.grid(["model", "server", "SingleStream", "MultiStream", "Offline", "Server", "p99",
            "valid", "client's CPU, Offline / Server"], rows)


def swap(t, r):
    t.say("**Swap**: 200 requests a second, while versions are loaded one after the other. "
          "Each answer must be wholly of one version.")
    rows = []
    for server in ("triton", "pawl", "twin"):
        def get(key, server=server):
            return r.get("swap", server, "swap", key)
        wrong = [w for v in r.data.get(("swap", server, "swap"), []) for w in v["wrong"]]
        rows.append(["swap", server, ms(get("quiet_p99")), ms(get("p99")),
                     number(ratio(get("p99"), get("quiet_p99"))), number(get("loads")),
                     number(get("load_ms")), number(get("failed")),
                     "–" if get("rate") is None else str(len(wrong))])
    t.grid(["model", "server", "p99 without, ms", "p99 with, ms", "ratio", "loads",
            "a load, ms", "failed", "mixes"], rows)


def fairness(t, r):
    t.say("**Shares**: a steady load on one model, while another one of the same kind is "
          "flooded with 16 requests in flight. Weights are flooded to steady; Triton has none.")
    rows = []
    for server in ("triton", "pawl", "twin"):
        for key, name in (("alone", "no flood"), ("equal", "1 : 1"), ("favoured", "1 : 4")):
            def get(what, server=server, key=key):
                return r.get("fairness", server, "magika", f"{key}/{what}")
            rows.append([server, name, number(r.get("fairness", server, "magika", "asked")
                                              if get("rate") is not None else None),
                         number(get("rate")), ms(get("p50")), ms(get("p99")),
                         number(get("flood_rate"))])
    t.grid(["server", "weights", "asked/s", "answered/s", "p50, ms", "p99, ms", "flood/s"],
           rows)


def targets(t, r):
    rows = []

    def add(what, value, least, limit):
        good = value is not None and (value >= limit if least else value <= limit)
        met = "–" if value is None else "met" if good else "missed"
        rows.append([what, f"{'≥' if least else '≤'} {limit}", number(value), met])

    for model, (most, tail) in TARGETS.items():
        pawl, triton = (r.best(s, model, "load") for s in ("pawl", "triton"))
        add(f"throughput of {model}, pawl / Triton", ratio(pawl, triton), True, most)
        add(f"p99 of {model} at 70 %, pawl / Triton",
            ratio(*(r.get("latency", s, f"{model} load 70", "p99")
                    for s in ("pawl", "triton"))), False, tail)
    for model in ("small", "magika", "large"):
        def get(key, model=model):
            return r.get("overload", "pawl", model, key)
        add(f"overload of {model}: goodput / greatest throughput",
            ratio(get("rate"), get("capacity")), True, 0.95)
        add(f"overload of {model}: p99 / p99 at 70 %", ratio(get("p99"), get("below_p99")),
            False, 2)
        add(f"overload of {model}: p99 of refusals, ms", ratio(get("refused_p99"), 1000),
            False, 1)
    for model in ("small", "large"):
        valid = r.data.get(("loadgen", "pawl", f"{model} Server"), [])
        add(f"LoadGen, {model}: share of valid runs of Server at 0.85 of Offline",
            sum(v["valid"] for v in valid) / len(valid) if valid else None, True, 1)
    add("swap: p99 with loads / without", ratio(*(r.get("swap", "pawl", "swap", k)
                                                  for k in ("p99", "quiet_p99"))), False, 1.2)
    failed = [v["failed"] + v["unanswered"] for v in r.data.get(("swap", "pawl", "swap"), [])]
    add("swap: requests that failed, or mixed versions", sum(failed) if failed else None, False,
        0)
    t.say("**Targets.**")
    t.grid(["what", "target", "measured", ""], rows)


def tables(record):
    t, r, a, use = Text(), Results(record), record["arguments"], record["use"]
    machine = bench.describe(record["machine"]).replace(", , ", ", ")
    t.say(f"{machine}. Medians of up to {a['rounds']} rounds, {record['rounds_done']} of which "
          f"are complete; runs of {number(a['seconds'])} s, longer for slow models. Other "
          f"programs used {100 * use['others']:.0f} % of a CPU, and the host took "
          f"{100 * use['steal']:.0f} %.")
    for table in (throughput, latency, grpc, overload, mlperf, swap, fairness, targets):
        table(t, r)
    if record["failures"]:
        t.say(f"{len(record['failures'])} runs gave no figures.")
    return t.lines


def put(lines):
    with open(DOCUMENT, encoding="utf-8") as f:
        before, rest = f.read().split(BEGIN)
    after = rest.split(END)[1]
    with open(DOCUMENT, "w", encoding="utf-8") as f:
        f.write(before + BEGIN + "\n".join(lines).rstrip() + "\n" + END + after)


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as f:
        put(tables(json.load(f)))


if __name__ == "__main__":
    main()
