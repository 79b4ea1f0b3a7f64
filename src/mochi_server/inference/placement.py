"""Choice of an Ollama host: the predicted time until the first token on each host, from what the hosts have shown."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from mochi_server.errors import MochiError
from mochi_server.inference.waiting import FairQueue
from mochi_server.inference.windows import WindowRegistry
from mochi_server.ollama.async_client import AsyncOllamaClient
from mochi_server.ollama.payloads import qualified_name

if TYPE_CHECKING:
    from mochi_server.inference.gateway import RequestTracker, Slots

MIN_PAUSE = 1.0
_TOKENS_PER_SECOND, _MAX_TOKENS_PER_SECOND = 1000.0, 10_000.0  # the default, and a limit for implausible measurements
_ANSWER_SECONDS = _LOAD_SECONDS = 1.0  # until the first one has been measured
_MIB_PER_SECOND = 4096  # that a host loads, until the first load has been measured
_MIN_LOAD_SECONDS = 0.1  # Ollama reports a few milliseconds for models that are in memory
_KEPT_RATIO = 0.5  # share of the tokens of a prompt and its answer that is still cached if a slot has kept them
_WINDOW_BUFFER = 1.5  # smallest window for a prompt, as a multiple of its tokens, as in `windows`
_SMOOTHING = 0.3
_BEGUN = 1  # tokens of a prompt that is not known to be in a slot yet
_MAX_HELD = 256  # sessions whose prompts are recorded for each model of a host


@dataclass(eq=False, slots=True)
class HostModel:
    """Measurements of one model on one host, and the sessions whose prompts the slots of the model hold."""

    capacity: int = 1  # number of prompts that the slots are known to hold
    most: int | None = None  # number of prompts that they hold at most, or None if unknown
    requests: int = 0  # running and waiting requests of this server
    speed: float | None = None  # in tokens per second
    load_seconds: float | None = None
    answer_seconds: float | None = None
    held: dict[str, int] = field(default_factory=dict)  # tokens by session ID; see `begin`

    def kept(self, slots: int) -> dict[str, int]:
        """Return the part of ``held`` that ``slots`` slots may still hold."""
        return dict([*self.held.items()][-max(self.most, slots) :]) if self.most else self.held

    def begin(self, session_id: str) -> tuple[int, int]:
        """Record that a prompt takes a slot. Return how many tokens the slot had, and how many others came since.

        ``held`` has the least recent prompt first. It has no tokens of sessions that have moved to another host.
        """
        before, others = self.held.get(session_id, 0), 0
        if before > _BEGUN:
            others = len(self.held) - [*self.held].index(session_id) - 1
        if session_id:
            self.held[session_id] = self.held.pop(session_id, 0) or _BEGUN
        if len(self.held) > _MAX_HELD:
            del self.held[next(iter(self.held))]
        return before, others

    def record(self, session_id: str, begun: tuple[int, int], last: Mapping[str, Any], seconds: float) -> None:
        """Record the last line of an answer that took ``seconds``. ``begun`` is the result of ``begin``."""
        count, cached = number(last.get("prompt_eval_count")), last.get("prompt_eval_cached_count")
        evaluation, load = (number(last.get(f"{name}_duration")) / 1e9 for name in ("prompt_eval", "load"))
        if evaluation and (evaluated := count - number(cached)) > 0:
            self.speed = _smooth(self.speed, min(evaluated / evaluation, _MAX_TOKENS_PER_SECOND))
        if is_load := load >= _MIN_LOAD_SECONDS:
            self.load_seconds = _smooth(self.load_seconds, load)
        self.answer_seconds = _smooth(self.answer_seconds, seconds)
        if session_id:
            self.held[session_id] = int(count + number(last.get("eval_count")))
        before, others = begun
        if before <= _BEGUN or cached is None or is_load:
            return
        if number(cached) >= min(before, count) * _KEPT_RATIO:
            self.capacity = max(self.capacity, others + 1)
            self.most = self.most and max(self.most, self.capacity)
        elif others >= self.capacity:
            self.most = others
        elif others:  # fewer than before, or requests have overtaken each other
            self.capacity -= 1


@dataclass(eq=False)
class Host:
    """One Ollama host, with its windows, the contents of its slots, its requests and its measurements."""

    name: str
    client: AsyncOllamaClient
    windows: WindowRegistry
    slots: "Slots"
    tracker: "RequestTracker"
    queue: FairQueue
    models: dict[str, HostModel] = field(default_factory=dict)  # by qualified name
    requests: int = 0  # running and waiting requests of this server
    loaded: frozenset[str] = frozenset()  # names of the loaded models, when they were last used for a choice
    room: int | None = None  # number of models that fit into memory, if a load has replaced another model
    is_draining: bool = False
    failure: MochiError | None = None  # why the host is left out, or None
    pause: float = MIN_PAUSE  # seconds until the next probe of a host that is left out

    @property
    def state(self) -> Literal["up", "down", "draining"]:
        return "draining" if self.is_draining else "down" if self.failure is not None else "up"

    def model(self, name: str) -> HostModel:
        return self.models.setdefault(qualified_name(name), HostModel())

    def has(self, model: str) -> bool:
        return self.client.digest(model) is not None

    @contextmanager
    def assigned(self, model: str) -> Iterator[None]:
        """Count a request of ``model`` while it waits or runs."""
        entry = self.model(model)
        self.requests += 1
        entry.requests += 1
        try:
            yield
        finally:
            self.requests -= 1
            entry.requests -= 1

    def is_loaded(self, needs: "PromptNeeds") -> tuple[bool, bool]:
        """Return whether the model is loaded, and whether its window fits. Earlier answers show what is unknown."""
        loaded = self.client.last_windows
        if loaded is None:
            return bool(self.model(needs.model).held), True
        if loaded.keys() - self.loaded and self.loaded - loaded.keys():
            self.room = len(loaded)
        self.room, self.loaded = self.room and max(self.room, len(loaded)), frozenset(loaded)
        window = loaded.get(qualified_name(needs.model))
        if not window:
            return window is not None, True
        fits = window >= max(needs.window, needs.tokens * _WINDOW_BUFFER)
        return True, window == needs.window if needs.is_manual else fits


@dataclass(frozen=True, slots=True)
class PromptNeeds:
    """A prompt that needs a host. ``window`` is the context window that the session needs at least, in tokens."""

    session_id: str
    model: str
    tokens: int
    size_mb: float = 0
    window: int = 0
    is_manual: bool = False  # whether the window must be exactly `window`
    digest: str | None = None  # of the model with which the conversation began
    avoid: Collection[str] = ()  # names of hosts that serve other parts of the same comparison


class Prediction(NamedTuple):
    """Predicted time until the first token. ``cost`` adds the time that the eviction of other prompts costs."""

    cost: float
    evicts: bool
    held: int
    loads: bool


def predict(host: Host, hosts: Sequence[Host], needs: PromptNeeds) -> Prediction:
    """Predict the time until the first token. What the host has not shown is the mean of the other hosts."""

    def known(name: str, default: float) -> float:
        values = [getattr(each.model(needs.model), name) for each in (host, *hosts)]
        others = [value for value in values if value is not None]
        return float(values[0] or (sum(others) / len(others) if others else default))

    model, loaded, speed = host.model(needs.model), host.client.last_windows or {}, known("speed", _TOKENS_PER_SECOND)
    is_loaded, fits = host.is_loaded(needs)
    loads = not (is_loaded and fits)
    slots = host.queue.limit or host.tracker.slots(needs.model)
    kept, capacity = model.kept(slots), max(model.capacity, slots)
    held = 0 if loads else min(max(kept.get(needs.session_id, 0) - _BEGUN, 0), needs.tokens)
    requests = host.requests if host.queue.limit else model.requests
    cost = max(requests - slots + 1, 0) / slots * known("answer_seconds", _ANSWER_SECONDS)
    cost += (needs.tokens - held) / speed
    cost += loads * known("load_seconds", _LOAD_SECONDS + needs.size_mb / _MIB_PER_SECOND)
    is_full = needs.session_id not in kept and len(kept) >= capacity
    tokens = [*kept.values()][-capacity] if is_full else 0
    others = [entry for name, entry in host.models.items() if name in loaded and entry is not model]
    if loads:  # a reload drops all prompts, and a load can replace other models
        evicted = [model] if is_loaded else others if host.room and len(others) >= host.room else []
        dropped = (each.kept(slots).items() for each in evicted)
        tokens = sum(count for items in dropped for id, count in items if id != needs.session_id)
    return Prediction(cost + tokens / speed, tokens > 0, held, loads)


def choose(hosts: Sequence[Host], needs: PromptNeeds) -> tuple[Host, str]:
    """Return the host with the least cost, and the reason. A new session takes a free slot if any host has one.

    Ties are decided by rendezvous hashing, so that servers with the same database make the same choice.
    """
    predictions = {host: predict(host, hosts, needs) for host in hosts}
    is_new = not any(prediction.held for prediction in predictions.values())
    is_installed = needs.digest in {host.client.digest(needs.model) for host in hosts}

    def rank(host: Host) -> tuple[bool, bool, bool, float]:
        is_other = is_installed and host.client.digest(needs.model) != needs.digest
        return is_other, host.name in needs.avoid, is_new and predictions[host].evicts, predictions[host].cost

    best = min(map(rank, hosts))
    tied = [host for host in hosts if rank(host) == best]
    key = f"{needs.session_id}\0{qualified_name(needs.model)}"
    host = max(tied, key=lambda host: sha256(f"{host.name}\0{key}".encode()).digest())
    model = host.model(needs.model)
    if predictions[host].loads:
        model.held = {id: tokens for id, tokens in model.held.items() if tokens == _BEGUN}
    if needs.session_id:
        model.held.setdefault(needs.session_id, _BEGUN)
    for other in hosts:
        if other is not host and needs.session_id in (held := other.model(needs.model).held):
            held[needs.session_id] = 0
    reason = "prompt_cached" if predictions[host].held else "least_time" if len(tied) == 1 else "hash"
    return host, reason


def _smooth(before: float | None, value: float) -> float:
    return value if before is None else before + _SMOOTHING * (value - before)


def number(value: object) -> float:
    """Return a count or a duration of Ollama, or 0 for another value."""
    return float(value) if isinstance(value, int | float) and value > 0 else 0.0
