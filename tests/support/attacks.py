"""Names that lead out of a directory, in many spellings, and files that show whether they were read
or changed.
"""

import os
from pathlib import Path
from urllib.parse import quote

CANARY = "the canary sings"

WAYS_OUT = [
    "..",
    ".",
    "../canary",
    "../canary.md",
    "../canary.json",
    "../../canary.md",
    "../" * 12 + "etc/passwd",
    "..\\canary.md",
    "....//canary.md",
    "/etc/passwd",
    "C:\\canary.md",
    "\\\\host\\share\\canary.md",
    "file:///etc/passwd",
    "~/canary.md",
]
WINDOWS_NAMES = [
    "CON.md",
    "nul.md",
    "NUL .md",
    "aux.tar.md",
    "com1.md",
    "CONIN$.md",
    "a:b.md",
    "canary.md::$DATA",
]
WINDOWS_NAMES += ["canary.md.", "canary.md ", " canary.md", "canary .md", "nul.json", "CON"]
DECOMPOSED = "cana\u0301ry.md"
LOOK_ALIKES = [
    "．．/canary.md",  # noqa: RUF001 - fullwidth full stops
    "．．／canary.md",  # noqa: RUF001 - and a fullwidth slash
    "‥／canary.md",  # noqa: RUF001 - a two dot leader
    "a／b.md",  # noqa: RUF001
    "a：b.md",  # noqa: RUF001
    "ＮＵＬ.md",  # noqa: RUF001
    "com¹.md",
    "canary\u202edm.exe.md",
    "\u200fcanary.md",
    "ca\u200bnary.md",
    DECOMPOSED,
    "\ufeffcanary.md",
]
ODD_NAMES = [
    "canary.md\0",
    "canary\0.md",
    "canary.md\n",
    "\x1b[2Jcanary.md",
    ".canary.md",
    ".md",
    "x" * 300 + ".md",
]
ODD_NAMES += ["é" * 150 + ".md", "x" * 5000]
NAMES = WAYS_OUT + WINDOWS_NAMES + LOOK_ALIKES + ODD_NAMES

SEGMENTS = sorted(
    {
        *(quote(name, safe="") for name in NAMES),
        *(quote(name, safe="/\\") for name in NAMES),
        *(quote(quote(name, safe=""), safe="") for name in WAYS_OUT),
        *(
            "%2e%2e%2fcanary.md",
            "..%2Fcanary.md",
            "..%5ccanary.md",
            "..%255ccanary.md",
            "%c0%ae%c0%ae%c0%afcanary.md",
        ),
        *(
            "%00",
            "%ff%fe",
            "%",
            "%2",
            "%zz",
            "%u002e%u002e",
            "0123456789%00.json",
            "0123456789.json",
            "%0d%0aX-Evil:1",
        ),
    }
)
"""Names that can be a path segment of a URL."""

NAMES_OF_EACH_KIND = [
    *("../canary.md", "/etc/passwd", "..\\canary.md", "nul.md", "canary.md\0"),
    "．．/canary.md",  # noqa: RUF001 - fullwidth full stops
    DECOMPOSED,
]
SEGMENTS_OF_EACH_KIND = [
    *("..%2Fcanary.md", "%2Fetc%2Fpasswd", "..%5ccanary.md", "..%255ccanary.md"),
    *("canary.md%00", "%c0%ae%c0%ae%c0%afcanary.md"),
]


class FilesOutside:
    """Data directory with files in and around it that the server must not read or change."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / "in" / "data"
        self.data.mkdir(parents=True)
        for folder in (root, root / "in", self.data):
            for name in ("canary", "canary.md", "canary.json", "canary.py"):
                (folder / name).write_text(CANARY)
        self._before = self._snapshot()

    def is_untouched(self) -> bool:
        """Return whether everything outside the server's own directories is unchanged."""
        return self._snapshot() == self._before

    def _snapshot(self) -> dict[str, tuple[int, bytes]]:
        found = {}
        for folder, folders, files in os.walk(self.root):
            if Path(folder) == self.data:
                folders.clear()
            for path in (Path(folder, name) for name in files):
                found[str(path)] = (path.stat().st_mtime_ns, path.read_bytes())
        return found
