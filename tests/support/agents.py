"""Agents for tests, written into a data directory as a user would, and messages that cause agent
calls.
"""

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

from mochi_server.config import DATA_DIR_MARKER
from mochi_stub import Gate, Prompt, Reply, Text
from tests.support.api import Api
from tests.support.instructions import instruct, words

SAMPLES = Path(__file__).parents[2] / "agents"

HELPER = '''
    from pathlib import Path

    HERE = Path(__file__).parent

    def note(text: str) -> str:
        """Write a note."""
        with (HERE / "notes.txt").open("a") as notes:
            notes.write(text + "\\n")
        return "Noted."

    def look() -> str:
        """Look."""
        return "Nothing to see."

    def much() -> str:
        """Say much."""
        return "x" * 3000

    async def wait() -> str:
        """Wait for ever."""
        import asyncio
        await asyncio.Event().wait()
        return "never"

    def agent() -> str:
        """A tool of that name."""
        return "I am a tool."
'''
EXPORTS = """
    from .{name} import agent, look, much, note, wait
    __all__ = ["note", "look", "much", "wait", "agent"]
    __read_only__ = ["look"]
"""
SKILL = "---\ndescription: Helps.\n---\nYou are {name}.\n"


def write_agent(data_dir: Path, name: str = "helper", **files: str | None) -> Path:
    """Write the folder of an agent, and mark the data directory as `mochi-server init` does.

    `files` replace the default files by name without suffix; None omits a file.
    """
    directory = data_dir / "agents" / name
    directory.mkdir(parents=True, exist_ok=True)
    (data_dir / DATA_DIR_MARKER).touch()
    usual = {"SKILL": SKILL.format(name=name), name: HELPER, "__init__": EXPORTS.format(name=name)}
    for file, text in (usual | files).items():
        path = directory / f"{file}.{'md' if file == 'SKILL' else 'py'}"
        path.unlink(missing_ok=True)
        if text is not None:
            path.write_text(dedent(text))
    return directory


def work_until(gate: Gate) -> Callable[[Prompt], Reply | None]:
    """Return a function for the stub, whose reply to "Work." goes on until the gate is open."""

    def reply_to(prompt: Prompt) -> Reply | None:
        is_asked = any(message.content == "Work." for message in prompt.messages)
        return Reply([Text(["one "]), gate]) if is_asked else None

    return reply_to


def delegate(
    *does: dict[str, Any], agent: str = "helper", session_id: str | None = None
) -> dict[str, Any]:
    """Return an instruction to call the agent with an instruction block of its own."""
    arguments = {
        "agent": agent,
        "instruction": instruct(*does, label="A") if does else "Please help.",
    }
    if session_id is not None:
        arguments["session_id"] = session_id
    return {"tool_call": [{"name": "agent", "args": arguments}]}


def nested(*messages: dict[str, Any], label: str = "ID") -> str:
    """Return a message like `instruct` whose block may contain nested blocks, which are escaped as
    JSON.
    """
    head, _, rest = instruct(*messages, label=label).partition("<|instruction_start|>")
    block = rest.removesuffix("<|instruction_end|>").replace("<|", "\\u003c|")
    return f"{head}<|instruction_start|>{block}<|instruction_end|>"


def new_agent_chat(api: Api) -> str:
    """Return the ID of a new conversation with the agent `helper`, which is the only one."""
    enabled = {"enabled_agents": ["helper"]}
    session = api.create_session("mochi", agent_settings=enabled)["session_id"]
    api.send_message(session, nested(delegate(words(1)), words(1)))
    (chat,) = api.ok(api.http.get("/agents/chats"))["sessions"]
    return str(chat["session_id"])


def notes(data_dir: Path, agent: str = "helper") -> list[str]:
    """Return the notes that an agent's tool `note` has written."""
    file = data_dir / "agents" / agent / "notes.txt"
    return file.read_text().split() if file.exists() else []
