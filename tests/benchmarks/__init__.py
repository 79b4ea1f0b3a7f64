"""Benchmarks of the server, with minimal relays, another proxy and targets for comparison.

`python -m tests.benchmarks` measures; `python -m tests.benchmarks.page` writes
`docs/performance.md` from the saved run.
"""
