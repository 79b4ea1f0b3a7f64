"""Time of a turn on a session that already has many messages.

It begins with the request and ends with the end of the stream. Only one turn runs at a time.

The upstream answers at once, without processing the prompt that it receives. Its models have a very
large context window, so that mochi-server never shortens or compacts a prompt: it reads, sends and
stores the whole history in each turn. The figures therefore show only the work of mochi-server for
the session and for the transfer of the prompt.

The benchmark creates the sessions with mochi-server's Python code, not over HTTP. All messages have
the same length.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from mochi_server.sessions import Message, SessionCreationOptions, SessionManager
from mochi_server.sessions.session import user_message
from mochi_server.util.clock import new_id, now
from tests.benchmarks.driving import perform
from tests.benchmarks.figures import median, percentile
from tests.benchmarks.load import Job, Result
from tests.benchmarks.measures import Aim, Findings, Row, Setting
from tests.benchmarks.processes import Server, python, running, settle
from tests.benchmarks.relays import mochi
from tests.benchmarks.workload import adjustable

TITLE = "A turn on a long session"
_MODEL = "burst:20"
_WORDS = "the content of this message has no influence on it "


@dataclass(frozen=True)
class Workload:
    long: int = adjustable(1000, "messages of a long session")
    very_long: int = adjustable(10_000, "messages of a very long session")
    characters: int = adjustable(200, "characters of each message")
    turns: int = adjustable(15, "turns on each session in a round")


def measure(work: Workload, setting: Setting) -> Findings:
    """Return one row per session: medians over the rounds of the medians of its turns."""
    lengths = (0, work.long, work.very_long)
    results: dict[int, list[Result]] = {length: [] for length in lengths}
    with ExitStack() as stack:
        data = Path(stack.enter_context(TemporaryDirectory(prefix="mochi-benchmark-")))
        ids = {length: _session(data, length, work.characters) for length in lengths}
        upstream = stack.enter_context(running(python("tests.benchmarks.upstream", _MODEL)))
        server = stack.enter_context(mochi.serving(upstream, data))
        for length in lengths:
            _turns(server, ids[length], 2)
        for number in range(setting.rounds):
            turn = number % len(lengths)
            for length in lengths[turn:] + lengths[:turn]:
                results[length].append(_turns(server, ids[length], work.turns))
    rows = [_row(length, results[length], results[0]) for length in lengths]
    return Findings(rows, _aims(rows))


def _session(data: Path, length: int, characters: int) -> str:
    """Store a session with `count` messages through the library and return its id."""
    manager = SessionManager(data / "chat_sessions")
    session_id = manager.create_session(SessionCreationOptions(model=_MODEL)).session_id
    content = (_WORDS * (characters // len(_WORDS) + 1))[:characters]
    pair: list[Message] = [
        user_message(content),
        {
            "role": "assistant",
            "content": content,
            "model": _MODEL,
            "message_id": new_id(),
            "timestamp": now(),
            "eval_count": 20,
            "prompt_eval_count": 20,
        },
    ]
    messages = [message.copy() for _ in range(length // 2 + 1) for message in pair]
    manager.append_messages(session_id, list(islice(messages, length)))
    return session_id


def _turns(server: Server, session_id: str, count: int) -> Result:
    result = perform(Job(server.pid, server.port, [mochi.stream(session_id)] * count))
    settle(server)
    return result


_TURN, _CPU, _TIMES = "turn, ms", "CPU, ms", "turn, relative to the empty session"


def _row(length: int, own: list[Result], empty: list[Result]) -> Row:
    took, cpu = median(own, _took), median(own, _used)
    return {
        "": f"{length:,} messages",
        _TURN: took,
        _CPU: cpu,
        "first token, ms": median(own, lambda r: percentile(r.first_ms, 50)),
        _TIMES: took / median(empty, _took),
        "CPU, relative to the empty session": cpu / median(empty, _used),
    }


def _aims(rows: list[Row]) -> list[Aim]:
    _, long, very_long = rows
    return [
        Aim(f"a turn after {row['']}, relative to an empty session", float(row[_TIMES]), limit, "x")
        for row, limit in ((long, 1.5), (very_long, 3.0))
    ]


def _took(result: Result) -> float:
    return percentile([stream.whole for stream in result.streams if stream.whole is not None], 50)


def _used(result: Result) -> float:
    return 1000 * result.cpu_seconds / len(result.streams)
