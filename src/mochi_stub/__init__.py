"""Deterministic LLM server with the APIs of Ollama, OpenAI, Anthropic and Gemini.

The modules of the exported names load on first use.

The way of an answer: `server` runs `aiohttp.web`. `app` receives a request and finds its handler in
`providers`. The handler converts the body to a `Prompt` and loads the model. `provider_pipeline`
shortens the prompt, and `resolver` selects the `Reply`. The encoder of the provider encodes the
pieces of the reply, and `app` sends them at their times.

A new API is a module in `providers`, a new built-in reply is an entry of `BUILT_IN` in
`replies/built_in.py`, and a new key of the configuration is a field in `config/entries.py`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mochi_stub.journal import Exchange
    from mochi_stub.models import Model, Remote
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
    from mochi_stub.yaml_file import ConfigError

# The modules that define the exported names. The first ones load fastest.
_MODULES = ("prompt", "reply", "models", "models.scheduler", "yaml_file", "journal", "server")

__all__ = [
    "ConfigError",
    "Exchange",
    "Machine",
    "Message",
    "Model",
    "Prompt",
    "Remote",
    "StubServer",
]
__all__ += [
    "Choice",
    "Cut",
    "Durations",
    "Failure",
    "Gate",
    "Logprob",
    "Pace",
    "Pause",
    "Reasoning",
    "Reply",
    "Text",
]
__all__ += ["ToolCall", "ToolCalls", "Usage"]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    for module in _MODULES if name in __all__ else ():
        value = getattr(import_module(f"mochi_stub.{module}"), name, None)
        if value is not None:
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
