"""Tools for tests, written into a data directory as a user would."""

from pathlib import Path
from textwrap import dedent
from typing import Any

from mochi_server.config import DATA_DIR_MARKER

LOOK: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look somewhere.",
        "parameters": {
            "type": "object",
            "properties": {"at": {"type": "string"}},
            "required": ["at"],
        },
    },
}
"""Definition of a client's tool in OpenAI's format."""

NOTE_TOOL = '''
    def note(text: str) -> str:
        """Write a note."""
        return text

    __all__ = ["note"]
'''
"""Source of a tool that needs approval and has no effect."""

SAMPLES = Path(__file__).parents[2] / "tools"


def write_tools(data_dir: Path, source: str, **modules: str) -> Path:
    """Write a tools directory with this `__init__.py` and these modules, and mark it as
    `mochi-server init` does.
    """
    (data_dir / DATA_DIR_MARKER).touch()
    directory = data_dir / "tools"
    directory.mkdir(exist_ok=True)
    for name, text in {"__init__": source, **modules}.items():
        (directory / f"{name}.py").write_text(dedent(text))
    return directory
