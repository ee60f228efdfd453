# SPDX-License-Identifier: Apache-2.0
"""A server of the Open Inference Protocol whose models are ways to misbehave."""
import json
import socket
import struct
import threading
import time

SIZES = {"BOOL": 1, "UINT8": 1, "INT8": 1, "UINT16": 2, "INT16": 2, "FP16": 2, "BF16": 2,
         "UINT32": 4, "INT32": 4, "FP32": 4, "UINT64": 8, "INT64": 8, "FP64": 8}
STALL = 1.0     # seconds


def answer(status, body, more=""):
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() + body


def check(body, json_length):
    """The inputs by name, (shape, type, values), and the parameters.  Raises if wrong."""
    head = json.loads(body[:json_length])
    tensors = body[json_length:]
    inputs = {}
    for one in head["inputs"]:
        count = 1
        for dim in one["shape"]:
            count *= dim
        if "data" in one:
            assert len(one["data"]) == count
            data = one["data"]
        else:
            size = one["parameters"]["binary_data_size"]
            data, tensors = tensors[:size], tensors[size:]
            assert len(data) == size
            if one["datatype"] != "BYTES":
                assert size == count * SIZES[one["datatype"]]
        inputs[one["name"]] = (one["shape"], one["datatype"], data)
    assert not tensors
    return inputs, head.get("parameters", {})


class Server:
    """inputs: of each model, name: (type, shape).  requests: what arrived, as (model, headers,
    inputs, parameters).  arrivals: (connection, time)."""

    def __init__(self):
        self.inputs = {"INPUT0": ("FP32", [-1, 4])}
        self.requests, self.arrivals = [], []
        self.stalls = threading.Lock()
        self.stalled = False
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                sock = self.listener.accept()[0]
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.connection, args=(sock,), daemon=True).start()

    def connection(self, sock):
        with sock, sock.makefile("rb") as file:
            try:
                while self.request(sock, file):
                    pass
            except OSError:
                pass

    def request(self, sock, file):
        line = file.readline().decode()
        headers = {}
        while line:
            header = file.readline().decode().strip()
            if not header:
                break
            key, _, value = header.partition(":")
            headers[key.lower()] = value.strip()
        if not line:
            return False
        body = file.read(int(headers.get("content-length", 0)))
        method, path, _ = line.split()
        parts = path.split("/")
        if method == "GET":
            return self.describe(sock, parts[3])
        try:
            inputs, parameters = check(body, int(headers.get(
                "inference-header-content-length", len(body))))
        except (AssertionError, KeyError, ValueError) as error:
            sock.sendall(answer(400, repr(error).encode()))
            return True
        self.requests.append(("/".join(parts[3:]), headers, inputs, parameters))
        self.arrivals.append((sock, time.monotonic()))
        return getattr(self, "model_" + parts[3].split("-")[0])(sock)

    def describe(self, sock, model):
        if model == "drip":
            sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while model == "drip":
            sock.sendall(b" ")
            time.sleep(0.01)
        if not hasattr(self, "model_" + model.split("-")[0]):
            sock.sendall(answer(404, b'{"error":"unknown model"}'))
        else:
            sock.sendall(answer(200, json.dumps({
                "name": model, "versions": ["1"], "platform": "x", "outputs": [],
                "inputs": [{"name": name, "datatype": kind, "shape": shape}
                           for name, (kind, shape) in self.inputs.items()]}).encode()))
        return True

    # What a model does; returns whether the connection goes on.

    def model_good(self, sock):
        sock.sendall(answer(200, b"{}"))
        return True

    def model_slow(self, sock):
        time.sleep(0.05)
        return self.model_good(sock)

    def model_stall(self, sock):
        """Stalls once, for all connections."""
        with self.stalls:
            if not self.stalled and len(self.requests) >= 10:
                self.stalled = True
                time.sleep(STALL)
        return self.model_good(sock)

    def model_full(self, sock):
        sock.sendall(answer(503, b'{"error":"full"}', "Retry-After: 1\r\n"))
        return True

    def model_failing(self, sock):
        sock.sendall(answer(500, b'{"error":"the model\nfailed"}'))
        return True

    def model_some(self, sock):
        """Every fourth request is refused, fails, or has no answer."""
        k = len(self.requests) % 4
        return (self.model_good, self.model_full, self.model_failing, self.model_half)[k](sock)

    def model_aged(self, sock):
        """Each connection has four requests, and closes under the fifth."""
        if sum(one is sock for one, _ in self.arrivals) == 5:
            return False
        return self.model_good(sock)

    def model_odd(self, sock):
        sock.sendall(answer(799, b"{}"))
        return True

    def model_close(self, sock):
        return False

    def model_reset(self, sock):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False

    def model_half(self, sock):
        sock.sendall(answer(200, b"{}")[:-1])
        return False

    def model_junk(self, sock):
        sock.sendall(b"hello\r\n\r\n")
        return True

    def model_hang(self, sock):
        while sock.recv(1000):
            pass
        return False

    def model_last(self, sock):
        sock.sendall(answer(200, b"{}", "Connection: close\r\n"))
        return False

    def model_endless(self, sock):
        """The end of the connection is the end of the answer."""
        sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n{}")
        return False

    def model_split(self, sock):
        for byte in answer(200, b"{}"):
            sock.sendall(bytes([byte]))
        return True

    def model_chunked(self, sock):
        sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                     b"2\r\n{}\r\n0\r\n\r\n")
        return True

    def model_interim(self, sock):
        sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" + answer(200, b"{}"))
        return True

    def model_more(self, sock):
        """Bytes behind the answer, which must not become the next one."""
        sock.sendall(answer(200, b"{}") + answer(500, b"{}"))
        return True

    def model_large(self, sock):
        sock.sendall(answer(200, bytes(3000000)))
        return True
