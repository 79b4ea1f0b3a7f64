"""Schemas of the text completions of OpenAI's API (`/v1/completions`)."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from mochi_server.models.common import Text
from mochi_server.models.openai import CompletionRequest, MochiHeaders, SamplingFields, StreamOptions, TokenLimit
from mochi_server.models.openai_messages import Items, Unsupported, allow
from mochi_server.models.openai_responses import Besides, Usage
from mochi_server.openai.errors import renaming_parameters
from mochi_server.openai.request_mapping import CompletionInput

TEXT_PARAMETERS = {"messages": "prompt"}
"""Mapping of field names in chat completion requests to the names of the same fields in text completion requests."""


class TextCompletionRequest(SamplingFields):
    """A prompt to complete. The model receives it as a user message. Unknown fields are ignored."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"model": "qwen3:14b", "prompt": "Once upon a time"}]})

    model: str = Field(min_length=1, description="Model of Ollama, or `agent:NAME`.")
    prompt: Text | Annotated[Items[Text], Field(min_length=1, max_length=1)] = Field(
        description="The prompt, or a list of one prompt."
    )
    stream: bool | None = Field(None, description="Stream the answer in chunks.")
    stream_options: StreamOptions | None = Field(None, description="`include_usage` adds a chunk with token counts.")
    max_tokens: TokenLimit | None = Field(
        None, description="Maximum tokens of the answer, with reasoning. -1 sets no limit."
    )
    n: Annotated[int | None, allow(1)] = Field(None, description="Only 1 is supported.")
    best_of: Annotated[int | None, allow(1)] = Field(None, description="Only 1 is supported.")
    echo: Annotated[bool | None, allow(False)] = Field(None, description="Only `false` is supported.")
    suffix: Annotated[str | None, allow("")] = Field(None, description="Only an empty text is supported.")
    logprobs: Annotated[Any, allow()] = Field(None, description="Not supported.")
    response_format: Unsupported = None
    logit_bias: Annotated[dict[str, Any] | None, allow({})] = Field(None, description="Only `{}` is supported.")

    async def to_input(self, headers: MochiHeaders) -> CompletionInput:
        """Return the input of the completion. Raises the errors of ``CompletionRequest.to_input``."""
        prompt = self.prompt if isinstance(self.prompt, str) else self.prompt[0]
        with renaming_parameters(TEXT_PARAMETERS):
            fields = {"model": self.model, "max_tokens": self.max_tokens}
            messages = [{"role": "user", "content": prompt}]
            request = CompletionRequest.model_validate({**self.shared_fields(), **fields, "messages": messages})
            return await request.to_input(headers)


class TextChoice(BaseModel):
    """The answer of a text completion. A completion has exactly one choice."""

    index: int
    text: str
    logprobs: None
    finish_reason: Literal["stop", "length", "tool_calls"]


class TextCompletion(BaseModel):
    """A complete answer as text."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: Usage
    mochi: Besides
