# SPDX-License-Identifier: Apache-2.0
"""Completion queues and asyncio."""
import asyncio
import os
import select
import threading
import time

import pytest

import pawl
from conftest import SOON


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, SOON))


def test_queue_reports_complete_ops(eng):
    cq, var = eng.completion_queue(), eng.var()
    assert cq.reap() == []
    with pytest.raises(pawl.WaitTimeout):
        cq.wait(0.01)
    ops = [eng.push(int, i, writes=var, cq=cq) for i in range(100)]
    failed = eng.push(int, "x", writes=var, cq=cq)
    found = []
    while len(found) < 101:
        assert select.select([cq], [], [], SOON)[0] == [cq]
        found += cq.reap(7)
    assert found == ops + [failed]
    assert select.select([cq], [], [], 0)[0] == []
    assert [op.result() for op in ops] == list(range(100)) and failed.exception()
    op = eng.push(int, cq=cq)
    cq.wait(SOON)
    with pytest.raises(pawl.BusyError):
        cq.close()
    assert cq.reap() == [op]
    cq.close()
    cq.close()
    for call in (cq.reap, cq.wait, cq.fileno, lambda: eng.push(int, cq=cq)):
        with pytest.raises(pawl.StaleError):
            call()
    with pytest.raises(ValueError, match="most is 0"):
        eng.completion_queue().reap(0)


def test_refused_push_does_not_arrive(eng):
    cq, var = eng.completion_queue(), eng.var()
    var.delete()
    with pytest.raises(pawl.StaleError):
        eng.push(int, cq=cq, reads=var)
    cq.close()


def test_await_an_op(eng):
    async def main():
        var = eng.var()
        assert await eng.push(int, "5", writes=var) == 5
        op = eng.push(int, "x", writes=var)
        with pytest.raises(pawl.OpError) as caught:
            await op
        assert isinstance(caught.value.__cause__, ValueError)
        with pytest.raises(pawl.SkippedError):
            await eng.push(int, reads=var)
        with pytest.raises(pawl.DeadlineError):
            await eng.push(int, deadline=0)
        return await asyncio.gather(*[eng.push(divmod, i, 10) for i in range(100)])

    assert run(main()) == [divmod(i, 10) for i in range(100)]


def test_thousands_of_ops_do_not_stop_the_loop(eng):
    async def main():
        ticks, going = 0, True

        async def ticker():
            nonlocal ticks
            while going:
                ticks += 1
                await asyncio.sleep(0)

        other = asyncio.ensure_future(ticker())
        ops = [eng.push(time.sleep, 0) for _ in range(5000)]
        results = await asyncio.gather(*ops)
        going = False
        await other
        assert results == [None] * 5000 and ticks > 1

    run(main())


def test_two_loops_on_one_engine(eng):
    counts = []

    def loop():
        async def main():
            return sum(await asyncio.gather(*[eng.push(int, "1") for _ in range(2000)]))
        counts.append(run(main()))

    threads = [threading.Thread(target=loop) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert counts == [2000, 2000]


def test_op_of_another_thread_and_of_another_loop(eng, gate):
    op = eng.push(gate)

    async def main():
        threading.Timer(0.05, gate.open).start()
        first, second = await asyncio.gather(op, op)
        return first, second

    assert run(main()) == ("gate", "gate")
    assert run(main()) == ("gate", "gate")


def test_op_that_names_a_queue_can_be_awaited(eng, gate):
    async def main():
        cq = eng.completion_queue()
        op = eng.push(gate, cq=cq)
        asyncio.get_running_loop().call_later(0.02, gate.open)
        assert await op == "gate"
        cq.wait(SOON)
        assert cq.reap() == [op]

    run(main())


def test_more_loops_than_there_are_queues(eng):
    async def main():
        return await eng.push(int, "2")

    assert sum(run(main()) for _ in range(1100)) == 2200


def test_cancelling_a_task_cancels_its_op(eng, gate):
    async def main():
        var = eng.var()
        eng.push(gate, writes=var)
        op = eng.push(int, writes=var)

        async def waits():
            await op

        task = asyncio.ensure_future(waits())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.open()
        with pytest.raises(pawl.CanceledError):
            await op
        var.clear()

    run(main())


def test_push_does_not_block_the_loop():
    with pawl.Engine(1, window=2) as eng:
        async def main():
            opened = threading.Event()
            ops = [eng.push(opened.wait, SOON), eng.push(int)]
            with pytest.raises(pawl.FullError):
                eng.push(int)
            opened.set()
            await asyncio.gather(*ops)

        run(main())


def test_async_with():
    async def main():
        async with pawl.Engine(1) as eng:
            op = eng.push(time.sleep, 0.01)
        assert op.done()
        await op
        with pytest.raises(pawl.OpError):
            async with pawl.Engine(1) as eng:
                eng.push(int, "x")

    run(main())


def test_close_answers_those_who_await(gate):
    async def main():
        eng = pawl.Engine(1)
        op = eng.push(gate)

        async def waits():
            return await op

        task = asyncio.ensure_future(waits())
        await asyncio.sleep(0)
        gate.open()
        eng.close()
        assert await task == "gate"
        # The descriptor is not the loop's any more: another file may get its number.
        fds = [os.open(os.devnull, os.O_RDONLY) for _ in range(8)]
        await asyncio.sleep(0)
        for fd in fds:
            os.close(fd)

    run(main())
