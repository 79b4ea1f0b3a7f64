"""HTTP code that is not a route: middleware, SSE, disconnects, exception handlers and OpenAPI."""
