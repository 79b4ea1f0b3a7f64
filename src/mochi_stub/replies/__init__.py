"""Generation of replies: scripts, default replies, chunks and their pace."""
