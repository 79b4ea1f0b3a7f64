"""Chat turns: from the user message to the stored answer."""
