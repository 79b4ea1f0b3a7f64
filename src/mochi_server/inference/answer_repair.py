"""Repair of answers in which a model writes its reasoning or a tool call as text.

Nothing else is changed: an answer that only mentions a tag or a call stays as it is.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import orjson

Kind = Literal["text", "thinking", "was_thinking", "was_text"]
State = Literal["start", "thinking", "blanks", "call", "text", "body"]
"""Where the reader is.

It is before the answer, in tagged reasoning, in the blanks after it, in what may be a call as JSON,
in text, or in the ``body`` of a Harmony message with reasoning or a call.
"""
Verdict = Literal[
    "header", "mentioned_header", "end", "closing_tag", "last_markers", "mention", "open"
]
"""What a tag or marker in a text is.

A ``header`` begins a Harmony message, and an ``end`` ends it. ``last_markers`` are the rest of the
answer. These and a ``closing_tag`` are removed. A ``mention`` and a ``mentioned_header`` stay,
because they are part of a sentence. ``open`` means that the next text decides it.
"""

_OPENING_TAG = re.compile(r"\s*<(think|thinking)>")
_OPENING_TAGS = ("<think>", "<thinking>")
_CLOSING_TAG = re.compile(r"</(?:think|thinking)>")
_CLOSING_TAGS = ("</think>", "</thinking>")
_BLANKS = (" ", "\t")
_SENTENCE_ENDS = frozenset(".!?:)]…。！？")  # noqa: RUF001 - the full-width ones too
"""Characters before a closing tag that ends the reasoning, besides letters and digits."""
_AFTER_MENTION = (",", ".", ":", ";")
"""Characters after a closing tag that begins a line with a sentence about the tag."""
_BEFORE_MENTION = (*_BLANKS, "`", "'", '"', "(")
"""Characters before a marker in a sentence about the marker."""

_MARKER_NAMES = ("start", "end", "message", "channel", "constrain", "return", "call")
_MARKERS = tuple(f"<|{name}|>" for name in _MARKER_NAMES)
_END_MARKER = re.compile(r"<\|(?:end|return|call)\|>\s*")
_LAST_MARKERS = re.compile(rf"(?:<\|(?:{'|'.join(_MARKER_NAMES)})\|>\s*)+")
_HEADER = re.compile(
    r"""
    (?:<\|(?:end|return|call)\|>\s*)*
    (?=<\|(?:start|channel)\|>)
    (?:<\|start\|>\w+(?:[ ]+to=[\w.:/-]+)?\s*)?
    (?:<\|channel\|>\w+(?:[ ]+to=[\w.:/-]+)?(?:[ ]+(?:json|code))?\s*)*
    (?:<\|constrain\|>\w*\s*)?
    <\|message\|>
    """,
    re.VERBOSE,
)
_BEGUN_HEADER = re.compile(
    r"(?:<\|(?:end|return|call)\|>\s*|<\|(?:start|channel|constrain)\|>(?:\w[\w.=:/ -]*)?\s*)*"
    r"(?:<\|?\w*\|?)?"
)
"""Pattern of every text with which a header can begin, and of some others, such as ``<abc``."""
_RECIPIENT = re.compile(r"to=(?:functions\.)?([^\s<]+)")
_LONGEST_HEADER = 200
_TAGS_IN_TEXT = (*_OPENING_TAGS, *_CLOSING_TAGS, *_MARKERS)
_TAG_IN_TEXT = re.compile("|".join(map(re.escape, _TAGS_IN_TEXT)))

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
    ``thinking`` pieces before it were text, which began with ``text``.
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
        """Calls that the answer contains as text, each with ``name`` and ``arguments``.

        ``finish`` completes them. The arguments of a model can be any JSON value. A message of the
        Harmony format can be a call of an unknown tool, and its arguments are text if they are not
        an object.
        """
        self.is_changed = False
        """Whether the pieces differ from the text of the model."""
        self._tools = tools
        self._held = ""
        self._state: State = "start"
        self._last_character = ""
        self._opening = ""
        self._may_mention_tag = False  # whether the opening tag may be part of a sentence
        self._mentions_opening_tag = False
        self._kind: Kind = "text"
        # Tool to which the message with the text `_body` is a call, or None.
        self._recipient: str | None = None
        self._body = ""
        self._call_text = ""  # bodies of all Harmony calls

    def feed_plain(self, text: str) -> bool:
        """Read the next text of the model if it is certainly text of the answer, as most is.

        Return True if so: the caller publishes the text itself, without ``feed``. Return False if
        ``feed`` must read it.
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

    def finish(self, *, is_cut: bool = False) -> list[Piece]:
        """Return the pieces of the text that is still held back, and add its calls to ``calls``.

        If the answer is complete, an opening tag that nothing closes may be part of a sentence. If
        the answer ``is_cut``, the text after such a tag is reasoning.
        """
        if is_cut:
            self._may_mention_tag = False
        return list(self._pieces(is_end=True))

    def finish_without_calls(self, *, is_cut: bool) -> list[Piece]:
        """Do the work of ``finish``, except that calls become text at the end.

        ``calls`` becomes empty.
        """
        if self._state == "call":
            return list(self._emit(len(self._held)))
        pieces = self.finish(is_cut=is_cut)
        self.calls.clear()
        if self._call_text:
            pieces.append(Piece("text", self._call_text))
        return pieces

    def _pieces(self, *, is_end: bool) -> Iterator[Piece]:
        state = None
        while state != self._state:
            state = self._state
            yield from self._read(is_end)

    def _read(self, is_end: bool) -> Iterator[Piece]:
        match self._state:
            case "start":
                self._read_start(is_end)
            case "thinking":
                yield from self._read_thinking(is_end)
            case "blanks":
                self._read_blanks(is_end)
            case "call":
                self._read_call(is_end)
            case "text" | "body":
                yield from self._read_text(is_end)

    # Start of an answer, and of the text after its reasoning.

    def _read_start(self, is_end: bool) -> None:
        tag = _OPENING_TAG.match(self._held)
        if tag and (is_end or len(self._held) > tag.end()):
            self.is_changed = True
            self._opening = tag[0]
            self._held = self._held[tag.end() :]
            self._may_mention_tag = self._held.startswith(" ")
            self._kind = "thinking"
            self._state = "thinking"
            return
        is_open = tag is not None or self._may_begin_with_tag()
        if is_end or not is_open:
            begun = self._held.lstrip()
            if _header_of(begun):
                self._held = begun
            self._state = "call"

    def _may_begin_with_tag(self) -> bool:
        """Return whether the answer can begin with a tag or a header that is not complete yet."""
        held = self._held.lstrip()
        return _is_beginning(held, (*_OPENING_TAGS, *_MARKERS)) or _may_be_header(held)

    def _read_thinking(self, is_end: bool) -> Iterator[Piece]:
        tag = _CLOSING_TAG.search(self._held)
        if tag:
            yield from self._emit(tag.start())
            self._held = self._held[len(tag[0]) :]
            self._kind = "text"
            self._state = "blanks"
            return
        yield from self._release(_CLOSING_TAGS, is_end=is_end)
        if is_end and self._may_mention_tag:  # nothing has closed the tag
            self.is_changed = False
            yield Piece("was_text", self._opening)

    def _read_blanks(self, is_end: bool) -> None:
        """Drop the blanks between the reasoning and the text."""
        self._held = self._held.lstrip()
        self._last_character = ""
        if self._held or is_end:
            self._state = "call"

    def _read_call(self, is_end: bool) -> None:
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

    # Text, and messages of the Harmony format: <|channel|>final<|message|>Hello<|return|>.

    def _read_text(self, is_end: bool) -> Iterator[Piece]:
        while self._state in ("text", "body"):
            found = _TAG_IN_TEXT.search(self._held)
            if found is None:
                yield from self._release(_TAGS_IN_TEXT, is_end=is_end)
                break
            verdict = self._verdict(found, is_end=is_end)
            if verdict == "open":
                yield from self._emit(found.start())
                break
            if verdict == "mentioned_header":
                header = _header_of(self._held[found.start() :])
                yield from self._emit(found.start() + len(header))
                continue
            if verdict == "mention":
                if found[0] in _OPENING_TAGS:
                    self._mentions_opening_tag = True
                yield from self._emit(found.end())
                continue
            yield from self._emit(found.start())
            yield from self._remove(verdict)
        if is_end:
            self._end_body()

    def _verdict(self, found: re.Match[str], *, is_end: bool) -> Verdict:
        if found[0] in _MARKERS:
            return self._verdict_of_marker(found, is_end=is_end)
        if found[0] in _OPENING_TAGS:
            return "mention"
        # After an opening tag, or after anything that was removed, a closing tag is only text.
        if self._mentions_opening_tag or self.is_changed:
            return "mention"
        after = self._held[found.end() :]
        if after in ("", "\n") and not is_end:
            return "open"
        return "closing_tag" if self._ends_reasoning(found, after) else "mention"

    def _ends_reasoning(self, tag: re.Match[str], after: str) -> bool:
        """Return whether a closing tag ends reasoning, because no sentence about the tag can have
        it there.
        """
        before = self._character_before(tag)
        if before in _BLANKS:
            return after[:1].isalnum() or after.startswith("\n\n")
        if before == "\n":
            return not after.startswith(_AFTER_MENTION)
        if before == "":
            return not after.startswith((*_BLANKS, *_AFTER_MENTION))
        return before.isalnum() or before in _SENTENCE_ENDS

    def _verdict_of_marker(self, marker: re.Match[str], *, is_end: bool) -> Verdict:
        rest = self._held[marker.start() :]
        if _header_of(rest):
            return "mentioned_header" if self._mentions_header(marker) else "header"
        if not is_end and _may_be_header(rest):
            return "open"
        if self._state == "body" and _END_MARKER.match(rest) and self._is_body_complete(marker):
            return "end"
        is_last = is_end and _LAST_MARKERS.fullmatch(rest)
        if is_last and self._character_before(marker) not in _BLANKS:
            return "last_markers"
        return "mention"

    def _mentions_header(self, marker: re.Match[str]) -> bool:
        """Return whether a header stands in a sentence. Others follow a message or begin one."""
        if self._state == "body" or _END_MARKER.match(marker[0]):
            return False
        return self._character_before(marker) in _BEFORE_MENTION

    def _is_body_complete(self, marker: re.Match[str]) -> bool:
        if self._recipient is None:
            return self._character_before(marker) not in _BEFORE_MENTION
        return parsed_object(self._body + self._held[: marker.start()]) is not None

    def _character_before(self, found: re.Match[str]) -> str:
        """Return the character before a tag or marker. It is empty at the start of the answer."""
        return self._held[: found.start()][-1:] or self._last_character

    def _remove(self, verdict: Verdict) -> Iterator[Piece]:
        """Remove the tag or markers at the beginning of the held text."""
        self.is_changed = True
        match verdict:
            case "header":
                self._begin_body()
            case "end":
                self._end_body()
                self._held = _END_MARKER.sub("", self._held, count=1)
                self._kind = "text"
                self._state = "text"
            case "closing_tag":
                self._held = _CLOSING_TAG.sub("", self._held, count=1)
                self._state = "blanks"
                yield Piece("was_thinking")
            case "last_markers":
                self._held = ""

    def _begin_body(self) -> None:
        """Remove the header at the beginning of the held text, and begin its message."""
        self._end_body()
        header = _header_of(self._held)
        self._held = self._held[len(header) :]
        recipient = _RECIPIENT.search(header)
        is_analysis = "<|channel|>analysis" in header
        self._kind = "thinking" if is_analysis else "text"
        self._recipient = recipient[1] if recipient else None
        self._body = ""
        self._last_character = ""
        self._state = "body" if is_analysis or recipient else "text"

    def _end_body(self) -> None:
        """End a message. If it has a recipient, add it to the calls."""
        if self._recipient is None:
            return
        parsed = parsed_object(self._body)
        arguments = self._body if parsed is None else parsed
        self.calls.append({"name": self._recipient, "arguments": arguments})
        self._call_text += self._body
        self._recipient = None

    # What is not held back.

    def _release(self, tags: Collection[str], *, is_end: bool) -> Iterator[Piece]:
        """Emit the held text, except its end if that can be the beginning of a tag."""
        kept = 0 if is_end else _begun_tag_length(self._held, tags)
        return self._emit(len(self._held) - kept)

    def _emit(self, length: int) -> Iterator[Piece]:
        """Yield the first ``length`` characters of the held text, or add them to the call."""
        text = self._held[:length]
        self._held = self._held[length:]
        if not text:
            return
        self._last_character = text[-1]
        if self._recipient is None:
            yield Piece(self._kind, text)
        else:
            self._body += text


def _is_beginning(text: str, tags: Collection[str]) -> bool:
    """Return whether a text is the beginning of one of ``tags``, or empty."""
    return any(tag.startswith(text) for tag in tags)


def _header_of(text: str) -> str:
    """Return the header with which a text begins. It is empty if there is none."""
    header = _HEADER.match(text)
    return header[0] if header and header.end() <= _LONGEST_HEADER else ""


def _may_be_header(text: str) -> bool:
    """Return whether a text can be the beginning of a header. An empty text and markers alone
    can, too.
    """
    return len(text) < _LONGEST_HEADER and _BEGUN_HEADER.fullmatch(text) is not None


def _begun_tag_length(text: str, tags: Collection[str]) -> int:
    """Return the length of the longest end of a text with which a tag can begin."""
    longest = max(map(len, tags)) - 1
    for length in range(min(longest, len(text)), 0, -1):
        if _is_beginning(text[-length:], tags):
            return length
    return 0


def _may_be_call(text: str, tools: Collection[str]) -> bool:
    """Return whether a text is, or can begin, the call of one of ``tools`` as JSON."""
    begun = text.lstrip()
    if _is_beginning(begun, _CALL_OPENINGS):
        return True
    rest = _CALL_START.sub("", text, count=1)
    if not rest:
        return True
    first = _FIRST_FIELD.match(rest)
    if first is None:
        compact = "".join(rest.split())
        return _is_beginning(compact, _FIELD_PREFIXES)
    field, value = first.groups()
    if field != "name":  # the name can follow
        return True
    names = [f'"{tool}"' for tool in tools]
    return _is_beginning(value, names) or value.startswith(tuple(names))


def _calls(text: str, tools: Collection[str]) -> list[dict[str, Any]]:
    """Return the calls of which a text consists. The list is empty if it has anything else."""
    sources = _TAGGED_CALL.findall(text)
    if sources:
        if _TAGGED_CALL.sub("", text):
            return []
    else:
        fenced = _FENCED_CALL.fullmatch(text)
        sources = [fenced[1] if fenced else text.strip().removeprefix("<tool_call>")]
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
    if not isinstance(name, str) or name not in tools:
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
