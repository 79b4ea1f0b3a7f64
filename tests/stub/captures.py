"""Captures of a real Ollama server: requests and the bytes of its responses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "data" / "ollama-golden-capture.txt"
PARTIAL_FILE = FILE.with_name("ollama-partial-capture.txt")


@dataclass(frozen=True)
class Capture:
    """One exchange. `body` ends in a line feed, which the file adds if the server sent none."""

    method: str
    path: str
    request: str
    status_line: str
    headers: dict[str, str]
    body: str

    @property
    def title(self) -> str:
        return f"{self.method} {self.path} {self.request}".strip()

    @property
    def status(self) -> int:
        return int(self.status_line.split(" ")[1])


def read_captures() -> list[Capture]:
    _, *blocks = FILE.read_text().split("\n### ")
    return [_capture(block) for block in blocks]


def _capture(block: str) -> Capture:
    head, _, body = block.partition("\n\n")
    title, status_line, *headers = head.split("\n")
    method, path, request = title.split(" ", 2)
    pairs = (header.split(": ", 1) for header in headers)
    return Capture(
        method, path, request, status_line, {name.lower(): value for name, value in pairs}, body
    )


@dataclass(frozen=True)
class PartialCapture:
    """Exchange of which only parts are known.

    The head of the file explains the placeholders in `headers` and `lines`.

    `before` contains the method, the path and the body of requests that were sent before.
    """

    method: str
    path: str
    request: str
    before: list[tuple[str, str, str]]
    sent: dict[str, str]
    status: int
    headers: dict[str, str]
    lines: list[str]

    @property
    def title(self) -> str:
        return " ".join(filter(None, (self.method, self.path, *self.sent.values(), self.request)))


def read_partial_captures() -> list[PartialCapture]:
    _, *blocks = re.split(r"^### ", PARTIAL_FILE.read_text(), flags=re.MULTILINE)
    return [
        _partial_capture(re.sub(r"^## .*\n", "", block, flags=re.MULTILINE)) for block in blocks
    ]


def _partial_capture(block: str) -> PartialCapture:
    head, _, body = block.rstrip("\n").partition("\n\n")
    title, *lines = head.split("\n")
    before = [_request(line.removeprefix("< ")) for line in lines if line.startswith("< ")]
    sent = dict(line.removeprefix("> ").split(": ", 1) for line in lines if line.startswith("> "))
    status, *headers = [line for line in lines if line[0] not in "<>"]
    expected = dict(header.split(": ", 1) for header in headers)
    return PartialCapture(
        *_request(title), before, sent, int(status), expected, body.split("\n") if body else []
    )


def _request(text: str) -> tuple[str, str, str]:
    method, path, body = (*text.split(" ", 2), "")[:3]
    return method, path, body


def matches(expected: Any, found: Any) -> bool:
    """Return whether a JSON value has the form of `expected`, which may contain placeholders."""
    kinds: dict[str, Any] = {"str": str, "num": (int, float), "list": list, "object": dict}
    if isinstance(expected, str) and expected in kinds:
        return isinstance(found, kinds[expected])
    if isinstance(expected, dict) and isinstance(found, dict):
        return list(expected) == list(found) and all(
            matches(value, found[key]) for key, value in expected.items()
        )
    if isinstance(expected, list) and isinstance(found, list):
        items = expected * len(found) if len(expected) == 1 and found else expected
        return len(items) == len(found) and all(map(matches, items, found))
    if isinstance(expected, str) and isinstance(found, str):
        return expected == re.sub(r"open \S+:", "open <path>", found)
    return bool(expected == found)


_NORMAL = [
    (
        re.compile(
            r'"(created_at|expires_at|modified_at)":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z"'
        ),
        r'"\1":"TIME"',
    ),
    (
        re.compile(r'"(total_duration|load_duration|prompt_eval_duration|eval_duration)":[1-9]\d*'),
        r'"\1":DURATION',
    ),
    (re.compile(r'"(size|size_vram)":\d+'), r'"\1":SIZE'),
    (re.compile(r'"digest":"[0-9a-f]{64}"'), '"digest":"DIGEST"'),
    (re.compile(r"(sha256-|layer sha256:)[0-9a-f]{64}"), r"\1DIGEST"),
    (re.compile(r'"call_[a-z0-9]{8}"'), '"call_ID"'),
]


def normalized(body: str) -> str:
    """Return the body without values that differ between servers: times, durations, sizes, digests
    and random ids.
    """
    for pattern, replacement in _NORMAL:
        body = pattern.sub(replacement, body)
    return body
