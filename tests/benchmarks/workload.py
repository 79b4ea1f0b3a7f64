"""Command-line options of measurements, from the fields of a dataclass."""

from argparse import ArgumentParser, Namespace
from dataclasses import asdict, field, fields
from typing import Any


def adjustable(default: float, text: str) -> Any:
    """Define a field that becomes a command-line option. The page shows the text with the value."""
    return field(default=default, metadata={"text": text})


def add_arguments(parser: ArgumentParser, measure: str, workload: type[Any]) -> None:
    """Add an option `--<measure>-<field>` for each field."""
    for one in fields(workload):
        text = f"{one.metadata['text']} (default: {one.default})"
        parser.add_argument(
            _option(measure, one.name), type=type(one.default), default=one.default, help=text
        )


def read(arguments: Namespace, measure: str, workload: type[Any]) -> Any:
    names = {
        one.name: _option(measure, one.name).lstrip("-").replace("-", "_")
        for one in fields(workload)
    }
    return workload(**{name: getattr(arguments, option) for name, option in names.items()})


def values_by_text(work: Any) -> dict[str, float]:
    values = asdict(work)
    return {one.metadata["text"]: values[one.name] for one in fields(work)}


def _option(measure: str, name: str) -> str:
    return f"--{measure}-{name.replace('_', '-')}"
