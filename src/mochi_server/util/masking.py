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
        """Replace secrets in a string or in the values of a dictionary by ``MASK``. Return other values unchanged."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self._pattern.sub(MASK, value)
        if isinstance(value, dict):
            return {name: self.mask(item) for name, item in value.items()}
        return value
