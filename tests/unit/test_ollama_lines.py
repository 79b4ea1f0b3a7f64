"""Parser of Ollama's NDJSON lines for chunks of any size."""

import orjson

from mochi_server.errors import OllamaError
from mochi_server.ollama.transport import LineReader
from tests.support.cases import cases

LINES = [
    {"message": {"content": text}, "done": False}
    for text in ("a\u0085b", "c\u2028d", "\U0001f375", "")
]
LINES.append({"done": True})
WIRE = b"".join(orjson.dumps(line) + b"\n" for line in LINES)


@cases("size", [1, 2, 3, 7, 64, len(WIRE)])
def test_lines_are_assembled_from_any_chunks(size: int) -> None:
    reader = LineReader()
    read = [
        line
        for start in range(0, len(WIRE), size)
        for line in reader.feed(WIRE[start : start + size])
    ]
    assert read == LINES
    assert reader.done
    assert reader.failure is None


def test_one_read_makes_one_batch() -> None:
    assert LineReader().feed(WIRE) == LINES


def test_last_line_without_newline_is_read() -> None:
    reader = LineReader()
    assert reader.feed(WIRE[:-1]) == LINES[:-1]
    assert not reader.done
    assert reader.end() == LINES[-1:]
    assert reader.failure is None


def test_lines_after_an_error_are_not_read() -> None:
    reader = LineReader()
    assert reader.feed(b'{"a":1}\n{"error":"kaput"}\n{"b":2}\n') == [{"a": 1}]
    assert isinstance(reader.failure, OllamaError)
    assert reader.failure.message == "Ollama failed: kaput"


def test_blank_lines_are_skipped() -> None:
    assert LineReader().feed(b'\n\r\n{"a":1}\n \n') == [{"a": 1}]


def test_stream_without_done_is_an_error() -> None:
    reader = LineReader()
    reader.feed(b'{"a":1}\n')
    assert reader.end() == []
    assert isinstance(reader.failure, OllamaError)
