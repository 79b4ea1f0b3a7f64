"""Whatever order clients do things in, what is stored is what a model of a session says."""

from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule, run_state_machine_as_test

from mochi_stub import StubServer
from tests.faults.mirror import Mirror, resolve
from tests.faults.rounds import share
from tests.support.api import Api
from tests.support.server import RunningServer

TEXTS = st.sampled_from(["a", "fail", "fail again", "ä\u2028🙂", "x" * 300])
POSITIONS = st.integers(0, 5)


class Sessions(RuleBasedStateMachine):
    """A few sessions at a time; the order of what is done to them is Hypothesis's."""

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
    def chat(self, mirror: Mirror, text: str) -> None:
        mirror.chat(text)

    @rule(mirror=sessions, text=TEXTS)
    def stream(self, mirror: Mirror, text: str) -> None:
        mirror.stream(text)

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
    def instruct(self, mirror: Mirror, text: str) -> None:
        mirror.instruct(text)

    @rule(mirror=sessions)
    def uninstruct(self, mirror: Mirror) -> None:
        mirror.uninstruct()

    @rule(mirror=consumes(sessions))
    def delete(self, mirror: Mirror) -> None:
        mirror.delete()
        mirror.chat("Are you there?")

    @invariant()
    def what_is_stored_is_what_the_model_says(self) -> None:
        for mirror in self._mirrors:
            mirror.agrees()

    def teardown(self) -> None:
        for mirror in self._mirrors:
            if mirror.exists:
                mirror.delete()


def test_any_order_of_changes_leaves_what_a_model_of_sessions_says(tmp_path: Path) -> None:
    bounds = settings(
        max_examples=share(20),
        stateful_step_count=25,
        derandomize=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    with (
        StubServer(speed=0, resolve=resolve) as stub,
        RunningServer(tmp_path, stub.url, summarization_enabled=False) as server,
    ):

        class Here(Sessions):
            api = server.api()

        run_state_machine_as_test(Here, settings=bounds)
