"""Scenarios: sessions as configurations of ``mochi-stub``, and comparisons of other answers with
them.
"""

import argparse
import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from difflib import unified_diff
from functools import partial
from inspect import Signature
from pathlib import Path
from typing import Any

import yaml

from mochi_server.cli import print_text
from mochi_server.cli.masking import Json, Mask, masked_json_text, masked_setting
from mochi_server.cli.store_copy import open_stores
from mochi_server.client import MochiClient
from mochi_server.client.client import Decision
from mochi_server.config import MochiServerSettings
from mochi_server.constants import DENIED, REPEATED
from mochi_server.events import MessageComplete, ToolConfirmationRequired, ToolResult, TurnError
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.types import ToolSettings
from mochi_server.tools.discovery import Tool
from mochi_server.tools.execution import ToolRaised
from mochi_server.tools.schema import ToolSchema

Masking = Callable[[Any], Any]
"""Function that masks a JSON value."""
_NamedDecision = tuple[str, Decision]
"""Name of a tool, and the decision about its call."""

_SETTINGS = ("agent_settings", "options", "keep_alive", "think", "format")
_TEXTS = {"reasoning": "thinking", "content": "content"}
_USAGE = {
    "input": "prompt_eval_count",
    "cache_read": "prompt_eval_cached_count",
    "output": "eval_count",
}
_COMPARED = ("reasoning", "content", "tool_calls", "finish", "error")
_FIGURES = {  # by name, where a reply has it
    "prompt tokens": ("usage", "input"),
    "cached tokens": ("usage", "cache_read"),
    "answer tokens": ("usage", "output"),
    "seconds": ("durations", "total"),
}
RECORDED = ".recorded.yaml"
_REASON = " Reason: "
_NOT_RUN = (DENIED + _REASON, DENIED, REPEATED)
_TEST = """\
from pathlib import Path

from mochi_server.testing import check_scenario
from mochi_stub import StubServer


def test_session_is_answered_as_recorded(tmp_path):
    with StubServer(config=Path(__file__).with_name({name!r}), speed=0) as stub:
        check_scenario(stub.config, ollama_host=stub.url, data_dir=str(tmp_path))
"""


def export(arguments: argparse.Namespace, settings: MochiServerSettings) -> None:
    """Write a configuration of the stub, the recorded turns and a test.

    Raises ``re.error`` for an invalid mask, ``OSError``, ``SessionNotFound`` or ``StorageFailed``.
    """
    mask = Mask(arguments.mask)
    path = Path(arguments.output)
    session = asyncio.run(_load(arguments.session, settings))
    answer_mask = partial(masked_json_text, mask=mask) if session.metadata.format else mask
    turns = [turn for turn in turns_of(session.history, mask, answer_mask) if _has_results(turn)]
    name = path.stem.replace(".", "_")
    test = path.with_name(f"test_{name}.py")
    test_text = _TEST.format(name=path.name)
    if test.exists() and test.read_text("utf-8") != test_text:
        raise FileExistsError(f"{test} exists and is another test; choose another name with -o")
    recorded = {"session": _session_fields(session, mask), "turns": turns}
    files = {
        path: _dump(_stub_config(session.model, turns)),
        path.with_suffix(RECORDED): _dump(recorded),
        test: test_text,
    }
    for file, text in files.items():
        try:
            file.write_text(text, "utf-8")
        except OSError as error:
            raise OSError(f"cannot write {file}: {error.strerror}") from error
        print_text(f"wrote {file}")


async def _load(session_id: str, settings: MochiServerSettings) -> ChatSession:
    place = settings.store_url.get_secret_value() or settings.data_dir
    async with open_stores(place, reads_only=True) as stores:
        return await stores.chats.load(session_id)


def _has_results(turn: Json) -> bool:
    """Return whether each tool call of a turn has a result.

    A call that waits for approval has none.
    """
    calls = 0
    for reply in turn["replies"]:
        calls += len(reply.get("tool_calls", ()))
    results: int = len(turn["tools"])
    return calls == results


def _stub_config(model: str, turns: Iterable[Json]) -> Json:
    """Return a configuration with which the stub answers as recorded."""
    scripted = [{"user": turn["user"], "replies": turn["replies"]} for turn in turns]
    # With so few tokens, no prompt and no answer exceeds the window.
    description = {"_model": {"chars_per_token": 10}}
    return {"models": {model: [description, {"_turns": scripted}]}}


def _session_fields(session: ChatSession, mask: Mask) -> Json:
    """Return the body of a request that creates a session with the same settings."""
    stored = session.metadata.to_dict()
    fields: Json = {"model": session.model}
    for name in _SETTINGS:
        if stored.get(name) is not None:
            fields[name] = masked_setting(name, stored[name], mask)
    fields["tool_settings"] = {
        name: stored["tool_settings"][name] for name in ToolSettings.model_fields
    }
    prompt = session.system_prompt
    if prompt is not None:
        fields["system_prompt"] = mask(prompt["content"])
    return fields


def load_recording(path: Path) -> Json:
    """Return the session and the turns of a scenario.

    Raises ``ValueError`` if its recording cannot be read.
    """
    file = path.with_suffix(RECORDED)
    try:
        recorded: Json = yaml.safe_load(file.read_bytes())
        return {"session": recorded["session"], "turns": recorded["turns"]}
    except (OSError, yaml.YAMLError, LookupError, TypeError):
        raise ValueError(
            f"cannot read {file}, which export-scenario writes beside {path.name}"
        ) from None


def differences(recorded: Json, client: MochiClient, *, runs_tools: bool = False) -> Iterator[str]:
    """Send the user's messages in a new session.

    Yield for each turn how it differs from the recorded one, or "".

    ``runs_tools`` says that the server has the user's tools. Then only calls that the user approved
    with the model's arguments are approved, and no calls of agents. Calls of recorded tools run
    nothing, so they are approved if the user did not deny them.
    """
    session_id = client.create_session(**recorded["session"])["session_id"]
    for turn in recorded["turns"]:
        options: Json = {}
        has_thinking = any("reasoning" in reply for reply in turn["replies"])
        if has_thinking and not recorded["session"].get("think"):
            options["think"] = True
        find_decisions = _user_decisions if runs_tools else _decisions_for_recorded_tools
        decide = partial(_decide, find_decisions(turn["tools"]))
        with client.stream(session_id, turn["user"], on_confirm=decide, **options) as stream:
            received = list(stream)
        replayed = turns_of(client.get_session(session_id)["messages"])[-1]
        end = received[-2]
        if isinstance(end, TurnError) and not _has_failed(turn):
            replayed["replies"][-1]["error"] = end.message
        events: Json = {
            "reasoning": stream.thinking,
            "content": stream.text,
            "end": end.type,
            "results": [event.tool_name for event in received if isinstance(event, ToolResult)],
        }
        difference = _difference(_compared(turn), _compared(replayed))
        yield difference or _difference(_expected_events(turn), events)


def _expected_events(turn: Json) -> Json:
    """Return the texts, the end and the names of the tool results that a stream of the recorded
    turn has.
    """
    expected: Json = dict.fromkeys(_TEXTS, "")
    for reply in turn["replies"]:
        for name in _TEXTS:
            expected[name] += "".join(reply.get(name, ""))
    end = TurnError if _has_failed(turn) else MessageComplete
    expected["end"] = end.type
    expected["results"] = [result["tool"] for result in turn["tools"]]
    return expected


def _has_failed(turn: Json) -> bool:
    return "usage" not in turn["replies"][-1]  # only complete answers have figures


def recorded_tool(name: str, results: Iterable[Json]) -> Tool:
    """Return a tool whose calls return their recorded results, in this order.

    Recorded failures are raised. A call that was not recorded fails too.
    """
    own = deque(
        result
        for result in results
        if result["tool"] == name and not result["content"].startswith(_NOT_RUN)
    )

    async def function() -> str:
        result = own.popleft()
        if not result["success"]:
            raise ToolRaised(result["content"])
        return str(result["content"])

    async def bind(_: object) -> Any:
        return Signature().bind()  # any arguments are valid

    parameters = {"type": "object", "properties": {}}
    schema = ToolSchema(
        name=name,
        description="Recorded tool.",
        parameters=parameters,
        overview={},
        bind=bind,
    )
    return Tool(name, function, schema)


def _user_decisions(results: Iterable[Json]) -> list[_NamedDecision]:
    """Return the decisions about recorded calls that needed the user's approval.

    If the user did not decide in time or changed the arguments, the decision is a denial.
    """
    decisions = []
    for result in results:
        decided_by = result.get("decided_by")  # missing in recordings of earlier versions
        if decided_by is not None:
            approved = decided_by == "user" and "arguments" not in result
            decision = _decision_of(result, approved=approved)
            decisions.append((result["tool"], decision))
    return decisions


def _decisions_for_recorded_tools(results: Iterable[Json]) -> list[_NamedDecision]:
    """Return a decision about each call of a recorded tool that the server may announce.

    The server refuses repeated calls before it requests approval.
    """
    return [
        (result["tool"], _decision_of(result, approved=True))
        for result in results
        if not result["content"].startswith(REPEATED)
    ]


def _decision_of(result: Json, *, approved: bool) -> Decision:
    """Return the user's denial in a result with its reason, or else a decision that is
    ``approved``.
    """
    content = result["content"]
    if not content.startswith(DENIED):
        return {"approved": approved}
    reason = content.removeprefix(DENIED).removeprefix(_REASON)
    return {"approved": False, "reason": reason}


def _decide(decisions: list[_NamedDecision], call: ToolConfirmationRequired) -> Decision:
    """Remove and return the next decision about the tool of a call.

    Deny a call without a decision. A call of an agent has none, because only the calls of the
    session are recorded.
    """
    if call.agent_name is not None:
        return {"approved": False}
    for position, (name, decision) in enumerate(decisions):
        if name == call.tool_name:
            del decisions[position]
            return decision
    return {"approved": False}


def _unmasked(value: Any) -> Any:
    return value


def turns_of(
    messages: Iterable[Any], mask: Masking = _unmasked, answer_mask: Masking = _unmasked
) -> list[Json]:
    """Return the turns of a session, each with the text of the user, the replies and the results of
    tools.

    The results of calls that needed approval have ``decided_by``.
    """
    turns: list[Json] = []
    approved: set[str] = set()
    for message in messages:
        if message["role"] == "user":
            turns.append({"user": mask(message["content"]), "replies": [], "tools": []})
        elif turns and message["role"] == "assistant":
            turns[-1]["replies"].append(_reply(message, mask, answer_mask))
        elif turns and message.get("tool_name"):
            result = _result(message, mask)
            name = result["tool"]
            decided_by = message.get("decided_by")
            if decided_by == "user" and not result["content"].startswith(DENIED):
                approved.add(name)
            has_run = bool(message.get("execution_time"))
            if decided_by == "policy" and has_run and name in approved:
                decided_by = "user"  # the user approved the tool for the session
            if decided_by in ("user", "timeout"):
                result["decided_by"] = decided_by
            turns[-1]["tools"].append(result)
    for turn in turns:
        if not turn["replies"] or "tool_calls" in turn["replies"][-1]:
            turn["replies"].append({"type": "error"})
    return turns


def _result(message: Json, mask: Masking) -> Json:
    """Return the result of a tool call. It has ``arguments`` if the user changed them."""
    name = message["tool_name"]
    content = message["content"].removeprefix(f"{name} failed: ")
    result = {
        "tool": name,
        "success": message.get("success", True),
        "content": _masked_result(content, mask),
    }
    if "arguments" in message:
        result["arguments"] = mask(message["arguments"])
    return result


def _masked_result(content: str, mask: Masking) -> str:
    """Return a masked result of a tool call.

    The server's beginning stays: it says whether the user denied the call.
    """
    for beginning in _NOT_RUN:
        if content.startswith(beginning):
            return f"{beginning}{mask(content.removeprefix(beginning))}"
    return str(mask(content))


def _reply(message: Json, mask: Masking, answer_mask: Masking) -> Json:
    """Return an answer as a reply of the stub."""
    reply: Json = {"type": "message"}
    if message.get("thinking"):
        reply["reasoning"] = mask(message["thinking"])
    if message.get("content"):
        reply["content"] = answer_mask(message["content"])
    if message.get("interrupted"):
        # The stream ends after the texts. Each text is one chunk.
        chunks = {key: [reply[key]] for key in _TEXTS if key in reply}
        return reply | chunks | {"cut_after": len(chunks)}
    calls = []
    for call in message.get("tool_calls") or ():
        function = call["function"]
        calls.append({"name": function["name"], "arguments": mask(function["arguments"])})
    if calls:
        reply["tool_calls"] = calls
    if message.get("done_reason") == "length":
        reply["finish"] = "length"
    usage = {name: message[key] for name, key in _USAGE.items() if message.get(key) is not None}
    durations = {}
    for name in ("total", "load", "prompt_eval", "eval"):
        nanoseconds = message.get(f"{name}_duration")
        if nanoseconds is not None:
            durations[name] = nanoseconds / 1e9
    return reply | {"usage": usage, "durations": durations}


def _compared(turn: Json) -> Json:
    """Return what is compared of a turn.

    A figure is the sum for all replies, if each of them has it.
    """
    compared: Json = {}
    for number, reply in enumerate(turn["replies"], 1):
        fields = {name: reply[name] for name in _COMPARED if name in reply}
        compared[f"answer {number}"] = fields
    for number, result in enumerate(turn["tools"], 1):
        known = {key: result[key] for key in ("tool", "success", "content")}
        compared[f"result {number}"] = known
    for name, (kind, key) in _FIGURES.items():
        figures = [reply.get(kind, {}).get(key) for reply in turn["replies"]]
        if None not in figures:
            compared[name] = round(sum(figures), 3)
    return compared


def _difference(recorded: Json, replayed: Json) -> str:
    """Return the lines that differ, or "". Figures that were not recorded are not compared."""
    known = {
        key: value for key, value in replayed.items() if key in recorded or key not in _FIGURES
    }
    lines = unified_diff(
        _dump(recorded).splitlines(),
        _dump(known).splitlines(),
        fromfile="recorded",
        tofile="replayed",
        lineterm="",
    )
    return "\n".join(line for line in lines if not line.startswith("@@"))


def _dump(data: Any) -> str:
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=1_000_000)
