"""What the requests of OpenAI's APIs for an answer have in common: the model and its options."""

from typing import Annotated, Any, Literal

from pydantic import Field

from mochi_server.chat.turn_input import GenerationOptions, ToolSelection, TurnInput
from mochi_server.constants import ANSWER_TOKENS
from mochi_server.errors import SessionNotFound
from mochi_server.protocols.headers import MochiHeaders
from mochi_server.protocols.parts import Notice
from mochi_server.protocols.schemas import EmptyOptions, RejectedOption, Unsupported, allow
from mochi_server.schemas.common import Body, UnstoredBody
from mochi_server.sessions.types import KeepAlive
from mochi_server.util.validation import Items

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "ultra", "max"]
_THINK: dict[str, bool | str] = {
    "none": False,
    "minimal": "low",
    "xhigh": "max",
    "ultra": "max",
}
"""Ollama's ``think`` values for OpenAI's reasoning levels.

Levels that are not listed have the same name in Ollama.
"""
_SAMPLING = {
    "temperature",
    "top_p",
    "frequency_penalty",
    "presence_penalty",
    "seed",
    "top_k",
    "min_p",
    "repeat_penalty",
}
"""Fields that have the same name in OpenAI's API and in Ollama's options."""


def think_value(effort: str) -> bool | str:
    """Return Ollama's ``think`` value for a reasoning level of OpenAI."""
    return _THINK.get(effort, effort)


class ReasoningOptions(Body):
    """Reasoning options of a request, for models that can think."""

    effort: Effort | None = None


class ChatTemplateOptions(Body, extra="allow"):
    """Options of the model's chat template. ``thinking`` is another name of ``enable_thinking``.

    Other keys are ignored, with a notice.
    """

    enable_thinking: bool | None = None
    thinking: bool | None = None


class Metadata(Body, extra="allow"):
    """Metadata of a request.

    ``session_id`` is the ID of the session for the turn. Other keys have no effect.
    """

    session_id: str | None = None


class AnswerRequest(UnstoredBody):
    """Base of OpenAI's requests for an answer: the model and its options, and the session in
    ``metadata``.
    """

    model: str = Field(min_length=1, description="Model of Ollama, or `agent:NAME`.")
    stream: bool | None = Field(None, description="Stream the answer.")
    metadata: Metadata | None = Field(None, description="`session_id` is the session of the turn.")
    temperature: float | None = Field(None, ge=0, le=2, description="Sampling temperature.")
    top_p: float | None = Field(
        None, ge=0, le=1, description="Nucleus sampling: cumulative probability of candidates."
    )
    frequency_penalty: float | None = Field(
        None, ge=-2, le=2, description="Penalty for frequent tokens."
    )
    presence_penalty: float | None = Field(
        None, ge=-2, le=2, description="Penalty for tokens that already occurred."
    )
    seed: int | None = Field(
        None, ge=-(2**63), lt=2**63, description="The same seed and request give the same answer."
    )
    stop: str | Items[str] | None = Field(
        None, description="Stop sequences. The answer ends before them."
    )
    top_k: int | None = Field(
        None, ge=0, description="Number of candidates for the next token. Not in OpenAI's API."
    )
    min_p: float | None = Field(
        None, ge=0, le=1, description="Minimum probability of candidates. Not in OpenAI's API."
    )
    repeat_penalty: float | None = Field(
        None, ge=0, allow_inf_nan=False, description="Penalty. Not in OpenAI's API."
    )
    reasoning_effort: Effort | None = Field(
        None, description="Level of reasoning of a model that can think."
    )
    reasoning: ReasoningOptions | None = Field(
        None, description="`effort` overrides `reasoning_effort`."
    )
    think: bool | Effort | None = Field(
        None, description="Ollama's name of `reasoning_effort`, which overrides it."
    )
    chat_template_kwargs: ChatTemplateOptions | None = Field(
        None, description="`enable_thinking` applies if no other field sets the level of reasoning."
    )
    keep_alive: KeepAlive = None
    options: EmptyOptions = Field(
        None, description="Only `{}` is supported. Use the fields of this request."
    )
    num_ctx: RejectedOption = Field(
        None, description="Not supported. The server sets the context window."
    )
    n: Annotated[int | None, allow(1, reason="Ollama gives one answer")] = Field(
        None, description="Only 1 is supported."
    )
    logit_bias: Annotated[dict[str, Any] | None, allow({})] = Field(
        None, description="Only `{}` is supported."
    )
    format: Unsupported = None

    def session_id(self, headers: MochiHeaders) -> str | None:
        """Return the ID of the session in the headers, or else in ``metadata``, or None.

        Raises ``SessionNotFound`` for an empty ID.
        """
        session_id = headers.session
        if session_id is None and self.metadata is not None:
            session_id = self.metadata.session_id
        if session_id == "":
            raise SessionNotFound("")
        return session_id

    def turn(
        self,
        headers: MochiHeaders,
        tools: ToolSelection,
        *,
        limit: int | None,
        answer_format: str | dict[str, Any] | None = None,
        logprobs: int | None = None,
    ) -> TurnInput:
        """Return the turn without its messages.

        ``limit`` is the maximum number of tokens of the answer, or None or 0 for no limit.
        """
        generation = GenerationOptions(
            think=self._think(),
            options=self._options(limit) or None,
            format=answer_format,
            keep_alive=self.keep_alive,
            thinks_by_default=True,
            answer_tokens=ANSWER_TOKENS,  # room in the first context window, no limit
            logprobs=logprobs,
        )
        return headers.turn(self.model, generation, tools)

    def _think(self) -> bool | str | None:
        effort = self.reasoning.effort if self.reasoning else None
        think = effort or self.reasoning_effort or self.think
        if isinstance(think, str):
            return think_value(think)
        template = self.chat_template_kwargs
        if think is not None or template is None:
            return think
        if template.enable_thinking is None:
            return template.thinking
        return template.enable_thinking

    def _options(self, limit: int | None) -> dict[str, Any]:
        options = self.model_dump(include=_SAMPLING, exclude_none=True)
        if limit:
            options["num_predict"] = limit
        stop = [self.stop] if isinstance(self.stop, str) else self.stop
        if stop:
            options["stop"] = stop
        return options


def ignored_options(request: AnswerRequest) -> list[Notice]:
    """Return a notice if the request has options of the chat template without effect."""
    template = request.chat_template_kwargs
    names = sorted(template.model_extra or ()) if template is not None else []
    if not names:
        return []
    text = f"Ollama fills the chat template. The server ignores {', '.join(names)} in "
    payload = {"code": "OPTION_IGNORED", "message": f"{text}`chat_template_kwargs`."}
    return [Notice("warning", payload)]
