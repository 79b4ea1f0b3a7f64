"""Commands as processes."""
