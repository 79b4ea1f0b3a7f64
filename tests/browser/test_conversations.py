"""Example page: conversations, settings, Markdown, images, keyboard and layout."""

import re
from hashlib import sha256
from typing import Any

import pytest

pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: `uv sync --group browser`"
)

from playwright.sync_api import BrowserContext, FilePayload, Page, expect

from tests.browser.conftest import EXAMPLES
from tests.browser.scene import CODE, WHY, Scene
from tests.browser.steps import (
    IMAGES,
    answers,
    asked_for_dice,
    open_settings,
    saved,
    send_message,
    wait_for_answer,
)
from tests.support.images import PNG
from tests.support.server import RunningServer
from tests.support.waiting import until

pytestmark = pytest.mark.slow  # Playwright's sync API keeps an event loop running in its process
SKY = "Why is the sky blue?"


def ask(page: Page, text: str) -> str:
    """Send a message and return the answer."""
    send_message(page, text)
    expect(page.locator(".turn .text").last).to_have_text(text)
    wait_for_answer(page)
    return answers(page)[-1]


def only_session(server: RunningServer) -> dict[str, Any]:
    [session] = server.api().http.get("/sessions").json()["sessions"]
    return server.api().session(session["session_id"])


def test_conversations_are_searched_renamed_and_deleted(page: Page, server: RunningServer) -> None:
    ask(page, SKY)
    page.get_by_role("button", name="New", exact=True).click()
    ask(page, "Write a program.")
    entries = page.locator("#sessions .open")
    expect(entries).to_have_text(["Write a program.", SKY])

    page.get_by_label("Search conversations").fill("sunlight")
    expect(entries).to_have_text([SKY])
    page.get_by_role("button", name=f"Rename {SKY}").click()
    page.keyboard.type("Rayleigh")
    page.keyboard.press("Enter")
    expect(entries).to_have_text(["Rayleigh"])
    expect(entries).to_be_focused()
    page.get_by_label("Search conversations").fill("")
    expect(entries).to_have_count(2)

    page.once("dialog", lambda dialog: dialog.dismiss())
    page.get_by_role("button", name="Delete Write a program.").click()
    expect(entries).to_have_count(2)
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete Write a program.").click()
    expect(entries).to_have_text(["Rayleigh"])
    expect(page.get_by_text("A new conversation")).to_be_visible()
    assert only_session(server)["title"] == "Rayleigh"


def test_versions_of_messages_are_switched(page: Page, server: RunningServer) -> None:
    first = ask(page, SKY)
    page.get_by_role("button", name="Regenerate").click()
    wait_for_answer(page)
    of_answer = page.locator(".turn > .actions").last.get_by_role("group", name="Versions")
    expect(of_answer).to_contain_text("2 / 2")
    expect(of_answer.get_by_role("button", name="Next version")).to_be_disabled()
    of_answer.get_by_role("button", name="Previous version").click()
    expect(of_answer).to_contain_text("1 / 2")

    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Edited message").fill("Write a program.")
    page.get_by_role("button", name="Send again").click()
    wait_for_answer(page)
    of_message = page.locator(".of-user").get_by_role("group", name="Versions")
    expect(of_message).to_contain_text("2 / 2")
    expect(of_answer).to_have_count(0)
    of_message.get_by_role("button", name="Previous version").click()
    expect(page.locator(".user .text")).to_have_text(SKY)
    expect(of_message).to_contain_text("1 / 2")
    expect(of_answer).to_contain_text("1 / 2")
    assert answers(page) == [first]
    assert only_session(server)["messages"][0]["content"] == SKY


def test_title_is_a_short_beginning_of_the_first_message(page: Page) -> None:
    page.get_by_label("Message").fill(
        f"Please write a program {'that counts words ' * 5}\n\nIt is for Python."
    )
    page.keyboard.press("Enter")
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_have_text(re.compile(r"^Please write a program that counts words .*\.\.\.$"))
    title = str(heading.text_content())
    assert len(title) <= 80
    expect(page.locator("#sessions .open")).to_have_text(title)


def test_comparison_does_not_change_the_settings_of_a_conversation(
    page: Page, server: RunningServer
) -> None:
    scope = page.get_by_text("apply to this conversation, from the next message")
    expect(scope).to_be_visible()
    ask(page, SKY)
    page.get_by_role("button", name="Compare").click()
    expect(scope).to_be_hidden()
    page.get_by_label("think").check()
    page.get_by_role("button", name="Chat", exact=True).click()
    expect(scope).to_be_visible()
    expect(page.get_by_label("think")).not_to_be_checked()
    assert not only_session(server)["think"]
    page.get_by_label("think").check()
    until(lambda: only_session(server)["think"])


def test_escape_cancels_renaming(page: Page) -> None:
    ask(page, SKY)
    page.get_by_role("button", name=f"Rename {SKY}").click()
    page.keyboard.type("Rayleigh")
    page.keyboard.press("Escape")
    expect(page.locator("#sessions .open")).to_have_text([SKY])


def test_address_opens_a_conversation_and_the_back_button_works(page: Page) -> None:
    ask(page, SKY)
    page.get_by_role("button", name="New", exact=True).click()
    expect(page.get_by_text("A new conversation")).to_be_visible()
    page.go_back()
    expect(page.locator(".answer .markdown")).to_have_text(WHY["qwen3:14b"])
    expect(page.get_by_role("heading", name=SKY)).to_be_visible()


def test_code_is_highlighted_and_copied(page: Page, context: BrowserContext) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    ask(page, "Write a program.")
    expect(page.locator(".code .hljs-string")).to_have_text("'Hello, sky'")
    expect(page.locator(".code-header span")).to_have_text("python")
    expect(page.locator(".markdown strong")).to_have_text("short")
    expect(page.locator(".markdown td").first).to_have_text("Python")
    page.get_by_role("button", name="Copy code").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == CODE
    page.get_by_role("button", name="Copy", exact=True).click()
    until(lambda: "```python" in page.evaluate("navigator.clipboard.readText()"))


def test_html_of_an_answer_is_text_and_loads_nothing(page: Page) -> None:
    ask(page, "Try an attack.")
    answer = page.locator(".answer .markdown")
    expect(answer).to_contain_text("<img src=x onerror=")
    expect(answer.locator("img, b, script")).to_have_count(0)
    assert page.title() != "attacked"
    links = answer.locator("a")
    expect(links.filter(has_text="site")).to_have_attribute("rel", "noopener noreferrer")
    assert not [link for link in links.all() if "javascript" in (link.get_attribute("href") or "")]


def test_policy_of_the_page_blocks_inline_code(page: Page) -> None:
    policy = page.locator("meta[http-equiv=Content-Security-Policy]").get_attribute("content") or ""
    assert "unsafe" not in policy
    page.evaluate(
        "document.head.append(Object.assign(document.createElement('style'), {textContent: "
        "'body{top:1px}'}))"
    )
    assert page.evaluate("getComputedStyle(document.body).top") == "auto"
    with pytest.raises(Exception, match="TrustedHTML"):
        page.evaluate("document.body.innerHTML = '<b>text</b>'")


def test_answer_is_regenerated(page: Page, server: RunningServer) -> None:
    ask(page, "describe")
    page.get_by_label("Model", exact=True).select_option("llama3.2:3b")
    page.get_by_role("button", name="Regenerate").click()
    expect(page.locator(".answer .markdown")).to_contain_text("Model llama3.2:3b")
    wait_for_answer(page)
    assert [message["role"] for message in only_session(server)["messages"]] == [
        "user",
        "assistant",
    ]


def test_message_is_edited(page: Page, server: RunningServer) -> None:
    ask(page, "Write a program.")
    ask(page, "describe")
    page.get_by_role("button", name="Edit").first.click()
    page.get_by_label("Edited message").fill(SKY)
    page.get_by_role("button", name="Send again").click()
    expect(page.locator(".turn")).to_have_count(1)
    expect(page.locator(".answer .markdown")).to_have_text(WHY["qwen3:14b"])
    wait_for_answer(page)
    expect(page.locator(".user")).to_have_text([SKY])
    assert [message["content"] for message in only_session(server)["messages"]] == [
        SKY,
        WHY["qwen3:14b"],
    ]


def test_settings_change_in_the_middle_of_a_conversation(page: Page, server: RunningServer) -> None:
    server.api().http.post(
        "/system-prompts", json={"filename": "pirate.md", "content": "Talk like a pirate."}
    )
    page.reload()
    assert "Model qwen3:14b; system prompt none; images 0" in ask(page, "describe")
    page.get_by_label("Model", exact=True).select_option("llama3.2:3b")
    open_settings(page)
    page.get_by_label("Prompt file").select_option("pirate.md")
    expect(page.get_by_label("System prompt", exact=True)).to_have_value("Talk like a pirate.")
    page.get_by_role("button", name="Save system prompt").click()
    saved(page)
    page.get_by_label("roll_dice").uncheck()
    page.get_by_label("Approval", exact=True).select_option("confirm_destructive")
    page.get_by_label("librarian").check()
    page.get_by_role("button", name="Close").click()
    assert "Model llama3.2:3b; system prompt Talk like a pirate." in ask(page, "describe")
    session = only_session(server)
    assert "roll_dice" not in session["tool_settings"]["tools"]
    assert session["tool_settings"]["execution_policy"] == "confirm_destructive"
    assert session["agent_settings"]["enabled_agents"] == ["librarian"]

    page.reload()
    expect(page.get_by_label("Model", exact=True)).to_have_value("llama3.2:3b")
    open_settings(page)
    expect(page.get_by_label("librarian")).to_be_checked()
    expect(page.get_by_label("roll_dice")).not_to_be_checked()
    page.get_by_label("System prompt", exact=True).fill("")
    page.get_by_role("button", name="Save system prompt").click()
    saved(page)
    assert only_session(server)["messages"][0]["role"] == "user"


def test_settings_change_during_an_answer(page: Page, scene: Scene, server: RunningServer) -> None:
    send_message(page, "hold")
    expect(page.locator(".answer .markdown")).to_have_text("One, two, three,")
    page.get_by_label("Model", exact=True).select_option("gemma3:12b")
    open_settings(page)
    saved(page)
    page.get_by_role("button", name="Close").click()
    scene.gate.open()
    wait_for_answer(page)
    assert only_session(server)["model"] == "gemma3:12b"
    assert "Model gemma3:12b" in ask(page, "describe")


def test_refused_image_leaves_no_session(page: Page, server: RunningServer) -> None:
    image: FilePayload = {"name": "dot.png", "mimeType": "image/png", "buffer": b"not an image"}
    page.locator("#files").set_input_files([image])
    page.locator("#message").fill("What is it?")
    page.locator("#message").press("Enter")
    expect(page.locator("#status")).to_contain_text("not an image")
    expect(page.locator("#message")).to_have_value("What is it?")
    expect(page.locator("#attachments img")).to_have_count(1)
    assert server.api().http.get("/sessions").json()["sessions"] == []
    assert "#" not in page.url
    page.locator("#attachments button").click()
    assert "images 0" in ask(page, "describe")


def test_images_are_sent_and_shown_after_a_reload(page: Page) -> None:
    page.get_by_label("Model", exact=True).select_option("gemma3:12b")
    image: FilePayload = {"name": "dot.png", "mimeType": "image/png", "buffer": PNG}
    page.locator("#files").set_input_files([image, image])
    page.get_by_role("button", name="Remove Image 2").click()
    expect(page.locator("#attachments img")).to_have_count(1)
    assert "images 1" in ask(page, "describe")
    expect(page.locator("#attachments img")).to_have_count(0)
    page.reload()
    shown = page.get_by_role("img", name="Attached image")
    expect(shown).to_be_visible()
    expect(shown).to_have_js_property("naturalWidth", 1)


def test_images_and_files_are_chosen_with_one_button(page: Page, server: RunningServer) -> None:
    page.get_by_label("Model", exact=True).select_option("gemma3:12b")
    notes = "Höhe;Breite\n3;4\n".encode()
    image: FilePayload = {"name": "dot.png", "mimeType": "image/png", "buffer": PNG}
    drawing: FilePayload = {"name": "dot.svg", "mimeType": "image/svg+xml", "buffer": b"<svg/>"}
    table: FilePayload = {"name": "notes.csv", "mimeType": "text/csv", "buffer": notes}
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Attach files").click()
    chooser.value.set_files([image, table, drawing])
    expect(page.locator("#attachments .file")).to_have_text(["notes.csv", "dot.svg"])
    page.get_by_role("button", name="Remove dot.svg").click()
    assert "images 1" in ask(page, "describe")
    expect(page.locator(".attachment")).to_have_count(0)
    (asked,) = [each for each in only_session(server)["messages"] if each["role"] == "user"]
    assert len(asked["images"]) == 1
    assert [file["name"] for file in asked["attachments"]] == ["notes.csv"]

    for _ in range(2):  # as sent, and as stored
        expect(page.get_by_role("img", name="Attached image")).to_be_visible()
        with page.expect_download() as download:
            page.get_by_role("button", name="notes.csv").click()
        assert download.value.suggested_filename == "notes.csv"
        assert download.value.path().read_bytes() == notes
        page.reload()


def test_edited_message_keeps_its_file_and_its_versions(page: Page) -> None:
    table: FilePayload = {"name": "notes.csv", "mimeType": "text/csv", "buffer": b"3;4"}
    page.locator("#files").set_input_files([table])
    ask(page, SKY)
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Edited message").fill("Write a program.")
    page.get_by_role("button", name="Send again").click()
    wait_for_answer(page)
    versions = page.locator(".of-user").get_by_role("group", name="Versions")
    expect(versions).to_contain_text("2 / 2")
    for name in ("Previous version", "Next version"):
        versions.get_by_role("button", name=name).click()
        expect(versions.get_by_role("button", name=name)).to_be_disabled()
        with page.expect_download() as download:
            page.get_by_role("button", name="notes.csv").click()
        assert download.value.path().read_bytes() == b"3;4"


def test_refused_file_is_kept_for_another_try(page: Page, server: RunningServer) -> None:
    program: FilePayload = {"name": "a.bin", "mimeType": "", "buffer": b"\0\1\2"}
    page.locator("#files").set_input_files([program])
    page.locator("#message").fill("What is it?")
    page.locator("#message").press("Enter")
    expect(page.locator("#status")).to_contain_text("'a.bin': files of this kind are not supported")
    expect(page.locator("#message")).to_have_value("What is it?")
    expect(page.locator("#attachments .file")).to_have_text("a.bin")
    assert server.api().http.get("/sessions").json()["sessions"] == []


def test_refused_file_leaves_the_conversation_as_it_is(page: Page, server: RunningServer) -> None:
    answer = ask(page, SKY)
    program: FilePayload = {"name": "a.bin", "mimeType": "", "buffer": b"\0\1\2"}
    page.locator("#files").set_input_files([program])
    page.locator("#message").fill("What is it?")
    page.locator("#message").press("Enter")
    expect(page.locator("#status")).to_contain_text("'a.bin': files of this kind are not supported")
    expect(page.locator("#message")).to_have_value("What is it?")
    expect(page.locator("#attachments .file")).to_have_text("a.bin")
    expect(page.locator(".user .text")).to_have_text([SKY])
    expect(page.get_by_role("button", name="Regenerate")).to_be_visible()
    assert answers(page) == [answer]
    page.get_by_role("button", name="Remove a.bin").click()
    page.locator("#message").press("Enter")
    expect(page.locator(".user .text")).to_have_text([SKY, "What is it?"])
    wait_for_answer(page)
    users = [each for each in only_session(server)["messages"] if each["role"] == "user"]
    assert len(users) == 2


def test_conversation_is_summarized(page: Page) -> None:
    ask(page, SKY)
    open_settings(page)
    page.get_by_role("button", name="Summarize now").click()
    saved(page)
    expect(page.locator("#summary")).to_have_text("The user asks about the sky.")
    page.reload()
    open_settings(page)
    expect(page.locator("#summary")).to_have_text("The user asks about the sky.")


def test_page_is_used_by_keyboard_alone(page: Page) -> None:
    page.get_by_label("Message").focus()
    page.keyboard.type(SKY)
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("Briefly.")
    page.keyboard.press("Enter")
    expect(page.locator(".user .text")).to_have_text(f"{SKY}\nBriefly.")
    wait_for_answer(page)
    page.keyboard.press("Alt+n")
    expect(page.get_by_text("A new conversation")).to_be_visible()
    expect(page.get_by_label("Message")).to_be_focused()
    page.keyboard.press("Control+k")
    expect(page.get_by_label("Search conversations")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator(".answer .markdown")).to_have_text(WHY["qwen3:14b"])


def test_screen_readers_get_names_answers_and_approvals(page: Page) -> None:
    ask(page, SKY)
    expect(page.locator("#announcer")).to_have_text(WHY["qwen3:14b"])
    asked_for_dice(page)
    expect(page.locator("#announcer")).to_have_text("Approval needed: roll_dice")
    open_settings(page)
    unnamed = [
        line
        for line in page.locator("body").aria_snapshot().splitlines()
        if re.search(UNNAMED, line)
    ]
    assert not unnamed


UNNAMED = r"- (button|textbox|combobox|checkbox|searchbox|img|meter|dialog|navigation)( \[.*\])?:?$"
"""Line of an accessibility tree with a control that has no name."""


@pytest.mark.parametrize(
    ("name", "scheme", "width"), [("dark", "dark", 1200), ("phone", "light", 390)]
)
def test_page_fits_dark_and_phone(page: Page, name: str, scheme: Any, width: int) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 760})
    ask(page, "Write a program.")
    asked_for_dice(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.screenshot(path=IMAGES / f"chat-{name}.png")


def test_sidebar_opens_and_closes_on_a_phone(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 760})
    ask(page, SKY)
    expect(page.get_by_label("Search conversations")).to_be_hidden()
    page.get_by_role("button", name="Conversations").click()
    expect(page.get_by_label("Search conversations")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_label("Search conversations")).to_be_hidden()
    page.get_by_role("button", name="Conversations").click()
    page.get_by_role("button", name="New", exact=True).click()
    expect(page.get_by_text("A new conversation")).to_be_visible()
    expect(page.get_by_label("Search conversations")).to_be_hidden()


def test_settings_fit_on_a_phone(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 760})
    open_settings(page)
    assert page.evaluate("document.getElementById('settings').scrollWidth") <= 390 * 0.94
    page.get_by_role("button", name="Close").click()
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_vendored_libraries_are_the_listed_versions() -> None:
    vendor = EXAMPLES / "vendor"
    listed = re.findall(
        r"^File: +(\S+)$.*?^SHA-256: +(\w{64})$", (vendor / "VERSIONS.txt").read_text(), re.M | re.S
    )
    assert {
        path.name: sha256(path.read_bytes()).hexdigest() for path in vendor.glob("*.js")
    } == dict(listed)
