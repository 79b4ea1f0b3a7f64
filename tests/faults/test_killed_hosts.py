"""Hosts that are killed and revived while sessions stream: turns move to another host, and no
message is lost.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from threading import Event

import pytest

from mochi_stub import Machine, Model, Prompt, Reply, StubServer
from mochi_stub.reply import Pace
from tests.faults.rounds import share
from tests.support.api import Api
from tests.support.fleet import Fleet, Traffic, in_parallel, serving
from tests.support.stub import chats
from tests.support.waiting import until

pytestmark = pytest.mark.slow

KILLS = share(10)
HOSTS, STREAMS, SLOTS = 4, 40, 16
TURNS_PER_STATE = 10
"""Turns that begin their answers while hosts are down, and after they have been revived."""
MODEL = Model("chat", context_length=131_072, chars_per_token=4)
MESSAGE_TOKENS, TEMPLATE_TOKENS = 100, 16
RECOVERY_SECONDS = 60


def answer(prompt: Prompt) -> Reply:
    text = "One word follows another. " * 4
    return replace(Reply.of(f"Answer {len(prompt.messages)}. {text}"), pace=Pace(20, 200))


def message(session: int, turn: int) -> str:
    return f"Message {turn} of {session}. ".ljust(MESSAGE_TOKENS * 4, "?")


def test_killed_hosts_fail_no_turn_before_its_answer_begins() -> None:
    stubs = [
        StubServer(models=[MODEL], machine=Machine(parallel=SLOTS), resolve=answer)
        for _ in range(HOSTS)
    ]
    with serving(stubs, initial_context_window=65_536, ollama_slots=SLOTS) as (fleet, api):
        traffic = Traffic(fleet, api)
        ids = [
            api.create_session(MODEL.name, system_prompt=f"{i} is your number.")["session_id"]
            for i in range(STREAMS)
        ]
        sent = [0] * STREAMS
        is_over = Event()

        def talk(session: int) -> None:
            if session == STREAMS:
                kill_and_revive(traffic)
                is_over.set()
            while not is_over.is_set():
                send(session)

        def send(session: int) -> None:
            sent[session] += 1
            traffic.turn(session, ids[session], message(session, sent[session]))

        in_parallel(STREAMS + 1, talk)
        assert traffic.failed == 0
        until(lambda: are_all_up(api), RECOVERY_SECONDS)
        limit = 1.15 * STREAMS * (MESSAGE_TOKENS + TEMPLATE_TOKENS)
        until(
            lambda: evaluated_tokens(fleet, lambda: in_parallel(STREAMS, send)) <= limit,
            RECOVERY_SECONDS,
        )
        for session, session_id in enumerate(ids):
            contents = [
                each["content"] for each in api.messages(session_id) if each["role"] == "user"
            ]
            assert contents == [message(session, turn + 1) for turn in range(sent[session])]


def kill_and_revive(traffic: Traffic) -> None:
    """Kill hosts while turns begin and end, and revive them. One host always runs."""
    random, killed = Random(0), 0
    while killed < KILLS:
        down = random.sample(range(HOSTS), random.randint(1, HOSTS - 1))
        for change in (Fleet.kill, Fleet.revive):
            for host in down:
                change(traffic.fleet, host)
            begun = len(traffic.first_tokens)
            until(lambda begun=begun: len(traffic.first_tokens) >= begun + TURNS_PER_STATE, 60)  # type: ignore[misc]
        killed += len(down)


def are_all_up(api: Api) -> bool:
    return all(host["state"] == "up" for host in api.ok(api.http.get("/hosts"))["hosts"])


def evaluated_tokens(fleet: Fleet, run: Callable[[], object]) -> int:
    """Return the prompt tokens that the hosts evaluate while ``run`` runs."""
    for stub in fleet.stubs:
        stub.clear_exchanges()
    run()
    return sum(each.evaluated_tokens or 0 for stub in fleet.stubs for each in chats(stub))
