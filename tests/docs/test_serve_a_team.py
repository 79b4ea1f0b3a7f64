"""The files that `docs/how-to/serve-a-team.md` prepares are valid for a server."""

from pathlib import Path
from typing import Any

import yaml

from mochi_server.config import MochiServerSettings
from mochi_server.services.keys import read_keys
from tests.docs_tooling.pages import ROOT, blocks
from tests.docs_tooling.proxies import replaced
from tests.docs_tooling.world import World

PAGE = ROOT / "docs" / "how-to" / "serve-a-team.md"


def titled(title: str) -> str:
    (text,) = [block.text for block in blocks(PAGE) if block.title == title]
    return text


def test_settings_are_accepted(tmp_path: Path) -> None:
    values = dict(line.split("=", 1) for line in titled("team/mochi-server.env").splitlines())
    given: dict[str, Any] = {}
    for name, value in values.items():
        given[name.removeprefix("MOCHI_").lower()] = value
    settings = MochiServerSettings(data_dir=str(tmp_path), **given)
    assert [host.name for host in settings.hosts()] == ["gpu1", "gpu2", "gpu3"]
    assert settings.keys_path == Path("/etc/mochi/keys.yaml")


def test_keys_have_the_limits_of_the_page(tmp_path: Path) -> None:
    commands = [block.text for block in blocks(PAGE) if "keys add" in block.text]
    with World(tmp_path) as world:
        world.write("team/people.txt", titled("team/people.txt"))
        for command in commands:
            world.bash(command)
        file = read_keys(world.clone / "team/keys.yaml")
        callers = [file.caller(key) for key in file.keys]
        secrets = (world.clone / "team/new-keys.txt").read_text().splitlines()
    assert [caller.key for caller in callers] == ["ann", "ben", "cleo", "monitoring"]
    assert [caller.turns_at_a_time for caller in callers] == [2, 2, 2, None]
    assert [line.split()[0] for line in secrets] == ["ann", "ben", "cleo"]


def test_both_servers_are_checked(tmp_path: Path) -> None:
    (script,) = [block.text for block in blocks(PAGE) if "/hosts" in block.text]
    script = replaced(script, "10.0.0.5 10.0.0.6", "1 2")
    script = script.replace("http://$server:8000", "http://127.0.0.1:8000")
    with World(tmp_path) as world:
        world.write("team/monitoring.key", "key")
        assert world.bash(script).count('"status":"ready"') == 2


def test_prometheus_reads_both_servers() -> None:
    file = ROOT / "docs/examples/deploy/prometheus.yml"
    (job,) = yaml.safe_load(file.read_text())["scrape_configs"]
    (config,) = job["static_configs"]
    assert config["targets"] == ["10.0.0.5:8000", "10.0.0.6:8000"]
