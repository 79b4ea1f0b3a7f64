"""A turn of a conversation, from the user's message to the stored answer."""
