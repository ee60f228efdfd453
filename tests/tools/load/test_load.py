# SPDX-License-Identifier: Apache-2.0
"""pawl load: what it sends, what it counts, and that its latencies contain every delay."""
import base64
import collections
import itertools
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import time
import types

import pytest

from server import STALL, Server

PAWL = os.environ["PAWL"]
TOP = os.path.join(os.path.dirname(__file__), "..", "..", "..")
SUM = ("answered", "refused", "failed", "lost", "timed_out", "open")


@pytest.fixture(scope="module")
def server():
    return Server()


@pytest.fixture(autouse=True)
def fresh(server):
    server.inputs = {"INPUT0": ("FP32", [-1, 4])}
    server.requests.clear()
    server.arrivals.clear()
    server.stalled = False


def load(server, *options, status=0, url=None):
    """Run it.  Returns the standard output and the standard error."""
    url = url or f"127.0.0.1:{server.port}"
    run = subprocess.run([PAWL, "load", "--url", url, *options],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert run.returncode == status, (run.returncode, run.stdout, run.stderr)
    return run.stdout, run.stderr


def runs(server, *options, **more):
    """The runs of the JSON report, after a check that they are consistent."""
    out, _ = load(server, "--output-json=-", *options, **more)
    report = json.loads(out)["runs"]
    for one in report:
        assert one["due"] == sum(one[key] for key in SUM)
        assert one["answered"] == one["good"] + one["late"] == one["latency"]["count"]
        assert one["refused"] == one["refusal_latency"]["count"]
        for key in ("latency", "refusal_latency", "lag"):
            if key in one and one[key]["count"]:
                hist = one[key]
                values = [level["ms"] for level in hist["percentiles"]]
                assert values == sorted(values)
                assert all(hist["min_ms"] <= v <= hist["max_ms"] for v in values)
                assert hist["min_ms"] <= hist["mean_ms"] <= hist["max_ms"]
                for level in hist["percentiles"]:
                    above = hist["count"] * (1 - level["percentile"] / 100)
                    assert -1e-6 < above - level["beyond"] < 1 + 1e-6
    return report


def one_run(server, *options, **more):
    report = runs(server, *options, **more)
    assert len(report) == 1
    return report[0]


OPEN = ("--rate=200", "--arrivals=constant")
CLOSED = ("--concurrency=3",)
COUNT = ("--requests=40", "--warmup=0")


@pytest.mark.parametrize("loop", [OPEN, ("--rate=200",), CLOSED, OPEN + ("--threads=3",),
                                  ("--concurrency=7", "--threads=3")])
def test_requests(server, loop):
    run = one_run(server, "--model=good", "--check", *loop, *COUNT)
    assert run["due"] == run["answered"] == run["good"] == len(server.requests) == 40
    assert run["status"] == {"200": 40}
    assert run["throughput"] > 0 and run["goodput"] == run["throughput"]


@pytest.mark.parametrize("model", ["last", "endless", "split", "chunked", "interim", "more",
                                   "large"])
@pytest.mark.parametrize("loop", [OPEN, CLOSED])
def test_unusual_answers(server, model, loop):
    assert one_run(server, f"--model={model}", "--check", *loop, *COUNT)["good"] == 40


@pytest.mark.parametrize("model, what, why", [
    ("failing", "failed", 'status 500: {"error":"the model failed"}'),
    ("close", "lost", "closed the connection before the answer"),
    ("reset", "lost", "reset"), ("half", "lost", "inside an answer"), ("junk", "lost", ""),
    ("hang", "timed_out", "--wait")])
@pytest.mark.parametrize("loop", [OPEN, CLOSED])
def test_failures(server, model, what, why, loop):
    # the description of the model has to arrive in that time, too
    wait = ["--wait=1s"] if model == "hang" else []
    out, err = load(server, f"--model={model}", *wait, "--output-json=-", *loop, *COUNT, status=1)
    run = json.loads(out)["runs"][0]
    # beside these, a busy machine may let a request time out
    assert run[what] + run["timed_out"] >= 40 and not run["answered"]
    assert "no request of a run was answered" in err
    if what != "timed_out" and not run["timed_out"]:
        assert why in run["notes"][-1]


def test_refusals(server):
    run = one_run(server, "--model=full", *OPEN, *COUNT, status=1)
    assert run["refused"] == 40 and run["refusal_latency"]["max_ms"] > 0
    assert run["latency"]["percentiles"] == []


def test_check(server):
    run = one_run(server, "--model=some", *CLOSED, *COUNT)
    assert run["due"] == 40 and all(run[key] for key in ("good", "refused", "failed", "lost"))
    load(server, "--model=some", "--check", *CLOSED, *COUNT, status=1)


def test_late(server):
    run = one_run(server, "--model=slow", "--limit=40ms", *CLOSED, *COUNT)
    assert run["late"] == 40 and run["goodput"] == 0 and run["throughput"] > 0
    assert run["latency"]["min_ms"] >= 50
    assert one_run(server, "--model=slow", "--limit=1000s", *CLOSED, *COUNT)["good"] == 40


def test_latency_from_the_intended_start(server):
    """Requests that were due while the server stalled have waited since then."""
    run = one_run(server, "--model=stall", "--connections=1", *OPEN, "--requests=100",
                  "--warmup=0")
    assert server.stalled
    # the last one is due 0.45 s after the stall began
    assert run["latency"]["percentiles"][0]["ms"] >= (STALL - 0.5) * 1000
    assert run["client"]["waited_for_connection"] >= 80
    assert any("raise --connections" in note for note in run["notes"])


def test_schedule(server):
    options = ("--model=good", "--rate=500", "--duration=400ms", "--warmup=100ms")
    once, again, other = (one_run(server, *options, f"--seed={seed}")["due"]
                          for seed in (7, 7, 8))
    assert once == again and 100 < once < 300 and 100 < other < 300
    assert one_run(server, *options, "--arrivals=constant")["due"] in (199, 200, 201)


def test_threads_have_arrivals_of_their_own(server):
    """With the arrivals of one another, both threads would have as many due in any time."""
    equal = 0
    for seed in range(8):
        before = len(server.arrivals)
        one_run(server, "--model=good", "--rate=2000", "--threads=2", "--connections=2",
                "--duration=150ms", "--warmup=0", f"--seed={seed}")
        due = collections.Counter(sock for sock, _ in server.arrivals[before:])
        equal += len(due) == 2 and len(set(due.values())) == 1
    # by chance one of 25 runs has them
    assert equal < 4


NUMBERS = itertools.count()


def own(model):
    """A name of the model that no other test uses: requests of an earlier one may still arrive."""
    return f"{model}-{next(NUMBERS)}"


def arrived(server, name):
    return sum(request[0] == name + "/infer" for request in server.requests)


def test_a_connection_that_closes_under_a_request(server):
    """A connection that was kept alive may: the request is sent again, once, and counted."""
    run = one_run(server, "--model=aged", "--check", "--concurrency=1", "--requests=40", "--warmup=0")
    assert run["answered"] == 40 and run["client"]["sent_again"] == 9
    assert run["client"]["connections_opened"] == 10 and len(server.requests) == 49


def test_any_status_is_counted_as_it_is(server):
    run = one_run(server, "--model=odd", *CLOSED, *COUNT, status=1)
    assert run["failed"] == 40 and run["status"] == {"799": 40}


@pytest.mark.parametrize("model", ["good", "hang"])
@pytest.mark.parametrize("loop", [OPEN, CLOSED, ("--rate=200,300", "--threads=3")])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal(server, model, loop, number):
    """A signal ends the run, and what was measured so far is reported."""
    name = own(model)
    process = subprocess.Popen(
        [PAWL, "load", f"--url=127.0.0.1:{server.port}", f"--model={name}",
         "--duration=3600", "--warmup=0", "--output-json=-", *loop],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while arrived(server, name) < (100 if model == "good" else 3):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    out, _ = process.communicate()
    assert process.returncode == 1
    [run] = json.loads(out)["runs"]
    assert run["interrupted"] and 0 < run["measured_s"] < 3600
    assert "a signal ended the run" in run["notes"]
    assert run["due"] == sum(run[key] for key in SUM)
    assert run["answered" if model == "good" else "open"] >= 3


def test_signal_that_is_ignored(server):
    name = own("slow")
    process = subprocess.Popen(
        [PAWL, "load", f"--url=127.0.0.1:{server.port}", f"--model={name}", *CLOSED, *COUNT],
        stdout=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    while not arrived(server, name):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 0 and arrived(server, name) == 40


def test_no_connection(server):
    run = one_run(server, "--model=hang", "--connections=1", "--wait=200ms", *OPEN,
                  "--requests=100", "--warmup=0", status=1)
    assert run["timed_out"] == 100 and run["client"]["waited_for_connection"]


def test_curve(server, tmp_path):
    prefix = str(tmp_path / "x")
    out, _ = load(server, "--model=good", "--rate=100,200", "--requests=20", "--warmup=0",
                  f"--hgrm={prefix}", f"--output-json={prefix}.json")
    assert out.count("open loop") == 2 and len(out.splitlines()[-1].split()) >= 10
    with open(prefix + ".json", encoding="utf-8") as file:
        assert [run["rate"] for run in json.load(file)["runs"]] == [100, 200]
    for rate in (100, 200):
        with open(f"{prefix}-{rate}.hgrm", encoding="utf-8") as file:
            lines = file.read().splitlines()
        assert lines[0].split() == ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"]
        rows = [[float(x) for x in line.split()] for line in lines[2:] if line[0] != "#"]
        assert [row[:3] for row in rows] == sorted(row[:3] for row in rows)
        assert rows[-1][1:] == [1, 20] and rows[0][2] >= 1
        assert lines[-2].endswith("20]")
    load(server, "--model=good", "--rate=1234567,1234568", "--requests=2", "--warmup=0",
         f"--hgrm={prefix}")
    assert os.path.exists(prefix + "-1234567.hgrm") and os.path.exists(prefix + "-1234568.hgrm")
    load(server, "--model=good", "--hgrm=/nonexistent/x", *COUNT, status=1)
    load(server, "--model=good", "--output-json=/nonexistent/x", *COUNT, status=1)


def test_shares(server):
    run = one_run(server, "--model=good-a=3", "--model=good-b/7", *CLOSED, *COUNT)
    assert run["models"]["good-a"]["good"] == 30 and run["models"]["good-b/7"]["good"] == 10
    paths = [request[0] for request in server.requests]
    assert paths.count("good-a/infer") == 30 and paths.count("good-b/versions/7/infer") == 10
    out, _ = load(server, "--model=good-a", "--model=good-b", *CLOSED, *COUNT)
    assert "good-a: 20 due: 20 answered" in out


# --- what is sent -------------------------------------------------------------------

ALL = {kind: (kind, [-1, 3]) for kind in (
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP32",
    "FP64")}


def sent(server, *options):
    """The first request."""
    server.requests.clear()
    one_run(server, "--model=good", "--requests=4", "--warmup=0", "--check", *options)
    return server.requests[0]


def test_types(server):
    server.inputs = dict(ALL, FP16=("FP16", [2]), BF16=("BF16", [2]), BYTES=("BYTES", [2]))
    _, headers, inputs, parameters = sent(server, "--batch=2")
    assert parameters == {"binary_data_output": True}
    assert headers["content-type"] == "application/octet-stream"
    assert inputs["FP32"][0] == [2, 3] and inputs["BYTES"][2] == bytes(8)
    assert all(0 <= x < 1 for x in struct.unpack("<6f", inputs["FP32"][2]))
    assert all(0 <= x < 100 for x in struct.unpack("<6q", inputs["INT64"][2]))
    assert all(0.5 <= x < 1 for x in struct.unpack("<2e", inputs["FP16"][2]))
    assert set(inputs["BOOL"][2]) <= {0, 1}
    assert sent(server, "--batch=2")[2] == inputs
    assert sent(server, "--batch=2", "--seed=9")[2] != inputs
    for _, _, data in sent(server, "--zero")[2].values():
        assert not any(data)


def test_json(server):
    server.inputs = dict(ALL, BYTES=("BYTES", [2]))
    binary = sent(server)[2]
    _, headers, inputs, parameters = sent(server, "--json")
    assert headers["content-type"] == "application/json" and not parameters
    assert "inference-header-content-length" not in headers
    for name, (_, kind, data) in inputs.items():
        if kind in ("FP32", "FP64"):
            form = "<3f" if kind == "FP32" else "<3d"
            assert struct.pack(form, *data) == binary[name][2]
        elif kind == "BYTES":
            assert data == ["", ""]
        else:
            size = len(binary[name][2]) // 3
            assert b"".join(int(x).to_bytes(size, "little") for x in data) == binary[name][2]
    server.inputs = {"X": ("FP16", [2])}
    assert "cannot express" in load(server, "--model=good", "--json", status=1)[1]


def test_parameters(server):
    _, headers, _, parameters = sent(server, "--timeout=20", "--priority=2",
                                     "--header=Authorization: Bearer x", "--header=A: b")
    assert parameters == {"binary_data_output": True, "timeout": 20000, "priority": 2}
    assert headers["authorization"] == "Bearer x" and headers["a"] == "b"
    assert headers["host"] == f"127.0.0.1:{server.port}"


def test_shapes(server):
    server.inputs = {"X": ("FP32", [-1, -1, 2]), "Y": ("INT64", [3])}
    assert "--shape" in load(server, "--model=good", status=1)[1]
    assert sent(server, "--shape=X:5,2")[2]["X"][0] == [1, 5, 2]
    assert sent(server, "--shape=X:5,2", "--shape=Y:4")[2]["Y"][0] == [4]
    assert sent(server, "--shape=X:2,5,2")[2]["X"][0] == [2, 5, 2]
    assert "dimensions" in load(server, "--model=good", "--shape=X:5", status=1)[1]
    server.inputs = {"Y": ("INT64", [3])}
    assert "--batch" in load(server, "--model=good", "--batch=2", status=1)[1]


def test_input_file(server, tmp_path):
    server.inputs = {"X": ("FP32", [-1, 2]), "N": ("INT8", [-1, 1]), "S": ("BYTES", [-1, 1])}
    path = tmp_path / "in.json"
    option = f"--input={path}"

    def write(data, **more):
        path.write_text(json.dumps({"data": data, **more}))

    write([{"X": [1.5, 2], "N": {"content": [[-3]], "shape": [1]}, "S": ["ab"]},
           [{"X": {"b64": base64.b64encode(struct.pack("<2f", 3, 4)).decode()}, "N": [7],
             "S": {"b64": base64.b64encode(b"\1\0\0\0x").decode()}}]])
    first, second = sent(server, option)[2], server.requests[1][2]
    assert first["X"][2] == struct.pack("<2f", 1.5, 2) and first["N"][2] == b"\xfd"
    assert first["S"][2] == b"\2\0\0\0ab"
    assert second["X"][2] == struct.pack("<2f", 3, 4) and second["S"][2] == b"\1\0\0\0x"
    assert sent(server, option, "--batch=3")[2]["N"][2] == b"\xfd" * 3
    inputs = sent(server, option, "--json")[2]
    assert inputs["X"][2] == [1.5, 2] and inputs["N"][2] == [-3] and inputs["S"][2] == ["ab"]
    good = {"X": [1, 2], "N": [1], "S": ["x"]}
    for bad, why in (({"X": [1, 2, 3]}, "values"), ({"N": [128]}, "INT8"),
                     ({"N": [1.5]}, "INT8"), ({"S": [1]}, "BYTES"),
                     ({"X": {"b64": "%"}}, "base64"), ({"X": {"b64": "AAA="}}, "values"),
                     ({"X": ["a", "b"]}, "FP32"), ({"S": {"b64": "/////w=="}}, "values")):
        write([{**good, **bad}])
        assert why in load(server, "--model=good", option, status=1)[1]
    write([{"X": [1, 2]}])
    assert "no values" in load(server, "--model=good", option, status=1)[1]
    write([good], validation_data=[{}])
    assert "validation_data" in load(server, "--model=good", option, status=1)[1]
    for text in ("{", "[]", "{}", '{"data":3}', '{"data":[]}', '{"data":[[]]}'):
        path.write_text(text)
        load(server, "--model=good", option, status=1)
    load(server, "--model=good", "--input=/nonexistent", status=1)


# --- errors ---------------------------------------------------------------------------

def test_no_server(server):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert "refused" in load(server, "--model=good", url=f"127.0.0.1:{port}", status=1)[1]
    assert "unknown model" in load(server, "--model=nope", status=1)[1]
    # as a body without an end
    assert "no answer" in load(server, "--model=drip", "--wait=300ms", status=1)[1]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert "no answer" in load(server, "--model=good", "--wait=100ms",
                                   url=f"127.0.0.1:{port}", status=1)[1]


@pytest.mark.parametrize("options", [
    [], ["--model="], ["--model=a b"], ["--model=a=0"], ["--model=a/"], ["--model=a=x"],
    ["--model=a?b"], ["--rate=0"], ["--rate=1,"], ["--rate=x"], ["--rate=nan"],
    ["--concurrency=1.5"], ["--concurrency=0"], ["--rate=1", "--concurrency=1"],
    ["--duration=0"], ["--duration=1h"], ["--requests=0"], ["--warmup=-1"], ["--wait="],
    ["--threads=0"], ["--threads=2"], ["--shape=X"], ["--shape=:1"], ["--shape=X:"],
    ["--shape=X:-1"], ["--header=x"], ["--header=a: b\r\nc"], ["--arrivals=x"],
    ["--priority=0"], ["--timeout=0"], ["--batch=0"], ["--seed=-1"], ["--url=:1"],
    ["--url=a:b"], ["--url=http://a/b"], ["--url=[::1"], ["--zero", "--input=x"],
    ["--model=b", "--input=x"], ["--model=a", "--model=a"], ["--hgrm=x", "--rate=3,4,3"],
    ["--connections=0"], ["--rate=1", "--connections=999999999"],
    ["--nope"], ["extra"]])
def test_command_line(server, options):
    more = ["--model=a"] if not any("--model=" == x[:8] for x in options) and options else []
    if options == ["--model=b", "--input=x"]:
        more = ["--model=a"]
    out, err = load(server, *more, *options, status=2)
    assert not out and err.startswith("pawl load: ")


# --- pawl serve --------------------------------------------------------------------------

@pytest.fixture
def pawl_serve(tmp_path):
    if subprocess.run([PAWL, "serve", "--help"], stdout=subprocess.DEVNULL,
                      stderr=subprocess.DEVNULL).returncode:
        pytest.skip("pawl serve is not built")
    model = tmp_path / "models" / "digits" / "1"
    model.mkdir(parents=True)
    for source, name in (("model-a-symbol.json", "model-symbol.json"),
                         ("model-a-0000.params", "model-0000.params")):
        shutil.copy(os.path.join(TOP, "demo", "data", source), model / name)
    process = subprocess.Popen([PAWL, "serve", f"--repository={tmp_path}/models", "--port=0"],
                               stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        event = json.loads(line)
        if event["event"] == "listening":
            port, grpc_port = event["port"], event["grpc_port"]
        if event["event"] == "ready":
            break
    yield types.SimpleNamespace(http=f"localhost:{port}", grpc=f"localhost:{grpc_port}")
    process.send_signal(signal.SIGTERM)
    process.stderr.read()
    process.wait()


@pytest.mark.parametrize("loop", [("--rate=200",), ("--concurrency=4", "--threads=2")])
@pytest.mark.parametrize("form", [("--batch=3",), ("--json",)])
def test_pawl_serve(pawl_serve, loop, form):
    run = one_run(None, "--model=digits", "--check", *loop, *form, "--requests=200",
                  "--warmup=50ms", url=pawl_serve.http)
    assert run["good"] == run["due"] == 200
