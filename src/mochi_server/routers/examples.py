"""An example of each error for the documentation: the error itself, made of sample values."""

import inspect
import json
from typing import Any

from mochi_server.errors import MochiError

_SAMPLES: dict[str, Any] = {
    "session_id": "a1b2c3d4e5",
    "run_id": "1f0c5e7a9b",
    "confirmation_id": "6f1e2d3c4b5a",
    "index": 3,
    "sha256": "7509e5bda0c762d2bac7f90d758b5b2263fa01ccbc542ab5e3df163be08e6ca9",
    "model": "qwen3:14b",
    "host": "localhost:11434",
    "key": "7d1f-1",
    "window": 8192,
    "estimate": 9100,
    "name": "coder",
    "filename": "helpful.md",
    "origin": "https://example.org",
    "reason": "it says why",
    "doing": "write the session",
    "error": OSError(28, "No space left on device"),
    "limit": 33_554_432,
    "seconds": 60,
    "path": "/api/v2",
    "method": "PATCH",
    "keys_exist": True,
    "is_unreachable": False,
    "message": "What was wrong, in words.",
}
"""A value for each parameter that an error is made of."""


def example(error: type[MochiError]) -> dict[str, Any]:
    """The body of such an error. Raises ``KeyError`` for a parameter that has no sample here."""
    body: dict[str, Any] = json.loads(sample(error).body())
    return body


def sample(error: type[MochiError]) -> MochiError:
    """Such an error."""
    positional, named = [], {}
    for parameter in inspect.signature(error).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        if parameter.kind is parameter.KEYWORD_ONLY:
            named[parameter.name] = _SAMPLES[parameter.name]
        else:
            positional.append(_SAMPLES[parameter.name])
    return error(*positional, **named)
