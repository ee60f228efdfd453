# SPDX-License-Identifier: Apache-2.0
"""Whatever raises, and wherever: an op ends with its result or its error, and a wait ends."""
import asyncio
import errno
import gc
import os
import signal
import sys
import threading
import time

import pytest

import pawl
from conftest import SOON, python
from pawl import _engine, _guard

FILES = {m.__file__ for m in (_engine, _guard)}


class Raised(BaseException):
    pass


class Raiser:
    """Raises at the n-th new line of the package that a thread executes, once."""

    def __init__(self, n=None):
        self.n, self.lines, self.raised = n, [], None

    def __call__(self, frame, event, arg):
        if frame.f_code.co_filename not in FILES:
            return self if event == "call" else None
        if event in ("call", "line") and self.raised is None:
            line = frame.f_code.co_name, frame.f_lineno, event
            if line not in self.lines:
                self.lines.append(line)
                if len(self.lines) - 1 == self.n:
                    self.raised = line
                    raise Raised(line)
        return self


def settle(ops):
    """What became of the ops: a list of results and exceptions."""
    out = []
    for op in ops:
        for _ in range(3):
            try:
                out.append(op.result(SOON))
                break
            except Raised:
                pass
            except pawl.OpError as exc:
                assert op.exception(SOON) is not None
                out.append(exc)
                break
        assert op.done(), op
    return out


def bad(*args):
    raise ValueError("bad")


def scene(engine, on_worker, raiser, made):
    """Ops that succeed, fail, are skipped and are awaited.  The lines of the worker are traced, or
    those of this thread."""
    if on_worker:
        engine.push(sys.settrace, raiser).wait(SOON)
    var, seen = engine.var(), []
    made.append(var)
    ops = []
    if not on_worker:
        sys.settrace(raiser)
    try:
        ops.append(engine.push(len, "abc", name="three", writes=var))
        ops.append(engine.push(bad, name="bad", writes=var))
        ops.append(engine.push(seen.append, 1, name="reader", reads=var))
        ops.append(engine.push(len, "ab", name="two"))
        ops[0].add_done_callback(lambda op: None)
        for op in ops:
            op.exception(SOON)
        engine.wait(SOON)
    except (Raised, pawl.OpError):
        pass
    finally:
        sys.settrace(None)
    return ops, seen


@pytest.mark.parametrize("where", ["worker", "caller", "no workers", "naive"])
def test_an_exception_at_any_line_of_the_package_loses_nothing(where):
    n, lines = 0, None
    hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
    try:
        while lines is None or n < lines:
            raiser, made = Raiser(n), []
            with pawl.Engine(0 if where == "no workers" else 1,
                             kind="naive" if where == "naive" else "per-device") as engine:
                ops, seen = scene(engine, where == "worker", raiser, made)
                if where == "worker":
                    engine.push(sys.settrace, None).exception(SOON)
                for op, result in zip(ops, settle(ops)):
                    fine = {"three": 3, "two": 2}.get(op.name)
                    assert isinstance(result, pawl.OpError) or result == fine, \
                        (raiser.raised, op, result)
                    assert op.name != "bad" or isinstance(result, pawl.OpError), raiser.raised
                    # It would have read what a failed op should have written.
                    assert op.name != "reader" or not seen, raiser.raised
                try:
                    engine.wait(SOON)
                except pawl.OpError:
                    pass
            if raiser.raised is None:
                lines = n
            n += 1
            del engine, ops, made
        assert n > 30
    finally:
        sys.unraisablehook = hook


def test_await_ends_when_release_fails(eng):
    """The last function of an op fails at its first line: the loop notices."""
    def trace(frame, event, arg):
        if frame.f_code is _engine._release.__code__:
            raise Raised
        return None

    hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
    try:
        with pawl.Engine(1) as engine:
            async def main():
                engine.push(sys.settrace, trace)
                first = engine.push(len, "abc")		# its _release() fails
                return await asyncio.gather(first, engine.push(len, "ab"))

            assert asyncio.run(asyncio.wait_for(main(), SOON)) == [3, 2]
            elsewhere = engine.push(len, "a")

            async def other():
                return await elsewhere

            assert asyncio.run(asyncio.wait_for(other(), SOON)) == 1
            engine.push(sys.settrace, None)
            try:
                engine.wait(SOON)
            except pawl.OpError:
                pass
    finally:
        sys.unraisablehook = hook


@pytest.mark.parametrize("kind", ["no workers", "naive"])
def test_ctrl_c_where_bodies_run_on_the_main_thread(kind):
    """It is raised, an op has its result or an error with its cause, and none is left."""
    done = python(f"""
import os, pawl, signal, threading, time
kind = {kind!r}
""" + """
engine = pawl.Engine(kind="naive") if kind == "naive" else pawl.Engine(0)
armed, going, raised, wrong = False, True, 0, []
def handler(number, frame):
    if armed:
        raise KeyboardInterrupt
signal.signal(signal.SIGINT, handler)
def killer():
    while going:
        time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)
def busy():
    return sum(range(20))
def step():
    global armed, raised
    ops = []
    try:
        armed = True
        for _ in range(30):
            ops.append(engine.push(busy))
        for op in ops:
            op.exception(60)
        armed = False
    except KeyboardInterrupt:
        armed = False
        raised += 1
    for op in ops:
        try:
            if op.result(60) != 190:
                wrong.append(op)
        except pawl.OpError as exc:
            if not isinstance(exc.__cause__, KeyboardInterrupt):
                wrong.append(exc)
        except KeyboardInterrupt:
            wrong.append("late")
thread = threading.Thread(target=killer)
thread.start()
end = time.monotonic() + 60
while raised < 60 and time.monotonic() < end:
    step()
going = False
thread.join()
try:
    engine.wait(60)
except pawl.OpError as exc:
    assert isinstance(exc.__cause__, KeyboardInterrupt)
assert raised >= 60 and not wrong, (raised, wrong)
assert not pawl._engine._live
engine.close()
""")
    assert done.returncode == 0, done.stderr


def test_handlers_of_other_signals_raise_in_the_callable_and_are_put_back():
    class Alarm(Exception):
        pass

    def handler(number, frame):
        raise Alarm

    old = signal.signal(signal.SIGALRM, handler)
    try:
        with pawl.Engine(0) as engine:
            op = engine.push(time.sleep, SOON)
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(pawl.OpError) as caught:
                op.result(SOON)
            assert isinstance(caught.value.__cause__, Alarm)
            assert signal.getsignal(signal.SIGALRM) is handler
    finally:
        signal.signal(signal.SIGALRM, old)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_ops_at_the_recursion_limit_fail_and_end(workers):
    with pawl.Engine(workers) as engine:
        ops = []

        def deep(n):
            if not n:
                return 0
            op = engine.push(deep, n - 1)
            ops.append(op)
            return 1 + op.result(SOON)

        for depth in (20, 160, 165, 400):
            exc = engine.push(deep, depth).exception(SOON)
            assert exc is None or isinstance(exc, pawl.OpError)
            assert depth > 20 or exc is None
        for op in ops:
            op.wait(SOON)
            assert op.done() and (op.exception() is not None or op.result() is not None)


def test_errors_whose_text_cannot_be_had(eng):
    class Odd(Exception):
        def __init__(self, what):
            self.what = what

        def __str__(self):
            raise self.what

    after = []
    for what in (SystemExit(1), KeyboardInterrupt(), MemoryError(), Exception()):
        var, exc = eng.var(), Odd(what)

        def body():
            raise exc

        op = eng.push(body, writes=var)
        skipped = eng.push(after.append, 1, reads=var)
        with pytest.raises(pawl.OpError, match="no text") as caught:
            op.result(SOON)
        assert caught.value.__cause__ is exc
        with pytest.raises(pawl.OpError):
            skipped.result(SOON)
        var.clear()
    eng.wait(SOON)
    assert not after


def test_every_failure_counts_until_it_is_reported():
    with pawl.Engine(1) as eng:
        ops = [eng.push(bad, name=f"op{i}") for i in range(40)]
        eng.push(bad, name="last").wait(SOON)
        for op in ops[:30]:
            assert op.exception(SOON)
        with pytest.raises(pawl.OpError, match="op 'op30'.*10 more failed") as caught:
            eng.wait(SOON)
        assert caught.value.more == 10 and caught.value.others[0].op == "op31"
        eng.wait(SOON)
        # Without any op or var that refers to them.
        for _ in range(40):
            eng.push(bad)
        with pytest.raises(pawl.OpError, match="39 more failed"):
            eng.wait(SOON)


def test_close_logs_what_no_call_has_reported(caplog):
    eng = pawl.Engine(1)
    eng.push(bad)
    eng.push(bad)
    eng.close()
    assert "1 more failed" in caplog.text and "ValueError: bad" in caplog.text
    caplog.clear()
    eng = pawl.Engine(1)
    assert eng.push(bad).exception(SOON)
    eng.close()
    assert not caplog.text


def test_a_reported_failure_keeps_no_frame(eng):
    class Local:
        alive = 0

        def __init__(self):
            Local.alive += 1

        def __del__(self):
            Local.alive -= 1

    def body():
        local = Local()
        raise ValueError(local and "x")

    var = eng.var()
    for writes, report in (((), "op"), (var, "op"), (var, "var"), ((), "engine")):
        op = eng.push(body, writes=writes)
        op.wait(SOON)
        assert Local.alive
        with pytest.raises(pawl.OpError) as caught:
            {"op": op, "var": var, "engine": eng}[report].__getattribute__(
                "result" if report == "op" else "wait")()
        assert caught.value.__cause__ is not None
        del op, caught
        gc.collect()
        assert not Local.alive, (writes, report)
        var.clear()
