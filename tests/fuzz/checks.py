"""What must hold of every response, besides what schemathesis checks of any API."""

from typing import Any

import orjson
from schemathesis import Case
from schemathesis.checks import CheckContext
from schemathesis.core.failures import Failure
from schemathesis.core.transport import Response
from schemathesis.generation import GenerationMode

_LAST = {"done", "complete"}
_UNTOLD = ("cannot be stored", "not finite", "plain file name")
"""What a schema cannot say: which numbers 64 bits hold, and which names no file system takes."""


def the_server_has_no_defect(_: CheckContext, response: Response, case: Case) -> bool | None:
    """A 502 is Ollama's failure and documented; a 500 is ours."""
    if response.status_code == 500:
        raise _failure(case, "Internal error", response.text)
    return None


def valid_data_is_taken(_: CheckContext, response: Response, case: Case) -> bool | None:
    """What the schema admits is no invalid request, whatever else may be wrong with it."""
    if case.meta is None or case.meta.generation.mode != GenerationMode.POSITIVE or response.status_code != 422:
        return None
    error = response.json()["error"]
    if error["code"] == "VALIDATION_ERROR" and not any(reason in error["message"] for reason in _UNTOLD):
        raise _failure(case, "The schema admits what the route refuses", error["message"])
    return None


def refused_methods_are_told_the_others(_: CheckContext, response: Response, case: Case) -> bool | None:
    """``Allow`` names what the document does; other paths of the document may match as well, and add to it."""
    if response.status_code != 405:
        return None
    documented = {method.upper() for method in case.operation.schema[case.operation.path]}
    missing = documented - set(response.headers.get("allow", [""])[0].split(", "))
    if missing:
        raise _failure(case, "Allow does not name every method", ", ".join(sorted(missing)))
    return None


def streams_are_whole(_: CheckContext, response: Response, case: Case) -> bool | None:
    """Every event of a stream has a name and a JSON object, those of a turn an id, and the last one says so."""
    if not response.headers.get("content-type", [""])[0].startswith("text/event-stream"):
        return None
    *frames, rest = response.content.split(b"\n\n")
    events = [_fields(frame) for frame in frames if not frame.startswith(b":")]
    problems = [problem for number, event in enumerate(events, 1) if (problem := _problem(event, number, events[0]))]
    if rest or not events or events[-1].get(b"event", b"").decode() not in _LAST:
        problems.append(f"does not end with an event of {_LAST}")
    if problems:
        raise _failure(case, "The event stream is not well-formed", "; ".join(problems))
    return None


def _fields(frame: bytes) -> dict[bytes, bytes]:
    return dict(line.split(b": ", 1) for line in frame.split(b"\n"))


def _problem(event: dict[bytes, bytes], number: int, first: dict[bytes, bytes]) -> str | None:
    if not isinstance(_json(event.get(b"data", b"")), dict):
        return f"event {number} holds no JSON object"
    if (b"id" in first) != (b"id" in event):
        return f"event {number} lacks an id"
    if b"id" in event and event[b"id"] != b"%s:%d" % (first[b"id"].partition(b":")[0], number):
        return f"event {number} has the id {event[b'id']!r}"
    return None if event.get(b"event") else f"event {number} has no name"


def _json(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return None


def _failure(case: Case, title: str, message: str) -> Failure:
    return Failure(operation=case.operation.label, title=title, message=message)
