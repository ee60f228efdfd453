# SPDX-License-Identifier: Apache-2.0
# mypy: ignore-errors
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

What if _body() or _release() itself fails, at any line?  ctypes swallows the exception, and the
library gets an int that nobody wrote.  So an op succeeded only if _body() has set op._ran as its
last step.  If it has not, _release() makes a fault, and as the library may count the op as a
success, the bodies of ops behind it check their vars (engine._lost).  If _release() fails, the op
stays in _live, and a call that needs to know asks the library for the state of the op's ticket,
which is complete only after the call of _release(): Op._complete().

Where may these functions fail?  Nowhere, if memory suffices.  Exceptions of the body, and of its
str(), are caught.  Signal handlers of the program run on the main thread only, and raise inside
the user's callable or after the library's call, not in between: _guard.py.  It also keeps room
on the stack for these functions.
"""
import asyncio
import atexit
import contextvars
import ctypes
import errno
import inspect
import itertools
import logging
import os
import struct
import sys
import threading
import time
import types
import warnings
import weakref
from asyncio import _get_running_loop
from collections import deque

from . import _guard
from . import _lib as c
from ._guard import _tls
from ._lib import check, held, lib, refused

_Coroutine, _COROUTINE, _Code = types.CoroutineType, inspect.CO_COROUTINE, types.CodeType
_OP = struct.calcsize(c.OP_FORMAT)
_SIZE = ctypes.sizeof(c.OpStruct)
_PARTS = [struct.Struct("@" + part) for part in c.OP_PARTS]
_PACK, _ARG, _REST = _PARTS[1].pack_into, c.OpStruct.arg.offset, c.OpStruct.deadline_ns.offset
_COMPLETION = struct.Struct(c.COMPLETION_FORMAT)
_REAP = 256			# completions that a loop takes at once
_ZEROS = memoryview(bytes(_COMPLETION.size * _REAP))
_ROOM = 16			# vars of an op for which a buffer has room
_SLICE_NS = 200_000_000		# the main thread returns from a wait this often, for signals
_POLL = 0.1			# seconds after which a waiting thread asks the library again
_NAMES = 4096			# distinct names of ops that are kept
_UNSEEN = 16			# unreported failures that are kept in full
_UNSEEN_MORE = 1024		# those that can still be found if their op or var is
_TEXT = 500			# characters of an exception's text that are kept
_SWEEP = 64			# dropped objects that are freed when one is made
_NOTHING = 1 << 62		# config.user: where list.insert() appends

_live = {}			# number -> Op that has not ended
_payloads = weakref.WeakValueDictionary()	# number -> _Fault that the library carries
_dropped = []			# numbers of those that it carries no more
_keys = itertools.count(1)
_lock = threading.RLock()	# Op._waiters, Engine._queues, _Unseen
_names = {}			# name -> (address, C string), which must outlive every engine
_buffers = []
_packers = [struct.Struct(f"@{n}Q") for n in range(_ROOM + 1)]
_engines = weakref.WeakSet()
_logger = logging.getLogger("pawl")
_copy_context, _Context = contextvars.copy_context, contextvars.Context


class _Buffer:
    """A struct pawl_op, a ticket, and n handles of vars.  What most ops have in common is in it."""
    __slots__ = ("memory", "op", "ticket", "vars")

    def __init__(self, n):
        self.memory = ctypes.create_string_buffer(_OP + 8 + 8 * n)
        self.op = ctypes.addressof(self.memory)
        self.ticket = ctypes.c_uint64.from_buffer(self.memory, _OP)
        self.vars = self.op + _OP + 8
        _PARTS[0].pack_into(self.memory, 0, _SIZE, _BODY, 0)
        self.rest(0, 0, 0)

    def rest(self, when, group, cost):
        _PARTS[2].pack_into(self.memory, _REST, when, self.op + _OP, group, cost)


class _NoCopy:
    """copy.copy() returns the object itself: a second one would name the same object of the
    library, which one of them then deletes."""
    __slots__ = ()

    def __copy__(self):
        return self

    def __reduce_ex__(self, protocol):
        raise TypeError(f"a pawl.{type(self).__name__} cannot be pickled, nor copied deeply")


class _Drop(weakref.ref):
    """What frees an object of the library when the object of Python is dropped: then it is
    appended to engine._garbage.  That runs no bytecode, so no signal handler can raise in it; and a
    collection can happen at any time, also inside a push, so that is all."""
    __slots__ = ("call", "handle")

    @classmethod
    def made(cls, who, engine, create, call, *args):
        """Let the library create an object, and return its handle.  If this fails after that, the
        object of Python is dropped, and so that of the library is freed."""
        drop = cls(who, engine._garbage.append)
        drop.call, drop.handle = call, ctypes.c_uint64()
        engine._kept.add(drop)
        check(create(engine._handle().ptr, *args, drop.handle))
        return drop.handle.value


class _Fault:
    """An op's failure, and where it has spread.

    It keeps the exception until a call has reported it, since the exception keeps the frames of
    the body; afterwards only the op itself does."""
    __slots__ = ("kind", "cause", "op", "name", "code", "text", "gone", "lost", "late", "engine",
                 "epoch", "__weakref__")

    def __init__(self, op, kind, cause, code, text):
        self.engine, self.epoch = weakref.ref(op._engine), op._engine._epoch
        self.kind, self.cause, self.op = kind, cause, weakref.ref(op)
        self.name, self.code, self.text = op.name, code, text
        self.gone = self.lost = self.late = False

    def error(self, skipped=None):
        """A new exception, so that threads do not share a traceback."""
        if skipped is None:
            exc = self.kind(f"op {self.name!r}: {self.text}", self.code, self.name)
        else:
            exc = c.SkippedError(f"op {skipped!r} was skipped: op {self.name!r} failed: "
                                 f"{self.text}", self.code, skipped)
        exc.__cause__ = self.cause
        if exc.__cause__ is None:
            op = self.op()
            exc.__cause__ = None if op is None else op._cause
        return exc

    def report(self, skipped=None):
        """The exception, for a call that raises it now."""
        exc = self.error(skipped)
        self.seen(skipped is None)
        return exc

    def seen(self, entirely=True):
        """The error was reported, so Engine.wait() need not report it."""
        engine = self.engine()
        if engine is not None:
            engine._unseen.discard(self)
        if entirely:
            self.cause = None

    def poisons(self):
        engine = self.engine()
        return not self.gone and engine is not None and self.epoch == engine._epoch


class _Unseen:
    """The failures that no call has reported: the first ones in full, and how many others.  Of
    those, one can be reported in full while its op or a var refers to it, and the last one."""
    __slots__ = ("kept", "more", "late", "last")

    def __init__(self):
        self.kept, self.more, self.late, self.last = {}, 0, [], None

    def add(self, fault):
        with _lock:
            if fault in self.kept or fault.late:
                return
            if len(self.kept) < _UNSEEN and not self.more:
                self.kept[fault] = None
                return
            if len(self.late) >= _UNSEEN_MORE:
                self.late = [ref for ref in self.late if ref() is not None and ref().late]
            if len(self.late) < _UNSEEN_MORE:
                self.late.append(weakref.ref(fault))
            fault.late = True
            self.more += 1
            self.last = fault

    def discard(self, fault):
        if not fault.late and fault not in self.kept:
            return
        with _lock:
            self.kept.pop(fault, None)
            if fault.late:
                fault.late = False
                self.more -= 1
                if self.last is fault:
                    self.last = None

    def first(self):
        """The first ones, and how many there are in all."""
        with _lock:
            found = list(self.kept)
            for ref in self.late if len(found) < _UNSEEN else ():
                fault = ref()
                if fault is not None and fault.late:
                    found.append(fault)
                    if len(found) == _UNSEEN:
                        break
            if self.last is not None and not found:
                found.append(self.last)
            return found, len(self.kept) + self.more

    def error(self):
        """One exception for all of them, or None."""
        found, n = self.first()
        if not n:
            return None
        if found:
            exc, others = found[0].error(), [fault.error() for fault in found[1:]]
        else:
            # Their ops and vars do not exist any more.
            exc, others = c.OpError(f"{n} ops failed, and no call has reported it", errno.EIO), []
            n += 1
        exc.others, exc.more = tuple(others), n - 1
        if n > 1 and found:
            exc.args = (f"{exc.args[0]} (and {n - 1} more failed, which no call has reported)",)
        return exc


def _describe(exc):
    name, text = "exception", "(no text)"
    try:
        name = str(type(exc).__name__)
        text = str(exc)
    except BaseException:
        pass
    # Errors of ops that wait for ops contain one another.
    text = text if len(text) <= _TEXT else text[:_TEXT] + "..."
    return f"{name}: {text}" if text else name


def _code(exc):
    try:
        if isinstance(exc, OSError) and isinstance(exc.errno, int) and 0 < exc.errno < 4096:
            return int(exc.errno)
    except BaseException:
        pass
    return errno.EIO


def _failed(op, run, exc):
    """The body has raised exc.  Returns what _body() returns to the library.  If this fails,
    _release() finds op._cause."""
    payload = 0
    try:
        _forget()
        # without the frame of _body()
        op._cause = exc = exc.with_traceback(exc.__traceback__ and exc.__traceback__.tb_next)
        if isinstance(exc, KeyboardInterrupt):
            _guard.interrupted()
        fault = _fault_of_body(op)
        payload = next(_keys)
        _payloads[payload] = fault
        return held.pawl_fail_with(run, -fault.code, fault.text.encode("utf-8", "replace")[:159],
                                   payload)
    except BaseException:
        _payloads.pop(payload, None)
        return -errno.EIO


def _fault_of_body(op):
    exc = op._cause
    fault = _Fault(op, c.OpError, exc, _code(exc), _describe(exc))
    _spread(op, fault)
    return fault


def _body(run, key):
    """Runs the user's callable.  See the head of this file."""
    op = outer = inside = result = context = None
    rc = -errno.EIO
    try:
        op = _live[key]
        inside = _tls.inside
        outer = op._outer = inside.op
        op._run = run
        inside.op = op
        if op._told:
            _canceled(op)
            rc = 0
        elif op._engine._lost and (rc := _inherits(op, run)):
            pass
        else:
            context = op._context or _Context()
            op._user = True
            if op._kwargs:
                result = context.run(op._fn, *op._args, **op._kwargs)
            elif op._args:
                result = context.run(op._fn, *op._args)
            else:
                result = context.run(op._fn)
            op._user = False
            if result.__class__ is _Coroutine:
                result.close()
                raise TypeError("the body is a coroutine function: an op runs on a thread of the "
                                "engine, without an event loop")
            op._result = result
            op._fn = None
            op._ran = True
            rc = 0
    except BaseException as exc:
        if op is not None:
            op._user = False
            rc = _failed(op, run, exc)
    if op is not None:
        op._run = None
    # The traceback has frames that lead to this one, which must not lead to the op.
    op = result = context = None
    if inside is not None:
        inside.op = outer
    outer = None
    return rc


def _inherits(op, run):
    """An error of which the library knows nothing: the status with which the op is skipped."""
    if not op._always:
        for var in op._reads + op._writes:
            fault = var._fault
            if fault is not None and fault.lost and fault.poisons():
                op._skipped = True
                _spread(op, fault, unseen=False)
                payload = next(_keys)
                _payloads[payload] = fault
                text = fault.text.encode("utf-8", "replace")[:159]
                return held.pawl_fail_with(run, -fault.code, text, payload)
    return 0


def _canceled(op):
    """The op was told not to start: it ends with an error that poisons nothing."""
    op._fault = _Fault(op, c.CanceledError, None, errno.ECANCELED,
                       "canceled before it started; what it writes is as before")


def _spread(op, fault, unseen=True):
    op._fault = fault
    for var in op._writes:
        var._fault = fault
    if unseen:
        op._engine._unseen.add(fault)


def _no_success(op, status):
    """The op did not succeed; status is None if _release() could not keep it."""
    faults = [v._fault for v in op._reads + op._writes if v._fault is not None]
    found = [f for f in faults if f.poisons()]
    if op._ran and op._always:
        # It ran, but what it wrote remains poisoned.
        for var in op._writes:
            var._fault = (found or faults or [None])[0]
        return
    if op._cause is not None:
        _fault_of_body(op)
        return
    if status == -errno.ESTALE:
        fault = _Fault(op, c.OpError, None, errno.ESTALE,
                       "one of its vars was deleted while it was pushed")
    elif op._told or (status in (-errno.ECANCELED, None) and op._cancel) or \
            (status == -errno.ECANCELED and not found):
        fault = _Fault(op, c.CanceledError, None, errno.ECANCELED, "canceled before it started")
        _spread(op, fault, unseen=False)
        return
    elif status == -errno.ETIMEDOUT and not any(f.code == errno.ETIMEDOUT for f in found):
        fault = _Fault(op, c.DeadlineError, None, errno.ETIMEDOUT,
                       "not started before its deadline")
    elif faults and status != 0 and not op._ran:
        # If all were cleared, a wait reported the error after the op was skipped.
        matching = [f for f in found or faults if f.code == -(status or 0)] or found or faults
        op._skipped = True
        _spread(op, matching[0], unseen=False)
        return
    else:
        fault = _Fault(op, c.OpError, None, errno.EINTR,
                       "its body was interrupted outside the callable")
        fault.lost = op._engine._lost = True
    _spread(op, fault)


def _end(op, status):
    """The op has ended.  May be called again, if it was interrupted, and by several threads."""
    if not op._done:
        if status or not op._ran:
            if op._fault is None:
                _no_success(op, status)
        else:
            for var in op._writes:
                if var._fault is not None:
                    var._fault = None
        op._done = True
    op._fn = op._args = op._kwargs = op._context = op._group = op._outer = op._run = None
    op._reads = op._writes = ()
    while op._waiters is not None:
        with _lock:
            waiters, op._waiters = op._waiters, None
        for waiter in waiters or ():
            try:
                waiter()
            except BaseException:
                _logger.exception("a callback of %r failed", op)


def _release(key, status):
    """The op has ended: see the head of this file."""
    try:
        op = _live[key]
        try:
            _end(op, status)
        except BaseException:
            _end(op, status)
        del _live[key]
    except BaseException:
        pass		# Op._complete() does it


def _thread_start(_user, _name):
    # One more, so that the thread keeps its state, as threading.local, from body to body.
    ctypes.pythonapi.PyGILState_Ensure()
    _tls.kept = True


def _thread_stop(_user, _name):
    if _tls.kept:
        _tls.kept = False
        ctypes.pythonapi.PyGILState_Release(0)


def _forget():
    """The library carries these faults no more."""
    while _dropped:
        try:
            fault = _payloads.pop(_dropped.pop(), None)
        except IndexError:
            return
        if fault is not None:
            fault.gone = True


def _fault_at(payload):
    """The fault that a call returned as err.payload, or None."""
    _forget()
    return _payloads.pop(payload, None) if payload else None


# ctypes calls these; _drop is a method in C, in which no signal handler runs.
_c_body, _c_release = c.Body(_body), c.Release(_release)
_c_start, _c_stop = c.Hook(_thread_start), c.Hook(_thread_stop)
_c_drop = c.Drop(_dropped.insert)
_BODY = ctypes.cast(_c_body, ctypes.c_void_p).value
_RELEASE = ctypes.cast(_c_release, ctypes.c_void_p).value


class _Handle:
    """struct pawl_engine.  A call that releases the GIL holds a reference to it meanwhile."""
    __slots__ = ("ptr", "pid", "closed", "forked")

    def __init__(self, ptr):
        self.ptr, self.pid, self.closed, self.forked = ptr, os.getpid(), False, False

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


def _inside():
    """The Op whose body runs on this thread, or None."""
    inside = _tls.inside
    op = inside.op
    while op is not None and op._run is None:
        # Its _body() was interrupted at its end.
        op = inside.op = op._outer
    return op


class _Callback:
    """A function of Op.add_done_callback()."""
    __slots__ = ("op", "fn", "loop", "context")

    def __init__(self, op, fn, context):
        self.op, self.fn, self.loop = op, fn, _get_running_loop()
        self.context = context or _copy_context()

    def __call__(self):
        op = self.op
        if self.loop is None:
            self.context.run(self.fn, op)
        else:
            try:
                self.loop.call_soon_threadsafe(self.fn, op, context=self.context)
            except RuntimeError:
                pass		# the loop was closed


class Op(_NoCopy):
    """One push.  It can be waited for by any thread, and awaited in any event loop."""
    __slots__ = ("name", "_engine", "_fn", "_args", "_kwargs", "_context", "_reads", "_writes",
                 "_group", "_always", "_poison", "_result", "_ran", "_cause", "_fault", "_skipped",
                 "_cancel", "_told", "_done", "_waiters", "_ticket", "_key", "_queue", "_run",
                 "_outer", "_user", "__weakref__")

    def __repr__(self):
        state = ("failed" if self._fault else "done") if self._done else "pending"
        return f"<pawl.Op {self.name!r} {state}>"

    def done(self):
        """Has the op ended?"""
        return self._done or self._complete()

    def _complete(self):
        """Has the op ended, and its _release() has failed?  Then make up for it."""
        h = self._engine._h
        if h is not None and (not self._ticket or held.pawl_ticket_state(
                h.ptr, self._ticket) != c.TICKET_COMPLETE):
            return False
        self._finish()
        return True

    def _finish(self):
        """The library says that the op is complete."""
        with _lock:
            if not self._done or self._key in _live:
                _end(self, None)
                _live.pop(self._key, None)

    def running(self):
        """Does its body run now?"""
        if self.done():
            return False
        h = self._engine._handle()
        return check(held.pawl_ticket_state(h.ptr, self._ticket)) == c.TICKET_RUNNING

    def cancelled(self):
        """Was it canceled before it started?"""
        return self.done() and self._fault is not None and not self._skipped and \
            self._fault.kind is c.CanceledError

    def cancel(self, *, poison=True):
        """Returns True if the op will not start, and False if it has started or ended; a body
        that runs can call pawl.canceled().  What the op should have written is poisoned, as if
        its body had failed, unless `poison` is false: then it is as before."""
        if self.done():
            return False
        h = self._engine._handle()
        if not poison:
            self._told = True
            return check(held.pawl_ticket_state(h.ptr, self._ticket)) == c.TICKET_QUEUED
        self._cancel = True
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
                if not self._done:
                    self._finish()
                return
            # Another thread already waits for it; _release() notifies this one.
            event = threading.Event()
            if self._on_done(event.set):
                inside = _inside() is not None
                most = 1e-3 if inside else _POLL
                event.wait(most if left is None else min(most, left))
                if inside and not self._done:
                    # The workers may all be waiting: run something.
                    engine._here(lib.pawl_run_one, engine._handle().ptr)
            else:
                time.sleep(20e-6)
            if left == 0.0 and not self.done():
                raise c.WaitTimeout(f"op {self.name!r}: not complete", errno.ETIMEDOUT)

    def exception(self, timeout=None):
        """Wait for the op, and return its OpError or None."""
        if not self._done:
            self.wait(timeout)
        if self._fault is None:
            return None
        return self._fault.report(self.name if self._skipped else None)

    def result(self, timeout=None):
        """Wait for the op, and return what its body returned; raises OpError if it failed."""
        if not self._done:
            self.wait(timeout)
        if self._fault is not None:
            raise self.exception()
        return self._result

    def add_done_callback(self, fn, *, context=None):
        """Let fn(op) be called when the op has ended: in an event loop by the loop that runs now,
        else on the thread that ends the op, or at once if it has ended."""
        call = _Callback(self, fn, context)
        if self.done() or not self._on_done(call):
            call()

    def remove_done_callback(self, fn):
        """Returns how often fn was among the callbacks."""
        with _lock:
            old = self._waiters or []
            new = [w for w in old if not (isinstance(w, _Callback) and w.fn == fn)]
            if self._waiters is not None:
                self._waiters = new
        return len(old) - len(new)

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

    def _poll(self, loop, future):
        """In case that _release() fails."""
        if not future.done():
            if self.done():
                future.set_result(None)
            else:
                loop.call_later(_POLL, self._poll, loop, future)

    def __await__(self):
        if not self._done:
            h = self._engine._h
            if h is not None and h.forked:
                self._engine._handle()
            loop = _get_running_loop() or asyncio.get_running_loop()
            future, queue = loop.create_future(), self._queue
            if queue is not None and queue.loop() is loop:
                waiters = queue.waiters.get(self._key)
                if waiters is None:
                    queue.waiters[self._key] = [future]
                else:
                    waiters.append(future)
                if self._done:
                    _settle(future)
            elif self._on_done(lambda: _tell(loop, future)):
                loop.call_later(_POLL, self._poll, loop, future)
            else:
                future.set_result(None)
            try:
                yield from future
            except asyncio.CancelledError:
                self.cancel(poison=self._poison)
                raise
        return self._result if self._fault is None and self._done else self.result()


def _settle(future):
    if not future.done():
        future.set_result(None)


def _tell(loop, future):
    try:
        loop.call_soon_threadsafe(_settle, future)
    except RuntimeError:
        pass			# the loop was closed


class Var(_NoCopy):
    """A tag for a piece of data.  Made by Engine.var()."""
    __slots__ = ("_engine", "_h", "_fault", "__weakref__")

    def __init__(self, engine):
        self._engine, self._h, self._fault = engine, 0, None
        self._h = _Drop.made(self, engine, held.pawl_var_create, _var_delete)

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
        if self._engine._lost:
            self._engine._complete_all()
            fault = self._fault
            if fault is not None and fault.lost and fault.poisons():
                fault.gone = True
                raise fault.report()

    def error(self):
        """The error that poisons the var now, without waiting, or None.  It stays."""
        err = c.Error()
        rc = held.pawl_var_error(self._engine._handle().ptr, self._h, err)
        fault = self._fault
        if not err.code and (fault is None or not fault.lost):
            check(rc)
            return None
        if fault is not None and fault.poisons():
            fault.seen(False)
            return fault.error()
        return self._engine._reported(err, None) if err.code else None

    def clear(self):
        """Clear the error, here and wherever it spread."""
        check(held.pawl_var_clear(self._engine._handle().ptr, self._h))
        if self._fault is not None:
            self._fault.gone = True
            self._fault.seen()


class Array(Var):
    """A var with its data, a numpy array or any other buffer.  Made by Engine.array().

    As an argument of an op it is an access.  Inside a list, a dict or another object it is none:
    the body gets the Array, and `reads` or `writes` must name it."""
    __slots__ = ("_both",)

    def __init__(self, engine, data):
        self._engine, self._h, self._fault = engine, 0, None
        self._both = data, _read_only(data)
        super().__init__(engine)

    @property
    def data(self):
        """The data.  A program may use them while no op that writes them is in flight.  Other
        data can be assigned: ops that are pushed afterwards get them."""
        return self._both[0]

    @data.setter
    def data(self, data):
        self._both = data, _read_only(data)

    def wait(self, timeout=None, *, writable=False):
        """As Var.wait(), and returns the data."""
        super().wait(timeout, writable=writable)
        return self._both[0]


def _read_only(data):
    """A view of the data that cannot be written."""
    if hasattr(data, "setflags") and hasattr(data, "view"):
        # Not every array is a buffer: one of dates is none.
        view = data.view()
        view.setflags(write=False)
        return view
    try:
        return memoryview(data).toreadonly()
    except TypeError:
        raise TypeError(f"array: {type(data).__name__} is no buffer (a numpy array, bytearray, "
                        "array.array, ...)") from None


def _var_delete(ptr, h):
    return held.pawl_var_delete(ptr, h, None, None)


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
                args[i] = arg._both[0]
            else:
                args[i] = arg._both[1]
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


def _label(name):
    """(address, C string) of a name.  Threads that add the same one get the same."""
    text = ctypes.create_string_buffer(name.encode("utf-8", "replace"))
    return _names.setdefault(name, (ctypes.addressof(text), text))


_OTHER = _label("(other)")


def _name(fn, name):
    if name is None:
        name = getattr(fn, "__name__", None)
        if not name or not isinstance(name, str):
            name = type(fn).__name__
    elif not isinstance(name, str):
        raise TypeError(f"push: name is {type(name).__name__}, not str")
    text = _names.get(name)
    if text is None:
        text = _label(name) if len(_names) < _NAMES else _OTHER
    return name, text[0]


class _LoopQueue:
    """The completion queue of an event loop: the ops that are pushed in it arrive there."""

    def __init__(self, engine, loop, cq=None):
        self.handle, self.loop, self.waiters = engine._handle(), weakref.ref(loop), {}
        self.left = True	# the buffer may have something
        self.cq = cq or _cq_create(engine)
        self.fd = check(held.pawl_cq_fd(self.handle.ptr, self.cq))
        self.buffer = ctypes.create_string_buffer(_COMPLETION.size * _REAP)
        self.view = memoryview(self.buffer).cast("B")
        loop.add_reader(self.fd, self.drain)

    def settle(self):
        """Continue those who await what is in the buffer, and empty it."""
        n = 0
        for key, _, _ in _COMPLETION.iter_unpack(self.view):
            if not key:
                break
            n += _COMPLETION.size
            op = _live.get(key)
            if op is not None:
                op._finish()		# _release() has failed
            for future in self.waiters.get(key, ()):
                if not future.done():
                    future.set_result(None)
            self.waiters.pop(key, None)
        self.view[:n] = _ZEROS[:n]

    def drain(self):
        try:
            if self.left:
                self.settle()		# what is left if it was interrupted
            for _ in range(4):
                if self.handle is None:
                    return False
                self.left = True
                n = held.pawl_cq_reap(self.handle.ptr, self.cq, self.buffer, _REAP)
                if n > 0:
                    self.settle()
                self.left = False
                if n < _REAP:
                    return False
            return True
        except BaseException:
            self.loop().call_soon(self.drain)
            raise

    def detach(self):
        """The engine is closed, and no op is in flight."""
        if self.handle is not None:
            while self.drain():
                pass
            self.loop().remove_reader(self.fd)
            self.handle = None


def _cq_create(engine):
    out = ctypes.c_uint64()
    check(held.pawl_cq_create(engine._handle().ptr, out))
    return out.value


def _cq_discard(ptr, h):
    """Destroy a queue that was dropped, with what nobody reaped."""
    rc = held.pawl_cq_destroy(ptr, h)
    if rc == -errno.EBUSY:
        buffer = ctypes.create_string_buffer(_COMPLETION.size * 256)
        while held.pawl_cq_reap(ptr, h, buffer, 256) > 0:
            pass
        rc = held.pawl_cq_destroy(ptr, h)
    return rc


class CompletionQueue(_NoCopy):
    """Ops that are pushed with cq= arrive here when they are complete.  Made by
    Engine.completion_queue()."""

    def __init__(self, engine):
        self._engine, self._ops, self._h, self._taken = engine, {}, 0, None
        self._lock = threading.RLock()
        self._h = _Drop.made(self, engine, held.pawl_cq_create, _cq_discard)

    def _handle(self):
        h = self._h
        if not h:
            raise c.StaleError("the queue was closed", errno.ESTALE)
        return self._engine._handle().ptr, h

    def fileno(self):
        """A descriptor that is readable while there is something to reap, for select() and
        similar calls.  It belongs to the engine: do not read or close it."""
        return check(held.pawl_cq_fd(*self._handle()))

    def reap(self, most=256):
        """A list of ops that are complete, at most so many; without waiting."""
        if not isinstance(most, int) or not 0 < most <= 1 << 20:
            raise ValueError(f"reap: most is {most!r}, not in 1..2**20")
        with self._lock:
            return self._reap(most)

    def _reap(self, most):
        buffer = self._taken
        if buffer is None or not any(buffer.raw):
            # Kept until they are returned, in case that a signal comes.
            self._taken = buffer = ctypes.create_string_buffer(_COMPLETION.size * most)
            check(held.pawl_cq_reap(*self._handle(), buffer, most))
        found = []
        for key, _, _ in _COMPLETION.iter_unpack(buffer.raw):
            op = self._ops.get(key)
            if op is not None:
                if not op._done:
                    op._finish()
                found.append(op)
        for op in found:
            self._ops.pop(op._key, None)
        self._taken = None
        return found

    def wait(self, timeout=None):
        """Wait until there is something to reap.  Raises WaitTimeout."""
        check(self._engine._wait(c.WAIT_CQ, self._handle()[1], timeout))

    def close(self):
        """Raises BusyError while an op that names the queue was not reaped.  A queue that is
        dropped is closed when its ops are complete."""
        h, self._h = self._h, 0
        if h:
            try:
                check(held.pawl_cq_destroy(self._engine._handle().ptr, h))
            except c.BusyError:
                self._h = h
                raise


class Group(_NoCopy):
    """Ops with a common count, limits and deadline.  Made by Engine.group()."""

    def __init__(self, engine, ops=0, cost=0, deadline=None, low=50):
        self._engine, self._h = engine, 0
        limits = c.Limits(size=ctypes.sizeof(c.Limits), ops=_uint("ops", ops),
                          cost=_uint("cost", cost), low=_uint("low", low, 99),
                          deadline_ns=0 if deadline is None else _deadline_ns(deadline))
        self._h = _Drop.made(self, engine, held.pawl_group_create, held.pawl_group_destroy, limits)

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
        h = self._h
        if not h:
            raise c.StaleError("the group was closed", errno.ESTALE)
        return self._engine._handle().ptr, h

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
        """Raises BusyError while an op of the group is not complete.  A group that is dropped
        is closed when its ops are complete."""
        h, self._h = self._h, 0
        if h:
            try:
                check(held.pawl_group_destroy(self._engine._handle().ptr, h))
            except c.BusyError:
                self._h = h
                raise


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


class Engine(_NoCopy):
    """Runs ops as soon as their data allows, on its own threads.

    workers     threads that run bodies; default: the CPUs that the process may use, by its
                affinity mask and the CPU quota of its cgroup.  With 0 there are none: bodies run
                in waits and in run_one()
    window      most ops in flight; default: max_ops
    kind        "per-device"; "pooled"; "naive": each op runs inside its push, for debugging
    cpus        CPUs to which the workers are pinned in turn
    name        prefix of the names of threads, at most 7 bytes
    max_ops, max_vars, max_threads, spin_ns, strict_priority: as in struct pawl_config

    Leaving a `with` block waits for all ops, and raises the first error that no call has
    reported.
    """

    _KINDS = {"per-device": c.PER_DEVICE, "pooled": c.POOLED, "naive": c.NAIVE}
    _h = None

    def __init__(self, workers=None, *, kind="per-device", window=None, cpus=None, name=None,
                 max_ops=None, max_vars=None, max_threads=None, spin_ns=None,
                 strict_priority=False):
        self._unseen, self._loops = _Unseen(), weakref.WeakKeyDictionary()
        self._kept, self._garbage = set(), deque()	# _Drop
        self._queues, self._epoch, self._lost = [], 0, False
        self._last = None	# the queue of the loop that pushed last
        config = c.Config()
        lib.pawl_config_init_size(config, ctypes.sizeof(config))
        if kind not in self._KINDS:
            raise ValueError(f"Engine: kind is {kind!r}, not one of {', '.join(self._KINDS)}")
        config.kind = self._KINDS[kind]
        # The library's default leaves a CPU to the program; spin_ns is 0 if there is only one.
        config.workers = config.workers + bool(config.spin_ns) if workers is None else \
            _uint("workers", workers, 65535)
        # A push that keeps the GIL must not wait for an op.
        config.window_policy = c.WINDOW_FAIL
        for field, value in (("window", window), ("max_ops", max_ops), ("max_vars", max_vars),
                             ("max_threads", max_threads), ("spin_ns", spin_ns)):
            if value is not None:
                setattr(config, field, _uint(field, value, (1 << 32) - 1))
        config.strict_priority = strict_priority
        if cpus is not None:
            cpus = [_uint("cpus", cpu, 65535) for cpu in cpus]
            config.cpus, config.ncpus = (ctypes.c_int * len(cpus))(*cpus), len(cpus)
        if name is not None:
            config.name = name.encode()
        config.thread_start, config.thread_stop, config.drop = _c_start, _c_stop, _c_drop
        config.user = _NOTHING
        self._naive = config.kind == c.NAIVE
        # Bodies run on the program's threads only inside bodies, or if there are no workers.
        self._workers = 0 if self._naive else config.workers
        self._push = lib.pawl_push if self._naive else held.pawl_push
        out = ctypes.c_void_p()
        check(lib.pawl_engine_create(config, out))
        self._h = _Handle(out.value)
        _engines.add(self)

    # --- life ---

    def _handle(self):
        h = self._h
        if h is None:
            raise c.ClosedError("the engine was closed")
        if h.forked:
            raise c.ForkedError("the engine belongs to the parent process", errno.EOWNERDEAD)
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
        that have not started are canceled.  Errors of ops are not raised, which wait() does:
        those that no call has reported are logged by the logger "pawl"."""
        h = self._h
        if h is None:
            return
        if _inside() is not None:
            raise c.DeadlockError("close: inside a body", errno.EDEADLK)
        if h.pid != os.getpid():
            # The library frees the memory; the ops and threads belong to the parent.
            for key in [k for k, op in _live.copy().items() if op._engine is self]:
                _live.pop(key, None)
        else:
            push = self._push
            self._push = self._push_of_body
            try:
                if cancel:
                    self.cancel()
                err = c.Error()
                rc = self._wait(c.WAIT_ALL, 0, None, err)
                _fault_at(err.payload)
                if not err.code:
                    check(rc)
                self._complete_all()
            except BaseException:
                self._push = push
                raise
        self._h = None
        _engines.discard(self)
        self._detach()
        if h.pid == os.getpid():
            check(self._here(lib.pawl_engine_stop, h.ptr))
            h.closed = True
            self._complete_all()
            exc = self._unseen.error()
            if exc is not None:
                self._unseen = _Unseen()
                _logger.error("%r was closed, and no call has reported: %s", self, exc,
                              exc_info=exc.__cause__)
            _guard.deliver()
        h.closed = True

    @staticmethod
    def _push_of_body(ptr, op):
        """Replaces pawl_push() while the engine is being closed."""
        if _inside() is None:
            raise c.ClosedError("push: the engine is being closed")
        return lib.pawl_push(ptr, op)

    def _here(self, call, *args):
        """A call of the library that may run bodies on this thread, if the engine has no workers
        or the thread is in a body."""
        if self._workers and _inside() is None:
            return call(*args)
        return _guard.here(call, *args)

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

    def _mine(self):
        """The ops that have not ended."""
        return [op for op in _live.copy().values() if op._engine is self]

    def _complete_all(self):
        """Make up for each _release() that has failed."""
        for op in self._mine() if _live else ():
            op._complete()

    def cancel(self):
        """Cancel all ops that have not started."""
        for op in self._mine():
            op.cancel()

    # --- vars, groups, queues ---

    def _sweep(self):
        """Free some of what was dropped.  Any number of threads may do so at once."""
        h, garbage = self._handle(), self._garbage
        for _ in range(min(len(garbage), _SWEEP)):
            try:
                drop = garbage[0]
            except IndexError:
                return
            # It remains there until it is freed, in case that a signal comes.  Freed again, or by
            # two threads, it is stale.
            busy = drop.handle.value and drop.call(h.ptr, drop.handle.value) in (
                -errno.EBUSY, -errno.EAGAIN, -errno.ENOMEM)
            if busy:
                garbage.append(drop)
            else:
                self._kept.discard(drop)
            try:
                garbage.remove(drop)
            except ValueError:
                pass

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
        if self._garbage:
            self._sweep()
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

    def push(self, fn, *args, kwargs=None, reads=(), writes=(), priority=0, deadline=None,
             group=None, cost=0, cq=None, name=None, always=False, block=None,
             cancel_poisons=False):
        """Push an op: fn(*args, **kwargs) runs when all ops that were pushed before, and that
        write one of `reads` or use one of `writes`, have ended.  It runs in a copy of the present
        contextvars.  Returns an Op.

        An Array among args and the values of kwargs is an access, too: fn gets its data, and a
        view that cannot be written unless `writes` names it.

        priority    the highest goes first
        deadline    a time of time.monotonic() after which the op does not start
        group, cost see Engine.group()
        cq          the CompletionQueue that reports the op
        name        for traces and messages; default: the name of fn.  For kinds of ops, not for
                    each: names are kept
        always      run even if one of the vars is poisoned by an error
        block       wait for room if the window or a limit is reached, else raise FullError.
                    Default: wait, except in a body and in an event loop
        cancel_poisons  what becomes of `writes` if a task is cancelled that awaits the op, also
                    by a timeout, and the op has not started.  It will not start in any case.
                    False: they are as before, for others that use them.  True: as after
                    Op.cancel(), they are poisoned
        """
        h = self._h
        if h is None:
            raise c.ClosedError("push: the engine was closed")
        if not callable(fn):
            raise TypeError(f"push: {type(fn).__name__} is not callable")
        code = getattr(fn, "__code__", None)
        if code.__class__ is _Code and code.co_flags & _COROUTINE:
            raise TypeError(f"push: {fn.__name__} is a coroutine function: an op runs on a thread "
                            "of the engine, without an event loop")
        if reads.__class__ is not tuple or reads:
            reads = _vars("reads", reads)
        if writes.__class__ is not tuple or writes:
            writes = _vars("writes", writes)
        if args:
            args, reads = _arrays(args, reads, writes)
        if kwargs:
            values, reads = _arrays(kwargs.values(), reads, writes)
            kwargs = dict(zip(kwargs, values))
        if _tls.inside.op is not None and (inside := _inside()) is not None and \
                inside._outer is not None:
            # A wait for the op needs as much, and would leave it behind.
            _guard.room(_guard.FRAMES + 12)
        op = Op()
        op._engine, op._fn, op._args, op._kwargs = self, fn, args, kwargs
        op._reads, op._writes, op._group = reads, writes, group
        # An empty one, as most are, is made when the body runs: until then it costs nothing.
        op._context = _copy_context() or None
        op._result = op._fault = op._cause = op._waiters = op._run = op._outer = None
        op._skipped = op._cancel = op._told = op._done = op._ran = op._user = False
        op._always, op._poison = always, cancel_poisons
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
                at = self._last
                if at is None or at.loop() is not loop:
                    at = self._last = self._loops.get(loop) or self._loop_queue(loop)
                op._queue = at
                flags |= c.OP_CQ
                queue = at.cq
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
        else:
            buffer = _Buffer(n)
        ticket, at = buffer.ticket, buffer.vars
        op._ticket = ticket.value = 0
        rest = deadline is not None or gh or cost
        try:
            _PACK(buffer.memory, _ARG, key, _RELEASE, at, at + 8 * nreads, nreads, nwrites,
                  priority, 0, flags, 0, 0, label, queue, key if queue else 0)
            if n:
                packer = _packers[n] if n <= _ROOM else struct.Struct(f"@{n}Q")
                packer.pack_into(buffer.memory, _OP + 8, *[v._h for v in reads + writes])
            if rest:
                buffer.rest(when, gh, cost)
        except struct.error:
            _range(priority, cost)
            raise
        # Once it is pushed only _release() takes it out again.
        _live[key] = op
        if cq is not None:
            cq._ops[key] = op
        try:
            rc = self._push(h.ptr, buffer.op) if not self._naive else \
                _guard.here(self._push, h.ptr, buffer.op)
            if rc:
                self._push_again(h, rc, op, buffer, gh or cost, block)
        except BaseException as exc:
            # A signal may come when the push has succeeded.
            if isinstance(exc, c.PawlError) or not ticket.value or \
                    held.pawl_ticket_state(h.ptr, ticket.value) == c.TICKET_COMPLETE:
                _live.pop(key, None)
                if cq is not None:
                    cq._ops.pop(key, None)
            raise
        op._ticket = ticket.value
        if rest:
            buffer.rest(0, 0, 0)
        if n <= _ROOM:
            _buffers.append(buffer)
        if _guard._late:
            _guard.deliver()
        return op

    async def call(self, fn, *args, **how):
        """push(fn, *args, **how), and wait for the result: a coroutine.  asyncio's create_task()
        and task groups take this one, and not an Op, which is a future."""
        return await self.push(fn, *args, **how)

    def _push_again(self, h, rc, op, buffer, limited, block):
        """A push was refused: wait for room, if that was the reason."""
        if block is None:
            block = _inside() is None and _get_running_loop() is None
        while rc:
            if rc != -errno.EAGAIN or not block:
                raise refused(rc)
            if limited:
                check(self._wait(c.WAIT_ROOM, op._group._h if op._group else 0, None))
                rc = self._push(h.ptr, buffer.op)
                if rc != -errno.EAGAIN:
                    continue
            made = self.stats()
            if made["unreaped"] and made["pushed"] == made["completed"]:
                raise refused(rc)	# only a reap makes room, and this thread may be who reaps
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
        rc = _guard.here(lib.pawl_run_one, self._handle().ptr)
        _guard.deliver()
        return check(rc) > 0

    # --- waits ---

    def _wait(self, what, handle, timeout, err=None):
        h = self._handle()
        end = None if timeout is None else time.monotonic_ns() + \
            int(_seconds("timeout", timeout) * 1e9)
        # A signal ends the wait with EINTR if the thread sleeps.  It may come before.
        # (current_thread() would make an object for each thread of the engine.)
        most = _SLICE_NS if threading.get_ident() == threading.main_thread().ident else -1
        what |= c.WAIT_INTR
        here = not self._workers or _inside() is not None
        if not here:
            # The thread that waits sleeps, so that bodies run on workers, and Ctrl-C in the wait.
            what |= c.WAIT_NO_HELP
        while True:
            left = -1 if end is None else max(0, end - time.monotonic_ns())
            ns = most if left < 0 or 0 <= most < left else left
            rc = _guard.here(lib.pawl_wait, h.ptr, what, handle, ns, err) if here else \
                lib.pawl_wait(h.ptr, what, handle, ns, err)
            if _guard._late and most >= 0:
                if err is not None:
                    _fault_at(err.payload)
                _guard.deliver()
            if err is not None and err.code:
                return rc
            if rc == -errno.EINTR or (rc == -errno.ETIMEDOUT and ns != left):
                continue
            return rc

    def wait(self, timeout=None):
        """Wait until no op is in flight.  Raises the first error that no call has reported, and
        clears all; or WaitTimeout.

        The exception says how many others there are (`more`), and has the first of them
        (`others`)."""
        err = c.Error()
        rc = self._wait(c.WAIT_ALL, 0, timeout, err)
        if not err.code:
            check(rc)
        _fault_at(err.payload)
        self._complete_all()
        exc = self._unseen.error()
        self._epoch, self._lost = self._epoch + 1, False
        if exc is None:
            return
        unseen = self._unseen
        try:
            self._unseen = _Unseen()
            raise exc
        except BaseException as other:
            if other is not exc:
                self._unseen = unseen
            raise

    def _reported(self, err, var):
        """The exception for an error that a call returned."""
        fault = _fault_at(err.payload) or (var and var._fault)
        if fault is not None and fault.poisons():
            if var is not None:
                fault.gone = True
            return fault.report()
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
    op = _inside()
    if op is None:
        raise c.PawlError("canceled: not inside a body")
    if op._told:
        return "canceled"
    rc = held.pawl_run_canceled(op._run)
    return {0: None, -errno.ETIMEDOUT: "deadline"}.get(rc, "canceled")


def _forked():
    """In a child of fork() no other thread exists that may hold the lock, and no body runs."""
    global _lock
    _lock = threading.RLock()
    _guard.forked()
    for engine in list(_engines):
        if engine._h is not None:
            engine._h.forked = True


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
