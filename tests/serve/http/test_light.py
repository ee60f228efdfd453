# SPDX-License-Identifier: Apache-2.0
"""Light runs: the first loop executes short runs itself, without a worker."""
import itertools
import os
import threading

import pytest

from conftest import SOON, read_answer, row, sanitized, soon, text_request


class Client:
    """One connection."""
    def __init__(self, server):
        self.sock = server.connect()
        self.file = self.sock.makefile("rb")

    def infer(self, model, values=(1, 2, 3, 4), **more):
        self.sock.sendall(text_request(row(list(values), **more), f"/v2/models/{model}/infer"))
        return read_answer(self.file)

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.file.close()
        self.sock.close()


def light(server, model):
    return server.metric("pawl_serve_light_total", model)


def ran_light(server, client, model):
    """Send one more request; return whether its run was light."""
    before = light(server, model)
    assert client.infer(model)[0] == 200
    return light(server, model) > before


def make_light(server, client, model):
    """
    Send requests until the model's slot is light.  It stays light for at least the next 6 runs,
    even if they are slow because the machine is busy.
    """
    if sanitized():
        pytest.skip("a sanitizer's server has few runs of 20 us")
    def becomes_light():
        if ran_light(server, client, model):
            return True
        # the next runs that are measured, if those so far were interrupted
        for _ in range(200):
            assert client.infer(model)[0] == 200
        return ran_light(server, client, model)
    soon(becomes_light, "a light run")


def brake(server, model, on):
    path = os.path.join(server.repository, model, "1", "slow")
    if on:
        with open(path, "w", encoding="ascii"):
            pass
    else:
        os.unlink(path)


def test_light_runs_need_no_worker(server):
    server.model("light")
    server.model("heavy", gate=1)
    server.start("--workers=1")
    with Client(server) as client:
        make_light(server, client, "light")
        # more than can be in flight
        answers = []
        pool = [threading.Thread(target=lambda: answers.append(
            server.infer("heavy", [1, 2, 3, 4]).status)) for _ in range(4)]
        for t in pool:
            t.start()
        soon(lambda: server.metric("pawl_serve_submitted_total", "heavy") == 4, "requests")
        for k in range(5):
            before = light(server, "light")
            status, _, body = client.infer("light", [k, k, k, k])
            assert status == 200 and f"[{k}.0,{k}.0,{k}.0,{k}.0]" in body.decode()
            assert light(server, "light") == before + 1
        assert not answers and light(server, "heavy") == 0
        server.open("heavy")
        for t in pool:
            t.join(SOON)
        assert answers == [200] * 4


def test_a_slot_that_becomes_slow_moves_to_the_workers_and_back(server):
    server.model("m", brake=1)
    server.start("--workers=1")
    with Client(server) as client:
        make_light(server, client, "m")
        brake(server, "m", True)
        soon(lambda: not ran_light(server, client, "m"), "a run on the worker")
        before = light(server, "m")
        for _ in range(20):
            assert client.infer("m")[0] == 200
        assert light(server, "m") == before
        # it is measured again once in a thousand runs
        brake(server, "m", False)

        def again():
            for _ in range(100):
                assert client.infer("m")[0] == 200
            return light(server, "m") > before
        soon(again, "a light run")


def test_each_number_of_rows_is_measured(server):
    """Both slots become light, also that of a batch of several requests."""
    server.model("m", add=1)
    server.start("--workers=1", config="[model m]\npreferred_batches = 2\n")
    with Client(server) as client:
        make_light(server, client, "m")

        def pair():
            before = light(server, "m")
            answer = server.infer("m", [[1, 2, 3, 4], [5, 6, 7, 8]])
            assert answer.status == 200
            assert answer.json["outputs"][0]["data"] == [2, 3, 4, 5, 6, 7, 8, 9]
            return light(server, "m") > before
        soon(pair, "a light run of two rows")
    stat = server.stat("m")
    assert light(server, "m") < stat["execution_count"]


def test_errors_and_deadlines_of_light_runs(server):
    server.model("m", brake=1, layers=3, largest=99)
    server.start("--workers=1")
    with Client(server) as client:
        make_light(server, client, "m")
        assert client.infer("m", [100, 0, 0, 0])[0] == 400
        assert client.infer("m")[0] == 200
        brake(server, "m", True)
        # 3 layers of a millisecond: the deadline passes before the last one, or in the queue
        status, _, body = client.infer("m", parameters={"timeout": 1500})
        assert status == 503 and b"Request timeout expired" in body
        brake(server, "m", False)
        before = light(server, "m")
        status, _, body = client.infer("m", [1, 2, 3, 4])
        assert status == 200 and b"[1.0,2.0,3.0,4.0]" in body
        assert light(server, "m") == before + 1
    stat = server.stat("m")["inference_stats"]
    assert stat["fail"]["count"] == 2


def test_statistics_of_light_runs(server):
    server.model("m")
    server.start("--workers=1")
    with Client(server) as client:
        make_light(server, client, "m")
        for _ in range(200):
            assert client.infer("m")[0] == 200
    stat = server.stat("m")
    n = stat["inference_count"]
    assert n > 200 and stat["execution_count"] == n
    for name in ("success", "queue", "compute_input", "compute_infer", "compute_output"):
        assert stat["inference_stats"][name]["count"] == n
        assert stat["inference_stats"][name]["ns"] < SOON * 1e9
    assert server.metric("pawl_serve_compute_seconds_count", "m") == n
    assert server.metric("nv_inference_exec_count", "m") == n
    text = server.get("/metrics").body.decode()
    assert 'name="serve"' in text and 'name="light"' in text


def test_layers_and_traces_of_light_runs(server):
    server.model("m", layers=3)
    server.start("--workers=1")
    with Client(server) as client:
        make_light(server, client, "m")
        before = light(server, "m")
        answer = client.infer("m", parameters={"layers": True})
        assert answer[0] == 200 and answer[2].count(b"begin_us") == 3
        start = server.post("/v2/trace/start")
        if start.status == 400 and "CONFIG_TRACE" in start.error:
            pytest.skip(start.error)
        for _ in range(4):
            assert client.infer("m")[0] == 200
        assert light(server, "m") == before + 5
    events = server.post("/v2/trace/stop").json["traceEvents"]
    ops = [e for e in events if e.get("cat") == "op" and e["name"] == "fake"]
    assert len(ops) == 4 * 3 and all(e["pid"] == 3 for e in ops)
    # both ends of an arrow have the same number, which no other arrow has
    ends = sorted((e["id"], e["ph"]) for e in events if e.get("cat") == "dep")
    assert ends and ends == sorted((n, ph) for n in {n for n, _ in ends} for ph in "sf")
    begins = [e for e in events if e.get("cat") == "request" and e["name"] == "run" and
              e["ph"] == "b"]
    last = {e["id"]: e["ts"] for e in events if e.get("cat") == "request" and
            e["name"] == "run" and e["ph"] == "e"}
    assert len(begins) == 4
    for run in begins:
        # all events use one clock; the file has microseconds with three digits
        assert sum(e["ts"] >= run["ts"] - 0.002 and
                   e["ts"] + e["dur"] <= last[run["id"]] + 0.002 for e in ops) == 3


@pytest.mark.parametrize("loops", [1, 2])
def test_swaps_and_cancels_with_light_runs(server, loops):
    """Light and long runs, swaps of versions, and clients that disconnect, all at once."""
    server.model("m", add=1)
    server.model("heavy", sleep_us=2000)
    server.start("--workers=1", f"--io-threads={loops}")
    end = threading.Event()
    wrong = []
    answers = itertools.count()

    def steady():
        with Client(server) as client:
            while not end.is_set():
                status, _, body = client.infer("m", [0, 0, 0, 0])
                next(answers)
                version = body.split(b'"model_version":"')[1].split(b'"')[0].decode()
                if status != 200 or f"[{version}.0," not in body.decode():
                    wrong.append(body)

    def leaving():
        while not end.is_set():
            with server.connect() as sock:
                sock.sendall(text_request(row([0, 0, 0, 0])))
    pool = [threading.Thread(target=f) for f in (steady, steady, steady, steady, leaving)]
    for t in pool:
        t.start()
    for version in range(2, 6):
        # on a machine whose CPUs are all in use few runs are short enough
        count, most = light(server, "m"), next(answers) + 500
        soon(lambda n=count, m=most: light(server, "m") > n + 50 or next(answers) > m, "runs")
        for _ in range(3):
            assert server.infer("heavy", [1, 2, 3, 4]).status == 200
        server.model("m", version, add=version)
        assert server.post("/v2/repository/models/m/load").status == 200
        soon(lambda n=version: len(server.events("freed")) == n - 1, "the old version is freed")
    end.set()
    for t in pool:
        t.join(SOON)
    assert not wrong

    def all_ended():
        return server.metric("pawl_serve_submitted_total", "m") == sum(
            server.metric(name, "m") for name in (
                "nv_inference_request_success", "nv_inference_request_failure",
                "pawl_serve_canceled_total"))
    soon(all_ended, "each request has ended")
    assert server.metric("nv_inference_request_failure", "m") == 0
    # no time is negative
    assert server.metric("pawl_serve_queue_seconds_sum", "m") < 1e6
