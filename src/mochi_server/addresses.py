"""Addresses of Ollama as people write them."""

import re

OLLAMA_PORT = 11434


def full_url(host: str) -> str:
    """An address with its scheme. One without is http, and at Ollama's own port unless it names another."""
    if "://" in host:
        return host
    address, slash, path = host.partition("/")
    port = "" if re.search(r":\d*$", address) else f":{OLLAMA_PORT}"
    return f"http://{address}{port}{slash}{path}"
