# SPDX-License-Identifier: Apache-2.0
"""A server for a test: its repository, its process, and a client without libraries."""
import http.client
import json
import os
import signal
import socket
import struct
import subprocess
import threading
import time

import pytest

SERVER = os.environ["PAWL_SERVE_TEST"]


def sanitized():
    """Whether the server was built with a sanitizer, which needs more memory."""
    with open(SERVER, "rb") as file:
        program = file.read()
    return b"__asan_init" in program or b"__tsan_init" in program


SOON = 60       # seconds for what must happen, on a loaded machine too


def soon(condition, what):
    """Wait until condition() is true, and return its value."""
    end = time.monotonic() + SOON
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError("not soon: " + what)


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json["error"]


class Server:
    def __init__(self, folder):
        self.folder = str(folder)
        self.repository = os.path.join(self.folder, "models")
        os.makedirs(self.repository, exist_ok=True)
        self.process = None
        self.lines = []

    def model(self, name, version=1, **settings):
        path = os.path.join(self.repository, name, str(version))
        os.makedirs(path, exist_ok=True)
        # complete at once, since the server may read it at any time
        with open(os.path.join(path, "fake.new"), "w", encoding="ascii") as file:
            for key, value in settings.items():
                file.write(f"{key} {value}\n")
        os.rename(os.path.join(path, "fake.new"), os.path.join(path, "fake"))

    def open(self, name, version=1, gate="open"):
        """Let the layers of a model with a gate run, or its plans ("plan")."""
        with open(os.path.join(self.repository, name, str(version), gate), "w",
                  encoding="ascii"):
            pass

    def start(self, *options, config="", program=(SERVER,), **popen):
        conf = os.path.join(self.folder, "serve.ini")
        with open(conf, "w", encoding="ascii") as file:
            file.write("[server]\n" + "grace = 0\n" * ("grace" not in config) + config)
        self.process = subprocess.Popen(
            [*program, "--repository", self.repository, "--config", conf, "--port", "0",
             *options],
            stderr=subprocess.PIPE, text=True, **popen)
        self.port = self.grpc_port = None
        ready, ended = threading.Event(), threading.Event()

        def read():
            for line in self.process.stderr:
                try:
                    entry = json.loads(line)
                except ValueError:
                    entry = {"event": "text", "text": line}
                self.lines.append(entry)
                if entry["event"] == "listening":
                    self.port = int(entry["port"])
                    if entry["grpc_port"] != "none":
                        self.grpc_port = int(entry["grpc_port"])
                if entry["event"] in ("ready", "not ready"):     # at the end of the loads
                    ready.set()
            ended.set()
            ready.set()
        self.reader = threading.Thread(target=read, daemon=True)
        self.reader.start()
        # the end of the lines may be read before the process has ended
        assert ready.wait(SOON) and not ended.is_set() and self.process.poll() is None, \
            self.lines
        return self

    def events(self, name):
        return [line for line in self.lines if line["event"] == name]

    def signal(self, number):
        self.process.send_signal(number)

    def stop(self):
        """SIGTERM; returns the exit status."""
        if not self.process:
            return None
        self.signal(signal.SIGTERM)
        try:
            self.process.wait(SOON)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join()
        self.process.stderr.close()
        status = self.process.returncode
        self.process = None
        return status

    def connect(self):
        sock = socket.create_connection(("127.0.0.1", self.port), SOON)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def request(self, method, path, body=None, headers=None):
        conn = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SOON)
        try:
            conn.request(method, path, body, headers or {})
            return Answer(conn.getresponse())
        finally:
            conn.close()

    def get(self, path, **headers):
        return self.request("GET", path, None, headers)

    def post(self, path, body=b"", headers=None):
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        return self.request("POST", path, body, headers)

    def infer(self, model, values, name="INPUT0", **more):
        """FP32 values, a row of 4 or several, as JSON."""
        rows = values if isinstance(values[0], list) else [values]
        return self.post(f"/v2/models/{model}/infer", {
            "inputs": [{"name": name, "shape": [len(rows), len(rows[0])], "datatype": "FP32",
                        "data": rows}], **more})

    def stat(self, model):
        return self.get(f"/v2/models/{model}/stats").json["model_stats"][0]

    def metric(self, name, model=None):
        for line in self.get("/metrics").body.decode().splitlines():
            if line.startswith(name) and line[len(name)] in "{ " and (
                    model is None or f'model="{model}"' in line):
                return float(line.rsplit(" ", 1)[1])
        raise KeyError(name)


HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = os.path.join(HERE, "../../..")


class Pawl(Server):
    """pawl serve itself, with the digits of the demonstration: all versions, or one."""

    def start(self, *options, version=None, **more):
        digits = os.path.join(SOURCES, "demo/data/models/digits")
        link = os.path.join(self.repository, "digits")
        if version:
            os.makedirs(link)
            os.symlink(os.path.join(digits, str(version)), os.path.join(link, str(version)))
        elif not os.path.lexists(link):
            os.symlink(digits, link)
        return super().start(*options, program=[os.environ["PAWL_COMMAND"], "serve"], **more)


@pytest.fixture
def pawl(tmp_path):
    if "PAWL_COMMAND" not in os.environ:
        pytest.skip("the pawl command is not built, or under the thread sanitizer")
    one = Pawl(tmp_path)
    yield one
    if one.process:
        assert one.stop() == 0, one.lines[-20:]


@pytest.fixture
def server(tmp_path):
    one = Server(tmp_path)
    yield one
    if one.process:
        status = one.stop()
        assert status == 0, (status, one.lines[-20:])


def text_request(body, path="/v2/models/m/infer", more=""):
    """The bytes of a request."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n{more}\r\n"
            .encode() + body)


def row(values, **more):
    return {"inputs": [{"name": "INPUT0", "shape": [1, 4], "datatype": "FP32", "data": values}],
            **more}


def read_answer(file):
    """Read one answer from a socket's file: status, headers, body; None at the end."""
    line = file.readline()
    if not line:
        return None
    status = int(line.split()[1])
    headers = {}
    while True:
        line = file.readline().strip()
        if not line:
            break
        key, _, value = line.decode().partition(":")
        headers[key.lower()] = value.strip()
    return status, headers, file.read(int(headers["content-length"]))


def binary(*rows):
    return b"".join(struct.pack(f"<{len(r)}f", *r) for r in rows)
