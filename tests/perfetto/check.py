# SPDX-License-Identifier: Apache-2.0
"""check.py KIND TRACE QUERIED: what trace_processor found in the trace is what the program did.

KIND is one of traces.c, or "infer" or "serve": then the program is what the file itself says.
"""
import collections
import json
import sys

kind, trace, queried = sys.argv[1:]
with open(trace, encoding="utf-8") as f:       # names are UTF-8
    file = json.load(f)
with open(queried, encoding="utf-8") as f:
    found = json.load(f)
slices = {s["id"]: s for s in found["slices"]}
count = collections.Counter(s["name"] for s in slices.values())
arrows = collections.Counter((slices[f["from"]]["name"], slices[f["to"]]["name"])
                             for f in found["flows"])
other = file["otherData"]
bad = []


def same(what, a, b):
    if a != b:
        bad.append(f"{what}: {a}, not {b}")


same("dropped", found["dropped"], [])
same("control characters", [n for n in count if any(ord(c) < 32 or 127 <= ord(c) < 160 for c in n or "")],
     [])

# everything that the file has
of = collections.Counter(e["ph"] for e in file["traceEvents"])
same("slices", len(slices), of["X"] + of["b"])
same("flows", len(found["flows"]), of["s"])
same("begins and ends of async events", of["b"], of["e"])

# on a thread: one behind the other, or inside; from its end an arrow goes to a later begin
tracks = collections.defaultdict(list)
for s in slices.values():
    if s["tid"] is not None:
        tracks[s["pid"], s["tid"]].append(s)
for track in tracks.values():
    track.sort(key=lambda s: (s["ts"], -s["dur"]))
    open_ = []
    for s in track:
        while open_ and open_[-1]["ts"] + open_[-1]["dur"] <= s["ts"]:
            open_.pop()
        same("depth", s["depth"], len(open_))
        if open_ and s["ts"] + s["dur"] > open_[-1]["ts"] + open_[-1]["dur"]:
            bad.append(f"{s} overlaps {open_[-1]}")
        open_.append(s)
for f in found["flows"]:
    a, b = slices[f["from"]], slices[f["to"]]
    if a["category"] == "op" and b["category"] == "op" and a["ts"] + a["dur"] > b["ts"]:
        bad.append(f"an arrow from {a} to {b}, which began before its end")

if kind != "wrapped" and kind not in ("infer", "serve"):
    same("lost", other, {"base_ns": other["base_ns"], "events_lost": 0, "ops_incomplete": 0,
                         "arrows_missing": 0})
if kind == "plain":
    same("ops", count, {"plain": 200})
    same("arrows", arrows, {})
elif kind == "nested":
    same("ops", count, {"outside": 20, "inside": 20})
    same("arrows", arrows, {("inside", "inside"): 19})
elif kind == "async":
    same("ops", count, {"io": 16, "start io": 16, "behind": 16})
    same("arrows", arrows, {("start io", "behind"): 16})
    same("async", sum(s["category"] == "async" and s["dur"] >= 2000000 for s in slices.values()), 16)
elif kind == "launches":
    same("ops", count, {"launch": 100, "top": 100, "left": 100, "right": 100, "bottom": 100})
    same("arrows", arrows, {("top", "left"): 100, ("top", "right"): 100, ("left", "bottom"): 100,
                            ("right", "bottom"): 100, ("top", "bottom"): 100, ("bottom", "top"): 99})
elif kind == "arrows":
    same("ops", count, {"w1": 1, "r": 20, "w2": 1, "part": 10, "join": 1, "first": 1, "alone": 1,
                        "DeleteVariable": 1})
    same("arrows", arrows, {("w1", "r"): 20, ("r", "w2"): 20, ("part", "join"): 10,
                            ("first", "DeleteVariable"): 1})
elif kind == "names":
    same("ops", sorted(n for n in count if n), sorted([
        'quote " and \\', "line\\u000a", "\xe9", "\ufffd\ufffd", "\\u001b[2J",
        "\ufffd\ufffd\ufffd", "op", "[No name]"]))      # the viewer leaves \u as it is
elif kind == "wrapped":
    # each op has three events; every arrow of the chain between ops that are there
    there = {int(n.split()[1]) for n in count}
    same("events", other["events_lost"] > 0 and other["events_lost"] <= 3 * 5000 - 3 * len(there), True)
    same("once", max(count.values(), default=1), 1)
    same("arrows", {(int(a.split()[1]), int(b.split()[1])) for a, b in arrows},
         {(k, k + 1) for k in there if k + 1 in there})
    same("process", [p["name"] for p in found["processes"] if p["pid"] == 1],
         [f"pawl, {other['events_lost']} events lost"])
elif kind == "infer":
    same("layers", {"fc1", "softmax"} <= count.keys() and bool(arrows), True)
elif kind == "serve":
    same("requests", count["request"] > 0 and count["request"] == count["answer"] == count["run"], True)
    same("processes", sorted(p["pid"] for p in found["processes"]), [1, 2, 3])
for line in bad[:20]:
    print(f"{kind}: {line}")
sys.exit(bool(bad))
