# SPDX-License-Identifier: Apache-2.0
"""Exceptions of bodies, deadlines, cancel, refused arguments."""
import errno
import threading
import time

import pytest

import pawl
from conftest import SOON


def fail(text="bad"):
    raise ValueError(text)


def test_exception_comes_out_with_its_cause(eng):
    op = eng.push(fail, "bad data")
    with pytest.raises(pawl.OpError, match="op 'fail': ValueError: bad data") as caught:
        op.result(SOON)
    assert isinstance(caught.value.__cause__, ValueError)
    assert caught.value.op == "fail" and caught.value.errno == errno.EIO
    assert isinstance(op.exception(), pawl.OpError) and "failed" in repr(op)
    # the traceback begins in the body
    assert caught.value.__cause__.__traceback__.tb_frame.f_code.co_name == "fail"


def test_exception_flows_along_the_data(eng):
    a, b, other, ran = eng.var(), eng.var(), eng.var(), []
    eng.push(fail, writes=a)
    middle = eng.push(ran.append, 1, reads=a, writes=b)
    last = eng.push(ran.append, 2, reads=b)
    eng.push(ran.append, 3, writes=other)
    for op in (middle, last):
        with pytest.raises(pawl.SkippedError, match="was skipped: op 'fail' failed") as caught:
            op.result(SOON)
        assert isinstance(caught.value.__cause__, ValueError)
    other.wait(SOON)
    assert ran == [3]
    with pytest.raises(pawl.OpError) as caught:
        b.wait(SOON)
    assert isinstance(caught.value.__cause__, ValueError)
    # It was reported once, and poisons nothing any more.
    a.wait(SOON)
    assert eng.push(int, "5", reads=[a, b]).result(SOON) == 5


def test_var_error_stays_until_it_is_cleared(eng):
    var = eng.var()
    eng.push(fail, writes=var).wait(SOON)
    for _ in range(2):
        assert isinstance(var.error().__cause__, ValueError)
    var.clear()
    assert var.error() is None
    var.wait(SOON)


def test_engine_wait_raises_the_first_error_that_nobody_was_told():
    with pawl.Engine(1) as eng:
        told = eng.push(fail, "told")
        eng.push(fail, "first")
        eng.push(fail, "second")
        assert told.exception(SOON)
        with pytest.raises(pawl.OpError, match="first"):
            eng.wait(SOON)
        eng.wait(SOON)


def test_leaving_the_with_block_raises():
    with pytest.raises(pawl.OpError) as caught:
        with pawl.Engine(1) as eng:
            eng.push(fail)
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(pawl.ClosedError):
        eng.push(int)


def test_exception_in_the_with_block_cancels(gate):
    with pytest.raises(KeyError):
        with pawl.Engine(1) as eng:
            eng.push(gate)
            assert gate.started.wait(SOON)
            later = eng.push(fail)
            threading.Timer(0.05, gate.open).start()
            raise KeyError("mine")
    assert isinstance(later.exception(), pawl.CanceledError)


def test_two_errors_do_not_mix(eng):
    a, b = eng.var(), eng.var()
    eng.push(fail, "a", writes=a).wait(SOON)
    eng.push(fail, "b", writes=b).wait(SOON)
    with pytest.raises(pawl.OpError, match="ValueError: a"):
        a.wait(SOON)
    op = eng.push(int, reads=a, writes=b)
    with pytest.raises(pawl.SkippedError, match="ValueError: b"):
        op.result(SOON)


def test_error_with_an_errno(eng):
    op = eng.push(open, "/does/not/exist")
    assert op.exception(SOON).errno == errno.ENOENT
    assert isinstance(op.exception().__cause__, FileNotFoundError)


def test_exceptions_that_are_hard_to_describe(eng):
    class Odd(Exception):
        def __str__(self):
            raise RuntimeError("no")

    def body(exc):
        raise exc

    for exc in (Odd(), SystemExit(3), ValueError("\udcff" * 500), ValueError()):
        assert eng.push(body, exc).exception(SOON).__cause__ is exc


def test_coroutine_function_is_no_body(eng):
    async def body():
        pass

    with pytest.raises(TypeError, match="body is a coroutine function"):
        eng.push(body)
    # What returns one is found when it runs.
    with pytest.raises(pawl.OpError, match="coroutine function") as caught:
        eng.push(lambda: body()).result(SOON)
    assert isinstance(caught.value.__cause__, TypeError)


def test_always_runs_on_poisoned_vars(eng):
    var = eng.var()
    eng.push(fail, writes=var)
    assert eng.push(int, "4", reads=var, always=True).result(SOON) == 4
    with pytest.raises(pawl.OpError):
        var.wait(SOON)


def test_deadline_that_has_passed(eng):
    var = eng.var()
    op = eng.push(int, writes=var, deadline=time.monotonic() - 1)
    with pytest.raises(pawl.DeadlineError):
        op.result(SOON)
    assert isinstance(op.exception(), TimeoutError)
    with pytest.raises(pawl.DeadlineError):
        var.wait(SOON)
    # one in the future, and one that is inherited
    assert eng.push(int, writes=var, deadline=time.monotonic() + SOON).result(SOON) == 0
    eng.push(int, writes=var, deadline=0)
    with pytest.raises(pawl.SkippedError):
        eng.push(int, reads=var).result(SOON)


def test_cancel_before_the_start(eng, gate):
    var = eng.var()
    eng.push(gate, writes=var)
    op = eng.push(int, writes=var)
    after = eng.push(int, reads=var)
    assert op.cancel()
    gate.open()
    with pytest.raises(pawl.CanceledError):
        op.result(SOON)
    assert isinstance(after.exception(SOON), pawl.SkippedError)
    assert not op.cancel()
    with pytest.raises(pawl.CanceledError):
        var.wait(SOON)


def test_running_body_asks_whether_it_is_canceled(eng):
    started = threading.Event()

    def body():
        assert pawl.canceled() is None
        started.set()
        end = time.monotonic() + SOON
        while pawl.canceled() is None and time.monotonic() < end:
            time.sleep(0.001)
        return pawl.canceled()

    op = eng.push(body)
    assert started.wait(SOON)
    assert not op.cancel()
    assert op.result(SOON) == "canceled"
    started.clear()
    op = eng.push(body, deadline=time.monotonic() + 0.5)
    assert op.result(SOON) == "deadline" if started.wait(1) else op.exception(SOON)
    with pytest.raises(pawl.PawlError, match="not inside a body"):
        pawl.canceled()


def test_engine_cancel(gate):
    with pawl.Engine(1) as eng:
        eng.push(gate)
        assert gate.started.wait(SOON)
        ops = [eng.push(int) for _ in range(20)]
        eng.cancel()
        gate.open()
        assert all(isinstance(op.exception(SOON), pawl.CanceledError) for op in ops)


def test_group_counts_limits_and_cancels(eng, gate):
    var, group = eng.var(), eng.group(ops=4, cost=100)
    group.push(gate, writes=var, cost=40)
    ops = [group.push(int, reads=var) for _ in range(3)]
    assert group.count() == (4, 40)
    with pytest.raises(pawl.FullError, match="ops of the group"):
        group.push(int, block=False)
    with pytest.raises(pawl.WaitTimeout):
        group.wait(0.01)
    with pytest.raises(pawl.BusyError):
        group.close()
    assert gate.started.wait(SOON)
    group.cancel()
    gate.open()
    group.wait(SOON)
    assert all(isinstance(op.exception(SOON), pawl.CanceledError) for op in ops)
    assert group.count() == (0, 0)
    with pytest.raises(pawl.InvalidError, match="cost"):
        group.push(int, cost=101)
    group.wait_room(SOON)
    group.close()
    with pytest.raises(pawl.StaleError):
        group.count()


def test_push_waits_for_room_in_the_group(eng):
    with eng.group(ops=3) as group:
        ops = [group.push(time.sleep, 0) for _ in range(300)]
    assert all(op.done() for op in ops)


def test_group_deadline(eng):
    with eng.group(deadline=time.monotonic() - 1) as group:
        op = group.push(int)
    assert isinstance(op.exception(SOON), pawl.DeadlineError)


def test_leaving_a_group_by_an_exception_cancels(eng, gate):
    var = eng.var()
    eng.push(gate, writes=var)
    with pytest.raises(KeyError):
        with eng.group() as group:
            op = group.push(int, writes=var)
            threading.Timer(0.05, gate.open).start()
            raise KeyError
    assert isinstance(op.exception(SOON), pawl.CanceledError)
    var.clear()


@pytest.mark.parametrize("how, error, words", [
    (dict(fn=3), TypeError, "int is not callable"),
    (dict(reads=3), TypeError, "reads is int"),
    (dict(writes=[1]), TypeError, "writes has int, not a Var"),
    (dict(priority="x"), TypeError, "priority is 'x'"),
    (dict(priority=1 << 31), ValueError, "priority is 2147483648"),
    (dict(deadline="soon"), TypeError, "deadline is 'soon'"),
    (dict(deadline=float("nan")), ValueError, "deadline is nan"),
    (dict(deadline=-1), ValueError, "deadline is -1"),
    (dict(cost=-1), ValueError, "cost is -1"),
    (dict(cost=1.5), TypeError, "cost is 1.5"),
    (dict(group=3), TypeError, "group is int"),
    (dict(cq=3), TypeError, "cq is int"),
    (dict(name=3), TypeError, "name is int"),
])
def test_bad_arguments_of_push(eng, how, error, words):
    with pytest.raises(error, match=words):
        eng.push(how.pop("fn", int), **how)


@pytest.mark.parametrize("how, error, words", [
    (dict(workers=-1), ValueError, "workers is -1"),
    (dict(workers="2"), TypeError, "workers is '2'"),
    (dict(workers=10000), pawl.InvalidError, "workers"),
    (dict(kind="fast"), ValueError, "kind is 'fast'"),
    (dict(max_ops=1), pawl.InvalidError, "max_ops"),
    (dict(window=1 << 33), ValueError, "window"),
    (dict(name="much too long"), pawl.InvalidError, "name"),
    (dict(cpus=[1.5]), TypeError, "cpus"),
])
def test_bad_arguments_of_engine(how, error, words):
    with pytest.raises(error, match=words):
        pawl.Engine(**how)


def test_other_bad_arguments(eng):
    with pawl.Engine(0) as other:
        foreign = other.var()
        with pytest.raises(pawl.StaleError):
            eng.push(int, writes=foreign)
    var = eng.var()
    var.delete()
    var.delete()
    for call in (lambda: eng.push(int, reads=var), var.wait, var.clear, lambda: var.version):
        with pytest.raises(pawl.StaleError):
            call()
    with pytest.raises(TypeError, match="timeout is 'x'"):
        eng.wait("x")
    with pytest.raises(ValueError, match="timeout is -1"):
        eng.wait(-1)
    with pytest.raises(ValueError, match="low is 100"):
        eng.group(low=100)
    with pytest.raises(TypeError, match="list is no buffer"):
        eng.array([1, 2])


def test_closed_engine():
    eng = pawl.Engine(1)
    op, var = eng.push(int), eng.var()
    eng.close()
    eng.close()
    assert op.result() == 0
    op.wait()
    for call in (eng.var, eng.wait, eng.stats, eng.group, var.wait, lambda: eng.push(int)):
        with pytest.raises(pawl.ClosedError):
            call()
