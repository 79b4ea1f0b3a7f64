"""Test infrastructure: the server on a socket, a client, and faulty Ollama servers."""
