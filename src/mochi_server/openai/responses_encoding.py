"""Encoding of a run for OpenAI's Responses API: as events of a stream, or as a complete response."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from http import HTTPStatus
from itertools import chain
from secrets import token_hex
from typing import Any

import orjson

from mochi_server.chat.event_log import Batch
from mochi_server.chat.run import Run
from mochi_server.errors import ContextOverflow, MochiError
from mochi_server.openai.response_encoding import Kind, Piece, RunEncoder, finish_reason, tool_calls, usage
from mochi_server.protocols.errors import openai_status

Event = tuple[bytes, bytes]
Item = dict[str, Any]


class ResponseEncoder(RunEncoder):
    """Encoder of a run as events of the Responses API.

    ``fields`` are the fields of the response that are known before the run: its ID and the repeated fields of the
    request. ``on_items`` receives the output items of a response that has not failed.
    """

    def __init__(self, run: Run, fields: dict[str, Any], on_items: Callable[[list[Item]], None]) -> None:
        super().__init__(run)
        self._response: dict[str, Any] = {
            "object": "response",
            "created_at": int(time.time()),
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "output": [],
            "usage": None,
            "background": False,
            "service_tier": "default",
            "truncation": "disabled",
            **fields,
        }
        self._on_items = on_items
        self._output: list[Item] = self._response["output"]
        self._open: _OpenItem | None = None
        self._sequence_number = -1

    def opening(self) -> Iterator[Event]:
        yield self._event("response.created", response=self._response)
        yield self._event("response.in_progress", response=self._response)

    def encode(self, batch: Batch) -> Iterator[Event]:
        return self._encode(self._reader.pieces(batch))

    def closing(self) -> Iterator[Event]:
        ending = _ending(self.run)
        status = ending["status"]
        yield from self._close_item("completed" if status == "completed" else "incomplete")
        if status != "failed":
            for call in tool_calls(self.run.result):
                yield from self._call(call)
            ending["mochi"] = self._extra_fields()
            self._on_items(self._output)
        self._response |= ending
        yield self._event(f"response.{status}", response=self._response)

    def complete(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        for _ in chain(self._encode(pieces), self.closing()):
            pass  # the events change `self._response`
        return self._response

    def _encode(self, pieces: Iterable[Piece]) -> Iterator[Event]:
        for kind, text in pieces:
            if self._open is None or self._open.kind != kind:
                yield from self._close_item()
                self._open = _OpenItem(kind, len(self._output))
                yield self._item_event("added", self._open.item)
                yield self._part_event("added", self._open, "")
            self._open.texts.append(text)
            yield self._text_event("delta", self._open, delta=text)

    def _event(self, event_type: str, **fields: Any) -> Event:
        self._sequence_number += 1
        event = {"type": event_type, "sequence_number": self._sequence_number, **fields}
        return event_type.encode(), orjson.dumps(event, default=str)

    def _close_item(self, status: str = "completed") -> Iterator[Event]:
        """Yield the events that end the open item, if there is one."""
        if self._open is None:
            return
        text = "".join(self._open.texts)
        yield self._text_event("done", self._open, text=text)
        yield self._part_event("done", self._open, text)
        item = self._open.complete(text, status)
        yield self._item_event("done", item)
        self._output.append(item)
        self._open = None

    def _call(self, call: dict[str, Any]) -> Iterator[Event]:
        function = call["function"]
        item = {
            "id": f"fc_{token_hex(12)}",
            "type": "function_call",
            "status": "completed",
            "call_id": call["id"],
            "name": function["name"],
            "arguments": function["arguments"],
        }
        target = {"item_id": item["id"], "output_index": len(self._output)}
        yield self._item_event("added", item | {"status": "in_progress", "arguments": ""})
        yield self._event("response.function_call_arguments.delta", **target, delta=item["arguments"])
        yield self._event("response.function_call_arguments.done", **target, **function)
        yield self._item_event("done", item)
        self._output.append(item)

    def _item_event(self, name: str, item: Item) -> Event:
        return self._event(f"response.output_item.{name}", output_index=len(self._output), item=item)

    def _part_event(self, name: str, item: "_OpenItem", text: str) -> Event:
        return self._event(f"response.{item.part_name}.{name}", **item.target, part=item.part(text))

    def _text_event(self, name: str, item: "_OpenItem", **fields: str) -> Event:
        more: dict[str, Any] = {"logprobs": []} if item.kind == "content" else {}
        return self._event(f"response.{item.text_name}.{name}", **item.target, **fields, **more)


class _OpenItem:
    """Output item whose text is being streamed: a message or reasoning."""

    def __init__(self, kind: Kind, index: int) -> None:
        self.kind = kind
        self.texts: list[str] = []
        is_message = kind == "content"
        self.part_name = "content_part" if is_message else "reasoning_summary_part"
        self.text_name = "output_text" if is_message else "reasoning_summary_text"
        item_id = f"{'msg' if is_message else 'rs'}_{token_hex(12)}"
        self.target = {"item_id": item_id, "output_index": index, "content_index" if is_message else "summary_index": 0}
        self.item: Item = {"id": item_id, "type": "reasoning", "summary": []}
        if is_message:
            message = {"type": "message", "status": "in_progress", "role": "assistant", "content": []}
            self.item = {"id": item_id, **message}

    def part(self, text: str) -> dict[str, Any]:
        if self.kind == "reasoning":
            return {"type": "summary_text", "text": text}
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def complete(self, text: str, status: str) -> Item:
        if self.kind == "reasoning":
            return self.item | {"summary": [self.part(text)]}
        return self.item | {"status": status, "content": [self.part(text)]}


def _ending(run: Run) -> dict[str, Any]:
    """Return the response fields that are known only after the run has ended, for example the token counts."""
    if run.failure is not None:
        return {"status": "failed", "error": _error(run.failure)}
    counts, is_cut = usage(run.result), finish_reason(run.result) == "length"
    return {
        "status": "incomplete" if is_cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
        "usage": {
            "input_tokens": counts["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": counts["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": counts["total_tokens"],
        },
    }


def _error(error: MochiError) -> dict[str, str]:
    """Convert an error to the ``error`` object of a response. OpenAI's API defines only a few codes for it."""
    code = "rate_limit_exceeded" if openai_status(error) == HTTPStatus.TOO_MANY_REQUESTS else "server_error"
    return {"code": "invalid_prompt" if isinstance(error, ContextOverflow) else code, "message": error.message}
