"""Choice of an Ollama host: the predicted time until the first token on each host, from what the
hosts have shown.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import NamedTuple

from mochi_server.inference.hosts import Host
from mochi_server.inference.requests import ModelRequest
from mochi_server.inference.slots import HeldPrompt
from mochi_server.ollama.payloads import qualified_name

_TOKENS_PER_SECOND = 1000.0  # these values are assumed until a host has shown its own
_ANSWER_SECONDS = 1.0
_LOAD_SECONDS = 3.0


class Prediction(NamedTuple):
    """Predicted cost of a prompt on one host."""

    cost: float  # seconds until the first token, and seconds to evaluate the evicted prompts again
    evicts: bool  # whether the prompt replaces one that another session may continue
    held_tokens: int  # tokens of the prompt that a slot holds
    loads: bool  # whether Ollama must load or reload the model


def predict(host: Host, hosts: Sequence[Host], request: ModelRequest) -> Prediction:
    """Predict the cost of a prompt on ``host``.

    A measurement that the host lacks is the mean of the other hosts.
    """
    is_cloud = request.allocation.model.is_cloud  # such a model needs no memory of the host
    window = 0 if is_cloud else host.loaded_window(request.model)
    is_reload = window is not None and not request.allocation.fits(window, request.tokens)
    loads = is_reload or window is None

    slots = host.slots(request.model)
    slots_of_hosts = [each.slots(request.model) for each in hosts]
    parallel = host.queue.limit or host.tracker.slots(request.model)
    capacity = max(slots.capacity, parallel)  # number of prompts that the slots hold at least
    max_capacity = host.queue.limit or slots.max_capacity
    prompts = slots.prompts  # those that the slots may hold
    if max_capacity is None:
        # Expect the host to hold as many prompts as any other, until a miss shows its limit.
        capacity = max(capacity, *(each.capacity for each in slots_of_hosts))
    else:
        # The limit may be smaller than what the slots are known to hold.
        prompts = prompts[-max(capacity, max_capacity) :]
    own = slots.find(request.session_id)
    if own not in prompts:
        own = None
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

    def known(name: str, default: float) -> float:
        own_value = getattr(slots, name)
        if own_value is not None:
            return float(own_value)
        return _mean([getattr(each, name) for each in slots_of_hosts], default)

    requests = host.tracker.count(None if host.queue.limit else request.model)
    rounds_before = max(requests - parallel + 1, 0) / parallel
    cost = tokens / known("tokens_per_second", _TOKENS_PER_SECOND)
    cost += rounds_before * known("answer_seconds", _ANSWER_SECONDS)
    if loads:
        cost += known("load_seconds", _LOAD_SECONDS)
    return Prediction(
        cost=cost,
        evicts=bool(others),
        held_tokens=held_tokens,
        loads=loads,
    )


def _mean(values: Iterable[float | None], default: float) -> float:
    """Return the mean of the known values, or ``default`` if no value is known."""
    known_values = [value for value in values if value is not None]
    if not known_values:
        return default
    return float(sum(known_values) / len(known_values))


def choose(hosts: Sequence[Host], request: ModelRequest, digest: str | None) -> tuple[Host, str]:
    """Choose the host with the least cost and reserve a slot there. Return the host and the reason.

    Hosts whose model has ``digest`` are preferred. A session whose prompt no host can reuse takes a
    free slot if any host has one.

    Ties are decided by rendezvous hashing, so that servers with the same database make the same
    choice.

    The other hosts discard the session's prompt. If the chosen host must load the model, it
    discards the model's answered prompts.
    """
    for host in hosts:
        host.update_loaded()
    predictions = {host: predict(host, hosts, request) for host in hosts}
    is_uncached = not any(prediction.held_tokens for prediction in predictions.values())

    def rank(host: Host) -> tuple[bool, bool, bool, float]:
        return (
            host.client.digest(request.model) != digest,
            host.name in request.avoid,
            is_uncached and predictions[host].evicts,
            predictions[host].cost,
        )

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
    if predictions[host].held_tokens:
        return host, "prompt_cached"
    return host, "least_time" if len(tied) == 1 else "hash"
