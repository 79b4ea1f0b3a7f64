"""Settings: defaults of the specification, the environment and validation."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from mochi_server import MochiServerSettings, create_app
from tests.support.cases import cases

APPENDIX_B = {
    "MOCHI_HOST": "127.0.0.1",
    "MOCHI_PORT": 8000,
    "MOCHI_OLLAMA_HOST": "http://localhost:11434",
    "MOCHI_DATA_DIR": ".",
    "MOCHI_SESSIONS_DIR": "chat_sessions",
    "MOCHI_TOOLS_DIR": "tools",
    "MOCHI_AGENTS_DIR": "agents",
    "MOCHI_AGENT_CHATS_DIR": "agents/agent_chats",
    "MOCHI_SYSTEM_PROMPTS_DIR": "system_prompts",
    "MOCHI_PLANNING_PROMPT_PATH": "docs/agents/agent_prompt_planning.md",
    "MOCHI_EXECUTION_PROMPT_PATH": "docs/agents/agent_prompt_execution.md",
    "MOCHI_SUMMARIZATION_ENABLED": True,
    "MOCHI_SUMMARIZATION_INTERVAL_SECONDS": 3,
    "MOCHI_DYNAMIC_CONTEXT_WINDOW_ENABLED": True,
    "MOCHI_LOG_LEVEL": "INFO",
}


@pytest.fixture(autouse=True)
def no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("MOCHI_") or name == "OLLAMA_HOST"]:
        monkeypatch.delenv(name)


def test_defaults_are_those_of_the_specification() -> None:
    settings = MochiServerSettings()
    assert {
        name: getattr(settings, name.removeprefix("MOCHI_").lower()) for name in APPENDIX_B
    } == APPENDIX_B


def test_arguments_override_environment_and_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOCHI_PORT", "9000")
    monkeypatch.setenv("MOCHI_LOG_LEVEL", "debug")
    monkeypatch.setenv("MOCHI_API_KEYS", "a, b,")
    assert MochiServerSettings().port == 9000
    assert MochiServerSettings(port=1).port == 1
    assert MochiServerSettings().log_level == "DEBUG"
    assert MochiServerSettings().api_keys == (SecretStr("a"), SecretStr("b"))


@pytest.mark.parametrize("name", ["api_keys", "summary_unsupported_models"])
@pytest.mark.parametrize(
    ("value", "items"),
    [
        ('["a", "b,c"]', ("a", "b,c")),
        (' [" a "] ', ("a",)),
        ("[]", ()),
        ("a,[b]", ("a", "[b]")),
        ("[a", ("[a",)),
    ],
)
def test_lists_are_json_or_separated_by_commas(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, items: tuple[str, ...]
) -> None:
    monkeypatch.setenv(f"MOCHI_{name.upper()}", value)
    read = getattr(MochiServerSettings(), name)
    assert (
        tuple(item.get_secret_value() if isinstance(item, SecretStr) else item for item in read)
        == items
    )


def test_origins_can_be_a_json_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOCHI_ALLOWED_ORIGINS", '["https://chat.example", "null"]')
    assert MochiServerSettings().allowed_origins == ("https://chat.example", "null")


@cases(
    ("origin", "stored"),
    [
        ("https://Chat.Example:443", "https://chat.example"),
        ("http://chat.example:80", "http://chat.example"),
        ("https://[fd00::1]:443", "https://[fd00::1]"),
        ("http://[fd00::80]", "http://[fd00::80]"),
        ("https://chat.example:8443", "https://chat.example:8443"),
        ("https://chat.example:80", "https://chat.example:80"),
        ("http://chat.example:443", "http://chat.example:443"),
    ],
)
def test_origin_has_no_default_port_as_in_browsers(origin: str, stored: str) -> None:
    assert MochiServerSettings(allowed_origins=(origin,)).allowed_origins == (stored,)


@pytest.mark.parametrize("value", ["['k']", "[k]", '["k", 5]', '[["k"]]', '["k",]', '["", "k"]'])
def test_invalid_json_list_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("MOCHI_API_KEYS", value)
    with pytest.raises(ValidationError):
        MochiServerSettings()


@pytest.mark.parametrize("keys", [[""], ["a", " "]])
def test_blank_api_key_is_none(keys: list[str]) -> None:
    with pytest.raises(ValidationError, match="blank key"):
        MochiServerSettings(api_keys=keys)


def test_agent_chats_are_in_the_agents_directory(tmp_path: Path) -> None:
    settings = MochiServerSettings(agents_dir=tmp_path / "people", data_dir=tmp_path)
    assert settings.resolved(settings.agent_chats_dir) == tmp_path / "people" / "agent_chats"
    assert (
        MochiServerSettings(agents_dir="people", agent_chats_dir="talk").agent_chats_dir == "talk"
    )
    app = create_app(settings, agents_dir="others")
    assert app.state.settings.agent_chats_dir == str(Path("others", "agent_chats"))


def test_directories_are_relative_to_the_data_directory(tmp_path: Path) -> None:
    settings = MochiServerSettings(data_dir=tmp_path)
    assert settings.resolved(settings.tools_dir) == tmp_path / "tools"
    assert settings.resolved("/srv/tools") == Path("/srv/tools")


@cases(
    ("name", "value"),
    [
        ("port", "many"),
        ("port", 70000),
        ("ollama_host", "ftp://x"),
        ("ollama_host", "http://"),
        ("ollama_host", "http://x:99999"),
        ("ollama_host", "not a url"),
        ("log_level", "LOUD"),
        ("host", ""),
        ("host", "http://x"),
        ("max_body_bytes", 0),
        ("shutdown_grace_seconds", -1),
        ("shutdown_grace_seconds", "inf"),
        ("allowed_origins", "http://[x"),
        ("allowed_origins", "chat.example"),
        ("host", "é" * 70),
        ("advertise_url", "10.0.0.5:8000"),
        ("advertise_url", "ftp://10.0.0.5"),
        ("advertise_url", "http://user:password@10.0.0.5"),
        ("advertise_url", "http://10.0.0.5/?query"),
        ("no_such_setting", 1),
    ],
)
def test_invalid_values_are_refused(name: str, value: object) -> None:
    with pytest.raises(ValidationError):
        MochiServerSettings(**{name: value})


@cases(
    "url", ["https://10.0.0.5", "http://10.0.0.5/path", "http://10.0.0.5:8000", "http://[::1]:8000"]
)
def test_advertised_url_of_workers_names_a_host(url: str) -> None:
    several: dict[str, Any] = {"store_url": "postgresql://h/db", "workers": 2}
    for valid in ("http://10.0.0.5", "http://[::1]"):
        assert MochiServerSettings(**several, advertise_url=valid).advertise_url
    with pytest.raises(ValidationError, match="each worker has its own port"):
        MochiServerSettings(**several, advertise_url=url)


@cases(
    ("settings", "urls"),
    [
        ({"advertise_url": "https://chat.internal/a/"}, ["https://chat.internal/a"]),
        ({"host": "10.0.0.5"}, ["http://10.0.0.5:8000"]),
        ({"host": "::1", "port": 9000}, ["http://[::1]:9000"]),
        ({"host": "::"}, [f"http://{socket.gethostname()}:8000", "http://127.0.0.1:8000"]),
    ],
)
def test_advertised_url_defaults_to_host_and_port(
    settings: dict[str, Any], urls: list[str]
) -> None:
    assert MochiServerSettings(**settings).resolved_advertise_url in urls


def test_error_of_an_invalid_origin_has_no_password() -> None:
    with pytest.raises(ValidationError) as caught:
        MochiServerSettings(allowed_origins="http://me:hush@chat.example")
    assert caught.value.errors()[0]["msg"].startswith(
        "Value error, 'http://***@chat.example' is not an origin"
    )


def test_tilde_is_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.setenv("MOCHI_DATA_DIR", "~/data")
    assert MochiServerSettings().resolved_sessions_dir == tmp_path / "data" / "chat_sessions"
    assert MochiServerSettings(sessions_dir=Path("~", "s")).resolved_sessions_dir == tmp_path / "s"


def test_data_directory_cannot_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValidationError):
        MochiServerSettings(data_dir=tmp_path / "file")
    with pytest.raises(ValidationError):
        MochiServerSettings(data_dir=tmp_path / "file" / "sub" / "folder")
    assert MochiServerSettings(data_dir=tmp_path / "new" / "folder").data_dir == str(
        tmp_path / "new" / "folder"
    )


def test_app_accepts_overrides_and_settings(tmp_path: Path) -> None:
    assert (
        create_app(ollama_host="http://localhost:1", data_dir=str(tmp_path)).title == "mochi-server"
    )
    assert create_app(MochiServerSettings(data_dir=tmp_path)).title == "mochi-server"
    assert create_app(MochiServerSettings(data_dir=tmp_path), port=1).title == "mochi-server"
    with pytest.raises(ValidationError):
        create_app(port="many")


def test_host_of_an_app_replaces_the_hosts_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MOCHI_OLLAMA_HOSTS", "a=http://one:1,b=http://two:2")
    given = MochiServerSettings(data_dir=tmp_path)
    for settings in (None, given):
        app = create_app(settings, ollama_host="http://three:3", data_dir=str(tmp_path))
        assert [host.url for host in app.state.settings.hosts()] == ["http://three:3"]
    app = create_app(given, ollama_hosts=("http://four:4",), ollama_host="http://three:3")
    assert [host.url for host in app.state.settings.hosts()] == ["http://four:4"]
    assert [host.name for host in create_app(given).state.settings.hosts()] == ["a", "b"]


def test_ollama_host_without_scheme_has_the_default_port() -> None:
    assert (
        MochiServerSettings(ollama_host="192.168.1.100").ollama_host == "http://192.168.1.100:11434"
    )
    assert MochiServerSettings(ollama_host="box:8080").ollama_host == "http://box:8080"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:11434"),  # noqa: S104 - an address to connect to
        ("0.0.0.0:11500", "http://127.0.0.1:11500"),
        ("http://0.0.0.0:11500/", "http://127.0.0.1:11500"),
        ("[::]:11500", "http://[::1]:11500"),
        ("::", "http://[::1]:11434"),
        (":11500", "http://127.0.0.1:11500"),
        ("gpu.example", "http://gpu.example:11434"),
        (' "gpu.example:80" ', "http://gpu.example:80"),
        ("https://gpu.example/ollama", "https://gpu.example/ollama"),
        ("", "http://localhost:11434"),
    ],
)
def test_address_of_ollama_defaults_to_ollama_host(
    monkeypatch: pytest.MonkeyPatch, host: str, url: str
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", host)
    assert MochiServerSettings().ollama_host == url
    assert MochiServerSettings(ollama_host="http://other:1").ollama_host == "http://other:1"
    monkeypatch.setenv("MOCHI_OLLAMA_HOST", "http://third:1")
    assert MochiServerSettings().ollama_host == "http://third:1"


def test_hosts_have_names_and_urls(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("gpu=10.0.0.1  # the first\n\n10.0.0.2:99, https://u:p@h/x\n")
    expected = [
        ("gpu", "http://10.0.0.1:11434"),
        ("10.0.0.2:99", "http://10.0.0.2:99"),
        ("h:443", "https://u:p@h/x"),
    ]
    assert [*MochiServerSettings(ollama_hosts="@hosts", data_dir=tmp_path).hosts()] == expected
    given = MochiServerSettings(ollama_hosts=["gpu=10.0.0.1", "10.0.0.2:99", "https://u:p@h/x"])
    assert [*given.hosts()] == expected
    assert given.ollama_host == "http://10.0.0.1:11434"
    assert [*MochiServerSettings().hosts()] == [("localhost:11434", "http://localhost:11434")]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("a, ftp://x", "'ftp://x' is not an http"),
        ("a, http://u:secret@x:99999", "@x:99999' is not an http"),
        ("a,b,a:11434", "'a:11434' is named twice"),
        ("x=a,x=b", "'x=b' is named twice"),
        ("a,b=http://u:p@a:11434", "is named twice"),
        ("@missing", "cannot read .*missing"),
    ],
)
def test_invalid_list_of_hosts_is_refused(
    monkeypatch: pytest.MonkeyPatch, value: str, problem: str
) -> None:
    monkeypatch.setenv("MOCHI_OLLAMA_HOSTS", value)
    with pytest.raises(ValidationError, match=problem) as refused:
        MochiServerSettings()
    assert "secret" not in str(refused.value)
