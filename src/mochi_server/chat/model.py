"""One model as one turn talks to it: window, options and thinking are decided here, once, for every round."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from mochi_server.chat.history import wire_messages
from mochi_server.events import ChatEvent, TurnWarning
from mochi_server.ollama.async_client import AsyncOllamaClient
from mochi_server.ollama.requests import chat_payload
from mochi_server.ollama.stream import Line
from mochi_server.ollama.types import ModelInfo
from mochi_server.services.context_window import WindowDecision, WindowRegistry
from mochi_server.sessions.session import ChatSession, previous_model
from mochi_server.sessions.types import Message


@dataclass(frozen=True, slots=True)
class Wishes:
    """How an answer is wanted; None leaves it to the session's defaults, and then to the model."""

    think: bool | str | None = None
    options: dict[str, Any] | None = None
    format: str | dict[str, Any] | None = None
    keep_alive: str | float | None = None


class ChatModel:
    """The model of a session, for one turn."""

    def __init__(
        self,
        client: AsyncOllamaClient,
        windows: WindowRegistry,
        info: ModelInfo,
        session: ChatSession,
        wishes: Wishes,
    ) -> None:
        defaults = session.metadata
        self.name = session.model
        self._client = client
        self._info = info
        self._think = wishes.think if wishes.think is not None else defaults.think
        self._options = {**(defaults.options or {}), **(wishes.options or {})}
        self._format = wishes.format if wishes.format is not None else defaults.format
        self._keep_alive = wishes.keep_alive if wishes.keep_alive is not None else defaults.keep_alive
        self.window: WindowDecision = windows.decide(
            info, defaults.context_window_config, session.session_id, previous_model(session.messages)
        )

    def warnings(self, tools: Sequence[Any]) -> list[ChatEvent]:
        """What was wished for and the model cannot do."""
        found: list[ChatEvent] = []
        if self._think and not self._info.can("thinking"):
            found.append(
                TurnWarning("THINKING_NOT_SUPPORTED", f"Model {self.name!r} cannot think; it answers without.")
            )
        if tools and not self._info.can("tools"):
            found.append(
                TurnWarning("TOOLS_NOT_SUPPORTED", f"Model {self.name!r} cannot use tools; it answers without.")
            )
        return found

    async def ask(
        self, messages: Sequence[Message], tools: list[dict[str, Any]], turn_begins: int
    ) -> AsyncGenerator[list[Line] | ChatEvent, None]:
        """One answer to a history, in batches of lines; events for the client come between them.

        ``turn_begins`` is the position of the user message being answered.
        """
        payload = chat_payload(
            self.name,
            wire_messages(messages, turn_begins),
            tools=tools if self._info.can("tools") else None,
            think=(self._think or False) if self._info.can("thinking") else None,
            context_window=self.window.window,
            options=self._options,
            format=self._format,
            keep_alive=self._keep_alive,
        )
        async with aclosing(self._client.chat_lines(payload)) as batches:
            async for lines in batches:
                yield lines
