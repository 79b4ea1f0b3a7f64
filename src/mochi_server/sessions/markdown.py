"""Export of a session as Markdown. Only the JSON export can be imported again."""

import json
import re
from collections.abc import Iterator

from mochi_server.sessions.images import images_of
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.types import Message

_HEADINGS = {"system": "System", "user": "User", "assistant": "Assistant", "tool": "Tool"}


def as_markdown(session: ChatSession) -> str:
    """Return a session as Markdown: the title, id, model and date, then a section for each message."""
    metadata = session.metadata
    details = f"- Session: {metadata.session_id}\n- Model: {metadata.model}\n- Created: {metadata.created_at}"
    parts = [f"# {session.summary_object()['title'] or 'Untitled'}", details]
    parts += [part for message in session.history for part in _message(message)]
    return "\n\n".join(parts) + "\n"


def _message(message: Message) -> Iterator[str]:
    source = message.get("model") or message.get("tool_name")
    heading = _HEADINGS.get(message["role"], message["role"])
    yield f"## {heading} ({source})" if source else f"## {heading}"
    if thinking := message.get("thinking"):
        yield f"<details>\n<summary>Thinking</summary>\n\n{thinking.strip()}\n\n</details>"
    if content := message["content"].strip():
        yield _fenced(content) if message["role"] == "tool" else content
    for image in images_of(message):
        yield f"*(image {image})*"
    for call in message.get("tool_calls") or ():
        yield _call(call)
    if message.get("interrupted"):
        yield "*(interrupted)*"


def _call(call: object) -> str:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return f"Calls:\n\n{_json(call)}"
    return f"Calls `{function.get('name')}`:\n\n{_json(function.get('arguments') or {})}"


def _json(value: object) -> str:
    return _fenced(json.dumps(value, ensure_ascii=False, indent=2), "json")


def _fenced(text: str, language: str = "") -> str:
    """Return a code block whose fence is longer than any fence in the text."""
    longest = max((len(backticks) for backticks in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
