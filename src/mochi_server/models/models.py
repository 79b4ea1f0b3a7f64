"""Schemas of Ollama's models."""

from pydantic import BaseModel

from mochi_server.ollama.types import ModelInfo


class Model(BaseModel):
    """A model that can chat. ``size_mb`` is in units of 1024 * 1024 bytes, ``context_length`` in tokens."""

    name: str
    size_mb: float
    format: str
    family: str
    parameter_size: str
    quantization_level: str
    capabilities: list[str]
    context_length: int | None

    @classmethod
    def of(cls, info: ModelInfo) -> "Model":
        return cls.model_validate(info, from_attributes=True)


class ModelList(BaseModel):
    """All models that can chat, in Ollama's order."""

    models: list[Model]
