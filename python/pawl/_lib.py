# SPDX-License-Identifier: Apache-2.0
# mypy: ignore-errors
"""libpawl, its structs and its calls.

The declarations are those of pawl/engine.h as of this package's release.  A newer library
accepts the shorter structs of an older one, so they need not be those of the installed library.

Each call is bound twice.  `lib` releases the interpreter's lock (GIL) during the call: for
calls that may block.  `held` keeps it: for calls that never wait for another thread.  A push
takes less time than giving up the lock and getting it back.
"""
import ctypes
import errno
import os
from ctypes import (CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_int, c_int32,
                    c_int64, c_size_t, c_uint, c_uint16, c_uint32, c_uint64, c_void_p)

SONAME = "libpawl.so.0"

Body = CFUNCTYPE(c_int, c_void_p, c_void_p)
Release = CFUNCTYPE(None, c_void_p, c_int)
Hook = CFUNCTYPE(None, c_void_p, c_char_p)
Drop = CFUNCTYPE(None, c_void_p, c_void_p)


class Config(Structure):
    """struct pawl_config"""
    _fields_ = [
        ("size", c_size_t), ("kind", c_int), ("workers", c_int), ("priority_workers", c_int),
        ("copy_workers", c_int), ("cpu_devices", c_uint), ("max_ops", c_uint),
        ("max_vars", c_uint), ("max_threads", c_uint), ("window", c_uint),
        ("window_policy", c_int), ("reserved_2", c_bool), ("prefault", c_bool),
        ("spin_ns", c_uint64), ("reserved", c_uint64), ("cpus", POINTER(c_int)),
        ("ncpus", c_uint), ("name", c_char_p), ("devices", c_void_p), ("ndevices", c_uint),
        ("device_streams", c_int), ("device_workers", c_int), ("device_window", c_uint),
        ("thread_start", Hook), ("thread_stop", Hook), ("user", c_void_p), ("drop", Drop),
        ("trim_ns", c_uint64), ("start_workers", c_bool), ("sched_policy", c_int),
        ("sched_priority", c_int), ("stack_size", c_size_t), ("cpu_list", c_char_p),
        ("thread_create", c_void_p), ("thread_join", c_void_p), ("strict_priority", c_bool)]


class Device(Structure):
    """struct pawl_device"""
    _fields_ = [("kind", c_uint16), ("id", c_uint16)]


class OpStruct(Structure):
    """struct pawl_op"""
    _fields_ = [
        ("size", c_size_t), ("fn", c_void_p), ("async_fn", c_void_p), ("arg", c_void_p),
        ("release", c_void_p), ("reads", c_void_p), ("writes", c_void_p), ("nreads", c_uint32),
        ("nwrites", c_uint32), ("priority", c_int32), ("prop", c_uint16), ("flags", c_uint16),
        ("device", Device), ("name", c_void_p), ("cq", c_uint64), ("tag", c_uint64),
        ("deadline_ns", c_int64), ("ticket", c_void_p), ("group", c_uint64), ("cost", c_uint64)]


# The same for struct.pack_into(): from `size`, from `arg` and from `deadline_ns` to `cost`.
OP_PARTS = ("NPP", "PPPPIIiHHHHPQQ", "qPQQ")
OP_FORMAT = "@" + "".join(OP_PARTS)


class Error(Structure):
    """struct pawl_error"""
    _fields_ = [("code", c_int), ("count", c_uint), ("op", c_char * 48), ("text", c_char * 160),
                ("payload", c_void_p)]


class Limits(Structure):
    """struct pawl_group_limits"""
    _fields_ = [("size", c_size_t), ("ops", c_uint64), ("cost", c_uint64),
                ("deadline_ns", c_int64), ("cq", c_uint64), ("tag", c_uint64), ("low", c_uint),
                ("reserved", c_uint)]


class Completion(Structure):
    """struct pawl_completion"""
    _fields_ = [("tag", c_uint64), ("status", c_int), ("reserved", c_int)]


COMPLETION_FORMAT = "@Qii"


class Stats(Structure):
    """struct pawl_stats"""
    _fields_ = [("size", c_size_t)] + [(name, c_uint64) for name in (
        "pushed", "completed", "failed", "skipped", "inlined", "helped", "handed", "stolen",
        "records", "helps", "sleeps", "wakes", "vars", "ops", "blocks", "bytes")] + [
            ("threads", c_uint), ("workers", c_uint), ("address_space", c_uint64),
            ("unreaped", c_uint64)]


PER_DEVICE, POOLED, NAIVE = 0, 1, 2
WINDOW_FAIL = 0
OP_NO_SKIP, OP_CQ, OP_DEADLINE, OP_TICKET, OP_GROUP, OP_COST = 1, 2, 4, 8, 16, 32
WAIT_READABLE, WAIT_WRITABLE, WAIT_ALL, WAIT_CQ, WAIT_TICKET, WAIT_GROUP, WAIT_ROOM = range(7)
WAIT_NO_HELP, WAIT_INTR = 0x100, 0x200
TICKET_COMPLETE, TICKET_QUEUED, TICKET_RUNNING = range(3)

# Handles are structs of one uint64_t, which the ABIs of C pass as the number itself.
_E, _H, _ERR = c_void_p, c_uint64, POINTER(Error)
CALLS = {
    "pawl_config_init_size": (None, POINTER(Config), c_size_t),
    "pawl_engine_create": (c_int, POINTER(Config), POINTER(c_void_p)),
    "pawl_engine_destroy": (c_int, _E),
    "pawl_engine_stop": (c_int, _E),
    "pawl_var_create": (c_int, _E, POINTER(c_uint64)),
    "pawl_var_version": (c_int, _E, _H, POINTER(c_uint64)),
    "pawl_push": (c_int, _E, c_void_p),
    "pawl_var_delete": (c_int, _E, _H, c_void_p, c_void_p),
    "pawl_error_text": (c_char_p,),
    "pawl_fail_with": (c_int, c_void_p, c_int, c_char_p, c_void_p),
    "pawl_var_error": (c_int, _E, _H, _ERR),
    "pawl_var_clear": (c_int, _E, _H),
    "pawl_run_one": (c_int, _E),
    "pawl_cq_create": (c_int, _E, POINTER(c_uint64)),
    "pawl_cq_destroy": (c_int, _E, _H),
    "pawl_cq_reap": (c_int, _E, _H, c_void_p, c_uint),
    "pawl_cq_fd": (c_int, _E, _H),
    "pawl_ticket_state": (c_int, _E, _H),
    "pawl_cancel": (c_int, _E, _H),
    "pawl_run_canceled": (c_int, c_void_p),
    "pawl_group_create": (c_int, _E, POINTER(Limits), POINTER(c_uint64)),
    "pawl_group_count": (c_int, _E, _H, POINTER(c_uint64), POINTER(c_uint64)),
    "pawl_group_cancel": (c_int, _E, _H),
    "pawl_group_destroy": (c_int, _E, _H),
    "pawl_wait": (c_int, _E, c_uint, _H, c_int64, _ERR),
    "pawl_trim": (c_int, _E),
    "pawl_stats": (c_int, _E, POINTER(Stats)),
    "pawl_dump": (c_int, _E, c_int),
    "pawl_trace_start": (c_int, _E, c_uint),
    "pawl_trace_stop": (c_int, _E),
    "pawl_trace_write": (c_int, _E, c_char_p),
    "pawl_version": (c_char_p,),
}


def _main_interpreter():
    """The engine's threads call Python by PyGILState_Ensure(), which enters the main one."""
    calls = [getattr(ctypes.pythonapi, "PyInterpreterState_" + which) for which in ("Get", "Main")]
    for call in calls:
        call.restype, call.argtypes = c_void_p, []
    return calls[0]() == calls[1]()


def _load():
    if not _main_interpreter():
        raise ImportError("pawl cannot be used in a sub-interpreter: import it in the main one")
    name = os.environ.get("PAWL_LIBRARY") or SONAME
    try:
        libraries = ctypes.CDLL(name), ctypes.PyDLL(name)
    except OSError as exc:
        raise ImportError(
            f"pawl needs the shared library {SONAME}: {exc}. Install Debian's libpawl0, or run "
            "`make install` and `ldconfig` in pawl's source tree, or name the file in the "
            "environment variable PAWL_LIBRARY.") from exc
    for library in libraries:
        for call, (result, *args) in CALLS.items():
            try:
                function = getattr(library, call)
            except AttributeError:
                raise ImportError(f"{name} has no {call}(): it is older than this package. "
                                  "Install a libpawl of the same release.") from None
            function.restype, function.argtypes = result, args
    return libraries


lib, held = _load()


class PawlError(Exception):
    """What a call was refused for, or what became of an op.  `errno` has the number."""

    def __init__(self, text="", code=0):
        super().__init__(text)
        self.errno = code


class InvalidError(PawlError, ValueError):
    """A bad argument; the text names it."""


class StaleError(PawlError):
    """A var, group or queue that was deleted, or that is another engine's."""


class FullError(PawlError):
    """The window of the engine, or a limit of a group, is reached."""


class ClosedError(PawlError):
    """The engine was closed."""


class ForkedError(PawlError):
    """The engine belongs to the parent process: a child of fork() makes its own."""


class DeadlockError(PawlError):
    """A body waits for itself."""


class BusyError(PawlError):
    """Another thread does the same now, or ops are not complete."""


class WaitTimeout(PawlError, TimeoutError):
    """The timeout of a wait has passed; the ops continue."""


class OpError(PawlError):
    """An op failed.  __cause__ is the exception of its body, `op` the name of the op.

    One that Engine.wait() raises: `more` is the number of other ops that failed and that no call
    has reported, and `others` has the OpErrors of the first of them."""

    others, more = (), 0

    def __init__(self, text="", code=0, op=None):
        super().__init__(text, code)
        self.op = op


class SkippedError(OpError):
    """The op did not run, since it reads or writes what a failed op should have written."""


class CanceledError(OpError):
    """The op was canceled before it started."""


class DeadlineError(OpError, TimeoutError):
    """The op did not start before its deadline."""


class _NoMemory(PawlError, MemoryError):
    pass


class _NotBuilt(PawlError, NotImplementedError):
    pass


CLASSES = {
    errno.EINVAL: InvalidError, errno.E2BIG: InvalidError, errno.ENODEV: InvalidError,
    errno.ESTALE: StaleError, errno.EAGAIN: FullError, errno.EOWNERDEAD: ForkedError,
    errno.EDEADLK: DeadlockError, errno.EBUSY: BusyError, errno.ETIMEDOUT: WaitTimeout,
    errno.ENOMEM: _NoMemory, errno.ENOSYS: _NotBuilt, errno.EALREADY: BusyError,
}


def refused(rc):
    """The exception for a call that has just returned the negative errno rc."""
    text = held.pawl_error_text().decode("utf-8", "replace")
    return CLASSES.get(-rc, PawlError)(f"{text} [{errno.errorcode.get(-rc, rc)}]", -rc)


def check(rc):
    """rc, or an exception."""
    if rc < 0:
        raise refused(rc)
    return rc
