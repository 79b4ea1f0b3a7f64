"""Encoding of runs for frontends: snapshots of dropped events, continued streams and reserved
cases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from pydantic import TypeAdapter

from mochi_server import events
from mochi_server.chat.event_log import Batch
from mochi_server.chat.event_log import encode as encode_event
from mochi_server.chat.run import Run
from mochi_server.chat.turn_result import TurnResult
from mochi_server.errors import OllamaError
from mochi_server.protocols.ai_sdk.encoder import AiSdkEncoder
from mochi_server.protocols.frontend_stream import InteractiveEncoder
from mochi_server.protocols.frontends import FrontendRun
from tests.support.cases import cases
from tests.support.runs import run_of

if TYPE_CHECKING:
    from mochi_server.protocols.ag_ui.encoder import AgUiEncoder

CONFIRMATION = events.ToolConfirmationRequired("note", {"text": "a"}, 0, "conf_1")
RESULT = events.ToolResult("note", True, "Noted.", None, None, 0)
DENIED = events.ToolResult("note", False, None, "No.", "TOOL_EXECUTION_DENIED", 0)
TIMED_OUT = events.ToolResult("note", False, None, "Too late.", "TOOL_CONFIRMATION_TIMEOUT", 0)
WARNING = events.TurnWarning("ANSWER_CUT", "Too long.")


def waiting_run(**fields: Any) -> Run:
    run = run_of(run_ids=["0a"], state="waiting_for_approval", **fields)
    run.publish([CONFIRMATION])
    return run


def ai_sdk(after: int = 0, *, pending: bool = False) -> AiSdkEncoder:
    return AiSdkEncoder(FrontendRun(waiting_run() if pending else run_of(run_ids=["0a"]), after))


def ag_ui(result: TurnResult = TurnResult(), *, timeout: float = 300) -> AgUiEncoder:  # noqa: B008 - frozen
    from ag_ui.core import RunAgentInput

    from mochi_server.protocols.ag_ui.encoder import AgUiEncoder

    run_input = RunAgentInput(thread_id="t", run_id="r", messages=[])
    return AgUiEncoder(FrontendRun(waiting_run(result=result)), run_input, timeout)


def encode(
    encoder: InteractiveEncoder, *published: events.ChatEvent, first: int = 1
) -> list[dict[str, Any]]:
    lines = [encode_event(event) for event in published]
    return messages(encoder.encode(Batch(first, lines)))


def closing(encoder: InteractiveEncoder) -> list[dict[str, Any]]:
    return messages(encoder.closing())


def messages(data: bytes) -> list[dict[str, Any]]:
    frames = [frame.removeprefix(b"data: ") for frame in data.split(b"\n\n") if frame]
    return [orjson.loads(frame) for frame in frames if frame != b"[DONE]"]


def test_snapshot_is_sent_from_its_first_new_character() -> None:
    encoder = ai_sdk()
    encode(encoder, events.ContentDelta("one "))
    sent = encode(encoder, events.Snapshot("one two", ""), first=2)
    assert [chunk["delta"] for chunk in sent] == ["two"]


def test_continued_stream_has_the_ids_of_the_first() -> None:
    published = (
        events.ContentDelta("One moment."),
        CONFIRMATION,
        RESULT,
        events.ContentDelta("Done."),
    )
    whole = encode(ai_sdk(), *published)
    assert encode(ai_sdk(after=2), *published) == whole[-3:]
    assert [chunk["type"] for chunk in whole[-3:]] == [
        "tool-output-available",
        "text-start",
        "text-delta",
    ]


def test_plan_and_work_of_an_agent_are_separate_blocks() -> None:
    about = ("helper", "s", "c")
    published = (
        events.AgentPlanning("A plan.", *about),
        events.AgentExecution("I", *about),
        events.AgentExecution(" work.", *about),
    )
    of_ai_sdk = encode(ai_sdk(), *published)
    assert [(chunk["type"], chunk.get("delta")) for chunk in of_ai_sdk] == [
        ("reasoning-start", None),
        ("reasoning-delta", "A plan."),
        ("reasoning-end", None),
        ("reasoning-start", None),
        ("reasoning-delta", "I"),
        ("reasoning-delta", " work."),
    ]
    assert len({chunk["id"] for chunk in of_ai_sdk}) == 2
    of_ag_ui = encode(ag_ui(), *published)
    messages_by_id: dict[str, str] = {}
    for event in of_ag_ui:
        text = messages_by_id.get(event["messageId"], "")
        messages_by_id[event["messageId"]] = text + event.get("delta", "")
    assert [*messages_by_id.values()] == ["A plan.", "I work."]


def test_decided_call_does_not_end_a_repeated_stream() -> None:
    assert encode(ai_sdk(), CONFIRMATION, RESULT)[-1]["type"] == "tool-output-available"
    encoder = ai_sdk(pending=True)
    assert encode(encoder, CONFIRMATION, RESULT)[-1]["type"] == "tool-approval-request"
    assert encoder.is_suspended


@cases(
    ("result", "kind"),
    [
        (RESULT, "tool-output-available"),
        (DENIED, "tool-output-denied"),
        (TIMED_OUT, "tool-output-error"),
    ],
)
def test_results_differ_by_outcome(result: events.ToolResult, kind: str) -> None:
    assert encode(ai_sdk(), CONFIRMATION, result)[-1]["type"] == kind


def test_call_that_never_started_is_sent_with_its_result() -> None:
    sent = encode(ai_sdk(), TIMED_OUT)
    assert [chunk["type"] for chunk in sent] == ["tool-input-available", "tool-output-error"]


def test_other_events_become_data_parts_and_custom_events() -> None:
    warning, status = encode(ai_sdk(), WARNING, events.Status("queued", 1.0))
    assert warning == {
        "type": "data-warning",
        "data": {"code": "ANSWER_CUT", "message": "Too long."},
        "transient": False,
    }
    assert (status["type"], status["transient"]) == ("data-status", True)
    (custom,) = encode(ag_ui(), WARNING)
    assert (custom["type"], custom["name"], custom["value"]["code"]) == (
        "CUSTOM",
        "warning",
        "ANSWER_CUT",
    )


def test_failed_run_ends_with_its_error() -> None:
    failed = TurnResult(failure=OllamaError("Broken."))
    (error,) = closing(ag_ui(failed))
    assert (error["type"], error["code"]) == ("RUN_ERROR", "OLLAMA_ERROR")


def test_stopped_run_ends_its_open_calls() -> None:
    encoder = ag_ui()
    encode(encoder, events.ToolCalled("note", {}, 0))
    encoder.run.end("stopped", TurnResult(cancelled=True))
    result, finished = closing(encoder)
    assert result["type"] == "TOOL_CALL_RESULT"
    assert finished["outcome"] == {"type": "cancelled"}


def test_interrupt_has_a_deadline_only_with_an_approval_timeout() -> None:
    for timeout, has_deadline in ((300, True), (0, False)):
        encoder = ag_ui(timeout=timeout)
        encode(encoder, CONFIRMATION)
        (interrupt,) = closing(encoder)[-1]["outcome"]["interrupts"]
        assert ("expiresAt" in interrupt) == has_deadline


def test_events_of_ag_ui_are_valid() -> None:
    from ag_ui.core import Event

    published = (
        *(
            events.ThinkingDelta("hm"),
            events.ContentDelta("One"),
            events.ToolCalled("add", {"a": 1}, 0),
        ),
        *(
            events.ToolResult("add", True, None, None, None, 0),
            events.ToolContinuationStart(),
            WARNING,
        ),
        *(
            events.AgentStart("helper", "Help.", None, "c"),
            events.AgentPlanning("Plan.", "helper", "s", "c"),
        ),
        *(
            events.AgentComplete("helper", "s", "Done.", True, None, "s", "c"),
            events.ContentDelta("Two"),
        ),
        events.MessageComplete("m", "mochi", 1, 2, {}, "stop"),
    )
    encoder = ag_ui()
    opened = messages(encoder.opening())
    event = TypeAdapter[Any](Event)
    for sent in [*opened, *encode(encoder, *published), *closing(encoder)]:
        event.validate_python(sent)
