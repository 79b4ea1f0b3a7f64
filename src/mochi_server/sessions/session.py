"""A chat session as a value: metadata and messages. Knows its file format, not where it is kept."""

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timezone
from typing import Any
from uuid import uuid4

from mochi_server.constants import FORMAT_VERSION, PREVIEW_CHARS
from mochi_server.sessions.history import History
from mochi_server.sessions.images import Image
from mochi_server.sessions.migrations import migrate
from mochi_server.sessions.titles import automatic_title
from mochi_server.sessions.types import (
    AgentSettings,
    Message,
    Role,
    SessionCreationOptions,
    ToolSettings,
    read_agent_settings,
    read_tool_settings,
)

_ID = re.compile(r"[0-9a-f]{10}")
_ALWAYS_WRITTEN = (
    "session_id",
    "model",
    "created_at",
    "updated_at",
    "message_count",
    "summary",
    "summary_model",
    "format_version",
    "tool_settings",
    "agent_settings",
    "context_window_config",
)
LISTED = (
    "session_id",
    "model",
    "created_at",
    "updated_at",
    "message_count",
    "title",
    "preview",
    "summary",
    "summary_model",
    "format_version",
    "tool_settings",
    "agent_settings",
    "context_window_config",
    "options",
    "keep_alive",
    "think",
    "format",
)
"""What lists and clients see of a session."""

OWNER = "agent_name"
"""The key of the metadata that names the agent that a session is with; lists show it where it is there."""

_PARTS = ("metadata", "messages")
_WRITTEN_WHEN_SET = ("title", "options", "keep_alive", "think", "format", "compaction")


def new_id() -> str:
    """A fresh id for a session or a message: ten hex digits."""
    return uuid4().hex[:10]


def is_session_id(value: str) -> bool:
    """Whether a string can be the id of a session; anything else never becomes a path."""
    return _ID.fullmatch(value) is not None


def now() -> str:
    """The time as it is stored: UTC, ISO 8601, with its offset."""
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")


def timestamp(value: object) -> float:
    """Seconds since the epoch of a stored time, for sorting; naive times are UTC, nonsense is the oldest."""
    try:
        parsed = datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    except ValueError:
        return 0.0
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)).timestamp()


def default_window_config() -> dict[str, Any]:
    """The window's state before anything was decided."""
    return {
        "dynamic_enabled": True,
        "current_window": None,
        "last_adjustment": None,
        "adjustment_history": [],
        "manual_override": False,
    }


@dataclass(kw_only=True)
class SessionMetadata:
    """The head of a session file. ``extra`` holds keys this version does not know; they are written back."""

    session_id: str
    model: str
    created_at: str
    updated_at: str
    message_count: int = 0
    summary: dict[str, Any] | None = None
    summary_model: str | None = None
    format_version: str = FORMAT_VERSION
    tool_settings: ToolSettings = field(default_factory=ToolSettings)
    agent_settings: AgentSettings = field(default_factory=AgentSettings)
    context_window_config: dict[str, Any] = field(default_factory=default_window_config)
    title: str | None = None
    options: dict[str, Any] | None = None
    keep_alive: str | float | None = None
    think: bool | str | None = None
    format: str | dict[str, Any] | None = None
    compaction: dict[str, Any] | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "SessionMetadata":
        """Read any version; nulls and missing keys become defaults. Raises ValueError without id or model."""
        data = migrate(dict(stored))
        for name in ("session_id", "model"):
            if not isinstance(data.get(name), str) or not data[name]:
                raise ValueError(f"metadata has no {name}")
        known: dict[str, Any] = {
            name: value for name, kind in _KINDS.items() if isinstance(value := data.get(name), kind)
        }
        known |= {"session_id": data["session_id"], "model": data["model"]}
        known["created_at"] = str(data.get("created_at") or now())
        known["updated_at"] = str(data.get("updated_at") or known["created_at"])
        known["tool_settings"] = read_tool_settings(data.get("tool_settings"))
        known["agent_settings"] = read_agent_settings(data.get("agent_settings"))
        known["context_window_config"] = _window_config(data.get("context_window_config"))
        return cls(**known, extra={name: value for name, value in data.items() if name not in _KNOWN})

    def to_dict(self) -> dict[str, Any]:
        """The file's ``metadata`` object, keys in the specification's order."""
        data = {name: getattr(self, name) for name in _ALWAYS_WRITTEN}
        data["tool_settings"] = self.tool_settings.model_dump(mode="json")
        data["agent_settings"] = self.agent_settings.model_dump(mode="json")
        data |= {name: value for name in _WRITTEN_WHEN_SET if (value := getattr(self, name)) is not None}
        return data | self.extra


_KINDS: dict[str, type | tuple[type, ...]] = {
    "summary": dict,
    "summary_model": str,
    "format_version": str,
    "title": str,
    "options": dict,
    "keep_alive": (str, int, float),
    "think": (bool, str),
    "format": (str, dict),
    "compaction": dict,
}
"""What fields of a file may hold; others are read by functions of their own."""

_MESSAGE_KINDS: dict[str, type] = {
    "role": str,
    "source_file": str,
    "images": list,
    "model": str,
    "eval_count": int,
    "prompt_eval_count": int,
    "thinking": str,
    "tool_calls": list,
    "handed_back": list,
    "tool_name": str,
    "tool_call_id": str,
    "key_digest": str,
}

_KNOWN = frozenset(f.name for f in fields(SessionMetadata)) - {"extra"}


class ChatSession:
    """A conversation. Messages are dictionaries (see ``Message``); a system message, if any, is the first.

    ``extra`` holds what else stood in the file beside metadata and messages; it is written back.
    """

    def __init__(
        self, metadata: SessionMetadata, messages: Sequence[Message] = (), extra: dict[str, Any] | None = None
    ) -> None:
        """Messages of a ``History`` are copied when somebody asks for those of the session."""
        self.metadata = metadata
        self.extra = {} if extra is None else extra
        self._messages: History | list[Message] = messages if isinstance(messages, History) else list(messages)

    @property
    def messages(self) -> list[Message]:
        """The messages, the session's own: they may be changed."""
        if isinstance(self._messages, History):
            self._messages = self._messages.copies()
        return self._messages

    @messages.setter
    def messages(self, messages: Sequence[Message]) -> None:
        self._messages = messages if isinstance(messages, History) else list(messages)

    @property
    def history(self) -> History:
        """The messages for reading: none of them may be changed, since others have them, too."""
        return History.of(self._messages)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ChatSession):
            return NotImplemented
        mine, theirs = (self.metadata, self.history, self.extra), (other.metadata, other.history, other.extra)
        return mine == theirs

    __hash__ = None  # type: ignore[assignment]  # it can be changed

    def __repr__(self) -> str:
        return f"ChatSession({self.metadata!r}, {list(self._messages)!r}, {self.extra!r})"

    @classmethod
    def create(cls, options: SessionCreationOptions) -> "ChatSession":
        """A new session with a new id, with its system message if one was asked for."""
        created = now()
        metadata = SessionMetadata(
            session_id=new_id(),
            model=options.model,
            created_at=created,
            updated_at=created,
            tool_settings=options.tool_settings,
            agent_settings=options.agent_settings,
            context_window_config=options.context_window_config or default_window_config(),
            title=options.title,
            options=options.options,
            keep_alive=options.keep_alive,
            think=options.think,
            format=options.format,
        )
        session = cls(metadata)
        if options.system_prompt is not None:
            session.messages.append(system_message(options.system_prompt, options.system_prompt_source_file))
        metadata.message_count = len(session.messages)
        return session

    @classmethod
    def from_dict(cls, stored: object) -> "ChatSession":
        """Read a file's content, of any version. Raises ValueError for what is not a session."""
        if not isinstance(stored, Mapping) or not isinstance(stored.get("metadata"), Mapping):
            raise ValueError("not a session: no metadata object")
        messages = stored.get("messages") or []
        if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
            raise ValueError("not a session: messages is not a list of objects")
        metadata = SessionMetadata.from_dict(stored["metadata"])
        metadata.message_count = len(messages)
        whole = [complete(message, i, metadata.created_at) for i, message in enumerate(messages)]
        return cls(metadata, whole, {key: value for key, value in stored.items() if key not in _PARTS})

    def to_dict(self) -> dict[str, Any]:
        """The file's content."""
        return {"metadata": self.metadata.to_dict(), "messages": list(self._messages)} | self.extra

    @property
    def session_id(self) -> str:
        return self.metadata.session_id

    @property
    def model(self) -> str:
        return self.metadata.model

    @property
    def revision(self) -> str:
        """Names the state of the history; equal revisions mean that nothing was said or edited since."""
        return revision_of(self._messages)

    @property
    def system_prompt(self) -> Message | None:
        """The system message, if there is one."""
        first = self._messages[0] if self._messages else None
        return first if first is not None and first.get("role") == "system" else None

    def summary_object(self) -> dict[str, Any]:
        """The session as a flat object without its messages, as lists and clients get it."""
        flat = self.metadata.to_dict()
        flat["title"] = self.metadata.title or automatic_title(self._messages, self.metadata.summary)
        flat["message_count"] = len(self._messages)
        flat["preview"] = preview(self._messages)
        listed = {name: flat.get(name) for name in LISTED}
        return listed | {OWNER: flat[OWNER]} if OWNER in flat else listed


def revision_of(messages: Sequence[Message]) -> str:
    """The revision of a history; see ``ChatSession.revision``."""
    return revision_at(len(messages), messages[-1] if messages else None)


def revision_at(count: int, last: Message | None) -> str:
    """The revision of a history of so many messages, of which this is the last."""
    if last is None:
        return "0"
    content = zlib.crc32(str(last.get("content")).encode("utf-8", "surrogatepass"))
    return f"{count}-{last.get('message_id')}-{content:08x}"


def previous_model(messages: Sequence[Message]) -> str | None:
    """The model that gave the latest answer, if there is one."""
    return next((m.get("model") for m in reversed(messages) if m.get("role") == "assistant"), None)


def last_answer(messages: Sequence[Message]) -> Message | None:
    """The latest message of the assistant, if there is one."""
    return next((m for m in reversed(messages) if m.get("role") == "assistant"), None)


def usage_tokens(answer: Message | None) -> int | None:
    """Tokens that the conversation took up with an answer, prompt included; None if Ollama never said."""
    if answer is None or ("eval_count" not in answer and "prompt_eval_count" not in answer):
        return None
    return (answer.get("eval_count") or 0) + (answer.get("prompt_eval_count") or 0)


def preview(messages: Iterable[Message]) -> str:
    """The first user message, cut to a list's measure; empty when there is none."""
    for message in messages:
        if message.get("role") == "user":
            return shorten(str(message.get("content") or ""))
    return ""


def shorten(text: str) -> str:
    """A text as lists show it: 250 characters at most, then ``...`` when cut."""
    return text if len(text) <= PREVIEW_CHARS else text[:PREVIEW_CHARS] + "..."


def system_message(content: str, source_file: str | None = None) -> Message:
    """A new system message."""
    return {
        "role": "system",
        "content": content,
        "source_file": source_file,
        "message_id": new_id(),
        "timestamp": now(),
    }


def user_message(content: str, images: Sequence[Image] = (), *, key_digest: str | None = None) -> Message:
    """A new user message, with the names of its images."""
    message: Message = {"role": "user", "content": content, "message_id": new_id(), "timestamp": now()}
    if images:
        message["images"] = [image.reference for image in images]
    if key_digest is not None:
        message["key_digest"] = key_digest
    return message


def complete(message: Message, index: int, created_at: str) -> Message:
    """A stored message with what every message has; what is missing is the same at every reading.

    Keys that hold something else than they should are dropped.
    """
    wrong = [n for n, kind in _MESSAGE_KINDS.items() if message.get(n) is not None and not isinstance(message[n], kind)]  # type: ignore[literal-required]  # a TypedDict by names
    for name in wrong:
        del message[name]  # type: ignore[misc]  # a TypedDict by names
    if not message.get("role"):
        message["role"] = _likely_role(message)
    if not isinstance(message.get("content"), str):
        message["content"] = "" if message.get("content") is None else str(message["content"])
    if not message.get("message_id"):
        message["message_id"] = f"{zlib.crc32(message['content'].encode('utf-8', 'surrogatepass')):08x}{index:02x}"[
            -10:
        ]
    if not message.get("timestamp"):
        message["timestamp"] = created_at
    return message


def _likely_role(message: Message) -> Role:
    """The role of a message that does not say."""
    if message.get("tool_name"):
        return "tool"
    return "assistant" if message.get("model") else "user"


def _window_config(stored: object) -> dict[str, Any]:
    config = default_window_config() | (stored if isinstance(stored, dict) else {})
    if not isinstance(config["current_window"], int):
        config["current_window"] = None
    if not isinstance(config["adjustment_history"], list):
        config["adjustment_history"] = []
    return config
