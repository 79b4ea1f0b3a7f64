"""Schemas of what OpenAI's API answers."""

from typing import Any, Literal

from pydantic import BaseModel

from mochi_server.models.chat import ToolCallExecuted


class OpenAIModel(BaseModel):
    """Something that can be asked for as ``model``. ``created`` is not known, and 0."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "mochi-server"


class OpenAIModelList(BaseModel):
    """All of them: Ollama's models first, then agents."""

    object: Literal["list"] = "list"
    data: list[OpenAIModel]


class CalledFunction(BaseModel):
    """The function of a call; ``arguments`` are JSON."""

    name: str
    arguments: str


class CalledTool(BaseModel):
    """A call that the client carries out."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class CompletionMessage(BaseModel):
    """The answer. ``reasoning_content`` and ``reasoning`` are the same, and there when the model has thought."""

    role: Literal["assistant"]
    content: str | None
    refusal: str | None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[CalledTool] | None = None


class Choice(BaseModel):
    """The only one."""

    index: int
    message: CompletionMessage
    logprobs: None
    finish_reason: Literal["stop", "length", "tool_calls"]


class Usage(BaseModel):
    """Tokens as Ollama counted them, of all requests that the turn took."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Besides(BaseModel):
    """What OpenAI's API has no place for: the window, what tools of this server did, and what the user should know."""

    context_window: dict[str, Any]
    tool_calls_executed: list[ToolCallExecuted]
    notices: list[dict[str, Any]]


class Completion(BaseModel):
    """An answer, whole."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: Usage
    mochi: Besides


class OpenAIError(BaseModel):
    """What went wrong. ``code`` is for programs, ``param`` the field that it is about."""

    message: str
    type: str
    param: str | None = None
    code: str


class OpenAIErrorEnvelope(BaseModel):
    """The body of every error of these routes."""

    error: OpenAIError
