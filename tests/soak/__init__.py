"""Many streams for minutes: whether they all arrive whole, and whether the server stays as it was."""
