"""The documentation is tried: every block of code runs or is read, every link leads somewhere, the site is built.

What a page may use, so that its blocks run as a reader would run them:

- Blocks of one page run in order, in a directory like a clone of the repository. Variables of the shell and names in
  Python live from block to block.
- The documented addresses stand for a server and a stub that are running already. A command that would serve is
  started on a free port, until it says that it is ready, and ended.
- ``pip``, ``git`` and ``uv sync`` do nothing; ``uv run`` runs. ``curl`` fails where the server refuses. ``sleep`` is
  short, because the stub does not wait.
- A block with a title (three backticks, ``python title="tools/weather.py"``) is the file of that name.
- ``<!-- not run: why -->`` above a block keeps it from being run; it is read all the same, and the reason is reported.
"""
