# SPDX-License-Identifier: Apache-2.0
"""The client for scenes that check each answer or send two kinds of requests at once:
connections of HTTP/1.1 with an epoll."""
import collections
import json
import os
import random
import select
import socket
import time

import numpy as np

TYPES = {1: ("FP32", np.float32), 6: ("INT32", np.int32), 7: ("INT64", np.int64)}


def request(name, inputs, binary=True, rows=1):
    """The bytes of a request with zeros; inputs as models.inputs_of() has them."""
    described, data = [], b""
    for i, kind, shape in inputs:
        datatype, dtype = TYPES[kind]
        shape = [rows if d < 0 else d for d in shape]
        raw = np.zeros(shape, dtype).tobytes()
        data += raw
        described.append({"name": i, "datatype": datatype, "shape": shape,
                          "parameters": {"binary_data_size": len(raw)}})
    head = json.dumps({"inputs": described,
                       "parameters": {"binary_data_output": binary}}).encode()
    return (f"POST /v2/models/{name}/infer HTTP/1.1\r\nHost: x\r\n"
            f"Inference-Header-Content-Length: {len(head)}\r\n"
            f"Content-Length: {len(head) + len(data)}\r\n\r\n").encode() + head + data


class Pool:
    """Connections, each with one request in flight; further requests wait here."""

    def __init__(self, port, connections):
        self.port, self.epoll = port, select.epoll()
        self.conns, self.idle, self.waiting = {}, [], collections.deque()
        for _ in range(connections):
            self.connect()

    def connect(self):
        s = socket.create_connection(("127.0.0.1", self.port), 10)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.conns[s.fileno()] = [s, None, b""]
        self.epoll.register(s.fileno(), select.EPOLLIN)
        self.idle.append(s.fileno())

    def close(self):
        for s, _, _ in self.conns.values():
            s.close()
        self.epoll.close()

    def send(self, data, token):
        if self.idle:
            conn = self.conns[self.idle.pop()]
            conn[1], conn[2] = token, b""
            conn[0].sendall(data)
        else:
            self.waiting.append((data, token))

    def busy(self):
        return len(self.conns) - len(self.idle) + len(self.waiting)

    def poll(self, timeout):
        """The answers that have arrived: (token, status, body)."""
        done = []
        for fd, _ in self.epoll.poll(timeout):
            conn = self.conns.get(fd)
            if not conn:
                continue
            part = conn[0].recv(1 << 18)
            conn[2] += part
            answer = self.parse(conn[2])
            if not part:
                self.epoll.unregister(fd)
                del self.conns[fd]
                if conn[1] is not None:
                    done.append((conn[1], 0, b""))
                else:
                    self.idle.remove(fd)
                conn[0].close()
                self.connect()
            elif answer:
                done.append((conn[1], *answer))
                conn[1] = None
                self.idle.append(fd)
        while self.idle and self.waiting:
            self.send(*self.waiting.popleft())
        return done

    @staticmethod
    def parse(data):
        end = data.find(b"\r\n\r\n")
        if end < 0:
            return None
        head = data[:end].lower()
        at = head.find(b"content-length:")
        length = int(head[at + 15:].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(data) < end + 4 + length:
            return None
        return int(head[9:12]), data[end + 4:end + 4 + length]


class Times:
    """Latencies and results of one stream of requests."""

    def __init__(self):
        self.ok, self.refused, self.failed = [], [], 0

    def add(self, status, seconds):
        if status == 200:
            self.ok.append(seconds)
        elif status == 503:
            self.refused.append(seconds)
        else:
            self.failed += 1

    def result(self, seconds):
        return {"rate": len(self.ok) / seconds, "ok": len(self.ok), "failed": self.failed,
                "refused": len(self.refused), **percentiles(self.ok),
                **{"refused_" + k: v for k, v in percentiles(self.refused).items()}}


def percentiles(seconds):
    if not seconds:
        return {}
    a = np.sort(np.asarray(seconds)) * 1e6
    return {name: float(a[min(len(a) - 1, int(len(a) * q))])
            for name, q in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999))}


def run(port, streams, seconds, check=None):
    """Streams of requests at once, each {data, rate} (Poisson, latency from the intended start)
    or {data, flood} (as many requests in flight).  Returns a result for each.  check(body) may
    return the reason why an answer is wrong, which counts as a failure."""
    rng = random.Random(1)
    pools = [Pool(port, s.get("flood") or 64) for s in streams]
    times = [Times() for _ in streams]
    begin = time.monotonic()
    end, wrong = begin + seconds, []
    due = [begin + rng.expovariate(s["rate"]) if "rate" in s else None for s in streams]
    for s, pool in zip(streams, pools):
        for _ in range(s.get("flood", 0)):
            pool.send(s["data"], time.monotonic())
    while True:
        now = time.monotonic()
        for i, s in enumerate(streams):
            while due[i] is not None and due[i] <= now:
                pools[i].send(s["data"], due[i])
                due[i] += rng.expovariate(s["rate"])
                if due[i] > end:
                    due[i] = None
        if now > end and (now > end + 5 or not any(p.busy() for p in pools)):
            break
        nearest = min([d for d in due if d is not None] or [now + 0.05])
        ready = select.select([p.epoll for p in pools], [], [],
                              max(0, min(nearest - now, 0.05)))
        for i, pool in enumerate(pools):
            if pool.epoll not in ready[0]:
                continue
            for started, status, body in pool.poll(0):
                at = time.monotonic()
                why = check(body) if check and status == 200 else None
                if why:
                    wrong.append(why)
                    status = -1
                if at <= end:
                    times[i].add(status, at - started)
                if streams[i].get("flood") and at < end:
                    pool.send(streams[i]["data"], at)
    unanswered = sum(p.busy() for p in pools)
    for pool in pools:
        pool.close()
    return [dict(t.result(seconds), unanswered=unanswered, wrong=wrong[:3]) for t in times]


def warm(port, name, inputs, most):
    """Send a request of each number of rows, so that all plans exist afterwards."""
    rows = range(1, most + 1) if inputs[0][2][0] < 0 else [1]
    pool = Pool(port, 1)
    for n in rows:
        pool.send(request(name, inputs, rows=n), n)
        while pool.busy():
            for _, status, body in pool.poll(10) or [(0, 0, b"no answer")]:
                if status != 200:
                    raise RuntimeError(f"{name}: {status} {body[:200]}")
    pool.close()


def pin(core):
    os.sched_setaffinity(0, {core})


def json_outputs(body):
    """The first element of each output, by name."""
    return {o["name"]: o["data"][0] for o in json.loads(body)["outputs"]}
