#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The cost of an op from Python, beside a ThreadPoolExecutor in the same run.

In turns, and the median of the rounds, in microseconds per op from the first push to the last
result, with the median of the ratios of two neighbors.  The bodies do nothing.
"""
import asyncio
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pawl

OPS, ONES, ROUNDS, WORKERS = 5000, 1000, 15, 1


def body():
    return None


def many(make):
    for op in [make(body) for _ in range(OPS)]:
        op.result()


def one_by_one(make):
    for _ in range(ONES):
        make(body).result()


async def gathered(make):
    await asyncio.gather(*[make(body) for _ in range(OPS)])


async def awaited_one_by_one(make):
    for _ in range(ONES):
        await make(body)


def microseconds(run, call, make, ops):
    begin = time.perf_counter()
    run(call(make))
    return (time.perf_counter() - begin) / ops * 1e6


print(f"{sys.implementation.name} {sys.version.split()[0]}, {WORKERS} worker, {OPS} and {ONES} ops, "
      f"{ROUNDS} rounds")
print(f"{'microseconds per op':36}{'pawl':>8}{'beside':>8}{'ratio':>8}")
loop = asyncio.new_event_loop()
with pawl.Engine(WORKERS) as engine, ThreadPoolExecutor(WORKERS) as pool:
    loop.set_default_executor(pool)
    for name, run, call, ops, other in (
            ("many, submit()", id, many, OPS, pool.submit),
            ("one by one, submit()", id, one_by_one, ONES, pool.submit),
            ("gathered, to_thread()", loop.run_until_complete, gathered, OPS, asyncio.to_thread),
            ("awaited one by one, to_thread()", loop.run_until_complete, awaited_one_by_one, ONES,
             asyncio.to_thread)):
        pairs = [[microseconds(run, call, make, ops) for make in (engine.push, other)]
                 for _ in range(ROUNDS)]
        print(f"{name:36}" + "".join(f"{statistics.median(column):8.1f}" for column in zip(*pairs))
              + f"{statistics.median(a / b for a, b in pairs):8.2f}")
    loop.close()
