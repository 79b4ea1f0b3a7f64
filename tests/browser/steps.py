"""Steps of a user on the chat page."""

from pathlib import Path

from playwright.sync_api import Page, expect

IMAGES = Path(__file__).parents[2] / "docs" / "images"


def send_message(page: Page, text: str) -> None:
    """Type a message and press Enter."""
    page.get_by_label("Message").fill(text)
    page.keyboard.press("Enter")


def wait_for_answer(page: Page) -> None:
    expect(page.get_by_role("button", name="Send", exact=True)).to_be_enabled()


def enable_agents(page: Page) -> None:
    open_settings(page)
    page.get_by_label("librarian").check()
    page.get_by_role("button", name="Close").click()


def answers(page: Page) -> list[str]:
    texts: list[str] = page.locator(".answer > .markdown").all_inner_texts()
    return texts


def asked_for_dice(page: Page) -> None:
    page.get_by_label("think").check()
    send_message(page, "Throw two dice for me, please.")
    expect(page.get_by_role("button", name="Approve")).to_be_visible()


def open_settings(page: Page) -> None:
    page.get_by_role("button", name="Settings").click()
    expect(page.get_by_role("dialog")).to_be_visible()


def saved(page: Page) -> None:
    """Wait until the server has stored the changed settings."""
    expect(page.locator("#settings-status")).to_have_text("Saved.")
