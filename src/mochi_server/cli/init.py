"""``mochi-server init``: create the directories of a server, with sample files."""

import shlex
from collections.abc import Iterator
from pathlib import Path

from mochi_server.config import DATA_DIR_MARKER, SAMPLE_FOLDERS, sample_folders

_SUFFIXES = (".py", ".md")
_CODE_AGENTS = ("coder", "agent_builder")
"""Sample agents that run commands or write code with the rights of the server."""
_MARKER_TEXT = (
    "The presence of this file allows mochi-server to import the tools and agents beside it.\n"
)


def describe(
    directory: Path, created: list[str], existing: list[str], *, with_code_agents: bool
) -> str:
    """Return a text for the user: one line per folder, what is left out, and the next commands.

    ``created`` and ``existing`` are the names that ``scaffold`` returns.
    """
    path = directory.resolve()
    lines = [f"In {path}:"]
    for folder in SAMPLE_FOLDERS:
        new = _count_in(folder, created)
        lines.append(f"  {folder + '/':<16} {new} new, {_count_in(folder, existing)} existing")
    if not with_code_agents:
        names = " and ".join(_CODE_AGENTS)
        lines += [
            "",
            f"The agents {names} run commands and write code. --with-code-agents adds them.",
        ]
    command = "mochi-server"
    if path != Path.cwd():
        command += f" --data-dir {shlex.quote(str(directory))}"
    lines += [
        "",
        f"{command}              uses your Ollama",
        f"{command} --test-mode  uses a bundled LLM",
    ]
    return "\n".join(lines)


def _count_in(folder: str, names: list[str]) -> int:
    return sum(name.startswith(f"{folder}/") for name in names)


def scaffold(directory: Path, *, with_code_agents: bool = False) -> tuple[list[str], list[str]]:
    """Copy the sample files to ``directory``, which is created if it does not exist.

    Existing files are kept. The agents that run commands or write code are copied only if
    ``with_code_agents`` is true. A marker file, which allows the server to import code from the
    directory, is written each time.

    Return the names of the created and of the existing files, relative to the directory and
    without the marker. Raises ``OSError`` if a file cannot be created.
    """
    created: list[str] = []
    existing: list[str] = []
    directory.mkdir(parents=True, exist_ok=True)
    for source in sample_folders():
        private = source.name == "chat_sessions"
        (directory / source.name).mkdir(mode=0o700 if private else 0o777, exist_ok=True)
        for file in sorted(_sample_files(source)):
            path = file.relative_to(source)
            if not with_code_agents and path.parts[0] in _CODE_AGENTS:
                continue
            name = f"{source.name}/{path.as_posix()}"
            if _copy_new(file, directory / name):
                created.append(name)
            else:
                existing.append(name)
    (directory / DATA_DIR_MARKER).write_text(_MARKER_TEXT, "utf-8")
    return created, existing


def _sample_files(folder: Path) -> Iterator[Path]:
    """Yield the sample files of ``folder``.

    Files that a server stored in the folder are skipped.
    """
    for path in folder.rglob("*"):
        is_hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if is_hidden or "agent_chats" in path.parts:
            continue
        if path.suffix in _SUFFIXES and path.is_file():
            yield path


def _copy_new(source: Path, target: Path) -> bool:
    """Copy a file and its directories, and return whether ``target`` is new."""
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
