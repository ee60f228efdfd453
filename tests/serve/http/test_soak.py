# SPDX-License-Identifier: Apache-2.0
"""Everything at once, for $PAWL_SERVE_SOAK seconds (3): see test_soak().

make soak-serve SECONDS=1800 runs it alone; make check-all for two minutes.
"""
import json
import os
import random
import shutil
import signal
import statistics
import threading
import time

from conftest import read_answer, row, sanitized, soon, text_request

SECONDS = float(os.environ.get("PAWL_SERVE_SOAK", "3"))
SHORT = 20                      # shorter runs have no figure of memory
MODELS = ("a", "any", "slow")
CONFIG = """
[model]
slot_bytes = 1000000
[model a]
preferred_batches = 4
[model slow]
max_batch = 1
queue_requests = 20
"""


class Chaos:
    def __init__(self, server):
        self.server = server
        self.end = threading.Event()
        self.bad = []
        self.counts = {}
        self.lock = threading.Lock()

    def count(self, what):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def check(self, good, *what):
        if not good:
            self.bad.append(what)

    def clients(self, n, body):
        """n threads that run body(sock, file, random), on connections that stay."""
        def client(seed):
            rng = random.Random(seed)
            while not self.end.is_set():
                with self.server.connect() as sock, sock.makefile("rb") as file:
                    for _ in range(200):
                        if self.end.is_set() or not body(sock, file, rng):
                            break
        return [(client, (k,)) for k in range(n)]

    def plain(self, sock, file, rng):
        """Answers are right, and those of the version that they name."""
        rows, value = rng.randint(1, 3), rng.randint(0, 1000)
        sock.sendall(text_request({"inputs": [
            {"name": "INPUT0", "shape": [rows, 4], "datatype": "FP32",
             "data": [value] * 4 * rows}]}, "/v2/models/a/infer"))
        status, _, body = read_answer(file)
        answer = json.loads(body)
        self.check(status == 200 and answer["outputs"][0]["data"] ==
                   [value + int(answer["model_version"])] * 4 * rows, "plain", status, body)
        self.count("plain")
        return True

    def shapes(self, sock, file, rng):
        """Any shape; an element above 999 is bad data, and fails that request alone."""
        width = rng.choice((4, 4, rng.randint(1, 60), rng.randint(1, 3000)))
        bad = rng.random() < .1
        sock.sendall(text_request({"inputs": [
            {"name": "INPUT0", "shape": [1, width], "datatype": "FP32",
             "data": [5] * (width - 1) + [1000 if bad else 5]}]}, "/v2/models/any/infer"))
        status, _, body = read_answer(file)
        self.check(status == (400 if bad else 200), "shapes", status, body[:200])
        self.count("bad data" if bad else "shapes")
        return True

    def overload(self, _sock, _file, _rng):
        socks = [self.server.connect() for _ in range(40)]
        files = [s.makefile("rb") for s in socks]
        for sock in socks:
            sock.sendall(text_request(row([0] * 4), "/v2/models/slow/infer"))
        for file in files:
            status = read_answer(file)[0]
            self.check(status in (200, 503), "overload", status)
            self.count(f"overload {status}")
        for one in files + socks:
            one.close()
        return True

    def killed(self, sock, _file, rng):
        text = text_request(row([0] * 4), f"/v2/models/{rng.choice(MODELS)}/infer")
        sock.sendall(text[:rng.choice((1, 30, len(text) - 1, len(text), len(text)))])
        if rng.random() < .5:
            sock.setsockopt(1, 13, b"\1\0\0\0\0\0\0\0")         # SO_LINGER: a reset
        self.count("killed")
        return False

    def slow(self, sock, file, rng):
        text = text_request(row([1] * 4), "/v2/models/any/infer")
        at = 0
        while at < len(text) and not self.end.is_set():
            n = rng.randint(1, 40)
            sock.sendall(text[at:at + n])
            at += n
            time.sleep(.005)
        if at >= len(text):
            self.check(read_answer(file)[0] == 200, "slow")
            self.count("slow")
        return True

    def deadlines(self, sock, file, rng):
        sock.sendall(text_request(row([0] * 4, parameters={"timeout": rng.randint(1, 5000)}),
                                  "/v2/models/slow/infer"))
        status = read_answer(file)[0]
        self.check(status in (200, 503), "deadline", status)
        self.count(f"deadline {status}")
        return True

    def swaps(self):
        version = 1
        while not self.end.wait(.2):
            version += 1
            self.server.model("a", version, add=version, sleep_us=100)
            if version % 2:
                self.server.signal(signal.SIGHUP)
            else:
                answer = self.server.post("/v2/repository/models/a/load")
                self.check(answer.status == 200, "load", answer.body)
            # the one before the last is not read any more
            if version > 3:
                shutil.rmtree(os.path.join(self.server.repository, "a", str(version - 3)))
            self.count("swap")


def resident(pid):
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096


def test_soak(server):
    """
    Clients of all kinds at once, while versions are swapped.  Each answer is right.  At the end
    each request that was parsed has succeeded, failed or was canceled; no op is in flight; the
    server has the descriptors that it had at the start, and ends with status 0.  Memory: the
    median of its resident size in the last quarter of the time is at most 10 % and 8 MB above
    that in the second quarter; the first one is for warming up.
    """
    server.model("a", 1, add=1, sleep_us=100)
    server.model("any", dims="-1 -1", largest=999)
    server.model("slow", sleep_us=3000)
    server.start("--io-threads=2", "--workers=2", config=CONFIG)
    pid = server.process.pid
    assert server.get("/metrics").status == 200

    def descriptors():
        return len(os.listdir(f"/proc/{pid}/fd"))
    before = descriptors()
    chaos = Chaos(server)
    work = (chaos.clients(3, chaos.plain) + chaos.clients(6, chaos.shapes) +
            chaos.clients(1, chaos.overload) + chaos.clients(1, chaos.killed) +
            chaos.clients(2, chaos.slow) + chaos.clients(1, chaos.deadlines) +
            [(chaos.swaps, ())])
    pool = [threading.Thread(target=guard(chaos, f), args=args) for f, args in work]
    for t in pool:
        t.start()
    sizes = []
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and not chaos.bad:
        sizes.append(resident(pid))
        assert server.get("/metrics").status == 200
        time.sleep(min(1, SECONDS / 40))
    chaos.end.set()
    for t in pool:
        t.join()
    assert not chaos.bad, chaos.bad[:3]

    def ended():
        text = server.get("/metrics").body.decode()
        found = {}
        for line in text.splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                key = name.split("{")[0]
                found[key] = found.get(key, 0) + float(value)
        # the figures of a version are in the log when it is freed
        for event in server.events("freed"):
            for key, name in (("requests", "pawl_serve_submitted_total"),
                              ("succeeded", "nv_inference_request_success"),
                              ("failed", "nv_inference_request_failure"),
                              ("canceled", "pawl_serve_canceled_total")):
                found[name] += int(event[key])
        gone = sum(found[k] for k in ("nv_inference_request_success",
                                      "nv_inference_request_failure",
                                      "pawl_serve_canceled_total"))
        return (found["pawl_serve_submitted_total"] == gone and
                found["nv_inference_pending_request_count"] == 0 and
                found["pawl_ops_in_flight"] == 0 and descriptors() <= before + 1 and found)
    found = soon(ended, "all requests have ended")
    # the server adds no counts of its own
    answers = sum(n for what, n in chaos.counts.items() if what not in ("killed", "swap"))
    assert answers <= found["pawl_serve_submitted_total"] <= answers + chaos.counts["killed"]
    assert all(chaos.counts.get(what) for what in ("plain", "shapes", "bad data", "killed",
                                                   "overload 200", "swap"))
    soon(lambda: len(server.events("loaded")) == len(server.events("freed")) + len(MODELS),
         "old versions are freed")
    quarter = len(sizes) // 4
    first = statistics.median(sizes[quarter:2 * quarter])
    last = statistics.median(sizes[-quarter:])
    # the address sanitizer keeps memory that was freed
    if SECONDS >= SHORT and not sanitized():
        assert last <= first * 1.1 + (8 << 20), (first, last)
    assert server.stop() == 0
    assert not [e for e in server.lines if e["level"] == "error"]
    print(f"\nsoak seconds={SECONDS:.0f} requests={found['pawl_serve_submitted_total']:.0f} "
          f"canceled={found['pawl_serve_canceled_total']:.0f} "
          f"alone={found['pawl_serve_alone_total']:.0f} "
          f"plans={found['pawl_serve_plans_total']:.0f} versions={chaos.counts['swap']} "
          f"rss={first / 1e6:.1f}>{last / 1e6:.1f} MB {chaos.counts}")


def guard(chaos, function):
    def run(*args):
        try:
            function(*args)
        except Exception as error:      # pylint: disable=broad-except
            chaos.bad.append((function, error))
    return run
