"""Compaction: the summary that replaces the oldest turns of a prompt that is too long."""

from collections.abc import Iterator, MutableMapping
from dataclasses import replace
from hashlib import sha256

import orjson

from mochi_server.chat.answer import AnswerBuilder
from mochi_server.chat.prompt import (
    HEADING,
    TRIMMED_CHARS,
    Budget,
    Prompt,
    checkpoint_tokens,
)
from mochi_server.constants import MIN_ANSWER_TOKENS
from mochi_server.inference.answer_repair import AnswerRepair
from mochi_server.inference.gateway import ModelGateway
from mochi_server.inference.requests import FixedPrompt, ModelRequest, payload_without_thinking
from mochi_server.inference.token_estimate import PromptSize
from mochi_server.inference.window_allocation import Allocation
from mochi_server.ollama.errors import malformed_answer
from mochi_server.ollama.types import ChatMessage
from mochi_server.sessions.checkpoint import Checkpoint
from mochi_server.sessions.types import Message, attachments_of, images_of, tool_calls_of

_INSTRUCTION = (
    "Write a summary of the conversation so far that lets you continue it. Keep facts, names, "
    "numbers, decisions, open questions and what the user wants. Answer with the summary alone."
)
_NO_SUMMARY = (
    "The conversation is too long for the context window, and the model {!r} sent an empty summary "
    "of it. Try again, or use another model."
)


RecentSummaries = MutableMapping[bytes, tuple[str, int]]
"""Summaries, each with the number of first messages that its prompt trimmed.

The key is a hash of the summarized messages. A client that sends its whole conversation with each
request would otherwise wait for a new summary each time.
"""


def remember_summary(summaries: RecentSummaries, prompt: Prompt, model: str) -> None:
    """Remember the checkpoint of a prompt for later requests with the same conversation."""
    if prompt.checkpoint is None:
        return
    for covered, key in _keys(prompt, model):
        if covered == prompt.covered:
            summaries[key] = (prompt.checkpoint.text, prompt.trim_end)
            return


def recall_summary(summaries: RecentSummaries, prompt: Prompt, model: str) -> Prompt:
    """Return the prompt with the remembered summary that covers most of its messages.

    Without such a summary, return the same prompt.
    """
    recalled = prompt
    for covered, key in _keys(prompt, model):
        if key in summaries:
            text, trim_end = summaries[key]
            last = prompt.history[covered - 1]["message_id"]
            recalled = replace(
                prompt,
                checkpoint=Checkpoint(text, last, model),
                # A conversation that was shortened since then has read fewer results.
                trim_end=min(trim_end, prompt.turn_start),
            )
    return recalled


def _keys(prompt: Prompt, model: str) -> Iterator[tuple[int, bytes]]:
    """Yield the numbers of first messages that a summary could cover, with the keys of such
    summaries.

    A summary depends on the model and on the messages behind the system message.
    """
    digest = sha256(model.encode())
    for index in range(prompt.system_count, prompt.turn_start):
        line = _transcript(prompt.history[index]).encode("utf-8", "surrogatepass")
        digest.update(b"%d %b" % (len(line), line))
        yield index + 1, digest.digest()


class CompactionPrompt:
    """Prompt that requests a summary of the messages from ``start`` to ``end``: as many as fit, up
    to ``required_end``.

    The constructor raises ``ContextOverflow`` if no summary is enough.
    """

    def __init__(self, allocation: Allocation, prompt: Prompt, budget: Budget) -> None:
        self._allocation = allocation
        self._prompt = prompt
        self.budget = budget
        self.summary = prompt.checkpoint.text if prompt.checkpoint and prompt.covered else None
        self.start = self.end = max(prompt.covered, prompt.system_count)
        self.summary_tokens = checkpoint_tokens(budget.window)
        self.size = PromptSize()
        self.required_end = 0
        self._set_required_end()

    def _set_required_end(self) -> None:
        """Calculate how many messages the summary must cover. A call never lowers the number.

        Raise ``ContextOverflow`` if no summary is enough.
        """
        boundary = self.budget.boundary(self._prompt)
        if boundary is None:
            raise self.budget.overflow(self._prompt)
        self.required_end = max(self.required_end, boundary)

    async def summarize(
        self, gateway: ModelGateway, model: str, keep_alive: str | float | None
    ) -> Checkpoint:
        """Request summaries until one covers ``required_end`` messages. Return the last one.

        Raises the errors of ``ModelGateway.send``.
        """
        payload = payload_without_thinking(
            self._allocation.model, model, self.summary_tokens, keep_alive
        )
        fixed = self._allocation.fixed(self._allocation.size)
        request = ModelRequest(allocation=fixed, payload=payload, prompt=self)
        while self.end < self.required_end:
            self.continue_with(await _summary(gateway, request))
        last = self._prompt.history[self.end - 1]["message_id"]
        return Checkpoint(self.summary or "-", last, model)

    def continue_with(self, summary: str) -> None:
        """Continue with a summary of the messages so far.

        Shorten it if all other messages then fit.
        """
        self.start = self.end
        self.summary = summary
        rest = "\n\n".join(map(_transcript, self._prompt.history[self.start : self.required_end]))
        self._make_room(rest, self.summary_tokens // 4)

    async def fit(self, refused_tokens: int | None) -> FixedPrompt:
        """Return a prompt with as many messages as fit into the window, and set ``end``.

        A refusal has improved the estimate. Raise ``ContextOverflow`` if the prompt after it is not
        shorter.
        """
        refused_size = self.size
        if refused_tokens is not None:
            self._set_required_end()
        text = self._take_text()  # may shorten the summary
        messages = _compaction_messages(text, self.summary)
        self.size = PromptSize.of(messages)
        if refused_tokens is not None and self.size.characters >= refused_size.characters:
            raise self.budget.overflow(self._prompt)
        return FixedPrompt(messages, self.size)

    def _take_text(self) -> str:
        """Join messages into a text that fits, and set ``end``.

        If not even the first message fits, its middle is cut.
        """
        text = ""
        for index in range(self.start, self.required_end):
            self.end = index
            line = _transcript(self._prompt.history[index])
            if not text:
                text = self._cut(line)
                continue
            longer = f"{text}\n\n{line}"
            if not self._fits(longer, self.summary_tokens // 4):
                return text
            text = longer
        self.end = self.required_end
        return text

    def _cut(self, line: str) -> str:
        """Cut the middle of a message that does not fit, even without the earlier summary.

        The earlier summary is shortened only if the shortest cut does not fit beside it.
        """
        self._make_room(line, MIN_ANSWER_TOKENS)
        while not self._fits(line, MIN_ANSWER_TOKENS) and len(line) > TRIMMED_CHARS:
            third = len(line) // 3
            line = line[:third] + "\n[...]\n" + line[-third:]
        self._make_room(line, MIN_ANSWER_TOKENS)
        return line

    def _make_room(self, text: str, answer_tokens: int) -> None:
        """Shorten the earlier summary, or drop it, if the text then fits.

        Otherwise leave it as it is.
        """
        earlier = self.summary or ""
        for divisor in (1, 2, 4, 8, len(earlier) + 1):
            self.summary = earlier[: len(earlier) // divisor]
            if self._fits(text, answer_tokens):
                return
        self.summary = earlier

    def _fits(self, text: str, answer_tokens: int) -> bool:
        """Return whether a text, after the earlier summary, leaves room for a summary of at least
        ``answer_tokens`` tokens.
        """
        size = PromptSize.of(_compaction_messages(text, self.summary or ""))
        room = self._allocation.estimate.room(size, self.budget.window)
        return room >= max(answer_tokens, MIN_ANSWER_TOKENS)


async def _summary(gateway: ModelGateway, request: ModelRequest) -> str:
    """Request a summary, and once more if it is empty.

    If the model only reasons, its reasoning, which may have reached the limit of tokens, is the
    summary. Raises ``OllamaError`` if there is neither, and the errors of ``ModelGateway.send``.
    """
    answer = await _answer(gateway, request)
    if not answer.content.strip():
        answer = await _answer(gateway, request)
    summary = answer.content.strip() or answer.thinking.strip()
    if not summary:
        raise malformed_answer(_NO_SUMMARY.format(request.model))
    return summary


async def _answer(gateway: ModelGateway, request: ModelRequest) -> AnswerBuilder:
    answer = AnswerBuilder(request.model, lambda _: None, max_calls=0, repair=AnswerRepair(()))
    await gateway.send(request, answer.feed)
    answer.finish()
    return answer


def _compaction_messages(text: str, earlier: str | None) -> list[ChatMessage]:
    before = f"{HEADING}{earlier}\n\n" if earlier else ""
    return [
        {"role": "system", "content": _INSTRUCTION},
        {"role": "user", "content": f"{before}Conversation:\n\n{text}"},
    ]


def _transcript(message: Message) -> str:
    author: str = message["role"]
    if message["role"] == "tool":
        author = f"tool {message.get('tool_name')}"
    line = f"{author}: {message['content']}"
    calls = tool_calls_of(message)
    if calls:
        line += f" [called {orjson.dumps(calls).decode()}]"
    images = images_of(message)
    if images:
        line += f" [showed images: {len(images)}]"
    for attachment in attachments_of(message):
        line += f" [attached the file {attachment['name']!r}]"
    return line
