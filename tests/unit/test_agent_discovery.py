"""Discovery of agents, and messages that name the invalid file."""

import asyncio
from pathlib import Path

import pytest

from mochi_server.agents import AgentDiscoveryService
from mochi_server.agents.config import SkillError, parse_skill
from mochi_server.agents.discovery import AgentRegistry
from mochi_server.errors import AgentInvalid, AgentNotFound
from mochi_server.mcp.servers import McpServers
from mochi_server.tools.discovery import ToolDiscoveryService
from mochi_server.tools.registry import ToolRegistry
from tests.support.agents import SAMPLES, write_agent
from tests.support.cases import cases

MCP_SKILL = "---\ndescription: x\nmcp_tools: time\n---\n"
SEVERAL_FAULTS = (
    "SKILL.md: it has no description; begin it with the three lines `---`, `description: ...` "
    "and `---`; SKILL.md: model must be text, not int; SKILL.md: mcp_tools must be a list of "
    "names, such as [time, echo]; __init__.py: no usable tool in __all__; x: __all__ names it, "
    "but it does not exist; "
)


def discovery(data_dir: Path) -> AgentDiscoveryService:
    return AgentDiscoveryService(data_dir / "agents")


def test_folder_agent_chats_is_never_an_agent(tmp_path: Path) -> None:
    """Also if the agents' sessions are in another directory."""
    write_agent(tmp_path)
    (tmp_path / "agents" / "agent_chats").mkdir()
    assert AgentDiscoveryService(tmp_path / "agents", tmp_path / "elsewhere").names() == ["helper"]


def test_agent_has_description_prompt_model_and_tools(tmp_path: Path) -> None:
    write_agent(
        tmp_path,
        SKILL='---\ndescription: "Reads: and writes"\nmodel: qwen3:8b\n---\n\nYou '
        "help.\n---\nAlways.\n",
    )
    agent = discovery(tmp_path).get("helper")
    assert (agent.valid, agent.error_message) == (True, None)
    assert (agent.description, agent.model) == ("Reads: and writes", "qwen3:8b")
    assert agent.system_prompt == "You help.\n---\nAlways."
    assert list(agent.tools) == ["note", "look", "much", "wait", "agent"]
    assert agent.tools["look"]() == "Nothing to see."


def test_unreadable_directory_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "agents"
    file.touch()
    assert AgentDiscoveryService(file).discover() == {}
    assert AgentDiscoveryService(tmp_path / "missing").discover() == {}
    unreadable = [message for message in caplog.messages if message.startswith("Agents directory")]
    assert unreadable == [f"Agents directory unreadable path={file}: Not a directory"]


def test_files_and_hidden_folders_are_not_agents(tmp_path: Path) -> None:
    for name in ("_draft", ".git", "agent_chats"):
        (tmp_path / "agents" / name).mkdir(parents=True)
    (tmp_path / "agents" / "README.md").write_text("Read me.")
    assert discovery(tmp_path).discover() == {}
    assert AgentDiscoveryService(tmp_path / "none").discover() == {}


@cases(
    ("files", "message"),
    [
        ({"SKILL": None}, "SKILL.md is missing"),
        ({"helper": None}, "helper.py is missing"),
        ({"__init__": None}, "__init__.py is missing"),
        ({"SKILL": None, "helper": None}, "SKILL.md is missing; helper.py is missing"),
        (
            {"SKILL": "---\nmodel: 5\nmcp_tools: {a: b}\n---\n", "__init__": "__all__ = ['x']"},
            SEVERAL_FAULTS,
        ),
        ({"SKILL": MCP_SKILL, "helper": None}, "helper.py is missing"),
        (
            {"SKILL": MCP_SKILL, "__init__": "__all__ = ['x']"},
            "no usable tool in __all__; x: __all__ names",
        ),
        ({"__init__": "__all__ = []"}, "__init__.py: no usable tool in __all__"),
        ({"__init__": "x = 1"}, "__all__: it must be a list of names"),
        ({"__init__": "from .helper import nothing"}, "ImportError"),
        ({"helper": "def broken(:"}, "helper.py: SyntaxError"),
        (
            {"helper": "def broken(:", "__init__": None},
            "__init__.py is missing; helper.py: SyntaxError",
        ),
        ({"helper": "import sys; sys.exit(3)"}, "SystemExit"),
    ],
)
def test_missing_or_invalid_files_are_named(
    tmp_path: Path, files: dict[str, str | None], message: str
) -> None:
    write_agent(tmp_path, "helper", **files)
    write_agent(tmp_path, "good")
    agents = discovery(tmp_path).discover()
    assert (agents["helper"].valid, agents["good"].valid) == (False, True)
    assert message in str(agents["helper"].error_message)
    with pytest.raises(AgentInvalid, match="helper"):
        discovery(tmp_path).get("helper")


@cases(
    ("text", "reason"),
    [
        ("", "no description"),
        ("You are helpful.", "no description"),
        ("---\ndescription: x\nYou are helpful.", "no description"),
        ("---\ndescription: Build: things\n---\n", "in line 2); quote values that contain a colon"),
        ("---\ndescription: [unclosed\n---\n", "not YAML"),
        ("---\n- a\n- list\n---\n", "no description"),
        ("---\n---\nYou are helpful.", "no description"),
        ("---\nmodel: x\n---\n", "no description"),
        ("---\ndescription: '  '\n---\n", "no description"),
        ("---\ndescription: ''\nmodel: 5\n---\n", "no description"),
        ("---\ndescription: 5\n---\n", "description must be text, not int"),
        ("---\ndescription:\n  a: b\n---\n", "description must be text, not dict"),
        ("---\ndescription: x\nmodel: [a]\n---\n", "model must be text, not list"),
        ("---\ndescription: x\nmodel: 2026-01-01\n---\n", "model must be text, not date"),
        (
            "---\ndescription: x\nmcp_tools: 5\n---\n",
            "mcp_tools must be a list of names, such as [time, echo]",
        ),
        ("---\ndescription: x\nmcp_tools: [a, ' ']\n---\n", "mcp_tools must be a list of names"),
        ("---\ndescription: x\nmcp_tools: [5]\n---\n", "mcp_tools must be a list of names"),
        ("---\ndescription: 2026-13-45\n---\n", "month must be in 1..12"),
        ("---\ndescription: !!python/object/apply:os.system ['true']\n---\n", "not YAML"),
    ],
)
def test_invalid_skill_names_file_and_reason(text: str, reason: str) -> None:
    with pytest.raises(SkillError) as bad:
        parse_skill("helper", text)
    assert str(bad.value).startswith("SKILL.md: ")
    assert reason in str(bad.value)


def test_skill_that_is_not_utf8_makes_the_agent_invalid(tmp_path: Path) -> None:
    (write_agent(tmp_path) / "SKILL.md").write_bytes(b"---\ndescription: caf\xe9\n---\n")
    assert "SKILL.md: it is not UTF-8" in str(
        discovery(tmp_path).discover()["helper"].error_message
    )


def test_skill_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (write_agent(tmp_path) / "SKILL.md").write_text("\ufeff---\ndescription: x\n---\n", "utf-8")
    assert discovery(tmp_path).get("helper").description == "x"


def test_windows_line_ends_and_long_descriptions_are_read() -> None:
    skill = parse_skill(
        "helper", "---\r\ndescription: >\r\n  Does this\r\n  and that.\r\n---\r\nYou help.\r\n"
    )
    assert (skill.description, skill.model, skill.system_prompt) == (
        "Does this and that.",
        None,
        "You help.",
    )


@pytest.mark.parametrize("name", ["chats", "reload"])
def test_names_of_routes_are_reserved(tmp_path: Path, name: str) -> None:
    write_agent(tmp_path, name)
    assert "reserved" in str(discovery(tmp_path).discover()[name].error_message)


def test_symlink_out_of_the_directory_is_not_followed(tmp_path: Path) -> None:
    outside = write_agent(tmp_path / "elsewhere", "secret")
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "secret").symlink_to(outside)
    assert "leads out" in str(discovery(tmp_path).discover()["secret"].error_message)


def test_agents_are_discovered_once_until_a_reload(tmp_path: Path) -> None:
    write_agent(tmp_path)
    agents = discovery(tmp_path)
    assert list(agents.discover()) == ["helper"]
    write_agent(tmp_path, "second")
    with pytest.raises(AgentNotFound):
        agents.get("second")
    assert list(agents.reload_agents()) == ["helper", "second"]


def test_skill_is_read_again_when_it_is_used(tmp_path: Path) -> None:
    directory = write_agent(tmp_path)
    agents = discovery(tmp_path)
    agent = agents.get("helper")
    (directory / "SKILL.md").write_text("---\ndescription: New.\n---\nYou are new.")
    assert agents.with_current_skill(agent).system_prompt == "You are new."
    (directory / "SKILL.md").unlink()
    with pytest.raises(AgentInvalid, match=r"SKILL\.md: it cannot be read"):
        agents.with_current_skill(agent)


def test_agent_with_mcp_tools_needs_no_python_files(tmp_path: Path) -> None:
    write_agent(
        tmp_path,
        SKILL="---\ndescription: x\nmcp_tools: [a, b, a]\n---\n",
        helper=None,
        __init__=None,
    )
    write_agent(tmp_path, "both", SKILL=MCP_SKILL)
    agents = discovery(tmp_path).discover()
    assert (agents["helper"].error_message, agents["helper"].mcp_tools) == (None, ("a", "b"))
    assert (agents["both"].mcp_tools, len(agents["both"].tools)) == (("time",), 5)


async def test_agent_import_has_a_timeout(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_agent(tmp_path, helper="import threading; threading.Event().wait(2)")
    tools = ToolRegistry(ToolDiscoveryService(tmp_path / "tools"), McpServers(tmp_path / "tools"))
    agents = await AgentRegistry(discovery(tmp_path), tools, import_seconds=0.05).agents()
    assert "longer than 0.05 seconds" in str(agents["helper"].error_message)
    assert "Invalid agent name=helper: __init__.py: the import took longer" in caplog.text


async def test_simultaneous_first_calls_import_an_agent_once(tmp_path: Path) -> None:
    imports = tmp_path / "imports"
    imports.mkdir()
    write_agent(tmp_path, helper=f"import tempfile; tempfile.mkdtemp(dir={str(imports)!r})")
    tools = ToolRegistry(ToolDiscoveryService(tmp_path / "tools"), McpServers(tmp_path / "tools"))
    registry = AgentRegistry(discovery(tmp_path), tools)
    await asyncio.gather(*(registry.agents() for _ in range(5)))
    assert len(list(imports.iterdir())) == 1
    await registry.reload()
    assert len(list(imports.iterdir())) == 2


def test_sample_agents_are_valid() -> None:
    agents = AgentDiscoveryService(SAMPLES).discover()
    assert [(name, agent.valid, agent.catalogue.problems) for name, agent in agents.items()] == [
        ("agent_builder", True, ()),
        ("coder", True, ()),
    ]
    for agent in agents.values():
        assert list(agent.tools) == [
            "read_file",
            "write_file",
            "insert_replace_text",
            "list_dir",
            "delete_rename_file",
            "run_cli_command",
        ]
        harmless = [name for name, tool in agent.catalogue.tools.items() if not tool.destructive]
        assert harmless == ["read_file", "list_dir"]
