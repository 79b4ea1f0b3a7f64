"""The page that `docs/how-to/write-a-frontend.md` builds, step by step, in Chromium."""

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: `uv sync --group browser`"
)

from playwright.sync_api import BrowserContext, Page, expect

from mochi_stub import StubServer
from tests.browser.conftest import serving_files
from tests.browser.scene import WHY, Scene
from tests.docs_tooling.pages import ROOT, blocks
from tests.support.balancer import Balancer
from tests.support.cluster import Member
from tests.support.images import PNG
from tests.support.instructions import calls, instruct, words
from tests.support.relay import CuttingRelay
from tests.support.server import RunningServer
from tests.support.tools import SAMPLES
from tests.support.waiting import until

pytestmark = pytest.mark.slow

EXPORT = ROOT / "tests" / "api" / "exports" / "chatgpt" / "branches.json"
GUIDE = ROOT / "docs" / "how-to" / "write-a-frontend.md"


def of_language(language: str) -> str:
    return "".join(block.text for block in blocks(GUIDE) if block.language == language)


@contextmanager
def built_page(context: BrowserContext, folder: Path, server_url: str) -> Iterator[Page]:
    """Build the page from the blocks of the guide, and open it."""
    folder.mkdir()
    (folder / "index.html").write_text(of_language("html"))
    (folder / "chat.js").write_text(
        of_language("javascript").replace("http://127.0.0.1:8000", server_url)
    )
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    with serving_files(folder) as origin:
        page.goto(origin)
        expect(page.locator("#model option")).to_have_count(3)
        yield page
        page.close()
    assert not problems


@pytest.fixture
def page(context: BrowserContext, server: RunningServer, tmp_path: Path) -> Iterator[Page]:
    with built_page(context, tmp_path / "page", server.url) as page:
        yield page


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
    expect(page.locator(".answer > .text").first).to_have_text(
        re.compile(r"^add_numbers: [\s\S]*42$")
    )
    expect(page.get_by_text("May the model call")).to_have_count(0)


def test_denied_tool_call_does_not_run(page: Page) -> None:
    send(page, instruct(calls("add_numbers", a=2, b=3), words(2)), "qwen3:14b")
    page.get_by_role("button", name="Deny").click()
    expect(page.get_by_role("button", name="Regenerate")).to_be_visible()
    expect(page.get_by_text("add_numbers: 5")).to_have_count(0)


def test_agent_is_shown_at_work_and_named_in_its_approval(page: Page) -> None:
    send(page, "Ask the librarian for books.", "qwen3:14b")
    expect(page.get_by_text("The agent librarian works")).to_be_visible()
    expect(page.get_by_text("Choose three books.")).to_be_visible()
    expect(page.get_by_text("May the agent librarian call note?")).to_be_visible()
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("button", name="Regenerate")).to_be_visible()
    expect(page.locator(".answer > .text").first).to_contain_text("librarian: Session ID:")
    expect(page.locator(".answer > .text").last).to_contain_text("three books by Le Guin")


def test_enter_sends_and_shift_enter_begins_a_line(page: Page) -> None:
    page.get_by_label("Model").select_option("llama3.2:3b")
    message = page.get_by_label("Message")
    message.fill("Why is")
    message.press("Shift+Enter")
    message.press_sequentially("the sky blue?")
    message.press("Enter")
    answered(page, WHY["llama3.2:3b"])
    expect(page.locator(".user > .text")).to_have_text("Why is\nthe sky blue?")


def test_chat_is_renamed(page: Page) -> None:
    send(page, "Why is the sky blue?", "llama3.2:3b")
    answered(page, WHY["llama3.2:3b"])
    page.once("dialog", lambda dialog: dialog.accept("Blue"))
    page.get_by_role("button", name="Rename").click()
    expect(page.locator("#sessions button")).to_have_text("Blue")


def test_edit_regenerate_and_branch(page: Page) -> None:
    send(page, "describe", "llama3.2:3b")
    expect(page.get_by_role("button", name="Branch")).to_have_count(1)
    page.once("dialog", lambda dialog: dialog.accept("Why is the sky blue?"))
    page.get_by_role("button", name="Edit").click()
    answered(page, WHY["llama3.2:3b"])
    expect(page.locator(".user > .text")).to_have_text("Why is the sky blue?")
    page.get_by_role("button", name="Regenerate").click()
    answered(page, WHY["llama3.2:3b"])
    expect(page.get_by_text("2 / 2")).to_have_count(2)
    send(page, "describe")
    expect(page.get_by_role("button", name="Branch")).to_have_count(2)
    before = page.url
    page.get_by_role("button", name="Branch").first.click()
    expect(page.get_by_role("button", name="Branch")).to_have_count(1)
    assert page.url != before
    entries = page.locator("#sessions button")
    expect(entries).to_have_count(2)
    assert len(set(entries.all_inner_texts())) == 2
    send(page, "program")
    expect(page.get_by_role("button", name="Branch")).to_have_count(2)
    expect(page.locator(".user > .text").last).to_have_text("program")


def test_versions_are_switched(page: Page) -> None:
    send(page, "describe", "llama3.2:3b")
    expect(page.get_by_role("button", name="Branch")).to_have_count(1)
    first = page.locator(".answer > .text").inner_text()
    page.once("dialog", lambda dialog: dialog.accept("Why is the sky blue?"))
    page.get_by_role("button", name="Edit").click()
    answered(page, WHY["llama3.2:3b"])
    page.get_by_role("button", name="\u2039").click()
    expect(page.get_by_text("1 / 2")).to_be_visible()
    expect(page.locator(".user > .text")).to_have_text("describe")
    answered(page, first)
    page.get_by_role("button", name="\u203a").click()
    expect(page.get_by_text("2 / 2")).to_be_visible()
    answered(page, WHY["llama3.2:3b"])


def test_images_are_sent_and_shown(page: Page, scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "dot.png").write_bytes(PNG)
    page.get_by_label("Images").set_input_files(tmp_path / "dot.png")
    send(page, "Please hold.", "gemma3:12b")
    expect(page.locator(".answer > .text")).to_have_text("One, two, three, ")
    expect(page.locator(".user img")).to_have_js_property("naturalWidth", 1)
    scene.gate.open()
    answered(page, "One, two, three, four.")
    expect(page.locator(".user img")).to_have_js_property("naturalWidth", 1)
    send(page, "describe")
    expect(page.locator(".answer > .text").last).to_contain_text("images 1")


def test_files_are_sent_and_downloaded(page: Page, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Three apples")
    page.get_by_label("Files").set_input_files(tmp_path / "notes.txt")
    send(page, "describe", "gemma3:12b")
    expect(page.locator(".answer > .text")).to_contain_text("images 0")
    page.reload()
    with page.expect_download() as download:
        page.get_by_role("button", name="notes.txt").click()
    assert download.value.suggested_filename == "notes.txt"
    assert download.value.path().read_text() == "Three apples"


def test_rejected_first_message_leaves_no_session(
    page: Page, server: RunningServer, tmp_path: Path
) -> None:
    (tmp_path / "dot.png").write_bytes(b"not an image")
    page.get_by_label("Images").set_input_files(tmp_path / "dot.png")
    send(page, "describe", "gemma3:12b")
    expect(page.get_by_role("status")).to_contain_text("not an image")
    until(lambda: server.api().http.get("/sessions").json()["sessions"] == [])
    page.get_by_label("Images").set_input_files([])
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".answer > .text")).to_contain_text("images 0")
    expect(page.locator("#sessions button")).to_have_count(1)


def test_list_opens_and_searches_sessions(page: Page) -> None:
    send(page, "Why is the sky blue?", "llama3.2:3b")
    answered(page, WHY["llama3.2:3b"])
    page.get_by_role("button", name="New chat").click()
    expect(page.locator("article")).to_have_count(0)
    send(page, "A program, please")
    expect(page.locator("#sessions button")).to_have_count(2)
    page.get_by_label("Search").fill("blue")
    expect(page.locator("#sessions button")).to_have_count(1)
    page.get_by_label("Model").select_option("gemma3:12b")
    page.locator("#sessions button").click()
    answered(page, WHY["llama3.2:3b"])
    expect(page.get_by_label("Model")).to_have_value("llama3.2:3b")
    send(page, "describe", "gemma3:12b")
    expect(page.locator(".answer > .text").last).to_contain_text("Model gemma3:12b")


def test_pinned_session_is_first(page: Page) -> None:
    send(page, "Why is the sky blue?", "llama3.2:3b")
    answered(page, WHY["llama3.2:3b"])
    page.get_by_role("button", name="New chat").click()
    send(page, "A program, please")
    entries = page.locator("#sessions button")
    expect(entries).to_have_text(["A program, please", "Why is the sky blue?"])
    page.get_by_title("Pin").nth(1).click()
    expect(entries).to_have_text(["Why is the sky blue?", "A program, please"])
    expect(page.get_by_title("Pin").first).to_be_checked()
    page.get_by_title("Pin").first.click()
    expect(page.get_by_title("Pin").first).not_to_be_checked()


def test_export_of_another_program_is_imported(page: Page, tmp_path: Path) -> None:
    file = tmp_path / "conversations.json"
    shutil.copy(EXPORT, file)
    page.get_by_label("Import").set_input_files(file)
    expect(page.get_by_role("status")).to_contain_text("The import left out")
    expect(page.locator("#sessions button")).to_have_count(2)
    page.get_by_role("button", name="Sourdough starter").click()
    expect(page.locator(".user").first).to_contain_text("How often do I feed a rye starter?")
    expect(page.get_by_text("2 / 2").first).to_be_visible()
    with ZipFile(tmp_path / "export.zip", "w") as archive:
        archive.writestr("conversations.json", "[5]")
    page.get_by_label("Import").set_input_files(tmp_path / "export.zip")
    expect(page.get_by_role("status")).to_contain_text("Item 0")


def test_back_returns_to_the_new_chat(page: Page) -> None:
    send(page, "Why is the sky blue?", "llama3.2:3b")
    answered(page, WHY["llama3.2:3b"])
    page.go_back()
    expect(page.locator("article")).to_have_count(0)
    page.go_forward()
    answered(page, WHY["llama3.2:3b"])


def test_errors_are_shown(page: Page) -> None:
    send(page, "Please hold.")
    expect(page.locator(".answer > .text").last).to_have_text("One, two, three, ")
    send(page, "Another")
    expect(page.get_by_role("status")).to_contain_text("SESSION_BUSY")
    expect(page.get_by_label("Message")).to_have_value("Another")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Regenerate")).to_be_visible()
    page.goto(f"{page.url.partition('#')[0]}?#0000000000")
    expect(page.get_by_role("status")).to_contain_text("SESSION_NOT_FOUND")
    send(page, "Why is the sky blue?", "llama3.2:3b")
    answered(page, WHY["llama3.2:3b"])


def test_page_fits_a_phone(page: Page) -> None:
    page.set_viewport_size({"width": 360, "height": 640})
    send(page, "Why is the sky blue?", "llama3.2:3b")
    answered(page, WHY["llama3.2:3b"])
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_broken_connection_continues(
    context: BrowserContext, server: RunningServer, scene: Scene, tmp_path: Path
) -> None:
    with (
        CuttingRelay(server.url) as relay,
        built_page(context, tmp_path / "page", relay.url) as page,
    ):
        send(page, "Please hold.")
        expect(page.locator(".answer > .text").last).to_have_text("One, two, three, ")
        relay.cut()
        expect(page.get_by_role("status")).to_contain_text("Connecting again")
        expect(page.get_by_role("status")).to_be_empty()
        scene.gate.open()
        answered(page, "One, two, three, four.")
        expect(page.locator(".user")).to_have_count(1)


def test_failed_regeneration_keeps_the_answer(
    context: BrowserContext, server: RunningServer, tmp_path: Path
) -> None:
    with (
        CuttingRelay(server.url) as relay,
        built_page(context, tmp_path / "page", relay.url) as page,
    ):
        send(page, "Why is the sky blue?", "llama3.2:3b")
        answered(page, WHY["llama3.2:3b"])
        relay.set_target("http://127.0.0.1:9")
        relay.cut()
        page.get_by_role("button", name="Regenerate").click()
        expect(page.get_by_role("status")).to_contain_text("does not answer")
        answered(page, WHY["llama3.2:3b"])


@contextmanager
def killable_page(
    context: BrowserContext, stub: StubServer, folder: Path, **settings: Any
) -> Iterator[tuple[Page, Callable[[], None]]]:
    """Build the page, and yield a function that kills its server and starts another."""
    shutil.copytree(SAMPLES, folder / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    members = [Member(str(folder), stub.url, **settings)]

    def restart() -> None:
        members[-1].kill()
        expect(page.get_by_role("status")).to_contain_text("Connecting again")
        members.append(Member(str(folder), stub.url, **settings))
        balancer.ports = [members[-1].port]

    with (
        Balancer([members[0].port]) as balancer,
        built_page(context, folder / "page", balancer.url) as page,
    ):
        yield page, restart
    members[-1].kill()


def test_approval_outlives_a_killed_server(
    context: BrowserContext, stub: StubServer, tmp_path: Path
) -> None:
    with killable_page(context, stub, tmp_path) as (page, restart):
        send(page, instruct(calls("add_numbers", a=2, b=3), words(2)), "qwen3:14b")
        expect(page.get_by_text("May the model call add_numbers?")).to_be_visible()
        restart()
        expect(page.get_by_role("status")).to_be_empty()
        expect(page.get_by_text("May the model call add_numbers?")).to_have_count(1)
        page.get_by_role("button", name="Approve").click()
        expect(page.get_by_role("button", name="Regenerate")).to_be_visible()
        expect(page.locator(".answer > .text").first).to_have_text(
            re.compile(r"^add_numbers: [\s\S]*5$")
        )


def test_answer_of_a_killed_server_is_shown_with_an_error(
    context: BrowserContext, stub: StubServer, tmp_path: Path
) -> None:
    with killable_page(context, stub, tmp_path, continue_background_turns=False) as (page, restart):
        send(page, "Please hold.")
        expect(page.locator(".answer > .text").last).to_have_text("One, two, three, ")
        restart()
        expect(page.get_by_role("button", name="Regenerate")).to_be_visible()
        expect(page.get_by_role("status")).to_contain_text("server")


def test_answer_of_a_killed_server_continues(
    context: BrowserContext, stub: StubServer, tmp_path: Path
) -> None:
    with killable_page(context, stub, tmp_path) as (page, restart):
        send(page, "Please hold.")
        expect(page.locator(".answer > .text").last).to_have_text("One, two, three, ")
        restart()
        expect(page.get_by_role("status")).to_have_text("continued")
        expect(page.locator(".answer > .text").last).to_have_text("One, two, three, ")
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_role("button", name="Regenerate")).to_be_visible()
