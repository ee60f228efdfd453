# SPDX-License-Identifier: Apache-2.0
"""Order, results, vars, threads."""
import threading
import time

import pytest

import pawl
from conftest import SOON


def test_writes_run_in_the_order_of_their_pushes(eng):
    var, seen = eng.var(), []
    for i in range(1000):
        eng.push(seen.append, i, writes=var)
    var.wait(SOON)
    assert seen == list(range(1000))
    assert var.version == 1000


def test_result_is_what_the_body_returned(eng):
    op = eng.push(divmod, 17, 5, name="divide")
    assert op.result(SOON) == (3, 2)
    assert op.exception() is None and op.done() and op.name == "divide"
    assert "divide" in repr(op) and "done" in repr(op)


def test_reads_run_together(eng):
    var, both = eng.var(), threading.Barrier(2)
    ops = [eng.push(both.wait, SOON, reads=var) for _ in range(2)]
    assert sorted(op.result(SOON) for op in ops) == [0, 1]


def test_read_waits_for_the_write_before_it(eng, gate):
    var, seen = eng.var(), []
    eng.push(gate, writes=var)
    op = eng.push(lambda: seen.append(gate.opened.is_set()), reads=[var])
    assert gate.started.wait(SOON) and not op.done()
    gate.open()
    op.wait(SOON)
    assert seen == [True]


def test_op_of_many_vars(eng):
    variables = [eng.var() for _ in range(100)]
    total = []
    for var in variables:
        eng.push(total.append, 1, writes=var)
    op = eng.push(lambda: len(total), reads=variables[:50], writes=variables[50:])
    assert op.result(SOON) == 100


def test_var_that_is_read_and_written_is_one_access(eng):
    var = eng.var()
    assert eng.push(int, "7", reads=[var, var], writes=[var]).result(SOON) == 7


def test_priority_goes_first():
    with pawl.Engine(1, strict_priority=True) as eng:
        opened, started, seen = threading.Event(), threading.Event(), []
        eng.push(lambda: (started.set(), opened.wait(SOON)))
        assert started.wait(SOON)
        for p in (-5, 0, 9, 3):
            eng.push(seen.append, p, priority=p)
        opened.set()
        eng.wait(SOON)
        assert seen == [9, 3, 0, -5]


def test_body_pushes(eng):
    var, seen = eng.var(), []

    def body(n):
        seen.append(n)
        if n:
            eng.push(body, n - 1, writes=var)

    eng.push(body, 50, writes=var)
    eng.wait(SOON)
    assert seen == list(range(50, -1, -1))


def test_body_waits_for_another_op(eng):
    def body():
        return eng.push(int, "3").result(SOON) + 1

    assert eng.push(body).result(SOON) == 4


def test_body_that_waits_for_itself_is_refused(eng):
    mine = []
    ready = threading.Event()

    def body():
        assert ready.wait(SOON)
        with pytest.raises(pawl.DeadlockError):
            mine[0].wait()
        with pytest.raises(pawl.DeadlockError):
            eng.wait()
        with pytest.raises(pawl.DeadlockError):
            eng.close()
        return True

    mine.append(eng.push(body))
    ready.set()
    assert mine[0].result(SOON)


def test_twenty_threads_push(eng):
    var, count = eng.var(), [0]

    def one():
        count[0] += 1           # no lock: the op writes var

    def pusher():
        for _ in range(200):
            eng.push(one, writes=var)

    threads = [threading.Thread(target=pusher) for _ in range(20)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    eng.wait(SOON)
    assert count[0] == 4000


def test_several_threads_wait_for_one_op(eng, gate):
    op, seen = eng.push(gate), []
    threads = [threading.Thread(target=lambda: seen.append(op.result(SOON))) for _ in range(8)]
    for t in threads:
        t.start()
    gate.open()
    for t in threads:
        t.join()
    assert seen == ["gate"] * 8


def test_second_waiting_thread_has_its_timeout(eng, gate):
    op = eng.push(gate)
    first = threading.Thread(target=op.wait)
    first.start()
    with pytest.raises(pawl.WaitTimeout):
        op.wait(0.05)
    gate.open()
    first.join()


def test_timeout_of_waits(eng, gate):
    var = eng.var()
    op = eng.push(gate, writes=var)
    for wait in (op.wait, op.result, var.wait, eng.wait):
        with pytest.raises(pawl.WaitTimeout) as caught:
            wait(0.01)
        assert isinstance(caught.value, TimeoutError)
    assert gate.started.wait(SOON) and op.running()
    gate.open()
    assert op.result(SOON) == "gate" and not op.running()


def test_wait_writable_waits_for_reads(eng, gate):
    var = eng.var()
    eng.push(gate, reads=var)
    var.wait(SOON)
    with pytest.raises(pawl.WaitTimeout):
        var.wait(0.01, writable=True)
    gate.open()
    var.wait(SOON, writable=True)


def test_threads_keep_their_locals_from_body_to_body():
    with pawl.Engine(1) as eng:
        local = threading.local()

        def body():
            local.n = getattr(local, "n", 0) + 1
            return local.n

        assert [eng.push(body).result(SOON) for _ in range(5)] == [1, 2, 3, 4, 5]


def test_waits_in_bodies_make_no_thread_objects(eng):
    before = threading.active_count()
    eng.push(lambda: eng.push(int).result(SOON)).result(SOON)
    assert threading.active_count() == before


def test_host_runs_the_ops():
    with pawl.Engine(0) as eng:
        seen = []
        eng.push(seen.append, 1)
        eng.push(seen.append, 2)
        assert eng.run_one() and eng.run_one() and not eng.run_one()
        assert seen == [1, 2]
        assert eng.push(threading.get_ident).result(SOON) == threading.get_ident()


@pytest.mark.parametrize("kind", ["per-device", "pooled", "naive"])
def test_kinds(kind):
    with pawl.Engine(1, kind=kind, cpus=[0], name="kinds") as eng:
        var, seen = eng.var(), []
        for i in range(20):
            eng.push(seen.append, i, writes=var)
        eng.wait(SOON)
        assert seen == list(range(20))


def test_naive_engine_of_two_threads():
    with pawl.Engine(kind="naive") as eng:
        var, seen = eng.var(), []

        def pusher():
            for i in range(50):
                eng.push(lambda i=i: (time.sleep(0), seen.append(i)), writes=var)

        threads = [threading.Thread(target=pusher) for _ in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        eng.wait(SOON)
        assert sorted(seen) == sorted(2 * list(range(50)))


def test_window_makes_a_push_wait(gate):
    with pawl.Engine(1, window=4) as eng:
        eng.push(gate)
        for _ in range(3):
            eng.push(int)
        with pytest.raises(pawl.FullError):
            eng.push(int, block=False)
        opener = threading.Thread(target=lambda: (gate.started.wait(SOON), gate.open()))
        opener.start()
        eng.push(int).wait(SOON)
        opener.join()


def test_push_does_not_wait_for_a_reap():
    with pawl.Engine(window=4, workers=1) as e:
        queue = pawl.CompletionQueue(e)
        with pytest.raises(pawl.FullError, match="reap"):
            for _ in range(10):
                e.push(lambda: None, cq=queue)
        e.wait(SOON)
        while queue.reap():
            pass
        e.push(lambda: None, cq=queue)


def test_body_does_not_wait_for_room():
    with pawl.Engine(1, window=2) as eng:
        def body():
            eng.push(int)
            with pytest.raises(pawl.FullError):
                eng.push(int)
            return True

        assert eng.push(body).result(SOON)


def test_more_ops_than_the_window():
    with pawl.Engine(2, window=16) as eng:
        ops = [eng.push(int) for _ in range(2000)]
        eng.wait(SOON)
        assert all(op.done() for op in ops)


def test_stats_dump_trim(eng, tmp_path):
    eng.push(int).wait(SOON)
    stats = eng.stats()
    assert stats["pushed"] >= 1 and stats["workers"] == 2
    with open(tmp_path / "dump", "w") as file:
        eng.dump(file)
    assert "pawl" in (tmp_path / "dump").read_text()
    eng.trim()
