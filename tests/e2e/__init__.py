"""Tests with a real Ollama."""
