# SPDX-License-Identifier: Apache-2.0
"""Arrays: buffers behind vars."""
import array

import pytest

import pawl
from conftest import SOON

np = pytest.importorskip("numpy")


def test_arrays_as_arguments(eng):
    a, b = eng.array(np.arange(6.0).reshape(2, 3)), eng.array(np.ones((3, 2)))
    out = eng.array(np.zeros((2, 2)))
    eng.push(np.matmul, a, b, out, writes=out)
    assert out.wait(SOON) is out.data
    assert (out.data == [[3, 3], [12, 12]]).all()


def test_argument_is_an_access(eng, gate):
    a, out = eng.array(np.zeros(3)), eng.array(np.zeros(3))
    eng.push(gate, writes=a)
    op = eng.push(np.copyto, out, a, writes=out)
    assert gate.started.wait(SOON) and not op.done()
    gate.open()
    op.result(SOON)


def test_array_that_is_only_read_cannot_be_written(eng):
    a = eng.array(np.zeros(3))

    def body(x):
        x[0] = 1

    with pytest.raises(pawl.OpError) as caught:
        eng.push(body, a, name="writes").result(SOON)
    assert isinstance(caught.value.__cause__, ValueError) and "read-only" in str(caught.value)
    eng.push(body, a, writes=a).result(SOON)
    assert a.data[0] == 1
    with pytest.raises(pawl.OpError):
        eng.wait(SOON) or eng.push(body, a, reads=a).result(SOON)


def test_chain_of_updates(eng):
    a = eng.array(np.zeros(1000))

    def add(x, n):
        x += n

    for n in range(200):
        eng.push(add, a, n, writes=a)
    assert (a.wait(SOON) == 199 * 100).all() and a.version == 200


def test_other_buffers(eng):
    data = eng.array(bytearray(4))

    def body(x):
        x[0] = 65

    eng.push(body, data, writes=data)
    assert data.wait(SOON)[0] == 65
    with pytest.raises(pawl.OpError):
        eng.push(body, data).result(SOON)
    numbers = eng.array(array.array("d", [1, 2, 3]))
    assert eng.push(sum, numbers).result(SOON) == 6
