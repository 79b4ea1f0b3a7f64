"""Against a real Ollama, where there is one."""
