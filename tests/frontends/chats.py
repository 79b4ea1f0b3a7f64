"""Minimal clients of the frontend protocols."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import httpx
import orjson

from mochi_stub import StubServer
from tests.support.agents import delegate, nested
from tests.support.api import Api, read_events
from tests.support.instructions import calls, words
from tests.support.stub import chats
from tests.support.waiting import until

Chunk = dict[str, Any]


def read_chunks(data: bytes) -> list[Chunk]:
    """Return the JSON messages of a stream. Fail unless each frame is one line of data."""
    frames = [frame for frame in data.split(b"\n\n") if frame and not frame.startswith(b":")]
    assert all(frame.startswith(b"data: ") and b"\n" not in frame for frame in frames), frames
    texts = [frame[6:] for frame in frames]
    return [orjson.loads(text) for text in texts if text != b"[DONE]"]


def types(chunks: list[Chunk]) -> list[str]:
    """Return the types of messages without the repetitions of deltas."""
    names = [chunk["type"] for chunk in chunks]
    return [name for number, name in enumerate(names) if number == 0 or name != names[number - 1]]


def of_type(chunks: list[Chunk], name: str) -> Chunk:
    """Return the only message of a type."""
    (chunk,) = [chunk for chunk in chunks if chunk["type"] == name]
    return chunk


def user(text: str, **fields: Any) -> dict[str, Any]:
    """Return a user message of the AI SDK."""
    return {"id": uuid4().hex, "role": "user", "parts": [{"type": "text", "text": text}], **fields}


def message(content: Any, role: str = "user", **fields: Any) -> dict[str, Any]:
    """Return a message of AG-UI."""
    return {"id": "m", "role": role, "content": content, **fields}


def response_to(approval: Chunk, *, approved: bool = True) -> dict[str, Any]:
    """Return an assistant message of the AI SDK with a response to an approval request."""
    response = {"id": approval["approvalId"], "approved": approved}
    part = {
        "type": "tool-note",
        "toolCallId": approval["toolCallId"],
        "state": "approval-responded",
    }
    return {"id": "a", "role": "assistant", "parts": [part | {"approval": response}]}


def sent_messages(stub: StubServer) -> list[dict[str, Any]]:
    """Return the messages of the latest request to the model."""
    messages: list[dict[str, Any]] = chats(stub)[-1].body["messages"]
    return messages


class Frontend:
    """Client of one session, for both protocols."""

    def __init__(self, api: Api, session: str) -> None:
        self.api = api
        self.session = session

    def post_ai_sdk(self, *messages: dict[str, Any], **body: Any) -> httpx.Response:
        return self.api.http.post(
            f"/chat/{self.session}/ai-sdk", json={"messages": messages, **body}
        )

    def ai_sdk(self, *messages: dict[str, Any], **body: Any) -> list[Chunk]:
        response = self.post_ai_sdk(*messages, **body)
        assert response.status_code == 200, response.text
        assert response.headers["x-vercel-ai-ui-message-stream"] == "v1"
        assert response.content.endswith(b"data: [DONE]\n\n")
        return read_chunks(response.content)

    def post_ag_ui(self, *messages: dict[str, Any], **body: Any) -> httpx.Response:
        run_input = {"threadId": "t", "runId": "r", "messages": messages, **body}
        return self.api.http.post(f"/chat/{self.session}/ag-ui", json=run_input)

    def ag_ui(self, *messages: dict[str, Any], **body: Any) -> list[Chunk]:
        response = self.post_ag_ui(*messages, **body)
        assert response.status_code == 200, response.text
        return read_chunks(response.content)

    def stop_in_agent(self, send: Callable[[str], list[Chunk]]) -> list[Chunk]:
        """Send a message for an agent, and stop the turn while a tool of the agent runs.

        Return the messages of the stream.
        """
        http, session = self.api.http, f"/chat/{self.session}"
        settings = {
            "agent_settings": {"enabled_agents": ["librarian"]},
            "tool_settings": {"execution_policy": "never_confirm"},
        }
        self.api.ok(http.patch(f"/sessions/{self.session}", json=settings))
        plan = nested(delegate(words(1), calls("wait"), agent="librarian"), words(1))
        with ThreadPoolExecutor(1) as pool:
            sent = pool.submit(send, plan)
            until(lambda: self.api.ok(http.get(f"{session}/run"))["state"] == "running")
            with http.stream("GET", f"{session}/stream") as response:
                next(e for e in read_events(response) if e.type == "agent_tool_call")
                self.api.ok(http.post(f"{session}/stop"))
            return sent.result()

    def stored(self) -> list[tuple[str, str]]:
        return [
            (message["role"], message["content"]) for message in self.api.messages(self.session)
        ]

    def roles(self) -> list[str]:
        return [role for role, _ in self.stored()]
