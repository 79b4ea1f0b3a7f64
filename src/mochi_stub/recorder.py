"""Recorder that forwards each request to a real server and writes the response to a file.

The file name depends on the request, so a repeated request replaces its recording. To replay the
files, run the stub with the `config.yaml` that the recorder writes to the same folder.
"""

from __future__ import annotations

import json
import logging
import re
import ssl
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import yaml

from mochi_stub.app import App, ExchangeHandler, log_request
from mochi_stub.http import Access, Application, Request, ResponseWriter
from mochi_stub.journal import JournalEntry, masked_headers, masked_query, parsed_body
from mochi_stub.providers import refusal
from mochi_stub.recording import LOCAL_ROUTES, PREFIX, request_key
from mochi_stub.reply import HttpError

logger = logging.getLogger("mochi_stub")

REPLAY_CONFIG = (
    "# mochi-stub run --config {} replays the recordings in this folder.\nrecordings: .\n"
)
_HOP = {
    *(
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"upgrade",
    ),
    *(
        b"transfer-encoding",
        b"host",
        b"content-length",
        b"content-encoding",
        b"accept-encoding",
        b"date",
        b"server",
    ),
}
_UPSTREAM = re.compile(
    r"https?://([^/?#@]*@)?(\[[\w:.]+\]|[^/?#:\[\]]+)(:\d+)?(/[^?#]*)?"
)  # paths are appended to it
_ssl_context = cache(ssl.create_default_context)  # its creation takes longer than most requests
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def record(upstream: str, folder: Path) -> Recorder:
    """Create the folder and return a recorder for the server at `upstream`.

    Raises ValueError for an invalid URL.
    """
    if not _UPSTREAM.fullmatch(upstream):
        raise ValueError(
            "expected an http or https URL of the server to record, without a query, found "
            f"{upstream!r}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "config.yaml"
    if not config.exists():
        config.write_text(REPLAY_CONFIG.format(config), encoding="utf-8")
    return Recorder(upstream.rstrip("/"), folder)


@dataclass(frozen=True)
class Recorder:
    """Recorder that forwards requests to the URL `upstream` and writes recordings to `folder`."""

    upstream: str
    folder: Path

    @property
    def masked_url(self) -> str:
        """URL of the server without user name and password."""
        return str(httpx.URL(self.upstream).copy_with(userinfo=b"")).rstrip("/")

    def app(self, app: App) -> Application:
        """Return an application that records requests.

        Refused requests and the stub's own routes go to `app`.
        """

        async def recording(writer: ResponseWriter) -> None:
            request = writer.request
            if (
                request.path.startswith(LOCAL_ROUTES)
                or app.access.response(request)
                or request.method == "OPTIONS"
            ):
                return await app(writer)
            record = app.stub.journal.open(request)
            record.update(mode="recording")
            try:
                await self._forward(writer, record, app.access)
            except httpx.HTTPError as error:
                if record.status:
                    logger.error(
                        "recording aborted, the connection was lost: url=%s error=%s",
                        self.masked_url,
                        error,
                    )
                    record.close("failed")
                    raise
                unreachable = HttpError(502, f"{self.masked_url} cannot be reached: {error}")
                await ExchangeHandler(app, writer, record).send(
                    refusal(app.stub, request, unreachable)
                )
            finally:
                if record.outcome == "running":
                    record.close("cancelled")
                log_request(record)

        return recording

    async def _forward(self, writer: ResponseWriter, record: JournalEntry, access: Access) -> None:
        request = writer.request
        url = self.upstream + _target(request)
        headers = [(name, value) for name, value in request.raw_headers if name not in _HOP]
        headers.append((b"accept-encoding", b"identity"))
        started, start = (
            datetime.now(timezone.utc),
            monotonic(),
        )  # the headers arrive with the first token
        async with (
            httpx.AsyncClient(timeout=None, verify=_ssl_context()) as client,  # noqa: S113 - models can be slow
            client.stream(request.method, url, headers=headers, content=request.body) as response,
        ):
            copied = [
                (name.lower(), value)
                for name, value in response.headers.raw
                if name.lower() not in _HOP
            ]
            copied += (
                access.headers(request)
                if "access-control-allow-origin" not in response.headers
                else ()
            )
            record.update(status=response.status_code)
            writer.start(response.status_code, copied)
            await writer.write(b"")
            received = ResponseCapture(response.headers.get("content-type", ""))
            async for data in response.aiter_bytes():
                record.update(chunks=received.add(data, monotonic() - start))
                await writer.write(data)
            self._write(request, response, received, started, monotonic() - start)
            record.close("finished" if response.status_code < 400 else "failed")
            await writer.write(b"", last=True)

    def _write(
        self,
        request: Request,
        response: httpx.Response,
        received: ResponseCapture,
        started: datetime,
        seconds: float,
    ) -> None:
        """Write the recording.

        Log errors instead of raising them: the client already has its response.
        """
        body, timestamps = received.finished(seconds)
        path, question_mark, query = _target(request).partition("?")
        value = parsed_body(request.body)
        recording = {
            "timestamp": started.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "duration_ms": round(seconds * 1000, 3),
            "request": {
                "method": request.method,
                "url": self.masked_url + path + question_mark + masked_query(request.query_string),
                **({"path": path} if httpx.URL(self.upstream).path.strip("/") else {}),
                "headers": masked_headers(request.raw_headers),
                **(
                    {"body": request.body.decode(errors="replace") if value is None else value}
                    if request.body
                    else {}
                ),
            },
            "response": {
                "status": response.status_code,
                "headers": masked_headers(
                    (name.lower(), value) for name, value in response.headers.raw
                ),
                "body": body,
                "is_streaming": received.is_stream,
                **({"at_ms": timestamps} if received.is_stream else {}),
            },
        }
        key = request_key(request.method, request.path, query, request.body)
        name = "-".join(filter(None, re.split("[:/]", key.path)))[:80] or "root"
        file = self.folder / f"{name}-{key.digest}.yaml"
        try:
            data = yaml.dump(
                recording, Dumper=_DUMPER, sort_keys=False, allow_unicode=True, width=120
            ).encode()
            temporary = file.with_suffix(".tmp")
            temporary.write_bytes(data)
            temporary.replace(file)
        except (OSError, ValueError, yaml.YAMLError) as error:
            logger.error(
                "recording not written: method=%s path=%s error=%s", request.method, path, error
            )


def _target(request: Request) -> str:
    path = request.raw_path.decode("latin-1")
    path = path.removeprefix(PREFIX) if path.startswith(f"{PREFIX}/") else path
    return path + (f"?{request.query_string.decode('latin-1')}" if request.query_string else "")


class ResponseCapture:
    """Parser of a response body that arrives in pieces.

    An NDJSON or SSE body is parsed into a list of objects.
    """

    def __init__(self, content_type: str) -> None:
        self.events = content_type.startswith("text/event-stream")
        self.is_stream = self.events or content_type.startswith(
            ("application/x-ndjson", "application/jsonl")
        )
        self._rest = b""
        self._data: list[bytes] = []
        self._objects: list[Any] = []
        self._timestamps: list[float] = []

    def add(self, data: bytes, seconds: float) -> int:
        """Add `data`, received `seconds` after the request.

        Return the number of objects that `data` completes.
        """
        if not self.is_stream:
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
        """Return the body, which ended `seconds` after the request, and the times of its objects in
        milliseconds.
        """
        if not self.is_stream:
            return _read(self._rest), [round(seconds * 1000, 3)]
        self.add(b"\n\n", seconds)
        return self._objects, self._timestamps

    def _object(self, data: bytes, seconds: float) -> None:
        if data:
            self._objects.append({"done": True} if data == b"[DONE]" else _read(data))
            self._timestamps.append(round(seconds * 1000, 3))


def _read(data: bytes) -> Any:
    try:
        value = json.loads(data) if data else None
        if value is not None and not isinstance(
            value, str
        ):  # a file cannot contain lone surrogates
            return json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))
    except (ValueError, RecursionError):
        pass
    return data.decode(errors="replace") if data else None
