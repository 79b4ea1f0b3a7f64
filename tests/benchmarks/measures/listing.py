"""The session list and the search in a directory with many sessions.

The first list waits until the server has read every session file. Warm lists and searches use the
index. Meanwhile, other clients request a session and the server's health.

- *First list*: the first request for the session list. There is no index at the start, so the server
  reads every file in the background.
- *Warm list*: a later request for the session list. The server uses the index.
- *First list after a restart*: the first request to a server that starts with an index.
- *Index file*: a request to a bare FastAPI app with the same middleware that reads the file of the
  index and sends its bytes.
- *First search*: the first search request. The server adds the text of every session to the index.
- *Warm search*: a later search request. The server uses the texts in the index.

The last figure is the longest time that a request of the other clients takes.

The benchmark creates the sessions with mochi-server's Python code, not over HTTP. Each session has
one turn.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory

from mochi_server.sessions import AssistantMessage, ChatSession, SessionCreationOptions
from mochi_server.sessions.session import user_message
from mochi_server.storage.files.backend import SessionDirectory
from mochi_server.util.clock import new_id, now
from tests.benchmarks.figures import median, percentile
from tests.benchmarks.measures import Aim, Findings, Row, Setting
from tests.benchmarks.probe import Answers, probing
from tests.benchmarks.processes import Server, python, running
from tests.benchmarks.relays import mochi
from tests.benchmarks.relays.bare_app import FILE_PATH
from tests.benchmarks.workload import adjustable

TITLE = "The list of many sessions"
_API = "/api/v1"
_WRITERS = 8
_WARM_UP_SECONDS = 0.2
_LIST, _HEALTH = f"{_API}/sessions", f"{_API}/health"
_SEARCH = f"{_LIST}?q=number+0%3F"
_ROWS = (
    "first list",
    "warm list",
    "index file",
    "first list after a restart",
    "first search",
    "warm search",
)


@dataclass(frozen=True)
class Workload:
    sessions: int = adjustable(5000, "stored sessions")
    lists: int = adjustable(10, "warm lists and warm searches in each round")


@dataclass(frozen=True)
class _Listed:
    """Milliseconds of the lists, and of the other requests during them."""

    lists: list[float]
    others: list[float]


def measure(work: Workload, setting: Setting) -> Findings:
    """Return rows for the first list, later lists, the first search and later searches: medians
    over the rounds.
    """
    with ExitStack() as stack:
        data = Path(stack.enter_context(TemporaryDirectory(prefix="mochi-benchmark-")))
        some = _fill(data, work.sessions)
        upstream = stack.enter_context(running(python("tests.benchmarks.upstream", "burst:1")))
        rounds = [
            _round(upstream, data, f"{_LIST}/{some}", work.lists) for _ in range(setting.rounds)
        ]
    rows = [
        _row(name, list(listed))
        for name, listed in zip(_ROWS, zip(*rounds, strict=True), strict=True)
    ]
    return Findings(rows, _aims(*rows))


def _fill(data: Path, count: int) -> str:
    """Store sessions through the library and return the id of one."""
    directory = SessionDirectory(data / "chat_sessions")
    with ThreadPoolExecutor(_WRITERS) as writers:
        created = list(writers.map(directory.create, map(_session, range(count))))
    directory.close()  # so that a server can lock it
    return created[-1].session_id


def _session(number: int) -> ChatSession:
    session = ChatSession.create(SessionCreationOptions(model="burst:1"))
    answer: AssistantMessage = {
        "role": "assistant",
        "content": "There are a few of them.",
        "model": "burst:1",
        "message_id": new_id(),
        "timestamp": now(),
    }
    session.messages.extend([user_message(f"Is this number {number}?"), answer])
    return session


def _round(upstream: Server, data: Path, another: str, lists: int) -> list[_Listed]:
    """Return lists and searches of a server without an index: the first and later ones of each."""
    for file in (data / "chat_sessions").glob(".index.sqlite*"):
        file.unlink()
    with mochi.serving(upstream, data) as server:
        with probing(server, another, _HEALTH):  # so that only the list runs for the first time
            time.sleep(_WARM_UP_SECONDS)
        listed = [_listed(server, _LIST, another, count) for count in (1, lists)]
    index = data / "chat_sessions" / ".index.sqlite"
    with running(python("tests.benchmarks.relays.bare_app", upstream.url, str(index))) as bare:
        _list(bare, FILE_PATH)
        files = [_list(bare, FILE_PATH) for _ in range(lists)]
    listed.append(_Listed([took for _, took in files], []))
    with mochi.serving(upstream, data) as server:
        with probing(server, another, _HEALTH):
            time.sleep(_WARM_UP_SECONDS)
        asked = [(_LIST, 1), (_SEARCH, 1), (_SEARCH, lists)]
        return listed + [_listed(server, path, another, count) for path, count in asked]


def _listed(server: Server, path: str, another: str, count: int) -> _Listed:
    with probing(server, another, _HEALTH) as others:
        lists = [_list(server, path) for _ in range(count)]
    return _Listed([took for _, took in lists], _meanwhile(others, lists))


def _list(server: Server, path: str) -> tuple[float, float]:
    """Return the start time of a list request and the milliseconds to the end of its response."""
    connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
    asked = time.monotonic()
    connection.request("GET", path)
    response = connection.getresponse()
    response.read()
    assert response.status == 200
    connection.close()
    return asked, 1000 * (time.monotonic() - asked)


def _meanwhile(others: Answers, lists: Answers) -> list[float]:
    """Return the milliseconds of the requests that ran at the same time as a list."""
    return [
        took
        for asked, took in others
        if any(
            asked <= began + duration / 1000 and began <= asked + took / 1000
            for began, duration in lists
        )
    ]


_TOOK, _OTHERS = "median, ms", "longest wait of another request, ms"


def _row(name: str, rounds: list[_Listed]) -> Row:
    return {
        "": name,
        _TOOK: median(rounds, lambda r: percentile(r.lists, 50)),
        "maximum, ms": median(rounds, lambda r: max(r.lists)),
        _OTHERS: median(rounds, lambda r: max(r.others, default=0)),
    }


def _aims(first: Row, warm: Row, file: Row, restarted: Row, _: Row, search: Row) -> list[Aim]:
    return [
        Aim(
            "warm list, relative to the index file",
            float(warm[_TOOK]) / float(file[_TOOK]),
            3,
            "x",
        ),
        Aim("first list after a restart", float(restarted[_TOOK]), 300, "ms"),
        Aim("first list", float(first[_TOOK]), 600, "ms"),
        Aim("warm list", float(warm[_TOOK]), 30, "ms"),
        Aim("warm search", float(search[_TOOK]), 100, "ms"),
        Aim(
            "longest wait of another request during the first list", float(first[_OTHERS]), 50, "ms"
        ),
        Aim("longest wait of another request during warm lists", float(warm[_OTHERS]), 50, "ms"),
    ]
