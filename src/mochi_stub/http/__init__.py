"""HTTP server of the stub: connections, requests, results and the response cache."""
