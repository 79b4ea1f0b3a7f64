"""The HTTP API, over real sockets."""
