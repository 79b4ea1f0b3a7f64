"""Encoding and decoding of turn logs. A turn log contains the changes since the session's file was written.

Each line contains one change and the digest of the history before the change. A line is ignored if the history has
another digest. Therefore a log has no effect if its changes are already in the file.
"""

from collections.abc import Mapping
from typing import Any

from mochi_server.sessions.serialization import decode, encode
from mochi_server.storage.session_record import SessionRecord


def tail_line(before: SessionRecord, from_index: int, after: SessionRecord) -> bytes:
    head = {"at": before.digest, "from": from_index, "updated_at": after.metadata.updated_at}
    new = map(encode, after.messages[from_index:])
    return encode(head)[:-1] + b',"messages":[' + b",".join(new) + b"]}\n"


def fields_line(before: SessionRecord, fields: Mapping[str, Any], updated_at: str) -> bytes:
    return encode({"at": before.digest, "fields": fields, "updated_at": updated_at}) + b"\n"


def partial_line(after: SessionRecord) -> bytes:
    return encode({"at": after.digest, "partial": after.partial}) + b"\n"


def apply_log(record: SessionRecord, log: bytes) -> SessionRecord:
    """Return ``record`` with the changes of a turn log. Invalid lines and lines for another history are ignored."""
    for encoded in log.split(b"\n")[:-1]:
        try:
            line = decode(encoded)
            if line["at"] != record.digest:
                continue
            if "fields" in line:
                record = record.with_fields(line["fields"], line["updated_at"])
            elif "partial" in line:
                record = record.with_partial(line["partial"])
            else:
                record = record.with_tail(line["from"], line["messages"], line["updated_at"])
        except (ValueError, TypeError, KeyError, AttributeError):
            continue
    return record
