"""Generation of replies: scripted and built-in replies, chunks and their timing."""
