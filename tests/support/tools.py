"""Tools for tests, written into a data directory as a user would."""

from pathlib import Path
from textwrap import dedent

SAMPLES = Path(__file__).parents[2] / "tools"


def write_tools(data_dir: Path, source: str, **modules: str) -> Path:
    """Write a tools directory with this `__init__.py` and these modules."""
    directory = data_dir / "tools"
    directory.mkdir(exist_ok=True)
    for name, text in {"__init__": source, **modules}.items():
        (directory / f"{name}.py").write_text(dedent(text))
    return directory
