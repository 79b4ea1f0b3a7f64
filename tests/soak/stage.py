"""The stub and the server, each its own process, and what the stub will say."""

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
    """A model that says so many tokens a second, and one that does not wait; both say the same."""
    config = directory / "models.yaml"
    config.write_text(_MODELS.format(paced=PACED, fast=FAST, rate=rate), encoding="utf-8")
    options = ["--config", str(config), "--port", "0", "--parallel", "0", "--log-level", "warning"]
    with running(python("mochi_stub", "run", *options)) as server:
        yield server


@contextmanager
def mochi(directory: Path, ollama: Server) -> Iterator[Server]:
    """The server as people run it, with a data directory of its own."""
    # A summary would be one more answer of the stub, at a time of its own.
    environment = {"MOCHI_SUMMARIZATION_ENABLED": "false", "MOCHI_LOG_LEVEL": "WARNING"}
    environment["MOCHI_KEEP_ALIVE_SECONDS"] = "5"  # so that idle connections are closed before they are counted
    command = python("mochi_server", "--port", "0", "--ollama-host", ollama.url, "--data-dir", str(directory))
    with running(command, environment) as server:
        yield server


def said(ollama: Server, count: int) -> tuple[str, int]:
    """What the stub says between the labels when asked for so many words, and how many tokens that is."""
    connection = HTTPConnection("127.0.0.1", ollama.port, timeout=30)
    try:
        messages = [{"role": "user", "content": instruct(words(count), label=_LABEL)}]
        connection.request(
            "POST", "/api/chat", json.dumps({"model": FAST, "messages": messages, "stream": False}).encode()
        )
        answer = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    text: str = answer["message"]["content"]
    return text.removeprefix(_LABEL).removesuffix(_LABEL).strip(), answer["eval_count"]


def allow_descriptors(wanted: int) -> bool:
    """Let this process and its children open so many files, if the system does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        return False
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    return True
