"""Usage in files: one file for each day."""

import asyncio
import json
import logging
import re
from collections.abc import Mapping
from pathlib import Path

from mochi_server.sessions.usage import Usage, UsageKey, UsageStore, joined, selected
from mochi_server.storage.files import atomic_files

_NAME = re.compile(r"\d{4}-\d\d-\d\d\.json")
_COUNTS = ("requests", "prompt_tokens", "answer_tokens")

logger = logging.getLogger(__name__)


class FileUsageStore(UsageStore):
    """``UsageStore`` in a directory. Only one process uses it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = asyncio.Lock()

    async def add(self, entries: Mapping[UsageKey, Usage]) -> None:
        async with self._lock:
            await asyncio.to_thread(self._add, entries)

    async def since(self, day: str, key: str | None = None) -> Mapping[UsageKey, Usage]:
        async with self._lock:
            return await asyncio.to_thread(self._since, day, key)

    def _add(self, entries: Mapping[UsageKey, Usage]) -> None:
        with atomic_files.storage_errors("store the usage of API keys"):
            atomic_files.create_directory(self._directory)
            for day in sorted({each.day for each in entries}):
                path = self._directory / f"{day}.json"
                of_day = {each: usage for each, usage in entries.items() if each.day == day}
                sums = joined(_read(path), of_day)
                atomic_files.write(path, _encode(sums))

    def _since(self, day: str, key: str | None) -> Mapping[UsageKey, Usage]:
        entries: dict[UsageKey, Usage] = {}
        with atomic_files.storage_errors("read the usage of API keys"):
            for path in sorted(self._directory.glob("*.json")):
                if _NAME.fullmatch(path.name) and path.stem >= day:
                    entries |= _read(path)
        return selected(entries, day, key)


def _encode(entries: Mapping[UsageKey, Usage]) -> bytes:
    rows = []
    for key, usage in sorted(entries.items()):
        counts = {name: getattr(usage, name) for name in _COUNTS}
        rows.append({"key": key.key, "model": key.model, **counts})
    return json.dumps({"usage": rows}, indent=1).encode()


def _read(path: Path) -> dict[UsageKey, Usage]:
    """Return the usage in the file of a day. A missing or invalid file counts as empty. The next
    usage of that day replaces it.

    Raises OSError.
    """
    file = atomic_files.read(path)
    if file is None:
        return {}
    content, _ = file
    entries = {}
    try:
        for row in json.loads(content)["usage"]:
            key, model = row["key"], row["model"]
            if not isinstance(key, str) or not isinstance(model, str):
                raise TypeError(f"key and model: expected strings, found {key!r} and {model!r}")
            counts = [row[name] for name in _COUNTS]
            if not all(isinstance(count, int) for count in counts):
                raise TypeError(f"counts: expected integers, found {counts}")
            entries[UsageKey(path.stem, key, model)] = Usage(*counts)
    except (ValueError, TypeError, LookupError):
        logger.warning("Usage file invalid path=%s", path)
        return {}
    return entries
