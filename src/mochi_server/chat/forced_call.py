"""Tool loop for requests that require a tool call."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from mochi_server.chat.response_builder import ResponseBuilder
from mochi_server.chat.tool_loop import ToolLoop
from mochi_server.errors import ToolNotCalled
from mochi_server.events import ChatEvent, ContentDelta, TokenLogprobs
from mochi_server.sessions.session import user_message
from mochi_server.sessions.types import Message

_INSTRUCTION = (
    "Call one of these functions now. Answer only with a JSON object that has the fields `name`, the name of the "
    "function, and `arguments`, its arguments."
)
_TEXT = (ContentDelta, TokenLogprobs)


@dataclass
class ForcedCallLoop(ToolLoop):
    """Tool loop whose first answer must call a tool.

    If the model answers with text instead, the text is dropped. The model is then called once more, with a format that
    permits only a tool call.
    """

    _is_first: bool = True
    _held_events: list[ChatEvent] | None = None
    """Text events that are not published yet, or None. They are published only if the first answer calls a tool."""

    async def _request(
        self, reminders: Sequence[Message], schemas: list[dict[str, Any]], format: dict[str, Any] | None = None
    ) -> ResponseBuilder:
        if not self._is_first:
            return await super()._request(reminders, schemas, format)
        self._is_first, self._held_events = False, []
        answer = await super()._request(reminders, schemas, format)
        if _calls_tool(answer, schemas):
            held, self._held_events = self._held_events, None
            if held:
                self.publish(held)
            return answer
        instruction = f"{_INSTRUCTION}\n\n{orjson.dumps([schema['function'] for schema in schemas]).decode()}"
        answer = await super()._request([*reminders, user_message(instruction)], [], call_format(schemas))
        self._held_events = None
        if not _calls_tool(answer, schemas):  # some models call the tool in spite of the format
            call = _parse_call(answer.content)
            if call is None or call["name"] not in _names(schemas):
                self.writer.answer = None  # the text is not stored
                raise ToolNotCalled(self.model.name, is_cut=answer.done_reason == "length")
            answer.replace_text_by_call(call)
        return answer

    def _receive(self, events: list[ChatEvent]) -> None:
        if self._held_events is not None:
            self._held_events += [event for event in events if isinstance(event, _TEXT)]
            events = [event for event in events if not isinstance(event, _TEXT)]
        if events:
            super()._receive(events)


def call_format(schemas: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a JSON schema that permits a call of exactly one tool. It has their definitions at its top level."""
    definitions: dict[str, Any] = {}
    calls = []
    for index, schema in enumerate(schemas):
        function, prefix = schema["function"], f"{index}."
        parameters = _renamed(function["parameters"], prefix)
        for key in ("$defs", "definitions"):
            if isinstance(found := parameters.pop(key, None), dict):
                definitions |= {prefix + name: value for name, value in found.items()}
        properties = {"name": {"type": "string", "enum": [function["name"]]}, "arguments": parameters}
        calls.append({"type": "object", "properties": properties, "required": ["name", "arguments"]})
    root: dict[str, Any] = calls[0] if len(calls) == 1 else {"anyOf": calls}
    return {**root, "$defs": definitions} if definitions else root


def _renamed(schema: Any, prefix: str) -> Any:
    """Return a copy of a tool's schema. Add ``prefix`` to the name of the definition in each reference."""
    if isinstance(schema, list):
        return [_renamed(item, prefix) for item in schema]
    if not isinstance(schema, dict):
        return schema
    copy = {key: _renamed(value, prefix) for key, value in schema.items()}
    if isinstance(reference := copy.get("$ref"), str) and reference.startswith(("#/$defs/", "#/definitions/")):
        copy["$ref"] = f"#/$defs/{prefix}{reference.split('/', 2)[2]}"
    return copy


def _calls_tool(answer: ResponseBuilder, schemas: Sequence[dict[str, Any]]) -> bool:
    return any(call["function"]["name"] in _names(schemas) for call in answer.tool_calls)


def _names(schemas: Sequence[dict[str, Any]]) -> set[str]:
    return {schema["function"]["name"] for schema in schemas}


def _parse_call(text: str) -> dict[str, Any] | None:
    try:
        call = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return call if isinstance(call, dict) and isinstance(call.get("name"), str) else None
