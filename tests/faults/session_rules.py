"""Rules for random changes of sessions.

A separate module, because importing Hypothesis takes a third of a second.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.faults.mirror import Mirror
from tests.support.api import Api

TEXTS = st.sampled_from(["a", "fail", "fail again", "ä\u2028🙂", "x" * 300])
POSITIONS = st.integers(0, 5)


class Sessions(RuleBasedStateMachine):
    """A few sessions; Hypothesis chooses the order of their changes."""

    sessions = Bundle("sessions")

    api: Api

    def __init__(self) -> None:
        super().__init__()
        self._mirrors: list[Mirror] = []

    @rule(target=sessions, prompt=st.none() | TEXTS, title=st.none() | TEXTS)
    def create(self, prompt: str | None, title: str | None) -> Mirror:
        self._mirrors.append(Mirror(self.api, prompt, title))
        return self._mirrors[-1]

    @rule(mirror=sessions, text=TEXTS)
    def send_message(self, mirror: Mirror, text: str) -> None:
        mirror.send_message(text)

    @rule(mirror=sessions, text=TEXTS)
    def stream_message(self, mirror: Mirror, text: str) -> None:
        mirror.stream_message(text)

    @rule(mirror=sessions)
    def regenerate(self, mirror: Mirror) -> None:
        mirror.regenerate()

    @rule(mirror=sessions, index=POSITIONS, text=TEXTS)
    def edit(self, mirror: Mirror, index: int, text: str) -> None:
        mirror.edit(index, text)

    @rule(mirror=sessions, title=st.none() | TEXTS)
    def retitle(self, mirror: Mirror, title: str | None) -> None:
        mirror.retitle(title)

    @rule(mirror=sessions, text=TEXTS)
    def set_system_prompt(self, mirror: Mirror, text: str) -> None:
        mirror.set_system_prompt(text)

    @rule(mirror=sessions)
    def remove_system_prompt(self, mirror: Mirror) -> None:
        mirror.remove_system_prompt()

    @rule(mirror=consumes(sessions))
    def delete(self, mirror: Mirror) -> None:
        mirror.delete()
        mirror.send_message("Are you there?")

    @invariant()
    def stored_state_matches_the_models(self) -> None:
        for mirror in self._mirrors:
            mirror.assert_matches()

    def teardown(self) -> None:
        for mirror in self._mirrors:
            if mirror.exists:
                mirror.delete()


def run_rules(client: Api, examples: int) -> None:
    """Run so many random sequences of changes. Fails if a stored session differs from its model."""
    bounds = settings(
        max_examples=examples,
        stateful_step_count=25,
        derandomize=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )

    class Machine(Sessions):
        api = client

    run_state_machine_as_test(Machine, settings=bounds)
