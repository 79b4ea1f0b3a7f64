"""Chat sessions: what they are, how they are kept."""
