"""Responses of OpenAI's API with completions and models."""

from typing import Any, Literal

from mochi_server.protocols.schemas import MochiExtension
from mochi_server.schemas.common import Schema

_FinishReason = Literal["stop", "length", "tool_calls"]


class OpenAIModel(Schema):
    """A possible value of ``model`` in a request.

    ``created`` is the time of its last change, in seconds since 1970.
    """

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "mochi-server"


class OpenAIModelList(Schema):
    """All models: first the chat models of Ollama, then its other models, then the agents."""

    object: Literal["list"] = "list"
    data: list[OpenAIModel]


class CalledFunction(Schema):
    """Function of a tool call. ``arguments`` is JSON text."""

    name: str
    arguments: str


class CalledTool(Schema):
    """A tool call for the client to run."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class CompletionMessage(Schema):
    """The answer.

    If the model reasoned, ``reasoning_content`` and ``reasoning`` both contain the same reasoning.
    """

    role: Literal["assistant"]
    content: str | None
    refusal: str | None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[CalledTool] | None = None


class ChoiceLogprobs(Schema):
    """Log probabilities of the tokens of the answer, if the request sets ``logprobs``."""

    content: list[dict[str, Any]]
    refusal: None


class Choice(Schema):
    """The answer of a completion. A completion has exactly one choice."""

    index: int
    message: CompletionMessage
    logprobs: ChoiceLogprobs | None
    finish_reason: _FinishReason


class PromptTokensDetails(Schema):
    """Number of prompt tokens that were in Ollama's cache.

    It is null if Ollama does not report it.
    """

    cached_tokens: int | None


class Usage(Schema):
    """Ollama's token counts, summed over all requests of the turn."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class _Answer(Schema):
    id: str
    created: int
    model: str
    usage: Usage
    mochi: MochiExtension


class Completion(_Answer):
    """A complete answer."""

    object: Literal["chat.completion"]
    choices: list[Choice]


class TextChoice(Schema):
    """The answer of a text completion. A completion has exactly one choice."""

    index: int
    text: str
    logprobs: None
    finish_reason: _FinishReason


class TextCompletion(_Answer):
    """A complete answer as text."""

    object: Literal["text_completion"]
    choices: list[TextChoice]
