"""Build hook: a wheel that is built in a checkout contains its commit, which `--version` prints."""

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
        try:
            done = subprocess.run(_DESCRIBE, cwd=self.root, capture_output=True, check=True)  # noqa: S603 - a constant
        except (OSError, subprocess.CalledProcessError):  # no git, or no checkout
            return
        path = Path(self.directory) / "commit.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(done.stdout.strip())
        build_data["force_include"][str(path)] = "mochi_server/commit.txt"

    def finalize(self, *_: object) -> None:
        (Path(self.directory) / "commit.txt").unlink(missing_ok=True)
