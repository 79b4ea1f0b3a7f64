"""What can be adjusted of a measure: the fields of a dataclass, each with a text, become options of the command."""

from argparse import ArgumentParser, Namespace
from dataclasses import asdict, field, fields
from typing import Any


def adjustable(default: float, text: str) -> Any:
    """A field with a default that can be set on the command line; the page shows the text with the value."""
    return field(default=default, metadata={"text": text})


def add_arguments(parser: ArgumentParser, measure: str, workload: type[Any]) -> None:
    """An option ``--<measure>-<field>`` for each field."""
    for one in fields(workload):
        text = f"{one.metadata['text']} (default: {one.default})"
        parser.add_argument(_option(measure, one.name), type=type(one.default), default=one.default, help=text)


def read(arguments: Namespace, measure: str, workload: type[Any]) -> Any:
    """The workload that the options say."""
    names = {one.name: _option(measure, one.name).lstrip("-").replace("-", "_") for one in fields(workload)}
    return workload(**{name: getattr(arguments, option) for name, option in names.items()})


def described(work: Any) -> dict[str, float]:
    """Each adjusted value by its text."""
    values = asdict(work)
    return {one.metadata["text"]: values[one.name] for one in fields(work)}


def _option(measure: str, name: str) -> str:
    return f"--{measure}-{name.replace('_', '-')}"
