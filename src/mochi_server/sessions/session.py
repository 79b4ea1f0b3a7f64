"""Chat session with metadata and messages, and its conversion from and to the file format."""

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from types import UnionType
from typing import Any, TypeVar, cast

from mochi_server.constants import FORMAT_VERSION, PREVIEW_CHARS
from mochi_server.errors import AgentChatBusy, InvalidMessageIndex, SessionBusy, SessionTooNew
from mochi_server.sessions import types
from mochi_server.sessions.attachments import Attachment
from mochi_server.sessions.caller import current_owner
from mochi_server.sessions.change import Change, Notice, VersionChange
from mochi_server.sessions.history import History
from mochi_server.sessions.migration import is_turn_field, read_turn
from mochi_server.sessions.turn import StoredTurn
from mochi_server.sessions.types import (
    Image,
    Message,
    PartialMessage,
    SessionCreationOptions,
    SessionSettings,
    optional,
    tool_calls_of,
)
from mochi_server.util.clock import as_utc, new_id, now, timestamp
from mochi_server.util.text import grapheme_start

UserMessage = types.UserMessage
SystemMessage = types.SystemMessage
AssistantMessage = types.AssistantMessage
ToolMessage = types.ToolMessage
_AnyMessage = TypeVar("_AnyMessage", bound=Message | PartialMessage)

_TITLE_CHARS = 80
_TITLE_READ_CHARS = 2000
_WHITESPACE = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")
_END_OF_SENTENCE = re.compile(r"(?<=[.!?])\s|(?<=[\u3002\uff01\uff1f])")
_ID = re.compile(r"[0-9a-f]{10}")
AGENT_NAME = "agent_name"
"""Metadata key for the name of the agent that a session belongs to.

List entries include this key if it is set.
"""
_PARTS = ("metadata", "messages")
_VERSION = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})*")


def is_session_id(value: str) -> bool:
    """Return whether a string has the form of a session id.

    Other strings must not be used as file names.
    """
    return _ID.fullmatch(value) is not None


def _undamaged_notices(stored: object) -> list[dict[str, Any]] | None:
    """Return stored notices without damaged ones, or None if no notice is left."""
    if not isinstance(stored, list):
        return None
    undamaged = []
    for notice in stored:
        if Notice.from_dict(notice) is not None:
            undamaged.append(notice)
    return undamaged or None


@dataclass(kw_only=True)
class SessionMetadata(SessionSettings):
    """Metadata of a session.

    ``extra`` contains unknown keys of the session file, which are preserved.
    """

    session_id: str
    model: str
    created_at: str
    updated_at: str
    message_count: int = 0
    summary: dict[str, Any] | None = field(
        default=None, metadata=optional(dict, always_written=True)
    )
    summary_model: str | None = field(default=None, metadata=optional(str, always_written=True))
    format_version: str = FORMAT_VERSION
    ollama_host: str | None = field(default=None, metadata=optional(str))
    """Name of the only Ollama host that answers in the session, or None for any host."""
    summarized_by: str | None = field(default=None, metadata=optional(str))
    """Model that wrote the summary.

    ``summary_model`` is the model that the session selects for summaries.
    """
    summarized_revision: str | None = field(default=None, metadata=optional(str))
    """Revision of the history that the summary covers."""
    compaction: dict[str, Any] | None = field(default=None, metadata=optional(dict))
    turn: StoredTurn | None = field(default=None, metadata={"only_if_set": True})
    """Latest turn of the session. Only the writer of a turn changes it."""
    notices: list[dict[str, Any]] | None = field(
        default=None, metadata={"read": _undamaged_notices, "only_if_set": True}
    )
    """Webhooks about the session that are not delivered, if its store has no other place for them.
    """
    versions: list[dict[str, str]] | None = field(default=None, metadata=optional(list))
    """Place and time of each version in the history. The store computes it from the versions."""
    owner: str | None = field(default=None, metadata=optional(str))
    """Owner of the session, as in ``Caller.owner``.

    Sessions without an owner are visible to the scope `all` only.
    """
    extra: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "SessionMetadata":
        """Create metadata from that of a session file. ``message_count`` is 0.

        Raises ValueError, and SessionTooNew for a later version.
        """
        for name in ("session_id", "model"):
            if not isinstance(stored.get(name), str) or not stored[name]:
                raise ValueError(f"metadata has no {name}")
        version = str(stored.get("format_version") or "")
        if _VERSION.fullmatch(version) and _numbers(version) > _numbers(FORMAT_VERSION):
            raise SessionTooNew(stored["session_id"], version)
        created_at = as_utc(str(stored.get("created_at") or now()))
        updated_at = str(stored.get("updated_at") or created_at)
        return cls(
            session_id=stored["session_id"],
            model=stored["model"],
            created_at=created_at,
            updated_at=as_utc(updated_at),
            turn=read_turn(stored),
            **{name: read(stored.get(name)) for name, read in _READERS.items()},
            extra={name: value for name, value in stored.items() if not _is_known_field(name)},
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the ``metadata`` object of the session file, with its keys in the order of the
        file format.
        """
        data = {}
        for name in _FILE_FIELDS:
            value = getattr(self, name)
            if name not in _UNSET or value != _UNSET[name]:
                data[name] = value
        if self.turn is not None:
            data["turn"] = self.turn.to_dict()
        data["tool_settings"] = self.tool_settings.model_dump(mode="json")
        data["agent_settings"] = self.agent_settings.model_dump(mode="json")
        return data | self.extra

    def has_expired(self, idle_seconds: float, moment: float) -> bool:
        """Return whether the server deletes the session at ``moment``, in Unix seconds.

        A temporary session expires when it has not changed for ``idle_seconds``.
        """
        if self.expires_at is not None and timestamp(self.expires_at) <= moment:
            return True
        if not self.temporary:
            return False
        return timestamp(self.updated_at) <= moment - idle_seconds


# Tables of the metadata fields, which the methods of ``SessionMetadata`` use.
_SETTINGS = [f.name for f in fields(SessionSettings)]
_FIELDS = [f for f in fields(SessionMetadata) if f.name != "extra"]
_FIELD_NAMES = frozenset(f.name for f in _FIELDS)
_DEFAULTS = SessionMetadata(session_id="", model="", created_at="", updated_at="")
_UNSET = {f.name: getattr(_DEFAULTS, f.name) for f in _FIELDS if f.metadata.get("only_if_set")}
"""Fields that files contain only if they have another value than this."""
_READERS = {f.name: f.metadata["read"] for f in _FIELDS if "read" in f.metadata}
_FILE_FIELDS = [*(f.name for f in _FIELDS if f.name not in _SETTINGS), *_SETTINGS]
_INTERNAL_FIELDS = (
    "summarized_by",
    "summarized_revision",
    "compaction",
    "turn",
    "notices",
    "versions",
    "owner",
)
LIST_FIELDS = tuple(name for name in _FILE_FIELDS if name not in _INTERNAL_FIELDS)
"""Names of the metadata fields that the server always sends to clients, in the session list and in
other responses.
"""

_STRING_FIELDS = (
    "role",
    "message_id",
    "timestamp",
    "source_file",
    "model",
    "thinking",
    "tool_name",
    "tool_call_id",
    "agent_name",
    "agent_session_id",
    "confirmation_id",
    "key_digest",
    "raw",
    "result",
)
_MESSAGE_TYPES: dict[str, type | UnionType] = {
    **dict.fromkeys(_STRING_FIELDS, str),
    **dict.fromkeys(("images", "attachments", "tool_calls", "client_tool_calls"), list),
    **dict.fromkeys(("eval_count", "prompt_eval_count", "prompt_eval_cached_count"), int),
    "arguments": dict,
    "execution_time": float | int,
}


def _is_known_field(name: str) -> bool:
    return name in _FIELD_NAMES or is_turn_field(name)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


class ChatSession:
    """A conversation.

    A system message is its first message. ``extra`` contains unknown keys of the session file.
    """

    def __init__(
        self,
        metadata: SessionMetadata,
        messages: Sequence[Message] = (),
        extra: dict[str, Any] | None = None,
    ) -> None:
        """``messages`` may be a ``History``, which is copied on the first access to the property
        ``messages``.
        """
        self.metadata = metadata
        self.extra = {} if extra is None else extra
        self._messages: History | list[Message] = (
            messages if isinstance(messages, History) else list(messages)
        )

    @property
    def messages(self) -> list[Message]:
        """Messages of the session as a list that the caller may change."""
        if isinstance(self._messages, History):
            self._messages = self._messages.copies()
        return self._messages

    @messages.setter
    def messages(self, messages: Sequence[Message]) -> None:
        self._messages = messages if isinstance(messages, History) else list(messages)

    @property
    def history(self) -> History:
        """Messages of the session for reading.

        They must not be changed, because other objects may share them.
        """
        return History.of(self._messages)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChatSession) and (self.metadata, self.history, self.extra) == (
            other.metadata,
            other.history,
            other.extra,
        )

    __hash__ = None  # type: ignore[assignment]  # it is mutable

    @classmethod
    def create(cls, options: SessionCreationOptions) -> "ChatSession":
        """Create a session of the current caller with a new id and, if requested, a system
        message.
        """
        created = now()
        settings = {name: getattr(options, name) for name in _SETTINGS}
        metadata = SessionMetadata(
            session_id=new_id(),
            model=options.model,
            created_at=created,
            updated_at=created,
            **settings,
        )
        metadata.owner = current_owner()
        session = cls(metadata)
        if options.system_prompt is not None:
            session.messages.append(
                system_message(options.system_prompt, options.system_prompt_source_file)
            )
        metadata.message_count = len(session.messages)
        return session

    @classmethod
    def from_dict(cls, stored: object) -> "ChatSession":
        """Create a session from a decoded session file of any version up to the present one.

        The messages are completed in place. Raises ValueError if the file is invalid, and
        SessionTooNew for a later version.
        """
        if not isinstance(stored, Mapping) or not isinstance(stored.get("metadata"), Mapping):
            raise ValueError("not a session: no metadata object")
        messages = stored.get("messages") or []
        if not isinstance(messages, list) or not all(
            isinstance(message, dict) for message in messages
        ):
            raise ValueError("not a session: messages is not a list of objects")
        metadata = SessionMetadata.from_dict(stored["metadata"])
        metadata.message_count = len(messages)
        completed = [
            complete_message(message, i, metadata.created_at) for i, message in enumerate(messages)
        ]
        return cls(
            metadata, completed, {key: value for key, value in stored.items() if key not in _PARTS}
        )

    def to_dict(self) -> dict[str, Any]:
        return {"metadata": self.metadata.to_dict(), "messages": list(self._messages)} | self.extra

    @property
    def session_id(self) -> str:
        return self.metadata.session_id

    @property
    def model(self) -> str:
        return self.metadata.model

    @property
    def revision(self) -> str:
        """Identifier of the state of the history.

        It changes with the number of messages, and with the ID and text of the last message. It
        stays the same if only the system message or the images of a message are replaced.
        """
        return revision_at(len(self._messages), self._messages[-1] if self._messages else None)

    @property
    def system_prompt(self) -> SystemMessage | None:
        """System message, or None if the session has no system message."""
        if not self._messages:
            return None
        first = self._messages[0]
        return first if first["role"] == "system" else None

    def changed(self, change: Change) -> "ChatSession":
        """Return a session with a change of the history. It shares the metadata of this one."""
        history = self.history
        if change.start is not None:
            history = history.prefix(change.start)
        return ChatSession(self.metadata, history.extended(change.messages), self.extra)

    @property
    def summary_model(self) -> str | None:
        """Model that the user has set for summaries, else the one that wrote the summary."""
        metadata = self.metadata
        return metadata.summary_model or (metadata.summarized_by if metadata.summary else None)

    def summary_object(self) -> dict[str, Any]:
        """Return the session as a flat object without messages, for lists and responses."""
        flat = self.metadata.to_dict()
        entry = {name: flat.get(name, _UNSET.get(name)) for name in LIST_FIELDS}
        title = self.metadata.title
        entry["title"] = title or automatic_title(self._messages, self.metadata.summary)
        entry["summary_model"] = self.summary_model
        entry["message_count"] = len(self._messages)
        entry["preview"] = preview(self._messages)
        return entry | {name: flat[name] for name in (AGENT_NAME, "owner") if name in flat}


def revision_at(count: int, last: Message | None) -> str:
    """Return the revision of a history with ``count`` messages, the last of which is ``last``."""
    if last is None:
        return "0"
    content = zlib.crc32(str(last.get("content")).encode("utf-8", "surrogatepass"))
    return f"{count}-{last.get('message_id')}-{content:08x}"


def previous_model(messages: Sequence[Message]) -> str | None:
    """Return the name of the model that wrote the latest answer, or None if there is no answer."""
    answer = last_answer(messages)
    return None if answer is None else answer.get("model")


def last_answer(messages: Sequence[Message]) -> AssistantMessage | None:
    """Return the latest message whose role is ``assistant``, or None if there is no such
    message.
    """
    return next((m for m in reversed(messages) if m["role"] == "assistant"), None)


def ends_turn(answer: AssistantMessage) -> bool:
    """Return whether an answer is complete and the server runs none of its calls.

    Calls of the client end a turn.
    """
    return not answer.get("interrupted") and bool(
        answer.get("client_tool_calls") or not answer.get("tool_calls")
    )


def usage_tokens(answer: AssistantMessage | None) -> int | None:
    """Return the total number of tokens of prompt and answer, or None if Ollama did not report
    token counts.
    """
    if answer is None or ("eval_count" not in answer and "prompt_eval_count" not in answer):
        return None
    answer_tokens = answer.get("eval_count") or 0
    prompt_tokens = answer.get("prompt_eval_count") or 0
    return answer_tokens + prompt_tokens


def preview(messages: Iterable[Message]) -> str:
    """Return the start of the first user message, or an empty string if there is no user
    message.
    """
    return next(
        (shorten(str(m.get("content") or "")) for m in messages if m.get("role") == "user"), ""
    )


def shorten(text: str) -> str:
    """Return a text of at most 250 characters unchanged. Cut a longer text and append ``...``."""
    return text if len(text) <= PREVIEW_CHARS else text[:PREVIEW_CHARS] + "..."


def automatic_title(
    messages: Iterable[Message], summary: Mapping[str, object] | None
) -> str | None:
    """Return the first sentence of the summary or, without a summary, the first user message with
    text, each cut to 80 characters.

    Return None if there is neither.
    """
    summarized = collapse_whitespace((summary or {}).get("summary")).removeprefix("User: ")
    if summarized:
        sentence = _END_OF_SENTENCE.split(summarized, maxsplit=1)[0]
        return _cut_title(sentence.rstrip(".\u3002") or summarized)
    lines = (
        collapse_whitespace(message.get("content"))
        for message in messages
        if message.get("role") == "user"
    )
    return next((_cut_title(line) for line in lines if line), None)


def collapse_whitespace(text: object) -> str:
    """Return the first 2000 characters of ``text`` with single spaces and no line breaks, or "" for
    other types.
    """
    return _WHITESPACE.sub(" ", text[:_TITLE_READ_CHARS]).strip() if isinstance(text, str) else ""


def _cut_title(line: str) -> str:
    if len(line) <= _TITLE_CHARS:
        return line
    limit = _TITLE_CHARS - len("...")
    words = line[: limit + 1].rpartition(" ")[0]
    if len(words) > limit // 2:
        return f"{words}..."
    return f"{line[: grapheme_start(line, limit)]}..."


def system_message(content: str, source_file: str | None = None) -> SystemMessage:
    return {
        "role": "system",
        "content": content,
        "source_file": source_file,
        "message_id": new_id(),
        "timestamp": now(),
    }


def key_digest(session_id: str, key: str) -> str:
    """Return the digest that the messages of a request store for ``key``.

    It differs between sessions.
    """
    return sha256(f"{session_id} {key}".encode()).hexdigest()[:32]


def user_message(
    content: str,
    images: Sequence[Image] = (),
    attachments: Sequence[Attachment] = (),
    *,
    key_digest: str | None = None,
) -> UserMessage:
    """Create a user message that references ``images`` and ``attachments``.

    ``key_digest`` is the hash of the request's idempotency key.
    """
    message: UserMessage = {
        "role": "user",
        "content": content,
        "message_id": new_id(),
        "timestamp": now(),
    }
    if images:
        message["images"] = [image.reference for image in images]
    if attachments:
        message["attachments"] = [attachment.reference for attachment in attachments]
    if key_digest is not None:
        message["key_digest"] = key_digest
    return message


def complete_message(message: _AnyMessage, index: int, created_at: str) -> _AnyMessage:
    """Complete a stored message in place, and return it.

    Missing fields get values that are the same at each call. Invalid fields and tool calls are
    removed, and the time is converted to UTC.
    """
    stored = cast("dict[str, Any]", message)  # not checked yet
    if "handed_back" in stored:  # the name of the field before version 1.0
        stored["client_tool_calls"] = stored.pop("handed_back")
    for name, kind in _MESSAGE_TYPES.items():
        value = stored.get(name)
        if value is not None and not isinstance(value, kind):
            del stored[name]
    if calls := stored.get("tool_calls"):
        stored["tool_calls"] = [call for call in calls if _is_call(call)]
    if not stored.get("role"):
        stored["role"] = _probable_role(stored)
    if not isinstance(stored.get("content"), str):
        stored["content"] = "" if stored.get("content") is None else str(stored["content"])
    if not stored.get("message_id"):
        content = zlib.crc32(stored["content"].encode("utf-8", "surrogatepass"))
        stored["message_id"] = f"{content:08x}{index:02x}"[-10:]
    stored["timestamp"] = as_utc(stored.get("timestamp") or created_at)
    return message


def _probable_role(stored: Mapping[str, Any]) -> str:
    """Return the role of a stored message that lacks it."""
    if stored.get("tool_name"):
        return "tool"
    return "assistant" if stored.get("model") else "user"


def _is_call(call: object) -> bool:
    """Return whether a stored tool call has a function with a name and arguments."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return False
    return isinstance(function.get("name"), str) and isinstance(function.get("arguments"), dict)


def goes_on(session: ChatSession) -> bool:
    """Return whether a session has a turn that waits for approval, or that continues after
    a crash.

    A turn of an agent does not count, because it continues with that of the calling session.
    """
    turn = session.metadata.turn
    return turn is not None and turn.survives and turn.parent is None


def turn_to_end(session: ChatSession, *, only_waiting: bool) -> StoredTurn | None:
    """Return the turn of a session if it goes on, or None.

    If ``only_waiting`` is true, the turn must wait for approval. Its time may have passed.
    """
    turn = session.metadata.turn
    if turn is None or not goes_on(session):
        return None
    if only_waiting and turn.state != "waiting_for_approval":
        return None
    return turn


def refuse_if_turn_goes_on(session: ChatSession) -> None:
    """Raise ``SessionBusy`` if a locked session has a turn that goes on, such as one that waits for
    approval.
    """
    turn = session.metadata.turn
    if turn is not None and goes_on(session):
        raise SessionBusy.waiting(session.session_id, turn.run_id, waiting_calls(session))


def with_waiting_calls(error: SessionBusy, session: ChatSession) -> SessionBusy:
    """Return the error of a lock, with the tool calls of the session that wait for approval, if
    any.
    """
    run_id = error.details["run_id"]
    return SessionBusy.waiting(session.session_id, run_id, waiting_calls(session))


def with_calling_session(error: SessionBusy, session: ChatSession) -> SessionBusy:
    """Return the error of a lock on the session of an agent, with the session that has called the
    agent, if any.
    """
    run_id = error.details["run_id"]
    turn = session.metadata.turn
    if turn is None or turn.has_ended or turn.parent is None:
        return AgentChatBusy(session.session_id, run_id)
    return AgentChatBusy.called_by(session.session_id, run_id, turn.parent.session_id)


def waiting_calls(session: ChatSession) -> list[dict[str, Any]]:
    """Return the tool calls of a session that wait for approval as JSON objects."""
    turn = session.metadata.turn
    if turn is None or turn.waiting is None:
        return []
    return [turn.waiting.entry()]


def edited(
    session: ChatSession, index: int, content: str, images: Sequence[Image] | None = None
) -> Change:
    """Return the change that edits a user message and removes later messages.

    ``images`` replace its images, unless they are None. The replaced messages become a version.
    Like the changes below, this one can be stored only while the session has its present revision.

    Raises InvalidMessageIndex if ``index`` is not that of a user message.
    """
    if not 0 <= index < len(session.history):
        raise InvalidMessageIndex(index, f"the session has {len(session.history)} messages")
    message = session.history[index]
    if message["role"] != "user":
        raise InvalidMessageIndex(index, f"its role is {message['role']}, not user")
    changed = message.copy()
    changed["content"] = content
    changed["timestamp"] = now()
    if images is not None:
        changed["images"] = [image.reference for image in images]
    return Change(
        [changed],
        start=index,
        images=images or (),
        versions=VersionChange(),
        revision=session.revision,
    )


def with_system_prompt(
    session: ChatSession, content: str, source_file: str | None = None
) -> Change:
    """Return the change that sets or replaces the system message."""
    return _with_beginning(session, [system_message(content, source_file)])


def without_system_prompt(session: ChatSession) -> Change:
    """Return the change that removes the system message, if any."""
    return _with_beginning(session, [])


def _with_beginning(session: ChatSession, beginning: Sequence[SystemMessage]) -> Change:
    """Return the change that begins the history with these messages, without its system message.

    The position of a stored turn that has ended moves with its messages.
    """
    removed = 0 if session.system_prompt is None else 1
    turn = session.metadata.turn
    if turn is not None and turn.has_ended:
        first = max(0, turn.first - removed) + len(beginning)
        turn = replace(turn, first=first)
    else:
        turn = None  # the server may be changing it
    messages = [*beginning, *session.history[removed:]]
    return Change(messages, start=0, turn=turn, revision=session.revision)


def forked(session: ChatSession, index: int | None = None) -> ChatSession:
    """Copy a session with its history up to and including message ``index``.

    If ``index`` is None, copy all messages up to the last point at which each tool call has a
    result. The copied messages keep their ids. The summary is copied only with all messages.

    Raises InvalidMessageIndex for an invalid index, or if a tool call in the copy would have no
    result.
    """
    messages = session.messages
    ends = _ends_of_rounds(messages)
    if index is None:
        index = ends[-1] if ends else -1
    elif not 0 <= index < len(messages):
        raise InvalidMessageIndex(index, f"the session has {len(messages)} messages")
    elif index not in ends:
        following = next((end for end in ends if end > index), None)
        hint = "some results are missing" if following is None else f"use message {following}"
        raise InvalidMessageIndex(index, f"it is inside a round of tool calls; {hint}")
    copied = messages[: index + 1]
    metadata = session.metadata
    created = now()
    config = dict(metadata.context_window_config)
    # Manual windows apply only to the original session.
    config.pop("other_models", None)
    if config["manual_override"]:
        config |= {"manual_override": False, "current_window": None}
    fresh = replace(
        metadata,
        session_id=new_id(),
        created_at=created,
        updated_at=created,
        message_count=len(copied),
        summary=metadata.summary if len(copied) == len(messages) else None,
        compaction=None if has_stale_checkpoint(metadata, copied) else metadata.compaction,
        turn=None,
        notices=None,
        context_window_config=config,
        pinned=False,
        archived=False,
    )
    return ChatSession(fresh, copied, session.extra)


def _ends_of_rounds(messages: Sequence[Message]) -> list[int]:
    """Return the positions of the messages after which each tool call has a result.

    Calls before a message of another role count as answered.
    """
    ends = []
    open_calls = 0
    for position, message in enumerate(messages):
        if message["role"] == "tool":
            open_calls -= 1
        else:
            open_calls = len(tool_calls_of(message))
        if open_calls <= 0:  # a stored history can have more results than calls
            ends.append(position)
    return ends


def has_stale_checkpoint(metadata: SessionMetadata, messages: Sequence[Message]) -> bool:
    """Return whether a session has a checkpoint whose last message is not in ``messages``.

    ``messages`` are the beginning of the history.
    """
    if metadata.compaction is None:
        return False
    covered = metadata.compaction.get("covers_through_message_id")
    return all(message["message_id"] != covered for message in messages)


def index_of(session: ChatSession, message_id: str) -> int:
    """Return the position of a message.

    Raises InvalidMessageIndex if the session has no such message.
    """
    for index, message in enumerate(session.history):
        if message["message_id"] == message_id:
            return index
    raise InvalidMessageIndex(message_id, "the session has no message with this id")
