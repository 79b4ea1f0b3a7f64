"""Masking of secrets in the log and in URLs."""

import re
from collections.abc import Iterable
from typing import Any

MASK = "***"


class SecretMasker:
    def __init__(self, values: Iterable[str]) -> None:
        # Longest first, because a secret may be part of a longer secret.
        secrets = sorted({value for value in values if value}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, secrets))) if secrets else None

    def mask(self, value: Any) -> Any:
        """Return ``value`` as a JSON value in which ``MASK`` replaces the secrets. Other objects become strings."""
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, dict):
            return {name: self.mask(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.mask(item) for item in value]
        return str(value) if self._pattern is None else self._pattern.sub(MASK, str(value))
