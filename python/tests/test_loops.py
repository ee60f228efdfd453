# SPDX-License-Identifier: Apache-2.0
"""Completion queues, asyncio, concurrent.futures."""
import asyncio
import concurrent.futures
import contextvars
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


def test_a_cancelled_await_leaves_the_data_as_they_are(eng):
    async def main():
        var = eng.var()
        ready = threading.Event()
        eng.push(ready.wait, SOON, writes=var)
        op = eng.push(int, writes=var)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(op, 0.01)
        behind = eng.push(int, "7", writes=var)
        ready.set()
        assert await behind == 7
        assert op.cancelled() and isinstance(op.exception(SOON), pawl.CanceledError)
        var.wait(SOON)

    run(main())
    eng.wait(SOON)


def test_a_cancelled_await_poisons_if_that_is_asked(eng, gate):
    async def main():
        var = eng.var()
        first = eng.push(gate, writes=var)
        op = eng.push(int, writes=var, cancel_poisons=True)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(op, 0.01)
        behind = eng.push(int, reads=var)
        gate.open()
        await first
        with pytest.raises(pawl.SkippedError):
            await behind
        assert op.cancelled()
        var.clear()

    run(main())
    eng.wait(SOON)


def test_a_body_that_runs_is_told_of_a_cancelled_await(eng):
    async def main():
        started, told = threading.Event(), []

        def body():
            started.set()
            while pawl.canceled() is None:
                time.sleep(0.001)
            told.append(pawl.canceled())

        op = eng.push(body)
        while not started.is_set():
            await asyncio.sleep(0.001)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(op, 0.01)
        await op
        assert told == ["canceled"] and not op.cancelled()

    run(main())


def test_ops_in_asyncio_wait_and_callbacks(eng, gate):
    async def main():
        called, loop = [], asyncio.get_running_loop()
        first, never = eng.push(int, "1"), eng.push(gate)
        failed = eng.push(int, "x")
        for op in (first, never):
            op.add_done_callback(lambda op: called.append((op, threading.get_ident())))
        done, pending = await asyncio.wait([first, failed, never], timeout=0.1)
        while not {first, failed} <= done:
            done, pending = await asyncio.wait([first, failed, never], timeout=0.1)
        assert pending == {never} and failed.exception()
        done, pending = await asyncio.wait([first, never],
                                           return_when=asyncio.FIRST_COMPLETED)
        assert first in done

        def removed(op):
            raise AssertionError

        never.add_done_callback(removed)
        assert never.remove_done_callback(removed) == 1
        loop.call_later(0.01, gate.open)
        assert await never == "gate"
        assert await asyncio.ensure_future(never) == "gate"
        await asyncio.sleep(0.01)
        here = threading.get_ident()
        assert len(called) == 2 and set(called) == {(first, here), (never, here)}

    run(main())


# What asyncio takes an op for: a future.  Where it wants a coroutine, engine.call() is one.
def _op(eng):
    return eng.push(int, "9")


def _in_a_group(eng):
    async def main():
        async with asyncio.TaskGroup() as group:
            task = group.create_task(eng.call(int, "9"))
        return task.result()
    return main()


async def _waited(ops):
    done, pending = await asyncio.wait(ops)
    assert not pending
    return [op.result() for op in done]


async def _completed(ops):
    return [await op for op in asyncio.as_completed(ops)]


async def _from_a_thread(eng):
    loop = asyncio.get_running_loop()
    return await asyncio.to_thread(
        lambda: asyncio.run_coroutine_threadsafe(eng.call(int, "9"), loop).result(SOON))


FORMS = {
    "await": (9, _op),
    "ensure_future": (9, lambda eng: asyncio.ensure_future(_op(eng))),
    "gather": ([9, 9], lambda eng: asyncio.gather(_op(eng), _op(eng))),
    "wait_for": (9, lambda eng: asyncio.wait_for(_op(eng), SOON)),
    "shield": (9, lambda eng: asyncio.shield(_op(eng))),
    "wait": ([9, 9], lambda eng: _waited([_op(eng), asyncio.ensure_future(_op(eng))])),
    "as_completed": ([9, 9], lambda eng: _completed([_op(eng), _op(eng)])),
    "create_task": (9, lambda eng: asyncio.create_task(eng.call(int, "9"))),
    "run_coroutine_threadsafe": (9, _from_a_thread),
}
if hasattr(asyncio, "TaskGroup"):
    FORMS["TaskGroup"] = (9, _in_a_group)


@pytest.mark.parametrize("form", FORMS)
def test_forms_in_which_asyncio_waits(eng, form):
    async def main():
        return await FORMS[form][1](eng)

    assert run(main()) == FORMS[form][0]


def test_callbacks_without_a_loop(eng, gate):
    called = []
    op = eng.push(gate)
    op.add_done_callback(called.append)
    op.add_done_callback(lambda op: 1 / 0)
    op.add_done_callback(called.append)
    gate.open()
    op.wait(SOON)
    op.add_done_callback(called.append)
    assert called == [op] * 3


def test_a_body_runs_in_the_context_of_its_push(eng):
    number = contextvars.ContextVar("number", default=0)
    number.set(5)
    op = eng.push(number.get)
    number.set(6)
    assert op.result(SOON) == 5
    eng.push(number.set, 7).wait(SOON)
    assert number.get() == 6


def test_keywords_of_the_body(eng):
    assert eng.push(sorted, [1, 3, 2], kwargs={"reverse": True}).result(SOON) == [3, 2, 1]
    data = eng.array(bytearray(b"ab"))
    assert eng.push(lambda *, of: (bytes(of), of.readonly), kwargs={"of": data}).result(SOON) == \
        (b"ab", True)


def test_executor(gate):
    with pawl.Engine(1) as eng:
        with pawl.Executor(eng) as pool:
            assert pool.submit(divmod, 7, 2).result(SOON) == (3, 1)
            assert pool.submit(sorted, [1, 2], reverse=True).result(SOON) == [2, 1]
            assert list(pool.map(int, "123")) == [1, 2, 3]
            with pytest.raises(ValueError):
                pool.submit(int, "x").result(SOON)
            first, second = pool.submit(gate), pool.submit(int)
            assert gate.started.wait(SOON) and second.cancel()
            gate.open()
            assert concurrent.futures.wait([first, second], SOON).not_done == set()

            async def main():
                return await asyncio.get_running_loop().run_in_executor(pool, int, "4")

            assert run(main()) == 4
        with pytest.raises(RuntimeError):
            pool.submit(int)
        var = eng.var()
        with pawl.Executor(eng, writes=var) as pool:
            eng.push(time.sleep, 0.05, writes=var)
            lost = pool.submit(int)
            eng.cancel()
            with pytest.raises((pawl.CanceledError, concurrent.futures.CancelledError)):
                lost.result(SOON)
            var.clear()
        eng.wait(SOON)
    for how in ({"workers": 2}, {"kwargs": {}}):
        with pytest.raises(TypeError, match="no keyword"):
            pawl.Executor(**how)
    with pawl.Executor() as pool:
        assert pool.submit(int, "8").result(SOON) == 8


def test_an_array_can_get_other_data(eng):
    a = eng.array(bytearray(b"a"))
    a.data = bytearray(b"bc")
    assert eng.push(bytes, a).result(SOON) == b"bc"
    assert a.wait(SOON) == b"bc"
