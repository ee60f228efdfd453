# SPDX-License-Identifier: Apache-2.0
"""A server like server.py over gRPC; the names of its models say how it misbehaves.  python3-h2
makes the frames of HTTP/2."""
import os
import socket
import sys
import threading

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "..", "serve", "http"))
from wire import decode, field, varint      # noqa: E402

OK, INVALID, NOT_FOUND, EXHAUSTED, INTERNAL, UNAVAILABLE = 0, 3, 5, 8, 13, 14
INPUTS = {"INPUT0": ("FP32", (-1, 4))}


def message(data):
    return b"\0" + len(data).to_bytes(4, "big") + data


class Connection:
    """One connection, on its own thread."""

    def __init__(self, server, sock):
        self.server, self.sock = server, sock
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(
            client_side=False, header_encoding="utf-8"))
        if server.streams:
            self.h2.local_settings = h2.settings.Settings(client=False, initial_values={
                h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: server.streams})
        self.streams, self.waiting, self.held = {}, {}, []
        self.served, self.open = 0, True
        self.lock = threading.Lock()

    def run(self):
        self.h2.initiate_connection()
        self.sock.sendall(self.h2.data_to_send())
        while self.open:
            data = self.sock.recv(65536)
            if not data:
                return
            with self.lock:
                self.received(data)

    def received(self, data):
        try:
            for event in self.h2.receive_data(data):
                try:
                    self.event(event)
                except (h2.exceptions.StreamClosedError,
                        h2.exceptions.StreamIDTooLowError) as error:
                    # the client has canceled it, and perhaps begun another one
                    self.streams.pop(error.stream_id, None)
                    self.waiting.pop(error.stream_id, None)
        except h2.exceptions.ProtocolError as error:
            self.server.errors.append(repr(error))
            self.open = False
        self.send_all()
        self.sock.sendall(self.h2.data_to_send())

    def event(self, event):
        if isinstance(event, h2.events.RequestReceived):
            self.streams[event.stream_id] = [dict(event.headers), b""]
            self.server.most = max(self.server.most, len(self.streams))
        elif isinstance(event, h2.events.DataReceived):
            self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            self.streams[event.stream_id][1] += event.data
        elif isinstance(event, h2.events.StreamEnded):
            self.call(event.stream_id, *self.streams[event.stream_id])
        elif isinstance(event, h2.events.StreamReset):
            self.streams.pop(event.stream_id, None)
            self.waiting.pop(event.stream_id, None)

    def call(self, stream, headers, data):
        assert data[0] == 0 and int.from_bytes(data[1:5], "big") == len(data) - 5
        request = decode(data[5:])
        name = request[1][0].decode()
        if not hasattr(self, "model_" + name):
            self.fail(stream, NOT_FOUND, "unknown model")
        elif headers[":path"].endswith("/ModelMetadata"):
            self.answer(stream, self.describe())
        else:
            assert headers[":path"] == "/inference.GRPCInferenceService/ModelInfer"
            self.server.requests.append((name, headers, request))
            self.served += 1
            getattr(self, "model_" + name)(stream)

    def describe(self):
        return b"".join(
            field(4, field(1, name) + field(2, kind) +
                  field(3, b"".join(varint(d) for d in shape)))
            for name, (kind, shape) in self.server.inputs.items())

    def answer(self, stream, data=b"", framed=True):
        self.h2.send_headers(stream, [(":status", "200"),
                                      ("content-type", "application/grpc")])
        self.waiting[stream] = message(data) if framed else data
        self.send(stream)

    def send_all(self):
        for stream in list(self.waiting):
            self.send(stream)

    def send(self, stream):
        """Send what flow control permits, and the trailers at the end."""
        data = self.waiting.pop(stream)
        while data:
            n = min(self.h2.local_flow_control_window(stream),
                    self.h2.max_outbound_frame_size, len(data))
            if not n:
                self.waiting[stream] = data
                return
            self.h2.send_data(stream, data[:n])
            data = data[n:]
        del self.streams[stream]
        self.h2.send_headers(stream, [("grpc-status", "0")], end_stream=True)

    def fail(self, stream, status, text):
        del self.streams[stream]
        self.h2.send_headers(stream, [
            (":status", "200"), ("content-type", "application/grpc"),
            ("grpc-status", str(status)), ("grpc-message", text)], end_stream=True)

    def reset(self, stream, error):
        del self.streams[stream]
        self.h2.reset_stream(stream, error)

    # What a model does.

    model_good = answer

    def model_large(self, stream):
        self.answer(stream, bytes(3 << 20))

    def model_split(self, stream):
        self.h2.send_headers(stream, [(":status", "200")])
        for byte in message(b"ab"):
            self.h2.send_data(stream, bytes([byte]))
        del self.streams[stream]
        self.h2.send_headers(stream, [("grpc-status", "0")], end_stream=True)

    def model_together(self, stream):
        """Answers when four requests have arrived, the last one first."""
        self.held.append(stream)
        if len(self.held) == 4:
            for one in reversed(self.held):
                self.answer(one)
            self.held = []

    def model_goaway(self, stream):
        """Each connection has ten requests."""
        self.answer(stream)
        if self.served == 10:
            self.h2.close_connection(last_stream_id=stream)
            self.open = False

    def model_aging(self, stream):
        """Each connection announces its end after ten calls; they are answered later."""
        if self.served == 10:
            self.sock.sendall(self.h2.data_to_send() + bytes((0, 0, 8, 7, 0, 0, 0, 0, 0)) +
                              (2 ** 31 - 1).to_bytes(4, "big") + bytes(4))
        threading.Timer(0.2, self.late, (stream,)).start()

    def late(self, stream):
        with self.lock:
            self.answer(stream)
            self.sock.sendall(self.h2.data_to_send())

    def model_proxy(self, stream):
        """A proxy in front of the server answers."""
        del self.streams[stream]
        self.h2.send_headers(stream, [(":status", "503")], end_stream=True)

    def model_full(self, stream):
        self.fail(stream, EXHAUSTED, "the queue is full")

    def model_unavailable(self, stream):
        self.fail(stream, UNAVAILABLE, "no")

    def model_refused(self, stream):
        self.reset(stream, h2.errors.ErrorCodes.REFUSED_STREAM)

    def model_failing(self, stream):
        self.fail(stream, INTERNAL, "the model%0Afailed")

    def model_http(self, stream):
        del self.streams[stream]
        self.h2.send_headers(stream, [(":status", "415")], end_stream=True)

    def model_some(self, stream):
        """Every fourth request is refused, fails, or is lost."""
        k = len(self.server.requests) % 4
        (self.model_good, self.model_full, self.model_failing, self.model_reset)[k](stream)

    def model_reset(self, stream):
        self.reset(stream, h2.errors.ErrorCodes.INTERNAL_ERROR)

    def model_close(self, _):
        self.open = False

    def model_junk(self, _):
        self.sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(100))
        self.open = False

    def model_noise(self, _):
        """The same, but the connection stays open."""
        self.sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(100))

    def model_words(self, stream):
        """A status that is no number."""
        self.h2.send_headers(stream, [(":status", "200")])
        self.h2.send_data(stream, message(b""))
        del self.streams[stream]
        self.h2.send_headers(stream, [("grpc-status", "fine")], end_stream=True)

    def model_empty(self, stream):
        """OK without a message."""
        self.answer(stream, framed=False)

    def model_half(self, stream):
        self.answer(stream, message(b"abcd")[:-1], framed=False)

    def model_silent(self, stream):
        """No status."""
        del self.streams[stream]
        self.h2.send_headers(stream, [(":status", "200")])
        self.h2.send_data(stream, message(b""), end_stream=True)

    def model_hang(self, _):
        pass


class Server:
    """requests: (model, headers, message); most: calls of a connection at once."""

    def __init__(self):
        self.fresh()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def fresh(self):
        self.inputs, self.streams = INPUTS, 0
        self.requests, self.errors, self.most, self.connections = [], [], 0, 0

    def accept(self):
        while True:
            sock = self.listener.accept()[0]
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections += 1
            threading.Thread(target=self.connection, args=(sock,), daemon=True).start()

    def connection(self, sock):
        with sock:
            try:
                Connection(self, sock).run()
            except OSError:
                pass
