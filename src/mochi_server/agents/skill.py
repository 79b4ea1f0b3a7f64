"""Parser of ``SKILL.md``: front matter with a description, followed by the system prompt of an agent."""

from dataclasses import dataclass
from pathlib import Path

from mochi_server.tools.loader import LEADS_OUT, leads_out

SKILL_FILE = "SKILL.md"


class SkillError(Exception):
    """Error for an invalid ``SKILL.md``. The message is for the author of the file and begins with the file name."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{SKILL_FILE}: {reason}")


@dataclass(frozen=True, slots=True)
class Skill:
    """Content of a ``SKILL.md``. If ``model`` is None, the agent uses the model of the session."""

    description: str
    model: str | None
    system_prompt: str


def read_skill(directory: Path) -> Skill:
    """Read the ``SKILL.md`` of an agent's folder. Raises ``SkillError``."""
    if leads_out(directory / SKILL_FILE, directory):
        raise SkillError(f"it is {LEADS_OUT}")
    try:
        text = (directory / SKILL_FILE).read_text("utf-8")
    except OSError as error:
        raise SkillError(f"it cannot be read ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        raise SkillError(f"it is not UTF-8 ({error.reason} at byte {error.start})") from error
    return parse_skill(text)


def parse_skill(text: str) -> Skill:
    """Parse the content of a ``SKILL.md``. Raises ``SkillError``."""
    fields, body = _split(text)
    description = _text(fields, "description")
    if description is None:
        raise SkillError("the front matter has no description; add one, because models choose agents by it")
    return Skill(" ".join(description.split()), _text(fields, "model"), body.strip())


def _split(text: str) -> tuple[dict[str, object], str]:
    if text.startswith("\ufeff"):
        raise SkillError("it begins with a byte order mark; save it as UTF-8 without that mark")
    # Imported here, so that the server starts faster: it discovers agents after its start.
    from frontmatter.default_handlers import YAMLHandler  # noqa: PLC0415
    from yaml import YAMLError  # noqa: PLC0415

    handler = YAMLHandler()
    text = text.lstrip()
    if not handler.detect(text):
        raise SkillError("it has no front matter; the first line must be ---")
    try:
        matter, body = handler.split(text)
    except ValueError:
        raise SkillError("the front matter has no end; close it with a line of ---") from None
    try:
        fields = handler.load(matter)
    except (YAMLError, ValueError, RecursionError) as error:
        raise SkillError(
            f"the front matter is not YAML ({_explain(error)}); quote values that contain a colon"
        ) from error
    if not isinstance(fields, dict):
        raise SkillError("the front matter must be lines of `name: value`")
    return fields, body


def _text(fields: dict[str, object], name: str) -> str | None:
    """Return the text of a field, or None if the field is missing or blank."""
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise SkillError(f"{name} must be text, not {type(value).__name__}")
    return value.strip() or None


def _explain(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f" in line {mark.line + 1}" if mark is not None else ""
    return f"{getattr(error, 'problem', None) or str(error) or type(error).__name__}{where}"
