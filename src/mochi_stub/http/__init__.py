"""HTTP server of the stub: connections, requests and responses, and access control."""
