# SPDX-License-Identifier: Apache-2.0
"""Fixtures.  Waits have a limit, SOON: a test that needs it has failed."""
import gc
import os
import subprocess
import sys
import threading

import pytest

import pawl
from pawl import _engine

SOON = 60
HERE = os.path.dirname(os.path.abspath(__file__))


@pytest.fixture
def eng():
    with pawl.Engine(2) as engine:
        yield engine


class Gate:
    """A body that ends when it is opened, and says that it has started."""

    def __init__(self):
        self.started, self.opened = threading.Event(), threading.Event()

    def __call__(self, *args):
        self.started.set()
        assert self.opened.wait(SOON)
        return "gate"

    def open(self):
        self.opened.set()


@pytest.fixture
def gate():
    g = Gate()
    yield g
    g.open()


@pytest.fixture
def gate2():
    g = Gate()
    yield g
    g.open()


@pytest.fixture(autouse=True)
def nothing_is_left():
    """Every test leaves neither an op nor the exception of one behind."""
    yield
    gc.collect()
    _engine._forget()
    assert not _engine._live
    assert not _engine._payloads


def python(script, **how):
    """Run a script in another interpreter."""
    return subprocess.run([sys.executable, "-X", "dev", "-c", script], capture_output=True,
                          text=True, timeout=SOON, **how)
