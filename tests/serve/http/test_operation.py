# SPDX-License-Identifier: Apache-2.0
"""Queues, batches, deadlines, swaps of models, signals, metrics, options."""
import fcntl
import http.client
import json
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time

import pytest

from conftest import SERVER, SOON, Answer, Server, read_answer, row, sanitized, soon, text_request
from wire import field

UNITS = os.path.join(os.path.dirname(__file__), "../../../tools/serve")


def send(sock, values, **more):
    sock.sendall(text_request(row(values, **more)))


def connections(server, n):
    socks = [server.connect() for _ in range(n)]
    return socks, [s.makefile("rb") for s in socks]


def close(socks, files):
    for one in files + socks:
        one.close()


def queue_behind_one(server, bodies, path="/v2/models/m/infer"):
    """A first request, which runs, and behind it others that wait: their sockets and files."""
    socks, files = connections(server, 1 + len(bodies))
    send(socks[0], [0, 0, 0, 0])
    soon(lambda: server.metric("pawl_serve_queue_seconds_count", "m") == 1, "the first run")
    for k, body in enumerate(bodies):
        socks[k + 1].sendall(text_request(body, path))
    soon(lambda: server.metric("nv_inference_pending_request_count", "m") == len(bodies),
         "the queue")
    return socks, files


@pytest.mark.parametrize("planned", [False, True])
def test_requests_that_wait_become_a_batch(server, planned):
    server.model("m", gate=1)
    server.start("--workers=1", config="[model m]\ninstances = 1\nmax_batch = 8\n" +
                 "preferred_batches = 8\n" * planned)
    socks, files = queue_behind_one(server, [row([i] * 4, id=str(i)) for i in range(1, 9)])
    server.open("m")
    for i in range(9):
        status, _, body = read_answer(files[i])
        assert status == 200
        assert json.loads(body)["outputs"][0]["data"] == [i] * 4
    stat = server.stat("m")
    # the first alone, the others in one; or in smaller ones until one of 8 is planned
    assert stat["execution_count"] == 2 or not planned
    assert stat["inference_count"] == 9
    assert sum(b["batch_size"] * b["compute_infer"]["count"] for b in stat["batch_stats"]) == 9
    close(socks, files)


def test_a_batch_whose_slot_is_planned_meanwhile(server):
    server.model("m", sleep_us=2000)
    server.start("--workers=1", config="[model m]\ninstances = 1\nmax_batch = 8\n")
    end = threading.Event()

    def client():
        with server.connect() as sock, sock.makefile("rb") as file:
            while not end.is_set():
                sock.sendall(text_request(row([0, 0, 0, 0])))
                assert read_answer(file)[0] == 200
    pool = [threading.Thread(target=client) for _ in range(12)]
    for t in pool:
        t.start()
    soon(lambda: any(b["batch_size"] == 8 for b in server.stat("m")["batch_stats"]),
         "a run of 8 rows")
    end.set()
    for t in pool:
        t.join()


def test_only_the_request_with_bad_data_fails(server):
    server.model("m", gate=1, largest=99)
    server.start("--workers=1", config="[model m]\ninstances = 1\nmax_batch = 8\n"
                 "preferred_batches = 8\n")
    values = [1, 2, 3, 1000, 5, 6, 7, 8]
    socks, files = queue_behind_one(server, [row([v] * 4) for v in values])
    server.open("m")
    assert read_answer(files[0])[0] == 200
    for value, file in zip(values, files[1:]):
        status, _, body = read_answer(file)
        if value > 99:
            assert status == 400
            assert json.loads(body)["error"] == "the model refuses these values"
        else:
            assert status == 200
            assert json.loads(body)["outputs"][0]["data"] == [value] * 4
    stat = server.stat("m")
    assert stat["inference_stats"]["success"]["count"] == 8
    assert stat["inference_stats"]["fail"]["count"] == 1
    assert stat["inference_stats"]["queue"]["count"] == 9
    assert server.metric("pawl_serve_alone_total", "m") == 8
    close(socks, files)


def test_a_canceled_request_of_a_batch_that_fails(server):
    server.model("m", gate=1, fail=1)
    server.start("--workers=1", config="[model m]\ninstances = 1\nmax_batch = 2\n"
                 "preferred_batches = 2\n")
    # two in the queue share the run behind the first; a client of one of them closes in the run
    socks, files = queue_behind_one(server, [row([1, 2, 3, 4])] * 2)
    server.open("m")
    assert read_answer(files[0])[0] == 500
    os.unlink(os.path.join(server.repository, "m", "1", "open"))
    close(socks[2:], files[2:])
    server.open("m")
    assert read_answer(files[1])[0] == 500
    soon(lambda: server.metric("pawl_serve_canceled_total", "m") +
         server.metric("nv_inference_request_failure", "m") == 3, "all have ended")
    close(socks[:2], files[:2])


def test_a_batch_waits_for_max_delay_from_arrival(server):
    server.model("m")
    server.start(config="[model m]\nmax_batch = 4\npreferred_batches = 2\n"
                 "max_delay_us = 2000000\n")
    socks, files = connections(server, 2)
    begin = time.monotonic()
    send(socks[0], [1, 1, 1, 1])
    assert read_answer(files[0])[0] == 200
    assert time.monotonic() - begin >= 2
    # two make a preferred size, and do not wait
    send(socks[0], [1, 1, 1, 1])
    send(socks[1], [2, 2, 2, 2])
    assert read_answer(files[0])[0] == read_answer(files[1])[0] == 200
    assert {b["batch_size"] for b in server.stat("m")["batch_stats"]} == {1, 2}
    close(socks, files)


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_requests_share_no_run_if_an_output_is_not_by_rows(server, rows):
    # the output has 4 rows for any number of rows of the input; dims[0] is -1 for both.  Two
    # requests of 2 rows would look right: their batch has 4 rows.
    server.model("m", dims="-1 -1", swap=1, gate=1)
    server.start("--workers=1", config="[model m]\ninstances = 1\nmax_batch = 8\n")
    socks, files = connections(server, 5)

    def ask(sock, i):
        sock.sendall(text_request({"inputs": [{"name": "INPUT0", "shape": [rows, 4],
                                               "datatype": "FP32", "data": [i] * 4 * rows}]}))
    ask(socks[0], 0)
    soon(lambda: server.metric("pawl_serve_queue_seconds_count", "m") == 1, "the first run")
    for i in range(1, 5):
        ask(socks[i], i)
    soon(lambda: server.metric("nv_inference_pending_request_count", "m") == 4, "the queue")
    server.open("m")
    for i, file in enumerate(files):
        status, _, body = read_answer(file)
        output = json.loads(body)["outputs"][0]
        assert status == 200 and output["shape"] == [4, rows], output
        assert output["data"] == [i] * 4 * rows
    assert server.stat("m")["execution_count"] == 5
    close(socks, files)


def wide(server, n):
    return server.post("/v2/models/m/infer", {"inputs": [
        {"name": "INPUT0", "shape": [1, n], "datatype": "FP32", "data": [1] * n}]})


@pytest.mark.parametrize("scale", [1, 1500])      # the helper frees the large ones
def test_free_slots_are_bounded_in_bytes(server, scale):
    server.model("m", dims="-1 -1", trace=1)
    # a slot of 100 numbers has 800 bytes
    server.start(config=f"[model m]\nslot_bytes = {2500 * scale}\n")

    def made():
        texts = [e["text"].strip() for e in list(server.events("text"))]
        return texts.count("slot"), texts.count("free")
    for k, n in enumerate((100, 101, 102)):
        assert wide(server, scale * n).status == 200
        soon(lambda k=k: made() == (k + 1, 0), "a slot")
    assert wide(server, scale * 100).status == 200      # no new one, and the most recently used
    assert wide(server, scale * 103).status == 200
    soon(lambda: made() == (4, 1), "the oldest one is freed")
    assert wide(server, scale * 100).status == 200
    assert wide(server, scale * 101).status == 200
    soon(lambda: made() == (5, 2), "the one of 101 was freed")
    assert wide(server, scale * 1000).status == 200     # more than the limit alone
    soon(lambda: made() == (6, 5), "only the last one is kept")


def test_free_slots_of_all_models_have_one_budget_and_a_time(server):
    names = ("a", "b")
    for name in names:
        server.model(name, dims="-1 -1", trace=1)
    # a slot of 100 numbers has 800 bytes
    server.start(config="slot_memory = 2500\nslot_idle = 3600\n")

    def made():
        texts = [e["text"].strip() for e in list(server.events("text"))]
        return texts.count("slot"), texts.count("free")

    def ask(name, n):
        assert server.post(f"/v2/models/{name}/infer", wide_body(n)).status == 200
    for k, (name, n) in enumerate(((name, 100 + n) for n in range(4) for name in names)):
        ask(name, n)
        soon(lambda k=k: made() == (k + 1, max(0, k - 2)), "the oldest one is freed")
    conf = os.path.join(server.folder, "serve.ini")
    with open(conf, encoding="ascii") as file:
        text = file.read()
    with open(conf, "w", encoding="ascii") as file:
        file.write(text.replace("slot_idle = 3600", "slot_idle = 1"))
    server.signal(signal.SIGHUP)
    soon(lambda: made() == (8, 8), "all are freed, since nothing uses them")
    ask("a", 100)


def wide_body(n, **more):
    return {"inputs": [{"name": "INPUT0", "shape": [1, n], "datatype": "FP32",
                        "data": [n] * n}], **more}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_new_shape_delays_nothing_but_its_requests(server, workers):
    server.model("m", dims="-1 -1", plan_gate=100)
    server.model("other")
    # loop 0 has all connections.  With one worker the plan and the runs share it.
    server.start(f"--workers={workers}", "--io-threads=1")
    assert wide(server, 4).status == 200
    socks, files = connections(server, 3)
    for sock, n in zip(socks, (101, 101, 102)):
        sock.sendall(text_request(wide_body(n)))
    soon(lambda: server.metric("nv_inference_pending_request_count", "m") == 3, "the queue")
    for _ in range(5):
        assert wide(server, 4).status == 200
        assert server.infer("other", [1, 2, 3, 4]).status == 200
        assert server.get("/v2/health/ready").status == 200
    # a deadline and a close end requests that wait for the plan
    answer = server.post("/v2/models/m/infer", wide_body(101, parameters={"timeout": 1000}))
    assert answer.status == 503 and answer.error == "Request timeout expired"
    close(socks[1:2], files[1:2])
    soon(lambda: server.metric("nv_inference_pending_request_count", "m") == 2, "a cancel")
    server.open("m", gate="plan")
    for file, n in zip(files[::2], (101, 102)):
        status, _, body = read_answer(file)
        assert status == 200 and json.loads(body)["outputs"][0]["data"] == [n] * n
    close(socks[::2], files[::2])


@pytest.mark.parametrize("loops", [1, 2])
def test_large_texts_are_read_and_written_in_pieces(server, loops):
    """Texts of megabytes, with an error at the end of one, and clients that do not wait."""
    server.model("m", dims="-1 -1")
    server.model("slow", gate=1)
    server.start("--workers=1", f"--io-threads={loops}")
    rows, n = 7, 30011
    values = [[float(f"{(k * 7919 + r) % 1000003 * 10.0 ** (k % 20 - 14):.8g}")
               for k in range(n)] for r in range(rows)]
    body = {"inputs": [{"data": values, "name": "INPUT0", "shape": [rows, n],
                        "datatype": "FP32"}], "id": "large"}
    text = json.dumps(body).encode()

    def right(answer):
        out = answer["outputs"][0]
        assert answer["id"] == "large" and out["shape"] == [rows, n]
        for got, row_values in zip(range(0, rows * n, n), values):
            want = struct.unpack(f"{n}f", struct.pack(f"{n}f", *row_values))
            assert struct.pack(f"{n}f", *out["data"][got:got + n]) == \
                struct.pack(f"{n}f", *want)
    socks, files = connections(server, 3)
    for sock in socks[:2]:
        sock.sendall(text_request(text) + text_request(wide_body(4)))
    socks[2].sendall(text_request(text))
    close(socks[2:], files[2:])
    for file in files[:2]:
        status, _, answer = read_answer(file)
        assert status == 200
        right(json.loads(answer))
        assert json.loads(read_answer(file)[2])["outputs"][0]["data"] == [4] * 4
    close(socks[:2], files[:2])
    # while a layer keeps the only worker, texts are read
    with server.connect() as sock:
        sock.sendall(text_request(row([1, 2, 3, 4]), "/v2/models/slow/infer"))
        soon(lambda: server.metric("pawl_serve_submitted_total", "slow") == 1, "a run")
        for bad in (text[:-40].replace(b"]]", b"],") , text.replace(b"]]", b",1]]"),
                    text.replace(b"]]", b",x]]"), text[:-1]):
            assert server.post("/v2/models/m/infer", bad).status == 400
        server.open("slow")
        with sock.makefile("rb") as file:
            assert read_answer(file)[0] == 200
    # the rest of a large body is binary
    head = json.dumps({**body, "inputs": [{"name": "INPUT0", "shape": [1, n], "datatype": "FP32",
                                           "parameters": {"binary_data_size": 4 * n}}],
                       "parameters": {"x": "y" * 20000}}).encode()
    answer = server.post("/v2/models/m/infer", head + struct.pack(f"{n}f", *values[0]),
                         {"Inference-Header-Content-Length": str(len(head))})
    assert answer.status == 200
    assert struct.pack(f"{n}f", *answer.json["outputs"][0]["data"]) == \
        struct.pack(f"{n}f", *values[0])
    soon(lambda: server.metric("nv_inference_pending_request_count", "m") == 0, "an empty queue")


def test_a_flood_of_new_shapes_is_bounded(server):
    server.model("m", dims="-1 -1", plan_gate=100)
    server.start("--workers=2", config="[model m]\nqueue_requests = 300\n")
    assert wide(server, 4).status == 200
    socks, files = connections(server, 320)
    for n, sock in enumerate(socks):
        sock.sendall(text_request(wide_body(101 + n)))
    # there is one plan, and 20 requests are beyond the queue
    soon(lambda: server.metric("pawl_serve_refused_total", "m") == 20, "a full queue")
    close(socks[298:], files[298:])
    soon(lambda: server.metric("nv_inference_pending_request_count", "m") < 300, "room")
    for _ in range(5):
        assert wide(server, 4).status == 200
    assert server.metric("pawl_serve_plans_total", "m") == 1
    server.open("m", gate="plan")
    statuses = [read_answer(file)[0] for file in files[:298]]
    assert statuses.count(200) + statuses.count(503) == 298 and statuses.count(503) <= 20
    close(socks[:298], files[:298])


def test_unload_and_stop_while_a_shape_is_planned(server):
    server.model("m", dims="-1 -1", plan_gate=100)
    server.start()
    socks, files = connections(server, 2)
    socks[0].sendall(text_request(wide_body(101)))
    soon(lambda: server.metric("nv_inference_pending_request_count", "m") == 1, "the queue")
    assert server.post("/v2/repository/models/m/unload").status == 200
    server.open("m", gate="plan")
    assert read_answer(files[0])[0] == 200
    soon(lambda: server.events("freed"), "the version is freed")
    os.unlink(os.path.join(server.repository, "m", "1", "plan"))
    assert server.post("/v2/repository/models/m/load").status == 200
    socks[1].sendall(text_request(wide_body(101)))
    soon(lambda: server.metric("nv_inference_pending_request_count", "m") == 1, "the queue")
    close(socks, files)
    soon(lambda: server.metric("pawl_serve_canceled_total", "m") == 1, "the cancel")
    server.signal(signal.SIGTERM)
    soon(lambda: server.events("stopping"), "the signal has arrived")
    server.open("m", gate="plan")
    assert server.stop() == 0


def test_refused_shapes_do_not_fill_the_log(server):
    server.model("m", dims="-1 -1", widest=8)
    server.start()
    begin = time.monotonic()
    for n in range(9, 59):
        assert wide(server, n).status == 400
    assert 1 <= len(server.events("slot")) <= 2 + time.monotonic() - begin
    assert wide(server, 8).status == 200


def test_requests_of_other_shapes_are_no_batch(server):
    server.model("m", dims="-1 -1")
    server.start(config="[model m]\nmax_delay_us = 200000\n")
    socks, files = connections(server, 4)
    for i, sock in enumerate(socks):
        n = 4 + i % 2
        sock.sendall(text_request({"inputs": [{"name": "INPUT0", "shape": [1, n],
                                               "datatype": "FP32",
                                               "data": [i] * n}]}))
    for i, file in enumerate(files):
        status, _, body = read_answer(file)
        assert status == 200
        assert json.loads(body)["outputs"][0]["data"] == [i] * (4 + i % 2)
    close(socks, files)


def test_a_delay_does_not_miss_a_deadline(server):
    server.model("m")
    server.start(config="[model m]\nmax_delay_us = 30000000\n")
    answer = server.infer("m", [1, 2, 3, 4], parameters={"timeout": 10_000_000})
    assert answer.status == 200


@pytest.mark.parametrize("most", [0, 1, 8])
def test_a_request_may_have_any_number_of_rows(server, most):
    server.model("m", add=1)
    server.start(config=f"[model m]\nmax_batch = {most}\n")
    for n in (0, 1, 2, 9, 20):
        tensor = {"name": "INPUT0", "shape": [n, 4], "datatype": "FP32", "data": [1] * 4 * n}
        answer = server.post("/v2/models/m/infer", {"inputs": [tensor]})
        assert answer.status == 200
        assert answer.json["outputs"][0]["shape"] == [n, 4]
        assert answer.json["outputs"][0]["data"] == [2] * 4 * n


def test_a_full_queue_refuses_at_once(server):
    server.model("m", gate=1)
    server.start("--workers=1",
                 config="[model m]\ninstances = 1\nmax_batch = 1\nqueue_requests = 2\n")
    socks, files = queue_behind_one(server, [row([0, 0, 0, 0])] * 2)
    more = server.connect()
    send(more, [0, 0, 0, 0])
    with more, more.makefile("rb") as file:
        status, headers, body = read_answer(file)
    assert status == 503 and headers["retry-after"] == "1"
    assert json.loads(body)["error"] == "Exceeds maximum queue size"
    server.open("m")
    assert [read_answer(f)[0] for f in files] == [200, 200, 200]
    assert server.metric("pawl_serve_refused_total", "m") == 1
    close(socks, files)


def test_a_queue_is_bounded_in_bytes(server):
    server.model("m", gate=1)
    server.start("--workers=1",
                 config="[model m]\ninstances = 1\nmax_batch = 1\nqueue_bytes = 20\n")
    socks, files = queue_behind_one(server, [row([0, 0, 0, 0])])
    assert server.infer("m", [0, 0, 0, 0]).status == 503
    server.open("m")
    assert [read_answer(f)[0] for f in files] == [200, 200]
    close(socks, files)


def test_a_timeout_ends_a_request_in_the_queue(server):
    server.model("m", gate=1)
    server.start("--workers=1", config="[model m]\ninstances = 1\nmax_batch = 1\n")
    socks, files = queue_behind_one(server, [])
    answer = server.infer("m", [0, 0, 0, 0], parameters={"timeout": 1000})
    assert answer.status == 503 and answer.error == "Request timeout expired"
    assert server.stat("m")["execution_count"] == 0     # the first still runs
    server.open("m")
    assert read_answer(files[0])[0] == 200
    close(socks, files)


def test_a_timeout_ends_a_request_between_layers(server):
    server.model("m", layers=60, sleep_us=100000)
    server.start()
    answer = server.infer("m", [1, 2, 3, 4], parameters={"timeout": 150000})
    assert answer.status == 503 and answer.error == "Request timeout expired"
    assert server.stat("m")["execution_count"] == 0
    # the slot is good for the next one
    server.model("m", 2)
    assert server.post("/v2/repository/models/m/load").status == 200
    assert server.infer("m", [1, 2, 3, 4]).status == 200


def test_the_default_timeout_of_a_model(server):
    server.model("m", layers=60, sleep_us=100000)
    server.start(config="[model m]\ntimeout_ms = 50\n")
    assert server.infer("m", [1, 2, 3, 4]).status == 503
    assert server.metric("pawl_serve_timed_out_total", "m") == 1


def test_priority_decides_the_order(server):
    server.model("m", gate=1, count=1)
    server.start("--workers=1", config="[model m]\ninstances = 1\nmax_batch = 1\n")
    socks, files = connections(server, 4)
    send(socks[0], [0, 0, 0, 0])
    soon(lambda: server.metric("pawl_serve_queue_seconds_count", "m") == 1, "the first run")
    for i, priority in ((1, 8), (2, 0), (3, 1)):
        send(socks[i], [0, 0, 0, 0], parameters={"priority": priority})
        soon(lambda n=i: server.metric("nv_inference_pending_request_count", "m") == n,
             "the queue")
    # the gate is a file: from here on they run one after the other, and each answer says how
    # many runs were complete before it
    server.open("m")
    done = [int(json.loads(read_answer(f)[2])["outputs"][0]["data"][0]) for f in files]
    assert sorted(range(4), key=lambda i: done[i]) == [0, 3, 2, 1]
    close(socks, files)


def test_a_closed_connection_cancels(server):
    server.model("m", gate=1)
    server.start("--workers=1", config="[model m]\ninstances = 1\nmax_batch = 1\n")
    socks, files = queue_behind_one(server, [row([0, 0, 0, 0])])
    close(socks[1:], files[1:])
    soon(lambda: server.metric("nv_inference_pending_request_count", "m") == 0,
         "the queue is empty")
    close(socks[:1], files[:1])
    # the gate stays closed: the run ends because it is canceled
    soon(lambda: server.metric("pawl_serve_canceled_total", "m") == 2, "both are canceled")
    assert server.stat("m")["execution_count"] == 0


@pytest.mark.parametrize("threads", [1, 3])
def test_a_flood_does_not_starve_another_model(server, threads):
    server.model("flood", sleep_us=20000)
    server.model("other", sleep_us=1000)
    server.start("--workers=1", f"--io-threads={threads}", config="[model]\nmax_batch = 1\n")
    end = threading.Event()

    def flood():
        with server.connect() as sock, sock.makefile("rb") as file:
            while not end.is_set():
                sock.sendall(text_request(row([0, 0, 0, 0]), "/v2/models/flood/infer"))
                assert read_answer(file)[0] == 200
    pool = [threading.Thread(target=flood) for _ in range(20)]
    for t in pool:
        t.start()
    soon(lambda: server.metric("nv_inference_pending_request_count", "flood") > 10, "the flood")
    for _ in range(10):
        assert server.infer("other", [1, 2, 3, 4]).status == 200
    # 20 requests of the flood wait at any time: in one queue, each of ours would have waited
    # for all of them
    flooded = server.stat("flood")["execution_count"]
    end.set()
    for t in pool:
        t.join()
    assert flooded < 150


class Flood:
    """Connections that have sent many requests at once, so some of them wait all the time."""
    def __init__(self, server, model, connections, requests, **more):
        self.socks = [server.connect() for _ in range(connections)]
        text = text_request(row([0, 0, 0, 0], **more), f"/v2/models/{model}/infer") * requests
        self.pool = [threading.Thread(target=f, args=(sock,), daemon=True)
                     for sock in self.socks for f in (lambda sock: self.send(sock, text),
                                                      self.read)]
        for t in self.pool:
            t.start()

    @staticmethod
    def send(sock, text):
        try:
            sock.sendall(text)
        except OSError:
            pass                    # the end of the test

    @staticmethod
    def read(sock):
        try:
            while sock.recv(1 << 16):
                pass
        except OSError:
            pass

    def __enter__(self):
        return self

    def __exit__(self, *args):
        for sock in self.socks:
            sock.shutdown(socket.SHUT_RDWR)
        for t in self.pool:
            t.join()
        for sock in self.socks:
            sock.close()


def executions(server, model):
    return server.stat(model)["execution_count"]


def test_a_flood_of_light_runs_takes_no_share_of_the_workers(server):
    """Light runs do not count towards a model's share of the workers."""
    server.model("heavy", sleep_us=2000)
    server.model("light")
    for name in "abcdef":
        server.model(name, sleep_us=2000)
    server.start("--workers=1", config="[model]\nmax_batch = 1\n[model heavy]\nmax_batch = 1\n"
                 "weight = 1000\n")
    # a sanitizer's server is slow
    enough = 200 if sanitized() else 20000
    with Flood(server, "heavy", 4, 9000), Flood(server, "light", 4, 50000):
        soon(lambda: server.metric("pawl_serve_light_total", "light") > enough, "light runs")
        for name in "abcdef":
            before = executions(server, "heavy")
            assert server.infer(name, [1, 2, 3, 4]).status == 200
            # an idle model begins with the clock of the others
            assert executions(server, "heavy") - before < 2000


def test_a_share_that_a_model_could_not_use_is_not_taken_from_others(server):
    """
    A model with a large weight cannot use its share, because it has one instance.  Models whose
    queue was empty begin with the clock of those that use their shares, not with its clock.
    """
    server.model("limited", sleep_us=1000)
    names = ["steady", *"abcdef"]
    for name in names:
        server.model(name, sleep_us=1000)
    server.start("--workers=2", config="[model]\nmax_batch = 1\n[model limited]\n"
                 "max_batch = 1\nweight = 100\ninstances = 1\n")
    with Flood(server, "limited", 4, 20000), Flood(server, "steady", 8, 20000):
        soon(lambda: executions(server, "steady") > 1000, "the flood")
        for name in names[1:]:
            before = executions(server, "steady")
            with Flood(server, name, 8, 1000):
                # shares are of time, and on a busy machine some runs take much longer
                soon(lambda m=name, n=before: executions(server, "steady") - n > 10 or
                     executions(server, m) > 400, "runs of both")
                assert executions(server, "steady") - before > 10


def test_runs_that_end_early_count(server):
    """One model's runs end at their deadlines; each takes as long as ten runs of the other."""
    slow = 4 if sanitized() else 1
    server.model("late", sleep_us=5000 * slow, layers=60)
    server.model("other", sleep_us=2000 * slow)
    server.start("--workers=1", config="[model]\nmax_batch = 1\n")
    # on a busy machine all requests of a turn may be too late to begin, so there are many turns
    with Flood(server, "late", 12, 1000, parameters={"timeout": 100000 * slow}), \
            Flood(server, "other", 4, 5000):
        soon(lambda: server.metric("pawl_serve_queue_seconds_count", "late") >= 20, "late runs")
        runs = server.metric("pawl_serve_queue_seconds_count", "late")
        assert executions(server, "other") > 3 * runs


@pytest.mark.parametrize("threads", [1, 2])
def test_a_swap_under_load_fails_nothing_and_mixes_nothing(server, threads):
    server.model("m", 1, add=1, inputs=2, layers=3)
    server.start(f"--io-threads={threads}")
    end = threading.Event()
    bad, seen = [], set()

    def client():
        with server.connect() as sock, sock.makefile("rb") as file:
            while not end.is_set():
                sock.sendall(text_request({"inputs": [
                    {"name": f"INPUT{i}", "shape": [1, 4], "datatype": "FP32",
                     "data": [0, 0, 0, 0]}
                    for i in (0, 1)]}))
                status, _, body = read_answer(file)
                answer = json.loads(body)
                if status != 200 or \
                        answer["outputs"][0]["data"] != [float(answer["model_version"])] * 4:
                    bad.append((status, body))
                else:
                    seen.add(answer["model_version"])
    pool = [threading.Thread(target=client) for _ in range(6)]
    for t in pool:
        t.start()
    for version in range(2, 22):
        server.model("m", version, add=version, inputs=2, layers=3)
        answer = server.post("/v2/repository/models/m/load")
        assert answer.status == 200
        soon(lambda v=version: str(v) in seen, "answers of the new version")
    end.set()
    for t in pool:
        t.join()
    assert not bad
    # old versions are freed
    soon(lambda: len(server.events("freed")) == 20, "all old versions are freed")


@pytest.mark.parametrize("threads", [1, 2])
def test_sigterm_under_load_loses_nothing(server, threads):
    server.model("m", sleep_us=2000)
    server.start(f"--io-threads={threads}", config="[server]\ngrace = 1\n")
    lost, answered = [], [0] * 8
    stopping = threading.Event()

    def client(k):
        while True:
            try:
                sock = server.connect()
            except ConnectionRefusedError:
                return
            with sock, sock.makefile("rb") as file:
                while True:
                    try:
                        sock.sendall(text_request(row([k, 0, 0, 0])))
                        answer = read_answer(file)
                    except (ConnectionResetError, BrokenPipeError):
                        answer = None
                    if not answer:
                        # the listener was closed with this connection in its queue: no byte
                        # of the request was read
                        if not stopping.is_set():
                            lost.append("before the signal")
                        return
                    if answer[0] != 200:
                        lost.append(answer)
                    answered[k] += 1
                    if answer[1].get("connection") == "close":
                        break
    pool = [threading.Thread(target=client, args=(k,)) for k in range(8)]
    for t in pool:
        t.start()
    soon(lambda: min(answered) > 5, "answers")
    stopping.set()
    server.signal(signal.SIGTERM)
    soon(lambda: server.process.poll() is not None, "the end")
    for t in pool:
        t.join()
    assert server.process.returncode == 0
    assert not lost
    assert not [e for e in server.lines if e["level"] in ("error", "warning")]


def test_sigterm_answers_connections_that_the_kernel_has_accepted(server):
    server.start()
    server.signal(signal.SIGSTOP)
    socks = []
    try:
        for _ in range(400):
            socks.append(server.connect())
            socks[-1].sendall(b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n")
        server.signal(signal.SIGTERM)
    finally:
        server.signal(signal.SIGCONT)
    for sock in socks:
        with sock, sock.makefile("rb") as file:
            answer = read_answer(file)
            assert answer and answer[0] == 200
    assert server.stop() == 0


def test_sigterm_answers_what_is_in_work(server):
    server.model("m", gate=1)
    server.start("--workers=1", config="[model m]\ninstances = 1\nmax_batch = 1\n")
    socks, files = connections(server, 3)
    for sock in socks:
        send(sock, [1, 2, 3, 4])
    soon(lambda: server.metric("nv_inference_pending_request_count", "m") == 2, "a queue")
    idle = server.connect()
    server.signal(signal.SIGTERM)
    soon(lambda: server.events("stopping"), "the signal has arrived")
    server.open("m")
    for file in files:
        status, headers, _ = read_answer(file)
        assert status == 200 and headers["connection"] == "close"
    assert idle.recv(1) == b""
    idle.close()
    close(socks, files)
    assert server.stop() == 0


def test_not_ready_until_the_models_are_loaded(server):
    server.model("m", dims="-1 9", plan_gate=4)     # the load plans a slot
    start = threading.Thread(target=server.start)
    start.start()
    soon(lambda: getattr(server, "port", None), "it listens")
    assert server.get("/v2/health/live").status == 200
    assert server.get("/v2/health/ready").status == 400
    answer = server.post("/v2/models/m/infer", wide_body(9))
    assert answer.status == 503 and answer.error == "model 'm' is not loaded yet"
    assert answer.headers["retry-after"] == "1"
    server.open("m", gate="plan")
    start.join()
    assert server.post("/v2/models/m/infer", wide_body(9)).status == 200
    assert server.infer("none", [1, 2, 3, 4]).status == 404


def change(server, what, answers):
    """Call the repository on a thread, which adds the status to answers."""
    threading.Thread(target=lambda: answers.append(
        server.post(f"/v2/repository/models/{what}").status)).start()


def begin_load(server, name, answers):
    """Begin a load that waits for its gate, and wait until it is in progress."""
    change(server, f"{name}/load", answers)
    soon(lambda: any(m["name"] == name and m["state"] == "LOADING"
                     for m in server.post("/v2/repository/index").json), "the load")


def test_other_calls_do_not_wait_for_a_load(server):
    server.model("m", add=1)
    server.start()
    server.model("slow", dims="-1 9", plan_gate=4)
    answers, later = [], []
    begin_load(server, "slow", answers)
    assert server.infer("m", [1, 2, 3, 4]).status == 200
    assert server.get("/metrics").status == 200
    # started, or refused at once
    assert server.post("/v2/trace/start").status in (200, 400)
    assert server.post("/v2/trace/stop").status in (200, 400)
    server.model("m", 2)
    # changes wait for it and keep their order; a scan waits too
    change(server, "m/load", later)
    server.signal(signal.SIGHUP)
    for _ in range(20):
        assert server.infer("m", [1, 2, 3, 4]).json["model_version"] == "1"
    assert not answers and not later
    server.open("slow", gate="plan")
    soon(lambda: answers == [200] and later == [200], "the loads")
    assert server.infer("m", [1, 2, 3, 4]).json["model_version"] == "2"
    assert server.post("/v2/models/slow/infer", wide_body(9)).status == 200


def test_sigterm_does_not_wait_for_a_load(server):
    server.model("m")
    server.start(config="[server]\ngrace = 3600\n")
    server.model("slow", dims="-1 9", plan_gate=4)
    answers, late = [], []
    begin_load(server, "slow", answers)
    # the second call waits; the client of the third disconnects
    change(server, "m/load", late)
    sock = server.connect()
    sock.sendall(text_request(b"", "/v2/repository/models/m/unload"))
    sock.close()
    soon(lambda: server.metric("pawl_serve_http_requests_total") -
         server.metric("pawl_serve_http_answers_total") >= 3, "the calls")
    server.signal(signal.SIGTERM)
    soon(lambda: server.get("/v2/health/ready").status == 400, "not ready")
    assert server.infer("m", [1, 2, 3, 4]).status == 200
    server.signal(signal.SIGTERM)
    soon(lambda: late == [503], "the call that waited")
    assert server.process.poll() is None and not answers
    server.open("slow", gate="plan")
    soon(lambda: server.process.poll() is not None, "the end")
    assert server.process.returncode == 0 and answers == [200]


def test_a_load_that_takes_longer_than_the_drain_is_answered(server):
    server.model("m", gate=1)
    server.start(config="[server]\ndrain = 1\n")
    server.model("slow", dims="-1 9", plan_gate=4)
    answers = []
    begin_load(server, "slow", answers)
    sock = server.connect()
    send(sock, [1, 2, 3, 4])
    soon(lambda: server.metric("pawl_serve_queue_seconds_count", "m") == 1, "the run")
    server.signal(signal.SIGTERM)
    assert sock.recv(1) == b""          # the run is canceled
    sock.close()
    assert server.process.poll() is None and not answers
    server.open("slow", gate="plan")
    soon(lambda: server.process.poll() is not None, "the end")
    assert server.process.returncode == 0 and answers == [200]


def test_sigterm_while_models_are_loaded_at_the_start(server):
    server.model("m", dims="-1 9", plan_gate=4)
    server.model("n", dims="-1 9", plan_gate=4)

    def start():
        with pytest.raises(AssertionError):
            server.start()          # it never becomes ready
    thread = threading.Thread(target=start)
    thread.start()
    soon(lambda: getattr(server, "port", None), "it listens")
    server.signal(signal.SIGTERM)
    soon(lambda: server.events("stopping"), "the signal is taken")
    server.open("m", gate="plan")
    server.open("n", gate="plan")
    thread.join()
    assert server.process.wait() == 0
    assert len(server.events("loaded")) == 1 and not server.events("ready")


def test_sigterm_as_soon_as_the_server_is_ready(tmp_path):
    """The thread for loads receives the messages to yield and to end almost at once."""
    status = []
    times = 8 if sanitized() else 40

    def run(folder):
        one = Server(folder)
        for _ in range(times):
            one.start("--workers=1")
            status.append(one.stop())
    # many at once, so that threads that wake have to wait for a CPU
    pool = [threading.Thread(target=run, args=(tmp_path / str(k),)) for k in range(8)]
    for t in pool:
        t.start()
    for t in pool:
        t.join()
    assert status == [0] * 8 * times


def test_not_ready_during_the_grace_time(server):
    server.model("m")
    server.start(config="[server]\ngrace = 3600\n")
    server.signal(signal.SIGTERM)
    soon(lambda: server.get("/v2/health/ready").status == 400, "not ready")
    assert server.get("/v2/health/live").status == 200
    assert server.infer("m", [1, 2, 3, 4]).status == 200
    # a reload is not what ends it: nothing can be awaited, so the state is looked at some times
    server.signal(signal.SIGHUP)
    for _ in range(20):
        assert server.get("/v2/health/live").status == 200
    server.signal(signal.SIGTERM)       # the second one ends the grace time
    soon(lambda: server.process.poll() is not None, "the end")
    assert server.process.returncode == 0


def test_a_drain_that_takes_too_long_cancels(server):
    server.model("m", gate=1)
    server.start(config="[server]\ndrain = 1\n")
    sock = server.connect()
    send(sock, [1, 2, 3, 4])
    soon(lambda: server.metric("pawl_serve_queue_seconds_count", "m") == 1, "the run")
    server.signal(signal.SIGTERM)
    assert sock.recv(1) == b""
    sock.close()
    soon(lambda: server.process.poll() is not None, "the end")
    assert server.process.returncode == 0
    soon(lambda: server.events("drain"), "the line of the log is read")


def test_repository_index_load_unload(server):
    server.model("a")
    server.model("b", refuse="operator Frobnicate is unknown")
    os.makedirs(os.path.join(server.repository, "empty"))
    os.makedirs(os.path.join(server.repository, "bad name", "1"))
    os.makedirs(os.path.join(server.repository.encode(), b"no utf-8 \xff \xc3\xa9", b"1"))
    server.start()

    def index(body=b""):
        return {m["name"]: m for m in server.post("/v2/repository/index", body).json}
    assert {e["folder"] for e in server.events("name")} == {"bad name", "no utf-8 ? \u00e9"}
    models = index()
    assert set(models) == {"a", "b", "empty"}
    assert models["a"]["state"] == "READY" and models["a"]["version"] == "1"
    assert models["b"]["state"] == "UNAVAILABLE" and "Frobnicate" in models["b"]["reason"]
    assert models["empty"]["reason"] == "no folder of a version"
    assert set(index({"ready": True})) == {"a"}
    assert server.post("/v2/repository/models/a/unload").status == 200
    assert server.get("/v2/models/a").status == 404
    assert index()["a"]["state"] == "UNAVAILABLE"
    assert server.post("/v2/repository/models/a/unload").status == 200
    assert server.post("/v2/repository/models/nope/unload").status == 200
    assert server.post("/v2/repository/models/a/load", {}).status == 200
    assert server.infer("a", [1, 2, 3, 4]).status == 200
    answer = server.post("/v2/repository/models/nope/load")
    assert answer.status == 500
    assert answer.error == "failed to load 'nope', failed to poll from model repository"
    assert server.post("/v2/repository/models/..%2F..%2Fx/load").status == 500
    answer = server.post("/v2/repository/models/b/load")
    assert answer.status == 400 and "Frobnicate" in answer.error
    assert server.post("/v2/repository/models/a/load", {"parameters": {"x": 1}}).status == 400
    assert server.post("/v2/repository/models/a/load", "nonsense").status == 400
    # a version that cannot be loaded leaves the one that is served
    server.model("a", 2, refuse="no")
    assert server.post("/v2/repository/models/a/load").status == 400
    assert server.infer("a", [1, 2, 3, 4]).json["model_version"] == "1"


@pytest.mark.parametrize("name", [b"caf\xe9", "café".encode()])
def test_names_of_tensors_are_utf8(pawl, name):
    """Others could be written neither in JSON nor in a message of gRPC."""
    shape = field(1, field(1, 1) + field(2, field(1, field(1, 4))))
    graph = field(1, field(1, name) + field(2, b"y") + field(4, b"Identity"))
    graph += field(11, field(1, name) + field(2, shape)) + field(12, field(1, b"y") +
                                                                 field(2, shape))
    path = os.path.join(pawl.repository, "m/1")
    os.makedirs(path)
    with open(os.path.join(path, "model.onnx"), "wb") as file:
        file.write(field(1, 8) + field(8, field(2, 13)) + field(7, graph))
    pawl.start()
    state = {one["name"]: one for one in pawl.post("/v2/repository/index").json}["m"]
    if name == b"caf\xe9":
        assert state["state"] == "UNAVAILABLE" and "UTF-8" in state["reason"]
    else:
        assert pawl.get("/v2/models/m").json["inputs"][0]["name"] == "café"


@pytest.mark.parametrize("full", [False, True])
def test_the_log_never_blocks(server, full):
    """Standard error is a pipe that nobody reads, or a full device."""
    server.model("m")
    server.model("bad", refuse="x" * 200)
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        server.port = sock.getsockname()[1]
    with open("/dev/full", "wb") as device:
        server.process = subprocess.Popen(
            [SERVER, "--repository", server.repository, f"--port={server.port}",
             "--grpc-port=none"], stderr=device if full else subprocess.PIPE)

    def answers():
        try:
            return server.infer("m", [1, 2, 3, 4]).status == 200
        except OSError:
            return False
    soon(answers, "the model is loaded")
    while not server.metric("pawl_serve_log_dropped_total"):
        assert server.post("/v2/repository/models/bad/load").status == 400
    assert answers()
    assert server.get("/v2/health/live").status == 200
    server.signal(signal.SIGTERM)
    assert server.process.wait(SOON) == 0
    if not full:
        server.process.stderr.close()
    server.process = None


@pytest.mark.parametrize("half", [False, True])
def test_what_arrived_while_the_process_was_stopped_is_answered(server, half):
    server.model("m")
    server.start(config="idle_timeout = 6\nread_timeout = 6\n")
    request = text_request(row([1, 2, 3, 4]))
    cut = 60 if half else 0
    socks, files = connections(server, 300)     # more than one epoll_wait returns
    for sock, file in zip(socks, files):
        sock.sendall(request)
        assert read_answer(file)[0] == 200
        sock.sendall(request[:cut])
    server.signal(signal.SIGSTOP)
    for sock in socks:
        sock.sendall(request[cut:])
    time.sleep(7)
    server.signal(signal.SIGCONT)
    for file in files:
        assert read_answer(file)[0] == 200
    close(socks, files)


def test_sighup_reads_the_repository_again(server):
    server.model("a")
    server.model("gone")
    server.start()
    server.model("a", 2)
    server.model("new")
    os.rename(os.path.join(server.repository, "gone"), os.path.join(server.folder, "gone"))
    server.signal(signal.SIGHUP)
    soon(lambda: server.get("/v2/models/new/ready").status == 200 and
         server.get("/v2/models/a/versions/2/ready").status == 200 and
         server.get("/v2/models/gone/ready").status == 400, "the new state")
    index = {m["name"]: m for m in server.post("/v2/repository/index").json}
    assert "gone" not in index
    assert server.events("unloaded")[0]["why"] == \
        f"the folder {server.repository[:150]}/gone does not exist"


def test_sighup_reads_the_settings_again(server, tmp_path):
    token = tmp_path / "token"
    token.write_text("a;b#" + "c" * 290 + "\n")
    conf = os.path.join(server.folder, "serve.ini")
    server.model("m")
    server.model("n")
    server.start(config=f"token_file = {token}\nmax_body = 100000\n[model m]\nmax_batch = 2\n")

    def status(secret, sock=None, file=None):
        headers = {"Authorization": "Bearer " + secret}
        if sock:                        # the same head again and again
            sock.sendall(b"GET /v2 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " +
                         secret.encode() + b"\r\n\r\n")
            return read_answer(file)[0]
        return server.get("/v2", **headers).status
    first = token.read_text().strip()
    sock = server.connect()
    file = sock.makefile("rb")
    assert status(first) == status(first, sock, file) == status(first, sock, file) == 200
    assert status("a") == status("a;b#") == 401
    token.write_text("second")
    with open(conf, "a", encoding="ascii") as out:
        out.write("weight = 3\n")
    server.signal(signal.SIGHUP)
    soon(lambda: status("second") == 200, "the new token")
    assert status(first) == status(first, sock, file) == 401
    close([sock], [file])
    loaded = soon(lambda: len(server.events("loaded")) == 3 and server.events("loaded"), "m")
    assert loaded[2]["model"] == "m"    # n has the same settings as before
    for change, text in (("port = 1\n", "port cannot be changed"), ("x\n", "line 8: 'x'")):
        with open(conf, encoding="ascii") as old:
            good = old.read()
        with open(conf, "w", encoding="ascii") as out:
            out.write(good.replace("[server]\n", "[server]\n" + change) if "port" in change
                      else good + change)
        server.signal(signal.SIGHUP)
        if "port" not in change:        # an option has precedence
            soon(lambda t=text: any(t in e.get("error", "") for e in server.events("config")), text)
        assert status("second") == 200
        with open(conf, "w", encoding="ascii") as out:
            out.write(good)


def test_sighup_unloads_only_what_does_not_exist(server):
    """A link to nowhere, or in a circle, may be a mount that is absent for a while."""
    server.model("m")
    server.model("gone")
    server.start()
    path = os.path.join(server.repository, "m")
    os.rename(path, os.path.join(server.folder, "m"))
    os.symlink("m", path)               # ELOOP
    shutil.rmtree(os.path.join(server.repository, "gone"))
    server.signal(signal.SIGHUP)
    soon(lambda: server.events("unloaded"), "the scan")
    assert server.infer("m", [1, 2, 3, 4]).status == 200
    assert server.get("/v2/health/ready").status == 200
    assert server.events("repository")[0]["folder"] == path
    assert [e["model"] for e in server.events("unloaded")] == ["gone"]


def test_names_are_freed(server):
    """More names one after the other than a server has at once."""
    server.start()
    for k in range(1100):
        server.model(f"m{k}")
        assert server.post(f"/v2/repository/models/m{k}/load").status == 200
        assert server.post(f"/v2/repository/models/m{k}/unload").status == 200
        shutil.rmtree(os.path.join(server.repository, f"m{k}"))
        if k % 50 == 49:
            server.signal(signal.SIGHUP)
    soon(lambda: server.signal(signal.SIGHUP) or not server.post("/v2/repository/index").json,
         "an empty index")


def test_a_version_has_its_own_statistics(server):
    server.model("m")
    server.start()
    for _ in range(3):
        server.infer("m", [1, 2, 3, 4])
    server.model("m", 2)
    assert server.post("/v2/repository/models/m/load").status == 200
    assert server.stat("m")["version"] == "2" and server.stat("m")["inference_count"] == 0
    assert server.metric("nv_inference_request_success", "m") == 0
    freed = soon(lambda: server.events("freed"), "version 1 is freed")[0]
    assert (freed["version"], freed["requests"], freed["succeeded"]) == ("1", "3", "3")


def versions(server, model="m"):
    return [row["version"] for row in server.post("/v2/repository/index").json
            if row["name"] == model and row["state"] == "READY"]


def call_version(server, number, what):
    return server.post(f"/v2/repository/models/m/versions/{number}/{what}")


def test_versions_are_served_as_the_settings_select_them(server):
    for number in range(1, 5):
        server.model("m", number, add=number)
    server.start(config="[model m]\nversions = latest 2\n")
    config = os.path.join(server.folder, "serve.ini")

    def select(rule, expect):
        with open(config, "w", encoding="ascii") as file:
            file.write("[server]\ngrace = 0\n[model m]\nversions = " + rule + "\n")
        server.signal(signal.SIGHUP)
        soon(lambda: versions(server) == expect, f"{rule}: {expect}")
    assert versions(server) == ["4", "3"]
    assert server.get("/v2/models/m").json["versions"] == ["4", "3"]

    def scaled(number):
        path = f"/v2/models/m/versions/{number}/infer" if number else "/v2/models/m/infer"
        answer = server.post(path, row([0] * 4))
        return answer.json["outputs"][0]["data"][0] if answer.status == 200 else answer.status
    assert [scaled(k) for k in (None, 4, 3, 2)] == [4, 4, 3, 404]
    assert [s["version"] for s in server.get("/v2/models/m/stats").json["model_stats"]] == [
        "4", "3"]
    assert server.get("/v2/models/m/versions/3/stats").json["model_stats"][0][
        "inference_count"] == 1
    # one version, beside those that are selected
    assert call_version(server, 1, "load").status == 200
    assert call_version(server, 4, "unload").status == 200
    assert versions(server) == ["3", "1"] and scaled(None) == 3
    for number in (9, 5):
        if number == 5:
            server.model("m", 5, refuse="broken")
        assert call_version(server, number, "load").status == 400
        assert versions(server) == ["3", "1"]
    shutil.rmtree(os.path.join(server.repository, "m/5"))
    server.signal(signal.SIGHUP)            # 3 and 2 are the latest that no client unloaded
    soon(lambda: versions(server) == ["3", "2", "1"], "the selection, and what a client loaded")
    assert server.post("/v2/repository/models/m/load").status == 200
    assert versions(server) == ["4", "3"]
    select("all", ["4", "3", "2", "1"])
    select("1, 3, 7", ["3", "1"])
    metrics = server.get("/metrics").body.decode()
    for number, ready in ((3, 1), (1, 1), (7, 0)):
        assert f'pawl_serve_version_ready{{model="m",version="{number}"}} {ready}' in metrics
    # a version that fails is replaced by the next older one
    server.model("m", 5, refuse="broken")
    select("latest 2", ["4", "3"])
    assert server.metric("pawl_serve_failed_version", "m") == 1
    for number in (3, 4):
        assert call_version(server, number, "unload").status == 200
    assert scaled(None) == 404


def test_config_pbtxt_is_read(server):
    server.model("m", 1)
    server.model("m", 2)
    path = os.path.join(server.repository, "m", "config.pbtxt")

    def write(text):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    write("""
        name: "m"   # a comment
        platform: 'onnxruntime_onnx'
        max_batch_size: 16;
        dynamic_batching { preferred_batch_size: [ 8, 4 ] preserve_ordering: true,
                           max_queue_delay_microseconds: 100 }
        instance_group [ { count: 2 kind: KIND_CPU }, { count: 1 } ]
        version_policy: < all { } >
        input [ { name: "INPUT0" dims: [ -1 ] } ]
        """)
    server.start(config="[model]\nmax_batch = 4\n[model m]\nmax_delay_us = 7\n")
    config = server.get("/v2/models/m/config").json
    assert config["max_batch_size"] == 16 and config["instance_group"][0]["count"] == 3
    assert config["dynamic_batching"]["preferred_batch_size"] == [4, 8]
    assert config["dynamic_batching"]["max_queue_delay_microseconds"] == 7
    assert versions(server) == ["2", "1"]
    assert server.events("settings")[0]["ignored"] == \
        "platform, dynamic_batching.preserve_ordering, input"
    for text, why in (("max_batch_size 3", "line 1: ':' is missing"),
                      ("max_batch_size: -3", "line 1: '-3' is not good for max_batch_size"),
                      ("\nname: 'n'", "line 2: the name is 'n'"),
                      ("version_policy { latest: 2 } }", "line 1: the name of a field"),
                      ("version_policy { newest { } }", "line 1: '' is not good"),
                      ("input [ { a: 1 ", "a message without its end"),
                      ("a { " * 40, "too many messages"),
                      ("a: 'b", "a string without its end"),
                      ("a: [1, 2", "a list without its end"),
                      ("max_batch_size: 2 dynamic_batching { preferred_batch_size: 4 }",
                       "larger than max_batch")):
        write(text)
        answer = server.post("/v2/repository/models/m/load")
        assert answer.status == 400 and why in answer.error, (text, answer.body)
        assert versions(server) == ["2", "1"]
    write("version_policy { specific { versions: 1 } } max_batch_size: 0")
    assert server.post("/v2/repository/models/m/load").status == 200
    assert versions(server) == ["1"]
    assert server.get("/v2/models/m/config").json["max_batch_size"] == 0


def test_requests_are_in_the_access_log(server):
    server.model("m")
    server.start(config="access_log = 1\n")
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    for model, body in (("m", row([1, 2, 3, 4], id="first")), ("m", {"inputs": []}),
                        ("nope", row([1, 2, 3, 4]))):
        server.post(f"/v2/models/{model}/infer", body, {"traceparent": trace})
    server.post("/v2/models/m/infer", row([1, 2, 3, 4]))
    lines = soon(lambda: len(server.events("access")) == 4 and server.events("access"), "lines")
    assert [(e["id"], e["model"], e["version"], e["status"], e["rows"]) for e in lines] == [
        ("first", "m", "1", "200", "1"), ("", "m", "1", "400", "0"), ("", "nope", "0", "404", "0"),
        ("", "m", "1", "200", "1")]
    assert [e["traceparent"] for e in lines] == [trace, trace, trace, ""]
    assert all(e["client"].startswith("127.0.0.1:") and e["protocol"] == "http" for e in lines)
    assert 0 < int(lines[0]["compute_us"]) <= int(lines[0]["total_us"])
    # one in so many; SIGHUP changes it
    with open(os.path.join(server.folder, "serve.ini"), "w", encoding="ascii") as file:
        file.write("[server]\ngrace = 0\naccess_log = 5\n")
    server.signal(signal.SIGHUP)
    soon(lambda: server.events("config"), "the settings")
    for _ in range(20):
        server.infer("m", [1, 2, 3, 4])
    server.stop()
    assert len(server.events("access")) == 8


def test_statistics_and_metrics_add_up(server):
    server.model("m")
    server.start("--io-threads=2")
    for i in range(20):
        server.infer("m", [[i] * 4] * (1 + i % 2))
    server.infer("m", [1, 2, 3, 4], name="X")
    stat = server.stat("m")
    assert stat["inference_count"] == 30 and stat["execution_count"] == 20
    assert stat["inference_stats"]["success"]["count"] == 20
    assert {b["batch_size"]: b["compute_infer"]["count"] for b in stat["batch_stats"]} == \
        {1: 10, 2: 10}
    assert abs(stat["last_inference"] / 1000 - time.time()) < SOON
    assert [m["name"] for m in server.get("/v2/models/stats").json["model_stats"]] == ["m"]
    assert server.metric("nv_inference_count", "m") == 30
    assert server.metric("nv_inference_request_success", "m") == 20
    assert server.metric("nv_inference_exec_count", "m") == 20
    assert server.metric("pawl_serve_request_seconds_count", "m") == 20
    assert server.metric("pawl_serve_compute_seconds_count", "m") == 20
    text = server.get("/metrics").body.decode()
    assert 'pawl_serve_queue_seconds_bucket{model="m",version="1",le="+Inf"} 20' in text
    assert "pawl_ops_" in text or "pawl_" in text


@pytest.mark.parametrize("sockets", [1, 2])
def test_systemd_notification_and_socket(tmp_path, server, sockets):
    server.model("m")
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind(str(tmp_path / "notify"))
    notify.settimeout(SOON)
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    port, grpc_port = (one.getsockname()[1] for one in listeners)

    # as systemd does: the sockets are descriptors 3 and 4, and the process's number is in a
    # variable
    def child():
        # copies above both numbers, which may be in use by the originals
        copies = [fcntl.fcntl(one, fcntl.F_DUPFD, 10) for one in
                  listeners[:sockets]]
        for i, copy in enumerate(copies):
            os.dup2(copy, 3 + i)
    server.process = subprocess.Popen(
        ["/bin/sh", "-c", f'LISTEN_PID=$$ LISTEN_FDS={sockets} exec "$@"', "sh", SERVER,
         "--repository", server.repository, "--io-threads", "2"], preexec_fn=child,
        pass_fds=(3, 4)[:sockets], stderr=subprocess.PIPE, text=True,
        env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")})
    server.reader = threading.Thread(target=lambda: server.lines.extend(server.process.stderr))
    server.reader.start()
    assert notify.recv(100) == b"READY=1"
    for one in listeners:
        one.close()
    server.port = port
    with socket.socket() as sock:
        # with one socket there is no gRPC
        sock.settimeout(SOON)
        if sockets == 1:
            assert sock.connect_ex(("127.0.0.1", grpc_port))
        else:
            sock.connect(("127.0.0.1", grpc_port))
            sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
            assert sock.recv(9)[3] == 4         # SETTINGS
    for _ in range(10):
        assert server.infer("m", [1, 2, 3, 4]).status == 200
    server.signal(signal.SIGTERM)
    assert notify.recv(100) == b"STOPPING=1"
    notify.close()


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_units_are_valid(tmp_path):
    for name in ("pawl-serve.service", "pawl-serve.socket"):
        with open(os.path.join(UNITS, name), encoding="ascii") as file:
            text = file.read()
        # the program is not installed
        (tmp_path / name).write_text(text.replace("/usr/bin/pawl serve", SERVER))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no",
                           *(str(path) for path in tmp_path.iterdir())],
                          capture_output=True, text=True, timeout=SOON, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr


@pytest.mark.skipif(not shutil.which("systemd-socket-activate"),
                    reason="systemd is not installed")
def test_activation_by_systemd(server):
    server.model("m")
    with socket.create_server(("127.0.0.1", 0)) as sock:
        server.port = sock.getsockname()[1]
    server.process = subprocess.Popen(
        ["systemd-socket-activate", "--listen", f"127.0.0.1:{server.port}", SERVER,
         "--repository", server.repository, "--io-threads=2"], stderr=subprocess.PIPE, text=True)
    server.reader = threading.Thread(target=lambda: server.lines.extend(server.process.stderr))
    server.reader.start()

    def connected():
        with socket.socket() as sock:
            return not sock.connect_ex(("127.0.0.1", server.port))
    # the first connection starts the server, and waits until it has
    soon(connected, "systemd listens")
    # until the models are loaded
    assert server.infer("m", [1, 2, 3, 4]).status in (200, 503)
    soon(lambda: server.get("/v2/health/ready").status == 200, "ready")
    for _ in range(10):
        assert server.infer("m", [1, 2, 3, 4]).status == 200
    server.signal(signal.SIGTERM)
    soon(lambda: server.process.poll() is not None, "the end")
    assert server.process.returncode == 0
    server.lines = [{"level": "info", "event": line} for line in server.lines]


def test_options_and_the_file_are_checked(tmp_path):
    def run(*args, config=None):
        if config is not None:
            (tmp_path / "c.ini").write_text(config)
            args = ("-r", "x", "-c", str(tmp_path / "c.ini")) + args
        done = subprocess.run([SERVER, *args], capture_output=True, text=True, timeout=SOON,
                              check=False)
        return done.returncode, done.stdout, done.stderr
    assert run("--help")[0] == 0 and "--repository" in run("-h")[1]
    assert run() == (2, "", "pawl serve: --repository is missing\n")
    assert run("x")[0] == run("--nope")[0] == 2
    assert run("-r", "x", "-p", "65536")[2] == "pawl serve: '65536' is not good for --port\n"
    assert run("-r", "x", "-i", "0")[0] == 2
    assert run("-r", "x", "-c", str(tmp_path / "nope"))[0] == 2
    for config, text in (
            ("[nope]\na = 1\n", "no section is named [nope]"),
            ("[server]\nnope = 1\n", "[server] has no key 'nope'"),
            ("[server]\nport = x\n", "'x' is not good for port"),
            ("[model]\npreferred_batches = 4, 2\n", "'4, 2' is not good for preferred_batches"),
            ("[model a]\npreferred_batches = 4, 200\n", "larger than max_batch"),
            ("[model a]\nweight = 0\n", "'0' is not good for weight"),
            ("nonsense\n", "line 1: 'nonsense' has no '='"),
            ("\n# comment\nport = 1\n", "line 3: 'port' is not in a section"),
            ("[server]\nport = 1\n[server]\nport = 2\n", "line 4: [server] has port twice"),
            ("[model a]\nweight = 1\n[model b]\n[model a]\nweight = 2\n",
             "line 5: [model a] has weight twice"),
            ("[server]\ntoken = secret\n  idle_timeout = 5\n", "line 3: the line begins with"),
            ("[model]\npreferred_batches = 2,\n  4\n", "line 3"),
            ("[empty]\n", "line 1: no section is named [empty]"),
            ("[model a]\n[model]\n", "line 2: [model] has to be above"),
            ("[server\nport = 1\n", "line 1: '[server' is not a section"),
            ("[server]\nport = 1 ; a comment\n", "'1 ; a comment' is not good for port"),
            ("[server]\ntoken = two words\n", "the token has to be one word"),
            ("[server]\ntoken = " + "x" * 301 + "\n", "the token has to be one word"),
            ("[server]\ntoken_file = /nonexistent\n", "/nonexistent: No such file"),
            ("[server]\ntoken = a\ntoken_file = b\n", "exclude each other"),
            ("[server]\nadmin_token = a\n", "an admin_token needs --admin"),
            ("[server]\nadmin = localhost\n", "'localhost' is not good for admin"),
            ("[server]\ncontrol = maybe\n", "'maybe' is not good for control"),
            ("[server]\nhost = " + "x" * 5000 + "\nnope = 1\n", "line 3: [server] has no key")):
        status, _, err = run(config=config)
        assert status == 2 and text in err, (config, err)
    # a port that another process has, although it, too, shares its port among threads
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        status, _, err = run("-r", str(tmp_path), "-p", str(other.getsockname()[1]))
        assert status == 1 and "Address already in use" in err
    assert run("-r", str(tmp_path), "-H", "not-an-address")[0] == 1
    status, _, err = run("-r", str(tmp_path), "-p", "0", "--admin=0.0.0.0:0")
    assert status == 1 and "without an admin_token" in err


class Admin(http.client.HTTPConnection):
    """A client of the administrator's address, as the log names it."""

    def __init__(self, server):
        super().__init__("localhost", timeout=SOON)
        self.address = server.events("listening")[0]["admin"]

    def connect(self):
        if self.address.startswith("unix:"):
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(SOON)
            self.sock.connect(self.address[5:])
        else:
            host, port = self.address.rsplit(":", 1)
            self.sock = socket.create_connection((host, int(port)), SOON)

    def ask(self, method, path, token=None):
        self.request(method, path, headers={"Authorization": "Bearer " + token} if token else {})
        return Answer(self.getresponse())


@pytest.mark.parametrize("admin", ["127.0.0.1:0", "unix:"])
def test_the_administrator_has_an_address_of_its_own(server, tmp_path, admin):
    server.model("m")
    server.start("--admin", admin + (str(tmp_path / "admin") if admin == "unix:" else ""),
                 config="token = client\nadmin_token = root\n")
    one = Admin(server)
    client = {"Authorization": "Bearer client"}
    for path in ("/v2/repository/models/m/load", "/v2/repository/models/m/unload",
                 "/v2/trace/start"):
        assert server.post(path, headers=client).status == 403, path
        assert one.ask("POST", path).status == one.ask("POST", path, "client").status == 401
    assert server.get("/metrics", **client).status == server.get("/").status == 403
    assert server.post("/v2/repository/index", headers=client).status == 200
    for ask in (one.ask("GET", "/v2/health/ready"), server.get("/v2/health/ready"),
                one.ask("GET", "/metrics", "root"),
                one.ask("POST", "/v2/repository/models/m/load", "root")):
        assert ask.status == 200
    assert server.get("/v2/models/m", Authorization="Bearer root").status == 401
    one.close()
    server.stop()
    assert not os.path.exists(tmp_path / "admin")


def test_the_administrator_is_answered_beside_too_many_clients(server):
    server.model("m")
    server.start("--admin=127.0.0.1:0", preexec_fn=lambda: resource.setrlimit(
        resource.RLIMIT_NOFILE, (64, 64)))
    held = [server.connect() for _ in range(64)]

    def status(sock):
        try:
            sock.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
            return (read_answer(sock.makefile("rb")) or (503,))[0]
        except ConnectionError:     # the server closed it behind its 503
            return 503
    assert {status(sock) for sock in held} == {200, 503}
    for _ in range(3):
        one = Admin(server)
        assert one.ask("GET", "/metrics").status == 200
        assert one.ask("POST", "/v2/repository/models/m/load").status == 200
        held.append(one)


def test_control_is_off_where_others_reach_it(server):
    """But for --admin, it is at the address for inference, if that is the loopback device."""
    server.model("m")
    server.start("--host=0.0.0.0")
    assert server.infer("m", [1, 2, 3, 4]).status == 200
    assert server.get("/metrics").status == 200
    refused = server.post("/v2/repository/models/m/unload")
    assert refused.status == 403 and "--admin" in refused.error
    server.stop()
    server.lines.clear()
    server.start("--host=0.0.0.0", config="control = on\n")
    assert server.post("/v2/repository/models/m/unload").status == 200


@pytest.mark.parametrize("stage", range(6))
def test_connections_that_break_at_any_stage(server, stage):
    server.model("m", layers=3, sleep_us=300)
    server.start("--io-threads=2")
    request = text_request(row([1, 2, 3, 4], id="x" * 3000))
    cut = [0, 1, 60, len(request) - 1, len(request), len(request)][stage]
    for k in range(60):
        sock = server.connect()
        sock.sendall(request[:cut])
        if stage == 5:
            sock.recv(1)
        if k % 2:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                            b"\1\0\0\0\0\0\0\0")    # a reset
        sock.close()
    assert server.infer("m", [1, 2, 3, 4]).status == 200
    stat = soon(lambda: server.metric("nv_inference_pending_request_count", "m") == 0 and
                server.stat("m"), "an empty queue")
    assert stat["inference_stats"]["success"]["count"] >= 1
