# SPDX-License-Identifier: Apache-2.0
"""pawl load over gRPC.  The schedule and the report are the same as over HTTP: test_load.py."""
import json
import socket
import struct

import pytest

from test_load import CLOSED, COUNT, OPEN, load, one_run, pawl_serve  # noqa: F401

pytest.importorskip("h2")
import grpc_server      # noqa: E402


@pytest.fixture(scope="module")
def shared():
    return grpc_server.Server()


@pytest.fixture
def server(shared):
    shared.fresh()
    shared.url = f"grpc://127.0.0.1:{shared.port}"
    yield shared
    assert not shared.errors


def run_of(server, *options, **more):
    return one_run(server, *options, url=server.url, **more)


@pytest.mark.parametrize("loop", [OPEN, ("--rate=200",), CLOSED, OPEN + ("--threads=3",),
                                  ("--concurrency=7", "--threads=3", "--connections=3")])
@pytest.mark.parametrize("model", ["good", "split"])
def test_requests(server, loop, model):
    run = run_of(server, f"--model={model}", "--check", *loop, *COUNT)
    assert run["due"] == run["answered"] == run["good"] == len(server.requests) == 40
    assert run["status"] == {"0": 40}


def test_large_answers(server):
    """More than the windows of flow control."""
    assert run_of(server, "--model=large", "--check", *CLOSED, "--requests=12",
                  "--warmup=0")["good"] == 12


def test_large_requests(server):
    server.inputs = {"X": ("FP32", (-1, 1 << 18))}
    assert run_of(server, "--model=good", "--check", *CLOSED, "--requests=6",
                  "--warmup=0")["good"] == 6
    assert {len(request[7][0]) for _, _, request in server.requests} == {1 << 20}


def test_calls_of_one_connection(server):
    run = run_of(server, "--model=together", "--check", "--concurrency=4", "--connections=1",
                 *COUNT)
    assert run["good"] == 40 and server.most == 4
    assert run["client"]["connections_opened"] == 1
    assert run["client"]["waited_for_connection"] == 0


def test_limit_of_streams(server):
    """Calls above the limit wait."""
    server.streams = 2
    for loop in (("--concurrency=8", "--requests=200"), ("--rate=20000", "--requests=2000")):
        run = run_of(server, "--model=good", "--check", "--connections=1", "--warmup=0", *loop)
        assert run["good"] == run["due"] and run["client"]["waited_for_connection"]
        assert any("raise --connections" in note for note in run["notes"])
    assert server.most == 2


@pytest.mark.parametrize("model, what, why", [
    ("failing", "failed", "status 13: the model failed"), ("http", "failed", "status 415"),
    ("words", "failed", "status 2"),
    ("close", "lost", "closed the connection before the answer"),
    ("junk", "lost", ""), ("reset", "lost", "INTERNAL_ERROR"),
    ("empty", "lost", "not a message"), ("half", "lost", "not a message"),
    ("silent", "lost", "without a status"), ("hang", "timed_out", "--wait")])
@pytest.mark.parametrize("loop", [OPEN, CLOSED])
def test_failures(server, model, what, why, loop):
    # the description of the model has to arrive in that time, too
    wait = ["--wait=1s"] if model == "hang" else []
    out, err = load(server, f"--model={model}", *wait, "--output-json=-", *loop, *COUNT,
                    status=1, url=server.url)
    run = json.loads(out)["runs"][0]
    assert run[what] + run["timed_out"] >= 40 and not run["answered"]
    assert "no request of a run was answered" in err
    if what != "timed_out" and not run["timed_out"]:
        assert why in run["notes"][-1]


@pytest.mark.parametrize("loop", [OPEN, CLOSED])
def test_garbage_ends_the_connection(server, loop):
    """The requests do not wait for the end of --wait."""
    out, _ = load(server, "--model=noise", "--wait=300s", "--output-json=-", *loop, *COUNT,
                  status=1, url=server.url)
    assert json.loads(out)["runs"][0]["lost"] == 40


def test_requests_that_become_due_while_a_connection_ends(server):
    """They start at once, although no event of the connection follows."""
    out, _ = load(server, "--model=noise", "--wait=300s", "--output-json=-", "--rate=1000",
                  "--arrivals=constant", "--connections=1", "--requests=200", "--warmup=0",
                  status=1, url=server.url)
    assert json.loads(out)["runs"][0]["lost"] == 200


@pytest.mark.parametrize("model, code", [("full", "8"), ("unavailable", "14"),
                                         ("refused", "14"), ("proxy", "14")])
def test_refusals(server, model, code):
    run = run_of(server, f"--model={model}", *OPEN, *COUNT, status=1)
    assert run["refused"] == 40 and run["refusal_latency"]["max_ms"] > 0
    assert run["status"] == {code: 40}


def test_check(server):
    run = run_of(server, "--model=some", *CLOSED, *COUNT)
    assert run["due"] == 40 and all(run[key] for key in ("good", "refused", "failed", "lost"))
    load(server, "--model=some", "--check", *CLOSED, *COUNT, status=1, url=server.url)


def test_connections_that_end(server):
    """Each announces its end and finishes its calls; others take its place."""
    run = run_of(server, "--model=goaway", "--check", "--concurrency=1", "--requests=95",
                 "--warmup=0")
    assert run["good"] == 95
    # two connections before the run: is there a server, and what are the model's inputs
    assert server.connections == 2 + run["client"]["connections_opened"] == 12


def test_connections_that_age(server):
    """Many connections end their calls while one is open for the next ones."""
    run = run_of(server, "--model=aging", "--check", "--connections=1", "--rate=200",
                 "--arrivals=constant", "--requests=200", "--warmup=0")
    assert run["good"] == 200 and run["client"]["connections_opened"] >= 5


def test_timed_out_calls_are_canceled(server):
    run = run_of(server, "--model=hang", "--wait=1s", "--connections=2", *OPEN, *COUNT,
                 status=1)
    assert run["timed_out"] == 40
    # the connections stay open
    assert run["client"]["connections_opened"] <= 2


def test_message(server):
    server.inputs = {"X": ("FP32", (-1, 2)), "S": ("BYTES", (2,)), "N": ("INT8", (3,))}
    run_of(server, "--model=good/7", "--batch=3", "--timeout=20", "--priority=2",
           "--header=Authorization: Bearer x", "--header=A:b", "--requests=1", "--warmup=0",
           "--check")
    name, headers, request = server.requests[0]
    assert name == "good" and request[2] == [b"7"]
    assert headers["authorization"] == "Bearer x" and headers["a"] == "b"
    assert headers["te"] == "trailers" and headers["content-type"] == "application/grpc"
    assert headers[":authority"] == f"127.0.0.1:{server.port}"
    inputs = [grpc_server.decode(one) for one in request[5]]
    assert [(one[1], one[2], one[3]) for one in inputs] == [
        ([b"X"], [b"FP32"], [b"\3\2"]), ([b"S"], [b"BYTES"], [b"\2"]),
        ([b"N"], [b"INT8"], [b"\3"])]
    assert [len(raw) for raw in request[7]] == [24, 8, 3]
    assert all(0 <= x < 1 for x in struct.unpack("<6f", request[7][0]))
    values = {}
    for one in request[4]:
        entry = grpc_server.decode(one)
        values[entry[1][0]] = grpc_server.decode(entry[2][0])
    assert values == {b"timeout": {2: [20000]}, b"priority": {2: [2]}}


def test_no_server(server):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert "no answer" in load(server, "--model=good", "--wait=100ms",
                                   url=f"grpc://127.0.0.1:{port}", status=1)[1]
    assert "refused" in load(server, "--model=good", url=f"grpc://127.0.0.1:{port}",
                             status=1)[1]
    assert "unknown model" in load(server, "--model=nope", status=1, url=server.url)[1]


@pytest.mark.parametrize("options", [
    ["--url=grpc://"], ["--url=grpc://a/b"], ["--json"], ["--threads=17", "--rate=1"],
    ["--rate=1", "--connections=10001"],
    ["--concurrency=9", "--connections=2", "--threads=3"]])
def test_command_line(server, options):
    out, err = load(server, "--model=a", *options, status=2, url=server.url)
    assert not out and err.startswith("pawl load: ")


@pytest.mark.parametrize("loop", [("--rate=200",), ("--concurrency=300", "--connections=2",
                                                    "--threads=2")])
def test_pawl_serve(pawl_serve, loop):      # noqa: F811
    run = one_run(None, "--model=digits", "--check", "--batch=3", *loop, "--requests=600",
                  "--warmup=50ms", url=f"grpc://{pawl_serve.grpc}")
    assert run["good"] == run["due"] == 600
