"""Comparison of mochi-stub and aimock under the same load: `python -m tests.benchmarks.stub`."""
