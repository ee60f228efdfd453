# SPDX-License-Identifier: Apache-2.0
"""Replicas behind haproxy restart, and no request fails, as Documentation/serve.md says."""
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest

from conftest import Server, read_answer, row, sanitized, soon, text_request

DOCUMENT = os.path.join(os.path.dirname(__file__), "../../../Documentation/serve.md")
HAPROXY = shutil.which("haproxy", path=os.environ.get("PATH", "") + ":/usr/sbin")
pytestmark = pytest.mark.skipif(not HAPROXY, reason="haproxy is not installed")


def configuration():
    """The block of the document that begins with "global"."""
    with open(DOCUMENT, encoding="utf-8") as file:
        block = re.search(r"\n(\tglobal\n(?:\t.*\n|\n)*)", file.read()).group(1)
    return "\n".join(line[1:] for line in block.splitlines()) + "\n"


def free_ports(n):
    """Ports that no one listens on, below those that the kernel assigns to connections."""
    found = []
    for port in range(20000 + 4 * os.getpid() % 11000, 32000):
        with socket.socket() as sock:
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == n:
            return found
    raise AssertionError("no free ports")


def test_replicas_restart_under_load(tmp_path):
    if sanitized():
        pytest.skip("test_operation.py has each step of it")
    text = configuration()
    ports = free_ports(3)
    for written, port in zip((8000, 8011, 8012), ports):
        assert text.count(f":{written}\n") == 1
        text = text.replace(f":{written}\n", f":{port}\n")
    conf = tmp_path / "haproxy.cfg"
    conf.write_text(text)
    replicas = [Server(tmp_path / str(k)) for k in range(2)]

    def start(k):
        # the last of two options counts
        replicas[k].start("--io-threads=1", "--grpc-port=none", "--port", str(ports[k + 1]),
                          config="[server]\ngrace = 2\n")
    with contextlib.ExitStack() as stack:
        for k in range(2):
            replicas[k].model("m", sleep_us=500)
            stack.callback(replicas[k].stop)
            start(k)
        proxy = stack.enter_context(subprocess.Popen([HAPROXY, "-f", str(conf)],
                                                     stderr=subprocess.DEVNULL))
        end = threading.Event()
        answered, bad = [0] * 8, []

        def client(k):
            while not end.is_set():
                with socket.create_connection(("127.0.0.1", ports[0]), 60) as sock, \
                        sock.makefile("rb") as file:
                    while not end.is_set():
                        sock.sendall(text_request(row([k] * 4)))
                        answer = read_answer(file)
                        if not answer or answer[0] != 200:
                            bad.append(answer)
                            return
                        answered[k] += 1
                        if answer[1].get("connection") == "close":
                            break

        def up():
            with socket.socket() as sock:
                return not sock.connect_ex(("127.0.0.1", ports[0]))
        pool = [threading.Thread(target=client, args=(k,)) for k in range(8)]
        try:
            soon(lambda: up() or proxy.poll() is not None, "the proxy listens")
            assert proxy.poll() is None, subprocess.run(
                [HAPROXY, "-c", "-f", str(conf)], capture_output=True, check=False)
            for t in pool:
                t.start()
            for _ in range(2):
                for k, one in enumerate(replicas):
                    for other in replicas:
                        soon(lambda one=other: one.stat("m")["inference_count"] > 20 or bad,
                             "requests of both")
                    # a replica that has no CPU for three checks is late, and not down
                    replicas[1 - k].signal(signal.SIGSTOP)
                    try:
                        time.sleep(1.5)
                        one.signal(signal.SIGTERM)
                    finally:
                        replicas[1 - k].signal(signal.SIGCONT)
                    soon(lambda one=one: one.process.poll() is not None, "the end")
                    assert one.stop() == 0
                    start(k)
            soon(lambda: min(answered) > 20, "answers of all clients")
        finally:
            end.set()
            for t in pool:
                if t.is_alive():
                    t.join()
            proxy.terminate()
            proxy.wait()
            status = [one.stop() for one in replicas]
    assert not bad, bad[:3]
    assert status == [0, 0]
