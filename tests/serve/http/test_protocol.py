# SPDX-License-Identifier: Apache-2.0
"""The Open Inference Protocol over HTTP/1.1."""
import concurrent.futures
import gzip
import json
import math
import socket
import time
import zlib

import pytest

from conftest import binary, read_answer, row, soon, text_request


def test_server_metadata_names_what_exists(server):
    server.start()
    meta = server.get("/v2").json
    assert meta["name"] == "pawl"
    assert set(meta["extensions"]) == {"binary_tensor_data", "model_configuration",
                                       "model_repository", "schedule_policy", "statistics"}


@pytest.mark.parametrize("rule", ["any", "all"])
@pytest.mark.parametrize("models", ["none", "broken", "broken version", "good and broken", "good"])
def test_ready_means_that_models_are_ready(server, models, rule):
    """The status, the body, the index, the metrics and gRPC's health say the same."""
    why = "it has an operator that is unknown"
    if "good" in models or models == "broken version":
        server.model("m")
    if "broken" in models:
        server.model("m" if models == "broken version" else "broken", 2, refuse=why)
    server.start(f"--ready={rule}")
    ready = models in ("good", "broken version") or (models == "good and broken" and rule == "any")
    answer = server.get("/v2/health/ready")
    assert answer.status == (200 if ready else 400)
    assert answer.json["ready"] == answer.json["live"] == ready
    assert server.get("/v2/health/live").json == {"live": True}
    assert server.metric("pawl_serve_ready") == ready
    if not ready:
        text = "no models" if models == "none" else why if rule == "all" else ""
        assert text in answer.json["error"]
        assert text in server.events("not ready")[0]["error"]
    index = {(m["name"], m.get("version")): m for m in server.post("/v2/repository/index").json}
    if "broken" in models:
        name = "m" if models == "broken version" else "broken"
        assert index[name, "2"]["state"] == "UNAVAILABLE" and why in index[name, "2"]["reason"]
        assert server.metric("pawl_serve_failed_version", name) == 1
    if "good" in models or models == "broken version":
        assert index["m", "1"]["state"] == "READY"
        assert server.get("/v2/models/m/ready").json == {"name": "m", "ready": True}
        assert server.get("/v2/models/m/versions/1/ready").status == 200
        assert server.infer("m", [1, 2, 3, 4]).status == 200
    if models != "broken version":
        assert why in server.get("/v2/models/broken/ready").json.get("reason", why)
    assert server.get("/v2/models/m/versions/2/ready").status == 400
    assert server.get("/v2/models/nope/ready").status == 400


def test_model_metadata_and_config(server):
    server.model("m", 3, inputs=2)
    server.start(config="[model m]\nmax_batch = 16\npreferred_batches = 4, 8\n"
                 "max_delay_us = 100\n")
    meta = server.get("/v2/models/m").json
    assert meta == {
        "name": "m", "versions": ["3"], "platform": "fake",
        "inputs": [{"name": f"INPUT{i}", "datatype": "FP32", "shape": [-1, 4]} for i in (0, 1)],
        "outputs": [{"name": "OUTPUT0", "datatype": "FP32", "shape": [-1, 4]}]}
    assert server.get("/v2/models/m/versions/3").json == meta
    config = server.get("/v2/models/m/config").json
    assert config["max_batch_size"] == 16
    assert config["input"][0] == {"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [4]}
    assert config["dynamic_batching"]["preferred_batch_size"] == [4, 8]
    assert config["dynamic_batching"]["max_queue_delay_microseconds"] == 100


def test_unknown_models_and_paths(server):
    server.model("m")
    server.start()
    answer = server.get("/v2/models/nope/stats")
    assert (answer.status, answer.error) == (400, "requested model 'nope' is not available")
    for path in ("/v2/models/nope", "/v2/models/nope/config"):
        answer = server.get(path)
        assert answer.status == 404
        assert answer.error == "Request for unknown model: 'nope' is not found"
    assert server.infer("nope", [1, 2, 3, 4]).status == 404
    answer = server.get("/v2/models/m/versions/7")
    assert answer.status == 404
    assert answer.error == "Request for unknown model: 'm' version 7 is not found"
    assert server.get("/v2/models/m/versions/x").status == 404
    # bytes that are no UTF-8 are not repeated: the error would be no JSON
    assert server.get("/v2/models/%ff%c3%a9").error == \
        "Request for unknown model: '?\u00e9' is not found"
    assert server.get("/v%32").status == 200
    for path in ("/v%+2", "/v% 2", "/v%3", "/v2%", "/v2/models/m%0", "/v2/models/%2x"):
        with server.connect() as sock, sock.makefile("rb") as file:
            sock.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert read_answer(file)[0] in (400, 404), path
    assert server.get("/v2/models/%-1").error == "Not Found"
    for path in ("/nope", "/v2/nope", "/v2/models/m/nope", "/v2/health/nope",
                 "/v2/models/m/infer/x"):
        assert server.get(path).status == 404, path
    assert server.get("/v2/models/m/infer").status == 405
    assert server.post("/v2/models/m").status == 405


def test_json_tensors(server):
    server.model("m", inputs=2, add=0.5)
    server.start()
    answer = server.post("/v2/models/m/infer", {"id": "a\"b\u00e9", "inputs": [
        {"name": "INPUT1", "datatype": "FP32", "shape": [2, 4],
         "data": [1, 2, 3, 4, 5, 6, 7, 8]},
        # the data before the type, and nested
        {"data": [[1e0, -2, 0.25, 3.5], [0, 0, 1E2, 1e-1]], "name": "INPUT0", "shape": [2, 4],
         "datatype": "FP32"}]})
    assert answer.status == 200, answer.body
    assert answer.json == {
        "id": "a\"b\u00e9", "model_name": "m", "model_version": "1", "outputs": [
            {"name": "OUTPUT0", "datatype": "FP32", "shape": [2, 4],
             "data": [2.5, 0.5, 3.75, 8.0, 5.5, 6.5, 107.5, pytest.approx(8.6)]}]}


@pytest.mark.parametrize("datatype, values", [
    ("BOOL", [True, False, True, True]),
    ("INT8", [-128, 127, 0, 1]), ("INT16", [-32768, 32767, 0, 1]),
    ("INT32", [-2**31, 2**31 - 1, 0, 1]), ("INT64", [-2**63, 2**63 - 1, 0, 1]),
    ("UINT8", [0, 255, 1, 2]), ("UINT16", [0, 65535, 1, 2]), ("UINT32", [0, 2**32 - 1, 1, 2]),
    ("UINT64", [0, 2**64 - 1, 1, 2]),
    ("FP32", [0.1, -3.4e38, 1e-40, 16777217.0]),
    ("FP64", [0.1, 1.7976931348623157e308, 5e-324, 2.0]),
    ("BYTES", ["", "a", "\u00e4\u20ac\U0001f600", 'x"\\\n\0 y' * 3])])
def test_datatypes_keep_their_values_in_json(server, datatype, values):
    server.model("m", type=datatype)
    server.start()
    answer = server.post("/v2/models/m/infer", {"inputs": [
        {"name": "INPUT0", "shape": [1, 4], "datatype": datatype, "data": values}]})
    assert answer.status == 200, answer.body
    got = answer.json["outputs"][0]["data"]
    assert got == (pytest.approx(values, rel=1e-7, abs=1e-44) if datatype == "FP32" else values)


def test_a_zero_keeps_its_sign_in_json(server):
    server.model("m", type="FP64")
    server.start()
    answer = server.post("/v2/models/m/infer", {"inputs": [
        {"name": "INPUT0", "shape": [1, 4], "datatype": "FP64", "data": [-0.0, 0.0, -1.0, 1e15]}]})
    # without .0 a reader takes -0 for the integer 0
    assert b'"data":[-0.0,0.0,-1.0,1e+15]' in answer.body


def test_out_of_range_is_refused(server):
    server.model("m", type="INT8")
    server.start()
    for bad in ("128", "-129", "1.0", "1e0", "true", "\"1\"", "null", "01", "-", "+1", ".5",
                "1."):
        answer = server.post("/v2/models/m/infer", '{"inputs":[{"name":"INPUT0","shape":[1,4],'
                             '"datatype":"INT8","data":[%s,0,0,0]}]}' % bad)
        assert answer.status == 400, bad
        assert answer.error.startswith("failed to parse the request JSON buffer: "), bad


def test_binary_tensors(server):
    server.model("m", inputs=2)
    server.start()
    head = json.dumps({"inputs": [
        {"name": "INPUT0", "datatype": "FP32", "shape": [1, 4],
         "parameters": {"binary_data_size": 16}},
        {"name": "INPUT1", "datatype": "FP32", "shape": [1, 4],
         "parameters": {"binary_data_size": 16}}],
        "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}]}).encode()
    body = head + binary([1, 2, 3, 4]) + binary([10, 20, 30, 40])
    answer = server.post("/v2/models/m/infer", body,
                         {"Inference-Header-Content-Length": str(len(head))})
    assert answer.status == 200, answer.body
    n = int(answer.headers["Inference-Header-Content-Length"])
    meta = json.loads(answer.body[:n])
    assert meta["outputs"] == [{"name": "OUTPUT0", "datatype": "FP32", "shape": [1, 4],
                                "parameters": {"binary_data_size": 16}}]
    assert answer.body[n:] == binary([11, 22, 33, 44])
    assert answer.headers["Content-Type"] == "application/octet-stream"


def test_binary_output_for_all(server):
    server.model("m")
    server.start()
    answer = server.infer("m", [1, 2, 3, 4], parameters={"binary_data_output": True})
    n = int(answer.headers["Inference-Header-Content-Length"])
    assert answer.body[n:] == binary([1, 2, 3, 4])
    # one output may say otherwise
    answer = server.infer("m", [1, 2, 3, 4], parameters={"binary_data_output": True},
                          outputs=[{"name": "OUTPUT0", "parameters": {"binary_data": False}}])
    assert answer.json["outputs"][0]["data"] == [1, 2, 3, 4]


def bad_input(**changes):
    one = {"name": "INPUT0", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}
    one.update(changes)
    return {"inputs": [{k: v for k, v in one.items() if v is not None}]}


@pytest.mark.parametrize("body, text", [
    (bad_input(name="X"), "unexpected inference input 'X' for model 'm'"),
    (bad_input(datatype="INT32"),
     "[request id: <id_unknown>] inference input 'INPUT0' data-type is "
     "'INT32', but model 'm' expects 'FP32'"),
    (bad_input(shape=[1, 5]),
     "[request id: <id_unknown>] unexpected shape for input 'INPUT0' for "
     "model 'm'. Expected [-1,4], got [1,5]."),
    (bad_input(shape=[4]), "[request id: <id_unknown>] unexpected shape for input 'INPUT0' for "
     "model 'm'. Expected [-1,4], got [4]."),
    (bad_input(shape=[-1, 4]), "[request id: <id_unknown>] unexpected shape"),
    (bad_input(shape=[2**62, 4]),
     "[request id: <id_unknown>] the shape of input 'INPUT0' is too large"),
    (bad_input(shape=[9, 4]), "[request id: <id_unknown>] unexpected number of elements"),
    (bad_input(data=[1, 2, 3]), "[request id: <id_unknown>] unexpected number of elements"),
    (bad_input(data=[1, 2, 3, 4, 5]),
     "failed to parse the request JSON buffer: more data than the "
     "shape has"),
    (bad_input(datatype="FP3"), "invalid datatype for input INPUT0"),
    (bad_input(data=None), "Input must set only one of the following fields"),
    (bad_input(shape=None), "an input has no 'shape'"),
    ({"id": "7", "inputs": []},
     "[request id: 7] expected 1 inputs but got 0 inputs for model 'm'. Got "
     "input(s) [], but missing required input(s) ['INPUT0']. Please provide all required "
     "input(s)."),
    ({}, "Unable to find 'inputs'"),
    ([], "failed to parse the request JSON buffer: an unexpected character at 0"),
    ({**bad_input(), "outputs": [{"name": "Y"}]},
     "unexpected inference output 'Y' for model 'm'"),
    ({**bad_input(), "parameters": {"sequence_id": 4}}, "sequences are not supported"),
    ({"inputs": bad_input()["inputs"] * 2},
     "[request id: <id_unknown>] input 'INPUT0' already exists in request"),
])
def test_bad_requests_are_explained(server, body, text):
    server.model("m")
    server.start()
    answer = server.post("/v2/models/m/infer", body)
    assert answer.status == 400
    assert answer.error.startswith(text), answer.error
    # and the connection's server goes on
    assert server.infer("m", [1, 2, 3, 4]).status == 200


def strings(*values):
    return b"".join(len(v).to_bytes(4, "little") + v for v in values)


def test_strings_are_counted_and_cut_by_their_lengths(server):
    """Requests that share a run have their own strings again; what does not add up is refused."""
    server.model("m", type="BYTES")
    server.start(config="[model]\nmax_delay_us = 50000\n")

    def ask(data, rows=1, **more):
        head = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "BYTES",
                                       "shape": [rows, 4],
                                       "parameters": {"binary_data_size": len(data)}}],
                           "parameters": {"binary_data_output": True}, **more}).encode()
        return server.post("/v2/models/m/infer", head + data,
                           {"Inference-Header-Content-Length": str(len(head))})
    good = [strings(*[bytes([65 + i]) * (i + k) for k in range(4)]) for i in range(6)]
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        for data, answer in zip(good, pool.map(ask, good)):
            head = int(answer.headers["Inference-Header-Content-Length"])
            assert answer.body[head:] == data
    for bad in (b"", good[0][:-1], good[0] + b"\0", good[0] + strings(b"x"),
                strings(b"a", b"b", b"c"), strings(b"a", b"b", b"c") + b"\xff" * 4):
        assert "are not as many as its shape says" in ask(bad).error
    assert ask(b"", 0).status == 200
    # JSON cannot have bytes that are no text
    answer = ask(strings(b"\xff", b"", b"", b""), outputs=[
        {"name": "OUTPUT0", "parameters": {"binary_data": False}}])
    assert answer.status == 400 and "no text" in answer.error


def test_bad_binary_data_is_refused(server):
    server.model("m")
    server.start()

    def ask(size, tail, length=None, **more):
        head = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 4],
                                       "parameters": {"binary_data_size": size},
                                       **more}]}).encode()
        return server.post("/v2/models/m/infer", head + tail,
                           {"Inference-Header-Content-Length": str(length or len(head))})
    assert ask(16, bytes(16)).status == 200
    assert "Expected 16, got 12" in ask(12, bytes(12)).error
    assert "unexpected size for input 'INPUT0', expecting 4 additional bytes" in \
        ask(16, bytes(12)).error
    assert "unexpected additional input data" in ask(16, bytes(20)).error
    assert "inference header size should be in range" in ask(16, bytes(16), 100000).error
    assert "with binary data" in ask(16, bytes(16), data=[1, 2, 3, 4]).error
    assert ask(-1, bytes(16)).status == 400
    assert ask(2**64, bytes(16)).status == 400
    answer = server.post("/v2/models/m/infer", b"{}", {"Inference-Header-Content-Length": "x"})
    assert answer.status == 400


def test_broken_json_is_refused(server):
    server.model("m")
    server.start()
    good = json.dumps(row([1, 2, 3, 4]))
    for n in range(len(good)):
        answer = server.post("/v2/models/m/infer", good[:n])
        assert answer.status == 400, n
    for bad in (good + "x", '{"id":"\x01",' + good[1:], '{"id":"\\x",' + good[1:],
                '{"id":"\\ud800",' + good[1:], "[" * 1000, '{"a":' + "[" * 100,
                b'{"id":"\xff"}'):
        assert server.post("/v2/models/m/infer", bad).status == 400, bad


def test_members_that_are_null_are_missing(server):
    server.model("m")
    server.start()
    tensor = {**bad_input()["inputs"][0], "parameters": {"binary_data_size": None}}
    for body in ({"id": None}, {"parameters": None}, {"outputs": None},
                 {"parameters": {"timeout": None, "priority": None, "layers": None}},
                 {"outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": None}}]}):
        answer = server.post("/v2/models/m/infer", {"inputs": [tensor], **body})
        assert answer.status == 200, (body, answer.json)
        assert answer.json["outputs"][0]["shape"] == [1, 4]
    tensor["data"] = None
    assert "no field is set" in server.post("/v2/models/m/infer", {"inputs": [tensor]}).json["error"]


def test_numbers_that_json_does_not_have_are_written_as_python_does(server):
    server.model("m", add=1)
    server.start()
    answer = server.infer("m", [math.nan, math.inf, -math.inf, 1])
    assert answer.status == 200
    data = answer.json["outputs"][0]["data"]
    assert math.isnan(data[0]) and data[1:] == [math.inf, -math.inf, 2]
    for bad in ("Nan", "-NaN", "infinity", "Infinit", "I"):
        body = json.dumps({"inputs": [bad_input(data=[1, 2, 3, 4])["inputs"][0]]})
        answer = server.post("/v2/models/m/infer", body.replace("[1,", f"[{bad},").encode())
        assert answer.status == 400, bad


def test_a_model_that_fails(server):
    server.model("m", fail=1)
    server.start()
    assert server.infer("m", [1, 2, 3, 4]).status == 500
    assert server.stat("m")["inference_stats"]["fail"]["count"] == 1


def test_keep_alive_and_pipelining(server):
    server.model("m", sleep_us=1000)
    server.start()
    with server.connect() as sock, sock.makefile("rb") as file:
        sock.sendall(b"".join(text_request(row([i, 0, 0, 0], id=str(i))) for i in range(50)) +
                     b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        for i in range(50):
            status, headers, body = read_answer(file)
            body = json.loads(body)
            assert status == 200 and body["id"] == str(i)
            assert body["outputs"][0]["data"][0] == i
            assert "connection" not in headers
        assert read_answer(file)[0] == 200


def test_repeated_heads(server):
    """The server compares a head with the last one: that must not change what is read."""
    server.model("m")
    server.start()

    def request(x, head="", path="/v2/models/m/infer"):
        # bodies of one length, so that heads are equal
        return text_request(row([x, 0, 0, 0]), path, head)

    def json_head(n):
        return f"Inference-Header-Content-Length: {n}\r\n"

    size = len(json.dumps(row([1, 0, 0, 0])))
    same = request(1)
    with server.connect() as sock, sock.makefile("rb") as file:

        def answers(data, *want):
            sock.sendall(data)
            for status in want:
                answer = read_answer(file)
                assert answer[0] == status if status >= 100 else (
                    answer[0] == 200 and json.loads(answer[2])["outputs"][0]["data"][0] == status)

        answers(same, 1)
        for cut in range(1, len(same)):
            sock.sendall(request(2)[:cut])
            time.sleep(0.001)
            answers(request(2)[cut:] + request(3) + b"\r\n\r\n" + request(4), 2, 3, 4)
        # the same length, the same start, one byte less, another method, another header
        answers(request(5, path="/v2/models/n/infer") + request(6), 404, 6)
        answers(request(5, json_head(size)) * 2 + request(5, json_head(size + 9)) * 2 +
                request(7), 5, 5, 400, 400, 7)
        get = b"GET /v2/models/m/ready HTTP/1.1\r\nHost: x\r\n\r\n"
        answers(get * 3 + same + get, 200, 200, 200, 1, 200)
        answers(get.replace(b"ready", b"never") * 2 + get, 404, 404, 200)
        for more in (b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n", b"X: y\r\n"):
            answers((get[:-2] + more + b"\r\n") * 3 + get, 200, 200, 200, 200)
        answers(get.replace(b"1.1\r\n", b"1.0\r\nConnection: keep-alive\r\n") * 3, 200, 200, 200)
        chunked = (b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                   b"%x\r\n%s\r\n0\r\n" + json_head(1).encode() + b"\r\n")
        body = json.dumps(row([8, 0, 0, 0])).encode()
        answers(chunked % (len(body), body) * 3, 8, 8, 8)
        expect = request(9, "Expect: 100-continue\r\n")
        for _ in range(3):
            sock.sendall(expect[:-size])
            assert file.readline() + file.readline() == b"HTTP/1.1 100 Continue\r\n\r\n"
            answers(expect[-size:], 9)
        long = request(1, "X-Long: " + "y" * 600 + "\r\n")
        answers(long * 2 + same * 2, 1, 1, 1, 1)
        last = request(1, "Connection: close\r\n")
        answers(same + last + same, 1, 1)
        assert file.read() == b""


def test_another_token_is_another_head(server):
    server.model("m")
    server.start(config="token = abc\n")
    good = text_request(row([1, 2, 3, 4]), more="Authorization: Bearer abc\r\n")
    for bad in (good.replace(b"abc", b"abd"), good.replace(b"Authorization", b"authorisation")):
        with server.connect() as sock, sock.makefile("rb") as file:
            sock.sendall(good * 3 + bad + good)
            assert [read_answer(file)[0] for _ in range(4)] == [200, 200, 200, 401]
            assert file.read() == b""


def test_a_request_byte_by_byte(server):
    server.model("m")
    server.start()
    with server.connect() as sock, sock.makefile("rb") as file:
        for byte in text_request(row([1, 2, 3, 4]), more="X-Long: " + "y" * 400 + "\r\n"):
            sock.sendall(bytes([byte]))
        assert read_answer(file)[0] == 200


def test_chunked_bodies(server):
    server.model("m")
    server.start()
    body = json.dumps(row([1, 2, 3, 4])).encode()
    with server.connect() as sock, sock.makefile("rb") as file:
        for size in (1, 7, 1000):
            data = b"".join(b"%x\r\n%s\r\n" % (len(body[i:i + size]), body[i:i + size])
                            for i in range(0, len(body), size))
            sock.sendall(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\n"
                         b"Transfer-Encoding: chunked\r\n\r\n" + data + b"0\r\n\r\n")
            assert read_answer(file)[0] == 200


def test_trailers_are_no_headers(server):
    """What is sent behind a chunked body changes nothing in the request."""
    server.model("m")
    server.start()
    body = json.dumps(row([1, 2, 3, 4])).encode()
    with server.connect() as sock, sock.makefile("rb") as file:
        for trailer in (b"Inference-Header-Content-Length: 1", b"Expect: nothing",
                        b"Sec-Fetch-Site: cross-site", b"A B: c", b"X: " + b"y" * 400):
            sock.sendall(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
                         b"\r\n%x;ext=1\r\n%s\r\n0\r\n" % (len(body), body) +
                         trailer + b"\r\nX-Last: 1\r\n\r\n")
            assert read_answer(file)[0] == 200, trailer


def test_absolute_form(server):
    """A proxy may send the whole URL, which RFC 9112 (3.2.2) obliges a server to accept."""
    server.model("m")
    server.start()
    with server.connect() as sock, sock.makefile("rb") as file:
        for url, status in (("http://x/v2/models/m", 200), ("HTTP://x:80/v2?a=/", 200),
                            ("http://x", 200), ("http://x?a=/v2/none", 200),
                            ("http://x/v2/none", 404)):
            sock.sendall(f"GET {url} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            answer = read_answer(file)
            assert answer and answer[0] == status, url


def test_an_upgrade_is_not_made(server):
    """A client that would rather speak HTTP/2 or another protocol keeps its connection."""
    server.model("m")
    server.start()
    more = ("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
            "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n")
    with server.connect() as sock, sock.makefile("rb") as file:
        for _ in range(2):
            sock.sendall(text_request(row([1, 2, 3, 4]), more=more) +
                         f"GET /v2 HTTP/1.1\r\nHost: x\r\n{more}\r\n".encode())
            for _ in range(2):
                status, headers, _ = read_answer(file)
                assert status == 200 and "connection" not in headers


HEAD = "POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\n"
CHUNKED = HEAD + "Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("cut", [0, 1])
@pytest.mark.parametrize("status, text", [
    (200, "GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n"),
    (200, "\r\nGET /v2 HTTP/1.1\r\nHost: x\r\n\r\n"),
    (200, "GET /v2 HTTP/1.0\r\n\r\n"),
    (200, CHUNKED + "%s;a=b\r\n%s\r\n0\r\nX: y\r\n\r\n"),
    (400, "GET /v2 HTTP/1.1\r\n\r\n"),
    (400, "GET /v2 HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n"),
    (400, "GET /v2 HTTP/1.1\r\nHost: x\r\nX: y\n\r\n"),
    (400, "GET /v2 HTTP/1.1\nHost: x\r\n\r\n"),
    (400, "GET /v2 HTTP/1.1\r\nHost: x\r\n\n"),
    (400, "GET /v2 HTTP/1.1\r\nHost: x\r\nX: y\r\n z\r\n\r\n"),
    (400, HEAD + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"),
    (400, HEAD + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    (400, HEAD + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    (400, HEAD + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n"),
    (400, "POST /v2/models/m/infer HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    (400, CHUNKED + "%s\r\n%sXX0\r\n\r\n"),
    (400, CHUNKED + "%s\r\n%s\n0\r\n\r\n"),
    (400, CHUNKED + "%s;a\nb\r\n%s\r\n0\r\n\r\n"),
    (400, CHUNKED + "%s\n%s\r\n0\r\n\r\n"),
    (400, CHUNKED + " %s\r\n%s\r\n0\r\n\r\n"),
    (400, CHUNKED + "%s\r\n%s\r\n0\r\nX: y\n\r\n"),
    (505, "GET /v2 HTTP/9.9\r\nHost: x\r\n\r\n"),
    (505, "GET /v2 HTTP/2.0\r\nHost: x\r\n\r\n"),
])
def test_framing_is_strict(server, status, text, cut):
    """What a proxy and the server could understand in two ways is refused, and closes."""
    server.model("m")
    server.start()
    body = json.dumps(row([1, 2, 3, 4]))
    if "%s" in text:
        text = text % (f"{len(body):x}", body)
    with server.connect() as sock, sock.makefile("rb") as file:
        for byte in ([text] if not cut else text):
            try:
                sock.sendall(byte.encode())
            except OSError:
                break                   # refused before its end
        try:
            assert read_answer(file)[0] == status
            if status != 200:
                assert read_answer(file) is None
        except ConnectionError:
            assert status != 200        # refused before all of it was read


def test_http_1_0_and_connection_close(server):
    server.start()
    for request, kept in ((b"GET /v2 HTTP/1.0\r\n\r\n", False),
                          (b"GET /v2 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", True),
                          (b"GET /v2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", False)):
        with server.connect() as sock, sock.makefile("rb") as file:
            sock.sendall(request)
            status, headers, _ = read_answer(file)
            assert status == 200
            assert headers.get("connection") == ("keep-alive" if kept else "close")
            if not kept:
                assert read_answer(file) is None


def test_expect_100_continue(server):
    server.model("m")
    server.start()
    request = text_request(row([1, 2, 3, 4]), more="Expect: 100-continue\r\n")
    head, body = request.split(b"\r\n\r\n")
    with server.connect() as sock, sock.makefile("rb") as file:
        sock.sendall(head + b"\r\n\r\n")
        assert file.readline() == b"HTTP/1.1 100 Continue\r\n"
        assert file.readline() == b"\r\n"
        sock.sendall(body)
        assert read_answer(file)[0] == 200


def test_large_bodies_and_answers(server):
    n = 2_000_000
    server.model("m", dims=f"-1 {n}")
    server.start()
    head = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, n],
                                   "parameters": {"binary_data_size": 4 * n}}],
                       "parameters": {"binary_data_output": True}}).encode()
    data = binary([1.5, -2.0]) * (n // 2)
    for _ in range(3):
        answer = server.post("/v2/models/m/infer", head + data,
                             {"Inference-Header-Content-Length": str(len(head))})
        assert answer.status == 200
        assert answer.body[-4 * n:] == data


def test_limits_of_header_and_body(server):
    server.model("m")
    server.start(config="[server]\nmax_body = 10000\nmax_header = 2048\n")
    cases = [
        (b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 10001\r\n\r\n", 413),
        (b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
         b"2711\r\n" + b"x" * 10001 + b"\r\n0\r\n\r\n", 413),
        (b"GET /v2 HTTP/1.1\r\nHost: x\r\nA: " + b"x" * 3000 + b"\r\n\r\n", 431),
        (b"GET /" + b"x" * 600 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
        (b"nonsense\r\n\r\n", 400),
        (b"POST /v2/repository/index HTTP/1.1\r\nHost: x\r\nContent-Length : 2\r\n\r\n{}", 400),
        (b"POST /v2/repository/index HTTP/1.1\r\nHost: x\r\nContent-Length" + b" " * 50 +
         b": 2\r\n\r\n{}", 400),
        (b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n"
         b"Transfer-Encoding: chunked\r\n\r\n",
         400),
        (b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Encoding: br\r\n"
         b"Content-Length: 3\r\n\r\nabc",
         415),
    ]
    for request, status in cases:
        with server.connect() as sock, sock.makefile("rb") as file:
            sock.sendall(request)
            answer = read_answer(file)
            assert answer[0] == status, (request[:60], answer)
            assert answer[1]["connection"] == "close"
            assert read_answer(file) is None
    assert server.infer("m", [1, 2, 3, 4]).status == 200


def test_bodies_of_all_connections_are_bounded(server):
    server.model("m")
    server.start(config="[server]\nmax_body = 1000000\nmax_memory = 1048576\n")
    with server.connect() as sock:
        # a header alone reserves nothing
        sock.sendall(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
        assert server.post("/v2/models/m/infer", b"x" * 500000).status == 400
        sock.sendall(b"x" * 900000)
        soon(lambda: server.metric("pawl_serve_memory_bytes") >= 900000, "a body in memory")
        answer = server.post("/v2/models/m/infer", b"x" * 500000)
        assert answer.status == 503
        assert answer.headers["Retry-After"] == "1"
        assert "in memory" in answer.error
        assert server.infer("m", [1, 2, 3, 4]).status == 200
    soon(lambda: server.post("/v2/models/m/infer", b"x" * 500000).status == 400, "room again")


def test_small_bodies_count_as_much_as_their_buffers(server):
    server.model("m")
    server.start()
    socks = [server.connect() for _ in range(20)]
    for sock in socks:
        sock.sendall(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nx")
    soon(lambda: server.metric("pawl_serve_memory_bytes") >= 20 * 4096, "20 buffers")
    for sock in socks:
        sock.close()
    soon(lambda: server.metric("pawl_serve_memory_bytes") == 0, "none")


def test_answers_of_all_connections_are_bounded(server):
    n = 4_000_000
    server.model("m", dims=f"-1 {n}")
    server.start(config="[server]\nmax_body = 17000000\nmax_memory = 40000000\n")
    head = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, n],
                                   "parameters": {"binary_data_size": 4 * n}}],
                       "parameters": {"binary_data_output": True}}).encode()
    more = f"Inference-Header-Content-Length: {len(head)}\r\n"
    request = text_request(head + bytes(4 * n), more=more)
    socks = []
    for k in range(2):
        sock = socket.socket()
        socks.append(sock)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", server.port))
        sock.sendall(request)
        soon(lambda k=k: server.metric("nv_inference_request_success", "m") == k + 1,
             "the answer")
    with server.connect() as sock, sock.makefile("rb") as file:
        try:
            sock.sendall(request)
        except (BrokenPipeError, ConnectionResetError):
            pass        # it is refused before the last byte
        assert read_answer(file)[0] == 503
    for sock in socks:
        sock.close()
    soon(lambda: server.post("/v2/models/m/infer", head + bytes(4 * n), {
        "Inference-Header-Content-Length": str(len(head))}).status == 200, "room again")


def test_numbers_of_json_count_where_they_are_converted(server):
    """They can take four times the memory of their text."""
    n = 100000
    server.model("m", type="FP64", dims=f"-1 {n}", gate=1)
    # one worker is in the gate, the other reads the second request
    server.start("--workers=2", config="[server]\nmax_memory = 1500000\n")
    body = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP64", "shape": [1, n],
                                   "data": [0] * n}]}, separators=(",", ":"))
    with server.connect() as sock, sock.makefile("rb") as file:
        sock.sendall(text_request(body.encode()))
        soon(lambda: server.metric("pawl_serve_memory_bytes") >= 8 * n + len(body), "numbers")
        answer = server.post("/v2/models/m/infer", body)
        assert answer.status == 503 and "in memory" in answer.error
        server.open("m")
        assert read_answer(file)[0] == 200
    soon(lambda: server.metric("pawl_serve_memory_bytes") == 0, "no memory is held")
    # a request that is alone has room for anything
    assert server.post("/v2/models/m/infer", body + " " * 1000000).status == 200


def test_a_control_call_has_a_small_body(server):
    server.start()
    assert server.post("/v2/repository/index", {"a": "x" * 1000}).status == 200
    assert server.post("/v2/repository/index", {"a": [1] * 50000}).status == 413


def test_slow_clients_are_closed(server):
    server.model("m")
    server.start(config="[server]\nread_timeout = 1\nidle_timeout = 1\n")
    with server.connect() as sock, sock.makefile("rb") as file:
        sock.sendall(b"GET /v2 HTTP/1.1\r\nHost: x\r\nA: ")         # no end
        assert read_answer(file)[0] == 408
        assert read_answer(file) is None
    with server.connect() as sock, sock.makefile("rb") as file:
        sock.sendall(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc")
        assert read_answer(file)[0] == 408
    with server.connect() as sock:                      # idle
        assert sock.recv(1) == b""


def test_a_client_that_does_not_read_is_closed(server):
    n = 4_000_000
    server.model("m", dims=f"-1 {n}")
    server.start(config="[server]\nwrite_timeout = 1\n")
    head = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, n],
                                   "parameters": {"binary_data_size": 4 * n}}],
                       "parameters": {"binary_data_output": True}}).encode()
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", server.port))
        sock.sendall(text_request(head + bytes(4 * n),
                                  more=f"Inference-Header-Content-Length: {len(head)}\r\n"))
        soon(lambda: server.metric("nv_inference_request_success", "m") == 1, "the answer")
        time.sleep(2.5)
        sock.settimeout(30)
        got = 0
        try:
            while True:
                data = sock.recv(1 << 20)
                if not data:
                    break
                got += len(data)
        except ConnectionResetError:
            pass
        assert got < 4 * n


def test_too_many_connections(server):
    server.start(config="[server]\nmax_connections = 3\n")
    held = []
    for _ in range(3):
        sock = server.connect()
        sock.sendall(b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert sock.recv(4096).startswith(b"HTTP/1.1 200")
        held.append(sock)
    with server.connect() as sock, sock.makefile("rb") as file:
        status, headers, _ = read_answer(file)
        assert status == 503 and "retry-after" in headers
    held.pop().close()
    soon(lambda: server.get("/v2").status == 200, "room for another")
    for sock in held:
        sock.close()


def test_bearer_token(server):
    server.model("m")
    server.start(config="[server]\ntoken = secret\n")
    assert server.get("/v2/health/ready").status == 200
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer secret2"},
                    {"Authorization": "Bearer "}, {"Authorization": "Basic secret"}):
        for path in ("/v2", "/metrics", "/v2/models/m"):
            answer = server.get(path, **headers)
            assert answer.status == 401 and "WWW-Authenticate" in answer.headers
    assert server.get("/v2", Authorization="Bearer secret").status == 200
    assert server.infer("m", [1, 2, 3, 4]).status == 401
    # the body is not awaited
    for length in (b"Content-Length: 1000000", b"Transfer-Encoding: chunked"):
        with server.connect() as sock, sock.makefile("rb") as file:
            sock.sendall(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\n" + length + b"\r\n\r\n")
            answer = read_answer(file)
            assert answer[0] == 401 and answer[1]["www-authenticate"] == "Bearer"
            assert read_answer(file) is None


def test_pages_of_other_sites(server):
    """A browser sends a page's POST to any site, and says only afterwards that it may not."""
    server.model("m")
    server.start()
    body = row([1, 2, 3, 4])
    for site in ("cross-site", "same-site", "nonsense"):
        for path in ("models/m/infer", "trace/start", "repository/models/m/unload",
                     "repository/models/m/load", "repository/index"):
            answer = server.post("/v2/" + path, body, {"Sec-Fetch-Site": site})
            assert (answer.status, answer.error) == (
                403, "a page of another site may not use this server")
        # a link to the page
        assert server.get("/", **{"Sec-Fetch-Site": site}).status == 200
    assert server.post("/v2/trace/stop").status == 400
    for site in ("same-origin", "none"):
        assert server.post("/v2/models/m/infer", body, {"Sec-Fetch-Site": site}).status == 200
    # of the next request of the connection nothing is known
    with server.connect() as sock, sock.makefile("rb") as file:
        for more, status in (("Sec-Fetch-Site: cross-site\r\n", 403), ("", 200)):
            sock.sendall(text_request(body, more=more))
            assert read_answer(file)[0] == status


def test_pages_of_sites_whose_name_points_here(server):
    """A browser names a page's origin in a POST.  It says no more than that if the server's name
    is not the loopback device (DNS rebinding), or its address another one."""
    server.model("m")
    server.start()
    body = row([1, 2, 3, 4])

    def post(path, origin, host, **more):
        return server.post("/v2/" + path, body, {"Origin": origin, "Host": host, **more})
    for path in ("models/m/infer", "repository/models/m/unload", "repository/models/m/load",
                 "repository/index", "trace/start"):
        for name in ("evil.example", "evil.example:8000", "127.0.0.1.evil.example",
                     "localhost.evil.example:80", "[evil.example]", "1.2.3.4.5", ""):
            answer = post(path, "http://" + name, name)
            assert (answer.status, answer.error) == (
                403, "the page of a server without a token is used by its address, or over HTTPS")
        for origin in ("http://evil.example", "null", "", "http://", "https://127.0.0.1:1",
                       "http://10.1.1.1", "b" * 1000):
            answer = post(path, origin, "127.0.0.1:8000")
            assert (answer.status, answer.error) == (
                403, "a page of another site may not use this server")
    assert server.get("/v2/models/m", Origin="http://evil.example").status == 200
    # the server's own page, by an address
    for host in ("127.0.0.1:8000", "localhost:8000", "LOCALHOST", "[::1]:8000", "[::1]",
                 "192.168.1.2:8000"):
        assert post("models/m/infer", "http://" + host, host).status == 200
    # behind a proxy: clients that are no browsers, and pages over HTTPS
    assert server.post("/v2/models/m/infer", body, {"Host": "ai.example"}).status == 200
    for host in ("ai.example", "127.0.0.1:8011"):
        assert post("models/m/infer", "https://ai.example", host,
                    **{"Sec-Fetch-Site": "same-origin"}).status == 200


def test_a_page_with_the_token_may_have_a_name(server):
    server.model("m")
    server.start(config="[server]\ntoken = secret\n")
    more = {"Origin": "http://ai.example", "Host": "ai.example"}
    assert server.post("/v2/models/m/infer", row([1, 2, 3, 4]), more).status == 401
    assert server.post("/v2/models/m/infer", row([1, 2, 3, 4]),
                       {**more, "Authorization": "Bearer secret"}).status == 200


def test_head(server):
    """The answer to HEAD is that to GET without its body, also if it is an error."""
    server.model("m")
    server.start()
    with server.connect() as sock, sock.makefile("rb") as file:
        for path in ("/v2", "/v2/health/ready", "/v2/models/m", "/v2/none", "/",
                     "/v2/models/m/infer"):
            got = server.get(path)
            sock.sendall(f"HEAD {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert int(file.readline().split()[1]) == got.status
            headers = b"".join(iter(file.readline, b"\r\n"))
            assert f"Content-Length: {len(got.body)}\r\n".encode() in headers
        # what follows is the answer to the next request
        sock.sendall(text_request(row([1, 2, 3, 4])))
        assert read_answer(file)[0] == 200


# --- compression ---

PACK = {"gzip": gzip.compress, "deflate": zlib.compress, "x-gzip": gzip.compress,
        "identity": bytes}
UNPACK = {"gzip": gzip.decompress, "deflate": zlib.decompress, None: bytes}


@pytest.mark.parametrize("width", (4, 3000, 200000))
@pytest.mark.parametrize("accept, encoding", (
    ("gzip", "gzip"), ("deflate", "deflate"), ("br, gzip;q=0.5, deflate", "gzip"),
    ("gzip;q=0, deflate", "deflate"), ("identity, gzip;q=0.0", None), ("br", None)))
def test_bodies_and_answers_may_be_compressed(server, width, accept, encoding):
    """In JSON and binary, small and large, several on a connection."""
    server.model("any", dims="-1 -1", add=1)
    server.start("--workers=2")
    path = "/v2/models/any/infer"
    values = [(k % 1000) / 4 for k in range(width)]
    body = json.dumps({"inputs": [{"name": "INPUT0", "shape": [1, width], "datatype": "FP32",
                                   "data": values}]}).encode()
    with server.connect() as sock, sock.makefile("rb") as file:
        for name, pack in PACK.items():
            sock.sendall(text_request(pack(body), path, f"Content-Encoding: {name}\r\n"
                                      f"Accept-Encoding: {accept}\r\n") * 2)
            for _ in range(2):
                status, headers, answer = read_answer(file)
                assert status == 200
                # an answer that fits into a packet goes as it is
                used = encoding if width > 4 else None
                assert headers.get("content-encoding") == used
                assert json.loads(UNPACK[used](answer))["outputs"][0]["data"] == [
                    v + 1 for v in values]
    head = json.dumps({"inputs": [{"name": "INPUT0", "shape": [1, width], "datatype": "FP32",
                                   "parameters": {"binary_data_size": 4 * width}}],
                       "parameters": {"binary_data_output": True}}).encode()
    answer = server.post(path, gzip.compress(head + binary(values)), {
        "Inference-Header-Content-Length": str(len(head)), "Content-Encoding": "gzip",
        "Accept-Encoding": accept})
    assert answer.status == 200, answer.body
    plain = UNPACK[answer.headers["Content-Encoding"]](answer.body)
    assert plain[int(answer.headers["Inference-Header-Content-Length"]):] == binary(
        [v + 1 for v in values])


@pytest.mark.parametrize("body, status", (
    (b"no such form", 400),
    (b"\x1f\x8b", 400),
    (gzip.compress(b"{}" * 50)[:-9], 400),
    (gzip.compress(b"{}") + b"x", 400),
    (zlib.compress(b"{}"), 400),
    (gzip.compress(bytes(2000000)), 413),
    (gzip.compress(bytes(500000)) * 9, 413),
    (gzip.compress(json.dumps(row([1, 2])).encode()), 400),
    (gzip.compress(json.dumps(row([1, 2, 3, 4])).encode()[:9]) +
     gzip.compress(json.dumps(row([1, 2, 3, 4])).encode()[9:]), 200),
))
def test_compressed_bodies_are_checked(server, body, status):
    """What is no gzip, or unpacks to more than max_body, is refused, and the server continues."""
    server.model("m")
    server.start(config="max_body = 1000000\n")
    answer = server.post("/v2/models/m/infer", body, {"Content-Encoding": "gzip"})
    assert answer.status == status, answer.body
    assert server.infer("m", [1, 2, 3, 4]).status == 200
    soon(lambda: server.metric("pawl_serve_memory_bytes") == 0, "no memory is held")
    assert server.stop() == 0


def test_a_client_may_leave_while_its_body_is_unpacked(server):
    server.model("any", dims="-1 -1")
    server.start("--workers=1")
    for k in range(20):
        with server.connect() as sock:
            sock.sendall(text_request(gzip.compress(bytes(20000000)), "/v2/models/any/infer",
                                      "Content-Encoding: gzip\r\n"))
            time.sleep(k / 1000)
    assert server.infer("any", [1, 2, 3, 4]).status == 200
    soon(lambda: server.metric("pawl_serve_memory_bytes") == 0, "no memory is held")
    assert server.stop() == 0
