"""`mochi-server keys` and the start with a keys file."""

import os
import stat
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from mochi_server.cli.main import main
from mochi_server.config import MochiServerSettings
from mochi_server.services import keys
from mochi_server.services.keys import KeyRing, read_keys
from mochi_server.sessions.permissions import EVERYTHING
from mochi_server.tools.discovery import ToolDiscoveryService
from tests.support.cases import cases
from tests.support.keys import write_keys
from tests.support.tools import SAMPLES


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


def test_date_is_stored_and_listed(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, expires in (("ann", "2927-01-31"), ("bob", "90d"), ("eve", "2927-01-31T18:00Z")):
        assert main(["keys", "add", name, "--expires", expires]) == 0
    path.write_text(path.read_text().replace("2927-01-31T18:00Z", "2001-01-31T18:00Z"))
    capsys.readouterr()
    assert main(["keys", "list"]) == 0
    ann, bob, eve = capsys.readouterr().out.splitlines()
    assert "expires 2927-01-31" in ann
    assert f"expires {datetime.now(timezone.utc) + timedelta(days=90):%Y-%m-%d}" in bob
    assert "expired 2001-01-31T18:00Z" in eve


@pytest.mark.parametrize("last", ["9999-12-31", "9999-12-31T23:59Z"])
def test_last_date_of_the_calendar_is_accepted(last: str, path: Path) -> None:
    assert main(["keys", "add", "ann", "--expires", last]) == 0
    assert read_keys(path).keys[0]["expires"] == last
    assert main(["keys", "list"]) == 0


def test_options_become_the_fields_of_the_key(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {
        "scope": "own",
        "expires": "2927-01-31",
        "tools": "get_*,add_numbers",
        "agents": "",
        "models": "qwen3:*,mochi",
        "policy": "confirm_destructive",
        "turns_at_a_time": "2",
        "turns_per_minute": "20",
        "tokens_per_day": "500000",
    }
    given = [f"--{field.replace('_', '-')}={text}" for field, text in options.items()]
    assert main(["keys", "add", "ann", *given]) == 0
    assert main(["keys", "add", "bob"]) == 0  # writes the file again
    (ann, bob) = read_keys(path).keys
    assert {field: ann[field] for field in options} == {
        **options,
        "tools": ["get_*", "add_numbers"],
        "agents": [],
        "models": ["qwen3:*", "mochi"],
    }
    assert bob.keys() == {"name", "hash", "scope"}
    caller = KeyRing(path=path).find([capsys.readouterr().out.split()[0].encode()])
    assert caller is not None
    assert (caller.turns_at_a_time, caller.tokens_per_day) == (2, 500_000)
    assert caller.permissions.allow_model("mochi:latest")
    assert not caller.permissions.allow_tool("run_command")


def test_several_names_get_the_same_fields_and_a_line_each(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["keys", "add", "--turns-per-minute", "20", "ann", "bob"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [name for name, _ in lines] == ["ann", "bob"]
    for name, secret in lines:
        caller = KeyRing(path=path).find([secret.encode()])
        assert caller is not None
        assert (caller.key, caller.turns_per_minute) == (name, 20)
    before = path.read_bytes()
    assert main(["keys", "add", "eve", "ann"]) == 1
    assert main(["keys", "add", "eve", "eve"]) == 1
    assert path.read_bytes() == before


def test_names_and_patterns_are_read_as_they_were_added(path: Path) -> None:
    names = ["true", "123", "null", "1.5", "a@b"]
    assert main(["keys", "add", *names, "--tools", "@a,true,*,\U0001d538,é"]) == 0
    keys = read_keys(path).keys
    assert [key["name"] for key in keys] == names
    assert keys[0]["tools"] == ["@a", "true", "*", "\U0001d538", "é"]


def test_keys_add_has_an_option_for_each_field(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["keys", "add", "--help"])
    text = capsys.readouterr().out
    for field in {*keys.FIELDS, *keys.LISTS} - {"name", "hash"}:
        assert f"--{field.replace('_', '-')} " in text


def test_new_file_gives_keys_of_scope_own_only_the_read_only_samples(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["keys", "add", "ann"])
    ann = KeyRing(path=path).find([capsys.readouterr().out.strip().encode()])
    main(["keys", "add", "root", "--scope", "all"])
    root = KeyRing(path=path).find([capsys.readouterr().out.strip().encode()])
    assert ann is not None
    assert root is not None
    samples = ToolDiscoveryService(SAMPLES).discover().tools
    read_only = {name for name, tool in samples.items() if tool.read_only}
    assert {name for name in samples if ann.permissions.allow_tool(name)} == read_only
    assert not ann.permissions.allow_agent("coder")
    assert root.permissions == EVERYTHING
    assert path.read_text().splitlines()[1].startswith("- default: {tools: [")


def test_keys_that_exist_keep_their_permissions(path: Path) -> None:
    path.write_text(f"- name: a\n  hash: sha256:{'0' * 64}\n  tools: [add_*]\n")
    assert main(["keys", "add", "b"]) == 0
    assert "default" not in path.read_text()
    assert [key.get("tools") for key in read_keys(path).keys] == [["add_*"], None]


def test_mode_and_limits_are_kept(path: Path) -> None:
    path.write_text(f"- name: a\n  hash: sha256:{'0' * 64}\n  turns_per_minute: 5\n")
    path.chmod(0o640)
    assert main(["keys", "add", "b"]) == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert "turns_per_minute: 5\n" in path.read_text()


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="only root gives files")
def test_owner_and_group_are_kept(path: Path) -> None:
    path.write_text(f"- name: a\n  hash: sha256:{'0' * 64}\n")
    os.chown(path, 1234, 2345)
    assert main(["keys", "revoke", "a"]) == 0
    status = path.stat()
    assert (status.st_uid, status.st_gid) == (1234, 2345)


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may read anything")
def test_file_is_read_as_soon_as_it_is_permitted(tmp_path: Path) -> None:
    path = write_keys(tmp_path / "keys.yaml", ann={})
    ring = KeyRing(path=path)
    new = tmp_path / "keys.new"
    new.write_text("[]\n")
    new.chmod(0)
    new.replace(path)
    assert ring.find([b"ann secret"]) is not None
    path.chmod(0o600)
    assert ring.find([b"ann secret"]) is None


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["add", "ann"], "already has a key 'ann'. Choose another name, or remove"),
        (["add", "bob", "bob"], ": the name 'bob' is given twice. Choose another name"),
        (["add", "bob", "--turns-per-minute", "0"], "`turns_per_minute` is not a positive number"),
        (["add", "bob", "--policy", "never"], "`policy` is none of always_confirm"),
        (["add", "bob", "--tools", "add numbers"], "`tools` is not a list of names or patterns"),
        (["add", "bob", "--expires", "2001-01-01"], "2001-01-01 is in the past"),
        (["add", "bob", "--expires", "tomorrow"], "neither a date such as 2027-01-31 nor"),
        (["add", "bob", "--expires", "2027-02-30"], "is not a date: 2027-02-30"),
        (["add", "a b"], "'a b' is not a name. Use 1 to 64 letters"),
        (["add", "key-7"], "'key-7' is reserved for a key of MOCHI_API_KEYS. Choose another name"),
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


@cases("arguments", [["list"], ["revoke", "ann"]])
def test_missing_file_has_no_keys_to_list_or_revoke(
    path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert main(["keys", *arguments]) == 1
    output = capsys.readouterr()
    assert (output.out, output.err) == (
        "",
        f"mochi-server: {path} does not exist. `mochi-server keys add NAME` creates it\n",
    )


@cases("arguments", [["list"], ["revoke", "ann"], ["add", "ann"]])
def test_path_that_cannot_be_examined_is_reported_in_one_line(
    path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
) -> None:
    long = path.with_name("a" * 300)
    monkeypatch.setenv("MOCHI_API_KEYS_FILE", str(long))
    assert main(["keys", *arguments]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("mochi-server: ")
    assert str(long) in line
    assert line.endswith("File name too long")


@pytest.mark.parametrize("by_option", [True, False])
def test_relative_path_is_below_the_data_directory(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    by_option: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MOCHI_API_KEYS_FILE", "keys.yaml")
    options = ["--data-dir", "my_data"]
    if not by_option:
        monkeypatch.setenv("MOCHI_DATA_DIR", "my_data")
        options = []
    assert main([*options, "keys", "add", "ann"]) == 0
    assert stat.S_IMODE((tmp_path / "my_data").stat().st_mode) == 0o700
    secret = capsys.readouterr().out.strip()
    settings: dict[str, Any] = {"data_dir": "my_data"}
    keys_of_server = MochiServerSettings(**settings).keys_path
    caller = KeyRing(path=keys_of_server).find([secret.encode()])
    assert caller is not None
    assert caller.key == "ann"
    assert main(["keys", "list", *options]) == 0
    assert main(["keys", "revoke", "ann", *options]) == 0
    assert main(["keys", "add", "bob", *options]) == 0


def test_without_the_setting_the_command_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "list"]) == 2
    message = "MOCHI_API_KEYS_FILE is not set. Set it, such as `export MOCHI_API_KEYS_FILE="
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "actions"), [("keys", "{add,list,revoke}"), ("store", "{copy}")]
)
def test_command_without_an_action_names_the_actions(
    capsys: pytest.CaptureFixture[str], command: str, actions: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([command])
    assert f"required: {actions}" in capsys.readouterr().err


def test_name_of_a_key_of_the_settings_is_refused_before_the_database_is_used(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise each worker would report it with a traceback."""
    write_keys(path, **{"key-1": {}})
    monkeypatch.setenv("MOCHI_API_KEYS", "a")
    monkeypatch.setenv("MOCHI_STORE_URL", "postgresql://127.0.0.1:9/none")
    assert main(["--workers", "2", "--data-dir", str(path.parent)]) == 1
    message = f"mochi-server: {path}: 'key-1' is the name of a key of MOCHI_API_KEYS."
    assert capsys.readouterr().err.startswith(message)


def test_server_without_its_keys_file_does_not_start(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([]) == 1
    assert f"{path} does not exist. `mochi-server keys add NAME`" in capsys.readouterr().err


def test_server_with_an_invalid_file_does_not_start(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path.write_text("- name: ann\n  hash: md5:00\n")
    assert main([]) == 1
    assert capsys.readouterr().err.startswith(
        f"mochi-server: {path}, line 2: `hash` is a weak hash"
    )
