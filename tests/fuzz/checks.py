"""Checks of every response, in addition to those of schemathesis."""

import re
from typing import Any

import orjson
from schemathesis import Case
from schemathesis.checks import CheckContext
from schemathesis.core import NOT_SET
from schemathesis.core.failures import Failure
from schemathesis.core.transport import Response
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection

_ID = re.compile(rb"([0-9a-f]+):([0-9]+)")
_LAST = {b"done", b"complete"}
_LAST_OF_MESSAGES = {b"message_stop", b"error"}
_LIMITS_OUTSIDE_SCHEMA = (
    *("cannot be stored", "not finite", "plain file name", "edited arguments are invalid"),
    *(
        "the last message must be",
        "has no text",
        "must be a string",
        "must be a data URL",
        "must be an image",
    ),
    *(
        "does not have this user message",
        "must have the fields",
        ".payload.",
        "forwardedProps",
        "using discriminator 'role'",  # a message of AG-UI without a role
        "no earlier message has",
    ),
    *("the ID or the number of an event", "the hosts are", "has no stream"),
    *("not an image", "cannot see images", "does not support images", "images require a `message`"),
    "must be at most 2562047h",
    *("must be in the future", "must be a time with a time zone"),
    *(
        "the name must have 1 to 255 characters",
        "attachments require a `message`",
        "cannot be imported",
    ),
    *("Markdown files have no versions", "the file is empty", "not an http:// or https:// URL"),
    *("are not supported. Supported are", "cannot read PDF files", "not a file", "the PDF"),
    "not valid base64",
)
"""Errors for limits that the schema does not express: integers of 64 bits, durations, and names
that file systems, tools or models reject.
"""


def the_server_has_no_defect(_: CheckContext, response: Response, case: Case[Any]) -> bool | None:
    """Fail on a 500. A 502 is a failure of Ollama and documented."""
    if response.status_code == 500:
        raise _failure(case, "Internal error", response.text)
    return None


def valid_data_is_accepted(_: CheckContext, response: Response, case: Case[Any]) -> bool | None:
    """Fail if data that the schema allows is rejected as an invalid request."""
    if (
        case.meta is None
        or case.meta.generation.mode != GenerationMode.POSITIVE
        or response.status_code != 422
    ):
        return None
    error = response.json()["error"]
    if error["code"] == "VALIDATION_ERROR" and not any(
        reason in error["message"] for reason in _LIMITS_OUTSIDE_SCHEMA
    ):
        raise _failure(case, "The schema admits what the route refuses", error["message"])
    return None


def invalid_data_is_refused(ctx: CheckContext, response: Response, case: Case[Any]) -> bool | None:
    """Fail if invalid data is not refused with a documented status.

    An absent or `null` body is valid where the body is optional.
    """
    return (
        None
        if case.body is None or case.body is NOT_SET
        else negative_data_rejection(ctx, response, case)
    )


def refused_methods_have_allow_header(
    _: CheckContext, response: Response, case: Case[Any]
) -> bool | None:
    """Fail unless `Allow` contains the documented methods.

    It may contain methods of other matching paths.
    """
    if response.status_code != 405:
        return None
    documented = {method.upper() for method in case.operation.schema[case.operation.path]}
    missing = documented - set(response.headers.get("allow", [""])[0].split(", "))
    if missing:
        raise _failure(case, "Allow does not name every method", ", ".join(sorted(missing)))
    return None


def streams_are_complete(_: CheckContext, response: Response, case: Case[Any]) -> bool | None:
    """Fail unless each event has a name and a JSON object, ids ascend and the last event ends the
    stream.

    Events of a completion have no name.
    """
    if not response.headers.get("content-type", [""])[0].startswith("text/event-stream"):
        return None
    if "/ai-sdk" in case.operation.path or "/ag-ui" in case.operation.path:
        _frontend_stream_is_complete(response, case)
        return None
    if case.operation.path.startswith("/v1/") and case.operation.path != "/v1/messages":
        _completion_is_complete(response, case)
        return None
    *frames, rest = response.content.split(b"\n\n")
    events = [_fields(frame) for frame in frames if not frame.startswith(b":")]
    problems = [
        f"event {number} is {event}"
        for number, event in enumerate(events, 1)
        if not _is_event(event)
    ]
    last = _LAST_OF_MESSAGES if case.operation.path == "/v1/messages" else _LAST
    if response.stream_cut_short or rest or not events or events[-1].get(b"event") not in last:
        problems.append(f"it ends with {response.content[-200:]!r}")
    if case.operation.path.startswith("/api/v1/chat/") and not _ascend(
        [event.get(b"id", b"") for event in events]
    ):
        problems.append("ids do not ascend within one run")
    if problems:
        raise _failure(case, "The event stream is not well-formed", "; ".join(problems))
    return None


def _frontend_stream_is_complete(response: Response, case: Case[Any]) -> None:
    *frames, rest = [
        frame for frame in response.content.split(b"\n\n") if not frame.startswith(b":")
    ]
    if frames[-1:] == [b"data: [DONE]"]:
        frames.pop()
    types = [(_json(_fields(frame).get(b"data", b"")) or {}).get("type") for frame in frames]
    if (
        rest
        or None in types
        or types[-1:] not in (["finish"], ["error"], ["abort"], ["RUN_FINISHED"], ["RUN_ERROR"])
    ):
        raise _failure(case, "The stream is not well-formed", repr(response.content[-200:]))


def _completion_is_complete(response: Response, case: Case[Any]) -> None:
    *chunks, done, rest = [
        frame for frame in response.content.split(b"\n\n") if not frame.startswith(b":")
    ]
    wrong = [
        chunk for chunk in chunks if not isinstance(_json(_fields(chunk).get(b"data", b"")), dict)
    ]
    if wrong or not chunks or (done, rest) != (b"data: [DONE]", b""):
        raise _failure(
            case, "The completion is not well-formed", repr(wrong or response.content[-200:])
        )


def _fields(frame: bytes) -> dict[bytes, bytes]:
    return dict(line.split(b": ", 1) for line in frame.split(b"\n"))


def _is_event(event: dict[bytes, bytes]) -> bool:
    return bool(event.get(b"event")) and isinstance(_json(event.get(b"data", b"")), dict)


def _ascend(ids: list[bytes]) -> bool:
    parts = [_ID.fullmatch(event_id) for event_id in ids]
    numbers = [int(part[2]) for part in parts if part]
    return (
        len({part and part[1] for part in parts}) == 1
        and len(numbers) == len(ids)
        and numbers == sorted(set(numbers))
    )


def _json(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return None


def _failure(case: Case[Any], title: str, message: str) -> Failure:
    return Failure(operation=case.operation.label, title=title, message=message)
