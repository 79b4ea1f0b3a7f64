"""``mochi-server init``: create the directories of a server, with sample files."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from mochi_server.config import MARKER, SAMPLE_FOLDERS, sample_folders

_SUFFIXES = (".py", ".md")
_MARKER_TEXT = "The presence of this file allows mochi-server to import the tools and agents beside it.\n"


class Scaffold(NamedTuple):
    """Created files and files that already existed, as paths relative to the directory."""

    created: list[str]
    existing: list[str]


def describe(directory: Path, files: Scaffold) -> str:
    """Return a text for the user: one line per folder, and the next commands."""
    path = directory.resolve()
    lines = [f"In {path}:"]
    for folder in SAMPLE_FOLDERS:
        texts = []
        for text, names in (("created", files.created), ("already existed", files.existing)):
            if count := sum(name.startswith(f"{folder}/") for name in names):
                texts.append(f"{count} file{'' if count == 1 else 's'} {text}")
        lines.append(f"  {folder + '/':<16} {', '.join(texts)}")
    command = "mochi-server" + ("" if path == Path.cwd() else f" --data-dir {shlex.quote(str(directory))}")
    commands = f"{command}              uses your Ollama\n{command} --test-mode  uses a bundled LLM"
    return "\n".join([*lines, "", commands])


def scaffold(directory: Path) -> Scaffold:
    """Copy the sample files to ``directory``. Create the directory if it does not exist, and keep existing files.

    Also create a marker file, which allows the server to import code from the directory.

    Raises ``OSError`` if a file or folder cannot be created.
    """
    result = Scaffold([], [])
    directory.mkdir(parents=True, exist_ok=True)
    for source in sample_folders():
        private = source.name == "chat_sessions"
        (directory / source.name).mkdir(mode=0o700 if private else 0o777, exist_ok=True)
        for file in sorted(_sample_files(source)):
            name = f"{source.name}/{file.relative_to(source).as_posix()}"
            (result.created if _copy_new(file, directory / name) else result.existing).append(name)
    (directory / MARKER).write_text(_MARKER_TEXT, "utf-8")
    return result


def _sample_files(folder: Path) -> Iterator[Path]:
    """Yield the sample files of ``folder``. Files that a server stored in the folder are skipped."""
    for path in folder.rglob("*"):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.suffix in _SUFFIXES and "agent_chats" not in path.parts and not hidden and path.is_file():
            yield path


def _copy_new(source: Path, target: Path) -> bool:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with target.open("xb") as file:
            file.write(source.read_bytes())
    except FileExistsError:
        return False
    except OSError as error:
        target.unlink(missing_ok=True)  # the next run would keep a partial file
        raise OSError(error.errno, error.strerror, str(target)) from error
    return True
