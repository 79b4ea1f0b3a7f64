"""Debian's Chromium, an origin that serves the page, and a server with a scripted model."""

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mochi_stub import StubServer
from tests.browser.scene import MODELS, Scene
from tests.support.agents import write_agent
from tests.support.server import RunningServer
from tests.support.tools import SAMPLES

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
"""The program without windows, whose pages start with a fifth of the CPU time, or the whole
browser.
"""
PATIENCE_MS = 60_000
"""Limit of each step of a page. The slowest page, `/docs`, needs three seconds on idle cores."""
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class QuietFiles(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def serving_files(directory: Path) -> Iterator[str]:
    """Serve a directory, and yield the origin of its pages."""
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(QuietFiles, directory=str(directory))
    ) as files:
        thread = threading.Thread(target=files.serve_forever, daemon=True)
        thread.start()
        yield f"http://localhost:{files.server_port}"
        files.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    if CHROMIUM is None:
        pytest.skip("this machine has no Chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def origin() -> Iterator[str]:
    """The origin of the page, with another port than the server."""
    with serving_files(EXAMPLES) as origin:
        yield origin


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.gate.open()


@pytest.fixture
def stub(scene: Scene) -> Iterator[StubServer]:
    with StubServer(speed=4, resolve=scene.reply, models=MODELS) as stub:
        yield stub
        scene.gate.open()


@pytest.fixture
def server(stub: StubServer, tmp_path: Path) -> Iterator[RunningServer]:
    shutil.copytree(SAMPLES, tmp_path / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    write_agent(tmp_path, "librarian")
    with RunningServer(tmp_path, stub.url) as server:
        yield server


@pytest.fixture
def context(browser: "Browser") -> "Iterator[BrowserContext]":
    """A new browser context that reaches only this machine."""
    from playwright.sync_api import expect

    expect.set_options(timeout=PATIENCE_MS)
    context = browser.new_context(viewport={"width": 1200, "height": 760}, device_scale_factor=2)
    context.set_default_timeout(PATIENCE_MS)
    yield context
    context.close()


@pytest.fixture
def page(context: "BrowserContext", server: RunningServer, origin: str) -> "Iterator[Page]":
    """The connected page. Fails the test if the page sent requests elsewhere or raised an error."""
    from playwright.sync_api import expect

    page = context.new_page()
    requested: list[str] = []
    problems: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(f"{origin}/chat.html?server={server.url}")
    expect(page.locator("#model option")).to_have_count(3)
    yield page
    assert not problems
    foreign = [
        url
        for url in requested
        if not url.startswith(("http://127.0.0.1:", origin, "data:", "blob:"))
    ]
    assert not foreign
