"""What the pages have in common."""

from collections.abc import Iterable, Sequence

MADE = "<!-- Made from the code by `uv run python -m tests.docs_tooling.reference`; changes by hand are lost. -->"


def page(title: str, introduction: str, parts: Iterable[str]) -> str:
    """A page, its parts set off by blank lines."""
    return "\n\n".join([MADE, f"# {title}", introduction.strip(), *parts]) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    return "\n".join(_row(row) for row in [head, ["---"] * len(head), *rows])


def prose(text: str | None) -> str:
    """A docstring as Markdown: one paragraph a line, one kind of quotes for code."""
    paragraphs = (text or "").strip().replace("``", "`").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
