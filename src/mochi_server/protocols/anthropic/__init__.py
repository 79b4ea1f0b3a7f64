"""Messages API of Anthropic."""
