"""Contract of the stores for secrets."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from mochi_server.errors import StorageFailed
from mochi_server.sessions.store import SecretStore
from mochi_server.storage.files.secrets import FileSecretStore
from mochi_server.storage.memory import MemorySecretStore


@pytest_asyncio.fixture(
    params=["memory", "files", pytest.param("postgres", marks=pytest.mark.slow)]
)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SecretStore]:
    """One store of each kind."""
    if request.param == "memory":
        yield MemorySecretStore()
    elif request.param == "files":
        yield FileSecretStore(tmp_path / "secrets")
    else:
        from mochi_server.storage.postgres.store import PostgresStores

        stores = PostgresStores(request.getfixturevalue("database"))
        await stores.open()
        yield stores.secrets
        await stores.aclose()


async def test_secrets_are_stored_replaced_and_removed(store: SecretStore) -> None:
    assert await store.get("a-1") is None
    await store.remove("a-1")
    await store.put("a-1", b"one")
    await store.put("b-1", b"\0other")
    await store.put("a-1", b"two")
    assert (await store.get("a-1"), await store.get("b-1")) == (b"two", b"\0other")
    await store.remove("a-1")
    assert (await store.get("a-1"), await store.get("b-1")) == (None, b"\0other")


async def test_directory_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = FileSecretStore(tmp_path / "file")
    with pytest.raises(StorageFailed, match="store an authorization"):
        await store.put("a", b"")
