# SPDX-License-Identifier: Apache-2.0
# mypy: ignore-errors
"""concurrent.futures.Executor on an engine."""
import concurrent.futures
import threading

from . import _lib as c
from ._engine import Engine


def _run(future, fn, args, kwargs):
    """A body: what the threads of a ThreadPoolExecutor do with a work item."""
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as exc:
            future.set_exception(exc)
            if not isinstance(exc, Exception):
                raise


class Executor(concurrent.futures.Executor):
    """submit() and map() as ops of an engine: `with pawl.Executor(engine) as pool`, or
    loop.run_in_executor(pool, fn).

    engine      whose threads run the callables.  Default: one of its own, which shutdown()
                closes
    how         keywords of Engine.push() for all ops: reads, writes, priority, group, ...
    """

    def __init__(self, engine=None, **how):
        for name in how:
            if name == "kwargs" or name not in Engine.push.__kwdefaults__:
                raise TypeError(f"Executor: {name} is no keyword for all ops; those of the engine "
                                "are for Engine()")
        self._own = engine is None
        self._engine, self._how = Engine() if engine is None else engine, how
        self._lock, self._futures, self._down = threading.Lock(), {}, False

    def submit(self, fn, /, *args, **kwargs):
        """Push fn(*args, **kwargs), and return its concurrent.futures.Future.  Cancelling that
        cancels the op if it has not started; what it should have written is as before."""
        future = concurrent.futures.Future()
        with self._lock:
            if self._down:
                raise RuntimeError("cannot schedule new futures after shutdown")
            op = self._engine.push(_run, future, fn, args, kwargs,
                                   **{"name": getattr(fn, "__name__", None), **self._how})
            self._futures[future] = op
        op.add_done_callback(lambda op: self._ended(future, op))
        return future

    def _ended(self, future, op):
        self._futures.pop(future, None)
        exc = op.exception()
        if exc is not None and not future.done():
            # Its body did not run.
            if op.cancelled():
                future.cancel()
                future.set_running_or_notify_cancel()
            elif future.set_running_or_notify_cancel():
                future.set_exception(exc)

    def shutdown(self, wait=True, *, cancel_futures=False):
        """As that of the base class.  The engine goes on, if it was given."""
        with self._lock:
            self._down = True
            left = list(self._futures.items())
        if cancel_futures:
            for future, op in left:
                future.cancel()
        if wait:
            for future, op in left:
                try:
                    op.wait()
                except c.ClosedError:
                    pass
            if self._own:
                self._engine.close()
        elif self._own:
            threading.Thread(target=self._engine.close, name="pawl-shutdown").start()
