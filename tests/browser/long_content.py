"""Long titles, words, tables and code, and a check that a page shows them within its width."""

from collections.abc import Iterator
from typing import Any

from playwright.sync_api import Locator, Page, expect

from mochi_stub import Model
from tests.support.api import Api

WIDTHS = (1200, 800, 390)
"""Widths of a desktop, a tablet and a phone, in CSS pixels."""
MODEL = "hf.co/long-organization-name/LongModelNameWithoutHyphensOrSpaces24BInstruct2506GGUF:Q4_K_M"
MODELS = [
    Model(name, ("completion", "tools"), context_length=40_960) for name in ("alpha", "beta", MODEL)
]
TOOL = "note_" + "x" * 55
TITLE = "A title of eighty characters: it is the longest one that a server derives itself"
WORD = "word" * 75
TABLE = """| Language | Typing | Memory management | First version | Package registry | Latest release |
|---|---|---|---|---|---|
| Python | dynamic | reference counting | 1991 | Python Package Index | three-point-fourteen |
"""
CODE = f'print("{"a long line of code, " * 12}")'
MARKDOWN = (
    f"# Heading {WORD}\n\n{WORD}\n\n`{WORD}`\n\n- {WORD}\n\n> "
    f"{WORD}\n\n{TABLE}\n```python\n{CODE}\n```\n"
)
NOTE = f'''
def {TOOL}(text: str, second: str = "") -> str:
    """Note a text."""
    return text

'''
ARGUMENTS = {"text": WORD, "second": "short"}

_OUTSIDE = """() => {
  const width = document.documentElement.clientWidth;
  const contents = document.createRange();
  const isText = (node) => node.nodeType === Node.TEXT_NODE && node.data.trim();
  const mayOverflow = (element) =>
    element.closest("select, .visually-hidden") || getComputedStyle(element).textOverflow === "ellipsis";
  const isOutside = ({ left, right }) => left < 0 || right > width + 0.5;
  const boxes = (element) => {
    contents.selectNodeContents(element);
    const hasText = [...element.childNodes].some(isText);
    return [element.getBoundingClientRect(), ...(hasText && !mayOverflow(element) ? contents.getClientRects() : [])];
  };
  const isWrong = (element) =>
    element.checkVisibility() && !element.closest(".table *, .code pre *") && boxes(element).some(isOutside);
  const describe = ({ tagName, id, className }) => `${tagName} ${id || className}`;
  return [...document.body.querySelectorAll("*")].filter(isWrong).map(describe);
}"""
"""Function of JavaScript that returns the elements that exceed the width of the page.

Tables and code may scroll.
"""


def add_session(api: Api, model: str = MODEL) -> str:
    """Import a session with long texts of every kind, and one whose title is one word.

    Return the ID of the first.
    """
    call = {"id": "call_1", "function": {"name": TOOL, "arguments": ARGUMENTS}}
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": WORD},
        {"role": "user", "content": WORD},
        {"role": "assistant", "content": MARKDOWN, "thinking": WORD, "tool_calls": [call]},
        {
            "role": "tool",
            "content": WORD,
            "tool_name": TOOL,
            "tool_call_id": "call_1",
            "success": True,
        },
        {"role": "assistant", "content": MARKDOWN},
    ]
    settings = {"model": model, "tool_settings": {"tools": [TOOL]}, "summary": {"summary": WORD}}
    files = [
        {
            "metadata": {**settings, "session_id": "0123456789", "title": TITLE},
            "messages": messages,
        },
        {"metadata": {**settings, "session_id": "0123456780", "title": WORD[:80]}, "messages": []},
    ]
    imported = api.ok(api.http.post("/sessions/import", json=files), 201)["sessions"]
    session_id: str = next(
        session["session_id"] for session in imported if session["title"] == TITLE
    )
    return session_id


def each_width(page: Page) -> Iterator[int]:
    """Give the page each of `WIDTHS`, one after another."""
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 760})
        yield width


def check_width(page: Page, *controls: Locator) -> None:
    """Check that no element and no text exceeds the width of the page, and that the controls are in
    view.
    """
    outside = page.evaluate(_OUTSIDE)
    assert not outside, outside
    for control in controls:
        expect(control).to_be_in_viewport(ratio=1)
