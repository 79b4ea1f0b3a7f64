"""Deterministic LLM server with the APIs of Ollama, OpenAI, Anthropic and Gemini. Submodules load on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mochi_stub.config.yaml_source import ConfigError
    from mochi_stub.journal import Exchange
    from mochi_stub.models.catalogue import DEFAULT_MODELS, Model, Remote
    from mochi_stub.models.scheduler import Machine
    from mochi_stub.prompt import Message, Prompt, ToolCall
    from mochi_stub.reply import (
        Choice,
        Cut,
        Durations,
        Failure,
        Gate,
        Logprob,
        Pace,
        Pause,
        Reasoning,
        Reply,
        Text,
        ToolCalls,
        Usage,
    )
    from mochi_stub.server import StubServer

_MODULES = {  # modules of the exported names; `reply` has all other names
    **dict.fromkeys(("DEFAULT_MODELS", "Model", "Remote"), "models.catalogue"),
    **dict.fromkeys(("Message", "Prompt", "ToolCall"), "prompt"),
    "ConfigError": "config.yaml_source",
    "Exchange": "journal",
    "Machine": "models.scheduler",
    "StubServer": "server",
}

__all__ = ["DEFAULT_MODELS", "ConfigError", "Exchange", "Machine", "Message", "Model", "Prompt", "Remote", "StubServer"]
__all__ += ["Choice", "Cut", "Durations", "Failure", "Gate", "Logprob", "Pace", "Pause", "Reasoning", "Reply", "Text"]
__all__ += ["ToolCall", "ToolCalls", "Usage"]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"mochi_stub.{_MODULES.get(name, 'reply')}"), name)
