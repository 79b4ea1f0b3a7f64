"""Choice of an Ollama host: the predicted time until the first token on each host, from what the hosts have shown."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal, NamedTuple

from mochi_server.errors import MochiError
from mochi_server.inference.requests import ModelRequest
from mochi_server.inference.slots import HeldPrompt, ModelSlots
from mochi_server.inference.waiting import FairQueue, RequestTracker
from mochi_server.inference.windows import WindowRegistry
from mochi_server.ollama.async_client import AsyncOllamaClient
from mochi_server.ollama.payloads import qualified_name

MIN_PAUSE = 1.0
_TOKENS_PER_SECOND = 1000.0  # these values are assumed until a host has shown its own
_ANSWER_SECONDS = 1.0
_LOAD_SECONDS = 3.0


@dataclass(eq=False)
class Host:
    """One Ollama host, with its windows, its requests and the slots of its models."""

    name: str
    client: AsyncOllamaClient
    windows: WindowRegistry
    tracker: RequestTracker
    queue: FairQueue
    models: dict[str, ModelSlots] = field(default_factory=dict)  # by qualified name
    max_models: int | None = None  # number of models that fit into memory, or None if no load has replaced a model
    loaded: frozenset[str] = frozenset()  # names of the loaded models at the latest choice
    is_draining: bool = False  # whether it was removed from the list of hosts
    failure: MochiError | None = None  # why the host is left out, or None
    pause: float = MIN_PAUSE  # seconds until the next probe of a host that is left out

    @property
    def state(self) -> Literal["up", "down", "draining"]:
        return "draining" if self.is_draining else "down" if self.failure is not None else "up"

    def slots(self, model: str) -> ModelSlots:
        return self.models.setdefault(qualified_name(model), ModelSlots())

    def loaded_window(self, model: str) -> int | None:
        """Return the window with which a model is loaded, 0 if it is unknown, or None if the model is not loaded."""
        if self.client.last_windows is None:  # Ollama did not report which models are loaded
            return 0 if self.slots(model).prompts else None
        return self.client.last_windows.get(qualified_name(model))

    def update_loaded(self) -> None:
        """Learn from the loaded models how many of them fit into memory."""
        before, self.loaded = self.loaded, frozenset(self.client.last_windows or ())
        if self.loaded - before and before - self.loaded:
            self.max_models = len(self.loaded)
        elif self.max_models:
            self.max_models = max(self.max_models, len(self.loaded))

    def prompts_of_others(self, model: str) -> list[HeldPrompt | None]:
        """Return the prompts in the slots of all other loaded models."""
        names = self.loaded - {qualified_name(model)}
        return [prompt for name in names if name in self.models for prompt in self.models[name].prompts]

    def has(self, model: str) -> bool:
        """Return whether the latest list of the host's models contains a model."""
        return self.client.digest(model) is not None


class Prediction(NamedTuple):
    """Predicted cost of a prompt on one host."""

    cost: float  # seconds until the first token, and seconds to evaluate the evicted prompts again
    evicts: bool  # whether the prompt replaces one that another session may continue
    held: int  # tokens of the prompt that a slot holds
    loads: bool  # whether Ollama must load or reload the model


def predict(host: Host, hosts: Sequence[Host], request: ModelRequest) -> Prediction:
    """Predict the cost of a prompt on ``host``. What the host has not shown is the mean of the other hosts."""

    def known(name: str, default: float) -> float:
        own, *others = (getattr(each.slots(request.model), name) for each in (host, *hosts))
        values = [value for value in others if value is not None] or [default]
        return float(own or sum(values) / len(values))

    window = host.loaded_window(request.model)
    is_reload = window is not None and not request.allocation.fits(window, request.tokens)
    loads = is_reload or window is None

    # Prompts that the slots hold. Without a limit of requests, their number may be unknown.
    parallel = host.queue.limit or host.tracker.slots(request.model)
    slots = host.slots(request.model)
    capacity = max(slots.capacity, parallel)
    max_capacity = host.queue.limit or slots.max_capacity
    if max_capacity is None:  # expect the host to hold as many prompts as any other, until a miss shows its limit
        capacity = max(capacity, *(each.slots(request.model).capacity for each in hosts))
    prompts = slots.prompts[-max(capacity, max_capacity) :] if max_capacity else slots.prompts
    own = slots.find(request.session_id)
    own = own if own in prompts else None
    held_tokens = min(own.tokens, request.tokens) if own is not None and not loads else 0

    # Prompts of other sessions that this prompt would remove from the memory of the host
    evicted: list[HeldPrompt | None] = []
    if is_reload:
        evicted = prompts
    elif loads and host.max_models and len(host.loaded) >= host.max_models:
        evicted = host.prompts_of_others(request.model)
    elif not loads and own is None and len(prompts) >= capacity:
        evicted = [prompts[-capacity]]
    others = [prompt for prompt in evicted if prompt is not None and prompt is not own]
    tokens = request.tokens - held_tokens + sum(prompt.tokens for prompt in others)

    requests = host.tracker.count(None if host.queue.limit else request.model)
    cost = tokens / known("tokens_per_second", _TOKENS_PER_SECOND)
    cost += max(requests - parallel + 1, 0) / parallel * known("answer_seconds", _ANSWER_SECONDS)
    if loads:
        cost += known("load_seconds", _LOAD_SECONDS)
    return Prediction(cost, bool(others), held_tokens, loads)


def choose(hosts: Sequence[Host], request: ModelRequest, digest: str | None) -> tuple[Host, str]:
    """Return the host with the least cost, and the reason. A new session takes a free slot if any host has one.

    Ties are decided by rendezvous hashing, so that servers with the same database make the same choice.
    """
    for host in hosts:
        host.update_loaded()
    predictions = {host: predict(host, hosts, request) for host in hosts}
    is_new = not any(prediction.held for prediction in predictions.values())
    is_installed = digest in {host.client.digest(request.model) for host in hosts}

    def rank(host: Host) -> tuple[bool, bool, bool, float]:
        is_other = is_installed and host.client.digest(request.model) != digest
        return is_other, host.name in request.avoid, is_new and predictions[host].evicts, predictions[host].cost

    best = min(map(rank, hosts))
    tied = [host for host in hosts if rank(host) == best]
    key = f"{request.session_id}\0{qualified_name(request.model)}"
    host = max(tied, key=lambda host: sha256(f"{host.name}\0{key}".encode()).digest())
    if predictions[host].loads:
        host.slots(request.model).discard_answered()
    for other in hosts:
        if other is not host:
            other.slots(request.model).discard(request.session_id)
    host.slots(request.model).reserve(request.session_id)
    reason = "prompt_cached" if predictions[host].held else "least_time" if len(tied) == 1 else "hash"
    return host, reason
