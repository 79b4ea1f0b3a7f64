"""Declared models and the scheduler that loads them."""
