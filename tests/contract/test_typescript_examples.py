"""`docs/examples/sessions.ts`, compiled with the types of the API and run by Node.

The compiler needs `npm ci` in `ts`.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mochi_stub import StubServer
from tests.mcp.patient_server import PatientServer
from tests.support.api import Api
from tests.support.mcp import write_mcp
from tests.support.mcp_oauth import OAuthMcp
from tests.support.server import RunningServer
from tests.support.waiting import until

HERE = Path(__file__).parent / "ts"
EXAMPLE = Path(__file__).parents[2] / "docs/examples/sessions.ts"
EXPORT = Path(__file__).parents[1] / "api/exports/claude/plain.json"
_OPTIONS = ["--module", "es2022", "--moduleResolution", "bundler", "--target", "es2022", "--outDir"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (HERE / "node_modules/typescript").exists(), reason="`npm ci` has not been run"
    ),
]


def run(*command: object) -> str:
    done = subprocess.run(
        [*map(str, command)], check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("typescript")
    (folder / "package.json").write_text('{"type": "module"}')
    run("node", HERE / "node_modules/typescript/bin/tsc", *_OPTIONS, folder, EXAMPLE)
    return folder / "sessions.js"


def result_of(compiled: Path, server: RunningServer, code: str) -> Any:
    """Return the value of an expression that uses the functions of the example as ``s``."""
    module = compiled.with_name("with_address.js")
    module.write_text(compiled.read_text().replace("http://127.0.0.1:8000", server.url))
    program = f"import * as s from {str(module)!r}; console.log(JSON.stringify(await ({code})));"
    return json.loads(run("node", "--input-type=module", "--eval", program))


@pytest.fixture
def api(server: RunningServer) -> Api:
    return server.client


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with (
        StubServer(speed=0) as stub,
        RunningServer(tmp_path_factory.mktemp("data"), stub.url) as server,
    ):
        yield server


def test_versions_are_switched(compiled: Path, server: RunningServer, api: Api) -> None:
    session_id = str(api.create_session("mochi")["session_id"])
    first = api.send_message(session_id, "Hi")["message"]
    message_id = api.send_message(session_id)["message"]["message_id"]
    call = f"s.showVersion('{session_id}', '{message_id}', -1)"
    shown = result_of(compiled, server, call)
    assert shown["messages"][1] == first
    assert shown["versions"] == {first["message_id"]: {"count": 2, "shown": 1}}
    oldest = f"s.showVersion('{session_id}', '{first['message_id']}', -1)"
    assert result_of(compiled, server, oldest) is None


def test_file_is_sent_and_downloaded(compiled: Path, server: RunningServer, api: Api) -> None:
    session_id = str(api.create_session("mochi")["session_id"])
    file = "new File(['Höhe;Breite'], 'notes.csv')"
    answer = result_of(compiled, server, f"s.askAbout('{session_id}', 'Sum up.', [{file}])")
    assert answer["state"] == "completed"
    (attachment,) = api.messages(session_id)[0]["attachments"]
    assert attachment["name"] == "notes.csv"
    download = f"s.download('{session_id}', {json.dumps(attachment)})"
    assert result_of(compiled, server, f"(await {download}).text()") == "Höhe;Breite"


def test_pinned_session_is_first(compiled: Path, server: RunningServer, api: Api) -> None:
    ids = [str(api.create_session("mochi")["session_id"]) for _ in range(2)]
    order = f"s.putInOrder('{ids[0]}', {{pinned: true, tags: ['home']}}).then(() => true)"
    result_of(compiled, server, order)
    listed = [each["session_id"] for each in result_of(compiled, server, "s.listSessions()")]
    assert [listed[0], ids[1] in listed] == [ids[0], True]
    of_tag = result_of(compiled, server, "s.listSessions('home')")
    assert [each["session_id"] for each in of_tag] == [ids[0]]


def test_export_of_another_program_is_imported(compiled: Path, server: RunningServer) -> None:
    text = json.dumps(EXPORT.read_text())
    imported = result_of(compiled, server, f"s.importFile(new File([{text}], 'plain.json'))")
    assert imported["sessions"][0]["title"] == "Planting bulbs"
    assert isinstance(imported["warnings"], list)


def test_mcp_server_has_a_url_for_the_user(compiled: Path, tmp_path: Path) -> None:
    with OAuthMcp() as remote, StubServer(speed=0) as stub:
        write_mcp(tmp_path, hand=remote.entry)
        with PatientServer(tmp_path, stub.url) as server:
            api = server.api()

            def state() -> str:
                return str(api.ok(api.http.get("/mcp/servers"))["servers"][0]["state"])

            until(lambda: state() == "needs_authorization")
            urls = result_of(compiled, server, "s.authorizationUrls().then((urls) => [...urls])")
            ((name, url),) = urls
            assert name == "hand"
            assert url.startswith(remote.url)
