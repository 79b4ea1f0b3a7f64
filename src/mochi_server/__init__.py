"""A headless chat backend for Ollama."""
