"""Minimal clients of the frontend protocols."""

from typing import Any

import orjson

from tests.support.api import Api

Chunk = dict[str, Any]


def read_chunks(data: bytes) -> list[Chunk]:
    """Return the JSON messages of a stream. Fail unless each frame is one line of data."""
    frames = [frame for frame in data.split(b"\n\n") if frame and not frame.startswith(b":")]
    assert all(frame.startswith(b"data: ") for frame in frames), frames
    texts = [frame[6:] for frame in frames]
    return [orjson.loads(text) for text in texts if text != b"[DONE]"]


def types(chunks: list[Chunk]) -> list[str]:
    """Return the types of messages without the repetitions of deltas."""
    names = [chunk["type"] for chunk in chunks]
    return [name for number, name in enumerate(names) if number == 0 or name != names[number - 1]]


class UiChat:
    """Chat that keeps messages as `useChat` does."""

    def __init__(self, api: Api, session: str) -> None:
        self.api = api
        self.url = f"/chat/{session}/ai-sdk"
        self.messages: list[dict[str, Any]] = []

    def send(self, text: str, **body: Any) -> list[Chunk]:
        self.messages.append({"id": f"u{len(self.messages)}", "role": "user", "parts": [text_part(text)]})
        return self.post(**body)

    def respond(self, *, approved: bool, reason: str | None = None) -> list[Chunk]:
        """Respond to the approval request of the last message."""
        part = next(part for part in self.messages[-1]["parts"] if part.get("state") == "approval-requested")
        part["state"] = "approval-responded"
        part["approval"] |= {"approved": approved} | ({"reason": reason} if reason else {})
        return self.post()

    def post(self, **body: Any) -> list[Chunk]:
        response = self.api.http.post(self.url, json={"id": "chat", "messages": self.messages, **body})
        assert response.status_code == 200, response.text
        assert response.content.endswith(b"data: [DONE]\n\n")
        chunks = read_chunks(response.content)
        self._apply(chunks)
        return chunks

    def _apply(self, chunks: list[Chunk]) -> None:
        """Add the parts of tool calls and texts to the assistant message, as far as the server reads them."""
        if self.messages[-1]["role"] != "assistant":
            self.messages.append({"id": "", "role": "assistant", "parts": []})
        message = self.messages[-1]
        parts = {part["toolCallId"]: part for part in message["parts"] if "toolCallId" in part}
        for chunk in chunks:
            match chunk["type"]:
                case "start":
                    message["id"] = chunk["messageId"]
                case "text-delta":
                    message["parts"].append(text_part(chunk["delta"]))
                case "tool-input-available":
                    part = {"type": f"tool-{chunk['toolName']}", "state": "input-available", **chunk}
                    parts[chunk["toolCallId"]] = part | {"type": f"tool-{chunk['toolName']}"}
                    message["parts"].append(parts[chunk["toolCallId"]])
                case "tool-approval-request":
                    parts[chunk["toolCallId"]] |= {"state": "approval-requested", "approval": {"id": chunk["approvalId"]}}
                case "tool-output-available" | "tool-output-denied" | "tool-output-error":
                    parts[chunk["toolCallId"]]["state"] = chunk["type"].removeprefix("tool-")


def text_part(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}
