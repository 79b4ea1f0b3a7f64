"""Deployment files of the server and the stub, parsed like their tools do, because no container
engine is available.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mochi_server import MochiServerSettings, __version__
from mochi_stub import StubServer
from tests.stub.commands import call_command
from tests.support.server import RunningServer

ROOT = Path(__file__).parents[2]
INSTRUCTIONS = {
    "FROM",
    "RUN",
    "WORKDIR",
    "COPY",
    "ARG",
    "ENV",
    "USER",
    "VOLUME",
    "EXPOSE",
    "HEALTHCHECK",
    "ENTRYPOINT",
    "CMD",
}


def stages() -> dict[str, list[tuple[str, str]]]:
    """Return the stages of the Dockerfile by name, each as a list of instructions with their
    arguments.
    """
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE).replace(
        "\\\n", " "
    )
    found: dict[str, list[tuple[str, str]]] = {}
    for line in filter(str.strip, text.split("\n")):
        instruction, _, rest = line.partition(" ")
        if instruction == "FROM":
            found[rest.split(" AS ")[1]] = []
        found[list(found)[-1]].append((instruction, rest))
    return found


def value(stage: str, instruction: str) -> str:
    (found,) = [rest for name, rest in stages()[stage] if name == instruction]
    return found


def environment(stage: str = "stub") -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in value(stage, "ENV").split())


def run_check(command: list[str]) -> None:
    """Run a health check in this process."""
    assert command[:2] == ["python", "-c"]
    exec(command[2], {})  # noqa: S102 - a line of the Dockerfile


def fly() -> dict[str, Any]:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 reads no TOML")
    found: dict[str, Any] = tomllib.loads((ROOT / "fly.toml").read_text())
    return found


def test_instructions_are_valid_and_stages_use_slim_python() -> None:
    assert {name for stage in stages().values() for name, _ in stage} <= INSTRUCTIONS
    assert [stage[0][1].split(" AS ")[0] for stage in stages().values()] == ["python:3.13-slim"] * 3


def test_build_copies_all_files_that_it_needs() -> None:
    sources = [
        source for name, rest in stages()["build"] if name == "COPY" for source in rest.split()[:-1]
    ]
    assert all((ROOT / source).exists() for source in sources)
    included = re.findall(
        r'^"([\w/.]+)" = "mochi_server/', (ROOT / "pyproject.toml").read_text(), flags=re.MULTILINE
    )
    needed = {"src", "pyproject.toml", *included}
    assert [
        name for name in needed if name not in sources and name.split("/")[0] not in sources
    ] == []


@pytest.mark.parametrize(("stage", "user"), [("stub", "stub"), ("server", "mochi")])
def test_containers_do_not_run_as_root(stage: str, user: str) -> None:
    assert value(stage, "USER") == user
    assert re.search(rf"useradd --system .* {user}( |$)", value(stage, "RUN"))
    order = [name for name, _ in stages()[stage]]
    assert order.index("RUN") < order.index("USER") < order.index("ENTRYPOINT")


def test_default_target_is_the_server() -> None:
    assert list(stages())[-1] == "server"


def test_container_sets_only_known_settings(tmp_path: Path) -> None:
    given = {
        name: text for name, text in environment("server").items() if name.startswith("MOCHI_")
    }
    settings = MochiServerSettings(
        **{name.removeprefix("MOCHI_").lower(): text for name, text in given.items()}
    )
    assert str(settings.port) == value("server", "EXPOSE")
    assert settings.data_dir == value("server", "VOLUME") == value("server", "WORKDIR")
    assert f"install -d -o mochi -m 700 {settings.data_dir}" in value("server", "RUN")
    assert json.loads(value("server", "ENTRYPOINT")) == ["mochi-server"]


def test_server_health_check_needs_no_key(
    tmp_path: Path, private_stub: StubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = json.loads(value("server", "HEALTHCHECK").partition("CMD ")[2])
    with RunningServer(tmp_path, private_stub.url, api_keys=("key",)) as server:
        monkeypatch.setenv("MOCHI_PORT", server.url.rpartition(":")[2])
        run_check(check)
    with pytest.raises(OSError, match="refused"):
        run_check(check)


def test_container_command_takes_its_port_from_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert json.loads(value("stub", "ENTRYPOINT")) == ["mochi-stub"]
    assert environment()["PORT"] == value("stub", "EXPOSE")
    with StubServer(host="0.0.0.0") as taken:  # noqa: S104 - as in the container
        monkeypatch.setenv("PORT", str(taken.port))
        ran = call_command(*json.loads(value("stub", "CMD")))
    assert f"cannot listen on 0.0.0.0:{taken.port}" in ran.stderr


def test_stub_health_check_fails_if_nothing_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    check = json.loads(value("stub", "HEALTHCHECK").partition("CMD ")[2])
    with StubServer() as stub:
        monkeypatch.setenv("PORT", str(stub.port))
        run_check(check)
    with pytest.raises(OSError, match="refused"):
        run_check(check)


def test_fly_builds_the_stub_and_uses_its_port() -> None:
    settings = fly()
    assert (ROOT / settings["build"]["dockerfile"]).exists()
    assert settings["build"]["build-target"] in stages()
    service = settings["http_service"]
    assert str(service["internal_port"]) == settings["env"]["PORT"] == environment()["PORT"]
    assert (service["min_machines_running"], service["auto_stop_machines"]) == (0, "stop")
    assert service["checks"][0]["path"] == "/health"
    assert settings["vm"] == [{"memory": "256mb", "cpu_kind": "shared", "cpus": 1}]


def test_change_of_the_code_installs_no_dependency() -> None:
    instructions = stages()["build"]
    installing = [index for index, (_, rest) in enumerate(instructions) if "--requirement" in rest]
    copying = [index for index, (_, rest) in enumerate(instructions) if rest == "src src"]
    assert installing < copying
    assert instructions[-1] == (
        "RUN",
        "/venv/bin/pip install --no-cache-dir --no-deps --no-build-isolation .",
    )


def test_image_has_the_optional_dependencies() -> None:
    pytest.importorskip("tomllib", reason="Python 3.10 reads no TOML, and the image's Python does")
    (command,) = [rest for _, rest in stages()["build"] if "--requirement" in rest]
    program = re.search('python -c "(.*?)" >', command)
    assert program is not None
    printed = subprocess.check_output([sys.executable, "-c", program[1]], cwd=ROOT, text=True)
    names = {re.split("[^a-z-]", line)[0] for line in printed.splitlines()}
    assert {"fastapi", "psycopg", "mcp", "opentelemetry-sdk", "pypdf"} <= names


def copied_sources() -> set[str]:
    """Return the paths of the repository that the build stage copies."""
    copied = set[str]()
    for instruction, rest in stages()["build"]:
        if instruction == "COPY":
            copied.update(rest.split()[:-1])
    return copied


def test_ignored_files_are_not_copied() -> None:
    admitted = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    }
    assert admitted == copied_sources()


def copy_context(target: Path) -> None:
    """Copy the files that the build stage copies into its working directory."""
    for source in copied_sources():
        path = target / source
        path.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "agent_chats")
            shutil.copytree(ROOT / source, path, ignore=ignored)
        else:
            shutil.copyfile(ROOT / source, path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "suffix"),
    [({"SOURCE_COMMIT": "0123456789ab"}, " (commit 0123456789ab)"), ({}, "")],
    ids=["with a commit", "without"],
)
def test_image_names_the_commit_of_its_build(
    tmp_path: Path, arguments: dict[str, str], suffix: str
) -> None:
    """Run the last command of the build stage outside a container, as no engine is available.

    The dependencies are those of this environment.
    """
    source, venv = tmp_path / "source", tmp_path / "venv"
    copy_context(source)
    pip = [str(venv / "bin" / "pip"), "install", "--quiet"]
    for command in ([sys.executable, "-m", "venv", str(venv)], [*pip, "hatchling>=1.27"]):
        subprocess.run(command, check=True)
    assert ("ARG", 'SOURCE_COMMIT=""') in stages()["build"]
    name, install = stages()["build"][-1]
    assert (name, install.count("/venv/bin/pip")) == ("RUN", 1)
    script = install.replace("/venv", str(venv)) + " --quiet"
    build = {**os.environ, "SOURCE_COMMIT": "", **arguments}
    subprocess.run(["sh", "-euc", script], cwd=source, env=build, check=True)
    (packages,) = venv.glob("lib/python*/site-packages")
    version = [sys.executable, "-m", "mochi_server", "--version"]
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    printed = subprocess.check_output(version, cwd=tmp_path, env=environment, text=True)
    assert printed == f"mochi-server {__version__}{suffix}\n"
