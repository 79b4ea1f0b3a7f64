"""A session between two writings of its file: what was read, what changed since, and the log lines that say so.

Pure. A log line names the history it was written on by its ``mark``; on any other history it is passed over, so that a
log which is in the file already changes nothing, however often it is laid over it.
"""

from collections.abc import Mapping
from typing import Any

from mochi_server.sessions.serialization import decode, encode
from mochi_server.storage.session_record import SessionRecord


def tail_line(before: SessionRecord, from_index: int, after: SessionRecord) -> bytes:
    head = {"at": before.mark, "from": from_index, "updated_at": after.metadata.updated_at}
    new = map(encode, after.messages[from_index:])
    return encode(head)[:-1] + b',"messages":[' + b",".join(new) + b"]}\n"


def fields_line(before: SessionRecord, fields: Mapping[str, Any], updated_at: str) -> bytes:
    return encode({"at": before.mark, "fields": fields, "updated_at": updated_at}) + b"\n"


def partial_line(after: SessionRecord) -> bytes:
    by = {} if after.writer is None else {"by": after.writer}
    return encode({"at": after.mark, "partial": after.partial, **by}) + b"\n"


def overlay(record: SessionRecord, log: bytes) -> SessionRecord:
    """A file's record with its turn log laid over; torn and foreign lines are passed over."""
    for encoded in log.split(b"\n")[:-1]:
        try:
            line = decode(encoded)
            if line["at"] != record.mark:
                continue
            if "fields" in line:
                record = record.with_fields(line["fields"], line["updated_at"])
            elif "partial" in line:
                record = record.with_partial(line["partial"], line.get("by"))
            else:
                record = record.with_tail(line["from"], line["messages"], line["updated_at"])
        except (ValueError, TypeError, KeyError, AttributeError):
            continue
    return record
