"""Scenarios: recorded sessions as configurations of ``mochi-stub``, and replays that compare answers with them."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import unified_diff
from functools import partial
from inspect import Signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic_core import to_json

from mochi_server import events
from mochi_server.client import MochiClient
from mochi_server.client.types import Decision
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.types import ToolSettings
from mochi_server.tools.discovery import Tool, ToolCatalogue
from mochi_server.tools.execution import ToolRaised
from mochi_server.tools.schema import ToolSchema
from mochi_server.util.text import MASK

if TYPE_CHECKING:
    from mochi_server.testing import ThreadedServer

Json = dict[str, Any]
_SETTINGS = ("agent_settings", "options", "keep_alive", "think", "format")
_USAGE = {"input": "prompt_eval_count", "cache_read": "prompt_eval_cached_count", "output": "eval_count"}
_DURATIONS = {name: f"{name}_duration" for name in ("total", "load", "prompt_eval", "eval")}
_KEPT = ("role", "tool_name", "success", "interrupted", "done_reason", *_USAGE.values(), *_DURATIONS.values())
_FIGURES = {
    **{"prompt_eval_count": "prompt tokens", "prompt_eval_cached_count": "cached tokens"},
    **{"eval_count": "answer tokens", "total_duration": "seconds"},
}
_UNCOMPARED = {"load_duration", "prompt_eval_duration", "eval_duration"}
_NOTHING = re.compile("(?!)")
_CHARS_PER_TOKEN = 4
_DENIED, _NOT_RUN = "The user denied this call.", "The call was not run"
_TEST = '''\
"""Replay of a recorded session. `mochi-server export-scenario` has created this file."""

from pathlib import Path

from mochi_server.testing import ThreadedServer, check_scenario
from mochi_stub import StubServer


def test_session_is_answered_as_recorded(tmp_path):
    scenario = Path(__file__).with_name({name!r})
    with StubServer(config=scenario, speed=0) as stub:
        with ThreadedServer(ollama_host=stub.url, data_dir=str(tmp_path)) as server:
            check_scenario(scenario, server)
'''


def export_scenario(session: ChatSession, path: Path, mask: re.Pattern[str]) -> list[Path]:
    """Write the stub's configuration, the recorded session and a test. Return their paths. Raises ``OSError``."""
    stored = session.metadata.to_dict()
    settings = {"model": session.model} | {name: stored[name] for name in _SETTINGS if stored.get(name)}
    settings["tool_settings"] = {name: stored["tool_settings"][name] for name in ToolSettings.model_fields}
    messages = [_portable(message, mask) for message in session.history]
    if session.system_prompt:
        settings["system_prompt"] = messages[0]["content"]
    turns = [{"user": user["content"], "replies": _replies(rest)} for user, *rest in _turns(messages)]
    entries = [{"_model": {"chars_per_token": _CHARS_PER_TOKEN}}, {"_turns": turns}]
    recording = {"session": settings, "messages": messages}
    files = {path: _dump({"models": {session.model: entries}}), _recording(path): _dump(recording)}
    files[path.with_name(f"test_{path.stem}.py")] = _TEST.format(name=path.name)
    for file, text in files.items():
        file.write_text(text, "utf-8")
    return [*files]


def check_scenario(path: Path, server: "ThreadedServer") -> None:
    """Replay a scenario with the recorded results of tools. Raises ``AssertionError`` for the first difference."""
    __tracebackhide__ = True  # pytest then shows only the message
    recorded = load_scenario(path)
    results = [message for message in recorded["messages"] if message["role"] == "tool"]
    tools = {result["tool_name"]: _recorded_tool(result["tool_name"], results) for result in results}
    server.app.state.services.tools.discovery.cached = ToolCatalogue(tools)
    settings = recorded["session"]["tool_settings"] | {"tools": [*tools], "tool_group": None}
    recorded["session"] |= {"tool_settings": settings, "agent_settings": None}
    for number, difference in enumerate(replay(recorded, server.client), 1):
        if difference:
            raise AssertionError(f"turn {number} differs from the recorded session:\n{difference}")


def load_scenario(path: Path) -> Json:
    """Return the recorded session of a scenario. Raises ``ValueError`` if it cannot be read."""
    try:
        recorded = yaml.safe_load(_recording(path).read_bytes())
        return {"session": recorded["session"], "messages": [*recorded["messages"]]}
    except (OSError, yaml.YAMLError, LookupError, TypeError) as error:
        raise ValueError(f"cannot read {_recording(path)}, which mochi-server export-scenario creates") from error


def replay(recorded: Json, client: MochiClient) -> Iterator[str]:
    """Send the user's messages in a new session. Yield for each turn how it differs from the recorded one, or ""."""
    session_id = client.create_session(**recorded["session"])["session_id"]
    for user, *rest in _turns(recorded["messages"]):
        decide = partial(_decide, [message for message in rest if message["role"] == "tool"])
        thinks = any("thinking" in message for message in rest)
        options: Json = {"think": True} if thinks and not recorded["session"].get("think") else {}
        with client.stream(session_id, user["content"], on_confirm=decide, **options) as stream:
            received = [*stream]
        stored = [_portable(message) for message in _turns(client.get_session(session_id)["messages"])[-1][1:]]
        yield _difference(rest, stored) or _difference(_stored_events(rest), _streamed_events(received))


def _decide(results: list[Json], call: events.ToolConfirmationRequired) -> Decision:
    """Decide as the user did on the next recorded call of the tool. Deny a call that was not recorded."""
    content = next((result["content"] for result in results if result["tool_name"] == call.tool_name), _DENIED)
    results[:] = [result for result in results if result["content"] is not content]
    reason = content.removeprefix(_DENIED).removeprefix(" Reason: ")
    return {"approved": False, "reason": reason} if content.startswith(_DENIED) else {"approved": True}


def _recorded_tool(name: str, results: Iterable[Json]) -> Tool:
    """Return a tool that returns the recorded results of its calls, in their order."""
    own = (result for result in results if result["tool_name"] == name)
    run = (result for result in own if not result["content"].startswith(_DENIED) and _NOT_RUN not in result["content"])

    async def function() -> str:
        result = next(run)
        if not result["success"]:
            raise ToolRaised(result["content"])
        return str(result["content"])

    async def bind(_: object) -> Any:
        return Signature().bind()  # any arguments are valid

    return Tool(name, function, ToolSchema(name, "Recorded tool.", {"type": "object", "properties": {}}, {}, bind))


def _recording(path: Path) -> Path:
    return path.with_suffix(".session.yaml")


def _turns(messages: Iterable[Any]) -> list[list[Any]]:
    """Return the messages of each turn. The first one is from the user."""
    turns: list[list[Any]] = []
    for message in messages:
        if message["role"] == "user":
            turns.append([])
        if turns:
            turns[-1].append(message)
    return turns


def _replies(messages: list[Json]) -> list[Json]:
    """Return the answers of a turn as replies of the stub. A turn without a last answer ends with an error."""
    replies = [_reply(message) for message in messages if message["role"] == "assistant"]
    return replies if messages and messages[-1]["role"] == "assistant" else [*replies, {"type": "error"}]


def _reply(message: Json) -> Json:
    texts = {"reasoning": message.get("thinking"), "content": message["content"]}
    reply: Json = {key: text for key, text in texts.items() if text}
    if message.get("interrupted"):  # the stream ends after the texts, of which each is one chunk
        return {"type": "message", **{key: [text] for key, text in reply.items()}, "cut_after": len(reply)}
    if calls := message.get("tool_calls"):
        reply["tool_calls"] = calls
    times = {name: message[key] for name, key in _DURATIONS.items() if key in message}
    timing: Json = {"pause": {"seconds": (times.get("load", 0) + times.get("prompt_eval", 0)) / 1e9}}
    if times.get("eval"):
        timing["tokens_per_second"] = len(to_json(reply)) / _CHARS_PER_TOKEN / times["eval"] * 1e9
    usage = {name: message[key] for name, key in _USAGE.items() if key in message}
    finish = "length" if message.get("done_reason") == "length" else "stop"
    return {"type": "message", **reply, "finish": finish, "usage": usage, "durations": times, **timing}


def _portable(message: Any, mask: re.Pattern[str] = _NOTHING) -> Json:
    """Return a stored message without IDs and times. In its texts, ``***`` replaces what matches ``mask``."""

    def masked(value: Any) -> Any:
        if isinstance(value, dict):
            return {masked(key): masked(item) for key, item in value.items()}
        if isinstance(value, list):
            return [masked(item) for item in value]
        text = mask.sub(MASK, str(value))
        return value if text == str(value) else text

    content = message["content"].removeprefix(f"{message.get('tool_name')} failed: ")
    calls = [call["function"] for call in message.get("tool_calls", ())]
    texts = {
        "thinking": masked(message.get("thinking")),
        "content": masked(content),
        "tool_calls": [{"name": call["name"], "arguments": masked(call["arguments"])} for call in calls],
    }
    kept = {name: message[name] for name in _KEPT if name in message}
    return kept | {name: value for name, value in texts.items() if value or name == "content"}


def _stored_events(messages: Sequence[Json]) -> list[Json]:
    """Return what the events of a turn contain, if its messages are stored as they were streamed."""
    answers = [message for message in messages if message["role"] == "assistant"]
    is_complete = messages[-1:] == answers[-1:] and "interrupted" not in messages[-1]
    return [
        {
            "thinking": "".join(answer.get("thinking", "") for answer in answers),
            "content": "".join(answer["content"] for answer in answers),
            "tool_calls": [call for answer in answers for call in answer.get("tool_calls", ())],
            "results": [message["content"] for message in messages if message["role"] == "tool"],
            "end": ["message_complete" if is_complete else "error", "done"],
        }
    ]


def _streamed_events(received: Sequence[Any]) -> list[Json]:
    calls = [event for event in received if isinstance(event, events.ToolCalled | events.ToolConfirmationRequired)]
    results = [event for event in received if isinstance(event, events.ToolResult)]
    return [
        {
            "thinking": "".join(event.content for event in received if isinstance(event, events.ThinkingDelta)),
            "content": "".join(event.content for event in received if isinstance(event, events.ContentDelta)),
            "tool_calls": [{"name": call.tool_name, "arguments": call.arguments} for call in calls],
            "results": [event.result or str(event.error_message) for event in results],
            "end": [event.type for event in received[-2:]],
        }
    ]


def _difference(recorded: Sequence[Json], replayed: Sequence[Json]) -> str:
    """Return the lines in which messages differ, or "". Figures that were not recorded are not compared."""
    names = {name for message in recorded for name in message} - _UNCOMPARED | {"content"}
    texts = [
        _dump(
            [
                {_FIGURES.get(n, n): v / 1e9 if n == "total_duration" else v for n, v in m.items() if n in names}
                for m in messages
            ]
        )
        for messages in (recorded, replayed)
    ]
    lines = unified_diff(*(text.splitlines() for text in texts), "recorded", "replayed", lineterm="")
    return "\n".join(line for line in lines if not line.startswith("@@"))


def _dump(data: Any) -> str:
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=math.inf)
