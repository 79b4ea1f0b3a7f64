"""Client of one scenario: a server whose only MCP server is at the URL of the argument.

It authorizes that server if needed, and calls each of its tools.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx

from mochi_stub import StubServer
from tests.support.api import Api
from tests.support.instructions import calls, instruct, words
from tests.support.mcp import write_mcp
from tests.support.server import RunningServer
from tests.support.waiting import until

ARGUMENTS = {"add_numbers": {"a": 5, "b": 3}}
SETTLED = ("connected", "failed", "needs_authorization")


def main(url: str) -> None:
    with tempfile.TemporaryDirectory() as folder, StubServer(speed=0) as stub:
        data_dir = Path(folder)
        write_mcp(data_dir, remote=entry(url))
        with RunningServer(data_dir, stub.url, summarization_enabled=False) as server:
            play(server.api())


def entry(url: str) -> dict[str, Any]:
    """Return the entry for `mcp.json`, with the client that the scenario has registered."""
    client = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    if "client_secret" not in client:
        return {"url": url}
    path = httpx.URL(url).raw_path.decode()
    metadata = httpx.get(str(httpx.URL(url, path=f"/.well-known/oauth-protected-resource{path}")))
    oauth = {
        "client_id": client["client_id"],
        "client_secret": client["client_secret"],
        "issuer": metadata.json()["authorization_servers"][0],
    }
    if "client-credentials" in os.environ["MCP_CONFORMANCE_SCENARIO"]:
        oauth["grant"] = "client_credentials"
    return {"url": url, "oauth": oauth}


def play(api: Api) -> None:
    """Connect, and call each tool, once more if it needed another authorization."""
    settle(api)
    for name in api.ok(api.http.get("/tools"))["tools"]:
        call(api, name)
        if state_of(api) == "needs_authorization":
            settle(api)
            call(api, name)


def call(api: Api, name: str) -> None:
    settings = {"tools": [name], "execution_policy": "never_confirm"}
    session = api.create_session("mochi", tool_settings=settings)
    text = instruct(calls(name, **ARGUMENTS.get(name, {})), words(2))
    api.send_message(session["session_id"], text)


def state_of(api: Api) -> str:
    (server,) = api.ok(api.http.get("/mcp/servers"))["servers"]
    return str(server["state"])


def settle(api: Api) -> None:
    """Wait for the connection, and authorize the server as a user does in a browser."""
    until(lambda: state_of(api) in SETTLED)
    if state_of(api) != "needs_authorization":
        return
    begun = api.http.post("/mcp/servers/remote/authorize", json={})
    if begun.is_success:
        url = begun.json()["authorization_url"]
        httpx.get(url, follow_redirects=True, trust_env=False, timeout=60)
        until(lambda: state_of(api) in SETTLED)


if __name__ == "__main__":
    main(sys.argv[1])
