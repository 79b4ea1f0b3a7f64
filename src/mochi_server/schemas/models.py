"""Schemas of Ollama's models and of their comparison."""

from typing import Annotated, Any, Literal, get_args

from pydantic import ConfigDict, Field, WithJsonSchema

from mochi_server.constants import MAX_MESSAGE_CHARS
from mochi_server.errors import InvalidComparison, ValidationFailed
from mochi_server.ollama.types import ChatMessage
from mochi_server.schemas.common import EventUnion, Schema, StrictBody, Text
from mochi_server.services.compare import MAX_MODELS, CompareEvent, CompareService, Comparison
from mochi_server.sessions.settings import Options
from mochi_server.sessions.types import Think
from mochi_server.util.validation import NOT_BLANK, Items


class Model(Schema):
    """A chat model.

    ``size_mb`` is in units of 1024 * 1024 bytes. ``context_length`` is in tokens.
    """

    name: str
    size_mb: float
    format: str
    family: str
    parameter_size: str
    quantization_level: str
    capabilities: list[str]
    context_length: int | None
    hosts: list[str] = Field(
        default_factory=list,
        description="Names of the Ollama hosts that have the model, if several are configured.",
    )


class ModelList(Schema):
    """All chat models, in Ollama's order."""

    models: list[Model]


_MODEL_IDS = {
    "description": "Names of models, or their positions in the list of models, starting at 1.",
    "type": "array",
    "minItems": 1,
    "maxItems": MAX_MODELS,
    "items": {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 1}]},
}
_MESSAGE = {
    "description": "Message to each model.",
    "type": "string",
    "maxLength": MAX_MESSAGE_CHARS,
    **NOT_BLANK,
}


class HistoryMessage(StrictBody):
    """An earlier message of the conversation."""

    role: Literal["system", "user", "assistant"]
    content: Text


class CompareRequest(StrictBody):
    """One prompt for one to three models.

    Each model is a name, or a position in the list of models, starting at 1.
    """

    # Both fields are required. pydantic does not check that, because missing fields must return 400
    # instead of 422.
    model_config = ConfigDict(
        json_schema_extra={
            "required": ["modelIds", "message"],
            "examples": [
                {"modelIds": ["qwen3:14b", 2], "message": "What is the capital of France?"}
            ],
        }
    )

    modelIds: Annotated[Any, WithJsonSchema(_MODEL_IDS)] = None
    message: Annotated[Any, WithJsonSchema(_MESSAGE)] = None
    systemPrompt: Text | None = Field(None, description="System message.")
    chatHistory: Items[HistoryMessage] | None = Field(
        None, description="Earlier messages of the conversation."
    )
    think: Think = None
    options: Options | None = Field(
        None, description="Ollama's options, such as `temperature` or `seed`."
    )

    async def comparison(self, service: CompareService) -> Comparison:
        """Admit the comparison, and return the validated request.

        Raises ``InvalidComparison``, ``ValidationFailed`` and the errors of ``service``.
        """
        if not isinstance(self.message, str) or not self.message.strip():
            raise InvalidComparison("message is required")
        if len(self.message) > MAX_MESSAGE_CHARS:
            raise ValidationFailed(f"message must have at most {MAX_MESSAGE_CHARS} characters.")
        messages: list[ChatMessage] = []
        if self.systemPrompt and self.systemPrompt.strip():
            messages.append({"role": "system", "content": self.systemPrompt})
        for message in self.chatHistory or ():
            messages.append({"role": message.role, "content": message.content})
        messages.append({"role": "user", "content": self.message})
        ticket = service.admit()
        models = await service.find(self.modelIds)
        return Comparison(
            models=models,
            messages=messages,
            think=self.think,
            options=self.options or {},
            ticket=ticket,
        )


COMPARE_EVENTS = EventUnion(
    "CompareStreamEvent",
    "Event of a comparison. `data` is JSON.",
    get_args(CompareEvent),
    last="complete",
    prefix="Compare",
)
