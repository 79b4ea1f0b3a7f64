"""Remote MCP servers that require OAuth: authorization in a browser, refresh, and client
credentials.
"""

import asyncio
import json
import logging
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mochi_server.client import MochiClient
from mochi_server.mcp.config import RemoteServer, read_config
from mochi_server.mcp.credentials import Credentials
from mochi_server.mcp.limits import McpLimits
from mochi_server.storage.memory import MemorySecretStore
from mochi_stub import StubServer
from tests.mcp.patient_server import PatientServer
from tests.mcp.test_servers import called, problems
from tests.support.api import Api
from tests.support.cases import cases
from tests.support.mcp import write_mcp
from tests.support.mcp_oauth import CLIENT_SECRET, OAuthMcp
from tests.support.waiting import until

SERVER_LOGS = ("uvicorn.error", "uvicorn.access", "mcp", "httpx2", "httpcore2")


@pytest.fixture
def remote() -> Iterator[OAuthMcp]:
    """An MCP server that requires OAuth."""
    with OAuthMcp() as remote:
        yield remote


def state_of(api: Api) -> str:
    return str(server_of(api)["state"])


def server_of(api: Api) -> dict[str, Any]:
    (server,) = api.ok(api.http.get("/mcp/servers"))["servers"]
    assert isinstance(server, dict)
    return server


def begin(api: Api, **body: str) -> str:
    """Begin an authorization, and return the URL for the browser."""
    begun = api.ok(api.http.post("/mcp/servers/hand/authorize", json=body))
    assert begun["expires_in"] == 600
    return str(begun["authorization_url"])


def browse(url: str) -> httpx.Response:
    """Open a URL as the browser of a user, and follow the redirects."""
    return httpx.get(url, follow_redirects=True, trust_env=False, timeout=60)


def authorize(api: Api) -> None:
    """Authorize the server `hand`, and wait until it is connected."""
    page = browse(begin(api))
    assert page.status_code == 200, page.text
    until(lambda: state_of(api) == "connected")


def stored(data_dir: Path) -> list[Path]:
    return sorted((data_dir / "mcp_authorizations").glob("*"))


@pytest.mark.parametrize("over_sse", [False, True], ids=["streamable HTTP", "SSE"])
def test_user_authorizes_in_a_browser(
    stub: StubServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, over_sse: bool
) -> None:
    with OAuthMcp(over_sse=over_sse) as remote:
        write_mcp(tmp_path, hand=remote.entry)
        with PatientServer(tmp_path, stub.url) as server:
            api = server.api()
            until(lambda: state_of(api) == "needs_authorization")
            assert "POST /api/v1/mcp/servers/hand/authorize" in problems(api)["hand"]
            assert remote.registered == {}  # before a user asks for it
            url = begin(api)
            assert "code_challenge_method=S256" in url
            page = browse(url)
            assert (page.status_code, page.url.path) == (200, "/api/v1/mcp/callback")
            assert "authorized at the MCP server hand" in page.text
            assert page.headers["referrer-policy"] == "no-referrer"
            until(lambda: state_of(api) == "connected")
            assert server_of(api) == {
                "name": "hand",
                "location": remote.entry["url"],
                "transport": "sse" if over_sse else "http",
                "state": "connected",
                "is_authorized": True,
                "tools": 2,
                "problems": [],
            }
            assert called(api, "shout", text="loud")["result"] == "LOUD"
        with PatientServer(tmp_path, stub.url) as server:  # tokens outlive the process
            assert called(server.api(), "shout", text="again")["result"] == "AGAIN"
    assert remote.grants == ["authorization_code"]
    assert not any(secret and secret in caplog.text for secret in remote.issued)
    files = stored(tmp_path)
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert stat.S_IMODE(files[0].parent.stat().st_mode) == 0o700


def test_tool_that_needs_another_scope_works_after_the_next_authorization(
    stub: StubServer, tmp_path: Path, remote: OAuthMcp
) -> None:
    write_mcp(tmp_path, hand=remote.entry)
    with PatientServer(tmp_path, stub.url) as server:
        api = server.api()
        authorize(api)
        remote.scope = "admin"
        assert "requires authorization" in called(api, "shout", text="a")["error_message"]
        authorize(api)
        assert called(api, "shout", text="loud")["result"] == "LOUD"
    scopes = [token.scopes for token in remote.access.values()]
    assert scopes == [["user"], ["user", "admin"]]


def test_tokens_never_reach_tools_exports_and_errors(
    stub: StubServer, tmp_path: Path, remote: OAuthMcp, caplog: pytest.LogCaptureFixture
) -> None:
    write_mcp(tmp_path, hand=remote.entry)
    caplog.set_level("DEBUG")
    with PatientServer(tmp_path, stub.url) as server:
        api = server.api()
        authorize(api)
        session = api.create_session(
            "mochi", tool_settings={"tool_group": "hand", "execution_policy": "never_confirm"}
        )
        session_id = session["session_id"]
        assert called(api, "reveal", session_id)["result"] == "***"
        seen = [
            api.http.get(path).text
            for path in (
                "/mcp/servers",
                "/tools",
                "/tools/executions",
                "/metrics",
                f"/sessions/{session_id}",
                f"/sessions/{session_id}/export",
            )
        ]
    # The log of this process also has the requests of the tests themselves.
    logged = [
        record.getMessage()
        for record in caplog.records
        if record.name in SERVER_LOGS or record.name.startswith("mochi_server")
    ]
    text = "\n".join([*seen, *logged])
    assert "MCP authorization succeeded" in text
    assert not any(secret and secret in text for secret in remote.issued)


def test_token_in_the_error_of_a_failed_connection_is_masked(
    stub: StubServer, tmp_path: Path, remote: OAuthMcp, caplog: pytest.LogCaptureFixture
) -> None:
    write_mcp(tmp_path, hand=remote.entry)
    remote.repeats_token = True
    with PatientServer(tmp_path, stub.url) as server:
        api = server.api()
        browse(begin(api))
        until(lambda: state_of(api) == "failed")
        assert problems(api)["hand"].endswith("no access with Bearer ***")
        listed = api.http.get("/mcp/servers").text
    logged = [
        record.getMessage() for record in caplog.records if record.name.startswith("mochi_server")
    ]
    text = "\n".join([listed, *logged])
    assert text.count("no access with Bearer ***") >= 2
    assert not any(token in text for token in remote.access)


def test_expired_token_is_refreshed_without_a_user(
    stub: StubServer, tmp_path: Path, remote: OAuthMcp
) -> None:
    write_mcp(tmp_path, hand=remote.entry)
    with PatientServer(tmp_path, stub.url) as server:
        api = server.api()
        authorize(api)
        (file,) = (tmp_path / "mcp_authorizations").glob("tokens-*")
        record = json.loads(file.read_text())
        file.write_text(json.dumps({**record, "expires_at": 1}))
        assert called(api, "shout", text="loud")["result"] == "LOUD"
        assert json.loads(file.read_text())["tokens"] != record["tokens"]
    assert remote.grants == ["authorization_code", "refresh_token"]


class SlowSecretStore(MemorySecretStore):
    """Store whose writes wait for `gate`. `wrote` is set when one begins."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.wrote = asyncio.Event()

    async def put(self, key: str, data: bytes) -> None:
        self.wrote.set()
        await self.gate.wait()
        await super().put(key, data)


async def test_parallel_requests_do_not_lose_a_refreshed_token() -> None:
    import httpx2
    from mcp.client.auth import OAuthClientProvider

    from mochi_server.mcp.oauth import provider_of
    from mochi_server.mcp.session import McpSession

    store = SlowSecretStore()
    config = RemoteServer(url="https://example.com/mcp", headers={})
    credentials = Credentials.of("hand", config, store)
    tokens = {"access_token": "old", "refresh_token": "again", "token_type": "Bearer"}
    record = {"tokens": tokens, "expires_at": 1, "client": {"client_id": "c"}}
    store.gate.set()
    await credentials.save(json.dumps(record))
    store.gate.clear()
    store.wrote.clear()
    provider = provider_of(config, credentials, McpSession("hand", credentials.masker))
    assert isinstance(provider, OAuthClientProvider)

    async def authorization() -> str | None:
        """Return with which authorization the MCP server receives a request."""
        request = httpx2.Request("POST", config.url)
        flow = provider.async_auth_flow(request)
        outgoing = await anext(flow)
        if outgoing is not request:
            new = {"access_token": "new", "token_type": "Bearer"}
            outgoing = await flow.asend(httpx2.Response(200, json=new))
        await flow.aclose()
        return outgoing.headers.get("authorization")

    refreshing = asyncio.ensure_future(authorization())
    await store.wrote.wait()
    waiting = asyncio.ensure_future(authorization())
    while not provider.context.lock.statistics().tasks_waiting:  # noqa: ASYNC110 - no event exists
        await asyncio.sleep(0)
    store.gate.set()
    assert await refreshing == "Bearer new"
    assert await waiting == "Bearer new"


@pytest.mark.parametrize("over_sse", [False, True], ids=["streamable HTTP", "SSE"])
def test_revoked_token_is_refreshed_once_then_a_user_is_needed(
    stub: StubServer, tmp_path: Path, over_sse: bool
) -> None:
    with OAuthMcp(over_sse=over_sse) as remote, PatientServer(tmp_path, stub.url) as server:
        write_mcp(tmp_path, hand=remote.entry)
        server.client.ok(server.client.http.post("/tools/reload"))
        api = server.api()
        authorize(api)
        remote.access.clear()
        assert called(api, "shout", text="loud")["result"] == "LOUD"
        assert remote.grants == ["authorization_code", "refresh_token"]
        remote.access.clear()
        remote.refresh.clear()
        assert "requires authorization" in called(api, "shout", text="loud")["error_message"]
        until(lambda: state_of(api) == "needs_authorization")
        assert server_of(api)["is_authorized"] is False
        authorize(api)
        assert called(api, "shout", text="loud")["result"] == "LOUD"
    assert len(remote.registered) == 1  # the registration stays


def test_forgotten_tokens_are_removed_and_no_longer_sent(
    stub: StubServer, tmp_path: Path, remote: OAuthMcp, caplog: pytest.LogCaptureFixture
) -> None:
    write_mcp(tmp_path, hand=remote.entry)
    caplog.set_level(logging.INFO, "mochi_server.audit")
    with PatientServer(tmp_path, stub.url) as server:
        api = server.api()
        authorize(api)
        assert stored(tmp_path)
        assert api.http.delete("/mcp/servers/hand/authorize").status_code == 204
        until(lambda: state_of(api) == "needs_authorization")
        assert stored(tmp_path) == []
        assert api.ok(api.http.get("/tools"))["groups"] == {"hand": []}
    assert [each.getMessage() for each in caplog.records if each.name == "mochi_server.audit"] == [
        "MCP authorization begun server=hand",
        "MCP authorization removed server=hand",
    ]


def test_tokens_of_a_server_are_not_sent_to_another_url_of_its_name(
    stub: StubServer, tmp_path: Path, remote: OAuthMcp
) -> None:
    write_mcp(tmp_path, hand=remote.entry)
    with OAuthMcp() as other, PatientServer(tmp_path, stub.url) as server:
        api = server.api()
        authorize(api)
        write_mcp(tmp_path, hand=other.entry)
        api.ok(api.http.post("/tools/reload"))
        until(lambda: state_of(api) == "needs_authorization")
        assert server_of(api)["is_authorized"] is False


@pytest.mark.parametrize("damage", ["", "[]", '{"tokens": 1}', '{"expires_at": "soon"}'])
def test_damaged_record_is_like_none(
    stub: StubServer, tmp_path: Path, remote: OAuthMcp, damage: str
) -> None:
    write_mcp(tmp_path, hand=remote.entry)
    with PatientServer(tmp_path, stub.url) as server:
        authorize(server.api())
    (file,) = (tmp_path / "mcp_authorizations").glob("tokens-*")
    file.write_text(damage)
    with PatientServer(tmp_path, stub.url) as server:
        api = server.api()
        until(lambda: state_of(api) == "needs_authorization")
        authorize(api)


def test_refused_authorization_is_reported(
    stub: StubServer, tmp_path: Path, remote: OAuthMcp
) -> None:
    write_mcp(tmp_path, hand=remote.entry)
    remote.refuses = True
    with PatientServer(tmp_path, stub.url) as server:
        api = server.api()
        page = browse(begin(api))
        assert (page.status_code, "access_denied" in page.text) == (400, True)
        assert server_of(api)["is_authorized"] is False


def test_callback_needs_the_state_of_the_latest_authorization(
    stub: StubServer, tmp_path: Path, remote: OAuthMcp
) -> None:
    write_mcp(tmp_path, hand=remote.entry)
    with PatientServer(tmp_path, stub.url) as server:
        api = server.api()
        first, second = begin(api), begin(api)
        unknown = api.http.get("/mcp/callback", params={"state": "<b>made up</b>", "code": "x"})
        assert (unknown.status_code, "unknown, used or expired" in unknown.text) == (400, True)
        assert api.http.get("/mcp/callback").status_code == 400
        assert browse(first).status_code == 400
        done = browse(second)
        assert done.status_code == 200
        assert browse(str(done.url)).status_code == 400  # a code is used once


def test_authorization_that_ends_after_a_reload_connects_the_present_server(
    stub: StubServer, tmp_path: Path, remote: OAuthMcp, caplog: pytest.LogCaptureFixture
) -> None:
    write_mcp(tmp_path, hand=remote.entry)
    caplog.set_level(logging.INFO, "mochi_server.mcp.servers")
    without_retry = McpLimits(start_seconds=15, retry_seconds=3600, max_retry_seconds=3600)
    with PatientServer(tmp_path, stub.url, limits=without_retry) as server:
        api = server.api()
        url = begin(api)
        api.ok(api.http.post("/tools/reload"))
        until(lambda: state_of(api) == "needs_authorization")
        assert browse(url).status_code == 200
        until(lambda: state_of(api) == "connected")
    connections = [each for each in caplog.messages if "MCP tools listed" in each]
    assert len(connections) == 1


def test_redirect_of_another_issuer_is_refused(
    stub: StubServer, tmp_path: Path, remote: OAuthMcp
) -> None:
    write_mcp(tmp_path, hand=remote.entry)
    with PatientServer(tmp_path, stub.url) as server:
        api = server.api()
        redirect = httpx.get(begin(api), trust_env=False).headers["location"]
        page = browse(f"{redirect}&iss=https://login.evil.example")
        assert (page.status_code, "iss mismatch" in page.text) == (400, True)
    assert remote.grants == []


def test_callback_url_can_be_that_of_a_proxy(
    stub: StubServer, tmp_path: Path, remote: OAuthMcp
) -> None:
    write_mcp(tmp_path, hand=remote.entry)
    with PatientServer(tmp_path, stub.url) as server:
        api = server.api()
        public = "https://chat.example/api/v1/mcp/callback"
        url = begin(api, callback_url=public)
        redirect = httpx.get(url, trust_env=False).headers["location"]
        assert redirect.startswith(public)
        assert browse(redirect.replace("https://chat.example", server.url)).status_code == 200
        until(lambda: state_of(api) == "connected")
        refused = api.http.post(
            "/mcp/servers/hand/authorize", json={"callback_url": "javascript:1"}
        )
        assert refused.status_code == 422


def test_client_credentials_need_no_user(
    stub: StubServer, tmp_path: Path, remote: OAuthMcp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MACHINE_SECRET", CLIENT_SECRET)
    entry = json.loads(json.dumps(remote.machine).replace(CLIENT_SECRET, "${MACHINE_SECRET}"))
    write_mcp(tmp_path, hand=entry)
    with PatientServer(tmp_path, stub.url) as server:
        api = server.api()
        assert called(api, "shout", text="loud")["result"] == "LOUD"
        remote.access.clear()
        assert called(api, "shout", text="again")["result"] == "AGAIN"
        assert remote.grants == ["client_credentials", "client_credentials"]
        refused = api.http.post("/mcp/servers/hand/authorize")
        assert refused.json()["error"]["code"] == "MCP_AUTHORIZATION_UNAVAILABLE"


def test_wrong_client_secret_is_reported_without_it(
    stub: StubServer, tmp_path: Path, remote: OAuthMcp
) -> None:
    entry = remote.machine
    entry["oauth"]["client_secret"] = "a-wrong-secret"
    write_mcp(tmp_path, hand=entry)
    with PatientServer(tmp_path, stub.url) as server:
        problem = problems(server.api())["hand"]
    assert "does not issue a token (HTTP 401)" in problem
    assert "a-wrong-secret" not in problem


def test_servers_without_oauth_cannot_be_authorized(stub: StubServer, tmp_path: Path) -> None:
    write_mcp(
        tmp_path,
        program={"command": "true"},
        token={"url": "http://127.0.0.1:9/mcp", "headers": {"authorization": "Bearer x"}},
        gone={"url": "http://127.0.0.1:9/mcp"},
    )
    with PatientServer(tmp_path, stub.url) as server:
        api = server.api()

        def refusal(name: str) -> tuple[int, str]:
            response = api.http.post(f"/mcp/servers/{name}/authorize")
            return response.status_code, response.json()["error"]["message"]

        assert refusal("nothing")[0] == 404
        assert refusal("program") == (
            409,
            "No user can authorize the MCP server 'program': it is a program, not a remote server.",
        )
        assert refusal("token")[0] == 409
        assert refusal("gone")[0] == 502
        assert api.http.delete("/mcp/servers/nothing/authorize").status_code == 404


def test_server_with_slashes_in_its_name_is_authorized(
    stub: StubServer, tmp_path: Path, remote: OAuthMcp
) -> None:
    name = "io.github.owner/server"
    write_mcp(tmp_path, **{name: remote.entry})
    with PatientServer(tmp_path, stub.url) as server, MochiClient(server.url) as client:
        until(lambda: client.list_mcp_servers()[0]["state"] == "needs_authorization")
        url = client.authorize_mcp_server(name)["authorization_url"]
        assert browse(url).status_code == 200
        until(lambda: client.list_mcp_servers()[0]["state"] == "connected")
        client.forget_mcp_authorization(name)
        until(lambda: client.list_mcp_servers()[0]["state"] == "needs_authorization")


def test_callback_of_the_browser_needs_no_api_key(
    stub: StubServer, tmp_path: Path, remote: OAuthMcp
) -> None:
    write_mcp(tmp_path, hand=remote.entry)
    with PatientServer(tmp_path, stub.url, api_keys=("key",)) as server:
        assert server.api().http.get("/mcp/servers").status_code == 401
        with MochiClient(server.url, api_key="key") as client:
            until(lambda: client.list_mcp_servers()[0]["state"] == "needs_authorization")
            url = client.authorize_mcp_server("hand")["authorization_url"]
            assert browse(url).status_code == 200
            until(lambda: client.list_mcp_servers()[0]["state"] == "connected")
            client.forget_mcp_authorization("hand")
            until(lambda: client.list_mcp_servers()[0]["state"] == "needs_authorization")


@cases(
    ("oauth", "problem"),
    [
        ({}, "oauth.client_id: Field required"),
        ({"clientId": "x", "clientSecret": "hush"}, "oauth: a client_secret needs the issuer"),
        (
            {"client_id": "x", "grant": "client_credentials"},
            "client_credentials need a client_secret",
        ),
        ({"client_id": "x", "issuer": "login.example"}, "not an http:// or https:// URL"),
        ({"client_id": "x", "grant": "password"}, "oauth.grant: Input should be"),
    ],
)
def test_invalid_oauth_client_is_a_problem(
    tmp_path: Path, oauth: dict[str, str], problem: str
) -> None:
    write_mcp(tmp_path, hand={"url": "https://docs.example/mcp", "oauth": oauth})
    (found,) = read_config(tmp_path / "tools").problems
    assert problem in found.message
    assert "hush" not in found.message


def test_pre_registered_client_authorizes_without_registration(
    stub: StubServer, tmp_path: Path, remote: OAuthMcp
) -> None:
    with PatientServer(tmp_path, stub.url) as server:
        api = server.api()
        callback = f"{server.url}/api/v1/mcp/callback"
        remote.register("known", callback)
        write_mcp(tmp_path, hand={**remote.entry, "oauth": {"clientId": "known"}})
        api.ok(api.http.post("/tools/reload"))
        authorize(api)
        assert called(api, "shout", text="loud")["result"] == "LOUD"
    assert list(remote.registered) == ["known"]
