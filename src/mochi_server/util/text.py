"""Texts for users: masked secrets, corrections of misspelt names, lists of names, and commands for
missing extras.
"""

import json
import re
import shlex
import sys
import unicodedata
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

MASK = "***"
_JOINER = "\u200d"
_SKIN_TONE = re.compile("[\U0001f3fb-\U0001f3ff]")
_FLAG_LETTER = re.compile("[\U0001f1e6-\U0001f1ff]")
_FLAG_LETTERS_AT_END = re.compile("[\U0001f1e6-\U0001f1ff]+\\Z")
_TAG = re.compile("[\U000e0020-\U000e007f]")
MAX_LISTED = 10
_PACKAGE = "mochi-server"


class SecretMasker:
    """Replacement of secrets by ``MASK`` in texts and JSON values."""

    def __init__(self, values: Iterable[str]) -> None:
        self._values: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self.add(values)

    def add(self, values: Iterable[str]) -> None:
        """Mask these values, too."""
        new = set(values) - self._values - {""}
        if not new:
            return
        self._values |= new
        # Longest first, because a secret may be part of a longer secret.
        secrets = sorted(self._values, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, secrets)))

    def mask(self, value: Any) -> Any:
        """Return ``value`` as a JSON value in which ``MASK`` replaces the secrets.

        Other objects become strings. Keys of dictionaries are not masked.
        """
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, dict):
            return {name: self.mask(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.mask(item) for item in value]
        text = str(value)
        if self._pattern is None:
            return text
        return self._pattern.sub(MASK, text)


def grapheme_start(text: str, index: int) -> int:
    """Return where to cut a text at ``index`` or before, so that no grapheme (a letter with its
    accents, or an emoji) is split.

    This is ``index`` if the first grapheme is longer, because nothing would be left of the text.
    ``index`` must be less than the length of the text.
    """
    start = index
    while start > 0 and _continues(text, start):
        start -= 1
    return start or index


def _continues(text: str, index: int) -> bool:
    """Return whether the character at ``index`` belongs to the grapheme of the one before it."""
    character = text[index]
    if _JOINER in (character, text[index - 1]) or _SKIN_TONE.match(character):
        return True
    if _FLAG_LETTER.match(character):
        before = text[:index]
        letters = len(before) - len(_FLAG_LETTERS_AT_END.sub("", before))
        return letters % 2 == 1
    is_mark = unicodedata.category(character) in ("Mn", "Mc", "Me")
    return is_mark or _TAG.match(character) is not None


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the name in ``known`` that is most similar to ``name``, or None if no name is
    similar.
    """
    matches = get_close_matches(name, list(known), n=1)
    return matches[0] if matches else None


def join_names(names: Collection[str]) -> str:
    """Return names as a list in one line.

    A long list ends with the number of the remaining names, at least two.
    """
    more = len(names) - MAX_LISTED
    if more < 2:
        return ", ".join(names)
    first = [*names][:MAX_LISTED]
    return f"{', '.join(first)} and {more} more"


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this installation.

    It names the source from which it was installed.

    Source: https://packaging.python.org/en/latest/specifications/direct-url/
    """
    python = shlex.quote(sys.executable)
    target = f"{_PACKAGE}[{extra}]"
    options = ""
    installer = f"{python} -m pip install"
    try:
        package = distribution(_PACKAGE)
        origin = json.loads(package.read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return f"{installer} {shlex.quote(target)}"
    if (package.read_text("INSTALLER") or "").strip() == "uv":
        installer = f"uv pip install --python {python}"
    if origin.get("dir_info", {}).get("editable"):
        folder = url2pathname(urlsplit(origin["url"]).path)
        options = "-e "
        target = f"{folder}[{extra}]"
    elif "vcs_info" in origin:
        info = origin["vcs_info"]
        revision = info.get("requested_revision") or info["commit_id"]
        target += f" @ {info['vcs']}+{origin['url']}@{revision}"
    elif "url" in origin:
        target += f" @ {origin['url']}"
    return f"{installer} {options}{shlex.quote(target)}"


def text_of_error(error: BaseException) -> str:
    """Return the text of an exception, or "" if its ``__str__``, which may be user code, raises
    anything.
    """
    try:
        return str(error)
    except BaseException:
        return ""
