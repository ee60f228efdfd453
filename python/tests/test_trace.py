# SPDX-License-Identifier: Apache-2.0
"""Traces."""
import json

import pytest

import pawl
from conftest import SOON


def test_trace_names_the_ops(eng, tmp_path):
    path = tmp_path / "trace.json"
    try:
        eng.trace(path).__enter__()
    except NotImplementedError:
        pytest.skip("the library is built without CONFIG_TRACE")
    eng.trace(path).__exit__(None, None, None)
    with eng.trace(path):
        var = eng.var()
        for _ in range(10):
            eng.push(int, writes=var, name="first kind")
            eng.push(int, reads=var)
        eng.wait(SOON)
        with pytest.raises(pawl.BusyError):
            eng.trace(path).__enter__()
    events = json.loads(path.read_text())
    text = json.dumps(events)
    assert "first kind" in text and '"int"' in text
    with pytest.raises(pawl.PawlError) as caught:
        with eng.trace(tmp_path / "no" / "folder"):
            pass
    assert caught.value.errno == 2


def test_names_are_bounded(eng):
    from pawl import _engine
    ops = [eng.push(int, name=f"name {i}") for i in range(_engine._NAMES + 100)]
    eng.wait(SOON)
    assert len(_engine._names) <= _engine._NAMES + 1
    assert ops[-1].name == f"name {len(ops) - 1}"
