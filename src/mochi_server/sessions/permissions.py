"""Permissions of an API key: the tools, agents, models and policies that it may use."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from mochi_server.sessions.types import ToolExecutionPolicy

Rules = tuple[tuple[str, ...], ...]
"""Lists of names and patterns. A permitted name matches an entry of each list.

Without lists, all names are permitted. An empty list permits none.
"""

_STRICTNESS = (
    ToolExecutionPolicy.NEVER_CONFIRM,
    ToolExecutionPolicy.CONFIRM_DESTRUCTIVE,
    ToolExecutionPolicy.ALWAYS_CONFIRM,
)
"""Policies, the weakest first."""


@dataclass(frozen=True)
class Permissions:
    """What a caller may use. The default allows everything.

    What a caller may not use does not exist for it: it is not listed, and its name is unknown.
    """

    tools: Rules = ()
    agents: Rules = ()
    models: Rules = ()  # of names with their tags, in lower case
    policy: ToolExecutionPolicy = ToolExecutionPolicy.NEVER_CONFIRM
    """Weakest policy that the caller may use."""

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "Permissions":
        """Return the permissions in the result of ``dataclasses.asdict``, sent as JSON."""
        return cls(
            tools=_rules(fields["tools"]),
            agents=_rules(fields["agents"]),
            models=_rules(fields["models"]),
            policy=ToolExecutionPolicy(fields["policy"]),
        )

    def allow_tool(self, name: str) -> bool:
        return _matches(self.tools, name)

    def allow_agent(self, name: str) -> bool:
        return _matches(self.agents, name)

    def allow_model(self, qualified_name: str) -> bool:
        """Return whether the model may be used. The name has its tag, in lower case."""
        return _matches(self.models, qualified_name)

    def allow_policy(self, policy: ToolExecutionPolicy) -> bool:
        return _STRICTNESS.index(policy) >= _STRICTNESS.index(self.policy)

    def stricter_policy(self, policy: ToolExecutionPolicy) -> ToolExecutionPolicy:
        """Return the stricter one of ``policy`` and the policy of these permissions."""
        return max(self.policy, policy, key=_STRICTNESS.index)

    def restricted(self, other: "Permissions") -> "Permissions":
        """Return the permissions of a caller that both these and ``other`` restrict."""
        return Permissions(
            tools=_joined(self.tools, other.tools),
            agents=_joined(self.agents, other.agents),
            models=_joined(self.models, other.models),
            policy=self.stricter_policy(other.policy),
        )


def _rules(lists: Sequence[Sequence[str]]) -> Rules:
    return tuple(tuple(patterns) for patterns in lists)


def _joined(rules: Rules, others: Rules) -> Rules:
    return tuple(dict.fromkeys((*rules, *others)))


def _matches(rules: Rules, name: str) -> bool:
    return all(_matches_one(patterns, name) for patterns in rules)


def _matches_one(patterns: Sequence[str], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


EVERYTHING = Permissions()
