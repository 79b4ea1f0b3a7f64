"""The Python client against the real server. Each test runs with the sync and the async client."""
