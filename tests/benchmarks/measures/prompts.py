"""Prompt tokens that the model evaluates in a conversation, divided by all tokens of the
conversation.

The upstream is mochi-stub, which imitates the prompt cache of Ollama.

Ollama keeps the evaluated prompt of a model in a slot. If the next prompt begins in the same way,
the model evaluates only the rest of this prompt. The upstream of this measurement is mochi-stub
with one slot. Like llama.cpp, mochi-stub finds the longest beginning that the prompt has in common
with the slot. It records the length of each prompt and the number of evaluated tokens. These
numbers do not depend on the speed of the machine, so one round is enough.

Each row is a conversation, which has as many tokens as its turns have together. A ratio can be
below 1, because the model does not evaluate its own answers: the slot already contains them. If two
sessions alternate, the prompt of each session replaces the prompt of the other session in the only
slot. The model then evaluates each prompt again from its beginning. An agent that uses the same
model has the same effect.

The context window of the model is set by hand, so that Ollama does not reload the model. A reload
empties the slot, and the model then evaluates the whole prompt again. If the server chooses the
window, a conversation of this length begins with 8,192 tokens and has three reloads. They add about
0.9 to the ratio of the answers.

The specification of mochi-server asks for summaries in the background. The figure *letter of the
specification* shows the cost of the simplest way to create them: after each turn, a separate
request to the same model summarizes the whole conversation. The other figures show mochi-server
with its own summaries (*summaries on*) and without them (*summaries off*).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from mochi_stub import Machine, Model, StubServer
from mochi_stub.journal import Exchange
from mochi_stub.prompt import Prompt, ToolCall
from mochi_stub.reply import Reply, ToolCalls
from tests.benchmarks.measures import Aim, Findings, Row, Setting
from tests.benchmarks.workload import adjustable
from tests.support.agents import write_agent
from tests.support.api import Api
from tests.support.server import RunningServer
from tests.support.stub import chats
from tests.support.tools import write_tools

TITLE = "Prompt evaluation"
_WINDOW, _SMALL_WINDOW = 40_960, 8192
_CHARS_PER_TOKEN = 4
_MODEL = Model(
    "chat", ("completion", "tools"), context_length=_WINDOW, chars_per_token=_CHARS_PER_TOKEN
)
_SUMMARY = '{"summary": "%s", "topics": ["boats", "cats"]}' % (
    "They talked about boats and cats. " * 6
)
_TOOLS = '''
    def weather(city: str) -> str:
        """Return the weather in a city."""
        return f"It is sunny in {city}."

    def now() -> str:
        """Return the time."""
        return "It is noon."

    __all__ = ["weather", "now"]
'''


@dataclass(frozen=True)
class Workload:
    turns: int = adjustable(60, "turns of each conversation")
    tokens: int = adjustable(550, "tokens of each turn, half of them in the answer")


@dataclass
class _Conversation:
    """Conversation with the server. ``turn`` sends the next message to one of the sessions."""

    api: Api
    sessions: list[str]
    work: Workload
    sent: int = 0

    def turn(self, session: int = 0, text: str = "") -> None:
        self.api.send_message(
            self.sessions[session], _words(f"Message {self.sent}. {text}", self.work.tokens // 2)
        )
        self.sent += 1

    def turns(self) -> None:
        while self.sent < self.work.turns:
            self.turn()


def _alternate(conversation: _Conversation) -> None:
    while conversation.sent < conversation.work.turns:
        conversation.turn(conversation.sent % 2)


def _use_tools(conversation: _Conversation) -> None:
    while conversation.sent < conversation.work.turns:
        conversation.turn(text="Use a tool.")


def _call_agents(conversation: _Conversation) -> None:
    while conversation.sent < conversation.work.turns:
        conversation.turn(text="Ask an agent." if conversation.sent % 5 == 4 else "")


def _regenerate_and_edit(conversation: _Conversation) -> None:
    (session_id,), api = conversation.sessions, conversation.api
    while conversation.sent < conversation.work.turns:
        conversation.turn()
        if conversation.sent % 5 == 2:
            api.send_message(session_id)
        if conversation.sent % 5 == 4:
            messages = api.messages(session_id)
            index = max(i for i, message in enumerate(messages) if message["role"] == "user")
            body = {"content": _words("Edited.", conversation.work.tokens // 2)}
            api.ok(api.http.put(f"/sessions/{session_id}/messages/{index}", json=body))
            api.send_message(session_id)


@dataclass(frozen=True)
class Scenario:
    label: str
    run: Callable[[_Conversation], None] = _Conversation.turns
    sessions: int = 1
    tools: bool = False
    agents: bool = False
    window: int = _WINDOW


SCENARIOS = (
    Scenario("growing conversation"),
    Scenario("tool call in each turn", _use_tools, tools=True),
    Scenario("agent call in each fifth turn", _call_agents, agents=True),
    Scenario("compaction in a window of 8,192 tokens", window=_SMALL_WINDOW),
    Scenario("one answer regenerated and one message edited per five turns", _regenerate_and_edit),
    Scenario("two sessions in turn", _alternate, sessions=2),
)
_ANSWERS, _SUMMARIES = "answers, summaries on", "summaries"
_OFF, _LETTER = "answers, summaries off", "answers and summaries, letter of the specification"


def measure(work: Workload, setting: Setting) -> Findings:
    """Return one row per conversation, which the page shows as a column."""
    del setting
    rows = [_row(scenario, work) for scenario in SCENARIOS]
    growing, with_tools = rows[:2]
    aims = [
        Aim("answers of a growing conversation", float(growing[_ANSWERS]), 1.1, "x"),
        Aim("answers with a tool call in each turn", float(with_tools[_ANSWERS]), 1.15, "x"),
        Aim("summaries of a growing conversation", float(growing[_SUMMARIES]), 0.3, "x"),
        Aim("summaries with a tool call in each turn", float(with_tools[_SUMMARIES]), 0.3, "x"),
    ]
    return Findings(rows, aims)


def _row(scenario: Scenario, work: Workload) -> Row:
    answers, summaries = ratios(scenario, work, summaries=True)
    off, _ = ratios(scenario, work, summaries=False)
    row: Row = {"": scenario.label, _ANSWERS: answers, _SUMMARIES: summaries, _OFF: off}
    return row | {_LETTER: sum(ratios(scenario, work, summaries=False, letter=True))}


def ratios(
    scenario: Scenario, work: Workload, *, summaries: bool, letter: bool = False
) -> tuple[float, float]:
    """Return the evaluated tokens of answers and of summaries, divided by the tokens of the
    conversation.
    """
    with _conversation(scenario, work, summaries=summaries) as (stub, conversation):
        if summaries or letter:
            conversation.api = _SummarizedApi(conversation.api, stub, is_letter=letter)  # type: ignore[assignment]
        scenario.run(conversation)
        exchanges = chats(stub)
    total = work.turns * work.tokens
    evaluated = {True: 0, False: 0}
    for exchange in exchanges:
        evaluated[_is_summary(exchange)] += exchange.evaluated_tokens or 0
    return evaluated[False] / total, evaluated[True] / total


class _SummarizedApi:
    """API client that waits for the background summary after each turn, or requests one as the
    specification does.
    """

    def __init__(self, api: Api, stub: StubServer, *, is_letter: bool) -> None:
        self._api, self._stub, self._is_letter = api, stub, is_letter
        self._count = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    def send_message(self, session_id: str, *args: Any) -> None:
        self._api.send_message(session_id, *args)
        self._count += 1
        if self._is_letter:
            text = "\n\n".join(
                f"{m['role']}: {m['content']}" for m in self._api.messages(session_id)
            )
            messages = [
                {"role": "system", "content": "Summarize."},
                {"role": "user", "content": text},
            ]
            options = {"num_ctx": self._window(session_id)}
            body = {
                "model": _MODEL.name,
                "messages": messages,
                "format": "json",
                "stream": False,
                "options": options,
            }
            httpx.post(f"{self._stub.url}/api/chat", json=body, timeout=60).raise_for_status()
        else:
            self._stub.wait_for(self._is_summarized)

    def _window(self, session_id: str) -> int:
        window: int = self._api.session(session_id)["context_window_config"]["current_window"]
        return window

    def _is_summarized(self, exchanges: Sequence[Exchange]) -> bool:
        return (
            sum(_is_summary(each) and each.outcome == "finished" for each in exchanges)
            >= self._count
        )


@contextmanager
def _conversation(
    scenario: Scenario, work: Workload, *, summaries: bool
) -> Iterator[tuple[StubServer, _Conversation]]:
    with (
        TemporaryDirectory(prefix="mochi-benchmark-") as directory,
        StubServer(
            models=[_MODEL], speed=0, machine=Machine(parallel=1), resolve=_replies(work)
        ) as stub,
    ):
        data = Path(directory)
        write_tools(data, _TOOLS)
        write_agent(data)
        settings: dict[str, Any] = {
            "summarization_enabled": summaries,
            "summarization_interval_seconds": 0,
        }
        with RunningServer(data, stub.url, **settings) as server:
            api = server.api(timeout=60)
            sessions = [_session(api, scenario, number) for number in range(scenario.sessions)]
            yield stub, _Conversation(api, sessions, work)


def _session(api: Api, scenario: Scenario, number: int) -> str:
    fields: dict[str, Any] = {"system_prompt": f"You are assistant {number}."}
    if scenario.tools:
        fields["tool_settings"] = {"tools": ["weather", "now"], "execution_policy": "never_confirm"}
    if scenario.agents:
        fields["agent_settings"] = {"enabled_agents": ["helper"]}
        fields["tool_settings"] = {"tools": [], "execution_policy": "never_confirm"}
    session_id: str = api.create_session(_MODEL.name, **fields)["session_id"]
    window = {"context_window": {"current_window": scenario.window}}
    api.ok(api.http.patch(f"/sessions/{session_id}", json=window))
    return session_id


def _replies(work: Workload) -> Callable[[Prompt], Reply | None]:
    """Return the function that decides the replies: tool calls, agent calls, summaries, or text of
    the given length.
    """

    def resolve(prompt: Prompt) -> Reply | None:
        names = {tool["function"]["name"] for tool in prompt.tools}
        if prompt.format is not None:
            return Reply.of(_SUMMARY)
        if not prompt.after_tools and "Use a tool." in prompt.user_text:
            return Reply([ToolCalls([ToolCall("weather", {"city": "Paris"})])])
        if not prompt.after_tools and "Ask an agent." in prompt.user_text and "agent" in names:
            return Reply(
                [ToolCalls([ToolCall("agent", {"agent": "helper", "instruction": "Please help."})])]
            )
        return Reply.of(_words(f"Answer {len(prompt.messages)}.", work.tokens // 2))

    return resolve


def _words(opening: str, tokens: int) -> str:
    """Return a text of about ``tokens`` tokens that begins with ``opening``."""
    return (f"{opening} " + "One word follows another. " * tokens)[: tokens * _CHARS_PER_TOKEN]


def _is_summary(exchange: Exchange) -> bool:
    return "format" in (exchange.body or {})
