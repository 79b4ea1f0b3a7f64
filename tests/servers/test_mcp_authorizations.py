"""OAuth of remote MCP servers on several servers with one database."""

from pathlib import Path

import httpx
import psycopg
import pytest

from tests.servers.conftest import Start
from tests.support.api import Api
from tests.support.mcp import write_mcp
from tests.support.mcp_oauth import OAuthMcp
from tests.support.waiting import until

pytestmark = pytest.mark.slow


def state_of(api: Api) -> str:
    (server,) = api.ok(api.http.get("/mcp/servers"))["servers"]
    return str(server["state"])


def test_browser_returns_to_another_server(start: Start, database: str, tmp_path: Path) -> None:
    with OAuthMcp() as remote:
        write_mcp(tmp_path, hand=remote.entry)
        servers = [start() for _ in range(2)]
        with Api(servers[0].url) as one, Api(servers[1].url) as two:
            until(lambda: [state_of(one), state_of(two)] == ["needs_authorization"] * 2)
            begun = one.ok(
                one.http.post(
                    "/mcp/servers/hand/authorize",
                    json={"callback_url": f"{servers[1].url}/api/v1/mcp/callback"},
                )
            )
            page = httpx.get(begun["authorization_url"], follow_redirects=True, trust_env=False)
            assert page.status_code == 200, page.text
            until(lambda: [state_of(one), state_of(two)] == ["connected"] * 2, seconds=90)
            assert remote.grants == ["authorization_code"]
            assert one.http.delete("/mcp/servers/hand/authorize").status_code == 204
            with psycopg.connect(database) as connection:
                row = connection.execute("SELECT count(*) FROM secrets").fetchone()
            assert row == (0,)
    assert not (tmp_path / "mcp_authorizations").exists()
