"""Encoding of answers."""
