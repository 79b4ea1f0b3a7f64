"""Chat completions, text completions, models and embeddings of OpenAI's API."""
