"""Schemas of chat requests and answers."""

from typing import Annotated, Any, Literal

from fastapi import Header, Query
from pydantic import BaseModel, ConfigDict, Field

from mochi_server.chat.images import read_images
from mochi_server.chat.run import Run
from mochi_server.chat.turn import GenerationOptions, TurnRequest, TurnResult
from mochi_server.constants import KEY_PATTERN, MAX_IMAGES
from mochi_server.errors import ValidationFailed
from mochi_server.models.common import Format, KeepAlive, NonBlank, Options, StrictBody, ThinkLevel
from mochi_server.models.messages import MessageOut

KeyHeader = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=KEY_PATTERN,
        description="Makes a repeated request listen to the turn that the first one began, also after it has ended.",
    ),
]
AfterQuery = Annotated[
    str | None,
    Query(
        pattern="^([0-9a-f]{1,32}:)?[0-9]{1,18}$",
        description="The id of the last event heard, or its number; `Last-Event-ID` goes before it.",
    ),
]
LastEventIdHeader = Annotated[
    str | None, Header(alias="Last-Event-ID", description="The id of the last event heard, as `EventSource` sends it.")
]

Images = Annotated[
    list[Annotated[str, Field(json_schema_extra={"contentEncoding": "base64"})]],
    Field(max_length=MAX_IMAGES, fail_fast=True),
]


class ChatRequest(StrictBody):
    """What to say, and how to answer. Without a message the last user message is answered again."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"message": "What is the capital of France?"}]})

    message: NonBlank | None = Field(
        default=None, description="What the user says. Without it, the last user message is answered again."
    )
    think: ThinkLevel | None = Field(default=None, description="Whether, or how much, a model that can think does so.")
    options: Options | None = Field(
        default=None,
        description="Ollama's options, such as `temperature`, `seed` or `num_predict`; they go before the session's.",
    )
    format: Format | None = Field(default=None, description="The form of the answer: `json`, or a JSON schema.")
    keep_alive: KeepAlive | None = Field(
        default=None, description="How long Ollama keeps the model in memory: seconds, or a duration such as `5m`."
    )
    images: Images | None = Field(
        default=None,
        description="For models with `vision`: PNG, JPEG, WebP, GIF or BMP, as base64, which may be a data URL. "
        "They belong to the message.",
    )
    if_busy: Literal["reject", "wait"] = Field(
        default="reject", description="When the session is answering: 409, or this turn comes after that."
    )
    on_disconnect: Literal["cancel", "continue"] = Field(
        default="cancel", description="Whether the turn ends when nobody listens any more."
    )
    wait_for_confirmation: bool = Field(
        default=False, description="Without streaming: wait for approval of tool calls instead of denying them."
    )

    async def turn_request(self, *, streaming: bool) -> TurnRequest:
        """The request as the engine takes it. Raises ``ValidationFailed`` for what is no image."""
        if self.images and self.message is None:
            raise ValidationFailed("images: they need a message that they belong to.", field="images")
        return TurnRequest(
            message=self.message,
            images=await read_images(self.images or ()),
            generation=GenerationOptions(self.think, self.options, self.format, self.keep_alive),
            if_busy=self.if_busy,
            on_disconnect=self.on_disconnect,
            interactive=streaming or self.wait_for_confirmation,
        )


class ToolCallExecuted(BaseModel):
    """A tool call of the turn and how it ended. ``execution_time`` is in seconds."""

    call_index: int
    tool_name: str
    arguments: dict[str, Any]
    success: bool
    result: str | None
    error_message: str | None
    error_code: str | None
    execution_time: float


class ContextWindow(BaseModel):
    """The window the answer was given in, in tokens."""

    current_window: int | None
    usage_tokens: int | None
    reason: str | None


class ChatResponse(BaseModel):
    """An answer as it is stored. ``message`` is null when the turn was stopped before the model spoke."""

    session_id: str
    message: MessageOut | None
    tool_calls_executed: list[ToolCallExecuted]
    context_window: ContextWindow

    @classmethod
    def of(cls, session_id: str, result: TurnResult) -> "ChatResponse":
        return cls(
            session_id=session_id,
            message=None if result.answer is None else dict(result.answer),
            tool_calls_executed=[ToolCallExecuted(**outcome.executed()) for outcome in result.outcomes],
            context_window=ContextWindow(**result.window_object),
        )


class RunStatus(BaseModel):
    """The running or latest turn of a session; ``idle`` when there was none lately."""

    run_id: str | None
    state: Literal["idle", "running", "completed", "failed", "stopped", "cancelled"]

    @classmethod
    def of(cls, run: Run | None) -> "RunStatus":
        return cls(run_id=None, state="idle") if run is None else cls(run_id=run.run_id, state=run.state)
