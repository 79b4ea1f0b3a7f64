"""Repair of answers in which a model writes its reasoning or a tool call as text.

Nothing else is changed: an answer that only mentions a tag or a call stays as it is.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import orjson

Kind = Literal["text", "thinking", "was_thinking", "was_text"]
State = Literal["start", "thinking", "blanks", "call", "text", "header", "body"]

_OPENING_TAG = re.compile(r"\s*<(think|thinking)>")
_OPENING_TAGS = ("<think>", "<thinking>")
_CLOSING_TAG = re.compile(r"</(?:think|thinking)>")
_CLOSING_TAGS = ("</think>", "</thinking>")
_MENTION_BEFORE = frozenset(" \t`'\"(")
"""Characters before a closing tag in a sentence about the tag."""

_MARKER_NAMES = ("start", "end", "message", "channel", "constrain", "return", "call")
_MARKER = re.compile(rf"<\|({'|'.join(_MARKER_NAMES)})\|>")
_MARKERS = tuple(f"<|{name}|>" for name in _MARKER_NAMES)
_HEADER = re.compile(
    r"(?:<\|(?:end|return|call)\|>\s*)?(?:<\|start\|>\w+)?<\|channel\|>\w[^<]*"
    r"(?:<\|constrain\|>\w*)?\s*<\|message\|>"
)
_BEGUN_HEADER = re.compile(r"(?:<\|\w+\|>(?:\w[\w.= ]*)?\s*)*(?:<\|?\w*\|?)?")
_RECIPIENT = re.compile(r"to=(?:functions\.)?([^\s<]+)")
_LONGEST_HEADER = 200

_CALL_OPENINGS = ("<tool_call>", "```json", "```", "{")
_CALL_START = re.compile(r"\s*(?:<tool_call>\s*|```(?:json)?\s*)?")
_TAGGED_CALL = re.compile(r"\s*<tool_call>(.*?)</tool_call>\s*", re.DOTALL)
_FENCED_CALL = re.compile(r"\s*```(?:json)?\s*(.*?)```\s*", re.DOTALL)
_CALL_FIELDS = {"name", "arguments", "parameters"}
_FIRST_FIELD = re.compile(r'\{\s*"(name|arguments|parameters)"\s*:\s*(.*)', re.DOTALL)
_FIELD_PREFIXES = tuple(f'{{"{name}":' for name in sorted(_CALL_FIELDS))


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of an answer.

    ``was_thinking`` says that all text before it was reasoning. ``was_text`` says that all
    reasoning before it was text, which began with ``text``.
    """

    kind: Kind
    text: str = ""


def without_channel(name: str) -> str:
    """Return the name of a tool without a channel suffix such as ``<|channel|>commentary``."""
    return name.partition("<|")[0] or name


class AnswerRepair:
    """Reader of one answer's text, which divides it into reasoning, text and calls.

    It holds text back only while the text can be a tag, a marker or a call of one of ``tools``.
    """

    def __init__(self, tools: Collection[str]) -> None:
        self.calls: list[dict[str, Any]] = []
        """Calls that the answer contains as text, each with ``name`` and ``arguments``."""
        self.is_changed = False
        """Whether the pieces differ from the text of the model."""
        self._tools = tools
        self._held = ""
        self._state: State = "start"
        self._last_character = ""
        self._opening = ""
        self._is_mentioned = False
        self._kind: Kind = "text"
        self._recipient: str | None = None
        self._body = ""

    def passes(self, text: str) -> bool:
        """Return whether the next text of the model is text of the answer. Most text is.

        Otherwise, ``feed`` must read it.
        """
        is_plain = not self._held and text != "" and "<" not in text
        if is_plain and self._state == "text":
            self._last_character = text[-1]
            return True
        return False

    def feed(self, text: str) -> list[Piece]:
        """Read the next text of the model, and return what it certainly is."""
        self._held += text
        return list(self._pieces(is_end=False))

    def finish(self) -> list[Piece]:
        """Return the pieces of the text that is still held back."""
        return list(self._pieces(is_end=True))

    def _pieces(self, *, is_end: bool) -> Iterator[Piece]:
        state = None
        while state != self._state:
            state = self._state
            yield from self._read(is_end)

    def _read(self, is_end: bool) -> Iterator[Piece]:  # noqa: PLR0911 - one case for each state
        match self._state:
            case "start":
                return self._read_start(is_end)
            case "thinking":
                return self._read_thinking(is_end)
            case "blanks":
                return self._read_blanks(is_end)
            case "call":
                return self._read_call(is_end)
            case "text":
                return self._read_text(is_end)
            case "header":
                return self._read_header(is_end)
            case "body":
                return self._read_body(is_end)

    # Start of an answer, and of the text after its reasoning.

    def _read_start(self, is_end: bool) -> Iterator[Piece]:
        held = self._held.lstrip()
        tag = _OPENING_TAG.match(self._held)
        if tag and (is_end or len(self._held) > tag.end()):
            self.is_changed = True
            self._opening = tag[0]
            self._held = self._held[tag.end() :]
            self._is_mentioned = self._held.startswith(" ")
            self._state = "thinking"
        elif held.startswith("<|") and _MARKER.match(held):
            self.is_changed = True
            self._held = held
            self._state = "header"
        elif is_end or not (tag or _may_begin(held, (*_OPENING_TAGS, *_MARKERS))):
            self._state = "call"
        yield from ()

    def _read_thinking(self, is_end: bool) -> Iterator[Piece]:
        tag = _CLOSING_TAG.search(self._held)
        if tag:
            thinking = self._held[: tag.start()]
            self._held = self._held[tag.end() :]
            self._state = "blanks"
            yield Piece("thinking", thinking)
            return
        yield from self._release("thinking", _CLOSING_TAGS, is_end=is_end)
        if is_end and self._is_mentioned:
            self.is_changed = False
            yield Piece("was_text", self._opening)

    def _read_blanks(self, is_end: bool) -> Iterator[Piece]:
        """Drop the blanks between the reasoning and the text."""
        self._held = self._held.lstrip()
        if self._held or is_end:
            self._state = "call"
        yield from ()

    def _read_call(self, is_end: bool) -> Iterator[Piece]:
        """Hold the text back while it can be nothing but the call of a tool."""
        if not self._tools or not _may_be_call(self._held, self._tools):
            self._state = "text"
            return
        if not is_end:
            return
        calls = _calls(self._held, self._tools)
        if calls:
            self.is_changed = True
            self.calls += calls
            self._held = ""
        self._state = "text"
        yield from ()

    def _read_text(self, is_end: bool) -> Iterator[Piece]:
        tag = None if self.is_changed else _CLOSING_TAG.search(self._held)
        if tag and tag.end() == len(self._held) and not is_end:
            before = self._held[: tag.start()]
            yield from self._as_text(before)
            self._held = self._held[tag.start() :]
            return
        if tag and self._closes(tag):
            before = self._held[: tag.start()]
            yield from self._as_text(before)
            self.is_changed = True
            self._held = self._held[tag.end() :]
            self._state = "blanks"
            yield Piece("was_thinking")
            return
        marker = _MARKER.search(self._held)
        if marker:
            rest = self._held[marker.start() :]
            is_header = _HEADER.match(rest) is not None
            if is_header or _may_be_header(rest, is_end=is_end):
                yield from self._as_text(self._held[: marker.start()])
                self._held = rest
                self.is_changed = self.is_changed or is_header or is_end
                if is_header or is_end:
                    self._state = "header"
                return
        yield from self._release("text", (*_CLOSING_TAGS, *_MARKERS), is_end=is_end)

    def _closes(self, tag: re.Match[str]) -> bool:
        """Return whether a closing tag ends the reasoning, and does not stand in a sentence."""
        after = self._held[tag.end() :]
        if not after or after.startswith("\n"):
            return True
        character_before = self._held[: tag.start()][-1:] or self._last_character
        return character_before not in _MENTION_BEFORE

    # Messages of the Harmony format, such as <|channel|>final<|message|>Hello<|return|>.

    def _read_header(self, is_end: bool) -> Iterator[Piece]:
        header, found, rest = self._held.partition("<|message|>")
        if not found:
            if is_end:
                self._held = ""
            return
        self._held = rest
        channel = re.search(r"<\|channel\|>(\w+)", header)
        recipient = _RECIPIENT.search(header)
        self._kind = "thinking" if channel and channel[1] == "analysis" else "text"
        self._recipient = recipient[1] if recipient else None
        self._body = ""
        self._state = "body"
        yield from ()

    def _read_body(self, is_end: bool) -> Iterator[Piece]:
        marker = _MARKER.search(self._held)
        if marker is None:
            for piece in self._release(self._kind, _MARKERS, is_end=is_end):
                yield from self._of_body(piece)
            if is_end:
                self._end_body()
            return
        body = Piece(self._kind, self._held[: marker.start()])
        yield from self._of_body(body)
        self._end_body()
        self._held = self._held[marker.start() :]
        self._state = "header"

    def _of_body(self, piece: Piece) -> Iterator[Piece]:
        if self._recipient is not None:
            self._body += piece.text
        elif piece.text:
            yield piece

    def _end_body(self) -> None:
        if self._recipient is None:
            return
        arguments = parsed_object(self._body)
        self.calls.append({"name": self._recipient, "arguments": arguments or self._body})
        self._recipient = None

    # What is not held back.

    def _as_text(self, text: str) -> Iterator[Piece]:
        if text:
            self._last_character = text[-1]
            yield Piece("text", text)

    def _release(self, kind: Kind, tags: Collection[str], *, is_end: bool) -> Iterator[Piece]:
        """Return the held text, except its end if that can be the beginning of a tag."""
        keep = 0 if is_end else _tag_beginning(self._held, tags)
        text = self._held[: len(self._held) - keep]
        self._held = self._held[len(text) :]
        if text:
            self._last_character = text[-1]
            yield Piece(kind, text)


def _may_begin(text: str, tags: Collection[str]) -> bool:
    """Return whether a text is the beginning of a tag, or empty."""
    return any(tag.startswith(text) for tag in tags)


def _may_be_header(text: str, *, is_end: bool) -> bool:
    """Return whether a text that begins with a marker is a header as far as it goes.

    At the end of an answer, it can only be markers.
    """
    if is_end:
        return not _MARKER.sub("", text).strip()
    return len(text) < _LONGEST_HEADER and _BEGUN_HEADER.fullmatch(text) is not None


def _tag_beginning(text: str, tags: Collection[str]) -> int:
    """Return the length of the longest end of a text with which a tag can begin."""
    longest = max(map(len, tags)) - 1
    for length in range(min(longest, len(text)), 0, -1):
        end = text[-length:]
        if any(tag.startswith(end) for tag in tags):
            return length
    return 0


def _may_be_call(text: str, tools: Collection[str]) -> bool:
    """Return whether a text, as far as it goes, can be the call of one of ``tools`` as JSON."""
    begun = text.lstrip()
    if _may_begin(begun, _CALL_OPENINGS):
        return True
    start = _CALL_START.match(text)
    rest = text[start.end() :] if start else text
    if not rest:
        return True
    first = _FIRST_FIELD.match(rest)
    if first is None:
        compact = "".join(rest.split())
        return _may_begin(compact, _FIELD_PREFIXES)
    field, value = first.groups()
    if field != "name":
        return True
    return any(_may_begin(value, [f'"{tool}"']) or value.startswith(f'"{tool}"') for tool in tools)


def _calls(text: str, tools: Collection[str]) -> list[dict[str, Any]]:
    """Return the calls of which a text consists. The list is empty if it has anything else."""
    sources = _TAGGED_CALL.findall(text)
    if sources:
        if _TAGGED_CALL.sub("", text):
            return []
    else:
        fenced = _FENCED_CALL.fullmatch(text)
        sources = [fenced[1] if fenced else text.removeprefix("<tool_call>")]
    calls: list[dict[str, Any]] = []
    for source in sources:
        call = _tool_call(source, tools)
        if call is None:
            return []
        calls.append(call)
    return calls


def _tool_call(source: str, tools: Collection[str]) -> dict[str, Any] | None:
    fields = parsed_object(source)
    if fields is None or not fields.keys() <= _CALL_FIELDS:
        return None
    name = fields.get("name")
    if name not in tools:
        return None
    arguments = fields.get("arguments", fields.get("parameters", {}))
    return {"name": name, "arguments": arguments}


def parsed_object(source: str) -> dict[str, Any] | None:
    """Return the JSON object of which a text consists, or None if it is something else."""
    try:
        value = orjson.loads(source.strip())
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None
