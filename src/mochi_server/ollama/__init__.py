"""Talking to Ollama, and nothing else."""
