"""Generation of replies: scripted and default replies, chunks and their timing."""
