# SPDX-License-Identifier: Apache-2.0
"""A trace of requests and layers: POST /v2/trace/start and stop."""
import json
import struct
import threading

import pytest

from conftest import read_answer, row, soon, text_request


def start(server, *args, **kwargs):
    """Starts the server, which may be built without traces and then says so."""
    server.start(*args, **kwargs)
    answer = server.post("/v2/trace/start")
    if answer.status == 400 and "CONFIG_TRACE" in answer.error:
        pytest.skip(answer.error)
    assert answer.status == 200
    assert server.post("/v2/trace/stop").status == 200


def test_a_trace_has_requests_and_layers(server):
    server.model("m", layers=3, sleep_us=2000)
    start(server, "--io-threads=2", config="[model m]\npreferred_batches = 2\n")
    assert server.infer("m", [1, 2, 3, 4]).status == 200        # before the trace
    assert server.post("/v2/trace/stop").status == 400          # none runs
    assert server.get("/v2/trace/start").status == 405
    assert server.post("/v2/trace/start").status == 200
    answer = server.post("/v2/trace/start")
    assert answer.status == 400 and answer.error == "failed to trace, a trace is running"
    for _ in range(3):
        assert server.infer("m", [1, 2, 3, 4]).status == 200
    assert server.infer("m", [1, 2, 3, 4], parameters={"timeout": 1}).status == 503
    answer = server.post("/v2/trace/stop")
    assert answer.status == 200 and answer.headers["content-type"] == "application/json"
    events = answer.json["traceEvents"]
    layers = [e for e in events if e.get("cat") == "op" and e["name"] == "fake"]
    assert len(layers) >= 3 * 3
    begins = [e for e in events if e.get("cat") == "request" and e["ph"] == "b"]
    ends = {(e["id"], e["name"]): e["ts"] for e in events
            if e.get("cat") == "request" and e["ph"] == "e"}
    assert len(begins) == len(ends)
    whole = [e for e in begins if e["name"] == "request"]
    assert sorted(e["args"]["status"] for e in whole) == [200, 200, 200, 503]
    for one in whole:
        assert one["args"]["model"] == "m" and one["args"]["version"] == 1
        parts = [e for e in begins if e["id"] == one["id"] and e is not one]
        names = [e["name"] for e in parts]
        if one["args"]["status"] == 200:
            assert names == ["receive", "queue", "copy", "run", "answer"]
        else:
            assert names[:2] == ["receive", "queue"]
        # one part behind the other, within the whole
        assert one["ts"] == parts[0]["ts"] >= 0
        for part, after in zip(parts, parts[1:]):
            assert ends[part["id"], part["name"]] == after["ts"]
        assert ends[one["id"], "request"] == ends[one["id"], parts[-1]["name"]]
        if "run" in names and one["args"]["status"] == 200:
            run = parts[3]
            # the layers of the run, on the same clock: 3 of 2 ms
            inside = [e for e in layers if e["ts"] >= run["ts"] and
                      e["ts"] + e["dur"] <= ends[run["id"], "run"]]
            assert len(inside) == 3 and all(e["dur"] >= 2000 for e in inside)
    # another one, which has nothing of the first
    assert server.post("/v2/trace/start").status == 200
    events = server.post("/v2/trace/stop").json["traceEvents"]
    assert not [e for e in events if e.get("cat") in ("request", "op")]


def test_a_trace_under_load(server):
    server.model("m", sleep_us=100)
    start(server, "--io-threads=3")
    end = threading.Event()

    def client():
        with server.connect() as sock, sock.makefile("rb") as file:
            while not end.is_set():
                sock.sendall(text_request(row([0, 0, 0, 0])))
                assert read_answer(file)[0] == 200
    pool = [threading.Thread(target=client) for _ in range(6)]
    for t in pool:
        t.start()
    for k in range(6):
        assert server.post("/v2/trace/start").status == 200
        count = server.stat("m")["inference_count"]
        soon(lambda n=count: server.stat("m")["inference_count"] > n + 200, "requests")
        if k % 2:
            server.model("m", k + 2)
            assert server.post("/v2/repository/models/m/load").status == 200
        events = json.loads(server.post("/v2/trace/stop").body)["traceEvents"]
        assert sum(e["name"] == "request" and e["ph"] == "b" for e in events) >= 200
    assert server.post("/v2/trace/start").status == 200     # the end of the server ends it
    end.set()
    for t in pool:
        t.join()


def test_an_answer_that_has_no_room(server):
    n = 20000
    server.model("m", dims=f"-1 {n}")
    start(server, config="[server]\nmax_body = 1000000\nmax_memory = 1048576\n")
    with server.connect() as sock:
        sock.sendall(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" +
                     b"x" * 900000)
        soon(lambda: server.metric("pawl_serve_memory_bytes") >= 900000, "a body in memory")
        head = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, n],
                                       "parameters": {"binary_data_size": 4 * n}}]}).encode()
        assert server.post("/v2/trace/start").status == 200
        # four bytes in the request, and some ten in the answer
        answer = server.post("/v2/models/m/infer", head + struct.pack("<f", 1.2345678) * n,
                             {"Inference-Header-Content-Length": str(len(head))})
        assert answer.status == 503 and "in memory" in answer.error
        events = server.post("/v2/trace/stop").json["traceEvents"]
    assert [e["args"]["status"] for e in events if e["name"] == "request" and
            e.get("ph") == "b"] == [503]
