"""The Python client against the real server. Every test runs over both of its faces."""
