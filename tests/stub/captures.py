"""Captures of a real Ollama server: requests and the bytes of its responses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).parent / "data" / "ollama-golden-capture.txt"


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
    return Capture(method, path, request, status_line, {name.lower(): value for name, value in pairs}, body)


_NORMAL = [
    (
        re.compile(r'"(created_at|expires_at|modified_at)":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z"'),
        r'"\1":"TIME"',
    ),
    (re.compile(r'"(total_duration|load_duration|prompt_eval_duration|eval_duration)":[1-9]\d*'), r'"\1":DURATION'),
    (re.compile(r'"(size|size_vram)":\d+'), r'"\1":SIZE'),
    (re.compile(r'"digest":"[0-9a-f]{64}"'), '"digest":"DIGEST"'),
    (re.compile(r"(sha256-|layer sha256:)[0-9a-f]{64}"), r"\1DIGEST"),
    (re.compile(r'"call_[a-z0-9]{8}"'), '"call_ID"'),
]


def normalized(body: str) -> str:
    """Return the body without values that differ between servers: times, durations, sizes, digests and random ids."""
    for pattern, replacement in _NORMAL:
        body = pattern.sub(replacement, body)
    return body
