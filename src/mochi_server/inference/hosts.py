"""Ollama hosts of this server: which hosts there are, which of them respond, and which models they have."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from mochi_server.config import HostAddress
from mochi_server.errors import (
    HostsUnreachable,
    MochiError,
    ModelNotFound,
    OllamaBusy,
    OllamaError,
    OllamaUnreachable,
    hosts_text,
)
from mochi_server.inference.placement import HostModel
from mochi_server.inference.waiting import FairQueue
from mochi_server.ollama.async_client import AsyncOllamaClient
from mochi_server.ollama.errors import is_context_refusal, is_out_of_memory
from mochi_server.ollama.payloads import Endpoint, qualified_name
from mochi_server.ollama.types import ModelInfo
from mochi_server.util.tasks import cancel_and_wait

_MIN_PAUSE, _MAX_PAUSE = 1.0, 60.0
_LOOKUP_SECONDS = 1.0  # to wait for the lists of all hosts, if a first host has answered
_SERVER_ERROR = 500

_Result = TypeVar("_Result")
logger = logging.getLogger(__name__)


class Host:
    """One Ollama host. ``slots`` is the number of requests that it takes at a time, or None for no limit."""

    def __init__(self, address: HostAddress, client: AsyncOllamaClient, slots: int | None = None) -> None:
        self.address, self.name, self.client = address, address.name, client
        self.queue = FairQueue(slots)
        self.models: dict[str, HostModel] = {}
        self.requests = 0  # running and waiting requests of this server
        self.together = 1  # highest number of models that the host has had in memory at the same time
        self.is_draining = False
        self.failure: MochiError | None = None  # why the host is left out, or None
        self.pause = _MIN_PAUSE

    @property
    def state(self) -> Literal["up", "down", "draining"]:
        return "draining" if self.is_draining else "down" if self.failure is not None else "up"

    def model(self, name: str) -> HostModel:
        return self.models.setdefault(qualified_name(name), HostModel())

    @contextmanager
    def assigned(self, model: str) -> Iterator[HostModel]:
        """Count a request of ``model`` while it waits or runs."""
        entry = self.model(model)
        self.requests += 1
        entry.requests += 1
        try:
            yield entry
        finally:
            self.requests -= 1
            entry.requests -= 1


def is_host_failure(error: MochiError) -> bool:
    """Return whether an error shows that a host does not work, and not that it refused one request."""
    if isinstance(error, OllamaError):
        if is_context_refusal(error) or is_out_of_memory(error):
            return False
        return int(error.details.get("upstream_status", _SERVER_ERROR)) >= _SERVER_ERROR
    return isinstance(error, OllamaUnreachable)


@dataclass(frozen=True)
class HostList:
    """List of hosts. If the addresses come from ``file``, ``read`` returns them again. It may raise ``ValueError``."""

    read: Callable[[], Sequence[HostAddress]]
    file: Path | None = None


H = TypeVar("H", bound=Host)


class Fleet(Generic[H]):
    """All Ollama hosts. With one host, it is never left out, and its errors are raised unchanged.

    The methods for models and connections are those of ``AsyncOllamaClient``.
    """

    def __init__(self, addresses: HostList, connect: Callable[[HostAddress], H]) -> None:
        self._addresses, self._connect = addresses, connect
        self.hosts = [connect(address) for address in addresses.read()]
        self._signature = self._file_signature()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._warned: set[object] = set()

    @property
    def active(self) -> list[H]:
        """Hosts that get new turns, including those that do not respond."""
        return [host for host in self.hosts if not host.is_draining]

    @property
    def up(self) -> list[H]:
        """Active hosts that respond, or all active hosts if none responds."""
        active = self.active
        return [host for host in active if host.failure is None] or active

    @property
    def first(self) -> H:
        return self.up[0]

    @property
    def endpoint(self) -> Endpoint:
        return self.first.client.endpoint

    def find(self, name: str) -> H | None:
        """Return the active host with this name, or None."""
        return next((host for host in self.active if host.name == name), None)

    async def open(self) -> None:
        """Start to check which of several hosts respond."""
        if len(self.hosts) > 1:
            self._start(self.check())

    async def aclose(self) -> None:
        await cancel_and_wait([*self._tasks])
        for host in self.hosts:
            await host.client.aclose()

    def fail(self, host: H, error: MochiError) -> None:
        """Leave out a host for a growing pause, unless it is the only one. Requests that wait for it get ``error``."""
        if host.failure is not None:
            return
        host.failure = error
        if len(self.hosts) == 1:
            return
        reason = error.message if isinstance(error, OllamaUnreachable) else error.code
        logger.warning("Ollama host left host=%s pause_seconds=%g: %s", host.name, host.pause, reason)
        host.queue.abort(error)
        self._start(self._probe(host))

    def succeed(self, host: H) -> None:
        """Record that a host has answered."""
        host.pause = _MIN_PAUSE
        if host.failure is not None:
            host.failure = None
            logger.info("Ollama host returned host=%s", host.name)

    async def _probe(self, host: H) -> None:
        while host.failure is not None and host in self.hosts:
            await asyncio.sleep(host.pause)
            host.pause = min(host.pause * 2, _MAX_PAUSE)
            if await host.client.is_reachable():
                await host.client.loaded_windows()  # a host that was restarted has lost its models
                pause = host.pause
                self.succeed(host)
                host.pause = pause  # until it has answered a request

    async def check(self) -> bool:
        """Leave out the hosts that do not respond. Return whether a host responds."""
        hosts = self.active
        results = await asyncio.gather(*(host.client.is_reachable() for host in hosts))
        for host, responds in zip(hosts, results, strict=True):
            if not responds:
                self.fail(host, OllamaUnreachable(host.client.endpoint.url, "it does not respond"))
            elif len(self.hosts) == 1:
                host.failure = None
        versions = {host.name: host.client.version for host in hosts if host.client.version}
        self._warn_if_different("versions", versions)
        return any(results)

    async def is_reachable(self) -> bool:
        """Return whether a host responds."""
        self.refresh()
        return await self.check()

    def prefetch_loaded(self) -> None:
        """Request the loaded models of all hosts in the background."""
        self.refresh()
        for host in self.up:
            host.client.prefetch_loaded()

    async def find_model(self, name: str) -> ModelInfo:
        """Return the chat model ``name`` of the first host that has it. Raises ``ModelNotFound``."""
        return await self._find(name, lambda client: client.find_model(name))

    async def find_installed(self, name: str) -> ModelInfo:
        """Like ``find_model``, for models that cannot chat too."""
        return await self._find(name, lambda client: client.find_installed(name))

    async def list_models(self) -> list[ModelInfo]:
        """List the chat models of all hosts. Each model has the names of its hosts."""
        return _union(await self._ask(lambda client: client.list_models()))

    async def list_installed(self) -> list[ModelInfo]:
        """List all models of all hosts."""
        return _union(await self._ask(lambda client: client.list_installed()))

    async def _find(self, name: str, find: Callable[[AsyncOllamaClient], Awaitable[ModelInfo]]) -> ModelInfo:
        results = await self._ask(find)
        found = {host: model for host, model in results.items() if isinstance(model, ModelInfo)}
        if found:
            digests = {host.name: digest for host in found if (digest := host.client.digest(name))}
            self._warn_if_different(f"digests of model {name}", digests)
            first = next(iter(found.values()))
            return replace(first, hosts=[host.name for host in found])
        missing = {host: error for host, error in results.items() if isinstance(error, ModelNotFound)}
        away = {host: host.failure for host in self.active if host.failure and host.client.digest(name) is not None}
        if not missing or away:
            raise no_host_left(
                {host: error for host, error in (away or results).items() if isinstance(error, MochiError)}
            )
        raise next(iter(missing.values())).on_hosts([host.name for host in missing])

    async def _ask(self, call: Callable[[AsyncOllamaClient], Awaitable[_Result]]) -> Mapping[H, _Result | MochiError]:
        """Return the results of all hosts that respond, or their errors. With one host, raise its error."""
        self.refresh()
        if len(active := self.active) == 1:
            return {active[0]: await call(active[0].client)}

        async def ask(host: H) -> _Result | MochiError:
            try:
                return await call(host.client)
            except MochiError as error:
                if is_host_failure(error):
                    self.fail(host, error)
                return error.with_traceback(None)

        tasks = {host: self._start(ask(host)) for host in self.up}
        done, _ = await asyncio.wait(tasks.values(), timeout=_LOOKUP_SECONDS)
        if all(isinstance(task.result(), MochiError) for task in done):
            await asyncio.wait(tasks.values())
        return {host: task.result() for host, task in tasks.items() if task.done()}

    def refresh(self) -> None:
        """Read the file of hosts again if it has changed. An invalid file changes nothing."""
        if self._addresses.file is None or (signature := self._file_signature()) == self._signature:
            return
        self._signature = signature
        try:
            addresses = self._addresses.read()
        except ValueError as error:
            logger.warning("Ollama hosts not changed: %s", error)
            return
        if len(self.hosts) == 1 and len(addresses) > 1 and self.hosts[0].failure is not None:
            self._start(self._probe(self.hosts[0]))  # an only host is not probed
        known = {host.address: host for host in self.hosts}
        kept = [known.pop(address, None) or self._add(address) for address in addresses]
        for host in known.values():
            if not host.is_draining:
                logger.info("Ollama host removed host=%s", host.name)
                host.is_draining = True
                host.queue.abort(OllamaUnreachable(host.client.endpoint.url, "it was removed from the list of hosts"))
        for host in kept:
            host.is_draining = False
        self.hosts = [*kept, *known.values()]
        self.settle()

    def settle(self) -> None:
        """Drop the removed hosts whose requests have ended."""
        for host in [host for host in self.hosts if host.is_draining and not host.requests]:
            self.hosts.remove(host)
            self._start(host.client.aclose())

    def _add(self, address: HostAddress) -> H:
        logger.info("Ollama host added host=%s", address.name)
        return self._connect(address)

    def _file_signature(self) -> object:
        try:
            stat = self._addresses.file.stat() if self._addresses.file else None
        except OSError:
            return None
        return stat and (stat.st_mtime_ns, stat.st_size, stat.st_ino)

    def _warn_if_different(self, what: str, values: Mapping[str, str]) -> None:
        if len(set(values.values())) > 1 and (key := (what, *sorted(values.items()))) not in self._warned:
            self._warned.add(key)
            texts = ", ".join(f"{name}: {value}" for name, value in values.items())
            logger.warning("Ollama hosts have different %s. %s", what, texts)

    def _start(self, work: Coroutine[Any, Any, _Result]) -> "asyncio.Task[_Result]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def no_host_left(failures: Mapping[H, MochiError]) -> MochiError:
    """Return the error of a request that no host can answer. It names each host with its reason."""
    errors = [*failures.values()]
    if len(errors) == 1:
        return errors[0]
    reasons = {host.name: error.message for host, error in failures.items()}
    if all(isinstance(error, OllamaUnreachable) for error in errors):
        return HostsUnreachable(reasons)
    if all(isinstance(error, OllamaBusy) for error in errors):
        return OllamaBusy(hosts_text(reasons), retry_after=max(error.retry_after or 1 for error in errors))
    return OllamaError(hosts_text(reasons), hosts=reasons)


def _union(lists: Mapping[H, list[ModelInfo] | MochiError]) -> list[ModelInfo]:
    found = {host: models for host, models in lists.items() if isinstance(models, list)}
    if not found:
        raise no_host_left({host: error for host, error in lists.items() if isinstance(error, MochiError)})
    union: dict[str, ModelInfo] = {}
    for host, models in found.items():
        for number, model in enumerate(models):
            # One host may list a name several times.
            key = qualified_name(model.name) if len(found) > 1 else str(number)
            before = union.get(key, model)
            union[key] = replace(before, hosts=[*before.hosts, host.name])
    return [*union.values()]
