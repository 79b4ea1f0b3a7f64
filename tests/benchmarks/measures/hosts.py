"""The choice among several hosts, compared with other ways to distribute turns.

Each host is a mochi-stub that imitates the scheduler, the slots and the evaluation speed of Ollama.
Sessions send messages at random times. Meanwhile a host dies, and returns with an empty memory. The
other ways pin a turn to a host that runs: a random one, the next one, or one by a hash of the
session. With *private host*, each session has a host of its own that never dies.

Evaluated tokens do not depend on the speed of the machine. Each message adds tokens to a
conversation, and a host evaluates the whole conversation if no slot contains its beginning. All
hosts together have one slot for each session. The throughput is the number of turns per second of
sessions that do not pause, on hosts with two slots and a fixed speed.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import count
from random import Random
from threading import Thread

from mochi_stub import Machine, Model, StubServer
from mochi_stub.prompt import Prompt
from mochi_stub.reply import Pace, Reply
from tests.benchmarks.figures import percentile, ratio
from tests.benchmarks.measures import Aim, Findings, Row, Setting
from tests.benchmarks.workload import adjustable
from tests.support.fleet import Choice, Fleet, Traffic, in_parallel, serving
from tests.support.waiting import until

TITLE = "Several hosts"
SHOWS_ROWS = True
_CHARS_PER_TOKEN = 4
# large enough for all conversations, because a reload for a larger window empties the slots
_WINDOW = 16_384
_MODELS = ("large", "small")
TOKENS, _P50, _P99, _LOST, _TURNS = (
    "evaluated tokens",
    "first token p50, ms",
    "first token p99, ms",
    "answers that a death ended",
    "turns/s",
)
_DEATH_PROGRESS = 0.05  # share of the turns before the first death, and between two deaths
_DOWN_PROGRESS = 0.05  # share of the turns while a host is down
_BUSY_SLOTS, _BUSY_ANSWER_SECONDS = 2, 0.5


@dataclass(frozen=True)
class Workload:
    hosts: int = adjustable(4, "hosts")
    sessions: int = adjustable(40, "sessions, half of them with each of two models")
    turns: int = adjustable(20, "turns of each session")
    slots: int = adjustable(5, "slots of each model on each host")
    message: int = adjustable(300, "tokens of a message, on average")
    answer: int = adjustable(80, "tokens of an answer")
    answer_seconds: float = adjustable(0.4, "seconds of an answer")
    pause: float = adjustable(2.0, "seconds from an answer to the next message, on average")
    prompt_speed: int = adjustable(2000, "prompt tokens that a host evaluates per second")
    load: float = adjustable(1.0, "seconds to load a model")
    deaths: int = adjustable(1, "hosts that die, one after another")
    busy_sessions: int = adjustable(
        24, "sessions that send messages without pauses, for the throughput"
    )
    seconds: float = adjustable(8.0, "seconds of the throughput")


def _random() -> Choice:
    random = Random(0)
    return lambda _, running: random.choice(running)


def _round_robin() -> Choice:
    turns = count()
    return lambda _, running: running[next(turns) % len(running)]


def _pinning_by_hash() -> Choice:
    """Return a choice by rendezvous hashing, so that a lost host moves no session of
    another host.
    """
    return lambda session, running: max(
        running, key=lambda host: sha256(f"{session} {host}".encode()).digest()
    )


def _private_host() -> Choice:
    return lambda session, _: session


_PRIVATE = "private host"
CHOICES: dict[str, Callable[[], Choice | None]] = {
    "mochi-server": lambda: None,
    "random": _random,
    "round robin": _round_robin,
    "pinning by hash": _pinning_by_hash,
    _PRIVATE: _private_host,
}


def measure(work: Workload, setting: Setting) -> Findings:
    """Return one row for each way to choose a host, and one for the throughput with a
    single host.
    """
    del setting
    rows: dict[str, Row] = {label: {"": label, **simulate(work, label)} for label in CHOICES}
    rows["mochi-server"][_TURNS] = throughput(work, work.hosts)
    rows["one host"] = {"": "one host", _TURNS: throughput(work, 1)}
    return Findings([*rows.values()], _aims(work, rows))


def _aims(work: Workload, rows: dict[str, Row]) -> list[Aim]:
    own = rows["mochi-server"]

    def relative(figure: str, label: str) -> float | None:
        return ratio(float(own[figure]), float(rows[label][figure]))

    times = [
        Aim(f"{figure.partition(',')[0]}, relative to {label}", relative(figure, label), 1, "x")
        for figure in (_P50, _P99)
        for label in ("pinning by hash", "random")
    ]
    return [
        Aim(
            "evaluated tokens, relative to private hosts",
            relative(TOKENS, "private host"),
            1.15,
            "x",
        ),
        Aim("evaluated tokens, relative to random", relative(TOKENS, "random"), 1 / 3, "x"),
        *times,
        Aim(
            f"throughput of {work.hosts} hosts, relative to one",
            relative(_TURNS, "one host"),
            3.6,
            "x",
            at_least=True,
        ),
    ]


def simulate(work: Workload, label: str) -> dict[str, float]:
    """Run all sessions to their end and return the figures. With private hosts, no host dies."""
    if label == _PRIVATE:
        work = replace(work, hosts=work.sessions, deaths=0)
    machine = Machine(parallel=work.slots, prompt_speed=work.prompt_speed)
    settings = {"ollama_slots": work.slots, "initial_context_window": _WINDOW}
    with serving([_host(machine, work) for _ in range(work.hosts)], **settings) as (hosts, api):
        traffic = Traffic(hosts, api, CHOICES[label]())
        deaths = Thread(target=_kill_hosts, args=(work, traffic))
        deaths.start()
        in_parallel(work.sessions, lambda number: _talk(work, traffic, number))
        deaths.join()
        tokens = hosts.evaluated_tokens
    p50, p99 = (percentile(traffic.first_tokens, percent) * 1000 for percent in (50, 99))
    return {TOKENS: tokens, _P50: p50, _P99: p99, _LOST: traffic.lost}


def throughput(work: Workload, hosts: int) -> float:
    """Return the turns per second of sessions that do not pause."""
    work = replace(work, answer_seconds=_BUSY_ANSWER_SECONDS, load=0)
    stubs = [_host(Machine(parallel=_BUSY_SLOTS), work) for _ in range(hosts)]
    with serving(stubs, ollama_slots=_BUSY_SLOTS) as (running, api):
        traffic, deadline = Traffic(running, api), time.monotonic() + work.seconds
        ended: list[float] = []

        def talk(number: int) -> None:
            session_id = _new_session(traffic, number)
            while time.monotonic() < deadline:
                traffic.turn(number, session_id, "Hello!")
                ended.append(time.monotonic())

        in_parallel(work.busy_sessions, talk)
    return sum(moment < deadline for moment in ended) / work.seconds


def _host(machine: Machine, work: Workload) -> StubServer:
    models = [
        Model(
            name, context_length=2 * _WINDOW, chars_per_token=_CHARS_PER_TOKEN, load_time=work.load
        )
        for name in _MODELS
    ]
    return StubServer(models=models, machine=machine, resolve=_replies(work))


def _replies(work: Workload) -> Callable[[Prompt], Reply]:
    characters = work.answer * _CHARS_PER_TOKEN
    pace = Pace(characters // 10, characters / work.answer_seconds)

    def resolve(prompt: Prompt) -> Reply:
        return replace(Reply.of(_words(f"Answer {len(prompt.messages)}.", work.answer)), pace=pace)

    return resolve


def _talk(work: Workload, traffic: Traffic, number: int) -> None:
    """Send the messages of one session. They are the same for each way to choose a host."""
    random = Random(number)
    time.sleep(random.uniform(0, work.turns * work.pause / 10))
    session_id = _new_session(traffic, number)
    for turn in range(work.turns):
        text = _words(
            f"Message {turn} of {number}.", round(work.message * random.uniform(0.5, 1.5))
        )
        traffic.turn(number, session_id, text)
        time.sleep(random.expovariate(1 / work.pause))


def _new_session(traffic: Traffic, number: int) -> str:
    model, system_prompt = (
        _MODELS[number % len(_MODELS)],
        f"{number} is the number of this assistant.",
    )
    session_id: str = traffic.api.create_session(model, system_prompt=system_prompt)["session_id"]
    return session_id


def _kill_hosts(work: Workload, traffic: Traffic) -> None:
    """Kill hosts when certain shares of all turns have begun their answers, and revive them."""
    total = work.sessions * work.turns
    for death in range(work.deaths):
        host, progress = death % work.hosts, _DEATH_PROGRESS * (death + 1)
        for share, change in ((progress, Fleet.kill), (progress + _DOWN_PROGRESS, Fleet.revive)):
            until(lambda share=share: len(traffic.first_tokens) >= share * total, seconds=600)  # type: ignore[misc]
            change(traffic.fleet, host)


def _words(opening: str, tokens: int) -> str:
    """Return a text of ``tokens`` tokens that begins with ``opening``."""
    return (f"{opening} " + "One word follows another. " * tokens)[: tokens * _CHARS_PER_TOKEN]
