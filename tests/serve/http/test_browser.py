# SPDX-License-Identifier: Apache-2.0
"""The page at / in Debian's Chromium, with real pointer and key events (make check-serve)."""
import math
import os
import shutil

import pytest

from conftest import SOON

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")
if not CHROMIUM and "CI" not in os.environ:
    pytest.skip("chromium is not installed", allow_module_level=True)
PATIENCE = SOON * 1000


def arc(x, y, width, height, begin, end):
    """Points of an ellipse, between two angles."""
    angles = [math.radians(begin + (end - begin) * i / 16) for i in range(17)]
    return [(x + width * math.cos(a), y + height * math.sin(a)) for a in angles]


# Strokes in a square of side 1.
STROKES = {
    0: [arc(.5, .5, .2, .32, -90, 270)],
    1: [[(.4, .3), (.52, .18), (.52, .84)]],
    2: [arc(.49, .32, .17, .16, -170, 40) + [(.32, .82), (.7, .82)]],
    3: [arc(.47, .32, .17, .15, -150, 90) + arc(.47, .64, .19, .18, -90, 150)],
    4: [[(.5, .15), (.3, .58), (.72, .58)], [(.58, .38), (.56, .86)]],
    5: [[(.68, .18), (.38, .18), (.36, .45)] + arc(.48, .62, .19, .2, -110, 140)],
    6: [[(.6, .15), (.42, .38)] + arc(.5, .65, .16, .18, -190, 190)],
    7: [[(.3, .2), (.68, .2), (.46, .84)], [(.36, .5), (.66, .5)]],
    8: [arc(.5, .34, .14, .16, 90, -270) + arc(.5, .67, .17, .17, -90, 270)],
    9: [arc(.5, .35, .16, .17, 0, 360) + [(.66, .4), (.64, .62), (.54, .85)]],
}


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as p:
        # the sandbox needs namespaces, which containers do not permit; only our page is shown
        one = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield one
        one.close()


@pytest.fixture
def page(browser):
    context = browser.new_context(viewport={"width": 1240, "height": 1000})
    one = context.new_page()
    one.set_default_timeout(PATIENCE)
    one.problems = []
    one.on("console", lambda m: one.problems.append(m.text) if m.type != "log" else None)
    one.on("pageerror", lambda e: one.problems.append(str(e)))
    yield one
    context.close()


def draw(page, strokes):
    page.click("#clear")
    box = page.locator("#draw").bounding_box()
    for stroke in strokes:
        points = [(box["x"] + x * box["width"], box["y"] + y * box["height"])
                  for x, y in stroke]
        page.mouse.move(*points[0])
        page.mouse.down()
        for point in points[1:]:
            page.mouse.move(*point, steps=3)
        page.mouse.up()


def wait_text(page, selector, text):
    playwright.expect(page.locator(selector)).to_have_text(text, timeout=PATIENCE)


def test_draw_digits(pawl, page):
    pawl.start()
    page.goto(f"http://127.0.0.1:{pawl.port}/")
    page.wait_for_selector("#try:not([hidden])")
    for digit, strokes in STROKES.items():
        draw(page, strokes)
        wait_text(page, "#answer", f"This is a {digit}")
        assert page.locator("#bars .best div").inner_text() == str(digit)
    # the path: queue, the wait for a worker, and the layers of this network
    names = page.locator("#path text.name").all_text_contents()
    assert len(names) >= 5 and names[-1].startswith("softmax")
    assert page.locator("#path rect").count() == len(names)
    # the table and the statistics of the server agree, when no request is on its way
    answered = str(pawl.stat("digits")["inference_stats"]["success"]["count"])
    wait_text(page, "#models tr td:nth-child(9)", answered)
    wait_text(page, "#models .pill", "ready")
    wait_text(page, "#state", "ready")
    page.wait_for_selector("#c-rate path.line")
    page.wait_for_selector("#c-lat path.line.second")
    page.click("#clear")
    wait_text(page, "#answer", "Draw a digit from 0 to 9.")
    assert not page.problems


def test_keyboard(pawl, page):
    pawl.start()
    page.goto(f"http://127.0.0.1:{pawl.port}/")
    page.wait_for_selector("#try:not([hidden])")
    page.focus("#draw")
    # a line downwards: the pen begins above the middle
    page.keyboard.press("Space")
    for _ in range(10):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    wait_text(page, "#answer", "This is a 1")
    page.keyboard.press("Delete")
    wait_text(page, "#answer", "Draw a digit from 0 to 9.")
    assert not page.problems


def test_token(pawl, page):
    pawl.start(config="token = right\n")
    page.goto(f"http://127.0.0.1:{pawl.port}/")
    for token in ("wrong", "right"):
        page.wait_for_selector("#ask[open]")
        page.fill("#token", token)
        page.click("#ask button")
        if token == "wrong":
            wait_text(page, "#ask-why", "The server refused this token.")
    page.wait_for_selector("#try:not([hidden])")
    wait_text(page, "#state", "ready")
    draw(page, STROKES[3])
    wait_text(page, "#answer", "This is a 3")
    # the browser itself logs each answer 401
    assert all("401" in problem for problem in page.problems)


def test_server_ends_and_returns(pawl, page):
    pawl.start()
    page.goto(f"http://127.0.0.1:{pawl.port}/")
    wait_text(page, "#state", "ready")
    port = pawl.port
    assert pawl.stop() == 0
    wait_text(page, "#state", "no answer")
    pawl.start("--port", str(port))
    wait_text(page, "#state", "ready")


def test_other_models(server, page):
    """Without a model for digits there is no drawing area; a broken one has its reason."""
    server.model("m", 1)
    server.model("broken", 1)
    os.unlink(os.path.join(server.repository, "broken", "1", "fake"))
    server.start()
    page.goto(f"http://127.0.0.1:{server.port}/")
    wait_text(page, "#models tr:nth-child(2) td:nth-child(3)", "1")
    states = dict(zip(page.locator("#models td:first-child").all_inner_texts(),
                      page.locator("#models .pill").all_inner_texts()))
    assert states == {"m": "ready", "broken": "unavailable"}
    assert page.locator("#try").is_hidden()
    assert not page.problems


def test_wide_and_narrow(pawl, page):
    """No part is wider than the window."""
    pawl.start()
    page.goto(f"http://127.0.0.1:{pawl.port}/")
    page.wait_for_selector("#try:not([hidden])")
    for width in (360, 700, 1000, 1600):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert not page.problems
