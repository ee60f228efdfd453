# SPDX-License-Identifier: Apache-2.0
"""Engine, Var, Array, Op, Group, CompletionQueue.

How an op runs.  push() puts the Op into _live under a number, and gives that number to the
library as the argument of two functions, _body() and _release(), which are made once.  The
library calls _body() when the op may run, and _release() exactly once when it has ended,
whether it ran or not.  _release() takes the Op out of _live.  So an op that can still run is
referenced, and nothing is referenced afterwards.

How errors travel.  The exception of a body is kept in a _Fault.  The library carries the number
of the fault as the payload of its error, to whatever wait reports it.  The vars that the op
writes point to the fault, too, before the op releases them.  An op that is skipped finds it
there, because it holds its vars when _release() is called.
"""
import asyncio
import atexit
import ctypes
import errno
import itertools
import os
import struct
import sys
import threading
import time
import types
import warnings
import weakref
from asyncio import _get_running_loop

from . import _lib as c
from ._lib import check, held, lib, refused

_Coroutine = types.CoroutineType
_OP = struct.Struct(c.OP_FORMAT).size
_SIZE = ctypes.sizeof(c.OpStruct)
_TICKET = struct.Struct("@Q")
_COMPLETION = struct.Struct(c.COMPLETION_FORMAT)
_ROOM = 16			# vars of an op for which a buffer has room
_SLICE_NS = 200_000_000		# the main thread returns from a wait this often, for signals
_NAMES = 4096			# distinct names of ops that are kept
_UNSEEN = 16			# failed ops of which Engine.wait() can still report one

_live = {}			# number -> Op that has not ended
_payloads = {}			# number -> _Fault that the library carries
_keys = itertools.count(1)
_lock = threading.Lock()	# Op._waiters, Engine._queues
_tls = threading.local()	# .run: the pawl_run of the body on this thread
_names = {}			# name -> C string, which must outlive every engine
_buffers = []
_packers = [struct.Struct(f"{c.OP_FORMAT}Q{n}Q") for n in range(_ROOM + 1)]
_engines = weakref.WeakSet()


class _Buffer:
    """A struct pawl_op, a ticket, and n handles of vars."""
    __slots__ = ("memory", "op", "ticket", "vars")

    def __init__(self, n):
        self.memory = ctypes.create_string_buffer(_OP + 8 + 8 * n)
        self.op = ctypes.addressof(self.memory)
        self.ticket = self.op + _OP
        self.vars = self.ticket + 8


class _Fault:
    """An op's failure, and where it has spread."""
    __slots__ = ("kind", "cause", "name", "code", "text", "gone", "engine", "epoch", "__weakref__")

    def __init__(self, engine, kind, cause, name, code, text):
        self.engine, self.epoch = weakref.ref(engine), engine._epoch
        self.kind, self.cause, self.name, self.code, self.text = kind, cause, name, code, text
        self.gone = False

    def error(self, skipped=None):
        """A new exception, so that threads do not share a traceback."""
        self.seen()
        if skipped is None:
            exc = self.kind(f"op {self.name!r}: {self.text}", self.code, self.name)
        else:
            exc = c.SkippedError(f"op {skipped!r} was skipped: op {self.name!r} failed: "
                                 f"{self.text}", self.code, skipped)
        exc.__cause__ = self.cause
        return exc

    def seen(self):
        """The error was reported, so Engine.wait() need not report it."""
        engine = self.engine()
        if engine is not None:
            engine._unseen.pop(self, None)

    def poisons(self):
        engine = self.engine()
        return not self.gone and engine is not None and self.epoch == engine._epoch


def _describe(exc):
    try:
        text = str(exc)
    except Exception:
        text = "(no text)"
    name = type(exc).__name__
    return f"{name}: {text}" if text else name


def _failed(op, run, exc):
    code = exc.errno if isinstance(exc, OSError) and isinstance(exc.errno, int) and \
        0 < exc.errno < 4096 else errno.EIO
    # without the frame of _body()
    exc = exc.with_traceback(exc.__traceback__ and exc.__traceback__.tb_next)
    if isinstance(exc, KeyboardInterrupt):
        op._engine._interrupted = True
    fault = _Fault(op._engine, c.OpError, exc, op.name, code, _describe(exc))
    _spread(op, fault)
    payload = next(_keys)
    _payloads[payload] = fault
    return held.pawl_fail_with(run, -code, fault.text.encode("utf-8", "replace")[:159], payload)


@c.Body
def _body(run, key):
    op = _live[key]
    outer = getattr(_tls, "run", None)
    _tls.run = run
    try:
        result = op._fn(*op._args)
        if result.__class__ is _Coroutine:
            result.close()
            raise TypeError("the body is a coroutine function: an op runs on a thread of the "
                            "engine, without an event loop")
        op._result = result
        op._fn = None
        return 0
    except BaseException as exc:
        rc = _failed(op, run, exc)
        # The traceback has frames that lead to this one, which must not lead to the op.
        del op
        return rc
    finally:
        _tls.run = outer


def _spread(op, fault, unseen=True):
    op._fault = fault
    for var in op._writes:
        var._fault = fault
    if unseen and len(op._engine._unseen) < _UNSEEN:
        op._engine._unseen[fault] = None


def _no_success(op, status):
    """The op inherited an error of its vars, or was canceled or too late."""
    faults = [v._fault for v in op._reads + op._writes if v._fault is not None]
    found = [f for f in faults if f.poisons()]
    if op._fn is None:
        # always=True: it ran, but what it wrote remains poisoned
        for var in op._writes:
            var._fault = (found or faults or [None])[0]
        return
    if status == -errno.ESTALE:
        fault = _Fault(op._engine, c.OpError, None, op.name, errno.ESTALE,
                       "one of its vars was deleted while it was pushed")
    elif status == -errno.ECANCELED and (op._cancel or not found):
        fault = _Fault(op._engine, c.CanceledError, None, op.name, errno.ECANCELED,
                       "canceled before it started")
        _spread(op, fault, unseen=False)
        return
    elif status == -errno.ETIMEDOUT and not any(f.code == errno.ETIMEDOUT for f in found):
        fault = _Fault(op._engine, c.DeadlineError, None, op.name, errno.ETIMEDOUT,
                       "not started before its deadline")
    elif faults:
        # If all were cleared, a wait reported the error after the op was skipped.
        matching = [f for f in found or faults if f.code == -status] or found or faults
        op._skipped = True
        _spread(op, matching[0], unseen=False)
        return
    else:
        fault = _Fault(op._engine, c.OpError, None, op.name, -status, os.strerror(-status))
    _spread(op, fault)


def _end(op, status):
    if status:
        if op._fault is None:
            _no_success(op, status)
    else:
        for var in op._writes:
            if var._fault is not None:
                var._fault = None
    op._done = True
    op._fn = op._args = op._group = None
    op._reads = op._writes = ()
    if op._waiters is not None:
        with _lock:
            waiters, op._waiters = op._waiters, None
        for waiter in waiters or ():
            waiter()


@c.Release
def _release(key, status):
    op = _live.pop(key)
    try:
        _end(op, status)
    except KeyboardInterrupt:
        # The main thread runs ops: workers=0.
        op._engine._interrupted = True
        _end(op, status)


@c.Hook
def _thread_start(_user, _name):
    # One more, so that the thread keeps its state, as threading.local, from body to body.
    ctypes.pythonapi.PyGILState_Ensure()


@c.Hook
def _thread_stop(_user, _name):
    ctypes.pythonapi.PyGILState_Release(0)


@c.Drop
def _drop(_user, payload):
    _payloads.pop(payload).gone = True


_BODY = ctypes.cast(_body, ctypes.c_void_p).value
_RELEASE = ctypes.cast(_release, ctypes.c_void_p).value


class _Handle:
    """struct pawl_engine.  A call that releases the GIL holds a reference to it meanwhile."""
    __slots__ = ("ptr", "pid", "closed")

    def __init__(self, ptr):
        self.ptr, self.pid, self.closed = ptr, os.getpid(), False

    def __del__(self, getpid=os.getpid, destroy=lib.pawl_engine_destroy):
        if self.closed or getpid() != self.pid:
            destroy(self.ptr)
        else:
            # This may be one of the engine's own threads, which cannot join itself.
            ptr = self.ptr
            try:
                threading.Thread(target=lambda: destroy(ptr), name="pawl-destroy").start()
            except RuntimeError:
                pass		# the interpreter ends


class Op:
    """One push.  It can be waited for by any thread, and awaited in any event loop."""
    __slots__ = ("name", "_engine", "_fn", "_args", "_reads", "_writes", "_group", "_result",
                 "_fault", "_skipped", "_cancel", "_done", "_waiters", "_ticket", "_key",
                 "_queue", "__weakref__")

    def __repr__(self):
        state = ("failed" if self._fault else "done") if self._done else "pending"
        return f"<pawl.Op {self.name!r} {state}>"

    def done(self):
        """Has the op ended?"""
        return self._done

    def running(self):
        """Does its body run now?"""
        if self._done:
            return False
        h = self._engine._handle()
        return check(held.pawl_ticket_state(h.ptr, self._ticket)) == c.TICKET_RUNNING

    def cancel(self):
        """Returns True if the op will not start, and False if it has started or ended; a body
        that runs can call pawl.canceled()."""
        if self._done:
            return False
        self._cancel = True
        h = self._engine._handle()
        rc = held.pawl_cancel(h.ptr, self._ticket)
        if rc in (-errno.EINPROGRESS, -errno.ESTALE):
            return False
        check(rc)
        return True

    def wait(self, timeout=None):
        """Wait until the op has ended and its vars are released.  Raises WaitTimeout."""
        if self._done and self._engine._h is None:
            return
        end = None if timeout is None else time.monotonic() + _seconds("timeout", timeout)
        engine = self._engine
        while True:
            left = None if end is None else max(0.0, end - time.monotonic())
            rc = engine._wait(c.WAIT_TICKET, self._ticket, left)
            if rc != -errno.EBUSY:
                check(rc)
                return
            # Another thread already waits for it; _release() notifies this one.
            event = threading.Event()
            if not self._on_done(event.set):
                time.sleep(20e-6)
            elif not event.wait(left):
                raise c.WaitTimeout(f"op {self.name!r}: not complete", errno.ETIMEDOUT)

    def exception(self, timeout=None):
        """Wait for the op, and return its OpError or None."""
        if not self._done:
            self.wait(timeout)
        if self._fault is None:
            return None
        return self._fault.error(self.name if self._skipped else None)

    def result(self, timeout=None):
        """Wait for the op, and return what its body returned; raises OpError if it failed."""
        if not self._done:
            self.wait(timeout)
        if self._fault is not None:
            raise self.exception()
        return self._result

    def _on_done(self, call):
        """Let call() be called when the op ends.  Returns False if it has ended."""
        with _lock:
            if self._waiters is None:
                self._waiters = []
            self._waiters.append(call)
            if self._done and self._waiters is not None:
                self._waiters.remove(call)
                return False
        return True

    def __await__(self):
        if not self._done:
            loop = asyncio.get_running_loop()
            future = loop.create_future()
            if self._queue is not None and self._queue.loop() is loop:
                self._queue.waiters.setdefault(self._key, []).append(future)
            elif not self._on_done(lambda: _tell(loop, future)):
                future.set_result(None)
            try:
                yield from future
            except asyncio.CancelledError:
                self.cancel()
                raise
        return self.result()


def _settle(future):
    if not future.done():
        future.set_result(None)


def _tell(loop, future):
    try:
        loop.call_soon_threadsafe(_settle, future)
    except RuntimeError:
        pass			# the loop was closed


class Var:
    """A tag for a piece of data.  Made by Engine.var()."""
    __slots__ = ("_engine", "_h", "_fault", "__weakref__")

    def __init__(self, engine):
        self._engine, self._h, self._fault = engine, 0, None
        out = ctypes.c_uint64()
        check(held.pawl_var_create(engine._handle().ptr, out))
        self._h = out.value

    def __del__(self):
        # Deleted later: a garbage collection can happen at any time, for example inside a push.
        if self._h:
            self._engine._garbage.append((held.pawl_var_delete, self._h))

    def delete(self):
        """Later pushes that name the var are refused; earlier ones run."""
        h, self._h = self._h, 0
        if h:
            check(held.pawl_var_delete(self._engine._handle().ptr, h, None, None))

    @property
    def version(self):
        """The number of writes that completed."""
        out = ctypes.c_uint64()
        check(held.pawl_var_version(self._engine._handle().ptr, self._h, out))
        return out.value

    def wait(self, timeout=None, *, writable=False):
        """Wait for the writes that were pushed, with `writable` for the reads, too.  Raises the
        error that poisons the var, and clears it; or WaitTimeout."""
        what = c.WAIT_WRITABLE if writable else c.WAIT_READABLE
        self._report(what, timeout)

    def _report(self, what, timeout):
        err = c.Error()
        rc = self._engine._wait(what, self._h, timeout, err)
        if err.code:
            raise self._engine._reported(err, self)
        check(rc)

    def error(self):
        """The error that poisons the var now, without waiting, or None.  It stays."""
        err = c.Error()
        rc = held.pawl_var_error(self._engine._handle().ptr, self._h, err)
        if not err.code:
            check(rc)
            return None
        fault = self._fault
        return fault.error() if fault is not None and fault.poisons() else \
            self._engine._reported(err, None)

    def clear(self):
        """Clear the error, here and wherever it spread."""
        check(held.pawl_var_clear(self._engine._handle().ptr, self._h))
        if self._fault is not None:
            self._fault.gone = True
            self._fault.seen()


class Array(Var):
    """A var with its data, a numpy array or any other buffer.  Made by Engine.array()."""
    __slots__ = ("data", "_ro")

    def __init__(self, engine, data):
        self._engine, self._h, self._fault = engine, 0, None
        try:
            self._ro = memoryview(data).toreadonly()
        except TypeError:
            raise TypeError(f"array: {type(data).__name__} is no buffer (a numpy array, "
                            "bytearray, array.array, ...)") from None
        if hasattr(data, "setflags") and hasattr(data, "view"):
            self._ro = data.view()
            self._ro.setflags(write=False)
        super().__init__(engine)
        self.data = data

    def wait(self, timeout=None, *, writable=False):
        """As Var.wait(), and returns the data."""
        super().wait(timeout, writable=writable)
        return self.data


def _vars(what, given):
    if isinstance(given, Var):
        return (given,)
    try:
        given = tuple(given)
    except TypeError:
        raise TypeError(f"push: {what} is {type(given).__name__}, not a Var or several") from None
    for var in given:
        if not isinstance(var, Var):
            raise TypeError(f"push: {what} has {type(var).__name__}, not a Var")
    return given


def _arrays(args, reads, writes):
    """Arrays among the arguments: the body gets their data, read-only unless it writes them."""
    args = list(args)
    for i, arg in enumerate(args):
        if isinstance(arg, Array):
            if arg in writes:
                args[i] = arg.data
            else:
                args[i] = arg._ro
                if arg not in reads:
                    reads += (arg,)
    return args, reads


def _seconds(what, value):
    try:
        value = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{what} is {value!r}, not a number of seconds") from None
    if not 0 <= value < 9e9:
        raise ValueError(f"{what} is {value!r}, not a number of seconds from 0")
    return value


def _deadline_ns(value):
    return max(1, int(_seconds("deadline", value) * 1e9))


def _name(fn, name):
    if name is None:
        name = getattr(fn, "__name__", None) or type(fn).__name__
    elif not isinstance(name, str):
        raise TypeError(f"push: name is {type(name).__name__}, not str")
    text = _names.get(name)
    if text is None:
        if len(_names) >= _NAMES:
            return name, _name(None, "(other)")[1] if "(other)" in _names else 0
        text = ctypes.create_string_buffer(name.encode("utf-8", "replace"))
        _names[name] = text = (ctypes.addressof(text), text)
        _names.setdefault("(other)", text)
    return name, text[0]


class _LoopQueue:
    """The completion queue of an event loop: the ops that are pushed in it arrive there."""

    def __init__(self, engine, loop, cq=None):
        self.handle, self.loop, self.waiters = engine._handle(), weakref.ref(loop), {}
        self.cq = cq or _cq_create(engine)
        self.fd = check(held.pawl_cq_fd(self.handle.ptr, self.cq))
        self.buffer = ctypes.create_string_buffer(_COMPLETION.size * 256)
        self.view = memoryview(self.buffer)
        loop.add_reader(self.fd, self.drain)

    def drain(self):
        waiters = self.waiters
        n = held.pawl_cq_reap(self.handle.ptr, self.cq, self.buffer, 256)
        if n > 0:
            for key, _, _ in _COMPLETION.iter_unpack(self.view[:n * _COMPLETION.size]):
                for future in waiters.pop(key, ()):
                    _settle(future)
        return n

    def detach(self):
        """The engine is closed, and no op is in flight."""
        if self.handle is not None:
            while self.drain() > 0:
                pass
            self.loop().remove_reader(self.fd)
            self.handle = None


def _cq_create(engine):
    out = ctypes.c_uint64()
    check(held.pawl_cq_create(engine._handle().ptr, out))
    return out.value


class CompletionQueue:
    """Ops that are pushed with cq= arrive here when they are complete.  Made by
    Engine.completion_queue()."""

    def __init__(self, engine):
        self._engine, self._ops = engine, {}
        self._h = _cq_create(engine)

    def _handle(self):
        if not self._h:
            raise c.StaleError("the queue was closed", errno.ESTALE)
        return self._engine._handle().ptr, self._h

    def fileno(self):
        """A descriptor that is readable while there is something to reap, for select() and
        similar calls.  It belongs to the engine: do not read or close it."""
        return check(held.pawl_cq_fd(*self._handle()))

    def reap(self, most=256):
        """A list of ops that are complete, at most so many; without waiting."""
        if not isinstance(most, int) or not 0 < most <= 1 << 20:
            raise ValueError(f"reap: most is {most!r}, not in 1..2**20")
        buffer = ctypes.create_string_buffer(_COMPLETION.size * most)
        n = check(held.pawl_cq_reap(*self._handle(), buffer, most))
        found = _COMPLETION.iter_unpack(memoryview(buffer)[:n * _COMPLETION.size])
        return [self._ops.pop(key) for key, _, _ in found]

    def wait(self, timeout=None):
        """Wait until there is something to reap.  Raises WaitTimeout."""
        check(self._engine._wait(c.WAIT_CQ, self._handle()[1], timeout))

    def close(self):
        """Raises BusyError while an op that names the queue was not reaped."""
        if self._h:
            check(held.pawl_cq_destroy(self._engine._handle().ptr, self._h))
            self._h = 0


class Group:
    """Ops with a common count, limits and deadline.  Made by Engine.group()."""

    def __init__(self, engine, ops=0, cost=0, deadline=None, low=50):
        self._engine, self._h = engine, 0
        limits = c.Limits(size=ctypes.sizeof(c.Limits), ops=_uint("ops", ops),
                          cost=_uint("cost", cost), low=_uint("low", low, 99),
                          deadline_ns=0 if deadline is None else _deadline_ns(deadline))
        out = ctypes.c_uint64()
        check(held.pawl_group_create(engine._handle().ptr, limits, out))
        self._h = out.value

    def __del__(self):
        if self._h:
            self._engine._garbage.append((held.pawl_group_destroy, self._h))

    def __enter__(self):
        return self

    def __exit__(self, kind, exc, trace):
        if kind is not None:
            self.cancel()
        self.wait()
        self.close()

    def push(self, fn, *args, **how):
        """Engine.push() of an op that belongs to the group."""
        return self._engine.push(fn, *args, group=self, **how)

    def _handle(self):
        # 0 would be the engine itself.
        if not self._h:
            raise c.StaleError("the group was closed", errno.ESTALE)
        return self._engine._handle().ptr, self._h

    def count(self):
        """(ops that are not complete, their cost)"""
        ops, cost = ctypes.c_uint64(), ctypes.c_uint64()
        check(held.pawl_group_count(*self._handle(), ops, cost))
        return ops.value, cost.value

    def cancel(self):
        """The ops that have not started end with CanceledError; running bodies can call
        pawl.canceled()."""
        check(held.pawl_group_cancel(*self._handle()))

    def wait(self, timeout=None):
        """Wait until all its ops are complete.  Raises WaitTimeout; not the errors of ops."""
        check(self._engine._wait(c.WAIT_GROUP, self._handle()[1], timeout))

    def wait_room(self, timeout=None):
        """Wait until at most `low` percent of its limits are used."""
        check(self._engine._wait(c.WAIT_ROOM, self._handle()[1], timeout))

    def close(self):
        """Raises BusyError while an op of the group is not complete."""
        if self._h:
            check(held.pawl_group_destroy(self._engine._handle().ptr, self._h))
            self._h = 0


def _uint(what, value, most=(1 << 64) - 1):
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{what} is {value!r}, not an int")
    if not 0 <= value <= most:
        raise ValueError(f"{what} is {value}, not in 0..{most}")
    return value


class _Trace:
    def __init__(self, engine, path, events):
        self.engine, self.path, self.events = engine, os.fsencode(path), events

    def __enter__(self):
        check(held.pawl_trace_start(self.engine._handle().ptr, self.events))

    def __exit__(self, kind, exc, trace):
        h = self.engine._handle()
        check(held.pawl_trace_stop(h.ptr))
        check(lib.pawl_trace_write(h.ptr, self.path))


class Engine:
    """Runs ops as soon as their data allows, on its own threads.

    workers     threads that run bodies; default: the CPUs that the process may use.  With 0
                there are none: bodies run in waits and in run_one()
    window      most ops in flight; default: max_ops
    kind        "per-device"; "pooled"; "naive": each op runs inside its push, for debugging
    cpus        CPUs to which the workers are pinned in turn
    name        prefix of the names of threads, at most 7 bytes
    max_ops, max_vars, max_threads, spin_ns: as in struct pawl_config

    Leaving a `with` block waits for all ops, and raises the first error that no call has
    reported.
    """

    _KINDS = {"per-device": c.PER_DEVICE, "pooled": c.POOLED, "naive": c.NAIVE}

    def __init__(self, workers=None, *, kind="per-device", window=None, cpus=None, name=None,
                 max_ops=None, max_vars=None, max_threads=None, spin_ns=None):
        self._h = None
        self._unseen, self._garbage, self._loops = {}, [], weakref.WeakKeyDictionary()
        self._queues, self._epoch, self._interrupted = [], 0, False
        config = c.Config()
        lib.pawl_config_init_size(config, ctypes.sizeof(config))
        if kind not in self._KINDS:
            raise ValueError(f"Engine: kind is {kind!r}, not one of {', '.join(self._KINDS)}")
        config.kind = self._KINDS[kind]
        config.workers = len(os.sched_getaffinity(0)) if workers is None else \
            _uint("workers", workers, 65535)
        # The thread that waits sleeps, so that bodies run on workers, and Ctrl-C in the wait.
        config.no_help = config.workers > 0 and config.kind != c.NAIVE
        # A push that keeps the GIL must not wait for an op.
        config.window_policy = c.WINDOW_FAIL
        for field, value in (("window", window), ("max_ops", max_ops), ("max_vars", max_vars),
                             ("max_threads", max_threads), ("spin_ns", spin_ns)):
            if value is not None:
                setattr(config, field, _uint(field, value, (1 << 32) - 1))
        if cpus is not None:
            cpus = [_uint("cpus", cpu, 65535) for cpu in cpus]
            config.cpus, config.ncpus = (ctypes.c_int * len(cpus))(*cpus), len(cpus)
        if name is not None:
            config.name = name.encode()
        config.thread_start, config.thread_stop, config.drop = _thread_start, _thread_stop, _drop
        self._push = lib.pawl_push if config.kind == c.NAIVE else held.pawl_push
        out = ctypes.c_void_p()
        check(lib.pawl_engine_create(config, out))
        self._h = _Handle(out.value)
        _engines.add(self)

    # --- life ---

    def _handle(self):
        h = self._h
        if h is None:
            raise c.ClosedError("the engine was closed")
        return h

    def __enter__(self):
        return self

    def __exit__(self, kind, exc, trace):
        if kind is None:
            try:
                self.wait()
            finally:
                self.close()
        else:
            self.close(cancel=True)

    async def __aenter__(self):
        return self

    async def __aexit__(self, kind, exc, trace):
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self.__exit__, kind, exc, trace)

    def __del__(self):
        if self._h is not None and self._h.pid == os.getpid():
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self)

    def close(self, *, cancel=False):
        """Wait for all ops, while only bodies may push, and end the threads.  With `cancel`, ops
        that have not started are canceled.  Errors of ops are not raised: wait() does that."""
        h = self._h
        if h is None:
            return
        if getattr(_tls, "run", None) is not None:
            raise c.DeadlockError("close: inside a body", errno.EDEADLK)
        if h.pid != os.getpid():
            # The library frees the memory; the ops and threads belong to the parent.
            for key in [k for k, op in list(_live.items()) if op._engine is self]:
                _live.pop(key, None)
        else:
            push = self._push
            self._push = self._push_of_body
            try:
                if cancel:
                    self.cancel()
                err = c.Error()
                rc = self._wait(c.WAIT_ALL, 0, None, err)
                if err.payload:
                    _payloads.pop(err.payload).gone = True
                if not err.code:
                    check(rc)
            except BaseException:
                self._push = push
                raise
        self._h = None
        _engines.discard(self)
        self._detach()
        if h.pid == os.getpid():
            check(lib.pawl_engine_stop(h.ptr))
        h.closed = True

    @staticmethod
    def _push_of_body(ptr, op):
        """Replaces pawl_push() while the engine is being closed."""
        if getattr(_tls, "run", None) is None:
            raise c.ClosedError("push: the engine is being closed")
        return lib.pawl_push(ptr, op)

    def _detach(self):
        here = _get_running_loop()
        for loop, queue in list(self._loops.items()):
            if loop is here:
                queue.detach()
            elif not loop.is_closed():
                try:
                    loop.call_soon_threadsafe(queue.detach)
                except RuntimeError:
                    pass
        self._loops.clear()

    def cancel(self):
        """Cancel all ops that have not started."""
        for op in list(_live.values()):
            if op._engine is self:
                op.cancel()

    # --- vars, groups, queues ---

    def _sweep(self):
        """Delete what the garbage collector found."""
        h = self._handle()
        for _ in range(len(self._garbage)):
            call, handle = entry = self._garbage.pop()
            rc = call(h.ptr, handle, None, None) if call is held.pawl_var_delete else \
                call(h.ptr, handle)
            if rc in (-errno.EBUSY, -errno.EAGAIN, -errno.ENOMEM):
                self._garbage.insert(0, entry)

    def var(self):
        """A new Var."""
        if self._garbage:
            self._sweep()
        return Var(self)

    def array(self, data):
        """A new Array: a var for these data, a numpy array or any other buffer."""
        if self._garbage:
            self._sweep()
        return Array(self, data)

    def group(self, ops=0, cost=0, deadline=None, low=50):
        """A new Group: at most so many incomplete ops, with at most so much cost (0: any
        number); none starts after the deadline, a time of time.monotonic(); there is room
        again at `low` percent."""
        if self._garbage:
            self._sweep()
        return Group(self, ops, cost, deadline, low)

    def completion_queue(self):
        """A new CompletionQueue."""
        return CompletionQueue(self)

    def _loop_queue(self, loop):
        """The queue of a loop, at the loop's first push: that of a closed loop, or a new one."""
        cq = None
        with _lock:
            for old in self._queues:
                was = old.loop()
                if was is None or was.is_closed():
                    self._queues.remove(old)
                    cq = old.cq
                    break
        queue = _LoopQueue(self, loop, cq)
        with _lock:
            self._queues.append(queue)
            self._loops[loop] = queue
        return queue

    # --- ops ---

    def push(self, fn, *args, reads=(), writes=(), priority=0, deadline=None, group=None,
             cost=0, cq=None, name=None, always=False, block=None):
        """Push an op: fn(*args) runs when all ops that were pushed before, and that write one
        of `reads` or use one of `writes`, have ended.  Returns an Op.

        An Array among args is an access, too: fn gets its data, and a view that cannot be
        written unless `writes` names it.

        priority    the highest goes first
        deadline    a time of time.monotonic() after which the op does not start
        group, cost see Engine.group()
        cq          the CompletionQueue that reports the op
        name        for traces and messages; default: the name of fn.  For kinds of ops, not for
                    each: names are kept
        always      run even if one of the vars is poisoned by an error
        block       wait for room if the window or a limit is reached, else raise FullError.
                    Default: wait, except in a body and in an event loop
        """
        h = self._h
        if h is None:
            raise c.ClosedError("push: the engine was closed")
        if not callable(fn):
            raise TypeError(f"push: {type(fn).__name__} is not callable")
        if reads.__class__ is not tuple or reads:
            reads = _vars("reads", reads)
        if writes.__class__ is not tuple or writes:
            writes = _vars("writes", writes)
        if args:
            args, reads = _arrays(args, reads, writes)
        op = Op()
        op._engine, op._fn, op._args, op._reads, op._writes = self, fn, args, reads, writes
        op._group, op._result, op._fault, op._waiters = group, None, None, None
        op._skipped = op._cancel = op._done = False
        op._key = key = next(_keys)
        op.name, label = _name(fn, name)
        flags, queue, when, gh = c.OP_TICKET, 0, 0, 0
        op._queue = None
        if always:
            flags |= c.OP_NO_SKIP
        if cq is not None:
            if not isinstance(cq, CompletionQueue):
                raise TypeError(f"push: cq is {type(cq).__name__}, not a CompletionQueue")
            flags |= c.OP_CQ
            queue = cq._handle()[1]
        else:
            loop = _get_running_loop()
            if loop is not None:
                op._queue = self._loops.get(loop) or self._loop_queue(loop)
                flags |= c.OP_CQ
                queue = op._queue.cq
        if deadline is not None:
            flags |= c.OP_DEADLINE
            when = _deadline_ns(deadline)
        if group is not None:
            if not isinstance(group, Group):
                raise TypeError(f"push: group is {type(group).__name__}, not a Group")
            flags |= c.OP_GROUP
            gh = group._handle()[1]
        if cost:
            flags |= c.OP_COST
        nreads, nwrites = len(reads), len(writes)
        n = nreads + nwrites
        if n <= _ROOM:
            try:
                buffer = _buffers.pop()
            except IndexError:
                buffer = _Buffer(_ROOM)
            packer = _packers[n]
        else:
            buffer, packer = _Buffer(n), struct.Struct(f"{c.OP_FORMAT}Q{n}Q")
        op._ticket = 0
        try:
            packer.pack_into(
                buffer.memory, 0, _SIZE, _BODY, 0, key, _RELEASE, buffer.vars,
                buffer.vars + 8 * nreads, nreads, nwrites, priority, 0, flags, 0, 0, label, queue,
                key, when, buffer.ticket, gh, cost, 0, *[v._h for v in reads],
                *[v._h for v in writes])
        except struct.error:
            _range(priority, cost)
            raise
        # Once it is pushed only _release() takes it out again.
        _live[key] = op
        if cq is not None:
            cq._ops[key] = op
        try:
            rc = self._push(h.ptr, buffer.op)
            if rc:
                self._push_again(h, rc, op, buffer, gh or cost, block)
        except BaseException as exc:
            # A signal may come when the push has succeeded.
            ticket = _TICKET.unpack_from(buffer.memory, _OP)[0]
            if isinstance(exc, c.PawlError) or not ticket or \
                    held.pawl_ticket_state(h.ptr, ticket) == c.TICKET_COMPLETE:
                _live.pop(key, None)
                if cq is not None:
                    cq._ops.pop(key, None)
            raise
        op._ticket = _TICKET.unpack_from(buffer.memory, _OP)[0]
        if n <= _ROOM:
            _buffers.append(buffer)
        return op

    def _push_again(self, h, rc, op, buffer, limited, block):
        """A push was refused: wait for room, if that was the reason."""
        if block is None:
            block = getattr(_tls, "run", None) is None and _get_running_loop() is None
        while rc:
            if rc != -errno.EAGAIN or not block:
                raise refused(rc)
            if limited:
                check(self._wait(c.WAIT_ROOM, op._group._h if op._group else 0, None))
                rc = self._push(h.ptr, buffer.op)
                if rc != -errno.EAGAIN:
                    continue
            # The window: there is room again when some op has ended, at the latest the oldest.
            oldest = self._oldest(op)
            if oldest is None or self._wait(c.WAIT_TICKET, oldest._ticket, 1e-3) == -errno.EBUSY:
                time.sleep(1e-3)
            rc = self._push(h.ptr, buffer.op)

    def _oldest(self, but):
        try:
            for op in _live.values():
                if op._engine is self and op is not but:
                    return op if op._ticket else None
        except RuntimeError:
            pass		# another thread has changed it
        return None

    def run_one(self):
        """Run one ready op on this thread.  Returns False if none is ready."""
        return check(lib.pawl_run_one(self._handle().ptr)) > 0

    # --- waits ---

    def _wait(self, what, handle, timeout, err=None):
        h = self._handle()
        end = None if timeout is None else time.monotonic_ns() + \
            int(_seconds("timeout", timeout) * 1e9)
        # A signal ends the wait with EINTR if the thread sleeps.  It may come before.
        # (current_thread() would make an object for each thread of the engine.)
        most = _SLICE_NS if threading.get_ident() == threading.main_thread().ident else -1
        while True:
            left = -1 if end is None else max(0, end - time.monotonic_ns())
            ns = most if left < 0 or 0 <= most < left else left
            rc = lib.pawl_wait(h.ptr, what | c.WAIT_INTR, handle, ns, err)
            if self._interrupted and most >= 0:
                self._interrupted = False
                if err is not None and err.payload:
                    _payloads.pop(err.payload).gone = True
                raise KeyboardInterrupt
            if err is not None and err.code:
                return rc
            if rc == -errno.EINTR or (rc == -errno.ETIMEDOUT and ns != left):
                continue
            return rc

    def wait(self, timeout=None):
        """Wait until no op is in flight.  Raises the first error that no call has reported, and
        clears all; or WaitTimeout."""
        err = c.Error()
        rc = self._wait(c.WAIT_ALL, 0, timeout, err)
        if not err.code:
            check(rc)
        unseen, self._unseen, self._epoch = self._unseen, {}, self._epoch + 1
        if err.payload:
            _payloads.pop(err.payload).gone = True
        for fault in unseen:
            raise fault.error()

    def _reported(self, err, var):
        """The exception for an error that a call returned."""
        if err.payload:
            fault = _payloads.pop(err.payload)
        else:
            fault = var and var._fault
        if var is not None and fault is not None:
            fault.gone = True
        if fault is not None:
            return fault.error()
        kind = {errno.ECANCELED: c.CanceledError,
                errno.ETIMEDOUT: c.DeadlineError}.get(-err.code, c.OpError)
        name, text = err.op.decode("utf-8", "replace"), err.text.decode("utf-8", "replace")
        return kind(f"op {name!r}: {text}", -err.code, name)

    # --- insight ---

    def stats(self):
        """A dict of what the engine did so far: struct pawl_stats."""
        out = c.Stats(size=ctypes.sizeof(c.Stats))
        check(held.pawl_stats(self._handle().ptr, out))
        return {name: getattr(out, name) for name, _ in c.Stats._fields_[1:]}

    def dump(self, file=None):
        """Write the present state as text to a file (standard error)."""
        file = file or sys.stderr
        file.flush()
        check(lib.pawl_dump(self._handle().ptr, file.fileno()))

    def trim(self):
        """Free unused memory to the system."""
        check(lib.pawl_trim(self._handle().ptr))

    def trace(self, path, events=65536):
        """`with engine.trace(path):` keeps the last events of each thread, and writes them as
        Chrome trace JSON, which opens in Perfetto."""
        return _Trace(self, path, _uint("events", events, (1 << 32) - 1))


def _range(priority, cost):
    if not isinstance(priority, int):
        raise TypeError(f"push: priority is {priority!r}, not an int") from None
    if not -1 << 31 <= priority < 1 << 31:
        raise ValueError(f"push: priority is {priority}, not in -2**31..2**31-1") from None
    _uint("push: cost", cost)


def canceled():
    """For a body: None, or "canceled" after a cancel, or "deadline" when its deadline has
    passed."""
    run = getattr(_tls, "run", None)
    if run is None:
        raise c.PawlError("canceled: not inside a body")
    rc = held.pawl_run_canceled(run)
    return {0: None, -errno.ETIMEDOUT: "deadline"}.get(rc, "canceled")


def _forked():
    """In a child of fork() the thread that held the lock does not exist."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forked)


@atexit.register
def _exit():
    """The interpreter ends: no body may run afterwards.  Ctrl-C cancels what has not started."""
    for engine in list(_engines):
        cancel = False
        while engine._h is not None:
            try:
                engine.close(cancel=cancel)
            except KeyboardInterrupt:
                cancel = True
            except c.PawlError:
                break
