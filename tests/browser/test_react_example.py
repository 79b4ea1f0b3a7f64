"""The React page of `docs/examples/react`, built as a user would, against the server in
test mode.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: `uv sync --group browser`"
)

from playwright.sync_api import BrowserContext, Dialog, Locator, Page, Route, expect

from mochi_stub import StubServer
from tests.browser.conftest import EXAMPLES, serving_files
from tests.browser.long_content import (
    ARGUMENTS,
    NOTE,
    TOOL,
    WORD,
    add_session,
    check_width,
    each_width,
)
from tests.browser.steps import IMAGES
from tests.support.api import Api, read_events
from tests.support.cluster import Member
from tests.support.instructions import calls, instruct, words
from tests.support.process import Command
from tests.support.relay import CuttingRelay
from tests.support.tools import SAMPLES

EXAMPLE = EXAMPLES / "react"
DICE = instruct(calls("roll_dice", sides=6, count=2), words(3), reasoning=5)
SHORT = instruct(words(60))
LONG = instruct(words(5000))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (EXAMPLE / "node_modules").exists(),
        reason="`npm ci` has not been run in docs/examples/react",
    ),
]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A client of the server in test mode."""
    data = tmp_path_factory.mktemp("data")
    shutil.copytree(SAMPLES, data / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    with (data / "tools" / "__init__.py").open("a") as module:
        module.write(f"{NOTE}\n__all__ += ['{TOOL}']\n")
    options = (
        "--test-mode",
        "--port",
        "0",
        "--stub-speed",
        "1",
        "--stub-all-models",
        "--data-dir",
        str(data),
    )
    with Command("mochi_server", *options, cwd=data) as command, command.api() as api:
        yield api


@pytest.fixture(scope="module")
def relay(api: Api) -> Iterator[CuttingRelay]:
    """A relay between the page and the server."""
    with CuttingRelay(str(api.http.base_url)) as relay:
        yield relay


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, relay: CuttingRelay) -> Iterator[str]:
    """The origin of the page. The build fails if the page has a type error."""
    pages = tmp_path_factory.mktemp("pages")
    build = [
        "npm",
        "run",
        "build",
        "--",
        "--outDir",
        str(pages),
        "--emptyOutDir",
        "--logLevel",
        "error",
    ]
    subprocess.run(
        build,
        cwd=EXAMPLE,
        check=True,
        env={**os.environ, "VITE_MOCHI_SERVER": relay.url},
        timeout=120,
    )
    with serving_files(pages) as origin:
        yield origin


@pytest.fixture
def page(context: BrowserContext, site: str) -> Iterator[Page]:
    """The page without a chat. Fails the test if the page raised an error."""
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(site)
    yield page
    page.close()
    assert not problems


def create_chat(page: Page, model: str = "mochi:latest") -> None:
    page.get_by_label("Model of a new chat").select_option(model)
    page.get_by_role("button", name="New chat").click()


def send(page: Page, text: str) -> Locator:
    """Send a message, and return the last message, which is its answer."""
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")
    return page.get_by_role("article").last


def expect_end(page: Page) -> None:
    expect(page.get_by_role("button", name="Send")).to_be_enabled()
    expect(page.get_by_role("status")).to_be_empty()


def stored_answer(page: Page, api: Api) -> str:
    """Wait until the turn of the chat has ended, and return its stored text."""
    session_id = page.url.partition("#")[2]
    with api.http.stream("GET", f"/chat/{session_id}/stream") as response:
        events = list(read_events(response))
    assert events[-1].type == "done"
    return str(api.messages(session_id)[-1]["content"])


def test_answer_is_streamed_and_stored(page: Page) -> None:
    create_chat(page, "mochi-demo:latest")
    answer = send(page, "Hello!")
    expect(answer).to_contain_text("I am mochi-demo, a simulated model.")
    expect_end(page)
    expect(
        page.get_by_role("combobox", name="Chat", exact=True).locator("option:checked")
    ).to_have_text("Hello! (mochi-demo:latest)")
    page.reload()
    expect(answer).to_contain_text("I am mochi-demo, a simulated model.")


@pytest.mark.parametrize(
    ("decision", "outcome"), [("Approve", "roll_dice has ended"), ("Deny", "roll_dice was denied")]
)
def test_tool_call_is_decided_after_a_reload(page: Page, decision: str, outcome: str) -> None:
    create_chat(page)
    answer = send(page, DICE)
    expect(answer).to_contain_text("roll_dice needs your approval")
    page.reload()
    expect(answer).to_contain_text('"sides": 6')
    page.get_by_role("button", name=decision).click()
    expect(answer).to_contain_text(outcome)
    expect(answer).to_contain_text(re.compile(r"ID \w+ \w+ \w+ ID$"))
    expect_end(page)
    expect(answer.locator("pre")).to_have_count(2 if decision == "Approve" else 1)
    answer.get_by_text("Reasoning").click()
    expect(answer.locator("details p")).to_be_visible()
    shown = answer.text_content()
    page.reload()
    expect(answer).to_have_text(str(shown))


def test_stop_ends_a_turn_that_waits_for_approval(page: Page) -> None:
    create_chat(page)
    answer = send(page, DICE)
    expect(answer).to_contain_text("roll_dice needs your approval")
    expect(page.get_by_role("status")).to_have_text("The model waits for your decision.")
    page.get_by_role("button", name="Stop").click()
    expect(answer).to_contain_text("roll_dice not run")
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    expect(page.get_by_role("button", name="Stop")).to_be_disabled()
    page.reload()
    expect(answer).to_contain_text("roll_dice not run")


def test_new_message_asks_before_it_withdraws_a_call(page: Page) -> None:
    questions: list[str] = []

    def answer_question(dialog: Dialog) -> None:
        questions.append(dialog.message)
        dialog.accept() if len(questions) == 2 else dialog.dismiss()

    page.on("dialog", answer_question)
    create_chat(page)
    call = send(page, DICE)
    expect(call).to_contain_text("roll_dice needs your approval")
    send(page, instruct(words(4), label="NEXT"))
    assert "does not run" in questions[0]
    expect(page.get_by_role("article")).to_have_count(2)
    expect(page.get_by_role("button", name="Approve")).to_have_count(1)
    answer = send(page, instruct(words(4), label="NEXT"))
    expect(answer).to_contain_text(re.compile(r"NEXT( \w+){4} NEXT$"))
    call = page.get_by_role("article").nth(1)
    expect(call).to_contain_text("roll_dice not run")
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    page.reload()
    expect(call).to_contain_text("roll_dice not run")


def test_page_shows_long_content(page: Page, api: Api, site: str) -> None:
    session_id = add_session(api, "mochi-chat")
    page.goto(f"{site}/#{session_id}")
    expect(page.get_by_role("article")).to_have_count(2)
    page.get_by_text("Reasoning").click()
    for _ in each_width(page):
        check_width(
            page,
            page.get_by_role("button", name="Send"),
            page.get_by_role("button", name="New chat"),
        )
    send(page, instruct(calls(TOOL, **ARGUMENTS)))
    approve = page.get_by_role("button", name="Approve")
    for _ in each_width(page):
        approve.scroll_into_view_if_needed()
        check_width(page, approve)
    page.get_by_role("button", name="Stop").click()


def test_page_shows_a_long_error(page: Page, site: str) -> None:
    page.goto(f"{site}/#{WORD}")
    expect(page.get_by_role("alert")).to_contain_text(WORD)
    for _ in each_width(page):
        check_width(page, page.get_by_role("button", name="New chat"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_has_dark_mode_and_fits_a_phone(page: Page, scheme: Literal["light", "dark"]) -> None:
    page.emulate_media(color_scheme=scheme)
    create_chat(page)
    answer = send(page, "Use roll_dice, please. " + DICE.partition(".")[2])
    expect(answer).to_contain_text("roll_dice needs your approval")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(23, 25, 28)"}[scheme]
    page.set_viewport_size({"width": 360, "height": 640})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_keyboard_alone_approves_a_call(page: Page) -> None:
    create_chat(page)
    answer = send(page, DICE)
    expect(answer).to_contain_text("roll_dice needs your approval")
    for _ in range(20):
        page.keyboard.press("Shift+Tab")
        if page.evaluate("document.activeElement.textContent") == "Approve":
            break
    page.keyboard.press("Enter")
    expect(answer).to_contain_text("roll_dice has ended")


def test_picture_of_the_page(page: Page) -> None:
    create_chat(page, "mochi-demo:latest")
    expect(send(page, "Use add_numbers with 2 and 3.")).to_contain_text("needs your approval")
    page.screenshot(path=IMAGES / "react.png")


def test_reload_resumes_a_running_answer_which_is_then_stopped(page: Page) -> None:
    create_chat(page)
    answer = send(page, LONG)
    expect(answer).to_contain_text(re.compile(r"ID( \w+){9}"))
    shown = str(answer.locator("p").text_content())
    page.reload()
    expect(page.get_by_role("status")).to_have_text("The model is answering …")
    expect(answer.locator("p")).to_contain_text(re.compile(re.escape(shown) + r"\w*( \w+){9}"))
    page.get_by_role("button", name="Stop").click()
    expect_end(page)
    stopped = str(answer.text_content())
    assert not stopped.endswith("ID")
    page.reload()
    expect(answer).to_have_text(stopped)
    expect(page.get_by_role("article")).to_have_count(2)


def test_broken_connection_continues(page: Page, relay: CuttingRelay, api: Api) -> None:
    create_chat(page)
    answer = send(page, LONG)
    expect(answer).to_contain_text(re.compile(r"ID( \w+){9}"))
    shown = str(answer.locator("p").text_content())
    relay.set_target("http://127.0.0.1:9")
    relay.cut()
    expect(page.get_by_text("The connection is lost. Connecting again …")).to_be_visible()
    relay.set_target(str(api.http.base_url))
    expect(answer.locator("p")).to_have_count(1)
    expect(answer.locator("p")).to_contain_text(re.compile(re.escape(shown) + r"\w*( \w+){9}"))
    expect(page.get_by_role("alert")).to_have_count(0)
    page.get_by_role("button", name="Stop").click()
    expect_end(page)


def test_answer_that_ends_while_the_connection_is_broken_is_complete(
    page: Page, relay: CuttingRelay, api: Api
) -> None:
    create_chat(page)
    answer = send(page, SHORT)
    expect(answer).to_contain_text(re.compile(r"ID( \w+){9}"))
    relay.set_target("http://127.0.0.1:9")
    relay.cut()
    expect(page.get_by_text("The connection is lost. Connecting again …")).to_be_visible()
    stored = stored_answer(page, api)
    relay.set_target(str(api.http.base_url))
    expect(answer.locator("p")).to_have_text(stored)
    expect(page.get_by_role("article")).to_have_count(2)
    expect(page.get_by_role("alert")).to_have_count(0)
    expect_end(page)


def test_answer_that_ends_during_a_reload_is_shown(page: Page, api: Api) -> None:
    stored: list[str] = []

    def end_turn(route: Route) -> None:
        response = route.fetch()
        assert response.json()["state"] == "running"
        stored.append(stored_answer(page, api))
        route.fulfill(response=response)

    create_chat(page)
    answer = send(page, SHORT)
    expect(answer).to_contain_text(re.compile(r"ID( \w+){9}"))
    page.route("**/run", end_turn, times=1)
    page.reload()
    expect(page.get_by_role("article")).to_have_count(2)
    expect(answer.locator("p")).to_have_text(stored[0])
    expect_end(page)


@pytest.mark.parametrize("clicks_while_down", [False, True])
def test_approval_outlives_a_killed_server(
    page: Page,
    relay: CuttingRelay,
    api: Api,
    stub: StubServer,
    tmp_path: Path,
    *,
    clicks_while_down: bool,
) -> None:
    def use_server(url: str) -> None:
        relay.set_target(url)
        relay.cut()

    approve = page.get_by_role("button", name="Approve")
    shutil.copytree(SAMPLES, tmp_path / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    members = [Member(str(tmp_path), stub.url)]
    try:
        use_server(members[0].url)
        page.reload()
        create_chat(page, "qwen3:14b")
        answer = send(page, "Throw the dice.")
        expect(answer).to_contain_text("roll_dice needs your approval")
        members[0].kill()
        if clicks_while_down:
            approve.click()
            expect(page.get_by_text("The connection is lost. Connecting again …")).to_be_visible()
        members.append(Member(str(tmp_path), stub.url))
        use_server(members[1].url)
        expect(answer).to_contain_text("roll_dice needs your approval")
        approve.click()
        expect(answer).to_contain_text("roll_dice has ended")
        expect(answer).to_contain_text("The dice have fallen.")
        expect_end(page)
    finally:
        page.goto("about:blank")
        members[-1].kill()
        use_server(str(api.http.base_url))


def test_errors_are_shown_as_sentences(page: Page, site: str) -> None:
    create_chat(page, "failing:latest")
    send(page, "Hello!")
    expect(page.get_by_role("alert")).to_have_text("Ollama failed (500): Internal server error")
    page.goto(f"{site}/#0123456789")
    expect(page.get_by_role("alert")).to_contain_text("0123456789")
    page.context.set_offline(True)
    page.get_by_role("button", name="New chat").click()
    expect(page.get_by_role("alert")).to_contain_text("does not answer. Start mochi-server")


def test_warnings_are_shown(page: Page, api: Api, site: str) -> None:
    session = api.create_session("mochi-chat", tool_settings={"tools": ["roll_dice"]})["session_id"]
    page.goto(f"{site}/#{session}")
    expect(send(page, "Hello!")).to_contain_text("Model 'mochi-chat' cannot use tools.")
