# SPDX-License-Identifier: Apache-2.0
"""graphs.py [-n GRAPHS] [-s SEED] [-k FOLDER]: random models with shape arithmetic, served to
requests that share runs, give the answers that onnxruntime gives to each request alone.

A graph is made of operators that numpy can execute for several numbers of rows.  Its requests
have eight rows in all, which is the largest batch of the server, so they share a run if the
server finds that it may be shared.  The seed of graph i is SEED + i.  Graphs that differ are
kept in FOLDER.
"""
import argparse
import itertools
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

PAWL = os.environ.get("PAWL_COMMAND", "tools/pawl/pawl")
ROWS = (1, 2, 3)
BATCH = 8
CONFIG = f"""[model]
max_batch = {BATCH}
preferred_batches = {BATCH}
max_delay_us = 10000
"""
F32, I64 = np.float32, np.int64


class Bad(Exception):
    """The operator does not fit these values."""


class Value:
    """at: the data for each number of rows; exact: whole numbers that float32 holds."""

    def __init__(self, name, at, exact=True):
        self.name, self.at, self.exact = name, at, exact
        self.shape = at[2].shape
        self.type = at[2].dtype.type


class Graph:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.opset = self.rng.choice((11, 13, 17))
        self.nodes, self.inits, self.values, self.inputs = [], [], [], []
        for i in range(self.rng.choice((1, 1, 1, 2))):
            dims = [self.rng.choice((1, 2, 3, 4, 4, 6, 8)) for _ in
                    range(self.rng.choice((1, 1, 2, 2, 3)))]
            if len(dims) == 1:
                dims = [self.rng.choice((2, 4, 6, 12, 16))]
            noise = np.random.default_rng(seed + i)
            self.inputs.append((f"x{i}", dims))
            self.values.append(Value(f"x{i}", {n: noise.integers(-3, 4, (n, *dims)).astype(F32)
                                               for n in ROWS}))
        for _ in range(self.rng.randint(2, 12)):
            self.step()
        self.end()

    # --- parts of a graph

    def const(self, array):
        array = np.asarray(array)
        name = f"c{len(self.inits)}"
        self.inits.append(numpy_helper.from_array(array, name))
        return Value(name, dict.fromkeys(ROWS, array))

    def add(self, op, inputs, fn, exact=None, **attrs):
        at = {}
        for n in ROWS:
            try:
                with np.errstate(all="ignore"):
                    at[n] = np.asarray(fn(*(v.at[n] for v in inputs if v)))
            except (ValueError, IndexError, TypeError) as e:
                raise Bad from e
            a = at[n]
            if a.size > 4096 or a.ndim > 6 or not a.size or not np.isfinite(a).all() or \
               np.abs(a.astype(np.float64)).max() > 1e4:
                raise Bad
        if len({a.ndim for a in at.values()}) != 1:
            raise Bad
        if exact is None:
            exact = all(v.exact for v in inputs if v)
        out = Value(f"v{len(self.nodes)}", at, exact)
        self.nodes.append(helper.make_node(op, [v.name if v else "" for v in inputs],
                                           [out.name], out.name, **attrs))
        self.values.append(out)
        return out

    def pick(self, kind=F32, rank=0):
        """A value, rather a late one."""
        all_ = [v for v in self.values if v.type is kind and len(v.shape) >= rank]
        if not all_:
            raise Bad
        return all_[-1 - min(int(self.rng.expovariate(0.5)), len(all_) - 1)]

    def axis(self, v):
        if not v.shape:
            raise Bad
        return self.rng.randrange(len(v.shape))

    # --- sizes: whole numbers, of which some depend on the rows

    def size_of(self):
        """One element of a shape, in one dimension."""
        v = self.pick(rank=1)
        sh = self.add("Shape", [v], lambda a: np.array(a.shape, I64))
        k = 0 if self.rng.random() < .6 else self.axis(v)
        if self.rng.random() < .5:
            return self.add("Gather", [sh, self.const(np.array([k], I64))], lambda a, i: a[i])
        return self.add("Slice", [sh, self.const(np.array([k], I64)),
                                  self.const(np.array([k + 1], I64))], lambda a, b, e: a[b[0]:e[0]])

    def number(self):
        r = self.rng.random()
        if r < .5:
            return self.size_of()
        if r < .6:
            return self.pick(I64, 1)
        v = self.size_of()
        c = self.const(np.array([self.rng.choice((1, 2, 3))], I64))
        op, fn = self.rng.choice((("Add", np.add), ("Mul", np.multiply), ("Sub", np.subtract),
                                  ("Div", lambda a, b: (a / b).astype(I64)),
                                  ("Mul", lambda a, b: a * b)))
        return self.add(op, [v, c], fn)

    def shape(self, sizes):
        """A computed shape: -1 and constants, and sizes of values where they are the same."""
        parts = []
        for s in sizes:
            r = self.rng.random()
            if s == "N":
                parts.append(self.rows_size())
            elif r < .2 and s != -1:
                v = self.size_of()
                if any(v.at[n].tolist() != [s] for n in ROWS):
                    v = self.const(np.array([s], I64))
                parts.append(v)
            else:
                parts.append(self.const(np.array([s], I64)))
        if len(parts) == 1:
            return parts[0]
        return self.add("Concat", parts, lambda *a: np.concatenate(a), axis=0)

    def rows_size(self):
        x = self.values[0]
        sh = self.add("Shape", [x], lambda a: np.array(a.shape, I64))
        return self.add("Gather", [sh, self.const(np.array([0], I64))], lambda a, i: a[i])

    # --- operators

    def reshape(self):
        v = self.pick(rank=1)
        return self.reshape_to(v, self.sizes_for(v))

    def sizes_for(self, v):
        """Sizes of all elements but those of one dimension."""
        each = [v.at[n].size for n in ROWS]
        factors, left = [], np.gcd.reduce(each)
        for _ in range(self.rng.randint(1, 3)):
            f = self.rng.choice([d for d in range(1, left + 1) if left % d == 0])
            factors.append(int(f))
            left //= f
        sizes = factors[:3]
        k = self.rng.randint(0, len(sizes))
        by_rows = all(e == each[0] * n for n, e in zip(ROWS, each))
        if by_rows and self.rng.random() < .3 and left == 1:
            sizes.insert(k, "N")
        else:
            sizes.insert(k, -1)
        return sizes

    def reshape_to(self, v, sizes):
        if "N" not in sizes and self.rng.random() < .6:
            target = self.const(np.array(sizes, I64))
        else:
            target = self.shape(sizes)
        return self.add("Reshape", [v, target], lambda a, s: a.reshape(
            [a.shape[i] if not d else d for i, d in enumerate(s)]))

    def transpose(self):
        v = self.pick(rank=2)
        perm = list(range(len(v.shape)))
        self.rng.shuffle(perm)
        return self.add("Transpose", [v], lambda a: a.transpose(perm), perm=perm)

    def flatten(self):
        v = self.pick(rank=1)
        k = self.rng.randint(0, len(v.shape))
        return self.add("Flatten", [v], lambda a: a.reshape(int(np.prod(a.shape[:k])), -1),
                        axis=k)

    def unsqueeze(self):
        v = self.pick()
        k = self.rng.randint(0, len(v.shape))
        if self.opset < 13:
            return self.add("Unsqueeze", [v], lambda a: np.expand_dims(a, k), axes=[k])
        return self.add("Unsqueeze", [v, self.const(np.array([k], I64))],
                        lambda a, _: np.expand_dims(a, k))

    def squeeze(self):
        v = self.pick(rank=1)
        ones = [i for i, d in enumerate(v.shape) if d == 1]
        if not ones:
            raise Bad
        if self.rng.random() < .3:
            return self.add("Squeeze", [v], np.squeeze)
        k = self.rng.choice(ones)
        if self.opset < 13:
            return self.add("Squeeze", [v], lambda a: np.squeeze(a, k), axes=[k])
        return self.add("Squeeze", [v, self.const(np.array([k], I64))],
                        lambda a, _: np.squeeze(a, k))

    def reduce(self):
        v = self.pick(rank=1)
        op, fn = self.rng.choice((("ReduceSum", np.sum), ("ReduceMean", np.mean),
                                  ("ReduceMax", np.max), ("ReduceMin", np.min)))
        axes = sorted(self.rng.sample(range(len(v.shape)), self.rng.randint(1, len(v.shape))))
        keep = self.rng.choice((0, 1, 1))
        exact = v.exact and op != "ReduceMean"
        if op == "ReduceSum" and self.opset >= 13:
            return self.add(op, [v, self.const(np.array(axes, I64))], lambda a, _: fn(
                a, tuple(axes), keepdims=bool(keep)), exact, keepdims=keep)
        return self.add(op, [v], lambda a: fn(a, tuple(axes), keepdims=bool(keep)), exact,
                        axes=axes, keepdims=keep)

    def softmax(self):
        v = self.pick(rank=1)
        k = self.axis(v)

        def fn(a):
            if self.opset < 13:
                flat = a.reshape(int(np.prod(a.shape[:k])), -1)
                return fn13(flat, 1).reshape(a.shape)
            return fn13(a, k)

        def fn13(a, axis):
            e = np.exp(a - a.max(axis, keepdims=True))
            return (e / e.sum(axis, keepdims=True)).astype(F32)
        return self.add("Softmax", [v], fn, False, axis=k)

    def unary(self):
        v = self.pick()
        ops = [("Relu", lambda a: np.maximum(a, 0)), ("Neg", np.negative), ("Abs", np.abs),
               ("Identity", lambda a: a), ("Tanh", np.tanh)]
        if v.exact:
            ops.append(("Floor", np.floor))
        op, fn = self.rng.choice(ops)
        return self.add(op, [v], fn, v.exact and op != "Tanh")

    def binary(self):
        a = self.pick()
        if self.rng.random() < .3:
            dims = list(a.shape[self.rng.randint(0, len(a.shape)):])
            for i in range(len(dims)):
                if len({x.shape[len(a.shape) - len(dims) + i] for x in a.at.values()}) > 1 or \
                   self.rng.random() < .5:
                    dims[i] = 1
            size = int(np.prod(dims))
            b = self.const((np.arange(size) % 5 - 2).reshape(dims).astype(F32))
        else:
            b = self.pick()
        op, fn = self.rng.choice((("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply)))
        if self.rng.random() < .5:
            a, b = b, a
        return self.add(op, [a, b], fn)

    def matmul(self):
        a = self.pick(rank=2)
        if self.rng.random() < .5:
            k = a.shape[-1]
            m = self.rng.choice((1, 2, 3, 4))
            b = self.const((np.arange(k * m) % 3 - 1).reshape(k, m).astype(F32))
        elif self.rng.random() < .5:
            perm = [*range(len(a.shape) - 2), len(a.shape) - 1, len(a.shape) - 2]
            b = self.add("Transpose", [a], lambda x: x.transpose(perm), perm=perm)
        else:
            b = self.pick(rank=2)
        if self.rng.random() < .3:
            a, b = b, a
        if len(a.shape) == 2 == len(b.shape) and self.rng.random() < .3:
            ta, tb = self.rng.choice((0, 1)), self.rng.choice((0, 1))
            return self.add("Gemm", [a, b], lambda x, y: (x.T if ta else x) @ (y.T if tb else y),
                            transA=ta, transB=tb)
        return self.add("MatMul", [a, b], np.matmul)

    def slice(self):
        v = self.pick(rank=1)
        k = self.axis(v)
        r = self.rng.random()
        begin = self.const(np.array([self.rng.choice((0, 0, 0, 1, -1, -2))], I64))
        if r < .4:
            end = self.number()
            if len(end.shape) != 1 or end.shape[0] != 1:
                raise Bad
        else:
            end = self.const(np.array([self.rng.choice((1, 2, 8, -1, 2**31 - 1, 2**63 - 1))], I64))
        if r > .9:
            begin, end = end, begin
        step = self.rng.choice((1, 1, 1, 2, -1))
        if step < 0 and any(end.at[n][0] >= 2**31 - 1 for n in ROWS):
            raise Bad

        def fn(a, b, e, *_):
            b, e, d = int(b[0]), int(e[0]), a.shape[k]
            b = b + d if b < 0 else b
            e = e + d if e < 0 else e
            if step < 0 and e < 0:
                e = None
            index = [slice(None)] * a.ndim
            index[k] = slice(max(b, 0), e if e is None else max(e, 0), step)
            return a[tuple(index)]
        return self.add("Slice", [v, begin, end, self.const(np.array([k], I64)),
                                  self.const(np.array([step], I64))], fn)

    def gather(self):
        v = self.pick(rank=1)
        k = self.axis(v)
        index = [self.rng.choice((0, 0, -1, 1)) for _ in range(self.rng.randint(1, 3))]
        index = np.array(index, I64) if self.rng.random() < .7 else np.array(index[0], I64)
        return self.add("Gather", [v, self.const(index)], lambda a, i: np.take(a, i, k),
                        axis=k)

    def gather_rows(self):
        """A table that is read by numbers from the data."""
        v = self.pick()
        if not v.exact:
            raise Bad
        i = self.add("Cast", [v], lambda a: a.astype(I64), to=TensorProto.INT64)
        table = self.const((np.arange(16) % 7 - 3).reshape(8, 2).astype(F32))
        return self.add("Gather", [table, i], lambda t, j: t[j], axis=0)

    def concat(self):
        a = self.pick(rank=1)
        b = a if self.rng.random() < .3 else self.pick(rank=1)
        k = self.axis(a)
        return self.add("Concat", [a, b], lambda x, y: np.concatenate((x, y), k), axis=k)

    def pad(self):
        v = self.pick(rank=1)
        pads = [self.rng.choice((0, 0, 0, 1)) for _ in range(2 * len(v.shape))]
        half = len(v.shape)
        return self.add("Pad", [v, self.const(np.array(pads, I64))], lambda a, _: np.pad(
            a, list(zip(pads[:half], pads[half:]))))

    def expand(self):
        v = self.pick(rank=1)
        sizes = [self.rng.choice((1, d)) if v.at[1].shape[i] == d else self.rng.choice((1, "N"))
                 for i, d in enumerate(v.shape)]
        if self.rng.random() < .5:
            sizes.insert(0, self.rng.choice((1, 2, "N")))
        target = self.shape(sizes)
        return self.add("Expand", [v, target], lambda a, s: a * np.ones([int(x) for x in s], F32))

    def fill(self):
        sizes = [self.rng.choice((1, 2, "N")) for _ in range(self.rng.randint(1, 3))]
        target = self.shape(sizes) if self.rng.random() < .7 else self.number()
        one = helper.make_tensor("value", TensorProto.FLOAT, [1], [self.rng.choice((1.0, 2.0))])
        return self.add("ConstantOfShape", [target], lambda s: np.full(
            [int(x) for x in s], one.float_data[0], F32), value=one)

    def of_number(self):
        """A number that may depend on the rows becomes data."""
        v = self.number()
        f = self.add("Cast", [v], lambda a: a.astype(F32), to=TensorProto.FLOAT)
        if self.rng.random() < .5:
            return f
        x = self.pick()
        op, fn = self.rng.choice((("Mul", np.multiply), ("Add", np.add), ("Div", np.divide)))
        return self.add(op, [x, f], fn, x.exact and op != "Div")

    def numbers(self):
        return self.number()

    def where(self):
        v = self.pick()
        if not v.exact:
            raise Bad
        w = self.pick()
        c = self.add("Greater", [v, self.const(np.array(0, F32))], np.greater)
        return self.add("Where", [c, v, w], np.where)

    def where_sizes(self):
        v = self.number()
        c = self.add("Equal", [v, self.const(np.array([2], I64))], np.equal)
        return self.add("Where", [c, v, self.number()], np.where)

    def picture(self):
        v = self.pick(rank=3)
        if len(v.shape) > 4:
            raise Bad
        c, kind = v.shape[1], self.rng.choice(("Conv", "Pool", "Global", "LRN", "Norm"))
        two = len(v.shape) == 4
        if any(a.shape[1] != c for a in v.at.values()) and kind in ("Conv", "Norm"):
            raise Bad
        if kind == "Global":
            axes = tuple(range(2, len(v.shape)))
            return self.add("GlobalAveragePool", [v], lambda a: a.mean(axes, keepdims=True),
                            False)
        if kind == "Norm":
            p = [self.const(np.full(c, x, F32)) for x in (2, 1, 0.5, 4)]
            return self.add("BatchNormalization", [v, *p],
                            lambda a, *_: (a - .5) / 2 * 2 + 1, False, epsilon=0.0)
        if kind == "LRN" and two:
            return self.add("LRN", [v], lambda a: a, False, size=3)
        if kind == "Conv":
            w = (np.arange(2 * c) % 3 - 1).astype(F32)
            return self.add("Conv", [v, self.const(w.reshape(2, c, *[1] * (len(v.shape) - 2)))],
                            lambda a, b: np.einsum("nc...,oc->no...", a, b.reshape(2, c)))
        # three numbers in a row, of which two are outside at the end
        return self.add("MaxPool", [v], lambda a: a,
                        kernel_shape=[1, 3] if two else [3],
                        pads=[0, 1, 0, 1] if two else [1, 1])

    OPERATORS = ([reshape] * 6 + [transpose] * 3 + [flatten, unsqueeze, squeeze] + [reduce] * 3 +
                 [softmax] * 3 + [unary] + [binary] * 3 + [matmul] * 3 + [slice] * 3 +
                 [gather] * 2 + [gather_rows] + [concat] * 2 + [pad] + [expand] * 2 +
                 [fill] * 2 + [of_number] * 2 + [numbers] + [where, where_sizes] + [picture] * 2)

    def step(self):
        for _ in range(20):
            before = len(self.nodes), len(self.values), len(self.inits)
            try:
                return self.rng.choice(self.OPERATORS)(self)
            except Bad:
                del self.nodes[before[0]:], self.values[before[1]:], self.inits[before[2]:]
        return None

    def end(self):
        """Outputs: late values, often with the rows in front again."""
        self.outputs = []
        for _ in range(self.rng.choice((1, 1, 2))):
            try:
                v = self.pick(I64 if self.rng.random() < .15 else F32)
            except Bad:
                v = self.pick()
            before = len(self.nodes), len(self.values), len(self.inits)
            try:
                if v.type is F32 and self.rng.random() < .3:
                    v = self.add("Mul", [self.values[0], self.add(
                        "ReduceMean", [v], lambda a: np.asarray(a.mean(), F32), False, keepdims=0)],
                        np.multiply, False)
                elif self.rng.random() < .8:
                    each = [v.at[n].size for n in ROWS]
                    by = self.rng.choice((np.gcd.reduce(each), each[0]))
                    v = self.reshape_to(v, [-1, int(by)])
            except Bad:
                del self.nodes[before[0]:], self.values[before[1]:], self.inits[before[2]:]
                v = self.pick()
            if v not in self.outputs and v not in self.values[:len(self.inputs)]:
                self.outputs.append(v)
        if not self.outputs:
            self.outputs.append(self.add("Identity", [self.values[0]], lambda a: a))

    def model(self):
        g = helper.make_graph(
            self.nodes, "g",
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", *d])
             for n, d in self.inputs],
            [helper.make_tensor_value_info(
                v.name, helper.np_dtype_to_tensor_dtype(np.dtype(v.type)), [None] * len(v.shape))
             for v in self.outputs], self.inits)
        return helper.make_model(g, opset_imports=[helper.make_opsetid("", self.opset)],
                                 ir_version=8)


# --- the server -------------------------------------------------------------------

class Server:
    def __init__(self, repository):
        config = repository + ".ini"
        with open(config, "w", encoding="ascii") as f:
            f.write(CONFIG)
        self.log = repository + ".log"
        with open(self.log, "wb") as f:
            self.process = subprocess.Popen(
                [PAWL, "serve", "--repository", repository, "--config", config, "--port=0",
                 "--grpc-port=none", "--workers=1"], stderr=f)
        self.port = None
        while self.port is None or '"event":"ready"' not in self.text():
            found = re.search(r'"port":"(\d+)"', self.text())
            self.port = int(found[1]) if found else None
            if self.process.poll() is not None:
                raise RuntimeError(self.text())
            try:
                self.process.wait(0.02)
            except subprocess.TimeoutExpired:
                pass
        self.socks = [socket.create_connection(("127.0.0.1", self.port), 120)
                      for _ in range(BATCH)]

    def text(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()

    def stop(self):
        for s in self.socks:
            s.close()
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def send(self, i, name, arrays):
        head = json.dumps({"parameters": {"binary_data_output": True}, "inputs": [
            {"name": k, "shape": a.shape, "datatype": "FP32",
             "parameters": {"binary_data_size": a.nbytes}} for k, a in arrays.items()]}).encode()
        body = head + b"".join(a.tobytes() for a in arrays.values())
        self.socks[i].sendall(
            (f"POST /v2/models/{name}/infer HTTP/1.1\r\nHost: localhost\r\n"
             f"Inference-Header-Content-Length: {len(head)}\r\n"
             f"Content-Length: {len(body)}\r\n\r\n").encode() + body)

    def answer(self, i):
        """The outputs by name, or the text of an error."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += self.more(i)
        head, data = data.split(b"\r\n\r\n", 1)
        size = int(re.search(rb"(?i)\r\ncontent-length: (\d+)", head)[1])
        while len(data) < size:
            data += self.more(i)
        if head.split()[1] != b"200":
            return json.loads(data)["error"]
        at = int(re.search(rb"(?i)inference-header-content-length: (\d+)", head)[1])
        outputs = {}
        for o in json.loads(data[:at])["outputs"]:
            n = o["parameters"]["binary_data_size"]
            kind = {"FP32": F32, "INT64": I64}[o["datatype"]]
            outputs[o["name"]] = np.frombuffer(data[at:at + n], kind).reshape(o["shape"])
            at += n
        return outputs

    def more(self, i):
        part = self.socks[i].recv(1 << 16)
        if not part:
            raise RuntimeError("the server closed the connection: " + self.text()[-2000:])
        return part

    def get(self, path):
        s = self.socks[0]
        s.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        data = b""
        while b"\r\n\r\n" not in data:
            data += self.more(0)
        head, data = data.split(b"\r\n\r\n", 1)
        size = int(re.search(rb"(?i)\r\ncontent-length: (\d+)", head)[1])
        while len(data) < size:
            data += self.more(0)
        return json.loads(data)


def close(got, want):
    for name, w in want.items():
        g = got.get(name)
        if g is None or g.shape != w.shape:
            return f"{name}: shape {g.shape if g is not None else None}, not {w.shape}"
        scale = max(1.0, float(np.abs(w).max()) if w.size else 0)
        if not np.allclose(g, w, 1e-3, 1e-4 * scale):
            return f"{name}: differs by {np.abs(g - w).max()} of {scale}"
    return None


def some(seed, count, counts, keep):
    """COUNT graphs in one server."""
    folder = tempfile.mkdtemp()
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    graphs = {}
    for i in range(seed, seed + count):
        g = Graph(i)
        data = g.model().SerializeToString()
        try:
            session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        except Exception as e:              # noqa: all of its errors are of one kind
            counts["not for onnxruntime"] += 1
            counts["reasons"].setdefault("by onnxruntime: " + str(e)[-100:], f"g{i}")
            continue
        graphs[f"g{i}"] = g, session
        os.makedirs(f"{folder}/repo/g{i}/1")
        with open(f"{folder}/repo/g{i}/1/model.onnx", "wb") as f:
            f.write(data)
    server = Server(folder + "/repo")
    try:
        refused = re.findall(r'"event":"load","model":"(g\d+)","error":"([^"]*)"', server.text())
        for name, why in refused:
            counts["refused"] += 1
            counts["reasons"].setdefault(re.sub(r".*operator (\w+) '\w+': ", r"\1: ", why), name)
            graphs.pop(name, None)
        for name, (g, session) in graphs.items():
            bad = check(server, name, g, session, counts)
            if not bad:
                continue
            counts["differ"] += 1
            print(f"seed {name[1:]} differs: {bad}", flush=True)
            if keep:
                shutil.copy(f"{folder}/repo/{name}/1/model.onnx", f"{keep}/{name}.onnx")
    finally:
        status = server.stop()
    assert not status, status
    shutil.rmtree(folder)


def check(server, name, g, session, counts):
    """What is wrong with the answers, or None."""
    rng = random.Random(name)
    rows = []
    while sum(rows) < BATCH:
        rows.append(rng.randint(1, min(3, BATCH - sum(rows))))
    noise = np.random.default_rng(g.rng.getrandbits(32))
    requests, wants = [], []
    for n in rows:
        requests.append({k: noise.integers(-3, 4, (n, *d)).astype(F32) for k, d in g.inputs})
        try:
            wants.append(dict(zip([v.name for v in g.outputs], session.run(None, requests[-1]))))
        except Exception as e:              # noqa
            wants.append(None)
            why = str(e).strip()[-100:]
    server.send(0, name, requests[0])
    answers = [server.answer(0)]
    for i, r in enumerate(requests):
        server.send(i, name, r)
    answers += [server.answer(i) for i in range(len(requests))]
    runs = server.get(f"/v2/models/{name}/stats")["model_stats"][0]["execution_count"]
    counts["graphs"] += 1
    counts["shared"] += runs < len(answers)
    for i, (got, want) in enumerate(zip(answers, [wants[0], *wants])):
        how = f"{rows[max(i - 1, 0)]} rows, {'together' if i else 'alone'}"
        if want is None and not isinstance(got, str):
            counts["only onnxruntime refuses"] += 1
            counts["reasons"].setdefault("by onnxruntime: " + why, name)
        elif want is not None and isinstance(got, str):
            counts["refused"] += 1
            counts["reasons"].setdefault(re.sub(r"'\w+'", "", got), name)
            return None
        elif want is not None:
            bad = close(got, want)
            if bad:
                return f"{how}: {bad}"
    return None


def main():
    p = argparse.ArgumentParser()
    p.add_argument("-n", type=int, default=300)
    p.add_argument("-s", type=int, default=random.SystemRandom().randrange(1 << 31))
    p.add_argument("-k", default="")
    args = p.parse_args()
    print(f"seed {args.s}", flush=True)
    ort.set_default_logger_severity(4)
    counts = {"graphs": 0, "shared": 0, "differ": 0, "refused": 0, "not for onnxruntime": 0,
              "only onnxruntime refuses": 0, "reasons": {}}
    for at in itertools.count(args.s, 250):
        left = args.s + args.n - at
        if left <= 0:
            break
        some(at, min(250, left), counts, args.k)
        if args.n > 1000:
            print({k: v for k, v in counts.items() if k != "reasons"}, flush=True)
    for reason, name in sorted(counts.pop("reasons").items()):
        print("refused:", reason, name)
    print(json.dumps(counts))
    return 1 if counts["differ"] else 0


if __name__ == "__main__":
    sys.exit(main())
