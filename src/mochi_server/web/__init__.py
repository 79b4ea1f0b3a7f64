"""HTTP infrastructure: middleware, event streams, disconnects, exception handlers and OpenAPI."""
