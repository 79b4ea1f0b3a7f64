"""OAuth of remote MCP servers: the SDK's client providers, with stored tokens.

Importing this module takes a second and needs the extra ``mcp``.
"""

import logging
import re
import time
from collections.abc import AsyncGenerator
from typing import Protocol
from urllib.parse import urlsplit

import httpx2
from mcp.client.auth import (
    OAuthClientProvider,
    OAuthFlowError,
    OAuthRegistrationError,
    OAuthTokenError,
)
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.auth.utils import (
    extract_field_from_www_auth,
    extract_scope_from_www_auth,
    union_scopes,
)
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, BaseModel, ValidationError

from mochi_server.mcp.config import RemoteServer
from mochi_server.mcp.credentials import Credentials
from mochi_server.mcp.session import McpSession, NeedsAuthorization, OAuthFailed
from mochi_server.util.net import is_loopback

_CLIENT_NAME = "mochi-server"
_MARK = "mochi_server_oauth"
_POST, _BASIC = "client_secret_post", "client_secret_basic"
"""Ways to send the secret of a client: in the body, or with HTTP Basic authentication."""
_LONG_AGO = 1.0  # a Unix time
_REFUSING_STATUSES = (400, 401)
"""HTTP statuses with which an authorization server refuses a refresh token."""

# Logs of the SDK contain URLs, messages and tokens.
for _name in ("mcp", "client", "httpx2", "httpcore2"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)


def is_oauth(request: httpx2.Request) -> bool:
    """Return whether a request is part of the authorization, and not for the MCP server."""
    return _MARK in request.extensions


def provider_of(
    server: RemoteServer, credentials: Credentials, session: McpSession
) -> httpx2.Auth | None:
    """Return the authentication of the requests to an MCP server, or None."""
    if not server.uses_oauth:
        return None
    if server.oauth is not None and server.oauth.grant == "client_credentials":
        return _ClientCredentialsProvider(server, credentials, session)
    return _StoredTokensProvider(server, credentials, session)


class _Record(BaseModel):
    """Stored authorization of a server."""

    tokens: OAuthToken | None = None
    expires_at: float | None = None  # Unix time in seconds
    client: OAuthClientInformationFull | None = None
    metadata: OAuthMetadata | None = None
    resource: ProtectedResourceMetadata | None = None
    scope: str | None = None
    """Scopes for the next authorization, because the server has refused a request without them."""

    def is_valid(self, refused_token: str | None) -> bool:
        """Return whether there is a token that has not expired and is not ``refused_token``."""
        if self.tokens is None or self.tokens.access_token == refused_token:
            return False
        return not self.expires_at or time.time() <= self.expires_at

    def can_refresh(self) -> bool:
        return bool(self.tokens and self.tokens.refresh_token and self.client)


class Browser(Protocol):
    """Browser of a user, as a provider uses it."""

    @property
    def callback_url(self) -> str:
        """URL to which the authorization server redirects the browser."""

    async def show(self, url: str) -> None:
        """Receive the URL of the authorization server that the user opens."""

    async def wait(self) -> AuthorizationCodeResult:
        """Wait for the redirect to the callback URL."""


class _StoredTokensProvider(OAuthClientProvider):
    """Provider that reads the tokens before each request, because another process may have
    refreshed or removed them.

    It refreshes tokens. It raises ``NeedsAuthorization`` where only a user can authorize.
    """

    _can_authorize = False

    def __init__(
        self,
        server: RemoteServer,
        credentials: Credentials,
        session: McpSession,
        browser: Browser | None = None,
    ) -> None:
        self._prepare(server, credentials, session)
        if browser is None:
            metadata = OAuthClientMetadata(client_name=_CLIENT_NAME, redirect_uris=None)
            super().__init__(server.url, metadata, self)
            return
        metadata = OAuthClientMetadata(
            client_name=_CLIENT_NAME,
            redirect_uris=[AnyUrl(browser.callback_url)],
            application_type="native"
            if is_loopback(urlsplit(browser.callback_url).hostname or "")
            else "web",
        )
        super().__init__(server.url, metadata, self, browser.show, browser.wait)

    def _prepare(self, server: RemoteServer, credentials: Credentials, session: McpSession) -> None:
        self._server = server
        self._credentials = credentials
        self._mcp_session = session
        self._refused_token: str | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return (await self._load()).tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._credentials.mask_tokens(_secrets_of(tokens))
        record = _Record(
            tokens=tokens,
            expires_at=self.context.token_expiry_time,
            client=self.context.client_info,
            metadata=self.context.oauth_metadata,
            resource=self.context.protected_resource_metadata,
            scope=(await self._load()).scope,
        )
        await self._save(record)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return (await self._load()).client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        record = await self._load()
        await self._save(record.model_copy(update={"client": client_info}))

    async def _load(self) -> _Record:
        """Return the stored authorization, or an empty one if it is damaged."""
        try:
            record = _Record.model_validate_json(await self._credentials.load())
        except ValidationError:  # a damaged file
            return _Record()
        self._credentials.mask_tokens(_secrets_of(record.tokens))
        return record

    async def _save(self, record: _Record) -> None:
        await self._credentials.save(record.model_dump_json())

    async def _first_record(self) -> _Record:
        """Return the authorization with which a request begins."""
        return await self._load()

    async def _initialize(self) -> None:
        """Set the state of the SDK's flow from the stored authorization.

        The caller has locked that state, which all requests share.
        """
        await super()._initialize()
        record = await self._first_record()
        context = self.context
        context.current_tokens = record.tokens
        context.token_expiry_time = record.expires_at
        if not record.is_valid(self._refused_token):
            context.token_expiry_time = _LONG_AGO  # so that it is refreshed
        context.oauth_metadata = record.metadata
        context.protected_resource_metadata = record.resource
        self._initialized = False  # the next flow reads the record again

    async def _auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        # The flow of the SDK lets only one request run at a time, so it begins only if needed.
        record = await self._first_record()
        tokens = record.tokens
        if tokens is None or record.is_valid(self._refused_token):
            if tokens is not None:
                request.headers["Authorization"] = f"Bearer {tokens.access_token}"
            response = yield request
            if not _is_refused(response):
                return
            if response.status_code == httpx2.codes.FORBIDDEN and not self._can_authorize:
                raise await self._refusal_error(response)
            self._refused_token = tokens.access_token if tokens else None
        if not self._can_authorize and not record.can_refresh():
            raise self._authorization_error()
        flow = super()._auth_flow(request)
        try:
            outgoing = await flow.__anext__()
            while True:
                response = yield _marked(outgoing, request)
                is_refused = outgoing is request and _is_refused(response)
                if is_refused and not self._can_authorize:
                    raise await self._refusal_error(response)
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        except OAuthFlowError as error:
            raise _failure(error) from None
        finally:
            await flow.aclose()

    async def _handle_refresh_response(self, response: httpx2.Response) -> bool:
        """Return whether there are new tokens: those of the response, or of another process.

        Raises ``NeedsAuthorization`` and removes the tokens if the authorization server refuses
        them, and ``OAuthTokenError`` for another error.
        """
        if response.status_code in _REFUSING_STATUSES:
            record = await self._load()
            sent = self.context.current_tokens
            if record.tokens and sent and record.tokens.access_token != sent.access_token:
                await self._initialize()  # another process was faster
                return True
            await self._save(record.model_copy(update={"tokens": None}))
            raise self._authorization_error()
        if response.is_error:
            raise OAuthTokenError(f"HTTP {response.status_code}")
        return await super()._handle_refresh_response(response)

    async def _perform_authorization(self) -> httpx2.Request:
        """Authorize with the configured scopes, or with those that the server has required."""
        metadata = self.context.client_metadata
        if self._server.oauth is not None and self._server.oauth.scope:
            metadata.scope = self._server.oauth.scope
        else:
            record = await self._load()
            metadata.scope = union_scopes(metadata.scope, record.scope)
        return await super()._perform_authorization()

    async def _refusal_error(self, response: httpx2.Response) -> NeedsAuthorization:
        """Return the error of a refused request.

        Store the scope that the request needs, if any, for the next authorization.
        """
        needed = extract_scope_from_www_auth(response)
        if response.status_code == httpx2.codes.FORBIDDEN and needed:
            record = await self._load()
            granted = record.tokens.scope if record.tokens else None
            known = union_scopes(record.scope, granted)
            scope = union_scopes(known, needed)
            await self._save(record.model_copy(update={"scope": scope}))
        return self._authorization_error()

    def _authorization_error(self) -> NeedsAuthorization:
        """Record that the connection needs a user, and return the error."""
        self._mcp_session.needs_authorization = True
        if self._server.type == "sse":
            self._mcp_session.end()  # the SDK would wait for a response forever
        return NeedsAuthorization()


class BrowserProvider(_StoredTokensProvider):
    """Provider that always authorizes anew, with a user in a browser."""

    _can_authorize = True

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the configured client, or the registered one if it has this callback URL and its
        secret is valid, otherwise None.
        """
        redirect_uris = self.context.client_metadata.redirect_uris
        oauth = self._server.oauth
        if oauth is not None:
            return OAuthClientInformationFull(
                client_id=oauth.client_id,
                client_secret=oauth.client_secret or None,
                token_endpoint_auth_method=_POST if oauth.client_secret else "none",
                redirect_uris=redirect_uris,
                issuer=oauth.issuer or None,
            )
        client = await super().get_client_info()
        if client is None or client.redirect_uris != redirect_uris:
            return None
        expires = client.client_secret_expires_at
        return None if expires and expires < time.time() else client

    async def _perform_authorization(self) -> httpx2.Request:
        client = self.context.client_info
        if client is None or client.token_endpoint_auth_method != _POST:
            return await super()._perform_authorization()
        if _needs_basic(self.context.oauth_metadata):
            update = {"token_endpoint_auth_method": _BASIC}
            self.context.client_info = client.model_copy(update=update)
        return await super()._perform_authorization()

    async def _first_record(self) -> _Record:
        record = await self._load()
        return record.model_copy(update={"tokens": None, "metadata": None, "resource": None})


class _ClientCredentialsProvider(_StoredTokensProvider, ClientCredentialsOAuthProvider):
    """Provider that authorizes with the ID and secret of a client, without a user."""

    _can_authorize = True

    def __init__(self, server: RemoteServer, credentials: Credentials, session: McpSession) -> None:
        assert server.oauth is not None  # noqa: S101 - the caller has checked it
        self._prepare(server, credentials, session)
        ClientCredentialsOAuthProvider.__init__(
            self,
            server_url=server.url,
            storage=self,
            client_id=server.oauth.client_id,
            client_secret=server.oauth.client_secret,
            scope=server.oauth.scope,
            issuer=server.oauth.issuer,
        )


def _marked(outgoing: httpx2.Request, request: httpx2.Request) -> httpx2.Request:
    """Mark a request as part of the authorization, except the request to the MCP server."""
    if outgoing is not request:
        outgoing.extensions = {**outgoing.extensions, _MARK: True}
        outgoing.headers["Accept-Encoding"] = "identity"
    return outgoing


def _is_refused(response: httpx2.Response) -> bool:
    if response.status_code == httpx2.codes.FORBIDDEN:
        return extract_field_from_www_auth(response, "error") == "insufficient_scope"
    return bool(response.status_code == httpx2.codes.UNAUTHORIZED)


def _needs_basic(metadata: OAuthMetadata | None) -> bool:
    """Return whether an authorization server accepts secrets only with HTTP Basic
    authentication.
    """
    if metadata is None:
        return False
    methods = metadata.token_endpoint_auth_methods_supported or []
    return _BASIC in methods and _POST not in methods


def _secrets_of(tokens: OAuthToken | None) -> list[str]:
    if tokens is None:
        return []
    return [tokens.access_token, tokens.refresh_token or ""]


def _failure(error: OAuthFlowError) -> OAuthFailed:
    """Return an error whose text has no secrets, which that of the SDK can contain."""
    match error:
        case OAuthRegistrationError():
            return OAuthFailed(
                f"its authorization server does not register this client{_status_in(error)}. "
                "Register it there, and set `oauth` in mcp.json"
            )
        case OAuthTokenError():
            return OAuthFailed(
                f"its authorization server does not issue a token{_status_in(error)}"
            )
    return OAuthFailed(f"its authorization server cannot be used: {error}")


def _status_in(error: Exception) -> str:
    """Return the HTTP status in the text of an error of the SDK, such as `` (HTTP 400)``, or an
    empty text.
    """
    text, _, _ = str(error).partition("{")  # without a response body
    found = re.search(r"\b[1-5]\d\d\b", text)
    return f" (HTTP {found[0]})" if found else ""
