"""Rules by which the server works out what is new in the messages of a client."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from mochi_server.chat.turn_input import ToolSelection, TurnInput
from mochi_server.errors import ValidationFailed
from mochi_server.protocols.new_messages import repeats, to_turn
from mochi_server.protocols.sent_messages import Action, SentMessages
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.types import (
    AssistantMessage,
    Image,
    Message,
    SessionCreationOptions,
    ToolMessage,
    UserMessage,
)
from tests.support.cases import cases

IMAGE, OTHER_IMAGE = Image("a" * 64, "image/png"), Image("b" * 64, "image/png")
NO_POSITION = "the session does not have this user message at this position"
NOTHING_NEW = "the last message must be a user message or the result of a pending tool call"


def user(text: str, *images: Image) -> Message:
    message: UserMessage = {"role": "user", "content": text, "message_id": "", "timestamp": ""}
    if images:
        message["images"] = [image.reference for image in images]
    return message


def answer(text: str = "Yes.", **fields: Any) -> Message:
    message: AssistantMessage = {
        "role": "assistant",
        "content": text,
        "message_id": "",
        "timestamp": "",
        **fields,  # type: ignore[typeddict-item]  # a TypedDict by names
    }
    return message


def calls(*ids: str) -> Message:
    function = {"name": "look", "arguments": {}}
    return answer("", tool_calls=[{"id": call_id, "function": function} for call_id in ids])


def system(text: str) -> Message:
    return {"role": "system", "content": text, "message_id": "", "timestamp": ""}


def result(call_id: str, text: str = "Sun") -> ToolMessage:
    return {
        "role": "tool",
        "content": text,
        "message_id": "",
        "timestamp": "",
        "tool_call_id": call_id,
    }


def failed(message: ToolMessage) -> ToolMessage:
    return {**message, "success": False}


def stored_result(call_id: str, text: str = "Sun") -> ToolMessage:
    return {**result(call_id, text), "success": True, "tool_name": "look"}


ONE_TURN = [user("One?"), answer()]
TWO_TURNS = [*ONE_TURN, user("Two?"), answer()]
PENDING = [user("One?"), calls("a", "b"), stored_result("a")]


@dataclass(kw_only=True)
class Case:
    id: str
    stored: list[Message]
    sent: list[Message]
    action: Action = "compare"
    images: dict[int, tuple[Image, ...]] | None = None
    key: str | None = None
    expected: dict[str, Any] | str
    """Fields of the turn, or the problem in the error."""


ALL: Action = "compare_all"
CASES = [
    Case(id="add", stored=TWO_TURNS, sent=[user("Two?")], action="add", expected={"text": "Two?"}),
    Case(
        id="add only the last message",
        stored=[],
        sent=[user("One?"), user("Two?")],
        action="add",
        images={1: (IMAGE,)},
        expected={"text": "Two?", "images": (IMAGE,)},
    ),
    Case(
        id="regenerate with the last message only",
        stored=TWO_TURNS,
        sent=[user("Two?")],
        action="regenerate",
        expected={"change": "regenerate"},
    ),
    Case(
        id="regenerate with all messages",
        stored=TWO_TURNS,
        sent=[user("One!"), user("Two?")],
        action="regenerate",
        expected={"change": "regenerate"},
    ),
    Case(
        id="regenerate an earlier message",
        stored=TWO_TURNS,
        sent=[user("One?")],
        action="regenerate",
        expected={"change": "edit", "edit_index": 0, "text": "One?"},
    ),
    Case(
        id="regenerate another message",
        stored=TWO_TURNS,
        sent=[user("One?"), user("Three?")],
        action="regenerate",
        expected=f"messages.1: {NO_POSITION}",
    ),
    Case(
        id="regenerate without a stored message",
        stored=[],
        sent=[user("One?")],
        action="regenerate",
        expected=f"messages.0: {NO_POSITION}",
    ),
    Case(
        id="edit the last message",
        stored=TWO_TURNS,
        sent=[user("One?"), user("Three?")],
        action="edit",
        expected={"change": "edit", "edit_index": 2, "text": "Three?"},
    ),
    Case(
        id="edit with another earlier message",
        stored=TWO_TURNS,
        sent=[user("One!"), user("Three?")],
        action="edit",
        expected=f"messages.0: {NO_POSITION}",
    ),
    Case(
        id="edit a message that is not stored",
        stored=ONE_TURN,
        sent=[user("One?"), user("Two?")],
        action="edit",
        expected=f"messages.1: {NO_POSITION}",
    ),
    Case(
        id="edit with the same image",
        stored=[user("One?", IMAGE)],
        sent=[user("Two?")],
        action="edit",
        images={0: (IMAGE,)},
        expected={"change": "edit", "edit_index": 0, "text": "Two?"},
    ),
    Case(
        id="edit with another image",
        stored=[user("One?", IMAGE)],
        sent=[user("Two?")],
        action="edit",
        images={0: (OTHER_IMAGE,)},
        expected="messages.0: the images and files of a stored message cannot be changed",
    ),
    Case(
        id="image of a tool result",
        stored=PENDING,
        sent=[result("b")],
        images={0: (IMAGE,)},
        expected={
            "change": "continue",
            "results": ({**stored_result("b"), "images": [IMAGE.reference]},),
            "result_images": (IMAGE,),
        },
    ),
    Case(
        id="image of a stored tool result",
        stored=PENDING,
        sent=[result("a"), result("b")],
        images={0: (IMAGE,)},
        expected={"change": "continue", "results": (stored_result("b"),)},
    ),
    Case(
        id="unknown tool call",
        stored=PENDING,
        sent=[result("c")],
        expected="messages: the session has no tool call with the ID 'c'",
    ),
    Case(
        id="pending result",
        stored=PENDING,
        sent=[user("One?"), calls("a", "b"), result("a"), result("b")],
        expected={"change": "continue", "results": (stored_result("b"),)},
    ),
    Case(
        id="failed pending result",
        stored=PENDING,
        sent=[failed(result("b"))],
        expected={"change": "continue", "results": (failed(stored_result("b")),)},
    ),
    Case(
        id="stored result again",
        stored=[*PENDING, stored_result("b"), answer("Part", interrupted=True)],
        sent=[result("b")],
        expected={"change": "continue"},
    ),
    Case(
        id="answered result again",
        stored=[*PENDING, stored_result("b"), answer()],
        sent=[result("b")],
        expected=f"messages: {NOTHING_NEW}",
    ),
    Case(
        id="only an answer", stored=ONE_TURN, sent=[answer()], expected=f"messages: {NOTHING_NEW}"
    ),
    Case(
        id="all messages again",
        stored=TWO_TURNS,
        sent=[user("One?"), answer("No."), user("Two?")],
        action=ALL,
        expected={"change": "regenerate"},
    ),
    Case(
        id="all messages and a new one",
        stored=ONE_TURN,
        sent=[user("One?"), answer(), user("Two?")],
        action=ALL,
        expected={"text": "Two?"},
    ),
    Case(
        id="only the last message of a whole conversation",
        stored=TWO_TURNS,
        sent=[user("Two?")],
        action=ALL,
        expected={"text": "Two?"},
    ),
    Case(
        id="results of the server and of the client",
        stored=PENDING,
        sent=[user("One?"), calls("x", "b"), result("x"), result("b")],
        action=ALL,
        expected={"change": "continue", "results": (stored_result("b"),)},
    ),
    Case(
        id="results that follow their calls",
        stored=[user("One?"), calls("a", "b")],
        sent=[user("One?"), calls("a"), result("a"), calls("b"), result("b", "Moon")],
        action=ALL,
        expected={
            "change": "continue",
            "results": (stored_result("a"), stored_result("b", "Moon")),
        },
    ),
    Case(
        id="results that follow their calls, and one is stored",
        stored=PENDING,
        sent=[user("One?"), calls("a"), result("a"), calls("b"), result("b")],
        expected={"change": "continue", "results": (stored_result("b"),)},
    ),
    Case(
        id="results that follow their calls, and a new message",
        stored=PENDING,
        sent=[user("One?"), calls("b"), result("b"), calls("a"), result("a"), user("Two?")],
        expected={"text": "Two?", "results": (stored_result("b"),)},
    ),
    Case(
        id="unknown result before the last answer",
        stored=[],
        sent=[user("One?"), calls("a"), result("a"), answer(), user("Two?")],
        expected={"text": "Two?"},
    ),
    Case(
        id="earlier answer had a call with the same ID",
        stored=[user("One?"), calls("a"), stored_result("a"), calls("a")],
        sent=[user("One?"), calls("a"), result("a"), calls("a"), result("a", "Moon")],
        action=ALL,
        expected={"change": "continue", "results": (stored_result("a", "Moon"),)},
    ),
    Case(
        id="earlier turn had a call with the same ID",
        stored=[user("One?"), calls("a"), stored_result("a"), answer(), user("Two?"), calls("a")],
        sent=[user("One?"), calls("a"), result("a"), answer(), user("Two?"), calls("a"), user("3")],
        action=ALL,
        expected={"text": "3", "results": ()},
    ),
    Case(
        id="only results of the server",
        stored=[user("One?"), calls("a"), stored_result("a")],
        sent=[user("One?"), calls("x"), result("x")],
        action=ALL,
        expected={"change": "continue", "tools": ToolSelection()},
    ),
    Case(
        id="results of the server without their answer",
        stored=[user("One?"), calls("a"), stored_result("a"), answer()],
        sent=[user("One?"), calls("x"), result("x")],
        action=ALL,
        expected={"change": "regenerate"},
    ),
    Case(
        id="results of the client without their answer",
        stored=[user("One?"), calls("a"), stored_result("a"), answer()],
        sent=[user("One?"), calls("a"), result("a")],
        action=ALL,
        expected={"change": "regenerate"},
    ),
    Case(
        id="only results of the server, and a call is pending",
        stored=PENDING,
        sent=[user("One?"), calls("x"), result("x")],
        action=ALL,
        expected=f"messages.2: {NOTHING_NEW}",
    ),
    Case(
        id="results of the server after another message",
        stored=[user("One?"), calls("a"), stored_result("a")],
        sent=[user("Two?"), calls("x"), result("x")],
        action=ALL,
        expected=f"messages.2: {NOTHING_NEW}",
    ),
    Case(
        id="results of the server with compare",
        stored=[user("One?"), calls("a"), stored_result("a"), answer()],
        sent=[user("One?"), calls("a"), result("a")],
        expected=f"messages: {NOTHING_NEW}",
    ),
    Case(
        id="unanswered message",
        stored=[user("One?")],
        sent=[user("One?")],
        expected={"change": "regenerate"},
    ),
    Case(
        id="unanswered message with a key",
        stored=[user("One?")],
        sent=[user("One?")],
        key="k",
        expected={"text": "One?"},
    ),
    Case(
        id="unanswered message with another image",
        stored=[user("One?", IMAGE)],
        sent=[user("One?")],
        images={0: (OTHER_IMAGE,)},
        expected={"text": "One?", "images": (OTHER_IMAGE,)},
    ),
    Case(
        id="partly answered message",
        stored=[user("One?", IMAGE), answer("Ye", interrupted=True)],
        sent=[user("One?")],
        images={0: (IMAGE,)},
        expected={"change": "regenerate"},
    ),
    Case(
        id="message whose tools were called",
        stored=[user("One?"), calls("a"), stored_result("a")],
        sent=[user("One?")],
        expected={"change": "continue", "tools": ToolSelection()},
    ),
    Case(id="answered message", stored=ONE_TURN, sent=[user("One?")], expected={"text": "One?"}),
    Case(
        id="result and message",
        stored=PENDING,
        sent=[result("b"), user("Two?")],
        expected={"text": "Two?", "results": (stored_result("b"),)},
    ),
    Case(
        id="instructions at the end",
        stored=ONE_TURN,
        sent=[user("Two?"), system("Be brief.")],
        expected={"text": "Two?", "instructions": "Be brief."},
    ),
    Case(
        id="compare all with instructions at the end",
        stored=ONE_TURN,
        sent=[user("One?"), system("Be brief.")],
        action="compare_all",
        expected={"change": "regenerate", "instructions": "Be brief."},
    ),
    Case(
        id="compare all with the same image",
        stored=[user("One?", IMAGE), answer()],
        sent=[user("One?")],
        action=ALL,
        images={0: (IMAGE,)},
        expected={"change": "regenerate"},
    ),
    Case(
        id="compare all with an additional image",
        stored=ONE_TURN,
        sent=[user("One?")],
        action=ALL,
        images={0: (IMAGE,)},
        expected={"text": "One?", "images": (IMAGE,)},
    ),
    Case(
        id="compare all without the image",
        stored=[user("One?", IMAGE), answer()],
        sent=[user("One?")],
        action=ALL,
        expected={"text": "One?"},
    ),
    Case(
        id="compare all with the answer",
        stored=[user("One?", IMAGE), answer()],
        sent=[user("One?"), answer(), system("Be brief.")],
        action=ALL,
        images={0: (IMAGE,)},
        expected={"change": "regenerate", "instructions": "Be brief."},
    ),
    Case(
        id="compare all with an earlier answer",
        stored=TWO_TURNS,
        sent=ONE_TURN,
        action=ALL,
        expected=f"messages.1: {NOTHING_NEW}",
    ),
    Case(
        id="compare all with a pending call",
        stored=PENDING,
        sent=[user("One?"), calls("b")],
        action=ALL,
        expected=f"messages.1: {NOTHING_NEW}",
    ),
    Case(
        id="compare all with an answer only",
        stored=[],
        sent=[answer()],
        action=ALL,
        expected=f"messages.0: {NOTHING_NEW}",
    ),
    Case(
        id="compare with the answer",
        stored=ONE_TURN,
        sent=ONE_TURN,
        expected=f"messages: {NOTHING_NEW}",
    ),
    Case(
        id="blank message",
        stored=[],
        sent=[user(" ")],
        expected="messages: the user's message must not be blank",
    ),
]


def compared(case: Case) -> tuple[TurnInput, TurnInput]:
    """Return the turn before and after the comparison."""
    session = ChatSession.create(SessionCreationOptions("mochi"))
    session.messages = case.stored
    positions = None if case.action == "compare" else range(len(case.sent))
    turn = TurnInput(tools=ToolSelection(must_call=True), key=case.key)
    found = to_turn(
        session, SentMessages(case.sent, case.images or {}, case.action, positions), turn
    )
    return replace(turn, revision=None if case.action == "add" else session.revision), found


@cases("case", CASES, ids=lambda case: case.id)
def test_rules_decide_what_is_new(case: Case) -> None:
    if isinstance(case.expected, str):
        with pytest.raises(ValidationFailed) as caught:
            compared(case)
        assert caught.value.message == case.expected
    else:
        turn, found = compared(case)
        assert found == replace(turn, **case.expected)


def test_results_have_the_digest_of_the_key() -> None:
    cases = [Case(id=key, stored=PENDING, sent=[result("b")], key=key, expected={}) for key in "kl"]
    digests = {compared(case)[1].results[0]["key_digest"] for case in cases}
    assert len(digests) == len(cases)


def test_system_messages_are_instructions() -> None:
    session = ChatSession.create(SessionCreationOptions("mochi"))
    sent = SentMessages([system("Be brief."), user("One?")])
    assert (
        to_turn(session, sent, TurnInput(instructions="It is 9.")).instructions
        == "It is 9.\n\nBe brief."
    )


@cases(
    ("sent", "is_same"),
    [
        ([result("b"), user("Two?")], True),
        ([result("b"), user("Three?")], False),
        ([result("b", "Rain"), user("Two?")], False),
        ([user("Two?")], False),
    ],
)
def test_request_repeats_an_earlier_one(sent: list[Message], is_same: bool) -> None:
    earlier = TurnInput(model="mochi", text="Two?", results=[stored_result("b")])
    assert repeats(SentMessages(sent), TurnInput(model="mochi:latest"), earlier) is is_same
