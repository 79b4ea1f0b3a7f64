"""Real parts for tests: the server on a socket, a client, Ollamas that misbehave."""
