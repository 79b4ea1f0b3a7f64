"""Each client scenario of the conformance tests. They need ``npm ci`` in ``js``."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs_tooling.pages import ROOT

PROGRAMS = Path(__file__).parent / "js" / "node_modules" / ".bin"
PASSED = (
    "initialize",
    "tools_call",
    "sse-retry",
    "auth/metadata-default",
    "auth/metadata-var1",
    "auth/metadata-var2",
    "auth/metadata-var3",
    "auth/scope-from-www-authenticate",
    "auth/scope-from-scopes-supported",
    "auth/scope-omitted-when-undefined",
    "auth/scope-step-up",
    "auth/scope-retry-limit",
    "auth/token-endpoint-auth-basic",
    "auth/token-endpoint-auth-post",
    "auth/token-endpoint-auth-none",
    "auth/pre-registration",
    "auth/2025-03-26-oauth-endpoint-fallback",
    "auth/resource-mismatch",
    "auth/offline-access-scope",
    "auth/offline-access-not-supported",
    "auth/client-credentials-basic",
)
"""Scenarios that pass. The page about tested clients lists the others with the reason."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.nightly,
    pytest.mark.skipif(
        not (PROGRAMS / "conformance").exists(), reason="`npm ci` has not been run in js"
    ),
]


@pytest.mark.parametrize("scenario", PASSED)
def test_scenario_passes(scenario: str) -> None:
    client = f"{sys.executable} -m tests.mcp.conformance.client"
    command = ["client", "--timeout", "300000", "--command", client]
    path = f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [PROGRAMS / "conformance", *command, "--scenario", scenario],
        check=False,
        cwd=ROOT,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
