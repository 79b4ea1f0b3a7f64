"""Clients of Ollama."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mochi_server.ollama.async_client import AsyncInstructorOllamaClient, AsyncOllamaClient
from mochi_server.ollama.client import OllamaClient
from mochi_server.ollama.types import (
    ChatMessage,
    ChatResponse,
    ModelInfo,
    ReceivedMessage,
)

if TYPE_CHECKING:
    from mochi_server.ollama.library import ModelDetails

__all__ = [
    "AsyncInstructorOllamaClient",
    "AsyncOllamaClient",
    "ChatMessage",
    "ChatResponse",
    "ModelDetails",
    "ModelInfo",
    "OllamaClient",
    "ReceivedMessage",
]


def __getattr__(name: str) -> Any:
    if name != "ModelDetails":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("mochi_server.ollama.library").ModelDetails
