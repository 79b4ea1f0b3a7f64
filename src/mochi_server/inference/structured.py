"""Structured requests: ollama-instructor requests JSON, and the gateway sends the requests."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import orjson
from pydantic import ValidationError

from mochi_server.inference.gateway import ModelGateway
from mochi_server.inference.requests import FixedPrompt, ModelRequest
from mochi_server.ollama.async_client import AsyncInstructorOllamaClient
from mochi_server.ollama.injected_client import (
    StructuredClient,
    structured_content,
    translating_errors,
)
from mochi_server.ollama.transport import Line, OnLines
from mochi_server.ollama.types import ChatResponse, ReceivedMessage

if TYPE_CHECKING:
    from pydantic import BaseModel


@dataclass(eq=False)
class StructuredRequest:
    """One structured request.

    ``instructor`` answers in place of the gateway. ``sent`` and ``lines`` are the prompt and the
    answer, even if the answer is invalid.
    """

    gateway: ModelGateway
    request: ModelRequest
    instructor: StructuredClient | None = None
    sent: FixedPrompt = field(init=False)
    lines: list[Line] = field(default_factory=list)

    @property
    def text(self) -> str:
        text = ""
        for line in self.lines:
            message = line.get("message")
            if isinstance(message, dict):
                text += str(message.get("content") or "")
        return text

    async def send(self, format: "type[BaseModel] | Mapping[str, Any]") -> ChatResponse:
        """Send the request, and store the prompt and the lines of the answer.

        Raises the errors of the gateway. If ``format`` is a class, it raises ``ValidationError``
        for an answer that does not fit it. An answer to a JSON schema is not checked.
        """
        if self.instructor is not None:
            return await self._injected(self.instructor, format)
        client = AsyncInstructorOllamaClient(post=self._post)
        # The gateway fits the prompt into the window, so the client has no messages.
        model = self.request.payload["model"]
        return await client.structured_response(model, (), format)

    async def _injected(self, client: StructuredClient, format: Any) -> ChatResponse:
        prompt = await self.request.prompt.fit(None)
        assert prompt is not None  # noqa: S101 - only a refused prompt cannot be shortened
        self.sent = prompt
        messages = orjson.loads(orjson.dumps(prompt.messages))  # parts of it are encoded
        with translating_errors(ValidationError):
            answer = await client.structured_response(self.request.model, messages, format)
            content = structured_content(answer, format)
        message = ReceivedMessage(role="assistant", content=content)
        self.lines.append({"message": message})
        return ChatResponse(message=message)

    async def _post(self, payload: Mapping[str, Any], on_lines: OnLines) -> None:
        def receive(lines: list[Line]) -> None:
            self.lines += lines
            on_lines(lines)

        with_format = {**self.request.payload, "format": payload["format"]}
        request = replace(self.request, payload=with_format)
        self.sent = (await self.gateway.send(request, receive)).prompt
