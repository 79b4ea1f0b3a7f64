"""Page `/docs`: it asks for an API key and sends it with requests."""

from pathlib import Path

import pytest

pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: `uv sync --group browser`"
)

from playwright.sync_api import BrowserContext, expect

from mochi_stub import StubServer
from tests.support.server import RunningServer

pytestmark = pytest.mark.slow


def test_docs_ask_for_a_key_and_use_it(
    context: BrowserContext, stub: StubServer, tmp_path: Path
) -> None:
    with RunningServer(tmp_path, stub.url, api_keys=("key",)) as server:
        page = context.new_page()
        page.goto(f"{server.url}/")
        expect(page).to_have_url(f"{server.url}/docs")
        page.get_by_label("API key").fill("wrong")
        page.get_by_role("button", name="Open").click()
        expect(page.get_by_role("status")).to_contain_text("rejected")
        page.get_by_label("API key").fill("key")
        page.keyboard.press("Enter")
        expect(page.get_by_label("API key")).to_be_hidden()
        page.locator("[data-path='/api/v1/models']").click()
        page.get_by_role("button", name="Try it out").click()
        page.get_by_role("button", name="Execute").click()
        expect(page.locator(".live-responses-table .response-col_status").last).to_contain_text(
            "200"
        )


def test_docs_open_at_once_without_keys(
    context: BrowserContext, stub: StubServer, tmp_path: Path
) -> None:
    with RunningServer(tmp_path, stub.url) as server:
        page = context.new_page()
        page.goto(f"{server.url}/docs")
        expect(page.get_by_role("heading", name="mochi-server")).to_be_visible()
        expect(page.get_by_label("API key")).to_be_hidden()
