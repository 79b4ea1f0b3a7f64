"""Talking to Ollama, and nothing else."""

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
    """Load a client, and its HTTP library, on first use."""
    if name == "OllamaClient":
        from mochi_server.ollama.client import OllamaClient  # noqa: PLC0415

        return OllamaClient
    if name in ("AsyncOllamaClient", "AsyncInstructorOllamaClient"):
        from mochi_server.ollama import async_client  # noqa: PLC0415

        return getattr(async_client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
