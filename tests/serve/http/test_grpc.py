# SPDX-License-Identifier: Apache-2.0
"""gRPC: frames of HTTP/2 by python3-h2, and messages that the test encodes itself."""
import gzip
import os
import select
import signal
import socket
import struct
import subprocess
import time
import zlib

import pytest

from conftest import SERVER, SOON, binary, soon
from wire import decode, field, varint

h2_connection = pytest.importorskip("h2.connection")
h2_config = pytest.importorskip("h2.config")
h2_events = pytest.importorskip("h2.events")
h2_settings = pytest.importorskip("h2.settings")

OK, CANCELLED, INVALID, LATE, NOT_FOUND = 0, 1, 3, 4, 5
EXHAUSTED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, UNAUTHENTICATED = 8, 12, 13, 14, 16


# --- messages ---

def parameters(number, values):
    out = b""
    for key, value in values.items():
        choice = (1, 2, 3)[[bool, int, str].index(type(value))]
        out += field(number, field(1, key) + field(2, field(choice, value)))
    return out


def tensor(name="INPUT0", datatype="FP32", shape=(1, 4), contents=None, **more):
    out = field(1, name) + field(2, datatype)
    out += field(3, b"".join(varint(d) for d in shape)) + parameters(4, more)
    if contents is not None:
        out += field(5, contents)
    return out


def request(*values, model="m", version="", ident="", inputs=None, raw=None, outputs=(),
            **more):
    rows = len(values) // 4
    if inputs is None:
        inputs = [tensor(shape=(rows, 4))]
    if raw is None:
        raw = [binary(values)]
    out = field(1, model) + (field(2, version) if version else b"")
    out += (field(3, ident) if ident else b"") + parameters(4, more)
    out += b"".join(field(5, one) for one in inputs)
    out += b"".join(field(6, one) for one in outputs)
    return out + b"".join(field(7, one) for one in raw)


def floats(data):
    return list(struct.unpack(f"<{len(data) // 4}f", data))


# --- a client ---

class Call:
    def __init__(self):
        self.headers = {}
        self.data = b""
        self.closed = self.reset = False

    @property
    def messages(self):
        out, data = [], self.data
        while data:
            assert data[0] == 0
            size = int.from_bytes(data[1:5], "big")
            assert len(data) >= 5 + size
            out.append(data[5:5 + size])
            data = data[5 + size:]
        return out

    @property
    def status(self):
        return int(self.headers["grpc-status"])

    @property
    def text(self):
        return self.headers.get("grpc-message", "")


class Connection(h2_connection.H2Connection):
    def _receive_goaway_frame(self, frame):
        # the library would take it as the end, but calls that have begun are answered
        event = h2_events.ConnectionTerminated()
        event.error_code = frame.error_code
        return [], [event]


class Client:
    def __init__(self, server, window=None, receive=None, read=True):
        self.sock = socket.socket()
        if receive:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        self.sock.settimeout(SOON)
        self.sock.connect(("127.0.0.1", server.grpc_port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.h2 = Connection(h2_config.H2Configuration(
            client_side=True, header_encoding="utf-8"))
        if window is not None:
            self.h2.local_settings = h2_settings.Settings(client=True, initial_values={
                h2_settings.SettingCodes.INITIAL_WINDOW_SIZE: window})
        self.window = window
        self.calls = {}
        self.goaway = None
        self.h2.initiate_connection()
        self.flush()
        if read:
            self.until(lambda: h2_settings.SettingCodes.MAX_CONCURRENT_STREAMS in
                       dict(self.h2.remote_settings))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def flush(self):
        self.sock.sendall(self.h2.data_to_send())

    def receive(self):
        data = self.sock.recv(65536)
        if not data:
            raise ConnectionError("closed")
        for event in self.h2.receive_data(data):
            call = self.calls.get(getattr(event, "stream_id", None))
            if isinstance(event, (h2_events.ResponseReceived, h2_events.TrailersReceived)):
                call.headers.update(event.headers)
            elif isinstance(event, h2_events.DataReceived):
                call.data += event.data
                if self.window is None and event.flow_controlled_length:
                    self.h2.acknowledge_received_data(event.flow_controlled_length,
                                                      event.stream_id)
            elif isinstance(event, h2_events.StreamEnded):
                call.closed = True
            elif isinstance(event, h2_events.StreamReset):
                call.closed = call.reset = True
            elif isinstance(event, h2_events.ConnectionTerminated):
                self.goaway = event
        self.flush()

    def until(self, condition):
        while not condition():
            self.receive()

    def begin(self, method, *messages, end=True, service="inference.GRPCInferenceService",
              **headers):
        ident = self.h2.get_next_available_stream_id()
        call = self.calls[ident] = Call()
        call.id = ident
        head = {":method": "POST", ":scheme": "http", ":path": f"/{service}/{method}",
                ":authority": "x", "content-type": "application/grpc", "te": "trailers"}
        head.update({key.replace("_", "-"): value for key, value in headers.items()})
        self.h2.send_headers(ident, list(head.items()), end_stream=end and not messages)
        for i, message in enumerate(messages):
            self.send(call, message, end=end and i == len(messages) - 1)
        self.flush()
        return call

    def send(self, call, message, end=False, flag=0):
        self.data(call, bytes([flag]) + len(message).to_bytes(4, "big") + message, end)

    def data(self, call, data, end=False):
        while data or end:
            self.until(lambda: call.closed or self.h2.local_flow_control_window(call.id))
            if call.closed:
                return
            n = min(len(data), self.h2.local_flow_control_window(call.id),
                    self.h2.max_outbound_frame_size)
            self.h2.send_data(call.id, data[:n], end_stream=end and n == len(data))
            data = data[n:]
            self.flush()
            if not data:
                return

    def call(self, method, *messages, **headers):
        call = self.begin(method, *(messages or (b"",)), **headers)
        self.until(lambda: call.closed)
        return call

    def infer(self, *values, **more):
        return self.call("ModelInfer", request(*values, **more))


def outputs(message):
    """The values of the first output of a ModelInferResponse."""
    return floats(decode(message)[6][0])


def symbols(file):
    """The package of a FileDescriptorProto, and the calls of its services."""
    head = decode(file)
    calls = {}
    for one in head.get(6, []):
        service = decode(one)
        calls[head[2][0].decode() + "." + service[1][0].decode()] = [
            decode(call)[1][0].decode() for call in service[2]]
    return head[2][0], calls


@pytest.fixture
def grpc(server):
    server.model("m")
    server.start()
    with Client(server) as client:
        yield client


# --- the protocol ---

def test_server(grpc):
    assert decode(grpc.call("ServerLive").messages[0]) == {1: [1]}
    assert decode(grpc.call("ServerReady").messages[0]) == {1: [1]}
    meta = decode(grpc.call("ServerMetadata").messages[0])
    assert meta[1] == [b"pawl"] and b"statistics" in meta[3]


@pytest.mark.parametrize("version", ("v1", "v1alpha"))
def test_reflection(grpc, version):
    """A client without any description finds all calls, and each of them exists."""
    call = grpc.begin("ServerReflectionInfo", end=False,
                      service=f"grpc.reflection.{version}.ServerReflection")

    def ask(number, text):
        n = len(call.messages)
        grpc.send(call, field(number, text))
        grpc.flush()
        grpc.until(lambda: len(call.messages) > n)
        answer = decode(call.messages[n])
        assert decode(answer[2][0]) == {number: [text.encode()]}
        return answer
    names = [decode(one)[1][0].decode() for one in decode(ask(7, "*")[6][0])[1]]
    assert sorted(names) == ["grpc.health.v1.Health", "inference.GRPCInferenceService"]
    for name in names:
        file = decode(ask(4, name)[4][0])[1][0]
        package, calls = symbols(file)
        assert name.startswith(package.decode() + ".") and list(calls) == [name]
        for method in calls[name]:
            if "Stream" not in method and method != "Watch":
                assert grpc.call(method, b"", service=name).status != UNIMPLEMENTED
            assert ask(4, f"{name}.{method}")[4]
        for used in decode(file).get(3, []):
            assert decode(decode(ask(3, used.decode())[4][0])[1][0])[1] == [used]
    for symbol in ("inference.ModelInferRequest", "inference.ModelInferRequest.ParametersEntry",
                   "grpc.health.v1.HealthCheckResponse.ServingStatus"):
        assert ask(4, symbol)[4], symbol
    for number, text in ((4, "inference.Nothing"), (3, "nothing.proto"), (6, "x")):
        assert decode(ask(number, text)[7][0])[1] == [NOT_FOUND]
    grpc.send(call, b"", end=True)
    grpc.until(lambda: call.closed)
    assert call.status == OK


def test_health(server):
    """grpc.health.v1: Check, and a Watch that is told of each change."""
    health = "grpc.health.v1.Health"
    server.start()
    with Client(server) as grpc:
        def status(name=b""):
            call = grpc.call("Check", name, service=health)
            return decode(call.messages[0])[1] if call.messages else call.status
        assert status() == [2]
        watch = grpc.begin("Watch", b"", service=health)
        grpc.until(lambda: len(watch.messages) == 1)
        server.model("m")
        assert server.post("/v2/repository/models/m/load").status == 200
        grpc.until(lambda: len(watch.messages) == 2)
        assert status() == status(field(1, "inference.GRPCInferenceService")) == [1]
        assert status(field(1, "x")) == NOT_FOUND
        unknown = grpc.begin("Watch", field(1, "x"), service=health)
        grpc.until(lambda: unknown.messages)
        server.signal(signal.SIGTERM)
        grpc.until(lambda: watch.closed and unknown.closed)
        assert [decode(m)[1] for m in watch.messages] == [[2], [1], [2]]
        assert [decode(m)[1] for m in unknown.messages] == [[3]]
        assert watch.status == unknown.status == UNAVAILABLE


def test_models(server):
    server.model("m", 3, inputs=2)
    server.start(config="[model m]\nmax_batch = 16\npreferred_batches = 4, 8\n"
                 "max_delay_us = 100\n")
    with Client(server) as grpc:
        name = field(1, "m")
        assert decode(grpc.call("ModelReady", name).messages[0]) == {1: [1]}
        assert grpc.call("ModelReady", field(1, "x")).messages == [b""]
        assert grpc.call("ModelReady", name + field(2, "7")).messages == [b""]
        meta = decode(grpc.call("ModelMetadata", name + field(2, "3")).messages[0])
        assert (meta[1], meta[2], meta[3]) == ([b"m"], [b"3"], [b"fake"])
        assert [decode(t)[1] for t in meta[4]] == [[b"INPUT0"], [b"INPUT1"]]
        assert decode(meta[5][0]) == {1: [b"OUTPUT0"], 2: [b"FP32"],
                                      3: [varint(-1) + varint(4)]}
        config = decode(decode(grpc.call("ModelConfig", name).messages[0])[1][0])
        assert config[4] == [16]
        assert decode(config[5][0]) == {1: [b"INPUT0"], 2: [11], 4: [b"\x04"]}
        assert decode(config[11][0])[1] == [b"\x04\x08"] and decode(config[11][0])[2] == [100]
        call = grpc.infer(1, 2, 3, 4, inputs=[tensor(), tensor("INPUT1")],
                          raw=[binary([1, 2, 3, 4])] * 2)
        assert outputs(call.messages[0]) == [2, 4, 6, 8]
        stat = decode(decode(grpc.call("ModelStatistics", name).messages[0])[1][0])
        assert (stat[1], stat[2], stat[4], stat[5]) == ([b"m"], [b"3"], [1], [1])
        assert decode(decode(stat[6][0])[1][0])[1] == [1]
        assert decode(decode(grpc.call("ModelStatistics").messages[0])[1][0])[1] == [b"m"]


@pytest.mark.parametrize("method, message, status, text", [
    ("ModelMetadata", field(1, "x"), NOT_FOUND, "Request for unknown model: 'x' is not found"),
    ("ModelMetadata", field(1, "m") + field(2, "7"), NOT_FOUND,
     "Request for unknown model: 'm' version 7 is not found"),
    ("ModelConfig", field(1, b"\xff"), NOT_FOUND,
     "Request for unknown model: '?' is not found"),
    ("ModelMetadata", field(1, "m") + field(2, "x"), INVALID,
     "failed to get model version from specified version string 'x', version should be an "
     "integral value > 0"),
    ("ModelMetadata", field(1, "m") + field(2, "0"), NOT_FOUND,
     "Request for unknown model: 'm' version 0 is not found"),
    ("ModelStatistics", field(1, "x"), INVALID, "requested model 'x' is not available"),
    ("ModelStatistics", field(1, "m") + field(2, "7"), INVALID,
     "requested model version is not available for model 'm'"),
    ("ModelMetadata", b"\x0a\xff", INVALID, "failed to parse the request message"),
    ("ModelInfer", b"\x0a\xff", INVALID, "failed to parse the request message"),
    ("ModelInfer", b"\x0b", INVALID, "failed to parse the request message"),
    ("ModelInfer", field(7, b"x") + b"\x28", INVALID, "failed to parse the request message"),
    ("Nope", b"", UNIMPLEMENTED, "no call of this server has this name"),
    ("SystemSharedMemoryStatus", b"", UNIMPLEMENTED, "no call of this server has this name"),
    ("RepositoryModelLoad", field(2, "m") + field(3, field(1, "config")), INVALID,
     "parameters of a load are not supported"),
    ("RepositoryModelLoad", field(2, "x"), INTERNAL,
     "failed to load 'x', failed to poll from model repository"),
])
def test_bad_calls_are_explained(grpc, method, message, status, text):
    call = grpc.call(method, message)
    assert (call.status, call.text, call.messages) == (status, text, [])
    assert grpc.infer(1, 2, 3, 4).status == OK


def test_infer(grpc):
    call = grpc.infer(1, 2, 3, 4, 5, 6, 7, 8, ident="a\u00e9", version="1",
                      outputs=[field(1, "OUTPUT0")])
    assert call.status == OK and call.headers["content-type"] == "application/grpc"
    message = decode(call.messages[0])
    assert message[1] == [b"m"] and message[2] == [b"1"] and message[3] == ["a\u00e9".encode()]
    assert decode(message[5][0]) == {1: [b"OUTPUT0"], 2: [b"FP32"], 3: [b"\x02\x04"]}
    assert floats(message[6][0]) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_each_call_counts_as_a_request_and_an_answer(server):
    server.model("m")
    server.start()
    with Client(server) as grpc:
        for _ in range(3):
            assert grpc.infer(1, 2, 3, 4).status == OK
        assert grpc.infer(1).status == INVALID and grpc.call("Nope").status == UNIMPLEMENTED
        assert grpc.call("ServerLive", content_type="text/plain").headers[":status"] == "415"
        stream = grpc.begin("ModelStreamInfer", request(1, 2, 3, 4), request(1, 2, 3, 4))
        grpc.until(lambda: stream.closed)
        assert stream.status == OK and len(stream.messages) == 2
    assert server.infer("m", [1, 2, 3, 4]).status == 200
    assert server.stop() == 0
    last = server.lines[-1]
    assert (last["event"], last["requests"], last["answers"]) == ("stopped", "8", "8")


def test_fields_in_any_order(grpc):
    data = binary([1, 2, 3, 4])
    message = field(7, data) + field(5, tensor()) + field(99, "unknown") + field(1, "m") + \
        field(98, 5)
    assert outputs(grpc.call("ModelInfer", message).messages[0]) == [1, 2, 3, 4]


UNPACK = {"BOOL": "B", "INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q", "UINT8": "B",
          "UINT16": "H", "UINT32": "I", "UINT64": "Q"}


def signed(*values):
    return b"".join(varint(v) for v in values)


@pytest.mark.parametrize("datatype, number, data, raw", [
    ("BOOL", 1, signed(1, 0, 1, 1), bytes([1, 0, 1, 1])),
    ("INT8", 2, signed(-128, 127, 0, 1), struct.pack("<4b", -128, 127, 0, 1)),
    ("INT16", 2, signed(-32768, 32767, 0, 1), struct.pack("<4h", -32768, 32767, 0, 1)),
    ("INT32", 2, signed(-2**31, 2**31 - 1, 0, 1), struct.pack("<4i", -2**31, 2**31 - 1, 0, 1)),
    ("INT64", 3, signed(-2**63, 2**63 - 1, 0, 1), struct.pack("<4q", -2**63, 2**63 - 1, 0, 1)),
    ("UINT8", 4, signed(0, 255, 1, 2), bytes([0, 255, 1, 2])),
    ("UINT16", 4, signed(0, 65535, 1, 2), struct.pack("<4H", 0, 65535, 1, 2)),
    ("UINT32", 4, signed(0, 2**32 - 1, 1, 2), struct.pack("<4I", 0, 2**32 - 1, 1, 2)),
    ("UINT64", 5, signed(0, 2**64 - 1, 1, 2), struct.pack("<4Q", 0, 2**64 - 1, 1, 2)),
    ("FP32", 6, struct.pack("<4f", 0.5, -1, 2, 3), struct.pack("<4f", 0.5, -1, 2, 3)),
    ("FP64", 7, struct.pack("<4d", 0.5, -1, 2, 3), struct.pack("<4d", 0.5, -1, 2, 3))])
def test_contents(server, datatype, number, data, raw):
    server.model("m", type=datatype)
    server.start()
    with Client(server) as grpc:
        one = tensor(datatype=datatype, contents=field(number, data))
        call = grpc.infer(inputs=[one], raw=[])
        assert decode(call.messages[0])[6] == [raw], call.text
        # one at a time, as protobuf permits, too
        size = len(data) // 4
        wire = {6: 5, 7: 1}.get(number, 0)
        parts = [data[i:i + size] for i in range(0, len(data), size)] if wire else \
            [varint(v) for v in struct.unpack("<4" + UNPACK[datatype], raw)]
        one = tensor(datatype=datatype,
                     contents=b"".join(varint(number << 3 | wire) + p for p in parts))
        assert decode(grpc.infer(inputs=[one], raw=[]).messages[0])[6] == [raw]


RAW = binary([1, 2, 3, 4])
UNKNOWN = "[request id: <id_unknown>] "


@pytest.mark.parametrize("more, text", [
    ({"inputs": [tensor("X")]}, "unexpected inference input 'X' for model 'm'"),
    ({"inputs": [tensor(datatype="INT32")]}, UNKNOWN + "inference input 'INPUT0' data-type is "
     "'INT32', but model 'm' expects 'FP32'"),
    ({"inputs": [tensor(shape=[1, 5])]}, UNKNOWN + "unexpected shape for input 'INPUT0' for "
     "model 'm'. Expected [-1,4], got [1,5]."),
    ({"inputs": [tensor(shape=[1] * 9)]}, UNKNOWN + "unexpected shape for input 'INPUT0' for "
     "model 'm'. Expected [-1,4], got [1,1,1,1,1,1,1,1,...]."),
    ({"inputs": [tensor()] * 2, "raw": [RAW] * 2},
     UNKNOWN + "input 'INPUT0' already exists in request"),
    ({"inputs": [], "raw": [], "ident": "7"},
     "[request id: 7] expected 1 inputs but got 0 inputs"),
    ({"raw": [RAW[:12]]}, UNKNOWN + "input byte size mismatch for input 'INPUT0' for model "
     "'m'. Expected 16, got 12"),
    ({"raw": []}, "unable to find data for input tensor 'INPUT0' for model 'm' in request."),
    ({"raw": [RAW] * 2}, "expected number of inputs and raw input contents to be equal"),
    ({"raw": [RAW] * 40}, "expected number of inputs and raw input contents to be equal"),
    ({"inputs": [tensor(contents=field(6, RAW))]},
     "contents field must not be specified when using raw_input_contents for 'INPUT0'"),
    ({"inputs": [tensor(contents=field(7, RAW))], "raw": []},
     "unexpected explicit tensor data for input tensor 'INPUT0' for model 'm' of type 'FP64', "
     "expected datatype 'FP32'"),
    ({"inputs": [tensor(contents=b"")], "raw": []},
     UNKNOWN + "input byte size mismatch for input 'INPUT0'"),
    ({"inputs": [tensor(shared_memory_region="x")]}, "shared memory is not supported"),
    ({"outputs": [field(1, "Y")]}, "unexpected inference output 'Y' for model 'm'"),
    ({"outputs": [field(1, "OUTPUT0") + parameters(2, {"classification": 3})]},
     "classification is not supported"),
    ({"sequence_id": 4}, "sequences are not supported"),
    ({"timeout": "x"}, "invalid value type for 'timeout' parameter"),
    ({"priority": "x"}, "invalid value type for 'priority' parameter"),
    ({"priority": -1}, "invalid value for 'priority', expected value >= 0."),
])
def test_bad_requests_are_explained(grpc, more, text):
    call = grpc.infer(1, 2, 3, 4, **more)
    assert call.status == INVALID and call.text.startswith(text), call.text
    assert grpc.infer(1, 2, 3, 4, sequence_id=0, priority=1, timeout=60_000_000,
                      other="x").status == OK


def test_strings(server):
    server.model("m", type="BYTES")
    server.start()
    values = [b"", b"a", b"\xff\0b", b"x" * 300]
    raw = b"".join(struct.pack("<I", len(v)) + v for v in values)
    with Client(server) as grpc:
        one = tensor(datatype="BYTES", contents=b"".join(field(8, v) for v in values))
        assert decode(grpc.infer(inputs=[one], raw=[]).messages[0])[6] == [raw]
        one = tensor(datatype="BYTES")
        assert decode(grpc.infer(inputs=[one], raw=[raw]).messages[0])[6] == [raw]
        call = grpc.infer(inputs=[one], raw=[raw[:-1]])
        assert call.status == INVALID and "as its shape says" in call.text


def test_values_out_of_range_are_refused(server):
    server.model("m", type="INT8")
    server.start()
    with Client(server) as grpc:
        for value in (128, -129):
            numbers = field(2, signed(value, 0, 0, 0))
            call = grpc.infer(inputs=[tensor(datatype="INT8", contents=numbers)], raw=[])
            assert call.status == INVALID and "out of the range" in call.text


def test_an_id_that_is_no_text_is_refused(grpc):
    message = field(3, b"\xff") + request(1, 2, 3, 4)
    call = grpc.call("ModelInfer", message)
    assert (call.status, call.text) == (INVALID, "the id is not UTF-8")


def test_a_model_that_fails(server):
    server.model("m", fail=1)
    server.start()
    with Client(server) as grpc:
        call = grpc.infer(1, 2, 3, 4)
        assert call.status == INTERNAL and call.messages == []


def test_repository(server):
    server.model("m")
    server.model("broken", refuse="it has an operator that is unknown")
    server.start()
    with Client(server) as grpc:
        def index(message=b""):
            models = decode(grpc.call("RepositoryIndex", message).messages[0]).get(1, [])
            return sorted((decode(m)[1][0], decode(m)[3][0]) for m in models)
        assert index() == [(b"broken", b"UNAVAILABLE"), (b"m", b"READY")]
        assert index(field(2, 1)) == [(b"m", b"READY")]
        call = grpc.call("RepositoryModelLoad", field(2, "broken"))
        assert call.status == INVALID and "an operator that is unknown" in call.text
        call = grpc.call("RepositoryModelUnload", field(2, "m") + parameters(
            3, {"unload_dependents": False}))
        assert (call.status, call.messages) == (OK, [b""])
        assert grpc.infer(1, 2, 3, 4).status == NOT_FOUND
        server.model("m", 2)
        assert grpc.call("RepositoryModelLoad", field(2, "m")).status == OK
        assert decode(grpc.infer(1, 2, 3, 4).messages[0])[2] == [b"2"]


def test_bearer_token(server):
    server.model("m")
    server.start(config="[server]\ntoken = secret\n")
    with Client(server) as grpc:
        assert grpc.call("ServerLive").status == grpc.call("ServerReady").status == OK
        for headers in ({}, {"authorization": "Bearer wrong"}):
            for method in ("ModelInfer", "ServerMetadata", "RepositoryIndex"):
                assert grpc.call(method, request(1, 2, 3, 4),
                                 **headers).status == UNAUTHENTICATED
        assert grpc.call("ModelInfer", request(1, 2, 3, 4),
                         authorization="Bearer secret").status == OK


def test_calls_are_in_the_access_log(server):
    server.model("m")
    server.start(config="access_log = 1\n")
    with Client(server) as grpc:
        for more in ({}, {"model": "nope"}, {"inputs": []}):
            grpc.call("ModelInfer", request(1, 2, 3, 4, ident="first", **more), traceparent="t-1")
    lines = soon(lambda: len(server.events("access")) == 3 and server.events("access"), "lines")
    assert [(e["model"], e["status"], e["protocol"], e["traceparent"]) for e in lines] == [
        ("m", "200", "grpc", "t-1"), ("nope", "404", "grpc", "t-1"), ("m", "400", "grpc", "t-1")]
    assert lines[0]["id"] == "first" and lines[0]["client"].startswith("127.0.0.1:")


# --- HTTP/2 ---

@pytest.mark.parametrize("name, pack", (("gzip", gzip.compress), ("deflate", zlib.compress)))
@pytest.mark.parametrize("rows", (1, 20000))
def test_messages_may_be_compressed(grpc, name, pack, rows):
    raw = struct.pack("<f", 3) * 4 * rows
    message = pack(request(inputs=[tensor(shape=(rows, 4))], raw=[raw]))
    calls = []
    for method in ("ModelInfer", "ModelStreamInfer"):
        call = grpc.begin(method, end=False, grpc_encoding=name)
        for more in range(3 if "Stream" in method else 1, 0, -1):
            grpc.send(call, message, end=more == 1, flag=1)
        calls.append(call)
    for call in calls:
        grpc.until(lambda: call.closed)  # pylint: disable=cell-var-from-loop
        assert call.status == OK, call.text
    # an encoding that no message uses
    assert grpc.call("ModelInfer", request(1, 2, 3, 4), grpc_encoding=name).status == OK


@pytest.mark.parametrize("name, message, status", (
    ("snappy", b"xyz", UNIMPLEMENTED),
    ("identity", b"xyz", INTERNAL),
    ("gzip", b"xyz", INTERNAL),
    ("gzip", gzip.compress(b"x" * 100)[:-9], INTERNAL),
    ("gzip", gzip.compress(bytes(100000000)), EXHAUSTED),
))
def test_compressed_messages_are_checked(grpc, name, message, status):
    call = grpc.begin("ModelInfer", end=False, grpc_encoding=name)
    grpc.send(call, message, end=True, flag=1)
    grpc.until(lambda: call.closed)
    assert call.status == status, call.text
    assert ("grpc-accept-encoding" in call.headers) == (status == UNIMPLEMENTED)
    assert grpc.call("ModelInfer", request(1, 2, 3, 4)).status == OK


def test_what_is_no_grpc(server):
    server.model("m")
    server.start()
    with Client(server) as grpc:
        call = grpc.begin("ModelInfer", **{":method": "GET"})
        grpc.until(lambda: call.closed)
        assert call.headers[":status"] == "405"
        call = grpc.begin("ModelInfer", content_type="application/json")
        grpc.until(lambda: call.closed)
        assert call.headers[":status"] == "415"
        assert grpc.call("List", service="grpc.health.v1.Health").status == UNIMPLEMENTED
    with socket.create_connection(("127.0.0.1", server.grpc_port), SOON) as sock:
        sock.sendall(b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n" + b"x" * 100)
        try:
            while sock.recv(4096):
                pass
        except ConnectionResetError:
            pass


def test_a_message_in_pieces(grpc):
    message = request(1, 2, 3, 4)
    data = b"\0" + len(message).to_bytes(4, "big") + message
    call = grpc.begin("ModelInfer", end=False)
    for byte in data:
        grpc.data(call, bytes([byte]))
    grpc.h2.end_stream(call.id)
    grpc.flush()
    grpc.until(lambda: call.closed)
    assert outputs(call.messages[0]) == [1, 2, 3, 4]


def test_messages_without_their_end(grpc):
    for data, text in ((b"", "the message is not complete"),
                       (b"\0\0", "the message is not complete"),
                       (b"\0\0\0\0\5abcd", "the message is not complete"),
                       (b"\0\0\0\0\0" * 2, "more than one message")):
        call = grpc.begin("ModelInfer", end=False)
        grpc.data(call, data, end=True)
        grpc.until(lambda call=call: call.closed)
        assert (call.status, call.text) == (INVALID, text)


def test_large_messages_and_answers(server):
    n = 2_000_000
    server.model("m", dims=f"-1 {n}")
    server.start()
    values = os.urandom(4 * n)
    with Client(server) as grpc:
        call = grpc.infer(inputs=[tensor(shape=(1, n))], raw=[values[:4 * n]])
        assert call.status == OK and len(decode(call.messages[0])[6][0]) == 4 * n


def test_a_message_that_is_too_large(server):
    server.model("m")
    server.start(config="[server]\nmax_body = 100000\n")
    with Client(server) as grpc:
        call = grpc.begin("ModelInfer", end=False)
        grpc.data(call, b"\0" + (100001).to_bytes(4, "big"))
        grpc.until(lambda: call.closed)
        assert call.status == EXHAUSTED and call.text.startswith("the message is too large")
        assert grpc.call("ModelInfer", field(1, "x" * 99000)).status == NOT_FOUND


def test_many_small_parts_are_bounded_in_memory(server):
    server.model("m")
    server.start(config="[server]\nmax_memory = 1048576\n")
    with Client(server) as grpc:
        for part in (field(5, b""), field(6, b""), field(4, b"")):
            call = grpc.call("ModelInfer", field(1, "m") + part * 200000)
            assert (call.status, call.text) == (EXHAUSTED, "out of memory")
        assert grpc.infer(1, 2, 3, 4).status == OK
    soon(lambda: server.metric("pawl_serve_memory_bytes") == 0, "no memory is held")


def test_numbers_of_contents_count_where_they_are_converted(server):
    n = 100000
    server.model("m", dims=f"-1 {n}", gate=1)
    server.start(config="[server]\nmax_memory = 1048576\n")
    big = request(inputs=[tensor(shape=(1, n), contents=field(6, bytes(4 * n)))], raw=[])
    with Client(server) as grpc:
        first = grpc.begin("ModelInfer", big)
        soon(lambda: server.metric("pawl_serve_memory_bytes") >= 8 * n, "a message and numbers")
        call = grpc.call("ModelInfer", big)
        assert call.status == EXHAUSTED
        server.open("m")
        grpc.until(lambda: first.closed)
        assert first.status == OK
        assert grpc.call("ModelInfer", big).status == OK
    soon(lambda: server.metric("pawl_serve_memory_bytes") == 0, "no memory is held")


def test_messages_of_all_calls_are_bounded(server):
    server.model("m")
    server.start(config="[server]\nmax_body = 1000000\nmax_memory = 1048576\n")
    with Client(server) as grpc:
        first = grpc.begin("ModelInfer", end=False)
        grpc.data(first, b"\0" + (1000000).to_bytes(4, "big") + bytes(900000))
        soon(lambda: server.metric("pawl_serve_memory_bytes") >= 900000, "a message in memory")
        call = grpc.call("ModelInfer", b"x" * 500000)
        assert call.status == EXHAUSTED and "in memory" in call.text
        grpc.h2.reset_stream(first.id)
        grpc.flush()
        assert grpc.infer(1, 2, 3, 4).status == OK
    soon(lambda: server.metric("pawl_serve_memory_bytes") == 0, "no memory is held")


def test_many_calls_at_once(server):
    server.model("m", sleep_us=1000)
    server.start()
    with Client(server) as grpc:
        calls = [grpc.begin("ModelInfer", request(i, 0, 0, 0)) for i in range(100)]
        grpc.until(lambda: all(call.closed for call in calls))
        for i, call in enumerate(calls):
            assert call.status == OK and outputs(call.messages[0])[0] == i


def test_headers_are_bounded(grpc):
    call = grpc.begin("ModelInfer", request(1, 2, 3, 4), x_long="y" * 20000)
    grpc.until(lambda: call.closed)
    assert call.reset
    call = grpc.begin("ModelInfer", request(1, 2, 3, 4), grpc_timeout="nonsense")
    grpc.until(lambda: call.closed)
    assert call.reset
    assert grpc.infer(1, 2, 3, 4).status == OK


# --- operation ---

def test_deadlines(server):
    server.model("m", gate=1)
    server.start("--workers=1", config="[model m]\ninstances = 1\nmax_batch = 1\n")
    with Client(server) as grpc:
        first = grpc.begin("ModelInfer", request(1, 2, 3, 4))
        soon(lambda: server.metric("pawl_serve_queue_seconds_count", "m") == 1, "the first run")
        late = [grpc.call("ModelInfer", request(1, 2, 3, 4), grpc_timeout="50m"),
                grpc.infer(1, 2, 3, 4, timeout=50000)]
        assert [(c.status, c.text) for c in late] == [(LATE, "Request timeout expired")] * 2
        server.open("m")
        grpc.until(lambda: first.closed)
        assert first.status == OK
        assert server.metric("pawl_serve_timed_out_total", "m") == 2


# clients write a call without a deadline so; as nanoseconds, it has more than 63 or 64 bits
@pytest.mark.parametrize("hours", ["2562047H", "2562048H", "5124095H", "5124096H", "99999999H"])
def test_a_deadline_of_many_years(grpc, hours):
    call = grpc.call("ModelInfer", request(1, 2, 3, 4), grpc_timeout=hours)
    assert (call.status, outputs(call.messages[0])) == (OK, [1, 2, 3, 4])


def test_a_call_whose_message_does_not_arrive_ends_at_its_deadline(grpc):
    call = grpc.begin("ModelInfer", end=False, grpc_timeout="100m")
    grpc.until(lambda: call.closed)
    assert call.status == LATE


def test_a_full_queue_refuses_at_once(server):
    server.model("m", gate=1)
    server.start("--workers=1",
                 config="[model m]\ninstances = 1\nmax_batch = 1\nqueue_requests = 2\n")
    with Client(server) as grpc:
        calls = [grpc.begin("ModelInfer", request(1, 2, 3, 4))]
        soon(lambda: server.metric("pawl_serve_queue_seconds_count", "m") == 1, "the first run")
        calls += [grpc.begin("ModelInfer", request(1, 2, 3, 4)) for _ in range(2)]
        call = grpc.infer(1, 2, 3, 4)
        assert (call.status, call.text) == (EXHAUSTED, "Exceeds maximum queue size")
        server.open("m")
        grpc.until(lambda: all(c.closed for c in calls))
        assert [c.status for c in calls] == [OK] * 3


@pytest.mark.parametrize("how", ["reset", "close"])
def test_a_client_that_is_gone_is_canceled(server, how):
    server.model("m", gate=1)
    server.start("--workers=1", config="[model m]\ninstances = 1\nmax_batch = 1\n")
    with Client(server) as grpc:
        calls = [grpc.begin("ModelInfer", request(1, 2, 3, 4)) for _ in range(3)]
        soon(lambda: server.metric("nv_inference_pending_request_count", "m") == 2, "the queue")
        if how == "close":
            grpc.sock.close()
        else:
            for call in calls:
                grpc.h2.reset_stream(call.id)
            grpc.flush()
        soon(lambda: server.metric("pawl_serve_canceled_total", "m") == 3, "all are canceled")


def test_a_client_may_cancel_many_calls(server):
    server.model("m")
    server.start()
    with Client(server) as grpc:
        for _ in range(30):
            for _ in range(100):
                call = grpc.begin("ModelInfer", request(1, 2, 3, 4))
                grpc.h2.reset_stream(call.id)
            grpc.flush()
        assert grpc.call("ModelInfer", request(1, 2, 3, 4)).status == OK


def test_a_flood_of_resets_ends_the_connection(server):
    server.model("m")
    server.start()
    hpack = pytest.importorskip("hpack")
    block = hpack.Encoder().encode([
        (":method", "POST"), (":scheme", "http"), (":authority", "x"),
        (":path", "/inference.GRPCInferenceService/ServerLive"),
        ("content-type", "application/grpc"), ("te", "trailers")])

    def frame(kind, flags, stream, data):
        return (len(data).to_bytes(3, "big") + bytes([kind, flags]) +
                stream.to_bytes(4, "big") + data)
    with Client(server) as grpc:
        with pytest.raises(OSError):
            for first in range(1, 2000000, 2000):
                grpc.sock.sendall(b"".join(
                    frame(1, 4, n, block) + frame(3, 0, n, b"\0\0\0\x08")
                    for n in range(first, first + 2000, 2)))
                grpc.sock.settimeout(0.001)
                try:
                    while grpc.sock.recv(65536):
                        pass
                    raise ConnectionError("closed")
                except TimeoutError:
                    grpc.sock.settimeout(SOON)
    with Client(server) as grpc:
        assert grpc.call("ModelInfer", request(1, 2, 3, 4)).status == OK


def test_slow_clients(server):
    server.model("m")
    server.start(config="[server]\nread_timeout = 1\nidle_timeout = 2\n")
    with Client(server) as grpc:
        calls = [grpc.begin("ModelInfer", end=False), grpc.begin("ModelStreamInfer", end=False)]
        for call in calls:
            grpc.data(call, b"\0\0\0\0\5ab")
        grpc.until(lambda: all(call.closed for call in calls))
        assert [(c.status, c.text) for c in calls] == [(LATE, "the request took too long")] * 2
        # then the connection is idle
        with pytest.raises(ConnectionError):
            grpc.until(lambda: False)
        assert grpc.goaway.error_code == 0


@pytest.mark.parametrize("begin", [b"", b"PRI * HTTP/2.0", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                                   b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\6\4\0\0\0\0\0\0"])
def test_a_connection_that_does_not_begin(server, begin):
    """Half of the preface, no SETTINGS, or half of them."""
    server.start(config="[server]\nread_timeout = 1\nidle_timeout = 3600\n")
    with socket.create_connection(("127.0.0.1", server.grpc_port), SOON) as sock:
        sock.sendall(begin)
        while sock.recv(4096):
            pass


def test_a_message_that_arrives_byte_by_byte(server):
    server.model("m")
    server.start(config="[server]\nread_timeout = 1\n")
    with Client(server) as grpc:
        for method in "ModelInfer", "ModelStreamInfer":
            call = grpc.begin(method, end=False)
            grpc.data(call, b"\0\0\0\xff\xff")

            def slow():
                grpc.data(call, b"a")
                time.sleep(0.02)
                if select.select([grpc.sock], [], [], 0)[0]:
                    grpc.receive()
                return call.closed
            soon(slow, "the end")
            assert (call.status, call.text) == (LATE, "the request took too long")


def test_an_answer_that_is_read_byte_by_byte(server):
    server.model("m", dims="-1 4000")
    server.start(config="[server]\nwrite_timeout = 1\n")
    with Client(server, window=1) as grpc:
        call = grpc.begin("ModelInfer", request(inputs=[tensor(shape=(1, 4000))],
                                                raw=[bytes(16000)]))

        def slow():
            time.sleep(0.02)
            if not call.closed:
                grpc.h2.increment_flow_control_window(1, call.id)
                grpc.flush()
                grpc.receive()
            return call.closed
        soon(slow, "the end")
        assert call.reset
        soon(lambda: server.metric("pawl_serve_memory_bytes") == 0, "no memory is held")


def test_a_client_that_is_gone_without_a_word(server):
    server.model("m")
    server.start(config="[server]\nread_timeout = 1\nidle_timeout = 1\n")
    with Client(server) as grpc:
        grpc.begin("ModelStreamInfer", end=False)
        # it does not answer the ping
        soon(lambda: server.metric("pawl_serve_connections_total") and
             grpc.sock.recv(65536) == b"", "the end of the connection")


def test_a_client_that_does_not_read(server):
    n = 4_000_000
    server.model("m", dims=f"-1 {n}")
    server.start(config="[server]\nwrite_timeout = 5\n")
    # with a closed window of the call, and of the socket
    with Client(server, window=1000) as grpc:
        call = grpc.begin("ModelInfer", request(inputs=[tensor(shape=(1, n))],
                                                raw=[bytes(4 * n)]))
        grpc.until(lambda: call.closed)
        assert call.reset and len(call.data) == 1000
        soon(lambda: server.metric("pawl_serve_memory_bytes") == 0, "no memory is held")
    with Client(server, receive=4096) as grpc:
        grpc.h2.increment_flow_control_window(2**30)
        grpc.begin("ModelInfer", request(inputs=[tensor(shape=(1, n))], raw=[bytes(4 * n)]))
        soon(lambda: server.metric("nv_inference_request_success", "m") == 2, "the answer")
        soon(lambda: server.metric("pawl_serve_memory_bytes") == 0, "no memory is held")


def test_a_load_that_takes_longer_than_the_drain_is_answered(server):
    server.model("m", gate=1)
    server.start(config="[server]\ndrain = 1\n")
    server.model("slow", dims="-1 9", plan_gate=4)
    with Client(server) as grpc, Client(server) as other:
        load = grpc.begin("RepositoryModelLoad", field(2, "slow"))
        calls = [one.begin("ModelInfer", request(1, 2, 3, 4)) for one in (grpc, other)]
        # both have arrived, and so has the load, which is before one of them
        soon(lambda: server.metric("pawl_serve_submitted_total", "m") == 2 and
             server.metric("pawl_serve_queue_seconds_count", "m") >= 1, "the run")
        server.signal(signal.SIGTERM)
        grpc.until(lambda: calls[0].closed)
        with pytest.raises(ConnectionError):
            other.until(lambda: calls[1].closed)
        assert calls[0].reset and not load.closed
        server.open("slow", gate="plan")
        grpc.until(lambda: load.closed)
        assert load.status == OK
    soon(lambda: server.process.poll() is not None, "the end")
    assert server.process.returncode == 0


def test_too_many_connections(server):
    server.start(config="[server]\nmax_connections = 2\n")
    with Client(server) as one, Client(server) as two:
        assert one.call("ServerLive").status == two.call("ServerLive").status == OK
        with pytest.raises((ConnectionError, BrokenPipeError)):
            Client(server)


# --- the call with many messages ---

def answers(call):
    """[(error, ModelInferResponse)]"""
    out = []
    for message in call.messages:
        one = decode(message)
        out.append((one.get(1, [b""])[0].decode(), decode(one.get(2, [b""])[0])))
    return out


def test_stream(server):
    server.model("m", sleep_us=1000)
    server.start()
    with Client(server) as grpc:
        call = grpc.begin("ModelStreamInfer", *(request(i, 0, 0, 0, ident=str(i))
                                                for i in range(400)), end=False)
        grpc.send(call, request(1, 2, 3, 4, model="x", ident="bad"))
        grpc.send(call, request(1, 2, 3, 4, raw=[b""], ident="bad"))
        grpc.send(call, b"\x0b")
        grpc.send(call, request(7, 0, 0, 0, ident="last"), end=True)
        grpc.until(lambda: call.closed)
        assert call.status == OK
        got = answers(call)
        assert len(got) == 404
        good = {m[3][0].decode(): floats(m[6][0])[0] for error, m in got if not error}
        assert good == {**{str(i): i for i in range(400)}, "last": 7}
        bad = sorted((error, m.get(3)) for error, m in got if error)
        assert bad == [("Request for unknown model: 'x' is not found", [b"bad"]),
                       ("[request id: bad] input byte size mismatch for input 'INPUT0' for "
                        "model 'm'. Expected 16, got 0", [b"bad"]),
                       ("failed to parse the request message", None)]
        final = decode(next(m for error, m in got if not error)[4][0])
        assert final[1] == [b"triton_final_response"] and decode(final[2][0]) == {1: [1]}


def test_a_stream_without_messages(grpc):
    call = grpc.begin("ModelStreamInfer")
    grpc.until(lambda: call.closed)
    assert (call.status, call.messages) == (OK, [])
    call = grpc.begin("ModelStreamInfer", end=False)
    grpc.data(call, b"\0\0", end=True)
    grpc.until(lambda: call.closed)
    assert call.status == INVALID


def test_a_stream_has_a_limit_of_requests_in_work(server):
    server.model("m", gate=1)
    server.start("--workers=1", config="[model m]\ninstances = 1\nmax_batch = 1\n")
    with Client(server) as grpc:
        call = grpc.begin("ModelStreamInfer", *(request(i, 0, 0, 0) for i in range(300)))
        soon(lambda: server.metric("nv_inference_pending_request_count", "m") == 127,
             "128 are in work")
        server.open("m")
        grpc.until(lambda: call.closed)
        assert sorted(floats(m[6][0])[0] for _, m in answers(call)) == list(range(300))


def test_a_stream_whose_answers_are_not_read_takes_no_more(server):
    n = 100_000
    server.model("m", dims=f"-1 {n}")
    server.start()
    with Client(server, window=1000) as grpc:
        message = request(inputs=[tensor(shape=(1, n))], raw=[bytes(4 * n)])
        call = grpc.begin("ModelStreamInfer", end=False)
        sent = 0
        while grpc.h2.local_flow_control_window(call.id) > len(message) + 5:
            grpc.send(call, message)
            sent += 1
            time.sleep(0.05)
            # what has arrived meanwhile
            grpc.sock.settimeout(0.01)
            try:
                grpc.receive()
            except TimeoutError:
                pass
            grpc.sock.settimeout(SOON)
            assert sent < 100
        done = server.metric("nv_inference_request_success", "m")
        assert 2 <= done < 12 and server.metric("pawl_serve_memory_bytes") < 20 * 4 * n
    soon(lambda: server.metric("pawl_serve_memory_bytes") == 0, "no memory is held")


# --- start and stop ---

def test_stop(server):
    server.model("m", gate=1)
    server.start("--workers=1")
    with Client(server) as grpc, Client(server) as idle:
        call = grpc.begin("ModelInfer", request(1, 2, 3, 4))
        stream = grpc.begin("ModelStreamInfer", request(5, 6, 7, 8), end=False)
        soon(lambda: server.metric("pawl_serve_queue_seconds_count", "m") >= 1, "a run")
        server.signal(signal.SIGTERM)
        with pytest.raises(ConnectionError):
            idle.until(lambda: False)
        assert idle.goaway.error_code == 0
        # what has arrived is answered
        server.open("m")
        grpc.until(lambda: call.closed and stream.closed)
        assert call.status == OK and outputs(call.messages[0]) == [1, 2, 3, 4]
        assert len(answers(stream)) == 1 and stream.status == UNAVAILABLE
        with pytest.raises(ConnectionError):
            grpc.until(lambda: False)
        assert grpc.goaway.error_code == 0


def test_during_the_grace_time_calls_are_answered(server):
    server.model("m")
    server.start(config="[server]\ngrace = 60\n")
    with Client(server) as grpc:
        server.signal(signal.SIGTERM)
        soon(lambda: server.events("stopping"), "the signal")
        assert grpc.call("ServerReady").messages == [b""]
        assert grpc.infer(1, 2, 3, 4).status == OK
        # the client is told to use another connection
        grpc.until(lambda: grpc.goaway)
    server.signal(signal.SIGTERM)


def test_no_grpc(server):
    server.start("--grpc-port", "none")
    assert server.grpc_port is None
    assert server.get("/v2").status == 200
    bad = subprocess.run([SERVER, "--repository", server.repository, "--grpc-port", "x"],
                         capture_output=True, text=True, timeout=SOON)
    assert bad.returncode == 2 and "'x' is not good for --grpc-port" in bad.stderr


def test_a_port_that_is_in_use(server):
    server.start()
    other = subprocess.run([SERVER, "--repository", server.repository, "--port", "0",
                            "--grpc-port", str(server.grpc_port)], capture_output=True,
                           text=True, timeout=SOON)
    assert other.returncode == 1
    assert f"127.0.0.1, port {server.grpc_port}: Address already in use" in other.stderr


def test_two_loops(server):
    server.model("m")
    server.start("--io-threads", "2")
    for i in range(20):
        with Client(server) as grpc:
            assert outputs(grpc.infer(i, 0, 0, 0).messages[0])[0] == i
            stats = decode(grpc.call("ModelStatistics", field(1, "m")).messages[0])
            assert decode(stats[1][0])[4] == [i + 1]
