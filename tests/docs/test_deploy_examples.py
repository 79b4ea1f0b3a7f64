"""The files of `docs/examples/deploy`: systemd unit, alerts, dashboard, backup and restore."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from mochi_server.errors import all_errors
from mochi_stub import StubServer
from mochi_stub.models import Model
from tests.docs_tooling.pages import ROOT
from tests.docs_tooling.proxies import needed, replaced
from tests.support import postgres
from tests.support.cases import cases
from tests.support.instructions import instruct, words
from tests.support.process import Command

DEPLOY = ROOT / "docs" / "examples" / "deploy"
ALERTS: list[dict[str, Any]] = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"][0][
    "rules"
]
PANELS: list[dict[str, Any]] = json.loads((DEPLOY / "grafana-dashboard.json").read_text())["panels"]
QUERIES = [rule["expr"] for rule in ALERTS] + [
    target["expr"] for panel in PANELS for target in panel["targets"]
]
ENCODED_PASSWORD = quote(postgres.PASSWORD).replace("h", "%68")
"""The password as URLs can contain it."""
FUNCTIONS = {"sum", "max", "and", "by", "rate", "increase", "histogram_quantile"}


def unit(directory: Path) -> Path:
    """Write the unit with a command that exists, and return its path."""
    path = directory / "mochi-server.service"
    text = (DEPLOY / "mochi-server.service").read_text()
    path.write_text(replaced(text, "/opt/mochi/bin/mochi-server", needed("true")))
    return path


def systemd_analyze(*arguments: str) -> str:
    command = [needed("systemd-analyze"), *arguments]
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    ).stdout


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    assert systemd_analyze("verify", "--man=no", str(unit(tmp_path))) == ""


def test_systemd_grades_the_exposure_of_the_unit_below_3(tmp_path: Path) -> None:
    printed = systemd_analyze("security", "--offline=true", "--no-pager", str(unit(tmp_path)))
    (grade,) = re.findall(r"Overall exposure level for \S+: ([\d.]+)", printed)
    assert float(grade) < 3


def samples(text: str) -> dict[str, set[str]]:
    """Return the labels of each sample in the text format of Prometheus, by name."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The samples of a server after a turn with a tool call, a failed turn and a model load."""
    directory = tmp_path_factory.mktemp("metrics")
    with (
        StubServer(
            speed=0, models=[Model("mochi", ("completion", "tools"), load_time=0.2)]
        ) as stub,
        Command("mochi_server", "--port", "0", "--ollama-host", stub.url, cwd=directory) as command,
    ):
        api = command.api()
        session_id = api.create_session("mochi")["session_id"]
        api.stream_message(
            session_id, instruct({"tool_call": [{"name": "nothing", "args": {}}]}, words(3))
        )
        api.http.get("/sessions/0000000000")
        return samples(api.http.get("/metrics").text)


@cases("query", QUERIES)
def test_query_uses_metrics_and_labels_that_the_server_has(
    query: str, metrics: dict[str, set[str]]
) -> None:
    assert query.count("(") == query.count(")")
    assert query.count("[") == query.count("]")
    known = metrics | {"up": set()}
    by = {
        label
        for labels in re.findall(r"by \(([^)]*)\)", query)
        for label in re.split(r",\s*", labels)
    }
    matchers = re.findall(r'(\w+)="([^"]*)"', query)
    bare = re.sub(r'"[^"]*"|\[[^]]*\]|by \([^)]*\)|\{[^}]*\}', "", query)
    names = set(re.findall(r"[a-zA-Z_]\w*", bare)) - FUNCTIONS
    assert names
    assert names <= known.keys()
    labels = set.union(*(known[name] for name in names)) | {"instance", "job"}
    assert by | {label for label, _ in matchers} <= labels
    codes = {error.code for error in all_errors()}
    assert {value for label, value in matchers if label == "code"} <= codes


@cases(
    ("alert", "query"),
    [
        ("MochiOllamaHostDown", 'mochi_ollama_host_state{state="down"}'),
        ("MochiQueueFull", 'code="OLLAMA_BUSY"'),
        ("MochiWebhooksNotAccepted", "mochi_oldest_webhook_age"),
        ("MochiTurnsOverdue", "mochi_overdue_turns"),
        ("MochiDiskNearlyFull", "mochi_disk_free_bytes"),
        ("MochiRequestsLimited", 'status="429"'),
    ],
)
def test_each_danger_has_an_alert_and_a_panel(alert: str, query: str) -> None:
    (rule,) = [rule for rule in ALERTS if rule["alert"] == alert]
    assert query in rule["expr"]
    metric = re.findall(r"mochi_\w+", rule["expr"])[0]
    panels = [target["expr"] for panel in PANELS for target in panel["targets"]]
    assert [expression for expression in panels if metric in expression]


def test_alert_rules_have_the_form_of_prometheus() -> None:
    """Compare the keys and durations.

    `promtool` checks the expressions, too, where it is installed.
    """
    for rule in ALERTS:
        assert {"alert", "expr", "labels", "annotations"} <= rule.keys() <= {*rule.keys(), "for"}
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))
        assert rule["labels"].keys() == {"severity"}
        assert rule["annotations"]["summary"].endswith(".")
    assert len({rule["alert"] for rule in ALERTS}) == len(ALERTS)
    assert yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["rule_files"] == ["alerts.yml"]


def test_promtool_accepts_the_alert_rules() -> None:
    promtool = needed("promtool")
    done = subprocess.run(
        [promtool, "check", "rules", DEPLOY / "alerts.yml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_dashboard_panels_do_not_overlap() -> None:
    cells = [
        (p["gridPos"]["x"] + x, p["gridPos"]["y"]) for p in PANELS for x in range(p["gridPos"]["w"])
    ]
    assert len(set(cells)) == len(cells)
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)


def script(name: str, argument: str, **environment: str) -> str:
    command = ["sh", str(DEPLOY / name), argument]
    done = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def empty_database() -> str:
    """Create a database in the shared PostgreSQL, or empty it, and return its URL."""
    instance = postgres.shared_instance().url()
    for statement in ("DROP DATABASE IF EXISTS restored WITH (FORCE)", "CREATE DATABASE restored"):
        subprocess.run(
            [needed("psql"), "-qc", statement, instance], check=True, capture_output=True
        )
    with_password = f"{postgres.LOCKED}:{ENCODED_PASSWORD}@"
    return instance.replace("postgres@", with_password).rpartition("/")[0] + "/restored"


def recorder(directory: Path) -> Path:
    """Write programs that record their arguments and run PostgreSQL's. Return the record."""
    record = directory / "arguments"
    for name in ("psql", "pg_dump", "pg_restore"):
        program(directory, name, f'echo "{name} $*" >>"{record}"\nexec {needed(name)} "$@"')
    return record


@pytest.mark.slow
@pytest.mark.parametrize("has_database", [False, True], ids=["files", "PostgreSQL"])
def test_restored_backup_has_every_session(tmp_path: Path, has_database: bool) -> None:
    needed("pg_dump" if has_database else "tar")
    data, backups = tmp_path / "data", str(tmp_path / "backups")
    data.mkdir()
    (data / "system_prompts").mkdir()
    (data / "system_prompts" / "own.md").write_text("Be brief.")
    store = {"MOCHI_STORE_URL": empty_database()} if has_database else {}
    record = recorder(tmp_path) if has_database else None
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}

    with StubServer(speed=0) as stub:
        start = ("mochi_server", "--port", "0", "--ollama-host", stub.url, "--data-dir", str(data))
        with Command(*start, cwd=tmp_path, **store) as command:
            api = command.api()
            session_id = api.create_session("mochi", title="Kept")["session_id"]
            api.send_message(session_id, instruct(words(30)))
            before = api.session(session_id)
            backup = script("backup.sh", backups, MOCHI_DATA_DIR=str(data), **store, **path)
            command.end()
        shutil.rmtree(data)
        if has_database:
            empty_database()
        # A restore reads the address from the file of the service.
        settings = tmp_path / "mochi-server.env"
        settings.write_text("".join(f'{name}="{value}"\n' for name, value in store.items()))
        from_file = {"SETTINGS_FILE": str(settings), "MOCHI_DATA_DIR": str(data)}
        script("restore.sh", backup, **from_file, **path)
        with Command(*start, cwd=tmp_path, **store) as command:
            api = command.api()
            assert api.session(session_id) == before
            assert len(api.ok(api.http.get("/sessions"))["sessions"]) == 1
            assert (data / "system_prompts" / "own.md").read_text() == "Be brief."
    if record:
        arguments = record.read_text()
        assert set(re.findall(r"^pg_\w+", arguments, re.MULTILINE)) == {"pg_dump", "pg_restore"}
        for secret in (postgres.PASSWORD, ENCODED_PASSWORD):
            assert secret not in arguments
    refused = subprocess.run(
        ["sh", DEPLOY / "restore.sh", backup],
        env=os.environ | {"MOCHI_DATA_DIR": str(data)},
        capture_output=True,
        check=False,
    )
    assert b"is not empty" in refused.stderr


def failure(name: str, *arguments: str, **environment: str) -> str:
    """Run a script that fails, and return its error message."""
    command = ["sh", str(DEPLOY / name), *arguments]
    done = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    return done.stderr


def program(directory: Path, name: str, text: str) -> None:
    """Write a program that replaces another one in the PATH."""
    path = directory / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_scripts_without_an_argument_say_how_they_are_used(tmp_path: Path) -> None:
    assert failure("backup.sh") == "Usage: backup.sh DIRECTORY\n"
    for arguments in ([], [str(tmp_path / "none")], ["a", "b"]):
        assert failure("restore.sh", *arguments).startswith("Usage: restore.sh NAME, for example ")


def test_backup_that_fails_leaves_no_file(tmp_path: Path) -> None:
    backups, data = tmp_path / "backups", tmp_path / "data"
    data.mkdir()
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    environment = {
        "MOCHI_DATA_DIR": str(data),
        "MOCHI_STORE_URL": "postgresql:///none",
        "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}",
    }
    program(bin_, "psql", "echo 170002")
    program(bin_, "pg_dump", 'echo "pg_dump (PostgreSQL) 15.6 (Debian)"')
    assert failure("backup.sh", str(backups), **environment) == (
        "pg_dump 15 cannot back up PostgreSQL 17. Install the package postgresql-client-17.\n"
    )
    broken = """
        if [ "$1" = --version ]; then echo "pg_dump (PostgreSQL) 17.2"; exit; fi
        touch "$5"
        exit 1
    """
    program(bin_, "pg_dump", broken)
    failure("backup.sh", str(backups), **environment)
    assert list(backups.iterdir()) == []
    failure("backup.sh", str(backups), MOCHI_DATA_DIR=str(tmp_path / "missing"))
    assert list(backups.iterdir()) == []
