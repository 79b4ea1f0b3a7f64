"""Recording: every request is passed on to a real server, and what comes back is written to a file while it streams.

Files are named after what was asked, so that the same request is recorded once, the last time it was made. Next to
them stands a `config.yaml` that replays them.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import yaml

from mochi_stub.answer import Request
from mochi_stub.conversation import OPEN_CORS, Gone, Receive, Scope, Send, watched
from mochi_stub.document import ConfigError, parse
from mochi_stub.journal import Journal, Record, masked_headers, masked_query, parsed_body
from mochi_stub.matching import OWN, PREFIX, asked
from mochi_stub.received import Received, received_body
from mochi_stub.recordings import asked_by, read_recording
from mochi_stub.reply import Failure
from mochi_stub.wires import failure_answer

logger = logging.getLogger("mochi_stub")

REPLAYING = "# mochi-stub run --config {} answers with what is recorded here.\nrecordings: .\n"
UNREACHABLE = 502
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
_HOP = {
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding"),
    *("upgrade", "host", "content-length", "content-encoding", "accept-encoding", "date", "server"),
}
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


@dataclass(frozen=True)
class Recorder:
    """Where requests go and where recordings are written."""

    upstream: str
    folder: Path

    @property
    def shown(self) -> str:
        """The server as recordings name it, without a password."""
        return str(httpx.URL(self.upstream).copy_with(userinfo=b"")).rstrip("/")

    @property
    def prefixed(self) -> bool:
        """Whether the server's paths begin with one of its own, so that those of clients differ from them."""
        return httpx.URL(self.upstream).path.strip("/") != ""

    def app(self, journal: Journal, own: Application) -> RecordingApp:
        """The application that records; `own` answers what is asked about the stub itself."""
        return RecordingApp(self, journal, own)

    def prepare(self) -> None:
        """Make the folder. Raises OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "config.yaml"
        if not config.exists():
            config.write_text(REPLAYING.format(config), encoding="utf-8")


def record(upstream: str, folder: Path) -> Recorder:
    """A recorder of the server at `upstream`. Raises ValueError where that is no URL, and OSError for the folder."""
    url = httpx.URL(upstream)
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError(f"not the URL of a server: {upstream!r}")
    recorder = Recorder(upstream.rstrip("/"), folder)
    recorder.prepare()
    return recorder


class RecordingApp:
    """The application while it records."""

    def __init__(self, recorder: Recorder, journal: Journal, own: Application) -> None:
        self.recorder = recorder
        self.journal = journal
        self.own = own

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].startswith(OWN) or scope["method"] == "OPTIONS":
            return await self.own(scope, receive, send)
        return await self._record(scope, receive, send)

    async def _record(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _body(receive)
        record = self.journal.open(scope["method"], scope["path"], body, scope["query_string"], scope["headers"])
        try:
            passed = _Passed(self.recorder, scope, body, record, self.journal)
            await watched(passed.through(send), receive)
        except Gone:
            pass
        finally:
            if record.outcome == "running":
                self.journal.close(record, "cancelled")


class _Passed:
    """One request on its way."""

    def __init__(self, recorder: Recorder, scope: Scope, body: bytes, record: Record, journal: Journal) -> None:
        self.recorder = recorder
        self.scope = scope
        self.body = body
        self.record = record
        self.journal = journal
        path = scope["raw_path"].decode("latin-1")
        self.path = path.removeprefix(PREFIX) if path.startswith(f"{PREFIX}/") else path
        self.query = scope["query_string"].decode("latin-1")

    async def through(self, send: Send) -> None:
        url = self.recorder.upstream + self.path + (f"?{self.query}" if self.query else "")
        headers = [(name, value) for name, value in self.scope["headers"] if name.decode("latin-1") not in _HOP]
        headers.append((b"accept-encoding", b"identity"))
        async with httpx.AsyncClient(timeout=None, verify=_trusted()) as client:  # noqa: S113 - models take their time
            request = client.build_request(self.scope["method"], url, headers=headers, content=self.body)
            moment, start = datetime.now(timezone.utc), monotonic()  # Ollama holds its head back until the first token
            try:
                response = await client.send(request, stream=True)
            except httpx.HTTPError as error:
                return await self._unreachable(send, f"{self.recorder.shown} cannot be reached: {error}")
            try:
                await self._pass_on(response, send, moment, start)
            finally:
                await response.aclose()
        return None

    async def _pass_on(self, response: httpx.Response, send: Send, moment: datetime, start: float) -> None:
        kept = [
            (name.lower(), value) for name, value in response.headers.raw if name.decode("latin-1").lower() not in _HOP
        ]
        allowed = any(name == b"access-control-allow-origin" for name, _ in kept)
        self.journal.sent(self.record, status=response.status_code)
        cors = [] if allowed else [*OPEN_CORS]
        await send({"type": "http.response.start", "status": response.status_code, "headers": [*kept, *cors]})
        received = Received(response.headers.get("content-type", ""))
        try:
            async for data in response.aiter_bytes():
                self.journal.sent(self.record, chunks=received.add(data, monotonic() - start))
                await send({"type": "http.response.body", "body": data, "more_body": True})
        except httpx.HTTPError as error:
            logger.error("%s broke off: %s", self.recorder.shown, error)
            self.journal.close(self.record, "failed")
            raise
        try:
            self._write(response, received, moment, monotonic() - start)
        except (OSError, ValueError, yaml.YAMLError) as error:  # no reason to keep the reply from the client
            logger.error("%s %s could not be recorded: %s", self.record.method, self.path, error)
        self.journal.close(self.record, "finished" if response.status_code < 400 else "failed")
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _write(self, response: httpx.Response, received: Received, moment: datetime, seconds: float) -> None:
        """The file, complete or not at all."""
        wanted = asked(self.scope["method"], self.scope["path"], self.query, self.body)
        body, at = received.finished(seconds)
        query = f"?{masked_query(self.scope['query_string'])}" if self.query else ""
        recording = {
            "timestamp": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "duration_ms": round(seconds * 1000, 3),
            "request": {
                "method": self.scope["method"],
                "url": self.recorder.shown + self.path + query,
                **({"path": self.path} if self.recorder.prefixed else {}),
                "headers": masked_headers(self.scope["headers"]),
                **({"body": received_body(self.body, parsed_body(self.body))} if self.body else {}),
            },
            "response": {
                "status": response.status_code,
                "headers": _headers(response.headers.raw),
                "body": body,
                "is_streaming": received.streams,
                **({"at_ms": at} if received.streams else {}),
            },
        }
        name = f"{'-'.join(filter(None, wanted.path.replace(':', '/').split('/')))[:80] or 'root'}-{wanted.stamp}.yaml"
        file = self.recorder.folder / name
        data = yaml.dump(recording, Dumper=_DUMPER, sort_keys=False, allow_unicode=True, width=120).encode()
        fresh = file.with_suffix(".tmp")
        fresh.write_bytes(data)
        fresh.replace(file)
        try:
            if asked_by(read_recording(parse(data, str(file)))).stamp != wanted.stamp:
                logger.error("%s would not be found by its own request", file)
        except ConfigError as error:
            logger.error("what was recorded cannot be read: %s", error)

    async def _unreachable(self, send: Send, message: str) -> None:
        scope = self.scope
        request = Request(scope["method"], scope["path"], self.body, scope["query_string"], tuple(scope["headers"]))
        answer = failure_answer(request, Failure(message, UNREACHABLE))
        self.journal.sent(self.record, status=answer.status)
        self.journal.close(self.record, "failed")
        headers = [(b"content-type", answer.content_type), *answer.headers, *OPEN_CORS]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body, "more_body": False})


@lru_cache(maxsize=1)
def _trusted() -> ssl.SSLContext:
    """Made once, for it takes longer than most requests."""
    return ssl.create_default_context()


def _headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    return masked_headers((name.lower(), value) for name, value in raw)


async def _body(receive: Receive) -> bytes:
    received = []
    while True:
        message = await receive()
        received.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(received)
