"""Stored authorization of an MCP server: its tokens, and the state of an authorization in a
browser.

Other servers of the database read and change the same values.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

from mochi_server.mcp.config import ServerConfig
from mochi_server.sessions.store import SecretStore
from mochi_server.util.text import SecretMasker

_MIN_SECRET_LENGTH = 4
"""Minimum length of a secret that is masked. Masking shorter values would make messages unreadable.
"""


@dataclass(frozen=True)
class Credentials:
    """Stored authorization of one MCP server.

    It is bound to the URL, so that a server that takes over the name never receives the tokens.
    """

    secrets: SecretStore
    key: str
    masker: SecretMasker
    """Masker of the server's secrets in ``mcp.json``, and of the tokens that this process has read.
    """
    token_masker: SecretMasker
    """Masker of these tokens only, for results of tools."""

    @classmethod
    def of(cls, name: str, config: ServerConfig, secrets: SecretStore) -> "Credentials":
        url = getattr(config, "url", "")
        digest = sha256(f"{name}\n{url}".encode())
        key = digest.hexdigest()[:32]
        configured = []
        for value in config.secrets():
            if len(value) >= _MIN_SECRET_LENGTH:
                configured.append(value)
        masker = SecretMasker(configured)
        token_masker = SecretMasker(())
        return cls(secrets, key, masker, token_masker)

    def mask_tokens(self, tokens: Iterable[str]) -> None:
        """Mask these tokens, too."""
        self.masker.add(tokens)
        self.token_masker.add(tokens)

    async def load(self) -> bytes:
        """Return the stored record as JSON, or an empty object."""
        return await self.secrets.get(f"tokens-{self.key}") or b"{}"

    async def has_tokens(self) -> bool:
        """Return whether tokens are stored. A damaged record has none."""
        try:
            record = json.loads(await self.load())
        except ValueError:
            return False
        return isinstance(record, dict) and record.get("tokens") is not None

    async def save(self, record: str) -> None:
        await self.secrets.put(f"tokens-{self.key}", record.encode())

    async def remove(self) -> None:
        """Remove the tokens, the registration of this client, and a pending authorization."""
        await self.secrets.remove(f"tokens-{self.key}")
        await self.secrets.remove(f"pending-{self.key}")

    async def load_pending(self) -> bytes | None:
        return await self.secrets.get(f"pending-{self.key}")

    async def save_pending(self, pending: str) -> None:
        await self.secrets.put(f"pending-{self.key}", pending.encode())
