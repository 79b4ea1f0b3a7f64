"""Schemas of the health checks."""

from typing import Literal

from pydantic import BaseModel


class Health(BaseModel):
    """State of the server. ``status`` is always ``ok``. ``ollama_connected`` is true if Ollama responds."""

    status: Literal["ok"] = "ok"
    ollama_connected: bool
    ollama_host: str
    version: str


class Alive(BaseModel):
    """The process responds."""

    status: Literal["alive"] = "alive"


class Ready(BaseModel):
    """The server accepts new turns and can store them."""

    status: Literal["ready"] = "ready"
