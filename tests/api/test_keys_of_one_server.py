"""Keys at one server: log lines, metrics and a changed keys file."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from mochi_stub import StubServer
from tests.api.test_keys import _GOOD, as_key, keys_file, listed, shared_server  # noqa: F401 - fixtures
from tests.support.keys import write_keys
from tests.support.server import RunningServer


def test_log_and_metrics_name_the_key(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    from mochi_server.telemetry.logging import JsonFormatter, TextFormatter
    from mochi_server.util.text import SecretMasker

    lines: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.extend(
                form(SecretMasker([])).format(record) for form in (JsonFormatter, TextFormatter)
            )

    logger, handler = logging.getLogger("mochi_server.web.request_log"), Handler()
    logger.addHandler(handler)
    try:
        with caplog.at_level("INFO"):
            bob = as_key(server, "bob")
            bob.send_message(bob.create_session("mochi")["session_id"], "Hello")
    finally:
        logger.removeHandler(handler)
    assert any('"key": "bob"' in line for line in lines)
    assert any("key=bob]" in line for line in lines)
    assert not any("bob secret" in line for line in lines)
    metrics = as_key(server, "root").http.get("/metrics").text
    assert 'mochi_key_turns_total{key="bob",outcome="completed"}' in metrics


def test_changed_file_is_read_again(
    stub: StubServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_keys(tmp_path / "keys.yaml", ann={})
    with RunningServer(tmp_path, stub.url, api_keys_file=str(path)) as server:
        ann, bob = as_key(server, "ann"), as_key(server, "bob")
        first = ann.create_session("mochi")["session_id"]
        assert bob.http.get("/sessions").status_code == 401
        write_keys(path, ann={}, bob={})
        assert listed(bob) == []
        for broken in ("- name: ann\n  hash: md5:0123\n", None):
            path.write_text(broken) if broken else path.unlink()
            caplog.clear()
            assert [listed(ann), listed(ann)] == [[first], [first]]
            (record,) = [each for each in caplog.records if each.levelname == "ERROR"]
            assert str(path) in record.getMessage()
        path.write_text(f"- name: ann\n  hash: {_GOOD}\n")
        assert ann.http.get("/sessions").status_code == 401
