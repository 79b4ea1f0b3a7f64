"""Recording: pass every request on to a real server, and write its response to a file.

A file is named after its request, so that the same request is recorded once, the last time it was made. A
`config.yaml` in the same folder replays the files.
"""

from __future__ import annotations

import json
import logging
import ssl
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import yaml

from mochi_stub.app import OPEN_CORS, ExchangeHandler
from mochi_stub.http.connection import Application, ResponseWriter
from mochi_stub.http.http_result import Request
from mochi_stub.journal import Journal, JournalEntry, masked_headers, masked_query, parsed_body
from mochi_stub.recording.files import OWN, PREFIX, read_recording, request_key
from mochi_stub.reply import Failure
from mochi_stub.wire.routes import failure_answer

logger = logging.getLogger("mochi_stub")

REPLAYING = "# mochi-stub run --config {} answers with what is recorded here.\nrecordings: .\n"
_HOP = {
    *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"te", b"trailer", b"upgrade"),
    *(b"transfer-encoding", b"host", b"content-length", b"content-encoding", b"accept-encoding", b"date", b"server"),
}
_trusted = cache(ssl.create_default_context)
"""One context for all requests, because making one takes longer than most requests."""
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def record(upstream: str, folder: Path) -> Recorder:
    """Return a recorder of the server at `upstream`. Raises ValueError for an invalid URL, and OSError."""
    url = httpx.URL(upstream)
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError(f"not the URL of a server: {upstream!r}")
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "config.yaml"
    if not config.exists():
        config.write_text(REPLAYING.format(config), encoding="utf-8")
    return Recorder(upstream.rstrip("/"), folder)


@dataclass(frozen=True)
class Recorder:
    """The server that is recorded, and the folder of the recordings."""

    upstream: str
    folder: Path

    @property
    def masked_url(self) -> str:
        """The URL of the server without a password."""
        return str(httpx.URL(self.upstream).copy_with(userinfo=b"")).rstrip("/")

    def app(self, journal: Journal, own: Application) -> Application:
        """Return the application that records; `own` answers requests about the stub itself."""

        async def recording(writer: ResponseWriter) -> None:
            request = writer.request
            if request.path.startswith(OWN) or request.method == "OPTIONS":
                return await own(writer)
            record = journal.open(request)
            try:
                await self._pass_on(writer, record, journal)
            except httpx.HTTPError as error:
                if record.status:
                    logger.error("%s broke off: %s", self.masked_url, error)
                    journal.close(record, "failed")
                    raise
                failure = Failure(f"{self.masked_url} cannot be reached: {error}", 502)
                await ExchangeHandler(writer, record, journal).send(failure_answer(request, failure))
            finally:
                if record.outcome == "running":
                    journal.close(record, "cancelled")

        return recording

    async def _pass_on(self, writer: ResponseWriter, record: JournalEntry, journal: Journal) -> None:
        request = writer.request
        url = self.upstream + _target(request)
        headers = [(name, value) for name, value in request.raw_headers if name not in _HOP]
        headers.append((b"accept-encoding", b"identity"))
        moment, start = datetime.now(timezone.utc), monotonic()  # Ollama sends its headers with the first token
        async with (
            httpx.AsyncClient(timeout=None, verify=_trusted()) as client,  # noqa: S113 - models take their time
            client.stream(request.method, url, headers=headers, content=request.body) as response,
        ):
            kept = [(name.lower(), value) for name, value in response.headers.raw if name.lower() not in _HOP]
            kept += OPEN_CORS if "access-control-allow-origin" not in response.headers else ()
            journal.update(record, status=response.status_code)
            await writer.start(response.status_code, kept)
            received = ResponseCapture(response.headers.get("content-type", ""))
            async for data in response.aiter_bytes():
                journal.update(record, chunks=received.add(data, monotonic() - start))
                await writer.write(data)
            self._write(request, response, received, moment, monotonic() - start)
            journal.close(record, "finished" if response.status_code < 400 else "failed")
            await writer.write(b"", last=True)

    def _write(
        self, request: Request, response: httpx.Response, received: ResponseCapture, moment: datetime, seconds: float
    ) -> None:
        """Write the file atomically. A failure is logged and does not concern the client."""
        body, at = received.finished(seconds)
        path, question, query = _target(request).partition("?")
        sent = parsed_body(request.body)
        recording = {
            "timestamp": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "duration_ms": round(seconds * 1000, 3),
            "request": {
                "method": request.method,
                "url": self.masked_url + path + question + masked_query(request.query_string),
                **({"path": path} if httpx.URL(self.upstream).path.strip("/") else {}),
                "headers": masked_headers(request.raw_headers),
                **({"body": request.body.decode(errors="replace") if sent is None else sent} if request.body else {}),
            },
            "response": {
                "status": response.status_code,
                "headers": masked_headers((name.lower(), value) for name, value in response.headers.raw),
                "body": body,
                "is_streaming": received.streams,
                **({"at_ms": at} if received.streams else {}),
            },
        }
        wanted = request_key(request.method, request.path, query, request.body)
        name = f"{'-'.join(filter(None, wanted.path.replace(':', '/').split('/')))[:80] or 'root'}-{wanted.stamp}.yaml"
        file = self.folder / name
        try:
            data = yaml.dump(recording, Dumper=_DUMPER, sort_keys=False, allow_unicode=True, width=120).encode()
            fresh = file.with_suffix(".tmp")
            fresh.write_bytes(data)
            fresh.replace(file)
            if read_recording(file, data).request_key.stamp != wanted.stamp:
                logger.error("%s would not be found by its own request", file)
        except (OSError, ValueError, yaml.YAMLError) as error:
            logger.error("%s %s could not be recorded: %s", request.method, path, error)


def _target(request: Request) -> str:
    """Return the path and the query, as they were sent, without the prefix of the stub."""
    path = request.raw_path.decode("latin-1")
    path = path.removeprefix(PREFIX) if path.startswith(f"{PREFIX}/") else path
    return path + (f"?{request.query_string.decode('latin-1')}" if request.query_string else "")


class ResponseCapture:
    """A response body as it arrives. Lines of JSON and events are streams of objects, everything else is one body."""

    def __init__(self, content_type: str) -> None:
        self.events = content_type.startswith("text/event-stream")
        self.streams = self.events or content_type.startswith(("application/x-ndjson", "application/jsonl"))
        self._rest = b""
        self._data: list[bytes] = []
        self._objects: list[Any] = []
        self._at: list[float] = []

    def add(self, data: bytes, seconds: float) -> int:
        """Add bytes that came that many seconds after the request. Return how many objects they complete."""
        if not self.streams:
            self._rest += data
            return 0
        *lines, self._rest = (self._rest + data).split(b"\n")
        before = len(self._objects)
        for line in map(bytes.strip, lines):
            if not self.events:
                self._object(line, seconds)
            elif line.startswith(b"data:"):
                self._data.append(line[len(b"data:") :].strip())
            elif not line:
                self._object(b"\n".join(self._data), seconds)
                self._data.clear()
        return len(self._objects) - before

    def finished(self, seconds: float) -> tuple[Any, list[float]]:
        """Return the body as it is recorded, and the time of each of its objects in milliseconds."""
        if not self.streams:
            return _read(self._rest), [round(seconds * 1000, 3)]
        self.add(b"\n\n", seconds)
        return self._objects, self._at

    def _object(self, data: bytes, seconds: float) -> None:
        if data:
            self._objects.append({"done": True} if data == b"[DONE]" else _read(data))
            self._at.append(round(seconds * 1000, 3))


def _read(data: bytes) -> Any:
    """Return a JSON object, list or number as it is, and anything else as text; None for no data.

    Lone surrogates, which no file can contain, are replaced; models whose output is cut off send them.
    """
    try:
        value = json.loads(data) if data else None
        if value is not None and not isinstance(value, str):
            return json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))
    except (ValueError, RecursionError):
        pass
    return data.decode(errors="replace") if data else None
