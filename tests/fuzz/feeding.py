"""Replacement of random values by existing names, because random text is never the name of
a model.
"""

import zlib
from typing import Any

from tests.fuzz.world import AGENTS, MESSAGES, MODELS, PROMPT, TOOLS
from tests.support.images import GIF, PNG, base64_image

_VALUES: dict[str, list[Any]] = {
    "model": MODELS,
    "summary_model": MODELS,
    "system_prompt_source_file": [PROMPT],
    "source_file": [PROMPT],
    "tool_group": ["maths"],
    "tools": [TOOLS, TOOLS[:1]],
    "enabled_agents": [AGENTS, AGENTS[:1]],
    "message": MESSAGES,
    "images": [[base64_image(PNG)], [base64_image(PNG), base64_image(GIF)], []],
    "modelIds": [MODELS, MODELS[:1], [1, "2"]],
}
"""Names by field."""


def with_existing_names(body: Any) -> Any:
    """Return a valid body with existing names. The result depends only on the body."""
    if not isinstance(body, dict):
        return body
    chance = zlib.crc32(repr(sorted(body.items())).encode("utf-8", "replace"))
    return {
        field: _value(field, value, chance + number)
        for number, (field, value) in enumerate(body.items())
    }


def _value(field: str, value: Any, chance: int) -> Any:
    values = _VALUES.get(field)
    if values is None or value is None:
        return with_existing_names(value) if field.endswith("_settings") else value
    return values[chance // 4 % len(values)] if chance % 4 else value
