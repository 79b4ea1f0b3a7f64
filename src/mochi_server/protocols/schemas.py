"""Parts of request and response schemas, and OpenAI's errors, which several protocols share.

Unknown fields are ignored. A known but unsupported field is rejected if it would change the answer.
"""

import json
import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Annotated, Any, Literal, TypeVar

import orjson
from fastapi import Header
from pydantic import AfterValidator, BaseModel, Discriminator, Field, Tag

from mochi_server.chat.turn_input import GenerationOptions, ToolSelection, TurnInput
from mochi_server.errors import (
    AgentNotFound,
    ContextOverflow,
    MochiError,
    OllamaBusy,
    SessionNotFound,
    Unauthorized,
    ValidationFailed,
)
from mochi_server.schemas.chat import ToolCallExecuted
from mochi_server.schemas.common import (
    Body,
    IdempotencyKey,
    OnDisconnect,
    Options,
    Text,
    ToolParameters,
    UnstoredBody,
)
from mochi_server.sessions.types import (
    FiniteObject,
    Format,
    KeepAlive,
    Think,
    ThinkLevel,
    ToolExecutionPolicy,
)
from mochi_server.util.validation import Items
from mochi_server.web.requests import ErrorFormat

THINK: dict[str | None, bool | str] = {
    "none": False,
    "minimal": "low",
    "xhigh": "max",
    "ultra": "max",
}
"""Ollama's ``think`` values for OpenAI's reasoning levels.

Levels that are not listed have the same name in Ollama.
"""
_SAMPLING = (
    "temperature",
    "top_p",
    "frequency_penalty",
    "presence_penalty",
    "seed",
    "top_k",
    "min_p",
    "repeat_penalty",
)
"""Fields that have the same name in OpenAI's API and in Ollama's options."""
_Item = TypeVar("_Item")
TEXT_OR_LIST = Discriminator(lambda value: "list" if isinstance(value, list) else "text")
TextOr = Annotated[Annotated[Text, Tag("text")] | Annotated[_Item, Tag("list")], TEXT_OR_LIST]
"""A text or a list.

Because of the tags, the error for an invalid item does not contain the error for a text.
"""
WordOr = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("word")] | Annotated[_Item, Tag("object")],
    Discriminator(lambda value: "word" if isinstance(value, str) else "object"),
]
"""A word for `tool_choice`, or an object."""
_DATA_URL = re.compile(r"data:(image/[\w.+-]+)?;base64,", re.IGNORECASE)
TOOL_CHOICE = (
    "Whether the model may or must call a tool. It is enforced for the first answer of the turn."
)
PARALLEL = "If `false`, each answer calls one tool at most. The server drops further calls."
NO_LIMIT = -1
"""Value of `max_tokens` for an answer that ends only when it is complete or the context window is
full.
"""


def allow(*values: Any, reason: str = "") -> AfterValidator:
    """Return a validator that accepts only ``values`` and null.

    ``reason`` is part of its error message.
    """
    allowed = (
        f"must be {orjson.dumps(values[0]).decode()}, or left out" if values else "must be left out"
    )
    reason = reason or (
        "this server supports no other value" if values else "this server does not support it"
    )

    def check(value: Any) -> Any:
        if value is not None and value not in values:
            raise ValueError(f"{allowed}: {reason}")
        return value

    return AfterValidator(check)


def _image(url: str) -> str:
    if not _DATA_URL.match(url):
        raise ValueError(
            "must be a base64 data URL of an image: this server does not download images"
        )
    return url


def _token_limit(value: int) -> int:
    if value < 1 and value != NO_LIMIT:
        raise ValueError(f"must be at least 1, or {NO_LIMIT} for no limit")
    return value


Unsupported = Annotated[Any, allow(), Field(description="Not supported.")]
DataUrl = Annotated[str, AfterValidator(_image), Field(json_schema_extra={"pattern": "^data:"})]
TokenLimit = Annotated[int, AfterValidator(_token_limit)]
RejectedOption = Annotated[
    Any, allow(reason="this server sets the context window; other options have fields of their own")
]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "ultra", "max"]


class MochiHeaders(BaseModel):
    """Request headers that the APIs of other providers do not have."""

    session: str | None = Field(
        None, alias="X-Mochi-Session", description="Overrides `metadata.session_id`."
    )
    tools: str | None = Field(
        None, alias="X-Mochi-Tools", description="Tools of this server, separated by commas."
    )
    policy: ToolExecutionPolicy | None = Field(
        None,
        alias="X-Mochi-Tool-Policy",
        description="Without a session: calls that need approval are denied.",
    )
    key: IdempotencyKey | None = Field(
        None,
        alias="Idempotency-Key",
        description="In a session: the same key returns the existing answer.",
    )

    @property
    def tool_names(self) -> list[str] | None:
        if self.tools is None:
            return None
        return [name for part in self.tools.split(",") if (name := part.strip())]

    def turn(self, model: str, generation: GenerationOptions, tools: ToolSelection) -> TurnInput:
        """Return the turn of a completion without its messages."""
        return TurnInput(
            generation=generation,
            tools=tools,
            policy=self.policy,
            model=model,
            interactive=False,
            key=self.key,
        )


HeadersParam = Annotated[MochiHeaders, Header()]


class FunctionTool(Body):
    """A function of the client that the model may call. ``parameters`` is a JSON schema."""

    name: Annotated[str, Field(min_length=1)]
    description: str | None = None
    parameters: ToolParameters | None = None

    def to_ollama(self) -> dict[str, Any]:
        """Return the schema of the tool in Ollama's format."""
        given = {key: value for key, value in (self.parameters or {}).items() if value is not None}
        schema = {"type": "object", "properties": {}} | given  # templates fail without `properties`
        function = {"name": self.name, "description": self.description or "", "parameters": schema}
        return {"type": "function", "function": function}


class NamedFunction(Body):
    """Name of a function."""

    name: str


class AllowedFunctions(Body):
    """The functions that the model may call. With the mode `required`, it must call one of them."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Items[NamedFunction]


class TextPart(Body):
    """Text of a message."""

    type: Literal["text"]
    text: Text


class RefusalPart(Body):
    """Text with which a model refused to answer."""

    type: Literal["refusal"]
    refusal: Text


def joined_text(content: str | Iterable[Any] | None) -> str:
    """Return the text of a message.

    Texts and refusals in a list of parts are on lines of their own.
    """
    if content is None or isinstance(content, str):
        return content or ""
    texts = (
        part.refusal if isinstance(part, RefusalPart) else getattr(part, "text", None)
        for part in content
    )
    return "\n".join(text for text in texts if text is not None)


class PlainFormat(Body):
    """Response format: plain text, or any JSON object."""

    type: Literal["text", "json_object"]

    def to_ollama(self) -> str:
        return "json" if self.type == "json_object" else ""


class SchemaText(Body):
    """Format of the answer: JSON that matches a schema."""

    type: Literal["json_schema"]
    name: str = "answer"
    json_schema: FiniteObject = Field(alias="schema")

    def to_ollama(self) -> str | dict[str, Any]:
        return self.json_schema or "json"


class ReasoningOptions(Body):
    """Reasoning options of a request, for models that can think."""

    effort: Effort | None = None


class Metadata(Body, extra="allow"):
    """Metadata of a request.

    ``session_id`` is the ID of the session for the turn. Other keys have no effect.
    """

    session_id: str | None = None


class AnswerRequest(UnstoredBody):
    """Base of OpenAI's requests for an answer: the model and its options, and the session in
    ``metadata``.
    """

    model: str = Field(min_length=1, description="Model of Ollama, or `agent:NAME`.")
    stream: bool | None = Field(None, description="Stream the answer.")
    metadata: Metadata | None = Field(None, description="`session_id` is the session of the turn.")
    temperature: float | None = Field(None, ge=0, le=2, description="Sampling temperature.")
    top_p: float | None = Field(
        None, ge=0, le=1, description="Nucleus sampling: cumulative probability of candidates."
    )
    frequency_penalty: float | None = Field(
        None, ge=-2, le=2, description="Penalty for frequent tokens."
    )
    presence_penalty: float | None = Field(
        None, ge=-2, le=2, description="Penalty for tokens that already occurred."
    )
    seed: int | None = Field(
        None, ge=-(2**63), lt=2**63, description="The same seed and request give the same answer."
    )
    stop: str | Items[str] | None = Field(
        None, description="Stop sequences. The answer ends before them."
    )
    top_k: int | None = Field(
        None, ge=0, description="Number of candidates for the next token. Not in OpenAI's API."
    )
    min_p: float | None = Field(
        None, ge=0, le=1, description="Minimum probability of candidates. Not in OpenAI's API."
    )
    repeat_penalty: float | None = Field(
        None, ge=0, allow_inf_nan=False, description="Penalty. Not in OpenAI's API."
    )
    reasoning_effort: Effort | None = Field(
        None, description="Level of reasoning of a model that can think."
    )
    reasoning: ReasoningOptions | None = Field(
        None, description="`effort` overrides `reasoning_effort`."
    )
    think: ThinkLevel | None = Field(
        None, description="Ollama's name of `reasoning_effort`, which overrides it."
    )
    keep_alive: KeepAlive = None
    options: RejectedOption = Field(
        None, description="Not supported. Use the fields of this request."
    )
    num_ctx: RejectedOption = Field(
        None, description="Not supported. The server sets the context window."
    )
    n: Annotated[int | None, allow(1, reason="Ollama gives one answer")] = Field(
        None, description="Only 1 is supported."
    )
    logit_bias: Annotated[dict[str, Any] | None, allow({})] = Field(
        None, description="Only `{}` is supported."
    )
    format: Unsupported = None

    def session_id(self, headers: MochiHeaders) -> str | None:
        """Return the ID of the session. Raises ``SessionNotFound`` for an empty ID."""
        session_id = (
            self.metadata.session_id
            if headers.session is None and self.metadata
            else headers.session
        )
        if session_id == "":
            raise SessionNotFound("")
        return session_id

    def turn(
        self,
        headers: MochiHeaders,
        tools: ToolSelection,
        *,
        limit: int | None,
        answer_format: str | dict[str, Any] | None = None,
        logprobs: int | None = None,
    ) -> TurnInput:
        """Return the turn without its messages.

        ``limit`` is the maximum number of tokens of the answer.
        """
        options = self.model_dump(include=set(_SAMPLING), exclude_none=True)
        if limit:
            options["num_predict"] = limit
        if stop := [self.stop] if isinstance(self.stop, str) else self.stop:
            options["stop"] = stop
        effort = (self.reasoning and self.reasoning.effort) or self.reasoning_effort
        generation = GenerationOptions(
            think=self.think if effort is None else THINK.get(effort, effort),
            options=options or None,
            format=answer_format,
            keep_alive=self.keep_alive,
            thinks_by_default=True,
            logprobs=logprobs,
        )
        return headers.turn(self.model, generation, tools)


class MochiExtension(BaseModel):
    """Results that other providers do not have.

    ``notices`` are ``warning`` and ``context_compacted`` events.
    """

    context_window: dict[str, Any]
    tool_calls_executed: list[ToolCallExecuted]
    notices: list[dict[str, Any]]


class FrontendOptions(Body):
    """Options of a turn. Unknown fields are ignored."""

    think: Think = None
    options: Options | None = Field(
        default=None, description="Ollama's options. They override the session's options."
    )
    format: Format | None = Field(
        default=None, description="Format of the answer: `json` or a JSON schema."
    )
    keep_alive: KeepAlive = Field(
        default=None, description="How long Ollama keeps the model loaded."
    )
    on_disconnect: OnDisconnect = "cancel"

    @property
    def generation(self) -> GenerationOptions:
        return GenerationOptions(self.think, self.options, self.format, self.keep_alive)


def tool_selection(
    headers: MochiHeaders,
    client_tools: list[dict[str, Any]] | None = None,
    choice: str | NamedFunction | AllowedFunctions | None = None,
    *,
    parallel: bool | None = None,
) -> ToolSelection:
    """Return the tools of a request.

    ``choice`` is a word such as `required`, a function, or the allowed functions.
    """
    only = frozenset([choice.name]) if isinstance(choice, NamedFunction) else None
    must_call = choice == "required" or only is not None
    if isinstance(choice, AllowedFunctions):
        only, must_call = (
            frozenset(function.name for function in choice.tools),
            choice.mode == "required",
        )
    return ToolSelection(
        names=headers.tool_names,
        client_tools=client_tools or (),
        may_call=choice != "none",
        must_call=must_call,
        only=only,
        parallel=parallel is not False,
    )


_CODES = {
    Unauthorized.code: "invalid_api_key",
    ContextOverflow.code: "context_length_exceeded",
    AgentNotFound.code: "model_not_found",
}
"""Mapping of this server's error codes to OpenAI's error codes. Other codes are sent in lower case.
"""

OPENAI_DONE = b"data: [DONE]\n\n"
"""Server-sent event that ends a stream."""


class OpenAIError(BaseModel):
    """An error. ``code`` is meant for programs. ``param`` is the invalid field."""

    message: str
    type: str
    param: str | None = None
    code: str


class OpenAIErrorEnvelope(BaseModel):
    """Response body of every error of the routes under `/v1`."""

    error: OpenAIError


def http_status(error: MochiError) -> int:
    """Return the HTTP status of an error in a completion: 400 for 422, and for a busy Ollama the
    status it sent.
    """
    if isinstance(error, OllamaBusy):
        return int(error.details["upstream_status"])
    return 400 if error.status == 422 else error.status


def openai_error(error: MochiError) -> dict[str, Any]:
    """Return an error in OpenAI's format, for an error response or as the last chunk of a failed
    stream.
    """
    message, code, param = error.message, _CODES.get(error.code, error.code.lower()), None
    if isinstance(error, ValidationFailed):
        message, code, param = _first_problem(error)
    elif "model" in error.details or isinstance(error, AgentNotFound):
        param = "model"
    return {
        "error": {
            "message": message,
            "type": _type(http_status(error)),
            "param": param,
            "code": code,
        }
    }


def _type(status: int) -> str:
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return "rate_limit_error"
    return "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"


def openai_body(error: MochiError) -> bytes:
    return json.dumps(openai_error(error), default=str).encode()


def openai_stream_error(error: MochiError) -> bytes:
    """Return the server-sent events that report ``error`` and end a stream."""
    return b"data: %s\n\n" % openai_body(error) + OPENAI_DONE


OPENAI_ERRORS = ErrorFormat(
    OpenAIErrorEnvelope, lambda error: (http_status(error), openai_body(error))
)


def _first_problem(error: ValidationFailed) -> tuple[str, str, str | None]:
    problems = error.details.get("errors")
    if not problems:
        return error.message, "invalid_request", None
    first = problems[0]
    if first["type"] == "json_invalid":
        return "The body is not valid JSON.", "invalid_json", None
    path = _path(first["loc"][1:])
    # A field with a union type has one problem per member of the union.
    text = "; ".join(
        dict.fromkeys(problem["msg"] for problem in problems if _path(problem["loc"][1:]) == path)
    )
    code = "missing_required_parameter" if first["type"] == "missing" else "invalid_value"
    return f"{path}: {text}" if path else text, code, path or None


def _path(location: Sequence[str | int]) -> str:
    """Return the path of a field in OpenAI's notation, such as ``messages[0].content``."""
    return "".join(
        f"[{step}]" if isinstance(step, int) else f".{step}" for step in location
    ).removeprefix(".")
