"""Usage of API keys, and the limits of their turns."""

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from mochi_server.errors import MochiError, RateLimited
from mochi_server.ollama.payloads import qualified_name
from mochi_server.sessions.caller import CALLER, Caller
from mochi_server.sessions.turn_counts import CountedTurn, TurnCounter
from mochi_server.sessions.usage import (
    Usage,
    UsageCounter,
    UsageKey,
    UsageStore,
    joined,
    seconds_until_tomorrow,
    today,
)
from mochi_server.util.clock import new_id
from mochi_server.util.tasks import cancel_and_wait, run_shielded, start_in

_PAUSE_SECONDS = 1.0
"""Minimum time between two writes of the usage."""

logger = logging.getLogger(__name__)


class UsageService:
    """Usage of the keys of all servers that share the sessions.

    It is stored within a second, so that it survives a restart and other servers see it.
    """

    def __init__(self, store: UsageStore) -> None:
        self._store = store
        self._unstored = UsageCounter()
        self._added = asyncio.Event()
        self._writing = asyncio.Lock()
        self._is_failing = False  # whether the latest write has failed, which is logged once
        self._tasks: set[asyncio.Future[None]] = set()

    def open(self) -> None:
        start_in(self._tasks, self._store_again_and_again())

    async def aclose(self) -> None:
        """Store the rest."""
        await cancel_and_wait([*self._tasks])
        await self._store_unstored()

    def add(self, model: str, usage: Usage) -> None:
        """Count what a request of the current caller has used, if it has a key."""
        if not CALLER.get().key:
            return
        key = UsageKey(today(), CALLER.get().key, qualified_name(model))
        self._unstored.add({key: usage})
        self._added.set()

    async def since(self, day: str, key: str | None = None) -> Mapping[UsageKey, Usage]:
        """Return the usage from ``day`` on, of one key or, for None, of all keys.

        Raises ``StorageFailed``.
        """
        async with self._writing:  # usage that is being written is in neither of both
            stored = await self._store.since(day, key)
            return joined(stored, self._unstored.since(day, key))

    async def tokens_today(self, key: str) -> int:
        """Return the number of tokens that a key has used on this day in UTC.

        Raises ``StorageFailed``.
        """
        entries = await self.since(today(), key)
        return sum(usage.tokens for usage in entries.values())

    async def _store_again_and_again(self) -> None:
        while True:
            await self._added.wait()
            async with self._writing:
                await self._store_unstored()
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _store_unstored(self) -> None:
        self._added.clear()
        taken = self._unstored.take()
        if not taken:
            return
        try:
            await run_shielded(self._store.add(taken))
            self._is_failing = False
        except MochiError as error:
            if not self._is_failing:
                logger.warning("Usage of API keys is stored later: %s", error.message)
            self._is_failing = True
            self._unstored.add(taken)
            self._added.set()


class TurnLimiter:
    """Limits of the turns of each key, at all servers that share the sessions."""

    def __init__(self, usage: UsageService, turns: TurnCounter) -> None:
        self._usage = usage
        self._turns = turns

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Callable[[], None]]:
        """Admit a turn of the current caller, or another request that makes a model work.

        The turn runs while the context is open. Call the provided function as soon as nothing can
        refuse the turn any more. Without this call, the turn no longer counts as started when the
        context closes. A turn that is cancelled before the context opens may still count as
        started. Raises ``RateLimited`` and ``StorageFailed``.
        """
        caller = CALLER.get()
        await self._check_tokens(caller)
        has_started = False

        def start() -> None:
            nonlocal has_started
            has_started = True

        if not caller.limits_turns:
            yield start
            return
        turn = CountedTurn(new_id(), caller.key)
        try:
            turn = await run_shielded(self._turns.begin(turn.turn_id, caller))
            yield start
        finally:
            await run_shielded(self._turns.end(turn, has_started=has_started))

    @asynccontextmanager
    async def running(self, caller: Caller, *, is_limited: bool) -> AsyncIterator[None]:
        """Count a turn that continues as running.

        Raises ``RateLimited`` if it ``is_limited`` and the caller's limit of running turns is
        reached, and ``StorageFailed``. Other limits do not apply.
        """
        if not caller.limits_turns:
            yield
            return
        turn = CountedTurn(new_id(), caller.key)
        at_most = caller.turns_at_a_time if is_limited else None
        try:
            turn = await run_shielded(self._turns.begin_again(turn.turn_id, caller.key, at_most))
            yield
        finally:
            await run_shielded(self._turns.end(turn, has_started=True))

    async def _check_tokens(self, caller: Caller) -> None:
        limit = caller.tokens_per_day
        if limit is not None and await self._usage.tokens_today(caller.key) >= limit:
            seconds = math.ceil(seconds_until_tomorrow(time.time()))
            raise RateLimited(f"{limit} tokens per day (UTC)", seconds)
