"""HTTP connections, requests and results, for every wire alike."""
