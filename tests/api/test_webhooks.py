"""Webhooks about runs: what is sent, repeats, and restarts."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import orjson
import pytest
from pydantic import ValidationError

from mochi_server.config import MochiServerSettings
from mochi_server.container import Components
from mochi_server.errors import StorageFailed
from mochi_server.sessions.change import Notice
from mochi_server.sessions.store import WebhookOutbox
from mochi_server.storage.files.webhooks import FileWebhookOutbox
from mochi_server.telemetry.webhooks import WebhookService, WebhookTimes
from mochi_server.util.clock import as_datetime, as_text
from mochi_stub import Cut, Gate, Prompt, Reply, StubServer, Text
from tests.support.cases import cases
from tests.support.instructions import calls, instruct
from tests.support.server import RunningServer
from tests.support.tools import write_tools
from tests.support.waiting import until
from tests.support.webhooks import SECRET, Receiver

pytestmark = pytest.mark.two_servers

TOOL = """
def one() -> str:
    "One."
    return "1"

__all__ = ["one"]
"""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


SHORT_PAUSES = Components(webhooks=WebhookTimes(first_pause=0.2, poll=0.1))
"""A server that repeats webhooks after a tenth of the usual pause."""


class TimedOutbox(WebhookOutbox):
    """Outbox of one webhook, which records the pauses and None for the removal."""

    def __init__(self) -> None:
        self.stored = asyncio.Event()
        self.pauses: list[float | None] = []

    async def claim(self, seconds: float) -> Notice | None:
        raise NotImplementedError

    async def postpone(self, _: str, seconds: float) -> None:
        self.pauses.append(seconds)

    async def backlog(self) -> tuple[int, Notice | None]:
        raise NotImplementedError

    async def remove(self, _: str) -> None:
        self.pauses.append(None)


def outbox_of(*notices: Notice) -> FileWebhookOutbox:
    async def delivered(_: Notice) -> None:
        """Leave the files as they are."""

    outbox = FileWebhookOutbox(delivered)
    outbox.add(notices)
    return outbox


def settings_of(url: str, secret: str) -> MochiServerSettings:
    values: dict[str, Any] = {"webhook_url": url, "webhook_secret": secret}
    return MochiServerSettings(**values)


def resolve(prompt: Prompt) -> Reply | None:
    if prompt.user_text == "hold":
        return Reply([Text(["one "]), Gate()])
    return Reply([Text(["one "]), Cut()]) if prompt.user_text == "fail" else None


@pytest.fixture(scope="module")
def own_stub() -> Iterator[StubServer]:
    with StubServer(speed=0, resolve=resolve) as stub:
        yield stub


def test_ended_and_waiting_runs_are_reported(
    tmp_path: Path, own_stub: StubServer, receiver: Receiver
) -> None:
    write_tools(tmp_path, TOOL)
    with RunningServer(
        tmp_path, own_stub.url, **receiver.settings, summarization_enabled=False
    ) as server:
        api = server.client
        session_id = api.create_session("mochi", tool_settings={"tools": ["one"]})["session_id"]
        path = f"/chat/{session_id}"
        api.ok(
            api.http.post(path, json={"message": instruct(calls("one")), "background": True}), 202
        )
        (waits,) = receiver.wait(1)
        run_id = api.ok(api.http.get(f"{path}/run"))["run_id"]
        assert waits["type"] == "run.waiting_for_approval"
        assert waits["data"] == {"session_id": session_id, "run_id": run_id}
        (call,) = api.ok(api.http.get(f"{path}/confirmations"))["confirmations"]
        decision = {"confirmation_id": call["confirmation_id"], "approved": True}
        api.ok(api.http.post(f"{path}/confirm-tool", json=decision))
        assert receiver.wait(2)[1]["type"] == "run.completed"
        assert receiver.wait(2)[1]["data"] == {"session_id": session_id, "run_id": run_id}
        # The webhook can arrive from the other server before this one has unlocked the session.
        failing = {"message": "fail", "if_busy": "wait"}
        assert api.http.post(path, json=failing).status_code == 502
        assert receiver.wait(3)[2]["type"] == "run.failed"
        assert {frozenset(event) for event in receiver.wait(3)} == {
            frozenset({"type", "timestamp", "data"})
        }
        assert {frozenset(event["data"]) for event in receiver.wait(3)} == {
            frozenset({"session_id", "run_id"})
        }


def test_stopped_run_is_not_reported(
    tmp_path: Path, own_stub: StubServer, receiver: Receiver
) -> None:
    with RunningServer(
        tmp_path, own_stub.url, **receiver.settings, summarization_enabled=False
    ) as server:
        api = server.client
        session_id = api.create_session("mochi")["session_id"]
        api.ok(
            api.http.post(f"/chat/{session_id}", json={"message": "hold", "background": True}), 202
        )
        api.ok(api.http.post(f"/chat/{session_id}/stop"))
        api.send_message(session_id, "Hi")
        assert [event["type"] for event in receiver.wait(1)] == ["run.completed"]
        run_id = api.ok(api.http.get(f"/chat/{session_id}/run"))["run_id"]
        assert receiver.wait(1)[0]["data"]["run_id"] == run_id


def test_refused_webhook_is_repeated_with_its_id(
    tmp_path: Path, own_stub: StubServer, receiver: Receiver
) -> None:
    receiver.statuses = [500, 302]
    settings = {**receiver.settings, "summarization_enabled": False}
    with RunningServer(tmp_path, own_stub.url, SHORT_PAUSES, **settings) as server:
        session_id = server.client.create_session("mochi")["session_id"]
        server.client.send_message(session_id, "Hi")
        first, second, third = receiver.wait(3)
    assert first == second == third
    assert len({headers["webhook-id"] for headers, _ in receiver.received}) == 1
    assert len(receiver.received) == 3  # the redirect was not followed


def test_webhook_is_sent_after_a_restart(
    tmp_path: Path, own_stub: StubServer, receiver: Receiver
) -> None:
    receiver.answering.clear()
    with RunningServer(
        tmp_path, own_stub.url, **receiver.settings, summarization_enabled=False
    ) as server:
        session_id = server.client.create_session("mochi")["session_id"]
        server.client.send_message(session_id, "Hi")
        receiver.wait(1)
    receiver.answering.set()
    with RunningServer(
        tmp_path, own_stub.url, **receiver.settings, summarization_enabled=False
    ) as server:
        # One of two servers that stop leaves the webhook to the other, which may send it once more.
        first, *repetitions = receiver.wait(2)
        assert all(repetition == first for repetition in repetitions)
        accepted = "mochi_undelivered_webhooks 0.0"
        until(lambda: accepted in server.client.http.get("/metrics").text)
    sent = len(receiver.received)
    with RunningServer(
        tmp_path, own_stub.url, **receiver.settings, summarization_enabled=False
    ) as server:
        server.client.send_message(session_id, "Hi")
        assert len(receiver.wait(sent + 1)) == sent + 1


@cases("age", [0, 20, 1800, 7200, 4 * 86_400])
def test_pauses_double_for_more_than_an_hour(receiver: Receiver, age: float) -> None:
    """The pauses do not depend on the age of the webhook, which may have waited for another one or
    for the start of a server.
    """
    outbox = TimedOutbox()
    service = WebhookService(outbox, receiver.url, SECRET)
    receiver.statuses = [500] * 100
    moment = as_text(as_datetime(time.time() - age))
    notice = Notice("msg_1", "0", f'{{"timestamp":"{moment}"}}')

    async def attempts() -> list[float]:
        async with aiohttp.ClientSession() as http:
            while outbox.pauses[-1:] != [None]:
                await service._send(http, notice)
        return [pause for pause in outbox.pauses if pause is not None]

    pauses = asyncio.run(attempts())
    doubled = [pause * 2 for pause in pauses]
    assert pauses[1:] == doubled[:-1]
    assert pauses[0] <= 5
    assert sum(pauses) >= 3600
    assert len(pauses) < 100  # the receiver refused each attempt


async def test_old_webhook_is_kept_if_the_server_stops_before_the_answer(
    receiver: Receiver,
) -> None:
    body = orjson.dumps(
        {"type": "run.completed", "timestamp": as_text(as_datetime(time.time() - 7200)), "data": {}}
    )
    notice = Notice("msg_1", "0", body.decode())
    outbox = outbox_of(notice)
    receiver.answering.clear()
    service = WebhookService(outbox, receiver.url, SECRET)
    service.open()
    await asyncio.to_thread(receiver.wait, 1)
    await service.aclose()
    assert await outbox.claim(30) == notice


ASKED, ENDED = Notice("msg_conf_1", "0", "asked", is_request=True), Notice("msg_1", "0", "ended")


async def test_webhooks_of_a_session_are_sent_in_order() -> None:
    other = Notice("msg_2", "1", "other")
    outbox = outbox_of(Notice("msg_0", "0", "first"), ENDED, other)
    first = await outbox.claim(30)
    assert first is not None
    assert (first.body, await outbox.claim(30), await outbox.claim(30)) == ("first", other, None)
    await outbox.postpone("msg_0", 30)
    assert await outbox.claim(30) is None
    await outbox.remove("msg_0")
    assert await outbox.claim(30) == ENDED


async def test_later_webhook_replaces_a_request_that_was_not_delivered() -> None:
    outbox = outbox_of(ASKED)
    assert await outbox.claim(30) == ASKED
    outbox.add([ENDED])
    assert await outbox.claim(30) is None  # it must not overtake the attempt
    await outbox.postpone(ASKED.webhook_id, 30)
    assert await outbox.claim(30) == ENDED


class FilesOnFullDisk:
    """Session files whose webhooks cannot be removed while ``is_full`` is true."""

    def __init__(self) -> None:
        self.is_full = True
        self.removed: list[str] = []

    async def remove(self, notice: Notice) -> None:
        if self.is_full:
            raise StorageFailed("save session 0", OSError(28, "No space left on device"))
        self.removed.append(notice.webhook_id)


async def test_webhook_that_was_accepted_on_a_full_disk_is_not_sent_again() -> None:
    files = FilesOnFullDisk()
    outbox = FileWebhookOutbox(files.remove, retry_seconds=0)
    outbox.add([ENDED])
    assert await outbox.claim(0) == ENDED
    await outbox.remove(ENDED.webhook_id)
    assert await outbox.claim(0) is None
    assert await outbox.backlog() == (0, None)
    files.is_full = False
    for _ in range(2):
        assert await outbox.claim(0) is None
    assert files.removed == [ENDED.webhook_id]


async def test_replaced_webhook_on_a_full_disk_blocks_no_other() -> None:
    other = Notice("msg_2", "1", "other")
    files = FilesOnFullDisk()
    outbox = FileWebhookOutbox(files.remove)
    outbox.add([ASKED, ENDED, other])
    assert [await outbox.claim(30) for _ in range(3)] == [ENDED, other, None]


class ListedOutbox(WebhookOutbox):
    """Outbox with the webhooks of a list, as a damaged table of the database contains them."""

    def __init__(self, *webhooks: Notice) -> None:
        self.stored = asyncio.Event()
        self.waiting = list(webhooks)
        self.removed: list[str] = []
        self.has_removed_two = asyncio.Event()

    async def claim(self, _: float) -> Notice | None:
        return self.waiting.pop(0) if self.waiting else None

    async def postpone(self, webhook_id: str, seconds: float) -> None:
        raise NotImplementedError

    async def backlog(self) -> tuple[int, Notice | None]:
        raise NotImplementedError

    async def remove(self, webhook_id: str) -> None:
        self.removed.append(webhook_id)
        if len(self.removed) == 2:
            self.has_removed_two.set()


@cases("webhook_id", ["msg_1\r\nhost: x", ""])
async def test_damaged_row_of_a_webhook_is_removed(receiver: Receiver, webhook_id: str) -> None:
    outbox = ListedOutbox(
        Notice(webhook_id, "0", "{}"), Notice("msg_2", "1", '{"type":"run.completed"}')
    )
    service = WebhookService(outbox, receiver.url, SECRET)
    service.open()
    with anyio.fail_after(60):
        await outbox.has_removed_two.wait()
    await service.aclose()
    assert sorted(outbox.removed) == sorted([webhook_id, "msg_2"])
    assert [headers["webhook-id"] for headers, _ in receiver.received] == ["msg_2"]
    receiver.received.clear()


@cases("url", ["ftp://example.com", "example.com/hook", "http://", "https:///path"])
def test_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="not an http:// or https:// URL"):
        settings_of(url, SECRET)


@cases("secret", ["", "whsec_", "whsec_no base64!", "whsec_c2hvcnQ=", "päss"])
def test_invalid_secret_is_refused(secret: str) -> None:
    with pytest.raises(ValidationError, match="webhook_secret"):
        settings_of("https://example.com/hook", secret)


def test_settings_do_not_print_the_secret() -> None:
    settings = settings_of("https://example.com/hook", SECRET)
    assert SECRET not in repr(settings)


@pytest.mark.slow
def test_missing_secret_stops_the_start_with_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mochi_server", "--data-dir", str(tmp_path)]
    environment = {"MOCHI_WEBHOOK_URL": "https://example.com/hook", "PATH": ""}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0
    assert len(done.stderr.strip().splitlines()) == 1
    assert "MOCHI_WEBHOOK_SECRET" in done.stderr
