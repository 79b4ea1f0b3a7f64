"""Definition of an agent, and the parser of its ``SKILL.md``: front matter, followed by the system
prompt.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mochi_server.sessions.types import AgentSettings
from mochi_server.tools.discovery import ToolCatalogue
from mochi_server.tools.loader import LEADS_OUT, leads_out
from mochi_server.util import regular_files

__all__ = ["AgentDefinition", "AgentSettings"]

SKILL_FILE = "SKILL.md"


@dataclass(frozen=True)
class AgentDefinition:
    """A system prompt with its own tools.

    If the agent is invalid, ``error_message`` names the file and the error.
    """

    name: str
    description: str = ""
    system_prompt: str = ""
    model: str | None = None
    mcp_tools: tuple[str, ...] = ()  # names of MCP tools, and of MCP servers for all of their tools
    catalogue: ToolCatalogue = field(default_factory=ToolCatalogue)  # usable tools, and problems
    valid: bool = True
    error_message: str | None = None
    modified: int = 0  # time of the last change of `SKILL.md`, in seconds since 1970

    @property
    def tools(self) -> dict[str, Callable[..., Any]]:
        return {name: tool.function for name, tool in self.catalogue.tools.items()}


class SkillError(Exception):
    """Error for an invalid ``SKILL.md``.

    The message lists all problems of the file for its author.
    """

    def __init__(self, *reasons: str) -> None:
        super().__init__("; ".join(f"{SKILL_FILE}: {reason}" for reason in reasons))


def read_skill(directory: Path) -> AgentDefinition:
    """Read the ``SKILL.md`` of an agent's folder.

    Return the agent without Python tools. Raises ``SkillError``.
    """
    path = directory / SKILL_FILE
    if leads_out(path, directory):
        raise SkillError(f"it is {LEADS_OUT}")
    try:
        text = regular_files.read_text(path, "utf-8-sig")
        modified = int(path.stat().st_mtime)
    except OSError as error:
        raise SkillError(f"it cannot be read ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        raise SkillError(f"it is not UTF-8 ({error.reason} at byte {error.start})") from error
    return replace(parse_skill(directory.name, text), modified=modified)


def parse_skill(name: str, text: str) -> AgentDefinition:
    """Return the agent ``name`` that the text of a ``SKILL.md`` defines. Raises ``SkillError``."""
    # Imported here, so that the server starts faster: it discovers agents after its start.
    import frontmatter  # noqa: PLC0415
    from yaml import YAMLError  # noqa: PLC0415

    try:
        fields, body = frontmatter.parse(text)
    except (YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        problem = f"{getattr(error, 'problem', None) or error}{where}"
        raise SkillError(
            f"the front matter is not YAML ({problem}); quote values that contain a colon"
        ) from error
    faults = []
    description: Any = fields.get("description")
    if not isinstance(description, str | None):
        faults.append(f"description must be text, not {type(description).__name__}")
    elif not (description or "").strip():
        faults.append(
            "it has no description; begin it with the three lines `---`, `description: ...` and "
            "`---`"
        )
    model: Any = fields.get("model")
    if not isinstance(model, str | None):
        faults.append(f"model must be text, not {type(model).__name__}")
    names: Any = fields.get("mcp_tools") or []
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not all(
        isinstance(each, str) and each.strip() for each in names
    ):
        faults.append("mcp_tools must be a list of names, such as [time, echo]")
    if faults:
        raise SkillError(*faults)
    mcp_tools = tuple(dict.fromkeys(each.strip() for each in names))
    model = (model or "").strip() or None
    return AgentDefinition(
        name,
        description=" ".join(description.split()),
        system_prompt=body,
        model=model,
        mcp_tools=mcp_tools,
    )
