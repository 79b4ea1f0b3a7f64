"""Chats as Open WebUI exports them: trees of messages. The branch that was shown last becomes a session."""

import html
import re
from datetime import datetime, timezone
from typing import Any, Literal, TypeGuard

from pydantic import BaseModel, ConfigDict, model_validator

from mochi_server.constants import MAX_TITLE_CHARS
from mochi_server.sessions.session import ChatSession, SessionMetadata, one_line
from mochi_server.sessions.types import Message, Role
from mochi_server.util.clock import new_id, now

_UNKNOWN_MODEL = "unknown"
_UNTITLED = "New Chat"
_REASONING = re.compile(r'<details type="reasoning"[^>]*>(.*?)</details>\s*', re.DOTALL)
_SUMMARY = re.compile(r"\s*<summary>.*?</summary>\s*", re.DOTALL)
_QUOTED = re.compile(r"^> ?", re.MULTILINE)
_MILLISECONDS_FROM = 1e11
"""Older exports have seconds, newer ones milliseconds in some places; as seconds these are the year 5138."""


class _Lenient(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)


class OpenWebUIMessage(_Lenient):
    """A message and where it hangs. ``timestamp`` is in seconds since 1970. One without a role was never shown."""

    role: Literal["system", "user", "assistant"] | None = None
    content: str | list[dict[str, Any]] | None = None
    parentId: str | None = None
    timestamp: float | None = None
    model: str | None = None
    output: Any = None
    """Of answers in newer versions: the items of OpenAI's responses, where what is said may be found alone."""


class OpenWebUIHistory(_Lenient):
    """The tree; ``currentId`` is the last message of the branch that is shown."""

    messages: dict[str, OpenWebUIMessage | None]
    currentId: str | None = None


class OpenWebUIParams(_Lenient):
    """The chat's own settings."""

    system: str | None = None


class OpenWebUIContent(_Lenient):
    """What the chat consists of: ``history``, or, before there were trees, ``messages`` alone.

    ``timestamp`` is in milliseconds.
    """

    model_config = ConfigDict(
        json_schema_extra={"not": {"properties": {"history": {"type": "null"}, "messages": {"type": "null"}}}}
    )

    title: str | None = None
    models: list[str | None] | None = None
    system: str | None = None
    params: OpenWebUIParams | None = None
    timestamp: float | None = None
    history: OpenWebUIHistory | None = None
    messages: list[OpenWebUIMessage | None] | None = None

    @model_validator(mode="after")
    def _says_something(self) -> "OpenWebUIContent":
        if self.history is None and self.messages is None:
            raise ValueError("it has no history, and no messages")
        return self


class OpenWebUIBareChat(OpenWebUIContent):
    """A chat as old exports have it, with nothing beside it."""

    history: OpenWebUIHistory


class OpenWebUIChat(_Lenient):
    """A chat of an Open WebUI export. Times are in seconds since 1970."""

    chat: OpenWebUIContent
    title: str | None = None
    created_at: float | None = None
    updated_at: float | None = None


def session_of(exported: OpenWebUIChat) -> ChatSession:
    """The branch that was shown last, as a new session."""
    chat = exported.chat
    branch = _branch(chat.history) if chat.history else [*filter(_has_content, chat.messages or ())]
    begun = exported.created_at, branch[0].timestamp if branch else None, chat.timestamp
    created = next((time for time in map(_time, begun) if time), None) or now()
    updated = _time(exported.updated_at) or (_time(branch[-1].timestamp) if branch else None) or created
    messages = [_message(message, created) for message in branch]
    system = chat.system or (chat.params.system if chat.params else None)
    if system and system.strip() and not any(message["role"] == "system" for message in messages):
        messages.insert(0, _stored("system", system, created))
    metadata = SessionMetadata(
        session_id=new_id(),
        model=_model(branch, chat),
        created_at=created,
        updated_at=updated,
        message_count=len(messages),
        title=_title(exported),
    )
    return ChatSession(metadata, messages)


def _branch(history: OpenWebUIHistory) -> list[OpenWebUIMessage]:
    """From the first message to the current one, or to the latest where none is said to be the current one."""
    messages = {name: message for name, message in history.messages.items() if _has_content(message)}
    latest = max(messages, key=lambda name: messages[name].timestamp or 0, default=None)
    name = history.currentId if history.currentId in messages else latest
    branch: dict[str, OpenWebUIMessage] = {}
    while name is not None and name in messages and name not in branch:
        branch[name] = messages[name]
        name = messages[name].parentId
    return list(branch.values())[::-1]


def _has_content(message: OpenWebUIMessage | None) -> TypeGuard[OpenWebUIMessage]:
    return message is not None and message.role is not None


def _message(message: OpenWebUIMessage, created: str) -> Message:
    content = _text(message.content)
    assert message.role is not None  # noqa: S101 - it would be on no branch
    stored = _stored(message.role, content, _time(message.timestamp) or created)
    if message.role == "assistant":
        thoughts = [_thought(block) for block in _REASONING.findall(content)] or _items(message.output, "reasoning")
        thinking = "\n\n".join(thoughts)
        said = _REASONING.sub("", content)
        stored["content"] = said if said.strip() else "\n\n".join(_items(message.output, "message"))
        stored |= {"thinking": thinking} if thinking else {}
        stored |= {"model": message.model} if message.model else {}
    return stored


def _items(output: Any, kind: str) -> list[str]:
    items = [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []
    texts = (_text(item.get("summary") or item.get("content")) for item in items if item.get("type") == kind)
    return [text for text in texts if text]


def _stored(role: Role, content: str, time: str) -> Message:
    return {"role": role, "content": content, "message_id": new_id(), "timestamp": time}


def _text(content: Any) -> str:
    """The text of a content; of one in parts, as OpenAI has them, the texts."""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _thought(block: str) -> str:
    """What a model thought, as Open WebUI folds it into the answer: HTML, quoted line by line."""
    return html.unescape(_QUOTED.sub("", html.unescape(_SUMMARY.sub("", block)))).strip()


def _model(branch: list[OpenWebUIMessage], chat: OpenWebUIContent) -> str:
    """Who answered last, or was to answer."""
    answered = [message.model for message in reversed(branch) if message.role == "assistant"]
    return next((name for name in (*answered, *(chat.models or ())) if name and name.strip()), _UNKNOWN_MODEL)


def _title(exported: OpenWebUIChat) -> str | None:
    title = one_line(exported.title or exported.chat.title)[:MAX_TITLE_CHARS].strip()
    return title if title and title != _UNTITLED else None


def _time(seconds: float | None) -> str | None:
    if not seconds:
        return None
    try:
        moment = seconds / 1000 if seconds > _MILLISECONDS_FROM else seconds
        return datetime.fromtimestamp(moment, timezone.utc).isoformat(timespec="microseconds")
    except (OverflowError, OSError, ValueError):
        return None
