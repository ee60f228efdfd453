#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_judge.py PAWL TWIN FLOOR POOL: tests this tree's programs that `make bench-serve` uses.
The twin answers a request for the demonstration's model, floor.c answers any request, the judge
reads pawl load's reports of both, and pool.c sends the requests that it is given."""
import ctypes
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types

import judges

SOURCES = os.path.join(judges.HERE, "..", "..", "..")
SOON = 60


def image():
    """The pixels of the first digit, as demo/train/digits.py describes the file."""
    with open(os.path.join(SOURCES, "demo/data/digits.img"), "rb") as file:
        return [p / 16 for p in file.read()[34:34 + 64]]


def expected():
    """MXNet's answer to it with version 2, the model a."""
    with open(os.path.join(SOURCES, "tests/data/digits-softmax.txt"), encoding="ascii") as file:
        for line in map(str.split, file):
            if line[:2] == ["a", "0"]:
                return [float(p) for p in line[2:]]
    raise AssertionError("no probabilities of image 0")


def wait_for(stream, event):
    """The entry of the server's log with this event; the rest of the log is dropped."""
    for line in stream:
        try:
            entry = json.loads(line)
        except ValueError:
            print(line, end="", file=sys.stderr)
            continue
        if entry["event"] == event:
            return entry
    raise AssertionError(f"the twin ended before it was {event}")


def check_load(program, core, port, grpc_port=None):
    load = judges.PawlLoad(program, core)
    server = types.SimpleNamespace(port=port, grpc_port=grpc_port)
    for measure, arg, grpc in ((load.closed, 4, False), (load.open, 500, False),
                               (load.open, 500, True)):
        if grpc and not grpc_port:
            continue
        # a loaded machine needs longer
        for seconds in (0.2, 2, 10):
            r = measure(server, "digits", arg, seconds, grpc=grpc)
            if r["rate"] and not r["failed"]:
                break
        assert r["rate"] > 0 and r["failed"] == 0 and r["due"] > 0, r
        assert r["p50"] > 0 and r["client_us"] > 0 and r["sent"] > 0, r


def check_pool(pool, port, body):
    """Each token comes back once."""
    lib, p = ctypes.CDLL(pool), ctypes.c_void_p()
    request = (f"POST /v2/models/digits/infer HTTP/1.1\r\nHost: x\r\n"
               f"Content-Length: {len(body)}\r\n\r\n{body}").encode()
    assert lib.pool_open(ctypes.byref(p), port, request, ctypes.c_size_t(len(request))) == 0
    sent, back = list(range(1000, 1300)), []
    assert lib.pool_send(p, (ctypes.c_uint64 * 300)(*sent), ctypes.c_size_t(300)) == 0
    tokens, failed = (ctypes.c_uint64 * 64)(), ctypes.c_int()
    end = time.monotonic() + SOON
    while len(back) < 300:
        assert time.monotonic() < end, len(back)
        back += tokens[:lib.pool_poll(p, 1000, tokens, 64, ctypes.byref(failed))]
        assert failed.value == 0
    assert sorted(back) == sent


def check_twin(program, twin, pool, core):
    server = subprocess.Popen([twin, "--repository", os.path.join(SOURCES, "demo/data/models"),
                               "--port=0", "--grpc-port=0", "--workers=1"],
                              stderr=subprocess.PIPE, text=True)
    timer = threading.Timer(SOON, server.kill)
    timer.start()
    try:
        listening = wait_for(server.stderr, "listening")
        port = int(listening["port"])
        wait_for(server.stderr, "ready")
        threading.Thread(target=server.stderr.read, daemon=True).start()
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=SOON)
        body = json.dumps({"inputs": [{"name": "image", "shape": [1, 64], "datatype": "FP32",
                                       "data": image()}]})
        client.request("POST", "/v2/models/digits/infer", body)
        answer = json.loads(client.getresponse().read())
        client.close()
        data = answer["outputs"][0]["data"]
        assert all(abs(a - b) < 1e-5 for a, b in zip(data, expected(), strict=True)), data
        check_load(program, core, port, int(listening["grpc_port"]))
        check_pool(pool, port, body)
        server.send_signal(signal.SIGTERM)
        assert server.wait(SOON) == 0, server.returncode
    finally:
        timer.cancel()
        server.kill()
        server.wait()


def answer_file(folder, name, body):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="ascii", newline="") as file:
        file.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}")
    return path


def check_floor(program, floor, core):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        meta = answer_file(folder, "meta", json.dumps(
            {"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 16]}]}))
        answer = answer_file(folder, "answer", "{}")
        server = subprocess.Popen([floor, str(port), f"GET ={meta}", f"POST ={answer}"])
        try:
            end = time.monotonic() + SOON
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except ConnectionRefusedError:
                    assert time.monotonic() < end and server.poll() is None, "no floor"
                    time.sleep(0.01)
            check_load(program, core, port)
        finally:
            server.kill()
            server.wait()


def main():
    pawl, twin, floor, pool = map(os.path.abspath, sys.argv[1:])
    core = max(os.sched_getaffinity(0))
    check_twin(pawl, twin, pool, core)
    check_floor(pawl, floor, core)


if __name__ == "__main__":
    main()
