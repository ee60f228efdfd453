# SPDX-License-Identifier: Apache-2.0
"""The resident memory of a server while clients choose shapes, and after the unload, beside the
memory of onnxruntime for the same requests: a table in Documentation/serve.md.

memory.py [WORD...]: only rows whose name contains one of the words.  run.sh sets the environment.
The server has one worker; onnxruntime has one thread, and its process has what Python needs.
"small" is the anonymous memory after the load, one request and the unload of a model with the same
operators and inputs of one row and one column.
"""
import glob
import http.client
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

COMMAND = os.environ["PAWL_COMMAND"]
DETECTOR = glob.glob(sys.prefix + "/lib/python3*/site-packages/ddddocr/common_det.onnx")
THEIRS = """
import sys, numpy as np, onnxruntime as ort
options = ort.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
options.log_severity_level = 3
loaded = {}
print(0, flush=True)
for line in sys.stdin:
    path, *dims = line.split()
    if path not in loaded:
        loaded[path] = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    s = loaded[path]
    s.run(None, {s.get_inputs()[0].name: np.zeros([int(d) for d in dims], np.float32)})
    print(1, flush=True)
"""


def convolutions(n, first, channels):
    """n convolutions of 3 x 3, each with a ReLU."""
    nodes, constants, at = [], [], "x"
    for i in range(n):
        w = np.full((channels, channels if i else first, 3, 3), 0.01 + i / 1e4, np.float32)
        constants.append(numpy_helper.from_array(w, f"w{i}"))
        nodes.append(helper.make_node("Conv", [at, f"w{i}"], [f"c{i}"], pads=[1, 1, 1, 1]))
        at = "y" if i == n - 1 else f"h{i}"
        nodes.append(helper.make_node("Relu", [f"c{i}"], [at]))
    return nodes, ["N", first, "H", "W"], ["N", channels, "H", "W"], constants


def small_net():
    nodes, dims, _, constants = convolutions(1, 3, 4)
    nodes[-1].output[0] = "r"
    return ([*nodes, helper.make_node("GlobalAveragePool", ["r"], ["y"])], dims,
            ["N", 4, 1, 1], constants)


def save(path, nodes, inputs, outputs, constants):
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value("x", TensorProto.FLOAT, inputs)],
                              [value("y", TensorProto.FLOAT, outputs)], constants)
    onnx.save(helper.make_model(graph, ir_version=8,
                                opset_imports=[helper.make_opsetid("", 13)]), path)


def relu():
    return [helper.make_node("Relu", ["x"], ["y"])], ["N", "M"], ["N", "M"], []


def rows():
    rng = random.Random(1)
    widths = [(1, 3, 32, k * 37 % 801 + 1) for k in range(1, 301)]
    recognizer = (lambda p: save(p, *convolutions(12, 3, 16)), (1, 3, 32, 1))
    yield "12 convolutions, 300 widths", *recognizer, [("m", w) for w in widths]
    yield "the same, each width 4 times", *recognizer, [("m", w) for w in widths for _ in "1234"]
    yield "the same, 40 widths in turns", *recognizer, [("m", w) for w in widths[:40] * 8]
    yield ("one convolution, 1500 pictures", lambda p: save(p, *small_net()), (1, 3, 1, 1),
           [("m", (rng.randint(1, 3), 3, rng.randint(1, 200), rng.randint(1, 200)))
            for _ in range(1500)])
    yield ("3 models, 12 shapes of 60 MB each", lambda p: save(p, *relu()), (1, 1),
           [(m, (1, 15000000 + k)) for m in ("m", "m2", "m3") for k in range(12)])
    if DETECTOR:
        yield ("ddddocr's detector, 10 requests", lambda p: os.symlink(DETECTOR[0], p),
               (1, 3, 416, 416), [("m", (1, 3, 416, 416))] * 10)


def resident(pid):
    """All, and what is anonymous, in MB."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        text = file.read()
    return [int(re.search(k + r":\s+(\d+)", text)[1]) / 1024 for k in ("VmRSS", "RssAnon")]


class Server:
    def __init__(self, folder, model, names):
        for name in names:
            os.makedirs(f"{folder}/models/{name}/1")
            model(f"{folder}/models/{name}/1/model.onnx")
        self.process = subprocess.Popen(
            [COMMAND, "serve", f"--repository={folder}/models", "--port=0", "--grpc-port=none",
             "--workers=1"], stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            event = json.loads(line)
            if event["event"] == "listening":
                port = event["port"]
            if event["event"] == "ready":
                break
        self.names = names
        self.http = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self.input = self.call("GET", f"/v2/models/{names[0]}")["inputs"][0]["name"]

    def call(self, method, path, body=b"", headers=None):
        self.http.request(method, path, body, headers or {})
        answer = self.http.getresponse()
        data = answer.read()
        assert answer.status == 200, data
        return json.loads(data) if data[:1] == b"{" and not headers else None

    def ask(self, name, dims):
        data = bytes(4 * int(np.prod(dims)))
        head = json.dumps({"inputs": [{"name": self.input, "shape": dims, "datatype": "FP32",
                                       "parameters": {"binary_data_size": len(data)}}],
                           "parameters": {"binary_data_output": True}}).encode()
        self.call("POST", f"/v2/models/{name}/infer", head + data,
                  {"Inference-Header-Content-Length": str(len(head))})

    def run(self, requests):
        most, left = 0, 1e9
        for k, request in enumerate(requests):
            self.ask(*request)
            if k % max(1, len(requests) // 30) == 0 or k == len(requests) - 1:
                most = max(most, resident(self.process.pid)[0])
        for name in self.names:
            self.call("POST", f"/v2/repository/models/{name}/unload")
        # the loop frees buffers that it did not need for two seconds, the helper when it can
        for _ in range(8):
            time.sleep(2)
            left = min(left, resident(self.process.pid)[1])
        self.process.terminate()
        self.process.communicate()
        return most, left


def theirs(folder, requests):
    p = subprocess.Popen([sys.executable, "-c", THEIRS], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True)
    p.stdout.readline()
    base = most = resident(p.pid)[0]
    for name, dims in requests:
        p.stdin.write(f"{folder}/models/{name}/1/model.onnx {' '.join(map(str, dims))}\n")
        p.stdin.flush()
        p.stdout.readline()
        most = max(most, resident(p.pid)[0])
    p.stdin.close()
    p.wait()
    return base, most


def main():
    print("| MB | pawl | onnxruntime | of it Python | ratio | after the unload, anonymous | "
          "small |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, model, least, requests in rows():
        if len(sys.argv) > 1 and not any(w in name for w in sys.argv[1:]):
            continue
        names = sorted({m for m, _ in requests})
        with tempfile.TemporaryDirectory() as folder:
            _, small = Server(folder + "/1", model, ["m"]).run([("m", least)])
            most, left = Server(folder + "/2", model, names).run(requests)
            base, other = theirs(folder + "/2", requests)
        print(f"| {name} | {most:.0f} | {other:.0f} | {base:.0f} | {most / other:.2f} | "
              f"{left:.1f} | {small:.1f} |", flush=True)


main()
