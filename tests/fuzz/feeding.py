"""Names that exist, put into what was made up at random: in most bodies, for no random text is ever a model's name."""

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
"""By field."""


def fed(body: Any) -> Any:
    """A valid body with names that exist; the same body is always given the same."""
    if not isinstance(body, dict):
        return body
    chance = zlib.crc32(repr(sorted(body.items())).encode("utf-8", "replace"))
    return {field: _value(field, value, chance + number) for number, (field, value) in enumerate(body.items())}


def _value(field: str, value: Any, chance: int) -> Any:
    values = _VALUES.get(field)
    if values is None or value is None:
        return fed(value) if field.endswith("_settings") else value
    return values[chance // 4 % len(values)] if chance % 4 else value
