"""The world in which the blocks run notices what a reader would notice."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import blocks
from tests.docs.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as world:
        yield world


@pytest.mark.parametrize(
    "script",
    [
        "false\ntrue",
        "no-such-command",
        "echo $undefined",
        "curl http://127.0.0.1:8000/api/v1/sessions/0123456789",
        "uv run mochi-server --no-such-flag",
        "uv run mochi-stub run --config gone.yaml",
    ],
)
def test_what_fails_is_found(world: World, script: str) -> None:
    with pytest.raises(AssertionError, match="failed"):
        world.bash(script)


def test_variables_live_from_block_to_block(world: World) -> None:
    world.bash("name=mochi")
    assert world.bash("echo $name") == "mochi\n"


def test_blocks_are_found_with_what_is_said_of_them(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        '```python title="a.py"\nx = 1\n```\n- item\n\n  ```bash\n  echo\n  ```\n'
        "<!-- not run: no time -->\n```bash\nsleep 9\n```\n```sh\ndocker ps\n```\n"
    )
    assert [(one.line, one.language, one.title, one.text, one.not_run) for one in blocks(page)] == [
        (1, "python", "a.py", "x = 1\n", None),
        (6, "bash", None, "echo\n", None),
        (10, "bash", None, "sleep 9\n", "no time"),
        (13, "sh", None, "docker ps\n", "the tests do not start docker"),
    ]
