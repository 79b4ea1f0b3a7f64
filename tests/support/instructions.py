"""User messages that tell the stub what to answer."""

from typing import Any

import orjson


def instruct(*messages: dict[str, Any], reasoning: int | None = None, label: str = "ID") -> str:
    """A message with an instruction block; ``reasoning`` is in words."""
    plan: dict[str, Any] = {"id_message": label, "messages": list(messages)}
    if reasoning is not None:
        plan["reasoning"] = {"length": reasoning}
    return f"Please follow.<|instruction_start|>{orjson.dumps(plan).decode()}<|instruction_end|>"


def words(length: int) -> dict[str, Any]:
    """A text of that many words, besides the label at both ends."""
    return {"text_message": {"length": length}}


def calls(*names: str, **arguments: Any) -> dict[str, Any]:
    """Calls of tools, all with the same arguments."""
    return {"tool_call": [{"name": name, "args": arguments} for name in names]}
