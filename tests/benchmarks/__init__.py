"""What a streamed event costs here, beside the least that it could cost: ``python -m tests.benchmarks``."""
