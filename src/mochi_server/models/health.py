"""Schemas of the health checks."""

from typing import Literal

from pydantic import BaseModel


class Health(BaseModel):
    """The server serves, or there would be no answer; Ollama's state is ``ollama_connected`` alone."""

    status: Literal["ok"] = "ok"
    ollama_connected: bool
    ollama_host: str
    version: str


class Alive(BaseModel):
    """The process serves."""

    status: Literal["alive"] = "alive"


class Ready(BaseModel):
    """New turns are taken, and what they bring can be stored."""

    status: Literal["ready"] = "ready"
