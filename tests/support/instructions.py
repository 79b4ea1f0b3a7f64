"""User messages with instructions for the stub."""

from typing import Any

import orjson


def instruct(*messages: dict[str, Any], reasoning: int | None = None, label: str = "ID") -> str:
    """Return a message with an instruction block. `reasoning` is a number of words."""
    plan: dict[str, Any] = {"id_message": label, "messages": list(messages)}
    if reasoning is not None:
        plan["reasoning"] = {"length": reasoning}
    return f"Please follow.<|instruction_start|>{orjson.dumps(plan).decode()}<|instruction_end|>"


def words(length: int) -> dict[str, Any]:
    """Return an instruction to answer with `length` words between two labels."""
    return {"text_message": {"length": length}}


def calls(*names: str, **arguments: Any) -> dict[str, Any]:
    """Return an instruction to call these tools with the same arguments."""
    return {"tool_call": [{"name": name, "args": arguments} for name in names]}
