"""The page that `docs/how-to/write-a-frontend.md` builds, step by step, in Chromium."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: `uv sync --group browser`")

from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.conftest import serving_files
from tests.browser.scene import WHY, Scene
from tests.docs_tooling.pages import ROOT, blocks
from tests.support.images import PNG
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer

pytestmark = pytest.mark.slow

GUIDE = ROOT / "docs" / "how-to" / "write-a-frontend.md"


def of_language(language: str) -> str:
    return "".join(block.text for block in blocks(GUIDE) if block.language == language)


@pytest.fixture
def origin(tmp_path: Path, server: RunningServer) -> Iterator[str]:
    """The origin of the page that the blocks of the guide build."""
    folder = tmp_path / "page"
    folder.mkdir()
    (folder / "index.html").write_text(of_language("html"))
    (folder / "chat.js").write_text(of_language("javascript").replace("http://127.0.0.1:8000", server.url))
    with serving_files(folder) as origin:
        yield origin


@pytest.fixture
def page(context: BrowserContext, origin: str) -> Iterator[Page]:
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(origin)
    expect(page.locator("#model option")).to_have_count(3)
    yield page
    assert not problems


def send(page: Page, text: str, model: str | None = None) -> None:
    if model:
        page.get_by_label("Model").select_option(model)
    page.get_by_label("Message").fill(text)
    page.get_by_role("button", name="Send").click()


def answered(page: Page, text: str) -> None:
    expect(page.locator(".answer > .text").last).to_have_text(text)
    expect(page.get_by_role("button", name="Regenerate")).to_be_visible()


def test_page_streams_thinking_and_text(page: Page, scene: Scene) -> None:
    page.get_by_label("Think").check()
    send(page, "Why is the sky blue?", "qwen3:14b")
    answered(page, WHY["qwen3:14b"])
    page.get_by_text("Thinking").click()
    expect(page.get_by_text("Rayleigh, in plain words.")).to_be_visible()
    send(page, "Please hold.")
    expect(page.locator(".answer > .text").last).to_have_text("One, two, three, ")
    scene.gate.open()
    answered(page, "One, two, three, four.")


def test_stop_keeps_the_text(page: Page) -> None:
    send(page, "Please hold.")
    expect(page.locator(".answer > .text").last).to_have_text("One, two, three, ")
    page.get_by_role("button", name="Stop").click()
    answered(page, "One, two, three, ")
    expect(page.get_by_role("button", name="Stop")).to_be_disabled()


def test_reload_in_the_middle_of_a_stream_continues_it(page: Page, scene: Scene) -> None:
    send(page, "Please hold.")
    expect(page.locator(".answer > .text").last).to_have_text("One, two, three, ")
    page.reload()
    expect(page.locator(".user")).to_have_count(1)
    expect(page.locator(".answer > .text").last).to_have_text("One, two, three, ")
    expect(page.get_by_role("button", name="Stop")).to_be_enabled()
    scene.gate.open()
    answered(page, "One, two, three, four.")


@pytest.mark.parametrize("reloads", [False, True])
def test_tool_call_is_approved_with_edited_arguments(page: Page, reloads: bool) -> None:
    send(page, instruct(calls("add_numbers", a=2, b=3), words(2)), "qwen3:14b")
    expect(page.get_by_text("May the model call add_numbers?")).to_be_visible()
    if reloads:
        page.reload()
    page.get_by_label("Arguments").fill('{"a": 2, "b": 40}')
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("button", name="Regenerate")).to_be_visible()
    expect(page.locator(".answer > .text").first).to_have_text(re.compile(r"^add_numbers: [\s\S]*42$"))
    expect(page.get_by_text("May the model call")).to_have_count(0)


def test_denied_tool_call_does_not_run(page: Page) -> None:
    send(page, instruct(calls("add_numbers", a=2, b=3), words(2)), "qwen3:14b")
    page.get_by_role("button", name="Deny").click()
    expect(page.get_by_role("button", name="Regenerate")).to_be_visible()
    expect(page.get_by_text("add_numbers: 5")).to_have_count(0)


def test_edit_regenerate_and_branch(page: Page) -> None:
    send(page, "describe", "llama3.2:3b")
    expect(page.get_by_role("button", name="Branch")).to_have_count(1)
    page.once("dialog", lambda dialog: dialog.accept("Why is the sky blue?"))
    page.get_by_role("button", name="Edit").click()
    answered(page, WHY["llama3.2:3b"])
    expect(page.locator(".user > .text")).to_have_text("Why is the sky blue?")
    page.get_by_role("button", name="Regenerate").click()
    answered(page, WHY["llama3.2:3b"])
    send(page, "describe")
    expect(page.get_by_role("button", name="Branch")).to_have_count(2)
    before = page.url
    page.get_by_role("button", name="Branch").first.click()
    expect(page.get_by_role("button", name="Branch")).to_have_count(1)
    assert page.url != before
    expect(page.locator("#sessions button")).to_have_count(2)
    send(page, "program")
    expect(page.get_by_role("button", name="Branch")).to_have_count(2)
    expect(page.locator(".user > .text").last).to_have_text("program")


def test_images_are_sent_and_shown(page: Page, tmp_path: Path) -> None:
    (tmp_path / "dot.png").write_bytes(PNG)
    page.get_by_label("Images").set_input_files(tmp_path / "dot.png")
    send(page, "describe", "gemma3:12b")
    expect(page.locator(".answer > .text")).to_contain_text("images 1")
    expect(page.locator(".user img")).to_have_js_property("naturalWidth", 1)


def test_list_opens_and_searches_sessions(page: Page) -> None:
    send(page, "Why is the sky blue?", "llama3.2:3b")
    answered(page, WHY["llama3.2:3b"])
    page.get_by_role("button", name="New chat").click()
    expect(page.locator("article")).to_have_count(0)
    send(page, "A program, please")
    expect(page.locator("#sessions button")).to_have_count(2)
    page.get_by_label("Search").fill("blue")
    expect(page.locator("#sessions button")).to_have_count(1)
    page.locator("#sessions button").click()
    answered(page, WHY["llama3.2:3b"])


def test_errors_are_shown(page: Page, server: RunningServer) -> None:
    send(page, "Please hold.")
    expect(page.locator(".answer > .text").last).to_have_text("One, two, three, ")
    send(page, "Another")
    expect(page.get_by_role("status")).to_contain_text("SESSION_BUSY")
    expect(page.get_by_label("Message")).to_have_value("Another")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Regenerate")).to_be_visible()
    page.goto(f"{page.url.partition('#')[0]}?#0000000000")
    expect(page.get_by_role("status")).to_contain_text("SESSION_NOT_FOUND")


def test_page_fits_a_phone(page: Page) -> None:
    page.set_viewport_size({"width": 360, "height": 640})
    send(page, "Why is the sky blue?", "llama3.2:3b")
    answered(page, WHY["llama3.2:3b"])
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
