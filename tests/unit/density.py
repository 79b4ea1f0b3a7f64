"""Density of the source files: how many syntax nodes a line of code has.

Dense lines are hard to read, and no other check notices them. `density.json` contains the figures
of each file. To accept new figures, run `uv run python -m tests.unit.density`.
"""

import ast
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SRC = Path(__file__).parents[2] / "src"
TABLE = Path(__file__).with_suffix(".json")
COMMAND = "uv run python -m tests.unit.density"
TOLERANCE = 0.1
"""Nodes a line that a file may gain before the check fails, so that small changes pass."""

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_NOT_COUNTED = (ast.Load, ast.Store, ast.Del, ast.Module)


@dataclass(frozen=True)
class Density:
    """Figures of one file."""

    nodes_a_line: float
    nested_comprehensions: int
    assignment_expressions: int


def measure(text: str) -> Density:
    """Return the figures of a source text. Blank lines, comments and docstrings do not count."""
    tree = ast.parse(text)
    lines = _code_lines(text, tree)
    nodes = list(ast.walk(tree))
    return Density(
        nodes_a_line=round(_size(tree) / max(len(lines), 1), 2),
        nested_comprehensions=sum(_is_nested(node) for node in nodes),
        assignment_expressions=sum(isinstance(node, ast.NamedExpr) for node in nodes),
    )


def densest_function(text: str) -> str:
    """Return the name, line and density of the densest function of at least three lines."""
    tree = ast.parse(text)
    lines = _code_lines(text, tree)
    densest, shown = 0.0, "none"
    for node in ast.walk(tree):
        if not isinstance(node, _FUNCTIONS):
            continue
        own = lines & _lines_of(node)
        density = _size(node) / max(len(own), 1)
        if len(own) >= 3 and density > densest:
            densest = density
            shown = f"{node.name} (line {node.lineno}, {density:.1f} nodes a line)"
    return shown


def problems(text: str, stored: Density) -> Iterator[str]:
    """Yield a sentence for each figure of a source text that is worse than the stored one."""
    measured = measure(text)
    if measured.nodes_a_line > stored.nodes_a_line + TOLERANCE:
        yield f"{stored.nodes_a_line} → {measured.nodes_a_line} syntax nodes a line"
    for name in ("nested_comprehensions", "assignment_expressions"):
        before = getattr(stored, name)
        now = getattr(measured, name)
        if now > before:
            yield f"{before} → {now} {name.replace('_', ' ')}"


def sources() -> dict[str, str]:
    """Return the texts of all source files, by their path in `src`."""
    paths = sorted(SRC.rglob("*.py"))
    return {path.relative_to(SRC).as_posix(): path.read_text("utf-8") for path in paths}


def stored_table() -> dict[str, Density]:
    entries: dict[str, dict[str, Any]] = json.loads(TABLE.read_text("utf-8"))
    return {path: Density(**figures) for path, figures in entries.items()}


def write_table() -> None:
    lines = []
    for path, text in sources().items():
        figures = json.dumps(asdict(measure(text)))
        lines.append(f"  {json.dumps(path)}: {figures}")
    content = ",\n".join(lines)
    TABLE.write_text(f"{{\n{content}\n}}\n", "utf-8")


def _size(tree: ast.AST) -> int:
    return sum(not isinstance(node, _NOT_COUNTED) for node in ast.walk(tree))


def _is_nested(node: ast.AST) -> bool:
    if not isinstance(node, _COMPREHENSIONS):
        return False
    inner = [each for each in ast.walk(node) if isinstance(each, _COMPREHENSIONS)]
    return len(node.generators) > 1 or len(inner) > 1


def _code_lines(text: str, tree: ast.Module) -> set[int]:
    lines = set()
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.strip().startswith("#"):
            lines.add(number)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines -= _lines_of(node)
    return lines


def _lines_of(node: ast.stmt) -> set[int]:
    end = node.end_lineno or node.lineno
    return set(range(node.lineno, end + 1))


if __name__ == "__main__":
    write_table()
