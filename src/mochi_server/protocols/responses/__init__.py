"""OpenAI's Responses API under `/v1/responses`."""
