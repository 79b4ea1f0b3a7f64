"""Schemas of Ollama's models."""

from pydantic import BaseModel


class Model(BaseModel):
    """A chat model. ``size_mb`` is in units of 1024 * 1024 bytes. ``context_length`` is in tokens."""

    name: str
    size_mb: float
    format: str
    family: str
    parameter_size: str
    quantization_level: str
    capabilities: list[str]
    context_length: int | None


class ModelList(BaseModel):
    """All chat models, in Ollama's order."""

    models: list[Model]
