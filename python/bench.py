#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The cost of an op from Python, beside concurrent.futures.ThreadPoolExecutor in the same run.

Prints the least of several rounds, in microseconds per op: of the call that pushes or submits,
and from the first push to the last result.  The bodies do nothing.
"""
import asyncio
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pawl

OPS, ROUNDS, WORKERS = 5000, 15, 1


def body():
    return None


def rounds(push, finish):
    calls, all_of_it = [], []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        ops = [push(body) for _ in range(OPS)]
        calls.append(time.perf_counter() - begin)
        finish(ops)
        all_of_it.append(time.perf_counter() - begin)
    return [min(t) / OPS * 1e6 for t in (calls, all_of_it)]


def results(ops):
    for op in ops:
        op.result()


async def awaited(make):
    best = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        await asyncio.gather(*[make() for _ in range(OPS)])
        best.append(time.perf_counter() - begin)
    return [float("nan"), min(best) / OPS * 1e6]


with pawl.Engine(WORKERS) as engine, ThreadPoolExecutor(WORKERS) as pool:
    var = engine.var()
    table = {
        "pawl, push": rounds(engine.push, results),
        "pawl, push that writes one var": rounds(lambda f: engine.push(f, writes=var), results),
        "ThreadPoolExecutor, submit": rounds(pool.submit, results),
    }

    async def both():
        loop = asyncio.get_running_loop()
        table["pawl, await"] = await awaited(lambda: engine.push(body))
        table["ThreadPoolExecutor, run_in_executor"] = \
            await awaited(lambda: loop.run_in_executor(pool, body))

    asyncio.run(both())

print(f"{sys.implementation.name} {sys.version.split()[0]}, {WORKERS} worker, {OPS} ops, "
      f"least of {ROUNDS} rounds")
print(f"{'microseconds per op':40}{'call':>8}{'all':>8}")
for name, (call, total) in table.items():
    print(f"{name:40}{call:8.2f}{total:8.2f}")
submit, push = table["ThreadPoolExecutor, submit"], table["pawl, push"]
print("pawl / ThreadPoolExecutor: call %.2f, all %.2f; awaited %.2f" % (
    push[0] / submit[0], push[1] / submit[1],
    table["pawl, await"][1] / table["ThreadPoolExecutor, run_in_executor"][1]))
