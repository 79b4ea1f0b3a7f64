"""Encoding of a run for OpenAI's Responses API: as events of a stream, or as a complete
response.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

import orjson

from mochi_server.chat.run import Run
from mochi_server.errors import ContextOverflow, MochiError, SessionTaken
from mochi_server.protocols.answer_fields import extra_fields, is_cut, usage
from mochi_server.protocols.encoder import BlockEncoder, named_frame
from mochi_server.protocols.openai_errors import http_status
from mochi_server.protocols.parts import End, Json, Notice, Part, Reasoning, Text
from mochi_server.protocols.responses.tools import CUSTOM_INPUT, OfferedFunction
from mochi_server.services.recent_responses import RecentResponses
from mochi_server.tools.toolbox import ToolInvocation


class ResponseEncoder(BlockEncoder):
    """Encoder of a run as events of the Responses API.

    ``fields`` are the fields of the response that are known before the run: its ID and the repeated
    fields of the request. ``response`` is the response so far. ``known`` stores it at its end, or
    forgets it if the turn goes on or another server has taken its session. On a disconnect,
    ``known`` stores the items so far, unless the response is in the background. ``notices`` are
    added to the notices of the run. ``functions`` are the functions of the client, by the names
    that the model sees.
    """

    def __init__(
        self,
        run: Run,
        fields: Json,
        known: RecentResponses | None = None,
        notices: Sequence[Notice] = (),
        functions: Mapping[str, OfferedFunction] = MappingProxyType({}),
    ) -> None:
        super().__init__(run)
        self.response: Json = {
            "object": "response",
            "created_at": run.created,
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
        self._output: list[Json] = self.response["output"]
        self._known = known
        self._notices = notices
        self._functions = functions
        self._item = _TextItem(Text(""), "", 0)
        self._item_status = "completed"  # status of the open item when it ends
        self._sequence_number = -1

    def opening(self) -> bytes:
        created = self._event("response.created", response=self.response)
        return created + self._event("response.in_progress", response=self.response)

    def start_block(self, first: Text | Reasoning) -> bytes:
        self._item = _TextItem(first, self.response["id"], len(self._output))
        item_added = self._item_event("added", self._item.item)
        part_added = self._part_event("added", "")
        return item_added + part_added

    def delta(self, part: Text | Reasoning) -> bytes:
        text = part.joined
        item = self._item
        item.texts.append(text)
        self._sequence_number += 1
        return b"%s%d%s%s%s" % (
            item.delta_head,
            self._sequence_number,
            item.target_json,
            orjson.dumps(text),
            item.tail,
        )

    def end_block(self, _: Text | Reasoning) -> bytes:
        item = self._item
        text = "".join(item.texts)
        complete = item.complete(text, self._item_status)
        name = f"response.{item.text_name}.done"
        text_done = self._event(name, **item.target, text=text, **item.logprobs)
        part_done = self._part_event("done", text)
        item_done = self._item_event("done", complete)
        self._output.append(complete)
        return text_done + part_done + item_done

    def end(self, part: End) -> bytes:
        """Return the events at the end of the run.

        A stopped response is ``cancelled`` only if it was created with ``background``, as OpenAI
        defines this status. Any other one is ``completed`` with the text until then, or
        ``incomplete``.
        """
        ending = _ending(part)
        if self.response["background"] and part.result.cancelled and part.failure is None:
            ending["status"] = "cancelled"
        status = ending["status"]
        self._item_status = "completed" if status == "completed" else "incomplete"
        frames = [self.close_block()]
        if status != "failed":
            frames += [self._call(call) for call in part.result.client_tool_calls]
            ending["mochi"] = extra_fields(part, self._notices)
        self.response |= ending
        has_ended = self.run.latest.has_ended and not isinstance(part.failure, SessionTaken)
        if self._known is not None and has_ended:
            self._known.add(self.response)
        elif self._known is not None:
            self._known.forget(self.response["id"])
        event = status
        if status == "cancelled":  # OpenAI's API has no event for it
            event = "incomplete"
        frames.append(self._event(f"response.{event}", response=self.response))
        return b"".join(frames)

    def abort(self) -> None:
        if self._known is None or self.response["background"]:  # its items are stored at its end
            return
        self._item_status = "incomplete"
        self.close_block()  # adds the open item to the output
        self._known.add_items(self.response)

    def complete(self, parts: Sequence[Part]) -> Json:
        self.encode_parts(parts)  # changes `self.response`
        return self.response

    def _event(self, event_type: str, **fields: Any) -> bytes:
        self._sequence_number += 1
        numbered = {"type": event_type, "sequence_number": self._sequence_number}
        return named_frame(event_type, numbered | fields)

    def _call(self, call: ToolInvocation) -> bytes:
        """Add the item of a call to the output, and return its events."""
        index = len(self._output)
        offered = self._functions.get(call.name)
        kind = _FUNCTION_CALL
        text = call.arguments_text
        if offered is not None and offered.is_custom:
            kind = _CUSTOM_CALL
            text = _custom_input(call.arguments, text)
        item = {
            "id": stable_id(kind.prefix, self.response["id"], index),
            "type": kind.type,
            "status": "completed",
            "call_id": call.id,
            "name": call.name,
            kind.field: text,
        }
        if offered is not None and offered.namespace:
            item |= {"name": offered.function.name, "namespace": offered.namespace}
        target = {"item_id": item["id"], "output_index": index}
        name = f"response.{kind.type}_{kind.field}"
        done = {"name": item["name"], kind.field: text}
        frames = [
            self._item_event("added", item | {"status": "in_progress", kind.field: ""}),
            self._event(f"{name}.delta", **target, delta=text),
            self._event(f"{name}.done", **target, **done),
            self._item_event("done", item),
        ]
        self._output.append(item)
        return b"".join(frames)

    def _item_event(self, name: str, item: Json) -> bytes:
        event_type = f"response.output_item.{name}"
        return self._event(event_type, output_index=len(self._output), item=item)

    def _part_event(self, name: str, text: str) -> bytes:
        item = self._item
        return self._event(f"response.{item.part_name}.{name}", **item.target, part=item.part(text))


@dataclass(frozen=True, slots=True)
class _CallKind:
    """Type of the item of a call, the prefix of its ID, and its field with the text."""

    type: str
    prefix: str
    field: str


_FUNCTION_CALL = _CallKind("function_call", "fc", "arguments")
_CUSTOM_CALL = _CallKind("custom_tool_call", "ctc", "input")


def _custom_input(arguments: Json, written: str) -> str:
    """Return the free text of a call, or the arguments as written if they do not have it."""
    text = arguments.get(CUSTOM_INPUT)
    return text if isinstance(text, str) else written


def stable_id(prefix: str, response_id: str, index: int) -> str:
    """Return the ID of an item, which is the same whenever a client gets the response."""
    name = f"{response_id} {index}".encode()
    digest = blake2b(name, digest_size=12)
    return f"{prefix}_{digest.hexdigest()}"


class _TextItem:
    """Output item whose text is being streamed: a message or reasoning.

    ``index`` is its index in the output.
    """

    def __init__(self, first: Text | Reasoning, response_id: str, index: int) -> None:
        self.texts: list[str] = []
        self.is_message = isinstance(first, Text)
        self.item: Json = {}
        self.target: Json = {}
        if self.is_message:
            item_id = stable_id("msg", response_id, index)
            self.part_name = "content_part"
            self.text_name = "output_text"
            self.logprobs: Json = {"logprobs": []}
            self.target = {"item_id": item_id, "output_index": index, "content_index": 0}
            self.item = {
                "id": item_id,
                "type": "message",
                "status": "in_progress",
                "role": "assistant",
                "content": [],
            }
            self.tail = b',"logprobs":[]}\n\n'
        else:
            item_id = stable_id("rs", response_id, index)
            self.part_name = "reasoning_summary_part"
            self.text_name = "reasoning_summary_text"
            self.logprobs = {}
            self.target = {"item_id": item_id, "output_index": index, "summary_index": 0}
            self.item = {"id": item_id, "type": "reasoning", "summary": []}
            self.tail = b"}\n\n"
        name = f"response.{self.text_name}.delta".encode()
        # The constant bytes of a delta. Between them are the sequence number and the text.
        self.delta_head = b'event: %s\ndata: {"type":"%s","sequence_number":' % (name, name)
        self.target_json = b',%s,"delta":' % orjson.dumps(self.target)[1:-1]

    def part(self, text: str) -> Json:
        if not self.is_message:
            return {"type": "summary_text", "text": text}
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def complete(self, text: str, status: str) -> Json:
        if not self.is_message:
            return self.item | {"summary": [self.part(text)]}
        return self.item | {"status": status, "content": [self.part(text)]}


def _ending(part: End) -> Json:
    """Return the response fields that are known only after the run has ended, for example the token
    counts.
    """
    if part.failure is not None:
        return {"status": "failed", "error": _error(part.failure)}
    counts = usage(part.result)
    is_incomplete = is_cut(part.result)
    # The schema of OpenAI requires a number.
    cached = counts["prompt_tokens_details"]["cached_tokens"] or 0
    return {
        "status": "incomplete" if is_incomplete else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if is_incomplete else None,
        "usage": {
            "input_tokens": counts["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
            "output_tokens": counts["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": counts["total_tokens"],
        },
    }


def _error(error: MochiError) -> dict[str, str]:
    """Convert an error to the ``error`` object of a response.

    OpenAI's API defines only a few codes for it.
    """
    code = "server_error"
    if isinstance(error, ContextOverflow):
        code = "invalid_prompt"
    elif http_status(error) == HTTPStatus.TOO_MANY_REQUESTS:
        code = "rate_limit_exceeded"
    return {"code": code, "message": error.message}
