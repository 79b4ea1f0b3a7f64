"""Helpers without chat logic."""
