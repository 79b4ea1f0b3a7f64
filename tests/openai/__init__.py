"""OpenAI-compatible API at `/v1` with the official client and an agent library."""
