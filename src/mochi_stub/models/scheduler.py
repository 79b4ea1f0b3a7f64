"""Scheduler with Ollama's rules for loading models. Nothing is really loaded.

Only requests that need a load queue for it, in one queue of a bounded length. Other requests wait for a place on their
model. Used from the event loop only.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from mochi_stub.models.catalogue import DEFAULT_CONTEXT, LOAD_OPTIONS, LOWERED_CONTEXTS, Model, effective_context
from mochi_stub.models.prompt_slots import PromptSlots
from mochi_stub.replies.seeded_ids import LOAD_DURATION, RELOAD_DURATION

BUSY = "server busy, please try again.  maximum pending requests exceeded"
OUT_OF_MEMORY = "llama-server process has terminated: cudaMalloc failed: out of memory"


@dataclass(eq=False)
class NotLoaded(Exception):
    """The model could not be loaded: an HTTP status, and the text for the client."""

    status: int
    message: str


@dataclass(frozen=True)
class Machine:
    """Limits of the simulated machine.

    Attributes:
        parallel: Parallel requests per model. None means no limit.
        max_loaded_models: Models in memory. None means no limit.
        max_queue: Requests that may wait for a model to load.
        context_length: Default context in tokens. None means 4096 without truncation of prompts.
        keep_alive: Seconds that an idle model stays in memory.
        prompt_speed: Prompt tokens that a model evaluates per second. None evaluates prompts at once.
    """

    parallel: int | None = None
    max_loaded_models: int | None = None
    max_queue: int = 512
    context_length: int | None = None
    keep_alive: float = 300.0
    prompt_speed: float | None = None


@dataclass(frozen=True)
class LoadRequest:
    """What a request wants of its model. `options` are those in effect; `keep_alive` in seconds, None: not given."""

    model: Model
    options: Mapping[str, Any] = field(default_factory=dict)
    keep_alive: float | None = None
    shift: bool = True


@dataclass(frozen=True)
class LoadSettings:
    """How a model is loaded: tokens of context, whether they are a default, and the other settings."""

    context: int
    automatic: bool
    settings: Mapping[str, Any]

    def serves(self, wanted: LoadSettings) -> bool:
        """Return whether a model that is loaded like this serves the request without a reload."""
        if self.context != wanted.context and not (self.automatic and wanted.automatic):
            return False
        given = wanted.settings.items()
        return all(self.settings[name] == value or (name == "num_gpu" and value < 0) for name, value in given)


@dataclass
class LoadedModel:
    """A model in memory.

    `users` is the number of requests that run or wait, `queue` has one event for each that waits for one of the
    `places`. `ready` is set when the model is loaded. `first` is what the first lease reports: whether the load was a
    reload, and its duration in nanoseconds.
    """

    model: Model
    shape: LoadSettings
    keep_alive: float
    places: int
    first: tuple[bool, int]
    users: int = 0
    idle_since: float = 0.0
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    queue: deque[asyncio.Event] = field(default_factory=deque)
    slots: PromptSlots = field(default_factory=PromptSlots)

    @property
    def context_length(self) -> int:
        return self.shape.context

    def expires_at(self, now: float) -> float:
        """Seconds since 1970; infinite where the model stays for ever."""
        return (now if self._busy else self.idle_since) + self.keep_alive

    def alive(self, now: float) -> bool:
        return self._busy or self.expires_at(now) > now

    @property
    def _busy(self) -> bool:
        return self.users > 0 or not self.ready.is_set()


@dataclass(frozen=True)
class Lease:
    """A place on a loaded model, until `release` is called.

    `limit` is the context to which the prompt is cut, None if none is set. `reload`: the model had been loaded with
    other settings. `load_duration` in nanoseconds.
    """

    context: int
    limit: int | None
    reload: bool
    load_duration: int
    slots: PromptSlots
    release: Callable[[], None]


class Scheduler:
    """The loaded models. `now` returns the seconds since 1970, `wait` passes the time of a load.

    `queued` is the number of requests that wait for a load.
    """

    def __init__(
        self,
        machine: Machine | None = None,
        *,
        now: Callable[[], float] = time.time,
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.machine = machine or Machine()
        self.now = now
        self.loads = self.reloads = self.truncations = self.queued = 0
        self._wait = wait
        self._loaded: dict[str, LoadedModel] = {}
        self._loading = asyncio.Lock()
        self._left = asyncio.Event()

    @property
    def waiting(self) -> int:
        """The number of requests that wait for a place on a loaded model."""
        return sum(len(loaded.queue) for loaded in self._loaded.values())

    def try_acquire(self, request: LoadRequest) -> Lease | None:
        """Return a place if there is one at once, else None; then use `acquire`. Raises NotLoaded."""
        shape = self._settings(request)
        loaded = self._serving(request, shape)
        if loaded is None and not (self._loading.locked() or self.queued or request.model.load_time):
            loaded = self._put(request, shape, reload=self._find_alive(request.model) is not None)
            if loaded is not None:
                loaded.ready.set()
        if loaded is None or not loaded.ready.is_set() or loaded.users >= loaded.places:
            return None
        loaded.users += 1
        return self._leased(request, shape, loaded)

    async def acquire(self, request: LoadRequest) -> Lease:
        """Wait for a place. Raises NotLoaded."""
        shape = self._settings(request)
        while (loaded := self._serving(request, shape)) and not loaded.ready.is_set():
            await loaded.ready.wait()
        if loaded is None:
            loaded = await self._load(request, shape)
        loaded.users += 1
        if loaded.users > loaded.places:
            turn = asyncio.Event()
            loaded.queue.append(turn)
            try:
                await turn.wait()
            except BaseException:  # the client has disconnected
                if turn.is_set():
                    self._released(loaded)
                else:
                    loaded.queue.remove(turn)
                    loaded.users -= 1
                raise
        return self._leased(request, shape, loaded)

    def unload(self, model: Model) -> None:
        """Let the model go, now or when its running requests have ended."""
        if loaded := self._loaded.get(model.blob_digest):
            loaded.keep_alive = 0.0

    def loaded(self) -> list[LoadedModel]:
        """What is in memory, the longest-lived first."""
        now = self.now()
        self._loaded = {key: entry for key, entry in self._loaded.items() if entry.alive(now)}
        return sorted(self._loaded.values(), key=lambda entry: entry.expires_at(now), reverse=True)

    def _settings(self, request: LoadRequest) -> LoadSettings:
        default, options = self.machine.context_length, request.options
        context = effective_context(request.model, options, default or DEFAULT_CONTEXT)
        settings = {name: options.get(name, usual) for name, usual in LOAD_OPTIONS.items()}
        return LoadSettings(
            context, not options.get("num_ctx") and default is None, {**settings, "shift": request.shift}
        )

    def _leased(self, request: LoadRequest, shape: LoadSettings, loaded: LoadedModel) -> Lease:
        if request.keep_alive is not None:
            loaded.keep_alive = request.keep_alive
        (reload, duration), loaded.first = loaded.first, (False, LOAD_DURATION)
        context = loaded.context_length
        return Lease(
            context,
            None if shape.automatic else context,
            reload,
            duration,
            loaded.slots,
            partial(self._released, loaded),
        )

    def _released(self, loaded: LoadedModel) -> None:
        loaded.users -= 1
        if loaded.queue:
            loaded.queue.popleft().set()
        loaded.idle_since = self.now()
        self._left.set()

    def _find_alive(self, model: Model) -> LoadedModel | None:
        loaded = self._loaded.get(model.blob_digest)
        return loaded if loaded and loaded.alive(self.now()) else None

    def _serving(self, request: LoadRequest, shape: LoadSettings) -> LoadedModel | None:
        loaded = self._find_alive(request.model)
        return loaded if loaded and loaded.shape.serves(shape) else None

    async def _load(self, request: LoadRequest, shape: LoadSettings) -> LoadedModel:
        if (self._loading.locked() or self.queued) and self.queued >= self.machine.max_queue:
            raise NotLoaded(503, BUSY)
        self.queued += 1
        try:
            await self._loading.acquire()
        finally:
            self.queued -= 1
        try:
            if serving := self._serving(request, shape):  # an earlier request in the queue has loaded it
                return serving
            reload = self._find_alive(request.model) is not None
            while (loaded := self._put(request, shape, reload)) is None:
                self._left.clear()
                await self._left.wait()
            try:
                await self._wait(request.model.load_time)
            except BaseException:  # the client has disconnected
                del self._loaded[request.model.blob_digest]
                raise
            finally:
                loaded.ready.set()
            return loaded
        finally:
            self._loading.release()

    def _put(self, request: LoadRequest, shape: LoadSettings, reload: bool) -> LoadedModel | None:
        """Put the model into memory, or return None while what is in the way has requests. Raises NotLoaded."""
        model, machine = request.model, self.machine
        if not self._make_room(model):
            return None
        largest = model.out_of_memory_above or sys.maxsize
        lower = [context for context in LOWERED_CONTEXTS if context < shape.context and shape.automatic]
        context = next((context for context in (shape.context, *lower) if context <= largest), None)
        if context is None:
            raise NotLoaded(500, OUT_OF_MEMORY)
        places = 1 if machine.parallel and not model.can("completion") else machine.parallel or sys.maxsize
        # a load that takes no time is not reported, or replies would depend on which request came first
        duration = LOAD_DURATION + (round(model.load_time * 1e9) or reload * RELOAD_DURATION)
        loaded = LoadedModel(model, replace(shape, context=context), machine.keep_alive, places, (reload, duration))
        loaded.slots = PromptSlots(1 if places == sys.maxsize else places)
        self._loaded[model.blob_digest] = loaded
        self.loads += 1
        self.reloads += reload
        return loaded

    def _make_room(self, model: Model) -> bool:
        mine = self._loaded.get(model.blob_digest)
        if mine is not None and not self._evicted(mine):
            return False
        loaded = self.loaded()
        if len(loaded) < (self.machine.max_loaded_models or len(loaded) + 1):
            return True
        return self._evicted(min(loaded, key=lambda entry: (entry.users > 0, entry.keep_alive, entry.idle_since)))

    def _evicted(self, loaded: LoadedModel) -> bool:
        """Unload the model, now or when it is idle. Return whether it is unloaded."""
        loaded.keep_alive = 0.0
        if loaded.users:
            return False
        del self._loaded[loaded.model.blob_digest]
        return True
