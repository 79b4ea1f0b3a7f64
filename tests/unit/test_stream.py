"""Bytes from Ollama, however the network cuts them."""

import orjson
import pytest

from mochi_server.errors import OllamaError
from mochi_server.ollama.stream import MAX_LINE_BYTES, LineReader

LINES = [{"message": {"content": text}, "done": False} for text in ("a\u0085b", "c\u2028d", "\U0001f375", "")]
LINES.append({"done": True})
WIRE = b"".join(orjson.dumps(line) + b"\n" for line in LINES)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, len(WIRE)])
def test_lines_are_whole_however_they_are_cut(size: int) -> None:
    reader = LineReader()
    read = [line for start in range(0, len(WIRE), size) for line in reader.feed(WIRE[start : start + size])]
    assert read == LINES
    assert reader.done
    assert reader.failure is None


def test_what_one_read_brought_is_one_batch() -> None:
    assert LineReader().feed(WIRE) == LINES


def test_a_last_line_without_its_newline_counts() -> None:
    reader = LineReader()
    assert reader.feed(WIRE[:-1]) == LINES[:-1]
    assert not reader.done
    assert reader.end() == LINES[-1:]
    assert reader.failure is None


def test_lines_before_an_error_are_read_and_those_behind_it_are_not() -> None:
    reader = LineReader()
    assert reader.feed(b'{"a":1}\n{"error":"kaput"}\n{"b":2}\n') == [{"a": 1}]
    assert isinstance(reader.failure, OllamaError)
    assert reader.failure.message == "kaput"


def test_blank_lines_are_skipped() -> None:
    assert LineReader().feed(b'\n\r\n{"a":1}\n \n') == [{"a": 1}]


def test_a_stream_without_done_is_a_failure() -> None:
    reader = LineReader()
    reader.feed(b'{"a":1}\n')
    assert reader.end() == []
    assert isinstance(reader.failure, OllamaError)


def test_a_line_without_end_is_given_up() -> None:
    reader = LineReader()
    reader.feed(b"x" * (MAX_LINE_BYTES + 1))
    assert isinstance(reader.failure, OllamaError)
