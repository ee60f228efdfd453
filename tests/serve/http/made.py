# SPDX-License-Identifier: Apache-2.0
"""ONNX models, without the package onnx."""
import os
import struct

from wire import field

FLOAT, INT64 = 1, 7


def attribute(name, value):
    """An integer, a list of integers, or a float."""
    if isinstance(value, float):
        return field(1, name) + b"\x15" + struct.pack("<f", value) + field(20, 1)
    if isinstance(value, int):
        return field(1, name) + field(3, value) + field(20, 2)
    return field(1, name) + b"".join(field(8, one) for one in value) + field(20, 7)


def node(op, inputs, output, **attributes):
    return (b"".join(field(1, name) for name in inputs) + field(2, output) + field(4, op) +
            b"".join(field(5, attribute(*one)) for one in attributes.items()))


def tensor(name, dims, values):
    """Integers are int64, other numbers float32."""
    whole = isinstance(values[0], int)
    return (b"".join(field(1, dim) for dim in dims) + field(2, INT64 if whole else FLOAT) +
            field(8, name) + field(9, struct.pack(f"<{len(values)}{'q' if whole else 'f'}",
                                                  *values)))


def value(name, dims, kind=FLOAT):
    shape = b"".join(field(1, field(2, "n") if dim < 0 else field(1, dim)) for dim in dims)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, shape)))


def model(nodes, inputs, outputs, tensors=(), opset=13):
    graph = b"".join(field(number, one) for number, parts in (
        (1, nodes), (5, tensors), (11, inputs), (12, outputs)) for one in parts)
    return field(1, 8) + field(8, field(2, opset)) + field(7, graph)


def save(repository, name, data, version=1):
    folder = os.path.join(repository, name, str(version))
    os.makedirs(folder)
    with open(os.path.join(folder, "model.onnx"), "wb") as file:
        file.write(data)
