"""Example page: streaming, thinking, approvals, stop, resume and comparison."""

import shutil
from pathlib import Path

import pytest

pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: `uv sync --group browser`"
)

from playwright.sync_api import BrowserContext, Page, Request, Route, expect

from mochi_stub import StubServer
from tests.browser.scene import WHY, Scene
from tests.browser.steps import (
    IMAGES,
    answers,
    asked_for_dice,
    enable_agents,
    send_message,
    wait_for_answer,
)
from tests.support.balancer import Balancer
from tests.support.cluster import Member
from tests.support.instructions import instruct, words
from tests.support.process import Command
from tests.support.relay import CuttingRelay
from tests.support.server import RunningServer
from tests.support.tools import SAMPLES

pytestmark = pytest.mark.slow  # Playwright's sync API keeps an event loop running in its process


def test_answer_and_thinking_stream_and_fill_the_gauge(page: Page) -> None:
    page.get_by_label("think").check()
    send_message(page, "Why is the sky blue?")
    wait_for_answer(page)
    assert answers(page) == [WHY["qwen3:14b"]]
    expect(page.locator(".thinking")).to_have_text("Rayleigh, in plain words.")
    expect(page.locator("#gauge-text")).to_contain_text("of 8.2k tokens")


def test_call_waits_for_approval(page: Page) -> None:
    send_message(page, "Why is the sky blue?")
    wait_for_answer(page)
    asked_for_dice(page)
    page.screenshot(path=IMAGES / "chat.png")
    page.get_by_role("button", name="Approve").click()
    wait_for_answer(page)
    assert "roll_dice(sides=6, count=2)" in page.locator(".card").inner_text()
    assert "Rolled" in page.locator(".card pre.success").inner_text()
    assert "a good throw" in answers(page)[-1]


def test_result_before_the_approval_response_is_kept(page: Page) -> None:
    def delay_response(route: Route) -> None:
        response = route.fetch()
        expect(page.locator(".card pre.success")).to_be_visible()
        route.fulfill(response=response)

    page.route("**/confirm-tool", delay_response)
    asked_for_dice(page)
    page.get_by_role("button", name="Approve").click()
    wait_for_answer(page)
    expect(page.locator(".card code")).to_contain_text("roll_dice(")
    expect(page.locator(".card pre.success")).to_be_visible()


def test_arguments_are_edited_by_keyboard_alone(page: Page, server: RunningServer) -> None:
    asked_for_dice(page)
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("ControlOrMeta+A")
    page.keyboard.type('{"sides": 2, "count": 1}')
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    wait_for_answer(page)
    assert "roll_dice(sides=2, count=1)" in page.locator(".card").inner_text()
    session = server.api().http.get("/sessions").json()["sessions"][0]["session_id"]
    assert server.api().messages(session)[2]["arguments"] == {"sides": 2, "count": 1}


def test_invalid_json_is_shown_and_a_denial_reaches_the_model(page: Page) -> None:
    asked_for_dice(page)
    page.get_by_label("Arguments").fill("{")
    page.get_by_role("button", name="Approve as edited").click()
    expect(page.locator(".approval .failure")).to_contain_text("JSON")
    page.get_by_label("Arguments").fill("{}")
    page.get_by_role("button", name="Deny").click()
    wait_for_answer(page)
    expect(page.locator(".card pre.failure")).to_be_visible()


def test_agent_card_shows_its_plan_calls_and_report(page: Page) -> None:
    enable_agents(page)
    send_message(page, "Ask the librarian for three books.")
    expect(page.get_by_text("The agent librarian wants to call a tool")).to_be_visible()
    page.get_by_role("button", name="Approve").click()
    wait_for_answer(page)
    card = page.locator(".card.agent")
    for text in (
        "Agent librarian",
        "Choose three books",
        "note(text=",
        "Noted.",
        "I have noted",
        "done",
    ):
        expect(card).to_contain_text(text)
    assert answers(page) == ["The librarian has put three books by Le Guin on your list."]


def test_each_run_of_an_agent_has_calls_of_its_own(page: Page) -> None:
    enable_agents(page)
    send_message(page, "Ask the librarian for three books, twice.")
    page.get_by_label("for the whole conversation").check()
    page.get_by_role("button", name="Approve").click()
    wait_for_answer(page)
    expect(page.locator(".card.agent")).to_have_count(2)
    for card in page.locator(".card.agent").all():
        expect(card).to_contain_text("note(text=")
        expect(card).to_contain_text("Noted.")


def test_escape_stops_and_keeps_the_partial_answer(page: Page) -> None:
    send_message(page, "hold")
    expect(page.locator(".answer .markdown")).to_have_text("One, two, three,")
    page.keyboard.press("Escape")
    wait_for_answer(page)
    assert answers(page) == ["One, two, three, "] or answers(page) == ["One, two, three,"]
    page.reload()
    expect(page.get_by_text("(interrupted)")).to_be_visible()


def test_reload_during_an_answer_resumes_it(page: Page, scene: Scene) -> None:
    send_message(page, "hold")
    expect(page.locator(".answer .markdown")).to_have_text("One, two, three,")
    page.reload()
    expect(page.locator(".answer .markdown")).to_have_text("One, two, three,")
    scene.gate.open()
    wait_for_answer(page)
    assert answers(page) == ["One, two, three, four."]
    page.reload()
    expect(page.locator(".answer .markdown")).to_have_text("One, two, three, four.")
    expect(page.locator(".user")).to_have_count(1)


def test_reload_shows_a_pending_approval_again(page: Page) -> None:
    asked_for_dice(page)
    page.reload()
    expect(page.locator(".user")).to_have_count(1)
    page.get_by_role("button", name="Approve").click()
    wait_for_answer(page)
    assert "a good throw" in answers(page)[-1]
    page.reload()
    expect(page.locator(".card pre")).to_contain_text("Rolled")


def test_approval_outlives_a_killed_server(
    context: BrowserContext, stub: StubServer, origin: str, tmp_path: Path
) -> None:
    shutil.copytree(SAMPLES, tmp_path / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    page, killed = context.new_page(), Member(str(tmp_path), stub.url)
    with Balancer([killed.port]) as balancer:
        page.goto(f"{origin}/chat.html?server={balancer.url}")
        expect(page.locator("#model option")).to_have_count(3)
        asked_for_dice(page)
        killed.kill()
        restarted = Member(str(tmp_path), stub.url)
        try:
            balancer.ports = [restarted.port]
            expect(page.get_by_role("button", name="Approve")).to_have_count(1)
            page.get_by_role("button", name="Approve").click()
            wait_for_answer(page)
            assert "Rolled" in page.locator(".card pre.success").inner_text()
            assert "a good throw" in answers(page)[-1]
            expect(page.locator(".card")).to_have_count(1)
            page.goto("about:blank")
        finally:
            restarted.kill()


def test_lost_connection_is_resumed(
    page: Page, scene: Scene, server: RunningServer, origin: str
) -> None:
    with CuttingRelay(server.url) as relay:
        page.goto(f"{origin}/chat.html?server={relay.url}")
        expect(page.locator("#model option")).to_have_count(3)
        send_message(page, "hold")
        expect(page.locator(".answer .markdown")).to_have_text("One, two, three,")
        relay.cut()
        scene.gate.open()
        wait_for_answer(page)
        assert answers(page) == ["One, two, three, four."]
        expect(page.locator(".user")).to_have_count(1)
        page.goto("about:blank")


def test_page_connects_again_after_a_long_outage(
    page: Page, scene: Scene, server: RunningServer, origin: str
) -> None:
    refused: list[Request] = []
    with CuttingRelay(server.url) as relay:
        page.clock.install()
        page.goto(f"{origin}/chat.html?server={relay.url}")
        expect(page.locator("#model option")).to_have_count(3)
        send_message(page, "hold")
        expect(page.locator(".answer .markdown")).to_have_text("One, two, three,")
        page.on("requestfailed", lambda request: refused.append(request))  # noqa: PLW0108 - the argument must be a function
        relay.set_target("http://127.0.0.1:9")
        relay.cut()
        while len(refused) < 12:
            page.clock.run_for(10_000)
        expect(page.get_by_role("status")).to_contain_text("Connecting again")
        relay.set_target(server.url)
        scene.gate.open()
        page.clock.run_for(10_000)
        wait_for_answer(page)
        assert answers(page) == ["One, two, three, four."]
        page.goto("about:blank")


def test_unknown_conversation_is_reported(page: Page) -> None:
    page.goto(f"{page.url.partition('#')[0]}#0000000000")
    expect(page.get_by_role("status")).to_contain_text("0000000000")
    expect(page.get_by_text("A new conversation")).to_be_visible()
    expect(page.get_by_role("status")).to_contain_text("0000000000")
    send_message(page, "Why is the sky blue?")
    wait_for_answer(page)
    assert answers(page) == [WHY["qwen3:14b"]]


def test_earlier_conversation_is_opened_again(page: Page) -> None:
    send_message(page, "Why is the sky blue?")
    wait_for_answer(page)
    page.get_by_role("button", name="New", exact=True).click()
    expect(page.get_by_text("A new conversation")).to_be_visible()
    page.get_by_role("button", name="Why is the sky blue?", exact=True).click()
    expect(page.locator(".answer .markdown")).to_have_text(WHY["qwen3:14b"])


def test_three_models_are_compared(page: Page) -> None:
    page.get_by_role("button", name="Compare").click()
    page.get_by_label("llama3.2:3b").check()
    page.get_by_label("Message").fill("Why is the sky blue?")
    page.keyboard.press("Enter")
    expect(page.locator("#columns .note", has_text="tokens/s")).to_have_count(3)
    assert page.locator("#columns .markdown").all_inner_texts() == list(WHY.values())
    page.get_by_label("Message").fill("Why is the sky blue?")
    page.screenshot(path=IMAGES / "compare.png")


def test_test_mode_serves_the_page_as_well(
    context: BrowserContext, origin: str, tmp_path: Path
) -> None:
    command = Command(
        "mochi_server", "--test-mode", "--port", "0", "--stub-speed", "0", cwd=tmp_path
    )
    with command as server, server.api() as api:
        page = context.new_page()
        page.goto(f"{origin}/chat.html?server={str(api.http.base_url).partition('/api')[0]}")
        expect(page.get_by_label("Model", exact=True)).to_have_value("mochi:latest")
        send_message(page, instruct(words(30)))
        wait_for_answer(page)
        assert len(answers(page)[0].split()) >= 30
        page.close()


def test_message_waits_until_the_page_is_connected(page: Page) -> None:
    held: list[Route] = []
    page.route("**/api/v1/agents", lambda route: held.append(route))  # noqa: PLW0108 - the argument must be a function
    with page.expect_request("**/api/v1/agents"):
        page.reload(wait_until="commit")
    send_message(page, instruct(words(30)))
    held[0].continue_()
    expect(page.locator(".answer > .markdown")).to_have_count(1)
    wait_for_answer(page)
    assert len(answers(page)[0].split()) >= 30


def test_unreachable_server_is_reported(context: BrowserContext, origin: str) -> None:
    page = context.new_page()
    page.goto(f"{origin}/chat.html?server=http://127.0.0.1:9")
    expect(page.get_by_role("status")).to_have_text("No server at http://127.0.0.1:9.")
    page.close()


def test_key_field_is_sent_with_each_request(
    context: BrowserContext, origin: str, stub: StubServer, tmp_path: Path
) -> None:
    with RunningServer(tmp_path, stub.url, api_keys=("the-key",)) as server:
        page = context.new_page()
        sent: list[str | None] = []
        page.on("request", lambda request: sent.append(request.headers.get("authorization")))
        page.goto(f"{origin}/chat.html?server={server.url}")
        page.get_by_label("API key").fill("the-key")
        page.get_by_role("button", name="Connect").click()
        expect(page.locator("#model option")).to_have_count(3)
        sent.clear()
        page.reload()
        with page.expect_response("**/api/v1/sessions?*") as response:
            expect(page.locator("#model option")).to_have_count(3)
        assert response.value.ok
        page.close()
    assert set(sent) - {None} == {"Bearer the-key"}
