# SPDX-License-Identifier: Apache-2.0
"""The digits of the demonstration: pawl serve itself with ONNX files."""
import json
import os
import struct

import pytest

from conftest import SOURCES

PIXELS = 64


def images():
    """The pixels of digits.img, as demo/train/digits.py describes it."""
    with open(os.path.join(SOURCES, "demo/data/digits.img"), "rb") as file:
        data = file.read()
    count, = struct.unpack_from("<I", data, 12)
    size = PIXELS + 2
    return [[p / 16 for p in data[32 + i * size + 2:32 + (i + 1) * size]] for i in range(count)]


def expected(model):
    """MXNet's outputs: a pair of image and probabilities for each line of the file."""
    with open(os.path.join(SOURCES, "tests/data/digits-softmax.txt"), encoding="ascii") as file:
        lines = [line.split() for line in file]
    return [(int(line[1]), [float(p) for p in line[2:]]) for line in lines if line[0] == model]


def recognize(server, pixels, **more):
    answer = server.post("/v2/models/digits/infer", {
        "inputs": [{"name": "image", "shape": [len(pixels), PIXELS], "datatype": "FP32",
                    "data": pixels}], **more})
    assert answer.status == 200, answer.body
    return answer.json


@pytest.mark.parametrize("version,model", [(1, "b"), (2, "a")])
def test_answers_of_mxnet(pawl, version, model):
    pawl.start(version=version)
    pixels, rows = images(), expected(model)
    assert len(rows) == 32
    for begin in range(0, len(rows), 8):
        part = rows[begin:begin + 8]
        answer = recognize(pawl, [pixels[image] for image, _ in part])
        assert answer["model_version"] == str(version)
        want = [p for _, row in part for p in row]
        assert answer["outputs"][0]["data"] == pytest.approx(want, abs=1e-5)


def test_newest_version_and_its_layers(pawl):
    pawl.start()
    answer = recognize(pawl, images()[:1], parameters={"layers": True})
    assert answer["model_version"] == "2"
    layers = json.loads(answer["parameters"]["layers"])["layers"]
    # relu and tanh are part of the layers before them
    assert [(layer["name"], layer["operator"]) for layer in layers] == [
        ("fc1", "Gemm"), ("fc2", "Gemm"), ("fc3", "Gemm"), ("softmax", "Softmax")]
    # each reads what the one before wrote
    times = [t for layer in layers for t in (layer["begin_us"], layer["end_us"])]
    assert times == sorted(times)
