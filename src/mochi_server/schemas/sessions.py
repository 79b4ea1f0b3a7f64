"""Schemas of sessions. A session is a flat object. Only ``SessionDetail`` has messages."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    RootModel,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from mochi_server.events import TurnWarning
from mochi_server.schemas import common
from mochi_server.schemas.common import (
    REFERENCE,
    MessageOut,
    NonBlank,
    Schema,
    StrictBody,
    Text,
    WarningOut,
    integral,
)
from mochi_server.services.import_export import SessionFile
from mochi_server.services.importers.chatgpt import ChatGPTChat
from mochi_server.services.importers.claude import ClaudeChat
from mochi_server.services.importers.librechat import LibreChatChat
from mochi_server.services.importers.open_webui import OpenWebUIChat
from mochi_server.services.sessions import SessionState
from mochi_server.sessions.images import read_images
from mochi_server.sessions.session import ChatSession, last_answer, usage_tokens
from mochi_server.sessions.settings import Options, moment_of
from mochi_server.sessions.types import (
    AgentSettings,
    Format,
    Image,
    KeepAlive,
    Message,
    ModelName,
    Names,
    SessionCreationOptions,
    Tags,
    Think,
    Title,
    ToolSettings,
)
from mochi_server.sessions.versions import count_versions
from mochi_server.util.clock import as_text
from mochi_server.util.validation import NOT_BLANK

_LATEST = datetime.max.replace(tzinfo=timezone.utc)


def _future_time(text: str) -> str:
    """Return a time in the format of stored sessions. Raises ValueError."""
    moment = moment_of(text)
    if moment.timestamp() <= time.time():
        raise ValueError("must be in the future")
    return as_text(min(moment, _LATEST))


FutureTime = Annotated[
    str, AfterValidator(_future_time), Field(json_schema_extra={"format": "date-time"})
]


# not strict, so that it accepts policy names as strings
class ToolSettingsRequest(ToolSettings, StrictBody, strict=False):
    """Tools that the model may call, and the calls that need approval."""

    approved_tools: Names | None = Field(
        None, description="Tools that are approved for the whole session."
    )


class AgentSettingsRequest(AgentSettings, StrictBody, strict=False):
    """Agents that the model may call."""


_STORED_CLASSES: dict[str, type[BaseModel]] = {
    "tool_settings": ToolSettings,
    "agent_settings": AgentSettings,
}
"""Classes of stored settings, by field name. They accept unknown keys; request classes do not."""

_HINTS = {
    "tools": 'Send it in `tool_settings`: `{"tool_settings": {"tools": [...]}}`.',
    "agents": 'Send it in `agent_settings`: `{"agent_settings": {"enabled_agents": [...]}}`.',
}
_PATCH_HINTS = _HINTS | {"system_prompt": common.SYSTEM_PROMPT_HINT}


class SessionDefaults(StrictBody):
    """Defaults for the chat requests of a session."""

    hints = _HINTS

    title: Title | None = Field(
        None, description="One line. By default the server derives a title."
    )
    options: Options | None = Field(
        None, description="Ollama's options, such as `temperature` or `seed`."
    )
    keep_alive: KeepAlive = None
    think: Think = None
    format: Format | None = Field(None, description="Format of answers: `json` or a JSON schema.")
    tool_settings: ToolSettingsRequest | None = Field(
        None, description="Tools, and the calls that need approval."
    )
    agent_settings: AgentSettingsRequest | None = Field(
        None, description="Agents that the model may call."
    )
    tags: Tags | None = Field(None, description="Labels by which lists can be filtered.")
    pinned: bool | None = Field(
        None, description="Whether lists with `pinned=first` begin with the session."
    )
    archived: bool | None = Field(
        None, description="Whether lists with `archived=false` leave out the session."
    )
    temporary: bool | None = Field(
        None,
        description="Whether the server deletes the session when it has not changed for "
        "`MOCHI_TEMPORARY_SESSION_HOURS`. Lists leave it out.",
    )
    expires_at: FutureTime | None = Field(
        None, description="Time from which the server deletes the session."
    )

    def sent_values(self) -> dict[str, Any]:
        """Return the fields that the request contains, also those that are null, by name.

        The values have the stored format.
        """
        values = {name: getattr(self, name) for name in self.model_fields_set}
        for name, stored_class in _STORED_CLASSES.items():
            settings = values.get(name)
            if settings is not None:
                sent = settings.model_dump(exclude_unset=True)
                values[name] = stored_class.model_validate(sent)
        return values


class SessionCreate(SessionDefaults, json_schema_extra={"examples": [{"model": "qwen3:14b"}]}):
    """A new session.

    If ``system_prompt`` has text, ``system_prompt_source_file`` is only a label, else it is read.
    """

    model: ModelName = Field(description="Chat model of Ollama. The tag is optional.")
    system_prompt: Text | None = Field(None, description="Text of the system message.")
    system_prompt_source_file: str | None = Field(
        None, description="Prompt file to load, or label of `system_prompt`."
    )

    def creation_options(self) -> SessionCreationOptions:
        values = {name: value for name, value in self.sent_values().items() if value is not None}
        return SessionCreationOptions(**values)


class WindowOverride(StrictBody):
    """Manual context window in tokens, at most the model's maximum.

    Null restores the automatic window.
    """

    current_window: Annotated[Annotated[int, Field(ge=1)] | None, BeforeValidator(common.integral)]


class SessionPatch(
    SessionDefaults, json_schema_extra={"examples": [{"title": "Paris", "think": None}]}
):
    """Changes of a session.

    Absent fields are kept, null clears a field, and nested objects are replaced completely.
    """

    hints = _PATCH_HINTS

    model: ModelName | SkipJsonSchema[None] = Field(
        None, description="Chat model of Ollama. The tag is optional."
    )
    summary_model: ModelName | None = Field(
        None, description="Model for summaries if `model` cannot write them."
    )
    context_window: WindowOverride | None = Field(
        None, description="Null restores the automatic window."
    )
    ollama_host: str | None = Field(
        None, description="Name of the only Ollama host that may answer. Null: any host."
    )

    def changes(self) -> dict[str, Any]:
        """Return the fields that the request contains, also those that are null, by name."""
        values = self.sent_values()
        if self.context_window is not None:
            values["context_window"] = self.context_window.model_dump()
        return values


_EDIT_HINTS = dict.fromkeys(("message", "prompt", "text"), "Did you mean `content`?")
_EDIT_HINTS["attachments"] = "An edited message keeps its files. Other files need a new message."
"""Hints for names of other requests."""


class MessageEdit(
    StrictBody, json_schema_extra={"examples": [{"content": "What is the capital of Spain?"}]}
):
    """New text of a user message. Its files are kept, and without ``images`` its images too."""

    hints = _EDIT_HINTS

    content: NonBlank = Field(description="New text of the message.")
    images: common.Images | None = Field(
        None, description="New images in place of the old ones, as in a message. `[]` removes them."
    )

    async def new_images(self) -> tuple[Image, ...] | None:
        """Return the images, or None if they stay. Raises ``ValidationFailed``."""
        if self.images is None:
            return None
        return await read_images(
            {("images", index): text for index, text in enumerate(self.images)}
        )


class SystemPromptUpdate(StrictBody):
    """A new system prompt.

    If ``content`` has text, ``source_file`` is only a label, else it is read.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {
                    "required": ["content"],
                    "properties": {"content": {"type": "string", **NOT_BLANK}},
                },
                {
                    "required": ["source_file"],
                    "properties": {"source_file": {"type": "string", "minLength": 1}},
                },
            ],
            "examples": [{"source_file": "helpful.md"}],
        }
    )

    content: Text | None = Field(None, description="Text of the system message.")
    source_file: str | None = Field(None, description="Prompt file to load, or label of `content`.")


StoredSummary = Annotated[
    dict[str, Any],
    WithJsonSchema(
        {
            "type": "object",
            "properties": {
                "summary": {"type": "string"},
                "topics": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["summary", "topics"],
        }
    ),
]
WindowConfig = Annotated[
    dict[str, Any],
    WithJsonSchema(
        {
            "description": "Context window of the session, in tokens, and its latest changes.",
            "type": "object",
            "properties": {
                "dynamic_enabled": {"type": "boolean"},
                "current_window": {"type": ["integer", "null"]},
                "last_adjustment": {"type": ["string", "null"]},
                "adjustment_history": {"type": "array", "items": {"type": "object"}},
                "manual_override": {"type": "boolean"},
            },
            "required": [
                "dynamic_enabled",
                "current_window",
                "last_adjustment",
                "adjustment_history",
                "manual_override",
            ],
        }
    ),
]


class SessionWithoutOwner(Schema):
    """A session without its messages. ``preview`` is the beginning of the first user message."""

    session_id: str
    model: str
    created_at: str
    updated_at: str
    message_count: int
    title: str | None
    preview: str
    summary: StoredSummary | None
    summary_model: str | None
    format_version: str
    tool_settings: ToolSettings
    agent_settings: AgentSettings
    context_window_config: WindowConfig
    options: dict[str, Any] | None
    keep_alive: str | float | None
    think: bool | str | None
    format: str | dict[str, Any] | None
    ollama_host: str | None
    tags: list[str]
    pinned: bool
    archived: bool
    temporary: bool
    expires_at: str | None


class SessionChanged(SessionWithoutOwner):
    """A new or changed session.

    ``warnings`` lists what in the request cannot be used, or makes models reload.
    """

    warnings: list[WarningOut]

    @classmethod
    def with_warnings(
        cls, session: ChatSession, warnings: Sequence[TurnWarning]
    ) -> "SessionChanged":
        return cls.model_validate(session.summary_object() | {"warnings": warnings})


class VersionCount(Schema):
    """Number of versions at a message, including the shown one.

    ``shown`` is the number of the shown one. The oldest version has the number 1.
    """

    count: int
    shown: int


class SessionDetail(SessionWithoutOwner):
    """A session with its messages.

    The bytes of an image in ``images`` are at ``blobs/{sha256}``, and those of a file in
    ``attachments`` at ``files/{sha256}``.
    """

    messages: list[MessageOut]
    versions: dict[str, VersionCount] = Field(
        description="Number of versions by message ID, for the messages that have versions."
    )

    @classmethod
    def of(cls, session: ChatSession) -> "SessionDetail":
        counts = count_versions(session.metadata.versions, session.history)
        added = {
            "messages": list(session.history),
            "versions": {message_id: asdict(count) for message_id, count in counts.items()},
        }
        return cls.model_validate(session.summary_object() | added)


class Session(SessionWithoutOwner):
    """A session in a list.

    ``owner`` is the ID of an API key, or `<key ID>/<user ID>`. It is absent if none owns it.
    """

    owner: str | None = None


class SessionList(Schema):
    """Sessions, the most recently changed first.

    With ``pinned=first``, pinned sessions precede all others.
    """

    sessions: list[Session]


class TagCount(Schema):
    """A tag, and the number of sessions that have it."""

    tag: str
    count: int


class TagList(Schema):
    """Tags, the most frequent first."""

    tags: list[TagCount]

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> "TagList":
        tags = [TagCount(tag=tag, count=count) for tag, count in counts.items()]
        tags.sort(key=lambda each: (-each.count, each.tag))
        return cls(tags=tags)


class MessageList(Schema):
    """Messages of a session.

    The position in the list is the index of the message, starting at 0.
    """

    session_id: str
    messages: list[MessageOut]


class SummarizeRequest(StrictBody, json_schema_extra={"examples": [{"model": "qwen3:4b"}]}):
    """The model for the summary. The server stores the model as the session's ``summary_model``."""

    model: ModelName | None = Field(
        None, description="Default: `model`, or `summary_model` if `model` cannot do it."
    )


class SummaryOut(Schema):
    """A summary and its model. All fields are null if there is no summary."""

    summary: str | None
    topics: list[str] | None
    model_used: str | None

    @classmethod
    def of(cls, session: ChatSession) -> "SummaryOut":
        metadata = session.metadata
        if not metadata.summary:
            return cls(summary=None, topics=None, model_used=None)
        topics = metadata.summary.get("topics")
        return cls(
            summary=str(metadata.summary.get("summary") or ""),
            topics=[str(topic) for topic in topics] if isinstance(topics, list) else [],
            model_used=metadata.summarized_by or metadata.summary_model or metadata.model,
        )


class WindowStatus(Schema):
    """Context window of a session.

    Windows and usage are in tokens. ``usage_ratio`` is usage divided by window.
    """

    dynamic_enabled: bool
    current_window: int | None
    model_max_context: int | None
    last_adjustment_reason: str | None
    manual_override: bool
    manual_override_session_id: str | None = Field(
        description="This session if it has a manual window, else null."
    )
    usage_tokens: int | None
    usage_ratio: float | None

    @classmethod
    def of(cls, state: SessionState) -> "WindowStatus":
        session = state.session
        config = session.metadata.context_window_config
        is_manual = state.manual_window is not None
        window = state.manual_window or config.get("current_window")
        usage = usage_tokens(last_answer(session.history))
        return cls(
            dynamic_enabled=state.has_dynamic_windows,
            current_window=window,
            model_max_context=state.model.context_length if state.model else None,
            last_adjustment_reason=config.get("last_adjustment"),
            manual_override=is_manual,
            manual_override_session_id=session.session_id if is_manual else None,
            usage_tokens=usage,
            usage_ratio=round(usage / window, 4) if usage is not None and window else None,
        )


_SHARE_TURNS = 5


def _cached_share(history: Sequence[Message]) -> float | None:
    """Return the share of cached tokens in the prompts of the last ``_SHARE_TURNS`` turns.

    Answers for which Ollama has not reported cached tokens do not count.
    """
    turns = 0
    prompt = 0
    cached = 0
    for message in reversed(history):
        if message["role"] == "assistant" and message.get("prompt_eval_cached_count") is not None:
            prompt += message.get("prompt_eval_count") or 0
            cached += message["prompt_eval_cached_count"]
        if message["role"] == "user":
            turns += 1
        if turns == _SHARE_TURNS:
            break
    return round(min(cached / prompt, 1), 4) if prompt else None


class PromptEvaluation(Schema):
    """Evaluation of the prompt of the last answer. ``prompt_eval_duration`` is in nanoseconds."""

    prompt_eval_count: int = Field(description="Number of tokens of the prompt.")
    prompt_eval_duration: int = Field(
        description="Time to evaluate the part of the prompt that was not cached."
    )
    prompt_eval_cached_count: int | None = Field(
        description="Number of cached tokens of the prompt. Null if unknown."
    )
    evaluated_tokens: int | None = Field(
        description="Number of tokens that were not cached. Null if unknown."
    )
    cached_share: float | None = Field(
        description=f"Share of cached tokens in the prompts of the last {_SHARE_TURNS} turns. "
        "Null if unknown."
    )

    @classmethod
    def of(cls, state: SessionState) -> "PromptEvaluation | None":
        answer = last_answer(state.session.history)
        if answer is None:
            return None
        count = answer.get("prompt_eval_count")
        duration = answer.get("prompt_eval_duration")
        if not isinstance(count, int) or not isinstance(duration, int):
            return None
        if count <= 0 or duration <= 0:
            return None
        cached = answer.get("prompt_eval_cached_count")
        return cls(
            prompt_eval_count=count,
            prompt_eval_duration=duration,
            prompt_eval_cached_count=cached,
            evaluated_tokens=None if cached is None else max(count - cached, 0),
            cached_share=_cached_share(state.session.history),
        )


class SessionStatus(Schema):
    """State of a session: its context window, tools, agents and summary."""

    session_id: str
    model: str
    message_count: int
    context_window: WindowStatus
    prompt_evaluation: PromptEvaluation | None = Field(
        description="Null if Ollama reported no evaluation."
    )
    tools_enabled: bool
    active_tools: list[str] = Field(
        description="Enabled tools that exist, including the tools of the group."
    )
    missing_tools: list[str] = Field(description="Enabled tools and tool group that do not exist.")
    execution_policy: str = Field(
        description="Tool policy of the next turn: that of the session, or a stricter one of the "
        "API key."
    )
    agents_enabled: bool
    enabled_agents: list[str] = Field(description="Enabled agents that exist and are valid.")
    missing_agents: list[str] = Field(
        description="Enabled agents that do not exist or are invalid."
    )
    system_prompt_file: str | None
    summary: StoredSummary | None
    summary_model: str | None
    ollama_host: str | None = Field(description="Host to which the session is pinned, or null.")
    last_host: dict[str, str] | None = Field(
        description="`name` of the host of the latest turn, and the `reason` of the choice: "
        "`only_host`, `pinned`, `prompt_cached`, `least_time`, `hash` (equal times), `only_up` "
        "or `failover`. Null if unknown."
    )

    @classmethod
    def of(cls, state: SessionState) -> "SessionStatus":
        session = state.session
        metadata = session.metadata
        tools = metadata.tool_settings
        agents = metadata.agent_settings
        prompt = session.system_prompt
        host = state.host
        return cls(
            session_id=session.session_id,
            model=session.model,
            message_count=len(session.history),
            context_window=WindowStatus.of(state),
            prompt_evaluation=PromptEvaluation.of(state),
            tools_enabled=bool(tools.tools or tools.tool_group),
            active_tools=state.selection.active_tools,
            missing_tools=state.selection.missing_tools,
            execution_policy=state.policy.value,
            agents_enabled=bool(agents.enabled_agents),
            enabled_agents=state.selection.active_agents,
            missing_agents=state.selection.missing_agents,
            system_prompt_file=prompt.get("source_file") if prompt else None,
            summary=metadata.summary,
            summary_model=session.summary_model,
            ollama_host=metadata.ollama_host,
            last_host={"name": host.name, "reason": host.reason} if host else None,
        )


ExportFormat = Literal["json", "markdown"]


class SessionFork(StrictBody):
    """The last message to copy to the fork, by index or ID.

    The default is the last message after which each tool call has a result.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "not": {
                "properties": {
                    "message_index": {"type": "integer"},
                    "message_id": {"type": "string"},
                },
                "required": ["message_index", "message_id"],
            }
        }
    )

    message_index: Annotated[int, BeforeValidator(integral)] | None = Field(
        None, description="Index, starting at 0."
    )
    message_id: str | None = Field(None, description="ID of the last message to copy.")

    @model_validator(mode="after")
    def _has_one_position(self) -> "SessionFork":
        if self.message_index is not None and self.message_id is not None:
            raise ValueError("send message_index or message_id, not both")
        return self


_ImportItem = SessionFile | OpenWebUIChat | ChatGPTChat | ClaudeChat | LibreChatChat


class SessionImport(RootModel[Any], defer_build=True):
    """One or more sessions of this server, or conversations of another program.

    The other programs are ChatGPT, Claude, LibreChat and Open WebUI.
    """

    root: _ImportItem | Annotated[list[_ImportItem], Field(min_length=1)]

    @classmethod
    def schemas(cls) -> dict[str, Any]:
        """Return the schemas for the OpenAPI document, by name."""
        schema = cls.model_json_schema(ref_template=REFERENCE + "{model}")
        return {**schema.pop("$defs"), cls.__name__: schema}


class SessionsImported(SessionList):
    """The imported sessions, in the order of the imported file.

    ``warnings`` names turns that were left out, and counts other contents that were left out.
    """

    warnings: list[WarningOut]
