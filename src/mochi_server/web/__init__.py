"""HTTP that is not a route: middleware, SSE, disconnects, exception handlers, OpenAPI."""
