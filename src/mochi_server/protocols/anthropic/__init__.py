"""Anthropic's Messages API under `/v1/messages`."""
