"""Example page in a real browser: `uv run --group browser pytest -n 0 tests/browser`."""
