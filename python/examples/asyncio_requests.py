#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Requests of an asyncio server, each of which computes outside the event loop.

Each account is a var.  Requests that read an account run in parallel, one that changes it runs
alone, and all run in the order in which they came.  A client has a group, with a limit on its
requests in flight and a deadline; a request beyond the limit is refused at once.
"""
import asyncio
import hashlib
import sys
import time

import pawl

ACCOUNTS, CLIENTS = 4, 8
REQUESTS = 40 if "--quick" in sys.argv else 400


def read(account):
    """hashlib releases the interpreter's lock while it computes."""
    return hashlib.sha256(bytes(account)).hexdigest()


def change(account, client):
    if client == 5 and account[0] >= 10:
        raise PermissionError("only trusted clients may go on")
    account[0] = (account[0] + 1) % 256


async def client(engine, number, accounts, counts):
    # A group waits for its ops when it is left, so they are awaited before.
    with engine.group(ops=16, deadline=time.monotonic() + 60) as mine:
        pending = set()
        for i in range(REQUESTS):
            account = accounts[(number + i) % ACCOUNTS]
            try:
                if i % 10:
                    op = mine.push(read, account)
                else:
                    op = mine.push(change, account, number, writes=account)
            except pawl.FullError:
                counts["refused"] += 1
                await asyncio.sleep(0.001)      # the client tries again later
                continue
            pending.add(asyncio.ensure_future(answer(op, account, counts)))
            pending = {task for task in pending if not task.done()}
        await asyncio.gather(*pending)


async def answer(op, account, counts):
    try:
        await op
        counts["answered"] += 1
    except pawl.SkippedError:
        counts["skipped"] += 1          # an earlier change of the account failed
    except pawl.OpError as exc:
        counts["failed"] += 1
        assert isinstance(exc.__cause__, PermissionError)
        account.clear()                 # the account is as it was: go on


async def main():
    counts = dict.fromkeys(("answered", "failed", "skipped", "refused"), 0)
    async with pawl.Engine() as engine:
        accounts = [engine.array(bytearray(1 << 16)) for _ in range(ACCOUNTS)]
        begin = time.perf_counter()
        await asyncio.gather(*[client(engine, n, accounts, counts) for n in range(CLIENTS)])
        seconds = time.perf_counter() - begin
    assert sum(counts.values()) == CLIENTS * REQUESTS
    print(f"{CLIENTS * REQUESTS} requests in {seconds:.2f} s:",
          ", ".join(f"{n} {what}" for what, n in counts.items()))


asyncio.run(main())
