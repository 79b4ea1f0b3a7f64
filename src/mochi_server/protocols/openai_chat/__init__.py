"""OpenAI's API under `/v1`: chat completions, text completions, models and embeddings."""
