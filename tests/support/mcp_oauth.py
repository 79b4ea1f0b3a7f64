"""MCP server that requires OAuth, with the authorization server of the official SDK, in a thread."""

import json
import secrets
import threading
import time
from base64 import b64decode
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote

import uvicorn

from tests.support.ports import free_port

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer
    from mcp.shared.auth import OAuthToken

CLIENT_ID, CLIENT_SECRET = "machine", "a secret: of a machine"
"""Client that gets tokens without a user."""


class OAuthMcp:
    """MCP server on a real socket that requires OAuth. It authorizes each user at once.

    `expires_in` is the lifetime of new tokens in seconds. `refuses` lets the user refuse. Requests
    whose token lacks `scope` are 403. If `repeats_token` is set, the answer to each message is an
    error with its token.
    """

    def __init__(self, *, over_sse: bool = False, expires_in: int = 3600) -> None:
        self.expires_in = expires_in
        self.refuses = False
        self.scope = "user"
        self.repeats_token = False
        self.registered: dict[str, Any] = {}  # clients by ID
        self.codes: dict[str, Any] = {}
        self.access: dict[str, Any] = {}  # valid access tokens
        self.refresh: dict[str, Any] = {}  # valid refresh tokens
        self.issued: list[str] = [CLIENT_SECRET]  # all secrets that this server has issued
        self.grants: list[str] = []  # of each token request
        self._over_sse = over_sse
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> "OAuthMcp":
        mcp = _server(self)
        self._app = mcp.sse_app() if self._over_sse else mcp.streamable_http_app()
        config = uvicorn.Config(
            self._serve,
            port=self._port,
            log_config=None,
            interface="asgi3",
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive(), "the MCP server did not start"
            self._thread.join(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(60)

    @property
    def entry(self) -> dict[str, Any]:
        """Return the entry for `mcp.json`."""
        return {"url": f"{self.url}{'/sse' if self._over_sse else '/mcp'}"}

    @property
    def machine(self) -> dict[str, Any]:
        """Return the entry of a client without a user."""
        oauth = {
            "grant": "client_credentials",
            "client_id": CLIENT_ID,
            "client_secret": CLIENT_SECRET,
            "issuer": self.url,
        }
        return {**self.entry, "oauth": oauth}

    def register(self, client_id: str, redirect_uri: str) -> None:
        """Register a client without a secret."""
        from mcp.shared.auth import OAuthClientInformationFull
        from pydantic import AnyUrl

        self.registered[client_id] = OAuthClientInformationFull(
            client_id=client_id,
            token_endpoint_auth_method="none",
            redirect_uris=[AnyUrl(redirect_uri)],
            scope="user",
        )

    def new_token(self, scopes: list[str], client_id: str) -> str:
        from mcp.server.auth.provider import AccessToken

        token = self.secret("access")
        self.access[token] = AccessToken(
            token=token,
            client_id=client_id,
            scopes=scopes,
            expires_at=int(time.time()) + self.expires_in,
            resource=self.entry["url"],
        )
        return token

    def secret(self, kind: str) -> str:
        """Return a new secret."""
        self.issued.append(f"{kind}-{secrets.token_hex(20)}")
        return self.issued[-1]

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        sent = dict(scope.get("headers", ())).get(b"authorization", b"").decode()
        token = self.access.get(sent.removeprefix("Bearer "))
        if token is not None and self.scope not in token.scopes:
            challenge = f'Bearer error="insufficient_scope", scope="{self.scope}"'
            headers = [(b"www-authenticate", challenge.encode())]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body"})
            return
        if token is not None and self.repeats_token:
            message = json.loads((await receive())["body"])
            error = {"code": -32000, "message": f"no access with {sent}"}
            answer = {"jsonrpc": "2.0", "id": message["id"], "error": error}
            await _send_json(send, answer)
            return
        if scope["type"] != "http" or scope["path"] != "/token":
            await self._app(scope, receive, send)
            return
        body = (await receive())["body"]
        form = parse_qs(body.decode())
        self.grants.append(form["grant_type"][0])
        if form["grant_type"] == ["client_credentials"]:  # the SDK's server has no such grant
            await self._answer_machine(scope, send)
            return
        rest = [{"type": "http.request", "body": body}]

        async def again() -> Any:
            return rest.pop() if rest else await receive()

        await self._app(scope, again, send)

    async def _answer_machine(self, scope: Any, send: Any) -> None:
        sent = dict(scope["headers"]).get(b"authorization", b"").removeprefix(b"Basic ")
        expected = [CLIENT_ID, CLIENT_SECRET]
        is_known = [unquote(part) for part in b64decode(sent).decode().split(":")] == expected
        answer: dict[str, Any] = {"error": "invalid_client"}
        if is_known:
            token = self.new_token(["user"], CLIENT_ID)
            answer = {
                "access_token": token,
                "token_type": "Bearer",
                "expires_in": self.expires_in,
            }
        await _send_json(send, answer, status=200 if is_known else 401)


async def _send_json(send: Any, answer: dict[str, Any], status: int = 200) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(answer).encode()})


class _Provider:
    """Authorization server in memory, of the official SDK. Its imports are as in `_server`."""

    def __init__(self, state: OAuthMcp) -> None:
        self._state = state

    async def get_client(self, client_id: str) -> Any:
        return self._state.registered.get(client_id)

    async def register_client(self, client_info: Any) -> None:
        assert client_info.client_id
        self._state.issued.append(client_info.client_secret or "")
        client_info.scope = "user admin"
        self._state.registered[client_info.client_id] = client_info

    async def authorize(self, client: Any, params: Any) -> str:
        from mcp.server.auth.provider import AuthorizationCode, construct_redirect_uri

        target = str(params.redirect_uri)
        if self._state.refuses:
            return construct_redirect_uri(target, error="access_denied", state=params.state)
        code = self._state.secret("code")
        self._state.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        return construct_redirect_uri(target, code=code, state=params.state)

    async def load_authorization_code(self, _: Any, code: str) -> Any:
        return self._state.codes.get(code)

    async def exchange_authorization_code(self, client: Any, code: Any) -> "OAuthToken":
        del self._state.codes[code.code]
        return self._token(client, code.scopes)

    async def load_refresh_token(self, _: Any, token: str) -> Any:
        return self._state.refresh.get(token)

    async def exchange_refresh_token(
        self, client: Any, token: Any, scopes: list[str]
    ) -> "OAuthToken":
        del self._state.refresh[token.token]
        return self._token(client, scopes)

    async def load_access_token(self, token: str) -> Any:
        found = self._state.access.get(token)
        return found if found and found.expires_at > time.time() else None

    async def revoke_token(self, token: Any) -> None:
        self._state.access.pop(token.token, None)

    def _token(self, client: Any, scopes: list[str]) -> "OAuthToken":
        from mcp.server.auth.provider import RefreshToken
        from mcp.shared.auth import OAuthToken

        refresh = self._state.secret("refresh")
        self._state.refresh[refresh] = RefreshToken(
            token=refresh, client_id=client.client_id, scopes=scopes
        )
        return OAuthToken(
            access_token=self._state.new_token(scopes, client.client_id),
            expires_in=self._state.expires_in,
            scope=" ".join(scopes),
            refresh_token=refresh,
        )


def _server(state: OAuthMcp) -> "MCPServer":
    # Importing the SDK takes 0.6 s, which only the process that runs these tests should spend.
    from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
    from mcp.server.mcpserver import MCPServer
    from pydantic import AnyHttpUrl

    provider: Any = _Provider(state)
    server = MCPServer(
        "with OAuth",
        auth_server_provider=provider,
        auth=AuthSettings(
            issuer_url=AnyHttpUrl(state.url),
            resource_server_url=AnyHttpUrl(state.entry["url"]),
            required_scopes=["user"],
            validate_token_resource=True,
            client_registration_options=ClientRegistrationOptions(
                enabled=True, valid_scopes=["user"], default_scopes=["user"]
            ),
        ),
    )

    @server.tool()
    def shout(text: str) -> str:
        """Say it loud."""
        return text.upper()

    @server.tool()
    def reveal() -> str:
        """Return the valid tokens."""
        return " ".join(state.access)

    return server
