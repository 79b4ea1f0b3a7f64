"""Prediction of the time until the first token on each host, and the choice of a host for a request."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

from mochi_server.ollama.payloads import qualified_name

_TOKENS_PER_SECOND, _MAX_TOKENS_PER_SECOND = 1000.0, 10_000.0  # the default, and a limit for implausible measurements
_ANSWER_SECONDS = 1.0  # until the first answer has been measured
_LOAD_SECONDS, _MIB_PER_SECOND = 1.0, 4096  # to load a model, until the first load has been measured
_MIN_LOAD_SECONDS = 0.1  # Ollama reports a few milliseconds for models that are in memory
_KEPT_RATIO = 0.5  # share of the tokens of a prompt and its answer that is still cached if a slot has kept them
_WINDOW_BUFFER = 1.5  # as in `windows`: smallest window for a prompt, as a multiple of its tokens
_SMOOTHING = 0.3
_NANO = 1e-9


@dataclass(eq=False, slots=True)
class HostModel:
    """Measurements of one model on one host, and the sessions whose prompts the slots of the model hold."""

    capacity: int = 1  # number of prompts that the slots are known to hold
    most: int | None = None  # number of prompts that they hold at most, or None if unknown
    requests: int = 0  # running and waiting requests of this server
    speed: float | None = None  # in tokens per second
    load_seconds: float | None = None
    answer_seconds: float | None = None
    held: dict[str, int] = field(default_factory=dict)  # tokens by session ID, the least recently used first

    def begin(self, session_id: str) -> int | None:
        """Record that a prompt of the session takes a slot. Return how many others did since its last, or None."""
        if not session_id:
            return None
        sessions = [*self.held]
        others = len(sessions) - sessions.index(session_id) - 1 if session_id in self.held else None
        self.held[session_id] = self.held.pop(session_id, 0)
        while self.most is not None and len(self.held) > self.most:
            del self.held[next(iter(self.held))]
        return others

    def record(self, session_id: str, others: int | None, before: int, last: Mapping[str, Any], seconds: float) -> None:
        """Record an answer that took ``seconds``. ``before`` is the number of tokens that the slot held before it."""
        count, cached = number(last.get("prompt_eval_count")), last.get("prompt_eval_cached_count")
        evaluated, duration = count - number(cached), number(last.get("prompt_eval_duration")) * _NANO
        if evaluated > 0 and duration > 0:
            self.speed = _smooth(self.speed, min(evaluated / duration, _MAX_TOKENS_PER_SECOND))
        if (load := number(last.get("load_duration")) * _NANO) >= _MIN_LOAD_SECONDS:
            self.load_seconds = _smooth(self.load_seconds, load)
        self.answer_seconds = _smooth(self.answer_seconds, seconds)
        if not session_id:
            return
        self.held[session_id] = int(count + number(last.get("eval_count")))
        if before and others is not None and cached is not None and load < _MIN_LOAD_SECONDS:
            if number(cached) >= min(before, count) * _KEPT_RATIO:
                self.capacity = max(self.capacity, others + 1)
                self.most = None if self.most is None else max(self.most, self.capacity)
            elif others:
                self.most = max(others, 1)
                self.capacity = min(self.capacity, self.most)


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


class HostView(NamedTuple):
    """State of a host for the prediction. ``loaded`` has the windows of loaded models, or is None if unknown."""

    name: str
    model: HostModel
    others: Sequence[HostModel]  # other models that the host has loaded
    loaded: Mapping[str, int] | None
    digest: str | None
    requests: int  # running and waiting requests of this server for slots that the request needs
    slots: int
    together: int  # number of models that the host has had in memory at the same time


class Prediction(NamedTuple):
    """Predicted seconds until the first token. ``cost`` adds the seconds that the eviction of other prompts costs."""

    seconds: float
    cost: float
    evicts: bool
    held: int
    loads: bool


class Choice(NamedTuple):
    """Chosen host. ``loads`` is true if the host must load the model, which drops the prompts in its slots."""

    name: str
    reason: str
    loads: bool = False


def predict(host: HostView, fleet: Sequence[HostView], needs: PromptNeeds) -> Prediction:
    """Predict the time until the first token. Values that the host has not shown come from other hosts."""
    model = host.model
    speed = _known("speed", host, fleet) or _TOKENS_PER_SECOND
    load = _known("load_seconds", host, fleet) or _LOAD_SECONDS + needs.size_mb / _MIB_PER_SECOND
    answer = _known("answer_seconds", host, fleet) or _ANSWER_SECONDS
    is_loaded, fits = _is_loaded(host, needs)
    loads = not (is_loaded and fits)
    held = 0 if loads else min(model.held.get(needs.session_id, 0), needs.tokens)
    seconds = max(host.requests - host.slots + 1, 0) / host.slots * answer
    seconds += (needs.tokens - held) / speed + loads * load
    evicted: list[HostModel] = []
    is_full = not held and len(model.held) >= max(model.capacity, host.slots)
    if is_loaded and (is_full or not fits):  # a reload drops all prompts
        evicted.append(model)
    if not is_loaded and len(host.others) >= host.together:
        evicted += host.others
    tokens = sum(count for each in evicted for id, count in each.held.items() if id != needs.session_id)
    return Prediction(seconds, seconds + tokens / speed, tokens > 0, held, loads)


def choose(hosts: Sequence[HostView], needs: PromptNeeds) -> Choice:
    """Choose the host with the least cost. A new session takes a free slot if any host has one.

    Ties are decided by rendezvous hashing, so that servers with the same database make the same choice.
    """
    predictions = {host.name: predict(host, hosts, needs) for host in hosts}
    is_new = not any(prediction.held for prediction in predictions.values())
    digests = {host.digest for host in hosts}

    def rank(host: HostView) -> tuple[bool, bool, bool, float]:
        is_other = needs.digest in digests and host.digest != needs.digest
        prediction = predictions[host.name]
        return is_other, host.name in needs.avoid, is_new and prediction.evicts, prediction.cost

    best = min(map(rank, hosts))
    tied = [host.name for host in hosts if rank(host) == best]
    name = max(tied, key=lambda name: rendezvous(name, needs.session_id, needs.model))
    reason = "prompt_cached" if predictions[name].held else "least_time" if len(tied) == 1 else "hash"
    return Choice(name, reason, predictions[name].loads)


def rendezvous(host: str, session_id: str, model: str) -> bytes:
    """Return the weight of a host for a session and a model. The host with the largest weight is chosen."""
    return sha256(f"{host}\0{session_id}\0{qualified_name(model)}".encode()).digest()


def _is_loaded(host: HostView, needs: PromptNeeds) -> tuple[bool, bool]:
    """Return whether the model is loaded, and whether its window fits. What is unknown follows from earlier answers."""
    if host.loaded is None:
        return bool(host.model.held), True
    window = host.loaded.get(qualified_name(needs.model))
    if not window:
        return window is not None, True
    return True, window == needs.window if needs.is_manual else window >= max(
        needs.window, needs.tokens * _WINDOW_BUFFER
    )


def _known(name: str, host: HostView, fleet: Sequence[HostView]) -> float | None:
    """Return a measurement of the host, or else the mean of the other hosts, or None."""
    if (own := getattr(host.model, name)) is not None:
        return float(own)
    known = [value for each in fleet if (value := getattr(each.model, name)) is not None]
    return sum(known) / len(known) if known else None


def _smooth(before: float | None, value: float) -> float:
    return value if before is None else before + _SMOOTHING * (value - before)


def number(value: object) -> float:
    """Return a count or a duration of Ollama, or 0 for another value."""
    return float(value) if isinstance(value, int | float) and value > 0 else 0.0
