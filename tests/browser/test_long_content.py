"""Width of the example pages with long titles, words, tables and code."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: `uv sync --group browser`"
)

from playwright.sync_api import BrowserContext, Page, expect

from mochi_stub import StubServer
from mochi_stub.prompt import Prompt, ToolCall
from mochi_stub.reply import Reply
from tests.browser.long_content import (
    ARGUMENTS,
    MARKDOWN,
    MODELS,
    NOTE,
    TITLE,
    TOOL,
    WORD,
    add_session,
    check_width,
    each_width,
)
from tests.browser.steps import open_settings, send_message
from tests.browser.test_frontend_guide import built_page
from tests.support.server import RunningServer
from tests.support.tools import write_tools

pytestmark = pytest.mark.slow

PHONE = 390
LINES = """element => {
  const contents = document.createRange();
  contents.selectNodeContents(element);
  return contents.getClientRects().length;
}"""
"""Function of JavaScript that returns the number of lines of a text."""


def reply(prompt: Prompt) -> Reply:
    if "call" in prompt.user_text and prompt.messages[-1].role != "tool":
        return Reply.of(tool_calls=[ToolCall(TOOL, ARGUMENTS)])
    return Reply.of(MARKDOWN, reasoning=WORD if prompt.includes_reasoning else "")


@pytest.fixture
def stub() -> Iterator[StubServer]:
    with StubServer(speed=0, resolve=reply, models=MODELS) as stub:
        yield stub


@pytest.fixture
def server(stub: StubServer, tmp_path: Path) -> Iterator[RunningServer]:
    write_tools(tmp_path, f"{NOTE}\n__all__ = ['{TOOL}']")
    with RunningServer(tmp_path, stub.url) as server:
        yield server


@pytest.fixture
def chat(page: Page, server: RunningServer) -> Page:
    """The chat page with the long conversation."""
    session_id = add_session(server.api())
    page.goto(f"{page.url}#{session_id}")
    expect(page.locator("#title")).to_have_text(TITLE)
    expect(page.locator("table")).to_have_count(2)
    return page


def test_chat_page_shows_a_long_conversation(chat: Page) -> None:
    chat.get_by_text("Thinking").click()
    for _ in each_width(chat):
        check_width(chat, chat.locator("#send"), chat.get_by_role("button", name="Settings"))


def test_chat_page_splits_no_words_of_a_table(chat: Page) -> None:
    cell = chat.get_by_role("cell", name="dynamic").first
    for width in each_width(chat):
        assert cell.evaluate(LINES) == 1, width


def test_chat_page_edits_and_renames_long_texts(chat: Page) -> None:
    chat.get_by_role("button", name="Edit").click()
    for _ in each_width(chat):
        check_width(chat, chat.get_by_role("button", name="Send again"))
    for width in each_width(chat):
        if width == PHONE:
            chat.get_by_role("button", name="Conversations").click()
        chat.get_by_role("button", name=f"Rename {TITLE}").click()
        check_width(chat, chat.get_by_label("New title"))
        chat.keyboard.press("Escape")


def test_chat_page_shows_a_long_call_and_its_settings(chat: Page) -> None:
    open_settings(chat)
    for _ in each_width(chat):
        check_width(chat, chat.get_by_role("button", name="Close"))
    chat.get_by_label(TOOL).check()
    chat.get_by_role("button", name="Close").click()
    send_message(chat, "call")
    approve = chat.get_by_role("button", name="Approve")
    expect(approve).to_be_visible()
    for _ in each_width(chat):
        approve.scroll_into_view_if_needed()
        check_width(chat, approve, chat.get_by_role("button", name="Stop"))
    approve.click()
    expect(chat.locator("table")).to_have_count(3)
    for _ in each_width(chat):
        check_width(chat, chat.locator("#send"))


def test_comparison_of_the_chat_page_fits(chat: Page) -> None:
    chat.get_by_role("button", name="Compare").click()
    for box in chat.locator("#compared-models input").all():
        box.check()
    send_message(chat, WORD)
    expect(chat.locator("#columns .note", has_text="tokens/s")).to_have_count(3)
    for _ in each_width(chat):
        check_width(chat, chat.locator("#send"))


def test_chat_page_shows_a_long_error(chat: Page) -> None:
    address, _, session = chat.url.partition("#")
    chat.goto(f"{address}/{WORD}#{session}")
    expect(chat.get_by_role("status").first).to_contain_text(WORD)
    for _ in each_width(chat):
        check_width(chat, chat.locator("#send"))


def test_compare_page_fits(context: BrowserContext, server: RunningServer, origin: str) -> None:
    page = context.new_page()
    page.goto(f"{origin}/compare.html?server={server.url}")
    page.get_by_label("Message").fill(WORD)
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("status").filter(has_text="tokens/s")).to_have_count(3)
    for _ in each_width(page):
        check_width(page, page.get_by_role("button", name="Stop"))
    page.close()


def test_page_of_the_guide_fits(
    context: BrowserContext, server: RunningServer, tmp_path: Path
) -> None:
    session_id = add_session(server.api())
    with built_page(context, tmp_path / "page", server.url) as page:
        page.goto(f"{page.url}#{session_id}")
        expect(page.locator(".answer > .text").last).to_contain_text("print")
        page.get_by_label("Message").fill("call")
        page.get_by_role("button", name="Send").click()
        approve = page.get_by_role("button", name="Approve")
        expect(approve).to_be_visible()
        for _ in each_width(page):
            approve.scroll_into_view_if_needed()
            check_width(page, approve, page.get_by_role("button", name="Stop"))
