"""Choice of an Ollama host: the predicted time until the first token on each host, from what the hosts have shown."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal, NamedTuple

from mochi_server.errors import MochiError
from mochi_server.inference.slots import ModelSlots
from mochi_server.inference.waiting import FairQueue, RequestTracker
from mochi_server.inference.windows import WindowRegistry
from mochi_server.ollama.async_client import AsyncOllamaClient
from mochi_server.ollama.payloads import qualified_name

MIN_PAUSE = 1.0
_TOKENS_PER_SECOND = 1000.0  # these values are assumed until a host has shown its own
_ANSWER_SECONDS = 1.0
_LOAD_SECONDS = 3.0
_REPLACEMENT_FACTOR = 1.25  # of the load time if other models are in memory, because one of them may have to leave it
_WINDOW_BUFFER = 1.5  # smallest window for a prompt, as a multiple of its tokens, as in `windows`


@dataclass(eq=False)
class Host:
    """One Ollama host, with its windows, its requests and the slots of its models."""

    name: str
    client: AsyncOllamaClient
    windows: WindowRegistry
    tracker: RequestTracker
    queue: FairQueue
    models: dict[str, ModelSlots] = field(default_factory=dict)  # by qualified name
    is_draining: bool = False  # whether it was removed from the list of hosts
    failure: MochiError | None = None  # why the host is left out, or None
    pause: float = MIN_PAUSE  # seconds until the next probe of a host that is left out

    @property
    def state(self) -> Literal["up", "down", "draining"]:
        return "draining" if self.is_draining else "down" if self.failure is not None else "up"

    def slots(self, model: str) -> ModelSlots:
        return self.models.setdefault(qualified_name(model), ModelSlots())

    def has(self, model: str) -> bool:
        """Return whether the latest list of the host's models contains a model."""
        return self.client.digest(model) is not None


@dataclass(frozen=True, slots=True)
class PromptNeeds:
    """A prompt that needs a host."""

    session_id: str
    model: str
    tokens: int  # estimated number of tokens
    window: int = 0  # smallest context window that the session accepts, in tokens
    is_manual: bool = False  # whether the window must be exactly `window`
    digest: str | None = None  # of the model with which the conversation began
    avoid: Collection[str] = ()  # names of hosts that serve other parts of the same comparison

    def fits(self, loaded_window: int) -> bool:
        """Return whether Ollama needs no reload. The window 0 is unknown."""
        if self.is_manual:
            return loaded_window in (0, self.window)
        return not loaded_window or loaded_window >= max(self.window, self.tokens * _WINDOW_BUFFER)


class Prediction(NamedTuple):
    """Predicted cost of a prompt on one host."""

    cost: float  # seconds until the first token, and seconds to evaluate the evicted prompts again
    evicts: bool  # whether the prompt replaces one that another session may continue
    held: int  # tokens of the prompt that a slot holds
    loads: bool  # whether Ollama must load or reload the model


def predict(host: Host, hosts: Sequence[Host], needs: PromptNeeds) -> Prediction:
    """Predict the cost of a prompt on ``host``. What the host has not shown is the mean of the other hosts."""

    def known(name: str, default: float) -> float:
        own, *others = (getattr(each.slots(needs.model), name) for each in (host, *hosts))
        values = [value for value in others if value is not None] or [default]
        return float(own or sum(values) / len(values))

    model, speed = host.slots(needs.model), known("tokens_per_second", _TOKENS_PER_SECOND)
    slots = host.queue.limit or host.tracker.slots(needs.model)
    capacity = max(model.capacity, slots)
    held = model.prompts[-capacity:] if host.queue.limit else model.prompts  # without a limit, there may be more slots
    own = next((prompt for prompt in held if needs.session_id and prompt.session_id == needs.session_id), None)
    loaded = host.client.last_windows  # None if unknown
    is_loaded = bool(held) if loaded is None else qualified_name(needs.model) in loaded
    loads = not (is_loaded and needs.fits((loaded or {}).get(qualified_name(needs.model), 0)))
    if loads:  # a reload removes all prompts from the slots
        held_tokens, evicted = 0, [prompt for prompt in held if is_loaded and prompt is not own]
    else:
        held_tokens = min(own.tokens, needs.tokens) if own else 0
        evicted = [held[-capacity]] if own is None and len(held) >= capacity else []
    evicted = [prompt for prompt in evicted if prompt.session_id]

    requests = host.tracker.count(None if host.queue.limit else needs.model)
    wait = max(requests - slots + 1, 0) / slots * known("answer_seconds", _ANSWER_SECONDS)
    load = 0.0
    if loads:
        load = known("load_seconds", _LOAD_SECONDS)
        load *= _REPLACEMENT_FACTOR if loaded and not is_loaded else 1
    tokens = needs.tokens - held_tokens + sum(prompt.tokens for prompt in evicted)
    return Prediction(wait + load + tokens / speed, bool(evicted), held_tokens, loads)


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
    if predictions[host].loads:
        host.slots(needs.model).discard_answered()
    for other in hosts:
        if other is not host:
            other.slots(needs.model).discard(needs.session_id)
    host.slots(needs.model).reserve(needs.session_id)
    reason = "prompt_cached" if predictions[host].held else "least_time" if len(tied) == 1 else "hash"
    return host, reason
