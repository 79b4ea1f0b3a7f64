"""Schema of the health check."""

from typing import Literal

from pydantic import BaseModel


class Health(BaseModel):
    """The server serves, or there would be no answer; Ollama's state is ``ollama_connected`` alone."""

    status: Literal["ok"] = "ok"
    ollama_connected: bool
    ollama_host: str
    version: str
