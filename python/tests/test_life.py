# SPDX-License-Identifier: Apache-2.0
"""What is kept, and for how long; signals, forks, the end of the interpreter."""
import errno
import gc
import os
import pathlib
import signal
import sys
import threading
import time
import weakref

import pytest

import pawl
from conftest import SOON, python
from pawl import _engine
from pawl._lib import held


class Thing:
    def __call__(self, *args):
        return None


def test_nothing_is_kept_of_an_op_that_ended(eng):
    fn, arg = Thing(), Thing()
    gone = [weakref.ref(fn), weakref.ref(arg)]
    op = eng.push(fn, arg, writes=eng.var())
    op.wait(SOON)
    del fn, arg
    assert [r() for r in gone] == [None, None]
    ref = weakref.ref(op)
    del op
    assert ref() is None


def test_reference_counts_are_as_before(eng):
    fn, var = Thing(), eng.var()
    before = sys.getrefcount(fn), sys.getrefcount(var), sys.getrefcount(eng)
    for _ in range(500):
        eng.push(fn, 1, writes=var)
    eng.wait(SOON)
    assert (sys.getrefcount(fn), sys.getrefcount(var), sys.getrefcount(eng)) == before


def test_failed_op_leaves_no_cycle(eng):
    class Error(Exception):
        pass

    def body():
        raise Error

    gc.collect()
    gc.disable()
    try:
        op = eng.push(body)
        op.wait(SOON)
        cause = weakref.ref(op.exception().__cause__)
        del op
        eng.wait(SOON)
        assert cause() is None
    finally:
        gc.enable()


def test_errors_that_nobody_asks_for_are_bounded(eng):
    for _ in range(300):
        eng.push(int, "x")
    with pytest.raises(pawl.OpError):
        eng.wait(SOON)
    assert not _engine._payloads


def test_callable_lives_as_long_as_its_op_can_run(eng, gate):
    var, seen = eng.var(), []
    eng.push(gate, writes=var)

    def body():
        seen.append(1)

    eng.push(body, writes=var)
    del body
    gc.collect()
    gate.open()
    eng.wait(SOON)
    assert seen == [1]


def test_vars_that_are_dropped_are_deleted():
    with pawl.Engine(1, max_vars=1024) as eng:
        for _ in range(5000):
            eng.push(int, writes=eng.var()).wait(SOON)


@pytest.mark.parametrize("kind", ["var", "group", "completion_queue"])
def test_drop_and_sweep_run_no_line_that_loses_a_handle(eng, kind):
    """A signal handler may raise at any line of the package."""
    class Raised(Exception):
        pass

    def trace(frame, event, arg):
        if "pawl" not in frame.f_code.co_filename:
            return None
        lines.append(frame.f_lineno)
        if len(lines) == stop:
            raise Raised
        return trace

    for stop in range(1, 60):
        lines = []
        made = getattr(eng, kind)()
        handle = made._h
        sys.settrace(trace)
        try:
            del made
            assert not lines
            eng._sweep()
        except Raised:
            pass
        finally:
            sys.settrace(None)
        eng._sweep()
        assert not eng._garbage and not eng._kept
        call = {"var": "pawl_var_delete", "group": "pawl_group_destroy",
                "completion_queue": "pawl_cq_destroy"}[kind]
        more = (None, None) if kind == "var" else ()
        assert getattr(held, call)(eng._handle().ptr, handle, *more) == -errno.ESTALE
        if len(lines) < stop:
            return
    assert False


def test_destructors_that_raise_and_that_use_the_engine(eng):
    ran, problems = [], []

    class Final:
        def __call__(self):
            return None

        def __del__(self):
            ran.append(1)
            eng.push(ran.append, 2)
            raise RuntimeError("in a destructor")

    hook, sys.unraisablehook = sys.unraisablehook, lambda u: problems.append(str(u.exc_value))
    try:
        eng.push(Final()).wait(SOON)
        eng.wait(SOON)
    finally:
        sys.unraisablehook = hook
    assert ran == [1, 2] and problems == ["in a destructor"]


def test_engine_that_is_dropped_ends_its_threads():
    eng = pawl.Engine(1, name="dropped")
    eng.push(int).wait(SOON)
    eng.wait(SOON)
    with pytest.warns(ResourceWarning, match="not closed"):
        del eng
        gc.collect()
    for t in threading.enumerate():
        if t.name == "pawl-destroy":
            t.join(SOON)
    tasks = pathlib.Path("/proc/self/task")
    assert not any("dropped" in comm.read_text() for comm in tasks.glob("*/comm"))


def test_close_while_another_thread_waits_and_pushes():
    for _ in range(20):
        eng = pawl.Engine(1)
        cq, go = eng.completion_queue(), threading.Event()
        errors = []

        def waiter():
            try:
                while True:
                    eng.push(int)
                    go.set()
            except pawl.ClosedError:
                pass
            except BaseException as exc:
                errors.append(exc)

        t = threading.Thread(target=waiter)
        t.start()
        assert go.wait(SOON)
        eng.close()
        t.join(SOON)
        assert not errors and not t.is_alive()
        del cq


def interrupted(call):
    """Whether Ctrl-C ended the call."""
    started = threading.Event()

    def press():
        started.wait()
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    try:
        started.set()
        call()
        return False
    except KeyboardInterrupt:
        return True
    finally:
        thread.join()


@pytest.mark.parametrize("what", ["op", "var", "writable", "engine", "group", "queue", "push"])
def test_ctrl_c_ends_a_wait(what, gate):
    with pawl.Engine(1, window=4) as eng:
        var, cq = eng.var(), eng.completion_queue()
        with eng.group(ops=2) as group:
            op = group.push(gate, writes=var, cq=cq)

            def push():
                while True:
                    eng.push(int, writes=var)

            wait = {"op": op.result, "var": var.wait, "engine": eng.wait, "group": group.wait,
                    "writable": lambda: var.wait(writable=True), "queue": cq.wait,
                    "push": push}[what]
            assert gate.started.wait(SOON)
            assert interrupted(wait)
            gate.open()
        eng.wait(SOON)
        assert cq.reap() == [op]


def test_ctrl_c_in_a_body_that_the_main_thread_runs():
    with pawl.Engine(0) as eng:
        op = eng.push(time.sleep, SOON)
        assert interrupted(eng.wait)
        assert isinstance(op.exception(SOON).__cause__, KeyboardInterrupt)


def test_child_of_fork_gets_a_clear_exception(eng, gate):
    var = eng.var()
    op = eng.push(gate, writes=var)
    assert gate.started.wait(SOON)
    pid = os.fork()
    if not pid:
        status = 1
        try:
            for call in (lambda: eng.push(int), var.wait, op.wait, eng.wait, eng.var):
                try:
                    call()
                    os._exit(2)
                except pawl.ForkedError:
                    pass
            eng.close()
            with pawl.Engine(1) as own:
                status = 0 if own.push(int, "8").result(SOON) == 8 else 3
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    gate.open()
    assert op.result(SOON) == "gate"


def test_multiprocessing_by_fork():
    done = python("""
import multiprocessing, pawl
eng = pawl.Engine(2)
def child(n):
    try:
        eng.push(int)
    except pawl.ForkedError as exc:
        with pawl.Engine(1) as own:
            return own.push(int, str(n)).result(60)
if __name__ == "__main__":
    assert eng.push(int, "1").result(60) == 1
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(child, range(8)) == list(range(8))
    eng.close()
""")
    assert done.returncode == 0, done.stderr


def test_interpreter_ends_with_ops_in_flight():
    done = python("""
import pawl, time
eng = pawl.Engine(2)
var = eng.var()
for i in range(50):
    eng.push(time.sleep, 0.001, writes=var)
eng.push(print, "last", writes=var)
""")
    assert done.returncode == 0 and done.stdout == "last\n" and not done.stderr, done


def test_interpreter_ends_while_a_daemon_thread_pushes():
    done = python("""
import pawl, threading, time
eng = pawl.Engine(2)
def pusher():
    try:
        while True:
            eng.push(int, block=True)
    except pawl.ClosedError:
        pass
threading.Thread(target=pusher, daemon=True).start()
time.sleep(0.1)
""")
    assert done.returncode == 0 and "rror" not in done.stderr, done


def test_interpreter_ends_by_ctrl_c():
    done = python("""
import os, pawl, signal, threading, time
eng = pawl.Engine(1)
go = threading.Event()
eng.push(lambda: (go.set(), time.sleep(0.2)))
for i in range(10000):
    eng.push(time.sleep, 1)
assert go.wait(60)
try:
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
    eng.wait()
except KeyboardInterrupt:
    eng.close(cancel=True)
    print("canceled")
""")
    assert done.returncode == 0 and done.stdout == "canceled\n", done


def test_library_that_is_missing():
    done = python("import pawl", env=dict(os.environ, PAWL_LIBRARY="/nowhere/libpawl.so"))
    assert done.returncode == 1
    assert "ImportError: pawl needs the shared library libpawl.so.0" in done.stderr
    assert "libpawl0" in done.stderr and "PAWL_LIBRARY" in done.stderr
