# SPDX-License-Identifier: Apache-2.0
"""pawl serve with ONNX models that are made here."""
import math
import threading

import pytest

import made
from conftest import SOON
from made import FLOAT, INT64, node, tensor, value

X, Y = [value("INPUT0", [-1, 4])], [value("y", [-1, 4])]


def test_an_output_has_the_type_that_the_file_says(pawl):
    """Otherwise the answer would have bytes that lie behind the output."""
    made.save(pawl.repository, "m", made.model(
        [node("Relu", ["INPUT0"], "y")], X, [value("y", [-1, 4], INT64)]))
    pawl.start()
    state = {one["name"]: one for one in pawl.post("/v2/repository/index").json}["m"]
    assert state["state"] == "UNAVAILABLE" and "output 'y'" in state["reason"]


def softmax(row):
    sums = sum(math.exp(x) for x in row)
    return [math.exp(x) / sums for x in row]


def pairs(row):
    (a, c), (b, d) = softmax(row[::2]), softmax(row[1::2])
    return [a, b, c, d]


# whether the rows are apart, the operators, the constants, and the answer for one row
MODELS = {
    "mean of a column": (False, [
        node("ReduceMean", ["INPUT0"], "m", axes=[0]), node("Sub", ["INPUT0", "m"], "y")], [],
        lambda row: [0, 0, 0, 0]),
    "softmax of a column": (False, [node("Softmax", ["INPUT0"], "y", axis=0)], [],
                            lambda row: [1, 1, 1, 1]),
    "rows in reverse": (False, [node("Slice", ["INPUT0", "last", "first", "axis", "last"], "y")],
                        [tensor("last", [1], [-1]), tensor("first", [1], [-100]),
                         tensor("axis", [1], [0])], lambda row: row),
    "product of rows": (False, [
        node("Transpose", ["INPUT0"], "t"), node("MatMul", ["t", "INPUT0"], "s"),
        node("MatMul", ["INPUT0", "s"], "y")], [],
        lambda row: [x * sum(k * k for k in row) for x in row]),
    "one row for all": (False, [
        node("Gather", ["INPUT0", "axis"], "f"), node("Add", ["INPUT0", "f"], "y")],
        [tensor("axis", [1], [0])], lambda row: [2 * x for x in row]),
    # what depends on the number of rows
    "divided by the rows": (False, [
        node("Shape", ["INPUT0"], "s"), node("Gather", ["s", "first"], "n"),
        node("Cast", ["n"], "f", to=FLOAT), node("Div", ["INPUT0", "f"], "y")],
        [tensor("first", [1], [0])], lambda row: row),
    "filled rows": (False, [
        node("Shape", ["INPUT0"], "s"), node("Slice", ["s", "first", "one"], "n"),
        node("ConstantOfShape", ["n"], "z"), node("Cast", ["z"], "f", to=FLOAT),
        node("Exp", ["f"], "e"), node("ReduceSum", ["e"], "k"), node("Mul", ["INPUT0", "k"], "y")],
        [tensor("first", [1], [0]), tensor("one", [1], [1])], lambda row: row),
    "rows as columns": (False, [
        node("Reshape", ["INPUT0", "wide"], "p"), node("Softmax", ["p"], "s", axis=1),
        node("Reshape", ["s", "four"], "y")],
        [tensor("wide", [2], [4, -1]), tensor("four", [2], [-1, 4])], lambda row: [1, 1, 1, 1]),
    "first numbers of a row": (False, [
        node("Shape", ["INPUT0"], "s"), node("Slice", ["s", "first", "one"], "n"),
        node("Slice", ["INPUT0", "first", "n", "one"], "p"),
        node("ReduceMean", ["p"], "m", axes=[1]), node("Sub", ["INPUT0", "m"], "y")],
        [tensor("first", [1], [0]), tensor("one", [1], [1])],
        lambda row: [x - row[0] for x in row]),
    "computed shapes": (True, [
        node("Shape", ["INPUT0"], "s"), node("Gather", ["s", "first"], "n"),
        node("Concat", ["n", "two", "two"], "t", axis=0), node("Reshape", ["INPUT0", "t"], "p"),
        node("Softmax", ["p"], "m", axis=1), node("Reshape", ["m", "s"], "y")],
        [tensor("first", [1], [0]), tensor("two", [1], [2])], pairs),
    "sizes that are compared": (True, [
        node("Shape", ["INPUT0"], "s"), node("Gather", ["s", "first"], "n"),
        node("Concat", ["n", "minus"], "t", axis=0), node("Equal", ["t", "minus"], "q"),
        node("Where", ["q", "one", "t"], "u"), node("Expand", ["table", "u"], "e"),
        node("Add", ["INPUT0", "e"], "y")],
        [tensor("first", [1], [0]), tensor("one", [1], [1]), tensor("minus", [1], [-1]),
         tensor("table", [1, 4], [1.0, 2.0, 3.0, 4.0])],
        lambda row: [x + i + 1 for i, x in enumerate(row)]),
    "mean of a row": (True, [
        node("ReduceMean", ["INPUT0"], "m", axes=[1]), node("Sub", ["INPUT0", "m"], "y")], [],
        lambda row: [x - sum(row) / 4 for x in row]),
    "turned": (True, [
        node("Transpose", ["INPUT0"], "t"), node("Softmax", ["t"], "s", axis=0),
        node("Transpose", ["s"], "y")], [], softmax),
    "pairs": (True, [
        node("Reshape", ["INPUT0", "two"], "p"), node("Softmax", ["p"], "s", axis=1),
        node("Reshape", ["s", "four"], "y")],
        [tensor("two", [3], [-1, 2, 2]), tensor("four", [2], [-1, 4])], pairs),
}


@pytest.mark.parametrize("name", MODELS)
def test_requests_share_a_run_only_if_their_rows_are_apart(pawl, name):
    apart, nodes, tensors, answer = MODELS[name]
    made.save(pawl.repository, "m", made.model(nodes, X, Y, tensors))
    # runs of one and of four rows are planned at the load; less than four rows wait
    pawl.start(config="[model]\nmax_batch = 4\npreferred_batches = 4\n"
                      f"max_delay_us = {SOON * 1000000}\n")
    rows = [[1, 2, 3, 4], [3, -2, 1, 2], [0.5, 2, 1, -2], [3, 3, 1, 0]]
    answers = [None] * 4

    def infer(i):
        answers[i] = pawl.infer("m", rows[i])

    pool = [threading.Thread(target=infer, args=(i,)) for i in range(4)]
    for t in pool:
        t.start()
    for t in pool:
        t.join()
    for row, one in zip(rows, answers):
        assert one.json["outputs"][0]["data"] == pytest.approx(answer(row), abs=1e-4)
    assert pawl.metric("nv_inference_exec_count", "m") == (1 if apart else 4)


def test_weights_that_depend_on_the_shape_are_those_of_the_request(pawl):
    made.save(pawl.repository, "m", made.model([
        node("Shape", ["INPUT0"], "s"), node("Gather", ["s", "first"], "n"),
        node("Cast", ["n"], "f", to=FLOAT), node("Expand", ["f", "square"], "w"),
        node("MatMul", ["INPUT0", "w"], "y")], X, Y,
        [tensor("first", [1], [0]), tensor("square", [2], [4, 4])]))
    pawl.start()
    for rows in (1, 3, 2, 1):
        answer = pawl.infer("m", [[1, 2, 3, 4]] * rows)
        assert answer.json["outputs"][0]["data"] == [10 * rows] * 4 * rows


def test_a_refused_request_is_told_the_operator(pawl):
    made.save(pawl.repository, "m", made.model(
        [node("MatMul", ["INPUT0", "w"], "y")], [value("INPUT0", [-1, -1])],
        [value("y", [-1, 2])], [tensor("w", [4, 2], [1.0] * 8)]))
    made.save(pawl.repository, "table", made.model(
        [node("Gather", ["w", "INPUT0"], "y")], [value("INPUT0", [-1], INT64)],
        [value("y", [-1, 2])], [tensor("w", [4, 2], [1.0] * 8)]))
    pawl.start()
    answer = pawl.infer("m", [[1, 2, 3]])
    assert answer.status == 400 and answer.json["error"] == \
        "the model refuses these shapes: operator MatMul 'y': rows of 3 elements, and the " \
        "weights have 4"
    answer = pawl.post("/v2/models/table/infer", {"inputs": [
        {"name": "INPUT0", "shape": [2], "datatype": "INT64", "data": [1, 4]}]})
    assert answer.status == 400 and answer.json["error"] == \
        "the model refuses these values: operator Gather 'y': an index is out of range"


def test_inputs_may_differ_in_their_first_dimension(pawl):
    made.save(pawl.repository, "score", made.model(
        [node("Transpose", ["d"], "t"), node("MatMul", ["q", "t"], "y")],
        [value("q", [-1, 2]), value("d", [-1, 2])], [value("y", [-1, -1])]))
    pawl.start()
    for n, m in ((1, 3), (3, 1), (2, 2), (20, 5), (0, 2), (2, 0)):
        answer = pawl.post("/v2/models/score/infer", {"inputs": [
            {"name": "q", "shape": [n, 2], "datatype": "FP32", "data": [1, 2] * n},
            {"name": "d", "shape": [m, 2], "datatype": "FP32", "data": [1, 1] * m}]})
        assert answer.status == 200, answer.json
        output = answer.json["outputs"][0]
        assert output["shape"] == [n, m] and output["data"] == [3] * n * m


def test_a_model_need_not_take_a_single_row(pawl):
    made.save(pawl.repository, "m", made.model(
        [node("Reshape", ["INPUT0", "halves"], "y")], [value("INPUT0", [-1, 3])],
        [value("y", [-1, -1])], [tensor("halves", [2], [2, -1])]))
    pawl.start(config="[model]\npreferred_batches = 3, 4\n")
    answer = pawl.infer("m", [[1, 2, 3]])
    assert answer.status == 400 and "operator Reshape 'y'" in answer.json["error"]
    answer = pawl.infer("m", [[1, 2, 3]] * 2)
    assert answer.status == 200 and answer.json["outputs"][0]["shape"] == [2, 3]
