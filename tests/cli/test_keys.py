"""`mochi-server keys` and the start with a keys file."""

import stat
from pathlib import Path

import pytest

from mochi_server.cli.main import main
from mochi_server.services.keys import KeyRing


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MOCHI_API_KEYS_FILE", str(tmp_path / "keys.yaml"))
    return tmp_path / "keys.yaml"


def test_added_key_is_printed_once_and_stored_as_a_hash(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["keys", "add", "ann"]) == 0
    secret = capsys.readouterr().out.strip()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert secret not in path.read_text()
    assert main(["keys", "add", "root", "--scope", "all"]) == 0
    root = capsys.readouterr().out.strip()
    callers = [KeyRing(path=path).find([each.encode()]) for each in (secret, root)]
    assert [(each.key, each.sees_all) for each in callers if each] == [
        ("ann", False),
        ("root", True),
    ]
    assert main(["keys", "list"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[:2] for line in lines] == [["ann", "own"], ["root", "all"]]
    assert [line[-1] for line in lines] == [each.owner for each in callers if each]


def test_new_key_with_the_name_of_a_revoked_one_has_another_id(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = []
    for _ in range(2):
        main(["keys", "add", "ann"])
        caller = KeyRing(path=path).find([capsys.readouterr().out.strip().encode()])
        ids.append(caller and caller.owner)
        assert main(["keys", "revoke", "ann"]) == 0
        capsys.readouterr()
    assert None not in ids
    assert ids[0] != ids[1]
    assert KeyRing(path=path).find([b"anything"]) is None


def test_mode_and_limits_are_kept(path: Path) -> None:
    path.write_text(f"- name: a\n  hash: sha256:{'0' * 64}\n  turns_per_minute: 5\n")
    path.chmod(0o640)
    assert main(["keys", "add", "b"]) == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert "turns_per_minute: 5\n" in path.read_text()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["add", "ann"], "'ann' is in use"),
        (["add", "a b"], "'a b' is in use or not a name"),
        (["revoke", "bob"], "has no key 'bob'"),
    ],
)
def test_impossible_change_is_explained(
    path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str
) -> None:
    main(["keys", "add", "ann"])
    before = path.read_bytes()
    assert main(["keys", *arguments]) == 1
    assert problem in capsys.readouterr().err
    assert path.read_bytes() == before


def test_without_the_setting_the_command_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "list"]) == 2
    assert "MOCHI_API_KEYS_FILE is not set" in capsys.readouterr().err


def test_server_with_an_invalid_file_does_not_start(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path.write_text("- name: ann\n  hash: md5:00\n")
    assert main([]) == 1
    assert capsys.readouterr().err.startswith(
        f"mochi-server: {path}, line 2: `hash` is a weak hash"
    )
