"""Conversion of Open WebUI exports to sessions. Only the current branch of a chat is imported."""

import html
import re
from datetime import datetime, timezone
from typing import Any, Literal, TypeGuard

from pydantic import BaseModel, ConfigDict, model_validator

from mochi_server.constants import MAX_TITLE_CHARS
from mochi_server.sessions.session import ChatSession, SessionMetadata, collapse_whitespace
from mochi_server.sessions.types import Message, Role
from mochi_server.util.clock import new_id, now
from mochi_server.util.validation import Entries, Items

_UNKNOWN_MODEL = "unknown"
_UNTITLED = "New Chat"
_REASONING = re.compile(r'<details type="reasoning"[^<>]*>(.*?)</details>\s*', re.DOTALL)
_SUMMARY = re.compile(r"\A\s*<summary>.*?</summary>", re.DOTALL)
_QUOTED = re.compile(r"^> ?", re.MULTILINE)
_MIN_MILLISECONDS = 1e11
"""Timestamps above this number are in milliseconds, others in seconds. Exports contain both units."""


class OpenModel(BaseModel):
    """Base class of the Pydantic models for imported files. Known fields are validated. Others are allowed."""

    model_config = ConfigDict(extra="allow", strict=True)


class OpenWebUIMessage(OpenModel):
    """Message with the ID of its parent. ``timestamp`` is in Unix seconds. Messages without a role are ignored."""

    role: Literal["system", "user", "assistant"] | None = None
    content: str | Items[dict[str, Any]] | None = None
    parentId: str | None = None
    timestamp: float | None = None
    model: str | None = None
    output: Any = None
    """Output items in the format of OpenAI's Responses API. In newer exports, the text may be only here."""


class OpenWebUIHistory(OpenModel):
    """Tree of messages. ``currentId`` is the last message of the current branch."""

    messages: Entries[OpenWebUIMessage | None]
    currentId: str | None = None


class OpenWebUIParams(OpenModel):
    system: str | None = None


class OpenWebUIContent(OpenModel):
    """Content of a chat: ``history``, or ``messages`` in old exports. ``timestamp`` is in Unix milliseconds."""

    model_config = ConfigDict(
        json_schema_extra={"not": {"properties": {"history": {"type": "null"}, "messages": {"type": "null"}}}}
    )

    title: str | None = None
    models: Items[str | None] | None = None
    system: str | None = None
    params: OpenWebUIParams | None = None
    timestamp: float | None = None
    history: OpenWebUIHistory | None = None
    messages: Items[OpenWebUIMessage | None] | None = None

    @model_validator(mode="after")
    def _require_messages(self) -> "OpenWebUIContent":
        if self.history is None and self.messages is None:
            raise ValueError("it needs `history` or `messages`")
        return self


class OpenWebUIBareChat(OpenWebUIContent):
    """Chat of an old export, without surrounding metadata."""

    history: OpenWebUIHistory


class OpenWebUIChat(OpenModel):
    """Chat of an Open WebUI export. Times are in Unix seconds."""

    chat: OpenWebUIContent
    title: str | None = None
    created_at: float | None = None
    updated_at: float | None = None


def to_session(exported: OpenWebUIChat) -> ChatSession:
    """Convert the current branch of a chat to a new session."""
    chat = exported.chat
    branch = _branch(chat.history) if chat.history else [*filter(_has_role, chat.messages or ())]
    start_times = exported.created_at, branch[0].timestamp if branch else None, chat.timestamp
    created = next((time for time in map(_to_iso, start_times) if time), None) or now()
    updated = _to_iso(exported.updated_at) or (_to_iso(branch[-1].timestamp) if branch else None) or created
    messages = [_convert_message(message, created) for message in branch]
    system = chat.system or (chat.params.system if chat.params else None)
    if system and system.strip() and not any(message["role"] == "system" for message in messages):
        messages.insert(0, _new_message("system", system, created))
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
    """Return the messages from the first to the current message. If there is no current message, end at the latest."""
    shown = {name: message for name, message in history.messages.items() if _has_role(message)}
    latest = max(shown, key=lambda name: shown[name].timestamp or 0, default=None)
    name = history.currentId if history.currentId in shown else latest
    branch: dict[str, OpenWebUIMessage] = {}
    while name is not None and name not in branch and (message := history.messages.get(name)) is not None:
        branch[name] = message
        name = message.parentId
    return [message for message in reversed(branch.values()) if _has_role(message)]


def _has_role(message: OpenWebUIMessage | None) -> TypeGuard[OpenWebUIMessage]:
    return message is not None and message.role is not None


def _convert_message(message: OpenWebUIMessage, created: str) -> Message:
    content = _text(message.content)
    assert message.role is not None  # noqa: S101 - branches have only messages with a role
    stored = _new_message(message.role, content, _to_iso(message.timestamp) or created)
    if message.role == "assistant":
        # The text after the last end tag is handled separately: for each start tag, the pattern would read all of it.
        rest = content.rpartition("</details>")[2].lstrip()
        reasoned = content.removesuffix(rest)
        blocks = [_thinking(block) for block in _REASONING.findall(reasoned)]
        thinking = "\n\n".join(blocks or _output_texts(message.output, "reasoning"))
        visible = _REASONING.sub("", reasoned) + rest
        stored["content"] = visible if visible.strip() else "\n\n".join(_output_texts(message.output, "message"))
        stored |= {"thinking": thinking} if thinking else {}
        stored |= {"model": message.model} if message.model else {}
    return stored


def _output_texts(output: Any, kind: str) -> list[str]:
    items = [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []
    texts = (_text(item.get("summary") or item.get("content")) for item in items if item.get("type") == kind)
    return [text for text in texts if text]


def _new_message(role: Role, content: str, time: str) -> Message:
    return {"role": role, "content": content, "message_id": new_id(), "timestamp": time}


def _text(content: Any) -> str:
    """Return the text of a message's content, which is a string or a list of parts in OpenAI's format."""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _thinking(block: str) -> str:
    """Extract the thinking from the HTML block that Open WebUI puts into an answer."""
    return _QUOTED.sub("", html.unescape(_SUMMARY.sub("", block))).strip()


def _model(branch: list[OpenWebUIMessage], chat: OpenWebUIContent) -> str:
    """Return the model of the latest answer, or else the first model selected for the chat."""
    answer_models = [message.model for message in reversed(branch) if message.role == "assistant"]
    return next((name for name in (*answer_models, *(chat.models or ())) if name and name.strip()), _UNKNOWN_MODEL)


def _title(exported: OpenWebUIChat) -> str | None:
    title = collapse_whitespace(exported.title or exported.chat.title)[:MAX_TITLE_CHARS].strip()
    return title if title and title != _UNTITLED else None


def _to_iso(time: float | None) -> str | None:
    if not time:
        return None
    try:
        seconds = time / 1000 if time > _MIN_MILLISECONDS else time
        return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="microseconds")
    except (OverflowError, OSError, ValueError):
        return None
