"""The pages of `docs/how-to/frontend-libraries.md`, bundled as a user would, against the server in
test mode.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: `uv sync --group browser`"
)

from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.conftest import serving_files
from tests.docs_tooling.pages import ROOT, blocks
from tests.support.api import Api
from tests.support.instructions import calls, instruct, words
from tests.support.process import Command
from tests.support.tools import SAMPLES
from tests.support.waiting import until

PACKAGES = ROOT / "tests" / "frontends" / "js" / "node_modules"
DOCUMENTATION = ROOT / "docs" / "how-to" / "frontend-libraries.md"
DICE = instruct(calls("roll_dice", sides=6, count=2), words(3))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not PACKAGES.exists(), reason="`npm ci` has not been run in tests/frontends/js"
    ),
]


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    """A client of the server in test mode."""
    shutil.copytree(SAMPLES, tmp_path / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    options = ("--test-mode", "--port", "0", "--stub-speed", "20", "--data-dir", str(tmp_path))
    with Command("mochi_server", *options, cwd=tmp_path) as command, command.api() as api:
        yield api


@pytest.fixture
def session(api: Api) -> str:
    return str(api.create_session("mochi", tool_settings={"tools": ["roll_dice"]})["session_id"])


@pytest.fixture
def site(tmp_path: Path, api: Api) -> Iterator[str]:
    """The origin of the pages `ai-sdk.html` and `ag-ui.html`."""
    pages = tmp_path / "pages"
    pages.mkdir()
    sources = [block for block in blocks(DOCUMENTATION) if block.title]
    assert [block.title for block in sources] == ["index.html", "page.jsx", "index.html", "page.js"]
    for name, (html, script) in {"ai-sdk": sources[:2], "ag-ui": sources[2:]}.items():
        source = pages / name / str(script.title)
        source.parent.mkdir()
        bundle(source, script.text, api)
        (pages / f"{name}.html").write_text(
            html.text.replace(source.name, f"{name}/bundle/page.js")
        )
    with serving_files(pages) as origin:
        yield origin


def bundle(page: Path, code: str, api: Api) -> None:
    """Write a page, with the address of the server, and bundle it with its packages."""
    address = str(api.http.base_url).partition("/api")[0]
    page.write_text(code.replace("http://127.0.0.1:8000", address))
    options = (
        "--bundle",
        "--format=esm",
        "--jsx=automatic",
        f"--outdir={page.parent}/bundle",
        "--log-level=warning",
    )
    esbuild = PACKAGES / ".bin" / "esbuild"
    subprocess.run(
        [esbuild, page, *options],
        check=True,
        env={**os.environ, "NODE_PATH": str(PACKAGES)},
        timeout=60,
    )


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A page. Fails the test if the page raised an error."""
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    yield page
    page.close()
    assert not problems


@pytest.mark.parametrize("approved", [True, False])
def test_use_chat_with_a_tool_that_needs_approval(
    page: Page, site: str, api: Api, session: str, approved: bool
) -> None:
    page.goto(f"{site}/ai-sdk.html?session={session}")
    page.get_by_label("Message").fill(DICE)
    page.keyboard.press("Enter")
    expect(page.locator("pre")).to_contain_text("tool-roll_dice")
    page.get_by_role("button", name="Approve" if approved else "Deny").click()
    expect(page.locator("pre")).to_contain_text("Rolled" if approved else "output-denied")
    expect(page.locator("p").last).to_contain_text(answer(api, session))
    assert [message["role"] for message in api.messages(session)] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


def test_ag_ui_page_with_a_tool_that_needs_approval(
    page: Page, site: str, api: Api, session: str
) -> None:
    questions: list[str] = []

    def approve(dialog: object) -> None:
        questions.append(dialog.message)  # type: ignore[attr-defined]  # playwright has no types here
        dialog.accept()  # type: ignore[attr-defined]

    page.on("dialog", approve)
    page.goto(f"{site}/ag-ui.html?session={session}")
    page.get_by_label("Message").fill(DICE)
    page.keyboard.press("Enter")
    expect(page.locator("#chat")).to_contain_text("Rolled")
    expect(page.locator("#chat")).to_contain_text(f"assistant: {answer(api, session)}")
    assert questions == ["The tool roll_dice needs your approval."]


def answer(api: Api, session: str) -> str:
    """Wait for the end of the turn, and return the last answer."""
    until(lambda: api.ok(api.http.get(f"/chat/{session}/run"))["state"] == "completed")
    return str(api.messages(session)[-1]["content"])
