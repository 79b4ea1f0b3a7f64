"""Address of an Ollama server."""

import os
from base64 import b64encode
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit, urlunsplit

from mochi_server.constants import OLLAMA_SETTING
from mochi_server.util.net import full_url, is_loopback


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address of Ollama.

    ``url`` has no trailing slash, and no credentials because error messages show the URL.
    """

    url: str
    headers: dict[str, str]
    use_proxy: bool
    """Whether to use the proxies from environment variables; False if Ollama is on this machine."""
    setting: str = OLLAMA_SETTING
    """Environment variable that contains the address, for error messages."""


def parse_endpoint(host: str, setting: str = OLLAMA_SETTING) -> Endpoint:
    """Parse an address in the format of ``OLLAMA_HOST``.

    Without credentials, it gets the key ``OLLAMA_API_KEY``.
    """
    parts = urlsplit(full_url(host))
    api_key = os.environ.get("OLLAMA_API_KEY")
    headers = {}
    if parts.username is not None:
        credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = "Basic " + b64encode(credentials.encode()).decode()
    elif api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    address = parts.netloc.rpartition("@")[2]
    url = urlunsplit((parts.scheme, address, parts.path.rstrip("/"), "", ""))
    return Endpoint(url, headers, use_proxy=not is_loopback(parts.hostname or ""), setting=setting)
