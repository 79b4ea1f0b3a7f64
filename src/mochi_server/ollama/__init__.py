"""Clients of Ollama."""

from mochi_server.ollama.async_client import AsyncInstructorOllamaClient, AsyncOllamaClient
from mochi_server.ollama.client import OllamaClient
from mochi_server.ollama.types import (
    ChatMessage,
    ChatResponse,
    ModelDetails,
    ModelInfo,
    ReceivedMessage,
)

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
