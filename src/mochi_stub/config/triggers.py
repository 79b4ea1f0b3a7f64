"""Triggers: texts that select a response if the latest user message matches them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from mochi_stub.config import entry_readers
from mochi_stub.config.response_types import Response
from mochi_stub.config.yaml_source import Item

Match = Literal["exact", "substring", "regex"]


@dataclass(frozen=True)
class Trigger:
    """A trigger and its response.

    Attributes:
        match: How the trigger is compared with the latest user message. `exact`: the message is the trigger.
            `substring`: the message contains the trigger. `regex`: the trigger is a Python regular expression, and a
            part of the message matches it. Default: `exact`.
    """

    text: str
    response: Response
    match: Match = "exact"
    pattern: re.Pattern[str] | None = None

    def applies_to(self, message: str) -> bool:
        if self.pattern is not None:
            return self.pattern.search(message) is not None
        return self.text in message if self.match == "substring" else self.text == message


def read_trigger(text: str, item: Item, folder: Path) -> Trigger:
    """Read the value of a trigger: a response, which can have the additional key `match`. Raises ConfigError."""
    matching = item.value.get("match") if isinstance(item.value, dict) else None
    if matching is None:
        return Trigger(text, entry_readers.response(item, folder))
    matching.choice(*get_args(Match))
    fields = {key: value for key, value in item.value.items() if key != "match"}
    trigger = Trigger(text, entry_readers.response(replace(item, value=fields), folder), matching.value)
    return replace(trigger, pattern=_compiled(text, item)) if trigger.match == "regex" else trigger


def _compiled(text: str, item: Item) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise item.key_error(f"a regular expression, found {text!r} ({error})") from None
