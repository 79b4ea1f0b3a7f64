"""Prompts of the two phases of an agent, from files or from the package."""

import logging
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from mochi_server.util import regular_files

PACKAGED = files("mochi_server.agents") / "prompts"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PromptLoader:
    """Loader of the phase prompts. Each call reads the file again."""

    planning_path: str | Path | None = None
    execution_path: str | Path | None = None

    def planning(self) -> str:
        return _text(self.planning_path, "planning.md")

    def execution(self) -> str:
        return _text(self.execution_path, "execution.md")


def _text(path: str | Path | None, packaged: str) -> str:
    if path is not None:
        try:
            if text := regular_files.read_text(Path(path), "utf-8-sig").strip():
                return text
        except FileNotFoundError:
            logger.debug("Prompt file not found path=%s; using the packaged prompt", path)
        except (OSError, UnicodeDecodeError) as error:
            logger.warning(
                "Prompt file unreadable path=%s; using the packaged prompt: %s", path, error
            )
    return (PACKAGED / packaged).read_text("utf-8").strip()
