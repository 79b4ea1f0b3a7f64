"""Fixtures of all tests of the stub."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import certifi
import pytest

END = "-----END CERTIFICATE-----\n"


@pytest.fixture(scope="package", autouse=True)
def one_certificate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let HTTP clients trust one certificate authority. Reading all of them takes 30 ms for each client."""
    first = Path(certifi.where()).read_text().partition(END)[0] + END
    file = tmp_path_factory.mktemp("certificates") / "one.pem"
    file.write_text(first)
    before = os.environ.get("SSL_CERT_FILE")
    os.environ["SSL_CERT_FILE"] = str(file)
    yield
    if before is None:
        del os.environ["SSL_CERT_FILE"]
    else:
        os.environ["SSL_CERT_FILE"] = before
