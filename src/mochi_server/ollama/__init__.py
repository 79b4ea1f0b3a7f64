"""Clients of Ollama. The client modules and their HTTP libraries are imported on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mochi_server.ollama.types import ChatMessage, ChatResponse, ModelDetails, ModelInfo, ReceivedMessage

if TYPE_CHECKING:
    from mochi_server.ollama.async_client import AsyncInstructorOllamaClient, AsyncOllamaClient
    from mochi_server.ollama.client import OllamaClient

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
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{'client' if name == 'OllamaClient' else 'async_client'}"), name)
