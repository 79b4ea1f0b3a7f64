"""A deterministic LLM server, true to Ollama's wire."""
