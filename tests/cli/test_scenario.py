"""Recorded sessions as tests: `mochi-server export-scenario` and `mochi-server replay`."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml

from mochi_server.cli.scenario import differences, load_recording
from mochi_server.testing import ThreadedServer, check_scenario
from mochi_stub import Machine, Reply, StubServer, ToolCall
from mochi_stub.config import validate_config
from mochi_stub.reply import Cut, Failure, Text, Usage
from mochi_stub.server import ScriptedStub
from tests.cli.commands import run_here
from tests.support.agents import write_agent
from tests.support.cases import cases
from tests.support.process import run
from tests.support.tools import write_tools
from tests.support.webhooks import SECRET, Receiver

TOOLS = '''
    from itertools import count
    _numbers = count(1)

    def next_number(step: int = 1) -> int:
        """Return another number each time."""
        return step * next(_numbers)

    def find_person(name: str, phone: int = 0) -> str:
        """Find a person."""
        if name == "Nobody":
            raise LookupError(name)
        return f"{name} lives in Oslo."

    __all__ = ["next_number", "find_person"]
    __read_only__ = ["next_number"]
'''


def take_first(decisions: list[Any], _: object) -> Any:
    return decisions.pop(0)


class Recorder:
    """A server whose model is a scripted stub. Its sessions are in `directory`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.stub = ScriptedStub()
        self.stub.machine = Machine(parallel=1)
        write_tools(directory, TOOLS)

    def record(self, turns: list[Any], policy: str = "never_confirm", **settings: Any) -> str:
        """Create a session.

        A turn is a message and its replies, and maybe options or the user's decisions.
        """
        tools = {"tools": ["next_number", "find_person"], "execution_policy": policy}
        with (
            self.stub,
            ThreadedServer(ollama_host=self.stub.url, data_dir=str(self.directory)) as server,
        ):
            session_id: str = server.client.create_session(
                "mochi", tool_settings=tools, **settings
            )["session_id"]
            for message, replies, *rest in turns:
                self.stub.script(*replies)
                options = rest[0] if rest and isinstance(rest[0], dict) else {}
                decisions: list[Any] = rest[0] if rest and isinstance(rest[0], list) else []
                decide = partial(take_first, [*decisions])
                with server.client.stream(
                    session_id, message, on_confirm=decide, **options
                ) as events:
                    list(events)
        self.session_id = session_id
        return session_id

    def export(self, session_id: str, *arguments: str) -> Path:
        code, text = run_here("export-scenario", session_id, *arguments, cwd=self.directory)
        assert code == 0, text
        return self.directory / "scenario.yaml"


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path)


def check(scenario: Path) -> str:
    """Replay a scenario against the stub. Return the difference, or ""."""
    with StubServer(config=scenario, speed=0) as stub:
        try:
            check_scenario(scenario, ollama_host=stub.url, data_dir=str(scenario.parent / "replay"))
        except AssertionError as error:
            return str(error)
    return ""


def run_pytest(directory: Path) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_scenario.py"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def ten_turns() -> list[Any]:
    call = ToolCall("next_number", {"step": 2})
    return [
        ("Hello!", ["Hi, how are you?"]),
        ("Yes", [Reply.of("First yes.", reasoning="Is it a yes?")], {"think": True}),
        ("Yes", [call, Reply.of("Two, and", tool_calls=[call]), "four."]),
        ("And now?", [call, "The number is six."]),
        ("Who is Ana?", [ToolCall("find_person", {"name": "Ana"}), "Ana lives in Oslo."]),
        (
            "Who is Nobody?",
            [ToolCall("find_person", {"name": "Nobody"}), "There is no such person."],
        ),
        ("Yes", ["Third yes.\nIt has two lines: and a colon, 'quotes' and #."]),
        ("Long?", [Reply.of("It is lo", finish="length", usage=Usage(output=5))]),
        (
            "Both",
            [
                Reply.of("Both.", tool_calls=[call, ToolCall("find_person", {"name": "Bo"})]),
                "Eight and Bo.",
            ],
        ),
        ("Bye", [Reply.of("123", usage=Usage(input=777, output=99, cache_read=700))]),
    ]


@pytest.mark.slow
def test_ten_turns_with_tools_pass_and_a_changed_answer_fails(
    recorder: Recorder, tmp_path: Path
) -> None:
    scenario = recorder.export(recorder.record(ten_turns(), system_prompt="Be brief."))
    assert validate_config(scenario) == []
    assert run_pytest(tmp_path)[0] == 0

    scenario.write_text(scenario.read_text().replace("The number is six.", "The number is seven."))
    code, text = run_pytest(tmp_path)
    assert code == 1
    lines = [line.removeprefix("E   ").strip() for line in text.splitlines()]
    at = lines.index("AssertionError: turn 4 differs from the recorded session:")
    assert lines[at + 1 : at + 3] == ["--- recorded", "+++ replayed"]
    assert {"-  content: The number is six.", "+  content: The number is seven."} <= {*lines}


CHANGES = {
    ("reasoning: Is it a yes?", "reasoning: Is it a no?"): (2, "+  reasoning: Is it a no?"),
    ("step: 2", "step: 3"): (3, "+      step: 3"),
    ("name: find_person", "name: find_persons"): (5, "+  - name: find_persons"),
    ("output: 99", "output: 98"): (10, "+answer tokens: 98"),
    ("cache_read: 700", "cache_read: 701"): (10, "+cached tokens: 701"),
}
"""The turn that each change of the recorded replies affects, and the line that shows it."""


def test_changed_replies_are_shown_and_unchanged_are_equal(ten: Path, tmp_path: Path) -> None:
    for file in ten.parent.glob("scenario.*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    scenario, recorded = tmp_path / "scenario.yaml", load_recording(ten)
    for change in CHANGES:
        scenario.write_text(scenario.read_text().replace(*change, 1))
    with (
        StubServer(config=scenario, speed=0) as stub,
        ThreadedServer(
            ollama_host=stub.url, data_dir=str(ten.parent), sessions_dir=str(tmp_path)
        ) as server,
    ):
        shown = [difference.splitlines() for difference in differences(recorded, server.client)]
    assert {number for number, lines in enumerate(shown, 1) if lines} == {
        turn for turn, _ in CHANGES.values()
    }
    for turn, line in CHANGES.values():
        assert line in shown[turn - 1]
    begin = "turn 2 differs from the recorded session:\n--- recorded\n+++ replayed\n"
    assert check(scenario).startswith(begin)


@pytest.fixture(scope="module")
def ten(tmp_path_factory: pytest.TempPathFactory) -> Path:
    recorder = Recorder(tmp_path_factory.mktemp("ten"))
    return recorder.export(recorder.record(ten_turns(), system_prompt="Be brief."))


def test_scenario_has_what_the_model_answered(ten: Path) -> None:
    (model,) = yaml.safe_load(ten.read_text())["models"].values()
    (turns,) = [entry["_turns"] for entry in model if "_turns" in entry]
    assert [turn["user"] for turn in turns[:3]] == ["Hello!", "Yes", "Yes"]
    assert turns[1]["replies"][0]["reasoning"] == "Is it a yes?"
    assert turns[7]["replies"][0]["finish"] == "length"
    assert turns[9]["replies"][0]["usage"] == {"input": 777, "output": 99, "cache_read": 700}
    durations = turns[0]["replies"][0]["durations"]
    assert durations["total"] == pytest.approx(
        durations["load"] + durations["prompt_eval"] + durations["eval"]
    )


def test_users_decisions_are_repeated(recorder: Recorder) -> None:
    """The user denies a call, approves one, and approves one for the session."""
    call = ToolCall("find_person", {"name": "Ana"})
    number = ToolCall("next_number")
    turns = [
        ("One", [call, "Denied."], [{"approved": False, "reason": "Not now."}]),
        ("Two", [call, number, "Found."], [{"approved": True}]),
        ("Three", [call, call, "Again."], [{"approved": True, "remember": "session"}]),
        ("Four", [call, "And again."], []),
    ]
    scenario = recorder.export(recorder.record(turns, "confirm_destructive"))
    recorded = yaml.safe_load(scenario.with_suffix(".recorded.yaml").read_text())
    assert (
        recorded["turns"][0]["tools"][0]["content"] == "The user denied this call. Reason: Not now."
    )
    assert check(scenario) == ""


def test_refused_repetition_of_a_call_takes_no_recorded_result(recorder: Recorder) -> None:
    call = ToolCall("next_number")
    turns = [
        ("One", [Reply.of(tool_calls=[call, call, call, call]), "Enough."]),
        ("Two", [call, "Four."]),
        (
            "Three",
            [ToolCall("unknown"), ToolCall("find_person", {"name": 1, "other": 2}), "Wrong."],
        ),
    ]
    scenario = recorder.export(recorder.record(turns))
    recorded = yaml.safe_load(scenario.with_suffix(".recorded.yaml").read_text())["turns"]
    assert recorded[0]["tools"][3]["content"].startswith("The call was not run: ")
    assert check(scenario) == ""


def test_interrupted_and_failed_turns_are_repeated(recorder: Recorder) -> None:
    turns = [
        ("One", [Reply([Text("Half an ans"), Cut()])]),
        ("Two", [Reply([Failure("out of order", 500)])]),
        ("Three", [ToolCall("next_number"), Reply([Failure("out of order", 500)])]),
        ("Four", ["Better."]),
    ]
    assert check(recorder.export(recorder.record(turns))) == ""


def test_mask_replaces_personal_data_in_every_file(recorder: Recorder, tmp_path: Path) -> None:
    call = ToolCall("find_person", {"name": "Ana Lund", "phone": 5551234})
    answer = Reply.of("Ana Lund has 555-1234.", reasoning="Ana!")
    session_id = recorder.record(
        [("Who is Ana Lund?", [call, answer], {"think": True}), ("ana?", ["Yes, ANA."])],
        system_prompt="I am Ana.",
    )
    scenario = recorder.export(session_id, "--mask", r"(?i)ana( lund)?|555-?1234")
    for file in (*tmp_path.glob("scenario*"), tmp_path / "test_scenario.py"):
        assert not any(text in file.read_text().lower() for text in ("ana", "lund", "1234")), file
    assert "user: Who is ***?" in scenario.read_text()
    assert check(scenario) == ""


SECRET_SCHEMA = {
    "type": "object",
    "title": "About Ana Lund",
    "properties": {
        "ana": {
            "type": "string",
            "description": "What Ana says.",
            "enum": ["Ana", "no"],
            "maxLength": 5551234,
        },
        "phones": {
            "type": "array",
            "items": {"anyOf": [{"const": 5551234}, {"pattern": "^Lund$"}]},
        },
        "home": {"$ref": "#/$defs/Lund", "default": {"ana": ["Lund"]}, "x-ana": "Lund"},
    },
    "required": ["ana"],
    "dependentRequired": {"ana": ["home"]},
    "patternProperties": {"^ana": True},
    "$defs": {"Lund": {"type": "string", "format": "email", "examples": ["ana@lund"]}},
    "additionalProperties": False,
}


def test_settings_that_disable_something_are_exported(recorder: Recorder) -> None:
    session_id = recorder.record([("Hello!", ["Hi."])], think=False, keep_alive=0)
    scenario = recorder.export(session_id)
    session = load_recording(scenario)["session"]
    assert (session["think"], session["keep_alive"]) == (False, 0)
    assert check(scenario) == ""


def test_mask_replaces_personal_data_in_the_settings(recorder: Recorder) -> None:
    answer = {"ana": "Ana", "phones": [5551234, "Lund"], "home": "ana@lund"}
    session_id = recorder.record(
        [("Hello!", [json.dumps(answer)])],
        options={"stop": ["Ana Lund:"], "seed": 5551234, "top_k": None},
        format=SECRET_SCHEMA,
        agent_settings={
            "enabled_agents": [],
            "selection_metadata": {"ana": {"chosen by": "Lund", "phone": 5551234}},
        },
        keep_alive="5m",
    )
    scenario = recorder.export(session_id, "--mask", "(?i)ana|lund|5551234")
    recorded = load_recording(scenario)
    session, (reply,) = recorded["session"], recorded["turns"][0]["replies"]
    assert json.loads(reply["content"]) == {"***": "***", "phones": [0, "***"], "home": "***@***"}
    assert session["options"] == {"stop": ["*** ***:"], "seed": 5551234, "top_k": None}
    assert session["agent_settings"]["selection_metadata"] == {
        "***": {"chosen by": "***", "phone": 0}
    }
    assert session["format"] == {
        "type": "object",
        "title": "About *** ***",
        "properties": {
            "***": {
                "type": "string",
                "description": "What *** says.",
                "enum": ["***", "no"],
                "maxLength": 5551234,
            },
            "phones": {
                "type": "array",
                "items": {"anyOf": [{"const": 0}, {"pattern": r"^\*\*\*$"}]},
            },
            "home": {"$ref": "#/$defs/***2", "default": {"***": ["***"]}, "x-***": "***"},
        },
        "required": ["***"],
        "dependentRequired": {"***": ["home"]},
        "patternProperties": {r"^\*\*\*": True},
        "$defs": {"***2": {"type": "string", "format": "email", "examples": ["***@***"]}},
        "additionalProperties": False,
    }
    assert check(scenario) == ""


def test_masked_names_of_properties_stay_different(recorder: Recorder) -> None:
    schema = {
        "type": "object",
        "properties": {"ana": {"type": "string"}, "Lund": {"type": "integer"}},
        "required": ["ana", "Lund"],
        "dependentRequired": {"Lund": ["ana"]},
    }
    answer = {"ana": "yes", "Lund": 1}
    session_id = recorder.record([("Hello!", [json.dumps(answer)])], format=schema)
    scenario = recorder.export(session_id, "--mask", "(?i)ana|lund")
    recorded = load_recording(scenario)
    masked = recorded["session"]["format"]
    assert masked["properties"] == {"***": {"type": "string"}, "***2": {"type": "integer"}}
    assert masked["required"] == ["***", "***2"]
    assert masked["dependentRequired"] == {"***2": ["***"]}
    (reply,) = recorded["turns"][0]["replies"]
    assert json.loads(reply["content"]) == {"***": "yes", "***2": 1}
    assert check(scenario) == ""


def test_mask_replaces_values_of_repeated_names(recorder: Recorder) -> None:
    answer = '{"name": "Ana", "name": "x"}'
    session_id = recorder.record([("Hello!", [answer])], format={"type": "object"})
    scenario = recorder.export(session_id, "--mask", "Ana")
    (reply,) = load_recording(scenario)["turns"][0]["replies"]
    assert reply["content"] == '{"name": "x"}'
    assert "Ana" not in scenario.read_text()
    assert check(scenario) == ""


def test_mask_of_digits_keeps_the_indices_of_references(recorder: Recorder) -> None:
    schema = {
        "allOf": [{"properties": {"a": {"$ref": "#/$defs/1"}}}],
        "anyOf": [{"$ref": "#/allOf/0"}],
        "$defs": {"1": {"type": "integer"}},
    }
    session_id = recorder.record([("Hello!", ['{"a": 7}'])], format=schema)
    scenario = recorder.export(session_id, "--mask", "[0-9]+")
    masked = load_recording(scenario)["session"]["format"]
    assert masked["anyOf"] == [{"$ref": "#/allOf/0"}]
    assert masked["allOf"] == [{"properties": {"a": {"$ref": "#/$defs/***"}}}]
    assert check(scenario) == ""


def test_mask_of_all_text_keeps_names_and_structure(recorder: Recorder) -> None:
    call, answer = ToolCall("find_person", {"name": "Ana"}), json.dumps({"ana": "Ana"})
    denial, approval = {"approved": False, "reason": "Not Ana."}, {"approved": True}
    schema = {
        "type": "object",
        "properties": {"ana": {"type": "string", "enum": ["Ana"]}},
        "required": ["ana"],
    }
    session_id = recorder.record(
        [("One", [call, answer], [denial]), ("Two", [call, answer], [approval])],
        "always_confirm",
        options={"stop": None, "num_keep": 4, "temperature": 0.5},
        format=schema,
    )
    scenario = recorder.export(session_id, "--mask", "(?s).+")
    recorded = load_recording(scenario)
    session, results = recorded["session"], [turn["tools"][0] for turn in recorded["turns"]]
    assert (session["model"], session["tool_settings"]["tools"]) == (
        "mochi",
        ["next_number", "find_person"],
    )
    assert session["options"] == {"stop": None, "num_keep": 4, "temperature": 0.5}
    assert list(session["format"]) == list(schema)
    assert [result["tool"] for result in results] == ["find_person", "find_person"]
    assert [result["content"] for result in results] == [
        "The user denied this call. Reason: ***",
        "***",
    ]
    assert "Ana" not in scenario.read_text() + scenario.with_suffix(".recorded.yaml").read_text()
    assert check(scenario) == ""


def test_help_says_what_a_mask_does_not_replace(tmp_path: Path) -> None:
    _, text = run_here("export-scenario", "--help", cwd=tmp_path)
    assert "the names of models, tools and agents stay, because" in " ".join(text.split())


def test_failure_of_a_replayed_turn_is_shown(ten: Path, tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text(
        "models: {other: [{_default: {type: error, message: out of order}}]}"
    )
    with StubServer(config=tmp_path / "other.yaml", speed=0) as stub:
        command = ["replay", str(ten), "--model", "other", "--ollama-host", stub.url]
        code, text = run_here(*command, cwd=tmp_path)
    assert code == 0
    assert text.count(": differs") == 10
    assert "out of order" in text


@pytest.mark.parametrize(
    "answers",
    [
        [{"role": "assistant", "content": "Hi."}],
        [{"role": "assistant", "content": "A long answer. " * 4000}],
        [
            {
                "role": "assistant",
                "content": "Hi.",
                "thinking": None,
                "tool_calls": None,
                "eval_count": None,
            }
        ],
        [{"role": "assistant", "content": "Hi."}, {"role": "system", "content": "Rhyme."}],
    ],
    ids=["short", "long", "nulls", "later system message"],
)
def test_session_without_figures_is_checked_without_them(
    recorder: Recorder, answers: list[Any]
) -> None:
    """Sessions of other programs can be imported. They have no figures."""
    session_id = recorder.record([("Hello!", ["Hi."])])
    (file,) = (recorder.directory / "chat_sessions").glob(f"{session_id}.json")
    data = json.loads(file.read_text())
    data["messages"][1:] = answers
    file.write_text(json.dumps(data))
    assert check(recorder.export(session_id)) == ""


def test_turn_that_waits_for_approval_is_no_part_of_the_scenario(recorder: Recorder) -> None:
    session_id = recorder.record([("Hello!", ["Hi."])], "always_confirm")
    with (
        recorder.stub,
        ThreadedServer(ollama_host=recorder.stub.url, data_dir=str(recorder.directory)) as server,
    ):
        recorder.stub.script(ToolCall("next_number"))
        with server.client.stream(session_id, "Number?") as events:
            next(event for event in events if event.type == "tool_call_confirmation_required")
    scenario = recorder.export(session_id)
    assert "Number?" not in scenario.read_text()
    assert check(scenario) == ""


def test_dots_in_the_name_do_not_hinder_the_import_of_the_test(
    recorder: Recorder, tmp_path: Path
) -> None:
    recorder.export(recorder.record([("Hello!", ["Hi."])]))
    code, text = run(
        "mochi_server", "export-scenario", recorder.session_id, "-o", "chat.v2.yaml", cwd=tmp_path
    )
    assert (code, text.splitlines()[-1]) == (0, "wrote test_chat_v2.py")
    assert "with_name('chat.v2.yaml')" in (tmp_path / "test_chat_v2.py").read_text()


def test_export_overwrites_no_other_test(recorder: Recorder, tmp_path: Path) -> None:
    session_id = recorder.record([("Hello!", ["Hi."])])
    recorder.export(session_id)
    recorder.export(session_id)
    (tmp_path / "test_tools.py").write_text("# my tests")
    code, text = run_here("export-scenario", session_id, "-o", "tools.yaml", cwd=tmp_path)
    assert (code, text) == (
        1,
        "mochi-server: test_tools.py exists and is another test; choose another name with -o\n",
    )
    assert [path.name for path in tmp_path.glob("*tools*.*")] == ["test_tools.py"]


def test_export_into_a_missing_folder_is_explained(recorder: Recorder, tmp_path: Path) -> None:
    session_id = recorder.record([("Hello!", ["Hi."])])
    recorder.export(session_id)
    code, text = run_here("export-scenario", session_id, "-o", "no/tools.yaml", cwd=tmp_path)
    assert (code, text) == (
        1,
        "mochi-server: cannot write no/tools.yaml: No such file or directory\n",
    )


def test_replay_approves_only_tools_that_the_user_approved(
    recorder: Recorder, tmp_path: Path
) -> None:
    turns = [("One", [ToolCall("find_person", {"name": "Ana"}), "Found."], [{"approved": True}])]
    recorder.export(recorder.record(turns, "always_confirm"))
    other = """
    models:
      qwen3:14b:
        - _turns:
            - user: One
              replies:
                - {type: message, tool_calls: [{name: find_person, arguments: {name: Bo}}, {name: next_number}]}
                - "Found."
    """
    (tmp_path / "other.yaml").write_text(dedent(other))
    with StubServer(config=tmp_path / "other.yaml", speed=0) as stub:
        command = ["replay", "scenario.yaml", "--model", "qwen3:14b", "--ollama-host", stub.url]
        code, text = run_here(*command, cwd=tmp_path, MOCHI_API_KEYS="secret")
    assert code == 0
    assert "+  content: Bo lives in Oslo." in text.splitlines()
    assert "+  content: The user denied this call." in text.splitlines()
    assert not (tmp_path / "usage").exists(), "the replay counts for a key of the operator"


@pytest.mark.parametrize("undecided", ["not interactive", "timeout"])
def test_replay_approves_no_call_that_the_user_did_not_decide(
    recorder: Recorder, tmp_path: Path, undecided: str
) -> None:
    session_id = recorder.record([("Hello!", ["Hi."])], "always_confirm")
    settings = {"tool_confirmation_timeout_seconds": 1} if undecided == "timeout" else {}
    with (
        recorder.stub,
        ThreadedServer(
            ollama_host=recorder.stub.url, data_dir=str(recorder.directory), **settings
        ) as server,
    ):
        recorder.stub.script(ToolCall("find_person", {"name": "Ana"}), "Unknown.")
        if undecided == "timeout":
            with server.client.stream(session_id, "Ana?") as events:
                list(events)
        else:
            server.client.chat(session_id, "Ana?")
    scenario = recorder.export(session_id)
    assert check(scenario) == ""
    assert "This call was denied: " in scenario.with_suffix(".recorded.yaml").read_text()
    assert "Ana lives in Oslo." not in replayed(scenario)


def test_replay_of_a_recording_without_deciders_approves_nothing(recorder: Recorder) -> None:
    call = ToolCall("find_person", {"name": "Ana"})
    turns = [("One", [call, "Found."], [{"approved": True}])]
    scenario = recorder.export(recorder.record(turns, "always_confirm"))
    assert replayed(scenario) == "turn 1: equal\n"
    file = scenario.with_suffix(".recorded.yaml")
    recorded = file.read_text()
    assert recorded.count("    decided_by: user\n") == 1
    file.write_text(recorded.replace("    decided_by: user\n", ""))
    assert "+  content: The user denied this call." in replayed(scenario).splitlines()
    assert check(scenario) == ""


def test_replay_repeats_the_decision_after_a_call_without_one(recorder: Recorder) -> None:
    """Invalid arguments and an approval for the session need no decision."""
    call, invalid = ToolCall("find_person", {"name": "Ana"}), ToolCall("find_person", {"other": 2})
    turns = [
        ("One", [invalid, call, "Denied."], [{"approved": False}]),
        ("Two", [call, "Found."], [{"approved": True, "remember": "session"}]),
        ("Three", [invalid, call, "Found again."], []),
    ]
    scenario = recorder.export(recorder.record(turns, "always_confirm"))
    assert replayed(scenario) == "turn 1: equal\nturn 2: equal\nturn 3: equal\n"
    assert check(scenario) == ""


def test_replay_does_not_approve_a_call_whose_arguments_the_user_corrected(
    recorder: Recorder,
) -> None:
    calls = [ToolCall("find_person", {"name": name}) for name in ("Ana", "Bo")]
    corrected = {"approved": True, "arguments": {"name": "Cleo"}}
    turns = [("One", [*calls, "Found."], [corrected, {"approved": True}])]
    scenario = recorder.export(recorder.record(turns, "always_confirm"), "--mask", "Cleo")
    assert "Cleo" not in scenario.with_suffix(".recorded.yaml").read_text()
    assert check(scenario) == ""
    text = replayed(scenario)
    assert "+  content: The user denied this call." in text.splitlines()
    assert "Ana lives" not in text


def test_replay_does_not_approve_a_call_of_an_agent(recorder: Recorder, tmp_path: Path) -> None:
    """The user's approval is that of the later call in the session."""
    write_agent(
        tmp_path,
        helper='def find_person(name: str) -> str:\n    """Find."""\n    return "Secret"\n',
        __init__='from .helper import find_person\n__all__ = ["find_person"]\n',
    )
    task = ToolCall("agent", {"agent": "helper", "instruction": "Find Ana."})
    call = ToolCall("find_person", {"name": "Ana"})
    replies: list[Any] = [task, "I find Ana.", call, "Denied.", call, "Found."]
    turns = [("One", replies, [{"approved": False}, {"approved": True}])]
    agents = {"enabled_agents": ["helper"]}
    recorder.export(recorder.record(turns, "always_confirm", agent_settings=agents))
    with recorder.stub as stub:
        stub.script(*replies)
        code, text = run_here("replay", "scenario.yaml", "--ollama-host", stub.url, cwd=tmp_path)
    assert code == 0
    assert "Secret" not in text
    assert "+  success: false" not in text


def test_check_repeats_the_decision_after_a_refused_repetition(recorder: Recorder) -> None:
    call, other = ToolCall("find_person", {"name": "Ana"}), ToolCall("find_person", {"name": "Bo"})
    replies = [Reply.of(tool_calls=[call, call, call, call, other]), "Enough."]
    approved, denied = {"approved": True}, {"approved": False}
    turns = [("One", replies, [approved, approved, approved, denied])]
    scenario = recorder.export(recorder.record(turns, "always_confirm"))
    assert check(scenario) == ""
    assert replayed(scenario) == "turn 1: equal\n"


def replayed(scenario: Path) -> str:
    """Return what `replay` prints for the recorded answers and the tools beside the scenario."""
    with StubServer(config=scenario, speed=0) as stub:
        command = ["replay", scenario.name, "--ollama-host", stub.url]
        code, text = run_here(*command, cwd=scenario.parent)
    assert code == 0, text
    return text


def test_replay_uses_the_tools_of_a_relative_directory_and_sends_no_webhooks(
    recorder: Recorder, tmp_path: Path
) -> None:
    call = ToolCall("find_person", {"name": "Ana"})
    scenario = recorder.export(recorder.record([("Who is Ana?", [call, "She lives in Oslo."])]))
    receiver = Receiver()
    with StubServer(config=scenario, speed=0) as stub:
        command = ["replay", str(scenario), "--data-dir", tmp_path.name]
        settings = {"MOCHI_WEBHOOK_URL": receiver.url, "MOCHI_WEBHOOK_SECRET": SECRET}
        code, text = run_here(*command, "--ollama-host", stub.url, cwd=tmp_path.parent, **settings)
    receiver.close()
    assert (code, text) == (0, "turn 1: equal\n")
    assert receiver.received == []


def test_replay_with_another_model_prints_what_differs(recorder: Recorder, tmp_path: Path) -> None:
    call, figures = ToolCall("next_number", {"step": 2}), Usage(input=9, output=3, cache_read=5)
    turns = [
        ("Hello!", [Reply.of("Hi.", usage=Usage(input=10, output=2, cache_read=0))]),
        ("Number?", [Reply.of(tool_calls=[call], usage=figures), Reply.of("Two.", usage=figures)]),
    ]
    recorder.export(recorder.record(turns))
    other = """
    models:
      other:
        - "Hello!": {type: message, content: "Hi.", usage: {input: 10, output: 2, cache_read: 0}}
        - "Number?":
            {type: message, content: "One.", tool_calls: [{name: next_number}], usage: {output: 4, cache_read: 0}}
    """
    (tmp_path / "other.yaml").write_text(dedent(other))
    with StubServer(config=tmp_path / "other.yaml", speed=0, machine=Machine(parallel=1)) as stub:
        command = ["replay", "scenario.yaml", "--model", "other"]
        run_here("keys", "add", "ana", cwd=tmp_path, MOCHI_API_KEYS_FILE="keys")
        # Only the command uses its server, which therefore needs no key.
        code, text = run(
            "mochi_server", *command, cwd=tmp_path, OLLAMA_HOST=stub.url, MOCHI_API_KEYS_FILE="keys"
        )
    assert code == 0, text
    lines = text.splitlines()
    assert lines[0].startswith("turn 1: ")
    assert "turn 2: differs" in lines
    for line in (
        "-  content: Two.",
        "+  content: One.",
        "-      step: 2",
        "-answer tokens: 6",
        "+answer tokens: 8",
        "-cached tokens: 10",
        "+cached tokens: 0",
    ):
        assert line in lines[lines.index("turn 2: differs") :], text
    assert [path.name for path in (tmp_path / "chat_sessions").glob("*.json")] == [
        f"{recorder.session_id}.json"
    ]


@cases(
    ("arguments", "problem"),
    [
        (["export-scenario", "0123456789"], "Session with ID '0123456789' not found."),
        (
            ["export-scenario", "0123456789", "--mask", "("],
            "--mask is not a regular expression: missing )",
        ),
        (["export-scenario"], "the following arguments are required: SESSION_ID"),
        (
            ["replay", "missing.yaml"],
            "cannot read missing.recorded.yaml, which export-scenario writes beside missing.yaml",
        ),
        (["replay", "broken.yaml"], "cannot read broken.recorded.yaml"),
        (["replay", "ok.yaml"], "Cannot reach Ollama"),
        (["replay", "ok.yaml", "--modell", "x"], "unrecognized arguments: --modell"),
        (["replay", "ok.yaml", "--port", "1"], "unrecognized arguments: --port"),
        (["--port", "1", "replay", "ok.yaml"], "replay does not accept --port"),
    ],
)
def test_error_is_one_line(tmp_path: Path, arguments: list[str], problem: str) -> None:
    (tmp_path / "broken.recorded.yaml").write_text("a: [")
    (tmp_path / "ok.recorded.yaml").write_text("session: {model: x}\nturns: []")
    code, text = run_here(*arguments, cwd=tmp_path, OLLAMA_HOST="http://127.0.0.1:9")
    assert code in (1, 2)
    assert problem in text
    assert text.startswith("mochi-server")
    assert text.count("\n") == 1
