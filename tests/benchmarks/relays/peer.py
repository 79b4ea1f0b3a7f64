"""LiteLLM's proxy, a common alternative in front of Ollama, configured as its documentation
recommends.

It is installed into its own virtual environment in the user's cache directory and is not a
dependency of this project. It uses OpenAI's API, with one event for each line of Ollama. It has no
sessions.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.benchmarks.processes import Server, serving
from tests.benchmarks.relays import Relay, Request
from tests.support.ports import free_port

VERSION = "1.106.2"
ALIVE = "/health/liveliness"
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
_HOME = _CACHE / "mochi-server-benchmarks" / f"litellm-{VERSION}"
_ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # no download at startup
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",  # no key on loopback, as in this server
    "REPEATED_STREAMING_CHUNK_LIMIT": "1000000000",  # the lines of a burst are identical
    "NO_PROXY": "127.0.0.1",
}


def installed() -> bool:
    """Install the proxy if necessary. Return False if that is impossible."""
    fresh = ["uv", "venv", "--quiet", "--python", sys.executable, str(_HOME)]
    package = [
        "uv",
        "pip",
        "install",
        "--quiet",
        "--python",
        str(_python()),
        f"litellm[proxy]=={VERSION}",
    ]
    try:
        if not _python().exists():
            subprocess.run(fresh, check=True)
        if not _script().exists():
            subprocess.run(package, check=True)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _python() -> Path:
    return _HOME / "bin" / "python"


def _script() -> Path:
    return _HOME / "bin" / "litellm"


@contextmanager
def _running(upstream: Server) -> Iterator[Server]:
    with TemporaryDirectory(prefix="peer-benchmark-") as name:
        config, port = Path(name) / "config.yaml", free_port()
        parameters = {"model": "ollama_chat/*", "api_base": upstream.url}
        models = [{"model_name": "*", "litellm_params": parameters}]
        config.write_text(json.dumps({"model_list": models}), encoding="utf-8")  # JSON is YAML
        script = [str(_python()), str(_script()), "--config", str(config)]
        options = ["--host", "127.0.0.1", "--port", str(port), "--telemetry", "False"]
        with serving([*script, *options], port, ALIVE, _ENVIRONMENT) as server:
            yield server


def _requests(_: Server, model: str, count: int) -> list[Request]:
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": "Hello"}]}
    return [("/v1/chat/completions", json.dumps(body))] * count


PEER = Relay("LiteLLM", _running, _requests)
