"""The programs of `docs/how-to/webhooks.md` accept the webhooks of a server, and no others."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from mochi_stub import StubServer
from tests.docs_tooling.pages import ROOT, blocks
from tests.support.api import Api
from tests.support.ports import free_port
from tests.support.server import RunningServer
from tests.support.waiting import until
from tests.support.webhooks import SECRET, Receiver

PAGE = ROOT / "docs" / "how-to" / "webhooks.md"
ESBUILD = ROOT / "tests/contract/ts/node_modules/.bin/esbuild"
PROGRAM = """
import { verify } from "./verify.mjs";
const [body, headers, secret] = JSON.parse(process.argv[2]);
try {
  console.log((await verify(body, new Headers(headers), secret)).type);
} catch (error) {
  console.log(error.message);
}
"""


def block(title: str) -> str:
    (text,) = [each.text for each in blocks(PAGE) if each.title == title]
    return text


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
def program(tmp_path: Path) -> "Iterator[tuple[str, subprocess.Popen[str]]]":
    """The Python program of the page: its URL and its process."""
    port = free_port()
    script = tmp_path / "receiver.py"
    script.write_text(block("receiver.py").replace("9000", str(port)))
    environment = {**os.environ, "MOCHI_WEBHOOK_SECRET": SECRET}
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen(
        [sys.executable, str(script)], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        until(lambda: _accepts(url))
        yield url, process
        process.kill()


def _accepts(url: str) -> bool:
    try:
        httpx.get(url, trust_env=False)
    except httpx.TransportError:
        return False
    return True


def send_message(api: Api) -> str:
    session_id = str(api.create_session("mochi")["session_id"])
    api.send_message(session_id, "Hello!")
    return session_id


def webhook(stub_url: str, data_dir: Path, receiver: Receiver) -> tuple[dict[str, str], bytes]:
    """Return the headers and the body of a webhook of a server."""
    with RunningServer(data_dir, stub_url, **receiver.settings) as server:
        send_message(server.client)
        receiver.wait(1)
    return receiver.received[0]


def test_python_program_accepts_the_webhooks_of_a_server(
    program: "tuple[str, subprocess.Popen[str]]", private_stub: StubServer, tmp_path: Path
) -> None:
    url, process = program
    settings = {"webhook_url": f"{url}/hook", "webhook_secret": SECRET}
    with RunningServer(tmp_path, private_stub.url, **settings) as server:
        session_id = send_message(server.client)
        assert process.stdout is not None
        assert process.stdout.readline() == f"run.completed {session_id}\n"


def test_python_program_rejects_other_webhooks(
    program: "tuple[str, subprocess.Popen[str]]",
    private_stub: StubServer,
    tmp_path: Path,
    receiver: Receiver,
) -> None:
    url, _ = program
    headers, body = webhook(private_stub.url, tmp_path, receiver)
    changes: list[dict[str, str]] = [
        {},
        {"webhook-timestamp": "1"},
        {"webhook-timestamp": "soon"},
        {"webhook-id": "other"},
        {"webhook-signature": "v1,AAAA"},
    ]
    names = ("webhook-id", "webhook-timestamp", "webhook-signature")
    signed = {name: headers[name] for name in names}
    statuses = []
    for change in changes:
        sent = httpx.post(url, content=body, headers={**signed, **change}, trust_env=False)
        statuses.append(sent.status_code)
    statuses.append(httpx.post(url, content=body, trust_env=False).status_code)
    statuses.append(
        httpx.post(url, content=body + b" ", headers=signed, trust_env=False).status_code
    )
    assert statuses == [204, *[401] * 6]


@pytest.mark.slow
@pytest.mark.skipif(
    not ESBUILD.exists() or shutil.which("node") is None,
    reason="`npm ci` has not been run in tests/contract/ts",
)
def test_typescript_function_verifies_the_webhooks_of_a_server(
    private_stub: StubServer, tmp_path: Path, receiver: Receiver
) -> None:
    (tmp_path / "verify.ts").write_text(block("verify.ts"))
    (tmp_path / "program.mjs").write_text(PROGRAM)
    subprocess.run([ESBUILD, "verify.ts", "--outfile=verify.mjs"], cwd=tmp_path, check=True)
    headers, body = webhook(private_stub.url, tmp_path, receiver)

    def verified(text: str, secret: str = SECRET, **changes: str) -> str:
        given = {**headers, **{name.replace("_", "-"): value for name, value in changes.items()}}
        argument = json.dumps([text, given, secret])
        command = ["node", "program.mjs", argument]
        return subprocess.check_output(command, cwd=tmp_path, text=True).strip()

    wrong = "The signature is wrong."
    assert verified(body.decode()) == "run.completed"
    assert verified(body.decode() + " ") == wrong
    assert verified(body.decode(), "whsec_AAAA") == wrong
    assert verified(body.decode(), webhook_timestamp="1") == "The webhook is too old."
