"""Parser of ``mcp.json``, the list of MCP servers in the tools directory.

Error messages contain no values from the file except commands and addresses, because the values may
be secret.
"""

import json
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from typing_extensions import Self

from mochi_server.config import is_http_url
from mochi_server.sessions.serialization import MAX_LEVELS, is_nested_deeper
from mochi_server.tools.loader import LEADS_OUT, Problem, leads_out
from mochi_server.tools.schema import explain
from mochi_server.util import regular_files
from mochi_server.util.text import install_command

FILE = "mcp.json"
_MAX_SHOWN_PATH_LENGTH = 16
"""Maximum length of a URL path that messages show.

Longer paths are masked, because they may contain keys.
"""
_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_]\w*)(?::-([^}]*))?\}")
"""Reference to an environment variable: ``${NAME}``, ``${env:NAME}`` or ``${NAME:-default}``."""
_PUBLIC_VARIABLES = ("HOME", "USER", "LOGNAME", "PATH", "PWD", "SHELL", "TERM", "TMPDIR", "LANG")


_SETTINGS = ConfigDict(frozen=True, coerce_numbers_to_str=True, hide_input_in_errors=True)


class LocalServer(BaseModel):
    """An MCP server that is started as a child process.

    ``cwd`` is relative to the tools directory. ``variables`` are the values of the environment
    variables in ``args``.
    """

    model_config = _SETTINGS
    command: str = Field(min_length=1)
    args: list[str] = Field([], repr=False)
    variables: list[str] = Field([], repr=False)
    env: dict[str, str] = Field({}, repr=False)
    cwd: str | None = None

    @property
    def location(self) -> str:
        """The command, for messages."""
        return self.command

    def secrets(self) -> list[str]:
        """Return the values that are masked in messages.

        Arguments are not masked, because messages without words such as ``run`` would be
        unreadable. Only the environment variables and headers in them are.
        """
        secrets = list(self.env.values())
        headers = _headers_in(self.args)
        for value in (*self.variables, *headers):
            secrets.append(value)
            secrets.append(_token(value))
        return secrets


def _headers_in(args: list[str]) -> list[str]:
    """Return the values of the headers in options such as ``--header "X-Key: value"``."""
    values = []
    option = ""
    for arg in args:
        if option in ("-H", "--header") or arg.startswith("--header="):
            value = arg.partition(":")[2]
            values.append(value.strip())
        option = arg
    return values


def _token(header: str) -> str:
    """Return the part of a header's value after a scheme such as Bearer, or all of it without a
    scheme.
    """
    return header.rpartition(" ")[2]


def _checked_url(value: str) -> str:
    if not is_http_url(value):
        raise ValueError("not an http:// or https:// URL")
    return value


class OAuthClient(BaseModel):
    """OAuth client of an MCP server, if the authorization server does not register clients.

    ``issuer`` is the authorization server that knows the secret. The secret is sent to no other
    server.
    """

    model_config = _SETTINGS
    client_id: str = Field(min_length=1, validation_alias=AliasChoices("client_id", "clientId"))
    client_secret: str = Field(
        "", repr=False, validation_alias=AliasChoices("client_secret", "clientSecret")
    )
    grant: Literal["authorization_code", "client_credentials"] = Field(
        "authorization_code", validation_alias=AliasChoices("grant", "grant_type", "grantType")
    )
    scope: str | None = None
    issuer: str = ""

    @model_validator(mode="after")
    def _check_client(self) -> Self:
        if self.issuer:
            _checked_url(self.issuer)
        if self.grant == "client_credentials" and not self.client_secret:
            raise ValueError("client_credentials need a client_secret")
        if self.client_secret and not self.issuer:
            raise ValueError(
                "a client_secret needs the issuer: the URL of its authorization server"
            )
        return self


class RemoteServer(BaseModel):
    """An MCP server that is reached over HTTP.

    Without a type, its transport is streamable HTTP, or SSE if the server refuses that.
    """

    model_config = _SETTINGS
    url: str = Field(repr=False)
    headers: dict[str, str] = Field({}, repr=False)
    type: Literal["http", "streamable-http", "streamableHttp", "streamable_http", "sse"] | None = (
        None
    )
    oauth: OAuthClient | None = None

    _check_url = field_validator("url")(_checked_url)

    @property
    def uses_oauth(self) -> bool:
        """Whether the server may require OAuth, even without ``oauth``.

        It may unless the ``Authorization`` header is configured.
        """
        return not any(name.lower() == "authorization" for name in self.headers)

    def over_sse(self) -> Self:
        """Return the same server with the transport SSE."""
        return self.model_copy(update={"type": "sse"})

    @property
    def location(self) -> str:
        """The URL without credentials and query, for messages.

        A long path is masked, because it may be secret.
        """
        parts = urlsplit(self.url)
        host = parts.netloc.rpartition("@")[2]
        path = "/***" if _is_secret(parts.path) else parts.path
        return f"{parts.scheme}://{host}{path}"

    def secrets(self) -> list[str]:
        """Return the values that are masked in messages."""
        parts = urlsplit(self.url)
        secrets = [self.url, parts.query, parts.username or ""]
        if parts.password:
            secrets += [parts.password, unquote(parts.password)]
        if _is_secret(parts.path):
            secrets.append(parts.path.strip("/"))
        for value in self.headers.values():
            secrets += [value, _token(value)]
        if self.oauth is not None:
            secrets.append(self.oauth.client_secret)
        return secrets


def _is_secret(path: str) -> bool:
    """Return whether the path of a URL is so long that it may be secret."""
    return len(path.strip("/")) > _MAX_SHOWN_PATH_LENGTH


ServerConfig = LocalServer | RemoteServer


@dataclass(frozen=True)
class McpConfig:
    """Content of ``mcp.json``: its servers by name, and the problems of its invalid entries.

    ``names`` also has the names of disabled and invalid entries. It is None if the file as a whole
    is invalid or cannot be read.
    """

    servers: Mapping[str, ServerConfig] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    names: Collection[str] | None = ()


class _InvalidEntry(Exception):
    """The file or one of its entries is invalid."""


def read_config(directory: Path | None) -> McpConfig:
    """Read ``mcp.json`` in a tools directory.

    Without a directory or file, the result is empty. Without the extra ``mcp``, it has a problem
    and no servers. Never raises.
    """
    if directory is None:
        return McpConfig()
    servers: dict[str, ServerConfig] = {}
    problems = []
    try:
        entries = _entries(directory / FILE)
    except _InvalidEntry as error:
        return McpConfig(problems=(Problem(FILE, str(error)),), names=None)
    for name, entry in entries.items():
        try:
            if not (isinstance(entry, dict) and entry.get("disabled") is True):
                servers[name] = _server(entry)
        except _InvalidEntry as error:
            problems.append(Problem(FILE, f"{name}: {error}"))
    if servers and find_spec("mcp") is None:
        text = f"MCP servers need the extra mcp: {install_command('mcp')}"
        problems.insert(0, Problem(FILE, text))
        servers = {}
    return McpConfig(servers, tuple(problems), set(entries))


def _entries(path: Path) -> dict[str, Any]:
    try:
        if not path.exists():
            return {}
        if leads_out(path, path.parent):
            raise _InvalidEntry(f"it is {LEADS_OUT}")
        data = json.loads(regular_files.read_text(path, "utf-8-sig"))
    except OSError as error:
        raise _InvalidEntry(f"it cannot be read: {error.strerror}") from error
    except json.JSONDecodeError as error:
        text = f"it is not valid JSON: {error.msg} (line {error.lineno})"
        raise _InvalidEntry(text) from error
    except (ValueError, RecursionError) as error:
        raise _InvalidEntry(f"it is not valid JSON: {type(error).__name__}") from error
    servers = data.get("mcpServers") if isinstance(data, dict) else None
    if not isinstance(servers, dict):
        raise _InvalidEntry('it has no object "mcpServers"; add {"mcpServers": {...}}')
    return servers


def _server(entry: object) -> ServerConfig:
    if not isinstance(entry, dict):
        raise _InvalidEntry("it must be an object")
    if is_nested_deeper(entry, MAX_LEVELS):
        raise _InvalidEntry(f"it nests values deeper than {MAX_LEVELS} levels")
    if not (entry.get("command") or entry.get("url")):
        raise _InvalidEntry('it needs a "command" or a "url"')
    server: type[ServerConfig] = LocalServer if entry.get("command") else RemoteServer
    expanded: dict[str, Any] = {}
    for key in server.model_fields:  # other keys may have variables of an editor
        if key != "variables" and entry.get(key) is not None:
            expanded[key] = _expanded(entry[key])
    expanded["variables"] = _variables_in(entry.get("args"))  # ignored by RemoteServer
    try:
        return server.model_validate(expanded)
    except ValidationError as error:
        raise _InvalidEntry(explain(error).replace("Value error, ", "")) from error


def _expanded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _expanded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_expanded(each) for each in value]
    if isinstance(value, str):
        return _VARIABLE.sub(_variable, value)
    return value


def _variables_in(args: Any) -> list[str]:
    """Return the values of the environment variables that arguments refer to, without defaults.

    Variables that programs receive anyway are left out, because they are no secrets.
    """
    values = []
    for reference in _VARIABLE.finditer(str(args)):  # not validated yet
        value = os.environ.get(reference[1])
        if value is not None and reference[1] not in _PUBLIC_VARIABLES:
            values.append(value)
    return values


def _variable(reference: re.Match[str]) -> str:
    name: str = reference[1]
    default: str | None = reference[2]
    value = os.environ.get(name)
    if not value and default is not None:
        return default
    if value is None:
        raise _InvalidEntry(
            f"the environment variable {name} is not set; set it, or write ${{{name}:-default}}"
        )
    return value
