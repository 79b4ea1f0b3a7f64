"""Recorded responses of every wire, read into canonical replies."""
