"""One model as one turn talks to it: window, options and thinking are decided here, and what fits is sent.

Nothing is ever cut silently: requests forbid truncation, prompts are made to fit before they are sent, and what
Ollama still refuses gets a larger window, a compacted history, or an error.
"""

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from mochi_server.chat.compaction import (
    BEGIN_RATIO,
    TARGET_RATIO,
    Checkpoint,
    Prompt,
    boundary,
    checkpoint_tokens,
    request,
    slices,
)
from mochi_server.chat.images import with_images
from mochi_server.chat.told import Size, shows_images, size
from mochi_server.chat.waiting import FirstWords
from mochi_server.constants import RELOADING_OPTIONS
from mochi_server.errors import ContextOverflow, OllamaError
from mochi_server.events import ChatEvent, ContextCompacted, Status, TurnWarning
from mochi_server.ollama.async_client import AsyncOllamaClient
from mochi_server.ollama.errors import is_context_refusal, is_out_of_memory, refused_tokens
from mochi_server.ollama.requests import chat_payload
from mochi_server.ollama.stream import Line
from mochi_server.ollama.traffic import Request
from mochi_server.ollama.types import ChatMessage, Encoded, ModelInfo
from mochi_server.services.context_window import WindowDecision, WindowRegistry
from mochi_server.sessions.history import History
from mochi_server.sessions.session import ChatSession, last_answer, previous_model, usage_tokens
from mochi_server.sessions.store import SessionStore

_ROOM_FOR_AN_ANSWER = 64
"""Tokens; a prompt that leaves less than this in the window does not fit."""

_LONG_CHARS = 4000
_MOST_CHARS_PER_TOKEN = 8
"""No prose has more, over a text of that length."""

_TRIES = 8
"""How often a prompt that Ollama refuses is sent in another way; each try has a larger window or a shorter prompt."""


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
        store: SessionStore,
        *,
        info: ModelInfo,
        session: ChatSession,
        wishes: Wishes,
    ) -> None:
        defaults = session.metadata
        self.name = session.model
        self.window: WindowDecision | None = None
        """What was decided for the latest request."""
        self._client = client
        self._windows = windows
        self._store = store
        self._info = info
        self._session = session
        self._think = wishes.think if wishes.think is not None else defaults.think
        options = {**(defaults.options or {}), **(wishes.options or {})}
        self._options = {name: value for name, value in options.items() if name not in RELOADING_OPTIONS}  # of files
        self._format = wishes.format if wishes.format is not None else defaults.format
        self._keep_alive = wishes.keep_alive if wishes.keep_alive is not None else defaults.keep_alive
        self._checkpoint = Checkpoint.from_dict(defaults.compaction)
        self._told: tuple[int, int] = (0, 0)
        self._told_of_missing = False
        self._counted = 0
        """What the conversation took up when Ollama last counted, unless something was left out of it since."""
        if self._checkpoint is None and session.history and previous_model(session.history) == self.name:
            self._counted = usage_tokens(last_answer(session.history)) or 0
        self._stepped_down = False
        self._is_loaded = False
        """Whether Ollama had the model in memory, with the window that was decided on, before it was asked."""
        self._began = time.monotonic()

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
        if not self._info.can("vision") and shows_images(self._session.history):
            found.append(
                TurnWarning("IMAGES_NOT_SUPPORTED", f"Model {self.name!r} cannot see images; it answers without.")
            )
        return found

    async def ask(
        self, history: History, tools: list[dict[str, Any]], turn_begins: int
    ) -> AsyncGenerator[list[Line] | ChatEvent, None]:
        """One answer to a history, in batches of lines; events for the client come between them.

        ``turn_begins`` is the position of the user message being answered. Raises ``ContextOverflow`` when even
        the shortest prompt does not fit.
        """
        tools = tools if self._info.can("tools") else []
        prompt = Prompt(history, turn_begins, self._checkpoint, shows_images=self._info.can("vision"))
        await self._decide(prompt, tools)
        forced = False
        for _ in range(_TRIES):
            async with aclosing(self._fit(prompt, tools, forced=forced)) as fitting:
                async for step in fitting:
                    if isinstance(step, Prompt):
                        prompt = step
                    else:
                        yield step
            if event := self._tell(prompt):
                yield event
            refusal: OllamaError | None = None
            async with aclosing(self._send(prompt, tools)) as batches:
                async for batch in batches:
                    if isinstance(batch, OllamaError):
                        refusal = batch
                    else:
                        yield batch
            if refusal is None:
                return
            forced = not self._give_way(refusal, prompt, tools)
        raise ContextOverflow(self._size_of_window, self._estimate(prompt, tools))

    async def _decide(self, prompt: Prompt, tools: list[dict[str, Any]]) -> None:
        decision = await self._windows.decide(
            self._info,
            self._session.metadata.context_window_config,
            self._session.session_id,
            previous_model=previous_model(self._session.history),
            need=max(self._estimate(prompt, tools), self._counted),
        )
        # Within a turn the reason that changed the window says more than that it has not changed since.
        if self.window is None or decision.window != self.window.window:
            self.window = decision
        self._is_loaded = decision.is_loaded

    async def _fit(
        self, prompt: Prompt, tools: list[dict[str, Any]], *, forced: bool
    ) -> AsyncGenerator[Prompt | ChatEvent, None]:
        """Shorten a prompt until it fits, as gently as can be; the last prompt yielded is the one to send."""
        window = self._size_of_window
        if window is None or (not forced and self._estimate(prompt, tools) <= window * BEGIN_RATIO):
            return
        prompt = replace(prompt, trim=True)
        if forced or self._estimate(prompt, tools) > window * BEGIN_RATIO:
            if self._boundary(prompt, tools, window) is not None:
                yield Status("compacting", round(time.monotonic() - self._began, 3))
                self._checkpoint = await self._try_to_compact(prompt, tools, window)
                prompt = replace(prompt, checkpoint=self._checkpoint)
            elif forced and prompt.trim_turn:
                raise ContextOverflow(window, self._estimate(prompt, tools))
            elif forced:
                prompt = replace(prompt, trim_turn=True)
        if self._estimate(prompt, tools) > window * BEGIN_RATIO:
            prompt = replace(prompt, trim_turn=True)
        if self._estimate(prompt, tools) + _ROOM_FOR_AN_ANSWER > window:
            raise ContextOverflow(window, self._estimate(prompt, tools))
        yield prompt

    def _boundary(self, prompt: Prompt, tools: list[dict[str, Any]], window: int) -> int | None:
        return boundary(prompt, lambda shorter: self._fits(shorter, tools, window))

    async def _try_to_compact(self, prompt: Prompt, tools: list[dict[str, Any]], window: int) -> Checkpoint:
        """Compact; each refusal teaches how many tokens a text has, and the next try cuts it accordingly."""
        for _ in range(_TRIES):
            end = self._boundary(prompt, tools, window)
            if end is None:
                break
            try:
                return await self._compact(prompt, end, window)
            except OllamaError as refusal:
                if not is_context_refusal(refusal):
                    raise
        raise ContextOverflow(window, self._estimate(prompt, tools))

    async def _compact(self, prompt: Prompt, end: int, window: int) -> Checkpoint:
        """Have the model write the checkpoint that covers the history up to ``end``, slice by slice, and keep it."""
        length = checkpoint_tokens(window)
        text = prompt.checkpoint.text if prompt.checkpoint and prompt.covered else None
        start = max(prompt.covered, prompt.system)

        def fits(part: str) -> bool:
            return self._windows.estimate(self._info, *size(request(part, text or ""), ())) + 2 * length <= window

        for part in slices(prompt.history, start, end, fits):
            text = await self._summarise(request(part, text), window, length)
        checkpoint = Checkpoint(text or "-", prompt.history[end - 1]["message_id"], self.name)
        await self._store.patch(self._session.session_id, {"compaction": checkpoint.to_dict()})
        self._windows.watch.compacted()
        return checkpoint

    async def _summarise(self, messages: list[ChatMessage], window: int, length: int) -> str:
        payload = chat_payload(
            self.name,
            messages,
            think=False if self._info.can("thinking") else None,
            context_window=window,
            options={"num_predict": length},
            keep_alive=self._keep_alive,
        )
        pieces: list[str] = []
        try:
            async with aclosing(self._client.chat_lines(payload)) as batches:
                async for lines in batches:
                    pieces.extend(str((line.get("message") or {}).get("content") or "") for line in lines)
        except OllamaError as refusal:
            if is_context_refusal(refusal):
                characters, images = size(messages, ())
                tokens = refused_tokens(refusal) or self._windows.estimate(self._info, characters, images) * 2
                self._windows.observe(self._info, characters, tokens, images)
            raise
        return "".join(pieces).strip()

    async def _send(
        self, prompt: Prompt, tools: list[dict[str, Any]]
    ) -> AsyncGenerator[list[Line] | ChatEvent | OllamaError, None]:
        """Post a prompt and pass on the answer; a refusal that another try may cure is yielded, not raised."""
        prompt_size = prompt.size_with(tools)
        room = self._room(prompt_size)
        messages, missing = await with_images(prompt.messages, self._store)
        if missing and not self._told_of_missing:
            self._told_of_missing = True
            yield TurnWarning("IMAGE_NOT_FOUND", f"Images that are not stored any more are left out: {missing}.")
        payload = self._payload(messages, tools, room)
        with self._client.traffic.request(self.name) as request:
            try:
                async with aclosing(self._client.chat_lines(payload)) as batches:
                    first = FirstWords(batches, lambda: self._waits_for(request))
                    async with aclosing(first.statuses(self._began)) as statuses:
                        async for status in statuses:
                            yield status
                    self._client.traffic.answers(request)
                    lines = first.batch
                    while lines is not None:
                        yield lines
                        if lines[-1].get("done"):
                            for event in self._learn(lines[-1], prompt_size, room):
                                yield event
                        lines = await anext(batches, None)
            except OllamaError as error:
                if request.answering or not (is_context_refusal(error) or is_out_of_memory(error)):
                    raise
                yield error

    async def _waits_for(self, request: Request) -> str:
        """What an answer waits for; a model that had to be loaded is said to be loading until it answers.

        Ollama lists a model as soon as it begins to load it, so one that is listed now is not in line any more.
        """
        if not self._client.traffic.stands_in_line(request, loaded=self._is_loaded):
            return "processing_prompt" if self._is_loaded else "loading_model"
        if self._is_loaded:
            return "queued"
        listed = (await self._client.loaded_windows()).get(request.model)
        return "queued" if listed is None or self._size_of_window not in (None, listed) else "loading_model"

    def _payload(
        self, messages: Sequence[ChatMessage | Encoded], tools: list[dict[str, Any]], room: int | None
    ) -> dict[str, Any]:
        options = self._options | ({"num_predict": room} if self._is_limited_by(room) else {})
        return chat_payload(
            self.name,
            messages,
            tools=tools,
            think=(self._think or False) if self._info.can("thinking") else None,
            context_window=self._size_of_window,
            options=options,
            format=self._format,
            keep_alive=self._keep_alive,
        )

    def _learn(self, last: Line, prompt: Size, room: int | None) -> list[ChatEvent]:
        """Take up what Ollama counted; say so when it cut the prompt or the answer."""
        counted, answered = last.get("prompt_eval_count"), last.get("eval_count")
        events: list[ChatEvent] = []
        if isinstance(counted, int) and self._looks_cut(counted, prompt.characters):
            events.append(
                TurnWarning("PROMPT_TRUNCATED", "Ollama has cut the prompt: this version ignores `truncate`.")
            )
        elif isinstance(counted, int):
            self._windows.observe(self._info, prompt.characters, counted, prompt.images)
        if last.get("done_reason") == "length" and self._is_limited_by(room) and self._is_full(counted, answered, room):
            events.append(TurnWarning("ANSWER_CUT", "The answer has reached the end of the context window."))
            self._windows.grow(self._info, (counted or 0) + (answered or 0) + 1)
        return events

    def _is_full(self, counted: Any, answered: Any, room: int | None) -> bool:
        """Whether an answer has used up its room; some models and servers end earlier, and call it the same."""
        if not isinstance(answered, int) or room is None:
            return False
        return answered >= room or (isinstance(counted, int) and counted + answered >= (self._size_of_window or 0))

    def _looks_cut(self, counted: int, characters: int) -> bool:
        """Whether a count can only be that of a cut prompt.

        It fills the window, or is too small for any text so long; counts that fall from turn to turn are no sign,
        since old versions leave out what they had in their cache.
        """
        if self._size_of_window is not None and counted >= self._size_of_window:
            return True
        too_small = characters > _LONG_CHARS and counted * _MOST_CHARS_PER_TOKEN < characters
        return too_small and counted * 1.1 >= self._counted

    def _give_way(self, refusal: OllamaError, prompt: Prompt, tools: list[dict[str, Any]]) -> bool:
        """Change the window after a refusal; False when only a shorter prompt can help."""
        if is_out_of_memory(refusal):
            if self._stepped_down:
                self._windows.undo_step_down(self._info)
            if self._stepped_down or not self._windows.step_down(self._info):
                raise refusal
            self._stepped_down = True
            self.window = self._windows.stepped_down(self._info)
            return True
        characters, images = prompt.size_with(tools)
        tokens = refused_tokens(refusal) or self._windows.estimate(self._info, characters, images) * 2
        self._windows.observe(self._info, characters, tokens, images)
        if self._size_of_window is None:
            raise ContextOverflow(None, tokens)
        grown = self._windows.grow(self._info, int(tokens * 1.5))
        self.window = self._windows.current(self._info, "usage_threshold" if grown else self._reason)
        return grown

    def _tell(self, prompt: Prompt) -> ContextCompacted | None:
        """The event that says what is left out, once for each change of it in a turn."""
        now = (prompt.dropped, prompt.trimmed)
        if now == self._told:
            return None
        self._told = now
        return ContextCompacted(prompt.dropped, prompt.trimmed, summary_used=prompt.dropped > 0)

    def _fits(self, prompt: Prompt, tools: list[dict[str, Any]], window: int) -> bool:
        checkpoint = checkpoint_tokens(window)
        return self._estimate(prompt, tools) + checkpoint <= max(window * TARGET_RATIO, checkpoint)

    def _room(self, prompt: Size) -> int | None:
        """How many tokens an answer may have: what the window has left beside the prompt."""
        if (window := self._size_of_window) is None:
            return None
        return max(window - self._windows.estimate(self._info, *prompt), _ROOM_FOR_AN_ANSWER)

    def _is_limited_by(self, room: int | None) -> bool:
        """Whether it is the window that limits an answer, and not what was wished for."""
        wanted = self._options.get("num_predict")
        return room is not None and (not isinstance(wanted, int) or wanted < 0 or wanted > room)

    def _estimate(self, prompt: Prompt, tools: list[dict[str, Any]]) -> int:
        return self._windows.estimate(self._info, *prompt.size_with(tools))

    @property
    def _size_of_window(self) -> int | None:
        return self.window.window if self.window else None

    @property
    def _reason(self) -> str:
        return self.window.reason if self.window else "no_adjustment"
