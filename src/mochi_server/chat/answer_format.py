"""Answers that must fit a JSON schema: their check, and the repair of an answer that does not fit."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mochi_server.chat.answer_builder import AnswerBuilder
from mochi_server.chat.model_call import ModelCall
from mochi_server.chat.turn_result import snapshot
from mochi_server.chat.turn_writer import TurnWriter
from mochi_server.errors import FormatNotMet, MochiError

CheckAnswer = Callable[[Mapping[str, Any], str], Awaitable[Mapping[str, str]]]
"""Check of a text with a JSON schema. Returns an ``error``, or the reason why it is ``unchecked``, or nothing."""


@dataclass(frozen=True)
class AnswerFormat:
    """The format of a turn's last answer. An answer that does not fit gets one repair request."""

    model: ModelCall
    writer: TurnWriter
    check: CheckAnswer

    async def apply(self, answer: AnswerBuilder) -> None:
        """Repair the answer if it does not fit, and publish a snapshot. Raises ``FormatNotMet``."""
        schema, first = self.model.schema, answer.content
        is_cut = answer.done_reason == "length"  # the client has limited the answer, and is told that it was cut
        if schema is None or is_cut or not (problem := await self._problem(schema, first)):
            return
        try:
            answer.replace(*await self.model.repair(schema, first, problem))
        except MochiError as error:
            raise FormatNotMet(self.model.name, error.message.rstrip("."), first) from error
        if problem := await self._problem(schema, answer.content):
            raise FormatNotMet(self.model.name, problem, answer.content)
        self.model.publish([snapshot([*self.writer.stored, answer.message()])])

    async def _problem(self, schema: Mapping[str, Any], text: str) -> str:
        """Return why a text does not fit, or an empty text. Publish a warning if it cannot be checked."""
        result = await self.check(schema, text)
        if reason := result.get("unchecked"):
            self.model.warn("FORMAT_NOT_CHECKED", f"The server cannot check the format of the answer: {reason}.")
        return result.get("error", "")
