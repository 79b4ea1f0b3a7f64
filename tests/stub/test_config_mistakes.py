"""Mistakes in a configuration, reported with file, line and expected value; changes of the file at
runtime.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mochi_stub import StubServer
from mochi_stub.config import load, validate_config
from mochi_stub.yaml_file import ConfigError
from tests.stub.requests import send_message, send_request
from tests.support.cases import cases

ENTRY = "models:\n  a:\n    - _default: "


@cases(
    ("text", "line", "expected"),
    [
        ("", 1, "a mapping, found nothing"),
        ("models: [a]", 1, "a mapping as models, found a list"),
        ("model: {}", 1, "the key models, found 'model'"),
        ("include: everything", 1, "'default' as include, found 'everything'"),
        (
            "models:\n  a:\n    - hi: {type: echo, match: prefix}",
            3,
            "'exact', 'substring' or 'regex' as match, found 'prefix'",
        ),
        (
            "models:\n  a:\n    - hi: x\n    - '(hi':\n        {type: echo, match: regex}",
            4,
            "a regular expression, found",
        ),
        (
            "models:\n  a:\n    - 'a{9999999999}': {type: echo, match: regex}",
            3,
            "a regular expression, found",
        ),
        (
            f"{ENTRY}\n        type: message\n        tool_calls:\n          - name: "
            f"f\n            args: {{}}",
            7,
            "'args'",
        ),
        (
            f"{ENTRY}{{type: message, tool_calls: [{{name: f, arguments: [1]}}]}}",
            3,
            "a mapping as arguments",
        ),
        (
            "models:\n  a: []\n  A: []",
            3,
            "a name that differs from 'a' in more than case or :latest, found 'A'",
        ),
        (
            "models:\n  a:latest: []\n  b: []\n  a: []",
            4,
            "differs from 'a:latest' in more than case or :latest, found 'a'",
        ),
        ("models:\n  a: hello", 2, "a list as a, found 'hello'"),
        ("models:\n  a:\n    - hello", 3, "a mapping as a, found 'hello'"),
        ("models:\n  a:\n    - _inherit: b", 3, "in _inherit, found 'b'"),
        (
            "models:\n  a: [{_inherit: b}]\n  b: [{_inherit: a}]",
            3,
            "without a cycle, in _inherit, found 'a'",
        ),
        ("models:\n  a: [{_inherit: a}]", 2, "without a cycle, in _inherit, found 'a'"),
        (
            f"{ENTRY}{{content: x}}",
            3,
            "a type: message, echo, mirror, lorem, task, demo, embedding, error, file",
        ),
        (f"{ENTRY}{{type: massage}}", 3, "a type: message, echo"),
        (f"{ENTRY}\n        type: message\n        contents: x", 5, "found 'contents'"),
        (f"{ENTRY}{{type: echo, content: x}}", 3, "found 'content'"),
        (f"{ENTRY}{{type: message, contents: x}}", 3, "the key content, found 'contents'"),
        ("models:\n  a:\n    - hello:", 3, "a mapping as hello, found nothing"),
        (
            f"{ENTRY}\n        type: message\n        usage: {{output: -1}}",
            5,
            "a number greater than or equal to 0 as output, found -1",
        ),
        (f"{ENTRY}{{type: message, usage: {{total: 1}}}}", 3, "'input', 'output', 'reasoning'"),
        (
            f"{ENTRY}{{type: message, tool_calls: [{{arguments: {{}}}}]}}",
            3,
            "the key name in tool_calls",
        ),
        (
            f"{ENTRY}{{type: message, tool_calls: [{{name: f, arguments: x}}]}}",
            3,
            "a mapping as arguments, found 'x'",
        ),
        (
            f"{ENTRY}{{type: message, finish: tool_calls}}",
            3,
            "'stop', 'length' or 'content_filter' as finish",
        ),
        (
            f"{ENTRY}{{type: error, status: 200}}",
            3,
            "a number greater than or equal to 400 as status, found 200",
        ),
        (f'{ENTRY}{{type: error, headers: {{a: "x\\ny"}}}}', 3, "a valid header, found 'a'"),
        (f"{ENTRY}{{type: error, headers: {{a b: x}}}}", 3, "a valid header, found 'a b'"),
        (
            f"{ENTRY}{{type: error, headers: {{Content-Length: 9}}}}",
            3,
            "a header other than connection, content",
        ),
        (f"{ENTRY}\n        type: echo\n        pauses:\n          after: 1", 5, "found 'pauses'"),
        (f"{ENTRY}{{type: file}}", 3, "the key path in _default"),
        (
            f"{ENTRY}{{type: echo, tokens_per_second: 0}}",
            3,
            "a number greater than 0 as tokens_per_second, found 0",
        ),
        (
            f"{ENTRY}{{type: echo, jitter: 2}}",
            3,
            "a number less than or equal to 1 as jitter, found 2",
        ),
        (f"{ENTRY}{{type: echo, pause: 5}}", 3, "a mapping as pause, found 5"),
        (
            "models:\n  a:\n    - _model: {template_style: good}",
            3,
            "'native', 'template' or 'builtin' as template_style, found 'good'",
        ),
        ("models:\n  a:\n    - _model: {colour: red}", 3, "found 'colour'"),
        (
            "models:\n  a:\n    - _model: {embedding_length: 0}",
            3,
            "a number greater than or equal to 1 as embedding_length",
        ),
        ("models:\n  a:\n    - _model: {capabilities: [fly]}", 3, "'completion', 'tools'"),
        (
            "models:\n  a:\n    - _model: {modified_at: yesterday}",
            3,
            "as modified_at, found 'yesterday'",
        ),
        ("models:\n  a:\n    - _model: {parameter_size: big}", 3, "as parameter_size, found 'big'"),
        ("recordings: nowhere", 1, "one of models, include, found 'recordings'"),
        ("models:\n  a: [", 2, "YAML"),
        ("models:\n  a:\n    - é\x01", 3, "YAML"),
        ("models:\n\ta: 1", 2, "YAML"),
        ("models:\n  a: [{x: !!python/name:os.system 'x'}]", 2, "YAML"),
        ("models:\n  ? [a]\n  : 1", 2, "YAML"),
    ],
)
def test_mistake_is_reported_with_its_line(
    tmp_path: Path, text: str, line: int, expected: str
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(file)
    message = str(caught.value)
    assert message.startswith(f"{file}:{line}: expected ")
    assert expected in message
    assert "\n" not in message
    assert message in validate_config(file)


def test_file_that_is_not_text_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_bytes(b"models:\n  a: \xff\n")
    assert validate_config(file) == [f"{file}:2: expected UTF-8"]
    file.write_bytes(b"models: \x00\n")
    assert "expected YAML" in validate_config(file)[0]


def test_check_reports_all_mistakes_and_recorded_files(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("request:\n  url: http://x/api/chat\n")
    (tmp_path / "other.json").write_text(
        '{"request": {"url": "http://x/api/chat"},\n "response": {}}'
    )
    (tmp_path / "tags.json").write_text(
        '{"request": {"url": "http://x/api/tags"}, "response": {"body": {}}}'
    )
    file = tmp_path / "config.yaml"
    file.write_text(
        "models:\n  a:\n    - x: {type: file, path: missing.yaml}\n    - y: {type: file, path: "
        "broken.yaml}\n    - z: {type: file, path: other.json}\n    - v: {type: nothing}\n    - "
        "w: {}\n    - t: {type: file, path: tags.json}\n"
    )
    found = validate_config(file)
    assert [line.split(": expected")[0] for line in found] == [
        f"{tmp_path / 'missing.yaml'}:1",
        f"{tmp_path / 'broken.yaml'}:1",
        f"{tmp_path / 'other.json'}:2",
        f"{file}:6",
        f"{file}:7",
        f"{file}:8",
    ]


def test_check_reports_mistakes_beside_and_in_the_models(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "model: {}\ninclude: all\nrecordings: gone\nmodels:\n  a: [_inherit: echo]\n  b: [x: {}]\n"
    )
    found = validate_config(file)
    assert [int(line.removeprefix(f"{file}:").partition(":")[0]) for line in found] == [1, 2, 3, 6]


@pytest.mark.parametrize(
    ("path", "body", "where"),
    [
        ("/api/chat", {}, lambda answer: answer["error"]),
        ("/v1/chat/completions", {}, lambda answer: answer["error"]["message"]),
        ("/v1/messages", {"max_tokens": 9}, lambda answer: answer["error"]["message"]),
    ],
)
def test_missing_recorded_file_is_an_error_of_the_provider(
    tmp_path: Path, path: str, body: Any, where: Any
) -> None:
    (tmp_path / "gone.yaml").write_text("request: {url: http://x/api/chat}\nresponse: {body: {}}")
    (tmp_path / "config.yaml").write_text(
        "models: {a: [{_default: {type: file, path: gone.yaml}}]}"
    )
    with StubServer(config=tmp_path / "config.yaml", speed=0) as stub:
        (tmp_path / "gone.yaml").unlink()
        body = {
            "model": "a",
            "messages": [{"role": "user", "content": "x"}],
            "stream": True,
            **body,
        }
        answer = send_request(stub, "POST", path, body)
    assert answer.status == 500
    assert (
        where(answer.json)
        == f"{tmp_path / 'gone.yaml'}:1: expected a readable file (No such file or directory)"
    )


class Edited:
    """Server with its configuration file."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "config.yaml"
        self.write("first")
        self.stub = StubServer(config=self.file, speed=0)

    def write(self, answer: str) -> None:
        self.file.write_text(f"models: {{a: [{{_default: {answer}}}]}}")

    @property
    def answer(self) -> Any:
        return send_message(self.stub, "x", "a", stream=False).json["message"]["content"]


@pytest.fixture
def edited(tmp_path: Path) -> Iterator[Edited]:
    edited = Edited(tmp_path)
    with edited.stub:
        yield edited


def test_changed_file_applies_to_the_next_request(edited: Edited) -> None:
    assert edited.answer == "first"
    for answer in ("other", "third", "again", "first"):
        edited.write(answer)
        assert edited.answer == answer


def test_replaced_file_applies_to_the_next_request(edited: Edited, tmp_path: Path) -> None:
    assert edited.answer == "first"
    (tmp_path / "new.yaml").write_text("models: {a: [{_default: newer}], b: []}")
    (tmp_path / "new.yaml").replace(edited.file)
    assert [
        model["name"] for model in send_request(edited.stub, "GET", "/api/tags").json["models"]
    ] == [
        "a:latest",
        "b:latest",
    ]
    assert edited.answer == "newer"


def test_invalid_change_keeps_the_last_valid_config(
    edited: Edited, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "mochi_stub"):
        edited.file.write_text("models:\n  a: [{_default: {type: nonsense}}]")
        assert edited.answer == "first"
        assert edited.answer == "first"
        edited.file.unlink()
        assert edited.answer == "first"
        edited.write("mended")
        assert edited.answer == "mended"
    told = [
        record.getMessage() for record in caplog.records if "configuration" in record.getMessage()
    ]
    assert len(told) == 2
    assert f"{edited.file}:2: expected a type" in told[0]
    assert "expected a readable file" in told[1]


def test_changed_recorded_file_is_read_again(tmp_path: Path) -> None:
    recorded = tmp_path / "said.json"
    recorded.write_text('{"request": {"url": "http://x/api/chat"}, "response": {"body": {}}}')
    (tmp_path / "config.yaml").write_text(
        "models: {a: [{_default: {type: file, path: said.json}}]}"
    )
    with StubServer(config=tmp_path / "config.yaml", speed=0) as stub:
        for text in ("one", "two"):
            recorded.write_text(
                '{"request": {"url": "http://x/api/chat"}, "response": {"body":'
                f' {{"message": {{"content": "{text}"}}, "done": true}}}}}}'
            )
            answer = send_request(
                stub, "POST", "/api/generate", {"model": "a", "prompt": "x", "stream": False}
            )
            assert answer.json["response"] == text


def test_config_applies_when_its_invalid_recording_is_mended(
    edited: Edited, tmp_path: Path
) -> None:
    recorded = tmp_path / "said.json"
    edited.write("{type: file, path: said.json}")
    assert edited.answer == "first"
    recorded.write_text("{}")
    assert edited.answer == "first"
    recorded.write_text(
        '{"request": {"url": "http://x/api/chat"}, "response": {"body":'
        ' {"message": {"content": "mended"}, "done": true}}}'
    )
    assert edited.answer == "mended"
