"""Build hook: a wheel that is built in a checkout contains its commit, which `--version` prints."""

import os
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_DESCRIBE = ("git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")


class CommitHook(BuildHookInterface):  # type: ignore[type-arg,misc]  # hatchling is not installed
    """Hook that adds the file `commit.txt` to the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "standard":  # an editable installation runs the files of the checkout
            return
        commit = os.environ.get("SOURCE_COMMIT") or _described_commit(self.root)
        if not commit:
            return
        path = Path(self.directory) / "commit.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(commit)
        build_data["force_include"][str(path)] = "mochi_server/commit.txt"

    def finalize(self, *_: object) -> None:
        (Path(self.directory) / "commit.txt").unlink(missing_ok=True)


def _described_commit(checkout: str) -> str:
    """Return the commit of a checkout, or "" if there is no git or no checkout."""
    try:
        done = subprocess.run(_DESCRIBE, cwd=checkout, capture_output=True, check=True)  # noqa: S603 - a constant
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.decode().strip()
