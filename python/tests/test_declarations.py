# SPDX-License-Identifier: Apache-2.0
"""_lib.py against pawl.cdef, which is made from the headers; the version."""
import ast
import ctypes
import inspect
import os
import re
import struct

import pytest

import pawl
from pawl import _lib

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CDEF = os.environ.get("PAWL_CDEF", os.path.join(TOP, "pawl.cdef"))
STRUCTS = {"config": _lib.Config, "op": _lib.OpStruct, "error": _lib.Error, "device": _lib.Device,
           "group_limits": _lib.Limits, "completion": _lib.Completion, "stats": _lib.Stats}


@pytest.fixture(scope="module")
def ffi():
    ffi = pytest.importorskip("cffi").FFI()
    with open(CDEF, encoding="utf-8") as file:
        ffi.cdef(file.read())
    return ffi


@pytest.mark.parametrize("name", STRUCTS)
def test_structs_are_those_of_the_library(ffi, name):
    theirs, ours = ffi.typeof(f"struct pawl_{name}").fields, STRUCTS[name]
    assert len(theirs) >= len(ours._fields_)
    for (field, kind), (their_field, their) in zip(ours._fields_, theirs):
        assert (field, getattr(ours, field).offset, ctypes.sizeof(kind)) == \
            (their_field, their.offset, ffi.sizeof(their.type))


def test_format_of_an_op():
    assert struct.calcsize(_lib.OP_FORMAT) == ctypes.sizeof(_lib.OpStruct)
    assert struct.calcsize(_lib.COMPLETION_FORMAT) == ctypes.sizeof(_lib.Completion)
    values = struct.pack(_lib.OP_FORMAT, *range(1, 22))
    op = _lib.OpStruct.from_buffer_copy(values)
    names = [f for f, _ in _lib.OpStruct._fields_]
    at = names.index("device")
    assert [getattr(op, f) for f in names[:at]] == list(range(1, at + 1))
    assert (op.device.kind, op.device.id) == (at + 1, at + 2)
    assert [getattr(op, f) for f in names[at + 1:]] == list(range(at + 3, 22))


def test_calls_and_numbers_are_those_of_the_library(ffi):
    theirs = ffi.dlopen(_lib.lib._name)
    for name, (result, *args) in _lib.CALLS.items():
        kind = ffi.typeof(getattr(theirs, name))
        sizes = [ffi.sizeof(a) for a in kind.args]
        assert sizes == [ctypes.sizeof(a) for a in args], name
        assert (result is None) == (kind.result.kind == "void"), name
    for name in ("PER_DEVICE", "POOLED", "NAIVE", "WINDOW_FAIL", "WAIT_READABLE", "WAIT_WRITABLE",
                 "WAIT_ALL", "WAIT_CQ", "WAIT_TICKET", "WAIT_GROUP", "WAIT_ROOM", "WAIT_NO_HELP",
                 "WAIT_INTR",
                 "TICKET_COMPLETE", "TICKET_QUEUED", "TICKET_RUNNING"):
        assert getattr(_lib, name) == getattr(theirs, "PAWL_" + name)


def test_flags_are_those_of_the_header():
    with open(os.path.join(TOP, "include/pawl/engine.h"), encoding="utf-8") as file:
        text = file.read()
    flags = dict(re.findall(r"#define PAWL_(OP_\w+)\s+(\d+)u", text))
    for name in ("OP_NO_SKIP", "OP_CQ", "OP_DEADLINE", "OP_TICKET", "OP_GROUP", "OP_COST"):
        assert getattr(_lib, name) == int(flags[name])


def test_version_is_that_of_the_source_tree():
    with open(os.path.join(TOP, "Makefile"), encoding="utf-8") as file:
        numbers = dict(re.findall(r"^(VERSION|PATCHLEVEL|SUBLEVEL) = (\d+)$", file.read(), re.M))
    version = ".".join(numbers[k] for k in ("VERSION", "PATCHLEVEL", "SUBLEVEL"))
    assert pawl.__version__ == pawl.library_version() == version
    assert _lib.SONAME == "libpawl.so." + numbers["VERSION"]


def parameters(args):
    names = [a.arg for a in args.posonlyargs + args.args]
    return names + [a.arg for a in args.kwonlyargs] + [a.arg for a in (args.vararg, args.kwarg) if a]


def test_hints_and_help_cover_what_there_is():
    """__init__.pyi has the public names with the parameters of the code, which all have a text."""
    with open(os.path.join(os.path.dirname(pawl.__file__), "__init__.pyi"), encoding="utf-8") as f:
        stub = ast.parse(f.read())
    classes = {n.name: n for n in stub.body if isinstance(n, ast.ClassDef)}
    assert set(pawl.__all__) <= set(vars(pawl))
    for name in pawl.__all__:
        thing = getattr(pawl, name)
        if not isinstance(thing, type):
            assert callable(thing) <= bool(thing.__doc__), name
            continue
        assert thing.__doc__, name
        hinted = {n.name: n for n in classes[name].body
                  if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))}
        for method, code in vars(thing).items():
            if method.startswith("_") or not (inspect.isroutine(code) or isinstance(code, property)):
                continue
            assert inspect.getdoc(getattr(thing, method)), f"{name}.{method} has no text"
            assert method in hinted, f"{name}.{method} is not in __init__.pyi"
            if inspect.isroutine(code) and (name, method) != ("Group", "push"):
                theirs = list(inspect.signature(code).parameters)
                assert sorted(parameters(hinted[method].args)) == sorted(theirs), (name, method)
