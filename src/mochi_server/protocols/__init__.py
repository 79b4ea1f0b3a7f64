"""Protocols other than the native API. Each has a folder; the modules here are shared by all of them.

A run publishes events. ``part_reader`` converts the events to parts. The encoder of a protocol converts the parts to
bytes.
"""
