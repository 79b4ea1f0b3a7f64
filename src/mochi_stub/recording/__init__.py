"""Recording of real servers and replay of recorded responses."""
