"""Configuration files in the operations documentation: complete and consistent with the code."""

import configparser
import re
from pathlib import Path
from typing import Any

import yaml

from mochi_server import MochiServerSettings
from tests.stub.test_deployment import environment, stages, value

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
DEPLOY = HOW_TO.parent / "examples" / "deploy"


def block(page: str, language: str) -> str:
    """Return the first block of a language on a page."""
    found = re.search(
        rf"^```{language}\n(.*?)^```$", (HOW_TO / page).read_text(), re.MULTILINE | re.DOTALL
    )
    assert found, f"{page} has no block of {language}"
    return found[1]


def is_setting(name: str) -> bool:
    return name.removeprefix("MOCHI_").lower() in MochiServerSettings.model_fields


def test_settings_on_the_pages_exist() -> None:
    for page in ("run-in-production.md", "docker.md", "behind-a-proxy.md"):
        named = set(re.findall(r"\bMOCHI_[A-Z_]+", (HOW_TO / page).read_text()))
        assert named
        assert [name for name in named if not is_setting(name)] == []


def test_systemd_unit_runs_the_command_and_waits_for_grace() -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # as documented by configparser
    text = (DEPLOY / "mochi-server.service").read_text()
    unit.read_string(text)
    service = unit["Service"]
    assert service["ExecStart"] == "/opt/mochi/bin/mochi-server"
    assert service["WorkingDirectory"] == service["ReadWritePaths"] == "/var/lib/mochi"
    grace = re.search(r"MOCHI_SHUTDOWN_GRACE_SECONDS=(\d+)", text)
    assert grace
    assert int(service["TimeoutStopSec"]) > int(grace[1])
    assert service["KillMode"] == "mixed", "MCP servers must run until the running turns have ended"


def test_compose_file_builds_the_server_and_waits_for_grace() -> None:
    compose: dict[str, Any] = yaml.safe_load(block("docker.md", "yaml"))
    server = compose["services"]["mochi"]
    assert server["build"]["target"] in stages()
    assert server["ports"] == [f"127.0.0.1:8000:{environment('server')['MOCHI_PORT']}"]
    assert server["volumes"] == [f"mochi:{value('server', 'VOLUME')}"]
    assert set(server["depends_on"]) < set(compose["services"])
    assert (
        int(server["stop_grace_period"].removesuffix("s"))
        > server["environment"]["MOCHI_SHUTDOWN_GRACE_SECONDS"]
    )
