"""Finding agents: folders with a ``SKILL.md``, tools, and what is wrong with those that cannot be used."""

import logging
import threading
from dataclasses import replace
from pathlib import Path

from mochi_server.agents.config import AgentDefinition
from mochi_server.agents.skill import FILE, BadSkill, read_skill
from mochi_server.errors import AgentInvalid, AgentNotFound
from mochi_server.tools.discovery import find_tools
from mochi_server.tools.schema import ToolSchemaService

CHATS = "agent_chats"
RESERVED_NAMES = frozenset({"chats", "reload", CHATS})
"""Routes beside ``/agents/{agent_name}``, and where conversations are kept."""

logger = logging.getLogger(__name__)


class AgentDiscoveryService:
    """The agents of one directory, found at first use and again at each ``reload_agents``."""

    def __init__(self, agents_dir: str | Path, agent_chats_dir: str | Path | None = None) -> None:
        self._directory = Path(agents_dir)
        self._chats = Path(agent_chats_dir) if agent_chats_dir is not None else self._directory / CHATS
        self._agents: dict[str, AgentDefinition] | None = None
        self._lock = threading.Lock()

    def discover(self) -> dict[str, AgentDefinition]:
        """All agents by name, invalid ones among them; looked for once. Blocks while user code is imported."""
        with self._lock:
            if self._agents is None:
                self._agents = self._look()
            return self._agents

    def reload_agents(self) -> dict[str, AgentDefinition]:
        """Look again. Whoever uses an agent meanwhile goes on with the old one."""
        agents = self._look()
        with self._lock:
            self._agents = agents
        return agents

    def get(self, name: str) -> AgentDefinition:
        """A valid agent by name. Raises ``AgentNotFound``, ``AgentInvalid``."""
        return chosen(self.discover(), name)

    def names(self) -> list[str]:
        """The folders that are meant to be agents, sorted."""
        try:
            folders = [path for path in self._directory.iterdir() if path.is_dir()]
        except OSError:
            return []
        chats = self._chats.resolve()
        return sorted(p.name for p in folders if not p.name.startswith(("_", ".")) and p.resolve() != chats)

    def find(self, name: str) -> AgentDefinition:
        """Look at one folder. Never raises; blocks while user code is imported."""
        directory = self._directory / name
        if problems := self._problems(directory):
            return _invalid(name, "; ".join(problems))
        try:
            agent = _with_skill(AgentDefinition(name), directory)
        except BadSkill as bad:
            return _invalid(name, str(bad))
        catalogue = find_tools(directory, ToolSchemaService())
        if not catalogue.tools:
            why = [f"{problem.name}: {problem.message}" for problem in catalogue.problems]
            return _invalid(name, "; ".join(["__init__.py: no usable tool in __all__", *why]))
        return replace(agent, catalogue=catalogue)

    def refreshed(self, agent: AgentDefinition) -> AgentDefinition:
        """An agent with what its ``SKILL.md`` says now. Raises ``AgentInvalid`` when that cannot be used any more."""
        try:
            return _with_skill(agent, self._directory / agent.name)
        except BadSkill as bad:
            raise AgentInvalid(agent.name, str(bad)) from bad

    def _look(self) -> dict[str, AgentDefinition]:
        return {name: self.find(name) for name in self.names()}

    def _problems(self, directory: Path) -> list[str]:
        """Why a folder cannot be an agent, without looking into its files."""
        if directory.name in RESERVED_NAMES:
            return [f"the name {directory.name!r} is reserved"]
        if not directory.resolve().is_relative_to(self._directory.resolve()):
            return ["the folder is a link that leads out of the agents directory"]
        needed = (FILE, f"{directory.name}.py", "__init__.py")
        try:
            return [f"{file} is missing" for file in needed if not (directory / file).is_file()]
        except OSError as error:
            return [f"it cannot be read: {error.strerror}"]


def chosen(agents: dict[str, AgentDefinition], name: str) -> AgentDefinition:
    """The valid one of some agents that has a name. Raises ``AgentNotFound``, ``AgentInvalid``."""
    if name not in agents:
        raise AgentNotFound(name)
    if not agents[name].valid:
        raise AgentInvalid(name, str(agents[name].error_message))
    return agents[name]


def _with_skill(agent: AgentDefinition, directory: Path) -> AgentDefinition:
    skill = read_skill(directory)
    return replace(agent, description=skill.description, model=skill.model, system_prompt=skill.system_prompt)


def _invalid(name: str, message: str) -> AgentDefinition:
    logger.warning("Agent %s: %s", name, message)
    return AgentDefinition(name, valid=False, error_message=message)
