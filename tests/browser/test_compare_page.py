"""The example `compare.html`: the answers of three models, side by side."""

from typing import Literal

import pytest

pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: `uv sync --group browser`"
)

from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.scene import WHY, Scene
from tests.browser.steps import IMAGES
from tests.support.server import RunningServer

pytestmark = pytest.mark.slow


@pytest.fixture
def page(context: BrowserContext, server: RunningServer, origin: str) -> Page:
    page = context.new_page()
    page.goto(f"{origin}/compare.html?server={server.url}")
    expect(page.locator("section")).to_have_count(3)
    return page


def test_keyboard_alone_compares_three_models(page: Page) -> None:
    page.keyboard.type("Why is the sky blue?")
    page.keyboard.press("Enter")
    for position, text in enumerate(WHY.values()):
        expect(page.locator("section .answer").nth(position)).to_have_text(text)
        expect(page.get_by_role("status").nth(position)).to_contain_text("tokens/s")
    expect(page.get_by_role("button", name="Stop")).to_be_disabled()
    page.set_viewport_size({"width": 1200, "height": 400})
    page.screenshot(path=IMAGES / "compare-three.png")


def test_stop_ends_the_comparison(page: Page, scene: Scene) -> None:
    page.get_by_label("Message").fill("hold")
    page.keyboard.press("Enter")
    expect(page.locator("section .answer").first).to_have_text("One, two, three, ")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("alert")).to_have_text("Stopped.")
    scene.gate.open()
    page.get_by_label("Message").fill("Why is the sky blue?")
    page.keyboard.press("Enter")
    expect(page.locator("section .answer").last).to_have_text(WHY["llama3.2:3b"])


def test_model_can_be_selected_and_a_lost_server_is_reported(page: Page) -> None:
    page.get_by_label("Model 1").select_option("llama3.2:3b")
    page.get_by_label("Model 3").select_option("gemma3:12b")
    page.get_by_label("Message").fill("Why is the sky blue?")
    page.keyboard.press("Enter")
    expect(page.locator("section .answer").first).to_have_text(WHY["llama3.2:3b"])
    expect(page.locator("section .answer").last).to_have_text(WHY["gemma3:12b"])
    page.context.set_offline(True)
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("alert")).not_to_be_empty()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_has_dark_mode_and_fits_a_phone(page: Page, scheme: Literal["light", "dark"]) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 360, "height": 640})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    color = page.evaluate("getComputedStyle(document.querySelector('section')).borderTopColor")
    assert color == {"light": "rgb(213, 216, 220)", "dark": "rgb(60, 64, 70)"}[scheme]
