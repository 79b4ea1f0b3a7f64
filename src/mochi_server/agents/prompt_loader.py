"""What an agent is told in each phase, beside its own system prompt: files, or packaged texts where there are none."""

import logging
from importlib.resources import files
from pathlib import Path

PACKAGED = files("mochi_server.agents") / "prompts"

logger = logging.getLogger(__name__)


class PromptLoader:
    """The texts of the two phases, read anew each time."""

    def __init__(self, planning_path: str | Path | None = None, execution_path: str | Path | None = None) -> None:
        self._planning = planning_path
        self._execution = execution_path

    def planning(self) -> str:
        """What is said behind the instruction when a plan is wanted."""
        return _text(self._planning, "planning.md")

    def execution(self) -> str:
        """What is said behind the history when the plan is to be carried out."""
        return _text(self._execution, "execution.md")


def _text(path: str | Path | None, packaged: str) -> str:
    if path is not None:
        try:
            if text := Path(path).read_text("utf-8-sig").strip():
                return text
        except FileNotFoundError:
            logger.debug("%s is not there; the packaged prompt is used", path)
        except (OSError, UnicodeDecodeError) as error:
            logger.warning("%s cannot be used: %s", path, error)
    return (PACKAGED / packaged).read_text("utf-8").strip()
