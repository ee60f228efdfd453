# SPDX-License-Identifier: Apache-2.0
# mypy: ignore-errors
"""Where bodies run on a thread of the program: signals, and room on the stack.

Bodies run on a thread of the program if the engine has no workers, and in waits inside bodies.
The library is then called by here().

Signals.  Python runs the program's signal handlers on the main thread, between any two
bytecodes, also of the functions that ctypes calls.  An exception that a handler raises there
would be swallowed by ctypes, together with the end of an op.  So handlers are replaced during
such a call: one that comes inside the user's callable is called at once, and one that comes
outside after the library's call has returned.

Stack.  A function that ctypes calls fails at once if the recursion limit is reached.  So it must
have room before the library is called, else the call raises RecursionError, inside the body that
went too deep.
"""
import threading
from _signal import getsignal, signal
from collections import deque
from functools import partial
from signal import valid_signals

FRAMES = 40			# of the functions that ctypes calls, and what they call
# Those of real time are left out: they are many.
_SIGNALS = sorted(int(s) for s in valid_signals() if s < 32)


class _Inside:
    """The op whose body runs on a thread.  A thread finds this object once for several changes,
    because an attribute of threading.local costs ten times as much."""
    __slots__ = ("op",)

    def __init__(self):
        self.op = None


class _Thread(threading.local):
    kept = False		# the thread has a state of its own: _thread_start()

    def __init__(self):
        self.inside = _Inside()


_tls = _Thread()
_old = {}			# signal -> the program's handler
_late = deque()			# calls of handlers that came outside a callable
_active = False			# the main thread is in such a call


def _handler(number, frame):
    old = _old.get(number)
    op = _tls.inside.op
    if not _active:
        # It was not put back, because another signal came.
        if getsignal(number) is _handler:
            signal(number, old)
    elif op is None or not op._user:
        _late.append(partial(old, number, None))
        return
    old(number, frame)


def _interrupt():
    raise KeyboardInterrupt


def interrupted():
    """A body ended by KeyboardInterrupt.  On the main thread the call that ran it raises it, too."""
    if threading.get_ident() == threading.main_thread().ident:
        _late.append(_interrupt)


def deliver():
    """Call the handlers that came meanwhile.  They may raise."""
    while _late and threading.get_ident() == threading.main_thread().ident:
        try:
            call = _late.popleft()
        except IndexError:
            return
        call()


def room(n):
    """Raises RecursionError if there is no room for n frames."""
    if n:
        room(n - 1)


def _main(call, args):
    global _active
    if _active:
        return call(*args)
    try:
        _active = True
        for number in _SIGNALS:
            old = getsignal(number)
            if callable(old) and old is not _handler:
                _old[number] = old
                signal(number, _handler)
        return call(*args)
    finally:
        _active = False
        for number, old in _old.items():
            if getsignal(number) is _handler:
                signal(number, old)


def here(call, *args):
    """Call the library, which may run bodies on this thread.  The caller calls deliver()."""
    room(FRAMES)
    op = _tls.inside.op
    user = op is not None and op._user
    if user:
        op._user = False
    try:
        if threading.get_ident() == threading.main_thread().ident:
            return _main(call, args)
        return call(*args)
    finally:
        if user:
            op._user = True


def forked():
    """A child of fork() is in no body, and in no call."""
    global _active
    _tls.inside.op = None
    _active = False
