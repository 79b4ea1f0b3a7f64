"""The output items of a response as they grow, and the events that tell of it.

An item is reasoning, a message or a function call. Its beginning, its pieces and its end are events of their own.
"""

from __future__ import annotations

from typing import Any

from mochi_stub.chunks import Piece
from mochi_stub.jsontext import dumps, event
from mochi_stub.plan import ALPHANUMERIC, Plan
from mochi_stub.prompt import ToolCall
from mochi_stub.reply import Reasoning
from mochi_stub.wire.asking import argument_pieces

_IDS = 1000
"""Ids of items and of calls come from different numbers."""


class Output:
    """The items of one response. What `items` holds is finished; `place` is where the open one stands."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.items: list[dict[str, Any]] = []
        self.sequence = 0
        self.open: type | None = None
        self.place: dict[str, Any] = {}
        self.text: list[str] = []

    def event(self, name: str, **fields: Any) -> str:
        """One event with the next number."""
        number = self.sequence
        self.sequence += 1
        return event({"type": name, "sequence_number": number, **fields}, name)

    def add(self, piece: Piece) -> str:
        """The events that a piece of the reply brings."""
        if piece.kind is ToolCall:
            return self.close() + self._call(piece.value)
        opening = ""
        if self.open is not piece.kind:
            opening = self.close()
            self.open = piece.kind
            self.place = {
                "item_id": self._id("rs" if self.open is Reasoning else "msg"),
                "output_index": len(self.items),
            }
            opening += self._begin()
        self.text.append(piece.value)
        return opening + self._delta(piece.value)

    def close(self, status: str = "completed") -> str:
        """The events that end the item which is open, if any."""
        if self.open is None:
            return ""
        text = "".join(self.text)
        ending = self._end(text)
        self.items.append(self._item(text, status))
        done = self.event("response.output_item.done", output_index=len(self.items) - 1, item=self.items[-1])
        self.open = None
        self.text.clear()
        return ending + done

    def _id(self, prefix: str) -> str:
        return f"{prefix}_{self.plan.id(_IDS + len(self.items), 48)}"

    def _item(self, text: str, status: str) -> dict[str, Any]:
        if self.open is Reasoning:
            summary = [{"type": "summary_text", "text": text}] if text else []
            return {"id": self._id("rs"), "type": "reasoning", "summary": summary}
        content = [] if status == "in_progress" else [_output_text(text)]
        return {"id": self._id("msg"), "type": "message", "status": status, "role": "assistant", "content": content}

    def _begin(self) -> str:
        added = self.event(
            "response.output_item.added", output_index=len(self.items), item=self._item("", "in_progress")
        )
        if self.open is Reasoning:
            part = {"type": "summary_text", "text": ""}
            name = "response.reasoning_summary_part.added"
            return added + self.event(name, **self.place, summary_index=0, part=part)
        return added + self.event("response.content_part.added", **self.place, content_index=0, part=_output_text(""))

    def _delta(self, text: str) -> str:
        if self.open is Reasoning:
            return self.event("response.reasoning_summary_text.delta", **self.place, summary_index=0, delta=text)
        return self.event("response.output_text.delta", **self.place, content_index=0, delta=text, logprobs=[])

    def _end(self, text: str) -> str:
        place = self.place
        if self.open is Reasoning:
            part = {"type": "summary_text", "text": text}
            done = self.event("response.reasoning_summary_text.done", **place, summary_index=0, text=text)
            return done + self.event("response.reasoning_summary_part.done", **place, summary_index=0, part=part)
        done = self.event("response.output_text.done", **place, content_index=0, text=text, logprobs=[])
        return done + self.event("response.content_part.done", **place, content_index=0, part=_output_text(text))

    def _call(self, call: ToolCall) -> str:
        index = len(self.items)
        item = {
            "id": self._id("fc"),
            "type": "function_call",
            "status": "completed",
            "call_id": call.id or f"call_{self.plan.id(index + 1, 24, ALPHANUMERIC)}",
            "name": call.name,
            "arguments": dumps(call.arguments),
        }
        place = {"item_id": item["id"], "output_index": index}
        begun = {**item, "status": "in_progress", "arguments": ""}
        name = "response.function_call_arguments"
        self.items.append(item)
        return "".join(
            [
                self.event("response.output_item.added", output_index=index, item=begun),
                *[self.event(f"{name}.delta", **place, delta=piece) for piece in argument_pieces(call)],
                self.event(f"{name}.done", **place, arguments=item["arguments"]),
                self.event("response.output_item.done", output_index=index, item=item),
            ]
        )


def _output_text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
