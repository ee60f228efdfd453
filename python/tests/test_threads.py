# SPDX-License-Identifier: Apache-2.0
"""Several threads in one engine, interpreters, and what belongs to which engine."""
import copy
import os
import pickle
import random
import sys
import threading

import pytest

import pawl
from conftest import SOON, python
from pawl import _engine


@pytest.fixture
def often():
    """Threads take turns as often as possible."""
    was = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(was)


def together(fn, threads=4, times=1):
    errors = []
    barrier = threading.Barrier(threads)

    def run():
        try:
            barrier.wait(SOON)
            for _ in range(times):
                fn()
        except BaseException as exc:
            errors.append(exc)

    all_of_them = [threading.Thread(target=run) for _ in range(threads)]
    for t in all_of_them:
        t.start()
    for t in all_of_them:
        t.join()
    assert not errors


def test_a_new_name_is_kept_once(eng, often):
    for i in range(200):
        got = []
        together(lambda: got.append(_engine._name(None, f"once{i}")[1]))
        assert set(got) == {_engine._names[f"once{i}"][0]}


def test_threads_make_and_drop_whatever_there_is(eng, often):
    def some():
        kept = [eng.var() for _ in range(random.randrange(1, 4))]
        kept += [eng.group(), eng.array(bytearray(1)), eng.completion_queue()]
        eng.push(int, writes=kept[0])
        kept[-3].push(int)
        eng.push(int, cq=kept[-1])

    together(some, times=200)
    eng.wait(SOON)


def test_two_threads_reap_one_queue_and_each_op_arrives_once(eng, often):
    cq, found, count = eng.completion_queue(), [], 500
    ops = [eng.push(int, cq=cq) for _ in range(count)]
    eng.wait(SOON)

    def reap():
        while len(found) < count:
            found.extend(cq.reap(3))

    together(reap, threads=3)
    assert len(found) == count and set(found) == set(ops)


def test_two_threads_close_one_group(eng, often):
    for _ in range(100):
        group = eng.group()
        together(group.close, threads=2)
        cq = eng.completion_queue()
        together(cq.close, threads=2)


def test_dropped_queues_are_closed(eng):
    before = len(os.listdir("/proc/self/fd"))
    for i in range(3000):
        cq = eng.completion_queue()
        cq.fileno()
        if i % 3 == 0:
            eng.push(int, cq=cq).wait(SOON)		# not reaped
        del cq
    assert len(os.listdir("/proc/self/fd")) < before + 200


def test_handles_of_another_engine_are_stale(eng):
    with pawl.Engine(1) as other:
        mine, theirs = [(e.var(), e.group(), e.completion_queue()) for e in (eng, other)]
        for how, i in (("reads", 0), ("writes", 0), ("group", 1), ("cq", 2)):
            with pytest.raises(pawl.StaleError):
                eng.push(int, **{how: theirs[i]})
        assert eng.push(int, writes=mine[0], group=mine[1], cq=mine[2]).result(SOON) == 0
        assert theirs[0].version == 0 and theirs[1].count() == (0, 0) and not theirs[2].reap()


def test_a_copy_is_the_same_object_and_a_deep_one_is_refused(eng):
    for thing in (eng, eng.var(), eng.array(bytearray(2)), eng.push(int), eng.group(),
                  eng.completion_queue()):
        assert copy.copy(thing) is thing
        for how in (copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="cannot be pickled"):
                how(thing)


def test_a_waiting_body_does_not_keep_the_op_from_running():
    """Another thread waits for the op, so that the body is not told of its end by the library."""
    with pawl.Engine(1) as eng:
        later, started = [], threading.Event()

        def body():
            started.set()
            while not later:
                pass
            return later[0].result(SOON) + 1

        op = eng.push(body)
        assert started.wait(SOON)
        first = eng.push(int, "1")
        waits = threading.Thread(target=first.wait)
        waits.start()
        later.append(first)
        assert op.result(SOON) == 2
        waits.join()


def test_a_child_that_is_forked_in_a_body_makes_its_own_engine():
    done = python("""
import os, pawl, time
def child():
    pid = os.fork()
    if not pid:
        status = 1
        try:
            with pawl.Engine(1) as own:
                status = 0 if own.push(int, "3").result(60) == 3 else 2
            try:
                other.cancel()
            except pawl.ForkedError:
                status += 0
            else:
                status = 3
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
with pawl.Engine(2) as engine:
    var = engine.var()
    slow = engine.push(time.sleep, 0.5, writes=var)
    other = engine.push(int, reads=var)
    assert engine.push(child).result(60) == 0
""")
    assert done.returncode == 0, done.stderr


def test_a_sub_interpreter_is_refused():
    done = python("""
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters
import sys
id = interpreters.create()
code = '''
try:
    import pawl
except ImportError as exc:
    assert "interpreter" in str(exc), exc
else:
    raise SystemExit("imported")
'''
failed = interpreters.run_string(id, code)
assert failed is None, failed
interpreters.destroy(id)
import pawl
with pawl.Engine(1) as engine:
    assert engine.push(int, "1").result(60) == 1
""")
    assert done.returncode == 0, done.stderr


def test_engine_of_a_process_with_one_cpu_has_one_worker():
    done = python("""
import os
os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1])
import pawl
with pawl.Engine() as engine:
    engine.push(int).wait(60)
    assert engine.stats()["workers"] == 1, engine.stats()
""")
    assert done.returncode == 0, done.stderr
