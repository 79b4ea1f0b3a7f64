"""``mochi-server init``: the folders that a server works with, filled with samples. Existing files are kept."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

FOLDERS = ("tools", "agents", "system_prompts", "chat_sessions")

_OURS = (".py", ".md")
_HERE = Path(__file__).parents[1]


@dataclass
class Scaffold:
    """Result of `scaffold`: files by their paths within the directory."""

    directory: Path
    made: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """Return the text for a user: a line for each folder, and the next commands."""
        here = self.directory.resolve()
        command = "mochi-server" + ("" if here == Path.cwd() else f" --data-dir {shlex.quote(str(self.directory))}")
        counts = [f"  {folder + '/':<16} {self._counts(folder)}" for folder in FOLDERS]
        text = f"{command}              serves it with your Ollama\n{command} --test-mode  serves it with a bundled LLM"
        return "\n".join([f"In {here}:", *counts, "", text])

    def _counts(self, folder: str) -> str:
        made, kept = (sum(name.startswith(f"{folder}/") for name in names) for names in (self.made, self.kept))
        counts = {"made": made, "there already, left alone": kept}
        return ", ".join(f"{count} file{'' if count == 1 else 's'} {text}" for text, count in counts.items() if count)


def scaffold(directory: Path) -> Scaffold:
    """Put the samples into a directory, which is made if it is missing. Raises OSError.

    No file is overwritten, also not one that is made meanwhile or that a link leads to.
    """
    result = Scaffold(directory)
    directory.mkdir(parents=True, exist_ok=True)
    for source in samples():
        private = source.name == "chat_sessions"  # conversations
        (directory / source.name).mkdir(mode=0o700 if private else 0o777, exist_ok=True)
        for file in sorted(_files_of(source)):
            name = f"{source.name}/{file.relative_to(source).as_posix()}"
            (result.made if _put(file, directory / name) else result.kept).append(name)
    return result


def samples() -> list[Path]:
    """Return the folders of samples: in the package when it is installed, beside its sources in a clone."""
    root = next(root for root in (_HERE / "samples", _HERE.parents[1]) if (root / FOLDERS[0]).is_dir())
    return [root / folder for folder in FOLDERS]


def _files_of(folder: Path) -> Iterator[Path]:
    """Yield the samples of a folder, without files that a server has stored there."""
    for path in folder.rglob("*"):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.suffix in _OURS and "agent_chats" not in path.parts and not hidden and path.is_file():
            yield path


def _put(source: Path, target: Path) -> bool:
    """Write a file unless one of that name exists, and return whether it was written."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with target.open("xb") as file:
            file.write(source.read_bytes())
    except FileExistsError:
        return False
    except OSError as error:
        target.unlink(missing_ok=True)  # the next run would keep a part of it as the user's own file
        raise OSError(error.errno, error.strerror, str(target)) from error
    return True
