# SPDX-License-Identifier: Apache-2.0
"""Memory: 10 000 connections that are open and idle, and bodies; what the former cost others."""
import json
import os
import resource
import statistics
import time

import pytest

from conftest import Server, read_answer, row, sanitized, soon, text_request

IDLE = 10000
ROOM = 500                      # other descriptors
ROUNDS, REQUESTS = 20, 100
BYTES = 4096                    # of a connection, at most


def resident(pid):
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096


def cpu_ns(pid):
    """The time that the threads of a process ran."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as file:
            total += int(file.read().split()[0])
    return total


@pytest.fixture
def descriptors():
    if sanitized():
        pytest.skip("the server has a sanitizer")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < IDLE + ROOM:
        pytest.skip(f"{hard} descriptors at most (ulimit -Hn)")
    if not os.path.exists("/proc/self/schedstat"):
        pytest.skip("the kernel has no /proc/PID/schedstat")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, IDLE + ROOM), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_idle_connections_cost_little(tmp_path, descriptors):
    """
    A connection that is idle takes less than BYTES of memory.  A request on another one costs
    the server no more CPU time than in a second server without idle connections: the two take
    turns, and the least times of a round differ by a factor of less than three, for the caches
    of the CPU.  A walk of all connections per event, at 10 ns each, would make it five.
    """
    pair = [Server(tmp_path / name) for name in ("idle", "none")]
    idle, costs, times = [], ([], []), ([], [])
    try:
        for one in pair:
            one.model("m")
            one.start("--io-threads=1", "--workers=1",
                      config=f"max_connections = {IDLE + 100}\nidle_timeout = 3600\n")
        crowded = pair[0]
        before = resident(crowded.process.pid)
        for _ in range(IDLE):
            idle.append(crowded.connect())
        soon(lambda: crowded.metric("pawl_serve_connections_total") >= IDLE, "all connections")
        per_connection = (resident(crowded.process.pid) - before) / IDLE
        # a request each: what a connection keeps after it
        text = text_request(row([0] * 4))
        others = [pair[1].connect() for _ in idle[::10]]
        for some in (idle[::10], others):
            for sock in some:
                sock.sendall(text)
            for sock in some:
                with sock.makefile("rb") as file:
                    assert read_answer(file)[0] == 200
        for sock in others:
            sock.close()
        used = (resident(crowded.process.pid) - before) / IDLE
        assert max(per_connection, used) < BYTES
        socks = [one.connect() for one in pair]
        files = [s.makefile("rb") for s in socks]
        for _ in range(ROUNDS):
            for k, one in enumerate(pair):
                begin, cpu = time.monotonic(), cpu_ns(one.process.pid)
                for _ in range(REQUESTS):
                    socks[k].sendall(text)
                    assert read_answer(files[k])[0] == 200
                costs[k].append((cpu_ns(one.process.pid) - cpu) / REQUESTS / 1000)
                times[k].append((time.monotonic() - begin) / REQUESTS * 1e6)
        with_idle, without = (min(c) for c in costs)
        print(f"\n{IDLE} idle connections: {per_connection:.0f} bytes each "
              f"({used:.0f} after a request of each tenth); a request takes "
              f"{with_idle:.0f} us of CPU time with them, {without:.0f} without; "
              f"{statistics.median(times[0]):.0f} and {statistics.median(times[1]):.0f} us")
        assert with_idle < 3 * without
        for one in files + socks:
            one.close()
    finally:
        for sock in idle:
            sock.close()
        status = [one.stop() for one in pair]
    assert status == [0, 0]


@pytest.mark.parametrize("size", [200, 5000, 20000])
def test_the_memory_of_bodies_is_what_they_take(server, descriptors, size):
    """
    Bodies that have not arrived completely.  The server's metric is the memory that the process
    takes for them: a quarter less or more, for what else it allocates and for pages that lie
    between two buffers.
    """
    count = 2000
    server.model("m")
    server.start("--io-threads=1", "--workers=1", config="read_timeout = 3600\n")
    socks = [server.connect() for _ in range(count)]
    for sock in socks:
        sock.sendall(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\n")
    soon(lambda: server.metric("pawl_serve_connections_total") >= count, "all connections")
    before = resident(server.process.pid)
    for sock in socks:
        sock.sendall(f"Content-Length: {size + 1}\r\n\r\n".encode() + bytes(size))
    soon(lambda: server.metric("pawl_serve_memory_bytes") >= count * size, "all bodies")
    counted = server.metric("pawl_serve_memory_bytes")
    used = resident(server.process.pid) - before
    print(f"\n{count} bodies of {size} bytes: {counted / count:.0f} bytes each are counted, "
          f"and {used / count:.0f} are used")
    assert 0.75 * used < counted < 1.25 * used
    for sock in socks:
        sock.close()
    soon(lambda: server.metric("pawl_serve_memory_bytes") == 0, "no memory is held")


@pytest.mark.parametrize("width", (1500, 40000))
def test_large_texts_leave_no_buffers(server, width):
    """What ops made for one request is not kept for the next, in which they make it again."""
    server.model("any", dims="-1 -1")
    server.start("--workers=2")
    body = json.dumps({"inputs": [{"name": "INPUT0", "shape": [1, width], "datatype": "FP32",
                                   "data": [1234.5] * width}]}).encode()
    text = text_request(body, "/v2/models/any/infer")
    with server.connect() as sock, sock.makefile("rb") as file:
        def ask(n):
            for _ in range(n):
                sock.sendall(text)
                assert read_answer(file)[0] == 200
        ask(50)
        before = resident(server.process.pid)
        ask(100 + 20000000 // len(body) // 10)
        assert sanitized() or resident(server.process.pid) - before < 4 << 20
