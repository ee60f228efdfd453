# SPDX-License-Identifier: Apache-2.0
"""The page at /, and the parameter that it uses to show the path of a request."""
import base64
import hashlib
import json
import re

import conftest


def test_page_needs_nothing_else(server):
    server.model("m", 1)
    server.start(config="token = secret\n")
    answer = server.get("/")
    text = answer.body.decode()
    assert answer.status == 200 and answer.headers["Content-Type"] == "text/html; charset=utf-8"
    # no address of another server, apart from names of XML
    assert set(re.findall(r"https?://[^\"' ]+", text)) <= {
        "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xhtml"}
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ") and "unsafe" not in policy
    for tag in ("script", "style"):
        parts = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert len(parts) == 1
        digest = base64.b64encode(hashlib.sha256(parts[0].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    # neither attributes with code nor with style, which the policy would refuse
    assert not re.search(r"<[^>]* (style|on\w+)=", text.split("<script>")[0])
    # the page has no secret, but what it shows needs the token
    assert server.get("/metrics").status == 401
    assert server.get("/?x=1").status == 200
    assert server.post("/").status == 405
    assert server.get("/index.html").status == 401


def layers(answer):
    assert answer.status == 200, answer.body
    return json.loads(answer.json["parameters"]["layers"])


def test_layers(server):
    server.model("m", 1, layers=3, sleep_us=2000)
    server.start()
    path = layers(server.infer("m", [1, 2, 3, 4], parameters={"layers": True}))
    assert [layer["operator"] for layer in path["layers"]] == ["Fake"] * 3
    # one after the other, between the launch and the end
    times = [path["queued_us"], path["launched_us"]]
    for layer in path["layers"]:
        assert layer["end_us"] - layer["begin_us"] >= 2000
        times += [layer["begin_us"], layer["end_us"]]
    times.append(path["done_us"])
    assert times == sorted(times) and times[0] >= 0
    assert path["batch"] == 1
    # only for the request that wants it, also when the slot is used again
    assert "parameters" not in server.infer("m", [1, 2, 3, 4]).json
    assert "parameters" not in server.infer("m", [1, 2, 3, 4],
                                            parameters={"layers": False}).json
    answer = server.infer("m", [1, 2, 3, 4], parameters={"layers": 1})
    assert answer.status == 400 and "failed to parse" in answer.error


def test_layers_of_a_batch(server):
    """Requests of one run have the same layers, each with times since its own arrival."""
    server.model("m", 1, layers=2, sleep_us=1000)
    server.start(config="[model]\nmax_batch = 4\npreferred_batches = 4\n"
                 "max_delay_us = 60000000\n")
    socks = [server.connect() for _ in range(4)]
    for i, sock in enumerate(socks):
        sock.sendall(conftest.text_request(conftest.row(
            [i, 0, 0, 0], parameters={"layers": i % 2 == 0})))
    answers = [json.loads(conftest.read_answer(sock.makefile("rb"))[2]) for sock in socks]
    for i, answer in enumerate(answers):
        assert ("parameters" in answer) == (i % 2 == 0)
    paths = [json.loads(answers[i]["parameters"]["layers"]) for i in (0, 2)]
    assert all(len(path["layers"]) == 2 and path["batch"] == 4 for path in paths)
    for sock in socks:
        sock.close()


def test_answers_are_counted(server):
    """What the log says at the end: each request, also a refused one, has an answer."""
    server.model("m", 1)
    server.start()
    for path, status in (("/", 200), ("/v2", 200), ("/nope", 404)):
        assert server.get(path).status == status
    assert server.infer("m", [1, 2, 3, 4]).status == 200
    sock = server.connect()
    sock.sendall(b"NOT HTTP\r\n\r\n")
    assert conftest.read_answer(sock.makefile("rb"))[0] == 400
    sock.close()
    assert server.metric("pawl_serve_http_requests_total") == 6
    assert server.stop() == 0
    last = server.events("stopped")[0]
    assert (last["requests"], last["answers"]) == ("6", "6")
