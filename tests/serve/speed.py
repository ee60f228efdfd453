# SPDX-License-Identifier: Apache-2.0
"""The time of a run of each model of test_models.py with one thread, here and in onnxruntime.

speed.py [WORD...]: only models whose name contains one of the words.  run.sh sets the
environment.
"""
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnxruntime as ort

from test_models import LIGHT, PACKAGED, RUN, SITE, noise
from weights import random_weights

ROUNDS = 5


def ours(folder, arrays):
    args = []
    for i, a in enumerate(arrays):
        path = f"{folder}/input{i}"
        a.tofile(path)
        args.append(",".join(map(str, a.shape)) + ":" + path)
    command = [RUN, "-w", "1", "-t", "1", "-n", "9", "-q", folder, *args]
    return float(subprocess.run(command, capture_output=True, check=True).stdout)


def theirs(session, feed):
    times = []
    for _ in range(9):
        start = time.perf_counter()
        session.run(None, feed)
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def measure(name, path, arrays):
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feed = {i.name: a for i, a in zip(session.get_inputs(), arrays)}
    session.run(None, feed)
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(os.path.abspath(path), folder + "/model.onnx")
        pairs = [(ours(folder, arrays), theirs(session, feed)) for _ in range(ROUNDS)]
    # the machine may be shared, and so the best round is the one that it disturbed the least
    a, b = min(p[0] for p in pairs), min(p[1] for p in pairs)
    print(f"| {name} | {a:.2f} | {b:.2f} | {a / b:.2f} |", flush=True)


def models(folder):
    for path in LIGHT:
        name = os.path.basename(path).removeprefix("light_").removesuffix(".onnx")
        to = f"{folder}/{name}.onnx"
        yield name, lambda p=path, t=to: (random_weights(p, t), t)[1], [noise(1, 3, 224, 224)]
    for path, shapes in PACKAGED.items():
        yield (os.path.basename(path).removesuffix(".onnx"), lambda p=path: f"{SITE}/{p}",
               [noise(*s) for s in shapes])
    for rows in (1, 16):
        x = np.random.default_rng(1).integers(0, 257, (rows, 2048)).astype(np.int32)
        yield (f"magika, {rows} rows",
               lambda: SITE + "/magika/models/standard_v3_3/model.onnx", [x])


def main():
    print("| model | pawl, ms | onnxruntime, ms | ratio |")
    print("| --- | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        for name, path, arrays in models(folder):
            if len(sys.argv) < 2 or any(w in name for w in sys.argv[1:]):
                measure(name, path(), arrays)


main()
