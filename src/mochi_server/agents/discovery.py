"""Discovery of agents: folders with a ``SKILL.md`` and Python tools."""

import logging
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from mochi_server.agents.config import AgentDefinition
from mochi_server.agents.skill import SKILL_FILE, SkillError, read_skill
from mochi_server.errors import AgentInvalid, AgentNotFound
from mochi_server.tools.discovery import ToolCatalogue, find_mistakes, find_tools
from mochi_server.tools.loader import Problem, leads_out

CHATS_FOLDER = "agent_chats"
RESERVED_NAMES = frozenset({"chats", "reload", CHATS_FOLDER})
"""Names that no agent can have, because routes below ``/agents`` or the folder of agent sessions use them."""

logger = logging.getLogger(__name__)


class AgentDiscoveryService:
    """Service that finds the agents of one directory and caches them."""

    def __init__(self, agents_dir: str | Path | None, agent_chats_dir: str | Path | None = None) -> None:
        """Create a service for the agents in ``agents_dir``. If ``agents_dir`` is None, there are no agents.

        ``agent_chats_dir`` contains the sessions of agents. By default, it is a folder of ``agents_dir``.
        """
        self._is_empty = agents_dir is None
        self._directory = Path(agents_dir or "")  # not read if there are no agents
        self._chats = Path(agent_chats_dir) if agent_chats_dir is not None else self._directory / CHATS_FOLDER
        self._agents: dict[str, AgentDefinition] | None = None
        self._lock = threading.Lock()

    def discover(self) -> dict[str, AgentDefinition]:
        """Return all agents by name, including invalid agents. The first call imports them, which blocks the thread."""
        with self._lock:
            if self._agents is None:
                self._agents = self._scan()
            return self._agents

    def reload_agents(self) -> dict[str, AgentDefinition]:
        """Import the agents again and return them. Until the import ends, ``discover`` returns the old agents."""
        agents = self._scan()
        with self._lock:
            self._agents = agents
        return agents

    def get(self, name: str) -> AgentDefinition:
        """Return the valid agent ``name``. Raises ``AgentNotFound`` or ``AgentInvalid``."""
        return require_valid(self.discover(), name)

    def names(self) -> list[str]:
        """Return the names of all agent folders, sorted."""
        if self._is_empty:
            return []
        try:
            folders = [path for path in self._directory.iterdir() if path.is_dir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            logger.warning("Agents directory unreadable path=%s: %s", self._directory, error.strerror)
            return []
        chats = self._chats.resolve()
        names = sorted(p.name for p in folders if not p.name.startswith(("_", ".")) and p.resolve() != chats)
        return [name for name in names if _is_utf8(name)]

    def find(self, name: str) -> AgentDefinition:
        """Import the agent in the folder ``name``. If the import fails, return an invalid agent. Never raises."""
        directory = self._directory / name
        if leads_out(directory, self._directory):
            return _invalid(name, "the folder is a link that leads out of the agents directory")
        agent = AgentDefinition(name)
        faults = [f"the name {name!r} is reserved; rename the folder"] if name in RESERVED_NAMES else []
        skill_faults = _missing(directory, SKILL_FILE)
        if not skill_faults:
            try:
                agent = self.refresh(agent)
            except AgentInvalid as error:
                skill_faults = [error.details["reason"]]
        catalogue, tool_faults = _tools(directory, is_optional=bool(agent.mcp_tools))
        if faults := [*faults, *skill_faults, *tool_faults]:
            return _invalid(name, *faults)
        for problem in catalogue.problems:
            logger.warning("Agent problem name=%s file=%s: %s", name, problem.name, problem.message)
        return replace(agent, catalogue=catalogue)

    def refresh(self, agent: AgentDefinition) -> AgentDefinition:
        """Read the ``SKILL.md`` of ``agent`` again and return the updated agent. Raises ``AgentInvalid``."""
        try:
            return replace(read_skill(self._directory / agent.name), catalogue=agent.catalogue)
        except SkillError as error:
            raise AgentInvalid(agent.name, str(error)) from error

    def _scan(self) -> dict[str, AgentDefinition]:
        return {name: self.find(name) for name in self.names()}


def _is_utf8(name: str) -> bool:
    """Return whether JSON can contain the name of a folder. If not, log a warning."""
    try:
        name.encode()
    except UnicodeEncodeError:
        logger.warning("Agent ignored name=%a: the name of its folder is not valid UTF-8. Rename the folder.", name)
        return False
    return True


def require_valid(agents: dict[str, AgentDefinition], name: str) -> AgentDefinition:
    """Return the valid agent ``name``. Raises ``AgentNotFound`` or ``AgentInvalid``."""
    if name not in agents:
        raise AgentNotFound(name)
    if not agents[name].valid:
        raise AgentInvalid(name, str(agents[name].error_message))
    return agents[name]


def _tools(directory: Path, *, is_optional: bool) -> tuple[ToolCatalogue, list[str]]:
    """Import the Python tools of an agent, which may be absent if ``is_optional``. Return them and the faults."""
    missing = _missing(directory, f"{directory.name}.py", "__init__.py")
    if is_optional and len(missing) == 2:
        return ToolCatalogue(), []
    if missing:
        with suppress(OSError):
            missing += _texts(find_mistakes(directory, exported=None))
        return ToolCatalogue(), missing
    catalogue = find_tools(directory)
    if catalogue.tools or (is_optional and not catalogue.problems):
        return catalogue, []
    return catalogue, ["__init__.py: no usable tool in __all__", *_texts(catalogue.problems)]


def _texts(problems: Iterable[Problem]) -> list[str]:
    return [f"{problem.name}: {problem.message}" for problem in problems]


def _missing(directory: Path, *files: str) -> list[str]:
    """Return a fault for each of ``files`` that does not exist, or one fault if the directory cannot be read."""
    try:
        return [f"{file} is missing" for file in files if not (directory / file).is_file()]
    except OSError as error:
        return [f"it cannot be read: {error.strerror}"]


def _invalid(name: str, *problems: str) -> AgentDefinition:
    message = "; ".join(dict.fromkeys(problems))
    logger.warning("Invalid agent name=%s: %s", name, message)
    return AgentDefinition(name, valid=False, error_message=message)
