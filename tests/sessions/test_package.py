"""Public names of the package."""

import subprocess
import sys

import mochi_server.sessions


def test_public_names_are_sorted_and_exist() -> None:
    names = mochi_server.sessions.__all__
    assert names == sorted(names)
    assert all(hasattr(mochi_server.sessions, name) for name in names)


def test_importing_the_package_loads_no_web_framework() -> None:
    code = "import sys, mochi_server.sessions; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert "mochi_server" in loaded
    assert not {"fastapi", "starlette", "uvicorn", "httpx"} & set(loaded)
