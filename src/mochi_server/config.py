"""Settings: environment variables with the prefix ``MOCHI_``, their defaults and validation."""

import json
import os
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict
from typing_extensions import Self

from mochi_server.constants import SUMMARY_UNSUPPORTED_MODELS, LogFormat
from mochi_server.util import regular_files
from mochi_server.util.net import (
    DEFAULT_PORTS,
    full_url,
    reachable_host,
    server_url,
    without_default_port,
)
from mochi_server.util.text import MASK, nearest


def _split(value: object) -> object:
    """Split a comma-separated text or a JSON list, the usual form of lists in pydantic's
    settings.
    """
    if not isinstance(value, str):
        return value
    if re.fullmatch(r"\s*\[.*\]\s*", value, re.DOTALL):
        try:
            return tuple(
                part.strip() if isinstance(part, str) else part for part in json.loads(value)
            )
        except ValueError:
            raise ValueError('not a JSON list such as ["a", "b"]; write a, b') from None
    return tuple(part.strip() for part in value.split(",") if part.strip())


def _expand_home(path: object) -> object:
    return os.path.expanduser(path) if isinstance(path, str | os.PathLike) else path  # noqa: PTH111 - raises nothing


def _matches(pattern: str, description: str) -> AfterValidator:
    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"not {description}")
        return value

    return AfterValidator(check)


_DATABASE_URL = "a URL such as postgresql://user:password@host/database"
_WHSEC_FORMAT = "`whsec_` and 24 to 64 bytes as base64; `openssl rand -base64 32` writes such bytes"
CommaSeparated = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
Secrets = Annotated[tuple[SecretStr, ...], NoDecode, BeforeValidator(_split)]
LogLevel = Annotated[
    Literal["CRITICAL", "ERROR", "WARNING", "INFO", "DEBUG"],
    BeforeValidator(lambda value: str(value).upper()),
]
Stripped = Annotated[
    str, BeforeValidator(lambda value: value.strip() if isinstance(value, str) else value)
]
Unquoted = Annotated[
    str, BeforeValidator(lambda value: value.strip(" \t\"'") if isinstance(value, str) else value)
]
Secret = Annotated[
    SecretStr, BeforeValidator(lambda value: value.strip() if isinstance(value, str) else value)
]
Port = Annotated[int, Field(ge=0, le=65535)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Timeout = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Hours = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Directory = Annotated[str, BeforeValidator(_expand_home)]

# File with which `init` marks a data directory whose code may be imported.
DATA_DIR_MARKER = ".mochi-server"
SAMPLE_FOLDERS = ("tools", "agents", "system_prompts", "chat_sessions")
CodeDirectory = Literal["tools_dir", "agents_dir"]
CODE_DIRECTORIES: tuple[CodeDirectory, ...] = (
    "tools_dir",
    "agents_dir",
)  # the server imports code from these
# Variable of Ollama, which this server reads if MOCHI_OLLAMA_HOST is not set.
OLLAMA_HOST = "OLLAMA_HOST"
_PREFIX = "MOCHI_"
_ORIGIN = re.compile(r"[\w+.-]+://([^\s/\[\]@]+|\[[\da-fA-F:.]+\](:\d+)?)")
# Options of the command that are not settings
_OPTION_NAMES = ("test_mode", "stub_speed", "stub_all_models", "insecure")
_OPTIONS = {name: f"the option --{name.replace('_', '-')}" for name in _OPTION_NAMES}
_TOOL_SETTINGS = ("files_root",)  # variables that only the sample tools read


class MochiServerSettings(BaseSettings):
    """Settings of a server. Relative directories are below ``data_dir``."""

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX,
        extra="forbid",
        frozen=True,
        env_ignore_empty=True,
        hide_input_in_errors=True,
    )

    host: Annotated[
        Stripped, _matches(r"[A-Za-z0-9._:%-]{1,253}", "a host name or an IP address")
    ] = Field("127.0.0.1", description="Address to listen on.")
    port: Port = Field(8000, description="Port to listen on. `0` selects a free port.")
    root_path: Annotated[
        str, _matches(r"(/[A-Za-z0-9._~-]+)*", "a path such as /mochi, without a slash at its end")
    ] = Field("", description="Path prefix of a reverse proxy, which removes it from requests.")
    env: Annotated[str, AfterValidator(str.lower)] = Field(
        "", description="`test` starts test mode, like `--test-mode`."
    )

    ollama_host: Unquoted = Field(
        "http://localhost:11434",
        description="URL of Ollama. A host name alone means port 11434. `OLLAMA_HOST` changes the "
        "default.",
    )
    ollama_slots: int | None = Field(
        None,
        ge=1,
        description="Requests that each Ollama host takes at a time. Others wait. The default is "
        "no limit.",
    )
    max_queue: int = Field(
        512,
        ge=1,
        description="Limit of requests that wait for a slot of `MOCHI_OLLAMA_SLOTS`. New turns are "
        "refused.",
    )
    ollama_connect_timeout_seconds: Timeout = Field(
        5, description="Timeout for connecting to Ollama."
    )
    ollama_stall_timeout_seconds: Timeout = Field(
        600,
        description="Longest time without output from Ollama during an answer. It includes "
        "loading the model.",
    )

    # Keep the order of these fields, because validators read earlier fields: ``data_dir`` before
    # ``ollama_hosts``, ``store_url`` before ``workers`` before ``advertise_url``, and
    # ``webhook_url`` before ``webhook_secret``.
    data_dir: Directory = Field(
        ".",
        description="Base directory for all relative paths of this table. `~` is the home "
        "directory.",
    )
    ollama_hosts: CommaSeparated = Field(
        (),
        repr=False,
        description="Ollama hosts, as URLs or as `name=URL`. They replace `MOCHI_OLLAMA_HOST`. "
        "`@path` is a file of hosts, one a line, which is read again when it changes. `#` begins a "
        "comment.",
    )
    store_url: Secret = Field(
        SecretStr(""),
        description="`postgresql://…` stores sessions in this database, which several servers "
        "can share. Without it, sessions are files.",
    )
    store_retry_seconds: Seconds = Field(
        60,
        description="How long a turn retries to read and write its session while the database is "
        "unreachable.",
    )
    workers: int = Field(
        1, ge=1, le=1000, description="Server processes. More than one requires `MOCHI_STORE_URL`."
    )
    advertise_url: Stripped = Field(
        "",
        description="URL at which other servers with the same database reach this server. The "
        "default is the listening address, or the host name if the server listens on all "
        "addresses.",
    )
    sessions_dir: Directory = Field("chat_sessions", description="Directory of the session files.")
    tools_dir: Directory = Field("tools", description="Directory of the tools.")
    agents_dir: Directory = Field("agents", description="Directory of the agents.")
    agent_chats_dir: Directory = Field(
        "agents/agent_chats",
        description="Directory of the agents' sessions. The default follows `MOCHI_AGENTS_DIR`.",
    )
    system_prompts_dir: Directory = Field(
        "system_prompts", description="Directory of the system prompt files."
    )
    planning_prompt_path: Directory = Field(
        "docs/agents/agent_prompt_planning.md",
        description="Planning prompt file. If absent, a packaged one is used.",
    )
    execution_prompt_path: Directory = Field(
        "docs/agents/agent_prompt_execution.md",
        description="Execution prompt file. If absent, a packaged one is used.",
    )

    summarization_enabled: bool = Field(True, description="Summarize sessions automatically.")
    summarization_interval_seconds: Seconds = Field(
        3, description="Idle time before a session is summarized."
    )
    summary_unsupported_models: CommaSeparated = Field(
        SUMMARY_UNSUPPORTED_MODELS,
        description="Models without automatic summaries. A name includes all its tags.",
    )
    dynamic_context_window_enabled: bool = Field(
        True,
        description="Choose the context window automatically. "
        "If `false`, the server sends `num_ctx` only for a manual window.",
    )
    initial_context_window: int | None = Field(
        None,
        ge=512,
        description="First context window of each model, in tokens. The default is at least "
        "`8192`.",
    )

    max_tool_iterations: int = Field(50, ge=1, description="Limit of tool-call rounds per turn.")
    max_identical_tool_calls: int = Field(
        3, ge=1, description="Limit of identical tool calls in a row."
    )
    max_tool_calls_per_round: int = Field(
        128,
        ge=1,
        description="Limit of distinct tool calls in one answer. Further calls are left out, "
        "with a warning.",
    )
    repair_answers: bool = Field(
        True,
        description="Move reasoning and calls that a model writes as text to where they belong.",
    )
    tool_timeout_seconds: Timeout = Field(60, description="Timeout of a tool call.")
    tool_output_limit_chars: int = Field(
        20_000, ge=1, description="Limit of tool output for the model, in characters."
    )
    tool_confirmation_timeout_seconds: Seconds = Field(
        300, description="Approval timeout. Then the call is denied. `0` means no timeout."
    )
    park_seconds: Seconds = Field(
        30,
        description="How long a turn that waits for approval stays in memory. Its stored state "
        "waits on.",
    )
    continue_background_turns: bool = Field(
        True,
        description="Whether a background turn continues after its server was killed or stopped.",
    )
    max_agent_iterations: int = Field(
        50, ge=1, description="Limit of tool-call rounds in an agent's execution phase."
    )

    api_keys: Secrets = Field(
        (),
        description="API keys. Requests must send one. Without keys, only this machine has access.",
    )
    api_keys_file: Directory = Field(
        "",
        description="File of API keys with names, which `mochi-server keys` writes. Requests "
        "must send a key.",
    )
    allowed_origins: CommaSeparated = Field(
        (),
        description="Origins of web pages that may use the server, besides those of this "
        "machine. `*` allows all.",
    )
    max_body_bytes: int = Field(
        32 * 1024 * 1024, ge=1, description="Largest request body, in bytes."
    )
    keep_alive_seconds: int = Field(
        75,
        ge=1,
        description="Time before an idle connection is closed. It must exceed a proxy's idle "
        "timeout.",
    )
    temporary_session_hours: Hours = Field(
        24,
        description="How long a temporary session is kept after its last turn or change.",
    )
    max_import_sessions: int = Field(
        10_000, ge=1, description="Limit of sessions in one imported file."
    )
    disconnect_grace_seconds: Seconds = Field(
        0, description="How long a turn continues without connected clients."
    )
    shutdown_grace_seconds: Seconds = Field(
        5, description="How long running turns may continue at shutdown."
    )

    trace_content: bool = Field(
        False, description="Whether OpenTelemetry spans contain the text of conversations."
    )
    webhook_url: Secret = Field(
        SecretStr(""),
        description="`http(s)` URL to which the server posts events of runs. Empty: no webhooks.",
    )
    webhook_secret: Secret = Field(
        SecretStr(""),
        validate_default=True,
        description="Secret for the signatures of webhooks: `whsec_` and 24 to 64 bytes as base64.",
    )

    log_level: LogLevel = Field(
        "INFO", description="Log level: `CRITICAL`, `ERROR`, `WARNING`, `INFO` or `DEBUG`."
    )
    log_format: Annotated[LogFormat, BeforeValidator(lambda value: str(value).lower())] = Field(
        "text", description="`text`, or `json` for one JSON object per line."
    )

    @model_validator(mode="before")
    @classmethod
    def _host_follows_ollama(cls, values: dict[str, Any]) -> dict[str, Any]:
        host = os.environ.get(OLLAMA_HOST, "").strip(" \"'")
        if host:
            values.setdefault("ollama_host", host)
        return values

    @field_validator("ollama_host")
    @classmethod
    def _is_url(cls, value: str) -> str:
        return _http_url(full_url(reachable_host(value))).rstrip("/")

    @field_validator("ollama_hosts")
    @classmethod
    def _are_hosts(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if value:
            read_hosts(value, info.data.get("data_dir", "."))
        return value

    @field_validator("workers")
    @classmethod
    def _workers_have_database(cls, value: int, info: ValidationInfo) -> int:
        if value > 1 and not info.data.get("store_url"):
            raise ValueError(
                "more than one process requires a database: set MOCHI_STORE_URL=postgresql://…"
            )
        return value

    @field_validator("advertise_url")
    @classmethod
    def _is_advertise_url(cls, value: str, info: ValidationInfo) -> str:
        value = value.rstrip("/")
        if value and (not is_http_url(value) or re.search(r"[?#@]", value)):
            raise ValueError(
                "not a URL such as http://10.0.0.5:8000, without credentials and query"
            )
        if info.data.get("workers", 1) > 1 and not re.fullmatch(
            r"(http://([^/:]+|\[[^/\]]+\]))?", value
        ):
            raise ValueError(
                "with several workers, use http://host without a port: each worker has its own port"
            )
        return value

    @field_validator("webhook_secret")
    @classmethod
    def _is_webhook_secret(cls, value: SecretStr, info: ValidationInfo) -> SecretStr:
        if not value and not info.data.get("webhook_url"):
            return value
        if not value:
            raise ValueError(f"MOCHI_WEBHOOK_URL needs MOCHI_WEBHOOK_SECRET: {_WHSEC_FORMAT}")
        encoded = value.get_secret_value().removeprefix("whsec_")
        padding = "=" * (-len(encoded) % 4)
        with suppress(ValueError):
            if 24 <= len(b64decode(encoded + padding, validate=True)) <= 64:
                return value
        raise ValueError(f"not {_WHSEC_FORMAT}")

    @field_validator("webhook_url")
    @classmethod
    def _is_webhook_url(cls, value: SecretStr) -> SecretStr:
        if value:
            _http_url(value.get_secret_value())
        return value

    @field_validator("store_url")
    @classmethod
    def _is_store_url(cls, value: SecretStr) -> SecretStr:
        if value and not re.match(r"postgres(ql)?://", value.get_secret_value()):
            raise ValueError(f"not {_DATABASE_URL}")
        return value

    @field_validator("data_dir")
    @classmethod
    def _is_directory(cls, value: str) -> str:
        path = Path(value)  # may be missing
        for folder in (path, *path.parents):
            if os.path.exists(folder) and not os.path.isdir(folder):  # noqa: PTH110, PTH112 - raise nothing
                raise ValueError("not a directory")
        return value

    @field_validator("api_keys")
    @classmethod
    def _are_keys(cls, value: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        for key in value:
            if not key.get_secret_value().strip():
                raise ValueError("a blank key would admit requests without a key. Remove it")
        return value

    @field_validator("allowed_origins")
    @classmethod
    def _are_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for origin in value:
            if origin not in ("*", "null") and not _ORIGIN.fullmatch(origin):
                raise ValueError(
                    f"{without_credentials(origin)!r} is not an origin such as https://chat.example"
                )
        return tuple(without_default_port(origin.lower()) for origin in value)

    @model_validator(mode="after")
    def _agent_chats_follow_agents(self) -> Self:
        if "agent_chats_dir" not in self.model_fields_set:
            self.__dict__["agent_chats_dir"] = str(
                Path(self.agents_dir, "agent_chats")
            )  # the settings are frozen
        return self

    @model_validator(mode="after")
    def _first_host(self) -> Self:
        if self.ollama_hosts:
            self.__dict__["ollama_host"] = self.hosts()[0].url
        return self

    def hosts(self) -> "tuple[HostAddress, ...]":
        """Return the Ollama hosts.

        A file of hosts is read again. Raises ``ValueError`` if it is invalid.
        """
        return read_hosts(self.ollama_hosts or (self.ollama_host,), self.data_dir)

    @property
    def resolved_sessions_dir(self) -> Path:
        return self.resolved(self.sessions_dir)

    @property
    def usage_path(self) -> Path:
        """Directory of the usage of keys. In test mode, it is deleted with the sessions."""
        return self.resolved(self.sessions_dir if self.env == "test" else "") / "usage"

    @property
    def keys_path(self) -> Path | None:
        """Path of the keys file, or None if there is none."""
        return self.resolved(self.api_keys_file) if self.api_keys_file else None

    def resolved(self, path: str) -> Path:
        """Return the path of a configured directory or file.

        Relative paths are below ``data_dir``.
        """
        return Path(self.data_dir, path)

    def with_absolute_data_dir(self) -> Self:
        """Return a copy whose directories do not depend on the working directory, which a tool may
        change.
        """
        copy = self.model_copy()
        path = Path(self.data_dir).absolute()
        copy.__dict__["data_dir"] = str(path)  # an update would mark the field as set
        return copy

    def code_directory(self, name: CodeDirectory) -> Path | None:
        """Return the directory of the tools or of the agents, or None if the server may not import
        from it.

        A setting must name it, `mochi-server init` must have marked it, or it contains the samples
        of the package.
        """
        path = self.resolved(getattr(self, name))
        is_set = not self.model_fields_set.isdisjoint({name, "data_dir"})
        if is_set or Path(self.data_dir, DATA_DIR_MARKER).is_file():
            return path
        return path if path.resolve() in sample_folders() else None

    @property
    def resolved_advertise_url(self) -> str:
        """URL at which other servers reach this server."""
        return self.advertise_url or server_url(self.host, self.port)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            shown = without_credentials(value) if name == "ollama_host" else value
            yield name, shown


def with_given_host(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by name, with empty ``ollama_hosts`` if only ``ollama_host`` is given.

    A given ``ollama_host`` then also replaces ``MOCHI_OLLAMA_HOSTS``.
    """
    if "ollama_host" not in values:
        return {**values}
    return {"ollama_hosts": (), **values}


class HostAddress(NamedTuple):
    """Name and URL of an Ollama host. The URL may contain credentials."""

    name: str
    url: str


def read_hosts(entries: Sequence[str], data_dir: str) -> tuple[HostAddress, ...]:
    """Return the hosts of the setting ``ollama_hosts``.

    Raises ``ValueError``, whose message names the entry.
    """
    file = hosts_file(entries, data_dir)
    if file is not None:
        entries = _entries_of(file)
    if not entries:
        raise ValueError("no host in the list")
    known: set[str] = set()
    hosts = []
    for entry in entries:
        host = _host_address(entry)
        parts = urlsplit(host.url)._replace(netloc=_netloc(host.url))
        keys = {host.name, parts.geturl()}
        if keys & known:
            raise ValueError(f"{without_credentials(entry)!r} is named twice")
        known |= keys
        hosts.append(host)
    return tuple(hosts)


def _entries_of(file: Path) -> list[str]:
    """Return the entries of a file, which are separated by commas or lines.

    ``#`` begins a comment.
    """
    try:
        text = regular_files.read_text(file)
    except UnicodeError:
        raise ValueError(f"cannot read {file}: not UTF-8") from None
    except OSError as error:
        raise ValueError(f"cannot read {file}: {error.strerror}") from None
    entries: list[str] = []
    for line in text.splitlines():
        content = line.partition("#")[0]
        entries += map(str.strip, content.split(","))
    return list(filter(None, entries))


def hosts_file(entries: Sequence[str], data_dir: str) -> Path | None:
    """Return the file that lists the hosts of the setting ``ollama_hosts``, or None."""
    if len(entries) != 1 or not entries[0].startswith("@"):
        return None
    path = entries[0].removeprefix("@")
    return Path(data_dir, os.path.expanduser(path))  # noqa: PTH111 - raises nothing


def _host_address(entry: str) -> HostAddress:
    name, url = re.fullmatch(r"(?:([\w.-]+)=)?(.*)", entry, re.DOTALL).groups()  # type: ignore[union-attr]
    url = full_url(reachable_host(url)).rstrip("/")
    if not is_http_url(url):
        raise ValueError(f"{without_credentials(entry)!r} is not an http:// or https:// URL")
    return HostAddress(name or _netloc(url), url)


def _netloc(url: str) -> str:
    """Return host:port of a URL, without credentials."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    port = parts.port or DEFAULT_PORTS[parts.scheme]
    return f"{host}:{port}"


def sample_folders() -> list[Path]:
    """Return the paths of the folders with samples: in an installed package, or in a clone of the
    repository.
    """
    package = Path(__file__).parent
    root = package / "samples"
    if not root.is_dir():
        root = package.parents[1]
    return [root / folder for folder in SAMPLE_FOLDERS]


def is_secret(name: str) -> bool:
    """Return whether no message may contain the value of the setting ``name``."""
    if name not in MochiServerSettings.model_fields:
        return False
    annotation = MochiServerSettings.model_fields[name].annotation
    return annotation in (SecretStr, tuple[SecretStr, ...])


def environment_problems(environment: Mapping[str, str]) -> list[str]:
    """Return a sentence for each variable with the prefix ``MOCHI_`` that has no effect."""
    problems = []
    for variable, value in sorted(environment.items()):
        if not variable.upper().startswith(_PREFIX):
            continue
        name = variable[len(_PREFIX) :].lower()
        if name not in MochiServerSettings.model_fields and name not in _TOOL_SETTINGS:
            problem = f"{variable} is not a setting and has no effect."
            similar = nearest(name, [*MochiServerSettings.model_fields, *_OPTIONS])
            if similar:
                known = _OPTIONS.get(similar, f"{_PREFIX}{similar}".upper())
                problem += f" Did you mean {known}?"
            problems.append(problem)
        elif name == "env" and value.lower() not in ("", "test"):
            problems.append(
                f"{variable}={value} has no effect. Remove it, or use the only value, `test`."
            )
    return problems


def without_credentials(url: str) -> str:
    """Return ``url`` with masked credentials. ``url`` may also be an invalid URL.

    After the scheme, all text before the last ``@`` is masked.
    """
    without_query = re.sub(r"(password=)[^&]*", rf"\1{MASK}", url)
    return re.sub(r"^(\w+://)?.*@", rf"\1{MASK}@", without_query, flags=re.DOTALL)


def _http_url(url: str) -> str:
    if not is_http_url(url):
        raise ValueError("not an http:// or https:// URL")
    return url


def is_http_url(url: str) -> bool:
    """Return whether ``url`` is a URL of the scheme http or https with a possible host and port."""
    try:
        parts = urlsplit(url)
        is_host = re.fullmatch(r"[^\s\\/?#@<>\"'`{}|^]+", parts.hostname or "") is not None
        return parts.scheme in ("http", "https") and is_host and parts.port != 0
    except ValueError:  # its message may contain a password
        return False
