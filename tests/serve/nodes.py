# SPDX-License-Identifier: Apache-2.0
"""The node tests of the package onnx: how many pawl serve runs, and whether it is right.

	nodes.py [I/N] [WORD]...	those with one of the words in their names; of N parts number I

By hand, in the environment of run.sh (MODEL_RUN is tests/serve/model_run).  Each model runs
natively, and then in onnxruntime as the backend; both are compared with onnxruntime in Python, and
with what the test expects if that cannot run it.  Exit status: 1 if an answer is wrong.
"""
import collections
import os
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
from onnx.backend.test.case.node import collect_testcases

RUN = os.environ["MODEL_RUN"]
TYPES = [np.bool_, np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int16, np.int32,
         np.int64, np.float16, np.float32, np.float64, None]
ort.set_default_logger_severity(4)


def wire(a):
    """Data in the form of the protocol."""
    if a.dtype.kind not in "OUS":
        return np.ascontiguousarray(a).tobytes()
    parts = [v if isinstance(v, bytes) else str(v).encode() for v in a.ravel()]
    return b"".join(len(p).to_bytes(4, "little") + p for p in parts)


def strings(data, n):
    out, at = [], 0
    for _ in range(n):
        k = int.from_bytes(data[at:at + 4], "little")
        out.append(data[at + 4:at + 4 + k].decode())
        at += 4 + k
    return out, at


def pawl(folder, inputs, *options):
    """The outputs by their names, or the text of a refusal."""
    args = []
    for i, a in enumerate(inputs):
        with open(f"{folder}/input{i}", "wb") as f:
            f.write(wire(a))
        args.append(",".join(map(str, a.shape)) + f":{folder}/input{i}")
    p = subprocess.run([RUN, *options, folder, *args], capture_output=True, check=False,
                       timeout=300)
    if p.returncode:
        return p.stderr.decode(errors="replace").strip()
    pawl.apart = b"apart 1" in p.stderr
    outputs, at = {}, 0
    for line in p.stderr.decode().splitlines():
        if not line.startswith("output "):
            continue
        name, kind, *dims = line[7:].rsplit(" ", len(line) and line.count(" ") - 1)
        shape, n = tuple(map(int, dims)), int(np.prod(tuple(map(int, dims)), dtype=np.int64))
        if TYPES[int(kind)] is None:
            values, used = strings(p.stdout[at:], n)
            outputs[name] = np.array(values, object).reshape(shape)
        else:
            dtype = np.dtype(TYPES[int(kind)])
            used = n * dtype.itemsize
            outputs[name] = np.frombuffer(p.stdout[at:at + used], dtype).reshape(shape)
        at += used
    return outputs


def same(a, b, rtol, atol):
    if a.shape != b.shape:
        return False
    if a.dtype.kind in "OUS" or b.dtype.kind in "OUS":
        text = [[v.decode() if isinstance(v, bytes) else str(v) for v in x.ravel()]
                for x in (a, b)]
        return text[0] == text[1]
    if a.dtype != b.dtype:
        return False
    if a.dtype.kind != "f":
        return np.array_equal(a, b)
    return np.allclose(a.astype(np.float64), b.astype(np.float64), max(rtol, 1e-3),
                       max(atol, 1e-5), equal_nan=True)


def check(case, folder, counts, wrong):
    model = case.model
    tensors = lambda values: all(isinstance(v, np.ndarray) and v.dtype.kind in "biufOUS" and
                                 v.dtype not in (ml_dtypes.bfloat16,) for v in values)
    inputs, expected = case.data_sets[0]
    if not tensors(inputs):
        counts["with inputs that are no tensors of the protocol"] += 1
        return
    onnx.save(model, folder + "/model.onnx")
    names = [o.name for o in model.graph.output]
    runs = True
    try:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        session = ort.InferenceSession(folder + "/model.onnx", options)
        want = dict(zip(names, session.run(None, {
            i.name: a for i, a in zip(session.get_inputs(), inputs)})))
        counts["onnxruntime runs"] += 1
    except Exception:       # whatever it raises
        want = dict(zip(names, expected))
        counts["onnxruntime does not run"] += 1
        runs = False
    for backend in ("native", "backend"):
        got = pawl(folder, inputs, "-b" if backend == "backend" else "-p")
        if isinstance(got, str):
            counts[backend + " refuses"] += 1
            if backend == "backend" and runs:
                print("REFUSED", case.name, got)
            continue
        good = all(isinstance(want[n], np.ndarray) and same(got[n], want[n], case.rtol, case.atol)
                   for n in got)
        counts[backend + (" right" if good else " wrong")] += 1
        if not good:
            wrong.append(f"{backend}: {case.name}")


def main():
    counts, wrong = collections.Counter(), []
    os.environ["ONNXRUNTIME"] = sys.prefix
    words = sys.argv[1:]
    part, parts = map(int, words.pop(0).split("/")) if words and "/" in words[0] else (0, 1)
    cases = [c for c in collect_testcases(None) if c.kind == "node" and
             (not words or any(w in c.name for w in words))][part::parts]
    with tempfile.TemporaryDirectory() as folder:
        for i, case in enumerate(cases):
            if not case.data_sets or isinstance(case.model, type(None)):
                continue
            check(case, folder, counts, wrong)
            if i % 100 == 99:
                print(i + 1, dict(counts), flush=True)
    for name, n in sorted(counts.items()):
        print(f"{n:6} {name}")
    for name in wrong:
        print("WRONG", name)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
