"""Comparison of models: several models answer one prompt in sequence.

The server stores no answers.
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import urlsplit

from mochi_server.errors import InvalidComparison, MochiError, ModelNotFound, ShuttingDown
from mochi_server.inference.answer_repair import AnswerRepair, Piece
from mochi_server.inference.gateway import ModelGateway
from mochi_server.inference.requests import AnswerReport, FixedPrompt, ModelRequest
from mochi_server.inference.token_estimate import PromptSize
from mochi_server.inference.waiting import Ticket
from mochi_server.ollama.payloads import chat_payload
from mochi_server.ollama.transport import Line
from mochi_server.ollama.types import ChatMessage, ModelInfo
from mochi_server.services.usage import TurnLimiter
from mochi_server.util.tasks import run_shielded

MAX_MODELS = 3

_LAST_EVENTS_SECONDS = 0.3
"""Maximum wait until clients have received the last events during a shutdown."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """Name and provider of the model that answers next."""

    modelId: str
    modelName: str
    provider: str
    type: ClassVar[str] = "metadata"


@dataclass(frozen=True, slots=True)
class Start:
    """Event: the server sends the request to the model."""

    modelId: str
    type: ClassVar[str] = "start"


@dataclass(frozen=True, slots=True)
class Chunk:
    """Part of a model's response."""

    modelId: str
    delta: str
    type: ClassVar[str] = "chunk"


@dataclass(frozen=True, slots=True)
class ThinkingChunk(Chunk):
    """Part of a model's thinking, which is not part of the response."""

    kind: str = "thinking"


@dataclass(frozen=True, slots=True)
class End:
    """Event: the model has completed its response."""

    modelId: str
    type: ClassVar[str] = "end"


@dataclass(frozen=True, slots=True)
class Answered:
    """Complete response of a model. Times are in milliseconds. Token counts come from Ollama.

    The first chunks may contain text that turned out to be thinking. ``response`` does not.
    """

    modelId: str
    response: str
    inputTokens: int | None
    outputTokens: int | None
    firstTokenMs: float | None
    totalMs: float
    tokensPerSecond: float | None
    type: ClassVar[str] = "done"


@dataclass(frozen=True, slots=True)
class Failed:
    """Event: the model has failed. The server sends no further events for this model."""

    modelId: str
    error: str
    type: ClassVar[str] = "error"


@dataclass(frozen=True, slots=True)
class Complete:
    """Last event: all models have completed or failed."""

    message: str = "All models completed"
    type: ClassVar[str] = "complete"


CompareEvent = Metadata | Start | Chunk | ThinkingChunk | End | Answered | Failed | Complete


@dataclass(frozen=True)
class Comparison:
    """Validated request for a comparison.

    ``models`` contains pairs of a requested ID and its model.
    """

    models: Sequence[tuple[str, ModelInfo]]
    messages: list[ChatMessage]
    think: bool | str | None
    options: Mapping[str, Any]
    ticket: Ticket = field(default_factory=Ticket)
    hosts: list[str] = field(default_factory=list)
    """Names of the hosts of earlier models. The next model avoids them."""


@dataclass(eq=False)
class CompareService:
    """Service that compares models.

    At shutdown, running comparisons get ``shutdown_grace`` seconds to end.
    """

    gateway: ModelGateway
    limiter: TurnLimiter
    shutdown_grace: float = 5
    repairs_answers: bool = True
    _is_draining: bool = False
    _is_cancelling: bool = False
    _running: "dict[asyncio.Future[None], asyncio.Task[None]]" = field(default_factory=dict)
    """Task of each comparison.

    The key is a future that completes when the client has received all events.
    """

    def admit(self) -> Ticket:
        """Admit a comparison.

        Raises ``ShuttingDown``, and ``OllamaBusy`` if too many requests wait.
        """
        if self._is_draining:
            raise ShuttingDown
        return self.gateway.admit()

    async def find(self, model_ids: object) -> list[tuple[str, ModelInfo]]:
        """Return each ID as text of at most 200 characters, with its model.

        An ID is a model name or a position in the list of models, from 1. Raises
        ``InvalidComparison``, also for an unknown model, and the errors of Ollama.
        """
        if not isinstance(model_ids, list) or not model_ids:
            raise InvalidComparison("modelIds must be a non-empty array")
        if len(model_ids) > MAX_MODELS:
            raise InvalidComparison(f"maximum {MAX_MODELS} models allowed")
        if all(model_id == "" for model_id in model_ids):
            raise InvalidComparison("at least 1 model required")
        found = []
        for model_id in model_ids:
            model = await self._model(model_id)
            found.append((_display_name(model_id), model))
        return found

    async def start(self, comparison: Comparison) -> AsyncGenerator[CompareEvent, None]:
        """Run the models one after another in the requested order, and return an iterator over
        their events.

        A failed model does not affect the others. The caller must iterate over the events. Closing
        the iterator before its end cancels the comparison. Raises ``RateLimited`` and
        ``StorageFailed``.
        """
        events: asyncio.Queue[CompareEvent | None] = asyncio.Queue()
        async with AsyncExitStack() as stack:
            count_start = await stack.enter_async_context(self.limiter.turn())
            count_start()
            turn = stack.pop_all()  # the task ends the turn
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._compare(comparison, events.put_nowait, turn))
        task.add_done_callback(lambda _: events.put_nowait(None))
        received: asyncio.Future[None] = loop.create_future()
        # Runs after the first step of the task. A task that is cancelled before its first step
        # would not end the turn.
        loop.call_soon(self._running.__setitem__, received, task)
        return self._received(events, task, received)

    async def _received(
        self,
        events: "asyncio.Queue[CompareEvent | None]",
        task: "asyncio.Task[None]",
        received: "asyncio.Future[None]",
    ) -> AsyncGenerator[CompareEvent, None]:
        try:
            while (event := await events.get()) is not None:
                yield event
            if not task.cancelled():
                task.result()
        finally:
            task.cancel()
            try:
                await run_shielded(asyncio.wait({task}))
            finally:  # anyio repeats a cancellation, here after a disconnect
                del self._running[received]
                received.set_result(None)

    async def drain(self) -> None:
        """Refuse new comparisons, wait at most ``shutdown_grace`` seconds for running ones, then
        cancel the rest.
        """
        self._is_draining = True
        if self._running:
            await asyncio.wait(self._running, timeout=self.shutdown_grace)
        await self.end_all()

    async def end_all(self) -> None:
        """Cancel running comparisons, and wait until clients have received their last events, at
        most for ``_LAST_EVENTS_SECONDS``.

        Each model that has not answered gets an ``error`` event.
        """
        self._is_draining = self._is_cancelling = True
        for task in self._running.values():
            task.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=_LAST_EVENTS_SECONDS)

    async def _compare(
        self,
        comparison: Comparison,
        send: Callable[[CompareEvent], None],
        turn: AsyncExitStack,
    ) -> None:
        async with turn:
            for model_id, model in comparison.models:
                send(Metadata(model_id, model.name, _provider(model)))
                send(Start(model_id))
                try:
                    if self._is_cancelling:
                        raise ShuttingDown
                    await self._answer(model_id, model, comparison, send)
                except MochiError as error:
                    send(Failed(model_id, error.message))
                except asyncio.CancelledError:
                    if not self._is_cancelling:  # the client has disconnected
                        raise
                    send(Failed(model_id, ShuttingDown(was_running=True).message))
            send(Complete())

    async def _model(self, model_id: object) -> ModelInfo:
        invalid = InvalidComparison(f"Invalid model ID: {_display_name(model_id)}")
        if isinstance(model_id, str) and not model_id.isdigit():
            try:
                return await self.gateway.find_model(model_id)
            except ModelNotFound as error:
                raise invalid from error
        models = await self.gateway.fleet.list_models()
        for position, model in enumerate(models, 1):
            if str(position) == str(model_id):  # an integer, or a string of digits
                return model
        raise invalid

    async def _answer(
        self,
        model_id: str,
        model: ModelInfo,
        comparison: Comparison,
        send: Callable[[CompareEvent], None],
    ) -> None:
        think = (comparison.think or False) if model.has_capability("thinking") else None
        characters = sum(len(message["content"]) for message in comparison.messages)
        request = ModelRequest(
            allocation=self.gateway.allocate(model),
            payload=chat_payload(model.name, (), think=think, options=comparison.options),
            prompt=FixedPrompt(comparison.messages, PromptSize(characters)),
            avoid=comparison.hosts,
            ticket=comparison.ticket,
        )
        reader, answer = await self._read(request, model_id, send)
        if reader.is_empty:  # Ollama may only have loaded the model
            reader, answer = await self._read(request, model_id, send)
        comparison.hosts.append(answer.host)
        send(End(model_id))
        send(reader.answered())

    async def _read(
        self, request: ModelRequest, model_id: str, send: Callable[[CompareEvent], None]
    ) -> tuple["_ResponseReader", AnswerReport]:
        """Send a request, and read the response to its end."""
        repair = AnswerRepair(()) if self.repairs_answers else None
        reader = _ResponseReader(model_id, send, repair)
        answer = await self.gateway.send(request, reader.receive)
        reader.finish()
        return reader, answer


class _ResponseReader:
    """Reader of a model's response, which sends it in parts.

    ``repair`` finds reasoning that the model has written as text.
    """

    def __init__(
        self, model_id: str, send: Callable[[CompareEvent], None], repair: AnswerRepair | None
    ) -> None:
        self._model_id = model_id
        self._send = send
        self._repair = repair
        self._began = time.monotonic()
        self._first_received = 0.0
        self._response = ""
        self._thinking = ""  # of the field `thinking`
        self._read_thinking = ""  # reasoning that the repair has read from the text
        self._last_line: Line = {}

    def receive(self, lines: list[Line]) -> None:
        self._first_received = self._first_received or time.monotonic()
        self._last_line = lines[-1]
        for line in lines:
            thinking = _text_in(line, "thinking")
            if thinking:
                self._thinking += thinking
                self._send(ThinkingChunk(self._model_id, thinking))
            content = _text_in(line, "content")
            if content:
                self._add_content(content)

    def finish(self) -> None:
        """Add the text that was held back, because it could have been a tag or a call."""
        if self._repair is not None:
            is_cut = self._last_line.get("done_reason") == "length"
            for piece in self._repair.finish_without_calls(is_cut=is_cut):
                self._add(piece)

    @property
    def is_empty(self) -> bool:
        """Whether the model has sent no text."""
        return not (self._response or self._thinking or self._read_thinking)

    def answered(self) -> Answered:
        """Return the complete response."""
        tokens = self._last_line.get("eval_count")
        nanoseconds = self._last_line.get("eval_duration")
        speed = None
        if tokens and nanoseconds:
            speed = round(tokens / nanoseconds * 1e9, 2)
        first_token = self._first_received - self._began
        total = time.monotonic() - self._began
        return Answered(
            self._model_id,
            self._response,
            inputTokens=self._last_line.get("prompt_eval_count"),
            outputTokens=tokens,
            firstTokenMs=round(first_token * 1000, 3),
            totalMs=round(total * 1000, 3),
            tokensPerSecond=speed,
        )

    def _add_content(self, content: str) -> None:
        if self._repair is None:
            self._add(Piece("text", content))
            return
        for piece in self._repair.feed(content):
            self._add(piece)

    def _add(self, piece: Piece) -> None:
        match piece.kind:
            case "text":
                self._response += piece.text
                self._send(Chunk(self._model_id, piece.text))
            case "thinking":
                self._read_thinking += piece.text
                self._send(ThinkingChunk(self._model_id, piece.text))
            case "was_thinking":  # the text so far, which clients have received as response
                self._read_thinking += self._response
                self._response = ""
            case "was_text":  # all read reasoning; this piece has the beginning of the text
                self._response = piece.text + self._read_thinking
                self._read_thinking = ""
                self._send(Chunk(self._model_id, self._response))


def _provider(model: ModelInfo) -> str:
    if not model.remote_host:
        return "Ollama"
    return urlsplit(model.remote_host).hostname or model.remote_host


def _text_in(line: Line, field: str) -> str:
    message = line.get("message")
    if not isinstance(message, dict):
        return ""
    text = message.get(field)
    return text if isinstance(text, str) else ""


def _display_name(model_id: object) -> str:
    name = model_id if isinstance(model_id, str) else json.dumps(model_id)
    return name[:200]
