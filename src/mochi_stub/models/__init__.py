"""Declared models and the simulated scheduler that loads them."""
