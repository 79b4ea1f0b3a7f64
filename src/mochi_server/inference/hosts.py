"""Ollama hosts of this server: which hosts there are, which of them respond, and which models they
have.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal, TypeVar

from mochi_server.config import HostAddress
from mochi_server.errors import (
    HostsUnreachable,
    MochiError,
    ModelNotFound,
    OllamaBusy,
    OllamaError,
    OllamaTimeout,
    OllamaUnreachable,
)
from mochi_server.inference.permitted_models import is_permitted, permitted, request_permitted
from mochi_server.inference.slots import HeldPrompt, ModelSlots
from mochi_server.inference.waiting import FairQueue, RequestTracker
from mochi_server.inference.window_registry import WindowRegistry
from mochi_server.ollama.async_client import AsyncOllamaClient
from mochi_server.ollama.errors import (
    is_context_refusal,
    is_out_of_memory,
    is_unparsed_call,
    is_unreadable_image,
)
from mochi_server.ollama.payloads import qualified_name
from mochi_server.ollama.types import ModelInfo
from mochi_server.util.tasks import call_in_daemon_thread, cancel_and_wait, start_in

_MIN_PAUSE = 1.0
_MAX_PAUSE = 60.0
_LOADED_SECONDS = 0.1  # to wait for the loaded models of all hosts before a choice
_FILE_SECONDS = 1.0  # to wait for the file of hosts
_LOOKUP_SECONDS = 1.0  # to wait for the lists of all hosts, if a first host has answered

_REFUSALS = (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.NOT_IMPLEMENTED)
"""Statuses with which Ollama refuses one request. The last is about models without embeddings."""

_Result = TypeVar("_Result")
Lookup = Callable[[AsyncOllamaClient], Awaitable[_Result]]
logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Host:
    """One Ollama host, with its windows, its requests and the slots of its models."""

    name: str
    client: AsyncOllamaClient
    windows: WindowRegistry
    tracker: RequestTracker
    queue: FairQueue
    models: dict[str, ModelSlots] = field(default_factory=dict)  # by qualified name
    # Number of models that fit into memory, or None if no load has replaced a model.
    max_models: int | None = None
    loaded: frozenset[str] = frozenset()  # names of the loaded models at the latest choice
    is_draining: bool = False  # whether it was removed from the list of hosts
    # Why the host is down, or None. It is left out unless it is the only host.
    failure: MochiError | None = None
    pause: float = _MIN_PAUSE  # seconds until the next probe of a host that is left out

    @property
    def state(self) -> Literal["up", "down", "draining"]:
        if self.is_draining:
            return "draining"
        return "up" if self.failure is None else "down"

    def slots(self, model: str) -> ModelSlots:
        return self.models.setdefault(qualified_name(model), ModelSlots())

    def loaded_window(self, model: str) -> int | None:
        """Return the window with which a model is loaded, or None if the model is not loaded.

        If Ollama has not reported which models are loaded, return 0 for a model that has got
        prompts, and None for any other.
        """
        if self.client.last_windows is None:
            return 0 if self.slots(model).prompts else None
        return self.client.last_windows.get(qualified_name(model))

    def update_loaded(self) -> None:
        """Update ``loaded``, and derive from it how many models fit into memory.

        That is unknown until a load replaces another model.
        """
        before = self.loaded
        self.loaded = frozenset(self.client.last_windows or ())
        added = self.loaded - before
        removed = before - self.loaded
        if added and removed:
            self.max_models = len(self.loaded)
        elif self.max_models:
            self.max_models = max(self.max_models, len(self.loaded))

    def prompts_of_others(self, model: str) -> list[HeldPrompt | None]:
        """Return the prompts in the slots of all other loaded models."""
        prompts: list[HeldPrompt | None] = []
        for name in self.loaded - {qualified_name(model)}:
            if name in self.models:
                prompts += self.models[name].prompts
        return prompts

    def record_success(self) -> None:
        """Use the host again, because it has answered a request."""
        self.pause = _MIN_PAUSE
        self.failure = None

    def has(self, model: str) -> bool:
        """Return whether the latest list of the host's models contains a model that the caller may
        use.
        """
        return is_permitted(model) and self.client.digest(model) is not None


def is_host_failure(error: MochiError) -> bool:
    """Return whether an error shows that a host does not work, and not that it refused one
    request.
    """
    if not isinstance(error, OllamaError):
        return isinstance(error, OllamaUnreachable)
    is_about_request = error.is_reported and error.details.get("upstream_status") in _REFUSALS
    if is_about_request or is_unparsed_call(error):
        return False
    if error.is_reported and is_unreadable_image(error):
        return False
    return not is_context_refusal(error) and not is_out_of_memory(error)


def may_succeed_elsewhere(error: MochiError) -> bool:
    """Return whether another host may answer a failed request, because it works, has the model or
    has more memory.
    """
    if isinstance(error, ModelNotFound) or is_host_failure(error):
        return True
    return isinstance(error, OllamaError) and is_out_of_memory(error)


def _has_responded(error: MochiError) -> bool:
    """Return whether an error is a response, which shows that the host responds."""
    if not isinstance(error, OllamaError):
        return False
    return bool(error.upstream_text) or "upstream_status" in error.details


def _is_lost(error: MochiError) -> bool:
    """Return whether an error shows that the connection to a host failed or broke."""
    if isinstance(error, ModelNotFound | OllamaTimeout):
        return False
    return not _has_responded(error)


def _without_text(host: Host, error: MochiError) -> MochiError:
    """Return the error of one request as other requests receive it.

    Ollama's own text may contain text of the conversation. The others have not had its timeout.
    """
    is_of_request = _has_responded(error) or isinstance(error, OllamaTimeout)
    if isinstance(error, OllamaBusy) or not is_of_request:
        return error
    url = host.client.endpoint.url
    text = f"Ollama at {url} is left out for a moment, because another request failed there."
    return HostsUnreachable(text, ollama_host=url)


class Fleet:
    """All Ollama hosts. A single host can be down, but is never left out, and its errors are raised
    unchanged.

    The methods for models and connections are those of ``AsyncOllamaClient``.
    """

    def __init__(
        self,
        read: Callable[[], Sequence[HostAddress]],
        connect: Callable[[HostAddress], Host],
        file: Path | None,
    ) -> None:
        """``read`` returns the hosts' addresses, again after ``file`` has changed.

        It may raise ``ValueError``.
        """
        self._read = read
        self._connect = connect
        self._file = file
        self._version = self._file_version()
        self._reading: asyncio.Future[None] | None = None
        self._is_slow = False  # whether the file system does not respond
        # includes the removed hosts
        self._by_address = {address: connect(address) for address in read()}
        self._tasks: set[asyncio.Future[Any]] = set()
        self._warned: set[str] = set()

    @property
    def hosts(self) -> list[Host]:
        """Listed hosts, and removed hosts until their requests have ended."""
        return [
            host
            for host in self._by_address.values()
            if not host.is_draining or host.tracker.count()
        ]

    @property
    def active(self) -> list[Host]:
        """Hosts that get new turns, including those that do not respond."""
        return [host for host in self._by_address.values() if not host.is_draining]

    @property
    def up(self) -> list[Host]:
        """Active hosts that respond, or all active hosts if none responds."""
        return [host for host in self.active if host.failure is None] or self.active

    @property
    def is_single(self) -> bool:
        """Whether there is one host, also counting removed hosts whose requests have not ended."""
        return len(self.hosts) == 1

    async def aclose(self) -> None:
        await cancel_and_wait([*self._tasks])
        for host in self._by_address.values():
            await host.client.aclose()

    def record_failure(
        self, host: Host, error: MochiError, *, is_answering: bool = False, is_cloud: bool = False
    ) -> None:
        """Record the error of a request. Ignore an error that does not concern the whole host.

        The host is left out for a growing pause, and requests that wait for it fail. A single host
        is down until it answers a request or a probe, but it is not left out.

        If ``is_answering`` is true, an error that Ollama reports concerns only that answer. If
        ``is_cloud`` is true, it may be an error of the model's provider.
        """
        if host.failure is not None or host.is_draining or not is_host_failure(error):
            return
        if is_answering and _has_responded(error):
            return
        if is_cloud and isinstance(error, OllamaError) and error.is_reported:
            return
        host.failure = _without_text(host, error)
        if not self.is_single:
            host.models.clear()
            reason = error.message if isinstance(error, OllamaUnreachable) else error.code
            logger.warning(
                "Ollama host left host=%s pause_seconds=%g: %s", host.name, host.pause, reason
            )
            host.queue.abort(host.failure)
            start_in(self._tasks, self._probe_until_reachable(host))

    async def _probe_until_reachable(self, host: Host) -> None:
        while host.failure is not None and not host.is_draining:
            await asyncio.sleep(host.pause)
            host.pause = min(host.pause * 2, _MAX_PAUSE)
            if await host.client.is_reachable():
                await host.client.loaded_windows()  # a host that was restarted has lost its models
                host.failure = None
                logger.info("Ollama host returned host=%s", host.name)

    async def is_reachable(self) -> bool:
        """Return whether a host responds. Leave out the others."""
        await self.refresh()

        async def check(host: Host) -> bool:
            responds = await host.client.is_reachable()
            if not responds:
                endpoint = host.client.endpoint
                reason = "it does not respond"
                self.record_failure(host, OllamaUnreachable(endpoint.url, reason, endpoint.setting))
            elif self.is_single:
                host.failure = None
            return responds

        results = await asyncio.gather(*map(check, self.active))
        versions = {host.name: host.client.version for host in self.active}
        self._warn_if_different("versions", versions)
        return any(results)

    async def revived(self, failures: Mapping[Host, MochiError]) -> list[Host]:
        """Return the hosts that were lost and respond again.

        A host that had a timeout is not lost: the same request would wait as long again. An only
        host is not tried again.
        """
        if self.is_single:
            return []
        lost = [host for host, error in failures.items() if _is_lost(error)]
        probes = [host.client.is_reachable() for host in lost]
        responses = await asyncio.gather(*probes)
        return [host for host, responds in zip(lost, responses, strict=True) if responds]

    def prefetch_loaded(self) -> None:
        """Read the file of hosts, and request the loaded models of the hosts that are up, in the
        background.
        """
        if self._file is not None:
            start_in(self._tasks, self.refresh())
        for host in self.up:
            host.client.prefetch_loaded()

    async def wait_for_loaded(self) -> None:
        """Wait briefly for the loaded models of all hosts that respond, if there are several to
        choose from.
        """
        up = self.up
        if len(up) > 1:
            lookups = [start_in(self._tasks, host.client.loaded_windows()) for host in up]
            await asyncio.wait(lookups, timeout=_LOADED_SECONDS)

    async def find_model(self, name: str) -> ModelInfo:
        """Return the chat model ``name`` of the first host that has it.

        Raises ``ModelNotFound``, or another error if each host fails. If a host that had the model
        fails, raise its error, unless another one has the model only for embeddings.
        """
        return await self._find(name, lambda client: client.find_model(name))

    async def find_installed(self, name: str) -> ModelInfo:
        """Like ``find_model``, for models that cannot chat too."""
        return await self._find(name, lambda client: client.find_installed(name))

    async def list_models(self) -> list[ModelInfo]:
        """List the chat models of all hosts that the caller may use.

        If there are several hosts, each model has the names of its hosts.
        """
        return permitted(await self._union(lambda client: client.list_models()))

    async def list_installed(self) -> list[ModelInfo]:
        """Like ``list_models``, with the models that cannot chat too."""
        return permitted(await self._union(lambda client: client.list_installed()))

    async def _find(self, name: str, find: Lookup[ModelInfo]) -> ModelInfo:
        found, errors = await self._request_all(
            lambda client: request_permitted(client, name, find)
        )
        if found:
            digests = {host.name: host.client.digest(name) or "" for host in found}
            self._warn_if_different(f"digests of model {name}", digests)
            first = next(iter(found.values()))
            return replace(first, hosts=self._names_if_several(digests))
        missing = _missing_on(errors)
        is_embedding_model = any(error.is_other_kind for error in missing.values())
        # A host that is left out may still have the model.
        left_out = {host: host.failure for host in self.active if host.failure and host.has(name)}
        if left_out and not is_embedding_model:
            raise no_host_left(left_out)
        if missing:
            raise ModelNotFound.on_hosts(missing)
        raise no_host_left(errors)

    async def _union(self, list_of: Lookup[list[ModelInfo]]) -> list[ModelInfo]:
        found, errors = await self._request_all(list_of)
        if not found:
            raise no_host_left(errors)
        union: dict[object, ModelInfo] = {}
        for host, models in found.items():
            names = self._names_if_several([host.name])
            for number, model in enumerate(models):
                # The list of a single result stays as it is, even if it repeats a name.
                key = qualified_name(model.name) if len(found) > 1 else number
                before = union.get(key, model)
                union[key] = replace(before, hosts=[*before.hosts, *names])
        return [*union.values()]

    def _names_if_several(self, names: Iterable[str]) -> list[str]:
        """Return the names of hosts for a model, or none if the fleet has only one host."""
        return [] if self.is_single else list(names)

    async def _request_all(
        self, call: Lookup[_Result]
    ) -> tuple[dict[Host, _Result], dict[Host, MochiError]]:
        """Return the results and the errors of the hosts that respond in time.

        Wait briefly for all hosts. If none has a result then, wait until all requests have ended.
        Request the hosts that are left out only if no other host has a result. With one host, raise
        its error.
        """
        await self.refresh()
        active = self.active
        if len(active) == 1:
            only = active[0]
            return {only: await call(only.client)}, {}
        found: dict[Host, _Result] = {}
        errors: dict[Host, MochiError] = {}

        async def request(host: Host) -> None:
            try:
                found[host] = await call(host.client)
            except MochiError as error:
                errors[host] = error.with_traceback(None)
                self.record_failure(host, error)

        up = self.up
        left_out = [host for host in active if host not in up]  # one may respond again
        for hosts in (up, left_out):
            if hosts and not found:
                tasks = [start_in(self._tasks, request(host)) for host in hosts]
                await asyncio.wait(tasks, timeout=_LOOKUP_SECONDS)
                if not found:
                    await asyncio.wait(tasks)
        # In the order of the hosts, not of their responses
        ordered_errors = {host: errors[host] for host in active if host in errors}
        return {host: found[host] for host in active if host in found}, ordered_errors

    async def refresh(self, seconds: float = _FILE_SECONDS) -> None:
        """Read the file of hosts again if it has changed. An invalid file changes nothing.

        A thread reads the file, because a network file system may hang. After ``seconds``, or at
        once if it hangs already, the known hosts are used.
        """
        if self._file is None or (self._reading and self._is_slow):
            return
        reading = self._reading = self._reading or start_in(self._tasks, self._read_again())
        await asyncio.wait({reading}, timeout=seconds)
        if not reading.done() and not self._is_slow:
            self._is_slow = True
            logger.warning(
                "Ollama hosts cannot be read yet file=%s: the file system does not respond",
                self._file,
            )

    async def _read_again(self) -> None:
        try:
            addresses = await call_in_daemon_thread(self._read_if_changed)
            if addresses is not None:
                self._change(addresses)
        except ValueError as error:
            logger.warning("Ollama hosts not changed: %s", error)
        finally:
            self._reading = None
            self._is_slow = False

    def _read_if_changed(self) -> Sequence[HostAddress] | None:
        version = self._file_version()
        if version == self._version:
            return None
        self._version = version
        return self._read()

    def _change(self, addresses: Sequence[HostAddress]) -> None:
        """Use the hosts at ``addresses``. Drain the others, and abort their queued requests."""
        before = self._by_address
        was_single = self.is_single
        listed = {address: before.get(address) or self._connect(address) for address in addresses}
        removed = {address: host for address, host in before.items() if address not in listed}
        self._by_address = listed | removed
        names = [address.name for address in addresses]
        logger.info("Ollama hosts changed hosts=%s", ",".join(names))
        for host in listed.values():
            if host.is_draining or was_single:
                host.failure = None  # the host was not probed
            host.is_draining = False
        for host in removed.values():
            host.is_draining = True
            endpoint = host.client.endpoint
            reason = "it was removed from the list of hosts"
            host.queue.abort(OllamaUnreachable(endpoint.url, reason, endpoint.setting))

    def _file_version(self) -> tuple[int, ...] | None:
        if self._file is None:
            return None
        try:
            status = self._file.stat()
        except OSError:
            return None
        # The change time, because permissions may have prevented reading.
        return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino

    def _warn_if_different(self, what: str, values: Mapping[str, str]) -> None:
        known = {name: value for name, value in values.items() if value}
        is_different = len(set(known.values())) > 1
        if not is_different or what in self._warned:
            return
        self._warned.add(what)
        texts = [f"{name}: {value}" for name, value in sorted(known.items())]
        logger.warning("Ollama hosts have different %s. %s", what, ", ".join(texts))


def no_host_left(failures: Mapping[Host, MochiError]) -> MochiError:
    """Return the error of a request that no host can answer.

    The error of one host stays as it is. The error of several names each host with its reason.
    """
    errors = [*failures.values()]
    if len(errors) == 1:
        return errors[0]
    missing = _missing_on(failures)
    if len(missing) == len(errors):
        return ModelNotFound.on_hosts(missing)
    reasons = {host.name: error.message for host, error in failures.items()}
    shown = [f"{name}: {reason}" for name, reason in reasons.items()]
    text = f"No Ollama host can answer. {' '.join(shown)}"
    if all(isinstance(error, OllamaBusy) for error in errors):
        seconds = max(error.retry_after or 1 for error in errors)
        busy = OllamaBusy("all hosts", retry_after=seconds)
        busy.message = text
        busy.details["hosts"] = reasons
        return busy
    if all(isinstance(error, OllamaUnreachable) for error in errors):
        return HostsUnreachable(text, hosts=reasons)
    return OllamaError(text, hosts=reasons)


def _missing_on(failures: Mapping[Host, MochiError]) -> dict[str, ModelNotFound]:
    """Return the errors of the hosts that lack the model, by the names of the hosts."""
    missing = {}
    for host, error in failures.items():
        if isinstance(error, ModelNotFound):
            missing[host.name] = error
    return missing
