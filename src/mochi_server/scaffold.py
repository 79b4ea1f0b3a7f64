"""``mochi-server init``: the folders that a server works with, filled with samples. What is there stays as it is."""

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

FOLDERS = ("tools", "agents", "system_prompts", "chat_sessions")

_MODES = {"chat_sessions": 0o700}
"""What people say is nobody else's."""

_OURS = (".py", ".md")
_HERE = Path(__file__).parent


@dataclass
class Scaffold:
    """What came of it: files by their paths within the directory."""

    directory: Path
    made: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """For a person: a line for each folder, and what comes next."""
        lines = [f"{folder + '/':<16} {self._told(folder)}" for folder in FOLDERS]
        here = self.directory.resolve() == Path.cwd()
        where = "" if here else f" --data-dir {shlex.quote(str(self.directory))}"
        return "\n".join([f"In {self.directory.resolve()}:", *(f"  {line}" for line in lines), "", *_next(where)])

    def _told(self, folder: str) -> str:
        made, kept = ([name for name in names if name.startswith(f"{folder}/")] for names in (self.made, self.kept))
        parts = [f"{_files(made)} made"] if made else []
        parts += [f"{_files(kept)} there already, left alone"] if kept else []
        return ", ".join(parts)


def scaffold(directory: Path) -> Scaffold:
    """Put the samples into a directory, which is made where it is not there. Raises OSError.

    No file is overwritten, also not one that comes to be meanwhile, nor is what a link of that name leads to.
    """
    result = Scaffold(directory)
    directory.mkdir(parents=True, exist_ok=True)
    for source in samples():
        (directory / source.name).mkdir(mode=_MODES.get(source.name, 0o777), exist_ok=True)
        for file in sorted(_files_of(source)):
            name = f"{source.name}/{file.relative_to(source).as_posix()}"
            (result.made if _put(file, directory / name) else result.kept).append(name)
    return result


def samples() -> list[Path]:
    """The folders of samples: in the package when it is installed, beside its sources in a clone."""
    root = next(root for root in (_HERE / "samples", _HERE.parents[1]) if (root / FOLDERS[0]).is_dir())
    return [root / folder for folder in FOLDERS]


def _files_of(folder: Path) -> Iterator[Path]:
    """The samples of a folder, and nothing that a server has kept there since."""
    for path in folder.rglob("*"):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.suffix in _OURS and "agent_chats" not in path.parts and not hidden and path.is_file():
            yield path


def _put(source: Path, target: Path) -> bool:
    """Write a file unless something of that name is there; whether it was written."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(target):
        return False
    try:
        file = target.open("xb")
    except FileExistsError:
        return False
    try:
        with file:
            file.write(source.read_bytes())
    except OSError as error:
        target.unlink()  # or a part of it would be taken for a file of the user's own the next time
        raise OSError(error.errno, error.strerror, str(target)) from error
    return True


def _files(names: list[str]) -> str:
    return f"{len(names)} file{'' if len(names) == 1 else 's'}"


def _next(where: str) -> list[str]:
    return [
        f"mochi-server{where}              serves it with your Ollama",
        f"mochi-server{where} --test-mode  serves it with a bundled LLM",
    ]
