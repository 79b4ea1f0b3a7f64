"""Simulated Ollama scheduler, which loads no real models, and the prompt cache of each loaded
model.

Requests whose model must be loaded wait in one queue of limited length. Other requests wait for a
slot of their model. The scheduler is not thread-safe: use it in the event loop only.
"""

from __future__ import annotations

import asyncio
import sys
import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from mochi_stub.models import (
    DEFAULT_CONTEXT,
    LOAD_OPTIONS,
    LOWERED_CONTEXTS,
    Model,
    effective_context,
)
from mochi_stub.replies import LOAD_DURATION, RELOAD_DURATION
from mochi_stub.reply import HttpError

BUSY = "server busy, please try again.  maximum pending requests exceeded"
OUT_OF_MEMORY = "llama-server process has terminated: cudaMalloc failed: out of memory"
# Share of a prompt that must be in a slot; otherwise it takes the least recently used slot.
_LEAST_SIMILARITY = 0.1


@dataclass
class PromptSlots:
    """Prompt cache slots of a model.

    `count` is the number of parallel requests, or 1 if that number is unlimited.
    """

    count: int = 1
    _texts: list[str] = field(default_factory=list)  # the least recently used first

    def evaluate(self, prompt: str, reply: str, tokens: int) -> int:
        """Put a prompt and its reply into a slot.

        Return the number of uncached prompt tokens, at least 1 unless the prompt is empty.
        """
        best = max(self._texts, key=lambda text: _common_prefix(text, prompt), default="")
        prefix = _common_prefix(best, prompt)
        if best and prefix >= len(prompt) * _LEAST_SIMILARITY:
            self._texts.remove(best)
        else:
            prefix = 0
        texts = [*self._texts, prompt + reply]
        self._texts = texts[-self.count :]
        cached_tokens = tokens * prefix // max(len(prompt), 1)
        return max(tokens - cached_tokens, min(tokens, 1))


def _common_prefix(first: str, second: str) -> int:
    """Return the number of characters with which both texts begin."""
    if first.startswith(second):  # a repeated prompt
        return len(second)

    def differ(length: int) -> bool:
        return first[:length] != second[:length]

    shorter = min(len(first), len(second))
    lengths = range(1, shorter + 1)
    return bisect_left(lengths, True, key=differ)


@dataclass(frozen=True)
class Machine:
    """Limits of the simulated machine.

    Attributes:
        parallel: Largest number of parallel requests per model. None means no limit.
        max_loaded_models: Largest number of models in memory. None means no limit.
        max_queue: Largest number of requests that wait for a model to load.
        context_length: Default context in tokens. If it is None, the default is 4096, and prompts
            are truncated only if the request or the Modelfile sets `num_ctx`.
        keep_alive: Seconds that an idle model stays in memory.
        prompt_speed: Number of prompt tokens that a model evaluates per second. None means no
            evaluation time.
    """

    parallel: int | None = None
    max_loaded_models: int | None = None
    max_queue: int = 512
    context_length: int | None = None
    keep_alive: float = 300.0
    prompt_speed: float | None = None


class LoadRequest(NamedTuple):
    """Model and load settings of a request.

    `options` includes the parameters of the Modelfile. `keep_alive` is in seconds, or None if the
    request does not set it.
    """

    model: Model
    options: Mapping[str, Any] = {}
    keep_alive: float | None = None
    shift: bool = True


class LoadSettings(NamedTuple):
    """Settings with which a model is loaded.

    `automatic` is false if the request, the Modelfile or the machine sets the context.
    """

    context: int
    automatic: bool
    options: Mapping[str, Any]

    def satisfies(self, requested: LoadSettings) -> bool:
        """Return whether a model loaded with these settings can serve the `requested` settings
        without a reload.
        """
        are_automatic = self.automatic and requested.automatic
        if self.context != requested.context and not are_automatic:
            return False
        changed = set()
        for name, value in requested.options.items():
            if self.options[name] != value:
                changed.add(name)
        if not changed:
            return True
        return changed == {"num_gpu"} and requested.options["num_gpu"] < 0


@dataclass
class LoadedModel:
    """Model in memory, with `slots` for running requests.

    `users` counts the running and waiting requests.
    """

    model: Model
    settings: LoadSettings
    keep_alive: float
    slots: int
    prompt_cache: PromptSlots
    users: int = 0
    idle_since: float = 0.0
    ready: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.free_slots = asyncio.Semaphore(self.slots)

    def expires_at(self, now: float) -> float:
        """Return when the model will be unloaded, in seconds since 1970. Infinity means never."""
        idle_since = now if self._busy else self.idle_since
        return idle_since + self.keep_alive

    def alive(self, now: float) -> bool:
        return self._busy or self.expires_at(now) > now

    @property
    def _busy(self) -> bool:
        return self.users > 0 or not self.ready.is_set()


class Lease(NamedTuple):
    """Slot of the model in `request`, which a request occupies until `release` is called.

    `limit` is the maximum length of the prompt in tokens, or None if nothing sets the context of
    the request. `load_duration` is in nanoseconds. For a model in memory, it is short but not 0.
    """

    request: LoadRequest
    context: int
    limit: int | None
    reload: bool
    load_duration: int
    prompt_cache: PromptSlots
    release: Callable[[], None]


def _remote_lease(request: LoadRequest) -> Lease:
    """Return a lease of a cloud model, which occupies no memory and ignores `num_ctx`."""
    context = request.model.context_length or sys.maxsize
    return Lease(
        request,
        context=context,
        limit=context,
        reload=False,
        load_duration=0,
        prompt_cache=PromptSlots(),
        release=lambda: None,
    )


def _fitting_context(model: Model, settings: LoadSettings) -> int:
    """Return the context with which the model fits into memory, in tokens.

    Only an automatic context is lowered. It is above 4096 only if the model has a higher minimum.
    Raises HttpError if no context fits.
    """
    largest = model.out_of_memory_above or sys.maxsize
    if settings.context <= largest:
        return settings.context
    if settings.automatic:
        for context in LOWERED_CONTEXTS:
            if context < settings.context and context <= largest:
                return context
    raise HttpError(500, OUT_OF_MEMORY)


class Scheduler:
    """Simulated scheduler.

    `now` returns seconds since 1970. `wait` waits for the duration of a load, in seconds.
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
        self.loads = 0
        self.reloads = 0
        self.truncations = 0
        self.queued = 0  # requests that wait for a load
        self._wait = wait
        self._loaded: dict[str, LoadedModel] = {}
        self._loading = asyncio.Lock()
        self._slot_freed = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Number of requests that wait for a slot of a loaded model."""
        waiting = 0
        for loaded in self._loaded.values():
            waiting += max(loaded.users - loaded.slots, 0)
        return waiting

    async def acquire(self, request: LoadRequest) -> Lease:
        """Wait for the model and a free slot, then return a lease.

        Raises HttpError if the load fails or too many requests wait for one.
        """
        if request.model.remote:
            return _remote_lease(request)
        settings = self._settings(request)
        while (loaded := self._find_usable(request.model, settings)) and not loaded.ready.is_set():
            await loaded.ready.wait()
        reload = False
        duration = LOAD_DURATION
        if loaded is None:
            loaded, reload, duration = await self._load(request.model, settings)
        loaded.users += 1
        try:
            await loaded.free_slots.acquire()
        except BaseException:  # the client has disconnected
            self._leave(loaded)
            raise
        if request.keep_alive is not None:
            loaded.keep_alive = request.keep_alive
        context = loaded.settings.context
        limit = None if settings.automatic else context
        return Lease(
            request,
            context=context,
            limit=limit,
            reload=reload,
            load_duration=duration,
            prompt_cache=loaded.prompt_cache,
            release=partial(self._release, loaded),
        )

    def unload(self, model: Model) -> None:
        """Unload the model as soon as it has no running and waiting requests, unless a request gets
        a slot until then and sets `keep_alive`.
        """
        loaded = self._loaded.get(model.blob_digest)
        if loaded is not None:
            loaded.keep_alive = 0.0

    def loaded_models(self) -> list[LoadedModel]:
        """Remove the expired models, and return the others, sorted by expiry time with the latest
        first.
        """
        now = self.now()
        for digest, loaded in list(self._loaded.items()):
            if not loaded.alive(now):
                del self._loaded[digest]
        models = self._loaded.values()
        return sorted(models, key=lambda loaded: loaded.expires_at(now), reverse=True)

    def _settings(self, request: LoadRequest) -> LoadSettings:
        default = self.machine.context_length
        options = request.options
        context = effective_context(request.model, options, default or DEFAULT_CONTEXT)
        automatic = options.get("num_ctx") is None and default is None
        load_options: dict[str, Any] = {"shift": request.shift}
        for name, value in LOAD_OPTIONS.items():
            load_options[name] = options.get(name, value)
        return LoadSettings(context, automatic, load_options)

    def _release(self, loaded: LoadedModel) -> None:
        loaded.free_slots.release()
        self._leave(loaded)

    def _leave(self, loaded: LoadedModel) -> None:
        loaded.users -= 1
        loaded.idle_since = self.now()
        self._slot_freed.set()

    def _find_alive(self, model: Model) -> LoadedModel | None:
        loaded = self._loaded.get(model.blob_digest)
        if loaded is None or not loaded.alive(self.now()):
            return None
        return loaded

    def _find_usable(self, model: Model, settings: LoadSettings) -> LoadedModel | None:
        loaded = self._find_alive(model)
        if loaded is None or not loaded.settings.satisfies(settings):
            return None
        return loaded

    async def _load(self, model: Model, settings: LoadSettings) -> tuple[LoadedModel, bool, int]:
        """Return the loaded model, whether it was reloaded, and the duration of the load in
        nanoseconds.

        Raises HttpError if the queue is full or the model does not fit into memory.
        """
        if (self._loading.locked() or self.queued) and self.queued >= self.machine.max_queue:
            raise HttpError(503, BUSY)
        self.queued += 1
        try:
            await self._loading.acquire()
        finally:
            self.queued -= 1
        try:
            usable = self._find_usable(model, settings)
            if usable is not None:  # an earlier request in the queue has loaded the model
                return usable, False, LOAD_DURATION
            reload = self._find_alive(model) is not None
            while (loaded := self._put(model, settings)) is None:
                self._slot_freed.clear()
                await self._slot_freed.wait()
            self.loads += 1
            self.reloads += reload
            try:
                if model.load_time:
                    await self._wait(model.load_time)
            except BaseException:  # the client has disconnected
                del self._loaded[model.blob_digest]
                raise
            finally:
                loaded.ready.set()
            # without load_time, a first load has the usual duration, so that the order of requests
            # does not matter
            extra = round(model.load_time * 1e9) or reload * RELOAD_DURATION
            return loaded, reload, LOAD_DURATION + extra
        finally:
            self._loading.release()

    def _put(self, model: Model, settings: LoadSettings) -> LoadedModel | None:
        """Put the model into memory. Return None if a busy model must be unloaded first.

        Raises HttpError if the model does not fit into memory. Another may be unloaded even then.
        """
        if not self._make_room(model):
            return None
        context = _fitting_context(model, settings)
        slots = self.machine.parallel
        if slots and not model.has_capability("completion"):
            slots = 1
        loaded = LoadedModel(
            model,
            settings=settings._replace(context=context),
            keep_alive=self.machine.keep_alive,
            slots=slots or sys.maxsize,
            prompt_cache=PromptSlots(slots or 1),
        )
        self._loaded[model.blob_digest] = loaded
        return loaded

    def _make_room(self, model: Model) -> bool:
        """Unload the model's earlier load, and another model if the memory is full.

        Return False if one of these has requests.
        """
        previous = self._loaded.get(model.blob_digest)
        if previous is not None and not self._evict(previous):
            return False
        models = self.loaded_models()
        limit = self.machine.max_loaded_models
        if not limit or len(models) < limit:
            return True
        first = min(models, key=_eviction_order)
        return self._evict(first)

    def _evict(self, loaded: LoadedModel) -> bool:
        """Unload the model and return True.

        If it has requests, mark it to expire when they end, and return False.
        """
        loaded.keep_alive = 0.0
        if loaded.users:
            return False
        del self._loaded[loaded.model.blob_digest]
        return True


def _eviction_order(loaded: LoadedModel) -> tuple[bool, float, float]:
    """Return a sort key by which idle models with the shortest `keep_alive` come first."""
    is_used = loaded.users > 0
    return is_used, loaded.keep_alive, loaded.idle_since
