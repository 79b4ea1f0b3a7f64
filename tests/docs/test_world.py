"""The environment in which code blocks run reports the failures that a reader would see."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs_tooling.pages import blocks
from tests.docs_tooling.world import World


@pytest.fixture(scope="module")
def shared_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(tmp_path_factory.mktemp("world")) as world:
        yield world


@pytest.fixture
def world(shared_world: World) -> World:
    """The world of this module with a new shell."""
    shared_world.restart_shell()
    return shared_world


@pytest.mark.parametrize(
    "script",
    [
        "false\ntrue",
        "no-such-command",
        "echo $undefined",
        "curl http://127.0.0.1:8000/api/v1/sessions/0123456789",
        pytest.param("uv run mochi-server --no-such-flag", marks=pytest.mark.slow),
        pytest.param("uv run mochi-stub run --config gone.yaml", marks=pytest.mark.slow),
    ],
)
def test_failing_command_fails_the_block(world: World, script: str) -> None:
    with pytest.raises(AssertionError, match="failed"):
        world.bash(script)


def test_shell_variables_last_from_block_to_block(world: World) -> None:
    world.bash("name=mochi")
    assert world.bash("echo $name") == "mochi\n"


def test_blocks_have_language_title_and_skip_reason(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        '```python title="a.py"\nx = 1\n```\n- item\n\n  ```bash\n  echo\n  ```\n'
        "<!-- not run: no time -->\n```bash\nsleep 9\n```\n```sh\ndocker ps\n```\n"
        "<!-- output -->\n```text\n1\n```\n"
    )
    assert [
        (b.line, b.language, b.title, b.text, b.not_run, b.is_output) for b in blocks(page)
    ] == [
        (1, "python", "a.py", "x = 1\n", None, False),
        (6, "bash", None, "echo\n", None, False),
        (10, "bash", None, "sleep 9\n", "no time", False),
        (13, "sh", None, "docker ps\n", "the tests do not start docker", False),
        (17, "text", None, "1\n", None, True),
    ]
