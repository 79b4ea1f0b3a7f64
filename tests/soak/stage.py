"""The stub and the server, each in its own process, and the expected answers."""

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

from tests.benchmarks.processes import Server, python, running
from tests.support.instructions import instruct, words

PACED = "paced"
FAST = "fast"
_LABEL = "REFERENCE"
_MODELS = """models:
  {paced}:
    - _model: {{profile: token, chars_per_token: 4, tokens_per_second: {rate}, jitter: 0.2}}
  {fast}:
    - _model: {{profile: token, chars_per_token: 4, tokens_per_second: 100000}}
"""


@contextmanager
def stub(directory: Path, rate: float) -> Iterator[Server]:
    """Start a stub with a model of `rate` tokens per second and one without pacing.

    Both send the same text.
    """
    config = directory / "models.yaml"
    config.write_text(_MODELS.format(paced=PACED, fast=FAST, rate=rate), encoding="utf-8")
    options = ["--config", str(config), "--port", "0", "--parallel", "0", "--log-level", "warning"]
    with running(python("mochi_stub", "run", *options)) as server:
        yield server


@contextmanager
def mochi(directory: Path, ollama: Server, cache_bytes: int) -> Iterator[Server]:
    """Start the server with its own data directory and `cache_bytes` of memory for ended runs."""
    # A summary would be an additional request to the stub at any time.
    environment = {"MOCHI_SUMMARIZATION_ENABLED": "false", "MOCHI_LOG_LEVEL": "WARNING"}
    # So that idle connections are closed before they are counted.
    environment["MOCHI_KEEP_ALIVE_SECONDS"] = "5"
    command = python(
        "tests.soak.server",
        str(cache_bytes),
        "--port",
        "0",
        "--ollama-host",
        ollama.url,
        "--data-dir",
        str(directory),
    )
    with running(command, environment) as server:
        yield server


def expected_answer(ollama: Server, count: int) -> tuple[str, int]:
    """Return the stub's text between the labels for `count` words, and its number of tokens."""
    connection = HTTPConnection("127.0.0.1", ollama.port, timeout=30)
    try:
        messages = [{"role": "user", "content": instruct(words(count), label=_LABEL)}]
        connection.request(
            "POST",
            "/api/chat",
            json.dumps({"model": FAST, "messages": messages, "stream": False}).encode(),
        )
        answer = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    text: str = answer["message"]["content"]
    return text.removeprefix(_LABEL).removesuffix(_LABEL).strip(), answer["eval_count"]


def allow_descriptors(count: int) -> bool:
    """Raise the limit of open files for this process and its children, if the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        return False
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    return True
