"""What the server costs, beside the least that it could cost, what people use instead, and what is aimed at.

``python -m tests.benchmarks`` measures; ``python -m tests.benchmarks.page`` makes ``docs/performance.md`` of what was
saved.
"""
