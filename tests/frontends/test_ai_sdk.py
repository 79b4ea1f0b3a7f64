"""The AI SDK's route: messages, UI message streams, approvals, edits, stop and resume."""

from tests.frontends.chats import UiChat
from tests.support.api import Api, error_of
from tests.support.instructions import calls, instruct, words


def test_text_and_reasoning_stream_as_parts_of_one_message(api: Api, session: str) -> None:
    chat = UiChat(api, session)
    stream = chat.send(instruct(words(3), reasoning=4), think=True)
    print(stream)
    stream = chat.send(instruct(calls("add", a=1, b=2),words(3)))
    print(stream)
    stream = chat.send(instruct(calls("note", text="x"),words(3)))
    print(stream)
    stream = chat.respond(approved=True)
    print(stream)
    assert 0
