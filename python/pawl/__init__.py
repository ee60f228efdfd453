# SPDX-License-Identifier: Apache-2.0
"""pawl: run callables as soon as their data allows.  README.md beside this package explains it."""
from ._engine import Array, CompletionQueue, Engine, Group, Op, Var, canceled
from ._executor import Executor
from ._lib import (BusyError, CanceledError, ClosedError, DeadlineError, DeadlockError, ForkedError,
                   FullError, InvalidError, OpError, PawlError, SkippedError, StaleError,
                   WaitTimeout, held as _held)
from ._version import __version__

__all__ = ["Array", "BusyError", "CanceledError", "ClosedError", "CompletionQueue", "DeadlineError",
           "DeadlockError", "Engine", "Executor", "ForkedError", "FullError", "Group",
           "InvalidError", "Op", "OpError", "PawlError", "SkippedError", "StaleError", "Var",
           "WaitTimeout", "__version__", "canceled", "library_version"]


def library_version() -> str:
    """The version of libpawl, for example "0.1.0"."""
    return _held.pawl_version().decode()
