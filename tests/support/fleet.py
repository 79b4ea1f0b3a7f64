"""Several stubs as the hosts of one server, and the turns of many sessions while hosts die and
return.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock

from mochi_stub import StubServer
from tests.support.api import Api
from tests.support.server import RunningServer
from tests.support.stub import chats

_MAX_ATTEMPTS = 20
_RETRY_SECONDS = 0.05

Choice = Callable[[int, Sequence[int]], int]
"""Function that returns a host for the next turn, from the number of the session and the numbers of
running hosts.
"""


class Fleet:
    """Hosts that keep their addresses.

    A killed host aborts its answers, and loses its models and its prompt cache.
    """

    def __init__(self, stubs: Sequence[StubServer]) -> None:
        self.stubs = stubs
        self.running = list(range(len(stubs)))

    @property
    def setting(self) -> str:
        """Return the value of ``MOCHI_OLLAMA_HOSTS``."""
        return ",".join(f"{name_of(number)}={stub.url}" for number, stub in enumerate(self.stubs))

    @property
    def evaluated_tokens(self) -> int:
        return sum(each.evaluated_tokens or 0 for stub in self.stubs for each in chats(stub))

    def kill(self, number: int) -> None:
        self.running = [each for each in self.running if each != number]
        self.stubs[number].stop()

    def revive(self, number: int) -> None:
        self.stubs[number].start()
        self.running = sorted({*self.running, number})


def name_of(host: int) -> str:
    return f"gpu{host}"


@contextmanager
def serving(stubs: Sequence[StubServer], **settings: object) -> Iterator[tuple[Fleet, Api]]:
    """Run the stubs, and a server in front of them.

    Yield the fleet and a client that any number of threads can use.
    """
    with ExitStack() as stack:
        directory = stack.enter_context(TemporaryDirectory(prefix="mochi-benchmark-"))
        fleet = Fleet([stack.enter_context(stub) for stub in stubs])
        given = {"ollama_hosts": fleet.setting, "summarization_enabled": False, **settings}
        server = stack.enter_context(RunningServer(Path(directory), fleet.stubs[0].url, **given))
        yield fleet, server.api(timeout=120)


@dataclass
class Traffic:
    """Turns of many sessions.

    ``choose`` pins each turn to a host; if it is None, the server chooses.
    """

    fleet: Fleet
    api: Api
    choose: Choice | None = None
    first_tokens: list[float] = field(
        default_factory=list
    )  # seconds from the message to the first token
    failed: int = 0  # attempts that ended before the first token
    lost: int = 0  # answers that ended early
    _lock: Lock = field(default_factory=Lock)

    def turn(self, session: int, session_id: str, text: str) -> None:
        """Send a message. Without a first token, request the answer again, as a client does."""
        started, message = time.monotonic(), text or None
        for _ in range(_MAX_ATTEMPTS):
            self._pin(session, session_id)
            first, is_complete = self._answer(session_id, message)
            if first is not None:
                break
            self.failed, message = self.failed + 1, None
            time.sleep(_RETRY_SECONDS)
        else:
            raise RuntimeError(f"session {session} got no answer")
        with self._lock:
            self.first_tokens.append(first - started)
            self.lost += not is_complete

    def _pin(self, session: int, session_id: str) -> None:
        if self.choose is not None:
            with self._lock:
                host = self.choose(session, self.fleet.running)
            self.api.ok(
                self.api.http.patch(f"/sessions/{session_id}", json={"ollama_host": name_of(host)})
            )

    def _answer(self, session_id: str, message: str | None) -> tuple[float | None, bool]:
        """Return the time of the first token, if there is one, and whether the answer is
        complete.
        """
        first, is_complete = None, True
        with self.api.open_stream(session_id, message) as events:
            for event in events:
                if event.type == "content_delta" and first is None:
                    first = time.monotonic()
                is_complete = is_complete and event.type != "error"
        return first, is_complete


def in_parallel(sessions: int, talk: Callable[[int], None]) -> None:
    """Run ``talk`` in a thread for each session. Raises the first error."""
    with ThreadPoolExecutor(sessions) as threads:
        for done in [threads.submit(talk, number) for number in range(sessions)]:
            done.result()
