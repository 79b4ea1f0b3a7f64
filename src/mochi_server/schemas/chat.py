"""Schemas of chat requests and responses."""

import re
from typing import Annotated, Any, Literal, get_args

from fastapi import Header, Query
from pydantic import AfterValidator, Field

from mochi_server.chat.run import Run
from mochi_server.chat.turn_input import GenerationOptions, TurnInput
from mochi_server.chat.turn_result import TurnResult
from mochi_server.constants import MAX_ATTACHMENT_NAME_CHARS, MAX_ATTACHMENTS
from mochi_server.errors import ValidationFailed
from mochi_server.events import ChatEvent, ContextCompacted
from mochi_server.schemas.common import (
    SYSTEM_PROMPT_HINT,
    EventUnion,
    IdempotencyKey,
    Images,
    MessageOut,
    NonBlank,
    OnDisconnect,
    Schema,
    StrictBody,
    WarningOut,
)
from mochi_server.services.attachments import EncodedFile, read_attachments
from mochi_server.sessions.images import Location, read_images
from mochi_server.sessions.settings import Options
from mochi_server.sessions.types import Format, KeepAlive, Think
from mochi_server.util.validation import Items

_POSITION = "^([0-9a-f]{1,32}:)?[0-9]{1,18}$"


def _position(value: str) -> str:
    if not re.fullmatch(_POSITION, value):
        raise ValueError("must be the ID or the number of an event, such as 5f5d36ccef:2 or 2")
    return value


KeyHeader = Annotated[
    IdempotencyKey | None,
    Header(
        alias="Idempotency-Key",
        description="Idempotency key. A repeated request with the same key returns the existing "
        "turn.",
    ),
]
_Position = Annotated[
    str, AfterValidator(_position), Field(json_schema_extra={"pattern": _POSITION})
]
AfterQuery = Annotated[
    _Position | None,
    Query(description="ID or number of the last event received. `Last-Event-ID` takes precedence."),
]
LastEventIdHeader = Annotated[
    _Position | None,
    Header(
        alias="Last-Event-ID", description="ID of the last event received. `EventSource` sends it."
    ),
]


_RETRY_ADVICE = "The message is stored: send the request without `message` to get the answer."
_RETRY_ADVICE_WITH_KEY = (
    "The message is stored: send the same request again, with its Idempotency-Key, to get the "
    "answer."
)
_SETTING = "It is a setting of the session: `PATCH /api/v1/sessions/{session_id}` with "
_HINTS = dict.fromkeys(
    ("content", "input", "messages", "prompt", "query", "text"), "Did you mean `message`?"
)
_HINTS |= {
    "stream": "Omit it. `POST /api/v1/chat/{session_id}/stream` streams the answer.",
    "regenerate": "Omit it. A request without `message` answers the last user message again.",
    "message_id": "To change an earlier message, use "
    "`PUT /api/v1/sessions/{session_id}/messages/{message_index}`.",
    "model": f"{_SETTING}`model`.",
    "tools": f'{_SETTING}`{{"tool_settings": {{"tools": [...]}}}}`.',
    "agents": f'{_SETTING}`{{"agent_settings": {{"enabled_agents": [...]}}}}`.',
    "system": SYSTEM_PROMPT_HINT,
    "system_prompt": SYSTEM_PROMPT_HINT,
}
"""Hints for names of other APIs."""


class AttachmentIn(StrictBody):
    """A file with text, or a PDF. The model receives its text before the message."""

    name: str = Field(min_length=1, max_length=MAX_ATTACHMENT_NAME_CHARS)
    media_type: str | None = Field(
        None, description="Media type, also with `charset`. The data URL can contain it instead."
    )
    data: str = Field(
        json_schema_extra={"contentEncoding": "base64"},
        description="Bytes of the file, as base64 or as a data URL.",
    )

    @property
    def file(self) -> EncodedFile:
        return EncodedFile(self.name, self.data, self.media_type)


class ChatRequest(
    StrictBody, json_schema_extra={"examples": [{"message": "What is the capital of France?"}]}
):
    """A message and its options.

    If there is no message, the model answers the last user message again.
    """

    hints = _HINTS

    message: NonBlank | None = Field(
        None, description="Without it, the last user message is answered again."
    )
    think: Think = None
    options: Options | None = Field(
        None, description="Ollama's options, which override the session's options."
    )
    format: Format | None = Field(
        None, description="Format of the answer: `json` or a JSON schema."
    )
    keep_alive: KeepAlive = None
    images: Images | None = Field(
        None, description="PNG, JPEG, WebP, GIF or BMP, as base64 or as data URLs."
    )
    attachments: Annotated[Items[AttachmentIn], Field(max_length=MAX_ATTACHMENTS)] | None = Field(
        None, description="Files that the model reads: text of any kind, and PDF."
    )
    if_busy: Literal["reject", "wait"] | None = Field(
        "reject", description="While a turn runs: return 409, or wait."
    )
    if_waiting: Literal["reject", "deny"] | None = Field(
        "reject",
        description="While tool calls wait for approval: return 409, or deny them and send the "
        "message.",
    )
    on_disconnect: OnDisconnect = "cancel"
    background: bool | None = Field(
        False,
        description="Without streaming: return 202 when the turn starts. The turn needs no client.",
    )
    wait_for_confirmation: bool | None = Field(
        False, description="Without streaming: wait for approval of tool calls."
    )

    async def to_input(self, key: str | None, *, streaming: bool) -> TurnInput:
        """Return the input of the turn.

        Raises ``ValidationFailed`` for an invalid image or file, for images or files without a
        message, and for a streaming turn in the background.
        """
        for field, value in {"images": self.images, "attachments": self.attachments}.items():
            if value and self.message is None:
                problem = f"{field} require a `message`. Send both in one request."
                raise ValidationFailed.at(field, problem)
        if self.background and streaming:
            problem = "a turn in the background has no stream. Use POST /api/v1/chat/{session_id}."
            raise ValidationFailed.at("background", problem)
        images: dict[Location, str] = {}
        for index, text in enumerate(self.images or ()):
            images["images", index] = text
        files: dict[Location, EncodedFile] = {}
        for index, attachment in enumerate(self.attachments or ()):
            files["attachments", index] = attachment.file
        on_disconnect = self.on_disconnect or "cancel"
        retry_advice = ""
        if self.message is not None:
            retry_advice = _RETRY_ADVICE if key is None else _RETRY_ADVICE_WITH_KEY
        return TurnInput(
            self.message,
            images=await read_images(images),
            attachments=await read_attachments(files),
            change="regenerate" if self.message is None else "none",
            generation=GenerationOptions(
                think=self.think,
                options=self.options,
                format=self.format,
                keep_alive=self.keep_alive,
            ),
            if_busy=self.if_busy or "reject",
            if_waiting=self.if_waiting or "reject",
            on_disconnect="continue" if self.background else on_disconnect,
            interactive=bool(streaming or self.wait_for_confirmation or self.background),
            retry_advice=retry_advice,
            key=key,
        )


class ToolCallExecuted(Schema):
    """A tool call of the turn and its result. ``execution_time`` is in seconds."""

    call_index: int
    tool_name: str
    arguments: dict[str, Any]
    success: bool
    result: str | None
    error_message: str | None
    error_code: str | None
    execution_time: float


class ContextWindow(Schema):
    """Context window of the answer, in tokens."""

    current_window: int | None
    usage_tokens: int | None
    reason: str | None


class ChatResponse(Schema):
    """The stored answer. ``message`` is null if the turn was stopped before the first token."""

    session_id: str
    state: Literal["completed", "stopped", "cancelled"] = Field(
        description="`stopped`: `message` is partial."
    )
    message: MessageOut | None
    tool_calls_executed: list[ToolCallExecuted]
    context_window: ContextWindow
    context_compacted: ContextCompacted | None = Field(
        description="What the prompt of the answer leaves out, as in the event of this name."
    )
    warnings: list[WarningOut] = Field(description="The warnings that a stream would have sent.")

    @classmethod
    def of(cls, run: Run, result: TurnResult) -> "ChatResponse":
        fields = {
            "message": None if result.answer is None else dict(result.answer),
            "tool_calls_executed": [outcome.executed() for outcome in result.outcomes],
            "context_window": result.window_object,
            ContextCompacted.type: run.log.compacted,
            "warnings": run.log.warnings,
        }
        return cls.model_validate({"session_id": run.session_id, "state": run.state, **fields})


class RunStatus(Schema):
    """The running or most recent turn of a session.

    ``idle`` means that there was no recent turn.
    """

    run_id: str | None
    state: Literal[
        "idle", "running", "waiting_for_approval", "completed", "failed", "stopped", "cancelled"
    ]
    answer_id: str | None = Field(description="ID of the answer's message, which may be partial.")
    continues: str | None = Field(
        None,
        description="ID of the run that this run continues: it waited for approval, or its server "
        "crashed or stopped.",
    )

    @classmethod
    def of(cls, run: Run | None) -> "RunStatus":
        if run is None:
            return cls(run_id=None, state="idle", answer_id=None, continues=None)
        state = (
            "waiting_for_approval"
            if run.running and (run.pending or run.control.is_suspending)
            else run.state
        )
        answer_id = None if state == "waiting_for_approval" else run.answer_id
        return cls(run_id=run.run_id, state=state, answer_id=answer_id, continues=run.continues)


CHAT_EVENTS = EventUnion(
    "ChatStreamEvent",
    "Event of a turn. `data` is JSON. New events may be added.",
    get_args(ChatEvent),
    last="done",
)
