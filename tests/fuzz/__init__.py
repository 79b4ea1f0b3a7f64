"""Fuzzing: every operation of the OpenAPI document with valid and invalid data."""
