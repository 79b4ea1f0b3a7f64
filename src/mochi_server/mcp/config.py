"""``mcp.json`` in the tools directory: which MCP servers there are, in the form that other programs read, too.

What is wrong with it is told without its values, which may be secrets.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from mochi_server.tools.loader import LEADS_OUT, Problem, leads_out

FILE = "mcp.json"
NEEDS_EXTRA = "MCP servers need the extra mcp: pip install 'mochi-server[mcp]'"

_MAX_BYTES = 1_000_000
_SHORTEST_SECRET = 4
"""Masking shorter ones would leave no text readable, and hide nothing."""
_STREAMABLE = ("http", "streamable-http", "streamableHttp", "streamable_http")


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, coerce_numbers_to_str=True, hide_input_in_errors=True)

    def secrets(self) -> list[str]:
        """What nobody should read."""
        return [value for value in self._values() if len(value) >= _SHORTEST_SECRET]

    def _values(self) -> Iterator[str]:
        raise NotImplementedError


class LocalServer(_Entry):
    """A program that is started, and spoken with by its standard streams. ``cwd``: relative to the tools directory."""

    command: str = Field(min_length=1)
    args: list[str] = Field([], repr=False)
    env: dict[str, str] = Field({}, repr=False)
    cwd: str | None = None

    def _values(self) -> Iterator[str]:
        yield from self.env.values()


class RemoteServer(_Entry):
    """A server that is reached over HTTP."""

    url: str = Field(repr=False)
    headers: dict[str, str] = Field({}, repr=False)
    type: str = "http"

    @field_validator("url")
    @classmethod
    def _is_http(cls, value: str) -> str:
        try:
            parts = urlsplit(value)
            known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # which quotes what it could not read
            known = False
        if not known:
            raise ValueError("not an http:// or https:// URL")
        return value

    @field_validator("type")
    @classmethod
    def _is_streamable(cls, value: str) -> str:
        if value not in _STREAMABLE:
            raise ValueError("of the transports over HTTP only streamable HTTP is known, which is called http")
        return value

    def _values(self) -> Iterator[str]:
        parts = urlsplit(self.url)
        yield from (self.url, parts.query, parts.path.strip("/") if len(parts.path) > 16 else "")
        yield from (parts.username or "", parts.password or "", unquote(parts.password or ""))
        for value in self.headers.values():
            yield from (value, value.rpartition(" ")[2])


ServerConfig = LocalServer | RemoteServer


@dataclass(frozen=True)
class McpConfig:
    """The servers by name, in the order of the file, and what in it cannot be used."""

    servers: Mapping[str, ServerConfig] = field(default_factory=lambda: MappingProxyType({}))
    problems: tuple[Problem, ...] = ()


class _Unusable(Exception):
    """What is wrong, in words."""


def read_config(directory: Path) -> McpConfig:
    """Read the file of a tools directory; empty where there is none. Never raises."""
    try:
        entries = _entries(directory)
    except _Unusable as error:
        return McpConfig(problems=(Problem(FILE, str(error)),))
    servers: dict[str, ServerConfig] = {}
    problems = []
    for name, entry in entries.items():
        try:
            if (server := _server(name, entry)) is not None:
                servers[name] = server
        except _Unusable as error:
            problems.append(Problem(FILE, f"{name}: {error}"))
    if servers and find_spec("mcp") is None:
        return McpConfig(problems=(Problem(FILE, NEEDS_EXTRA), *problems))
    return McpConfig(MappingProxyType(servers), tuple(problems))


def _entries(directory: Path) -> dict[str, Any]:
    data = _load(directory / FILE)
    if data is None:
        return {}
    servers = data.get("mcpServers") if isinstance(data, dict) else None
    if not isinstance(servers, dict):
        raise _Unusable('it has no object "mcpServers"')
    return servers


def _load(path: Path) -> Any:
    try:
        if not path.exists():
            return None
        if leads_out(path, path.parent):
            raise _Unusable(f"it is {LEADS_OUT}")
        if not path.is_file():
            raise _Unusable("it is no file")
        if path.stat().st_size > _MAX_BYTES:
            raise _Unusable(f"it is larger than {_MAX_BYTES:,} bytes")
        return json.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise _Unusable(f"it cannot be read: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise _Unusable(f"it is no JSON: {error.msg} (line {error.lineno})") from error
    except (ValueError, RecursionError) as error:
        raise _Unusable(f"it is no JSON: {type(error).__name__}") from error


def _server(name: str, entry: object) -> ServerConfig | None:
    """One entry; None when it is disabled."""
    if not name.strip():
        raise _Unusable("a server needs a name")
    if not isinstance(entry, dict):
        raise _Unusable("it must be an object")
    if entry.get("disabled") is True:
        return None
    kind = next((kind for key, kind in (("command", LocalServer), ("url", RemoteServer)) if entry.get(key)), None)
    if kind is None:
        raise _Unusable('it needs a "command", or a "url"')
    try:
        return kind.model_validate({key: value for key, value in entry.items() if value is not None})
    except ValidationError as error:
        raise _Unusable("; ".join(map(_explain, error.errors(include_url=False, include_input=False)))) from error


def _explain(problem: Any) -> str:
    where = ".".join(str(part) for part in problem["loc"])
    return f"{where}: {problem['msg'].removeprefix('Value error, ')}"
