"""Advice on how to install optional packages, by the way in which the package was installed."""

import json
import sys
from pathlib import Path

import pytest

from mochi_server.util.text import install_command

INDEX = f"{sys.executable} -m pip install 'mochi-server[mcp]'"


def install(directory: Path, installer: str, origin: object) -> None:
    """Write the files that installers write into the directory of an installed package."""
    folder = directory / "mochi_server-99.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: mochi-server\nVersion: 99\n")
    (folder / "INSTALLER").write_text(f"{installer}\n")
    if origin:
        (folder / "direct_url.json").write_text(json.dumps(origin))


@pytest.mark.parametrize(
    ("installer", "origin", "command"),
    [
        ("pip", None, INDEX),
        (
            "pip",
            {"url": "file:///home/me/my%20code", "dir_info": {"editable": True}},
            f"{sys.executable} -m pip install -e '/home/me/my code[mcp]'",
        ),
        (
            "uv",
            {"url": "https://example.org/m.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            f"uv pip install --python {sys.executable} 'mochi-server[mcp] @ git+https://example.org/m.git@abc'",
        ),
        (
            "uv",
            {"url": "file:///tmp/mochi.whl", "archive_info": {}},
            f"uv pip install --python {sys.executable} 'mochi-server[mcp] @ file:///tmp/mochi.whl'",
        ),
    ],
    ids=["index", "editable", "git", "wheel"],
)
def test_command_names_the_source_of_the_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installer: str, origin: object, command: str
) -> None:
    install(tmp_path, installer, origin)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert install_command("mcp") == command


def test_command_without_metadata_names_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert install_command("mcp") == INDEX
