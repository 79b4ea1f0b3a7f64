"""Authorization of an MCP server that waits for a user in a browser.

The redirect of the browser can reach another server of the database than the one that waits for
it. Both therefore read and write one stored record.
"""

import asyncio
import time
from dataclasses import dataclass
from hashlib import sha256
from secrets import compare_digest

from pydantic import BaseModel, ValidationError

from mochi_server.mcp.credentials import Credentials
from mochi_server.mcp.session import OAuthFailed
from mochi_server.tools.execution import shorten

BROWSER_SECONDS = 600
"""How long a user has to authorize."""
SUCCESS = ""
"""Outcome of an authorization that has succeeded. Any other outcome is the reason of a failure."""
_POLL_SECONDS = 0.2
_MAX_TEXT = 300


class Redirect(BaseModel):
    """Query parameters of the redirect from the authorization server."""

    state: str
    code: str = ""
    iss: str | None = None
    error: str = ""


class _Pending(BaseModel):
    state_hash: str
    expires_at: float  # Unix time in seconds
    redirect: Redirect | None = None
    outcome: str | None = None  # None until the authorization has ended


@dataclass(frozen=True)
class PendingAuthorization:
    """The latest authorization of one MCP server. A new one replaces an earlier one."""

    credentials: Credentials

    async def begin(self, state: str) -> None:
        """Store the start of an authorization. Only the hash of its ``state`` is stored."""
        await self._save(
            _Pending(state_hash=_hash_of(state), expires_at=time.time() + BROWSER_SECONDS)
        )

    async def wait_for_redirect(self, state: str) -> Redirect:
        """Return the redirect of the browser, after it has arrived.

        Raises ``OAuthFailed`` if it does not arrive in time, or a new authorization has begun. The
        caller then stores the outcome with ``store_outcome``.
        """
        while True:
            pending = await self._load(state)
            if pending is None:
                raise OAuthFailed("another authorization has begun, or the user took too long")
            if pending.redirect is not None:
                return pending.redirect
            await asyncio.sleep(_POLL_SECONDS)

    async def store_outcome(self, state: str, outcome: str) -> None:
        """Store the outcome, which is ``SUCCESS`` or the reason of a failure, in place of the
        redirect.

        Do nothing if a new authorization has begun, or if this one has expired.
        """
        pending = await self._load(state)
        if pending is not None:
            await self._save(pending.model_copy(update={"outcome": outcome, "redirect": None}))

    async def pass_redirect(self, redirect: Redirect, seconds: float) -> str | None:
        """Store the redirect for ``wait_for_redirect``, and return the outcome of the
        authorization.

        If there is none after ``seconds``, or the authorization has been replaced or has expired,
        return the reason of a failure.

        Return None if the state belongs to no authorization, or to one that has its redirect, has
        ended or has expired.
        """
        pending = await self._load(redirect.state)
        if pending is None or pending.redirect is not None or pending.outcome is not None:
            return None
        await self._save(pending.model_copy(update={"redirect": redirect}))
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            await asyncio.sleep(_POLL_SECONDS)
            pending = await self._load(redirect.state)
            if pending is None:
                break
            if pending.outcome is not None:
                return pending.outcome
        return "the authorization took too long"

    async def _load(self, state: str) -> _Pending | None:
        """Return the record, or None if it has another state, has expired or is missing."""
        try:
            pending = _Pending.model_validate_json(await self.credentials.load_pending() or b"")
        except ValidationError:
            return None
        has_state = compare_digest(pending.state_hash, _hash_of(state))
        return pending if has_state and pending.expires_at > time.time() else None

    async def _save(self, pending: _Pending) -> None:
        await self.credentials.save_pending(pending.model_dump_json())


def checked_code(redirect: Redirect) -> str:
    """Return the code of a redirect. Raises ``OAuthFailed`` if the user or the server refused."""
    if redirect.error or not redirect.code:
        reason = shorten(" ".join(redirect.error.split()), _MAX_TEXT) or "it sent no code"
        raise OAuthFailed(f"the authorization server refused: {reason}")
    return redirect.code


def _hash_of(state: str) -> str:
    return sha256(state.encode("utf-8", "replace")).hexdigest()
