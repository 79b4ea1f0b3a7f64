"""Environment of a page's blocks: a clone of the repository and the servers that the pages use."""

import os
import shutil
import sys
from pathlib import Path

from mochi_server.cli.init import scaffold
from mochi_server.container import Components
from mochi_server.mcp.limits import McpLimits
from mochi_stub import Prompt, Reply, StubServer, ToolCall
from mochi_stub.reply import Gate, Text
from tests.docs_tooling.pages import ROOT
from tests.docs_tooling.shell import SECONDS, Shell
from tests.support.server import RunningServer

CALLER = "tool-caller"
"""Model that calls the first offered tool.

It replaces the model of test mode, which calls `read_file`.
"""

PATIENT = Components(mcp=McpLimits(start_seconds=SECONDS))
"""Limits for a busy machine, on which an MCP server takes longer to start than servers of users
wait.
"""

MODELS = Path(__file__).with_name("models.yaml")

CALLS = {
    "Wake me at half past seven.": ToolCall("set_alarm", {"time": "07:30"}),
    "Ask the weather expert about Oslo.": ToolCall(
        "agent", {"agent": "weather", "instruction": "How is it in Oslo?"}
    ),
}
"""Replies of a capable model to the prompts of the pages."""

TUTORIAL = "mochi-tutorial"
"""Directory that the tutorials use, beside the clone."""
_CLONED = ("tools", "agents", "system_prompts", "docs/examples")
_IGNORED = shutil.ignore_patterns("__pycache__", "agent_chats", "node_modules")
_SERVER = ("127.0.0.1:8000", "localhost:8000", "127.0.0.1:5099", "localhost:5099")
_OLLAMA = ("127.0.0.1:11434", "localhost:11434", "127.0.0.1:11998", "localhost:11998")

_COMMAND = '#!/bin/sh\nexec "{python}" "{serving}" {module} "$@"\n'


class World:
    """Directory like a clone, with a server and its models. Use it as a context manager."""

    def __init__(self, directory: Path, *, is_tutorial: bool = False) -> None:
        """In a tutorial, the server and the files of the reader have a directory of their own."""
        self.clone = directory / "mochi-server"
        for name in _CLONED:
            shutil.copytree(ROOT / name, self.clone / name, ignore=_IGNORED)
        self._data = self.clone
        if is_tutorial:
            self._data = directory / TUTORIAL
            scaffold(self._data, with_code_agents=True)
        self.names: dict[str, object] = {"__name__": "__main__"}
        self._directory = directory
        self._stub = StubServer(speed=0, config=MODELS, resolve=_called)
        self._commands = _commands(directory / "bin")

    def __enter__(self) -> "World":
        self._stub.start()
        self._server = RunningServer(self._data, self._stub.url, PATIENT)
        self._server.__enter__()
        self._shell = self._new_shell()
        return self

    def __exit__(self, *_: object) -> None:
        self._shell.close()
        self._server.__exit__()
        self._stub.stop()

    def restart_shell(self) -> None:
        """Replace the shell, which ends at the first failing command."""
        self._shell.close()
        self._shell = self._new_shell()

    def with_running_addresses(self, text: str) -> str:
        """Replace the documented addresses by those of the running servers."""
        for names, url in ((_SERVER, self._server.url), (_OLLAMA, self._stub.url)):
            for name in names:
                text = text.replace(f"http://{name}", url)
        return text

    def bash(self, script: str) -> str:
        """Run a script and return its output. Fail if any of its commands fails."""
        return self._shell.run(self.with_running_addresses(script))

    def write(self, name: str, text: str) -> None:
        path = self._data / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.with_running_addresses(text))

    def _new_shell(self) -> Shell:
        return Shell(self._directory, self.clone, self._environment())

    def _environment(self) -> dict[str, str]:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("MOCHI_", "PYTEST_"))
        }
        path = os.pathsep.join(
            [str(self._commands), str(Path(sys.executable).parent), os.environ["PATH"]]
        )
        ours = {
            "PATH": path,
            "HOME": str(self._directory),
            "TMPDIR": str(self._directory),
            "NO_PROXY": "*",
        }
        # In a clone, pytest treats warnings as errors.
        strict = "-W error -o asyncio_default_fixture_loop_scope=function"
        pytest = {
            "PYTEST_ADDOPTS": f"{strict} -p no:schemathesis -p no:hypothesispytest -p no:xdist"
        }
        return {**inherited, **ours, **pytest, "PYTHONUNBUFFERED": "1"}


def _called(prompt: Prompt) -> Reply | None:
    is_question = bool(prompt.messages) and prompt.messages[-1].role == "user"
    if prompt.model == CALLER and is_question and prompt.tools:
        return Reply.of(
            "", tool_calls=(ToolCall(prompt.tools[0]["function"]["name"], {"path": "notes.txt"}),)
        )
    if prompt.user_text == "Count to one thousand.":
        return Reply([Text(["one ", "two ", "three "]), Gate()])  # ends when it is stopped
    call = CALLS.get(prompt.user_text) if is_question else None
    return Reply.of("", tool_calls=(call,)) if call else None


def _commands(directory: Path) -> Path:
    """Yield the package's commands that do not serve forever."""
    directory.mkdir()
    serving = Path(__file__).with_name("serving.py")
    for module in ("mochi_server", "mochi_stub"):
        command = directory / module.replace("_", "-")
        command.write_text(_COMMAND.format(python=sys.executable, serving=serving, module=module))
        command.chmod(0o755)
    return directory
