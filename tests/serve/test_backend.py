# SPDX-License-Identifier: Apache-2.0
"""Models that pawl lacks parts of run in onnxruntime, as others do; without it they are refused.

run.sh makes the environment, whose onnxruntime is the backend.
"""
import concurrent.futures
import glob
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

COMMAND = os.environ["PAWL_COMMAND"]
TYPES = {"BOOL": np.bool_, "INT8": np.int8, "INT16": np.int16, "INT32": np.int32,
         "INT64": np.int64, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32,
         "UINT64": np.uint64, "FP16": np.float16, "FP32": np.float32, "FP64": np.float64}
ONNX = {"FP16": "FLOAT16", "FP32": "FLOAT", "FP64": "DOUBLE", "BYTES": "STRING"}
if not glob.glob(sys.prefix + "/lib/python3*/site-packages/onnxruntime/capi/libonnxruntime.so*"):
    pytest.skip("onnxruntime has no libonnxruntime.so here", allow_module_level=True)


def element(name):
    return getattr(TensorProto, ONNX.get(name, name))


class Server:
    def __init__(self, folder):
        self.folder = folder
        self.process = None

    def model(self, name, nodes, inputs, outputs, constants=(), version=1):
        """Save a model; nodes are (operator, inputs, outputs, attributes)."""
        graph = helper.make_graph(
            [helper.make_node(op, i, o, name=f"{op.lower()}{k}", **a)
             for k, (op, i, o, a) in enumerate(nodes)], "g",
            [helper.make_tensor_value_info(n, element(t), s) for n, t, s in inputs],
            [helper.make_tensor_value_info(n, element(t), s) for n, t, s in outputs],
            [numpy_helper.from_array(np.array(v), n) for n, v in constants])
        path = self.folder / "models" / name / str(version) / "model.onnx"
        os.makedirs(path.parent)
        onnx.save(helper.make_model(graph, ir_version=9, opset_imports=[
            helper.make_opsetid("", 20)]), path)
        return path

    def start(self, config="", library=sys.prefix):
        (self.folder / "conf").write_text(config)
        with open(self.folder / "log", "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [COMMAND, "serve", f"--repository={self.folder}/models", "--port=0",
                 "--grpc-port=none", f"--config={self.folder}/conf", "--ready=any",
                 f"--onnxruntime={library}"], stderr=log)
        end = time.monotonic() + 120
        while time.monotonic() < end:
            ends = [e for e in self.events() if e["event"] in ("ready", "not ready")]
            if ends:
                break
            assert self.process.poll() is None, self.events()
            time.sleep(0.02)
        self.port = [e["port"] for e in self.events() if e["event"] == "listening"][0]

    def events(self):
        lines = (self.folder / "log").read_text().splitlines()
        return [json.loads(line) for line in lines if line.endswith("}")]

    def call(self, path, body=None):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}",
                                         None if body is None else json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            return error.read()

    def infer(self, model, **inputs):
        """Inputs are NAME=(datatype, shape, elements).  Returns the answer."""
        body = {"inputs": [{"name": n, "datatype": t, "shape": s, "data": d}
                           for n, (t, s, d) in inputs.items()]}
        return json.loads(self.call(f"/v2/models/{model}/infer", body))

    def stop(self):
        self.process.terminate()
        assert self.process.wait(60) == 0, self.events()


@pytest.fixture
def server(tmp_path):
    one = Server(tmp_path)
    yield one
    if one.process and one.process.poll() is None:
        one.stop()


def test_all_datatypes_and_shapes_that_the_data_decides(server):
    """An identity of each type beside an operator that pawl lacks, whose output has any size."""
    for name in [*TYPES, "BYTES"]:
        server.model(name.lower(), [("Identity", ["x"], ["y"], {}),
                                    ("NonZero", ["f"], ["z"], {})],
                     [("x", name, ["n", 2]), ("f", "FP32", [3])],
                     [("y", name, ["n", 2]), ("z", "INT64", [1, "k"])])
    server.start()
    for name, dtype in TYPES.items():
        meta = json.loads(server.call(f"/v2/models/{name.lower()}"))
        assert meta["platform"] == "onnxruntime_onnx"
        assert meta["outputs"][1]["shape"] == [1, -1]
        low = (False if name == "BOOL" else np.iinfo(dtype).min if "INT" in name
               else np.finfo(dtype).min)
        data = np.array([low, 1, 0, 1], dtype).reshape(2, 2)
        if name == "FP16":
            head = json.dumps({"inputs": [
                {"name": "x", "datatype": name, "shape": [2, 2],
                 "parameters": {"binary_data_size": 8}},
                {"name": "f", "datatype": "FP32", "shape": [3], "data": [0, 0, 0]}],
                "parameters": {"binary_data_output": True}}).encode()
            request = urllib.request.Request(
                f"http://127.0.0.1:{server.port}/v2/models/fp16/infer", head + data.tobytes(),
                {"Inference-Header-Content-Length": str(len(head))})
            with urllib.request.urlopen(request, timeout=120) as answer:
                assert answer.read().endswith(data.tobytes())
            continue
        for flags, places in (([0, 0, 0], []), ([1, 0, 2], [0, 2])):
            outputs = server.infer(name.lower(), x=(name, [2, 2], data.tolist()),
                                   f=("FP32", [3], flags))["outputs"]
            assert np.array_equal(np.array(outputs[0]["data"], dtype).reshape(2, 2), data)
            assert (outputs[1]["shape"], outputs[1]["data"]) == ([1, len(places)], places)
    texts = ["", "a\0b", "\u00e4\u20ac", "x" * 5000]
    outputs = server.infer("bytes", x=("BYTES", [2, 2], texts), f=("FP32", [3], [1, 1, 1]))
    assert outputs["outputs"][0]["data"] == texts
    outputs = server.infer("bytes", x=("BYTES", [0, 2], []), f=("FP32", [3], [1, 1, 1]))
    assert outputs["outputs"][0] == {"name": "y", "datatype": "BYTES", "shape": [0, 2],
                                     "data": []}
    text = server.call("/metrics").decode()
    assert 'pawl_serve_backend{model="int8",version="1",backend="onnxruntime"} 1' in text


def sums(server, name, version=1, by=1.0):
    """Sums along a row, times a number that says which version ran."""
    server.model(name, [("CumSum", ["x", "axis"], ["s"], {}), ("Mul", ["s", "by"], ["y"], {})],
                 [("x", "FP32", ["n", 4])], [("y", "FP32", ["n", 4])],
                 [("axis", np.int32(1)), ("by", np.float32(by))], version)


def test_requests_share_runs_only_if_the_configuration_says_so(server):
    """And then each has its own rows, also while versions change."""
    sums(server, "alone")
    sums(server, "shared")
    # its outputs have no row for each row of the inputs, whatever the configuration says
    server.model("wrong", [("Unique", ["x"], ["y"], {"axis": 0, "sorted": 0})],
                 [("x", "FP32", ["n", 4])], [("y", "FP32", ["m", 4])])
    server.start("[model]\nbackend = onnxruntime\nmax_delay_us = 20000\n[model shared]\nmax_batch = 8\n"
                 "[model wrong]\nmax_batch = 8\n")

    def ask(seed):
        rng = np.random.RandomState(seed)
        model = ("alone", "shared", "wrong")[seed % 3]
        rows = rng.randint(1, 4)
        data = rng.randint(0, 9, (rows, 4)).astype(np.float32)
        if model == "wrong":
            data[:] = data[0]
        answer = server.infer(model, x=("FP32", [rows, 4], data.ravel().tolist()))
        got = np.array(answer["outputs"][0]["data"]).reshape(-1, 4)
        if model == "wrong":
            return np.array_equal(got, data[:1])
        by = 2.0 if answer["model_version"] == "2" else 1.0
        return np.array_equal(got, data.cumsum(1) * by)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(300)))
        more = pool.map(ask, range(300, 600))
        sums(server, "shared", 2, 2.0)
        assert server.call("/v2/repository/models/shared/load", {}) == b""
        assert all(more)
    stats = {s["name"]: s for s in json.loads(server.call("/v2/models/stats"))["model_stats"]}
    assert stats["alone"]["execution_count"] == stats["alone"]["inference_stats"]["success"]["count"]
    assert any(b["batch_size"] > 3 for b in stats["shared"]["batch_stats"])


def test_a_run_that_the_values_end(server):
    server.model("m", [("Gather", ["t", "i"], ["g"], {}), ("CumSum", ["g", "a"], ["y"], {})],
                 [("i", "INT64", ["n"])], [("y", "FP32", ["n"])],
                 [("t", np.arange(5, dtype=np.float32)), ("a", np.int32(0))])
    server.start("[model]\nbackend = onnxruntime\n")
    assert "idx=9" in server.infer("m", i=("INT64", [2], [1, 9]))["error"]
    assert server.infer("m", i=("INT64", [2], [1, 4]))["outputs"][0]["data"] == [1, 5]


def blocked(server):
    server.model("m", [("Relu", ["x"], ["r"], {}), ("Mish", ["r"], ["s"], {}),
                       ("Mish", ["s"], ["t"], {}),
                       ("RandomNormalLike", ["t"], ["u"], {}), ("Pow", ["d", "d"], ["e"], {})],
                 [("x", "FP32", [2]), ("d", "FP64", [2])],
                 [("u", "FP32", [2]), ("e", "FP64", [2])])
    return server.model("good", [("Relu", ["x"], ["y"], {})], [("x", "FP32", [2])],
                        [("y", "FP32", [2])])


@pytest.mark.parametrize("library", ["none", "old"])
def test_without_the_library_all_that_blocks_is_named(server, tmp_path, library):
    blocked(server)
    path, why = tmp_path / "nothing", "No such file"
    if library == "old":
        path, why = tmp_path / "libonnxruntime.so", "version 1.9.0 is too old"
        (tmp_path / "old.c").write_text(
            "static const void *get(unsigned v) { return v > 9 ? 0 : get; }\n"
            "static const char *version(void) { return \"1.9.0\"; }\n"
            "static const struct { const void *(*g)(unsigned); const char *(*v)(void); } base ="
            " { get, version };\nconst void *OrtGetApiBase(void) { return &base; }\n")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", path, tmp_path / "old.c"], check=True)
    server.start(library=path)
    check = subprocess.run([COMMAND, "check", f"--onnxruntime={path}", server.folder / "models"],
                           capture_output=True, text=True, check=False)
    assert check.returncode == 1 and "1 served, 1 not" in check.stdout, check.stdout
    assert "\n  operator RandomNormalLike 'randomnormallike3': " in check.stdout
    check = subprocess.run([COMMAND, "check", f"--onnxruntime={sys.prefix}",
                            server.folder / "models"], capture_output=True, text=True,
                           check=False)
    assert check.returncode == 0 and "m/1: onnxruntime\n" in check.stdout, check.stdout
    index = {m["name"]: m for m in json.loads(server.call("/v2/repository/index", {}))}
    assert index["good"]["backend"] == "native"
    for word in ("Mish 'mish1', 'mish2'", "RandomNormalLike 'randomnormallike3'",
                 "Pow 'pow4': this type", why, "--onnxruntime"):
        assert word in index["m"]["reason"], index["m"]["reason"]
